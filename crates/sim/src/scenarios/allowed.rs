//! What queueing alone allows at the points of a figure ([`crate::bounds`]), drawn beside designs.

use crate::bounds::{self, Bound, Given};
use crate::machine::Outcome;
use crate::row::Row;
use crate::stats::{Latencies, US};
use crate::study::{Measured, Point, Study};

/// Columns of a point that its bounds have as well.
const AXES: [&str; 4] = ["workers", "wire", "load", "mops"];

/// A row of each bound at each of these points, none of which has a wire. What the client sees of
/// the network is added, as to any design.
pub(super) fn allowed<'a>(
    study: &Study,
    name: &str,
    points: impl Iterator<Item = &'a Point>,
) -> Vec<Row> {
    let tasks: Vec<(&Point, Bound)> =
        points.flat_map(|point| Bound::ALL.map(|bound| (point, bound))).collect();
    study.parallel(&format!("{name} bounds"), &tasks, |(point, bound)| {
        let axes = AXES.into_iter().filter_map(|name| Some((name, point.row.get(name)?.clone())));
        let row = Row::of(name).with("design", bound.name());
        let row = axes.fold(row, |row, (name, cell)| row.with(name, cell));
        let given = Given {
            costs: point.machine.costs,
            mix: point.mix.clone(),
            workers: point.machine.settings.workers,
            rate: point.rate,
            requests: point.requests,
        };
        let key = format!("{bound:?} {given:?} {}", point.machine.network);
        row.and(study.known(&key, || measure(study, *bound, &given, point.machine.network)))
    })
}

fn measure(study: &Study, bound: Bound, given: &Given, network: u64) -> Row {
    let one = |seed| {
        study.counted(|| {
            let outcome = bounds::run(bound, given, seed);
            (outcome.simulated, outcome)
        })
    };
    let measured = Measured { outcomes: study.each_seed().map(one).collect() };
    let network_us = network as f64 / US as f64;
    let of = |lane: fn(&Outcome) -> &Latencies| {
        measured.estimate(|outcome| lane(outcome).percentile_us(99.0) + network_us)
    };
    let (small, large) = (of(|outcome| &outcome.small), of(|outcome| &outcome.large));
    let p99 = measured.p99();
    let row = Row::default().with("p99", p99.mean + network_us).with("p99_ci", p99.half_width);
    row.sure("small_p99", small).sure("large_p99", large)
}
