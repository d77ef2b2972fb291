//! `stats hotkeys` where nobody looks after hot keys: which keys are asked for most, by samples.

use super::hot::{key_shown, part};
use super::lines::Lines;
use crate::hot::sample::{Count, EVERY};
use std::cmp::Reverse;
use std::fmt::Display;

/// One key.
#[derive(Debug, Clone)]
pub struct SampledKey {
    /// It.
    pub key: Vec<u8>,
    /// Samples of it.
    pub count: Count,
    /// Bytes of key and value, if there is such an item.
    pub bytes: Option<u64>,
}

impl SampledKey {
    /// Samples that are certainly of it.
    fn certain(&self) -> u64 {
        self.count.certain()
    }

    fn moved(&self) -> u64 {
        self.certain() * self.bytes.unwrap_or(0)
    }
}

/// What the samples tell.
#[derive(Debug, Clone, Default)]
pub struct SamplesSnapshot {
    /// Samples taken of late.
    pub samples: u64,
    /// Items from here on are large.
    pub threshold_bytes: u64,
    /// The keys, the one asked for most first.
    pub keys: Vec<SampledKey>,
}

/// Answer `stats hotkeys` by samples.
pub fn write_samples(snapshot: &SamplesSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.text("hot", "off");
    lines.number("sampled_every", EVERY.into());
    lines.number("samples", snapshot.samples);
    // Once is nothing: only what was met again is told.
    let told: Vec<&SampledKey> = snapshot.keys.iter().filter(|key| key.certain() > 1).collect();
    lines.number("keys", told.len() as u64);
    let mut by_bytes: Vec<usize> = (0..told.len()).collect();
    by_bytes.sort_by_key(|&at| Reverse(told[at].moved()));
    for (number, key) in told.iter().enumerate() {
        let mut line =
            |name: &str, value: &dyn Display| lines.shown(&format!("key:{number}:{name}"), value);
        let (name, text) = key_shown(&key.key);
        line(name, &text);
        line("share", &format_args!("{:.4}", part(key.certain(), snapshot.samples)));
        line("reads", &format_args!("{:.3}", part(key.count.reads, key.count.all())));
        if let Some(bytes) = key.bytes {
            line("bytes", &bytes);
            line("large", &if bytes >= snapshot.threshold_bytes { "yes" } else { "no" });
        }
        let rank = by_bytes.iter().position(|&at| at == number).unwrap_or(0);
        line("rank_by_bytes", &rank);
    }
    lines.end();
}
