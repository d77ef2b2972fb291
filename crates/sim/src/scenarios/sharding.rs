//! Sharding small requests by size as well, which Minos tried and found poor (§3.1 "Not sharding
//! small requests"). The same design with a lower percentile does it: what lies above is handed to
//! workers with size ranges of their own, whatever it weighs. At 40 % all but the tiny are handed
//! over.

use super::{Figure, Setup, at_load, bare};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::Study;
use crate::workload::Mix;
use laneway_policy::Design;

const PERCENTILES: [f64; 5] = [99.0, 90.0, 70.0, 40.0, 20.0];
const LOADS: [f64; 8] = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for percentile in PERCENTILES {
        for load in LOADS {
            let mut machine = bare(setup, Design::Minos, setup.workers);
            machine.settings.percentile = percentile;
            let row = Row::of("small-sharding").with("design", "minos");
            let row = row.with("percentile", percentile);
            let requests = study.effort.pick(200_000, 500_000);
            points.push(at_load(row, machine, &mix, load, requests));
        }
    }
    let title = "Sharding small requests too: p99 by target percentile";
    let chart = Chart { series: "percentile", ..Chart::latency("latency", title) };
    Figure::new(study.rows("small-sharding", &points), vec![chart])
}
