//! `laneway sim run`: any point, or any grid of points, by flags or by a TOML file; and for
//! `laneway sim plan` the same grid without cores and rate, which are then its to choose.
//!
//! An axis is a parameter with one value or several; a sweep is every combination of all of them,
//! in the order of the axes, each run with the same seeds. A value is text until its axis reads it,
//! so that a flag, a comma list and a TOML array are one thing.

mod axes;
mod file;
mod journal;
mod spec;

pub use axes::{help, whole};

use crate::inputs::Inputs;
use crate::machine::{Central, Outcome};
use crate::report;
use crate::row::{Cell, Row};
use crate::study::{Measured, Point, Study};
use axes::{AXES, cell, column, designs};
use journal::{Journal, SCHEMA, fingerprint, program};
use laneway_policy::Design;
use spec::Spec;
use std::path::Path;

/// Most points of a sweep: a few days on one CPU, told before the first one starts.
const POINTS_MAX: usize = 10_000;

/// The form of a row, for other programs: JSON Schema.
pub const SCHEMA_TEXT: &str = include_str!("schema.json");

/// Parameters whose values are names of files.
const FILES: [&str; 3] = ["workload", "service-file", "trace"];

/// What a file has of its own, so that no flag may say it too.
const OWN: [(&str, &[&str]); 4] = [
    (
        "workload",
        &[
            "service-file",
            "trace",
            "large-percent",
            "large-bytes-max",
            "k",
            "get-share",
            "keys",
            "zipf",
        ],
    ),
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
    ("trace", &["large-percent", "large-bytes-max", "k", "get-share", "keys", "zipf"]),
    (
        "connections",
        &[
            "access",
            "way",
            "reach",
            "queue",
            "batch",
            "slice-order",
            "steal-queue-min",
            "steal-requests-max",
            "steal-when-idle",
            "slices-unsent-max",
            "handoff-ns",
            "steal-ns",
        ],
    ),
];

/// Flags of some designs alone: other designs of a sweep run once whatever these say.
const OF_DESIGNS: [(&str, &[&str]); 28] = [
    ("quantum-us", &["shinjuku", "tq"]),
    ("preempt-ns", &["shinjuku", "tq"]),
    ("look-us", &["caladan"]),
    ("grant-us", &["caladan"]),
    ("search-us", &["caladan"]),
    ("handoff-workers", &["sho"]),
    ("extra-large", &["minos"]),
    ("standby", &["minos"]),
    ("slice-bytes", &["lanes"]),
    ("slice-order", &["lanes"]),
    ("slice-ns", &["lanes"]),
    ("slices-unsent-max", &["lanes"]),
    ("urgency", &["lanes"]),
    ("access", &["hkh"]),
    ("keys", &["hkh"]),
    ("zipf", &["hkh"]),
    ("epoch-requests", PLANNED),
    ("percentile", &["lanes", "minos"]),
    ("threshold", &["lanes", "minos"]),
    ("cost", &["lanes", "minos"]),
    ("workers-large", PLANNED),
    ("steal-queue-min", PLANNED),
    ("steal-requests-max", PLANNED),
    ("steal-when-idle", PLANNED),
    ("batch", PLANNED),
    ("queue", PLANNED),
    ("reach", PLANNED),
    ("handoff-ns", PLANNED),
];

/// Designs whose workers ask the policies; the others have a scheduler instead.
const PLANNED: &[&str] = &["lanes", "minos", "hkh", "hkh-ws", "sho"];

