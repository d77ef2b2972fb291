//! The parts of an open store, and which lock guards what.
//!
//! Locks are taken in this order: `maintenance`, `writer`, a leaf of the index, `accounts`, space.
//! Only `maintenance` is held while a medium works (by whoever makes room), and `writer` where a
//! segment ends.

use crate::disk::Disk;
use crate::index::{Entry, Home, Index, What};
use crate::log::Log;
use crate::pm::Region;
use crate::pointer::{Extent, Pointer};
use crate::segment::Shape;
use crate::space::Space;
use crate::stats::{Counters, Stats};
use crate::tables::{Table, Tables};
use crate::types::{Durability, Error, Position, Result, Settings};
use crate::value::{Large, Waiting};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The blocks of both superblocks.
pub const SUPER_BLOCKS: u32 = 32;
/// Segments that only deletes and migration may take.
pub const RESERVE_PUT: u32 = 3;
/// Segments that only migration may take.
pub const RESERVE_DELETE: u32 = 2;

/// What is appended and not yet settled by a group.
pub struct Pending {
    /// Offered to the index once it is durable.
    pub offer: Option<Offer>,
    /// Where it ends.
    pub end: Position,
    /// The value that its group writes.
    pub value: Option<Arc<Large>>,
    /// Blocks that nobody needs once it is durable, as [`Writer::waiting`] has them.
    pub frees: Vec<(Position, Arc<Large>)>,
}

/// What a record does to the index.
pub enum Offer {
    /// The key's entry.
    Entry(Box<[u8]>, Entry),
    /// Everything with a lower sequence goes.
    FlushAll(u64),
    /// What moved, and the sort table that it moved to.
    Moved(Option<Table>, Vec<Moved>),
}

/// A record that was copied.
#[derive(Debug)]
pub struct Moved {
    /// Of the item.
    pub key: Box<[u8]>,
    /// Of the record.
    pub sequence: u64,
    /// Where it is.
    pub from: Home,
    /// Where its copy is.
    pub to: Home,
    /// Without padding.
    pub bytes: u32,
}

/// What the appending side owns.
pub struct Writer {
    /// The log.
    pub log: Log,
    /// The highest sequence so far.
    pub sequence: u64,
    /// In the order of the log.
    pub pending: Vec<Pending>,
    /// Blocks to be freed once a later record vouches for what ends at this position: what replaced
    /// their value, and the value's own record. Until then recovery may have to look whether the
    /// values of their groups are there. One after the other, and nearly in the log's order.
    pub waiting: VecDeque<(Position, Arc<Large>)>,
    /// Somebody is making a group durable.
    pub flushing: bool,
    /// The number of the last group that was begun, and where it ends.
    pub group: u64,
    /// See `group`.
    pub group_end: Position,
    /// How many wait for the group of each turn.
    pub joined: [u32; 2],
    /// How many that may become for the next one, if all come back that were in the last.
    pub expected: u32,
    /// Large values were written by themselves since the SSD was last synced.
    pub data_written: bool,
    /// A flush failed: no more writes.
    pub failed: Option<String>,
    /// `Log::appended_bytes` at the last checkpoint.
    pub checkpointed_bytes: u64,
}

impl Writer {
    /// Of a store that was just opened.
    pub fn new(log: Log, sequence: u64) -> Writer {
        Writer {
            log,
            sequence,
            pending: Vec::new(),
            waiting: VecDeque::new(),
            flushing: false,
            group: 0,
            group_end: Position::default(),
            joined: [0; 2],
            expected: 0,
            data_written: false,
            failed: None,
            checkpointed_bytes: 0,
        }
    }

    /// Refuses once a flush has failed.
    pub fn check(&self) -> Result<()> {
        match &self.failed {
            Some(why) => Err(Error::Poisoned(why.clone())),
            None => Ok(()),
        }
    }
}

/// How much of each container is current.
pub struct Accounts {
    /// Bytes of current records by slot.
    pub segments: Vec<u64>,
    /// The sort tables.
    pub tables: Tables,
}

/// A checkpoint that a superblock names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Replay begins here.
    pub position: Position,
    /// Where its bytes are.
    pub body: Pointer,
}

/// What whoever makes room or a checkpoint owns.
#[derive(Default)]
pub struct Maintenance {
    /// Counts superblocks.
    pub generation: u64,
    /// The newest checkpoint and the one before.
    pub checkpoints: [Checkpoint; 2],
    /// What was last known of the segments' warmth.
    pub heat: Option<Heat>,
    /// Slots with a damaged record: they are left as they are.
    pub quarantined: BTreeSet<u32>,
}

/// How warm each segment was when a migration cycle began.
pub struct Heat {
    /// Hits of a slot's current records, by bytes.
    pub by_slot: Vec<u64>,
    /// Segments of a later generation were not looked at.
    pub generation: u64,
    /// Segments that may still be chosen by it.
    pub choices: u32,
}

