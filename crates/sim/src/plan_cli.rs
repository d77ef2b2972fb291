//! `laneway sim plan`: the command. What is searched for is [`crate::plan`]; the parameters are
//! those of [`crate::sweep`].

use crate::arguments::{number, text, whole};
use crate::plan::{self, Answer, Question};
use crate::report;
use crate::row::{self, Row};
use crate::study::{Effort, Study};
use crate::sweep::{Case, Sweep};
use laneway_load::arguments::carry_out;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
How many cores does a workload need to keep its p99 within an SLO?

Usage: laneway sim plan [--rate X] [--slo-us X] [--workload NAME|FILE.toml | --trace FILE]
                        [--design D,...|all] [--AXIS VALUE[,VALUE...]]... [--json|--csv]

For example, Twitter's cluster 4 at 400 000 requests a second over TCP, with two designs:

  laneway sim plan --workload twitter-4 --rate 400000 --slo-us 200 --way tcp --design lanes,minos

The answer is, for each design (and each other value of several), the fewest cores that keep p99 of
all requests within the SLO on every seed, and a quarter more: p99 of all, small and large requests,
how busy the cores are, up to what rate the SLO holds, and how much headroom that is. Where no
number of cores holds, it says why and what to change, and ends with 1; what cannot be asked ends
with 2.

  --slo-us X          the p99 to keep, of small and large requests together (50)
  --rate X            requests per second (3e6, or what the workload's file says)
  --workers-max N     the most cores there are, 1 to 64 (64)

  --workload NAME     of laneway bench: twitter-1 to twitter-54, fb-etc, ycsb-a, noisy-8mb, ...
  --workload FILE     TOML; what is missing is the paper's default. For example:
                        rate = 400_000             # requests per second
                        get_share = 0.95           # the others are writes
                        sizes = [[100, 90.0], [4096, 9.9], [1000000, 0.1]]   # bytes, weight
                      or, instead of sizes, the paper's three classes:
                        large_percent = 0.125      # of values of 1500 bytes and more
                        large_bytes_max = 500_000
                      and, where keys have owners:  keys = 100_000,  zipf = 0.99
  --trace FILE        requests of a trace, in their order, at the rate that is asked for
  --service-file FILE what requests of each size were measured to take
  --access erew|crew  with --design hkh: a key's owner serves it, or its writes; --zipf X and
                      --keys N say how skewed a workload is that has no keys of its own
  --way W             what a request costs: bypass (the paper's server), tcp, tcp-pipelined (16 in
                      flight), udp (as measured over loopback); or --request-ns and --packet-ns
  --nic-gbit X        the wire (40, but none where a design of the list, domains or connections
                      have none); --network-us X what a client adds (3.7)
  and any other axis of laneway sim run, but workers and load; laneway sim run --help lists them

  --sweep FILE        TOML: axis = value, or axis = [value, ...]
  --quick, --full     150 000 requests for each of 3 seeds (default), or 1 000 000 for each of 8;
                      or --requests and --seeds
  --json, --csv       all columns, on standard output, instead of a table; --schema: what they are
  --out DIR           plan.json and plan.csv;  --no-table: nothing on standard output
  --seed N, --threads N  the first seed (1); threads (as many as there are CPUs)
";

/// Requests per second where nothing says how many: half of what the paper's server does.
const RATE: f64 = 3e6;

/// What plan chooses itself, and what to do instead.
const CHOSEN: [(&str, &str); 2] = [
    ("workers", "plan finds how many; --workers-max says how many there are"),
    ("load", "plan asks how many cores a rate needs; give --rate"),
];

#[derive(Debug)]
struct Flags {
    cases: Vec<Case>,
    question: Question,
    seed: u64,
    threads: usize,
    form: Form,
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Table,
    Json,
    Csv,
    Nothing,
}

#[derive(Debug)]
enum Asked {
    Schema,
    Plan(Box<Flags>),
}

/// Runs with these arguments, `plan` itself not among them.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    carry_out("sim plan", HELP, parse(args.collect()), |asked| match asked {
        Asked::Schema => {
            print!("{}", plan::schema());
            Ok(true)
        }
        Asked::Plan(flags) => {
            let refusals = run(&flags)?;
            refusals.iter().for_each(|line| eprintln!("laneway sim plan: {line}"));
            Ok(refusals.is_empty())
        }
    })
}

