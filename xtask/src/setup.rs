//! Installs what the tests need and the machine lacks, and nothing if it lacks nothing.
//!
//! Debian starts a service when its package is installed; a test machine must not suddenly have a
//! memcached on port 11211, so a policy-rc.d that says no stands in for the time of the call.

use crate::{Failure, Outcome, failed, flags, passed, process, skipped};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A thing that is needed, as `setup/needs.toml` has it.
#[derive(Deserialize)]
struct Need {
    what: String,
    package: String,
    test: String,
    when: When,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum When {
    Needed,
    Wanted,
    Asked,
}

impl Need {
    fn is_there(&self) -> bool {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        process::works(Command::new("sh").args(["-c", &self.test]).env("PATH", path))
    }
}

fn needs() -> Vec<Need> {
    let text = include_str!("setup/needs.toml");
    let mut file: BTreeMap<String, Vec<Need>> = toml::from_str(text).expect("needs");
    file.remove("need").unwrap_or_default()
}

const POLICY: &str = "/usr/sbin/policy-rc.d";
const APT_LOCK_SECONDS: &str = "DPkg::Lock::Timeout=300";

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    components()?;
    let needed = install_missing(|need| need.when == When::Needed)?;
    for want in needs().iter().filter(|need| need.when == When::Wanted && !need.is_there()) {
        // What is missing then is told by the test that skips.
        if let Err(failure) = provide(&want.package) {
            println!("{}; its test skips", failure.why());
        }
    }
    match needed {
        None => passed("everything that the tests need is here"),
        Some(packages) => passed(format!("installed {packages}")),
    }
}

/// What this package of the list brings is there, or is installed.
pub fn provide(package: &str) -> Result<(), Failure> {
    install_missing(|need| need.package == package).map(drop)
}

/// Whether what this package of the list brings is there.
pub fn has(package: &str) -> bool {
    needs().iter().any(|need| need.package == package && need.is_there())
}

/// Unpacks a suite of Debian's into `root`, as these further flags of mmdebstrap say, if that can
/// be done here.
pub fn unpack(suite: &str, root: &Path, flags: &[&str]) -> Result<(), Failure> {
    if let Err(failure) = provide("mmdebstrap") {
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

/// The suite of this machine's Debian.
pub fn suite() -> Result<String, Failure> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is = |name: &str| release.lines().find_map(|line| line.strip_prefix(name));
    match is("VERSION_CODENAME=").filter(|_| is("ID=") == Some("debian")) {
        Some(suite) => Ok(suite.to_owned()),
        None => skipped("this is no Debian whose suite has a name"),
    }
}

/// As `unpack`, into a folder below the target folder, unless it is there already by these flags.
pub fn root(name: &str, suite: &str, flags: &[&str]) -> Result<PathBuf, Failure> {
    let folder = process::scratch_dir("debian")?;
    let (root, whole) = (folder.join(name), folder.join(format!("{name}.whole")));
    let wanted = format!("{suite} {}", flags.join(" "));
    if process::read(&whole).is_ok_and(|there| there == wanted) {
        return Ok(root);
    }
    let _ = std::fs::remove_dir_all(&root); // of other flags, or a run that did not come to its end
    println!("unpacking a part of Debian's {suite}");
    unpack(suite, &root, flags)?;
    process::write(&whole, wanted)?;
    Ok(root)
}

/// Installs what is missing of these; the names of the packages, if there were any.
fn install_missing(is_meant: impl Fn(&Need) -> bool) -> Result<Option<String>, Failure> {
    let needs = needs();
    let missing = || -> Vec<&Need> {
        needs.iter().filter(|need| is_meant(need) && !need.is_there()).collect()
    };
    let before = missing();
    if before.is_empty() {
        return Ok(None);
    }
    let packages: Vec<&str> = before.iter().map(|need| need.package.as_str()).collect();
    println!("missing: {}; installing {}", list(&before), packages.join(" "));
    install(&packages)?;
    match missing().as_slice() {
        [] => Ok(Some(packages.join(" "))),
        still => failed(format!("still missing after apt-get: {}", list(still))),
    }
}

fn list(needs: &[&Need]) -> String {
    needs.iter().map(|need| need.what.as_str()).collect::<Vec<_>>().join(", ")
}

fn program(name: &str) -> bool {
    process::find_program(name).is_some()
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
