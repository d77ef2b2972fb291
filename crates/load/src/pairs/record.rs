//! The result as one line of bench/record/ID.jsonl: everything needed to make it again.
//!
//! No path of this machine goes in: programs are named from the repository's root or by their file.

use super::definition::Definition;
use super::host::Host;
use super::statistics::{Judged, all_good};
use super::{Collected, Options, Round, bench};
use crate::cpu::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

/// Name and number of this form of record; bench/record/schema.json tells other programs of it.
pub const SCHEMA: &str = "laneway-pairs/1";

/// How many runs were made, and which of them did not count.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    /// All of them.
    pub runs: u64,
    /// Those that stand in the rounds.
    pub kept: u64,
    /// Those that did not count, and why: the client's or the host's doing, never a latency.
    pub rejected: Vec<Rejected>,
    /// How long runs waited for a quiet host.
    pub host: Host,
}

/// A run that did not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// The round, from 0.
    pub round: usize,
    /// Its name.
    pub run: String,
    /// In words.
    pub why: String,
}

impl Made {
    /// The share of the runs that were thrown away, with those of a round that one of them spoilt.
    pub fn rejected_share(&self) -> f64 {
        1.0 - self.kept as f64 / self.runs.max(1) as f64
    }

    /// In one line.
    pub fn told(&self) -> String {
        let Host { waits, waited_s, never_quiet } = self.host;
        format!(
            "{} of {} runs thrown away ({:.0} %), {} of them as they did not count; waited {:.0} s \
             for a quiet host, in vain before {never_quiet} of {waits} runs",
            self.runs.saturating_sub(self.kept),
            self.runs,
            100.0 * self.rejected_share(),
            self.rejected.len(),
            waited_s,
        )
    }
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which definition.
    pub id: String,
    /// When it ended, UTC.
    pub ended: String,
    /// The commit measured; ends in `-dirty` where files had changed since.
    pub commit: String,
    /// Where.
    pub machine: Machine,
    /// The client's command.
    pub client: String,
    /// The servers' versions in their own words.
    pub versions: BTreeMap<String, String>,
    /// Whether the servers ran under SCHED_FIFO; older records do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
    /// What was asked for, as the definition stood: commands and flags.
    pub definition: Definition,
    /// Whether all bounds hold.
    pub good: bool,
    /// The figures.
    pub figures: Vec<Judged>,
    /// How many runs were made for the rounds; older records do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// Every round, raw.
    pub rounds: Vec<Round>,
}

impl Record {
    /// Reads a line of bench/record.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }

    /// Puts it together.
    pub fn new(
        id: &str,
        definition: &Definition,
        options: &Options,
        collected: Collected,
        figures: Vec<Judged>,
    ) -> Self {
        let Collected { rounds, versions, real_time, failures, made } = collected;
        let good = failures.is_empty() && all_good(definition, &figures, rounds.len());
        let client: Vec<String> = bench::client_command(options)
            .iter()
            .map(|word| without_machine(Path::new(word), &options.root))
            .collect();
        Record {
            schema: SCHEMA.into(),
            id: id.into(),
            ended: utc(UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())),
            commit: commit(&options.root),
            machine: Machine::this(),
            client: client.join(" "),
            versions,
            real_time: Some(real_time),
            definition: definition.clone(),
            good,
            figures,
            made: Some(made),
            rounds,
        }
    }

    /// Appends it; returns the file, from the root.
    pub fn append(&self, root: &Path) -> Result<String, String> {
        let shown = format!("bench/record/{}.jsonl", self.id);
        let failed = |error: std::io::Error| format!("{shown}: {error}");
        std::fs::create_dir_all(root.join("bench/record")).map_err(failed)?;
        let mut line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        line.push('\n');
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(root.join(&shown));
        file.map_err(failed)?.write_all(line.as_bytes()).map_err(failed)?;
        Ok(shown)
    }
}

/// A program's name from the root, or else its file's alone.
fn without_machine(path: &Path, root: &Path) -> String {
    let inside = path.strip_prefix(root).ok();
    let name = inside.or_else(|| path.file_name().map(Path::new)).unwrap_or(path);
    name.to_string_lossy().into_owned()
}

fn commit(root: &Path) -> String {
    const FILES: &str = "-- :!bench/record :!README.md :!docs/figures.md";
    let git = |line: &str| {
        let output = Command::new("git").arg("-C").arg(root).args(line.split(' ')).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git("rev-parse --short=12 HEAD") else { return "unknown".into() };
    match git(&format!("status --porcelain --untracked-files=no {FILES}")) {
        Some(changed) if changed.is_empty() => head,
        _ => format!("{head}-dirty"),
    }
}

/// Seconds of unix time as `YYYY-MM-DDTHH:MM:SSZ`. The date's arithmetic counts years from March,
/// so that the leap day comes last (Hinnant, "chrono-compatible low-level date algorithms").
pub fn utc(unix_s: u64) -> String {
    const DAY_S: u64 = 86_400;
    const DAYS_TO_1970: u64 = 719_468; // from 0000-03-01
    const ERA_DAYS: u64 = 146_097; // 400 years
    let days = unix_s / DAY_S + DAYS_TO_1970;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let second = unix_s % DAY_S;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        for (unix_s, words) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s), words);
        }
    }

    #[test]
    fn programs_are_named_without_the_machine() {
        let root = Path::new("/somewhere/here");
        for (path, name) in [
            ("/somewhere/here/target/release/laneway", "target/release/laneway"),
            ("/elsewhere/laneway", "laneway"),
            ("bench", "bench"),
        ] {
            assert_eq!(without_machine(Path::new(path), root), name);
        }
    }
}
