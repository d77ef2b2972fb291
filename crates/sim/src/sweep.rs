//! `laneway sim run`: any point, or any grid of points, by flags or by a TOML file.
//!
//! An axis is a parameter with one value or several; a sweep is every combination of all of them,
//! in the order of the axes, each run with the same seeds. A value is text until its axis reads it,
//! so that a flag, a comma list and a TOML array are one thing.

use crate::bursts::Bursts;
use crate::inputs::Inputs;
use crate::machine::{Central, Machine, Nic, Standby, WireOrder};
use crate::row::Row;
use crate::scenarios::WAYS;
use crate::stats::{SECOND, US};
use crate::study::{EPOCH_REQUESTS, Point, Study};
use crate::workload::{Mix, Sizes};
use laneway_policy::{CostModel, Design, ITEM_BYTES_MAX, ItemBytes};

/// Most points of a sweep: a few days on one CPU, told before the first one starts.
const POINTS_MAX: usize = 10_000;

/// Most requests of one run.
const REQUESTS_MAX: u64 = 1 << 36;

/// What a point is made of, while its axes are read.
#[derive(Debug, Clone)]
struct Spec {
    machine: Machine,
    nic: Nic,
    has_wire: bool,
    mix: Mix,
    load: f64,
    rate: Option<f64>,
    requests: u64,
    epoch_requests: u64,
    seeds: u64,
    profiles_all: bool,
    cost: Option<CostModel>,
    bursts: Bursts,
    service_file: Option<String>,
    trace: Option<String>,
}

/// Fewer bursts than these make no mean rate.
const BURSTS_MIN: f64 = 20.0;

/// What a file has of its own, so that no flag may say it too.
const OWN: [(&str, &[&str]); 2] = [
    (
        "service-file",
        &[
            "trace",
            "large-percent",
            "large-bytes-max",
            "k",
            "way",
            "request-ns",
            "packet-ns",
            "profile",
        ],
    ),
    ("trace", &["large-percent", "large-bytes-max", "k", "get-share"]),
];

/// Designs of the simulator alone, which have a dispatcher.
const DISPATCHERS: [(&str, Central); 2] =
    [("shinjuku", Central::Preempt { quantum: 5 * US, cost: US }), ("darc", Central::Reserve)];

type Read = fn(&mut Spec, &str) -> Result<(), String>;

/// A parameter: its flag without dashes, what it is, and how it is read. The error says what the
/// value must be.
struct Axis {
    name: &'static str,
    about: &'static str,
    read: Read,
}

const fn axis(name: &'static str, about: &'static str, read: Read) -> Axis {
    Axis { name, about, read }
}

/// A whole number within these bounds; the error says what it must be.
pub fn whole(text: &str, low: u64, high: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("must be a whole number from {low} to {high}"))
}

fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("must be a number from {low} to {high}"))
}

fn name_of_file(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("must be the name of a file".to_owned()) } else { Ok(text.to_owned()) }
}

fn one_of<T: Copy>(text: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    found.ok_or_else(|| format!("must be one of {}", all.join(", ")))
}

fn ns(text: &str) -> Result<u64, String> {
    Ok(whole(text, 0, 1_000_000_000)? * 1_000)
}

