//! A binary that is linked with musl, statically: what a build of it takes, and whether a program
//! is one.

use crate::{Failure, process, skipped};
use std::path::Path;
use std::process::Command;

/// Rust's name for it, on this kind of machine.
pub fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// The C compilers that build for it: that of Debian's musl-tools, or of a toolchain of its own.
fn compiler() -> Option<&'static str> {
    let own = match std::env::consts::ARCH {
        "x86_64" => "x86_64-linux-musl-gcc",
        _ => "aarch64-linux-musl-gcc",
    };
    [own, "musl-gcc"].into_iter().find(|name| process::find_program(name).is_some())
}

/// The variable in which the build of a C library looks for the compiler of a target.
fn variable() -> String {
    format!("CC_{}", target().replace('-', "_"))
}

/// Skips where this machine cannot build it; says what it lacks, and how it gets that.
pub fn need() -> Result<(), Failure> {
    let target = target();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(process::root()).args(["--print", "target-libdir", "--target", &target]);
    let (status, text) = process::capture(&mut rustc)?;
    if !status.success() || !Path::new(text.trim()).is_dir() {
        return skipped(format!(
            "Rust's target {target} is not installed; rustup target add {target}"
        ));
    }
    if std::env::var_os(variable()).is_none() && compiler().is_none() {
        return skipped(format!(
            "no C compiler for musl, by which ring is built; install Debian's musl-tools, or name \
             one by {}",
            variable()
        ));
    }
    Ok(())
}

/// Have this build make it.
pub fn ask(build: &mut Command) {
    build.args(["--target", &target()]);
    if let (None, Some(compiler)) = (std::env::var_os(variable()), compiler()) {
        build.env(variable(), compiler);
    }
}

/// Whether the program at this path needs no other file to run: it names no loader (a segment
/// PT_INTERP).
pub fn check(binary: &Path) -> Result<(), String> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--program-headers", "--wide"]).arg(binary);
    match process::printed(&mut readelf)?.contains("INTERP") {
        true => Err(format!("{} is not static: it asks for a loader", binary.display())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_asks_for_its_loader_where_it_is_not_static_and_a_text_is_no_program() {
        let asks = check(&std::env::current_exe().expect("it runs"));
        let is_told = asks.as_ref().is_err_and(|why| why.contains("asks for a loader"));
        assert_eq!((is_told, asks.is_ok()), (cfg!(target_env = "gnu"), cfg!(target_env = "musl")));
        let text = check(&process::root().join("Cargo.toml"));
        assert!(text.is_err_and(|why| !why.contains("asks for a loader")));
    }
}
