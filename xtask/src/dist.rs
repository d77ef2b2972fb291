//! What is given away: the binary of profile `dist`, and all that goes with it, in one folder.

use crate::features::RELEASED;
use crate::package::{deb, kubernetes, sbom};
use crate::{Outcome, failed, flags, musl, passed, process};
use std::path::Path;
use std::process::Command;

/// The binary is smaller, with what a release has: so is one without any feature.
const LIMIT_BYTES: u64 = 10_000_000;

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
    // A static one has a C library in it.
    match !is_static && LIMIT_BYTES <= bytes {
        true => failed(format!("{told}; it must have less than {} MB", LIMIT_BYTES / 1_000_000)),
        false => passed(told),
    }
}

fn fill(binary: &Path, folder: &Path, has_package: bool) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(folder); // of an earlier run
    let program = deb::put(folder, "laneway", &process::read_bytes(binary)?, 0o755)?;
    deb::Contents::of("release")?.put(folder, &program)?;
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
