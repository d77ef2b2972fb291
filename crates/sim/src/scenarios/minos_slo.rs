//! Figures 6 and 7 of Minos (§6.3): the most that each design serves while p99 stays within 50 or
//! 100 µs, as the share of large requests (p_L) or their largest size (s_L) grows; and how many
//! times more `minos` and `lanes` serve than the design. The most is found by halving, for each
//! seed by itself, so that it has an interval over seeds like any other figure.

use super::minos_curves::designs;
use super::{Figure, MEGA, Setup, cpu_peak, wire_name};
use crate::machine::{Costs, Machine, Nic};
use crate::plot::Chart;
use crate::row::Row;
use crate::search::highest;
use crate::stats::{Estimate, US};
use crate::study::{Point, Study};
use crate::workload::Mix;

const PERCENTS: [f64; 5] = [0.0625, 0.125, 0.25, 0.5, 0.75];
const KILOBYTES: [u64; 4] = [250, 500, 750, 1000];
const SLOS_US: [f64; 2] = [50.0, 100.0];

/// The range that is searched: from this part of the highest rate on, within 1.3 % of it.
const RANGE: f64 = 512.0;

/// The highest rate at which p99 is within the SLO for this machine, for each seed; 0 if there is
/// none.
fn highest_within(
    study: &Study,
    machine: &Machine,
    mix: &Mix,
    slo_us: f64,
    requests: u64,
) -> Vec<f64> {
    let peak = cpu_peak(&machine.costs, mix, machine.settings.workers);
    let each = study.each_seed().map(|seed| {
        let found = highest(1.25 * peak / RANGE, 1.25 * peak, |rate| {
            let (row, machine, mix) = (Row::default(), machine.clone(), mix.clone());
            let point = Point { row, machine, mix, rate, requests };
            study.one_until(&point, seed, Some((slo_us * US as f64) as u64)).holds(slo_us)
        });
        found.unwrap_or(0.0)
    });
    each.collect()
}

