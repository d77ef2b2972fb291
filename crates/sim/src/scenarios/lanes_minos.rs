//! `lanes` against `minos`: p99 of small and of large requests at the same rates, fractions of
//! what the CPU can do, with 8 workers and with 2, without a wire and with the paper's.
//!
//! With 8 workers `minos`'s own peak is 0.99 of what the CPU can do. With 2 it has one worker for
//! all small requests, and a peak of 0.57: there the loads below 0.6 are fractions of that peak,
//! from 0.6 to 0.95 of it, and those from 0.6 on show what it leaves undone. Designs are given the
//! same arrivals, seed by seed, so the ratios compare seeds one with one, which makes their
//! intervals narrower than those of what they are made of. Beside them, without a wire, what
//! queueing alone allows ([`crate::bounds`]).

use super::allowed::allowed;
use super::{Figure, Setup, at_load, bare, by_class, wire_name};
use crate::machine::{Outcome, State};
use crate::row::Row;
use crate::stats::{Estimate, Latencies};
use crate::study::{Measured, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const LOADS: [f64; 8] = [0.3, 0.45, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
const LOADS_OF_TWO: [f64; 10] = [0.3, 0.34, 0.4, 0.45, 0.51, 0.54, 0.6, 0.7, 0.8, 0.95];
const DESIGNS: [Design; 3] = [Design::Minos, Design::Lanes, Design::HkhWs];

/// How many times another's p99 one's own is, seed by seed.
fn over(own: &Measured, other: &Measured, lane: fn(&Outcome) -> &Latencies) -> Estimate {
    if own.state().max(other.state()) == State::Overload {
        return Estimate { mean: f64::NAN, half_width: f64::NAN };
    }
    let p99 = |outcome| lane(outcome).percentile_us(99.0);
    let pairs = own.outcomes.iter().zip(&other.outcomes);
    Estimate::of(&pairs.map(|(own, other)| p99(own) / p99(other)).collect::<Vec<f64>>())
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for workers in [8, 2] {
        // Two cores do not fill 40 Gb/s.
        let wires = if workers == 8 { vec![None, Some(setup.nic)] } else { vec![None] };
        for nic in wires {
            let loads = if workers == 8 { LOADS.to_vec() } else { LOADS_OF_TWO.to_vec() };
            for load in loads {
                for design in DESIGNS {
                    let mut machine = bare(setup, design, workers);
                    machine.nic = nic;
                    let row = Row::of("lanes-minos").with("design", design.name());
                    let row = row.with("workers", workers).with("wire", wire_name(nic));
                    let requests = study.effort.pick(400_000, 1_000_000);
                    points.push(at_load(row, machine, &mix, load, requests));
                }
            }
        }
    }
    let measured = study.parallel("lanes-minos", &points, |point| study.all_seeds(point));
    let mut rows = Vec::new();
    for (points, measured) in points.chunks(DESIGNS.len()).zip(measured.chunks(DESIGNS.len())) {
        for (point, own) in points.iter().zip(measured) {
            let row = own.row(point.row.clone(), study.seed);
            let small = over(own, &measured[0], |outcome| &outcome.small);
            let large = over(own, &measured[0], |outcome| &outcome.large);
            rows.push(row.sure("small_over_minos", small).sure("large_over_minos", large));
        }
    }
    let bare = points.iter().filter(|point| point.machine.nic.is_none());
    rows.extend(allowed(study, "lanes-minos", bare.step_by(DESIGNS.len())));
    let mut charts = Vec::new();
    for (workers, nic) in [(8, None), (8, Some(setup.nic)), (2, None)] {
        let limit = if nic.is_some() { "wire" } else { "cpu" };
        let wire = wire_name(nic);
        let title = format!("{workers} workers, wire: {wire}");
        let both = by_class(&format!("{workers}-{limit}"), &title);
        charts.extend(both.map(|chart| chart.only("workers", workers).only("wire", &wire)));
    }
    Figure::new(rows, charts)
}
