//! The figure of KeySched (§2, §3): the busiest core's load over the mean, 8 to 64 cores, as the
//! number of cores grows and as the threshold falls. Zipf 0.99 over about 811 000 keys, whose
//! hottest is asked for in 6.6 % of the requests, and 15 000 requests in a timeslot.
//!
//! `hash`: by key hash. `keysched`: the poster to the letter. `lanes`: our ranking and carry-over,
//! every key still with one owner. `lanes-split`: the same, and reads of hot keys (95 % of the
//! requests) go to whoever receives them. Loads are counted in requests, over the whole run and,
//! as a mean over slots, within each slot. No queue is simulated. Each seed is another hash, which
//! is what the balance by key hash hangs on: so there are more seeds than elsewhere.

use super::{Figure, Setup};
use crate::plot::Chart;
use crate::row::Row;
use crate::stats::Estimate;
use crate::study::Study;
use laneway_load::random::{Random, mix_pair};
use laneway_load::zipf::Zipf;
use laneway_policy::WorkerId;
use laneway_policy::hot::sketch::KeyHash;
use laneway_policy::hot::{Access, HotKeys, HotRoute, HotSettings};

/// Keys, so that the hottest has 6.6 %.
const KEYS: u64 = 811_000;
const ZIPF: f64 = 0.99;
const SLOT_REQUESTS: u64 = 15_000;
const READS: f64 = 0.95;
const CORES: &[u16] = &[8, 16, 24, 32, 48, 64];
/// Of a full study, which has many more seeds.
const CORES_FULL: &[u16] = &[8, 64];
const THRESHOLDS: [u32; 4] = [256, 128, 64, 32];

/// More than the scheduler looks back on (100), so that it is seen with all that it remembers.
const SLOTS_QUICK: u64 = 120;
const SLOTS_FULL: u64 = 200;
/// Seeds for each of a study: 104 in all in a full one, for balance is a matter of which hash.
const SEEDS_QUICK: u64 = 2;
const SEEDS_FULL: u64 = 13;

/// The threshold that figure 3(a) of the poster is taken to have: the one with the best balance.
const THRESHOLD: u32 = 32;

struct Task {
    row: Row,
    cores: u16,
    /// `None`: by key hash.
    hot: Option<HotSettings>,
}

struct Balance {
    run: f64,
    slot: f64,
    moves_per_slot: f64,
    hot_per_slot: f64,
}

fn max_over_mean(loads: &[u64]) -> f64 {
    let sum: u64 = loads.iter().sum();
    let max = loads.iter().copied().max().unwrap_or(0);
    max as f64 * loads.len() as f64 / sum.max(1) as f64
}

fn balance(task: &Task, slots: u64, seed: u64) -> Balance {
    let zipf = Zipf::new(KEYS, ZIPF);
    let mut random = Random::stream(seed, u64::from(task.cores));
    let cores = u64::from(task.cores);
    let mut hot = task.hot.map(HotKeys::new);
    let mut total = vec![0_u64; usize::from(task.cores)];
    let (mut slot_ratio, mut hot_keys) = (0.0, 0);
    for _ in 0..slots {
        let mut slot = vec![0_u64; usize::from(task.cores)];
        for _ in 0..SLOT_REQUESTS {
            let hash = mix_pair(seed, zipf.rank(&mut random));
            let home = WorkerId((hash % cores) as u16);
            let worker = match &mut hot {
                None => home,
                Some(hot) => {
                    let access = if random.chance(READS) { Access::Read } else { Access::Write };
                    let worker = match hot.route(KeyHash(hash), access) {
                        HotRoute::Home => home,
                        HotRoute::Owner(worker) => worker,
                        HotRoute::Anyone => WorkerId(random.below(cores) as u16),
                    };
                    hot.charge(worker, 1);
                    worker
                }
            };
            slot[worker.index()] += 1;
        }
        slot_ratio += max_over_mean(&slot);
        for (total, slot) in total.iter_mut().zip(&slot) {
            *total += slot;
        }
        if let Some(hot) = &mut hot {
            hot_keys += hot.hot().len();
            hot.slot_ended();
        }
    }
    let slots = slots as f64;
    Balance {
        run: max_over_mean(&total),
        slot: slot_ratio / slots,
        moves_per_slot: hot.map_or(0.0, |hot| hot.found() as f64) / slots,
        hot_per_slot: hot_keys as f64 / slots,
    }
}

