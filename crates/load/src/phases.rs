//! A run in parts of equal length that differ in what is asked for: the latencies of its small
//! requests, what its large ones moved, and when others had the machine, part by part, and in
//! slices of a part for a picture of the time.
//!
//! A request belongs to the part in which it was due, which is when its schedule sends it: who
//! waits for what a neighbour began before the part's end is charged to that part. Bytes belong to
//! the part in which their request ended: a neighbour who is held up moves less. A part's
//! percentiles are over all of its requests, those of disturbed slices included; which slices were
//! disturbed is decided by the host's and the client's figures alone, never by a latency. It knows
//! no clock. Times are nanoseconds from the start of the run.

use crate::report::quantiles::{Quantiles, empty};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Slices of a part: a quarter of a second each in a run of nine seconds in three parts.
const SLICES: u64 = 12;
/// Share of a slice that others may have had the CPUs in one that counts as undisturbed.
const LOST_SHARE_MAX: f64 = 0.01;
/// A request that leaves this late tells that the client had no CPU: what it does between two looks
/// at the clock is bounded, and takes less.
const AWAY_NS: u64 = 1_000_000;
const DIGITS: u8 = 3;

#[derive(Debug, Clone)]
struct Slice {
    small_ns: Histogram<u64>,
    late_ns_max: u64,
    large_bytes: u64,
}

/// Records a run in parts.
#[derive(Debug, Clone)]
pub struct Phases {
    window_ns: Range<u64>,
    part_ns: u64,
    slices: Vec<Slice>,
}

/// A run in parts, as a report tells it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct InParts {
    /// The parts, in their order.
    pub parts: Vec<PartOf>,
    /// Length of a slice.
    pub slice_s: f64,
    /// The slices of all parts, in their order.
    pub slices: Vec<SliceOf>,
}

/// One part.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PartOf {
    /// Latencies of all small requests due in it, in microseconds.
    pub small: Quantiles,
    /// Megabytes a second that large requests moved, either way, if they ended in this part.
    pub large_megabytes_per_s: f64,
    /// Its disturbed slices.
    pub disturbed: u64,
}

/// One slice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SliceOf {
    /// 99th percentile of the small requests due in it, in microseconds; 0 where there were none.
    pub small_p99: f64,
    /// Whether others had the server's or the client's CPU meanwhile.
    pub disturbed: bool,
}

impl Phases {
    /// So many parts of a window, one at least.
    pub fn new(window_ns: Range<u64>, parts: usize) -> Self {
        let slice = || Slice { small_ns: empty(DIGITS), late_ns_max: 0, large_bytes: 0 };
        // As the schedule cuts the window (`arrivals::changing`).
        let part_ns = (window_ns.end - window_ns.start).div_ceil(parts as u64).max(1);
        let slices = (0..parts as u64 * SLICES).map(|_| slice()).collect();
        Phases { window_ns, part_ns, slices }
    }

    fn slice(&mut self, at_ns: u64) -> Option<&mut Slice> {
        let index = self.index(at_ns)?;
        self.slices.get_mut(index)
    }

    fn index(&self, at_ns: u64) -> Option<usize> {
        let since_ns = at_ns.checked_sub(self.window_ns.start)?;
        let (part, rest_ns) = (since_ns / self.part_ns, since_ns % self.part_ns);
        let slice = u128::from(rest_ns) * u128::from(SLICES) / u128::from(self.part_ns);
        Some((part * SLICES) as usize + slice as usize)
    }

    /// A request due at `due_ns` left so late; one that never left is as late as can be.
    pub fn sent(&mut self, due_ns: u64, late_ns: u64) {
        if let Some(slice) = self.slice(due_ns) {
            slice.late_ns_max = slice.late_ns_max.max(late_ns);
        }
    }

    /// A small request due at `due_ns` was answered after so long.
    pub fn answered(&mut self, due_ns: u64, latency_ns: u64) {
        if let Some(slice) = self.slice(due_ns) {
            slice.small_ns += latency_ns;
        }
    }

    /// A large request that ended at `now_ns` moved so much.
    pub fn moved(&mut self, now_ns: u64, bytes: u64) {
        if let Some(slice) = self.slice(now_ns) {
            slice.large_bytes += bytes;
        }
    }

    /// Adds another thread's record of the same window.
    pub fn merge(&mut self, other: &Phases) {
        for (own, others) in self.slices.iter_mut().zip(&other.slices) {
            own.small_ns += &others.small_ns;
            own.late_ns_max = own.late_ns_max.max(others.late_ns_max);
            own.large_bytes += others.large_bytes;
        }
    }

    /// Sums the parts and slices up. `lost` are readings of a clock that runs while others have the
    /// CPUs: when it was read, and what it showed.
    pub fn told(&self, lost: &[(u64, u64)]) -> InParts {
        let disturbed = self.disturbed(lost);
        let slices = self.slices.iter().zip(&disturbed).map(|(slice, &disturbed)| {
            let small_p99 = slice.small_ns.value_at_quantile(0.99) as f64 / 1e3;
            SliceOf { small_p99, disturbed }
        });
        let slices: Vec<SliceOf> = slices.collect();
        let part_s = self.part_ns as f64 / 1e9;
        let part = |(slices, disturbed): (&[Slice], &[bool])| {
            let mut small_ns = empty(DIGITS);
            slices.iter().for_each(|slice| small_ns += &slice.small_ns);
            let bytes: u64 = slices.iter().map(|slice| slice.large_bytes).sum();
            PartOf {
                small: Quantiles::of(&small_ns),
                large_megabytes_per_s: bytes as f64 / 1e6 / part_s,
                disturbed: disturbed.iter().filter(|&&disturbed| disturbed).count() as u64,
            }
        };
        let each = SLICES as usize;
        let parts = self.slices.chunks(each).zip(disturbed.chunks(each)).map(part).collect();
        InParts { parts, slice_s: part_s / SLICES as f64, slices }
    }

