//! Emulated machines: a Debian kernel under QEMU's software emulation, and over it what a job wants
//! to try and this machine has no device, or no right, for.
//!
//! A guest is made of Debian's packages ([`packages`]) and of what was built here, as an archive
//! that the kernel unpacks ([`initramfs`]); its first process is a script of the job's, and it says
//! how it went on its console. How long anything takes there means nothing.

pub mod initramfs;
pub mod packages;

use crate::process;
use packages::Debian;
use std::path::Path;
use std::process::Command;

const QEMU: &str = "qemu-system-x86_64";
const LINES_SHOWN_MAX: usize = 60;

/// What this machine lacks.
pub fn lacking() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the guest is an x86-64 machine, and its programs are built here".into());
    }
    if process::find_program(QEMU).is_none() {
        return Some(format!(
            "{QEMU} is not here (Debian: apt-get install --no-install-recommends qemu-system-x86)"
        ));
    }
    let missing = ["apt-get", "dpkg-deb", "objdump", "objcopy"];
    let missing = missing.into_iter().find(|name| process::find_program(name).is_none());
    missing.map(|name| format!("{name} is not here: the guest is made of Debian's packages"))
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

/// What a guest has said on its console so far.
pub fn said(console: &Path) -> Result<String, String> {
    let said = std::fs::read(console);
    let said = said.map_err(|e| format!("cannot read {}: {e}", console.display()))?;
    Ok(String::from_utf8_lossy(&said).replace('\r', ""))
}

/// Shows the end of what a guest has said.
pub fn show_end(said: &str) {
    let lines: Vec<&str> = said.lines().collect();
    let from = lines.len().saturating_sub(LINES_SHOWN_MAX);
    lines[from..].iter().for_each(|line| println!("    {line}"));
}
