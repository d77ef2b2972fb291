//! What is compared: a file of bench/definitions, read and checked.

use crate::cli;
use crate::cpu::SERVER_CPU;
use crate::dialect::Dialect;
use crate::run::Plan;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Which measurement a definition's runs make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `laneway bench` against servers that stay up; figures point into a run of its report.
    #[default]
    Bench,
    /// Resident bytes per item of a fresh server.
    Memory,
    /// Miss ratio of a fresh server as a look-aside cache, after the sizes of `phases`.
    Lookaside,
    /// How evenly a fresh server's workers are loaded, and how soon hot keys are found.
    Balance,
    /// A program of its own that prints what it measured; no server.
    Program,
}

/// A file of bench/definitions: a line for each server, run and figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// One line for people.
    pub about: String,
    /// Which measurement.
    #[serde(default)]
    pub kind: Kind,
    /// Rounds.
    #[serde(default = "count::<5>")]
    pub pairs: usize,
    /// Flags of the client, or of the programs, that all runs share.
    #[serde(default)]
    pub load: String,
    /// `-m` of the servers, put where their commands say `{memory}`.
    #[serde(default = "number::<2048>")]
    pub memory_mb: u64,
    /// Largest share of late requests in a run that counts.
    #[serde(default = "thousandths::<5>")]
    pub late_share_max: f64,
    /// Largest share of the time in which others may have the client's CPU in a run that counts.
    #[serde(default = "thousandths::<30>")]
    pub waited_share_max: f64,
    /// Smallest share of quiet laps (see [`crate::laps`]) in a run that counts.
    #[serde(default)]
    pub quiet_laps_share_min: f64,
    /// Older records have it; a run in which the server fell behind always counts now, without
    /// latencies.
    #[serde(default, skip_serializing)]
    pub overload_counts: bool,
    /// Where it is measured.
    #[serde(default)]
    pub place: Place,
    /// Whether every GET must hit.
    #[serde(default)]
    pub no_misses: bool,
    /// Older records have it; what a comparison of a minute runs is said by each run's `load`.
    #[serde(default, skip_serializing)]
    pub quick_load: String,
    /// Cargo features that laneway is built with, besides the default ones.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub features: String,
    /// Who is measured.
    #[serde(rename = "server", default)]
    pub servers: Vec<ServerDefinition>,
    /// What is measured of them, in the order of even rounds.
    #[serde(rename = "run")]
    pub runs: Vec<RunDefinition>,
    /// What is made of it.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// Where servers and client are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The servers are in a network namespace of their own, behind a veth pair (needs root);
    /// otherwise on the loopback.
    #[serde(default)]
    pub netns: bool,
    /// Programs have every CPU and the ordinary scheduler; otherwise one, under SCHED_FIFO. For
    /// what has threads of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_cpu: bool,
    /// Programs have their one CPU under the ordinary scheduler, and what works beside them has it,
    /// too; the client has the other. For servers that spin, from whom the kernel takes real time
    /// away, and for those that have more to do than to answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordinary: bool,
}

