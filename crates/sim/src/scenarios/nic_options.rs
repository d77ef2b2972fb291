//! Every design with what a NIC can do for `lanes`: a TX queue for each lane, so that a worker's
//! small replies never stand behind its own large ones, and small replies sent first. The paper's
//! rivals have one TX queue a worker, and a frame of each in turn; what `lanes` gains by the NIC
//! alone is no merit of its own.

use super::minos_curves::designs;
use super::{Figure, Setup, at_load, by_class, wire_name};
use crate::machine::{Machine, Nic, WireOrder};
use crate::row::Row;
use crate::study::Study;
use crate::workload::Mix;

const LOADS: [f64; 7] = [0.3, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];

/// The paper's; with a queue for each lane; with small replies first.
fn nics(setup: &Setup) -> [(&'static str, Nic); 3] {
    let paper = Nic { queue_per_lane: false, order: WireOrder::RoundRobin, ..setup.nic };
    let per_lane = Nic { queue_per_lane: true, ..paper };
    [
        ("paper", paper),
        ("per-lane", per_lane),
        ("small-first", Nic { order: WireOrder::SmallFirst, ..per_lane }),
    ]
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for (_, nic) in nics(setup) {
        for (design, machine) in designs(setup) {
            for load in LOADS {
                let row = Row::of("nic-options").with("design", design);
                let row = row.with("wire", wire_name(Some(nic)));
                let machine = Machine { nic: Some(nic), network: 0, ..machine.clone() };
                let requests = study.effort.pick(200_000, 1_000_000);
                points.push(at_load(row, machine, &mix, load, requests));
            }
        }
    }
    let mut charts = Vec::new();
    for (name, nic) in nics(setup) {
        let wire = wire_name(Some(nic));
        let both = by_class(name, &format!("All designs, {wire}"));
        charts.extend(both.map(|chart| chart.only("wire", &wire)));
    }
    Figure::new(study.rows("nic-options", &points), charts)
}
