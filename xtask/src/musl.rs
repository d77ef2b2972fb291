//! A binary that is linked with musl, statically: what a build of it takes, and whether a program
//! is one.

use crate::process;
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

/// What this machine lacks to build it, and how it gets that.
pub fn missing() -> Result<Option<String>, String> {
    let target = target();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(process::root()).args(["--print", "target-libdir", "--target", &target]);
    let (status, text) = process::capture(&mut rustc)?;
    if !status.success() || !Path::new(text.trim()).is_dir() {
        return Ok(Some(format!(
            "Rust's target {target} is not installed; rustup target add {target}"
        )));
    }
    if std::env::var_os(variable()).is_none() && compiler().is_none() {
        return Ok(Some(format!(
            "no C compiler for musl, by which ring is built; install Debian's musl-tools, or name \
             one by {}",
            variable()
        )));
    }
    Ok(None)
}

/// Have this build make it.
pub fn ask(build: &mut Command) {
    build.args(["--target", &target()]);
    if let (None, Some(compiler)) = (std::env::var_os(variable()), compiler()) {
        build.env(variable(), compiler);
    }
}

/// Whether the program at this path needs no other file to run.
pub fn check(binary: &Path) -> Result<(), String> {
    let bytes = std::fs::read(binary).map_err(|e| format!("{}: {e}", binary.display()))?;
    match asks_for_loader(&bytes) {
        Some(false) => Ok(()),
        Some(true) => Err(format!("{} is not static: it asks for a loader", binary.display())),
        None => Err(format!("{} is no 64-bit ELF program", binary.display())),
    }
}

/// Whether an ELF program of 64 bits names a loader (a segment PT_INTERP), which a static one does
/// not. `None`: it is no such program.
fn asks_for_loader(program: &[u8]) -> Option<bool> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    const PT_INTERP: u64 = 3;
    // A number of so many bytes, the lowest first.
    let number = |at: usize, bytes: usize| {
        let bytes = program.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte)))
    };
    if !program.starts_with(MAGIC) {
        return None;
    }
    let (from, each, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let mut asks = false;
    for segment in 0..count {
        let at = from.checked_add(segment * each)?;
        asks |= number(usize::try_from(at).ok()?, 4)? == PT_INTERP;
    }
    Some(asks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that has nothing but segments of these kinds.
    fn program(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 0x40];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[0x20], bytes[0x36], bytes[0x38]) = (0x40, 56, kinds.len() as u8);
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn who_asks_for_a_loader_is_not_static() {
        assert_eq!(asks_for_loader(&program(&[6, 1, 1])), Some(false));
        assert_eq!(asks_for_loader(&program(&[6, 1, 3, 1])), Some(true));
        assert_eq!(asks_for_loader(&program(&[])), Some(false));
        for wrong in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF\x02\x01"] {
            assert_eq!(asks_for_loader(wrong), None, "{wrong:?}");
        }
        let whole = program(&[1, 3]);
        assert_eq!(asks_for_loader(&whole[..0x60]), None, "the second segment is missing");
    }

    #[test]
    fn this_test_is_a_program_and_asks_for_its_loader_where_it_is_not_static() {
        let own = std::env::current_exe().and_then(std::fs::read).expect("it runs");
        assert_eq!(asks_for_loader(&own), Some(cfg!(target_env = "gnu")));
    }

    #[test]
    fn the_variable_is_named_as_the_build_of_c_looks_for_it() {
        assert_eq!(variable(), format!("CC_{}_unknown_linux_musl", std::env::consts::ARCH));
    }
}
