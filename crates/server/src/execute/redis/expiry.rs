//! Times to live as Redis' clients write them, turned into the store's unix seconds.

use laneway_store::UnixSeconds;

/// A time that is over for every item, where 0 would mean never.
const OVER: UnixSeconds = 1;

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryUnit {
    /// Seconds from now on.
    Seconds,
    /// Milliseconds from now on.
    Milliseconds,
    /// The unix second.
    UnixSeconds,
    /// The unix millisecond.
    UnixMilliseconds,
}

/// What becomes of an item's expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// It has none.
    #[default]
    Never,
    /// It stays as it is.
    Keep,
    /// It is this second.
    At(UnixSeconds),
}

/// On what condition an item is given an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct When {
    /// `NX`: it has none.
    pub none: bool,
    /// `XX`: it has one.
    pub some: bool,
    /// `GT`: the new one is later; no expiry is the latest.
    pub later: bool,
    /// `LT`: the new one is sooner.
    pub sooner: bool,
}

impl When {
    /// Whether it is met, where 0 is never.
    pub(super) fn is_met(self, now: UnixSeconds, new: UnixSeconds) -> bool {
        !(self.none && now != 0
            || self.some && now == 0
            || self.later && (now == 0 || new <= now)
            || self.sooner && now != 0 && new >= now)
    }
}

/// The time does not fit 64 bits of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADeadline;

impl ExpiryUnit {
    /// The second at whose beginning an item is over that may live until then: not before that
    /// time, and less than a second after it. What is over by now is over for every item.
    pub fn deadline(self, time: i64, now_ms: u64) -> Result<UnixSeconds, NotADeadline> {
        let milliseconds = match self {
            ExpiryUnit::Seconds | ExpiryUnit::UnixSeconds => time.checked_mul(1000),
            ExpiryUnit::Milliseconds | ExpiryUnit::UnixMilliseconds => Some(time),
        };
        let is_relative = matches!(self, ExpiryUnit::Seconds | ExpiryUnit::Milliseconds);
        let from = if is_relative { now_ms as i64 } else { 0 };
        let at = milliseconds.and_then(|milliseconds| milliseconds.checked_add(from));
        let at = at.ok_or(NotADeadline)?;
        if at <= now_ms as i64 {
            return Ok(OVER);
        }
        Ok(u32::try_from((at as u64).div_ceil(1000)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_over_too_soon_and_nothing_a_second_too_late() {
        use ExpiryUnit::*;
        const NOW: u64 = 1_700_000_000_250;
        for (unit, time, at) in [
            (Seconds, 10, Ok(1_700_000_011)),
            (Seconds, 0, Ok(OVER)),
            (Seconds, -5, Ok(OVER)),
            (Milliseconds, 1, Ok(1_700_000_001)),
            (Milliseconds, 750, Ok(1_700_000_001)),
            (Milliseconds, 751, Ok(1_700_000_002)),
            (UnixSeconds, 1_700_000_000, Ok(OVER)),
            (UnixSeconds, 1_700_000_001, Ok(1_700_000_001)),
            (UnixSeconds, 1, Ok(OVER)),
            (UnixMilliseconds, 1_700_000_000_250, Ok(OVER)),
            (UnixMilliseconds, 1_700_000_000_251, Ok(1_700_000_001)),
            (UnixSeconds, i64::from(u32::MAX) + 5, Ok(u32::MAX)),
            (UnixMilliseconds, i64::MAX, Ok(u32::MAX)),
            (Seconds, i64::MAX / 1000, Err(NotADeadline)),
            (UnixSeconds, i64::MAX, Err(NotADeadline)),
            (Milliseconds, i64::MAX, Err(NotADeadline)),
        ] {
            assert_eq!(unit.deadline(time, NOW), at, "{unit:?} {time}");
        }
    }

    #[test]
    fn the_conditions_of_an_expiry_are_those_of_redis() {
        let when = |none, some, later, sooner| When { none, some, later, sooner };
        for (when, rows) in [
            (when(false, false, false, false), [true, true, true, true]),
            (when(true, false, false, false), [true, false, false, false]),
            (when(false, true, false, false), [false, true, true, true]),
            (when(false, false, true, false), [false, true, false, false]),
            (when(false, false, false, true), [true, false, true, false]),
            (when(false, true, false, true), [false, false, true, false]),
        ] {
            // Now, and to be.
            for ((now, new), met) in [(0, 5), (5, 6), (5, 4), (5, 5)].into_iter().zip(rows) {
                assert_eq!(when.is_met(now, new), met, "{when:?} {now} {new}");
            }
        }
    }
}