fn rows(study: &Study, name: &str, tasks: &[Task]) -> Vec<Row> {
    let slots = study.effort.pick(SLOTS_QUICK, SLOTS_FULL);
    let seeds = study.seeds() * study.effort.pick(SEEDS_QUICK, SEEDS_FULL);
    let balances = study.parallel(name, tasks, |task| {
        study.counted(|| {
            let each = study.seed..study.seed + seeds;
            let all: Vec<Balance> = each.map(|seed| balance(task, slots, seed)).collect();
            (slots * SLOT_REQUESTS * seeds, all)
        })
    });
    let mut rows = Vec::new();
    for (task, all) in tasks.iter().zip(&balances) {
        let of = |of: fn(&Balance) -> f64| Estimate::of(&all.iter().map(of).collect::<Vec<f64>>());
        for (window, ratio) in [("run", of(|b| b.run)), ("slot", of(|b| b.slot))] {
            rows.push(
                task.row
                    .clone()
                    .with("window", window)
                    .with("max_avg_ratio", ratio.mean)
                    .with("max_avg_ratio_ci", ratio.half_width)
                    .with("hot_keys_per_slot", of(|b| b.hot_per_slot).mean)
                    .with("found_per_slot", of(|b| b.moves_per_slot).mean)
                    .with("requests", slots * SLOT_REQUESTS * seeds)
                    .with("seed", study.seed)
                    .with("seeds", seeds),
            );
        }
    }
    rows
}

fn chart(window: &str, x: &'static str, x_label: &'static str) -> Chart {
    Chart {
        x,
        x_label,
        y: "max_avg_ratio",
        y_label: "busiest core / mean",
        series: "policy",
        log: false,
        ..Chart::latency(window, format!("KeySched: balance over a {window}"))
    }
    .only("window", window)
}

pub(super) fn ratio(study: &Study, _setup: &Setup) -> Figure {
    let mut tasks = Vec::new();
    for &cores in study.effort.pick(CORES, CORES_FULL) {
        let policies = [
            ("hash", None),
            ("keysched", Some(HotSettings::keysched_2018(cores, THRESHOLD))),
            ("lanes", Some(HotSettings::lanes_exclusive(cores))),
            ("lanes-split", Some(HotSettings::lanes(cores))),
        ];
        for (policy, hot) in policies {
            let row = Row::of("keysched-ratio").with("policy", policy).with("cores", cores);
            tasks.push(Task { row, cores, hot });
        }
    }
    let rows = rows(study, "keysched-ratio", &tasks);
    let charts = ["run", "slot"].map(|window| chart(window, "cores", "cores"));
    Figure { rows, charts: charts.to_vec() }
}

pub(super) fn threshold(study: &Study, _setup: &Setup) -> Figure {
    let mut tasks = Vec::new();
    for cores in [8, 64] {
        for threshold in THRESHOLDS {
            let lanes = HotSettings {
                threshold: laneway_policy::hot::HotThreshold::Requests(threshold),
                ..HotSettings::lanes_exclusive(cores)
            };
            for (policy, hot) in
                [("keysched", HotSettings::keysched_2018(cores, threshold)), ("lanes", lanes)]
            {
                let row = Row::of("keysched-threshold")
                    .with("policy", policy)
                    .with("cores", cores)
                    .with("threshold", u64::from(threshold));
                tasks.push(Task { row, cores, hot: Some(hot) });
            }
        }
    }
    let rows = rows(study, "keysched-threshold", &tasks);
    let charts = ["run", "slot"]
        .map(|window| chart(window, "threshold", "threshold (requests)").only("cores", 64));
    Figure { rows, charts: charts.to_vec() }
}
