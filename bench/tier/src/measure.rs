//! What this process has used so far, by the kernel's own counts: processor time of all its
//! threads, those that ended too, and bytes that it sent to storage and took from there.
//!
//! `write_bytes` counts a page of the page cache once, when it is made dirty, and a direct write as
//! it is; files in memory are in neither. `cancelled_write_bytes` are pages that were removed
//! before the disk saw them.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

/// Counts up to a moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// Processor time.
    pub cpu: Duration,
    /// Bytes sent to storage.
    pub written_bytes: u64,
    /// Of these, removed in time.
    pub cancelled_bytes: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
}

impl Used {
    /// Now.
    pub fn now() -> Result<Used, String> {
        let clock = clock_gettime(ClockId::ProcessCPUTime);
        let text = fs::read_to_string("/proc/self/io")
            .map_err(|error| format!("/proc/self/io: {error}"))?;
        let of = |name: &str| {
            field(&text, name).ok_or_else(|| format!("/proc/self/io: there is no {name}"))
        };
        Ok(Used {
            cpu: Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32),
            written_bytes: of("write_bytes")?,
            cancelled_bytes: of("cancelled_write_bytes")?,
            read_bytes: of("read_bytes")?,
        })
    }

    /// Between `earlier` and this.
    pub fn since(&self, earlier: &Used) -> Used {
        Used {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            written_bytes: self.written_bytes - earlier.written_bytes,
            cancelled_bytes: self.cancelled_bytes - earlier.cancelled_bytes,
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }
}

/// The most memory this process had resident, in bytes; the page cache is not in it.
pub fn resident_bytes_max() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let words = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(words.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok();
    text.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_by_their_whole_name() {
        let text = "rchar: 1\nread_bytes: 2\nwrite_bytes: 3\ncancelled_write_bytes: 4\n";
        assert_eq!(field(text, "write_bytes"), Some(3));
        assert_eq!(field(text, "cancelled_write_bytes"), Some(4));
        assert_eq!(field(text, "bytes"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let used = Used::now().expect("/proc is there");
        assert!(used.cpu > Duration::ZERO);
        assert!(resident_bytes_max().is_some_and(|bytes| bytes > 0));
    }
}
