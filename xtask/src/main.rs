//! Laneway's one tool: everything that is not `cargo build` or `cargo run`.
//!
//! Each subcommand is one module with a `main`, and a text in `xtask/help`. Whatever CI runs is a
//! subcommand here, so that every failure can be repeated by typing the line it prints.
//! Exit status: 0 passed, 1 failed, 2 wrong usage, 77 skipped (the reason is the last line).
//! It knows the command lines of the tools it calls; knows nothing of the server's insides.
#![forbid(unsafe_code)]

#[macro_use]
mod flags;

mod bench;
mod beside;
mod card_vm;
mod client;
mod clients;
mod cluster;
mod coverage;
mod dist;
mod drawings;
mod faults;
mod features;
mod figures;
mod fuzz;
mod instructions;
mod judge;
mod languages;
mod look;
mod loom;
mod memccapable;
mod musl;
mod observe_cost;
mod outcome;
mod package;
mod peers;
mod place;
mod power_cut;
mod process;
mod pymemcache;
mod python;
mod random;
mod rdma_vm;
mod redis;
mod replay;
mod restart;
mod sched_fifo;
mod server;
mod setup;
mod soak;
mod steps;
mod tidy;
mod tier_bench;
mod vm;
mod vopr;
mod wheel;

// What most tasks are told in: they take it from here.
pub use client::Client;
pub use outcome::{Failure, Outcome, failed, passed, skipped};
pub use place::Folder;
pub use process::Guarded;
pub use random::Value;
pub use server::{Executable, Server};

use std::process::ExitCode;

/// One subcommand: what is typed, its text, what it does with the arguments that follow.
struct Subcommand {
    name: &'static str,
    help: &'static str,
    main: fn(lexopt::Parser) -> Outcome,
}

/// The subcommand of this name, whose text is a file of the folder `help`.
macro_rules! task {
    ($name:literal, $main:expr) => {
        Subcommand {
            name: $name,
            help: include_str!(concat!("../help/", $name, ".txt")),
            main: $main,
        }
    };
}

const SUBCOMMANDS: &[Subcommand] = &[
    task!("test", steps::main),
    task!("setup", setup::main),
    task!("peers", peers::main),
    task!("tidy", tidy::main),
    task!("loom", loom::main),
    task!("fuzz", fuzz::main),
    task!("coverage", coverage::main),
    task!("instructions", instructions::main),
    task!("features", features::main),
    task!("observe-cost", observe_cost::main),
    task!("replay", replay::main),
    task!("memccapable", memccapable::main),
    task!("pymemcache", pymemcache::main),
    task!("clients", clients::main),
    task!("wheel", wheel::main),
    task!("redis", redis::main),
    task!("sched-fifo", sched_fifo::main),
    task!("rdma-vm", rdma_vm::main),
    task!("card-vm", card_vm::main),
    task!("power-cut", power_cut::main),
    task!("restart", restart::main),
    task!("package", package::main),
    task!("cluster", cluster::main),
    task!("dist", dist::main),
    task!("faults", faults::main),
    task!("soak", soak::main),
    task!("vopr", vopr::main),
    task!("drawings", drawings::main),
    task!("readme", figures::main),
    task!("tier-bench", tier_bench::main),
    task!("bench", bench::main),
];

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(name) = arguments.next() else {
        print!("{}", overview());
        return ExitCode::from(EXIT_USAGE);
    };
    let name = name.to_string_lossy().into_owned();
    if matches!(name.as_str(), "-h" | "--help" | "help") {
        print!("{}", overview());
        return ExitCode::SUCCESS;
    }
    let Some(subcommand) = SUBCOMMANDS.iter().find(|s| s.name == name) else {
        eprintln!("cargo xtask {name}: no such task; `cargo xtask help` lists them");
        return ExitCode::from(EXIT_USAGE);
    };
    let rest: Vec<_> = arguments.collect();
    if rest.iter().any(|a| a == "-h" || a == "--help") {
        println!("{}", subcommand.help.trim());
        return ExitCode::SUCCESS;
    }
    let again: String = rest.iter().map(|word| format!(" {}", word.to_string_lossy())).collect();
    match (subcommand.main)(lexopt::Parser::from_args(rest)) {
        Ok(note) => {
            if !note.is_empty() {
                println!("{note}");
            }
            ExitCode::SUCCESS
        }
        Err(Failure::Skipped(reason)) => {
            println!("{}{reason}", outcome::SKIPPED_PREFIX);
            ExitCode::from(outcome::EXIT_SKIPPED)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("cargo xtask {name}: {message}; `cargo xtask {name} --help` explains");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Failed(message)) => {
            println!("FAIL {name}: {message}; again with: cargo xtask {name}{again}");
            ExitCode::from(EXIT_FAILED)
        }
        // The task printed its own verdict, and its last line is part of its contract.
        Err(Failure::Told) => ExitCode::from(EXIT_FAILED),
    }
}

fn overview() -> String {
    let mut text = String::from("usage: cargo xtask TASK [--help | flags]\n\n");
    for subcommand in SUBCOMMANDS {
        let first = subcommand.help.trim().lines().next().unwrap_or_default();
        text.push_str(&format!("  {:<12} {first}\n", subcommand.name));
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_task_says_in_its_help_how_it_is_called() {
        for subcommand in super::SUBCOMMANDS {
            let usage = format!("usage: cargo xtask {}", subcommand.name);
            assert!(subcommand.help.contains(&usage), "{} lacks `{usage}`", subcommand.name);
        }
    }
}
