//! Shows a comparison as rows of text: for the terminal, and for the page's table.

use super::neighbour;
use super::results::{Results, Spread, aligned};
use crate::pairs::definition::{Kind, RunDefinition};
use std::fmt::Write;

/// A column: its words, where its number stands, what the number is multiplied by, and its digits.
struct Column {
    words: &'static str,
    pointer: &'static str,
    times: f64,
    digits: usize,
}

const fn column(words: &'static str, pointer: &'static str) -> Column {
    Column { words, pointer, times: 1.0, digits: 0 }
}

const COLUMNS: &[Column] = &[
    column("answered/s", "/requests/answered_per_s"),
    Column { times: 100.0, digits: 1, ..column("on time %", "/requests/on_time_share") },
    column("small p50 µs", "/quiet/small/p50"),
    column("small p99 µs", "/quiet/small/p99"),
    column("whole run", "/latency_us/small/p99"),
    column("large p99 µs", "/quiet/large/p99"),
    column("whole run", "/latency_us/large/p99"),
    Column { digits: 2, ..column("CPU µs/request", "/server/cpu_us_per_request") },
    Column { digits: 1, ..column("server waited ms", "/server/kept_waiting_ms") },
    Column { digits: 1, ..column("client waited ms", "/client/kept_waiting_ms") },
];

/// The heads of the columns, the run's name first.
pub fn heads() -> Vec<&'static str> {
    std::iter::once("run").chain(COLUMNS.iter().map(|column| column.words)).collect()
}

/// A run's cells, in the order of [`heads`]; a dash where there is no number.
pub fn cells(results: Results<'_>, run: &RunDefinition) -> Vec<String> {
    let mut cells = vec![run.name.clone()];
    for column in COLUMNS {
        let is_latency = column.pointer.starts_with("/latency_us");
        let found = match is_latency && results.is_closed(run) {
            true => None,
            false => results.spread(run, column.pointer).filter(|found| found.most > 0.0),
        };
        cells.push(found.map_or("-".into(), |found| words(found, column)));
    }
    cells
}

fn words(found: Spread, column: &Column) -> String {
    let Spread { median, least, most } = found;
    let by = |value: f64| value * column.times;
    Spread { median: by(median), least: by(least), most: by(most) }.words(column.digits)
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
    }
}
