//! Figures 8 and 9 of Minos (§6.4, §6.5): with only S % of the replies sent, which of wire and CPU
//! is the limit; and how evenly requests and packets fall on the cores.

use super::{Figure, MEGA, Setup, cpu_peak, server};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const SAMPLES: [u64; 4] = [100, 75, 50, 25];
const MOPS: [f64; 12] = [0.5, 1.0, 1.5, 1.8, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.3, 3.6];
const PERCENTS: [f64; 3] = [0.0625, 0.25, 0.75];

/// Of the CPU's peak, where the cores are looked at.
const LOAD: f64 = 0.7;

pub(super) fn sampling(study: &Study, setup: &Setup) -> Figure {
    let mut points = Vec::new();
    for design in [Design::Minos, Design::Lanes] {
        for percent in SAMPLES {
            for mops in MOPS {
                let row = Row::of("minos-fig8").with("design", design.name());
                let row = row.with("s", percent).with("mops", mops);
                let (machine, rate) = (server(setup, design), mops * MEGA);
                let mix = Mix::etc().with_large_percent(0.75);
                let mix = Mix { reply_share: percent as f64 / 100.0, ..mix };
                let requests = study.effort.pick(150_000, 500_000);
                points.push(Point { row, machine, mix, rate, requests });
            }
        }
    }
    let rows = study.rows("minos-fig8", &points);
    let chart = |name: &str, y, y_label, log| {
        let title = format!("Minos figure 8 (p_L = 0.75, minos): {y_label}");
        let chart = Chart { series: "s", log, ..Chart::latency(name, title) };
        chart.over("mops", "throughput (Mops)").of(y, y_label).only("design", "minos")
    };
    let charts = vec![
        chart("latency", "p99", "p99 (us)", true),
        chart("wire", "wire_busy", "share of the wire", false),
    ];
    Figure::new(rows, charts)
}

pub(super) fn per_core(study: &Study, setup: &Setup) -> Figure {
    let points = PERCENTS.map(|percent| {
        let mix = Mix::etc().with_large_percent(percent);
        let row = Row::of("minos-fig9").with("design", "minos").with("p_l", percent);
        let (machine, requests) =
            (server(setup, Design::Minos), study.effort.pick(300_000, 1_000_000));
        let rate = LOAD * cpu_peak(&setup.costs, &mix, setup.workers);
        Point { row, machine, mix, rate, requests }
    });
    let measured = study.parallel("minos-fig9", &points, |point| study.all_seeds(point));
    let mut rows = Vec::new();
    for (point, measured) in points.iter().zip(&measured) {
        let sum = |of: fn(&(u64, u64)) -> u64| -> f64 {
            measured.outcomes.iter().flat_map(|o| &o.per_worker).map(of).sum::<u64>() as f64
        };
        let (requests, packets) = (sum(|counts| counts.0), sum(|counts| counts.1));
        for worker in 0..usize::from(setup.workers) {
            let of = |of: fn(&(u64, u64)) -> u64| -> f64 {
                measured.outcomes.iter().map(|o| of(&o.per_worker[worker])).sum::<u64>() as f64
            };
            let small = measured
                .mean(|o| o.plan.as_ref().map_or(0.0, |plan| f64::from(plan.workers_small)));
            rows.push(
                point
                    .row
                    .clone()
                    .with("core", worker as u64)
                    .with("large", worker as f64 >= small)
                    .with("requests_percent", 100.0 * of(|counts| counts.0) / requests)
                    .with("packets_percent", 100.0 * of(|counts| counts.1) / packets)
                    .with("seed", study.seed)
                    .with("seeds", study.seeds()),
            );
        }
    }
    let chart = |name: &str, y, y_label, log| {
        let chart = Chart::latency(name, format!("Minos figure 9: {y_label}, by p_L"));
        Chart { series: "p_l", log, ..chart }.over("core", "core").of(y, y_label)
    };
    let charts = vec![
        chart("requests", "requests_percent", "requests (%)", true),
        chart("packets", "packets_percent", "packets (%)", false),
    ];
    Figure::new(rows, charts)
}
