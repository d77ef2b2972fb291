//! Runs a benchmark of bench/definitions in adjacent pairs; the runner itself is in crates/load.
//! What a definition runs is built first, and RocksDB installed where it is one of those compared.

use crate::{Failure, Outcome, figures, passed, peers, process, tier_bench};
use laneway_certs::Authority;
use laneway_load::pairs::{self, definition::Kind};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut options = pairs::Options::new(&process::root());
    options.laneway = process::target_dir().join("release").join("laneway");
    options.peers = peers::bin();
    options.check = false;
    let (mut id, mut list) = (None, false);
    flags!(parser, {
        Long("check") => options.check = true,
        Long("pairs") => options.pairs = Some(parser.value()?.parse()?),
        Long("with") => options.with = parser.value()?.string()?,
        Long("no-record") => options.record = false,
        Long("list") => list = true,
        Value(name) if id.is_none() => id = Some(name.string()?),
    });
    let known = pairs::definition::list(&options.root)?;
    if list {
        for (id, about) in &known {
            println!("{id:<20} {about}");
        }
        return passed("");
    }
    let Some(id) = id.filter(|id| known.iter().any(|(name, _)| name == id)) else {
        return Err(Failure::Usage(
            "name a benchmark; `cargo xtask bench --list` shows them".into(),
        ));
    };
    if options.pairs == Some(0) {
        return Err(Failure::Usage("--pairs 0: must be at least 1".into()));
    }
    let definition = pairs::definition::read(&options.root, &id)?;
    if definition.runs.iter().any(|run| definition.kind_of(run) != Kind::Program) {
        build(&["-p", "laneway", "--features", &definition.features])?;
    }
    if definition.servers.iter().any(|server| server.command.contains("{unobserved}")) {
        build_unobserved()?;
    }
    if definition.servers.iter().any(|server| server.tls) {
        make_certificates()?;
    }
    for program in pairs::programs(&definition) {
        build_program(&program)?;
    }
    // The runner has told its figures and its verdict already.
    let ended = pairs::main(&id, &options);
    if options.record && figures::update()? {
        println!("README's and docs/figures.md's tables are new: commit them with the record");
    }
    if ended == ExitCode::SUCCESS { passed("") } else { Err(Failure::Told) }
}

/// Builds the server that records nothing for operators, in a folder of its own. Returns where it
/// lies.
pub fn build_unobserved() -> Result<PathBuf, Failure> {
    let root = process::root();
    let folder = root.join(pairs::UNOBSERVED).display().to_string();
    build(&["-p", "laneway", "--features", "unobserved", "--target-dir", &folder])?;
    let built = pairs::unobserved(&root);
    let (_, told) = process::capture(Command::new(&built).args(["--version", "-v"]))?;
    // Beside a server that records as much, whatever that costs would be within every bound.
    match told.contains("features: unobserved") {
        true => Ok(built),
        false => Err(Failure::Failed(format!("{}: it records: {told}", built.display()))),
    }
}

/// A certificate for servers that encrypt: of ECDSA with P-256, as most have one.
fn make_certificates() -> Result<(), Failure> {
    let folder = process::root().join(pairs::TLS);
    process::make_dir(&folder)?;
    let authority = Authority::new("laneway's benchmarks");
    let pair = authority.pair_p256();
    for (name, text) in
        [("ca.pem", &authority.pem), ("cert.pem", &pair.chain), ("key.pem", &pair.key)]
    {
        process::write(folder.join(name), text)?;
    }
    Ok(())
}

/// Builds what a definition calls by this name.
fn build_program(name: &str) -> Result<(), Failure> {
    match name {
        "{examples}/index" => build(&["-p", "laneway-store", "--example", "index"]),
        "{examples}/programs" => build_of_kernel("programs"),
        "{examples}/interception" => {
            build(&["-p", "laneway"])?; // it starts a server, too
            build_of_kernel("interception")
        }
        tier_bench::PROGRAM => tier_bench::build(),
        // This program, whose task `restart` starts servers.
        "{release}/../debug/xtask" => build(&["-p", "laneway"]),
        // Some other program, which is there or is not.
        _ => Ok(()),
    }
}

fn build_of_kernel(example: &str) -> Result<(), Failure> {
    build(&["-p", "laneway-kernel", "--features", "kernel", "--example", example])
}

fn build(what: &[&str]) -> Result<(), Failure> {
    Ok(process::run(process::cargo().args(["build", "--release", "--quiet"]).args(what))?)
}