fn parse(args: Vec<OsString>) -> Result<Option<Asked>, String> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let question = Question { slo_us: 50.0, workers_max: 64 };
    let mut flags =
        Flags { cases: Vec::new(), question, seed: 1, threads: cpus, form: Form::Table, out: None };
    let (mut sweep, mut file, mut full) = (Sweep::default(), None, false);
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("schema") => return Ok(Some(Asked::Schema)),
            Long("json") => flags.form = Form::Json,
            Long("csv") => flags.form = Form::Csv,
            Long("no-table") => flags.form = Form::Nothing,
            Long("quick") => full = false,
            Long("full") => full = true,
            Long("seed") => flags.seed = whole(&mut parser, "--seed", 0, 1 << 40)?,
            Long("threads") => flags.threads = whole(&mut parser, "--threads", 1, 1024)?,
            Long("workers-max") => {
                flags.question.workers_max = whole(&mut parser, "--workers-max", 1, 64)?;
            }
            Long("slo-us") => flags.question.slo_us = number(&mut parser, "--slo-us", 0.1, 1e9)?,
            Long("out") => flags.out = Some(text(&mut parser, "--out")?.into()),
            Long("sweep") => file = Some(text(&mut parser, "--sweep")?),
            Long(name) if Sweep::knows(name) => {
                let name = name.to_owned();
                sweep.set(&name, &text(&mut parser, &format!("--{name}"))?)?;
            }
            Long(name) => return Err(format!("--{name}: no such flag of plan")),
            Short(name) => return Err(format!("-{name}: no such flag of plan")),
            Value(word) => {
                return Err(format!("{}: plan takes flags only", word.to_string_lossy()));
            }
        }
    }
    if let Some(path) = file {
        sweep.read_file(&path)?;
    }
    flags.cases = cases(sweep, full)?;
    flags.question.check(&flags.cases)?;
    Ok(Some(Asked::Plan(Box::new(flags))))
}

/// The combinations, with what plan has by default.
fn cases(mut sweep: Sweep, full: bool) -> Result<Vec<Case>, String> {
    for (name, instead) in CHOSEN {
        if sweep.given(name).is_some() {
            return Err(format!("--{name}: {instead}"));
        }
    }
    let (requests, seeds) = if full { ("1000000", "8") } else { ("150000", "3") };
    let wire = if sweep.may_have_wire() { "40" } else { "none" };
    let default = [("requests", requests), ("seeds", seeds), ("nic-gbit", wire)];
    for (name, value) in default.into_iter().chain([("network-us", "3.7")]) {
        sweep.set_default(name, value)?;
    }
    sweep.cases(RATE)
}

/// The lines that say where no number of cores holds.
fn run(flags: &Flags) -> Result<Vec<String>, String> {
    let study = Study::new(Effort::Quick, flags.seed, flags.threads);
    let answers: Vec<Answer> = plan::answers(&study, &flags.cases, flags.question)?;
    let rows: Vec<Row> = answers.iter().flat_map(|answer| answer.rows.iter().cloned()).collect();
    match flags.form {
        Form::Json => print!("{}", report::json_lines(&rows)),
        Form::Csv => print!("{}", row::csv(&rows)),
        Form::Table => print!("{}", table(&rows)),
        Form::Nothing => {}
    }
    if let Some(folder) = &flags.out {
        let made = std::fs::create_dir_all(folder);
        let made = made.map_err(|error| format!("--out {}: {error}", folder.display()));
        made.and_then(|()| report::write_rows(folder, "plan", &rows))?;
    }
    Ok(answers.into_iter().filter_map(|answer| answer.refusal).collect())
}

/// What tables show of what was found.
const FOUND: &str = "workers holds p99 small_p99 large_p99 cpu_busy wire_busy headroom rate_max";

