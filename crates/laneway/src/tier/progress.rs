//! How far a tool is, told on stderr: in one line that is written over where that is a terminal,
//! else in a line now and then.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often it is told on a terminal, and elsewhere.
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(5);
/// Back to the front of the line, and nothing behind it.
const OVER: &str = "\r\x1b[K";

/// Tells it.
pub struct Progress {
    tool: &'static str,
    is_terminal: bool,
    /// What is done now, and when that began.
    stage: Option<(&'static str, Instant)>,
    /// When it was told last.
    told: Option<Instant>,
}

impl Progress {
    /// Of this tool, on stderr.
    pub fn of(tool: &'static str) -> Progress {
        Progress { tool, is_terminal: stderr().is_terminal(), stage: None, told: None }
    }

    /// So far it is now: so many bytes of all are what `stage` says.
    pub fn hear(&mut self, stage: &'static str, done: u64, total: u64) {
        if let Some(line) = self.line(stage, done, total, Instant::now()) {
            let (front, end) = if self.is_terminal { (OVER, "") } else { ("", "\n") };
            // A user may have closed standard error.
            let _ = write!(stderr(), "{front}laneway {}: {line}{end}", self.tool);
        }
    }

    /// Nothing more comes.
    pub fn end(self) {
        if self.is_terminal && self.told.is_some() {
            let _ = write!(stderr(), "{OVER}");
        }
    }

    /// What is to be told now, if anything is.
    fn line(&mut self, stage: &'static str, done: u64, total: u64, now: Instant) -> Option<String> {
        let began = match self.stage {
            Some((same, began)) if same == stage => began,
            _ => {
                self.stage = Some((stage, now));
                now
            }
        };
        let last = *self.told.get_or_insert(now);
        let rest = if self.is_terminal { OFTEN } else { SELDOM };
        if now < last + rest || total == 0 {
            return None;
        }
        self.told = Some(now);
        Some(told(stage, done, total, now - began))
    }
}

fn told(what: &str, done: u64, total: u64, took: Duration) -> String {
    let percent = u128::from(done) * 100 / u128::from(total.max(1));
    let front = format!("{} of {} {what} ({percent} %)", size(done), size(total));
    let rate = done as f64 / took.as_secs_f64();
    if done == 0 || !rate.is_normal() {
        return front;
    }
    let left = Duration::from_secs_f64(total.saturating_sub(done) as f64 / rate);
    format!("{front}, {}/s, {} left", size(rate as u64), time(left))
}

/// A number of bytes as people read it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64),
    }
}

fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_bytes_rate_and_the_time_that_is_left() {
        let gib = 1 << 30;
        for (stage, done, total, seconds, expected) in [
            ("read", 0, 10 * gib, 5, "0 KiB of 10.0 GiB read (0 %)"),
            ("read", gib, 10 * gib, 0, "1.0 GiB of 10.0 GiB read (10 %)"),
            ("read", gib, 10 * gib, 2, "1.0 GiB of 10.0 GiB read (10 %), 512 MiB/s, 18 s left"),
            (
                "of the log replayed",
                100 << 20,
                200 << 20,
                130,
                "100 MiB of 200 MiB of the log replayed (50 %), 787 KiB/s, 2 min left",
            ),
            (
                "read",
                gib,
                1000 * gib,
                10,
                "1.0 GiB of 1000.0 GiB read (0 %), 102 MiB/s, 2 h 46 min left",
            ),
        ] {
            assert_eq!(told(stage, done, total, Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn it_is_told_every_few_seconds_or_often_on_a_terminal() {
        let began = Instant::now();
        // Of fifteen seconds; the first moment tells nothing.
        for (is_terminal, expected) in [(false, 3), (true, 75)] {
            let mut progress = Progress { tool: "fsck", is_terminal, stage: None, told: None };
            let lines = (0..=1500_u32).filter(|hundredth| {
                let now = began + Duration::from_millis(10) * *hundredth;
                progress.line("read", 1, 2, now).is_some()
            });
            assert_eq!(lines.count(), expected);
        }
    }
}
