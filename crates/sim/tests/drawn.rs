//! Thirty points that nobody chose: cores, load, sizes and design are drawn by a seed, and the mean
//! wait is held to its exact value, within 3 % or within the point's own interval over seeds.
//!
//! Exact are early binding of any sizes (Pollaczek and Khinchine), and late binding of equal sizes
//! (Crommelin) and of exponential ones (Erlang). Stealing without a cost leaves nobody idle while
//! anybody waits and looks at no size, and so has the mean wait of late binding.

use laneway_load::random::Random;
use laneway_policy::Design;
use laneway_sim::machine::{Costs, Machine, Traffic, run};
use laneway_sim::stats::{Estimate, SECOND};
use laneway_sim::workload::{Mix, Sizes};

/// Any would do; this one is the day's.
const SEED: u64 = 20_261_123;
const POINTS: u64 = 30;
const SEEDS: u64 = 4;
const REQUESTS: u64 = 400_000;

/// The same of early binding, where each core has a queue, and memory, of its own.
const REQUESTS_EARLY: u64 = 1_200_000;

/// The mean wait of M/G/1 where a share of the requests takes `k` units and the others one, in
/// units.
fn m_g_1(share: f64, k: f64, load: f64) -> f64 {
    let service = 1.0 - share + share * k;
    let square = 1.0 - share + share * k * k;
    load / service * square / (2.0 * (1.0 - load))
}

/// The mean wait of M/M/c, by Erlang B's recursion.
fn m_m_c(servers: u16, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let blocked = (1..=servers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    waits / (f64::from(servers) * (1.0 - load))
}

/// That a Poisson count of this mean is at least `least`.
fn poisson_tail(mean: f64, least: u64) -> f64 {
    // The term at `least` by logarithms, for factorials are large; then on until nothing is added.
    let log: f64 = (1..=least).map(|n| (mean / n as f64).ln()).sum();
    let mut term = (log - mean).exp();
    let (mut sum, mut n) = (0.0, least);
    while term > 1e-18 * sum || (n as f64) < mean {
        sum += term;
        n += 1;
        term *= mean / n as f64;
    }
    sum
}

/// The mean wait of M/D/c (Crommelin): what the i-th last departure leaves over, summed.
fn m_d_c(servers: u16, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let mut sum = 0.0;
    for i in 1_u64..100_000 {
        let (mean, least) = (i as f64 * offered, i * u64::from(servers));
        let term = poisson_tail(mean, least) - poisson_tail(mean, least + 1) / load;
        sum += term;
        if term < 1e-9 * sum {
            break;
        }
    }
    sum
}

/// A machine, its mix, and what its mean wait must be.
fn draw(random: &mut Random) -> (String, Machine, Mix, f64, f64) {
    let mut between = |low: f64, high: f64| low + (high - low) * random.below(10_000) as f64 / 1e4;
    let workers = between(1.0, 17.0) as u16;
    let load = between(0.3, 0.9);
    let k = between(1.0, 60.0) as u64;
    let percent = between(0.05, 3.0);
    let (kind, steals) = (between(0.0, 3.0) as u32, between(0.0, 1.0) < 0.5);
    let (design, central_queue) = match (kind, steals && workers > 1) {
        (0, _) => (Design::Hkh, false),
        (_, true) => (Design::HkhWs, false),
        (_, false) => (Design::Hkh, true),
    };
    let (mix, exact) = match kind {
        0 => {
            let mix = Mix::bimodal(k).with_large_percent(percent);
            (mix, m_g_1(percent / 100.0, k as f64, load))
        }
        1 => (Mix::bimodal(1), m_d_c(workers, load)),
        _ => (Mix { sizes: Sizes::Exponential, ..Mix::bimodal(1) }, m_m_c(workers, load)),
    };
    let machine =
        Machine { costs: Costs::UNIT, batch: 1, central_queue, ..Machine::new(design, workers) };
    let kind = ["M/G/1", "M/D/c", "M/M/c"][kind as usize];
    let name = format!("{kind}, {design}, {workers} cores, load {load}, K {k}, {percent} %");
    (name, machine, mix, load, exact)
}

#[test]
fn points_that_nobody_chose_have_the_exact_mean_wait() {
    assert!((m_d_c(1, 0.5) - m_g_1(0.0, 1.0, 0.5)).abs() < 1e-6, "M/D/1 by both");
    let mut random = Random::new(SEED);
    let mut kinds = [0_u32; 3];
    for number in 0..POINTS {
        let (name, machine, mix, load, exact) = draw(&mut random);
        kinds[["M/G", "M/D", "M/M"].iter().position(|kind| name.starts_with(kind)).unwrap_or(0)] +=
            1;
        let service = machine.costs.mean_service(&mix);
        let rate = load * f64::from(machine.settings.workers) * SECOND as f64 / service;
        // One service unit is a microsecond.
        let mean_us = match mix.sizes {
            Sizes::Exponential => 1.0,
            _ => service / 1e6,
        };
        let requests = if name.starts_with("M/G") { REQUESTS_EARLY } else { REQUESTS };
        let wait = |seed| {
            let traffic = Traffic::steady(mix.clone(), rate, requests);
            run(&machine, &traffic, SEED + 100 * number + seed).mean_us - mean_us
        };
        let waits: Vec<f64> = (0..SEEDS).map(wait).collect();
        let wait = Estimate::of(&waits);
        let off = (wait.mean - exact).abs();
        // A mean wait near nothing has no percents: a thousandth of a unit will do.
        let allowed = (0.03 * exact).max(wait.half_width).max(1e-3);
        assert!(off <= allowed, "{name}: {wait:?}, exactly {exact}");
    }
    assert!(kinds.iter().all(|&count| count >= 5), "{kinds:?}");
}
