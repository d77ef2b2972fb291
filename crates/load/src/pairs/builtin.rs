//! The definitions of bench/definitions, built into the binary: a comparison needs no repository.

/// Every definition: its identifier and its text.
pub const BUILTIN: &[(&str, &str)] = &[
    ("access-modes", include_str!("../../../../bench/definitions/access-modes.toml")),
    ("af-xdp", include_str!("../../../../bench/definitions/af-xdp.toml")),
    ("compare", include_str!("../../../../bench/definitions/compare.toml")),
    ("conns-1000", include_str!("../../../../bench/definitions/conns-1000.toml")),
    ("conns-256", include_str!("../../../../bench/definitions/conns-256.toml")),
    ("direction", include_str!("../../../../bench/definitions/direction.toml")),
    ("flush-cachedump", include_str!("../../../../bench/definitions/flush-cachedump.toml")),
    ("get-1", include_str!("../../../../bench/definitions/get-1.toml")),
    ("get-16", include_str!("../../../../bench/definitions/get-16.toml")),
    ("get-16-16m", include_str!("../../../../bench/definitions/get-16-16m.toml")),
    ("get-floor", include_str!("../../../../bench/definitions/get-floor.toml")),
    ("hkh", include_str!("../../../../bench/definitions/hkh.toml")),
    ("hot-balance", include_str!("../../../../bench/definitions/hot-balance.toml")),
    ("hot-threshold", include_str!("../../../../bench/definitions/hot-threshold.toml")),
    ("index", include_str!("../../../../bench/definitions/index.toml")),
    ("interception", include_str!("../../../../bench/definitions/interception.toml")),
    ("kernel-get", include_str!("../../../../bench/definitions/kernel-get.toml")),
    ("kernel-get-veth", include_str!("../../../../bench/definitions/kernel-get-veth.toml")),
    ("kernel-mixes", include_str!("../../../../bench/definitions/kernel-mixes.toml")),
    ("kernel-programs", include_str!("../../../../bench/definitions/kernel-programs.toml")),
    ("large-4mb-0125", include_str!("../../../../bench/definitions/large-4mb-0125.toml")),
    ("large-4mb-075", include_str!("../../../../bench/definitions/large-4mb-075.toml")),
    (
        "large-4mb-075-deployed",
        include_str!("../../../../bench/definitions/large-4mb-075-deployed.toml"),
    ),
    ("large-500kb-0125", include_str!("../../../../bench/definitions/large-500kb-0125.toml")),
    ("large-500kb-075", include_str!("../../../../bench/definitions/large-500kb-075.toml")),
    ("mass-expiry", include_str!("../../../../bench/definitions/mass-expiry.toml")),
    ("memory", include_str!("../../../../bench/definitions/memory.toml")),
    ("miss", include_str!("../../../../bench/definitions/miss.toml")),
    ("mixed-50", include_str!("../../../../bench/definitions/mixed-50.toml")),
    ("multiget-50", include_str!("../../../../bench/definitions/multiget-50.toml")),
    ("multiget-large", include_str!("../../../../bench/definitions/multiget-large.toml")),
    ("noisy-1mb", include_str!("../../../../bench/definitions/noisy-1mb.toml")),
    ("noisy-1mb-deployed", include_str!("../../../../bench/definitions/noisy-1mb-deployed.toml")),
    ("noisy-8mb", include_str!("../../../../bench/definitions/noisy-8mb.toml")),
    ("noisy-8mb-deployed", include_str!("../../../../bench/definitions/noisy-8mb-deployed.toml")),
    ("pipeline-mix", include_str!("../../../../bench/definitions/pipeline-mix.toml")),
    ("scale", include_str!("../../../../bench/definitions/scale.toml")),
    ("service-time", include_str!("../../../../bench/definitions/service-time.toml")),
    ("set-1", include_str!("../../../../bench/definitions/set-1.toml")),
    ("set-16", include_str!("../../../../bench/definitions/set-16.toml")),
    ("shift", include_str!("../../../../bench/definitions/shift.toml")),
    ("shm", include_str!("../../../../bench/definitions/shm.toml")),
    ("shm-sizes", include_str!("../../../../bench/definitions/shm-sizes.toml")),
    ("shm-window", include_str!("../../../../bench/definitions/shm-window.toml")),
    ("tier-boundary", include_str!("../../../../bench/definitions/tier-boundary.toml")),
    ("tier-latency", include_str!("../../../../bench/definitions/tier-latency.toml")),
    ("tier-p99", include_str!("../../../../bench/definitions/tier-p99.toml")),
    ("tier-split", include_str!("../../../../bench/definitions/tier-split.toml")),
    ("tier-synced", include_str!("../../../../bench/definitions/tier-synced.toml")),
    ("tier-unsynced", include_str!("../../../../bench/definitions/tier-unsynced.toml")),
    ("twitter-held-out", include_str!("../../../../bench/definitions/twitter-held-out.toml")),
    ("twitter-miss", include_str!("../../../../bench/definitions/twitter-miss.toml")),
    ("udp-500kb-0125", include_str!("../../../../bench/definitions/udp-500kb-0125.toml")),
    ("udp-500kb-075", include_str!("../../../../bench/definitions/udp-500kb-075.toml")),
    (
        "udp-500kb-075-deployed",
        include_str!("../../../../bench/definitions/udp-500kb-075-deployed.toml"),
    ),
    ("udp-get", include_str!("../../../../bench/definitions/udp-get.toml")),
    ("udp-mb", include_str!("../../../../bench/definitions/udp-mb.toml")),
    ("udp-veth-500kb", include_str!("../../../../bench/definitions/udp-veth-500kb.toml")),
];

/// The text of definition `id`.
pub fn text(id: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(name, _)| *name == id).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_definition_is_built_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let there = crate::pairs::list(&root).expect("all good");
        let names: Vec<&str> = there.iter().map(|(id, _)| id.as_str()).collect();
        let own: Vec<&str> = BUILTIN.iter().map(|(id, _)| *id).collect();
        assert_eq!(own, names);
        assert!(text("compare").is_some() && text("none").is_none());
    }
}
