//! Writes one line to the log when a medium refuses, is full, or returns damaged data, at most one
//! of each kind in ten seconds. Every request may meet such a fault, and a line for each would
//! leave no room for others.
//!
//! No line tells a key: clients may keep secrets in them. `laneway fsck` tells them.

use laneway_tier::Error;
use log::Level;

/// Between two lines of one kind.
const PAUSE_NANOS: u64 = 10_000_000_000;

/// What the log was told of lately.
#[derive(Default)]
pub(super) struct Trouble {
    full: Pause,
    writes: Pause,
    commits: Pause,
    flushes: Pause,
    reads: Pause,
}

impl Trouble {
    /// A change was refused.
    pub(super) fn refused(&mut self, error: &Error, now_nanos: u64) {
        tell(self.refusal(error, now_nanos));
    }

    fn refusal(&mut self, error: &Error, now_nanos: u64) -> Option<(Level, String)> {
        let (level, pause) = match error {
            // The client is wrong, and is told so.
            Error::KeyBytes(_) | Error::ValueBytes(_) | Error::Lost { .. } => return None,
            Error::PmFull | Error::SsdFull { .. } => (Level::Warn, &mut self.full),
            _ => (Level::Error, &mut self.writes),
        };
        let left_out = pause.another(now_nanos)?;
        Some((level, format!("a write was refused: {error}{left_out}")))
    }

    /// What was appended could not be made durable.
    pub(super) fn commit_failed(&mut self, error: &Error, now_nanos: u64) {
        tell(self.commits.another(now_nanos).map(|left_out| {
            let line = format!(
                "what was written cannot be made durable: {error}; writes are refused until \
                 restart, reads go on{left_out}"
            );
            (Level::Error, line)
        }));
    }

    /// A flush whose time has come could not be carried out.
    pub(super) fn flush_refused(&mut self, error: &Error, now_nanos: u64) {
        tell(self.flushes.another(now_nanos).map(|left_out| {
            let line = format!(
                "a flush_all that is due cannot be carried out: {error}; what it is to delete \
                 stays meanwhile, and it is tried again{left_out}"
            );
            (Level::Error, line)
        }));
    }

    /// An item could not be read.
    pub(super) fn unread(&mut self, error: &Error, now_nanos: u64) {
        tell(self.unreadable(error, now_nanos));
    }

    fn unreadable(&mut self, error: &Error, now_nanos: u64) -> Option<(Level, String)> {
        let left_out = self.reads.another(now_nanos)?;
        let line = match error {
            Error::Lost { why, .. } => format!(
                "an item is lost: {why}; who asks for it is told so, a new set replaces it, and \
                 laneway fsck tells its key{left_out}"
            ),
            error => format!("an item cannot be read: {error}{left_out}"),
        };
        Some((Level::Error, line))
    }
}

fn tell(line: Option<(Level, String)>) {
    if let Some((level, line)) = line {
        log::log!(level, "{line}");
    }
}

/// No line is written until this is over.
#[derive(Default)]
struct Pause {
    until_nanos: u64,
    left_out: u64,
}

impl Pause {
    /// There is cause for another line. If it is to be written: what it ends with, which says how
    /// many were left out since the last one.
    fn another(&mut self, now_nanos: u64) -> Option<String> {
        if now_nanos < self.until_nanos {
            self.left_out += 1;
            return None;
        }
        self.until_nanos = now_nanos.saturating_add(PAUSE_NANOS);
        Some(match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            more => format!(" ({more} more such since the last of these lines)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_kind_in_ten_seconds_counts_those_it_stands_for() {
        let mut trouble = Trouble::default();
        let full = Error::SsdFull { blocks: 3 };
        let failed = Error::Poisoned("the log: no such device".into());
        let (level, line) = trouble.refusal(&full, 0).expect("the first");
        assert_eq!(level, Level::Warn);
        assert!(line.ends_with("a larger --pm-size or --ssd-size"), "{line}");
        assert!(trouble.refusal(&Error::PmFull, 1).is_none(), "it is the same kind");
        let (level, line) = trouble.refusal(&failed, 1).expect("a device that fails is another");
        assert_eq!(level, Level::Error);
        assert!(line.contains("refused until restart") && line.ends_with("no such device"));
        for now_nanos in 2..9 {
            assert!(trouble.refusal(&full, now_nanos).is_none());
        }
        let (_, line) = trouble.refusal(&full, PAUSE_NANOS).expect("the pause is over");
        assert!(line.ends_with("(8 more such since the last of these lines)"), "{line}");
        let (_, line) = trouble.refusal(&full, 2 * PAUSE_NANOS).expect("and over");
        assert!(line.ends_with("or --ssd-size"), "{line}");
    }

    #[test]
    fn what_a_client_asked_wrongly_is_not_told_and_no_key_ever_is() {
        let mut trouble = Trouble::default();
        assert!(trouble.refusal(&Error::KeyBytes(0), 0).is_none());
        assert!(trouble.refusal(&Error::ValueBytes(5), 0).is_none());
        let lost = Error::Lost { key: b"secret".to_vec(), why: "its value is damaged".into() };
        assert!(trouble.refusal(&lost, 0).is_none());
        let (level, line) = trouble.unreadable(&lost, 0).expect("the first");
        assert_eq!(level, Level::Error);
        assert!(line.contains("its value is damaged") && !line.contains("secret"), "{line}");
        assert!(trouble.unreadable(&lost, PAUSE_NANOS - 1).is_none());
    }
}
