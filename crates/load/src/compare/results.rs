//! What a comparison found, in the order of the page: lines and loads out of runs' names, medians
//! over the rounds, and what must be said of a run beside its numbers.

use super::targets::AT;
use crate::pairs::definition::{Kind, RunDefinition};
use crate::pairs::record::Record;
use crate::pairs::{Measured, server::words};
use crate::report::json::Mode;
use crate::report::table::median;
use std::fmt::Write;

/// Below this share of its CPU a server that a closed loop kept asking was not what limited it.
const BUSY_SHARE_MIN: f64 = 0.9;
/// From so many in flight on a loop says what a server can do at most.
const DEPTH_PEAK: usize = 8;

/// The line and the load that a run's name says; the whole name and nothing where it says neither.
pub fn parts(name: &str) -> (&str, &str) {
    name.split_once(AT).unwrap_or((name, ""))
}

/// The median of values, with the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// In the middle.
    pub median: f64,
    /// Smallest.
    pub least: f64,
    /// Largest.
    pub most: f64,
}

impl Spread {
    /// Of values; nothing of none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Spread { median: median(&values), least, most })
    }

    /// As text: the median, and from where to where the values went, if they differ.
    pub fn words(&self, digits: usize) -> String {
        let one = |value: f64| format!("{value:.digits$}");
        match one(self.least) == one(self.most) {
            true => one(self.median),
            false => {
                format!("{} [{}..{}]", one(self.median), one(self.least), one(self.most))
            }
        }
    }
}

/// A record, to be asked.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    /// It.
    pub record: &'a Record,
}

impl Results<'_> {
    /// The runs as they were asked for.
    pub fn runs(&self) -> &[RunDefinition] {
        &self.record.definition.runs
    }

    /// The lines, in the order of the definition.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines = Vec::new();
        for run in self.runs() {
            let (line, _) = parts(&run.name);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// The run of a line at a load.
    pub fn run(&self, line: &str, at: &str) -> Option<&RunDefinition> {
        self.runs().iter().find(|run| parts(&run.name) == (line, at))
    }

    /// What every round measured in a run.
    pub fn measured(&self, run: &RunDefinition) -> Vec<&Measured> {
        self.record.rounds.iter().filter_map(|round| round.get(&run.name)).collect()
    }

    /// Whether no run of any round counts.
    pub fn are_all_in_doubt(&self) -> bool {
        let mut all = self.record.rounds.iter().flat_map(|round| round.values());
        all.all(|run| run.get("doubt").is_some())
    }

    /// A number of a run over the rounds that have it.
    pub fn spread(&self, run: &RunDefinition, pointer: &str) -> Option<Spread> {
        let measured = self.measured(run).into_iter();
        Spread::of(measured.filter_map(|one| one.pointer(pointer)?.as_f64()).collect())
    }

    /// The loads that are rates, with their names, in ascending order.
    pub fn rates(&self) -> Vec<(f64, &str)> {
        let mut rates: Vec<(f64, &str)> = Vec::new();
        for run in self.runs().iter().filter(|run| self.kind(run) == Kind::Bench) {
            let (_, at) = parts(&run.name);
            if let Ok(rate) = at.parse()
                && !rates.iter().any(|(_, known)| *known == at)
            {
                rates.push((rate, at));
            }
        }
        rates.sort_by(|one, other| one.0.total_cmp(&other.0));
        rates
    }

    /// The rate at which most lines have distributions, the highest of several: what a picture of
    /// distributions shows.
    pub fn rate_of_all(&self) -> Option<&str> {
        let lines = self.lines();
        let having = |at: &str| {
            let runs = lines.iter().filter_map(|line| self.run(line, at));
            runs.filter(|run| !self.distribution(run, "small").is_empty()).count()
        };
        let rates = self.rates();
        let most = rates.iter().map(|(_, at)| having(at)).max().filter(|&most| most > 0)?;
        rates.iter().rev().find(|(_, at)| having(at) == most).map(|(_, at)| *at)
    }

    /// A run's distribution: at every share the median over the rounds.
    pub fn distribution(&self, run: &RunDefinition, class: &str) -> Vec<(f64, f64)> {
        let point = |value: &Measured| Some((value.get(0)?.as_f64()?, value.get(1)?.as_f64()?));
        let rounds: Vec<Vec<(f64, f64)>> = self
            .measured(run)
            .into_iter()
            .filter_map(|one| one.pointer(&format!("/distribution/{class}"))?.as_array())
            .map(|points| points.iter().filter_map(point).collect())
            .collect();
        // They all begin at the same share; one with fewer requests ends sooner.
        let shortest = rounds.iter().map(Vec::len).min().unwrap_or(0);
        let at = |index: usize| {
            let us: Vec<f64> = rounds.iter().map(|points| points[index].1).collect();
            Some((rounds[0][index].0, Spread::of(us)?.median))
        };
        (0..shortest).filter_map(at).collect()
    }

    /// Which measurement a run made.
    pub fn kind(&self, run: &RunDefinition) -> Kind {
        self.record.definition.kind_of(run)
    }

    /// What must be said of a run beside its numbers.
    pub fn notes(&self, run: &RunDefinition) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for one in self.measured(run) {
            let text = |pointer| one.pointer(pointer).and_then(Measured::as_str);
            let doubts = [text("/doubt"), text("/verdict/refused")].into_iter().flatten();
            let mut said: Vec<String> = doubts.map(Into::into).collect();
            said.extend(self.client_bound(run, one));
            // One is enough: the doubt is most often the verdict's.
            let said = said.into_iter().next();
            if let Some(words) = said.filter(|words| !notes.contains(words)) {
                notes.push(words);
            }
        }
        notes
    }

    /// Whether a run that asked for all the server could give found it idle.
    fn client_bound(&self, run: &RunDefinition, measured: &Measured) -> Option<String> {
        let busy = measured.pointer("/server/cpus_busy")?.as_f64()?;
        let mode: Mode = serde_json::from_value(measured.get("mode")?.clone()).ok()?;
        let in_flight = match mode {
            Mode::Closed { depth } => depth * self.record.definition.plan(run).ok()?.connections,
            Mode::Open { .. } => return None,
        };
        (in_flight >= DEPTH_PEAK && busy < BUSY_SHARE_MIN).then(|| {
            format!(
                "the server was busy {:.0} % of the time: the client limited this run, not it",
                100.0 * busy
            )
        })
    }
}

