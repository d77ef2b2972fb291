//! `stats hotkeys`: the keys that everybody asks for, and where they are served. `stats balance`:
//! how evenly the workers are loaded (KeySched §2 "Max-Ave-Ratio": the busiest worker's requests
//! over the mean).

use super::lines::{Lines, numbers};
use crate::hot::board::{HotKeyCard, HotReport};
use crate::hot::window::{Balance, max_ave_ratio};
use std::fmt::{Display, Write};

/// Answer `stats hotkeys`; what is told of a key is of the last second or two. `None`: nobody looks
/// after hot keys. `bytes` are those of a key and its value, if there is such an item.
pub fn write_hot_keys(
    report: Option<&HotReport>,
    bytes: impl Fn(&[u8]) -> Option<u64>,
    out: &mut Vec<u8>,
) {
    let mut lines = Lines::new(out);
    let Some(report) = report else {
        lines.text("hot", "off");
        return lines.end();
    };
    let (settings, executed) = (&report.settings, &report.executed);
    lines.text("hot", settings.rule());
    lines.number("slot_requests", settings.slot.requests.into());
    lines.number("slot_us", settings.slot.nanos.0 / 1_000);
    lines.number("slots", report.slot);
    lines.number("threshold", report.threshold.into());
    lines.number("keys_max", settings.keys_max as u64);
    lines.number("keys", report.keys.len() as u64);
    numbers!(lines, report; found moved);
    lines.number("reads", executed.iter().map(|(reads, _)| reads).sum());
    lines.number("writes", executed.iter().map(|(_, writes)| writes).sum());
    for (worker, (reads, writes)) in executed.iter().enumerate() {
        lines.number(&format!("worker:{worker}:reads"), *reads);
        lines.number(&format!("worker:{worker}:writes"), *writes);
    }
    for (number, key) in report.keys.iter().enumerate() {
        write_key(number, key, bytes(&key.text), &mut lines);
    }
    lines.end();
}

fn write_key(number: usize, key: &HotKeyCard, bytes: Option<u64>, lines: &mut Lines<'_>) {
    let mut line =
        |name: &str, value: &dyn Display| lines.shown(&format!("key:{number}:{name}"), value);
    let (name, text) = key_shown(&key.text);
    line(name, &text);
    let since = &key.since;
    let requests = since.reads + since.writes;
    let seconds = since.nanos as f64 / 1e9;
    let rate = if since.nanos > 0 { requests as f64 / seconds } else { 0.0 };
    line("requests_per_second", &format_args!("{rate:.0}"));
    line("share", &format_args!("{:.4}", part(requests, since.all)));
    line("reads", &format_args!("{:.3}", part(since.reads, requests)));
    if let Some(bytes) = bytes {
        line("bytes", &bytes);
    }
    line("worker", &key.owner.0);
    line("home", &key.home.0);
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

/// Answer `stats balance`: requests that each worker has executed since the start, and slot by
/// slot, where hot keys are looked after.
pub fn write_balance(executed: &[u64], balance: Option<&Balance>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    let mut ratio = |name: &str, ratio: f64| lines.shown(name, format_args!("{ratio:.4}"));
    ratio("max_ave_ratio_since_start", max_ave_ratio(executed).unwrap_or(1.0));
    if let Some(balance) = balance {
        let mean = |sum: f64| if balance.slots > 0 { sum / balance.slots as f64 } else { 1.0 };
        let by_hash = max_ave_ratio(&balance.run_by_hash);
        ratio("max_ave_ratio_run", max_ave_ratio(&balance.run).unwrap_or(1.0));
        ratio("max_ave_ratio_run_by_hash", by_hash.unwrap_or(1.0));
        ratio("max_ave_ratio_slot", mean(balance.ratios));
        ratio("max_ave_ratio_slot_by_hash", mean(balance.ratios_by_hash));
        lines.number("slots", balance.slots);
    }
    for (worker, executed) in executed.iter().enumerate() {
        lines.number(&format!("worker:{worker}:requests_since_start"), *executed);
        if let Some(balance) = balance {
            lines.number(&format!("worker:{worker}:requests_run"), balance.run[worker]);
            lines.number(&format!("worker:{worker}:requests_slot"), balance.slot[worker]);
        }
    }
    lines.end();
}
