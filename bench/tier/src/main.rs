//! YCSB A to F on one durable store in this process: Laneway's tier, or one of those it is compared
//! with. Prints one line of JSON. `cargo xtask bench tier-synced` and its like run it for each
//! store in turn, one process each, and compare.
//!
//! After SplitKV's evaluation (HotStorage'20, "Evaluation"): half of the values 256 B and half
//! 4 KB, Zipf and uniform. Departs from it in the data set's size, which is a flag, and in that
//! every value read is verified. docs/tier-bench.md says what is counted how, and what that cannot
//! see.
//!
//! Knows stores by [`engine::Engine`] alone; nothing here is part of the server.

#![deny(unsafe_code)]

mod cgroup;
mod draws;
mod engine;
mod flags;
mod folder;
mod frontier;
mod keys;
mod measure;
mod plan;
mod report;
mod run;
mod words;
mod workload;

use std::process::ExitCode;

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let plan = match flags::parse(lexopt::Parser::from_env()) {
        Ok(flags::Asked::Run(plan)) => plan,
        Ok(flags::Asked::Help) => {
            print!("{}", flags::HELP);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("tier-ycsb: {message}; --help explains");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match report::make(&plan) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("tier-ycsb --engine {}: {message}", plan.engine.name());
            ExitCode::from(EXIT_FAILED)
        }
    }
}
