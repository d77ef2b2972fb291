//! Connections on which small requests stand behind large ones: clients that send 1 to 64 requests
//! at once, and proxies, few connections with many clients' requests each. Replies keep their
//! order, so a small request waits for the large one before it whatever the design. Rivals: run to
//! completion, as memcached does; `lanes` as it would be if nobody inherited urgency; `lanes`.
//!
//! Arrivals are open: bursts come by a Poisson process, each on a connection that is drawn, whether
//! or not the last one was answered. Beside percentiles: the most slices that a small turn, and a
//! transfer's run, waited behind, and the bound of `policy::share` for that very wait.

use super::scale::WAYS;
use super::{Figure, MEGA, Setup, bare, cpu_peak};
use crate::machine::{Costs, Reach, Streams};
use crate::plot::Chart;
use crate::row::Row;
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;

/// Of requests; those of 1 500 bytes up to half a million.
const LARGE_PERCENT: f64 = 0.5;

const LOADS: [f64; 3] = [0.3, 0.6, 0.8];
const WORKERS: [u16; 2] = [1, 8];

/// Connections of clients that pipeline, for each worker.
const CLIENTS: u32 = 32;

/// Requests in flight where the way in called pipelined was measured.
const PIPELINED: u64 = 16;

/// Clients: their name, connections, requests at once, and requests that a turn is taken to have
/// where the load is reckoned.
fn clients(workers: u16) -> Vec<(String, u32, u32, u32)> {
    let pipelined = [1, 4, 16, 64]
        .map(|depth| (format!("depth {depth}"), CLIENTS * u32::from(workers), depth, depth));
    let proxied =
        [4, 16].map(|proxies| (format!("{proxies} proxies"), proxies, 1, PIPELINED as u32));
    pipelined.into_iter().chain(proxied).collect()
}

/// What a request costs over TCP, and a turn of a connection in picoseconds: what was measured with
/// one and with 16 requests in flight is a line.
pub fn by_connections(costs: Costs) -> (Costs, u64) {
    let [pipelined, single] = ["tcp-pipelined", "tcp"].map(|flag| {
        let way = WAYS.iter().find(|way| way.flag == flag).unwrap_or(&WAYS[0]);
        way.costs(costs)
    });
    let turn = (single.request - pipelined.request) * PIPELINED / (PIPELINED - 1);
    (Costs { request: single.request - turn, ..single }, turn)
}

fn points(study: &Study, setup: &Setup) -> Vec<Point> {
    let mix = Mix::etc().with_large_percent(LARGE_PERCENT);
    let (costs, turn) = by_connections(setup.costs);
    let mut points = Vec::new();
    for workers in WORKERS {
        for (clients, connections, burst, turn_requests) in clients(workers) {
            // A connection is one worker's at a time.
            let used = u32::from(workers).min(connections) as u16;
            let turns = Costs { request: costs.request + turn / u64::from(turn_requests), ..costs };
            let peak = cpu_peak(&turns, &mix, used);
            for load in LOADS {
                for (name, design, urgency) in [
                    ("to completion", Design::Hkh, false),
                    ("not urgent", Design::Lanes, false),
                    ("lanes", Design::Lanes, true),
                ] {
                    let streams = Streams { connections, burst, turn, urgency };
                    let row = Row::of("pipelined").with("workers", workers);
                    let row = row.with("clients", clients.clone()).with("load", load);
                    let row = row.with("design", name).with("mops", load * peak / MEGA);
                    let mut machine = bare(setup, design, workers);
                    (machine.costs, machine.reach) = (costs, Reach::Offered);
                    machine.streams = Some(streams);
                    let (mix, rate) = (mix.clone(), load * peak);
                    let requests = study.effort.pick(400_000, 2_000_000);
                    points.push(Point { row, machine, mix, rate, requests });
                }
            }
        }
    }
    points
}

fn measured(study: &Study, points: &[Point]) -> Vec<Row> {
    study.parallel("pipelined", points, |point| {
        let measured = study.all_seeds(point);
        measured.row(measured.waits(point.row.clone()), study.seed)
    })
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let rows = measured(study, &points(study, setup));
    let mut charts = Vec::new();
    for workers in WORKERS {
        for (name, y_label) in
            [("small_p99", "p99 of small (us)"), ("large_p99", "p99 of large (us)")]
        {
            let title = format!("Depth 16, workers: {workers}; {y_label}");
            let chart = Chart::latency(format!("{workers}-{name}"), title).of(name, y_label);
            charts.push(chart.only("clients", "depth 16").only("workers", workers));
        }
    }
    Figure::new(rows, charts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Effort;

    /// Rows of one worker, by design.
    fn rows(clients: &str, load: f64) -> [Row; 3] {
        let study = Study::new(Effort::Quick, 1, 2);
        let mut points = points(&study, &Setup::default());
        points.retain(|point| {
            point.row.number("workers") == Some(1.0)
                && point.row.text("clients") == clients
                && point.row.number("load") == Some(load)
        });
        measured(&study, &points).try_into().expect("three designs")
    }

    #[test]
    fn urgency_keeps_small_requests_of_proxies_from_waiting_for_ever() {
        let [_, without, with] = rows("16 proxies", 0.6);
        for lane in ["small_p99", "large_p99"] {
            let [without, with] = [&without, &with].map(|row| row.number(lane).expect(lane));
            assert!(with < without / 5.0, "{lane}: {with}, and {without} without");
        }
        assert_eq!(with.text("within_bound"), "true", "{}", with.json());
    }

    #[test]
    fn one_request_at_a_time_is_served_sooner_than_behind_whole_transfers() {
        let [whole, _, lanes] = rows("depth 1", 0.6);
        let small = |row: &Row| row.number("small_p99").expect("steady");
        assert!(small(&lanes) < small(&whole) * 0.7, "{} {}", lanes.json(), whole.json());
        assert_eq!(lanes.text("within_bound"), "true");
        assert_eq!(whole.text("within_bound"), "", "nobody slices");
    }
}
