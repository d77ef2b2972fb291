//! Tests of the policies through their public face: rows of known answers, and properties against
//! naive oracles. The workloads are those of Minos §5.

mod adapt;
mod cores;
mod designs;
mod histogram;
mod hot;
mod migrate;
mod owner;
mod ranges;
mod rate;
mod rivals;
mod route;
mod settings;
mod share;
mod turn;

use laneway_policy::{
    CorePlan, EpochLoad, ItemBytes, Settings, SizeClass, SizeHistogram, SmoothHistogram,
};

/// The trimodal mix of Minos §5 with 8-byte keys: tiny 1–13 B and small 14–1400 B at 40/60, and
/// `large_percent` percent of values spread evenly from 1500 B to `large_bytes_max`.
fn etc_mix(requests: u64, large_percent: f64, large_bytes_max: u64) -> SizeHistogram {
    let large = (requests as f64 * large_percent / 100.0).round() as u64;
    let tiny = (requests - large) * 2 / 5;
    let small = requests - large - tiny;
    let mut sizes = SizeHistogram::new();
    for (count, first, last) in [(tiny, 1, 13), (small, 14, 1400), (large, 1500, large_bytes_max)] {
        for i in 0..count {
            sizes.record(ItemBytes(8 + first + i * (last - first) / count));
        }
    }
    sizes
}

/// What an epoch with these sizes reports, when large requests went the large way.
fn load(sizes: SizeHistogram) -> EpochLoad {
    let large_requests =
        SizeClass::all().filter(|c| c.first().0 >= 1472).map(|c| sizes.count(c)).sum();
    EpochLoad { sizes, large_requests, ..EpochLoad::default() }
}

/// The histogram as the only epoch there ever was.
fn smooth(sizes: &SizeHistogram) -> SmoothHistogram {
    let mut smooth = SmoothHistogram::new();
    smooth.absorb(sizes, 1.0);
    smooth
}

/// The plan of `settings` after `epochs` epochs of the same load.
fn plan_after(settings: &Settings, load: &EpochLoad, epochs: u64) -> CorePlan {
    let mut policy = laneway_policy::build(settings.clone()).expect("settings of a test fit");
    let mut plan = policy.initial();
    for _ in 0..epochs {
        plan = policy.plan(load);
    }
    plan
}
