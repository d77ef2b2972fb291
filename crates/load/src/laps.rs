//! A run cut into laps, so that a moment's disturbance from outside spoils a lap and not the run.
//!
//! On a shared machine the hypervisor takes a CPU away for milliseconds at a time; whoever needs
//! most of that CPU then drains a backlog for tens of milliseconds. A percentile over the whole run
//! is decided by how often that happened. A lap in which the sender kept its schedule is *quiet*;
//! [`Laps::quiet`] takes each percentile of every quiet lap and of these the median. Whatever a
//! server does to itself all the time is in every lap and stays in the figure; what it does in less
//! than half of the laps is not, which is why the percentiles of the whole run stand beside it.
//! Which laps are quiet is decided by the sender's lateness alone, never by a reply.
//!
//! Requests belong to the lap in which they were due. It knows no clock. Unit: nanoseconds.

use crate::report::quantiles::empty;
use crate::workload::Class;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A request that left this long after it was due is late: the sender's fault, not the server's.
pub const LATE_NS: u64 = 100_000;
/// Length of a lap: 4 000 requests at 40 k/s, 40 of them beyond p99.
const LAP_NS_MIN: u64 = 100_000_000;
/// Most laps of a run; in long runs laps are longer.
const LAPS_MAX: u64 = 100;
/// Largest share of late requests in a quiet lap: half of what decides a p99.
const LATE_IN_QUIET: f64 = 0.005;
/// Two digits: a lap's percentile is no better than that.
const DIGITS: u8 = 2;

#[derive(Debug, Clone)]
struct Lap {
    due: u64,
    late: u64,
    small_ns: Histogram<u64>,
    large_ns: Histogram<u64>,
}

/// The laps of a run, with the latencies of its small requests.
#[derive(Debug, Clone)]
pub struct Laps {
    window_ns: Range<u64>,
    lap_ns: u64,
    laps: Vec<Lap>,
}

