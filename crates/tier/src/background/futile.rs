//! What maintenance remembers of turns that gained nothing, so that it does not repeat them until
//! something has changed.

/// A segment of which so much has to stay in the log that to empty it gains nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barren {
    /// Of this life.
    pub generation: u64,
    /// Bytes of its records that were current.
    pub live: u64,
    /// The number of the newest superblock: behind another checkpoint less has to stay.
    pub superblock: u64,
}

/// How it was when there was no room to empty a segment, or to merge sort tables.
#[derive(Debug, Clone, Copy)]
pub struct Vain {
    /// Bytes appended so far: of what is current then something may have been replaced.
    pub appended_bytes: u64,
    /// Of the SSD.
    pub free_blocks: u64,
    /// More has expired later on.
    pub now_seconds: u32,
    /// The number of the newest superblock, as [`Barren`] has it.
    pub superblock: u64,
}
