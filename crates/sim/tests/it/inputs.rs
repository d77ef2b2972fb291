//! What arrives, against theory: service times from a file (Pollaczek and Khinchine), and bursty
//! arrivals at exponential servers, whose queue is a quasi-birth-death process with an exact mean
//! (Neuts, "Matrix-Geometric Solutions in Stochastic Models", chapter 3); RX queues with an end,
//! which are M/M/1/K; NUMA domains.

use laneway_policy::Design;
use laneway_sim::bursts::Bursts;
use laneway_sim::inputs::service_times;
use laneway_sim::machine::{Costs, Machine, Numa, Outcome, Rx, SharedLines, State, Traffic, run};
use laneway_sim::stats::{Estimate, SECOND, US};
use laneway_sim::workload::{Mix, Sizes};

/// One server, no batches; service takes one unit (1 µs) a packet where it was not measured.
fn server() -> Machine {
    Machine { costs: Costs::UNIT, batch: 1, ..Machine::new(Design::Hkh, 1) }
}

fn at_load(mix: &Mix, load: f64, requests: u64, seed: u64) -> Outcome {
    let machine = server();
    let rate = load * SECOND as f64 / machine.costs.mean_service(mix);
    run(&machine, &Traffic::steady(mix.clone(), rate, requests), seed)
}

fn mean(seeds: u64, figure: impl Fn(u64) -> f64) -> f64 {
    Estimate::of(&(1..=seeds).map(figure).collect::<Vec<f64>>()).mean
}

#[test]
fn service_times_from_a_file_have_the_mean_wait_of_pollaczek_and_khinchine() {
    let sizes = service_times("100 700 90\n300 2500 9\n5000 10000 1").expect("good");
    let service = 0.9 * 0.7 + 0.09 * 2.5 + 0.01 * 10.0;
    let square = 0.9 * 0.49 + 0.09 * 6.25 + 0.01 * 100.0;
    let mix = Mix { sizes, ..Mix::etc() };
    for load in [0.5, 0.7] {
        let exact = load / service * square / (2.0 * (1.0 - load));
        let wait = mean(4, |seed| at_load(&mix, load, 2_000_000, seed).mean_us - service);
        assert!((wait / exact - 1.0).abs() < 0.02, "load {load}: {wait}, exactly {exact}");
    }
}

#[test]
fn bursts_of_factor_one_are_the_poisson_process_to_the_picosecond() {
    let outcome = |bursts| {
        let outcome = at_load(&Mix { bursts, ..Mix::bimodal(10) }, 0.7, 100_000, 9);
        let p99 = outcome.all().percentile_us(99.0);
        (outcome.mean_us, p99, outcome.in_system, outcome.arrivals_per_s)
    };
    let bursts = Bursts { factor: 1.0, share: 0.3, length: 7 * US };
    assert_eq!(outcome(Some(bursts)), outcome(None));
}

type Matrix = [[f64; 2]; 2];

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let cell = |i: usize, j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

fn inverse(a: &Matrix) -> Matrix {
    let det = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    [[a[1][1] / det, -a[0][1] / det], [-a[1][0] / det, a[0][0] / det]]
}

/// The mean response time of MMPP/M/1 with a mean service time of one: R is the least solution of
/// A0 + R A1 + R² = 0, the empty queue's phases solve x (B + R) = 0, and all sums to one.
fn mmpp_m_1(load: f64, bursts: &Bursts) -> f64 {
    let arrive = bursts.rates().map(|rate| rate * load);
    let length = bursts.length as f64 / US as f64;
    let leave = [1.0 / length, 1.0 / (bursts.cycle() / US as f64 - length)];
    let phase = |extra: f64| -> Matrix {
        [[-leave[0] - arrive[0] - extra, leave[0]], [leave[1], -leave[1] - arrive[1] - extra]]
    };
    let minus_a1_inverse = inverse(&phase(1.0)).map(|row| row.map(|cell| -cell));
    let mut r: Matrix = [[0.0; 2]; 2];
    for _ in 0..200_000 {
        let mut sum = times(&r, &r);
        sum[0][0] += arrive[0];
        sum[1][1] += arrive[1];
        r = times(&sum, &minus_a1_inverse);
    }
    let mut empty = phase(0.0);
    for (row, of_r) in empty.iter_mut().zip(r) {
        row[0] += of_r[0];
        row[1] += of_r[1];
    }
    let weights = [-empty[1][0], empty[0][0]];
    let levels = inverse(&[[1.0 - r[0][0], -r[0][1]], [-r[1][0], 1.0 - r[1][1]]]);
    let sum = |m: &Matrix| (0..2).map(|i| weights[i] * (m[i][0] + m[i][1])).sum::<f64>();
    let queue = sum(&times(&r, &times(&levels, &levels))) / sum(&levels);
    queue / load
}

