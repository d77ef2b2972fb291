//! The definitions of bench/definitions, built into the binary: a comparison needs no repository.

/// Each identifier with the text of its file.
macro_rules! builtin {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../../../../bench/definitions/", $id, ".toml")))),*]
    };
}

/// Every definition: its identifier and its text.
pub const BUILTIN: &[(&str, &str)] = builtin! {
    "af-xdp" "backup-p99" "compare" "conns-1000" "conns-256" "flush-cachedump" "get-1" "get-16"
    "hkh" "hot-balance" "index" "interception" "kernel-get-many" "kernel-get-veth" "kernel-mixes"
    "kernel-neighbours" "kernel-programs" "large-4mb-0125" "large-4mb-075" "large-4mb-075-deployed"
    "mass-expiry" "memory" "miss" "mixed-50" "multiget-50" "multiget-large" "noisy-1mb-deployed"
    "noisy-8mb" "noisy-8mb-deployed" "observe" "pipeline-mix" "resp-16" "resp-mget-50" "resp-noisy"
    "restart" "sandbox" "scale" "server-set" "server-set-p99" "set-1" "set-16" "shift" "shm"
    "shm-idle" "tier-adapts" "tier-compress" "tier-miss" "tier-miss-p99" "tier-p99" "tier-split"
    "tier-synced" "tier-unsynced" "tls-get" "tls-storm" "twitter-held-out" "udp-500kb-0125"
    "udp-500kb-075" "udp-500kb-075-deployed" "udp-get" "udp-mb"
};

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
        let there = crate::pairs::definition::list(&root).expect("all good");
        let names: Vec<&str> = there.iter().map(|(id, _)| id.as_str()).collect();
        let own: Vec<&str> = BUILTIN.iter().map(|(id, _)| *id).collect();
        assert_eq!(own, names);
        assert!(text("compare").is_some() && text("none").is_none());
    }
}
