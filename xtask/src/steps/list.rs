//! The steps of `cargo xtask test`, which stand in `list.toml`, and what each needs of the others.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What only one running step at a time may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// The CPUs, undisturbed: such a step runs alone.
    Machine,
    /// `target/debug/laneway`, which tests start and another set of features replaces.
    DebugProgram,
    /// The program of `target/instructions`, which one that records nothing replaces.
    CountedProgram,
    /// A loopback port that was free a moment before a server is started on it, and the logs,
    /// folders and programs of such servers.
    Ports,
}

/// Which changes need a step (`--changed`).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Any.
    #[default]
    Always,
    /// Of a crate, or of one on which it depends: it is run for these and not for `--workspace`.
    Packages,
    /// The same, of libraries.
    Libraries,
    /// Of a file that begins with one of these, from the root; or of the step's own task.
    Paths(Vec<String>),
}

/// One step.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    pub name: String,
    /// What is typed after `cargo`.
    pub line: String,
    /// Whether `--quick` runs it too.
    pub quick: bool,
    /// Further environment.
    pub environment: BTreeMap<String, String>,
    /// The steps that must have ended before, however they ended.
    pub after: Vec<String>,
    /// What it must not share with a step beside it.
    pub holds: Vec<Hold>,
    pub scope: Scope,
    /// How long it took on two CPUs when this was written. Only the order hangs on it.
    pub seconds: u32,
}

impl Step {
    /// Whether `other` must have ended before this begins.
    pub fn waits_for(&self, other: &Step) -> bool {
        // What is not quick may use what `setup` installs.
        let installs = other.name == SETUP && !self.quick && self.name != SETUP;
        installs || self.after.contains(&other.name)
    }

    /// Whether the two must not run beside each other.
    pub fn excludes(&self, other: &Step) -> bool {
        let alone = |step: &Step| step.holds.contains(&Hold::Machine);
        alone(self) || alone(other) || self.holds.iter().any(|hold| other.holds.contains(hold))
    }

    /// Whether it leaves CPU to a step beside it: its clients and servers wait for each other.
    pub fn is_light(&self) -> bool {
        self.holds == [Hold::Ports]
    }
}

/// Installs what the others need.
const SETUP: &str = "setup";

/// The file's own form.
#[derive(Deserialize)]
struct List {
    /// Lists of paths that many steps name.
    places: BTreeMap<String, Vec<String>>,
    step: Vec<Step>,
}

pub static STEPS: LazyLock<Vec<Step>> = LazyLock::new(|| {
    let List { places, mut step } = toml::from_str(include_str!("list.toml")).expect("steps");
    for step in &mut step {
        if let Scope::Paths(paths) = &mut step.scope {
            let whole = |path: String| places.get(&path).cloned().unwrap_or_else(|| vec![path]);
            *paths = std::mem::take(paths).into_iter().flat_map(whole).collect();
        }
    }
    step
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_line_that_can_be_typed() {
        for step in STEPS.iter() {
            let words: Vec<&str> = step.line.split(' ').collect();
            assert!(words.iter().all(|word| !word.is_empty()), "{}", step.line);
            if words[0] == "xtask" {
                let known = crate::SUBCOMMANDS.iter().any(|s| s.name == words[1]);
                assert!(known, "{} is no task", words[1]);
            }
        }
    }

    #[test]
    fn a_step_follows_in_the_list_what_it_waits_for() {
        for (at, step) in STEPS.iter().enumerate() {
            let before = &STEPS[..at];
            let is_before = |name: &String| before.iter().any(|other| other.name == *name);
            assert!(step.after.iter().all(is_before), "{} after {:?}", step.name, step.after);
            // What `--quick` runs may wait for nothing that it leaves out.
            let waits = |other: &&Step| step.waits_for(other);
            let quick = before.iter().filter(waits).all(|other| other.quick);
            assert!(!step.quick || quick, "{}", step.name);
        }
    }

    #[test]
    fn every_target_is_fuzzed() {
        let path = crate::process::root().join("fuzz/Cargo.toml");
        let manifest: toml::Table =
            std::fs::read_to_string(path).expect("it is there").parse().expect("TOML");
        let targets = manifest["bin"].as_array().expect("targets");
        for target in targets.iter().map(|target| target["name"].as_str().expect("a name")) {
            let line = format!("xtask fuzz {target} ");
            assert!(STEPS.iter().any(|step| step.line.starts_with(&line)), "{target}");
        }
    }

    #[test]
    fn what_share_something_are_not_beside_each_other_and_who_wants_the_machine_is_alone() {
        let of = |name: &str| STEPS.iter().find(|step| step.name == name).expect("a step");
        for (one, other, apart) in [
            ("tests", "build of tests", true),
            ("tests", "vopr", false),
            ("observe cost", "replay", true),
            ("observe cost", "instructions", true),
            ("observe cost", "fuzz", false),
            ("soak", "fuzz", true),
            ("fuzz tier", "fuzz dumps", false),
        ] {
            assert_eq!(of(one).excludes(of(other)), apart, "{one}, {other}");
            assert_eq!(of(other).excludes(of(one)), apart, "{other}, {one}");
        }
        assert!(of("loom").waits_for(of("setup")) && !of("format").waits_for(of("setup")));
    }
}
