//! How many instructions, allocations and system calls a request takes, counted by valgrind,
//! against committed ceilings: a guard that does not depend on time, so that it holds on a machine
//! that others disturb.
//!
//! Locked instructions are the read-modify-writes of atomics and mutexes. Workers on many CPUs pay
//! most for them, so their number is bounded too; here nobody waits for one.
//!
//! Each path is carried out twice with different numbers of requests; the difference, divided by
//! the difference of the numbers, leaves out what it costs to begin. callgrind counts instructions
//! and locked ones, and traces system calls; memcheck counts allocations. Instructions are no time:
//! what waits for memory or for the kernel costs none here. They find the needless copy or lookup
//! that a change brings along; their ceilings leave a few per cent, so that not every change has to
//! argue. The others leave a tenth.

use crate::{Outcome, beside, failed, passed, place, process};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const CEILINGS: &str = "bench/instructions.toml";
/// Requests of the two runs of a path: multiples of a burst and of a multiget's keys.
const REQUESTS: [u64; 2] = [800, 4_000];
/// The path that is a scrape of the metrics, and so much longer than a request. It reads without a
/// lock: one locked instruction more is one that a worker may be kept waiting for.
const SCRAPE: &str = "scrape";
const SCRAPES: [u64; 2] = [8, 40];
/// What a new ceiling of instructions leaves above what was counted.
const MARGIN: f64 = 1.05;
/// Allocations and locked instructions are whole; a tenth is what a map that grows now and then may
/// add to each request.
const MARGIN_WHOLE: f64 = 0.1;
/// Locked instructions of which no ceiling may leave a request more: workers on many CPUs wait for
/// each other's. (`get` is not among them: alone it has those of the memory transport, of its
/// client and of the turn, which the requests of a burst share.)
const LOCKED_MOST: &[(&str, f64)] = &[
    ("get-burst", 1.0),
    ("meta-get-burst", 1.0),
    ("miss-burst", 1.0),
    ("multiget", 1.0),
    ("resp-get-burst", 1.0),
    ("set-burst", 4.0),
    ("udp-get", 1.0),
    ("udp-get-burst", 1.0),
    ("udp-meta-get-burst", 1.0),
];
/// The path that is counted again with a needless allocation, and the program's word for that.
const CANARY: [&str; 2] = ["get", "needless"];

/// What one request takes, or may.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Cost {
    instructions: f64,
    locked: f64,
    allocations: f64,
    calls: f64,
}

type Costs = BTreeMap<String, Cost>;

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut update, mut only) = (false, String::new());
    flags!(parser, {
        Long("update") => update = true,
        Value(name) => only = name.to_string_lossy().into_owned(),
    });
    place::need_programs(&["valgrind"], "valgrind")?;
    let committed = std::fs::read_to_string(process::root().join(CEILINGS)).unwrap_or_default();
    let ceilings = read(&committed)?;
    let program = build(None)?;
    let mut names = paths(&program)?;
    names.retain(|name| name.contains(&only));
    if names.is_empty() {
        return failed(format!("no path matches `{only}`"));
    }
    let mut counted = Costs::new();
    // What valgrind counts does not hang on what runs beside it.
    let found = beside::each(&names, |name| count(&program, &[name]));
    for (name, found) in names.into_iter().zip(found) {
        let found = found?;
        println!(
            "{name:<18} {:>8.1} instructions {:>6.2} locked {:>6.2} allocations {:>5.2} \
             system calls",
            found.instructions, found.locked, found.allocations, found.calls
        );
        counted.insert(name, found);
    }
    if update {
        return write(ceilings, &counted);
    }
    let needless = count(&program, &CANARY)?;
    let noticed = over(&ceilings, &[(CANARY[0].to_owned(), needless)].into())?;
    let mut above = over(&ceilings, &counted)?;
    above.extend(too_high(&ceilings));
    verdict(&above, &noticed, counted.len())
}

fn verdict(over: &[String], noticed: &[String], paths: usize) -> Outcome {
    match (over, noticed) {
        ([], []) => failed("a needless allocation for each request went unnoticed"),
        ([], _) => passed(format!(
            "{paths} paths are below their ceilings; a needless allocation would not be"
        )),
        (over, _) => failed(format!(
            "{}: find what was added, or argue for it and run `cargo xtask instructions --update`",
            over.join("; ")
        )),
    }
}

/// The paths above their ceilings, and by what; an error for one that has none.
fn over(ceilings: &Costs, counted: &Costs) -> Result<Vec<String>, String> {
    let mut over = Vec::new();
    for (name, found) in counted {
        let ceiling = ceilings.get(name).ok_or(format!(
            "{name} has no ceiling in {CEILINGS}; `cargo xtask instructions --update` makes one"
        ))?;
        let rows = [
            ("system calls", 2_usize, found.calls, ceiling.calls),
            ("allocations", 2, found.allocations, ceiling.allocations),
            ("locked instructions", 2, found.locked, ceiling.locked),
            ("instructions", 0, found.instructions, ceiling.instructions),
        ];
        let above = rows.into_iter().find(|(_, _, took, most)| took > most);
        over.extend(above.map(|(what, decimals, took, most)| {
            format!("{name}: {took:.decimals$} {what}, not {most}")
        }));
    }
    Ok(over)
}

