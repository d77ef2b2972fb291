//! The units of systemd and their user: what systemd's own programs say of them.

use crate::{Folder, Outcome, failed, passed, process, skipped};
use std::path::Path;
use std::process::Command;

const UNIT: &str = "packaging/systemd/laneway.service";
const SOCKET: &str = "packaging/systemd/laneway.socket";
/// What the unit says because the server does it, reads the clock once, or its package depends on
/// no other program.
const SAID: &[&str] = &[
    "After=network-online.target time-sync.target",
    "Type=notify",
    "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'",
    "WatchdogSec=30",
    "RuntimeDirectoryPreserve=yes",
];
const USERS: &str = "packaging/systemd/sysusers.conf";
/// The most exposure that is accepted, in tenths: 0 is none, 100 that of a service without limits.
const EXPOSURE_TENTHS_MAX: &str = "20";

/// Verify the unit, and measure what it is left of rights.
pub fn check() -> Outcome {
    let Some(analyze) = process::find_program("systemd-analyze") else {
        return skipped("there is no systemd-analyze (Debian: systemd)");
    };
    let unit = process::root().join(UNIT);
    let mut security = Command::new(&analyze);
    security.args(["--no-pager", "security", "--offline=true", "--threshold"]);
    let (status, said) = process::capture(security.arg(EXPOSURE_TENTHS_MAX).arg(&unit))?;
    let last = said.lines().rfind(|line| line.contains("exposure")).unwrap_or("nothing is told");
    if said.contains("unrecognized option") {
        return skipped("this systemd-analyze is too old to look at a file");
    }
    if !status.success() {
        return failed(format!("{}\n{}", last.trim(), said.trim()));
    }
    let text = process::read(&unit)?;
    if let Some(line) = SAID.iter().find(|line| !text.lines().any(|found| found == **line)) {
        return failed(format!("{UNIT} has no line {line}"));
    }
    verify(&analyze, &text)?;
    if let Some(sysusers) = process::find_program("systemd-sysusers") {
        let mut dry_run = Command::new(sysusers);
        process::run(dry_run.arg("--dry-run").arg(process::root().join(USERS)))?;
    }
    let exposure = last.split(": ").nth(1).unwrap_or(last);
    passed(format!("exposure {}", exposure.trim()))
}

/// Have it read the units where they would lie, with a program where the service has one.
fn verify(analyze: &Path, text: &str) -> Result<(), String> {
    let folder = Folder::make("package-unit")?;
    let program = process::find_program("true").ok_or("there is no `true`")?;
    let program = program.display().to_string();
    let service = text.replace("ExecStart=/usr/bin/laneway", &format!("ExecStart={program}"));
    let mut command = Command::new(analyze);
    command.args(["verify", "--man=no"]);
    let socket = process::read(process::root().join(SOCKET))?;
    for (name, text) in [("laneway.service", service), ("laneway.socket", socket)] {
        let file = folder.file(name);
        process::write(&file, text)?;
        command.arg(&file);
    }
    let (status, said) = process::capture(&mut command)?;
    // Other units of this machine are read too; what is said of them is not about ours.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("laneway")).collect();
    match ours.is_empty() && status.success() {
        true => Ok(()),
        false => Err(format!("systemd-analyze verify: {}", said.trim())),
    }
}
