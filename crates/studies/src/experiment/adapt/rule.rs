//! What the control loop's rule makes of a workload: its plan after one epoch that holds exactly
//! the sizes that the workload asks for (Minos §3.1). No server is asked.

use laneway_load::random::Random;
use laneway_load::workload::{Class, Draws, KEY_BYTES, Key, Workload, WorkloadOptions};
use laneway_policy::{
    CostModel, Design, EpochLoad, ItemBytes, Settings, SizeClass, SizeHistogram, build,
};
use std::ops::RangeInclusive;

/// Small requests that are drawn; the shares of their sizes come out within a few in a thousand.
const DRAWS: u64 = 100_000;
/// What each of them counts, so that the share of a large key is a whole number of requests.
const WEIGHT: u64 = 100_000;

/// The large workers that `design` has under this load, with a wire that backs up and one that does
/// not, and the threshold in bytes.
pub(super) fn of(
    design: Design,
    workers: u16,
    workload: &Workload,
) -> Result<(RangeInclusive<u16>, u64), String> {
    let sizes = sizes(workload)?;
    let cost = if design == Design::Minos { CostModel::Packets } else { CostModel::default() };
    let plan = |tx_backed_up| {
        let settings = Settings { design, workers, cost, samples_min: 1, ..Settings::default() };
        let mut policy = build(settings).map_err(|error| error.to_string())?;
        let load = EpochLoad { sizes: sizes.clone(), tx_backed_up, ..EpochLoad::default() };
        Ok::<_, String>(policy.plan(&load))
    };
    let (free, full) = (plan(false)?, plan(true)?);
    let ends = [free.workers_large(), full.workers_large()];
    Ok((ends[0].min(ends[1])..=ends[0].max(ends[1]), free.threshold.0))
}

/// The sizes of all requests: small ones as drawn, large ones in equal shares of all large keys.
fn sizes(workload: &Workload) -> Result<SizeHistogram, String> {
    let options = workload.options();
    let small = Workload::new(WorkloadOptions { large_percent: 0.0, ..options.clone() })?;
    let class = |key: Key| SizeClass::of(ItemBytes(KEY_BYTES as u64 + workload.value_bytes(key)));
    let (mut random, mut draws) = (Random::stream(options.seed, 0), Draws::default());
    let mut sizes = SizeHistogram::new();
    for _ in 0..DRAWS {
        sizes.add(class(small.draw(&mut random, &mut draws).key), WEIGHT);
    }
    let share = options.large_percent / 100.0;
    let all_large = (DRAWS * WEIGHT) as f64 * share / (1.0 - share);
    let each = (all_large / options.keys_large as f64).round() as u64;
    let keys = (0..options.keys as u32).map(Key);
    for key in keys.filter(|&key| workload.class(key) == Class::Large) {
        sizes.add(class(key), each);
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_percent(design: Design, large_percent: f64) -> (RangeInclusive<u16>, u64) {
        let (keys, keys_large) = (20_000, 200);
        let options =
            WorkloadOptions { keys, keys_large, large_percent, ..WorkloadOptions::default() };
        of(design, 8, &Workload::new(options).expect("valid")).expect("a rule")
    }

    #[test]
    fn minos_has_the_papers_numbers() {
        for (percent, workers) in [(0.0, 0), (0.125, 1), (0.25, 2), (0.5, 3), (0.75, 4)] {
            let (found, threshold) = of_percent(Design::Minos, percent);
            assert_eq!(found, workers..=workers, "{percent}");
            assert!((1_300..1_600).contains(&threshold), "{percent}: {threshold}");
        }
    }

    #[test]
    fn lanes_has_one_more_unless_the_wire_is_full() {
        let (few, _) = of_percent(Design::Lanes, 0.125);
        let (many, _) = of_percent(Design::Lanes, 0.75);
        assert!(few.start() < few.end() && few.end() < many.end(), "{few:?}, {many:?}");
    }
}