const AXES: [Axis; 47] = [
    axis("design", "lanes, minos, hkh, hkh-ws, sho, shinjuku or darc (lanes)", |spec, text| {
        let rival = |(name, central)| (name, (Design::Hkh, Some(central)));
        let ours = Design::ALL.iter().map(|design| (design.name(), (*design, None)));
        let names: Vec<_> = ours.chain(DISPATCHERS.map(rival)).collect();
        (spec.machine.settings.design, spec.machine.central) = one_of(text, &names)?;
        Ok(())
    }),
    axis("quantum-us", "a worker's turn with a request, of shinjuku (5)", |spec, text| {
        let length = (number(text, 0.001, 1e6)? * US as f64) as u64;
        if let Some(Central::Preempt { quantum, .. }) = &mut spec.machine.central {
            *quantum = length;
        }
        Ok(())
    }),
    axis("preempt-ns", "taking a worker from a request, of shinjuku (1000)", |spec, text| {
        let time = ns(text)?;
        if let Some(Central::Preempt { cost, .. }) = &mut spec.machine.central {
            *cost = time;
        }
        Ok(())
    }),
    axis("workers", "cores (8)", |spec, text| {
        spec.machine.settings.workers = whole(text, 1, 64)? as u16;
        Ok(())
    }),
    axis("load", "share of what the CPUs can do, above 0 to 1 (0.7)", |spec, text| {
        spec.load = number(text, 1e-6, 1.0)?;
        Ok(())
    }),
    axis("rate", "requests per second, instead of load", |spec, text| {
        spec.rate = Some(number(text, 1.0, 1e12)?);
        Ok(())
    }),
    axis("large-percent", "large requests, p_L (0.125)", |spec, text| {
        spec.mix.large_percent = number(text, 0.0, 100.0)?;
        Ok(())
    }),
    axis("large-bytes-max", "the largest value, s_L (500000)", |spec, text| {
        let large_bytes_max = whole(text, 1500, ITEM_BYTES_MAX.0)?;
        spec.mix.sizes = Sizes::Etc { large_bytes_max };
        Ok(())
    }),
    axis("k", "two sizes: one frame, and K frames for the large (Minos 2.2)", |spec, text| {
        spec.mix.sizes = Sizes::Bimodal { large_frames: whole(text, 1, 100_000)? };
        Ok(())
    }),
    axis(
        "service-file",
        "sizes and service times: lines of item_bytes nanos [weight]",
        |spec, text| {
            spec.service_file = Some(name_of_file(text)?);
            Ok(())
        },
    ),
    axis("trace", "a trace's requests: rows of ts,key,ksize,vsize,client,op,ttl", |spec, text| {
        spec.trace = Some(name_of_file(text)?);
        Ok(())
    }),
    axis("burst-factor", "rate in bursts over that between them; 1: Poisson (1)", |spec, text| {
        spec.bursts.factor = number(text, 1.0, 1e6)?;
        Ok(())
    }),
    axis("burst-share", "of the time, in bursts (0.1)", |spec, text| {
        spec.bursts.share = number(text, 1e-6, 0.999_999)?;
        Ok(())
    }),
    axis("burst-us", "a burst lasts, on average (100)", |spec, text| {
        spec.bursts.length = (number(text, 0.001, 1e9)? * US as f64) as u64;
        Ok(())
    }),
    axis("get-share", "share of reads (0.95)", |spec, text| {
        spec.mix.get_share = number(text, 0.0, 1.0)?;
        Ok(())
    }),
    axis("reply-share", "share of requests whose reply is sent (1)", |spec, text| {
        spec.mix.reply_share = number(text, 0.0, 1.0)?;
        Ok(())
    }),
    axis("requests", "that count, for each seed (400000)", |spec, text| {
        spec.requests = whole(text, 1_000, REQUESTS_MAX)?;
        Ok(())
    }),
    axis("seeds", "runs of each point (3)", |spec, text| {
        spec.seeds = whole(text, 1, 1_000)?;
        Ok(())
    }),
    axis("epoch-requests", "length of an epoch, on average (80000)", |spec, text| {
        spec.epoch_requests = whole(text, 1, REQUESTS_MAX)?;
        Ok(())
    }),
    axis("percentile", "up to which requests are small (99)", |spec, text| {
        spec.machine.settings.percentile = number(text, 0.0, 100.0)?;
        Ok(())
    }),
    axis("threshold", "in bytes, fixed", |spec, text| {
        let threshold = ItemBytes(whole(text, 1, ITEM_BYTES_MAX.0)?);
        spec.machine.settings.threshold_fixed = Some(threshold);
        Ok(())
    }),
    axis("cost", "packets, bytes or constant-packets; as the design has it", |spec, text| {
        let cost = text.parse::<CostModel>().map_err(|error| error.to_string())?;
        spec.cost = Some(cost);
        Ok(())
    }),
    axis("slice-bytes", "a large transfer's turn, of lanes (32768)", |spec, text| {
        spec.machine.settings.slice_bytes = ItemBytes(whole(text, 1472, ITEM_BYTES_MAX.0)?);
        Ok(())
    }),
    axis("slice-order", "one-by-one (default) or in-turn", |spec, text| {
        use crate::machine::SliceOrder::{InTurn, OneByOne};
        let names = [("one-by-one", OneByOne), ("in-turn", InTurn)];
        spec.machine.slice_order = one_of(text, &names)?;
        Ok(())
    }),
    axis("workers-large", "large cores, whatever the rule says", |spec, text| {
        spec.machine.tweak.workers_large = Some(whole(text, 0, 63)? as u16);
        Ok(())
    }),
    axis("steal-queue-min", "RX queue from which a large worker helps", |spec, text| {
        spec.machine.tweak.steal_queue_min = Some(whole(text, 1, 1 << 30)? as u32);
        Ok(())
    }),
    axis("steal-requests-max", "requests it takes between slices (32)", |spec, text| {
        spec.machine.tweak.steal_requests_max = Some(whole(text, 0, 1 << 30)? as u32);
        Ok(())
    }),
    axis("steal-when-idle", "true or false; as the design has it", |spec, text| {
        let names = [("true", true), ("false", false)];
        spec.machine.tweak.steal_when_idle = Some(one_of(text, &names)?);
        Ok(())
    }),
    axis("slices-unsent-max", "on a full wire, of lanes (8)", |spec, text| {
        spec.machine.tweak.slices_unsent_max = Some(whole(text, 1, 1 << 30)?);
        Ok(())
    }),
    axis("handoff-workers", "that only receive, of sho (1)", |spec, text| {
        spec.machine.settings.workers_handoff = whole(text, 1, 63)? as u16;
        Ok(())
    }),
    axis("extra-large", "true or false: one large core more, of minos (false)", |spec, text| {
        let names = [("true", true), ("false", false)];
        spec.machine.settings.extra_large = one_of(text, &names)?;
        Ok(())
    }),
    axis("batch", "requests taken from an RX queue at a time (32)", |spec, text| {
        spec.machine.batch = whole(text, 1, 100_000)? as u32;
        Ok(())
    }),
    axis("queue", "per-worker (default), or central: late binding", |spec, text| {
        spec.machine.central_queue = one_of(text, &[("per-worker", false), ("central", true)])?;
        Ok(())
    }),
    axis("standby", "of minos: returns (default) or epoch", |spec, text| {
        let names = [("returns", Standby::Returns), ("epoch", Standby::UntilEpochEnds)];
        spec.machine.standby = one_of(text, &names)?;
        Ok(())
    }),
    axis("profile", "who counts sizes: all (default) or lanes", |spec, text| {
        spec.profiles_all = one_of(text, &[("all", true), ("lanes", false)])?;
        Ok(())
    }),
    axis("nic-gbit", "rate of the wire, or none (none)", |spec, text| {
        spec.has_wire = text != "none";
        if spec.has_wire {
            spec.nic.gigabits =
                number(text, 0.001, 1e6).map_err(|error| format!("{error}, or none"))?;
        }
        Ok(())
    }),
    axis("nic-order", "round-robin (default) or small-first", |spec, text| {
        use WireOrder::{RoundRobin, SmallFirst};
        let names = [("round-robin", RoundRobin), ("small-first", SmallFirst)];
        spec.nic.order = one_of(text, &names)?;
        Ok(())
    }),
    axis("nic-burst", "frames of a TX queue in its turn (1)", |spec, text| {
        spec.nic.burst = whole(text, 1, 100_000)? as u32;
        Ok(())
    }),
    axis("tx-queues", "per-worker (default) or per-lane", |spec, text| {
        let names = [("per-worker", false), ("per-lane", true)];
        spec.nic.queue_per_lane = one_of(text, &names)?;
        Ok(())
    }),
    axis("network-us", "added to latencies (0)", |spec, text| {
        spec.machine.network = (number(text, 0.0, 1e6)? * 1e6) as u64;
        Ok(())
    }),
    axis("way", "bypass (default), tcp-pipelined, tcp or udp: costs", |spec, text| {
        let names = WAYS.map(|way| (way.flag, way));
        let way = one_of(text, &names)?;
        (spec.machine.costs, spec.machine.reach) = (way.costs(spec.machine.costs), way.reach);
        Ok(())
    }),
    axis("reach", "what others can take: unread (default) or offered, as by TCP", |spec, text| {
        use crate::machine::Reach::{Offered, Unread};
        spec.machine.reach = one_of(text, &[("unread", Unread), ("offered", Offered)])?;
        Ok(())
    }),
    axis("request-ns", "a request costs (441)", |spec, text| {
        spec.machine.costs.request = ns(text)?;
        Ok(())
    }),
    axis("packet-ns", "each packet of it (700)", |spec, text| {
        spec.machine.costs.packet = ns(text)?.max(1);
        Ok(())
    }),
    axis("handoff-ns", "handing it over (100)", |spec, text| {
        spec.machine.costs.handoff = ns(text)?;
        Ok(())
    }),
    axis("steal-ns", "taking it from another (100)", |spec, text| {
        spec.machine.costs.steal = ns(text)?;
        Ok(())
    }),
    axis("slice-ns", "each further slice (100)", |spec, text| {
        spec.machine.costs.slice = ns(text)?;
        Ok(())
    }),
];