/// Flags that say something of what another one makes, and what to do where that is not given.
const NEEDS: [(&str, &str, &str); 15] = [
    ("keys", "access", "keys have no owners; give --access erew or crew"),
    ("zipf", "access", "keys have no owners; give --access erew or crew"),
    ("nic-order", "nic-gbit", "there is no wire; give --nic-gbit"),
    ("nic-burst", "nic-gbit", "there is no wire; give --nic-gbit"),
    ("tx-queues", "nic-gbit", "there is no wire; give --nic-gbit"),
    ("burst-share", "burst-factor", "there are no bursts; give a --burst-factor above 1"),
    ("burst-us", "burst-factor", "there are no bursts; give a --burst-factor above 1"),
    ("retry-us", "rx-queue", "nothing is lost; give a --rx-queue"),
    ("numa-strays", "numa", "there is one domain; give a --numa above 1"),
    ("numa-ns", "numa", "there is one domain; give a --numa above 1"),
    ("line-spread", "shared-lines", "there are no shared lines; give --shared-lines"),
    ("line-ns", "shared-lines", "there are no shared lines; give --shared-lines"),
    ("depth", "connections", "there are no connections; give --connections"),
    ("turn-ns", "connections", "there are no connections; give --connections"),
    ("urgency", "connections", "there are no connections; give --connections"),
];

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

    /// Give a parameter this value where it has none yet.
    pub fn set_default(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.given(name).is_some() { Ok(()) } else { self.set(name, value) }
    }

    /// The values of a parameter, if it was given any.
    pub fn given(&self, name: &str) -> Option<&[String]> {
        let mut all = self.values.iter();
        all.find(|(place, _)| AXES[*place].name == name).map(|(_, values)| &values[..])
    }

    /// Whether all of these machines could have a wire.
    pub fn may_have_wire(&self) -> bool {
        let scheduled = |design: &String| !PLANNED.contains(&design.as_str());
        let apart = ["connections", "numa"].iter().any(|name| self.given(name).is_some());
        !apart && !self.given("design").is_some_and(|all| all.iter().any(scheduled))
    }

    fn set_all(&mut self, name: &str, mut values: Vec<String>) -> Result<(), String> {
        let place = AXES.iter().position(|axis| axis.name == name);
        let place = place.ok_or_else(|| format!("--{name}: no such flag of run"))?;
        if values.is_empty() {
            return Err(format!("--{name}: needs at least one value"));
        }
        if name == "design" && values == ["all"] {
            values = designs().map(|(name, _)| name.to_owned()).collect();
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

    /// Take parameters from the TOML file of this name, as [`Sweep::read`].
    pub fn read_file(&mut self, path: &str) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let read = text.and_then(|text| self.read(&text));
        read.map_err(|error| format!("--sweep {path}: {error}"))
    }

    /// Take parameters from a TOML text: `name = value` or `name = [value, ...]`, names with
    /// underscores. What flags have set stays.
    pub fn read(&mut self, text: &str) -> Result<(), String> {
        let flags = std::mem::take(&mut self.values);
        for (name, values) in file::values(text)? {
            self.set_all(&name, values)?;
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
        let mut inputs = Inputs::default();
        let specs = self.specs()?.into_iter();
        specs.map(|(spec, row)| Ok((spec.point(row, &mut inputs)?, spec.seeds))).collect()
    }

    /// Every combination, for whoever chooses cores and rate; `rate` where none is given.
    pub fn cases(&self, rate: f64) -> Result<Vec<Case>, String> {
        let mut inputs = Inputs::default();
        let mut case = |(spec, row): (Spec, Row)| {
            let (_, own) = spec.mix(&mut inputs)?;
            let rate = spec.rate.or(own).unwrap_or(rate);
            let row = if spec.rate.is_some() { row } else { row.with("rate", Cell::Exact(rate)) };
            let named = Row::default().with("design", Design::default().name());
            let row = if self.given("design").is_some() { row } else { named.and(row) };
            Ok(Case { spec, row, rate, inputs: inputs.clone() })
        };
        self.specs()?.into_iter().map(&mut case).collect()
    }

    fn specs(&self) -> Result<Vec<(Spec, Row)>, String> {
        let count = self.values.iter().map(|(_, values)| values.len());
        let count = count.fold(1_usize, |product, len| product.saturating_mul(len));
        if count > POINTS_MAX {
            return Err(format!(
                "a sweep of {count} points: must be at most {POINTS_MAX}; split it by an axis"
            ));
        }
        self.agrees()?;
        (0..count).filter_map(|number| self.spec(number).transpose()).collect()
    }

    /// Whether no parameter would be given in vain.
    fn agrees(&self) -> Result<(), String> {
        let given = |name: &str| self.given(name).is_some();
        for (file, others) in OWN {
            if let (true, Some(other)) = (given(file), others.iter().find(|other| given(other))) {
                return Err(format!("--{other}: --{file} has its own; leave one of the two out"));
            }
        }
        let default = [Design::default().name().to_owned()];
        let designs = self.given("design").unwrap_or(&default);
        for (flag, own) in OF_DESIGNS {
            if given(flag) && !designs.iter().any(|design| own.contains(&&**design)) {
                return Err(format!("--{flag}: is of --design {} alone", own.join(" or ")));
            }
        }
        for (flag, needs, words) in NEEDS {
            if given(flag) && !given(needs) {
                return Err(format!("--{flag}: {words}"));
            }
        }
        Ok(())
    }

    /// One combination; none where it differs from another in what its design does not have.
    fn spec(&self, mut number: usize) -> Result<Option<(Spec, Row)>, String> {
        let mut spec = Spec::new();
        let mut row = Row::default();
        // The last axis turns fastest.
        let mut chosen = Vec::new();
        for (place, values) in self.values.iter().rev() {
            chosen.push((&AXES[*place], number % values.len(), values));
            number /= values.len();
        }
        let mut design = Design::default().name();
        for (axis, which, values) in chosen.into_iter().rev() {
            let value = values[which].as_str();
            if axis.name == "design" {
                design = value;
            }
            let own = OF_DESIGNS.iter().find(|(flag, _)| *flag == axis.name);
            if own.is_none_or(|(_, own)| own.contains(&design)) {
                (axis.read)(&mut spec, value)?;
                row = row.with(column(axis.name), cell(axis.name, value));
            } else if which > 0 {
                return Ok(None);
            }
        }
        Ok(Some((spec, row)))
    }

    /// Of this sweep and no other: its values, what its input files hold, the first seed and the
    /// program.
    fn fingerprint(&self, seed: u64) -> Result<u64, String> {
        let mut hash = fingerprint(program()?, seed.to_string().as_bytes());
        for (place, values) in &self.values {
            let name = AXES[*place].name;
            hash = fingerprint(hash, format!("{name}{values:?}").as_bytes());
            for path in values.iter().filter(|_| FILES.contains(&name)) {
                match std::fs::read(path) {
                    Ok(bytes) => hash = fingerprint(hash, &bytes),
                    Err(_) if name == "workload" => {} // one that has a name
                    Err(why) => return Err(format!("--{name} {path}: {why}")),
                }
            }
        }
        Ok(hash)
    }

    /// Run all of it; rows in the order of the points. With a folder each row is written there as
    /// its point ends, and points whose rows are there already are not run again.
    pub fn run(&self, study: &Study, folder: Option<&Path>) -> Result<Vec<Row>, String> {
        let mut points = self.points()?;
        let sweep = format!("{:016x}", self.fingerprint(study.seed)?);
        for (place, (point, _)) in points.iter_mut().enumerate() {
            let row = Row::of("run").with("schema", SCHEMA).with("sweep", sweep.clone());
            point.row = row.with("point", place as u64).and(std::mem::take(&mut point.row));
        }
        let beginnings: Vec<Row> = points.iter().map(|(point, _)| point.row.clone()).collect();
        let opened = folder.map(|folder| Journal::open(folder, &beginnings)).transpose()?;
        let (journal, mut rows) =
            opened.map_or_else(|| (None, vec![None; points.len()]), |(j, rows)| (Some(j), rows));
        let left: Vec<usize> = (0..points.len()).filter(|&place| rows[place].is_none()).collect();
        if left.len() < points.len() {
            let there = points.len() - left.len();
            eprintln!("laneway sim: {there} of {} points are there already", points.len());
        }
        let found = study.parallel("run", &left, |&place| {
            let row = measure(study, &points[place].0, points[place].1);
            journal.as_ref().map_or(Ok(()), |journal| journal.add(&row)).map(|()| row)
        });
        for (place, row) in left.into_iter().zip(found) {
            rows[place] = Some(row?);
        }
        let rows = rows.into_iter().flatten().collect::<Vec<Row>>();
        folder.map_or(Ok(()), |folder| report::write_rows(folder, "run", &rows))?;
        Ok(rows)
    }
}

/// A combination whose cores and rate are somebody's to choose.
#[derive(Debug, Clone)]
pub struct Case {
    spec: Spec,
    /// What was asked for.
    pub row: Row,
    /// Requests per second that were asked for.
    pub rate: f64,
    inputs: Inputs,
}

impl Case {
    /// Runs of each point.
    pub fn seeds(&self) -> u64 {
        self.spec.seeds
    }

    /// NUMA domains, which divide the cores.
    pub fn domains(&self) -> u16 {
        self.spec.numa.domains
    }

    /// With so many cores at so many requests per second; what the error says is that there cannot
    /// be so few, or what is wrong whatever their number is. A higher rate has as many more
    /// requests as makes a run as long, where it must hold some bursts.
    pub fn at(&mut self, workers: u16, rate: f64) -> Result<Point, String> {
        let mut spec = self.spec.clone();
        spec.machine.settings.workers = workers;
        spec.rate = Some(rate);
        if spec.bursts.factor > 1.0 {
            spec.requests = (spec.requests as f64 * (rate / self.rate).max(1.0)).ceil() as u64;
        }
        spec.point(self.row.clone(), &mut self.inputs)
    }
}

/// The row of a point with so many seeds.
pub fn measure(study: &Study, point: &Point, seeds: u64) -> Row {
    let seeds = study.seed..study.seed + seeds;
    let mut outcomes: Vec<_> = seeds.map(|seed| study.one(point, seed)).collect();
    let machine = &point.machine;
    let domains = machine.numa.map_or(1, |numa| numa.domains);
    outcomes.iter_mut().for_each(|one| one.answered_per_s *= f64::from(domains));
    let measured = Measured { outcomes };
    let mut row = measured.row(point.row.clone(), study.seed);
    if machine.rx.is_some() {
        let lost = |one: &Outcome| one.lost as f64 / one.requests.max(1) as f64;
        row = row.with("lost", measured.mean(lost));
    }
    if matches!(machine.central, Some(Central::Grant { .. })) {
        row = row.with("cores_granted", measured.mean(|one| one.cores));
    }
    measured.waits(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Reach, Streams};
    use crate::stats::US;
    use crate::study::Effort;
    use crate::workload::Sizes;
    use laneway_policy::CostModel;

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
            ("connections", "0", "--connections 0: must be a whole number from 1 to 65536"),
            ("connections", "65537", "must be a whole number from 1 to 65536"),
            ("depth", "1025", "--depth 1025: must be a whole number from 1 to 1024"),
            ("burst-factor", "0.5", "--burst-factor 0.5: must be a number from 1 to"),
            ("burst-share", "1", "--burst-share 1: must be a number from"),
            ("trace", "", "--trace : must be the name of a file"),
            ("rx-queue", "0", "--rx-queue 0: must be a whole number from 1 to 1000000, or none"),
            ("retry-us", "-1", "--retry-us -1: must be a number from"),
            ("numa", "0", "--numa 0: must be a whole number from 1 to 64"),
            ("numa-strays", "1.5", "--numa-strays 1.5: must be a number from 0 to 1"),
            ("numa-ns", "x", "--numa-ns x: must be a whole number from 0 to"),
            ("quantum-us", "0", "--quantum-us 0: must be a number from 0.001 to"),
            ("look-us", "0", "--look-us 0: must be a number from 0.1 to"),
            ("grant-us", "-1", "--grant-us -1: must be a number from 0 to"),
            ("search-us", "2e6", "--search-us 2e6: must be a number from 0 to 1000000"),
        ] {
            let error = sweep(&[(name, value)]).expect_err(value);
            assert!(error.contains(words), "{error}");
        }
        for (flags, words) in [
            (&[("service-file", "x"), ("k", "10")][..], "--k: --service-file has its own"),
            (&[("service-file", "x"), ("workload", "etc")], "--service-file: --workload has its"),
            (&[("trace", "x"), ("zipf", "1"), ("access", "erew")], "--zipf: --trace has its own"),
            (&[("access", "erew")], "--access: is of --design hkh alone"),
            (&[("design", "hkh"), ("keys", "9")], "--keys: keys have no owners; give --access"),
            (
                &[("design", "hkh"), ("access", "erew"), ("queue", "central")],
                "--access: a key's owner has a queue of its own in the one domain",
            ),
            (&[("nic-order", "small-first")], "--nic-order: there is no wire; give --nic-gbit"),
            (&[("standby", "epoch")], "--standby: is of --design minos alone"),
            (&[("depth", "4")], "--depth: there are no connections; give --connections"),
            (&[("urgency", "true")], "--urgency: there are no connections"),
            (&[("connections", "9"), ("way", "tcp")], "--way: --connections has its own"),
            (&[("connections", "9"), ("nic-gbit", "40")], "leave out --nic-gbit"),
            (&[("connections", "9"), ("rx-queue", "4")], "leave out --nic-gbit, --numa, --rx"),
            (&[("connections", "9"), ("design", "minos")], "--connections: knows --design lanes"),
            (&[("connections", "9"), ("design", "tq")], "--connections: knows --design lanes"),
            (
                &[("connections", "9"), ("depth", "100"), ("requests", "1999")],
                "--depth 100: a run must have 20 pipelines or more; give --requests 2000",
            ),
            (&[("trace", "x"), ("get-share", "1")], "--get-share: --trace has its own"),
            (&[("trace", "x"), ("service-file", "y")], "--trace: --service-file has its own"),
            (&[("service-file", "/no/such")], "--service-file /no/such: "),
            (&[("trace", "/no/such")], "--trace /no/such: "),
            (
                &[("design", "darc"), ("nic-gbit", "40")],
                "--nic-gbit: shinjuku, darc, tq, caladan have",
            ),
            (&[("quantum-us", "2")], "--quantum-us: is of --design shinjuku or tq alone"),
            (
                &[("design", "darc,lanes"), ("preempt-ns", "2")],
                "--preempt-ns: is of --design shinjuku or tq alone",
            ),
            (&[("design", "tq"), ("search-us", "2")], "--search-us: is of --design caladan alone"),
            (&[("retry-us", "50")], "--retry-us: nothing is lost; give a --rx-queue"),
            (&[("numa-strays", "0.5")], "--numa-strays: there is one domain; give a --numa"),
            (&[("numa-ns", "0")], "--numa-ns: there is one domain"),
            (&[("numa", "3")], "--numa 3: must divide --workers (8)"),
            (&[("numa", "2"), ("nic-gbit", "40")], "and a wire, have no domains; leave it out"),
            (&[("numa", "2"), ("design", "tq")], "have no domains; leave it out"),
            (
                &[("rx-queue", "64"), ("design", "tq")],
                "--rx-queue: shinjuku, darc, tq have no RX queues; leave it out",
            ),
            (&[("extra-large", "true")], "--extra-large: is of --design minos alone"),
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

    /// What only the policies' plans and queues have, a design with a scheduler would pass over.
    #[test]
    fn a_scheduler_takes_no_flags_of_plans_and_queues() {
        for (flag, value) in [
            ("queue", "central"),
            ("batch", "1"),
            ("slice-bytes", "16384"),
            ("slice-order", "in-turn"),
            ("slice-ns", "0"),
            ("slices-unsent-max", "2"),
            ("steal-queue-min", "2"),
            ("steal-requests-max", "2"),
            ("steal-when-idle", "true"),
            ("threshold", "1000"),
            ("percentile", "98"),
            ("cost", "bytes"),
            ("workers-large", "2"),
            ("reach", "offered"),
            ("handoff-ns", "0"),
            ("epoch-requests", "1000"),
            ("access", "erew"),
        ] {
            for design in ["shinjuku", "darc", "tq", "caladan", "tq,darc"] {
                let refused = sweep(&[("design", design), (flag, value)]).expect("each fits");
                let refused = refused.points().expect_err(flag);
                assert!(refused.starts_with(&format!("--{flag}: is of --design ")), "{refused}");
                assert!(refused.ends_with(" alone"), "{refused}");
            }
            // Beside a design that has it, the scheduler runs once.
            let both = [("design", "hkh,lanes,tq"), (flag, value), ("load", "0.5,0.9")];
            assert_eq!(sweep(&both).expect("fits").points().expect("few").len(), 6, "{flag}");
        }
    }

    #[test]
    fn all_designs_have_a_name_together() {
        let designs = |names| {
            let points = sweep(&[("design", names)]).expect("fits").points().expect("few");
            points.iter().map(|(point, _)| point.row.text("design")).collect::<Vec<_>>()
        };
        assert_eq!(designs("all"), designs("lanes,minos,hkh,hkh-ws,sho,shinjuku,darc,tq,caladan"));
    }

    #[test]
    fn a_keys_owner_has_all_requests_for_it() {
        let flags = [("design", "hkh"), ("rate", "8e5"), ("requests", "20000")];
        let p99 = |more: &[(&str, &str)]| {
            let row = rows_of_file("trace", "1,a,20,90,1,get,0\n", &[&flags[..], more].concat());
            row[0].number("p99").expect("each row has it")
        };
        let (any, owner) = (p99(&[]), p99(&[("access", "erew")]));
        // One core of eight is busy to 91 %, or each to 11.
        assert!(any < 4.0 && owner > 10.0, "{any}, {owner}");
        assert_eq!(p99(&[("access", "crew")]), any, "it is never written");
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
    fn a_design_without_quanta_runs_once_whatever_they_are() {
        let flags = [("design", "lanes,tq"), ("quantum-us", "1,2"), ("load", "0.5,0.9")];
        let points = sweep(&flags).expect("fits").points().expect("few");
        let row = |(point, _): &(Point, u64)| {
            ["design", "quantum_us", "load"].map(|name| point.row.text(name)).join(" ")
        };
        let rows: Vec<String> = points.iter().map(row).collect();
        let of_tq = ["tq 1 0.5", "tq 1 0.9", "tq 2 0.5", "tq 2 0.9"];
        assert_eq!(rows[..2], ["lanes  0.5", "lanes  0.9"]);
        assert_eq!(rows[2..], of_tq);
    }

    #[test]
    fn a_dispatcher_spares_nothing_of_times_that_were_measured() {
        let flags = [("design", "darc,shinjuku"), ("load", "0.9"), ("requests", "50000")];
        for row in rows_of_file("service-file", "100 500\n", &flags) {
            let busy = row.number("cpu_busy").expect("each row has it");
            assert!((0.87..0.93).contains(&busy), "{busy}");
        }
    }

    #[test]
    fn rows_tell_losses_cores_and_what_all_domains_answer() {
        let rows = |flags: &[(&str, &str)]| {
            let all = [flags, &[("requests", "20000"), ("seeds", "1")]].concat();
            sweep(&all).expect("fits").run(&Study::new(Effort::Quick, 1, 2), None).expect("few")
        };
        let flags = [("design", "hkh"), ("rate", "3e6"), ("rx-queue", "1"), ("numa", "2")];
        let row = &rows(&flags)[0];
        let answered = row.number("answered_per_s").expect("each row has it");
        assert!((2.7e6..3.3e6).contains(&answered), "{answered}");
        assert!(row.number("lost").is_some_and(|lost| lost > 0.01));
        let row = &rows(&[("design", "caladan"), ("load", "0.3")])[0];
        assert!(row.number("cores_granted").is_some_and(|cores| (2.4..8.0).contains(&cores)));
        assert_eq!(row.number("lost"), None, "nothing could be");
    }

    /// Rows of a run of one seed on a file of this text.
    fn rows_of_file(flag: &str, text: &str, flags: &[(&str, &str)]) -> Vec<Row> {
        let (pid, thread) = (std::process::id(), std::thread::current().id());
        let name = format!("laneway-{flag}-{pid}-{thread:?}");
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("room for a few lines");
        let mut sweep = sweep(flags).expect("fits");
        sweep.set(flag, path.to_str().expect("plain")).expect("fits");
        sweep.set("seeds", "1").expect("fits");
        let rows = sweep.run(&Study::new(Effort::Quick, 1, 2), None);
        std::fs::remove_file(&path).expect("it is ours");
        rows.expect("few")
    }

    #[test]
    fn a_load_is_that_of_the_part_of_a_trace_that_is_replayed() {
        // Twenty thousand small requests, then as many large ones, of which a run sees none.
        let rows = |key: char, bytes: u32| format!("1,{key},20,{bytes},1,get,0\n").repeat(20_000);
        let text = rows('a', 100) + &rows('b', 100_000);
        let flags = [("requests", "10000"), ("load", "0.7"), ("design", "hkh,lanes")];
        for row in rows_of_file("trace", &text, &flags) {
            let busy = row.number("cpu_busy").expect("each row has it");
            // Taught by the whole trace, `lanes` has large workers that take small requests.
            assert!((0.65..0.85).contains(&busy), "{}", row.json());
        }
    }

    #[test]
    fn connections_are_those_of_the_pipelined_figure() {
        let flags = [
            ("connections", "32"),
            ("depth", "16"),
            ("workers", "1"),
            ("design", "hkh,lanes"),
            ("large-percent", "0.5"),
            ("load", "0.6"),
            ("requests", "40000"),
            ("seeds", "1"),
        ];
        let sweep = sweep(&flags).expect("fits");
        let points = sweep.points().expect("few");
        let streams = |urgency| Streams { connections: 32, burst: 16, turn: 7_680_000, urgency };
        let machines: Vec<_> = points.iter().map(|(point, _)| &point.machine).collect();
        assert_eq!(
            [machines[0].streams, machines[1].streams],
            [false, true].map(streams).map(Some)
        );
        for Machine { costs, reach, .. } in machines {
            assert_eq!((costs.request, costs.packet), (520_000, 300_000));
            assert_eq!(*reach, Reach::Offered);
        }
        let rows = sweep.run(&Study::new(Effort::Quick, 1, 2), None).expect("few");
        for row in &rows {
            // Where two pipelines meet on a connection, one turn is enough.
            let busy = row.number("cpu_busy").expect("each row has it");
            assert!((0.5..0.65).contains(&busy), "{}", row.json());
        }
        assert_eq!((&*rows[0].text("within_bound"), &*rows[1].text("within_bound")), ("", "true"));
    }

    #[test]
    fn a_turn_costs_nothing_beside_times_that_were_measured_unless_it_is_said() {
        let flags = [("connections", "1"), ("workers", "4"), ("load", "0.5"), ("design", "hkh")];
        let flags = [&flags[..], &[("requests", "20000")]].concat();
        for (turn, own) in [(None, 0.125), (Some(("turn-ns", "500")), 0.125)] {
            let flags: Vec<_> = flags.iter().copied().chain(turn).collect();
            let row = &rows_of_file("service-file", "100 500", &flags)[0];
            // One connection is one worker's, so that a load of a half is an eighth of four.
            let busy = row.number("cpu_busy").expect("each row has it");
            assert!((busy - own).abs() < 0.03, "{turn:?}: {}", row.json());
        }
    }

    #[test]
    fn a_run_has_a_row_for_each_point() {
        let flags =
            [("requests", "2000"), ("seeds", "2"), ("design", "hkh,lanes"), ("load", "0.2")];
        let study = Study::new(Effort::Quick, 1, 2);
        let rows = sweep(&flags).expect("fits").run(&study, None).expect("few");
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.number("p99").is_some_and(|p99| p99 > 1.0)));
        assert_eq!(rows[0].number("seeds"), Some(2.0));
    }

    #[test]
    fn a_sweep_that_was_broken_off_goes_on_where_it_stopped() {
        let folder = std::env::temp_dir().join(format!("laneway-run-{}", std::process::id()));
        let run = |loads: &str, seed: u64| {
            let flags = [("requests", "2000"), ("seeds", "2"), ("load", loads), ("k", "10")];
            let study = Study::new(Effort::Quick, seed, 2);
            let rows = sweep(&flags).expect("fits").run(&study, Some(&folder))?;
            Ok((rows.len(), study.speed().0))
        };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        let write = |text: &str| std::fs::write(folder.join("run.json"), text).expect("room");
        let (rows, simulated) = run("0.2,0.3,0.4,0.123456789", 1).expect("a whole run");
        let (json, csv) = (read("run.json"), read("run.csv"));
        assert_eq!((rows, json.lines().count()), (4, 4));
        // The rows of two points, in the order in which they ended, and a part of a third.
        let lines: Vec<&str> = json.lines().collect();
        write(&format!("{}\n{}\n{}", lines[3], lines[1], &lines[0][..90]));
        let again = run("0.2,0.3,0.4,0.123456789", 1).expect("the rest of it");
        assert_eq!(again.0, 4);
        assert!((simulated / 3..simulated * 2 / 3).contains(&again.1), "{again:?} of {simulated}");
        assert_eq!((&read("run.json"), &read("run.csv")), (&json, &csv));
        assert_eq!(run("0.2,0.3,0.4,0.123456789", 1).expect("all there"), (4, 0));
        for (loads, seed, text, words) in [
            ("0.2,0.3", 1, json.clone(), "line 1: a row of another sweep"),
            ("0.2,0.3,0.4,0.123456789", 2, json.clone(), "line 1: a row of another sweep"),
            ("0.2", 1, json.replace("run/1", "run/0"), "form \"laneway-sim-run/0\", not"),
            ("0.2", 1, "{\"figure\":\"run\"}\n".to_owned(), "form \"\", not"),
            ("0.2", 1, "once upon a time\n".to_owned(), "line 1: no row"),
            (
                "0.2,0.3,0.4,0.123456789",
                1,
                json.replace("\"point\":3", "\"point\":2"),
                "line 4: a row of no point of this sweep: point 2",
            ),
        ] {
            write(&text);
            let refused: String = run(loads, seed).expect_err(words);
            assert!(refused.contains(words) && refused.contains("another folder"), "{refused}");
            assert_eq!(read("run.json"), text, "nothing is mixed");
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