#[test]
fn bursty_arrivals_have_the_mean_response_time_of_mmpp_m_1() {
    let poisson = Bursts { factor: 1.0, share: 0.5, length: US };
    let m_m_1 = mmpp_m_1(0.7, &poisson);
    assert!((m_m_1 - 1.0 / 0.3).abs() < 1e-6, "without bursts it is M/M/1: {m_m_1}");
    let mix = Mix { sizes: Sizes::Exponential, ..Mix::bimodal(1) };
    for (load, factor, share, length_us) in [(0.5, 4.0, 0.2, 20), (0.7, 3.0, 0.3, 50)] {
        let bursts = Bursts { factor, share, length: length_us * US };
        let exact = mmpp_m_1(load, &bursts);
        assert!(exact > 1.3 / (1.0 - load), "bursts are felt: {exact}");
        let mix = Mix { bursts: Some(bursts), ..mix.clone() };
        let got = mean(4, |seed| {
            let outcome = at_load(&mix, load, 4_000_000, seed);
            let rate = outcome.arrivals_per_s / 1e6;
            assert!((rate / load - 1.0).abs() < 0.02, "rate {rate}, asked for {load}");
            outcome.mean_us
        });
        assert!((got / exact - 1.0).abs() < 0.03, "factor {factor}: {got}, exactly {exact}");
    }
}

/// The part of the requests that M/M/1 with room for so many turns away.
fn m_m_1_turned_away(load: f64, room: i32) -> f64 {
    (1.0 - load) * load.powi(room) / (1.0 - load.powi(room + 1))
}

/// Where what was lost does not come again while the run lasts, the queue is M/M/1/K.
#[test]
fn a_queue_with_an_end_loses_what_m_m_1_k_does() {
    let mix = Mix { sizes: Sizes::Exponential, ..Mix::bimodal(1) };
    for (load, requests) in [(0.6, 2), (0.8, 9)] {
        let rx = Some(Rx { requests, retry: 1_000 * SECOND });
        let machine = Machine { rx, ..server() };
        let lost = mean(4, |seed| {
            let traffic = Traffic::steady(mix.clone(), load * SECOND as f64 / US as f64, 1_000_000);
            let outcome = run(&machine, &traffic, seed);
            outcome.lost as f64 / outcome.requests as f64
        });
        let exact = m_m_1_turned_away(load, requests as i32 + 1); // and the one that is served
        assert!((lost / exact - 1.0).abs() < 0.03, "load {load}: {lost}, exactly {exact}");
    }
}

/// Each loss adds the time until it is sent again, and what is lost is in the system meanwhile.
#[test]
fn latency_counts_from_the_first_time_and_littles_law_holds() {
    for design in [Design::Hkh, Design::Minos, Design::Lanes] {
        let rx = Some(Rx { requests: 24, retry: 100 * US });
        let machine = Machine { rx, epoch: SECOND / 50, ..Machine::new(design, 8) };
        let mix = Mix::etc().with_large_percent(0.5);
        let rate = 0.7 * 8.0 * SECOND as f64 / machine.costs.mean_service(&mix);
        let outcome = run(&machine, &Traffic::steady(mix, rate, 400_000), 1);
        assert_eq!(outcome.small.count() + outcome.large.count(), outcome.requests, "{design}");
        let expected = outcome.arrivals_per_s * outcome.mean_us / 1e6;
        assert!((outcome.in_system / expected - 1.0).abs() < 0.03, "{design}: {expected}");
        // What keeps small requests from waiting behind large ones keeps queues short.
        let lossy = design == Design::Hkh;
        assert_eq!((outcome.lost > 100_000, outcome.lost == 0), (lossy, !lossy), "{design}");
        assert_eq!(outcome.small.percentile_us(99.0) > 100.0, lossy, "{design}");
    }
}

#[test]
fn a_queue_that_never_fills_changes_nothing() {
    let outcome = |rx| {
        let machine = Machine { rx, ..server() };
        let outcome = run(&machine, &Traffic::steady(Mix::bimodal(10), 5e5, 100_000), 9);
        (outcome.mean_us, outcome.all().percentile_us(99.0), outcome.lost)
    };
    assert_eq!(outcome(Some(Rx { requests: 100_000, retry: US })), outcome(None));
}