impl Place {
    /// The CPU of the servers and of what works beside them; none where all have every CPU.
    pub fn server_cpu(&self) -> Option<usize> {
        (!self.every_cpu).then_some(SERVER_CPU)
    }
}

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerDefinition {
    /// Its name in this file.
    pub name: String,
    /// Its command line: words between spaces, `''` for an empty one, and `{laneway}`,
    /// `{unobserved}` (built to record nothing for operators), `{port}` or `{socket}`, `{next}`
    /// (the port after that), `{door}` (for `--shm`), `{data}` (for `--data-dir`: a folder on a
    /// disk, removed afterwards), `{copies}` (for `--backup-dir`: another one beside it), `{tls}`,
    /// `{host}` and `{memory}` replaced. Of a server with `--admin ADDRESS` metrics are scraped
    /// while it is measured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Where it runs already, instead of a command: somebody else started it and will end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What it speaks.
    #[serde(default)]
    pub dialect: Dialect,
    /// Whether it encrypts, with the certificate `{tls}/cert.pem`, its key `{tls}/key.pem`, and
    /// `{tls}/ca.pem` of who signed it: `cargo xtask bench` has them made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// Records of 2026-11 say it of a server that was stopped but for its own runs. Today each is.
    #[serde(default, skip_serializing)]
    pub spins: bool,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDefinition {
    /// Its name in this file.
    pub name: String,
    /// Whom it measures.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// Program: its command line, with `{examples}` replaced by the folder of built examples and
    /// `{release}` by that of laneway itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Which measurement, where not that of the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Whether it is made where there is only a minute.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub quick: bool,
    /// Bench: whether the server's data folder is copied by `laneway backup` meanwhile, again and
    /// again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backup: bool,
    /// Flags of the client, or of the program, after those that all runs share.
    #[serde(default)]
    pub load: String,
    /// Look-aside: sizes of values, one after the other; empty means as `load` says.
    #[serde(default)]
    pub phases: Vec<u64>,
    /// Look-aside: whether the SETs and DELETEs of the mix are made too, beside those that fill.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// Look-aside: what each phase writes, in units of the server's memory.
    #[serde(default = "thousandths::<2000>")]
    pub written_over_memory: f64,
    /// Look-aside: GETs measured after that. Memory: items. Balance: requests.
    #[serde(default = "number::<1000000>")]
    pub requests: u64,
    /// Memory: bytes of a key.
    #[serde(default = "count::<16>")]
    pub key_bytes: usize,
    /// Memory: bytes of a value.
    #[serde(default = "number::<100>")]
    pub value_bytes: u64,
}

/// One number and its bound.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In words.
    pub name: String,
    /// Where it stands in what a run measured, such as `/latency_us/small/p99`.
    pub value: String,
    /// The run.
    pub of: String,
    /// The run it is divided by; without one, it stands alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// Runs of which the largest value of the round is what it is divided by, instead of `over`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_best: Vec<String>,
    /// Two runs whose quotient, the first's value over the second's, it is divided by as well: a
    /// ratio held against another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<(String, String)>,
    /// Its bound from above; without one, it is only printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Its bound from below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Whether its bounds must hold in every round, and not only for the median: a condition
    /// without which a round shows nothing, such as that large values came from the disk at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_round: bool,
    /// The figure that holds a rival against itself, in the same rounds. Where that one strays from
    /// 1 by more than this one's bound does, the machine is too noisy for a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<String>,
}

impl Figure {
    /// Every run that it looks at.
    pub fn runs(&self) -> impl Iterator<Item = &String> {
        let against = self.against.iter().flat_map(|(first, second)| [first, second]);
        std::iter::once(&self.of).chain(&self.over).chain(&self.over_best).chain(against)
    }

    /// Whether it is a quotient, and not a number with a unit.
    pub fn is_ratio(&self) -> bool {
        self.over.is_some() || !self.over_best.is_empty()
    }

    /// Its bounds in words, if there are any.
    pub fn bounds(&self) -> Option<String> {
        match (self.at_least, self.at_most) {
            (None, None) => None,
            (None, Some(most)) => Some(format!("{most}")),
            (Some(least), None) => Some(format!("≥ {least}")),
            (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        }
    }
}

fn number<const N: u64>() -> u64 {
    N
}
fn count<const N: usize>() -> usize {
    N
}
fn thousandths<const N: u16>() -> f64 {
    f64::from(N) / 1e3
}
fn yes() -> bool {
    true
}

impl Definition {
    /// The server of a run; [`parse`] saw to it that there is one.
    pub fn server(&self, run: &RunDefinition) -> &ServerDefinition {
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.name == run.server)
            .unwrap_or_else(|| unreachable!("a run of no server passed the check"))
    }

    /// Which measurement a run makes.
    pub fn kind_of(&self, run: &RunDefinition) -> Kind {
        run.kind.unwrap_or(self.kind)
    }

    /// What a run asks for, as the client's flags say it.
    pub fn plan(&self, run: &RunDefinition) -> Result<Plan, String> {
        let load = format!("{} {}", self.load, run.load);
        let words = shlex::split(&load)
            .ok_or_else(|| format!("run {}: a quote of {load:?} has no end", run.name))?;
        cli::plan(words).map_err(|error| format!("run {}: {error}", run.name))
    }
}

/// Reads the definition `id` below `root`.
pub fn read(root: &Path, id: &str) -> Result<Definition, String> {
    let known = || {
        let ids = list(root).unwrap_or_default();
        ids.into_iter().map(|(id, _)| id).collect::<Vec<_>>().join(" ")
    };
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("not an identifier; there are {}", known()));
    }
    let name = format!("bench/definitions/{id}.toml");
    let text = std::fs::read_to_string(root.join(&name))
        .map_err(|error| format!("{name}: {error}; there are {}", known()))?;
    parse(&text).map_err(|error| format!("{name}: {error}"))
}

