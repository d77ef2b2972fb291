//! Limits the rate of background work, in bytes a second: it computes the moment from which on the
//! next bytes may go. No burst is saved up; what was spent beyond the rate, for want of room, is
//! made good up to a bound.
//!
//! Arithmetic: times come as arguments, in nanoseconds of one clock.

use laneway_sync::planted::{Bug, is_planted};
use std::sync::{Mutex, MutexGuard};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The pace.
#[derive(Debug, Default)]
pub struct Pace {
    /// Together, or a moment that was worked out by the rate before would outlast that rate.
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// 0: any.
    bytes_per_second: u64,
    due_nanos: u64,
}

fn nanos_of(bytes: u64, bytes_per_second: u64) -> u64 {
    let nanos = u128::from(bytes) * NANOS_PER_SECOND / u128::from(bytes_per_second);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl Pace {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("nobody panics inside")
    }

    /// From now on so many bytes a second, or any number of them (0). What was spent is forgotten.
    pub fn set(&self, bytes_per_second: u64) {
        *self.now() = Now { bytes_per_second, due_nanos: 0 };
    }

    /// Bytes a second; 0 for any number.
    pub fn bytes_per_second(&self) -> u64 {
        self.now().bytes_per_second
    }

    /// Whether more may go now.
    pub fn may_go(&self, now_nanos: u64) -> bool {
        let now = self.now();
        let is_due = now.due_nanos <= now_nanos;
        is_due || now.bytes_per_second == 0 || is_planted(Bug::RateIgnored)
    }

    /// So many bytes went. The next wait for at most `bytes_most`.
    pub fn spend(&self, bytes: u64, now_nanos: u64, bytes_most: u64) {
        let mut now = self.now();
        let rate = now.bytes_per_second;
        if rate == 0 {
            return;
        }
        let due = now.due_nanos.max(now_nanos).saturating_add(nanos_of(bytes, rate));
        now.due_nanos = due.min(now_nanos.saturating_add(nanos_of(bytes_most, rate)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn bytes_wait_for_the_time_of_those_before_them_and_none_are_saved_up() {
        let pace = Pace::default();
        pace.spend(1 << 30, 5, u64::MAX);
        assert!(pace.may_go(0), "any number may");
        pace.set(1000);
        assert!(pace.may_go(0));
        pace.spend(500, 10 * SECOND, 100_000);
        pace.spend(1500, 10 * SECOND, 100_000);
        assert!(!pace.may_go(12 * SECOND - 1) && pace.may_go(12 * SECOND));
        // An hour later: no more at once than before.
        pace.spend(1000, 3600 * SECOND, 100_000);
        assert!(!pace.may_go(3601 * SECOND - 1) && pace.may_go(3601 * SECOND));
        // Of what went all the same so much is made good.
        (0..100).for_each(|_| pace.spend(50_000, 4000 * SECOND, 100_000));
        assert!(!pace.may_go(4100 * SECOND - 1) && pace.may_go(4100 * SECOND));
        pace.set(1000);
        assert!(pace.may_go(4000 * SECOND), "a new rate begins anew");
        pace.set(1);
        pace.spend(u64::MAX, SECOND, u64::MAX);
        assert!(!pace.may_go(u64::MAX - 1));
    }
}
