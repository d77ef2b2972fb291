//! README's table of figures, made from bench/record: nobody types a figure.
//!
//! Every ratio with a bound stands in it, met or missed, out of the newest record of each
//! benchmark: a rule, so that nobody picks. `cargo xtask tidy` fails where the table is not what
//! the records say.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use laneway_load::pairs::record::Record;
use laneway_load::pairs::statistics::Judged;
use laneway_load::report::table::spread;
use std::fmt::Write;

pub const HELP: &str = "\
Write README's table of figures from the newest records in bench/record.

usage: cargo xtask readme

Run it after a benchmark was recorded; `cargo xtask tidy` fails until it has been.";

/// Where the table stands, and what is around it.
pub const README: &str = "README.md";
const BEGIN: &str = "<!-- figures: written by `cargo xtask readme` from bench/record -->\n";
const END: &str = "<!-- figures end -->";
/// Where records are, and how they end.
pub const RECORDS: &str = "bench/record/";
pub const RECORD_ENDING: &str = ".jsonl";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    if let Some(argument) = parser.next()? {
        return Err(Failure::Usage(argument.unexpected().to_string()));
    }
    passed(if update()? { "README's table is new" } else { "README's table was up to date" })
}

/// Writes the table; says whether that changed anything.
pub fn update() -> Result<bool, String> {
    let root = process::root();
    let failed = |error: std::io::Error| format!("{RECORDS}: {error}");
    let mut records = Vec::new();
    for entry in std::fs::read_dir(root.join(RECORDS)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.to_string_lossy().ends_with(RECORD_ENDING) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            records.push((name, std::fs::read_to_string(&path).map_err(failed)?));
        }
    }
    records.sort();
    let texts = records.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let readme = std::fs::read_to_string(root.join(README)).map_err(failed)?;
    let written = with_table(&readme, &table(texts)?)?;
    let changed = written != readme;
    std::fs::write(root.join(README), written).map_err(failed)?;
    Ok(changed)
}

/// What is wrong with the table in `readme`, by the records given with their names in order.
pub fn complaint<'a>(
    readme: &str,
    records: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<String> {
    match table(records).and_then(|table| with_table(readme, &table)) {
        Err(why) => Some(why),
        Ok(wanted) if wanted != readme => {
            Some("its table is not what bench/record says; run `cargo xtask readme`".into())
        }
        Ok(_) => None,
    }
}

fn with_table(readme: &str, table: &str) -> Result<String, String> {
    let lines = || format!("{README}: a line `{}` and below it `{END}`", BEGIN.trim_end());
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(lines)?;
    let (_, after) = rest.split_once(END).ok_or_else(lines)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn table<'a>(records: impl Iterator<Item = (&'a str, &'a str)>) -> Result<String, String> {
    let mut out = String::from(
        "| benchmark | figure | median [least..most] | bound | measured | on |\n\
         |---|---|---|---|---|---|\n",
    );
    for (name, text) in records {
        let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else { continue };
        let record = Record::parse(line).map_err(|error| format!("{RECORDS}{name}: {error}"))?;
        let ratios = record.figures.iter().filter(|judged| judged.figure.is_ratio());
        for judged in ratios {
            row(&record, judged, &mut out);
        }
    }
    Ok(out)
}

fn row(record: &Record, judged: &Judged, out: &mut String) {
    let Some(bound) = judged.figure.bounds() else { return };
    let missed = if judged.is_good() { "" } else { ", **missed**" };
    let values = spread(judged.values.iter().copied());
    let day = record.ended.split('T').next().unwrap_or_default();
    let machine = &record.machine;
    let processor = machine.cpu_model.replace("(R)", "");
    let _ = writeln!(
        out,
        "| `{}` | {} | {values} | {bound}{missed} | {day}, `{}` | {} × {processor} |",
        record.id, judged.figure.name, record.commit, machine.cpus
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"schema":"laneway-pairs/1","id":"get-1","ended":"2026-01-02T03:04:05Z",
        "commit":"0123456789ab","machine":{"cpu_model":"A CPU","cpus":2,"kernel":"6.1"},
        "client":"laneway bench","versions":{},"definition":{"about":"a","server":[],"run":[],
        "figure":[]},"good":false,"figures":[
        {"name":"CPU, of memcached","value":"/c","of":"a","over":"b","at_most":1.0,
         "values":[0.5,0.75,0.625],"median":0.625},
        {"name":"CPU, of an echo","value":"/c","of":"a","over":"c","at_most":1.1,
         "values":[1.25],"median":1.25},
        {"name":"CPU, us","value":"/c","of":"a","values":[9.0],"median":9.0}],"rounds":[]}"#;

    fn records() -> String {
        // The older line is no record at all: only the newest is read.
        format!("an older line\n{}\n", RECORD.replace('\n', " "))
    }

    #[test]
    fn bounded_ratios_of_the_newest_record_are_the_table() {
        let text = records();
        let table = table([("get-1.jsonl", text.as_str())].into_iter()).expect("a record");
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 2, "{table}");
        assert!(
            rows[0].starts_with("| `get-1` | CPU, of memcached | 0.62 [0.50..0.75] |"),
            "{}",
            rows[0]
        );
        assert!(rows[0].ends_with("| 1 | 2026-01-02, `0123456789ab` | 2 × A CPU |"), "{}", rows[0]);
        assert!(rows[1].contains("| 1.1, **missed** |"), "{}", rows[1]);
    }

    #[test]
    fn an_old_table_and_a_missing_one_are_told() {
        let text = records();
        let list = || [("get-1.jsonl", text.as_str())].into_iter();
        let old = format!("# A\n{BEGIN}| old |\n{END}\nmore\n");
        assert!(complaint(&old, list()).is_some_and(|words| words.contains("cargo xtask readme")));
        let new = with_table(&old, &table(list()).expect("a record")).expect("marked");
        assert_eq!(complaint(&new, list()), None);
        assert!(new.starts_with("# A\n") && new.ends_with("\nmore\n"));
        assert!(complaint("# A\n", list()).is_some_and(|words| words.contains("a line `<!--")));
        let broken = [("get-1.jsonl", "{}")].into_iter();
        assert!(complaint(&new, broken).is_some_and(|words| words.contains("get-1.jsonl")));
    }
}
