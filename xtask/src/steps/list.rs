//! The steps of `cargo xtask test` in the order of its table, and what each needs of the others.

/// What only one running step at a time may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// Any.
    Always,
    /// Of a crate, or of one on which it depends: it is run for these and not for `--workspace`.
    Packages,
    /// The same, of libraries.
    Libraries,
    /// Of a file that begins with one of these, from the root; or of the step's own task.
    Paths(&'static [&'static [&'static str]]),
}

/// One step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub name: &'static str,
    /// What is typed after `cargo`.
    pub line: &'static str,
    /// Whether `--quick` runs it too.
    pub quick: bool,
    /// Further environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// The steps that must have ended before, however they ended.
    pub after: &'static [&'static str],
    /// What it must not share with a step beside it.
    pub holds: &'static [Hold],
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
        matches!(self.holds, [Hold::Ports])
    }

    const fn quick(self) -> Step {
        Step { quick: true, ..self }
    }

    const fn after(self, after: &'static [&'static str]) -> Step {
        Step { after, ..self }
    }

    const fn holds(self, holds: &'static [Hold]) -> Step {
        Step { holds, ..self }
    }

    const fn scope(self, scope: Scope) -> Step {
        Step { scope, ..self }
    }

    const fn on(self, places: &'static [&'static [&'static str]]) -> Step {
        Step { scope: Scope::Paths(places), ..self }
    }

    const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Step {
        Step { environment, ..self }
    }
}

const fn step(name: &'static str, line: &'static str, seconds: u32) -> Step {
    Step {
        name,
        line,
        quick: false,
        environment: &[],
        after: &[],
        holds: &[],
        scope: Scope::Always,
        seconds,
    }
}

/// The release build, undisturbed.
const fn alone(name: &'static str, line: &'static str, seconds: u32) -> Step {
    step(name, line, seconds).on(&[SIMULATED, PROGRAM]).after(RELEASE).holds(MACHINE)
}

/// Somebody else's programs against the release build.
const fn of_suite(name: &'static str, line: &'static str, seconds: u32) -> Step {
    step(name, line, seconds).on(&[SIMULATED, PROGRAM, SUITES]).after(RELEASE).holds(PORTS)
}

/// Installs what the others need.
const SETUP: &str = "setup";
/// The steps that take a fuzzer's build from the first of them.
const FUZZ: &[&str] = &["fuzz"];
/// The steps that start the release build.
const RELEASE: &[&str] = &["release build"];

/// The crates that a simulated server is made of.
const SIMULATED: &[&str] = &[
    "crates/policy/",
    "crates/wire/",
    "crates/sync/",
    "crates/store/",
    "crates/tier/",
    "crates/rdma/",
    "crates/transport/",
    "crates/tls/",
    "crates/server/",
];
/// What steps them by hand.
const RIG: &[&str] = &["crates/rig/"];
/// What the program has beside them.
const PROGRAM: &[&str] = &["crates/xdp/", "crates/kernel/", "crates/admin/", "crates/laneway/"];
const WIRE: &[&str] = &["crates/wire/", "fuzz/"];
const TIER: &[&str] = &["crates/tier/", "crates/sync/", "fuzz/"];
const RDMA: &[&str] = &["crates/rdma/", "crates/sync/", "fuzz/"];
const XDP: &[&str] = &["crates/xdp/", "crates/sync/", "fuzz/"];
const LOAD: &[&str] = &["crates/load/", "fuzz/"];
const CEILINGS: &[&str] = &["bench/instructions.toml"];
const SUITES: &[&str] = &["tests-external/"];

const MACHINE: &[Hold] = &[Hold::Machine];
const DEBUG: &[Hold] = &[Hold::DebugProgram];
const COUNTED: &[Hold] = &[Hold::CountedProgram];
const PORTS: &[Hold] = &[Hold::Ports];
const COUNTED_AND_PORTS: &[Hold] = &[Hold::CountedProgram, Hold::Ports];

