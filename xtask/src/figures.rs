//! The tables of figures, made from bench/record: nobody types a figure.
//!
//! docs/figures.md has every ratio and every bounded figure, met or missed, out of the newest
//! record of each benchmark: a rule, so that nobody picks. README has twelve of them, chosen for
//! what a user asks about (`readme.toml`), not for how they came out. Figures are worked out from
//! the record's raw rounds by the definition as it stands now, so that a change of what decides
//! (whole runs instead of quiet laps) reaches old records, too. One of servers at another place is
//! no measurement of today's definition, and counts as too old. Each row tells how many commits of
//! the product came after what it measured. Above [`BEHIND_MAX`] its numbers are printed nowhere:
//! figures.md lists the benchmark in a second table, README says that it was not measured anew,
//! and `cargo xtask tidy` fails until the tables say so, or where one is not what the records say.

use crate::{Outcome, flags, passed, process};
use laneway_load::pairs::definition::{self, Definition};
use laneway_load::pairs::record::Record;
use laneway_load::pairs::statistics::{Judged, Verdict, judge_what_is_there};
use laneway_load::report::table::spread;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

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

/// A row of README's table, as `figures/readme.toml` has it.
#[derive(Deserialize)]
struct Row {
    /// In words.
    what: String,
    benchmark: String,
    figure: String,
}

/// README's rows.
fn rows() -> Vec<Row> {
    let text = include_str!("figures/readme.toml");
    let mut file: BTreeMap<String, Vec<Row>> = toml::from_str(text).expect("README's rows");
    file.remove("row").unwrap_or_default()
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    passed(if update()? { "the tables are new" } else { "the tables were up to date" })
}

/// Writes the tables; says whether that changed anything.
pub fn update() -> Result<bool, String> {
    let root = process::root();
    let (definitions, records) = (texts(&root, DEFINITIONS)?, texts(&root, RECORDS)?);
    let sheets = Sheets::new(&definitions, &records, |_, commit| behind(commit))?;
    let mut changed = false;
    for path in [README, FIGURES] {
        let text = process::read(root.join(path))?;
        let written = with_table(path, &text, &sheets.table(path))?;
        changed |= written != text;
        process::write(root.join(path), written)?;
    }
    Ok(changed)
}

/// The files of a folder, by name.
pub type Texts = BTreeMap<String, String>;

fn texts(root: &Path, folder: &str) -> Result<Texts, String> {
    let folder = root.join(folder);
    let text = |name: String| process::read(folder.join(&name)).map(|text| (name, text));
    process::named(&folder, "")?.into_iter().map(text).collect()
}

/// What is wrong with the table in the file `path`, by definitions and records given with their
/// names. The number of commits is that of the day it was written; what is too old must be today's,
/// where there is a history to tell. Elsewhere the text's own word is taken for that.
pub fn complaint(
    path: &str,
    text: &str,
    (definitions, records): (&Texts, &Texts),
    behind: Option<fn(&str) -> Option<u32>>,
) -> Option<String> {
    let age = |id: &str, commit: &str| match behind {
        Some(behind) => behind(commit),
        None => (!is_told_old(path, text, id)).then_some(0),
    };
    let wanted = Sheets::new(definitions, records, age)
        .and_then(|sheets| with_table(path, text, &sheets.table(path)));
    match wanted {
        Err(why) => Some(why),
        Ok(wanted) if without_counts(&wanted) != without_counts(text) => Some(
            "its table is not what bench/record says, or has numbers that are stale; run `cargo \
             xtask readme`"
                .into(),
        ),
        Ok(_) => None,
    }
}

