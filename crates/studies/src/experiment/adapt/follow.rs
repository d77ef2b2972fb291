//! Of what `stats lanes` said, ten times a second, makes one row an epoch, and tells how soon the
//! plan was the right one after each change. It knows no server. Unit: epochs.

use super::lanes::Sample;
use std::ops::RangeInclusive;

/// Epochs within which a change must have been followed: the one in which it falls, of which the
/// plan sees a mixture, and the first whole one.
pub(super) const WITHIN: u64 = 2;

/// Epochs that a phase needs, so that some are left in which the plan can be seen to be kept.
pub(super) const EPOCHS_MIN: u32 = WITHIN as u32 + 2;

/// A part of the run with its own share of large requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phase {
    pub(super) large_percent: f64,
    /// Seconds from the first phase's beginning.
    pub(super) from_s: f64,
    /// Plans that had been made as it began.
    pub(super) epochs_before: u64,
    /// What the rule asks for.
    pub(super) workers_large: RangeInclusive<u16>,
    /// The threshold that the rule finds, bytes.
    pub(super) threshold: u64,
}

/// What was in force after so many plans.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Epoch {
    /// How many.
    pub(super) number: u64,
    /// When it was first seen, seconds from the first phase's beginning.
    pub(super) at_s: f64,
    /// As the server said it last.
    pub(super) sample: Sample,
}

impl Epoch {
    pub(super) fn workers_large(&self) -> u16 {
        self.sample.workers_large
    }
}

/// What came of a phase.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    /// Plans made from its beginning until one had the right number of large workers.
    pub(super) after: Option<u64>,
    /// Of the plans behind the first [`WITHIN`], how many had it.
    pub(super) kept: usize,
    /// How many there were.
    pub(super) plans: usize,
    /// The large workers of the last plan, and its threshold in bytes.
    pub(super) last: Option<(u16, u64)>,
}

impl Outcome {
    /// Followed in time, and kept at least half the time: by chance an epoch may hold so much that
    /// it asks for one worker more or fewer.
    pub(super) fn is_good(&self) -> bool {
        let in_time = self.after.is_some_and(|after| after <= WITHIN);
        in_time && self.plans > 0 && 2 * self.kept >= self.plans
    }
}

/// One row an epoch, in order.
pub(super) fn epochs(samples: &[Sample]) -> Vec<Epoch> {
    let mut epochs: Vec<Epoch> = Vec::new();
    for sample in samples {
        let number = sample.epochs;
        match epochs.last_mut() {
            // The count runs ahead of the plan for a moment: what was said last holds.
            Some(last) if last.number == number => last.sample = sample.clone(),
            _ => epochs.push(Epoch { number, at_s: sample.at_s, sample: sample.clone() }),
        }
    }
    epochs
}

/// What came of each phase.
pub(super) fn outcomes(epochs: &[Epoch], phases: &[Phase]) -> Vec<Outcome> {
    let ends = phases.iter().skip(1).map(|phase| phase.epochs_before).chain([u64::MAX]);
    phases.iter().zip(ends).map(|(phase, end)| outcome(epochs, phase, end)).collect()
}

/// The plans `epochs_before..=end` were in force within the phase.
fn outcome(epochs: &[Epoch], phase: &Phase, end: u64) -> Outcome {
    let from = phase.epochs_before;
    let within: Vec<&Epoch> =
        epochs.iter().filter(|epoch| (from..=end).contains(&epoch.number)).collect();
    let is_right = |epoch: &&&Epoch| phase.workers_large.contains(&epoch.workers_large());
    let rest: Vec<&Epoch> =
        within.iter().filter(|epoch| epoch.number > from + WITHIN).copied().collect();
    Outcome {
        after: within.iter().find(is_right).map(|epoch| epoch.number - from),
        kept: rest.iter().filter(is_right).count(),
        plans: rest.len(),
        last: within.last().map(|last| (last.workers_large(), last.sample.threshold_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, epochs: u64, workers_large: u16) -> Sample {
        Sample { at_s, workers_large, threshold_bytes: 1_500, epochs }
    }

    fn phase(epochs_before: u64, workers_large: RangeInclusive<u16>) -> Phase {
        Phase { large_percent: 0.0, from_s: 0.0, epochs_before, workers_large, threshold: 0 }
    }

    /// One sample for each plan's large workers, from plan 10 on.
    fn seen(workers_large: &[u16]) -> Vec<Epoch> {
        let one = |(number, &large)| sample(number as f64, 10 + number as u64, large);
        epochs(&workers_large.iter().enumerate().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn samples_become_one_row_an_epoch() {
        let samples = [sample(0.0, 7, 1), sample(0.1, 8, 1), sample(0.2, 8, 2), sample(0.3, 9, 2)];
        let rows = epochs(&samples);
        let rows: Vec<(u64, f64, u16)> =
            rows.iter().map(|row| (row.number, row.at_s, row.workers_large())).collect();
        assert_eq!(rows, [(7, 0.0, 1), (8, 0.1, 2), (9, 0.3, 2)]);
    }

    #[test]
    fn plans_are_counted_until_the_number_is_right() {
        let seen = seen(&[0, 1, 1, 1, 1, 1, 2, 4, 4, 3, 4, 4]);
        let outcomes = outcomes(&seen, &[phase(10, 1..=1), phase(15, 4..=4)]);
        let last = |large| Some((large, 1_500));
        assert_eq!(outcomes[0], Outcome { after: Some(1), kept: 3, plans: 3, last: last(1) });
        assert_eq!(outcomes[1], Outcome { after: Some(2), kept: 3, plans: 4, last: last(4) });
        assert!(outcomes.iter().all(Outcome::is_good));
    }

    #[test]
    fn late_never_and_lost_again_are_not_good() {
        for workers in [&[1, 1, 1, 4, 4, 4, 4], &[1, 1, 1, 1, 1, 1, 1], &[1, 4, 4, 1, 1, 1, 4]] {
            let outcomes = outcomes(&seen(workers), &[phase(10, 4..=4)]);
            assert!(!outcomes[0].is_good(), "{workers:?}: {outcomes:?}");
        }
        // Nothing seen is nothing shown.
        assert!(!outcomes(&[], &[phase(10, 0..=8)])[0].is_good());
    }

    #[test]
    fn a_change_that_asks_for_nothing_is_followed_at_once() {
        let outcomes = outcomes(&seen(&[2, 2, 2, 2, 2]), &[phase(10, 1..=2)]);
        assert_eq!((outcomes[0].after, outcomes[0].is_good()), (Some(0), true));
    }
}
