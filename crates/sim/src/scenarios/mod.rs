//! The figures: each a function from a study to rows, and the pictures to draw of them.

mod allowed;
mod backpressure;
mod keysched;
mod lanes_minos;
mod losses;
mod minos_adapt;
mod minos_curves;
mod minos_early;
mod minos_load;
mod minos_slo;
mod nic_options;
mod pipelined;
mod scale;
mod sharding;
mod slice;

pub use pipelined::by_connections;
pub use scale::{WAYS, Way};

use crate::machine::{Costs, Machine, Nic, Reach, Standby, WireOrder};
use crate::plot::Chart;
use crate::row::Row;
use crate::stats::{SECOND, US};
use crate::study::{Point, Study};
use crate::workload::Mix;
use laneway_policy::{CostModel, Design};

/// What the flags can change about all figures.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Cores.
    pub workers: u16,
    /// What work costs.
    pub costs: Costs,
    /// What of another worker's requests one can take, by that way.
    pub reach: Reach,
    /// The wire of the figures that have one.
    pub nic: Nic,
    /// Added to every latency of those figures.
    pub network: u64,
    /// Requests taken from an RX queue at a time.
    pub batch: u32,
    /// When the standby of `minos` goes back to small requests.
    pub standby: Standby,
    /// Whether designs without lanes count sizes too.
    pub profiles: bool,
}

/// What the paper's clients see besides the server's work: their "mean service time 5 µs" is the
/// latency of an unloaded server, 1.3 µs of which is CPU (see docs/papers.md).
pub const NETWORK: u64 = 37 * US / 10;

/// A figure's numbers and pictures.
#[derive(Debug, Clone, Default)]
pub struct Figure {
    /// The numbers.
    pub rows: Vec<Row>,
    /// The pictures.
    pub charts: Vec<Chart>,
    /// A page of Markdown for the documents: the name of its file, and its text.
    pub page: Option<(&'static str, String)>,
}

impl Figure {
    fn new(rows: Vec<Row>, charts: Vec<Chart>) -> Figure {
        Figure { rows, charts, page: None }
    }
}

/// One figure.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// How.
    pub run: fn(&Study, &Setup) -> Figure,
}

macro_rules! scenarios {
    ($($name:literal => $run:path: $about:literal;)*) => {
        &[$(Scenario { name: $name, about: $about, run: $run },)* SCALE]
    };
}

/// All of them, in the order of the papers.
const ALL: &[Scenario] = scenarios! {
    "minos-fig2" => minos_early::run:
        "p99 against load of early binding, late binding and stealing, K = 1 to 1000";
    "minos-fig3" => minos_curves::read_mostly:
        "p99 against throughput of five designs, default workload";
    "minos-fig4" => minos_curves::large: "p99 of large requests against throughput";
    "minos-fig5" => minos_curves::half_writes:
        "p99 against throughput with half the requests writes";
    "minos-fig6" => minos_slo::by_share:
        "throughput under an SLO as the share of large requests grows";
    "minos-fig7" => minos_slo::by_size: "throughput under an SLO as large requests grow";
    "minos-ratio" => minos_slo::by_packet_cost:
        "the same as a packet costs more or less: what the paper's ratios hang on";
    "minos-fig8" => minos_load::sampling:
        "with only S % of the replies sent: is the wire or the CPU the limit?";
    "minos-fig9" => minos_load::per_core: "requests and packets by core";
    "minos-fig10" => minos_adapt::run:
        "large cores and p99 over time as the share of large requests changes";
    "keysched-ratio" => keysched::ratio:
        "busiest core against the mean, by key hash and with hot keys moved, 8 to 64 cores";
    "keysched-threshold" => keysched::threshold: "the same as the threshold falls from 256 to 32";
    "lanes-minos" => lanes_minos::run:
        "lanes against minos on small and large p99, 8 and 2 workers, with and without wire";
    "losses" => losses::run:
        "where lanes loses to the best rival, 1 to 64 cores; --full: every mix of the sweep";
    "nic-options" => nic_options::run:
        "every design with a TX queue for each lane, and with small replies sent first";
    "small-sharding" => sharding::run:
        "sharding small requests by size as well (Minos §3.1: it performed poorly)";
    "tx-backpressure" => backpressure::run:
        "a wire too thin: what lanes gives up, and what it would be like if it did not";
    "pipelined" => pipelined::run:
        "small requests behind large ones on their connection, and behind which bound";
    "slice" => slice::run: "the sweep that sets SLICE_BYTES and the other constants of lanes";
};

/// What is in every build.
const ALWAYS: &[Scenario] = &[SCALE];

/// What is asked about machines to buy.
const SCALE: Scenario = Scenario {
    name: "scale",
    about: "what 1 to 1000 cores serve in a day, from measured costs",
    run: scale::run,
};

/// Whether the figures of papers are in this build.
pub const HAS_FIGURES: bool = cfg!(feature = "research");

/// Those that are in this build.
pub const BUILT: &[Scenario] = if HAS_FIGURES { ALL } else { ALWAYS };

/// The names of all, worked out by the compiler: what names a function has it built in.
const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = ALL[at].name;
        at += 1;
    }
    names
};

/// The scenario of that name, if this build has it.
pub fn named(name: &str) -> Option<&'static Scenario> {
    BUILT.iter().find(|scenario| scenario.name == name)
}

/// Whether a build with all of them has one of that name.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The machine of the paper's evaluation with this design: a wire, and a network between.
fn server(setup: &Setup, design: Design) -> Machine {
    let mut machine = bare(setup, design, setup.workers);
    machine.nic = Some(setup.nic);
    machine.network = setup.network;
    machine
}

/// A machine without a wire: only the CPU counts.
fn bare(setup: &Setup, design: Design, workers: u16) -> Machine {
    let mut machine = Machine::new(design, workers);
    machine.costs = setup.costs;
    machine.batch = setup.batch;
    machine.standby = setup.standby;
    machine.reach = setup.reach;
    machine.profiles = setup.profiles || matches!(design, Design::Lanes | Design::Minos);
    if design == Design::Minos {
        machine.settings.cost = CostModel::Packets; // the paper's own
    }
    machine
}

/// A point at which so much of what the CPUs can do is asked for.
fn at_load(row: Row, machine: Machine, mix: &Mix, load: f64, requests: u64) -> Point {
    let rate = load * cpu_peak(&machine.costs, mix, machine.settings.workers);
    let row = row.with("load", load).with("mops", rate / MEGA);
    Point { row, machine, mix: mix.clone(), rate, requests }
}

/// Pictures of small and of large requests' p99, by load.
fn by_class(name: &str, title: &str) -> [Chart; 2] {
    let classes = [("small_p99", "p99 of small (us)"), ("large_p99", "p99 of large (us)")];
    classes.map(|(y, y_label)| Chart::latency(format!("{name}-{y}"), title).of(y, y_label))
}

/// Requests per second at which so many workers would have no time left, serving only.
fn cpu_peak(costs: &Costs, mix: &Mix, workers: u16) -> f64 {
    f64::from(workers) * SECOND as f64 / costs.mean_service(mix)
}

/// Millions.
const MEGA: f64 = 1e6;

/// As the rows have it.
fn wire_name(nic: Option<Nic>) -> String {
    match nic {
        None => "none".to_owned(),
        Some(nic) => {
            let order = match nic.order {
                WireOrder::RoundRobin => "",
                WireOrder::SmallFirst => " small-first",
            };
            let lanes = if nic.queue_per_lane { " per-lane" } else { "" };
            format!("{} Gb/s{lanes}{order}", nic.gigabits)
        }
    }
}