/// An open store.
pub struct Shared {
    /// How it behaves.
    pub settings: Settings,
    /// Drawn when the store was made.
    pub store_id: u64,
    /// Large values, sort tables, checkpoints.
    pub ssd: Arc<dyn Disk>,
    /// The log's medium.
    pub region: Arc<dyn Region>,
    /// How it is cut.
    pub shape: Shape,
    /// Segments' worth of it behind the log, which hold the index.
    pub tree_segments: u32,
    /// Keys to places.
    pub index: Index,
    /// Free blocks.
    pub space: Space,
    /// The appending side.
    pub writer: Mutex<Writer>,
    /// A group was settled, or failed.
    pub settled: Condvar,
    /// The same for those whose write is in it: they of the group that is being made durable, and
    /// they of the next, by turns. So nobody wakes whose group is not over, but who leads the next.
    pub groups: [Condvar; 2],
    /// Somebody joined the group that gathers.
    pub arrived: Condvar,
    /// Large values in memory that wait for their group.
    pub waiting: Waiting,
    /// Live bytes.
    pub accounts: Mutex<Accounts>,
    /// Making room, and checkpoints.
    pub maintenance: Mutex<Maintenance>,
    /// Statistics.
    pub counters: Counters,
}

/// Which of two turns a group has: never that of its neighbours.
pub fn turn(group: u64) -> usize {
    (group % 2) as usize
}

const UNPOISONED: &str = "a thread panicked while it held the store";

impl Shared {
    /// The appending side, alone.
    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect(UNPOISONED)
    }

    /// The accounts, alone.
    pub fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().expect(UNPOISONED)
    }

    /// Maintenance, alone.
    pub fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        self.maintenance.lock().expect(UNPOISONED)
    }

    /// Waits until somebody settled a group.
    pub fn wait_settled<'a>(&self, writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        self.settled.wait(writer).expect(UNPOISONED)
    }

    /// Takes blocks for a value. Where many wait for a group they lie in the order they come, so
    /// that few writes take them; where each is waited for, they go where others were before, so
    /// that a file system has nothing of its own to write.
    pub fn take_blocks(&self, blocks: u32) -> Result<Vec<Extent>> {
        match self.settings.durability {
            Durability::Ack => self.space.take(blocks),
            Durability::Interval => self.space.take_in_order(blocks),
        }
    }

    /// Waits until this group is over, or is to be led.
    pub fn wait_group<'a>(
        &self,
        writer: MutexGuard<'a, Writer>,
        group: u64,
    ) -> MutexGuard<'a, Writer> {
        self.groups[turn(group)].wait(writer).expect(UNPOISONED)
    }

    /// A record at `home` became current.
    pub fn credit(&self, home: Home, bytes: u32) {
        let mut accounts = self.accounts();
        match home.is_ssd() {
            true => {
                if let Some(table) = accounts.tables.at(home.at()) {
                    table.live += u64::from(bytes);
                }
            }
            false => accounts.segments[self.shape.slot_of(home.at()) as usize] += u64::from(bytes),
        }
    }

    /// A record at `home` is current no more.
    pub fn debit(&self, home: Home, bytes: u32) {
        let mut accounts = self.accounts();
        let bytes = u64::from(bytes);
        match home.is_ssd() {
            true => {
                if let Some(table) = accounts.tables.at(home.at()) {
                    table.live = table.live.saturating_sub(bytes);
                }
            }
            false => {
                let live = &mut accounts.segments[self.shape.slot_of(home.at()) as usize];
                *live = live.saturating_sub(bytes);
            }
        }
    }

    /// An entry was replaced: its record is no longer current. Returns the blocks that its value
    /// held, to be freed when what replaced it is durable.
    pub fn retire(&self, entry: Entry) -> Option<Arc<Large>> {
        self.debit(entry.home, entry.record_bytes);
        match entry.what {
            What::Large(large) => Some(large),
            _ => None,
        }
    }

    /// Statistics; walks the index.
    pub fn stats(&self) -> Stats {
        let (slots_free, poisoned) = {
            let writer = self.writer();
            (writer.log.free_slots(), writer.failed.is_some())
        };
        let used =
            u64::from(self.shape.segments - slots_free) * u64::from(self.shape.segment_bytes);
        let (tables, log_live_bytes) = {
            let accounts = self.accounts();
            (accounts.tables.iter().count() as u64, accounts.segments.iter().sum())
        };
        let block = crate::types::BLOCK_BYTES as u64;
        let counters = &self.counters;
        let (waiting_bytes, waiting_bytes_most) = self.waiting.bytes();
        Stats {
            index: self.index.kind(),
            items: self.index.count(),
            tables,
            log_live_bytes,
            log_used_bytes: used,
            log_bytes: self.region.bytes()
                - u64::from(self.tree_segments) * u64::from(self.shape.segment_bytes),
            ssd_free_bytes: self.space.free_blocks() * block,
            ssd_bytes: self.space.blocks() * block,
            user_written_bytes: counters.user_bytes.get(),
            media_written_bytes: counters.ssd_bytes.get() + self.region.written_bytes(),
            waiting_bytes,
            waiting_bytes_most,
            groups: counters.groups.get(),
            grouped_records: counters.grouped_records.get(),
            stalls: counters.stalls.get(),
            kept_records: counters.kept_records.get(),
            migrated_records: counters.migrated_records.get(),
            segments_freed: counters.segments_freed.get(),
            tables_freed: counters.tables_freed.get(),
            checkpoints: counters.checkpoints.get(),
            checkpoints_refused: counters.checkpoints_refused.get(),
            poisoned,
        }
    }
}
