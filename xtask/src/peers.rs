//! Today's peers: memcached, Valkey and Redis of Debian's newer suite, in a folder of ours.
//!
//! Debian's stable suite ships a memcached of 2022. A comparison with that says little today, and
//! installing a newer one needs newer libraries. So the packages are unpacked, libraries, loader
//! and all, and each server gets a script that runs it by that loader: nothing is installed, and a
//! script's process becomes the server's by exec. Comparisons look into the folder of scripts
//! before they look at the PATH (`laneway_load::pairs::server`).

use crate::{Failure, Outcome, flags, passed, process, setup};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite that has them.
pub const SUITE: &str = "forky";

/// Servers, each with the oldest version that we compare with. Their packages are called so, too.
const PEERS: &[(&str, &str)] =
    &[("memcached", "1.6.45"), ("valkey-server", "9.1"), ("redis-server", "8.0")];

/// Programs beside them, by which `cargo xtask redis` speaks to Laneway.
const TOOLS: &[&str] = &["redis-cli", "redis-benchmark", "valkey-cli", "valkey-benchmark"];

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    if let Ok(versions) = check_all() {
        return passed(versions);
    }
    fetch()?;
    Ok(check_all()?)
}

/// Where the scripts lie.
pub fn bin() -> PathBuf {
    folder().join("bin")
}

/// A peer's script, if it was unpacked.
pub fn program(name: &str) -> Option<PathBuf> {
    Some(bin().join(name)).filter(|path| path.is_file())
}

fn folder() -> PathBuf {
    process::target_dir().join("peers")
}

/// The versions of all; or which is not there, does not run, or is too old.
fn check_all() -> Result<String, String> {
    if let Some(tool) = TOOLS.iter().find(|tool| program(tool).is_none()) {
        return Err(format!("{tool} is not there"));
    }
    let each = PEERS.iter().map(|(name, version_min)| {
        let script = program(name).ok_or_else(|| format!("{name} is not there"))?;
        let text = process::said(Command::new(script).arg("--version"))?;
        let version = process::version(&text).ok_or_else(|| format!("{name} says {text}"))?;
        match process::numbers(version) >= process::numbers(version_min) {
            true => Ok(format!("{name} {version}")),
            false => Err(format!("{name} is {version}; {version_min} is wanted")),
        }
    });
    each.collect::<Result<Vec<String>, String>>().map(|told| told.join(", "))
}

/// Unpacks all of them.
fn fetch() -> Result<(), Failure> {
    let (root, bin) = (folder().join("root"), bin());
    // What a run left that did not come to its end, or an older version.
    let _ = fs::remove_dir_all(folder());
    process::make_dir(&root)?;
    let packages: Vec<&str> = PEERS.iter().map(|(name, _)| *name).collect();
    println!("unpacking {} of Debian's {SUITE}", packages.join(", "));
    let include = format!("--include={}", packages.join(","));
    setup::unpack(SUITE, &root, &["--variant=extract", &include])
        .inspect_err(|_| drop(fs::remove_dir_all(folder())))?;
    let loader = loader(&root)?;
    process::make_dir(&bin)?;
    for name in packages.iter().chain(TOOLS) {
        script(&root, &loader, &bin.join(name), name)?;
    }
    Ok(())
}

/// The loader of what was unpacked, such as `usr/lib64/ld-linux-x86-64.so.2`.
fn loader(root: &Path) -> Result<PathBuf, String> {
    let folders = ["usr/lib64", "usr/lib"].map(|folder| root.join(folder));
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("ld-linux") && name.contains(".so.")
    };
    let found = files.map(|entry| entry.path()).find(name);
    found.ok_or_else(|| format!("no loader in {}", root.display()))
}

/// A script that becomes `program` of `root`, run by its own loader with its own libraries.
fn script(root: &Path, loader: &Path, path: &Path, program: &str) -> Result<(), String> {
    let libraries = fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
    let libraries = libraries.map(|entry| entry.path());
    let libraries = libraries.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    let libraries: Vec<String> = libraries.map(|path| path.display().to_string()).collect();
    let text = format!(
        "#!/bin/sh\n# Written by `cargo xtask peers`.\nexec '{}' --library-path '{}' '{}' \"$@\"\n",
        loader.display(),
        libraries.join(":"),
        root.join("usr/bin").join(program).display(),
    );
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed)
}
