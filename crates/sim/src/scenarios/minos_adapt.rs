//! Figure 10 of Minos (§6.6): p_L goes up from 0.125 to 0.75 and down again, in steps of 20 s with
//! epochs of 1 s (or, for a look, twenty times as fast); how many large cores there are, and p99.

use super::{Figure, MEGA, Setup, server};
use crate::machine::{self, Traffic, Window};
use crate::plot::Chart;
use crate::row::Row;
use crate::stats::SECOND;
use crate::study::Study;
use crate::workload::Mix;
use laneway_policy::Design;

const STEPS: [f64; 7] = [0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125];

/// What the wire can just carry at the highest step.
const MOPS: f64 = 1.6;

fn one(study: &Study, setup: &Setup, design: Design) -> Vec<Row> {
    let slow: u64 = study.effort.pick(1, 20);
    let step = SECOND * slow;
    let epoch = SECOND / 20 * slow;
    let mut machine = server(setup, design);
    machine.epoch = epoch;
    let rate = MOPS * MEGA;
    let requests = (STEPS.len() as f64 * step as f64 / SECOND as f64 * rate) as u64;
    let phase = |(index, &percent): (usize, &f64)| {
        (index as u64 * step, Mix::etc().with_large_percent(percent))
    };
    let traffic = Traffic {
        phases: STEPS.iter().enumerate().map(phase).collect(),
        rate,
        warmup: 0,
        requests,
        window: Some(epoch),
        p99_max: None,
    };
    let outcome = study.counted(|| {
        let outcome = machine::run(&machine, &traffic, study.seed);
        (outcome.simulated, outcome)
    });
    let row = |window: &Window| {
        Row::of("minos-fig10")
            .with("design", design.name())
            .with("epoch", window.end_s * SECOND as f64 / epoch as f64)
            .with("time_s", window.end_s)
            .with("p_l", window.large_percent)
            .with("workers_large", window.workers_large)
            .with("threshold", window.threshold)
            .with("p99", window.p99_us)
            .with("answered_per_s", window.answered_per_s)
            .with("seed", study.seed)
    };
    outcome.windows.iter().map(row).collect()
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let designs = [Design::Minos, Design::HkhWs, Design::Lanes];
    let rows = study.parallel("minos-fig10", &designs, |&design| one(study, setup, design));
    let chart = |name: &str, y, y_label, log| {
        let chart = Chart::latency(name, format!("Minos figure 10: {y_label}"));
        Chart { log, ..chart }.over("time_s", "time (s)").of(y, y_label)
    };
    let charts = vec![
        chart("latency", "p99", "p99 of each epoch (us)", true),
        chart("cores", "workers_large", "large cores", false),
    ];
    Figure::new(rows.into_iter().flatten().collect(), charts)
}