/// A table of what was asked of all, and one of the answers, with what was not.
fn table(rows: &[Row]) -> String {
    let mut asked: Vec<&str> = Vec::new();
    for row in rows {
        // It stands before what was found, behind the figure's name and the form's.
        for name in row.names().skip(2).take_while(|name| *name != "workers") {
            if !asked.contains(&name) {
                asked.push(name);
            }
        }
    }
    let is_same = |name: &&str| rows.iter().all(|row| row.get(name) == rows[0].get(name));
    let (same, mut shown): (Vec<&str>, Vec<&str>) = asked.into_iter().partition(is_same);
    shown.extend(FOUND.split(' '));
    let of_all: Vec<Row> = rows.iter().take(1).map(|row| row.only(&same)).collect();
    let answers: Vec<Row> = rows.iter().map(|row| row.only(&shown)).collect();
    format!(
        "The fewest cores that keep p99 within slo_us on every seed, and a quarter more. For all:\n\
         {}\n{}(intervals, and more columns, with --json, --csv or --out)\n",
        row::table(&of_all),
        row::table(&answers),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Asked>, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    fn flags(line: &str) -> Flags {
        match parsed(line) {
            Ok(Some(Asked::Plan(flags))) => *flags,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_asked_says_flag_value_limit_and_way_out() {
        let scratch = std::env::temp_dir().join(format!("laneway-plan-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).expect("temp is writable");
        let file = |name: &str, text: &str| {
            let path = scratch.join(name);
            std::fs::write(&path, text).expect("room for a line");
            path.to_str().expect("plain").to_owned()
        };
        let cut = file("cut.csv", "1,a,20,90,1,get,0\n1,b,20,9");
        let empty = file("empty.csv", "");
        let no_sizes = file("sizes.toml", "sizes = []");
        let torn = file("torn.toml", "rate = 5\nsizes = [[100, 1], [2");
        for (line, words) in [
            ("--rate 0", "--rate 0: must be a number from 1 to"),
            ("--rate fast", "--rate fast: must be a number from 1 to"),
            ("--slo-us 0", "--slo-us 0: must be a number from 0.1 to"),
            ("--slo-us nan", "--slo-us nan: must be a number from 0.1 to"),
            ("--workers-max 0", "--workers-max 0: must be a whole number from 1 to 64"),
            ("--workers-max 65", "--workers-max 65: must be a whole number from 1 to 64"),
            ("--workers 8", "--workers: plan finds how many; --workers-max says"),
            ("--load 1.5", "--load 1.5: must be a number from"),
            ("--load 0.5", "--load: plan asks how many cores a rate needs; give --rate"),
            ("--design fifo", "--design fifo: must be one of lanes, minos"),
            ("--zipf 0.99", "--zipf: is of --design hkh alone"),
            ("--design hkh --zipf 0.99", "--zipf: keys have no owners; give --access erew or crew"),
            ("--design hkh --access erew --zipf -1", "--zipf -1: must be a number from 0 to 10"),
            ("--design hkh --access erew --keys 0", "--keys 0: must be a whole number from 1 to"),
            ("--design lanes --access crew", "--access: is of --design hkh alone"),
            ("--design hkh --access any", "--access any: must be one of crew, erew, crcw"),
            ("--design hkh --access erew --numa 2", "--access: a key's owner has a queue"),
            ("--workload twitter-99", "--workload twitter-99: there are clusters 1 to 54; or"),
            ("--workload twitter-5", "--workload twitter-5: its "),
            ("--workload fb-all", "--workload fb-all: there are etc fb-usr"),
            ("--workload /no/such.toml", "--workload /no/such.toml: "),
            ("--workload twitter-4 --get-share 1", "--get-share: --workload has its own; leave"),
            ("--workload twitter-4 --trace x", "--trace: --workload has its own"),
            ("--trace /no/such", "--trace /no/such: "),
            ("--service-file /no/such", "--service-file /no/such: "),
            ("--numa 8 --workers-max 4", "--numa 8: must be at most --workers-max (4)"),
            ("--design sho --workers-max 1", "--design sho: needs --workers 2 or more"),
            ("--design tq --nic-gbit 40", "--nic-gbit: shinjuku, darc, tq, caladan have no wire"),
            ("--design tq --batch 1", "--batch: is of --design lanes or minos or hkh or hkh-ws or"),
            ("--rate 1 --requests 2000000", "--requests 2000000: 1 a second take 2000000 s, which"),
            ("--wurst 3", "--wurst: no such flag of plan"),
            ("-x", "-x: no such flag of plan"),
            ("minos-fig2", "minos-fig2: plan takes flags only"),
            (&*format!("--trace {cut}"), "line 2: 4 cells, where ts,key,ksize,vsize,client,op,ttl"),
            (&*format!("--trace {cut}"), "; the file ends in this line"),
            (&*format!("--trace {empty}"), ": no rows"),
            (&*format!("--service-file {empty}"), ": no rows; a row is: item_bytes nanos"),
            (&*format!("--workload {no_sizes}"), "sizes: needs at least one row"),
            (&*format!("--workload {torn}"), "torn.toml: TOML line 2: "),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(words) && error.lines().count() == 1, "{line}: {error}");
        }
        std::fs::remove_dir_all(&scratch).expect("it is ours");
    }

    #[test]
    fn a_rate_is_the_flags_or_the_files_or_the_papers() {
        let path = std::env::temp_dir().join(format!("laneway-rate-{}.toml", std::process::id()));
        std::fs::write(&path, "rate = 5e5").expect("room for a line");
        let file = path.to_str().expect("plain");
        let rates =
            |line: &str| -> Vec<f64> { flags(line).cases.iter().map(|case| case.rate).collect() };
        let found = [
            rates(&format!("--workload {file}")),
            rates(&format!("--workload {file} --rate 7e5,8e5")),
            rates("--workload twitter-4"),
        ];
        std::fs::remove_file(&path).expect("it is ours");
        assert_eq!(found, [vec![5e5], vec![7e5, 8e5], vec![RATE]]);
    }

    #[test]
    fn there_is_a_wire_unless_a_design_of_the_list_has_none() {
        for (line, wire) in [
            ("", "40"),
            ("--design minos,hkh", "40"),
            ("--design lanes,tq", "none"),
            ("--design all", "none"),
            ("--numa 2", "none"),
            ("--connections 64", "none"),
            ("--nic-gbit 10", "10"),
        ] {
            let flags = flags(line);
            assert!(flags.cases.iter().all(|case| case.row.text("nic_gbit") == wire), "{line}");
        }
        assert_eq!(flags("--design all").cases.len(), 9);
    }

    #[test]
    fn what_no_number_of_cores_holds_says_why_and_what_to_change_in_one_line() {
        for (line, words) in [
            ("--slo-us 0.1 --rate 1000", "one request in a hundred takes 4.5 us or more by itself"),
            ("--rate 3e6 --workers-max 2", "the CPU time is that of 3.9 cores"),
            ("--rate 3e6 --workers-max 2", "raise --slo-us, raise --workers-max, lower --rate"),
            (
                "--rate 3e6 --nic-gbit 1",
                "Gb/s, and the wire carries 1; raise --slo-us, lower --rate, or",
            ),
            ("--rate 3e6 --nic-gbit 1", ", or --nic-gbit for a wider wire"),
            (
                "--design hkh --access erew --zipf 1.5 --nic-gbit none --rate 5e6",
                "and has one; raise --slo-us, lower --rate, or another --access",
            ),
            (
                "--design hkh --slo-us 12 --large-percent 0.5 --nic-gbit none --workers-max 9",
                "on average (steady)",
            ),
        ] {
            let flags = flags(&format!("{line} --requests 20000 --seeds 1 --no-table"));
            let refusals = run(&flags).expect("nothing is written");
            let [refusal] = &refusals[..] else { panic!("{line}: {refusals:?}") };
            assert!(refusal.contains(words), "{line}: {refusal}");
            for part in ["keeps p99 within", "requests a second", "raise --slo-us", "--rate"] {
                assert!(refusal.contains(part), "{part} is not in {refusal}");
            }
            assert_eq!(refusal.lines().count(), 1);
        }
    }

    #[test]
    fn one_design_of_several_that_cannot_is_told_beside_the_answers_of_the_others() {
        let line = "--design lanes,hkh --slo-us 12 --nic-gbit none --requests 20000 --seeds 1";
        let flags = flags(&format!("{line} --no-table --large-percent 0.5"));
        let refusals = run(&flags).expect("nothing is written");
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        assert!(refusals[0].starts_with("hkh: no number of cores up to 64"), "{}", refusals[0]);
    }

    #[test]
    fn tables_fit_and_every_column_has_a_unit_or_is_a_word() {
        let name = format!("laneway-{}-{}.csv", "a-long-name-".repeat(12), std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "1,a,20,90,1,get,0\n".repeat(1_000)).expect("room");
        let file = path.to_str().expect("plain").to_owned();
        for line in [
            "--design lanes,hkh,tq --rate 1e5,2e5 --way tcp",
            "--design hkh --access erew,crew --zipf 0.5,0.9 --keys 1000 --network-us 1",
            &*format!(
                "--trace {file} --rate 1e6 --rx-queue 100 --retry-us 500 --burst-factor 2 \
                 --standby epoch --design minos,lanes --nic-gbit none"
            ),
        ] {
            let flags = flags(&format!("{line} --requests 20000 --seeds 1 --workers-max 4"));
            let study = Study::new(Effort::Quick, 1, 2);
            let found = plan::answers(&study, &flags.cases, flags.question).expect("checked");
            let rows: Vec<Row> = found.into_iter().flat_map(|answer| answer.rows).collect();
            let text = table(&rows);
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            let answers = text.split("\n\n").nth(1).expect("a second table");
            for name in ["workers", "p99", "large_p99", "headroom", "rate_max"] {
                assert!(answers.lines().next().is_some_and(|head| head.contains(name)), "{text}");
            }
            let words = ["design", "holds", "trace", "way", "access", "standby", "zipf"];
            let asked = rows.iter().flat_map(|row| row.names().skip(2)).take_while(|n| *n != "p50");
            for name in asked.filter(|name| !words.contains(name)) {
                assert_ne!(row::unit(name), "", "{name}");
            }
        }
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn the_help_has_its_flags_and_fits() {
        assert!(matches!(parsed("--help"), Ok(None)));
        assert!(HELP.lines().all(|line| line.chars().count() <= 100));
        for flag in ["--slo-us", "--rate", "--workers-max", "--trace", "--workload twitter-4"] {
            assert!(HELP.contains(flag), "{flag}");
        }
        let line = HELP.lines().find_map(|line| line.trim().strip_prefix("laneway sim plan "));
        assert_eq!(flags(line.expect("an example")).cases.len(), 2);
    }
}
