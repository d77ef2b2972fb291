//! The tables of figures, made from bench/record: nobody types a figure.
//!
//! docs/figures.md has every ratio and every bounded figure, met or missed, out of the newest
//! record of each benchmark: a rule, so that nobody picks. README has twelve of them, chosen for
//! what a user asks about ([`ROWS`]), not for how they came out. Figures are worked out from the
//! record's raw rounds by the definition as it stands now, so that a change of what decides
//! (whole runs instead of quiet laps) reaches old records, too. Each row tells how many commits of
//! the product came after what it measured; above [`BEHIND_MAX`] it is marked stale, and
//! `cargo xtask tidy` fails where a mark is missing or a table is not what the records say.

use crate::flags;
use crate::outcome::{Outcome, passed};
use crate::process;
use laneway_load::pairs::definition::{self, Definition};
use laneway_load::pairs::record::Record;
use laneway_load::pairs::statistics::{Judged, Verdict, judge_what_is_there};
use laneway_load::report::table::spread;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

pub const HELP: &str = "\
Write the tables of figures in README and docs/figures.md from the newest records in bench/record.

usage: cargo xtask readme

Run it after a benchmark was recorded, and where tidy says that rows have become stale; `cargo xtask
tidy` fails until it has been.";

/// Where the tables stand, and what is around them.
pub const README: &str = "README.md";
pub const FIGURES: &str = "docs/figures.md";
const BEGIN: &str = "<!-- figures: written by `cargo xtask readme` from bench/record -->\n";
const END: &str = "<!-- figures end -->";
/// Where records and definitions are, and how they end.
pub const RECORDS: &str = "bench/record/";
pub const DEFINITIONS: &str = "bench/definitions/";
/// From so many commits of the product on, what was measured is not what is there.
const BEHIND_MAX: u32 = 60;
/// What a commit of the product changes.
const PRODUCT: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

/// README's rows: in words, the benchmark, and its figure.
const ROWS: [(&str, &str, &str); 12] = [
    (
        "as deployed, beside 20 GETs/s of 8 MB: small p99, divided by its p99 without them",
        "noisy-8mb-deployed",
        "small p99, of its own undisturbed",
    ),
    (
        "as deployed, beside 20 GETs/s of 8 MB: small p99, of memcached's",
        "noisy-8mb-deployed",
        "small p99, of memcached",
    ),
    (
        "as deployed, 20 k/s by TCP, 0.75 % up to 4 MB: small p99, of memcached's",
        "large-4mb-075-deployed",
        "small p99, of memcached",
    ),
    (
        "as deployed, 13 k/s by UDP, 0.75 % up to 500 KB: small p99, of memcached's",
        "udp-500kb-075-deployed",
        "small p99, of memcached",
    ),
    ("CPU per GET, 1 in flight, of memcached's", "get-1", "CPU per GET, of memcached"),
    ("CPU per GET, 16 in flight, of memcached's", "get-16", "CPU per GET, of memcached"),
    ("CPU per SET, 16 in flight, of memcached's", "set-16", "CPU per SET, of memcached"),
    ("CPU per GET, 256 connections, of memcached's", "conns-256", "CPU per GET, of memcached"),
    ("CPU per key, GETs of 50 keys, of memcached's", "multiget-50", "CPU per key, of memcached"),
    (
        "memory per item beyond key and value, of memcached's",
        "memory",
        "resident beyond key and value, of memcached",
    ),
    (
        "durable store, half of the operations SETs that wait for the disk, 64 threads: \
         operations/s, of RocksDB's (above 1 is better)",
        "tier-synced",
        "synced A, 64 threads, of RocksDB",
    ),
    (
        "GETs that the kernel answers, 64 in flight: CPU per GET, of memcached's",
        "kernel-get-veth",
        "64 in flight: CPU 0 per GET, of memcached's (3.5 times its GETs per second of CPU)",
    ),
];

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    passed(if update()? { "the tables are new" } else { "the tables were up to date" })
}

/// Writes the tables; says whether that changed anything.
pub fn update() -> Result<bool, String> {
    let root = process::root();
    let (definitions, records) = (texts(&root, DEFINITIONS)?, texts(&root, RECORDS)?);
    let sheets = Sheets::new(pairs(&definitions), pairs(&records), behind)?;
    let mut changed = false;
    for (path, table) in [(README, sheets.readme()), (FIGURES, sheets.figures())] {
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let text = std::fs::read_to_string(root.join(path)).map_err(failed)?;
        let written = with_table(path, &text, &table)?;
        changed |= written != text;
        std::fs::write(root.join(path), written).map_err(failed)?;
    }
    Ok(changed)
}

