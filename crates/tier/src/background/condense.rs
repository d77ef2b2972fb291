//! Compaction of a whole store: sparse segments and sort tables are rewritten until the bytes in
//! use are close to those that are current, whether a server uses the store or nobody.
//!
//! Segments of the log of which a ninth is not current are emptied, as by migration
//! ([`crate::background::migrate`]), and sort tables with as little in their blocks are merged
//! ([`crate::background::compact`]), until that gains nothing more. Large values have no more
//! blocks than they need, so they stay. Each step is one that a server makes too, and durable
//! before what it read is used again: whenever this ends, nothing is lost, and what was done is
//! done. Damaged segments and tables are left as they are.

use crate::background::compact::DROPS;
use crate::background::compaction::{Standing, Work};
use crate::background::migrate::Emptying;
use crate::log::Slot;
use crate::ssd::tables::{Table, is_sparse};
use crate::store::{Maintenance, RESERVE_DELETE, RESERVE_PUT, Shared};
use crate::types::{BLOCK_BYTES, Error, Result};
use laneway_sync::planted::{Bug, is_planted};

/// Hears how far it is: bytes of segments and tables that were rewritten, and these with what is
/// left.
pub type Hears<'a> = &'a mut dyn FnMut(u64, u64);

/// Where nobody else needs the store: so many tables' worth of current bytes are merged at a time.
const TABLES_AT_ONCE: u64 = 8;
/// As many as are merged at a time without being asked, where others may wait for room.
const TABLES_BESIDE: u64 = 2;
/// For each byte that may be current so many are read at a time, at most.
const READ_FACTOR: u64 = 8;
/// Each pass leaves an eighth of the tables to the next, or less.
const PASSES_MAX: u32 = 16;

/// What is done one after the other.
#[derive(Clone, Copy)]
enum Stage {
    /// Nothing needs deletions that both checkpoints are younger than.
    Checkpoint,
    /// Sparse tables are merged.
    Merge,
    /// Sparse segments are emptied.
    Empty,
    /// So that a start reads what is there now.
    LastCheckpoint,
}

/// What found no room the first time may have some the second.
const STAGES: [Stage; 7] = [
    Stage::Checkpoint,
    Stage::Checkpoint,
    Stage::Merge,
    Stage::Empty,
    Stage::Merge,
    Stage::Empty,
    Stage::LastCheckpoint,
];

fn bytes_of(table: &Table) -> u64 {
    u64::from(table.extent.blocks) * BLOCK_BYTES as u64
}

