//! `--sandbox`: what a server may do to the machine once somebody has found a way to make it do
//! what he wants. Landlock leaves it the files that its flags name, from before its first thread
//! begins (a thread has what the one has that made it); a seccomp filter leaves it the system calls
//! that serving takes, for all of its threads, from before the first client is served.
//!
//! What needs more than that is served without: see [`unfit`].

mod calls;
mod files;

use crate::flags::Flags;
use laneway_server::settings::{Sandbox, Settings};
use std::path::PathBuf;

/// What the flag says; left out it is off.
pub fn setting(flags: &Flags) -> Result<Sandbox, String> {
    match flags.sandbox.as_deref() {
        None | Some("off") => Ok(Sandbox::Off),
        Some("log") => Ok(Sandbox::Log),
        Some("on") => Ok(Sandbox::On),
        Some(other) => {
            Err(format!("--sandbox {other}: must be on, log or off; leave the flag out for off"))
        }
    }
}

/// One that is half built: files are guarded, system calls are not yet.
pub struct Begun(Sandbox);

/// Guard the files, before any thread is made. What cannot be guarded is told, and `settings` have
/// what holds.
pub fn begin(flags: &Flags, settings: &mut Settings) -> Result<Begun, String> {
    if settings.sandbox != Sandbox::Off
        && let Some(why) = unfit(settings)
    {
        log::warn!("--sandbox {}: there is none, since {why}", settings.sandbox.name());
        settings.sandbox = Sandbox::Off;
    }
    if settings.sandbox == Sandbox::On {
        let rules = files::rules(flags, ports_file());
        files::guard(&rules).map_err(|why| {
            format!("--sandbox on: {why}; --sandbox log tells what a sandbox would refuse")
        })?;
    }
    Ok(Begun(settings.sandbox))
}

impl Begun {
    /// Guard the system calls, once everything is there that serves.
    pub fn complete(self) -> Result<(), String> {
        if self.0 == Sandbox::Off {
            return Ok(());
        }
        let name = self.0.name();
        calls::guard(self.0, std::env::var_os("NOTIFY_SOCKET").is_some())
            .map_err(|why| format!("--sandbox {name}: {why}; leave it out, or say off"))?;
        log::info!(
            "{}",
            match self.0 {
                Sandbox::On =>
                    "in a sandbox: files and system calls that it does not need are refused",
                _ => "system calls that a sandbox would refuse are logged by the kernel",
            }
        );
        Ok(())
    }
}

/// The file of ports, if one is to be written.
fn ports_file() -> Option<PathBuf> {
    super::ports::path()
}

/// Why a server cannot be in a sandbox: it goes on loading programs, or talks to a device by calls
/// that no list can name.
fn unfit(settings: &Settings) -> Option<&'static str> {
    let kernel = &settings.kernel;
    match () {
        () if kernel.lane.is_some() => {
            Some("--kernel-lane changes the kernel's maps while it serves")
        }
        () if kernel.steer => Some("--steer changes the kernel's maps while it serves"),
        () if kernel.bypass.is_some() => Some("--af-xdp talks to the card's driver"),
        () if settings.rdma.is_some() => Some("--rdma talks to the device by its library"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{self, Asked};
    use std::ffi::OsString;

    #[test]
    fn what_needs_more_than_a_sandbox_leaves_goes_without() {
        for (line, is_fit) in [
            ("-l 127.0.0.1", true),
            ("-l 127.0.0.1 -U 5000 --udp-base 6000 --shm /run/door", true),
            ("-U 5000 --kernel-lane lo", false),
            ("-U 5000 --design hkh --access erew --steer", false),
        ] {
            let line = format!("{line} --sandbox on");
            let Ok(Asked::Serve(flags)) =
                flags::read(line.split_whitespace().map(OsString::from), [])
            else {
                panic!("{line}")
            };
            let settings = super::super::settings(&flags).expect(&line);
            assert_eq!(settings.sandbox, Sandbox::On, "{line}");
            assert_eq!(unfit(&settings).is_none(), is_fit, "{line}");
        }
    }
}
