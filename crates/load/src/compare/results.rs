//! What a comparison found, in the order of the page: lines and loads out of runs' names, medians
//! over the rounds, and what must be said of a run beside its numbers.

use crate::pairs::Measured;
use crate::pairs::definition::{Kind, RunDefinition};
use crate::pairs::record::Record;
use crate::report::json::Mode;
use crate::report::table::median;

/// Below this share of its CPU a server that a closed loop kept asking was not what limited it.
const BUSY_SHARE_MIN: f64 = 0.9;
/// From so many in flight on a loop says what a server can do at most.
const DEPTH_PEAK: usize = 8;

/// The line and the load that a run's name says; the whole name and nothing where it says neither.
pub fn parts(name: &str) -> (&str, &str) {
    name.split_once(" @ ").unwrap_or((name, ""))
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
        let all = [self.least, self.median, self.most];
        let [least, median, most] = all.map(|value| format!("{value:.digits$}"));
        if least == most { median } else { format!("{median} [{least}..{most}]") }
    }
}

/// A record, to be asked.
#[derive(Debug, Clone, Copy)]
pub struct Results<'a> {
    /// It.
    pub record: &'a Record,
}

impl Results<'_> {
    /// The lines, in the order of the definition.
    pub fn lines(&self) -> Vec<&str> {
        let mut lines = Vec::new();
        for run in &self.record.definition.runs {
            let (line, _) = parts(&run.name);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// The run of a line at a load.
    pub fn run(&self, line: &str, at: &str) -> Option<&RunDefinition> {
        self.record.definition.runs.iter().find(|run| parts(&run.name) == (line, at))
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
        let kind = |run: &RunDefinition| self.record.definition.kind_of(run);
        for run in self.record.definition.runs.iter().filter(|&run| kind(run) == Kind::Bench) {
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

    /// The rate at which most lines have percentiles, the highest of several.
    pub fn rate_of_all(&self) -> Option<&str> {
        let lines = self.lines();
        let having = |at: &str| {
            let runs = lines.iter().filter_map(|line| self.run(line, at));
            runs.filter(|run| self.spread(run, "/quiet/small/p99").is_some()).count()
        };
        let rates = self.rates();
        let most = rates.iter().map(|(_, at)| having(at)).max().filter(|&most| most > 0)?;
        rates.iter().rev().find(|(_, at)| having(at) == most).map(|(_, at)| *at)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn medians_are_over_the_rounds() {
        let record = example::record();
        let results = Results { record: &record };
        assert_eq!(results.lines(), ["laneway", "memcached", "redis", "floor"]);
        let run = results.run("laneway", "20000").expect("there");
        let p99 = results.spread(run, "/quiet/small/p99").expect("measured");
        assert_eq!(p99.words(1), "56.8 [50.7..59.9]");
        let rates = results.rates().into_iter().map(|(_, at)| at).collect::<Vec<_>>();
        assert_eq!(rates, ["5000", "10000", "20000", "30000", "40000", "60000"]);
        // At 60 000 memcached fell behind: all have percentiles below that.
        assert_eq!(results.rate_of_all(), Some("40000"));
    }
}
