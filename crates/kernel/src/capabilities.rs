//! Which of the capabilities that the programs need this process has (the effective ones in
//! `/proc/self/status`), and giving them up once they have served.

#[cfg(feature = "kernel")]
use crate::error::Error;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// The capabilities that loading and attaching need, with their numbers in the kernel's mask.
const CAPABILITIES: &[(&str, u32)] = &[("CAP_BPF", 39), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38)];

/// Of the capabilities needed, those that this process lacks.
pub fn missing_capabilities() -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing_in(&status)
}

/// The command that grants them to this program.
pub(crate) fn grant() -> String {
    let program =
        std::env::current_exe().map_or("laneway".into(), |path| path.display().to_string());
    format!("setcap cap_bpf,cap_net_admin,cap_perfmon+ep {program}")
}

/// An error that says which are missing and how to get them.
#[cfg(feature = "kernel")]
pub(crate) fn require(what: &str) -> Result<(), Error> {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Ok(());
    }
    let told = format!(
        "this process lacks {}; grant them with `{}`, start it as root, or leave the flag out",
        missing.join(", "),
        grant()
    );
    Err(Error::said(what, told))
}

/// Give up, in this thread and all that it starts from now on, the capabilities that loading and
/// attaching needed. What is attached stays, mapped arrays and their counts are reached without.
/// Tells whether it could.
pub fn drop_capabilities() -> bool {
    let Ok(mut sets) = capabilities(None) else { return false };
    let needed = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::PERFMON;
    sets.effective.remove(needed);
    sets.permitted.remove(needed);
    sets.inheritable.remove(needed);
    set_capabilities(None, sets).is_ok()
}

fn missing_in(status: &str) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let lacks = |(_, bit): &&(&str, u32)| mask >> bit & 1 == 0;
    CAPABILITIES.iter().filter(lacks).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_mask() {
        let all = "Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\n";
        assert!(missing_in(all).is_empty());
        let none = ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"];
        assert_eq!(missing_in("CapEff:\t0000000000000000\n"), none);
        assert_eq!(missing_in("no such line"), none);
        assert_eq!(missing_in("CapEff:\t000000c000000000\n"), ["CAP_NET_ADMIN"]);
    }
}
