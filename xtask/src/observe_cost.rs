//! What it costs a request that operators can watch the server, in instructions, which do not hang
//! on how busy the machine is.
//!
//! **Observability** is all that a server records for operators: counters, latencies by class,
//! samples of keys, totals by client, large and slow requests, events that somebody watches. A
//! second build, with the feature `unobserved`, has none of it (`laneway_server::built::OBSERVES`);
//! both carry out the same requests under callgrind, and the difference is the cost, arguments and
//! checks at each call included. The program is that of `cargo xtask instructions`. Its clock is
//! set by hand, so what it costs to read one is not in the number; time has it (`cargo xtask bench
//! observe`).
//!
//! **Hot keys** under `--hot` are a part of a design and not in that difference. callgrind counts
//! whole servers, and which of their instructions belong to sketch, table and slots. Each server is
//! loaded twice, with different numbers of requests; the difference leaves out what it costs to
//! begin. Left out too is what comes by the clock, however few the requests, of which there are few
//! under callgrind: a share of less is a larger one. Hand-off is told apart: what EREW costs over
//! serving every key where it arrives.
//!
//! With `--sockets` whole servers of both builds are counted, too, for observability's share of
//! what a server executes by itself; what the kernel does for it is in no count here.

use crate::server::free_address;
use crate::{
    Client, Executable, Failure, Outcome, bench, beside, failed, instructions, passed, place,
    process,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// A server executes so many at least, fifty times slower than it would: some fifteen slots. With
/// less than a third of them the keys are hardly found.
const REQUESTS: f64 = 30_000.0;
/// Most instructions of a request that recording may take, by path.
const CEILINGS: &str = "bench/observe-cost.toml";
/// What a new ceiling leaves above what was counted.
const MARGIN: f64 = 1.05;
/// The feature without which everything is recorded.
const UNOBSERVED: &str = "unobserved";
/// Paths of crates/rig/examples/instructions.rs, each with the requests in flight.
const PATHS: [(&str, usize); 2] = [("get", 1), ("get-burst", 16)];

/// Most that sketch, table and slots may take of a request's instructions.
const SHARE_MAX: f64 = 0.03;

/// The functions that are the mechanism; none of them calls another.
const FUNCTIONS: [&str; 5] =
    ["::count_access", "::turn_slot", "::close_slot", "::follow_table", "::hot_owner"];
/// What a server does once in so much time: it looks for items that have expired.
const BY_THE_CLOCK: &str = "::sweep_locked";

/// Callgrind writes its file from within the process: a sandbox would refuse that.
const BASE: [&str; 4] = ["--idle", "block", "--sandbox", "off"];
const LOAD: &str = "bench --closed --value-bytes 100 --keys 5000 --warmup 0 --duration 1 --quiet";
/// What is counted of hot keys: a name, and the flags beside [`BASE`].
const SERVERS: [(&str, &[&str]); 3] = [
    ("crcw", &["-t", "4", "--design", "hkh", "--access", "crcw"]),
    ("erew", &["-t", "4", "--design", "hkh", "--access", "erew"]),
    ("hot", &["-t", "4", "--design", "hkh", "--access", "erew", "--hot", "default"]),
];
const HOT_LOAD: &str = "--connections 16 --zipf 0.99";
/// The loads of whole servers with and without recording, each with the requests in flight.
const SOCKET_LOADS: [(&str, usize); 2] = [
    ("--connections 1 --get-share 1 --depth 1", 1),
    ("--connections 1 --get-share 1 --depth 16", 16),
];
/// The shorter load has this part of the longer one's requests.
const SHORT: f64 = 0.25;
/// Loads of a second that a server is given for each thousand requests, at most.
const LOADS_PER_1000: f64 = 20.0;

/// A server that is counted under a load.
struct Subject<'a> {
    name: String,
    executable: &'a Executable,
    flags: &'a [&'a str],
    /// Flags beside [`LOAD`].
    load: &'a str,
}

/// What a server did, or two of them one more than the other.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    requests: f64,
    instructions: f64,
    /// Of the mechanism, in the order of [`FUNCTIONS`].
    hot: [f64; FUNCTIONS.len()],
}

impl Counted {
    fn without(self, start: Counted) -> Counted {
        let hot = std::array::from_fn(|at| self.hot[at] - start.hot[at]);
        Counted {
            requests: self.requests - start.requests,
            instructions: self.instructions - start.instructions,
            hot,
        }
    }

