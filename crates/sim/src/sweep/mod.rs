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

pub use axes::{help, number, whole};

use crate::inputs::Inputs;
use crate::machine::{Central, Machine, Outcome};
use crate::report;
use crate::row::{Cell, Row};
use crate::scenarios::{NETWORK, Setup};
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
const OWN: [(&str, &str); 4] = [
    ("workload", "service-file trace large-percent large-bytes-max k get-share keys zipf"),
    ("service-file", "trace large-percent large-bytes-max k way request-ns packet-ns profile"),
    ("trace", "large-percent large-bytes-max k get-share keys zipf"),
    (
        "connections",
        "access way reach queue batch slice-order steal-queue-min steal-requests-max \
         steal-when-idle slices-unsent-max handoff-ns steal-ns",
    ),
];

/// Flags of some designs alone: other designs of a sweep run once whatever these say.
const OF_DESIGNS: [(&str, &str); 8] = [
    ("shinjuku tq", "quantum-us preempt-ns"),
    ("caladan", "look-us grant-us search-us"),
    ("sho", "handoff-workers"),
    ("minos", "extra-large standby"),
    ("lanes", "slice-bytes slice-order slice-ns slices-unsent-max urgency"),
    ("hkh", "access keys zipf"),
    ("lanes minos", "percentile threshold cost"),
    (
        PLANNED,
        "epoch-requests workers-large steal-queue-min steal-requests-max steal-when-idle batch \
         queue reach handoff-ns",
    ),
];

/// Designs whose workers ask the policies; the others have a scheduler instead.
const PLANNED: &str = "lanes minos hkh hkh-ws sho";

/// What flags say something of, which ones, and what to do where it is not given.
const NEEDS: [(&str, &str, &str); 7] = [
    ("access", "keys zipf", "keys have no owners; give --access erew or crew"),
    ("nic-gbit", "nic-order nic-burst tx-queues", "there is no wire; give --nic-gbit"),
    ("burst-factor", "burst-share burst-us", "there are no bursts; give a --burst-factor above 1"),
    ("rx-queue", "retry-us", "nothing is lost; give a --rx-queue"),
    ("numa", "numa-strays numa-ns", "there is one domain; give a --numa above 1"),
    ("shared-lines", "line-spread line-ns", "there are no shared lines; give --shared-lines"),
    ("connections", "depth turn-ns urgency", "there are no connections; give --connections"),
];

/// Whether a list separated by spaces has this word.
fn lists(words: &str, word: &str) -> bool {
    words.split(' ').any(|other| other == word)
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
        let scheduled = |design: &String| !lists(PLANNED, design);
        let apart = ["connections", "numa"].iter().any(|name| self.given(name).is_some());
        !apart && !self.given("design").is_some_and(|all| all.iter().any(scheduled))
    }

    /// Give a parameter these values; what was given last counts.
    pub fn set_all(&mut self, name: &str, mut values: Vec<String>) -> Result<(), String> {
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

    /// What the first value of each parameter says of the machine of the figures.
    pub fn setup(&self) -> Result<Setup, String> {
        let mut spec = Spec::new();
        spec.machine.network = NETWORK;
        for (place, values) in &self.values {
            (AXES[*place].read)(&mut spec, &values[0])?;
        }
        let (nic, profiles) = (spec.nic, spec.profiles_all);
        let Machine { settings, costs, reach, network, batch, standby, .. } = spec.machine;
        let workers = settings.workers;
        Ok(Setup { workers, costs, reach, nic, network, batch, standby, profiles })
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
            let other = others.split(' ').find(|other| given(other));
            if let (true, Some(other)) = (given(file), other) {
                return Err(format!("--{other}: --{file} has its own; leave one of the two out"));
            }
        }
        let default = [Design::default().name().to_owned()];
        let designs = self.given("design").unwrap_or(&default);
        for (own, flags) in OF_DESIGNS {
            let has = designs.iter().any(|design| lists(own, design));
            if let Some(flag) = flags.split(' ').find(|flag| !has && given(flag)) {
                let own = own.replace(' ', " or ");
                return Err(format!("--{flag}: is of --design {own} alone"));
            }
        }
        for (needs, flags, words) in NEEDS {
            if let Some(flag) = flags.split(' ').find(|flag| !given(needs) && given(flag)) {
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
            let own = OF_DESIGNS.iter().find(|(_, flags)| lists(flags, axis.name));
            if own.is_none_or(|(own, _)| lists(own, design)) {
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

impl Default for Setup {
    fn default() -> Self {
        Sweep::default().setup().expect("nothing is wrong with parameters that are left out")
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
mod tests;