/// Ceilings that leave more locked instructions than a request may have: twice the margin, for
/// what was counted may have it as well.
fn too_high(ceilings: &Costs) -> Vec<String> {
    let beyond = |(name, most): &(&str, f64)| {
        let locked = ceilings.get(*name)?.locked;
        let is_beyond = locked > most + 2.0 * MARGIN_WHOLE;
        is_beyond
            .then(|| format!("{name}: a ceiling of {locked:.2} locked instructions, not {most}"))
    };
    LOCKED_MOST.iter().filter_map(beyond).collect()
}

fn read(text: &str) -> Result<Costs, String> {
    toml::from_str(text).map_err(|error| format!("{CEILINGS}: {error}"))
}

/// The ceilings with new ones for what was counted.
fn renewed(mut ceilings: Costs, counted: &Costs) -> Costs {
    for (name, found) in counted {
        let instructions = (found.instructions * MARGIN).ceil();
        let whole = |counted: f64| ((counted + MARGIN_WHOLE) * 100.0).round() / 100.0;
        let (locked, allocations) = (whole(found.locked), whole(found.allocations));
        let calls = whole(found.calls);
        ceilings.insert(name.clone(), Cost { instructions, locked, allocations, calls });
    }
    ceilings
}

fn write(ceilings: Costs, counted: &Costs) -> Outcome {
    let ceilings = renewed(ceilings, counted);
    let too_high = too_high(&ceilings);
    if !too_high.is_empty() {
        return failed(format!("{}: no ceiling may be so high", too_high.join("; ")));
    }
    let mut text = String::from(
        "# Per request at most (per key for multiget and lookups), as `cargo xtask instructions`\n\
         # counts; 5 % of the instructions, a tenth of a locked one, of an allocation and of a\n\
         # system call above what was counted when they were made.\n",
    );
    for (name, Cost { instructions, locked, allocations, calls }) in &ceilings {
        text.push_str(&format!(
            "\n[{name}]\ninstructions = {instructions}\nlocked = {locked}\n\
             allocations = {allocations}\ncalls = {calls}\n"
        ));
    }
    process::write(process::root().join(CEILINGS), text)?;
    passed(format!("{} ceilings in {CEILINGS}", ceilings.len()))
}

/// Builds the program that is counted, with this feature of the server if there is one. One unit
/// and no link-time optimisation: the same bytes from the same source, and no wait for the linker.
pub fn build(feature: Option<&str>) -> Result<PathBuf, String> {
    let folder = process::target_dir().join("instructions");
    let mut cargo = process::cargo();
    cargo.env("CARGO_TARGET_DIR", &folder);
    cargo.envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")]);
    // In an incremental build code is inlined less, however few its units are.
    cargo.envs([("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"), ("CARGO_INCREMENTAL", "0")]);
    cargo.args(["build", "--quiet", "--release", "-p", "laneway-rig"]);
    cargo.args(["--example", "instructions"]);
    if let Some(feature) = feature {
        cargo.args(["--features", feature]);
    }
    process::run(&mut cargo)?;
    Ok(folder.join("release").join("examples").join("instructions"))
}

