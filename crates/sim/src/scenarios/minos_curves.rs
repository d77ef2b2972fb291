//! Figures 3, 4 and 5 of Minos (§6.1, §6.2): latency against throughput of the designs, on the
//! paper's default workload and with half the requests writes. SHO runs with 1, 2 and 3 hand-off
//! cores, each its own line here; the paper shows the best. Each design is run with the paper's
//! wire and without one, which tells what queues for the CPU from what queues for the wire;
//! without one, a write costs what a read costs, and figure 5 would be figure 3. Beside those
//! without one is what queueing alone allows.

use super::allowed::allowed;
use super::{Figure, MEGA, Setup, cpu_peak, server, wire_name};
use crate::machine::Machine;
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;

const MOPS: [f64; 15] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 5.9, 6.2, 6.5, 6.8];

/// Above this part of the peak p99 of a queue says how long one has looked.
const BOUNDED_LOAD_MAX: f64 = 0.96;

/// Designs as the figures name them, with their machines.
pub(super) fn designs(setup: &Setup) -> Vec<(&'static str, Machine)> {
    let mut machines: Vec<(&'static str, Machine)> =
        [Design::Minos, Design::Hkh, Design::HkhWs, Design::Lanes]
            .into_iter()
            .map(|design| (design.name(), server(setup, design)))
            .collect();
    for (name, handoff) in [("sho 1", 1), ("sho 2", 2), ("sho 3", 3)] {
        let mut machine = server(setup, Design::Sho);
        machine.settings.workers_handoff = handoff;
        if machine.settings.check().is_ok() {
            machines.push((name, machine));
        }
    }
    machines
}

/// `hkh` and `hkh-ws` as the paper had them: without counting sizes.
fn unprofiled(setup: &Setup) -> Vec<(&'static str, Machine)> {
    let machine = |design| Machine { profiles: false, ..server(setup, design) };
    vec![("hkh uncounted", machine(Design::Hkh)), ("hkh-ws uncounted", machine(Design::HkhWs))]
}

fn figure(study: &Study, setup: &Setup, name: &'static str, mix: &Mix, only: &[&str]) -> Vec<Row> {
    let half_writes = mix.get_share < Mix::etc().get_share;
    let mut points = Vec::new();
    let mut designs = designs(setup);
    if half_writes {
        designs.extend(unprofiled(setup));
    }
    for (design, machine) in designs {
        if !only.is_empty() && !only.contains(&design) {
            continue;
        }
        for nic in [machine.nic, None] {
            if nic.is_none() && half_writes {
                continue;
            }
            for mops in MOPS {
                let row = Row::of(name).with("design", design).with("wire", wire_name(nic));
                let (row, machine) = (row.with("mops", mops), Machine { nic, ..machine.clone() });
                let requests = study.effort.pick(200_000, 500_000);
                points.push(Point { row, machine, mix: mix.clone(), rate: mops * MEGA, requests });
            }
        }
    }
    let mut rows = study.rows(name, &points);
    let most = BOUNDED_LOAD_MAX * cpu_peak(&setup.costs, mix, setup.workers);
    let bare = points.iter().filter(|point| point.machine.nic.is_none());
    rows.extend(allowed(study, name, bare.take(MOPS.len()).filter(|point| point.rate < most)));
    rows
}

fn charts(setup: &Setup, title: &str, y: &'static str, y_label: &'static str) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (suffix, nic) in [("wire", Some(setup.nic)), ("cpu", None)] {
        let wire = wire_name(nic);
        let chart = Chart::latency(suffix, format!("{title}, wire: {wire}"));
        let chart = chart.over("mops", "throughput (Mops)").of(y, y_label);
        charts.push(chart.only("wire", wire));
    }
    charts
}

pub(super) fn read_mostly(study: &Study, setup: &Setup) -> Figure {
    let rows = figure(study, setup, "minos-fig3", &Mix::etc(), &[]);
    Figure::new(rows, charts(setup, "Minos figure 3", "p99", "p99 (us)"))
}

pub(super) fn large(study: &Study, setup: &Setup) -> Figure {
    let only = ["minos", "hkh-ws", "lanes"];
    let rows = figure(study, setup, "minos-fig4", &Mix::etc(), &only);
    let charts = charts(setup, "Minos figure 4", "large_p99", "p99 of large requests (us)");
    Figure::new(rows, charts)
}

pub(super) fn half_writes(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix { get_share: 0.5, ..Mix::etc() };
    let rows = figure(study, setup, "minos-fig5", &mix, &[]);
    Figure::new(rows, charts(setup, "Minos figure 5 (50:50)", "p99", "p99 (us)"))
}