/// All parameters, for the help.
pub fn help() -> String {
    AXES.iter().map(|axis| format!("  --{:<20} {}\n", axis.name, axis.about)).collect()
}

/// Axes with their values, as typed.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    values: Vec<(usize, Vec<String>)>,
}

impl Sweep {
    /// Whether there is such a parameter.
    pub fn knows(name: &str) -> bool {
        AXES.iter().any(|axis| axis.name == name)
    }

    /// Give a parameter its values, separated by commas; what was given last counts.
    pub fn set(&mut self, name: &str, values: &str) -> Result<(), String> {
        self.set_all(name, values.split(',').map(|value| value.trim().to_owned()).collect())
    }

    fn set_all(&mut self, name: &str, values: Vec<String>) -> Result<(), String> {
        let place = AXES.iter().position(|axis| axis.name == name);
        let place = place.ok_or_else(|| format!("--{name}: no such flag of run"))?;
        if values.is_empty() {
            return Err(format!("--{name}: needs at least one value"));
        }
        for value in &values {
            (AXES[place].read)(&mut Spec::new(), value)
                .map_err(|error| format!("--{name} {value}: {error}"))?;
        }
        self.values.retain(|(other, _)| *other != place);
        self.values.push((place, values));
        self.values.sort();
        Ok(())
    }

