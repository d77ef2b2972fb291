//! Real faults against the release binary: processes killed and stopped, disks and descriptors
//! used up, clocks stepped, links cut, clients that never read.
//!
//! Each fault has its expectation as text (`list.toml`), written before it was first tried, and
//! printed beside what was seen. Nothing here is judged by speed: a slow machine takes longer, and
//! that is all. What a machine cannot do without harm (no root, no cgroup) is skipped and says so.
//! All that is mounted or connected lies in namespaces of the server's own, which end with it.

mod clients;
mod durable;
mod ledger;
mod link;
mod machine;
mod overload;

use crate::{Executable, Failure, Outcome, passed, place, skipped};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// One fault, as `list.toml` has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    name: String,
    /// What is done to the server.
    done: String,
    /// What must hold.
    expected: String,
    /// Whether `--quick` does it too.
    quick: bool,
}

impl Fault {
    /// Says what was seen, or what did not hold.
    fn run(&self, executable: &Executable) -> Outcome {
        let mut runs = FAMILIES.into_iter().flatten();
        let (_, run) = runs.find(|(name, _)| *name == self.name).expect("every fault is done");
        run(executable)
    }
}

/// A fault's name, and what does it.
pub type Run = (&'static str, fn(&Executable) -> Outcome);

const FAMILIES: [&[Run]; 5] =
    [durable::FAULTS, clients::FAULTS, overload::FAULTS, machine::FAULTS, link::FAULTS];

#[derive(Default)]
struct Options {
    names: Vec<String>,
    list: bool,
    quick: bool,
    server: Option<std::path::PathBuf>,
}

impl Options {
    fn read(mut parser: lexopt::Parser) -> Result<Options, Failure> {
        let mut options = Options::default();
        flags!(parser, {
            Long("list") => options.list = true,
            Long("quick") => options.quick = true,
            Long("server") => options.server = Some(parser.value()?.into()),
            Value(name) => options.names.push(name.string()?),
        });
        let all = all();
        let known = |name: &&String| all.iter().any(|fault| fault.name == **name);
        match options.names.iter().find(|name| !known(name)) {
            Some(name) => Err(Failure::Usage(format!("{name}: no such fault; --list has them"))),
            None => Ok(options),
        }
    }

    fn wants(&self, fault: &Fault) -> bool {
        match self.names.is_empty() {
            true => fault.quick || !self.quick,
            false => self.names.contains(&fault.name),
        }
    }
}

fn all() -> Vec<Fault> {
    let text = include_str!("list.toml");
    let mut file: BTreeMap<String, Vec<Fault>> = toml::from_str(text).expect("faults");
    file.remove("fault").unwrap_or_default()
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let all = all();
    let chosen: Vec<&Fault> = all.iter().filter(|fault| options.wants(fault)).collect();
    if options.list {
        chosen.iter().for_each(|fault| tell(fault));
        return passed(format!("{} faults", chosen.len()));
    }
    let executable = Executable::named_or_laneway(options.server.as_deref())?;
    place::allow_descriptors();
    let (mut held, mut broken, mut left) = (0, 0, Vec::new());
    for fault in chosen {
        tell(fault);
        let began = Instant::now();
        let done = fault.run(&executable);
        let took = began.elapsed().as_secs_f64();
        match done {
            Ok(seen) => {
                held += 1;
                println!("  held     in {took:.1} s: {seen}");
            }
            Err(Failure::Skipped(why)) => {
                println!("  skipped  {why}");
                left.push(fault.name.as_str());
            }
            Err(failure) => {
                broken += 1;
                println!("  BROKEN   after {took:.1} s: {}", failure.why());
                println!("  again with: {}", again(fault, &options));
            }
        }
    }
    let told = match left.is_empty() {
        true => format!("{held} faults held"),
        false => format!("{held} faults held, {} skipped ({})", left.len(), left.join(", ")),
    };
    match (held, broken) {
        (0, 0) => skipped(told),
        (_, 0) => passed(told),
        _ => {
            println!("{told}, {broken} BROKEN");
            Err(Failure::Told)
        }
    }
}

fn tell(fault: &Fault) {
    println!("{}", fault.name);
    println!("  fault    {}", fault.done);
    println!("  expected {}", fault.expected);
}

fn again(fault: &Fault, options: &Options) -> String {
    let server = options.server.as_ref();
    let server = server.map(|path| format!(" --server {}", path.display()));
    format!("cargo xtask faults {}{}", fault.name, server.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_done_by_its_name_and_says_what_is_expected() {
        let runs: Vec<&str> = FAMILIES.into_iter().flatten().map(|(name, _)| *name).collect();
        let all = all();
        assert_eq!(all.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), runs);
        for Fault { name, done, expected, .. } in &all {
            assert_eq!(runs.iter().filter(|other| *other == name).count(), 1);
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c == '9'));
            for text in [done, expected] {
                assert!(text.ends_with('.') && !text.contains('\n'), "{name}: {text}");
            }
        }
    }

    #[test]
    fn a_name_chooses_one_fault_and_quick_those_that_take_seconds() {
        let chosen = |words: &[&str]| -> Vec<String> {
            let parser = lexopt::Parser::from_args(words.iter().copied());
            let options = Options::read(parser).expect("known");
            let wanted = all().into_iter().filter(|fault| options.wants(fault));
            wanted.map(|fault| fault.name).collect()
        };
        assert_eq!(chosen(&["kill-9"]), ["kill-9"]);
        assert_eq!(chosen(&[]).len(), all().len());
        let quick = chosen(&["--quick"]);
        assert!(!quick.is_empty() && quick.len() < all().len());
        let parser = lexopt::Parser::from_args(["no-such-fault"]);
        assert!(matches!(Options::read(parser), Err(Failure::Usage(_))));
    }
}
