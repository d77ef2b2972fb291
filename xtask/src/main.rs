//! Laneway's one tool: everything that is not `cargo build` or `cargo run`.
//!
//! Each subcommand is one module with a `HELP` text and a `main`. Whatever CI runs is a subcommand
//! here, so that every failure can be repeated by typing the line it prints.
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
mod languages;
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

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "test", help: steps::HELP, main: steps::main },
    Subcommand { name: "setup", help: setup::HELP, main: setup::main },
    Subcommand { name: "peers", help: peers::HELP, main: peers::main },
    Subcommand { name: "tidy", help: tidy::HELP, main: tidy::main },
    Subcommand { name: "loom", help: loom::HELP, main: loom::main },
    Subcommand { name: "fuzz", help: fuzz::HELP, main: fuzz::main },
    Subcommand { name: "coverage", help: coverage::HELP, main: coverage::main },
    Subcommand { name: "instructions", help: instructions::HELP, main: instructions::main },
    Subcommand { name: "features", help: features::HELP, main: features::main },
    Subcommand { name: "observe-cost", help: observe_cost::HELP, main: observe_cost::main },
    Subcommand { name: "replay", help: replay::HELP, main: replay::main },
    Subcommand { name: "memccapable", help: memccapable::HELP, main: memccapable::main },
    Subcommand { name: "pymemcache", help: pymemcache::HELP, main: pymemcache::main },
    Subcommand { name: "clients", help: clients::HELP, main: clients::main },
    Subcommand { name: "wheel", help: wheel::HELP, main: wheel::main },
    Subcommand { name: "redis", help: redis::HELP, main: redis::main },
    Subcommand { name: "sched-fifo", help: sched_fifo::HELP, main: sched_fifo::main },
    Subcommand { name: "rdma-vm", help: rdma_vm::HELP, main: rdma_vm::main },
    Subcommand { name: "card-vm", help: card_vm::HELP, main: card_vm::main },
    Subcommand { name: "power-cut", help: power_cut::HELP, main: power_cut::main },
    Subcommand { name: "restart", help: restart::HELP, main: restart::main },
    Subcommand { name: "package", help: package::HELP, main: package::main },
    Subcommand { name: "cluster", help: cluster::HELP, main: cluster::main },
    Subcommand { name: "dist", help: dist::HELP, main: dist::main },
    Subcommand { name: "faults", help: faults::HELP, main: faults::main },
    Subcommand { name: "soak", help: soak::HELP, main: soak::main },
    Subcommand { name: "vopr", help: vopr::HELP, main: vopr::main },
    Subcommand { name: "drawings", help: drawings::HELP, main: drawings::main },
    Subcommand { name: "readme", help: figures::HELP, main: figures::main },
    Subcommand { name: "tier-bench", help: tier_bench::HELP, main: tier_bench::main },
    Subcommand { name: "bench", help: bench::HELP, main: bench::main },
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
