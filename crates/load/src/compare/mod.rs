//! `laneway bench compare`: Laneway beside memcached, Redis and whoever else speaks one of their
//! protocols, on this machine, by the pair runner; out come a table, the record as JSON, and one
//! HTML page for people.
//!
//! It departs from `cargo xtask bench` in one thing: it must come to an end on a machine that
//! others disturb. A run that does not count is made once more and then kept without its latencies,
//! and no round is begun that would take longer than was allowed.

mod charts;
#[cfg(test)]
mod example;
pub mod neighbour;
pub mod page;
pub mod results;
pub mod table;
pub mod targets;

use crate::admin;
use crate::arguments::{self, number, text, within};
use crate::output;
use crate::pairs::definition::{self, Definition};
use crate::pairs::record::Record;
use crate::pairs::statistics::judge_what_is_there;
use crate::pairs::{self, Options, Patience, builtin, statistics};
use lexopt::{Arg, Parser};
use results::Results;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use targets::Peer;

/// What `laneway bench compare --help` prints.
pub const HELP: &str = include_str!("help.txt");

/// What is compared where nothing else is said.
const DEFINITION: &str = "compare";
/// How long it may take, filling included; a started round is finished.
const MINUTES: f64 = 9.5;
const MINUTES_QUICK: f64 = 1.0;
const MINUTES_MAX: f64 = 24.0 * 60.0;
/// The message of a comparison in which no run counts, or none of Laneway's beside the neighbour.
const UNMEASURED: &str = "there is no result (each run says why above): it needs two CPUs that \
                          nobody else uses; end what else runs, or give it more rounds: --pairs 5 \
                          --minutes 5";
/// Where the page is written, where nothing else is said.
const PAGE: &str = "laneway-compare.html";

#[derive(Debug, Clone, Default, PartialEq)]
struct Flags {
    definition: String,
    peers: Vec<Peer>,
    without: Vec<String>,
    quick: bool,
    pairs: Option<usize>,
    minutes: Option<f64>,
    json: Option<PathBuf>,
    report: PathBuf,
}

/// Runs `laneway bench compare` with the arguments after these words.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    arguments::carry_out("bench compare", HELP, parse(arguments), |flags| {
        carry_out(&flags).map(|()| true)
    })
}

