//! The token bucket of one client, against one that is filled as time passes.

use laneway_policy::rate::{BURST_LARGE_NANOS, BURST_NANOS, Rate, ready_nanos};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn rate(per_second: u64) -> Rate {
    Rate::new(per_second).expect("it is not 0")
}

/// A bucket as one would draw it: what is in it, in parts of a unit, a nanosecond's worth each.
struct Drawn {
    per_second: i128,
    parts: i128,
    filled_nanos: u64,
}

impl Drawn {
    /// A full one.
    fn new(per_second: u64) -> Drawn {
        let per_second = i128::from(per_second);
        Drawn { per_second, parts: per_second * i128::from(BURST_NANOS), filled_nanos: 0 }
    }

    fn fill(&mut self, now: u64) {
        let most = self.per_second * i128::from(BURST_NANOS);
        let more = self.per_second * i128::from(now - self.filled_nanos);
        self.parts = most.min(self.parts + more);
        self.filled_nanos = now;
    }

    /// Whether there is something beside what the last `kept_nanos` of the burst bring.
    fn has(&self, kept_nanos: u64) -> bool {
        self.parts >= self.per_second * i128::from(kept_nanos)
    }

    fn take(&mut self, units: u64) {
        self.parts -= i128::from(units) * i128::from(SECOND);
    }
}

#[test]
fn a_client_has_its_burst_at_once_and_then_its_rate() {
    for (per_second, at_once) in [(1, 1), (10, 2), (1_000, 101), (1_000_000, 100_001)] {
        let rate = rate(per_second);
        assert_eq!(rate.allowed(0, BURST_NANOS, 5), at_once, "{per_second} a second");
        let full = rate.take(0, at_once, 5);
        assert_eq!(rate.allowed(full, BURST_NANOS, 5), 0);
        let ready = ready_nanos(full, BURST_NANOS);
        assert!(rate.allowed(full, BURST_NANOS, ready - 1) == 0, "{per_second} a second");
        assert_eq!(rate.allowed(full, BURST_NANOS, ready), 1);
    }
    assert_eq!(Rate::new(0), None);
}

#[test]
fn what_is_owed_is_waited_for() {
    // A reply of a megabyte at 100 kB a second.
    let rate = rate(100_000);
    let full = rate.take(SECOND, 1_000_000, SECOND);
    assert_eq!(full, 11 * SECOND);
    assert_eq!(ready_nanos(full, BURST_NANOS), 11 * SECOND - BURST_NANOS);
}

#[test]
fn a_bucket_is_full_after_a_silence_and_never_fuller() {
    let rate = rate(1_000);
    let full = rate.take(0, 5_000, 0);
    assert_eq!(rate.allowed(full, BURST_NANOS, 3_600 * SECOND), 101);
}

#[test]
fn nothing_overflows() {
    let slow = rate(1);
    assert_eq!(slow.take(u64::MAX, u64::MAX, 0), u64::MAX);
    assert_eq!(rate(u64::MAX).take(7, u64::MAX, 0), 7 + SECOND);
    assert!(rate(u64::MAX).allowed(0, u64::MAX, 0) > 0);
    assert_eq!(ready_nanos(3, BURST_NANOS), 0);
}

#[test]
fn large_transfers_wait_while_small_requests_find_half_of_the_burst() {
    let rate = rate(1_000_000);
    let full = rate.take(0, 50_001, 0);
    assert_eq!(rate.allowed(full, BURST_LARGE_NANOS, 0), 0);
    assert_eq!(rate.allowed(full, BURST_NANOS, 0), 50_000);
}

#[test]
fn a_slice_is_worth_its_cost_and_leaves_something_to_small_requests() {
    for (per_second, left, bytes) in [
        (10_000_000, 0, 0),
        (10_000_000, 1, 16_384),
        (10_000_000, 400_000, 400_000),
        (400_000, 1, 10_000), // what comes in a quarter of the burst
        (400_000, 12_000, 12_000),
        (1_000, 1, 1_472),
    ] {
        assert_eq!(rate(per_second).slice_bytes(left), bytes, "{per_second} a second, {left}");
    }
}

/// Rates at which a unit takes whole nanoseconds: nothing is rounded.
const WHOLE: [u64; 9] = [1, 2, 5, 10, 64, 1_000, 100_000, 31_250_000, SECOND];

proptest! {
    #[test]
    fn it_is_the_bucket_that_is_filled_as_time_passes(
        place in 0..WHOLE.len(),
        steps in prop::collection::vec((0..300_000_000u64, 0..400u64), 1..60),
    ) {
        let (rate, mut drawn) = (rate(WHOLE[place]), Drawn::new(WHOLE[place]));
        let (mut full, mut now) = (0, 0);
        for (pause, units) in steps {
            now += pause;
            drawn.fill(now);
            for (burst, kept) in [(BURST_NANOS, 0), (BURST_LARGE_NANOS, BURST_LARGE_NANOS)] {
                prop_assert_eq!(rate.allowed(full, burst, now) > 0, drawn.has(kept));
                prop_assert_eq!(ready_nanos(full, burst) <= now, drawn.has(kept));
            }
            // One after the other, as many as are allowed and not one more.
            let most = rate.allowed(full, BURST_NANOS, now).min(units);
            for _ in 0..most {
                prop_assert!(drawn.has(0));
                drawn.take(1);
            }
            full = rate.take(full, most, now);
            prop_assert_eq!(rate.allowed(full, BURST_NANOS, now) > 0, drawn.has(0));
            // Whoever may take takes all of what it has come for, and owes.
            if drawn.has(0) {
                drawn.take(units);
                full = rate.take(full, units, now);
            }
        }
    }

    #[test]
    fn who_takes_whatever_there_is_gets_the_rate_and_one_burst(
        per_second in 1..2_000_000_000u64,
        pauses in prop::collection::vec(1..50_000_000u64, 1..200),
    ) {
        let rate = rate(per_second);
        let (mut full, mut now, mut taken) = (0, 0, 0u64);
        let mut charges = 0;
        for pause in pauses {
            let allowed = rate.allowed(full, BURST_NANOS, now);
            full = rate.take(full, allowed, now);
            charges += 1;
            taken += allowed;
            now += pause;
        }
        // What is taken is paid for by the time until the bucket is full, a unit more at most.
        let paid = |nanos: u64| u128::from(nanos) * u128::from(per_second) / u128::from(SECOND);
        prop_assert!(u128::from(taken) <= paid(now + BURST_NANOS) + 1);
        // And nothing is withheld but what rounding takes.
        let least = paid(full.saturating_sub(charges));
        prop_assert!(u128::from(taken) + 1 >= least, "{} of {}", taken, least);
    }
}
