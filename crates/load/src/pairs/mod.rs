//! Compares servers in adjacent pairs: `cargo xtask bench ID`.
//!
//! The speed of a machine drifts by a quarter within minutes, so a number on its own says little.
//! Here the servers that are compared are measured one right after the other, in rounds whose order
//! alternates; what counts is the ratio within a round, its median over the rounds and its spread.
//! Each run waits for a quiet host first. One in which the client could not keep its schedule is
//! made again, and after a few tries its whole round; the record keeps how many and why.
//! The servers are pinned to one CPU, under a real-time scheduler unless the definition says
//! otherwise, the client spins on another; each server is stopped while others are measured.
//! docs/bench-method.md says why, and what this cannot see. Definitions stand in bench/definitions,
//! results go to bench/record.

pub mod backup;
pub mod balance;
pub mod bench;
pub mod builtin;
pub mod counts;
pub mod definition;
pub mod host;
pub mod lookaside;
pub mod memory;
pub mod namespace;
mod process;
pub mod record;
pub mod rounds;
pub mod scrape;
pub mod server;
pub mod statistics;

use bench::Client;
use definition::{Definition, Kind, RunDefinition, ServerDefinition};
use record::{Made, Record, Rejected};
use serde_json::json;
use server::{Places, Server};
use statistics::judge_what_is_there;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a run waits for a quiet host at most, where it may.
const QUIET_WITHIN: Duration = Duration::from_secs(60);
/// The same, where the whole has to come to an end.
const QUIET_WITHIN_QUICK: Duration = Duration::from_secs(3);

/// How to run a definition.
#[derive(Debug, Clone)]
pub struct Options {
    /// The repository: holds bench/definitions and bench/record.
    pub root: PathBuf,
    /// The server's binary, built for release.
    pub laneway: PathBuf,
    /// Where the programs of servers are looked for before the PATH: `cargo xtask peers` puts
    /// today's memcached, Valkey and Redis there.
    pub peers: PathBuf,
    /// Command and first arguments of the client; empty means `LANEWAY bench`.
    pub client: Vec<String>,
    /// Rounds, where not as many as the definition says.
    pub pairs: Option<usize>,
    /// Flags of programs, after those that their commands have.
    pub with: String,
    /// Whether a missed bound is a failure.
    pub check: bool,
    /// Whether the result is appended to bench/record.
    pub record: bool,
    /// What becomes of runs that do not count.
    pub patience: Patience,
}

/// Where `cargo xtask peers` puts programs, from the root of a repository.
pub const PEERS: &str = "target/peers/bin";

/// Where certificates for servers that encrypt are, from the root of a repository.
pub const TLS: &str = "target/bench-tls";

/// Who signed them.
pub fn tls_ca(root: &Path) -> PathBuf {
    root.join(TLS).join("ca.pem")
}

/// Where the server that records nothing for operators is built, from the root of a repository.
pub const UNOBSERVED: &str = "target/unobserved";

/// That server, once `cargo xtask bench` has built it.
pub fn unobserved(root: &Path) -> PathBuf {
    root.join(UNOBSERVED).join("release/laneway")
}

/// What becomes of a run that does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is made again, then its round; in the end the comparison is given up.
    Insist,
    /// It is made once more, if it is not this late, and then kept with the doubt and without its
    /// latencies. No further round is begun that would end later.
    Until(Instant),
}

/// Why a run does not count, and what it measured all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubt {
    /// In words.
    pub why: String,
    /// As [`Measured`].
    pub measured: Measured,
}

/// What came of a run: the inner error says why it does not count.
pub type Attempt = Result<Result<Measured, Doubt>, String>;

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl Doubt {
    /// What was measured, without the latencies and with the doubt beside the rest.
    pub(crate) fn kept(self) -> Measured {
        let mut measured = self.measured;
        // Those of a run's parts, too: a comparison beside a noisy neighbour is made of them.
        for field in ["latency_us", "quiet", "phases", "distribution"] {
            measured[field] = Measured::Null;
        }
        measured["doubt"] = self.why.into();
        measured
    }
}

impl Options {
    /// What `cargo xtask bench ID --check` wants, for a repository at `root`.
    pub fn new(root: &Path) -> Self {
        Options {
            root: root.to_owned(),
            laneway: root.join("target/release/laneway"),
            peers: root.join(PEERS),
            client: Vec::new(),
            pairs: None,
            with: String::new(),
            check: true,
            record: true,
            patience: Patience::Insist,
        }
    }
}

/// What one run of one round measured, for figures to point into.
pub type Measured = serde_json::Value;

/// One round: what each run measured, by its name.
pub type Round = BTreeMap<String, Measured>;

