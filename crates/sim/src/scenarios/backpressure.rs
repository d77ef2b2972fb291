//! A wire that is the bottleneck: what `lanes` gives up when replies back up (the extra large
//! worker, and large bytes beyond a few slices), what it would be like if it did not, and what a
//! NIC that sends small replies first would make of it.
//!
//! `lanes-1` and `lanes-2` keep one and two large workers whatever happens; `lanes-long` is `lanes`
//! over a hundred epochs, in which it tries the extra worker again now and then and finds the wire
//! still full.

use super::{Figure, Setup, at_load, bare, by_class, wire_name};
use crate::machine::{Nic, WireOrder};
use crate::row::Row;
use crate::study::{EPOCH_REQUESTS, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const LOADS: [f64; 7] = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
const LOADS_LONG: [f64; 2] = [0.85, 0.9];
const EPOCHS_LONG: u64 = 100;

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for order in [WireOrder::RoundRobin, WireOrder::SmallFirst] {
        let nic = Nic { order, ..setup.nic };
        for design in ["minos", "lanes", "lanes-1", "lanes-2", "lanes-long"] {
            let long = design == "lanes-long";
            if long && order == WireOrder::SmallFirst {
                continue;
            }
            for &load in if long { &LOADS_LONG[..] } else { &LOADS } {
                let kind = if design == "minos" { Design::Minos } else { Design::Lanes };
                let mut machine = bare(setup, kind, setup.workers);
                machine.nic = Some(nic);
                machine.tweak.workers_large = match design {
                    "lanes-1" => Some(1),
                    "lanes-2" => Some(2.min(setup.workers - 1)),
                    _ => None,
                };
                let row = Row::of("tx-backpressure").with("design", design);
                let row = row.with("wire", wire_name(Some(nic)));
                let requests = match long {
                    true => EPOCHS_LONG * EPOCH_REQUESTS,
                    false => study.effort.pick(300_000, 1_000_000),
                };
                points.push(at_load(row, machine, &mix, load, requests));
            }
        }
    }
    let rows = study.rows("tx-backpressure", &points);
    let mut charts = Vec::new();
    for (name, order) in [("rr", WireOrder::RoundRobin), ("sf", WireOrder::SmallFirst)] {
        let wire = wire_name(Some(Nic { order, ..setup.nic }));
        let both = by_class(name, &format!("A thin wire, {wire}"));
        charts.extend(both.map(|chart| chart.only("wire", &wire)));
    }
    Figure::new(rows, charts)
}
