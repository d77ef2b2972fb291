//! Shows a comparison as rows of text: for the terminal, and for the page's table.

use super::neighbour;
use super::results::{Results, Spread, aligned};
use crate::pairs::Measured;
use crate::pairs::definition::{Kind, RunDefinition};
use std::fmt::Write;

/// The columns: the words of each, where its number stands, what that is multiplied by, its digits.
const COLUMNS: [(&str, &str, f64, usize); 10] = [
    ("answered/s", "/requests/answered_per_s", 1.0, 0),
    ("on time %", "/requests/on_time_share", 100.0, 1),
    ("small p50 µs", "/quiet/small/p50", 1.0, 0),
    ("small p99 µs", "/quiet/small/p99", 1.0, 0),
    ("whole run", "/latency_us/small/p99", 1.0, 0),
    ("large p99 µs", "/quiet/large/p99", 1.0, 0),
    ("whole run", "/latency_us/large/p99", 1.0, 0),
    ("CPU µs/request", "/server/cpu_us_per_request", 1.0, 2),
    ("server waited ms", "/server/kept_waiting_ms", 1.0, 1),
    ("client waited ms", "/client/kept_waiting_ms", 1.0, 1),
];

/// The heads of the columns, the run's name first.
pub fn heads() -> Vec<&'static str> {
    std::iter::once("run").chain(COLUMNS.map(|(words, ..)| words)).collect()
}

/// A run's cells, in the order of [`heads`]; a dash where there is no number.
pub fn cells(results: Results<'_>, run: &RunDefinition) -> Vec<String> {
    let mut cells = vec![run.name.clone()];
    // Whose round trips are no latencies.
    let is_closed = |one: &&Measured| one.pointer("/mode/closed").is_some();
    let is_closed = results.measured(run).iter().any(is_closed);
    for (_, pointer, times, digits) in COLUMNS {
        let is_latency = pointer.starts_with("/latency_us");
        let found = match is_latency && is_closed {
            true => None,
            false => results.spread(run, pointer).filter(|found| found.most > 0.0),
        };
        let words = found.map(|Spread { median, least, most }| {
            let [median, least, most] = [median, least, most].map(|value| value * times);
            Spread { median, least, most }.words(digits)
        });
        cells.push(words.unwrap_or("-".into()));
    }
    cells
}

/// The runs that belong into the table: those of the load generator, but for the noisy neighbours',
/// which have one of their own.
pub fn rows<'a>(results: Results<'a>) -> impl Iterator<Item = &'a RunDefinition> {
    let runs = results.record.definition.runs.iter();
    runs.filter(move |run| results.kind(run) == Kind::Bench && !neighbour::is_one(run))
}

/// All of it, for the terminal.
pub fn render(results: Results<'_>) -> String {
    let mut rows: Vec<Vec<String>> = vec![heads().into_iter().map(str::to_owned).collect()];
    rows.extend(self::rows(results).map(|run| cells(results, run)));
    let mut out = if rows.len() > 1 { aligned(&rows) } else { String::new() };
    for run in results.runs() {
        if let Some(bytes) = results.spread(run, "/beyond_bytes_per_item") {
            let (name, bytes) = (&run.name, bytes.median);
            let _ = writeln!(out, "{name}: {bytes:.1} bytes per item beyond key and value");
        }
    }
    for run in results.runs() {
        for note in results.notes(run) {
            let _ = writeln!(out, "{}: {note}", run.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn every_run_has_a_row_with_as_many_cells_as_there_are_heads() {
        let record = example::record();
        let results = Results { record: &record };
        let rows: Vec<Vec<String>> = rows(results).map(|run| cells(results, run)).collect();
        assert_eq!(rows.len(), 6, "all but the one of memory");
        assert!(rows.iter().all(|row| row.len() == heads().len()));
        assert_eq!(rows[0][..5], ["laneway @ 1000", "1000", "100.0", "40 [40..45]", "80 [80..90]"]);
        // A closed loop has no latencies.
        assert_eq!(rows[4][3..7], ["-", "-", "-", "-"]);
        // memcached fell behind at 2000: no latency, but what it answered.
        assert_eq!(rows[3][..5], ["memcached @ 2000", "1200", "100.0", "-", "-"]);
    }

    #[test]
    fn what_is_to_be_said_stands_below() {
        let record = example::record();
        let text = render(Results { record: &record });
        for words in [
            "laneway @ memory: 44.0 bytes per item",
            "memcached @ 2000: the server fell behind",
            "floor @ 16 in flight: the server was busy 50 %",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("laneway @ 1000: ") && !text.contains("laneway @ 16 in flight: "));
    }
}
