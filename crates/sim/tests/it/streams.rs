//! Requests by connections: what `policy::share` promises holds in every run, whatever arrives; and
//! run to completion has the exact mean.

use laneway_load::random::Random;
use laneway_policy::Design;
use laneway_sim::machine::{Costs, Machine, Reach, SliceWait, Streams, Traffic, run};
use laneway_sim::stats::{Estimate, SECOND, US};
use laneway_sim::workload::Mix;

/// Any would do.
const SEED: u64 = 20_261_123;
const POINTS: u64 = 60;

fn machine(design: Design, workers: u16, streams: Streams) -> Machine {
    Machine {
        costs: Costs::UNIT,
        reach: Reach::Offered,
        streams: Some(streams),
        ..Machine::new(design, workers)
    }
}

/// Requests a second at this load, were each burst to have a turn of its own.
fn rate(machine: &Machine, mix: &Mix, load: f64) -> f64 {
    let streams = machine.streams.expect("there are some");
    let turn = streams.turn as f64 / f64::from(streams.burst);
    let service = machine.costs.mean_service(mix) + turn;
    load * f64::from(machine.settings.workers) * SECOND as f64 / service
}

/// Connections, pipelines, loads and sizes that nobody chose: values are large enough that runs
/// end before their transfers do, and loads are beyond what the machine can do.
#[test]
fn nobody_waits_longer_than_its_bound() {
    let mut random = Random::new(SEED);
    let (mut most, mut tight) = ([SliceWait::default(); 2], [0.0_f64; 2]);
    for seed in 0..POINTS {
        let mut below = |bound: u64| random.below(bound) as u32;
        let streams = Streams {
            connections: 1 + below(100),
            burst: 1 << below(7),
            turn: u64::from(below(8)) * US,
            urgency: below(4) > 0,
        };
        let workers = [1, 1, 2, 4, 8][below(5) as usize];
        let large_bytes_max = [100_000, 500_000, 30_000_000][below(3) as usize];
        let mix = Mix::etc().with_large_percent(f64::from(1 + below(30)) / 10.0);
        let mix = mix.with_large_bytes_max(large_bytes_max);
        let machine = machine(Design::Lanes, workers, streams);
        let rate = rate(&machine, &mix, f64::from(2 + below(10)) / 10.0);
        let outcome = run(&machine, &Traffic::steady(mix, rate, 20_000), seed);
        for (lane, wait) in outcome.slice_waits.into_iter().enumerate() {
            let what = format!("lane {lane} by seed {seed}, {workers} workers: {streams:?}");
            assert!(wait.used <= 1.0, "{what}: {wait:?}");
            tight[lane] = tight[lane].max(wait.used);
            if wait.slices > most[lane].slices {
                most[lane] = wait;
            }
        }
    }
    // A bound that nobody came near, or waits of nothing, would say nothing.
    assert!(most.iter().all(|wait| wait.slices >= 15), "{most:?}");
    assert!(tight.iter().all(|&used| used == 1.0), "{tight:?}");
}

/// As many connections as there can be: hardly two bursts ever meet on one.
fn alone(burst: u32, turn: u64) -> Machine {
    machine(Design::Hkh, 1, Streams { connections: 1 << 16, burst, turn, urgency: false })
}

fn mean_us(machine: &Machine, mix: &Mix, load: f64) -> Estimate {
    let rate = rate(machine, mix, load);
    let mean = |seed| run(machine, &Traffic::steady(mix.clone(), rate, 1_000_000), seed).mean_us;
    Estimate::of(&(SEED..SEED + 4).map(mean).collect::<Vec<f64>>())
}

#[test]
fn bursts_of_equal_requests_have_the_mean_of_m_d_1() {
    for (burst, load) in [(1, 0.5), (16, 0.5), (16, 0.8)] {
        let machine = alone(burst, 8 * US);
        let service = 8.0 + f64::from(burst);
        let exact = service + load * service / (2.0 * (1.0 - load));
        let found = mean_us(&machine, &Mix::bimodal(1), load);
        let allowed = (0.02 * exact).max(found.half_width);
        assert!((found.mean - exact).abs() <= allowed, "{burst} at {load}: {found:?}, not {exact}");
    }
}

#[test]
fn large_ones_among_single_requests_make_the_mean_of_m_g_1() {
    let (share, k, turn, load) = (0.01, 40.0, 2.0, 0.6);
    let moment =
        |power| (1.0 - share) * f64::powi(turn + 1.0, power) + share * f64::powi(turn + k, power);
    let exact = moment(1) + load / moment(1) * moment(2) / (2.0 * (1.0 - load));
    let mix = Mix::bimodal(40).with_large_percent(100.0 * share);
    let found = mean_us(&alone(1, 2 * US), &mix, load);
    let allowed = (0.02 * exact).max(found.half_width);
    assert!((found.mean - exact).abs() <= allowed, "{found:?}, not {exact}");
}
