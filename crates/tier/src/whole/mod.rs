//! The whole store at once: copied to a file, as a stream, checked and repaired.

pub mod backup;
pub mod dump;
pub mod fsck;
