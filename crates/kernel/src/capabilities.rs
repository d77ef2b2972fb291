//! Which of the capabilities that the programs need this process has (the effective ones in
//! `/proc/self/status`), and giving them up once they have served.

#[cfg(feature = "kernel")]
use crate::error::Error;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Capabilities, with their numbers in the kernel's mask.
type Needed = &'static [(&'static str, u32)];

/// Loading and attaching the lane's programs need these.
pub(crate) const LANE: Needed = &[("CAP_BPF", 39), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38)];

/// What AF_XDP sockets need as well.
#[cfg(any(test, feature = "kernel"))]
pub(crate) const BYPASS: Needed =
    &[("CAP_BPF", 39), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_NET_RAW", 13)];

/// Of the capabilities needed, those that this process lacks.
pub(crate) fn missing(needed: Needed) -> Vec<&'static str> {
    missing_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), needed)
}

/// The command that grants them to this program.
pub(crate) fn grant(needed: Needed) -> String {
    let names: Vec<String> = needed.iter().map(|(name, _)| name.to_lowercase()).collect();
    let program = std::env::current_exe();
    let program = program.map_or("laneway".into(), |path| path.display().to_string());
    format!("setcap {}+ep {program}", names.join(","))
}

/// An error that says which are missing and how to get them.
#[cfg(feature = "kernel")]
pub(crate) fn require(what: &str, needed: Needed) -> Result<(), Error> {
    let missing = missing(needed);
    if missing.is_empty() {
        return Ok(());
    }
    let told = format!(
        "this process lacks {}; grant them with `{}`, start it as root, or leave the flag out",
        missing.join(", "),
        grant(needed),
    );
    Err(Error::said(what, told))
}

/// Give up, in this thread and all that it starts from now on, the capabilities that loading and
/// attaching needed. What is attached stays, mapped arrays and their counts are reached without.
/// Tells whether it has none of them now: who had none asks nothing of a kernel that may refuse it.
pub fn drop_capabilities() -> bool {
    let Ok(mut sets) = capabilities(None) else { return false };
    let needed = CapabilitySet::BPF
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::PERFMON
        | CapabilitySet::NET_RAW;
    if !(sets.effective | sets.permitted | sets.inheritable).intersects(needed) {
        return true;
    }
    sets.effective.remove(needed);
    sets.permitted.remove(needed);
    sets.inheritable.remove(needed);
    set_capabilities(None, sets).is_ok()
}

fn missing_in(status: &str, needed: Needed) -> Vec<&'static str> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let lacks = |(_, bit): &&(&'static str, u32)| mask >> bit & 1 == 0;
    needed.iter().filter(lacks).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_effective_mask() {
        let all = "Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\n";
        let missing_in = |status: &str| super::missing_in(status, LANE);
        assert!(missing_in(all).is_empty());
        assert!(super::missing_in(all, BYPASS).is_empty());
        assert_eq!(super::missing_in("CapEff:\t000000c000001000\n", BYPASS), ["CAP_NET_RAW"]);
        let none = ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"];
        assert_eq!(missing_in("CapEff:\t0000000000000000\n"), none);
        assert_eq!(missing_in("no such line"), none);
        assert_eq!(missing_in("CapEff:\t000000c000000000\n"), ["CAP_NET_ADMIN"]);
    }

    /// Without a capability the start is refused, without `capset` too: it could not give them up.
    /// In a user namespace of the service's own capabilities are worth nothing to the kernel.
    #[test]
    fn the_unit_says_all_that_a_drop_in_must_give() {
        const UNIT: &str = include_str!("../../../packaging/systemd/laneway.service");
        let comments: Vec<&str> = UNIT.lines().filter_map(|line| line.strip_prefix('#')).collect();
        let says = |word: &str| comments.iter().any(|line| line.contains(word));
        for (name, _) in LANE {
            for list in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
                let gives = |line: &&str| line.contains(list) && line.contains(name);
                assert!(comments.iter().any(gives), "{list} without {name}");
            }
        }
        assert!(BYPASS.iter().all(|(name, _)| says(name)));
        let calls = comments.iter().find(|line| line.contains("SystemCallFilter="));
        assert!(calls.is_some_and(|line| line.contains("bpf") && line.contains("capset")));
        assert!(says("PrivateUsers=no") && says("AF_NETLINK") && says("AF_XDP"));
    }
}
