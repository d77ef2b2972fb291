//! Times to live as Redis' clients write them, turned into the end of an item.

use laneway_store::Moment;

/// A time that is over for every item, where 0 would mean never.
const OVER: Moment = Moment::from_seconds(1);

/// The longest time to live, in milliseconds: from whatever moment it counts, its end fits 64 bits.
const AFTER_MAX: i64 = i64::MAX - u32::MAX as i64 * 1000;

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
    /// It is then.
    At(Deadline),
}

/// The end of an item as it was asked for. A time to live counts from the moment in which the
/// command is executed, however long it has waited for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// This moment.
    Then(Moment),
    /// So many milliseconds later; what is not above 0 is over.
    After(i64),
}

impl Deadline {
    /// The end of an item that is given one now.
    pub fn from(self, now: Moment) -> Moment {
        match self {
            Deadline::Then(at) => at,
            Deadline::After(..=0) => OVER,
            Deadline::After(milliseconds) => {
                Moment::from_unix_millis(now.unix_millis().saturating_add(milliseconds as u64))
            }
        }
    }
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
    /// Whether it is met by the end that there is and the new one.
    pub(super) fn is_met(self, now: Moment, new: Moment) -> bool {
        let has_end = now != Moment::NEVER;
        !(self.none && has_end
            || self.some && !has_end
            || self.later && (!has_end || new <= now)
            || self.sooner && has_end && new >= now)
    }
}

/// The time does not fit 64 bits of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADeadline;

impl ExpiryUnit {
    /// The end of an item that may live until then, or so long. What is later than the store can
    /// tell is the last second that it can.
    pub fn deadline(self, time: i64) -> Result<Deadline, NotADeadline> {
        let milliseconds = match self {
            ExpiryUnit::Seconds | ExpiryUnit::UnixSeconds => time.checked_mul(1000),
            ExpiryUnit::Milliseconds | ExpiryUnit::UnixMilliseconds => Some(time),
        };
        let milliseconds = milliseconds.ok_or(NotADeadline)?;
        match self {
            ExpiryUnit::Seconds | ExpiryUnit::Milliseconds if AFTER_MAX < milliseconds => {
                Err(NotADeadline)
            }
            ExpiryUnit::Seconds | ExpiryUnit::Milliseconds => Ok(Deadline::After(milliseconds)),
            _ if milliseconds <= 0 => Ok(Deadline::Then(OVER)),
            _ => Ok(Deadline::Then(Moment::from_unix_millis(milliseconds as u64))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_kept_to_the_millisecond() {
        use ExpiryUnit::*;
        const NOW: u64 = 1_700_000_000_250;
        let ms = Moment::from_unix_millis;
        let last = Moment::from_seconds(u32::MAX);
        for (unit, time, at) in [
            (Seconds, 10, Ok(ms(NOW + 10_000))),
            (Seconds, 0, Ok(OVER)),
            (Seconds, -5, Ok(OVER)),
            (Milliseconds, 1, Ok(ms(NOW + 1))),
            (Milliseconds, 750, Ok(Moment::from_seconds(1_700_000_001))),
            (Milliseconds, 751, Ok(Moment::new(1_700_000_001, 1))),
            (UnixSeconds, 1_700_000_000, Ok(Moment::from_seconds(1_700_000_000))),
            (UnixSeconds, 1_700_000_001, Ok(Moment::from_seconds(1_700_000_001))),
            (UnixSeconds, 0, Ok(OVER)),
            (UnixSeconds, -1, Ok(OVER)),
            (UnixMilliseconds, 1, Ok(Moment::new(0, 1))),
            (UnixMilliseconds, 1_700_000_000_250, Ok(ms(NOW))),
            (UnixMilliseconds, 1_700_000_000_251, Ok(ms(NOW + 1))),
            (UnixSeconds, i64::from(u32::MAX) + 5, Ok(last)),
            (UnixMilliseconds, i64::MAX, Ok(last)),
            (Seconds, i64::MAX / 1000, Err(NotADeadline)),
            (UnixSeconds, i64::MAX, Err(NotADeadline)),
            (Milliseconds, i64::MAX, Err(NotADeadline)),
            (Milliseconds, AFTER_MAX + 1, Err(NotADeadline)),
            (Milliseconds, AFTER_MAX, Ok(last)),
            (Milliseconds, i64::MIN, Ok(OVER)),
        ] {
            let end = unit.deadline(time).map(|deadline| deadline.from(ms(NOW)));
            assert_eq!(end, at, "{unit:?} {time}");
        }
    }

    #[test]
    fn a_time_to_live_counts_from_the_moment_that_it_is_given() {
        let deadline = ExpiryUnit::Milliseconds.deadline(20).expect("it is one");
        for now in [Moment::new(7, 0), Moment::new(7, 990)] {
            assert_eq!(deadline.from(now).unix_millis(), now.unix_millis() + 20);
        }
        let deadline = ExpiryUnit::UnixSeconds.deadline(9).expect("it is one");
        for now in [Moment::new(7, 0), Moment::new(70, 0)] {
            assert_eq!(deadline.from(now), Moment::from_seconds(9));
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
                let [now, new] = [now, new].map(|millis| match millis {
                    0 => Moment::NEVER,
                    millis => Moment::new(1_700_000_000, millis), // all in one second
                });
                assert_eq!(when.is_met(now, new), met, "{when:?} {now:?} {new:?}");
            }
        }
    }
}