/// The client's and the servers' command lines, as one would type them: ports in place of those
/// that were free, CPUs as they were.
pub fn commands(record: &Record) -> Vec<(String, String)> {
    const FIRST_PORT: usize = 11_211;
    const PORTS_APART: usize = 10;
    let definition = &record.definition;
    let mut all = Vec::new();
    let around = match record.real_time {
        Some(true) => "taskset -c 0 chrt -f 1 ",
        _ => "taskset -c 0 ",
    };
    for (index, server) in definition.servers.iter().enumerate() {
        let port = FIRST_PORT + PORTS_APART * index;
        let address = format!("127.0.0.1:{port}");
        let command = server
            .command
            .replace("{laneway}", "laneway")
            .replace("{port}", &port.to_string())
            .replace("{next}", &(port + 1).to_string())
            .replace("{socket}", &format!("{}.sock", server.name))
            .replace("{memory}", &definition.memory_mb.to_string());
        let (command, address) = match &server.address {
            Some(address) => (format!("at {address}, started by somebody else"), address.clone()),
            None => (format!("{around}{command}"), address),
        };
        all.push((server.name.clone(), command));
        for run in definition.runs.iter().filter(|run| run.server == server.name) {
            let dialect = serde_json::to_value(server.dialect).unwrap_or_default();
            let dialect = dialect.as_str().unwrap_or("text").to_owned();
            let flags = words(&format!("{} {}", definition.load, run.load)).join(" ");
            let line = match definition.kind_of(run) {
                Kind::Bench => {
                    format!("laneway bench --server {address} --dialect {dialect} --cpu 1 {flags}")
                }
                Kind::Memory => format!(
                    "{} SETs of {} + {} bytes to a fresh server, its VmRSS before and after",
                    run.requests, run.key_bytes, run.value_bytes
                ),
                Kind::Program => run.command.clone(),
                Kind::Balance => format!("requests per worker of a fresh server: {flags}"),
                Kind::Lookaside => format!("look-aside cache on a fresh server: {flags}"),
            };
            all.push((run.name.clone(), line));
        }
    }
    all
}

/// Rows of cells, each column as wide as its widest cell.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(out, "{cell:<width$}  ");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn names_are_cut_where_they_say() {
        assert_eq!(parts("redis @ 20000"), ("redis", "20000"));
        assert_eq!(parts("laneway-none"), ("laneway-none", ""));
    }

    #[test]
    fn medians_and_distributions_are_over_the_rounds() {
        let record = example::record();
        let results = Results { record: &record };
        assert_eq!(results.lines(), ["laneway", "memcached", "floor"]);
        let run = results.run("laneway", "1000").expect("there");
        let p99 = results.spread(run, "/quiet/small/p99").expect("measured");
        assert_eq!((p99.least, p99.median, p99.most), (80.0, 80.0, 90.0));
        let points = results.distribution(run, "small");
        assert_eq!(points, [(0.5, 40.0), (0.99, 80.0)]);
        assert_eq!(results.rates(), [(1_000.0, "1000"), (2_000.0, "2000")]);
        // At 2000 memcached fell behind: both have distributions at 1000 only.
        assert_eq!(results.rate_of_all(), Some("1000"));
    }
}