/// What the program can carry out, by its own word.
fn paths(program: &Path) -> Result<Vec<String>, String> {
    let (_, told) = process::capture(&mut Command::new(program))?;
    let names = told.lines().find_map(|line| line.split("is one of ").nth(1));
    let names = names.ok_or_else(|| format!("{}: {told}", program.display()))?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

/// What one request takes; `words` are the path's name and what else the program is told.
fn count(program: &Path, words: &[&str]) -> Result<Cost, String> {
    let callgrind = [
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--collect-bus=yes",
        "--trace-syscalls=yes",
    ];
    let memcheck = ["--tool=memcheck", "--undef-value-errors=no"];
    let collected = |told: &str| {
        let [instructions, locked] = numbers_after(told, "Collected : ")?;
        Some([instructions, locked, system_calls(told)?])
    };
    let [instructions, locked, calls] = per_request(&callgrind, program, words, collected)?;
    let used = |told: &str| numbers_after(told, "total heap usage: ");
    let [allocations] = per_request(&memcheck, program, words, used)?;
    Ok(Cost { instructions, locked, allocations, calls })
}

/// The instructions that one request of a path takes.
pub fn instructions_of(program: &Path, path: &str) -> Result<f64, String> {
    let callgrind = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
    let collected = |told: &str| numbers_after(told, "Collected : ");
    let [instructions] = per_request(&callgrind, program, &[path], collected)?;
    Ok(instructions)
}

/// What a tool of valgrind counts for one request, by the numbers that `found` reads in what it
/// tells.
fn per_request<const N: usize>(
    tool: &[&str],
    program: &Path,
    words: &[&str],
    found: impl Fn(&str) -> Option<[u64; N]>,
) -> Result<[f64; N], String> {
    let mut totals = [[0_u64; N]; 2];
    let counts = if words[0] == SCRAPE { SCRAPES } else { REQUESTS };
    for (total, requests) in totals.iter_mut().zip(counts) {
        let mut valgrind = Command::new("valgrind");
        // The allocator empties its bins for short pieces now and then, by locked instructions
        // among others: that is as what was freed long before has left them, and no request's.
        valgrind.env("GLIBC_TUNABLES", "glibc.malloc.mxfast=0");
        valgrind.args(tool).arg(program);
        valgrind.arg(words[0]).arg(requests.to_string()).args(&words[1..]);
        let (status, told) = process::capture(&mut valgrind)?;
        let numbers = found(&told).filter(|_| status.success());
        *total = numbers.ok_or_else(|| format!("{}: {told}", process::typed(&valgrind)))?;
    }
    let [fewer, more] = totals;
    let requests = (counts[1] - counts[0]) as f64;
    Ok(std::array::from_fn(|at| more[at].saturating_sub(fewer[at]) as f64 / requests))
}

/// `==12== Collected : 123456 78`, `==12==   total heap usage: 1,234 allocs, 1,230 frees, ...`
fn numbers_after<const N: usize>(told: &str, label: &str) -> Option<[u64; N]> {
    let rest = told.lines().find_map(|line| line.split(label).nth(1))?;
    let words = rest.split_whitespace().map(|word| word.replace(',', "").parse().ok());
    words.take(N).collect::<Option<Vec<u64>>>()?.try_into().ok()
}

/// `SYSCALL[12,1]( 45) sys_recvfrom ...`, one for each, and another line where one that may block
/// ends; a program without any does not exist.
fn system_calls(told: &str) -> Option<u64> {
    // How often the allocator moves the end of its heap hangs on where that lies. What is allocated
    // is counted by itself.
    let heap = told.matches(") sys_brk").count();
    let calls = (told.matches(") sys_").count() - heap) as u64;
    (calls > 0).then_some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_valgrind_says_is_read() {
        let told = "SYSCALL[7,1]( 44) sys_sendto ( 3, 0x1 ) --> [async] ...\n\
                    SYSCALL[7,1]( 44) ... [async] --> Success(0x54)\nSYSCALL[7,1](3) sys_close";
        assert_eq!((system_calls(told), system_calls("==7==")), (Some(2), None));
        let told = "==12== Events    : Ir Ge\n==12== Collected : 9876543 12\n==12==\n";
        assert_eq!(numbers_after(told, "Collected : "), Some([9_876_543, 12]));
        assert_eq!(numbers_after::<3>(told, "Collected : "), None);
        let told = "==7==   total heap usage: 12,345 allocs, 12,300 frees, 9 bytes allocated\n";
        assert_eq!(numbers_after(told, "total heap usage: "), Some([12_345]));
        assert_eq!(numbers_after::<2>("==12== error", "Collected : "), None);
    }

    #[test]
    fn a_path_above_its_ceiling_is_found_and_one_without_is_an_error() {
        let ceilings =
            read("[get]\ninstructions = 1000\nlocked = 18.1\nallocations = 2.1\ncalls = 0.1\n")
                .expect("good");
        let over = |name: &str, instructions, locked, allocations| {
            let cost = Cost { instructions, locked, allocations, calls: 0.0 };
            super::over(&ceilings, &[(name.to_owned(), cost)].into())
        };
        for (instructions, locked, allocations, words) in [
            (1_000.0, 18.0, 2.0, ""),
            (1_000.6, 18.0, 2.0, "get: 1001 instructions, not 1000"),
            // One more of these is far below the margin of the instructions.
            (990.0, 19.0, 2.0, "get: 19.00 locked instructions, not 18.1"),
            (990.0, 18.0, 3.0, "get: 3.00 allocations, not 2.1"),
        ] {
            let over = over("get", instructions, locked, allocations).expect("it has a ceiling");
            assert_eq!(over.concat(), words);
        }
        assert!(
            over("miss", 1.0, 0.0, 0.0).is_err_and(|words| words.contains("miss has no ceiling"))
        );
        for wrong in ["get = 5", "[get]\ninstructions = 5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_ceilings_leave_a_get_one_locked_instruction_and_a_set_four() {
        let committed = std::fs::read_to_string(process::root().join(CEILINGS));
        let ceilings = read(&committed.expect("the ceilings are committed")).expect("good");
        assert_eq!(too_high(&ceilings), [""; 0]);
        for (name, most) in LOCKED_MOST {
            let path = ceilings.get(*name).expect("a path that is counted");
            for (locked, is_too_high) in [(*most, false), (most + 1.0, true)] {
                let counted: Costs = [((*name).to_owned(), Cost { locked, ..*path })].into();
                let renewed = renewed(ceilings.clone(), &counted);
                assert_eq!(too_high(&renewed).len(), usize::from(is_too_high), "{name}: {locked}");
            }
        }
    }

    #[test]
    fn an_allocation_that_goes_unnoticed_fails() {
        let above = ["get: 1.10 allocations, not 0.1".to_owned()];
        assert!(verdict(&[], &above, 3).is_ok());
        assert!(verdict(&[], &[], 3).is_err());
        assert!(verdict(&above, &above, 3).is_err());
    }
}