/// The programs that a definition runs and that are built apart from the server, by the first words
/// of their commands.
pub fn programs(definition: &Definition) -> BTreeSet<String> {
    let runs = definition.runs.iter().filter(|run| definition.kind_of(run) == Kind::Program);
    let first = |run: &RunDefinition| run.command.split_whitespace().next().map(str::to_owned);
    runs.filter_map(first).collect()
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
    if !options.with.is_empty() {
        // Behind all other flags of every run, so that the record has them too.
        let with = &options.with;
        let mut runs = definition.runs.iter();
        if let Some(run) = runs.find(|run| definition.kind_of(run) != Kind::Program) {
            let name = &run.name;
            return Err(format!("--with {with}: only for programs of their own; {name} is none"));
        }
        for run in &mut definition.runs {
            run.load = format!("{} {with}", run.load).trim_start().to_owned();
        }
    }
    println!("{id}: {}", definition.about);
    let collected = collect(&definition, options)?;
    let judged = judge_what_is_there(&definition.figures, &collected.rounds);
    print!("{}", statistics::render(collected.rounds.len(), &judged));
    let good = statistics::all_good(&definition, &judged, collected.rounds.len());
    println!("{}", collected.made.told());
    if options.record {
        let record = Record::new(id, &definition, options, collected, judged);
        let path = record.append(&options.root)?;
        println!("recorded in {path}");
    }
    println!("{id}: {}", if good { "PASS" } else { "FAIL" });
    Ok(good)
}

/// What came of a definition.
#[derive(Debug, Default)]
pub struct Collected {
    /// What was measured.
    pub rounds: Vec<Round>,
    /// What each server calls its version.
    pub versions: BTreeMap<String, String>,
    /// Whether the servers ran under SCHED_FIFO.
    pub real_time: bool,
    /// Runs that broke and were passed over ([`Patience::Until`]), and how.
    pub failures: Vec<String>,
    /// How many runs were made for that, and which did not count.
    pub made: Made,
}

/// Starts the servers of a definition, makes its rounds and ends the servers.
pub fn collect(definition: &Definition, options: &Options) -> Result<Collected, String> {
    let places = Places::new(options, definition)?;
    let mut comparison = Comparison {
        definition,
        options,
        places: &places,
        servers: BTreeMap::new(),
        collected: Collected { real_time: places.real_time, ..Collected::default() },
    };
    comparison.prepare()?;
    let began = Instant::now();
    let is_enough = |made: usize| match options.patience {
        Patience::Insist => false,
        Patience::Until(latest) => Instant::now() + began.elapsed() / made as u32 > latest,
    };
    let wanted = options.pairs.unwrap_or(definition.pairs);
    let rounds = rounds::collect(wanted, is_enough, |number| comparison.round(number))?;
    let mut collected = comparison.collected;
    collected.made.kept = rounds.iter().map(|round| round.len() as u64).sum();
    Ok(Collected { rounds, ..collected })
}

/// What was measured, doubtful or not.
fn measured_of(outcome: &mut Result<Measured, Doubt>) -> &mut Measured {
    outcome.as_mut().unwrap_or_else(|doubt| &mut doubt.measured)
}

struct Comparison<'a> {
    definition: &'a Definition,
    options: &'a Options,
    places: &'a Places,
    /// Servers that stay up from round to round.
    servers: BTreeMap<String, Server>,
    collected: Collected,
}

