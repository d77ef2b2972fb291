//! Whether the log has room for the records that emptying a segment, or merging sort tables,
//! appends. The record that frees a segment always needs room. Without it no segment would ever
//! be free again, and nothing could be appended any more.

use crate::background::moving::{Moving, lines_of};
use crate::log::record::bytes_of;
use crate::ssd::tables::NAMED_RECORD_BYTES;
use crate::stats::Counters;
use crate::store::{RESERVE_PUT, Shared};
use crate::types::{BLOCK_BYTES, Error, LINE_BYTES, Result};
use std::iter::repeat_n;
use std::sync::atomic::Ordering::Relaxed;

impl Shared {
    /// Makes room for a record that may leave no fewer than `reserve` segments. Not for a put where
    /// that was in vain and nothing has changed since: each would write the whole log anew.
    pub fn seek_room(&self, reserve: u32) -> Result<()> {
        let Counters { user_bytes, tables_freed, evicted_blocks, .. } = &self.counters;
        let changed = 1 + user_bytes.get() + tables_freed.get() + evicted_blocks.get();
        if reserve < RESERVE_PUT {
            return self.make_room(reserve);
        }
        if self.futile.load(Relaxed) == changed {
            return Err(Error::PmFull);
        }
        let made = self.make_room(reserve);
        if made.is_err() {
            self.futile.store(changed, Relaxed);
        }
        made
    }

    /// Whether the log has room for records of these lengths and one more that frees a segment.
    pub fn leaves_room(&self, records: impl IntoIterator<Item = usize>) -> bool {
        let freed = bytes_of(0, size_of::<u64>());
        let padded = |bytes: usize| bytes.next_multiple_of(LINE_BYTES) as u32;
        self.writer().log.has_room_for(records.into_iter().chain([freed]).map(padded))
    }

    /// Refuses to empty a segment if what that appends might fill the last free one. It appends the
    /// records of `again` once more, and one record for each sort table that the `cold` go to.
    pub fn must_have_room(&self, again: &[&[Moving]], cold: &[Moving]) -> Result<()> {
        // Any two neighbouring tables are longer together than the longest one may be: else they
        // were one.
        let most = self.settings.table_bytes.max(BLOCK_BYTES);
        let longest = self.run_bytes().clamp(BLOCK_BYTES, most) as u64;
        let tables = (1 + 2 * lines_of(&[cold]) / longest).min(cold.len() as u64);
        let names = repeat_n(NAMED_RECORD_BYTES as usize, tables as usize);
        let again = again.iter().copied().flatten().map(Moving::bytes);
        self.room_or_full(names.chain(again))
    }

    /// Refuses if there is no room for so many records of one length.
    pub fn must_have_room_for(&self, count: usize, bytes: u32) -> Result<()> {
        self.room_or_full(repeat_n(bytes as usize, count))
    }

    fn room_or_full(&self, records: impl Iterator<Item = usize>) -> Result<()> {
        match self.leaves_room(records) {
            true => Ok(()),
            false => Err(Error::PmFull),
        }
    }
}
