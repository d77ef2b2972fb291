//! Figures 6 and 7 of Minos (§6.3): the most that each design serves while p99 stays within 50 or
//! 100 µs, as the share of large requests (p_L) or their largest size (s_L) grows; and how many
//! times more `minos` and `lanes` serve than the design. The most is found by halving.

use super::minos_curves::designs;
use super::{Figure, MEGA, Setup, cpu_peak, wire_name};
use crate::machine::Machine;
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;

const PERCENTS: [f64; 5] = [0.0625, 0.125, 0.25, 0.5, 0.75];
const KILOBYTES: [u64; 4] = [250, 500, 750, 1000];
const SLOS_US: [f64; 2] = [50.0, 100.0];

/// Halvings: the last is within half a percent of the range.
const HALVINGS: u32 = 8;

/// The highest rate up to `rate_max` at which `holds`.
pub(super) fn highest(rate_max: f64, mut holds: impl FnMut(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, rate_max);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The highest rate at which p99 is within the SLO for this machine.
pub(super) fn highest_within(
    study: &Study,
    machine: &Machine,
    mix: &Mix,
    slo_us: f64,
    requests: u64,
) -> f64 {
    let peak = cpu_peak(&machine.costs, mix, machine.settings.workers);
    highest(1.25 * peak, |rate| {
        let point = Point {
            row: Row::default(),
            machine: machine.clone(),
            mix: mix.clone(),
            rate,
            requests,
        };
        let measured = study.all_seeds(&point);
        // A lane that is starved stays out of p99 but not out of the question.
        let unfinished = measured.mean(|outcome| outcome.large_unfinished as f64);
        let starved = unfinished > 0.1 * measured.mean(large_requests);
        !measured.overloaded() && !starved && measured.p99().mean <= slo_us
    })
}

fn large_requests(outcome: &crate::machine::Outcome) -> f64 {
    outcome.large.count().max(10) as f64
}

struct Task {
    row: Row,
    machine: Machine,
    mix: Mix,
    slo_us: f64,
}

fn figure(study: &Study, setup: &Setup, name: &'static str, mixes: Vec<(Row, Mix)>) -> Vec<Row> {
    let mut tasks = Vec::new();
    for slo_us in SLOS_US {
        for (row, mix) in &mixes {
            for (design, machine) in designs(setup) {
                tasks.push(Task {
                    row: row
                        .clone()
                        .with("slo_us", slo_us)
                        .with("wire", wire_name(machine.nic))
                        .with("design", design),
                    machine,
                    mix: mix.clone(),
                    slo_us,
                });
            }
        }
    }
    let requests = study.effort.pick(60_000, 200_000);
    let rates = study.parallel(name, &tasks, |task| {
        highest_within(study, &task.machine, &task.mix, task.slo_us, requests)
    });
    let per_group = designs(setup).len();
    let mut rows = Vec::new();
    for (group, rates) in tasks.chunks(per_group).zip(rates.chunks(per_group)) {
        let of = |name: &str| {
            let place = group.iter().position(|task| task.row.text("design") == name);
            place.map_or(0.0, |place| rates[place])
        };
        for (task, &rate) in group.iter().zip(rates) {
            rows.push(
                task.row
                    .clone()
                    .with("mops", rate / MEGA)
                    .with("minos_over_it", of("minos") / rate)
                    .with("lanes_over_it", of("lanes") / rate)
                    .with("seed", study.seed)
                    .with("seeds", study.seeds()),
            );
        }
    }
    rows
}

fn charts(title: &str, x: &'static str, x_label: &'static str) -> Vec<Chart> {
    let chart = |slo: f64| {
        Chart {
            x,
            x_label,
            y: "mops",
            y_label: "Mops within the SLO",
            log: false,
            ..Chart::latency(format!("slo{slo}"), format!("{title}, p99 within {slo} us"))
        }
        .only("slo_us", slo)
    };
    SLOS_US.map(chart).to_vec()
}

pub(super) fn by_share(study: &Study, setup: &Setup) -> Figure {
    let mix = |percent: f64| {
        (Row::of("minos-fig6").with("p_l", percent), Mix::etc().with_large_percent(percent))
    };
    let rows = figure(study, setup, "minos-fig6", PERCENTS.map(mix).to_vec());
    Figure { rows, charts: charts("Minos figure 6", "p_l", "large requests, p_L (%)") }
}

pub(super) fn by_size(study: &Study, setup: &Setup) -> Figure {
    let mix = |kilobytes: u64| {
        let row = Row::of("minos-fig7").with("s_l_kb", kilobytes);
        (row, Mix::etc().with_large_bytes_max(kilobytes * 1000))
    };
    let rows = figure(study, setup, "minos-fig7", KILOBYTES.map(mix).to_vec());
    Figure { rows, charts: charts("Minos figure 7", "s_l_kb", "largest large request, s_L (KB)") }
}
