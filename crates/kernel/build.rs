//! Compiles the BPF programs with clang, where the feature `kernel` asks for them.
//!
//! `LANEWAY_CLANG` names the compiler; else the first of [`COMPILERS`] that is there. Nothing but
//! clang is needed: the programs bring the few kernel declarations they use.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

const COMPILERS: &[&str] = &["clang-14", "clang"];
const FLAGS: &[&str] = &["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"];

/// Object, source, further flags. The unvalidated one is what a test must catch.
const OBJECTS: &[(&str, &str, &[&str])] = &[
    ("lane_tc", "lane.bpf.c", &[]),
    ("lane_xdp", "lane.bpf.c", &["-DLANE_XDP"]),
    ("lane_unvalidated", "lane.bpf.c", &["-DLANE_UNVALIDATED"]),
    ("steer", "steer.bpf.c", &[]),
    ("redirect", "redirect.bpf.c", &[]),
    ("empty", "empty.bpf.c", &[]),
    ("drop_tc", "drop.bpf.c", &[]),
    ("drop_xdp", "drop.bpf.c", &["-DLANE_XDP"]),
];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=LANEWAY_CLANG");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return ExitCode::SUCCESS;
    }
    match compile_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}

fn compile_all() -> Result<(), String> {
    let clang = compiler().ok_or(
        "the feature `kernel` compiles BPF programs and needs clang 14 or newer \
         (Debian: apt-get install clang), or LANEWAY_CLANG=/path/to/clang",
    )?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for (object, source, flags) in OBJECTS {
        let mut command = Command::new(&clang);
        command.args(FLAGS).args(*flags).arg("-c").arg(format!("bpf/{source}"));
        command.arg("-o").arg(out.join(format!("{object}.o")));
        let output = command.output().map_err(|why| format!("{clang}: {why}"))?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr).replace('\n', " | ");
            return Err(format!("{clang} refused bpf/{source}: {told}"));
        }
    }
    Ok(())
}

fn compiler() -> Option<String> {
    if let Ok(named) = std::env::var("LANEWAY_CLANG") {
        return Some(named);
    }
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    COMPILERS.iter().find(works).map(|name| name.to_string())
}