/// Every definition below `root`: its identifier and what it is about.
pub fn list(root: &Path) -> Result<Vec<(String, String)>, String> {
    let folder = root.join("bench/definitions");
    let failed = |error: std::io::Error| format!("bench/definitions: {error}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).map_err(failed)?;
        let definition =
            parse(&text).map_err(|error| format!("bench/definitions/{id}.toml: {error}"))?;
        found.push((id, definition.about));
    }
    found.sort();
    Ok(found)
}

/// Reads and checks the text of a definition.
pub fn parse(text: &str) -> Result<Definition, String> {
    let definition: Definition = toml::from_str(text).map_err(|error| error.to_string())?;
    if definition.pairs == 0 || definition.runs.is_empty() {
        return Err("needs at least one pair and one run".into());
    }
    if definition.place.every_cpu && definition.place.ordinary {
        return Err("place: every_cpu or ordinary, not both".into());
    }
    for run in &definition.runs {
        let server = definition.servers.iter().find(|server| server.name == run.server);
        let has_copies = server.is_some_and(|server| server.command.contains("--backup-dir"));
        if run.backup && !(definition.kind_of(run) == Kind::Bench && has_copies) {
            return Err(format!(
                "run {}: a backup is made while a server with --backup-dir is benched",
                run.name
            ));
        }
        if definition.kind_of(run) == Kind::Program {
            if run.command.is_empty() {
                return Err(format!("run {}: a program needs a command", run.name));
            }
            continue;
        }
        if server.is_none() {
            return Err(format!("run {}: there is no server {}", run.name, run.server));
        }
        definition.plan(run)?;
    }
    for server in &definition.servers {
        if server.command.is_empty() == server.address.is_none() {
            return Err(format!("server {}: needs a command or an address", server.name));
        }
    }
    for figure in &definition.figures {
        if figure.over.is_some() && !figure.over_best.is_empty() {
            return Err(format!("figure {}: over or over_best, not both", figure.name));
        }
        if let Some(null) = &figure.null
            && !definition.figures.iter().any(|other| other.name == *null && other.is_ratio())
        {
            return Err(format!("figure {}: there is no ratio called {null}", figure.name));
        }
        for name in figure.runs() {
            if !definition.runs.iter().any(|run| run.name == *name) {
                return Err(format!("figure {}: there is no run {name}", figure.name));
            }
        }
    }
    Ok(definition)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const GOOD: &str = r#"
        about = "a test"
        load = "--rate 1000"
        [[server]]
        name = "one"
        command = "{laneway} serve -p {port}"
        [[run]]
        name = "first"
        server = "one"
        load = "--p-large 0"
        [[figure]]
        name = "p99"
        value = "/latency_us/small/p99"
        of = "first"
        at_most = 2.0
    "#;

    /// A good one.
    pub fn example() -> Definition {
        parse(GOOD).expect("good")
    }

    #[test]
    fn a_wrong_definition_says_where() {
        for (from, to, words) in [
            ("server = \"one\"", "server = \"two\"", "run first: there is no server two"),
            ("of = \"first\"", "of = \"last\"", "figure p99: there is no run last"),
            ("--rate 1000", "--rote 1000", "run first: --rote: no such flag"),
            ("command = \"{laneway} serve -p {port}\"", "", "server one: needs a command or"),
            ("about", "abuot", "abuot"),
            ("at_most = 2.0", "over_best = [\"last\"]", "figure p99: there is no run last"),
            ("at_most = 2.0", "against = [\"first\", \"x\"]", "figure p99: there is no run x"),
            (
                "at_most = 2.0",
                "over = \"first\"\nover_best = [\"first\"]",
                "figure p99: over or over_best",
            ),
            ("at_most = 2.0", "null = \"self\"", "figure p99: there is no ratio called self"),
            ("[[figure]]", "pears = 5\n[[figure]]", "pears"),
            ("name = \"first\"", "backup = true\nname = \"first\"", "run first: a backup is made"),
            (
                "about",
                "place = { every_cpu = true, ordinary = true }\nabout",
                "place: every_cpu or ordinary",
            ),
        ] {
            let message = parse(&GOOD.replace(from, to)).expect_err(words);
            assert!(message.contains(words), "{message}");
        }
    }
}
