//! Compares servers in adjacent pairs: `cargo xtask bench ID`.
//!
//! The speed of a machine drifts by a quarter within minutes, so a number on its own says little.
//! Here the servers that are compared are measured one right after the other, in rounds whose order
//! alternates; what counts is the ratio within a round, its median over the rounds and its spread.
//! A run in which the client could not keep its schedule is made again, and after a few tries its
//! whole round. The servers are pinned to
//! one CPU under a real-time scheduler, the client spins on another. docs/bench-method.md says why,
//! and what this cannot see. Definitions stand in bench/definitions, results go to bench/record.

pub mod bench;
pub mod definition;
pub mod lookaside;
pub mod memory;
pub mod namespace;
pub mod record;
pub mod rounds;
pub mod server;
pub mod statistics;

use definition::{Definition, Kind, RunDefinition};
use record::Record;
use server::{Places, Server};
use statistics::{Judged, judge};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How to run a definition.
#[derive(Debug, Clone)]
pub struct Options {
    /// The repository: holds bench/definitions and bench/record.
    pub root: PathBuf,
    /// The server's binary, built for release.
    pub laneway: PathBuf,
    /// Command and first arguments of the client; empty means `LANEWAY bench`.
    pub client: Vec<String>,
    /// Rounds, where not as many as the definition says.
    pub pairs: Option<usize>,
    /// Whether a missed bound is a failure.
    pub check: bool,
    /// Whether the result is appended to bench/record.
    pub record: bool,
}

impl Options {
    /// What `cargo xtask bench ID --check` wants, for a repository at `root`.
    pub fn new(root: &Path) -> Self {
        Options {
            root: root.to_owned(),
            laneway: root.join("target/release/laneway"),
            client: Vec::new(),
            pairs: None,
            check: true,
            record: true,
        }
    }
}

/// What one run of one round measured, for figures to point into.
pub type Measured = serde_json::Value;

/// One round: what each run measured, by its name.
pub type Round = BTreeMap<String, Measured>;

/// The identifiers that `root` has definitions of, with what each is about.
pub fn list(root: &Path) -> Result<Vec<(String, String)>, String> {
    definition::list(root)
}

/// Runs the definition `id`. Success means that it ran, and with `check` that every bound holds; a
/// definition that cannot be run is told on standard error and is a failure.
pub fn main(id: &str, options: &Options) -> ExitCode {
    match carry_out(id, options) {
        Ok(good) if good || !options.check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("bench {id}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(id: &str, options: &Options) -> Result<bool, String> {
    let mut definition = definition::read(&options.root, id)?;
    if let Some(pairs) = options.pairs {
        definition.pairs = pairs;
    }
    println!("{id}: {}", definition.about);
    let (rounds, versions) = collect(&definition, options)?;
    let judged = judge(&definition.figures, &rounds)?;
    print!("{}", statistics::render(&definition, &judged));
    let good = judged.iter().all(Judged::is_good);
    if options.record {
        let record = Record::new(id, &definition, options, versions, rounds, judged);
        let path = record.append(&options.root)?;
        println!("recorded in {path}");
    }
    println!("{id}: {}", if good { "PASS" } else { "FAIL" });
    Ok(good)
}

/// Starts the servers of a definition, makes its rounds and ends the servers. Returns what was
/// measured, and what each server calls its version.
pub fn collect(
    definition: &Definition,
    options: &Options,
) -> Result<(Vec<Round>, BTreeMap<String, String>), String> {
    let places = Places::new(options, definition)?;
    let mut comparison = Comparison {
        definition,
        options,
        places: &places,
        servers: BTreeMap::new(),
        versions: BTreeMap::new(),
    };
    comparison.prepare()?;
    let rounds = rounds::collect(definition.pairs, |number| comparison.round(number))?;
    Ok((rounds, std::mem::take(&mut comparison.versions)))
}

struct Comparison<'a> {
    definition: &'a Definition,
    options: &'a Options,
    places: &'a Places,
    /// Servers that stay up from round to round.
    servers: BTreeMap<String, Server>,
    versions: BTreeMap<String, String>,
}

impl Comparison<'_> {
    /// Starts and fills the servers that stay up.
    fn prepare(&mut self) -> Result<(), String> {
        if self.definition.kind != Kind::Bench {
            return Ok(());
        }
        for each in &self.definition.servers {
            let server = Server::start(each, self.places)?;
            let first = self.definition.runs.iter().find(|run| run.server == each.name);
            if let Some(run) = first {
                eprintln!("filling {}", each.name);
                bench::fill(self.definition, run, &server, self.options)?;
            }
            self.versions.insert(each.name.clone(), server.version()?);
            self.servers.insert(each.name.clone(), server);
        }
        Ok(())
    }

    /// One round; the inner error says why it does not count.
    fn round(&mut self, number: usize) -> Result<Result<Round, String>, String> {
        let mut round = Round::new();
        for run in rounds::order(&self.definition.runs, number) {
            let measured = match rounds::insist(|| self.measure(run, number))? {
                Ok(measured) => measured,
                Err(why) => return Ok(Err(format!("{}: {why}", run.name))),
            };
            eprintln!("{:>2} {}", number + 1, statistics::one_line(&run.name, &measured));
            round.insert(run.name.clone(), measured);
        }
        Ok(Ok(round))
    }

    fn measure(
        &mut self,
        run: &RunDefinition,
        number: usize,
    ) -> Result<Result<Measured, String>, String> {
        if self.definition.kind == Kind::Bench {
            let server = &self.servers[&run.server];
            return bench::measure(self.definition, run, server, self.options, number);
        }
        let server = Server::start(self.definition.server(run), self.places)?;
        self.versions.insert(run.server.clone(), server.version()?);
        let seed = number as u64;
        match self.definition.kind {
            Kind::Memory => memory::measure(run, &server).map(Ok),
            _ => lookaside::measure(self.definition, run, &server, seed).map(Ok),
        }
    }
}
