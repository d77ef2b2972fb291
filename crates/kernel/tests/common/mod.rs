//! What the tests of the kernel lane share: a writer that keeps the bucket's protocol, frames, and
//! two hosts of the test's own.
#![allow(dead_code)] // each test binary uses a part

pub mod frame;
pub mod hosts;
pub mod writer;

/// Whether the lane can be loaded here; if not, says so (the runner shows it).
pub fn available() -> bool {
    let missing: Vec<_> = laneway_kernel::probe::layers()
        .into_iter()
        .filter(|layer| layer.missing.is_some())
        .collect();
    for layer in &missing {
        println!("SKIPPED: {layer}");
    }
    missing.is_empty()
}
