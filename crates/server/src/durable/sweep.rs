//! The search for expired items in the tier: where it goes on, and how soon.

/// So many keys are looked at at a time.
pub(super) const LOOKS: usize = 1024;
/// And so often.
const NANOS: u64 = 100_000_000;
/// The same where nobody has written since the last time, and nothing had expired.
const NANOS_QUIET: u64 = 1_000_000_000;
/// So often while one in so many of the keys had expired, here or before: what expires faster than
/// it is found would fill the SSD. Those that stay may lie side by side, as keys of one kind do.
const NANOS_DENSE: u64 = 1_000_000;
const DENSE_ONE_IN: usize = 16;

/// Where the search stands.
#[derive(Default)]
pub(super) struct Sweep {
    /// The key that it goes on from.
    pub(super) from: Vec<u8>,
    /// When it goes on.
    pub(super) at_nanos: u64,
    /// Looks without a pause that what was found has paid for, and that are yet to come.
    paid_looks: usize,
    /// How many were found since the first key.
    found: usize,
    /// The number of the last task whose deletion was set aside, for want of room in the log.
    pub(super) aside: Option<u64>,
}

impl Sweep {
    /// So many of the keys that were just looked at had expired, and the next ones are from `next`
    /// on; without it the first ones are.
    pub(super) fn passed(
        &mut self,
        over: usize,
        next: Option<Vec<u8>>,
        was_written: bool,
        now_nanos: u64,
    ) {
        self.found += over;
        let paid = self.paid_looks + over * DENSE_ONE_IN;
        self.paid_looks = paid.saturating_sub(LOOKS);
        if next.is_none() && std::mem::take(&mut self.found) == 0 {
            self.paid_looks = 0; // there are none
        }
        self.from = next.unwrap_or_default();
        self.at_nanos = now_nanos
            + match over {
                _ if LOOKS <= paid => NANOS_DENSE,
                0 if !was_written => NANOS_QUIET,
                _ => NANOS,
            };
    }

    /// What was set aside still waits: what is found meanwhile would wait with it, and be more with
    /// every look.
    pub(super) fn wait(&mut self, now_nanos: u64) {
        self.at_nanos = now_nanos + NANOS_DENSE;
    }

    /// Of those that were found so many are left behind this key, and are found again.
    pub(super) fn stopped(&mut self, key: Box<[u8]>, left: usize) {
        self.paid_looks = self.paid_looks.saturating_sub(left * DENSE_ONE_IN);
        self.from = key.into_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_hundred_thousand_that_end_each_second_a_quarter_as_many_as_stay_are_there() {
        const STAY: usize = 1_000_000;
        const ENDS_EACH_MS: usize = 200;
        let (mut sweep, mut ended) = (Sweep::default(), 0);
        for now_nanos in (0..60_000).map(|now_ms: u64| now_ms * 1_000_000) {
            ended += ENDS_EACH_MS;
            assert!(ended < STAY / 4, "{ended} behind {now_nanos} ns");
            if sweep.at_nanos <= now_nanos {
                // They lie evenly among those that stay.
                let found = LOOKS * ended / (STAY + ended);
                ended -= found;
                sweep.passed(found, Some(Vec::new()), true, now_nanos);
            }
        }
    }

    #[test]
    fn what_was_found_and_left_is_paid_for_once() {
        let mut sweep = Sweep::default();
        sweep.passed(LOOKS, None, true, 0);
        sweep.stopped((*b"key").into(), LOOKS - 64);
        assert_eq!((sweep.at_nanos, &sweep.from[..]), (NANOS_DENSE, &b"key"[..]));
        assert_eq!(sweep.paid_looks, 0);
    }

    #[test]
    fn a_round_that_finds_none_ends_the_haste_and_one_among_many_that_stay_does_not() {
        let next = || Some(b"next".to_vec());
        let mut sweep = Sweep::default();
        sweep.passed(LOOKS, next(), true, 0);
        for now_nanos in 1..10 {
            sweep.passed(0, next(), true, now_nanos);
            assert_eq!(sweep.at_nanos, now_nanos + NANOS_DENSE);
        }
        sweep.passed(0, None, true, 0); // the end of a round that found some
        assert_eq!((sweep.at_nanos, &sweep.from[..]), (NANOS_DENSE, &[][..]));
        sweep.passed(0, None, true, 0); // one that found none
        sweep.passed(0, None, true, 0);
        assert_eq!(sweep.at_nanos, NANOS);
        sweep.passed(0, None, false, 0);
        assert_eq!(sweep.at_nanos, NANOS_QUIET);
    }
}