    /// Whether each slice was disturbed. What a clock showed between two readings counts for every
    /// slice that lies between them, in part or whole.
    fn disturbed(&self, lost: &[(u64, u64)]) -> Vec<bool> {
        let mut lost_ns = vec![0; self.slices.len()];
        for pair in lost.windows(2) {
            let [(from_ns, before), (to_ns, after)] = [pair[0], pair[1]];
            let Some(last) = self.index(to_ns) else { continue };
            let first = self.index(from_ns).unwrap_or(0);
            for slice in lost_ns.iter_mut().take(last + 1).skip(first) {
                *slice += after.saturating_sub(before);
            }
        }
        let most_ns = LOST_SHARE_MAX * self.part_ns as f64 / SLICES as f64;
        let is_disturbed = |(slice, lost_ns): (&Slice, u64)| {
            slice.late_ns_max > AWAY_NS || lost_ns as f64 > most_ns
        };
        self.slices.iter().zip(lost_ns).map(is_disturbed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of three parts of 1 200 ns, slices of 100 ns, from 1 000 ns on.
    fn phases() -> Phases {
        Phases::new(1_000..4_600, 3)
    }

    fn near(us: f64, wanted_us: f64) -> bool {
        (us - wanted_us).abs() < 0.01 * wanted_us
    }

    #[test]
    fn a_request_belongs_to_the_part_in_which_it_was_sent_and_not_to_that_of_its_reply() {
        let mut phases = phases();
        for (due_ns, latency_ns) in [
            (999, 90_000), // before the window
            (1_000, 10_000),
            (2_199, 500_000), // answered long after the first part
            (2_200, 20_000),
            (3_399, 20_000),
            (3_400, 30_000),
            (4_599, 30_000),
            (4_600, 90_000), // behind it
        ] {
            phases.answered(due_ns, latency_ns);
        }
        let parts = phases.told(&[]).parts;
        assert_eq!(parts.iter().map(|part| part.small.count).collect::<Vec<_>>(), [2, 2, 2]);
        let most: Vec<f64> = parts.iter().map(|part| part.small.max).collect();
        assert!(near(most[0], 500.0) && near(most[1], 20.0) && near(most[2], 30.0), "{most:?}");
    }

    #[test]
    fn a_parts_percentiles_are_over_all_of_its_requests_disturbed_or_not() {
        let mut phases = phases();
        // A thousand in each slice, of which one slice was slow while the client had no CPU.
        for slice in 0..12 {
            let latency_ns = if slice == 5 { 900_000 } else { 10_000 };
            (0..1_000).for_each(|_| phases.answered(2_200 + 100 * slice, latency_ns));
        }
        phases.sent(2_700, AWAY_NS + 1);
        let told = phases.told(&[]);
        assert!(near(told.parts[1].small.p99, 900.0), "a slice of twelve is more than 1 %");
        assert!(near(told.parts[1].small.p50, 10.0));
        assert_eq!(told.parts.iter().map(|part| part.disturbed).collect::<Vec<_>>(), [0, 1, 0]);
        assert!(told.slices[17].disturbed && near(told.slices[17].small_p99, 900.0));
        assert!(!told.slices[16].disturbed && near(told.slices[16].small_p99, 10.0));
        assert_eq!(told.slices.len(), 36);
        assert_eq!(told.slices[0], SliceOf::default());
    }

    #[test]
    fn bytes_belong_to_the_part_in_which_their_request_ended() {
        let mut phases = phases();
        phases.moved(3_000, 12);
        phases.moved(3_399, 12);
        phases.moved(3_400, 6);
        phases.moved(9_000, 6); // after the window
        let moved = phases.told(&[]).parts;
        // 24 bytes in 1.2 µs are 20 MB/s.
        let moved: Vec<f64> = moved.iter().map(|part| part.large_megabytes_per_s).collect();
        assert!(moved[0] == 0.0 && near(moved[1], 20.0) && near(moved[2], 5.0), "{moved:?}");
    }

    #[test]
    fn what_others_took_disturbs_the_slices_in_which_they_may_have_taken_it() {
        let of = |lost: &[(u64, u64)]| {
            let slices = phases().told(lost).slices;
            let there = slices.iter().enumerate().filter(|(_, slice)| slice.disturbed);
            there.map(|(index, _)| index).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[(0, 5), (1_050, 5), (1_150, 6), (9_000, 6)]), [0; 0], "1 % of each");
        assert_eq!(of(&[(1_050, 5), (1_150, 7), (1_260, 7)]), [0, 1]);
        assert_eq!(of(&[(500, 5), (1_150, 7)]), [0, 1], "from before the window");
        assert_eq!(of(&[(4_590, 5), (9_000, 7)]), [35], "until after it");
        assert_eq!(of(&[(0, 5), (900, 50)]), [0; 0], "all of it before");
    }

    #[test]
    fn parts_that_do_not_divide_evenly_cover_the_window() {
        let mut phases = Phases::new(0..1_000, 3);
        (0..1_000).for_each(|due_ns| phases.answered(due_ns, 5_000));
        let counts: Vec<u64> = phases.told(&[]).parts.iter().map(|part| part.small.count).collect();
        assert_eq!(counts, [334, 334, 332]);
    }
}
