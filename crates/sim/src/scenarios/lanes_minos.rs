//! `lanes` against `minos`: p99 of small and of large requests at the same rates, fractions of
//! what the CPU can do, with 8 workers and with 2, without a wire and with the paper's.

use super::{Figure, MEGA, Setup, bare, cpu_peak, wire_name};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const LOADS: [f64; 8] = [0.3, 0.45, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for workers in [8, 2] {
        // Two cores do not fill 40 Gb/s.
        let wires = if workers == 8 { vec![None, Some(setup.nic)] } else { vec![None] };
        for nic in wires {
            for load in LOADS {
                for design in [Design::Minos, Design::Lanes, Design::HkhWs] {
                    let mut machine = bare(setup, design, workers);
                    machine.nic = nic;
                    let rate = load * cpu_peak(&setup.costs, &mix, workers);
                    points.push(Point {
                        row: Row::of("lanes-minos")
                            .with("design", design.name())
                            .with("workers", workers)
                            .with("wire", wire_name(nic))
                            .with("load", load)
                            .with("mops", rate / MEGA),
                        machine,
                        mix: mix.clone(),
                        rate,
                        requests: study.effort.pick(400_000, 1_000_000),
                    });
                }
            }
        }
    }
    let rows = study.rows("lanes-minos", &points);
    let mut charts = Vec::new();
    for (workers, nic) in [(8, None), (8, Some(setup.nic)), (2, None)] {
        for (y, y_label) in
            [("small_p99", "p99 of small requests (us)"), ("large_p99", "p99 of large (us)")]
        {
            let wire = if nic.is_some() { "wire" } else { "cpu" };
            let name = format!("{workers}-{wire}-{y}");
            let title = format!("{workers} workers, wire: {}", wire_name(nic));
            let chart = Chart { y, y_label, ..Chart::latency(name, title) };
            charts.push(chart.only("workers", workers).only("wire", wire_name(nic)));
        }
    }
    Figure { rows, charts }
}
