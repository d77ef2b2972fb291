//! What looking after hot keys costs a request, in instructions: callgrind counts whole servers,
//! and which of their instructions belong to sketch, table and slots. Counts of instructions do not
//! hang on how busy the machine is; the kernel's are not in them, so that the share is rather too
//! high.
//!
//! Each server is loaded twice, with different numbers of requests; the difference leaves out what
//! it costs to begin. Left out too is what comes by the clock, however few the requests, of which
//! there are few under callgrind: a share of less is a larger one. Hand-off is told apart: what
//! EREW costs over serving every key where it arrives.

use crate::beside;
use crate::client::Client;
use crate::outcome::{Failure, Outcome, failed, passed, skipped};
use crate::process;
use crate::server::Executable;
use std::net::SocketAddr;
use std::process::Command;

pub const HELP: &str = "\
Count by callgrind what looking after hot keys costs a request.

usage: cargo xtask hot-cost [--check] [--requests N]

  --check        exit with 1 if it is more than 3 % of the instructions of a request
  --requests N   at least so many, on servers that run fifty times slower than they would
                 (default 30000, fifteen slots)

Three servers of 4 workers, on all CPUs, twice each: every key served where it arrives
(crcw), by its owner (erew), and by its owner of the slot (erew --hot default).";

/// Most that sketch, table and slots may take of a request's instructions.
const SHARE_MAX: f64 = 0.03;

/// The functions that are the mechanism; none of them calls another.
const FUNCTIONS: [&str; 5] =
    ["::count_access", "::turn_slot", "::close_slot", "::follow_table", "::hot_owner"];
/// What a server does once in so much time: it looks for items that have expired.
const BY_THE_CLOCK: &str = "::sweep_locked";

/// Callgrind writes its file from within the process: a sandbox would refuse that.
const BASE: [&str; 8] = ["-t", "4", "--idle", "block", "--design", "hkh", "--sandbox", "off"];
const LOAD: &str = "bench --closed --connections 16 --value-bytes 100 --keys 5000 --zipf 0.99 \
                    --warmup 0 --duration 1 --quiet";
/// What is counted: a name, and the flags beside [`BASE`].
const SERVERS: [(&str, &[&str]); 3] = [
    ("crcw", &["--access", "crcw"]),
    ("erew", &["--access", "erew"]),
    ("hot", &["--access", "erew", "--hot", "default"]),
];
/// The shorter load has this part of the longer one's requests.
const SHORT: f64 = 0.25;
/// Loads of a second that a server is given for each thousand requests, at most.
const LOADS_PER_1000: f64 = 20.0;

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
    use lexopt::prelude::*;
    let (mut check, mut requests) = (false, 30_000_u32);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => check = true,
            Long("requests") => requests = parser.value()?.parse()?,
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    if requests < 10_000 {
        let why = "at least 10000, or the keys are hardly found";
        return Err(Failure::Usage(format!("--requests {requests}: {why}")));
    }
    if process::find_program("valgrind").is_none() {
        return skipped("no valgrind here; `cargo xtask setup` installs it");
    }
    let laneway = Executable::laneway()?;
    let counted = beside::each(&SERVERS, |(name, flags)| {
        difference(&laneway, name, flags, f64::from(requests))
    });
    let counted: Vec<Counted> = counted.into_iter().collect::<Result<_, String>>()?;
    let [crcw, erew, hot] = counted[..] else { return failed("a server was not counted") };
    for (name, counted) in [("crcw", crcw), ("erew", erew), ("erew, hot keys", hot)] {
        println!(
            "{name:<15} {:>8.0} instructions a request ({:.0} requests)",
            counted.per_request(),
            counted.requests
        );
    }
    println!("hand-off        {:>8.0}", erew.per_request() - crcw.per_request());
    verdict(check, hot)
}

fn verdict(check: bool, hot: Counted) -> Outcome {
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
    match check && share > SHARE_MAX {
        true => failed(told),
        false => passed(told),
    }
}

/// What the longer of two loads took beyond the shorter.
fn difference(
    laneway: &Executable,
    name: &str,
    flags: &[&str],
    requests: f64,
) -> Result<Counted, String> {
    let start = count(laneway, name, flags, requests * SHORT)?;
    let counted = count(laneway, name, flags, longer(requests, start))?.without(start);
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
fn count(laneway: &Executable, name: &str, flags: &[&str], wanted: f64) -> Result<Counted, String> {
    let out = process::scratch_dir("callgrind")?.join(format!("{name}.out"));
    let out_flag = format!("--callgrind-out-file={}", out.display());
    let wrapper = ["valgrind", "--tool=callgrind", &out_flag];
    let flags: Vec<&str> = BASE.iter().chain(flags).copied().collect();
    let server = laneway.start_under(&format!("hot-cost-{name}"), &wrapper, &flags)?;
    let requests = load(server.address(), wanted)?;
    server.stop()?;
    let mut annotate = Command::new("callgrind_annotate");
    annotate.args(["--inclusive=yes", "--threshold=100", "--tree=calling"]).arg(&out);
    let text = told(&mut annotate)?;
    let total =
        total(&text).ok_or_else(|| format!("`callgrind_annotate` told no total:\n{text}"))?;
    Ok(Counted {
        requests,
        instructions: total - called(&text, BY_THE_CLOCK),
        hot: FUNCTIONS.map(|function| called(&text, function)),
    })
}

/// Loads a server until it has executed so many requests; how many it has then.
fn load(address: SocketAddr, wanted: f64) -> Result<f64, String> {
    let mut prefill = true;
    for _ in 0..(wanted / 1000.0 * LOADS_PER_1000) as usize {
        let mut load = Command::new(process::target_dir().join("release").join("laneway"));
        load.args(LOAD.split_whitespace()).args(["--server", &address.to_string()]);
        if !std::mem::take(&mut prefill) {
            load.arg("--no-prefill");
        }
        told(&mut load)?;
        let requests = executed(&mut Client::connect(address)?)?;
        if requests >= wanted {
            return Ok(requests);
        }
    }
    Err(format!("{wanted} requests were not executed in as many loads as there may be"))
}

/// What a program says that ends well.
fn told(command: &mut Command) -> Result<String, String> {
    let (status, text) = process::capture(command)?;
    match status.success() {
        true => Ok(text),
        false => Err(format!(
            "`{}` ended with {}\n{text}",
            process::typed(command),
            process::told(status)
        )),
    }
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
        assert!(verdict(true, both).is_err());
        assert!(verdict(false, both).is_ok());
        assert!(verdict(true, counted(200.0, 200_000.0, 5.0)).is_ok());
    }
}