    /// Take parameters from a TOML file: `name = value` or `name = [value, ...]`, names with
    /// underscores. What flags have set stays.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let file: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let flags = std::mem::take(&mut self.values);
        for (name, value) in &file {
            let plain = |value: &toml::Value| match value {
                toml::Value::String(text) => Ok(text.clone()),
                toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => {
                    Ok(value.to_string())
                }
                _ => Err(format!("{name}: must be a value or a list of values")),
            };
            let values = match value {
                toml::Value::Array(values) => values.iter().map(plain).collect::<Result<_, _>>()?,
                value => vec![plain(value)?],
            };
            self.set_all(&name.replace('_', "-"), values)?;
        }
        for (place, values) in flags {
            self.values.retain(|(other, _)| *other != place);
            self.values.push((place, values));
        }
        self.values.sort();
        Ok(())
    }

    /// Every combination, with its number of seeds.
    pub fn points(&self) -> Result<Vec<(Point, u64)>, String> {
        let count = self.values.iter().map(|(_, values)| values.len());
        let count = count.fold(1_usize, |product, len| product.saturating_mul(len));
        if count > POINTS_MAX {
            return Err(format!(
                "a sweep of {count} points: must be at most {POINTS_MAX}; split it by an axis"
            ));
        }
        self.agrees()?;
        let mut inputs = Inputs::default();
        (0..count).map(|number| self.point(number, &mut inputs)).collect()
    }

    /// Whether no parameter would be given in vain.
    fn agrees(&self) -> Result<(), String> {
        let given = |name: &str| self.values.iter().any(|(place, _)| AXES[*place].name == name);
        for (file, others) in OWN {
            if let (true, Some(other)) = (given(file), others.iter().find(|other| given(other))) {
                return Err(format!("--{other}: --{file} has its own; leave one of the two out"));
            }
        }
        let idle = ["burst-share", "burst-us"].into_iter().find(|name| given(name));
        match idle {
            Some(name) if !given("burst-factor") => {
                Err(format!("--{name}: there are no bursts; give a --burst-factor above 1"))
            }
            _ => Ok(()),
        }
    }

    fn point(&self, mut number: usize, inputs: &mut Inputs) -> Result<(Point, u64), String> {
        let mut spec = Spec::new();
        let mut row = Row::of("run");
        // The last axis turns fastest.
        let mut chosen = Vec::new();
        for (place, values) in self.values.iter().rev() {
            chosen.push((&AXES[*place], &values[number % values.len()]));
            number /= values.len();
        }
        for (axis, value) in chosen.into_iter().rev() {
            (axis.read)(&mut spec, value)?;
            row = row.with(column(axis.name), value.as_str());
        }
        let seeds = spec.seeds;
        Ok((spec.point(row, inputs)?, seeds))
    }

    /// Run all of it; rows in the order of the points.
    pub fn run(&self, study: &Study) -> Result<Vec<Row>, String> {
        let points = self.points()?;
        Ok(study.parallel("run", &points, |(point, seeds)| {
            let seeds = study.seed..study.seed + seeds;
            let outcomes = seeds.map(|seed| study.one(point, seed)).collect();
            crate::study::Measured { outcomes }.row(point.row.clone(), study.seed)
        }))
    }
}

