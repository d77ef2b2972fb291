//! What 1 to 1 000 cores serve in a day, and what that takes: a model, computed from what a request
//! costs by each way in, as measured on one machine; p99 is simulated up to the cores of one
//! domain. Beyond 64 cores the model has several domains of 64, each with its own keys and workers
//! (Minos §3.1), so that what holds for one holds for all; a network that feeds them is taken for
//! granted, and its rate is a column.

use super::{Figure, Setup, bare};
use crate::machine::{Costs, Reach, WORKERS_MAX};
use crate::plot::Chart;
use crate::row::Row;
use crate::stats::US;
use crate::study::{Point, Study};
use crate::workload::{Draw, Mix};
use laneway_load::random::Random;
use laneway_policy::Design;
use laneway_policy::cost::{PACKET_COST_NS, REQUEST_COST_NS};

/// A way in, and what a request costs by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Its name on the command line.
    pub flag: &'static str,
    /// Its name in rows.
    pub name: &'static str,
    /// A request whatever its size, in nanoseconds.
    pub request_ns: u64,
    /// Each packet of it, in nanoseconds.
    pub packet_ns: u64,
    /// What of another worker's requests one can take.
    pub reach: Reach,
}

const fn way(flag: &'static str, name: &'static str, request_ns: u64, packet_ns: u64) -> Way {
    Way { flag, name, request_ns, packet_ns, reach: Reach::Unread }
}

/// What nobody has read from a connection is the worker's whose connection it is.
const fn streams(way: Way) -> Way {
    Way { reach: Reach::Offered, ..way }
}

/// All of them: loopback on a 2-vCPU virtual machine, but for the first, which is the paper's.
pub const WAYS: [Way; 4] = [
    way("bypass", "kernel bypass (Minos)", REQUEST_COST_NS, PACKET_COST_NS),
    streams(way("tcp-pipelined", "TCP, 16 in flight", 1_000, 300)),
    way("udp", "UDP", 5_400, 500),
    streams(way("tcp", "TCP, 1 in flight", 8_200, 300)),
];

impl Way {
    /// The machine's costs by this way; those of handing over and the like stay.
    pub fn costs(self, costs: Costs) -> Costs {
        Costs { request: self.request_ns * 1000, packet: self.packet_ns * 1000, ..costs }
    }
}

const CORES: [u16; 9] = [1, 2, 4, 8, 16, 64, 128, 512, 1000];

/// Of what the CPU can do: room for peaks and for a core that is lost.
const LOAD: f64 = 0.7;

const DAY_S: f64 = 86_400.0;

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let mix = Mix::etc();
    let mut points = Vec::new();
    for way in WAYS {
        let costs = way.costs(setup.costs);
        for cores in CORES {
            let workers = cores.min(WORKERS_MAX);
            let mut machine = bare(setup, Design::Lanes, workers);
            (machine.costs, machine.reach) = (costs, way.reach);
            let rate = LOAD * super::cpu_peak(&costs, &mix, workers);
            let row =
                Row::of("scale").with("way", way.name).with("cores", cores).with("load", LOAD);
            let requests = study.effort.pick(100_000, 500_000);
            points.push(Point { row, machine, mix: mix.clone(), rate, requests });
        }
    }
    let bits = mean_bytes(&mix) * 8.0;
    let rows = study.parallel("scale", &points, |point| {
        let measured = study.all_seeds(point);
        let cores = point.row.number("cores").unwrap_or(1.0);
        let rate = point.rate * cores / f64::from(point.machine.settings.workers);
        let service = point.machine.costs.mean_service(&mix) / US as f64;
        point
            .row
            .clone()
            .with("us_per_request", service)
            .with("requests_per_s", rate)
            .with("billions_per_day", rate * DAY_S / 1e9)
            .with("core_hours_per_billion", service * 1e9 / LOAD / 1e6 / 3600.0)
            .with("gigabits_per_s", rate * bits / 1e9)
            .with("p99", measured.p99().mean)
            .with("large_p99", measured.mean(|outcome| outcome.large.percentile_us(99.0)))
            .with("seed", study.seed)
            .with("seeds", study.seeds())
    });
    let chart = Chart::latency("day", "What so many cores serve in a day at 70 % load");
    let chart = Chart { series: "way", log_x: true, ..chart }.over("cores", "cores");
    let chart = chart.of("billions_per_day", "billions of requests a day");
    Figure::new(rows, vec![chart])
}

fn mean_bytes(mix: &Mix) -> f64 {
    const DRAWS: u32 = 1_000_000;
    let mut draw = Draw::new(mix);
    let mut random = Random::new(1);
    let total: u64 = (0..DRAWS).map(|_| u64::from(draw.draw(&mut random).bytes)).sum();
    total as f64 / f64::from(DRAWS)
}
