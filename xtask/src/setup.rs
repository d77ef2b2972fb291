//! Installs what the tests need and the machine lacks, and nothing if it lacks nothing.
//!
//! Debian starts a service when its package is installed; a test machine must not suddenly have a
//! memcached on port 11211, so a policy-rc.d that says no stands in for the time of the call.

use crate::{Failure, Outcome, failed, flags, passed, process, skipped};
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Install the packages that the tests need, if any is missing.

usage: cargo xtask setup

Debian and Ubuntu: apt-get as root, or through sudo. Elsewhere it says what to install.";

/// A thing the tests need: how we see that it is there, and the Debian package that brings it.
struct Need {
    what: &'static str,
    package: &'static str,
    is_there: fn() -> bool,
}

const NEEDS: &[Need] = &[
    Need { what: "memcached", package: "memcached", is_there: || program("memcached") },
    Need {
        what: "memccapable",
        package: "libmemcached-tools",
        is_there: || program("memccapable"),
    },
    Need { what: "python3 with venv", package: "python3-venv", is_there: python_with_venv },
    Need { what: "a C++ compiler", package: "g++", is_there: || program("c++") || program("g++") },
    Need { what: "clang for BPF programs", package: "clang", is_there: clang },
    Need { what: "ip", package: "iproute2", is_there: || program("ip") },
    Need { what: "valgrind", package: "valgrind", is_there: || program("valgrind") },
    Need { what: "chrt and taskset", package: "util-linux", is_there: || program("chrt") },
];

/// What tests skip, by name, where it is not to be had.
const WANTED: &[Need] = &[
    Need { what: "a browser for the dashboard", package: "chromium", is_there: browser },
    Need { what: "hiredis", package: "libhiredis-dev", is_there: hiredis },
    Need { what: "Ruby", package: "ruby", is_there: || program("ruby") },
    Need { what: "dalli", package: "ruby-dalli", is_there: dalli },
    Need { what: "PHP", package: "php-cli", is_there: || program("php") },
    Need { what: "php-memcached", package: "php-memcached", is_there: php_memcached },
    Need { what: "twemproxy", package: "nutcracker", is_there: || program("nutcracker") },
    Need { what: "systemd-analyze", package: "systemd", is_there: || program("systemd-analyze") },
    Need { what: "promtool", package: "prometheus", is_there: || program("promtool") },
];

/// What only a benchmark needs: CI does without.
const ROCKSDB: Need =
    Need { what: "RocksDB", package: "librocksdb-dev", is_there: || library("librocksdb.so") };

/// What unpacks today's peers (`cargo xtask peers`).
const MMDEBSTRAP: Need =
    Need { what: "mmdebstrap", package: "mmdebstrap", is_there: || program("mmdebstrap") };

const POLICY: &str = "/usr/sbin/policy-rc.d";
const APT_LOCK_SECONDS: &str = "DPkg::Lock::Timeout=300";

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    components()?;
    let needed = provide(NEEDS)?;
    for want in WANTED.iter().filter(|want| !(want.is_there)()) {
        // What is missing then is told by the test that skips.
        if let Err(failure) = provide(std::slice::from_ref(want)) {
            println!("{}; its test skips", failure.why());
        }
    }
    match needed {
        None => passed("everything that the tests need is here"),
        Some(packages) => passed(format!("installed {packages}")),
    }
}

/// RocksDB, for who compares with it.
pub fn provide_rocksdb() -> Result<(), Failure> {
    provide(&[ROCKSDB]).map(drop)
}

/// Unpacks a suite of Debian's into `root`, as these further flags of mmdebstrap say, if that can
/// be done here.
pub fn unpack(suite: &str, root: &Path, flags: &[&str]) -> Result<(), Failure> {
    if let Err(failure) = provide(&[MMDEBSTRAP]) {
        let why = failure.why();
        return skipped(format!("no mmdebstrap, which unpacks Debian's {suite}: {why}"));
    }
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--mode=root"]).args(flags);
    // A mirror that is behind serves lists that are out of date by some days; they will do.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    let (status, said) = process::capture(command.arg(suite).arg(root))?;
    let why = || said.lines().rfind(|line| line.starts_with("E:")).unwrap_or("no word why");
    match status.success() {
        true => Ok(()),
        false => skipped(format!("Debian's {suite} could not be fetched ({})", why())),
    }
}

