//! `--sandbox`: what a server may do to the machine once somebody has found a way to make it do
//! as they like. Landlock leaves it the files that its flags name, from before its first thread
//! begins (a thread has what the one has that made it); a seccomp filter leaves it the system calls
//! that serving takes, for all of its threads, from before the first client is served.
//!
//! It is on unless a flag says otherwise. What needs more than that is served without: see
//! [`unfit`]; so is who did not ask for it on a kernel that has none.

mod calls;
mod files;

use crate::flags::Flags;
use laneway_server::kernel::can_steer;
use laneway_server::settings::{Sandbox, Settings};
use std::path::PathBuf;

/// What the flag says; left out there is one if there can be.
pub fn setting(flags: &Flags) -> Result<Sandbox, String> {
    match flags.sandbox.as_deref() {
        None | Some("auto" | "on") => Ok(Sandbox::On),
        Some("off") => Ok(Sandbox::Off),
        Some("log") => Ok(Sandbox::Log),
        Some(other) => Err(format!("--sandbox {other}: must be auto, on, log or off")),
    }
}

/// One that is half built: files are guarded, system calls are not yet.
pub struct Begun {
    sandbox: Sandbox,
    /// A start without it is refused.
    is_asked_for: bool,
    /// Why there is none, where nobody has asked for one.
    why_without: Option<String>,
}

/// Guard the files, before any thread is made. What cannot be guarded is told, and `settings` have
/// what holds.
pub fn begin(flags: &Flags, settings: &mut Settings) -> Result<Begun, String> {
    let is_asked_for = !matches!(flags.sandbox.as_deref(), None | Some("auto"));
    let mut begun = Begun { sandbox: settings.sandbox, is_asked_for, why_without: None };
    if begun.sandbox != Sandbox::Off
        && let Some(why) = unfit(settings, can_steer())
    {
        begun.go_without(why.to_owned());
    }
    if begun.sandbox == Sandbox::On
        && let Err(why) = files::guard(&files::rules(flags, ports_file()))
    {
        if is_asked_for {
            return Err(format!(
                "--sandbox on: {why}; --sandbox log tells what a sandbox would refuse"
            ));
        }
        begun.go_without(why);
    }
    settings.sandbox = begun.sandbox;
    Ok(begun)
}

impl Begun {
    /// There is no sandbox.
    fn go_without(&mut self, why: String) {
        if self.is_asked_for {
            log::warn!("--sandbox {}: there is none, since {why}", self.sandbox.name());
        } else {
            self.why_without = Some(why);
        }
        self.sandbox = Sandbox::Off;
    }

    /// Guard the system calls, once everything is there that serves. Returns what is to be told of
    /// it then. `is_half` is called where they are not guarded, though files are.
    pub fn complete(self, is_half: impl FnOnce()) -> Result<Option<String>, String> {
        let notifies = std::env::var_os("NOTIFY_SOCKET").is_some();
        self.complete_by(|sandbox| calls::guard(sandbox, notifies), is_half)
    }

    fn complete_by(
        self,
        guard: impl FnOnce(Sandbox) -> Result<(), String>,
        is_half: impl FnOnce(),
    ) -> Result<Option<String>, String> {
        let Begun { sandbox, is_asked_for, why_without } = self;
        if sandbox == Sandbox::Off {
            return Ok(why_without.map(|why| format!("in no sandbox, since {why}")));
        }
        if let Err(why) = guard(sandbox) {
            let name = sandbox.name();
            if is_asked_for {
                return Err(format!("--sandbox {name}: {why}; leave it out, or say off"));
            }
            log::warn!("half a sandbox: files are refused, and system calls are not: {why}");
            is_half();
            return Ok(None);
        }
        let told = match sandbox {
            Sandbox::On => "in a sandbox: files and system calls that it does not need are refused",
            _ => "system calls that a sandbox would refuse are logged by the kernel",
        };
        Ok(Some(told.to_owned()))
    }
}

/// The file of ports, if one is to be written.
fn ports_file() -> Option<PathBuf> {
    super::ports::path()
}

/// Why a server cannot be in a sandbox: it goes on loading programs, or talks to a device by calls
/// that no list can name. One that cannot steer serves without steering, and needs no more.
fn unfit(settings: &Settings, can_steer: bool) -> Option<&'static str> {
    let kernel = &settings.kernel;
    match () {
        () if kernel.lane.is_some() => {
            Some("--kernel-lane changes the kernel's maps while it serves")
        }
        () if kernel.steer && can_steer => {
            Some("--steer changes the kernel's maps while it serves")
        }
        () if kernel.bypass.is_some() => Some("--af-xdp talks to the card's driver"),
        () if settings.rdma.is_some() => Some("--rdma talks to the device by its library"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn what_needs_more_than_a_sandbox_leaves_goes_without() {
        const STEERS: &str = "-U 5000 --design hkh --access erew --steer";
        for (line, can_steer, is_fit) in [
            ("-l 127.0.0.1", true, true),
            ("-l 127.0.0.1 -U 5000 --udp-base 6000 --shm /run/door", true, true),
            ("-U 5000 --kernel-lane lo", false, false),
            (STEERS, true, false),
            (STEERS, false, true),
        ] {
            let flags = flags::typed(&format!("{line} --sandbox on"));
            let settings = super::super::settings(&flags).expect(line);
            assert_eq!(settings.sandbox, Sandbox::On, "{line}");
            assert_eq!(unfit(&settings, can_steer).is_none(), is_fit, "{line}");
        }
    }

    #[test]
    fn there_is_one_unless_the_flag_says_otherwise() {
        for (line, wanted) in [
            ("", Some(Sandbox::On)),
            ("--sandbox auto", Some(Sandbox::On)),
            ("--sandbox on", Some(Sandbox::On)),
            ("--sandbox log", Some(Sandbox::Log)),
            ("--sandbox off", Some(Sandbox::Off)),
            ("--sandbox maybe", None),
        ] {
            let flags = flags::typed(line);
            assert_eq!(setting(&flags).ok(), wanted, "{line}");
        }
    }

    #[test]
    fn who_did_not_ask_for_one_is_served_without() {
        let flags = flags::typed("-U 5000 --kernel-lane lo");
        let mut settings = super::super::settings(&flags).expect("they are sound");
        let begun = begin(&flags, &mut settings).expect("nobody asked for it");
        assert_eq!((begun.sandbox, settings.sandbox), (Sandbox::Off, Sandbox::Off));
        let told = begun.complete(|| panic!("it is none")).expect("nobody asked for it");
        let told = told.expect("it is told");
        assert!(told.starts_with("in no sandbox, since --kernel-lane"), "{told}");
    }

    #[test]
    fn half_a_sandbox_is_told_as_that_and_is_not_enough_for_who_asked_for_one() {
        for (is_asked_for, refused) in [(false, true), (false, false), (true, true)] {
            let begun = Begun { sandbox: Sandbox::On, is_asked_for, why_without: None };
            let mut is_half = false;
            let guard =
                |_: Sandbox| if refused { Err("there is no filter".to_owned()) } else { Ok(()) };
            let told = begun.complete_by(guard, || is_half = true);
            assert_eq!(told.is_err(), refused && is_asked_for, "{told:?}");
            assert_eq!(is_half, refused && !is_asked_for);
        }
    }
}
