//! Laneway.
fn main() {}