pub const STEPS: &[Step] = &[
    step(SETUP, "xtask setup", 1),
    step("format", "fmt --all --check", 2).quick(),
    step("clippy", "clippy --quiet --workspace --all-targets -- -D warnings", 69).quick(),
    // Without features other modules stand in for what is not built.
    step("plain clippy", "clippy --quiet -p laneway -- -D warnings", 9).on(&[SIMULATED, PROGRAM]),
    step("tidy", "xtask tidy", 4).quick(),
    // Apart from the tests, for while these run others may build in the same folder. It follows
    // what finds a mistake in seconds. Examples have no tests: clippy checks them all, and what
    // runs one builds it.
    step("build of tests", "test --quiet --workspace --tests --no-run", 274)
        .scope(Scope::Packages)
        .quick()
        .after(&["format", "clippy", "tidy"])
        .holds(DEBUG),
    // The dev profile: assertions and overflow checks are on.
    step("tests", "test --workspace --tests --no-fail-fast", 415)
        .scope(Scope::Packages)
        .quick()
        .after(&["build of tests"])
        .holds(DEBUG),
    step("doc tests", "test --workspace --doc --no-fail-fast", 3)
        .scope(Scope::Libraries)
        .quick()
        .after(&["build of tests"]),
    step("documentation", "doc --quiet --workspace --no-deps --document-private-items", 77)
        .scope(Scope::Packages)
        .quick()
        .with(&[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")]),
    step("shared lines", "test -p laneway-store --features lines --test lines", 7)
        .on(&[&["crates/store/", "crates/sync/", "crates/store/tests/lines.rs"]])
        .quick(),
    // After the build of tests, of which it takes the program.
    step("vopr", "xtask vopr --ci", 139)
        .on(&[SIMULATED, RIG, &["crates/vopr/", "crates/client/", "crates/certs/"]])
        .after(&["build of tests"]),
    step("loom", "xtask loom", 17).on(&[&["crates/sync/", "crates/sync/tests/"]]),
    step("loom canaries", "xtask loom --canary", 20)
        .on(&[&["crates/sync/", "crates/sync/tests/"]])
        .after(&["loom"]),
    // A minute and a half in all; a night is `cargo xtask fuzz --hours 8`.
    step("fuzz", "xtask fuzz text --seconds 12", 52).on(&[WIRE]),
    step("fuzz login", "xtask fuzz login --seconds 4", 5).on(&[WIRE]).after(FUZZ),
    step("fuzz meta commands", "xtask fuzz meta --seconds 6", 8).on(&[WIRE]).after(FUZZ),
    step("fuzz RESP", "xtask fuzz resp --seconds 6", 8).on(&[WIRE]).after(FUZZ),
    step("fuzz binary", "xtask fuzz binary --seconds 6", 8).on(&[WIRE]).after(FUZZ),
    step("fuzz frames", "xtask fuzz udp_reassembly --seconds 8", 11).on(&[WIRE]).after(FUZZ),
    step("fuzz shared memory", "xtask fuzz shm_region --seconds 8", 10).on(&[RDMA]).after(FUZZ),
    step("fuzz RDMA's door", "xtask fuzz rdma_greeting --seconds 4", 6).on(&[RDMA]).after(FUZZ),
    step("fuzz packets", "xtask fuzz xdp_packets --seconds 6", 7).on(&[XDP]).after(FUZZ),
    step("fuzz definitions", "xtask fuzz definitions --seconds 5", 7)
        .on(&[LOAD, &["bench/definitions/"]])
        .after(FUZZ),
    step("fuzz traces", "xtask fuzz traces --seconds 4", 5).on(&[LOAD]).after(FUZZ),
    step("fuzz tier", "xtask fuzz tier_recovery --seconds 12", 14).on(&[TIER]).after(FUZZ),
    step("fuzz dumps", "xtask fuzz dump --seconds 6", 8).on(&[TIER]).after(FUZZ),
    step("tier bench", "xtask tier-bench", 45).on(&[&[
        "bench/tier/",
        "bench/io-probe/",
        "crates/tier/",
        "crates/store/",
        "crates/load/",
    ]]),
    step("instructions", "xtask instructions", 20).on(&[SIMULATED, RIG, CEILINGS]).holds(COUNTED),
    // Of `laneway` alone, as all that follow build it: with the whole workspace its dependencies
    // have other features, and it would be built twice.
    step("release build", "build --quiet --release -p laneway", 151)
        .on(&[SIMULATED, PROGRAM, SUITES]),
    step("features", "xtask features", 1).on(&[SIMULATED, PROGRAM]).after(RELEASE).holds(PORTS),
    step("histories", "test --quiet --workspace --test hot -- histor owner_that_does_not_look", 19)
        .on(&[&[
            "crates/policy/",
            "crates/sync/",
            "crates/store/",
            "crates/server/",
            "crates/server/tests/hot/",
            "crates/rig/",
        ]])
        .with(&[("LANEWAY_HISTORY_OPERATIONS", "200000")])
        .after(&["build of tests"]),
    step("observe cost", "xtask observe-cost --check", 129)
        .on(&[SIMULATED, RIG, &["bench/observe-cost.toml"]])
        .after(RELEASE)
        .holds(COUNTED_AND_PORTS),
    // It puts servers where the others that hold ports start them.
    step("peers", "xtask peers", 1).on(&[SIMULATED, PROGRAM, SUITES]).holds(PORTS),
    of_suite("replay", "xtask replay", 2).after(REPLAY),
    of_suite("replay binary", "xtask replay --binary", 2).after(REPLAY),
    of_suite("replay RESP", "xtask replay --resp", 25).after(REPLAY),
    of_suite("memccapable", "xtask memccapable", 11).after(REPLAY),
    of_suite("pymemcache", "xtask pymemcache", 5),
    of_suite("clients", "xtask clients", 23),
    step("Python client", "xtask wheel", 47)
        .on(&[SIMULATED, PROGRAM, &["crates/client/", "clients/python/"]])
        .after(RELEASE)
        .holds(PORTS),
    of_suite("redis-py", "xtask redis", 48).after(REPLAY),
    of_suite("Redis' clients", "xtask redis --clients", 15).after(REPLAY),
    step("package", "xtask package", 3)
        .on(&[&["packaging/", "crates/laneway/", "docs/install.md"]])
        .after(RELEASE)
        .holds(PORTS),
    of_suite("cluster", "xtask cluster", 17),
    // The first runs under SCHED_FIFO, the second reads CPU time, the third loads all CPUs.
    alone("sched-fifo", "xtask sched-fifo", 1),
    alone("faults", "xtask faults --quick", 13),
    alone("soak", "xtask soak --seconds 20 --workers 4", 23),
];

/// The steps that compare the release build with the peers.
const REPLAY: &[&str] = &["release build", "peers"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_line_that_can_be_typed() {
        for step in STEPS {
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
            let is_before = |name: &&str| before.iter().any(|other| other.name == *name);
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