impl Comparison<'_> {
    /// Starts and fills the servers that stay up.
    fn prepare(&mut self) -> Result<(), String> {
        for each in &self.definition.servers {
            let runs = self.definition.runs.iter().filter(|run| run.server == each.name);
            let runs: Vec<&RunDefinition> =
                runs.filter(|run| self.definition.kind_of(run) == Kind::Bench).collect();
            if runs.is_empty() {
                continue;
            }
            match self.start(each, &runs) {
                Ok((server, version)) => {
                    self.collected.versions.insert(each.name.clone(), version);
                    self.servers.insert(each.name.clone(), server);
                }
                // The others can be measured without it.
                Err(failure) if self.options.patience != Patience::Insist => {
                    eprintln!("{} takes no part: {failure}", each.name);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Starts a server and fills it; with what it calls its version.
    fn start(
        &self,
        each: &ServerDefinition,
        runs: &[&RunDefinition],
    ) -> Result<(Server, String), String> {
        let mut server = Server::start(each, self.places)?;
        let version = server.while_awake(|| {
            self.fill(&each.name, runs, &server)?;
            server.version()
        });
        match version {
            Ok(version) => Ok((server, version)),
            Err(failure) => match server.ended() {
                Some(ended) => Err(format!("{} {ended}", each.name)),
                None => Err(failure),
            },
        }
    }

    /// Writes everything that the runs of a server ask for.
    fn fill(&self, name: &str, runs: &[&RunDefinition], server: &Server) -> Result<(), String> {
        let mut filled = Vec::new();
        for run in runs {
            let data = self.definition.plan(run)?.workload.options().data();
            if !filled.contains(&data) {
                eprintln!("filling {name}");
                bench::fill(self.client(run, server))?;
                filled.push(data);
            }
        }
        Ok(())
    }

    /// One round; the inner error says why it does not count.
    fn round(&mut self, number: usize) -> Result<Result<Round, String>, String> {
        let mut round = Round::new();
        for run in rounds::order(&self.definition.runs, number) {
            let tries = match self.options.patience {
                Patience::Insist => rounds::TRIES_PER_RUN,
                Patience::Until(latest) => 1 + usize::from(Instant::now() < latest),
            };
            let is_patient = self.options.patience != Patience::Insist;
            let measured = match rounds::insist(tries, || self.attempt(run, number)) {
                Ok(Ok(measured)) => measured,
                Ok(Err(doubt)) if is_patient => {
                    eprintln!("   {}: no latencies: {doubt}", run.name);
                    doubt.kept()
                }
                Ok(Err(doubt)) => return Ok(Err(format!("{}: {doubt}", run.name))),
                // What others measured is not thrown away because one broke.
                Err(failure) if is_patient => {
                    eprintln!("   {}: FAILED: {failure}", run.name);
                    self.collected.failures.push(failure.clone());
                    json!({ "doubt": format!("FAILED: {failure}") })
                }
                Err(failure) => return Err(failure),
            };
            let figures = &self.definition.figures;
            eprintln!("{:>2} {}", number + 1, statistics::one_line(&run.name, &measured, figures));
            round.insert(run.name.clone(), measured);
        }
        Ok(Ok(round))
    }

    fn client<'a>(&'a self, run: &'a RunDefinition, server: &'a Server) -> Client<'a> {
        Client { definition: self.definition, run, server, options: self.options }
    }

    /// One run of `laneway bench`, beside what the parts of the server counted meanwhile, and what
    /// scrapes of its metrics took where it has an endpoint for them; with backups meanwhile, where
    /// the run is to have them.
    fn bench(&self, run: &RunDefinition, number: usize) -> Attempt {
        let (server, definition) = (&self.servers[&run.server], self.definition.server(run));
        let before = counts::counts(definition, server)?;
        let alone = || bench::measure(self.client(run, server), number);
        let measure = || match run.backup {
            true => {
                let cpu = self.definition.place.server_cpu();
                backup::meanwhile(self.options, server, number, cpu, alone)
            }
            false => alone(),
        };
        let mut measured = match &server.admin {
            None => measure()?,
            Some(admin) => {
                let (mut measured, scraped) = scrape::meanwhile(server, admin, measure)?;
                measured_of(&mut measured)["scrape"] = scraped;
                measured
            }
        };
        let after = counts::counts(definition, server)?;
        counts::put(&before, &after, measured_of(&mut measured));
        Ok(measured)
    }

    /// Makes a run when the host is quiet, and counts it.
    fn attempt(&mut self, run: &RunDefinition, number: usize) -> Attempt {
        if self.definition.kind_of(run) == Kind::Bench {
            if !self.servers.contains_key(&run.server) {
                return Err(format!("{} takes no part: it did not start", run.server));
            }
            self.collected.made.host.wait_until_quiet(match self.options.patience {
                Patience::Insist => QUIET_WITHIN,
                Patience::Until(_) => QUIET_WITHIN_QUICK,
            });
        }
        self.collected.made.runs += 1;
        let outcome = self.measure(run, number)?;
        if let Err(doubt) = &outcome {
            let (run, why) = (run.name.clone(), doubt.why.clone());
            self.collected.made.rejected.push(Rejected { round: number, run, why });
        }
        Ok(outcome)
    }

    fn measure(&mut self, run: &RunDefinition, number: usize) -> Attempt {
        let kind = self.definition.kind_of(run);
        if kind == Kind::Bench {
            let server = &self.servers[&run.server];
            return server.while_awake(|| self.bench(run, number)).map_err(|failure| {
                // A client only says that its server is gone; the status says how it ended.
                let ended = self.servers.get_mut(&run.server).and_then(Server::ended);
                ended.map_or(failure, |ended| format!("{} {ended}", run.server))
            });
        }
        if kind == Kind::Program {
            // It runs where the servers run, pinned and scheduled as they are, and prints JSON.
            let line = [run.command.as_str(), &self.definition.load, &run.load].join(" ");
            let shown = format!("{} ({})", run.name, line.trim_end());
            let told = process::command(&self.places.around(&line)).output();
            let told = process::printed(told, &shown)?;
            let measured = serde_json::from_str(told.trim());
            return measured.map(Ok).map_err(|error| format!("{shown}: {error}: {told}"));
        }
        let server = Server::start(self.definition.server(run), self.places)?;
        self.collected.versions.insert(run.server.clone(), server.version()?);
        let seed = number as u64;
        match kind {
            Kind::Memory => memory::measure(run, &server).map(Ok),
            Kind::Balance => balance::measure(self.definition, run, &server, seed).map(Ok),
            _ => lookaside::measure(self.definition, run, &server, seed).map(Ok),
        }
    }
}