    fn per_request(self) -> f64 {
        self.instructions / self.requests
    }
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut check, mut update, mut sockets) = (false, false, false);
    flags!(parser, {
        Long("check") => check = true,
        Long("update") => update = true,
        Long("sockets") => sockets = true,
    });
    place::need_programs(&["valgrind"], "valgrind")?;
    let costs = recording()?;
    for Cost { path, depth, with, without } in &costs {
        println!(
            "{path:<15} {:>8.1} instructions of {with:.1} a request record it ({depth} in flight)",
            with - without
        );
    }
    if update {
        return write(&costs);
    }
    let over = over(&ceilings()?, &costs)?;
    let laneway = Executable::laneway()?;
    if sockets {
        by_sockets(&laneway)?;
    }
    let hot = hot_keys(&laneway)?;
    verdict(check, hot, &over)
}

/// What a request of a path takes with recording and without.
struct Cost {
    path: &'static str,
    depth: usize,
    with: f64,
    without: f64,
}

/// The program of `cargo xtask instructions`, built with this feature and kept.
fn program(feature: Option<&str>) -> Result<PathBuf, String> {
    let kept = process::scratch_dir("observe-cost")?.join(feature.unwrap_or("observed"));
    // The next build has the same name.
    std::fs::copy(instructions::build(feature)?, &kept)
        .map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(kept)
}

fn recording() -> Result<Vec<Cost>, String> {
    let (with, without) = (program(None)?, program(Some(UNOBSERVED))?);
    let count = |&(path, depth): &(&'static str, usize)| -> Result<Cost, String> {
        let with = instructions::instructions_of(&with, path)?;
        let without = instructions::instructions_of(&without, path)?;
        Ok(Cost { path, depth, with, without })
    };
    beside::each(&PATHS, count).into_iter().collect()
}

/// The most that recording may take, by path.
type Ceilings = BTreeMap<String, f64>;

fn ceilings() -> Result<Ceilings, String> {
    let text = process::read(process::root().join(CEILINGS))?;
    toml::from_str(&text).map_err(|error| format!("{CEILINGS}: {error}"))
}

/// The paths on which recording takes more than it may. One on which it takes nothing was not
/// counted at all: the two builds are the same.
fn over(ceilings: &Ceilings, costs: &[Cost]) -> Result<Vec<String>, String> {
    let mut over = Vec::new();
    for Cost { path, with, without, .. } in costs {
        let ceiling = *ceilings.get(*path).ok_or(format!("{path} has no ceiling in {CEILINGS}"))?;
        let taken = with - without;
        if taken <= 0.0 {
            return Err(format!("{path}: recording takes {taken:.1} instructions: is it built?"));
        }
        if taken > ceiling {
            over.push(format!("{path}: {taken:.1} instructions to record it, not {ceiling}"));
        }
    }
    Ok(over)
}

fn write(costs: &[Cost]) -> Outcome {
    let mut text = String::from(
        "# Instructions of a request that recording takes at most, as `cargo xtask observe-cost`\n\
         # counts: 5 % above what was counted when they were made.\n\n",
    );
    for Cost { path, with, without, .. } in costs {
        text.push_str(&format!("{path} = {}\n", ((with - without) * MARGIN).ceil()));
    }
    process::write(process::root().join(CEILINGS), text)?;
    passed(format!("{} ceilings in {CEILINGS}", costs.len()))
}

/// Tells recording's share of what whole servers execute by themselves.
fn by_sockets(laneway: &Executable) -> Result<(), Failure> {
    let unobserved = Executable::named(&bench::build_unobserved()?)?;
    for (load, depth) in SOCKET_LOADS {
        let subject = |name: &str, executable| Subject {
            name: format!("{name}-{depth}"),
            executable,
            flags: &["-t", "1"],
            load,
        };
        let subjects = [subject("observed", laneway), subject("unobserved", &unobserved)];
        let [with, without] = differences(&subjects)?.map(Counted::per_request);
        println!(
            "by sockets      {:>8.1} instructions of {with:.1} a GET record it, {:.2} % \
             ({depth} in flight)",
            with - without,
            100.0 * (with - without) / with
        );
    }
    Ok(())
}

/// What the servers with hot keys and without took.
fn hot_keys(laneway: &Executable) -> Result<Counted, Failure> {
    let subjects = SERVERS.map(|(name, flags)| Subject {
        name: name.to_owned(),
        executable: laneway,
        flags,
        load: HOT_LOAD,
    });
    let [crcw, erew, hot] = differences(&subjects)?;
    for (name, counted) in [("crcw", crcw), ("erew", erew), ("erew, hot keys", hot)] {
        println!(
            "{name:<15} {:>8.0} instructions a request ({:.0} requests)",
            counted.per_request(),
            counted.requests
        );
    }
    println!("hand-off        {:>8.0}", erew.per_request() - crcw.per_request());
    Ok(hot)
}

