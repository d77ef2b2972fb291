//! Figure 2 of Minos (§2.2): what a few large requests do to designs that know no sizes. Eight
//! cores, 0.125 % of the requests take K time units and the others 1; no batches, no wire, no cost
//! but service. Latencies are in time units of 1 µs; load 1 is all that eight cores can do.

use super::{Figure, Setup};
use crate::machine::{Costs, Machine};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const KS: [u64; 4] = [1, 10, 100, 1000];
const LOADS: [f64; 11] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// The machine of one of the three, by the paper's name.
pub(super) fn machine(binding: &str, workers: u16) -> Machine {
    let design = if binding == "stealing" { Design::HkhWs } else { Design::Hkh };
    let mut machine = Machine::new(design, workers);
    machine.costs = Costs::UNIT;
    machine.batch = 1;
    machine.central_queue = binding == "late";
    machine
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mut points = Vec::new();
    for k in KS {
        let mix = Mix::bimodal(k);
        let peak = super::cpu_peak(&Costs::UNIT, &mix, setup.workers);
        let requests = match k {
            1000 => study.effort.pick(500_000, 3_000_000),
            _ => study.effort.pick(250_000, 500_000),
        };
        for binding in ["early", "late", "stealing"] {
            for load in LOADS {
                let row = Row::of("minos-fig2").with("design", binding).with("k", k);
                let (row, machine) = (row.with("load", load), machine(binding, setup.workers));
                points.push(Point { row, machine, mix: mix.clone(), rate: load * peak, requests });
            }
        }
    }
    let chart = |k: u64| {
        Chart {
            y_label: "p99 (time units)",
            ..Chart::latency(format!("k{k}"), format!("Minos figure 2, K = {k}"))
        }
        .only("k", k)
    };
    Figure::new(study.rows("minos-fig2", &points), KS.map(chart).to_vec())
}
