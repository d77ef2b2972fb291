//! Which of the capabilities that the programs need this process has: the effective ones in
//! `/proc/self/status`.

/// The capabilities that loading and attaching need, with their numbers in the kernel's mask.
const CAPABILITIES: &[(&str, u32)] = &[("CAP_BPF", 39), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38)];

/// Of the capabilities needed, those that this process lacks.
pub fn missing_capabilities() -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    missing_in(&status)
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
