//! Thirty points that nobody chose: cores, load, sizes and design are drawn by a seed, and the mean
//! wait is held to its exact value, within 3 % or within the point's own interval over seeds.
//!
//! Exact are early binding of any sizes (Pollaczek and Khinchine), and late binding of equal sizes
//! (Crommelin) and of exponential ones (Erlang). Stealing without a cost leaves nobody idle while
//! anybody waits and looks at no size, and so has the mean wait of late binding. Of the rivals with
//! a scheduler of their own: Caladan with all cores granted is such stealing, with one core it is
//! M/G/1 with a set-up time (Welch 1964); Tiny Quanta with one core is M/G/1 by processor sharing.

use laneway_load::random::Random;
use laneway_policy::Design;
use laneway_sim::machine::{Central, Costs, Machine, Outcome, Traffic, run};
use laneway_sim::stats::{Estimate, SECOND, US};
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

/// What Caladan's only core comes to, in units: the mean wait of M/G/1 whose server goes after
/// `search` without work and takes `coming` to be back, and the part of the time for which there is
/// a core.
fn m_g_1_set_up(share: f64, k: f64, load: f64, coming: f64, search: f64) -> (f64, f64) {
    let service = 1.0 - share + share * k;
    let rate = load / service;
    let gone = (-rate * search).exp();
    let (mean, square) = (gone * coming, gone * coming * coming);
    let wait = m_g_1(share, k, load) + (2.0 * mean + rate * square) / (2.0 * (1.0 + rate * mean));
    let cycle = 1.0 / rate + (mean + service) / (1.0 - load);
    (wait, 1.0 - gone / rate / cycle)
}

fn runs(central: Central, workers: u16, mix: &Mix, load: f64, seeds: u64) -> Vec<Outcome> {
    // Each has many quanta.
    let shares = matches!(central, Central::Share { .. });
    let requests = if shares { REQUESTS / 4 } else { REQUESTS };
    let machine = Machine::new(Design::Hkh, workers);
    let machine = Machine { costs: Costs::UNIT, batch: 1, central: Some(central), ..machine };
    let service = machine.costs.mean_service(mix);
    let rate = load * f64::from(workers) * SECOND as f64 / service;
    let one = |seed| run(&machine, &Traffic::steady(mix.clone(), rate, requests), seed);
    (seeds..seeds + SEEDS).map(one).collect()
}

fn holds(name: &str, outcomes: &[Outcome], figure: impl Fn(&Outcome) -> f64, exact: f64) {
    let got = Estimate::of(&outcomes.iter().map(figure).collect::<Vec<f64>>());
    // The mean of so many exponential service times is known no better than this.
    let allowed = (0.03 * exact).max(got.half_width).max(2.5e-3);
    assert!((got.mean - exact).abs() <= allowed, "{name}: {got:?}, exactly {exact}");
}

#[test]
fn caladan_and_tiny_quanta_have_the_exact_means_at_points_that_nobody_chose() {
    let mut random = Random::new(SEED + 1);
    for number in 0..POINTS {
        let mut between =
            |low: f64, high: f64| low + (high - low) * random.below(10_000) as f64 / 1e4;
        let (load, workers) = (between(0.3, 0.85), between(1.0, 17.0) as u16);
        let (k, percent) = (between(2.0, 30.0) as u64, between(0.5, 10.0));
        let (coming, search) = (between(0.1, 20.0), between(0.0, 8.0));
        let two_sizes = Mix::bimodal(k).with_large_percent(percent);
        let share = percent / 100.0;
        let service = 1.0 - share + share * k as f64;
        let seeds = SEED + 100 * number;
        let grant = |coming: f64, search: f64| Central::Grant {
            interval: 10 * US,
            coming: (coming * US as f64) as u64,
            search: (search * US as f64) as u64,
        };
        match number % 4 {
            0 => {
                let central = Central::Share { quantum: US / 10, cost: 0 };
                let outcomes = runs(central, 1, &two_sizes, load, seeds);
                let name = format!("processor sharing, load {load}, K {k}, {percent} %");
                holds(&name, &outcomes, |o| o.mean_us, service / (1.0 - load));
            }
            1 => {
                let (wait, granted) = m_g_1_set_up(share, k as f64, load, coming, search);
                let outcomes = runs(grant(coming, search), 1, &two_sizes, load, seeds);
                let name = format!("set-up {coming} after {search}, load {load}, K {k}");
                holds(&name, &outcomes, |o| o.mean_us - service, wait);
                holds(&name, &outcomes, |o| o.cores, granted);
            }
            kind => {
                let (mix, exact) = match kind {
                    2 => (Mix::bimodal(1), m_d_c(workers, load)),
                    _ => {
                        let sizes = Sizes::Exponential;
                        (Mix { sizes, ..Mix::bimodal(1) }, m_m_c(workers, load))
                    }
                };
                let outcomes = runs(grant(0.0, 1e6), workers, &mix, load, seeds);
                let name = format!("all granted, kind {kind}, {workers} cores, load {load}");
                holds(&name, &outcomes, |o| o.mean_us - 1.0, exact);
                holds(&name, &outcomes, |o| o.cores, f64::from(workers));
            }
        }
    }
}
