//! A moment of the wall clock, to the millisecond: when an item ends, and the time that comes with
//! every call.

/// The bits of the milliseconds; the seconds stand above them.
const MILLIS_BITS: u32 = 10;
const MILLIS_MASK: u64 = (1 << MILLIS_BITS) - 1;

/// An absolute unix time, in milliseconds of its second; injected, nothing here reads a clock.
///
/// Seconds and milliseconds have bits of their own, so that the second, which most of the store
/// works with, costs a shift and no division.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// No moment: the end of what has none.
    pub const NEVER: Moment = Moment(0);

    /// An end with milliseconds, out of reach: for an item that is begun before its end is known,
    /// so that its record has room for any ([`Draft::set_expires`](crate::Draft::set_expires)).
    pub const LATER: Moment = Moment::new(u32::MAX - 1, 1);

    /// A millisecond (below 1000) of a second.
    #[inline]
    pub const fn new(seconds: u32, millis: u32) -> Moment {
        Moment((seconds as u64) << MILLIS_BITS | millis as u64)
    }

    /// The beginning of a second.
    #[inline]
    pub const fn from_seconds(seconds: u32) -> Moment {
        Moment::new(seconds, 0)
    }

    /// So many milliseconds since 1970; the last second that fits where they are more.
    pub fn from_unix_millis(millis: u64) -> Moment {
        match u32::try_from(millis / 1000) {
            Ok(seconds) if seconds < u32::MAX => Moment::new(seconds, (millis % 1000) as u32),
            _ => Moment::from_seconds(u32::MAX),
        }
    }

    /// The millisecond that is so many nanoseconds after the beginning of 1970.
    #[inline]
    pub fn from_unix_nanos(nanos: u64) -> Moment {
        let millis = nanos / 1_000_000;
        // Each full second has 1024 numbers here, of which 1000 are in use.
        Moment(millis + millis / 1000 * ((1 << MILLIS_BITS) - 1000))
    }

    /// The second that it lies in.
    #[inline]
    pub const fn seconds(self) -> u32 {
        (self.0 >> MILLIS_BITS) as u32
    }

    /// Milliseconds since the beginning of that second.
    #[inline]
    pub const fn millis(self) -> u32 {
        (self.0 & MILLIS_MASK) as u32
    }

    /// The first second that does not begin before it.
    pub const fn seconds_up(self) -> u32 {
        self.seconds().saturating_add((self.millis() != 0) as u32)
    }

    /// The beginning of the first second that does not begin before it.
    pub const fn rounded_up(self) -> Moment {
        Moment::from_seconds(self.seconds_up())
    }

    /// So many seconds later.
    pub const fn plus_seconds(self, seconds: u32) -> Moment {
        Moment::new(self.seconds().saturating_add(seconds), self.millis())
    }

    /// Milliseconds since 1970.
    pub const fn unix_millis(self) -> u64 {
        self.seconds() as u64 * 1000 + self.millis() as u64
    }

    /// Whether what ends then has ended by `now`: at its end, not before.
    #[inline]
    pub const fn is_over(self, now: Moment) -> bool {
        self.0 != 0 && self.0 <= now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_its_second_and_the_milliseconds_of_it() {
        let moment = Moment::from_unix_millis(1_700_000_000_999);
        assert_eq!((moment.seconds(), moment.millis()), (1_700_000_000, 999));
        assert_eq!(moment.unix_millis(), 1_700_000_000_999);
        assert_eq!(moment.rounded_up(), Moment::from_seconds(1_700_000_001));
        assert_eq!(moment.seconds_up(), 1_700_000_001);
        let full = Moment::from_seconds(1_700_000_001);
        assert_eq!((full.rounded_up(), full.seconds_up()), (full, 1_700_000_001));
        assert_eq!(full.unix_millis(), moment.unix_millis() + 1);
        assert!(moment < full, "in the order of time");
        assert_eq!(Moment::from_unix_nanos(1_700_000_000_999_999_999), moment);
        assert_eq!(Moment::from_unix_nanos(1_700_000_001_000_000_000), full);
    }

    #[test]
    fn what_is_out_of_reach_is_the_last_second() {
        let last = Moment::from_seconds(u32::MAX);
        for millis in [u64::from(u32::MAX) * 1000, u64::from(u32::MAX) * 1000 + 1, u64::MAX] {
            assert_eq!(Moment::from_unix_millis(millis), last);
        }
        let before = Moment::from_unix_millis(u64::from(u32::MAX) * 1000 - 1);
        assert_eq!((before.seconds(), before.millis()), (u32::MAX - 1, 999));
        assert_eq!(before.rounded_up(), last);
        assert!(Moment::LATER < before && Moment::LATER.millis() != 0);
    }

    #[test]
    fn an_end_has_come_at_its_millisecond_and_never_never() {
        let end = Moment::new(5, 500);
        assert!(!end.is_over(Moment::new(5, 499)));
        assert!(end.is_over(end) && end.is_over(Moment::new(6, 0)));
        assert!(!Moment::NEVER.is_over(Moment::from_seconds(u32::MAX)));
        let full = Moment::from_seconds(5);
        assert!(full.is_over(Moment::new(5, 0)) && !full.is_over(Moment::new(4, 999)));
    }
}