fn in_domains(design: Design, numa: Option<Numa>, load: f64) -> Outcome {
    let machine = Machine { numa, epoch: SECOND / 50, ..Machine::new(design, 4) };
    let rate = load * 4.0 * SECOND as f64 / machine.costs.mean_service(&Mix::etc());
    run(&machine, &Traffic::steady(Mix::etc(), rate, 400_000), 3)
}

/// A domain that nothing strays into or out of is a machine of its own.
#[test]
fn without_strays_a_domain_is_the_machine_of_its_workers() {
    for design in [Design::Lanes, Design::Hkh] {
        let figures = |numa| {
            let outcome = in_domains(design, numa, 0.7);
            (outcome.mean_us, outcome.all().percentile_us(99.0), outcome.cpu_busy)
        };
        let numa = Numa { domains: 2, strays: 0.0, cost: US };
        assert_eq!(figures(Some(numa)), figures(None), "{design}");
    }
}

/// Work is conserved: each stray adds its hand-over, what its taker pays for the queue, and what
/// crossing costs, and nothing else.
#[test]
fn strays_add_their_cost_to_the_work_and_nothing_is_lost() {
    let costs = Costs::MINOS;
    for strays in [0.5, 1.0] {
        let numa = Numa { domains: 2, strays, cost: US / 2 };
        let outcome = in_domains(Design::Hkh, Some(numa), 0.5);
        let each = (costs.handoff + costs.steal + numa.cost) as f64;
        let expected = 0.5 * (1.0 + strays * each / costs.mean_service(&Mix::etc()));
        assert!((outcome.cpu_busy / expected - 1.0).abs() < 0.02, "{strays}: {expected}");
        assert_eq!(outcome.small.count() + outcome.large.count(), outcome.requests);
        let backlog = outcome.arrivals_per_s * outcome.mean_us / 1e6;
        assert!((outcome.in_system / backlog - 1.0).abs() < 0.02, "{strays}");
    }
}

fn with_lines(lines: Option<SharedLines>, workers: u16, load: f64) -> Outcome {
    let machine = Machine { lines, epoch: SECOND / 50, ..Machine::new(Design::Hkh, workers) };
    let rate = load * f64::from(workers) * SECOND as f64 / machine.costs.mean_service(&Mix::etc());
    run(&machine, &Traffic::steady(Mix::etc(), rate, 400_000), 3)
}

/// A line is another worker's with the chance that all but one of them have.
#[test]
fn a_shared_line_costs_its_way_from_the_worker_that_wrote_it_last() {
    for workers in [2, 4, 8] {
        let lines = SharedLines { each: 2, spread: 4_096, transfer: US / 10 };
        let outcome = with_lines(Some(lines), workers, 0.4);
        let each = 0.2 * US as f64 * (1.0 - 1.0 / f64::from(workers));
        let expected = 0.4 * (1.0 + each / Costs::MINOS.mean_service(&Mix::etc()));
        assert!((outcome.cpu_busy / expected - 1.0).abs() < 0.03, "{workers}: {expected}");
    }
}

#[test]
fn a_worker_alone_has_all_lines_and_free_ones_cost_nothing() {
    let figures = |lines, workers| {
        let outcome = with_lines(lines, workers, 0.6);
        (outcome.mean_us, outcome.cpu_busy)
    };
    let lines = SharedLines { each: 3, spread: 1, transfer: US };
    assert_eq!(figures(Some(lines), 1), figures(None, 1));
    assert_eq!(figures(Some(SharedLines { transfer: 0, ..lines }), 4), figures(None, 4));
}

/// One line that all write is had by one worker at a time: it bounds the rate of all of them.
#[test]
fn a_single_line_bounds_the_rate_however_many_workers_there_are() {
    let lines = SharedLines { each: 1, spread: 1, transfer: US };
    let most = SECOND as f64 / US as f64; // where all wait for it, the next is another one
    let peak = 8.0 * SECOND as f64 / Costs::MINOS.mean_service(&Mix::etc());
    let state = |rate: f64| with_lines(Some(lines), 8, rate / peak).state();
    assert!(matches!(state(0.85 * most), State::Steady), "below");
    assert!(!matches!(state(1.2 * most), State::Steady), "above");
}
