//! What arrives, against theory: service times from a file (Pollaczek and Khinchine), and bursty
//! arrivals at exponential servers, whose queue is a quasi-birth-death process with an exact mean
//! (Neuts, "Matrix-Geometric Solutions in Stochastic Models", chapter 3).

use laneway_policy::Design;
use laneway_sim::bursts::Bursts;
use laneway_sim::inputs::service_times;
use laneway_sim::machine::{Costs, Machine, Outcome, Traffic, run};
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
