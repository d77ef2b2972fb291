//! `stats hotkeys`: the keys that everybody asks for, and where they are served. `stats balance`:
//! how evenly the workers are loaded (KeySched §2 "Max-Ave-Ratio": the busiest worker's requests
//! over the mean).

use super::lines::Lines;
use std::fmt::{Display, Write};

/// One hot key. What was counted is of the last second or two.
#[derive(Debug, Clone, Default)]
pub struct HotKeyLine {
    /// The key.
    pub key: Box<[u8]>,
    /// How long it was counted.
    pub nanos: u64,
    /// Reads of it.
    pub reads: u64,
    /// Writes of it.
    pub writes: u64,
    /// Requests of any kind.
    pub all: u64,
    /// Bytes of key and value, if there is such an item.
    pub bytes: Option<u64>,
    /// Whose it is now.
    pub worker: u16,
    /// Whose it is when it is cold.
    pub home: u16,
    /// Times that it has gone to another worker.
    pub moves: u32,
}

/// What `stats hotkeys` tells.
#[derive(Debug, Clone, Default)]
pub struct HotKeysSnapshot {
    /// Which rule: as `--hot` names it.
    pub rule: &'static str,
    /// A slot lasts until it has held so many requests.
    pub slot_requests: u32,
    /// And so long.
    pub slot_nanos: u64,
    /// Slots that are over.
    pub slots: u64,
    /// Requests in this slot from which on a key is hot.
    pub threshold: u32,
    /// Hot keys at most.
    pub keys_max: u64,
    /// Keys found hot so far.
    pub found: u64,
    /// Times that a hot key went to another worker at a slot's end.
    pub moved: u64,
    /// Reads and writes of keys that were hot, by the worker that executed them, so far.
    pub executed: Vec<(u64, u64)>,
    /// The hot keys, the one asked for most first.
    pub keys: Vec<HotKeyLine>,
}

/// Answer `stats hotkeys`.
pub fn write_hot_keys(snapshot: Option<&HotKeysSnapshot>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    let Some(snapshot) = snapshot else {
        lines.text("hot", "off");
        return lines.end();
    };
    lines.text("hot", snapshot.rule);
    lines.number("slot_requests", snapshot.slot_requests.into());
    lines.number("slot_us", snapshot.slot_nanos / 1_000);
    lines.number("slots", snapshot.slots);
    lines.number("threshold", snapshot.threshold.into());
    lines.number("keys_max", snapshot.keys_max);
    lines.number("keys", snapshot.keys.len() as u64);
    lines.number("found", snapshot.found);
    lines.number("moved", snapshot.moved);
    lines.number("reads", snapshot.executed.iter().map(|(reads, _)| reads).sum());
    lines.number("writes", snapshot.executed.iter().map(|(_, writes)| writes).sum());
    for (worker, (reads, writes)) in snapshot.executed.iter().enumerate() {
        lines.number(&format!("worker:{worker}:reads"), *reads);
        lines.number(&format!("worker:{worker}:writes"), *writes);
    }
    for (number, key) in snapshot.keys.iter().enumerate() {
        write_key(number, key, &mut lines);
    }
    lines.end();
}

fn write_key(number: usize, key: &HotKeyLine, lines: &mut Lines<'_>) {
    let mut line =
        |name: &str, value: &dyn Display| lines.shown(&format!("key:{number}:{name}"), value);
    let (name, text) = key_shown(&key.key);
    line(name, &text);
    let requests = key.reads + key.writes;
    let seconds = key.nanos as f64 / 1e9;
    let rate = if key.nanos > 0 { requests as f64 / seconds } else { 0.0 };
    line("requests_per_second", &format_args!("{rate:.0}"));
    line("share", &format_args!("{:.4}", part(requests, key.all)));
    line("reads", &format_args!("{:.3}", part(key.reads, requests)));
    if let Some(bytes) = key.bytes {
        line("bytes", &bytes);
    }
    line("worker", &key.worker);
    line("home", &key.home);
    line("moves", &key.moves);
}

/// A part of a whole; 0 of nothing. Counts of several workers are a moment's smear, so that a part
/// may be ahead of its whole.
pub(super) fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}

/// A key as a line tells it: by which name, and how.
pub(super) fn key_shown(key: &[u8]) -> (&'static str, String) {
    match key.iter().all(u8::is_ascii_graphic) {
        true => ("key", String::from_utf8_lossy(key).into_owned()),
        false => ("key_hex", hex(key)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let written = write!(text, "{byte:02x}");
        debug_assert!(written.is_ok(), "a String takes everything");
        text
    })
}

/// What the slots that are over tell of the workers' balance.
#[derive(Debug, Clone, Default)]
pub struct SlotsSnapshot {
    /// How many.
    pub slots: u64,
    /// Max-Ave-Ratio over all of them.
    pub ratio_run: Option<f64>,
    /// The same, had every key stayed where its hash says.
    pub ratio_run_by_hash: Option<f64>,
    /// Sum of the ratios of each.
    pub ratios: f64,
    /// The same, had every key stayed where its hash says.
    pub ratios_by_hash: f64,
    /// Requests that each worker executed in them.
    pub run: Vec<u64>,
    /// The same in the last of them.
    pub slot: Vec<u64>,
}

/// What `stats balance` tells.
#[derive(Debug, Clone, Default)]
pub struct BalanceSnapshot {
    /// Requests that each worker has executed since the start.
    pub executed: Vec<u64>,
    /// Slot by slot, where hot keys are looked after.
    pub slots: Option<SlotsSnapshot>,
}

/// Answer `stats balance`.
pub fn write_balance(snapshot: &BalanceSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    let mut ratio = |name: &str, ratio: f64| lines.shown(name, format_args!("{ratio:.4}"));
    let executed = crate::hot::window::max_ave_ratio(&snapshot.executed);
    ratio("max_ave_ratio_since_start", executed.unwrap_or(1.0));
    if let Some(slots) = &snapshot.slots {
        let mean = |sum: f64| if slots.slots > 0 { sum / slots.slots as f64 } else { 1.0 };
        ratio("max_ave_ratio_run", slots.ratio_run.unwrap_or(1.0));
        ratio("max_ave_ratio_run_by_hash", slots.ratio_run_by_hash.unwrap_or(1.0));
        ratio("max_ave_ratio_slot", mean(slots.ratios));
        ratio("max_ave_ratio_slot_by_hash", mean(slots.ratios_by_hash));
        lines.number("slots", slots.slots);
    }
    for (worker, executed) in snapshot.executed.iter().enumerate() {
        lines.number(&format!("worker:{worker}:requests_since_start"), *executed);
        if let Some(slots) = &snapshot.slots {
            lines.number(&format!("worker:{worker}:requests_run"), slots.run[worker]);
            lines.number(&format!("worker:{worker}:requests_slot"), slots.slot[worker]);
        }
    }
    lines.end();
}
