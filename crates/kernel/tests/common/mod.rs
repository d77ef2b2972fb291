//! What the tests of the kernel lane share: a writer that keeps the bucket's protocol, frames, and
//! two hosts of the test's own.
#![allow(dead_code)] // each test binary uses a part

pub mod frame;
pub mod hosts;
pub mod requests;
pub mod trial;
pub mod writer;

use std::io::Write;

/// The layer that only the way past the stack needs.
const BYPASS: &str = "AF_XDP";

/// Whether the lane can be loaded here; if not, says so (the runner shows it).
pub fn available() -> bool {
    has(|layer| layer != BYPASS)
}

/// Whether the way past the stack can be opened as well.
pub fn bypass_available() -> bool {
    has(|_| true)
}

fn has(needed: impl Fn(&str) -> bool) -> bool {
    let missing: Vec<_> = laneway_kernel::probe::layers()
        .into_iter()
        .filter(|layer| needed(layer.name) && layer.missing.is_some())
        .collect();
    for layer in &missing {
        let told = layer.to_string();
        // A program that the verifier walked through and refused is our mistake, no lack.
        assert!(!told.contains("processed "), "{told}");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {told}");
    }
    missing.is_empty()
}
