//! Real faults against the release binary: processes killed and stopped, disks and descriptors
//! used up, clocks stepped, links cut, clients that never read.
//!
//! Each fault has its expectation as text, written before it was first tried, and printed beside
//! what was seen. Nothing here is judged by speed: a slow machine takes longer, and that is all.
//! What a machine cannot do without harm (no root, no cgroup) is skipped and says so. All that is
//! mounted or connected lies in namespaces of the server's own, which end with it.

mod clients;
mod durable;
mod ledger;
mod link;
mod machine;
mod overload;

use crate::{Executable, Failure, Outcome, passed, place, skipped};
use std::time::Instant;

pub const HELP: &str = "\
Real faults against the release binary, each with what is expected of it and what was seen.

usage: cargo xtask faults [NAME...] [--list] [--quick] [--server PROGRAM]

  NAME               only these
  --list             what there is, with what is done and expected
  --quick            only those that take seconds; a minute in all
  --server PROGRAM   test this executable instead of this tree's release build

Exit status 1 if one of them did not hold; each prints the command that repeats it. Root can do
more: without it what needs a mount, a network namespace or a cgroup is skipped.";

/// One fault.
pub struct Fault {
    name: &'static str,
    /// What is done to the server.
    done: &'static str,
    /// What must hold.
    expected: &'static str,
    /// Whether `--quick` does it too.
    quick: bool,
    /// Says what was seen, or what did not hold.
    run: fn(&Executable) -> Outcome,
}

const FAMILIES: [&[Fault]; 5] =
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
        let known = |name: &str| all().any(|fault| fault.name == name);
        match options.names.iter().find(|name| !known(name)) {
            Some(name) => Err(Failure::Usage(format!("{name}: no such fault; --list has them"))),
            None => Ok(options),
        }
    }

    fn wants(&self, fault: &Fault) -> bool {
        match self.names.is_empty() {
            true => fault.quick || !self.quick,
            false => self.names.iter().any(|name| name == fault.name),
        }
    }
}

fn all() -> impl Iterator<Item = &'static Fault> {
    FAMILIES.into_iter().flatten()
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let chosen: Vec<&Fault> = all().filter(|fault| options.wants(fault)).collect();
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
        let done = (fault.run)(&executable);
        let took = began.elapsed().as_secs_f64();
        match done {
            Ok(seen) => {
                held += 1;
                println!("  held     in {took:.1} s: {seen}");
            }
            Err(Failure::Skipped(why)) => {
                println!("  skipped  {why}");
                left.push(fault.name);
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
    fn every_fault_has_a_name_of_its_own_and_says_what_is_expected() {
        let names: Vec<&str> = all().map(|fault| fault.name).collect();
        for fault in all() {
            assert_eq!(names.iter().filter(|name| **name == fault.name).count(), 1);
            assert!(fault.name.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c == '9'));
            for text in [fault.done, fault.expected] {
                assert!(text.ends_with('.') && !text.contains('\n'), "{}: {text}", fault.name);
            }
        }
    }

    #[test]
    fn a_name_chooses_one_fault_and_quick_those_that_take_seconds() {
        let chosen = |words: &[&str]| -> Vec<&str> {
            let parser = lexopt::Parser::from_args(words.iter().copied());
            let options = Options::read(parser).expect("known");
            all().filter(|fault| options.wants(fault)).map(|fault| fault.name).collect()
        };
        assert_eq!(chosen(&["kill-9"]), ["kill-9"]);
        assert_eq!(chosen(&[]).len(), all().count());
        let quick = chosen(&["--quick"]);
        assert!(!quick.is_empty() && quick.len() < all().count());
        let parser = lexopt::Parser::from_args(["no-such-fault"]);
        assert!(matches!(Options::read(parser), Err(Failure::Usage(_))));
    }
}