/// The files of a folder, by name.
fn texts(root: &Path, folder: &str) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join(folder);
    let text = |name: String| process::read(folder.join(&name)).map(|text| (name, text));
    process::named(&folder, "")?.into_iter().map(text).collect()
}

fn pairs(texts: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
}

/// What is wrong with the table in the file `path`, by definitions and records given with their
/// names. The number of commits is that of the day it was written; the mark must be today's, where
/// there is a history to tell.
pub fn complaint<'a>(
    path: &str,
    text: &str,
    definitions: impl Iterator<Item = (&'a str, &'a str)>,
    records: impl Iterator<Item = (&'a str, &'a str)>,
    behind: Option<fn(&str) -> Option<u32>>,
) -> Option<String> {
    let ages = behind.unwrap_or(|_| None);
    let wanted = Sheets::new(definitions, records, ages).and_then(|sheets| {
        let table = if path == README { sheets.readme() } else { sheets.figures() };
        with_table(path, text, &table)
    });
    let compared = |text: &str| match behind {
        Some(_) => without_counts(text),
        None => without_counts(&text.replace(STALE, "").replace(UNKNOWN, BEHIND)),
    };
    match wanted {
        Err(why) => Some(why),
        Ok(wanted) if compared(&wanted) != compared(text) => Some(
            "its table is not what bench/record says, or does not mark what is stale; run `cargo \
             xtask readme`"
                .into(),
        ),
        Ok(_) => None,
    }
}

/// A text whose numbers of commits are all the same.
fn without_counts(text: &str) -> String {
    let mut out = String::new();
    let mut pieces = text.split(BEHIND).peekable();
    while let Some(piece) = pieces.next() {
        match pieces.peek() {
            Some(_) => out += piece.trim_end_matches(|c: char| c == ' ' || c.is_ascii_digit()),
            None => out += piece,
        }
    }
    out
}

/// Stands behind a number of commits, or in place of one; and before one that is too large.
const BEHIND: &str = " commits ago";
const UNKNOWN: &str = " not in this history";
const STALE: &str = "**stale**:";

/// Whether this is a repository with all that came before: a shallow clone cannot tell ages.
pub fn has_history() -> bool {
    process::git(&["rev-parse", "--is-shallow-repository"]).is_ok_and(|told| told.trim() == "false")
}

