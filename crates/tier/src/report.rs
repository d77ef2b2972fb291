//! What a start of the store reports of itself.

/// How large the media of a store are to it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Of the log, and of an index beside it.
    pub log: u64,
    /// Of the SSD.
    pub ssd: u64,
}

/// What recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the store was made just now.
    pub is_new: bool,
    /// Whether the store's own log was lost, and another is accepted in its place.
    pub log_is_new: bool,
    /// How large the store is.
    pub sizes: Sizes,
    /// How large it was before, where it has grown just now.
    pub grown_from: Option<Sizes>,
    /// Items that can be read.
    pub items: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log that were replayed.
    pub replayed_bytes: u64,
    /// Records in them.
    pub replayed_records: u64,
    /// Bytes in sort tables that were read because the checkpoint did not know them.
    pub table_bytes: u64,
    /// Entries of the index that were looked at: of a checkpoint, of a tree in persistent memory,
    /// and for records that were replayed.
    pub entries_read: u64,
    /// What is damaged, one line each. Empty after any crash of a sound machine.
    pub problems: Vec<String>,
}
