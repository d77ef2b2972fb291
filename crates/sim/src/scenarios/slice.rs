//! The sweep that sets `lanes`' constants: the slice, how many small requests a large worker takes
//! between slices and from what queue length on, how many large workers there are, in which order
//! transfers are served, the batch, and, with the wire, how much of large replies may be unsent
//! while it is full. One constant at a time away from the defaults, on seeds
//! that no other figure uses. The last rows are `lanes` as it is and `minos`, for comparison.

use super::{Figure, Setup, bare, cpu_peak};
use crate::machine::{Machine, SliceOrder};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::{Design, ItemBytes};

/// Added to the seed of the study.
const SEED_OFFSET: u64 = 1_000;

const LOADS: [f64; 3] = [0.6, 0.8, 0.95];
const SLICES_KIB: [u64; 5] = [8, 16, 32, 64, 128];
const TAKES: [u32; 5] = [1, 4, 16, 32, 1000];
const QUEUES: [u32; 4] = [1, 2, 4, 8];
const LARGE: [u16; 4] = [1, 2, 3, 4];
const UNSENT: [u64; 4] = [2, 4, 8, 16];
const BATCHES: [u32; 5] = [4, 16, 32, 64, 128];

fn variants(setup: &Setup) -> Vec<(&'static str, String, Machine)> {
    let mut all: Vec<(&'static str, String, Machine)> = Vec::new();
    let mut add = |constant, value: String, workers, change: &dyn Fn(&mut Machine)| {
        let mut machine = bare(setup, Design::Lanes, workers);
        change(&mut machine);
        all.push((constant, value, machine));
    };
    for workers in [8, 2] {
        for kib in SLICES_KIB {
            add("slice KiB", kib.to_string(), workers, &|machine| {
                machine.settings.slice_bytes = ItemBytes(kib * 1024);
            });
        }
        for batch in BATCHES {
            add("batch", batch.to_string(), workers, &|machine| machine.batch = batch);
        }
        for (name, order) in
            [("in turn", SliceOrder::InTurn), ("shortest first", SliceOrder::ShortestFirst)]
        {
            add("order", name.to_owned(), workers, &|machine| machine.slice_order = order);
        }
        add("lanes", "as it is".to_owned(), workers, &|_| {});
        add("minos", "packets".to_owned(), workers, &|machine| {
            *machine = bare(setup, Design::Minos, workers);
        });
    }
    for most in TAKES {
        add("takes between", most.to_string(), 8, &|machine| {
            machine.tweak.steal_requests_max = Some(most);
        });
    }
    for min in QUEUES {
        add("queue at least", min.to_string(), 8, &|machine| {
            machine.tweak.steal_queue_min = Some(min);
        });
    }
    for large in LARGE {
        add("large workers", large.to_string(), 8, &|machine| {
            machine.tweak.workers_large = Some(large);
        });
    }
    for slices in UNSENT {
        add("slices unsent (wire)", slices.to_string(), 8, &|machine| {
            machine.nic = Some(setup.nic);
            machine.tweak.slices_unsent_max = Some(slices);
        });
    }
    for idle in [false, true] {
        add("idle take", idle.to_string(), 8, &|machine| {
            machine.tweak.steal_when_idle = Some(idle);
        });
    }
    all
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for (constant, value, machine) in variants(setup) {
        let workers = machine.settings.workers;
        for load in LOADS {
            let row = Row::of("slice").with("constant", constant).with("value", value.clone());
            let row = row.with("workers", workers).with("load", load);
            let (machine, mix) = (machine.clone(), mix.clone());
            let rate = load * cpu_peak(&setup.costs, &mix, workers);
            let requests = study.effort.pick(200_000, 1_000_000);
            points.push(Point { row, machine, mix, rate, requests });
        }
    }
    let first = study.seed + SEED_OFFSET;
    let rows = study.parallel("slice", &points, |point| {
        let seeds = first..first + study.seeds();
        let outcomes = seeds.map(|seed| study.one(point, seed)).collect();
        crate::study::Measured { outcomes }.row(point.row.clone(), first)
    });
    let chart = |y, y_label: &'static str| {
        let chart = Chart::latency(y, format!("lanes, 8 workers: {y_label} by slice and load"));
        let chart = Chart { series: "load", log_x: true, ..chart }.of(y, y_label);
        let chart = chart.over("value", "slice (KiB)");
        chart.only("constant", "slice KiB").only("workers", 8)
    };
    let charts = vec![
        chart("small_p99", "p99 of small requests (us)"),
        chart("large_p99", "p99 of large requests (us)"),
    ];
    Figure::new(rows, charts)
}