fn is_table_sparse(table: &Table) -> bool {
    table.may_be_merged() && is_sparse(table.live, bytes_of(table))
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
        let mut work = Work::new(TABLES_AT_ONCE);
        while !self.condense_step(&mut work)? {
            hears(work.done_bytes, work.done_bytes + work.left_bytes);
        }
        hears(work.done_bytes, work.done_bytes + self.sparse_bytes());
        work.full.map_or(Ok(()), Err)
    }

    /// Has the store compacted a step at a time beside everything else; false if that is under way.
    pub fn begin_compaction(&self) -> bool {
        let has_begun = self.counters.compaction.begin(Work::new(TABLES_BESIDE));
        if has_begun {
            self.counters.bell.ring();
        }
        has_begun
    }

    /// Goes on by a step with what [`Shared::begin_compaction`] began; false if there is
    /// nothing, or a backup comes first.
    pub fn go_on_compacting(&self) -> bool {
        if self.may_end_backup() {
            return false;
        }
        let Some(mut work) = self.counters.compaction.take() else { return false };
        let end = match self.condense_step(&mut work) {
            Ok(false) => None,
            Ok(true) if work.full.is_none() => Some(Standing::Done),
            Ok(true) | Err(Error::SsdFull { .. } | Error::PmFull) => Some(Standing::Short),
            Err(_) => Some(Standing::Failed),
        };
        self.counters.compaction.give_back(work, end);
        true
    }

    /// Whether a backup holds room for which a step might have it given up. Nobody waits for what
    /// was asked for, and the backup comes to its end.
    fn may_end_backup(&self) -> bool {
        if self.evicts() || !self.is_room_held() {
            return false;
        }
        let tables = TABLES_BESIDE * self.settings.table_bytes as u64;
        let together = tables + u64::from(self.shape.segment_bytes);
        let checkpoint = self.maintenance().checkpoints[0].body.bytes;
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        bytes(self.space.longest_run().into()) < together
            || bytes(self.space.free_blocks()) < checkpoint + checkpoint / 4
    }

    /// Goes on by a step; true once all is done.
    pub fn condense_step(&self, work: &mut Work) -> Result<bool> {
        let Some(&stage) = STAGES.get(work.stage) else { return Ok(true) };
        let is_over = match stage {
            Stage::Checkpoint => unless_full(self.checkpoint(), &mut None).map(|()| true),
            Stage::Merge => self.merge_sparse(work),
            Stage::Empty => self.empty_sparse(work),
            Stage::LastCheckpoint => unless_full(self.checkpoint(), &mut work.full).map(|()| true),
        };
        if is_over? {
            work.stage += 1;
            self.begin_stage(work);
        }
        Ok(work.stage == STAGES.len())
    }

    fn begin_stage(&self, work: &mut Work) {
        match STAGES.get(work.stage) {
            Some(Stage::Merge) => {
                work.full = None;
                work.live_bytes_most = work.tables_at_once * self.settings.table_bytes as u64;
                work.passes = 0;
                self.begin_pass(work);
            }
            Some(Stage::Empty) => {
                work.segments = self.sealed();
                work.segments.sort_by_key(|(_, generation, _)| std::cmp::Reverse(*generation));
            }
            Some(Stage::Checkpoint | Stage::LastCheckpoint) | None => {}
        }
    }

    /// Looks for sparse tables, the new ones among them.
    fn begin_pass(&self, work: &mut Work) {
        let mut tables = self.tables_that(is_table_sparse);
        tables.sort_by_key(|table| std::cmp::Reverse(table.live * 1000 / bytes_of(table)));
        work.tables = tables.iter().map(|table| table.id).collect();
        work.passes += 1;
        work.gained = false;
        work.left_bytes = self.sparse_bytes();
    }

    /// Empties the next sparse segment of those that were sealed when this began; true when none is
    /// left.
    fn empty_sparse(&self, work: &mut Work) -> Result<bool> {
        let Some(segment) = work.segments.pop() else { return Ok(true) };
        let (slot, generation, _) = segment;
        if !self.keep_log_room(work)? {
            return Ok(true);
        }
        let mut turn = self.maintenance();
        // Who made room may have been here.
        let is_there = match self.writer().log.slots()[slot as usize] {
            Slot::Sealed { generation: now, .. } => now == generation,
            _ => false,
        };
        let live = self.accounts().segments[slot as usize];
        let bytes = u64::from(self.shape.records_end());
        if is_there && !turn.quarantined.contains(&slot) && is_sparse(live, bytes) {
            let emptied = self.empty(&mut turn, segment, Emptying::IfWhole);
            unless_full(emptied.map(drop), &mut work.full)?;
            work.did(bytes);
        }
        Ok(false)
    }

    /// Merges the next of the sparse tables; true when that frees no more blocks.
    fn merge_sparse(&self, work: &mut Work) -> Result<bool> {
        if !self.keep_log_room(work)? {
            return Ok(true);
        }
        let mut turn = self.maintenance();
        let tables = self.next_tables(work);
        if tables.is_empty() {
            if !work.gained || work.passes == PASSES_MAX {
                return Ok(true);
            }
            self.begin_pass(work);
            return Ok(false);
        }
        let bytes: u64 = tables.iter().map(bytes_of).sum();
        let ids: Vec<u64> = tables.iter().map(|table| table.id).collect();
        let before = self.space.free_blocks();
        match self.merge_if_gains(&mut turn, tables) {
            Ok(true) => {
                work.gained |= before < self.space.free_blocks();
                work.did(bytes);
            }
            // All of them are damaged, or it would gain nothing.
            Ok(false) => {}
            // Fewer of them need less.
            Err(Error::SsdFull { .. })
                if self.settings.table_bytes as u64 / 4 < work.live_bytes_most =>
            {
                work.live_bytes_most /= 2;
                work.tables.extend(ids.iter().rev());
            }
            Err(error) => {
                unless_full(Err(error), &mut work.full)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`Shared::merge`]; nothing if that would gain nothing.
    fn merge_if_gains(&self, turn: &mut Maintenance, tables: Vec<Table>) -> Result<bool> {
        let live: u64 = tables.iter().map(|table| table.live).sum();
        let blocks: u64 = tables.iter().map(|table| u64::from(table.extent.blocks)).sum();
        // Each of the new ones may end within a block.
        let ends = live.div_ceil(self.settings.table_bytes as u64);
        match live.div_ceil(BLOCK_BYTES as u64) + ends < blocks {
            true if is_planted(Bug::CompactionForgets) => self.drop_tables(&tables).map(|()| true),
            true => self.merge(turn, tables),
            false => Ok(false),
        }
    }

    /// The sparsest tables that were not looked at, of which so many bytes are current, or one; and
    /// those of which nothing is by themselves, for they need no room.
    fn next_tables(&self, work: &mut Work) -> Vec<Table> {
        let accounts = self.accounts();
        let (mut next, mut live, mut bytes): (Vec<Table>, u64, u64) = (Vec::new(), 0, 0);
        while let Some(id) = work.tables.last() {
            // Who made room may have been here, too.
            let table = accounts.tables.get(*id).filter(|table| is_table_sparse(table));
            if let Some(table) = table {
                live += table.live;
                bytes += bytes_of(table);
                let is_alike = next.first().is_none_or(|first| (first.live == 0) == (live == 0));
                let fits = live <= work.live_bytes_most
                    && bytes <= READ_FACTOR * work.live_bytes_most
                    && next.len() < DROPS;
                if !(next.is_empty() || fits && is_alike) {
                    break;
                }
                next.push(*table);
            }
            work.tables.pop();
        }
        next
    }

    /// What moves is told in the log, which must have room for that; false where there is too
    /// little. Where none can be made, since the SSD is full, it goes on in what puts leave, and
    /// not in what deletions leave, too: merging may gain the blocks that emptying needs. That is
    /// tried again once blocks were gained.
    fn keep_log_room(&self, work: &mut Work) -> Result<bool> {
        let free_blocks = self.space.free_blocks();
        let has_changed = work.short_at.is_none_or(|before| before < free_blocks);
        if self.writer().log.free_slots() <= RESERVE_PUT && has_changed {
            work.short_at = match self.make_room(RESERVE_PUT) {
                Ok(()) => None,
                Err(error @ (Error::SsdFull { .. } | Error::PmFull)) => {
                    work.full = Some(error);
                    Some(self.space.free_blocks())
                }
                Err(error) => return Err(error),
            };
        }
        Ok(RESERVE_DELETE < self.writer().log.free_slots())
    }

    /// Bytes of what is to be rewritten.
    fn sparse_bytes(&self) -> u64 {
        let segment = u64::from(self.shape.records_end());
        let sealed = self.sealed();
        let accounts = self.accounts();
        let segments = sealed
            .iter()
            .filter(|(slot, ..)| is_sparse(accounts.segments[*slot as usize], segment));
        let mut bytes = segments.count() as u64 * segment;
        drop(accounts);
        self.each_table(|table| {
            if is_table_sparse(table) {
                bytes += bytes_of(table);
            }
        });
        bytes
    }
}