fn verdict(check: bool, hot: Counted, over: &[String]) -> Outcome {
    for (name, instructions) in FUNCTIONS.iter().zip(hot.hot) {
        println!("  {:<15} {:>6.1}", name.trim_start_matches(':'), instructions / hot.requests);
    }
    let sum: f64 = hot.hot.iter().sum();
    let share = sum / hot.instructions;
    let told = format!(
        "hot keys: {:.1} instructions a request, {:.2} % of it; at most {} %",
        sum / hot.requests,
        100.0 * share,
        100.0 * SHARE_MAX
    );
    match check {
        true if !over.is_empty() => failed(format!(
            "{}: find what was added, or argue for it and run `cargo xtask observe-cost --update`",
            over.join("; ")
        )),
        true if share > SHARE_MAX => failed(told),
        _ => passed(told),
    }
}

/// What each took for the longer of two loads beyond the shorter, on all CPUs.
fn differences<const N: usize>(subjects: &[Subject<'_>; N]) -> Result<[Counted; N], String> {
    let counted = beside::each(subjects, difference);
    let counted: Vec<Counted> = counted.into_iter().collect::<Result<_, String>>()?;
    Ok(std::array::from_fn(|at| counted[at]))
}

/// What the longer of two loads took beyond the shorter.
fn difference(subject: &Subject<'_>) -> Result<Counted, String> {
    let start = count(subject, REQUESTS * SHORT)?;
    let counted = count(subject, longer(REQUESTS, start))?.without(start);
    let Subject { name, flags, .. } = subject;
    if counted.requests <= 0.0 || counted.instructions <= 0.0 {
        return Err(format!("{name}: the longer load was the smaller one: {counted:?}"));
    }
    let is_hot = flags.contains(&"--hot");
    match is_hot && counted.hot.iter().any(|&instructions| instructions <= 0.0) {
        true => Err(format!("a function of {FUNCTIONS:?} was not found: has it been inlined?")),
        false => Ok(counted),
    }
}

/// What the longer load has to execute, after the shorter one: a load comes in whole seconds, and
/// one second of a fast machine may be more than was asked of both.
fn longer(requests: f64, shorter: Counted) -> f64 {
    requests.max(shorter.requests / SHORT)
}

/// Serves a load under callgrind, and reads what it counted.
fn count(subject: &Subject<'_>, wanted: f64) -> Result<Counted, String> {
    let Subject { name, executable, flags, load: extra } = subject;
    let out = process::scratch_dir("callgrind")?.join(format!("{name}.out"));
    let out_flag = format!("--callgrind-out-file={}", out.display());
    let wrapper = ["valgrind", "--tool=callgrind", &out_flag];
    let flags: Vec<&str> = BASE.iter().chain(flags.iter()).copied().collect();
    let (log, address) = (format!("observe-cost-{name}"), free_address()?);
    let server = executable.start_at(&log, address, &wrapper, &flags)?;
    let requests = load(server.address(), extra, wanted)?;
    server.stop()?;
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--inclusive=yes", "--threshold=100", "--tree=calling"]).arg(&out);
    let text = process::said(&mut annotate)?;
    let total =
        total(&text).ok_or_else(|| format!("`callgrind_annotate` told no total:\n{text}"))?;
    Ok(Counted {
        requests,
        instructions: total - called(&text, BY_THE_CLOCK),
        hot: FUNCTIONS.map(|function| called(&text, function)),
    })
}

/// Loads a server until it has executed so many requests; how many it has then.
fn load(address: SocketAddr, extra: &str, wanted: f64) -> Result<f64, String> {
    let mut prefill = true;
    for _ in 0..(wanted / 1000.0 * LOADS_PER_1000) as usize {
        let mut load = Command::new(process::target_dir().join("release").join("laneway"));
        load.args(LOAD.split_whitespace()).args(extra.split_whitespace());
        load.args(["--server", &address.to_string()]);
        if !std::mem::take(&mut prefill) {
            load.arg("--no-prefill");
        }
        process::said(&mut load)?;
        let requests = executed(&mut Client::connect(address)?)?;
        if requests >= wanted {
            return Ok(requests);
        }
    }
    Err(format!("{wanted} requests were not executed in as many loads as there may be"))
}

fn executed(client: &mut Client) -> Result<f64, String> {
    let stats = client.stats("balance")?;
    let counts = stats.iter().filter(|(name, _)| name.ends_with(":requests_since_start"));
    let sum: f64 = counts.filter_map(|(_, value)| value.parse::<f64>().ok()).sum();
    if sum > 0.0 { Ok(sum) } else { Err(format!("no request was executed: {stats:?}")) }
}

/// The number that a line begins with.
fn number(line: &str) -> Option<f64> {
    line.split_whitespace().next()?.replace(',', "").parse().ok()
}

/// All instructions.
fn total(text: &str) -> Option<f64> {
    text.lines().find(|line| line.contains("PROGRAM TOTALS")).and_then(number)
}

/// The instructions of all calls of a function, what it called in turn included. The lines of the
/// function itself are no use: there is one for each file that was inlined into it.
fn called(text: &str, function: &str) -> f64 {
    let is_call = |line: &&str| {
        let Some((_, callee)) = line.split_once(" >   ") else { return false };
        callee.match_indices(function).any(|(at, _)| {
            let next = callee[at + function.len()..].chars().next();
            next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
        })
    };
    text.lines().filter(is_call).filter_map(number).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_by_the_name_of_the_called() {
        let text = "--\n1,234,567 (100.0%)  PROGRAM TOTALS\n\n\
                    15,000 ( 1.0%)  *  turn.rs:laneway_server::W<T,C>::count_access [laneway]\n\
                    99 ( 0.1%)  >   turn.rs:laneway_server::W<T,C>::found_hot (8x) [laneway]\n\n\
                    300 ( 0.1%)  *  slice.rs:laneway_server::W<T,C>::count_access\n\n\
                    70,000 ( 1.0%)  *  jobs.rs:laneway_server::request::perform [laneway]\n\
                    12,000 ( 1.0%)  >   turn.rs:laneway_server::W<T,C>::count_access (70x) [a]\n\
                    1,000 ( 0.1%)  >   turn.rs:laneway_server::W<U,C>::count_access'2 (1x)\n\
                    5 ( 0.1%)  >   turn.rs:laneway_server::W<U,C>::count_access_other (1x)\n";
        assert_eq!(total(text), Some(1_234_567.0));
        assert_eq!(called(text, "::count_access"), 13_000.0);
        assert_eq!(called(text, "::nothing"), 0.0);
    }

    #[test]
    fn what_it_costs_to_begin_is_left_out_and_too_much_is_a_failure() {
        let counted = |requests: f64, instructions: f64, each: f64| Counted {
            requests,
            instructions,
            hot: [each * requests; FUNCTIONS.len()],
        };
        let start = counted(100.0, 1_100_000.0, 8.0);
        let both = counted(300.0, 1_300_000.0, 8.0).without(start);
        assert_eq!(both, counted(200.0, 200_000.0, 8.0));
        assert_eq!(both.per_request(), 1_000.0);
        // However fast the machine is, the longer load is several times the shorter one.
        assert_eq!(longer(1_000.0, start), 1_000.0);
        assert_eq!(longer(500.0, both), 800.0);
        // 40 of 1 000 instructions are more than 3 %.
        assert!(verdict(true, both, &[]).is_err());
        assert!(verdict(false, both, &[]).is_ok());
        let little = counted(200.0, 200_000.0, 5.0);
        assert!(verdict(true, little, &[]).is_ok());
        let over = ["get: 300.0 instructions to record it, not 250".to_owned()];
        assert!(verdict(true, little, &over).is_err());
        assert!(verdict(false, little, &over).is_ok());
    }

    #[test]
    fn recording_that_takes_more_than_it_may_is_found_and_none_at_all_is_an_error() {
        let ceilings = Ceilings::from([("get".into(), 250.0), ("get-burst".into(), 27.0)]);
        let over = |path, with| over(&ceilings, &[Cost { path, depth: 1, with, without: 1_000.0 }]);
        assert_eq!(over("get", 1_250.0), Ok(vec![]));
        let words = "get-burst: 27.5 instructions to record it, not 27";
        assert_eq!(over("get-burst", 1_027.5), Ok(vec![words.to_owned()]));
        assert!(over("get", 1_000.0).is_err_and(|why| why.contains("is it built")));
        assert!(over("miss", 1_001.0).is_err_and(|why| why.contains("no ceiling")));
        let committed = super::ceilings().expect("committed");
        assert!(PATHS.iter().all(|(path, _)| committed.contains_key(*path)));
    }
}
