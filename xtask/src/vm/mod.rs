//! Emulated machines: a Debian kernel under QEMU's software emulation, and over it what a job wants
//! to try and this machine has no device, or no right, for.
//!
//! A guest is made of Debian's packages ([`packages`]) and of what was built here, as an archive
//! that the kernel unpacks ([`initramfs`]); its first process is a script of the job's, and it says
//! how it went on its console. How long anything takes there means nothing.

pub mod initramfs;
pub mod packages;

use crate::{Failure, Guarded, place, process, skipped};
use packages::Debian;
use std::fmt::Display;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Begins each line that a script says.
pub const SAID: &str = "GUEST: ";
/// What a script says last if all went well.
pub const VERDICT: &str = "GUEST: everything was right";
/// What a script begins with: its words, what programs need of a kernel, modules.
const HEAD: &str = include_str!("head.sh");
const QEMU: &str = "qemu-system-x86_64";
const LINES_SHOWN_MAX: usize = 60;

/// Skips where this machine lacks something.
pub fn need() -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return skipped("the guest is an x86-64 machine, and its programs are built here");
    }
    place::need_programs(&[QEMU], "apt-get install --no-install-recommends qemu-system-x86")?;
    place::need_programs(&["objdump", "objcopy", "xz"], "binutils, xz-utils")
}

/// The line that runs a guest: two processors, a console on the standard output, and no device. It
/// ends when the guest does. `boot` is what the kernel is told besides.
pub fn command(debian: &Debian, archive: &Path, boot: &str) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]);
    command.args(["-nodefaults", "-no-reboot", "-display", "none"]);
    command.args(["-serial", "stdio", "-monitor", "none"]);
    let told = format!("console=ttyS0 quiet panic=-1 mitigations=off {boot}");
    command.args(["-append", told.trim_end()]);
    command.arg("-kernel").arg(&debian.kernel).arg("-initrd").arg(archive);
    command
}

/// The whole script, the first process of a guest's kernel, of which `body` is what a job wants,
/// with `@NAME@` in it replaced by the value of this name.
pub fn script(body: &str, values: &[(&str, &dyn Display)]) -> String {
    let fill = |body: String, (name, value): &(&str, &dyn Display)| {
        body.replace(&format!("@{name}@"), &value.to_string())
    };
    let body = values.iter().fold(body.to_owned(), fill);
    assert!(!body.contains('@'), "a name has no value: {body}");
    format!("{HEAD}{body}echo \"{VERDICT}\"\noff\n")
}

/// Runs a guest with such a script until it ends, and at most for so long, its console in the file
/// `log`. Shows the lines that begin so, and fails unless one says that all was right.
pub fn run(
    machine: &mut Command,
    log: &Path,
    patience: Duration,
    shown: &[&str],
) -> Result<(), String> {
    let mut guest = Guarded::start(machine, log)?;
    let ended = guest.wait(patience);
    drop(guest);
    let said = said(log)?;
    for line in said.lines().filter(|line| shown.iter().any(|start| line.starts_with(start))) {
        println!("{line}");
    }
    if said.lines().any(|line| line.trim_end() == VERDICT) {
        return Ok(());
    }
    show_end(&said);
    let why = match ended {
        Some(_) => "did not say that all was right",
        None => "was still running when its time was up",
    };
    Err(format!("the guest {why}; see {}", log.display()))
}

/// What a guest has said on its console so far.
pub fn said(console: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&process::read_bytes(console)?).replace('\r', ""))
}

/// Shows the end of what a guest has said.
pub fn show_end(said: &str) {
    process::tail(said, LINES_SHOWN_MAX).iter().for_each(|line| println!("    {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_ends_with_the_verdict_and_says_it_nowhere_else() {
        let script = script("laneway @A@\n", &[("A", &7)]);
        assert!(script.ends_with(&format!("laneway 7\necho \"{VERDICT}\"\noff\n")));
        assert_eq!(script.matches(VERDICT).count(), 1);
        assert!(VERDICT.starts_with(SAID) && script.contains(&format!("echo \"{SAID}$*\"")));
    }
}