/// One group of bars: a mix, and the machines that are given it.
struct Case {
    row: Row,
    mix: Mix,
    machines: Vec<(&'static str, Machine)>,
}

struct Task {
    row: Row,
    machine: Machine,
    mix: Mix,
    slo_us: f64,
}

fn tasks(cases: &[Case]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for slo_us in SLOS_US {
        for Case { row, mix, machines } in cases {
            for (design, machine) in machines {
                let row = row.clone().with("slo_us", slo_us).with("wire", wire_name(machine.nic));
                let (row, mix) = (row.with("design", *design), mix.clone());
                tasks.push(Task { row, machine: machine.clone(), mix, slo_us });
            }
        }
    }
    tasks
}

fn figure(study: &Study, name: &'static str, cases: &[Case]) -> Vec<Row> {
    let tasks = tasks(cases);
    let requests = study.effort.pick(100_000, 250_000);
    let rates: Vec<Vec<f64>> = study.parallel(name, &tasks, |task| {
        highest_within(study, &task.machine, &task.mix, task.slo_us, requests)
    });
    let per_group = cases.first().map_or(1, |case| case.machines.len());
    let mut rows = Vec::new();
    for (group, rates) in tasks.chunks(per_group).zip(rates.chunks(per_group)) {
        let of = |name: &str| {
            let place = group.iter().position(|task| task.row.text("design") == name);
            place.map_or(&[][..], |place| &rates[place][..])
        };
        for (task, own) in group.iter().zip(rates) {
            let rate = Estimate::of(own);
            let (minos, lanes) = (times(of("minos"), own), times(of("lanes"), own));
            rows.push(
                task.row
                    .clone()
                    .with("mops", rate.mean / MEGA)
                    .with("mops_ci", rate.half_width / MEGA)
                    .sure("minos_over_it", minos)
                    .sure("lanes_over_it", lanes)
                    .with("seed", study.seed)
                    .with("seeds", study.seeds()),
            );
        }
    }
    rows
}

/// How many times `its` rate another's is. Both were given the same arrivals, seed by seed, so
/// seeds are compared one with one.
fn times(others: &[f64], its: &[f64]) -> Estimate {
    Estimate::of(&others.iter().zip(its).map(|(other, own)| other / own).collect::<Vec<f64>>())
}

fn charts(title: &str, x: &'static str, x_label: &'static str) -> Vec<Chart> {
    let chart = |slo: f64| {
        let title = format!("{title}, p99 within {slo} us");
        let chart = Chart::latency(format!("slo{slo}"), title).over(x, x_label);
        chart.of("mops", "Mops within the SLO").only("slo_us", slo)
    };
    SLOS_US.map(chart).to_vec()
}

pub(super) fn by_share(study: &Study, setup: &Setup) -> Figure {
    let case = |percent: f64| Case {
        row: Row::of("minos-fig6").with("p_l", percent),
        mix: Mix::etc().with_large_percent(percent),
        machines: designs(setup),
    };
    let rows = figure(study, "minos-fig6", &PERCENTS.map(case));
    Figure::new(rows, charts("Minos figure 6", "p_l", "large requests, p_L (%)"))
}

pub(super) fn by_size(study: &Study, setup: &Setup) -> Figure {
    let case = |kilobytes: u64| Case {
        row: Row::of("minos-fig7").with("s_l_kb", kilobytes),
        mix: Mix::etc().with_large_bytes_max(kilobytes * 1000),
        machines: designs(setup),
    };
    let rows = figure(study, "minos-fig7", &KILOBYTES.map(case));
    Figure::new(rows, charts("Minos figure 7", "s_l_kb", "largest large request, s_L (KB)"))
}

/// What a packet costs, in nanoseconds, and how many frames of a queue the NIC sends at a time.
const VARIANTS: [(u64, u32); 6] = [(700, 1), (400, 1), (200, 1), (100, 1), (700, 32), (100, 32)];

/// What the ratios of figures 3, 6 and 7 hang on: the same mean cost of a request, made of more or
/// less for each packet. What a packet costs decides whether a worker makes a large reply faster
/// than the wire takes it, that is, for how long small replies stand behind it in a TX queue.
pub(super) fn by_packet_cost(study: &Study, setup: &Setup) -> Figure {
    let mut cases = Vec::new();
    let mean = setup.costs.mean_service(&Mix::etc());
    let unit = Costs { request: 0, packet: US, ..setup.costs };
    let packets = unit.mean_service(&Mix::etc()) / US as f64;
    // All with the default workload; the first and the fourth at the far end of figure 6 as well.
    let all = VARIANTS.map(|variant| (0.125, variant));
    let far = [VARIANTS[0], VARIANTS[3]].map(|variant| (0.75, variant));
    for (percent, (packet_ns, burst)) in all.into_iter().chain(far) {
        let packet = packet_ns * US / 1000;
        let request = (mean - packets * packet as f64) as u64;
        let costs = Costs { request, packet, ..setup.costs };
        let setup = Setup { costs, nic: Nic { burst, ..setup.nic }, ..setup.clone() };
        let wanted = ["minos", "hkh-ws", "sho 2"];
        let machines = designs(&setup).into_iter().filter(|(name, _)| wanted.contains(name));
        cases.push(Case {
            row: Row::of("minos-ratio")
                .with("p_l", percent)
                .with("packet_ns", packet_ns)
                .with("burst", u64::from(burst)),
            mix: Mix::etc().with_large_percent(percent),
            machines: machines.collect(),
        });
    }
    let rows = figure(study, "minos-ratio", &cases);
    let chart = Chart::latency("packet", "What the ratios hang on (default workload)");
    let chart = Chart { log: false, ..chart }.of("mops", "Mops with p99 within 50 us");
    let chart =
        chart.over("packet_ns", "cost of a packet (ns), at the same mean cost of a request");
    let chart = chart.only("slo_us", 50).only("p_l", 0.125).only("burst", 1);
    Figure::new(rows, vec![chart])
}