fn parse(arguments: Vec<OsString>) -> Result<Option<Flags>, String> {
    let mut flags =
        Flags { definition: DEFINITION.into(), report: PAGE.into(), ..Flags::default() };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long("peer") => flags.peers.push(Peer::parse(&text("peer", &mut parser)?)?),
            Arg::Long("without") => flags.without.push(text("without", &mut parser)?),
            Arg::Long("quick") => flags.quick = true,
            Arg::Long("pairs") => flags.pairs = Some(number("pairs", &mut parser)?),
            Arg::Long("minutes") => flags.minutes = Some(number("minutes", &mut parser)?),
            Arg::Long("json") => flags.json = Some(text("json", &mut parser)?.into()),
            Arg::Long("report") => flags.report = text("report", &mut parser)?.into(),
            Arg::Value(word) => {
                flags.definition = word.into_string().map_err(|_| "a definition is text")?;
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    let files = [("json", flags.json.as_deref()), ("report", Some(flags.report.as_path()))];
    for (flag, path) in files {
        if path.is_some_and(|path| path.as_os_str() == "-") {
            return Err(format!("--{flag} -: standard output has the table; name a file"));
        }
    }
    if flags.pairs == Some(0) {
        return Err("--pairs 0: must be at least 1".into());
    }
    within("minutes", flags.minutes.unwrap_or(MINUTES), 0.0..=MINUTES_MAX)?;
    Ok(Some(flags))
}

fn carry_out(flags: &Flags) -> Result<(), String> {
    let (id, mut definition) = find(&flags.definition)?;
    flags.without.iter().try_for_each(|name| targets::leave_out(&mut definition, name))?;
    targets::put_in(&mut definition, &flags.peers, admin::dialect)?;
    let options = options(flags)?;
    for told in targets::leave_out_missing(&mut definition, &options.peers)? {
        eprintln!("{told}");
    }
    prepare(&mut definition, flags);
    if definition.runs.is_empty() {
        return Err("nothing is left to be measured".into());
    }
    // What cannot be written must be known before the minutes are spent, not after.
    for path in flags.json.iter().chain([&flags.report]) {
        output::look(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{id}: {}", definition.about);
    let collected = pairs::collect(&definition, &options)?;
    let failures = collected.failures.clone();
    let judged = judge_what_is_there(&definition.figures, &collected.rounds);
    definition.pairs = collected.rounds.len();
    let record = Record::new(&id, &definition, &options, collected, judged);
    let results = Results { record: &record };
    // A file that cannot be written takes nothing along of what is shown.
    let page = write(&flags.report, &page::render(&record));
    let written = flags.json.as_deref().map_or(Ok(()), |path| -> Result<(), String> {
        let json = serde_json::to_string_pretty(&record).map_err(|error| error.to_string())?;
        write(path, &(json + "\n"))
    });
    print!("\n{}", table::render(results, |_| true));
    print!("\n{}", statistics::render(record.rounds.len(), &record.figures));
    // Last, as it is what remains in sight.
    print!("\n{}", neighbour::render(results).unwrap_or_default());
    page.and(written)?;
    println!("the page is {}", flags.report.display());
    verdict(results, &failures)
}

/// What the exit status tells: whether there is a result.
fn verdict(results: Results<'_>, failures: &[String]) -> Result<(), String> {
    if let [first, ..] = failures {
        return Err(format!("{} runs failed; the first: {first}", failures.len()));
    }
    match neighbour::is_unmeasured(results) || results.are_all_in_doubt() {
        true => Err(UNMEASURED.into()),
        false => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    output::replace(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The definition of a file, or one that is built in.
fn find(name: &str) -> Result<(String, Definition), String> {
    if let Some(text) = builtin::text(name) {
        return Ok((name.into(), definition::parse(text)?));
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        let names: Vec<&str> = builtin::BUILTIN.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "{name}: neither a file that ends in .toml nor one of {}",
            names.join(" ")
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let definition = definition::parse(&text).map_err(|error| format!("{name}: {error}"))?;
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((id, definition))
}

/// Fits a definition to the time there is.
fn prepare(definition: &mut Definition, flags: &Flags) {
    if flags.quick {
        definition.pairs = 1;
        definition.runs.retain(|run| run.quick);
        targets::drop_lonely_figures(definition);
    }
    definition.pairs = flags.pairs.unwrap_or(definition.pairs);
}

fn options(flags: &Flags) -> Result<Options, String> {
    let here = std::env::current_dir().map_err(|error| format!("this folder: {error}"))?;
    let is_repository = here.join("bench/definitions").is_dir();
    // Servers start in this folder: the repository, or one that is nobody's.
    let root = if is_repository { here } else { std::env::temp_dir() };
    let mut options = Options::new(&root);
    options.laneway = std::env::current_exe().map_err(|error| format!("its program: {error}"))?;
    // Beside the folder of this program where that is another than the repository's own.
    let beside = options.laneway.ancestors().nth(2).map(|target| target.join("peers/bin"));
    options.peers = beside.filter(|bin| bin.is_dir()).unwrap_or(options.peers);
    let default = if flags.quick { MINUTES_QUICK } else { MINUTES };
    let allowed = Duration::from_secs_f64(60.0 * flags.minutes.unwrap_or(default));
    options.patience = Patience::Until(Instant::now() + allowed);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::paced::Own;

    fn parsed(line: &str) -> Result<Flags, String> {
        let words = line.split_ascii_whitespace().map(Into::into).collect();
        parse(words).map(|flags| flags.expect("no help was asked for"))
    }

    #[test]
    fn the_noisy_neighbour_is_there_in_the_middle_third_on_connections_of_its_own() {
        let (_, definition) = find(DEFINITION).expect("built in");
        let runs: Vec<_> = definition.runs.iter().filter(|run| neighbour::is_one(run)).collect();
        for run in &runs {
            let plan = definition.plan(run).expect("good");
            let large: Vec<bool> =
                plan.steps.iter().map(|step| step.options().large_percent > 0.0).collect();
            assert_eq!(large, [false, true, false]);
            assert_eq!((plan.connections, plan.own), (32, Own::Large(2)));
        }
        let loads: Vec<&str> = runs.iter().map(|run| run.load.as_str()).collect();
        assert!(loads.windows(2).all(|pair| pair[0] == pair[1]), "the same for all: {loads:?}");
    }

    #[test]
    fn wrong_flags_are_told() {
        for (line, words) in [
            ("--peer valkey", "--peer valkey: NAME=HOST:PORT"),
            ("--peer =1:2", "--peer =1:2: NAME=HOST:PORT"),
            ("--peer a=:1", "--peer a=:1: NAME=HOST:PORT"),
            ("--peer a=b:70000", "--peer a=b:70000: NAME=HOST:PORT"),
            ("--json -", "--json -: standard output has the table; name a file"),
            ("--pairs 0", "--pairs 0: must be"),
            ("--minutes -1", "--minutes -1: must be"),
            ("--minutes soon", "--minutes soon: not a number"),
            ("--fast", "--fast"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
        let words = find("nothing").expect_err("no such definition");
        assert!(words.contains("one of ") && words.contains(" compare "), "{words}");
    }

    #[test]
    fn a_quick_comparison_has_fewer_and_shorter_runs() {
        let (id, whole) = find("compare").expect("built in");
        assert_eq!(id, "compare");
        let mut quick = whole.clone();
        prepare(&mut quick, &parsed("--quick").expect("good"));
        assert_eq!(quick.pairs, 1);
        assert!(quick.runs.len() < whole.runs.len());
        for run in &quick.runs {
            let plan = quick.plan(run).expect("still good");
            assert!(plan.duration <= Duration::from_secs(9), "{}", run.name);
        }
        // The first five minutes: a noisy neighbour beside each server, and about a minute.
        assert!(quick.runs.iter().all(neighbour::is_one));
        assert_eq!(quick.runs.len(), 5);
    }

    #[test]
    fn flags_say_how_long_and_where() {
        let flags = parsed("--pairs 2 --json all.json").expect("good");
        assert_eq!(flags.report, Path::new(PAGE));
        assert_eq!(flags.json.as_deref(), Some(Path::new("all.json")));
        let (_, mut definition) = find(DEFINITION).expect("built in");
        prepare(&mut definition, &flags);
        assert_eq!(definition.pairs, 2);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_known_at_once() {
        let flags = parsed("--report /no/such/folder/page.html --without laneway").expect("good");
        let words = carry_out(&flags).expect_err("it cannot be written");
        assert!(words.starts_with("/no/such/folder/page.html: "), "{words}");
    }

    #[test]
    fn a_comparison_without_a_result_is_a_failure_and_says_the_way_out() {
        let judged = |record: &Record, failures: &[String]| verdict(Results { record }, failures);
        let good = example::beside_a_neighbour("laneway=80 memcached=-");
        assert_eq!(judged(&good, &[]), Ok(()));
        let words = judged(&good, &["it has ended".into()]).expect_err("one has failed");
        assert_eq!(words, "1 runs failed; the first: it has ended");
        let nobody = example::beside_a_neighbour("laneway=- memcached=-");
        let words = judged(&nobody, &[]).expect_err("nobody was measured");
        assert!(words.contains("two CPUs that nobody else uses; end what"), "{words}");
        let others = example::beside_a_neighbour("laneway=- memcached=90");
        assert_eq!(judged(&others, &[]), Err(UNMEASURED.into()));
        // The same without a neighbour.
        let mut other = example::record();
        assert_eq!(judged(&other, &[]), Ok(()));
        let runs = other.rounds.iter_mut().flat_map(|round| round.values_mut());
        runs.for_each(|run| run["doubt"] = "another had the CPU".into());
        assert_eq!(judged(&other, &[]), Err(UNMEASURED.into()));
    }

    #[test]
    fn the_help_names_every_flag() {
        assert!(HELP.contains(PAGE));
        for name in ["peer", "without", "quick", "pairs", "minutes", "json", "report"] {
            assert!(HELP.contains(&format!("--{name}")), "--{name}");
        }
        assert!(HELP.lines().all(|line| line.chars().count() <= 100));
    }
}