/// Whether the text has no number of this benchmark, as it is too old.
fn is_told_old(path: &str, text: &str, id: &str) -> bool {
    let command = repeat(id);
    let mut rows = text.lines().filter(|line| line.contains(&command));
    // In figures.md only the second table has commands.
    rows.any(|row| path == FIGURES || row.contains(NOT_ANEW))
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

/// Stands behind a number of commits.
const BEHIND: &str = " commits ago";
/// Stand in README in place of a figure.
const NOT_ANEW: &str = "not measured anew";
const NOT_YET: &str = "not measured yet";
/// Stands in figures.md between its tables.
const OLD: &str = "
## Not measured anew

A benchmark stands here once more than 60 commits of the product came after its newest record, where
its servers now have other CPUs or another scheduler, and as long as it has none. Its old numbers
are not printed, since what they tell of is no longer there; the records stay in
[bench/record](../bench/record) for who wants them.

| benchmark | what it compares | last measured | repeat |
|---|---|---|---|
";

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

/// The command that measures a benchmark again.
fn repeat(id: &str) -> String {
    format!("`cargo xtask bench {id} --check`")
}

/// A benchmark, and what was measured of it last.
struct Sheet {
    definition: Definition,
    newest: Option<Newest>,
}

/// The newest record, and its figures.
struct Newest {
    record: Record,
    judged: Vec<Judged>,
    /// How old it is; nothing where that cannot be told, and where its servers were elsewhere.
    behind: Option<u32>,
}

/// All of them, by the benchmark.
struct Sheets(BTreeMap<String, Sheet>);

impl Sheets {
    /// `behind` tells the age of a benchmark's record by identifier and commit.
    fn new(
        definitions: &Texts,
        records: &Texts,
        behind: impl Fn(&str, &str) -> Option<u32>,
    ) -> Result<Sheets, String> {
        // A record whose benchmark is gone has no row.
        let mut sheets = BTreeMap::new();
        for (name, text) in definitions {
            let Some(id) = name.strip_suffix(".toml") else { continue };
            let definition =
                definition::parse(text).map_err(|error| format!("{DEFINITIONS}{name}: {error}"))?;
            let lines = records.get(&format!("{id}.jsonl")).map_or("", String::as_str);
            let newest = match lines.lines().rev().find(|line| !line.trim().is_empty()) {
                None => None,
                Some(line) => {
                    let record = Record::parse(line)
                        .map_err(|error| format!("{RECORDS}{id}.jsonl: {error}"))?;
                    let judged = judge_what_is_there(&definition.figures, &record.rounds);
                    let is_same_place = record.definition.place == definition.place;
                    let behind = behind(id, &record.commit).filter(|_| is_same_place);
                    Some(Newest { record, judged, behind })
                }
            };
            sheets.insert(id.to_owned(), Sheet { definition, newest });
        }
        Ok(Sheets(sheets))
    }

    /// What stands in README or in figures.md.
    fn table(&self, path: &str) -> String {
        if path == README { self.readme() } else { self.figures() }
    }

    /// The twelve rows.
    fn readme(&self) -> String {
        let mut out = String::from(
            "| what (below 1 is better for Laneway) | median [least..most] | bound | measured \
             | repeat |\n\
             |---|---|---|---|---|\n",
        );
        for Row { what, benchmark, figure } in rows() {
            let cells = self.0.get(&benchmark).and_then(|sheet| sheet.cells(&figure));
            let [value, bound, measured] =
                cells.unwrap_or_else(|| [NOT_YET.into(), String::new(), String::new()]);
            let repeat = repeat(&benchmark);
            let _ = writeln!(out, "| {what} | {value} | {bound} | {measured} | {repeat} |");
        }
        out
    }

    /// Every ratio and every bounded figure that is not too old; then what is.
    fn figures(&self) -> String {
        let mut out = String::from(
            "| benchmark | figure | median [least..most] | bound | rounds | runs thrown away \
             | measured |\n\
             |---|---|---|---|---|---|---|\n",
        );
        let mut old = String::new();
        for (id, Sheet { definition, newest }) in &self.0 {
            if let Some(newest) = newest.as_ref().filter(|newest| newest.is_fresh()) {
                newest.write(id, definition.pairs, &mut out);
            } else {
                let last = newest.as_ref().map_or("never".into(), Newest::when);
                let (about, repeat) = (&definition.about, repeat(id));
                let _ = writeln!(old, "| `{id}` | {about} | {last} | {repeat} |");
            }
        }
        if !old.is_empty() {
            out += OLD;
            out += &old;
        }
        out
    }
}

impl Sheet {
    /// A figure's row in README but for words and command: value, bound, and when it was measured.
    /// Nothing where it never was.
    fn cells(&self, figure: &str) -> Option<[String; 3]> {
        let newest = self.newest.as_ref()?;
        if !newest.is_fresh() {
            return Some([NOT_ANEW.into(), String::new(), format!("last {}", newest.when())]);
        }
        let (made, wanted) = (newest.record.rounds.len(), self.definition.pairs);
        // Fewer rounds than were meant to be say less than the row would.
        if made < wanted {
            let told = format!("{made} of {wanted} rounds only, see [figures]({FIGURES})");
            return Some([told, String::new(), newest.measured()]);
        }
        let one = newest.judged.iter().find(|one| one.figure.name == figure)?;
        Some([spread(one.values.iter().copied()), bound(one, &newest.judged), newest.measured()])
    }
}

impl Newest {
    /// Whether what it measured is still there.
    fn is_fresh(&self) -> bool {
        self.behind.is_some_and(|behind| behind <= BEHIND_MAX)
    }

    /// When, and of which commit.
    fn when(&self) -> String {
        let Record { ended, commit, .. } = &self.record;
        let day = ended.split('T').next().unwrap_or_default();
        format!("{day}, `{commit}`")
    }

    /// The same, how far back, and where.
    fn measured(&self) -> String {
        let (when, behind) = (self.when(), self.behind.unwrap_or_default());
        let machine = &self.record.machine;
        let processor = machine.cpu_model.replace("(R)", "");
        format!("{when}, {behind}{BEHIND}, {} × {processor}", machine.cpus)
    }

    /// Its rows in figures.md; `pairs`: the rounds that its definition wants.
    fn write(&self, id: &str, pairs: usize, out: &mut String) {
        let thrown_away = self.record.made.as_ref().map_or("not recorded".into(), |made| {
            format!("{:.0} %", 100.0 * made.rejected_share())
        });
        let measured = self.measured();
        let asked = |one: &&Judged| one.figure.is_ratio() || one.figure.bounds().is_some();
        for one in self.judged.iter().filter(asked) {
            let rounds = match one.values.len() < pairs {
                true => format!("{} of {pairs}", one.values.len()),
                false => one.values.len().to_string(),
            };
            let _ = writeln!(
                out,
                "| `{id}` | {} | {} | {} | {rounds} | {thrown_away} | {measured} |",
                one.figure.name,
                spread(one.values.iter().copied()),
                bound(one, &self.judged),
            );
        }
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

    fn texts(files: &[(&str, &str)]) -> Texts {
        let joined = |text: &str| text.replace("\n        ", " ");
        files.iter().map(|(name, text)| ((*name).to_owned(), joined(text))).collect()
    }

    /// Two benchmarks, one of which was measured so many commits ago.
    fn sheets(behind: Option<u32>) -> Sheets {
        // The older line is no record at all: only the newest is read.
        let record = format!("an older line\n{RECORD}\n");
        let records = texts(&[("get-1.jsonl", &record), ("gone.jsonl", "no record")]);
        let definitions = texts(&[("get-1.toml", DEFINITION), ("new.toml", DEFINITION)]);
        Sheets::new(&definitions, &records, |_, _| behind).expect("a record")
    }

    /// Of one benchmark, which was measured just now.
    fn fresh(definition: &str) -> Sheets {
        let records = texts(&[("get-1.jsonl", RECORD)]);
        let age = |id: &str, commit: &str| match (id, commit) {
            ("get-1", "0123456789ab") => Some(0),
            _ => None,
        };
        Sheets::new(&texts(&[("get-1.toml", definition)]), &records, age).expect("one")
    }

    #[test]
    fn figures_are_worked_out_by_the_definition_of_today() {
        let table = sheets(Some(7)).figures();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            rows[..1],
            ["| `get-1` | CPU per GET, of memcached | 0.75 [0.50..1.25] | 1 | 3 | not recorded | \
              2026-01-02, `0123456789ab`, 7 commits ago, 2 × A CPU |"]
        );
    }

    #[test]
    fn readme_has_its_rows_measured_or_not() {
        let table = sheets(Some(7)).readme();
        assert_eq!(table.lines().count(), 2 + rows().len());
        assert!(table.contains("1 in flight, of memcached's | 0.75 [0.50..1.25] | 1 |"), "{table}");
        assert_eq!(table.matches("not measured yet").count(), rows().len() - 1);
        // Where all is fresh there is one table of figures.
        assert!(!fresh(DEFINITION).figures().contains("Not measured anew"));
        // Too few rounds make no figure of README, and servers at another place none at all.
        let few = fresh(&DEFINITION.replace("pairs = 3", "pairs = 5"));
        assert!(few.readme().contains("3 of 5 rounds only"));
        assert!(few.figures().contains("| 3 of 5 |"));
        let elsewhere = fresh(&format!("place = {{ ordinary = true }}\n{DEFINITION}"));
        assert!(elsewhere.figures().contains("Not measured anew"));
        let tables = [elsewhere.figures(), elsewhere.readme()];
        assert!(tables.iter().all(|table| !table.contains("0.75 [")), "{tables:?}");
    }

    #[test]
    fn what_is_old_has_no_number() {
        for (behind, is_fresh) in
            [(Some(BEHIND_MAX), true), (Some(BEHIND_MAX + 1), false), (None, false)]
        {
            let (readme, figures) = (sheets(behind).readme(), sheets(behind).figures());
            assert!(OLD.contains(&format!("more than {BEHIND_MAX} commits")));
            let (table, old) = figures.split_once(OLD).expect("one was never measured");
            let row = "| `get-1` | a test | 2026-01-02, `0123456789ab` | `cargo xtask bench get-1 \
                       --check` |\n";
            let numbers = (table.contains("0.75 ["), readme.contains("0.75 ["));
            assert_eq!(numbers, (is_fresh, is_fresh), "{behind:?}");
            assert_eq!(table.contains("| `get-1` |"), is_fresh, "{table}");
            assert!(!old.contains("0.75 [") && old.contains("| `new` | a test | never |"), "{old}");
            assert_eq!(old.contains(row), !is_fresh, "{old}");
            let told = "| not measured anew |  | last 2026-01-02, `0123456789ab` |";
            assert_eq!(readme.contains(told), !is_fresh, "{readme}");
        }
    }

    #[test]
    fn a_number_that_has_become_stale_is_told() {
        let definitions = texts(&[("get-1.toml", DEFINITION), ("new.toml", DEFINITION)]);
        let records = texts(&[("get-1.jsonl", RECORD)]);
        let before = format!("# A\n{BEGIN}| old |\n{END}\nmore\n");
        let (young, last, stale): (Age, Age, Age) =
            (|_| Some(7), |_| Some(BEHIND_MAX), |_| Some(BEHIND_MAX + 1));
        for path in [README, FIGURES] {
            let told = |text: &str, behind| complaint(path, text, (&definitions, &records), behind);
            let is_told = |text: &str, behind, words: &str| {
                told(text, behind).is_some_and(|told| told.contains(words))
            };
            let written = |behind| {
                let table = sheets(Some(behind)).table(path);
                with_table(path, &before, &table).expect("marked")
            };
            let (new, old) = (written(7), written(BEHIND_MAX + 1));
            assert!(new.starts_with("# A\n") && new.ends_with("\nmore\n"));
            assert!(is_told(&before, Some(young), "cargo xtask readme"));
            // Each commit makes it older by one: no reason to write it anew, until it is stale.
            assert_eq!(told(&new, Some(young)), None);
            assert_eq!(told(&new, Some(last)), None);
            assert!(is_told(&new, Some(stale), "stale"));
            assert_eq!(told(&old, Some(stale)), None);
            assert!(is_told(&old, Some(young), "stale"));
            // A shallow clone knows no ages, and believes the text which numbers are too old.
            assert_eq!((told(&new, None), told(&old, None)), (None, None));
            assert!(told(&new.replace("0.75 [", "0.57 ["), None).is_some());
            assert!(told(&before, None).is_some());
            assert!(is_told("# A\n", Some(young), "a line `<!--"));
        }
    }

    #[test]
    fn a_broken_record_is_named() {
        let records = texts(&[("get-1.jsonl", "{}")]);
        let sheets = Sheets::new(&texts(&[("get-1.toml", DEFINITION)]), &records, |_, _| None);
        assert!(sheets.err().is_some_and(|words| words.contains("get-1.jsonl")));
    }
}