fn with_table(path: &str, text: &str, table: &str) -> Result<String, String> {
    let lines = || format!("{path}: a line `{}` and below it `{END}`", BEGIN.trim_end());
    let (before, rest) = text.split_once(BEGIN).ok_or_else(lines)?;
    let (_, after) = rest.split_once(END).ok_or_else(lines)?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// How many commits of the product came after this one; nothing where git does not know it.
pub fn behind(commit: &str) -> Option<u32> {
    let measured = commit.trim_end_matches("-dirty");
    let range = format!("{measured}..HEAD");
    let words = [&["rev-list", "--count", &range, "--"][..], &PRODUCT].concat();
    process::git(&words).ok()?.trim().parse().ok()
}

/// The newest record of a benchmark, and its figures.
struct Sheet {
    definition: Definition,
    record: Record,
    judged: Vec<Judged>,
    behind: Option<u32>,
}

/// All of them, by the benchmark.
struct Sheets(BTreeMap<String, Sheet>);

impl Sheets {
    fn new<'a>(
        definitions: impl Iterator<Item = (&'a str, &'a str)>,
        records: impl Iterator<Item = (&'a str, &'a str)>,
        behind: impl Fn(&str) -> Option<u32>,
    ) -> Result<Sheets, String> {
        let definitions: BTreeMap<&str, &str> = definitions.collect();
        let mut sheets = BTreeMap::new();
        for (name, text) in records {
            let Some(id) = name.strip_suffix(".jsonl") else { continue };
            // A benchmark that is gone has no row.
            let Some(defined) = definitions.get(format!("{id}.toml").as_str()) else { continue };
            let definition =
                definition::parse(defined).map_err(|e| format!("{DEFINITIONS}{id}.toml: {e}"))?;
            let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else {
                continue;
            };
            let record =
                Record::parse(line).map_err(|error| format!("{RECORDS}{name}: {error}"))?;
            let judged = judge_what_is_there(&definition.figures, &record.rounds);
            let behind = behind(&record.commit);
            sheets.insert(id.to_owned(), Sheet { definition, record, judged, behind });
        }
        Ok(Sheets(sheets))
    }

    /// The twelve rows.
    fn readme(&self) -> String {
        let mut out = String::from(
            "| what (below 1 is better for Laneway) | median [least..most] | bound | measured \
             | repeat |\n\
             |---|---|---|---|---|\n",
        );
        for (words, id, figure) in ROWS {
            let repeat = format!("`cargo xtask bench {id} --check`");
            let sheet = self.0.get(id);
            let found = sheet.and_then(|sheet| {
                let one = sheet.judged.iter().find(|one| one.figure.name == figure)?;
                Some((sheet, one))
            });
            let _ = match found {
                None => writeln!(out, "| {words} | not measured yet | | | {repeat} |"),
                // Fewer rounds than were meant to be say less than the row would.
                Some((sheet, _)) if sheet.is_short() => {
                    let (made, wanted) = (sheet.record.rounds.len(), sheet.definition.pairs);
                    writeln!(
                        out,
                        "| {words} | {made} of {wanted} rounds only, see [figures]({FIGURES}) | \
                         | {} | {repeat} |",
                        sheet.measured()
                    )
                }
                Some((sheet, one)) => writeln!(
                    out,
                    "| {words} | {} | {} | {} | {repeat} |",
                    spread(one.values.iter().copied()),
                    bound(one, &sheet.judged),
                    sheet.measured()
                ),
            };
        }
        out
    }

    /// Every ratio and every bounded figure.
    fn figures(&self) -> String {
        let mut out = String::from(
            "| benchmark | figure | median [least..most] | bound | rounds | runs thrown away \
             | measured |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for (id, sheet) in &self.0 {
            let asked = |one: &&Judged| one.figure.is_ratio() || one.figure.bounds().is_some();
            for one in sheet.judged.iter().filter(asked) {
                let thrown_away =
                    sheet.record.made.as_ref().map_or("not recorded".into(), |made| {
                        format!("{:.0} %", 100.0 * made.rejected_share())
                    });
                let rounds = match one.values.len() < sheet.definition.pairs {
                    true => format!("{} of {}", one.values.len(), sheet.definition.pairs),
                    false => one.values.len().to_string(),
                };
                let _ = writeln!(
                    out,
                    "| `{id}` | {} | {} | {} | {rounds} | {thrown_away} | {} |",
                    one.figure.name,
                    spread(one.values.iter().copied()),
                    bound(one, &sheet.judged),
                    sheet.measured()
                );
            }
        }
        out
    }
}

impl Sheet {
    /// Whether it has fewer rounds than its definition wants.
    fn is_short(&self) -> bool {
        self.record.rounds.len() < self.definition.pairs
    }

    /// When, of which commit, how far back, and where.
    fn measured(&self) -> String {
        let Record { ended, commit, machine, .. } = &self.record;
        let day = ended.split('T').next().unwrap_or_default();
        let age = match self.behind {
            None => format!("{STALE}{UNKNOWN}"),
            Some(behind) if behind > BEHIND_MAX => format!("{STALE} {behind}{BEHIND}"),
            Some(behind) => format!("{behind}{BEHIND}"),
        };
        let processor = machine.cpu_model.replace("(R)", "");
        format!("{day}, `{commit}`, {age}, {} × {processor}", machine.cpus)
    }
}

