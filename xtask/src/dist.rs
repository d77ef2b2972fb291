//! What is given away: the binary of profile `dist`, and all that goes with it, in one folder.

use crate::features::RELEASED;
use crate::package::{deb, kubernetes, sbom};
use crate::{Outcome, failed, flags, musl, passed, process};
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Build a release of what is checked out into one folder, and tell how large the binary is.

usage: cargo xtask dist [--musl]

  --musl  a static binary, which needs no C library (by musl), in a folder named so; no Debian
          package. Takes Rust's target for it and a C compiler for musl

target/laneway-VERSION-ARCHITECTURE has the stripped binary (profile `dist`), man pages,
completions, a Debian package, the manifests of Kubernetes with the dashboard and the alert rules as
resources, the bill of materials (laneway.cdx.json, CycloneDX) and SHA256SUMS. Takes many minutes;
`cargo xtask package` checks the parts without it. A binary of 10 MB or more fails (the aim is 8),
in whose folder everything is all the same; a static one may be larger, for it has a C library.";

/// The binary is smaller, with what a release has: so is one without any feature.
const LIMIT_BYTES: u64 = 10_000_000;
/// What is copied, and its name in the folder.
const COPIED: &[(&str, &str)] = &[
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("packaging/laneway.toml", "laneway.toml"),
    ("packaging/systemd/laneway.service", "systemd/laneway.service"),
    ("packaging/systemd/laneway.socket", "systemd/laneway.socket"),
    ("packaging/systemd/sysusers.conf", "systemd/sysusers.conf"),
    ("packaging/prometheus/alerts.yaml", "prometheus/alerts.yaml"),
    ("packaging/grafana/laneway.json", "grafana/laneway.json"),
];
const PRINTED: &[(&[&str], &str)] = &[
    (&["man"], "man/laneway.1"),
    (&["man", "serve"], "man/laneway-serve.1"),
    (&["completions", "bash"], "completions/laneway.bash"),
    (&["completions", "zsh"], "completions/_laneway"),
    (&["completions", "fish"], "completions/laneway.fish"),
];

pub fn main(parser: lexopt::Parser) -> Outcome {
    let is_static = flags::switch(parser, "musl")?;
    let mut build = process::cargo();
    build.args(["build", "--locked", "--profile", "dist", "-p", "laneway"]);
    build.args(["--features", RELEASED]);
    let mut name = format!("laneway-{}-{}", deb::VERSION, std::env::consts::ARCH);
    let mut built = process::target_dir();
    if is_static {
        musl::need()?;
        musl::ask(&mut build);
        built.push(musl::target());
        name.push_str("-musl");
    }
    process::run(&mut build)?;
    let binary = built.join("dist").join("laneway");
    if is_static {
        musl::check(&binary)?;
    }
    let folder = process::target_dir().join(name);
    fill(&binary, &folder, !is_static)?;
    let bytes = std::fs::metadata(&binary).map_err(|e| e.to_string())?.len();
    let told = format!("{}: the binary has {:.2} MB", folder.display(), bytes as f64 / 1e6);
    match is_too_large(bytes, is_static) {
        true => failed(format!("{told}; it must have less than {} MB", LIMIT_BYTES / 1_000_000)),
        false => passed(told),
    }
}

fn is_too_large(bytes: u64, is_static: bool) -> bool {
    !is_static && LIMIT_BYTES <= bytes
}

fn fill(binary: &Path, folder: &Path, has_package: bool) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(folder); // of an earlier run
    let program = deb::put(folder, "laneway", &process::read_bytes(binary)?, 0o755)?;
    for (from, to) in COPIED {
        deb::put(folder, to, &process::read_bytes(process::root().join(from))?, 0o644)?;
    }
    for (words, to) in PRINTED {
        deb::put(folder, to, &deb::printed(&program, words)?, 0o644)?;
    }
    for (name, text) in kubernetes::manifests()? {
        deb::put(folder, &format!("kubernetes/{name}"), text.as_bytes(), 0o644)?;
    }
    deb::put(folder, "laneway.cdx.json", sbom::text()?.as_bytes(), 0o644)?;
    if has_package && process::find_program("dpkg-deb").is_some() {
        let scratch = process::scratch_dir("dist")?;
        let package = deb::build(binary, &scratch, deb::SMALL)?;
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        deb::put(folder, &name, &process::read_bytes(&package)?, 0o644)?;
    } else {
        let why =
            if has_package { "there is no dpkg-deb here" } else { "it is Debian's C library's" };
        println!("no Debian package: {why}");
    }
    sums(folder)
}

/// SHA256SUMS of every file, as `sha256sum --check` takes them.
fn sums(folder: &Path) -> Result<(), String> {
    const SUMS: &str = "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum";
    let sums = process::printed(Command::new("sh").current_dir(folder).args(["-c", SUMS]))?;
    deb::put(folder, "SHA256SUMS", sums.as_bytes(), 0o644).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_of_the_limit_is_too_large_unless_a_c_library_is_in_it() {
        assert!(is_too_large(LIMIT_BYTES, false) && !is_too_large(LIMIT_BYTES - 1, false));
        assert!(!is_too_large(2 * LIMIT_BYTES, true));
    }
}
