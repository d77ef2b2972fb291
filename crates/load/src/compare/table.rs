//! Shows a comparison as rows of text: for the terminal, and for the page's table.

use super::neighbour;
use super::results::{Results, Spread};
use crate::pairs::Measured;
use crate::pairs::definition::{Kind, RunDefinition};
use crate::report::table::aligned;

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
    let definition = &results.record.definition;
    let is_row = move |run: &&RunDefinition| {
        definition.kind_of(run) == Kind::Bench && !neighbour::is_one(run)
    };
    definition.runs.iter().filter(is_row)
}

/// What must be said of these runs beside their rows: memory per item, and why there is no number.
pub fn notes(results: Results<'_>, is_one: impl Fn(&RunDefinition) -> bool) -> Vec<String> {
    let mut notes = Vec::new();
    for run in results.record.definition.runs.iter().filter(|&run| is_one(run)) {
        let memory = results
            .spread(run, "/beyond_bytes_per_item")
            .map(|bytes| format!("{:.1} bytes per item beyond key and value", bytes.median));
        let all = memory.into_iter().chain(results.notes(run));
        notes.extend(all.map(|note| format!("{}: {note}", run.name)));
    }
    notes
}

/// All of it as text, with the notes on those runs that `is_noted` says.
pub fn render(results: Results<'_>, is_noted: impl Fn(&RunDefinition) -> bool) -> String {
    let mut rows: Vec<Vec<String>> = vec![heads().into_iter().map(str::to_owned).collect()];
    rows.extend(self::rows(results).map(|run| cells(results, run)));
    let table = if rows.len() > 1 { aligned(&rows) } else { String::new() };
    notes(results, is_noted).into_iter().fold(table, |out, note| out + &note + "\n")
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
        assert_eq!(rows.len(), 26, "all but those of memory");
        assert!(rows.iter().all(|row| row.len() == heads().len()));
        let first = ["laneway @ 5000", "5020 [4975..5048]", "99.9 [99.9..100.0]", "13 [13..14]"];
        assert_eq!(rows[0][..4], first);
        // A closed loop has no latencies.
        assert_eq!(rows[18][3..8], ["-"; 5]);
        // memcached fell behind at 60 000: no latency, but what it answered.
        let behind = ["memcached @ 60000", "60079 [59847..60233]", "99.9 [98.0..100.0]", "-", "-"];
        assert_eq!(rows[16][..5], behind);
    }
}
