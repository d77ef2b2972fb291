//! Compaction of a whole store: what is sparse is rewritten until the bytes in use are close to
//! those that are current. For who has a store and no server on it.
//!
//! Segments of the log of which a tenth is not current are emptied, as by migration
//! ([`crate::migrate`]), and sort tables with as little in their blocks are merged
//! ([`crate::compact`]), until that gains nothing more. Large values have no more blocks than they
//! need, so they stay. Each step is one that a server makes too, and durable before what it read is
//! used again: whenever this ends, nothing is lost, and what was done is done. Damaged segments and
//! tables are left as they are.

use crate::store::{Maintenance, RESERVE_PUT, Shared};
use crate::tables::Table;
use crate::types::{BLOCK_BYTES, Error, Result};
use laneway_sync::planted::{Bug, is_planted};

/// Hears how far it is: bytes of segments and tables that were rewritten, and these with what is
/// left.
pub type Hears<'a> = &'a mut dyn FnMut(u64, u64);

/// Current bytes of the tables that are merged at a time: so many times a table's.
const TABLES_AT_ONCE: u64 = 8;

/// Whether a tenth of `bytes` is not current.
fn is_sparse(live: u64, bytes: u64) -> bool {
    live * 10 < bytes * 9
}

fn bytes_of(table: &Table) -> u64 {
    u64::from(table.extent.blocks) * BLOCK_BYTES as u64
}

/// Without room on the SSD it goes on: a part may gain what the whole needs.
fn unless_full(result: Result<()>, full: &mut Option<Error>) -> Result<()> {
    match result {
        Err(error @ Error::SsdFull { .. }) => {
            *full = Some(error);
            Ok(())
        }
        result => result,
    }
}

impl Shared {
    /// Compacts the store. Without enough room on the SSD it does what it can, and then fails.
    pub fn condense(&self, hears: Hears<'_>) -> Result<()> {
        let mut full = None;
        // Nothing needs deletions that both checkpoints are younger than.
        for _ in 0..2 {
            unless_full(self.checkpoint(), &mut None)?;
        }
        let mut done = 0;
        self.merge_sparse(&mut done, hears, &mut full)?;
        self.empty_sparse(&mut done, hears, &mut full)?;
        full = None;
        self.merge_sparse(&mut done, hears, &mut full)?;
        // What found no room before may have some now.
        self.empty_sparse(&mut done, hears, &mut full)?;
        unless_full(self.checkpoint(), &mut full)?;
        hears(done, done + self.sparse_bytes());
        full.map_or(Ok(()), Err)
    }

    /// Empties the sparse segments that were sealed when it began, the oldest first.
    fn empty_sparse(
        &self,
        done: &mut u64,
        hears: Hears<'_>,
        full: &mut Option<Error>,
    ) -> Result<()> {
        let mut sealed = self.sealed();
        sealed.sort_by_key(|(_, generation, _)| *generation);
        for segment in sealed {
            self.keep_log_room()?;
            let mut turn = self.maintenance();
            // Who made room may have been here.
            let is_there = self.sealed().contains(&segment);
            let live = self.accounts().segments[segment.0 as usize];
            let bytes = u64::from(self.shape.segment_bytes);
            if !is_there || turn.quarantined.contains(&segment.0) || !is_sparse(live, bytes) {
                continue;
            }
            unless_full(self.empty(&mut turn, segment, false), full)?;
            drop(turn);
            *done += bytes;
            hears(*done, *done + self.sparse_bytes());
        }
        Ok(())
    }

    /// Merges sparse tables until that frees no more blocks.
    fn merge_sparse(
        &self,
        done: &mut u64,
        hears: Hears<'_>,
        full: &mut Option<Error>,
    ) -> Result<()> {
        let mut most = TABLES_AT_ONCE * self.settings.table_bytes as u64;
        loop {
            self.keep_log_room()?;
            let mut turn = self.maintenance();
            if self.drop_empty_tables(&mut turn)? {
                continue;
            }
            let tables = self.sparsest_tables(most);
            let bytes: u64 = tables.iter().map(bytes_of).sum();
            let before = self.space.free_blocks();
            match self.merge_if_gains(&mut turn, tables) {
                Ok(Some(true)) if before < self.space.free_blocks() => *done += bytes,
                // All of them are damaged: they are not looked at again.
                Ok(Some(false)) => {}
                Ok(_) => return Ok(()),
                // Fewer of them need less.
                Err(Error::SsdFull { .. }) if self.settings.table_bytes as u64 / 4 < most => {
                    most /= 2;
                }
                Err(error) => return unless_full(Err(error), full),
            }
            drop(turn);
            hears(*done, *done + self.sparse_bytes());
        }
    }

    /// As [`Shared::merge`]; nothing if that would gain nothing.
    fn merge_if_gains(&self, turn: &mut Maintenance, tables: Vec<Table>) -> Result<Option<bool>> {
        let live: u64 = tables.iter().map(|table| table.live).sum();
        let blocks: u64 = tables.iter().map(|table| u64::from(table.extent.blocks)).sum();
        // Each of the new ones may end within a block.
        let ends = live.div_ceil(self.settings.table_bytes as u64);
        match live.div_ceil(BLOCK_BYTES as u64) + ends < blocks {
            true if is_planted(Bug::CompactionForgets) => {
                self.drop_tables(&tables).map(|()| Some(true))
            }
            true => self.merge(turn, tables).map(Some),
            false => Ok(None),
        }
    }

    /// The sparsest tables, of which so many bytes are current, or one.
    fn sparsest_tables(&self, most: u64) -> Vec<Table> {
        let mut tables = self
            .tables_that(|table| table.may_be_merged() && is_sparse(table.live, bytes_of(table)));
        tables.sort_by_key(|table| table.live * 1000 / bytes_of(table));
        let mut live = 0;
        let chosen = tables.iter().take_while(|table| {
            let is_first = live == 0;
            live += table.live;
            is_first || live <= most
        });
        let count = chosen.count();
        tables.truncate(count);
        tables
    }

    /// What moves is told in the log, which must have room for that.
    fn keep_log_room(&self) -> Result<()> {
        let free = self.writer().log.free_slots();
        if free <= RESERVE_PUT { self.make_room(RESERVE_PUT) } else { Ok(()) }
    }

    /// Bytes of what is to be rewritten.
    fn sparse_bytes(&self) -> u64 {
        let segment = u64::from(self.shape.segment_bytes);
        let sealed = self.sealed();
        let accounts = self.accounts();
        let segments = sealed
            .iter()
            .filter(|(slot, ..)| is_sparse(accounts.segments[*slot as usize], segment));
        let tables = accounts.tables.iter().map(|table| (table.live, bytes_of(table)));
        let tables = tables.filter(|&(live, bytes)| is_sparse(live, bytes)).map(|(_, bytes)| bytes);
        segments.count() as u64 * segment + tables.sum::<u64>()
    }
}
