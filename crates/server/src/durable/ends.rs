//! When an item that is kept ends, to the millisecond. A record has the second in which it ends at
//! the latest, which is all that the tier knows and its index has, and the milliseconds among the
//! caller's marks. Where an answer depends on them the record is read, and its end remembered: its
//! value need not come into memory for it.

use laneway_store::Moment;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{ItemMeta, Look};
use std::collections::HashMap;

/// Where the milliseconds stand among the marks. Records of servers that knew none have 0 there,
/// and a server that knows none takes the second.
const MILLIS_SHIFT: u32 = 2;
const MILLIS_MASK: u16 = (1 << 10) - 1;
/// So many ends are remembered, and all forgotten when there are more.
const KNOWN_MAX: usize = 1024;

/// An end as a record has it: the first full second that is not before it, and marks.
pub(super) fn record_of(end: Moment) -> (u32, u16) {
    (end.seconds_up(), (end.millis() as u16) << MILLIS_SHIFT)
}

/// The end that a record tells.
pub(super) fn end_of(meta: &ItemMeta) -> Moment {
    let (seconds, millis) = (meta.expires_at_seconds, meta.marks >> MILLIS_SHIFT & MILLIS_MASK);
    match millis {
        1..1000 if seconds > 0 && !is_planted(Bug::MillisecondsLost) => {
            Moment::new(seconds - 1, millis.into())
        }
        _ => Moment::from_seconds(seconds),
    }
}

/// Ends that were read lately, of items that have not changed since.
#[derive(Default)]
pub(super) struct Ends(HashMap<Box<[u8]>, Moment>);

impl Ends {
    /// A record was read.
    pub(super) fn learn(&mut self, key: &[u8], end: Moment) {
        if end == Moment::NEVER {
            return;
        }
        if self.0.len() == KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert(key.into(), end);
    }

    /// The key's item is another one, or none, from now on.
    pub(super) fn forget(&mut self, key: &[u8]) {
        if !self.0.is_empty() {
            self.0.remove(key); // which hashes it, whatever there is
        }
    }

    /// So is every key's.
    pub(super) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// When the item that the tier's index has ends, if that is known.
    pub(super) fn of(&self, key: &[u8], look: &Look) -> Option<Moment> {
        if look.expires_at_seconds == 0 {
            return Some(Moment::NEVER);
        }
        self.0.get(key).copied().filter(|end| end.seconds_up() == look.expires_at_seconds)
    }

    /// Whether an item whose second has not come is over.
    pub(super) fn is_over(&self, key: &[u8], look: &Look, now: Moment) -> bool {
        self.of(key, look).is_some_and(|end| end.is_over(now))
    }

    /// Whether it may be, for all that is known: its end may have come in the second before.
    pub(super) fn may_be_over(&self, key: &[u8], look: &Look, now: Moment) -> bool {
        look.expires_at_seconds == now.seconds().saturating_add(1) && self.of(key, look).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(expires_at_seconds: u32) -> Look {
        let (waits, is_large) = (false, false);
        Look { value_bytes: 1, sequence: 1, expires_at_seconds, waits, is_large }
    }

    #[test]
    fn a_record_has_an_end_to_the_millisecond_and_its_second_is_never_too_early() {
        for (end, seconds) in [
            (Moment::NEVER, 0),
            (Moment::from_seconds(9), 9),
            (Moment::new(9, 1), 10),
            (Moment::new(9, 999), 10),
            (Moment::from_unix_millis(u64::MAX), u32::MAX),
            (Moment::new(u32::MAX - 1, 999), u32::MAX),
        ] {
            let (expires_at_seconds, marks) = record_of(end);
            assert_eq!(expires_at_seconds, seconds);
            let meta = ItemMeta { expires_at_seconds, marks: marks | 3, ..ItemMeta::default() };
            assert_eq!(end_of(&meta), end, "whatever the other marks are");
            let before = ItemMeta { marks: 3, ..meta };
            assert_eq!(end_of(&before), Moment::from_seconds(seconds), "as it was written before");
        }
    }

    #[test]
    fn marks_that_nobody_wrote_are_no_milliseconds() {
        let meta = ItemMeta { expires_at_seconds: 7, marks: u16::MAX, ..ItemMeta::default() };
        assert_eq!(end_of(&meta), Moment::from_seconds(7));
        let meta = ItemMeta { marks: 5 << MILLIS_SHIFT, ..ItemMeta::default() };
        assert_eq!(end_of(&meta), Moment::NEVER);
    }

    #[test]
    fn an_end_is_known_until_the_item_changes() {
        let (mut ends, now) = (Ends::default(), Moment::new(9, 400));
        assert_eq!(ends.of(b"k", &look(0)), Some(Moment::NEVER));
        assert!(!ends.may_be_over(b"k", &look(0), now));
        assert!(ends.may_be_over(b"k", &look(10), now) && !ends.may_be_over(b"k", &look(11), now));
        ends.learn(b"k", Moment::new(9, 400));
        assert!(!ends.may_be_over(b"k", &look(10), now), "it is known to be");
        assert!(ends.is_over(b"k", &look(10), now));
        assert!(!ends.is_over(b"k", &look(10), Moment::new(9, 399)));
        assert_eq!(ends.of(b"k", &look(12)), None, "that is another item");
        ends.forget(b"k");
        assert!(ends.may_be_over(b"k", &look(10), now) && !ends.is_over(b"k", &look(10), now));
        for number in 0..3 * KNOWN_MAX {
            ends.learn(&number.to_le_bytes(), now);
        }
        assert!(ends.0.len() <= KNOWN_MAX);
        ends.forget_all();
        assert!(ends.0.is_empty());
    }
}