/// What the quiet laps say; absent percentiles are 0 where none was quiet.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Quiet {
    /// Length of a lap.
    pub lap_ms: f64,
    /// Laps in which requests were due.
    pub laps: u64,
    /// Those in which at most 0.5 % of the requests left late.
    pub laps_quiet: u64,
    /// Small requests, both operations: the median over the quiet laps of a lap's percentile.
    pub small: LapQuantiles,
    /// Large requests, both operations: percentiles of all that were due in quiet laps, since one
    /// lap has too few of them.
    pub large: LapQuantiles,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LapQuantiles {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Laps {
    /// Laps that cover `window_ns`.
    pub fn new(window_ns: Range<u64>) -> Self {
        let whole_ns = window_ns.end.saturating_sub(window_ns.start);
        let lap_ns = LAP_NS_MIN.max(whole_ns.div_ceil(LAPS_MAX));
        let lap = || Lap { due: 0, late: 0, small_ns: empty(DIGITS), large_ns: empty(DIGITS) };
        let laps = (0..whole_ns.div_ceil(lap_ns)).map(|_| lap()).collect();
        Laps { window_ns, lap_ns, laps }
    }

    fn lap(&mut self, due_ns: u64) -> Option<&mut Lap> {
        let since_ns = due_ns.checked_sub(self.window_ns.start)?;
        self.laps.get_mut((since_ns / self.lap_ns) as usize)
    }

    /// A request due at `due_ns` left so late; one that never left is as late as can be.
    pub fn sent(&mut self, due_ns: u64, late_ns: u64) {
        if let Some(lap) = self.lap(due_ns) {
            lap.due += 1;
            lap.late += u64::from(late_ns > LATE_NS);
        }
    }

    /// A request due at `due_ns` was answered after so long.
    pub fn answered(&mut self, due_ns: u64, class: Class, latency_ns: u64) {
        if let Some(lap) = self.lap(due_ns) {
            let histogram = match class {
                Class::Large => &mut lap.large_ns,
                _ => &mut lap.small_ns,
            };
            *histogram += latency_ns;
        }
    }

    /// Adds another thread's laps of the same window.
    pub fn merge(&mut self, other: &Laps) {
        for (own, others) in self.laps.iter_mut().zip(&other.laps) {
            own.due += others.due;
            own.late += others.late;
            own.small_ns += &others.small_ns;
            own.large_ns += &others.large_ns;
        }
    }

    /// What the quiet laps say.
    pub fn quiet(&self) -> Quiet {
        let with_requests = || self.laps.iter().filter(|lap| lap.due > 0);
        let quiet: Vec<&Lap> = with_requests()
            .filter(|lap| lap.late as f64 <= LATE_IN_QUIET * lap.due as f64)
            .filter(|lap| !lap.small_ns.is_empty())
            .collect();
        let median_us = |quantile: f64| {
            let mut each: Vec<u64> =
                quiet.iter().map(|lap| lap.small_ns.value_at_quantile(quantile)).collect();
            each.sort_unstable();
            each.get(each.len() / 2).map_or(0.0, |&median_ns| median_ns as f64 / 1e3)
        };
        let mut large_ns = empty(DIGITS);
        quiet.iter().for_each(|lap| large_ns += &lap.large_ns);
        let large_us = |quantile: f64| large_ns.value_at_quantile(quantile) as f64 / 1e3;
        Quiet {
            lap_ms: self.lap_ns as f64 / 1e6,
            laps: with_requests().count() as u64,
            laps_quiet: quiet.len() as u64,
            small: LapQuantiles { p50: median_us(0.5), p90: median_us(0.9), p99: median_us(0.99) },
            large: LapQuantiles { p50: large_us(0.5), p90: large_us(0.9), p99: large_us(0.99) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAP: u64 = LAP_NS_MIN;

    /// `laps` of a hundred requests each, all with a latency, some late.
    fn run(laps: &[(u64, u64)]) -> Quiet {
        let mut recorded = Laps::new(LAP..LAP * (laps.len() as u64 + 1));
        for (number, &(latency_ns, late)) in laps.iter().enumerate() {
            for request in 0..100 {
                let due_ns = LAP * (number as u64 + 1) + request;
                recorded.sent(due_ns, if request < late { LATE_NS + 1 } else { LATE_NS });
                recorded.answered(due_ns, Class::Small, latency_ns);
                recorded.answered(due_ns, Class::Large, 3 * latency_ns);
            }
        }
        recorded.quiet()
    }

    fn near(us: f64, wanted_us: f64) -> bool {
        (us - wanted_us).abs() < 0.02 * wanted_us
    }

    #[test]
    fn a_lap_with_late_requests_does_not_count() {
        let quiet = run(&[(10_000, 0), (9_000_000, 1), (10_000, 0), (9_000_000, 60)]);
        assert_eq!((quiet.laps, quiet.laps_quiet), (4, 2));
        assert!(near(quiet.small.p99, 10.0), "{quiet:?}");
    }

    #[test]
    fn a_slow_lap_counts_when_the_sender_was_on_time() {
        let quiet = run(&[(10_000, 0), (500_000, 0), (500_000, 0)]);
        assert_eq!(quiet.laps_quiet, 3);
        assert!(near(quiet.small.p50, 500.0), "{quiet:?}");
        assert!(near(quiet.large.p50, 1_500.0), "{quiet:?}");
    }

    #[test]
    fn long_runs_have_longer_laps_and_none_is_left_out() {
        let mut laps = Laps::new(0..LAP * LAPS_MAX * 3);
        laps.sent(LAP * LAPS_MAX * 3 - 1, 0);
        laps.sent(LAP * LAPS_MAX * 3, 0); // outside
        let quiet = laps.quiet();
        assert_eq!((quiet.laps, quiet.laps_quiet), (1, 0), "due, and not answered");
        assert_eq!(quiet.lap_ms, 300.0);
    }
}