/// As rows name it: the seeds and the requests of an axis are in every row anyway.
fn column(name: &'static str) -> &'static str {
    match name {
        "large-percent" => "large_percent",
        "large-bytes-max" => "large_bytes_max",
        "get-share" => "get_share",
        "slice-bytes" => "slice_bytes",
        "requests" => "requests_per_seed",
        "seeds" => "seeds_asked",
        "workers-large" => "workers_large_fixed",
        other => other,
    }
}

impl Spec {
    fn new() -> Spec {
        Spec {
            machine: Machine::new(Design::Lanes, 8),
            epoch_requests: EPOCH_REQUESTS,
            nic: Nic::MINOS,
            has_wire: false,
            mix: Mix::etc(),
            load: 0.7,
            rate: None,
            requests: 400_000,
            seeds: 3,
            profiles_all: true,
            cost: None,
            bursts: Bursts { factor: 1.0, share: 0.1, length: 100 * US },
            service_file: None,
            trace: None,
        }
    }

    fn point(self, row: Row, inputs: &mut Inputs) -> Result<Point, String> {
        let Spec { mut machine, mut mix, .. } = self;
        if let Some(path) = &self.service_file {
            mix.sizes = inputs.service_file(path)?;
            if machine.central.is_some() {
                // What was measured is all that serving costs: no part of it is the dispatcher's.
                machine.costs.steal = machine.costs.receive;
            }
        }
        if let Some(path) = &self.trace {
            mix.sizes = inputs.trace(path)?;
        }
        let design = machine.settings.design;
        if machine.central.is_some() && self.has_wire {
            return Err("--nic-gbit: shinjuku and darc have no wire; leave it out".to_owned());
        }
        machine.nic = self.has_wire.then_some(self.nic);
        machine.profiles = self.profiles_all || matches!(design, Design::Lanes | Design::Minos);
        machine.settings.cost = match (self.cost, design) {
            (Some(cost), _) => cost,
            (None, Design::Minos) => CostModel::Packets, // the paper's own
            (None, _) => machine.settings.cost,
        };
        machine.settings.check().map_err(|error| error.to_string())?;
        let (workers, costs) = (machine.settings.workers, machine.costs);
        if machine.tweak.workers_large.is_some_and(|large| large >= workers) {
            return Err(format!("--workers-large: must be below --workers ({workers})"));
        }
        if costs.receive + costs.profile > costs.request {
            return Err("--request-ns: must be at least 330: receiving and counting".to_owned());
        }
        let peak = f64::from(workers) * SECOND as f64 / costs.mean_service(&mix);
        let rate = self.rate.unwrap_or(self.load * peak);
        machine.epoch = (self.epoch_requests as f64 / rate * SECOND as f64) as u64;
        if self.bursts.factor > 1.0 {
            mix.bursts = Some(self.bursts);
            let cycle_requests = self.bursts.cycle() / SECOND as f64 * rate;
            let enough = (cycle_requests * BURSTS_MIN).ceil();
            if (self.requests as f64) < enough {
                let length = self.bursts.length as f64 / US as f64;
                return Err(format!(
                    "--burst-us {length}: a run must have {BURSTS_MIN} bursts or more; give \
                     --requests {enough}, or shorter bursts"
                ));
            }
        }
        Ok(Point { row, machine, mix, rate, requests: self.requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Effort;

    fn sweep(flags: &[(&str, &str)]) -> Result<Sweep, String> {
        let mut sweep = Sweep::default();
        for (name, values) in flags {
            sweep.set(name, values)?;
        }
        Ok(sweep)
    }

    #[test]
    fn a_sweep_is_every_combination_in_the_order_of_the_axes() {
        let sweep = sweep(&[("load", "0.5,0.9"), ("design", "minos, lanes")]).expect("fits");
        let points = sweep.points().expect("few");
        let names: Vec<String> =
            points.iter().map(|(p, _)| p.row.text("design") + &p.row.text("load")).collect();
        assert_eq!(names, ["minos0.5", "minos0.9", "lanes0.5", "lanes0.9"]);
        assert_eq!(points[0].0.machine.settings.cost, CostModel::Packets);
        assert!(points[3].0.rate > 1.7 * points[2].0.rate);
    }

    #[test]
    fn a_file_gives_what_no_flag_has_given() {
        let mut sweep = sweep(&[("k", "10")]).expect("fits");
        sweep.read("k = [1, 100]\nload = [0.3, 0.5]\nworkers = 4\nseeds = 2").expect("fits");
        let points = sweep.points().expect("few");
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].0.mix.sizes, Sizes::Bimodal { large_frames: 10 });
        assert_eq!((points[0].0.machine.settings.workers, points[0].1), (4, 2));
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_anything_starts() {
        for (name, value, words) in [
            ("load", "1.2", "--load 1.2: must be a number from"),
            ("workers", "0", "--workers 0: must be a whole number from 1 to 64"),
            ("design", "fifo", "must be one of lanes, minos"),
            ("wurst", "1", "--wurst: no such flag of run"),
            ("nic-gbit", "fast", "or none"),
            ("load", "", "--load : must be"),
            ("burst-factor", "0.5", "--burst-factor 0.5: must be a number from 1 to"),
            ("burst-share", "1", "--burst-share 1: must be a number from"),
            ("trace", "", "--trace : must be the name of a file"),
        ] {
            let error = sweep(&[(name, value)]).expect_err(value);
            assert!(error.contains(words), "{error}");
        }
        for (flags, words) in [
            (&[("service-file", "x"), ("k", "10")][..], "--k: --service-file has its own"),
            (&[("trace", "x"), ("get-share", "1")], "--get-share: --trace has its own"),
            (&[("trace", "x"), ("service-file", "y")], "--trace: --service-file has its own"),
            (&[("service-file", "/no/such")], "--service-file /no/such: "),
            (&[("trace", "/no/such")], "--trace /no/such: "),
            (&[("design", "darc"), ("nic-gbit", "40")], "--nic-gbit: shinjuku and darc have no"),
            (&[("burst-us", "5")], "--burst-us: there are no bursts; give a --burst-factor"),
            (
                &[("burst-factor", "5"), ("burst-us", "1e6"), ("rate", "1e6")],
                "--burst-us 1000000: a run must have 20 bursts or more; give --requests 200000000",
            ),
        ] {
            let error = sweep(flags).expect("each fits").points().expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        let many: Vec<String> = (1..=200).map(|n| n.to_string()).collect();
        let error = sweep(&[("k", &many.join(",")), ("seeds", &many.join(","))]);
        let error = error.expect("each fits").points().expect_err("too many");
        assert!(error.contains("a sweep of 40000 points: must be at most 10000"), "{error}");
        let error = sweep(&[("workers", "1"), ("design", "sho")]).expect("each fits");
        assert!(error.points().expect_err("no such machine").contains("needs --workers 2"));
        for (text, words) in
            [("load = {}", "a value or a list"), ("load = ", "TOML"), ("x = 1", "--x")]
        {
            let error = Sweep::default().read(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_rival_with_a_dispatcher_is_a_design_like_any() {
        let flags = [("design", "shinjuku,darc,lanes"), ("quantum-us", "2"), ("preempt-ns", "500")];
        let points = sweep(&flags).expect("fits").points().expect("few");
        let central: Vec<_> = points.iter().map(|(point, _)| point.machine.central).collect();
        let preempt = Central::Preempt { quantum: 2 * US, cost: US / 2 };
        assert_eq!(central, [Some(preempt), Some(Central::Reserve), None]);
        assert_eq!(points[1].0.row.text("design"), "darc");
    }

    #[test]
    fn a_dispatcher_spares_nothing_of_times_that_were_measured() {
        let name = format!("laneway-service-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "100 500\n").expect("room for a line");
        let file = path.to_str().expect("plain");
        let flags = [
            ("service-file", file),
            ("design", "darc,shinjuku"),
            ("load", "0.9"),
            ("requests", "50000"),
            ("seeds", "1"),
        ];
        let rows = sweep(&flags).expect("fits").run(&Study::new(Effort::Quick, 1, 2));
        std::fs::remove_file(&path).expect("it is ours");
        for row in rows.expect("few") {
            let busy = row.number("cpu_busy").expect("each row has it");
            assert!((0.87..0.93).contains(&busy), "{busy}");
        }
    }

    #[test]
    fn a_run_has_a_row_for_each_point() {
        let flags =
            [("requests", "2000"), ("seeds", "2"), ("design", "hkh,lanes"), ("load", "0.2")];
        let study = Study::new(Effort::Quick, 1, 2);
        let rows = sweep(&flags).expect("fits").run(&study).expect("few");
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.number("p99").is_some_and(|p99| p99 > 1.0)));
        assert_eq!(rows[0].number("seeds"), Some(2.0));
    }
}
