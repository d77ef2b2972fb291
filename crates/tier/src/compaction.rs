//! What is left of a compaction of the whole store ([`crate::condense`]), which goes a step at a
//! time.

use crate::types::Error;

/// Where it is.
#[derive(Default)]
pub struct Work {
    /// The stage's number.
    pub stage: usize,
    /// Sort tables that looked sparse when a pass over them began, the sparsest last. There may be
    /// a million: they are looked for once a pass.
    pub tables: Vec<u64>,
    /// Segments that were sealed when their stage began: slot, generation, end; the oldest last.
    pub segments: Vec<(u32, u64, u32)>,
    /// So many tables' worth of current bytes are merged at a time, at most.
    pub tables_at_once: u64,
    /// The same in bytes; less once there was no room for as much.
    pub live_bytes_most: u64,
    /// Passes over the tables that were begun in this stage.
    pub passes: u32,
    /// This one has gained blocks.
    pub gained: bool,
    /// There was no room for some of it.
    pub full: Option<Error>,
    /// Bytes of segments and tables that were rewritten.
    pub done_bytes: u64,
    /// The same of those that are left, as far as it is known.
    pub left_bytes: u64,
}

impl Work {
    /// Nothing is done yet.
    pub fn new(tables_at_once: u64) -> Work {
        Work { tables_at_once, ..Work::default() }
    }

    /// So much of what was left is rewritten.
    pub fn did(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}