/// Installs what is missing; the names of these packages, if there were any.
fn provide(needs: &[Need]) -> Result<Option<String>, Failure> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    println!("missing: {}; installing {}", list(&missing), packages.join(" "));
    install(&packages)?;
    let still: Vec<&Need> = needs.iter().filter(|need| !(need.is_there)()).collect();
    match still.is_empty() {
        true => Ok(Some(packages.join(" "))),
        false => failed(format!("still missing after apt-get: {}", list(&still))),
    }
}

fn list(needs: &[&Need]) -> String {
    needs.iter().map(|need| need.what).collect::<Vec<_>>().join(", ")
}

fn browser() -> bool {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().any(program)
}

/// Whether Ruby has dalli.
pub fn dalli() -> bool {
    says_yes("ruby", &["-rdalli", "-e", ""])
}

/// Whether PHP has php-memcached.
pub fn php_memcached() -> bool {
    says_yes("php", &["-r", "exit(class_exists('Memcached') ? 0 : 1);"])
}

fn says_yes(program: &str, arguments: &[&str]) -> bool {
    process::works(Command::new(program).args(arguments))
}

/// Whether programs can be built with hiredis.
pub fn hiredis() -> bool {
    Path::new("/usr/include/hiredis/hiredis.h").is_file()
}

fn program(name: &str) -> bool {
    process::find_program(name).is_some()
}

/// Whether the loader knows a library by this name: its cache is what `ldconfig` prints.
fn library(name: &str) -> bool {
    let ldconfig = process::find_program("ldconfig").unwrap_or_else(|| "ldconfig".into());
    let printed = process::capture(Command::new(ldconfig).arg("-p"));
    printed.is_ok_and(|(_, text)| text.split_whitespace().any(|word| word == name))
}

fn clang() -> bool {
    program("clang-14") || program("clang")
}

fn python_with_venv() -> bool {
    says_yes("python3", &["-c", "import venv, ensurepip"])
}

/// rustfmt and clippy: rustup's minimal profile lacks them.
fn components() -> Result<(), String> {
    let there = |name| process::works(process::cargo().args([name, "--version"]));
    if there("fmt") && there("clippy") {
        return Ok(());
    }
    if !program("rustup") {
        return Err("cargo fmt and cargo clippy are missing, and there is no rustup to add them; \
                    install rustfmt and clippy for this toolchain"
            .into());
    }
    process::run(Command::new("rustup").args(["component", "add", "rustfmt", "clippy"]))
}

fn install(packages: &[&str]) -> Result<(), String> {
    let wanted = packages.join(" ");
    if !program("apt-get") {
        return Err(format!("no apt-get here: install what Debian calls {wanted} by hand"));
    }
    let root = rustix::process::geteuid().is_root();
    if !root && !program("sudo") {
        return Err(format!("not root, and no sudo: as root run apt-get install {wanted}"));
    }
    let _silence = Silence::begin(root)?;
    process::run(as_root(root, "apt-get").args(["-q", "-o", APT_LOCK_SECONDS, "update"]))?;
    let mut apt = as_root(root, "apt-get");
    apt.args(["-q", "-y", "-o", APT_LOCK_SECONDS, "install", "--no-install-recommends"]);
    process::run(apt.args(packages))
}

/// `program` as root, asking nothing: sudo without a password, dpkg without questions.
fn as_root(root: bool, program: &str) -> Command {
    let settings = ["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"];
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.args(["-n", "env"]);
    }
    command.args(settings).arg(program);
    command
}

/// Forbids services to start for as long as it lives; leaves a policy that was there alone.
struct Silence {
    root: bool,
    ours: bool,
}

impl Silence {
    fn begin(root: bool) -> Result<Silence, String> {
        if Path::new(POLICY).exists() {
            return Ok(Silence { root, ours: false });
        }
        let draft = process::scratch_dir("setup")?.join("policy-rc.d");
        // 101: "action forbidden by policy" (Debian Policy, invoke-rc.d).
        process::write(&draft, "#!/bin/sh\nexit 101\n")?;
        process::run(as_root(root, "install").args(["-m", "755"]).arg(&draft).arg(POLICY))?;
        Ok(Silence { root, ours: true })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        if self.ours
            && let Err(why) = process::run(as_root(self.root, "rm").args(["-f", POLICY]))
        {
            eprintln!("cannot remove {POLICY}, which forbids services to start: {why}");
        }
    }
}
