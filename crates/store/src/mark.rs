//! Hit marks: 16 bits per slot, outside the items and the buckets, so that a hit dirties neither.
//!
//! 2 bits of frequency (saturating, the hand of the clock takes it down), the fetched bit, and 13
//! bits of the second of the last access. They are hints: a reader that lost a race may mark the
//! slot's next item, and nothing breaks. The 13 bits wrap after 8192 s; the sweep holds old marks
//! at `IDLE_SECONDS_MAX`, so an idle time saturates there as long as a sweep passes every `8192 -
//! IDLE_SECONDS_MAX` seconds. Unit: seconds.

use crate::moment::Moment;
use laneway_sync::prim::{AtomicU16, Ordering::Relaxed};

/// Idle times saturate here.
pub const IDLE_SECONDS_MAX: u32 = 7000;

const FREQUENCY_MAX: u16 = 3;
const FREQUENCY_MASK: u16 = 3;
const FETCHED: u16 = 1 << 2;
const TIME_SHIFT: u32 = 3;
const TIME_MASK: u32 = (1 << 13) - 1;
const _: () = assert!(IDLE_SECONDS_MAX < TIME_MASK);

/// The content of one mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u16);

impl Mark {
    /// A new item's: frequency 0, not fetched, used now.
    #[inline]
    pub fn new(now: Moment) -> Self {
        Mark::at(now.seconds())
    }

    #[inline]
    fn at(seconds: u32) -> Self {
        Mark(((seconds & TIME_MASK) as u16) << TIME_SHIFT)
    }

    /// How often used lately: 0 to 3.
    #[inline]
    pub fn frequency(self) -> u16 {
        self.0 & FREQUENCY_MASK
    }

    /// Fetched since stored.
    #[inline]
    pub fn fetched(self) -> bool {
        self.0 & FETCHED != 0
    }

    /// Seconds since the last access, modulo 8192.
    #[inline]
    pub fn idle_seconds(self, now: Moment) -> u32 {
        let since = now.seconds().wrapping_sub(u32::from(self.0 >> TIME_SHIFT));
        (since & TIME_MASK).min(IDLE_SECONDS_MAX)
    }

    /// After a hit.
    #[inline]
    pub fn hit(self, now: Moment) -> Self {
        let frequency = (self.frequency() + 1).min(FREQUENCY_MAX);
        Mark(Mark::new(now).0 | FETCHED | frequency)
    }

    /// After hits of which nobody told the time.
    #[inline]
    pub fn warmed(self, hits: u8) -> Self {
        let frequency = (self.frequency() + u16::from(hits)).min(FREQUENCY_MAX);
        Mark(self.0 & !FREQUENCY_MASK | FETCHED | frequency)
    }

    /// After the hand passed.
    #[inline]
    pub fn cooled(self) -> Self {
        Mark(self.0 - u16::from(self.frequency() > 0))
    }

    /// Held at the longest idle time, if it is about to wrap.
    #[inline]
    pub fn held(self, now: Moment) -> Self {
        if self.idle_seconds(now) < IDLE_SECONDS_MAX {
            return self;
        }
        let time = Mark::at(now.seconds().wrapping_sub(IDLE_SECONDS_MAX)).0;
        Mark(time | self.0 & (FREQUENCY_MASK | FETCHED))
    }
}

/// Load a mark.
#[inline]
pub fn load(place: &AtomicU16) -> Mark {
    Mark(place.load(Relaxed))
}

/// Store a mark, if it differs: a line that everybody reads should not be dirtied for nothing.
#[inline]
pub fn store(place: &AtomicU16, before: Mark, after: Mark) {
    if before != after {
        place.store(after.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_saturate_and_the_hand_takes_them_down() {
        let at = Moment::from_seconds;
        let mut mark = Mark::new(at(100_000));
        assert_eq!(
            (mark.frequency(), mark.fetched(), mark.idle_seconds(at(100_007))),
            (0, false, 7)
        );
        for _ in 0..9 {
            mark = mark.hit(at(100_010));
        }
        assert_eq!(
            (mark.frequency(), mark.fetched(), mark.idle_seconds(at(100_010))),
            (3, true, 0)
        );
        mark = mark.cooled().cooled().cooled().cooled();
        assert_eq!(
            (mark.frequency(), mark.fetched(), mark.idle_seconds(at(100_011))),
            (0, true, 1)
        );
    }

    #[test]
    fn an_idle_time_that_is_held_does_not_wrap() {
        let at = Moment::from_seconds;
        let mut mark = Mark::new(at(5));
        for now in (5..40_000).step_by(1000) {
            mark = mark.held(at(now));
            assert!(mark.idle_seconds(at(now)) >= (now - 5).min(IDLE_SECONDS_MAX));
        }
    }
}
