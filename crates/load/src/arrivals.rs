//! When requests are due: Poisson arrivals, the whole schedule drawn before the first byte leaves
//! (Minos §5, "open system").
//!
//! Latency runs from the due time, so a server that stalls is charged for every request that should
//! have been sent meanwhile ("coordinated omission" is what forgetting them is called). Times are
//! nanoseconds from the start of the run. It knows no clock.

use crate::random::Random;
use crate::workload::{Ask, Draws, Workload};
use std::ops::Range;

/// A request and when it is due. 16 bytes, as millions of them are drawn beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Nanoseconds from the start of the run.
    pub due_ns: u64,
    /// What is asked.
    pub ask: Ask,
}

/// Arrivals that room is made for: as many as there are on average, and a few more.
fn room(rate_per_s: f64, duration_s: f64) -> f64 {
    rate_per_s * duration_s * 1.02 + 16.0
}

/// Bytes of memory that a schedule takes, on all threads together.
pub fn bytes(rate_per_s: f64, duration_s: f64) -> f64 {
    room(rate_per_s, duration_s) * size_of::<Arrival>() as f64
}

/// Draws the arrivals of `[0, window_ns.end)` at a mean of `rate_per_s`, for one of the sender's
/// threads: thread `stream` of a run has its own independent arrivals. `workloads` take turns in
/// equal parts of the window; the first one is also that of the time before it. All have the same
/// keys.
pub fn changing(
    workloads: &[Workload],
    rate_per_s: f64,
    window_ns: Range<u64>,
    stream: u64,
) -> Vec<Arrival> {
    assert!(rate_per_s > 0.0, "a rate of {rate_per_s}");
    let duration_ns = window_ns.end;
    let part_ns = (duration_ns - window_ns.start).div_ceil(workloads.len() as u64).max(1);
    let seed = workloads[0].options().seed;
    let mut gaps = Random::stream(seed, 2 * stream + 1);
    let mut asks = Random::stream(seed, 2 * stream + 2);
    let mut draws = Draws::default();
    let mean_ns = 1e9 / rate_per_s;
    let mut arrivals = Vec::with_capacity(room(rate_per_s, duration_ns as f64 / 1e9) as usize);
    let mut due_ns = 0.0;
    loop {
        due_ns += gaps.exponential(mean_ns);
        if due_ns >= duration_ns as f64 {
            return arrivals;
        }
        let part = (due_ns as u64).saturating_sub(window_ns.start) / part_ns;
        let ask = workloads[part as usize].draw(&mut asks, &mut draws);
        arrivals.push(Arrival { due_ns: due_ns as u64, ask });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadOptions;

    fn workload(seed: u64) -> Workload {
        Workload::new(WorkloadOptions { seed, ..WorkloadOptions::default() }).expect("valid")
    }

    const SECOND_NS: u64 = 1_000_000_000;

    fn poisson(seed: u64, rate_per_s: f64, seconds: u64, stream: u64) -> Vec<Arrival> {
        changing(&[workload(seed)], rate_per_s, 0..seconds * SECOND_NS, stream)
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_a_poisson_process() {
        let arrivals = poisson(1, 50_000.0, 10, 0);
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.due_ns));
        assert!(arrivals.last().is_some_and(|arrival| arrival.due_ns < 10 * SECOND_NS));
        // Mean 500 000, standard deviation 707.
        assert!((arrivals.len() as f64 - 500_000.0).abs() < 5.0 * 707.0, "{}", arrivals.len());
        let gaps: Vec<f64> =
            arrivals.windows(2).map(|pair| (pair[1].due_ns - pair[0].due_ns) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 20_000.0).abs() < 150.0, "{mean}");
        // An exponential distribution's standard deviation is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt() / mean);
        // And e^-1 of the gaps are longer than the mean.
        let longer = gaps.iter().filter(|&&gap| gap > mean).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1_f64).exp()).abs() < 0.005, "{longer}");
    }

    #[test]
    fn workloads_take_turns_within_the_window() {
        let large = |large_percent| {
            let options = WorkloadOptions { large_percent, ..WorkloadOptions::default() };
            Workload::new(options).expect("valid")
        };
        let workloads = [0.0, 50.0, 0.0].map(large);
        let window_ns = SECOND_NS..4 * SECOND_NS;
        let arrivals = changing(&workloads, 1_000.0, window_ns, 0);
        let keys_small = 99_900;
        let large_in = |from: u64| {
            let within = |arrival: &&Arrival| arrival.due_ns / SECOND_NS == from;
            let asked = arrivals.iter().filter(within);
            asked.filter(|arrival| arrival.ask.key.0 >= keys_small).count()
        };
        assert_eq!([large_in(0), large_in(1), large_in(3)], [0, 0, 0]);
        assert!((400..600).contains(&large_in(2)), "{}", large_in(2));
    }

    #[test]
    fn the_seed_and_the_stream_decide_the_schedule_and_the_rate_not_what_is_asked() {
        let draw = |seed, stream, rate| poisson(seed, rate, 1, stream);
        assert_eq!(draw(1, 0, 5_000.0), draw(1, 0, 5_000.0));
        assert_ne!(draw(1, 0, 5_000.0), draw(2, 0, 5_000.0));
        assert_ne!(draw(1, 0, 5_000.0), draw(1, 1, 5_000.0));
        let asks = |arrivals: Vec<Arrival>| arrivals.into_iter().take(900).map(|one| one.ask);
        assert!(asks(draw(1, 0, 1_000.0)).eq(asks(draw(1, 0, 5_000.0))));
    }
}