fn bound(one: &Judged, all: &[Judged]) -> String {
    let missed = match one.verdict(all) {
        Verdict::Met => "",
        Verdict::Missed => ", **missed**",
        Verdict::Noise => ", no verdict: a rival against itself differs by more",
    };
    one.figure.bounds().map_or(String::new(), |bound| format!("{bound}{missed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"
    about = "a test"
    pairs = 3
    server = [{ name = "s", command = "memcached" }]
    run = [{ name = "a", server = "s" }, { name = "b", server = "s" }]
    figure = [
        { name = "CPU per GET, of memcached", value = "/c", of = "a", over = "b", at_most = 1.0 },
        { name = "CPU, us", value = "/c", of = "a" },
    ]
    "#;
    /// Its own figures are those of an older definition, which nobody asks for any more.
    const RECORD: &str = r#"{"schema":"laneway-pairs/1","id":"get-1","ended":"2026-01-02T03:04:05Z",
        "commit":"0123456789ab","machine":{"cpu_model":"A CPU","cpus":2,"kernel":"6.1"},
        "client":"laneway bench","versions":{},"definition":{"about":"a","server":[],"run":[],
        "figure":[]},"good":false,"figures":[
        {"name":"laps","value":"/quiet","of":"a","at_most":1.0,"values":[0.5],"median":0.5}],
        "rounds":[{"a":{"c":1.0},"b":{"c":2.0}},{"a":{"c":3.0},"b":{"c":4.0}},
        {"a":{"c":1.25},"b":{"c":1.0}}]}"#;

    type Age = fn(&str) -> Option<u32>;

    fn sheets(behind: Option<u32>) -> Sheets {
        // The older line is no record at all: only the newest is read.
        let records = format!("an older line\n{}\n", RECORD.replace('\n', " "));
        let definitions = [("get-1.toml", DEFINITION)].into_iter();
        Sheets::new(definitions, [("get-1.jsonl", records.as_str())].into_iter(), |_| behind)
            .expect("a record")
    }

    #[test]
    fn figures_are_worked_out_by_the_definition_of_today() {
        let table = sheets(Some(7)).figures();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            ["| `get-1` | CPU per GET, of memcached | 0.75 [0.50..1.25] | 1 | 3 | not recorded | \
              2026-01-02, `0123456789ab`, 7 commits ago, 2 × A CPU |"]
        );
    }

    #[test]
    fn readme_has_its_rows_measured_or_not() {
        let table = sheets(Some(7)).readme();
        assert_eq!(table.lines().count(), 2 + ROWS.len());
        assert!(table.contains("1 in flight, of memcached's | 0.75 [0.50..1.25] | 1 |"), "{table}");
        assert_eq!(table.matches("not measured yet").count(), ROWS.len() - 1);
    }

    #[test]
    fn a_row_of_too_few_rounds_makes_no_figure_of_readme() {
        let more = DEFINITION.replace("pairs = 3", "pairs = 5");
        let record = RECORD.replace('\n', " ");
        let sheets = Sheets::new(
            [("get-1.toml", more.as_str())].into_iter(),
            [("get-1.jsonl", record.as_str())].into_iter(),
            |_| Some(0),
        );
        let sheets = sheets.expect("a record");
        assert!(sheets.readme().contains("3 of 5 rounds only"));
        assert!(sheets.figures().contains("| 3 of 5 |"));
    }

    #[test]
    fn what_is_old_is_marked_and_a_missing_mark_is_told() {
        let definitions = || [("get-1.toml", DEFINITION)].into_iter();
        let text = RECORD.replace('\n', " ");
        let records = || [("get-1.jsonl", text.as_str())].into_iter();
        let old = format!("# A\n{BEGIN}| old |\n{END}\nmore\n");
        let told = |text: &str, behind| complaint(FIGURES, text, definitions(), records(), behind);
        let (young, last, stale): (Age, Age, Age) =
            (|_| Some(7), |_| Some(BEHIND_MAX), |_| Some(BEHIND_MAX + 1));
        assert!(told(&old, Some(young)).is_some_and(|words| words.contains("cargo xtask readme")));
        let new = with_table(FIGURES, &old, &sheets(Some(7)).figures()).expect("marked");
        assert!(new.starts_with("# A\n") && new.ends_with("\nmore\n"));
        // Each commit makes it older by one: no reason to write it anew, until it is stale.
        assert_eq!(told(&new, Some(young)), None);
        assert_eq!(told(&new, Some(last)), None);
        assert!(told(&new, Some(stale)).is_some_and(|words| words.contains("stale")));
        let marked = sheets(Some(BEHIND_MAX + 1)).figures();
        assert!(marked.contains("**stale**: 61 commits ago"));
        // A shallow clone knows no ages, and has nothing to say of marks.
        let marked = with_table(FIGURES, &old, &marked).expect("marked");
        assert_eq!((told(&new, None), told(&marked, None)), (None, None));
        assert!(told(&old, None).is_some());
        assert!(told("# A\n", Some(young)).is_some_and(|words| words.contains("a line `<!--")));
    }

    #[test]
    fn a_broken_record_is_named() {
        let records = [("get-1.jsonl", "{}")].into_iter();
        let sheets = Sheets::new([("get-1.toml", DEFINITION)].into_iter(), records, |_| None);
        assert!(sheets.err().is_some_and(|words| words.contains("get-1.jsonl")));
    }
}
