//! The parts of an open store, and which lock guards what.
//!
//! Locks are taken in this order: `maintenance`, `writer`, the cut of a backup, a leaf of the
//! index, `accounts`, space.
//! Only `maintenance` is held while a medium works (by whoever makes room), so that a write that
//! finds room ([`crate::log::attempt`]) never waits for one.

use crate::background::clock::Eviction;
use crate::background::futile::{Barren, Vain};
use crate::index::{Entry, Home, Index, What};
use crate::log::record::{Kind, Record, bytes_of};
use crate::log::segment::Shape;
use crate::log::{Log, Refused};
use crate::media::bytes::Spare;
use crate::media::disk::Disk;
use crate::media::flushes::Medium;
use crate::media::pm::Region;
use crate::ssd::boundary::Mix;
use crate::ssd::compress::may_gain;
use crate::ssd::pointer::{Extent, Pointer};
use crate::ssd::space::Space;
use crate::ssd::split::Split;
use crate::ssd::tables::{Table, Tables};
use crate::ssd::value::{Large, Waiting};
use crate::stats::{Counters, Stats, Usage};
use crate::types::{BLOCK_BYTES, Durability, Error, ItemMeta, Position, Result, Settings};
use crate::whole::backup::cut::Cut;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The blocks of both superblocks.
pub const SUPER_BLOCKS: u32 = 32;
/// Segments that only deletions and migration may take, and fill.
pub const RESERVE_PUT: u32 = 3;
/// Segments that only migration may take, and what deletes everything.
pub const RESERVE_DELETE: u32 = 2;
/// Those that migration alone may take, as long as it can make room. Else what deletes everything
/// takes them, too: no item of the segments of before has to be moved behind it.
pub const RESERVE_FLUSH: u32 = 1;

/// What is appended and not yet settled by a group.
pub struct Pending {
    /// How many records these are: of some that have nothing left to do but to be durable.
    pub records: usize,
    /// Offered to the index once it is durable.
    pub offer: Option<Offer>,
    /// Where it ends, or the last of them.
    pub end: Position,
    /// The value that its group writes.
    pub value: Option<Arc<Large>>,
    /// Blocks that nobody needs once it is durable, as [`Writer::waiting`] has them.
    pub frees: Vec<(Position, Arc<Large>)>,
}

impl Pending {
    /// Whether nothing is left to do with it but to be durable.
    fn is_done(&self) -> bool {
        self.offer.is_none() && self.value.is_none() && self.frees.is_empty()
    }
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
    /// What is in no group yet, in the order of the log.
    pub pending: Vec<Pending>,
    /// The sizes of values among it, where the boundary hangs on them.
    pub mix: Mix,
    /// Blocks to be freed once a later record vouches for what ends at this position: what replaced
    /// their value, and the value's own record. Until then recovery may have to look whether the
    /// values of their groups are there. One after the other, and nearly in the log's order.
    pub waiting: VecDeque<(Position, Arc<Large>)>,
    /// Somebody writes a group.
    pub writing: bool,
    /// The number of the last group that was begun.
    pub group: u64,
    /// How many records it has.
    pub group_records: usize,
    /// The number of the last group that was settled.
    pub settled: u64,
    /// Where the last group ends of which anything was offered to the index.
    pub offered: Position,
    /// How many wait until one is settled.
    pub awaiting: u32,
    /// How many wait until none is under way.
    pub halting: u32,
    /// Somebody waits until all that was appended is durable: nothing is appended meanwhile.
    pub is_closed: bool,
    /// Where the group of each turn ends.
    pub ends: [Position; TURNS],
    /// Large values were written by themselves since the SSD was last synced.
    pub data_written: bool,
    /// The same of one that was too long to wait.
    pub long_written: bool,
    /// Who appends next rings for the thread that maintains the store.
    pub rings: bool,
    /// A flush failed: no more writes.
    pub failed: Option<String>,
    /// Bytes of new sort tables, and of what the start read behind its checkpoint.
    pub tabled_bytes: u64,
    /// `Writer::behind_bytes` at the last checkpoint.
    pub checkpointed_bytes: u64,
    /// The same when there was last no room for one, since then, and how many blocks were free.
    pub refused: Option<(u64, u64)>,
}

impl Writer {
    /// Of a store that was just opened.
    pub fn new(log: Log, sequence: u64) -> Writer {
        Writer {
            log,
            sequence,
            pending: Vec::new(),
            mix: Mix::default(),
            waiting: VecDeque::new(),
            writing: false,
            group: 0,
            group_records: 0,
            settled: 0,
            offered: Position::default(),
            awaiting: 0,
            halting: 0,
            is_closed: false,
            ends: [Position::default(); TURNS],
            data_written: false,
            long_written: false,
            rings: false,
            failed: None,
            tabled_bytes: 0,
            checkpointed_bytes: 0,
            refused: None,
        }
    }

    /// What a start would read behind the checkpoint that this one began with.
    pub fn behind_bytes(&self) -> u64 {
        self.log.appended_bytes() + self.tabled_bytes
    }

    /// A record that was appended waits for its group: with the one before where nothing is left to
    /// do with either.
    pub fn await_group(&mut self, pending: Pending) {
        match self.pending.last_mut().filter(|last| last.is_done() && pending.is_done()) {
            Some(last) => (last.records, last.end) = (last.records + 1, pending.end),
            None => self.pending.push(pending),
        }
    }

    /// Up to where the index may have the log: beyond what is said to be durable while a group is
    /// offered, of which a walk shows a part before its writers are told.
    pub fn shown(&self) -> Position {
        self.log.durable().max(self.offered)
    }

    /// Whether a group is being made durable.
    pub fn is_under_way(&self) -> bool {
        self.settled < self.group
    }

    /// Whether all that was appended is in the index.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && !self.is_under_way()
    }

    /// The group that makes the log durable up to `end`, which it is not yet: one that is under
    /// way, or the next.
    pub fn group_of(&self, end: Position) -> u64 {
        let mut under_way = self.settled + 1..self.group + 1;
        under_way.find(|&group| end <= self.ends[turn(group)]).unwrap_or(self.group + 1)
    }

    /// Whether the next group may be begun. Behind a group of many it waits: they come back at
    /// once, and are in it then.
    pub fn may_begin(&self) -> bool {
        let may_overlap = self.group_records <= OVERLAPPED_RECORDS_MAX;
        let most = if may_overlap { GROUPS_MAX } else { 1 };
        self.halting == 0 && !self.writing && self.group < self.settled + most
    }

    /// Fills the block of the log in which the next group ends: with a note that is as long.
    pub fn pad(&mut self) -> Result<()> {
        let Some(gap) = self.log.gap() else { return Ok(()) };
        self.sequence += 1;
        let body = vec![0; gap - bytes_of(0, 0)];
        let (kind, sequence, meta) = (Kind::Note, self.sequence, ItemMeta::default());
        match self.log.append(&Record { kind, sequence, meta, key: &[], body: &body }) {
            Ok(_) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
            Err(Refused::Roll) => unreachable!("a segment ends with a block"),
        }
    }

    /// Begins the next group, with all that was appended; its number.
    pub fn begin(&mut self) -> u64 {
        self.writing = true;
        self.group += 1;
        self.group_records = self.pending.iter().map(|pending| pending.records).sum();
        self.ends[turn(self.group)] = self.log.tail();
        self.group
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
    /// Where the store is a cache.
    pub eviction: Eviction,
    /// Slots with a damaged record: they are left as they are.
    pub quarantined: BTreeSet<u32>,
    /// Slots of segments that it gains nothing to empty, as long as they are as they were.
    pub barren: BTreeMap<u32, Barren>,
    /// How it was when maintenance last found no room to empty one, and to merge sort tables.
    pub vain: [Option<Vain>; 2],
}

impl Maintenance {
    /// Behind the superblock that has this generation and these checkpoints.
    pub fn behind(generation: u64, checkpoints: [Checkpoint; 2]) -> Maintenance {
        Maintenance { generation, checkpoints, ..Maintenance::default() }
    }
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

/// Whose blocks on the SSD are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A value's.
    User,
    /// A checkpoint's.
    Tier,
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
    /// The superblocks say that values may be compressed.
    pub has_compressed: bool,
    /// Keys to places.
    pub index: Index,
    /// Free blocks.
    pub space: Space,
    /// Which way a value goes.
    pub split: Split,
    /// The appending side.
    pub writer: Mutex<Writer>,
    /// A group was settled, or failed.
    pub settled: Condvar,
    /// Where those wait whose write is in a group, by its turn: so nobody wakes whose group is not
    /// over, but who leads the next.
    pub groups: [Condvar; TURNS],
    /// Large values in memory that wait for their group.
    pub waiting: Waiting,
    /// Memory for the runs of them that a group writes.
    pub spare_runs: Spare,
    /// Live bytes.
    pub accounts: Mutex<Accounts>,
    /// Making room, and checkpoints.
    pub maintenance: Mutex<Maintenance>,
    /// What is held for a backup.
    pub cut: Cut,
    /// The caller's seconds when it last told them; 0 while nothing counts as expired. Relaxed:
    /// who sees an earlier second copies an item that could have gone.
    pub now_seconds: AtomicU32,
    /// The log must say that this sequence is given to no write, before it has another write; 0
    /// once it does. Relaxed: it is set before anybody writes, and who sees it for longer than it
    /// holds has the log say so once more.
    pub owed: AtomicU64,
    /// What had changed when room for a put was last sought in vain, and 1. Relaxed: who sees an
    /// earlier one seeks once more.
    pub futile: AtomicU64,
    /// Statistics.
    pub counters: Counters,
}

/// The most groups under way: one is written while the one before is synced. More take longer each
/// where a device flushes its cache for one at a time.
pub const GROUPS_MAX: u64 = 2;
/// A group of more records has no other under way beside it: fewer and larger groups are less work.
const OVERLAPPED_RECORDS_MAX: usize = 2;
/// Those under way, and the next.
const TURNS: usize = GROUPS_MAX as usize + 1;

/// Which of the turns a group has: never that of another that is waited for.
pub fn turn(group: u64) -> usize {
    (group % TURNS as u64) as usize
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
    pub fn wait_settled<'a>(&self, mut writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        writer.awaiting += 1;
        let mut writer = self.settled.wait(writer).expect(UNPOISONED);
        writer.awaiting -= 1;
        writer
    }

    /// Whether a value of this length that goes straight to the SSD is compressed, if it gains.
    pub fn compresses(&self, bytes: usize) -> bool {
        let is_asked = self.settings.compress_from.is_some_and(|from| from <= bytes);
        is_asked && self.has_compressed && may_gain(bytes)
    }

    /// Takes blocks for a value. Where many wait for a group they lie in the order they come, so
    /// that few writes take them; where each is waited for, they go where others were before, so
    /// that a file system has nothing of its own to write.
    ///
    /// Where items are evicted, a value leaves room for what makes more of it, and long runs whole.
    pub fn take_blocks(&self, blocks: u32, owner: Owner) -> Result<Vec<Extent>> {
        if self.evicts() {
            return match owner == Owner::Tier || self.space.has_spare(blocks.into()) {
                true => self.space.take(blocks),
                false => Err(Error::SsdFull { blocks: blocks.into() }),
            };
        }
        match self.settings.durability {
            Durability::Ack => self.space.take(blocks),
            Durability::Interval => self.space.take_in_order(blocks),
        }
    }

    /// Waits until no group is under way. None is begun meanwhile, or that might never be.
    pub fn wait_quiet<'a>(&self, mut writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        if !writer.is_under_way() {
            return writer;
        }
        writer.halting += 1;
        while writer.is_under_way() {
            writer = self.wait_settled(writer);
        }
        writer.halting -= 1;
        // Who was not let lead the next group looks again when the writer is let go.
        self.groups.iter().for_each(Condvar::notify_all);
        writer
    }

    /// Waits until this group is over, or is to be led.
    pub fn wait_group<'a>(
        &self,
        writer: MutexGuard<'a, Writer>,
        group: u64,
    ) -> MutexGuard<'a, Writer> {
        self.groups[turn(group)].wait(writer).expect(UNPOISONED)
    }

    /// There is a new sort table, of which nothing is current yet.
    pub fn add_table(&self, table: Table) {
        self.accounts().tables.add(table);
        self.counters.tally.tables.add(1);
    }

    /// A record at `home` became current.
    pub fn credit(&self, home: Home, bytes: u32) {
        let (mut accounts, bytes) = (self.accounts(), u64::from(bytes));
        match home.is_ssd() {
            true => {
                if let Some(table) = accounts.tables.at(home.at()) {
                    table.live += bytes;
                    self.counters.tally.table_live_bytes.add(bytes);
                }
            }
            false => {
                accounts.segments[self.shape.slot_of(home.at()) as usize] += bytes;
                self.counters.tally.log_live_bytes.add(bytes);
            }
        }
    }

    /// A record at `home` is current no more.
    pub fn debit(&self, home: Home, bytes: u32) {
        let mut accounts = self.accounts();
        let (live, sum) = match home.is_ssd() {
            true => match accounts.tables.at(home.at()) {
                Some(table) => (&mut table.live, &self.counters.tally.table_live_bytes),
                None => return,
            },
            false => {
                let slot = self.shape.slot_of(home.at()) as usize;
                (&mut accounts.segments[slot], &self.counters.tally.log_live_bytes)
            }
        };
        let bytes = u64::from(bytes).min(*live);
        *live -= bytes;
        sum.take(bytes);
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

    /// Begins to count what there is: nobody changes it yet.
    pub fn tallied(self) -> Shared {
        let tally = &self.counters.tally;
        tally.free_segments.set(self.writer().log.free_slots().into());
        let accounts = self.accounts();
        tally.log_live_bytes.set(accounts.segments.iter().sum());
        tally.table_live_bytes.set(accounts.tables.iter().map(|table| table.live).sum());
        tally.tables.set(accounts.tables.iter().count() as u64);
        drop(accounts);
        self
    }

    /// What is used of the media, from counters alone.
    pub fn usage(&self) -> Usage {
        let (counters, tally) = (&self.counters, &self.counters.tally);
        let segment = u64::from(self.shape.segment_bytes);
        let segments = u64::from(self.shape.segments);
        let used = segments.saturating_sub(tally.free_segments.get());
        // As [`Shared::maintain`] has it.
        let begins = (segments * u64::from(self.settings.migrate_percent)).div_ceil(100);
        let counted = self.index.counted();
        Usage {
            log_bytes: segments * segment,
            log_used_bytes: used * segment,
            log_live_bytes: tally.log_live_bytes.get(),
            ssd_bytes: self.space.blocks() * BLOCK,
            ssd_used_bytes: (self.space.blocks() - self.space.free_blocks_told()) * BLOCK,
            table_live_bytes: tally.table_live_bytes.get(),
            large_live_bytes: counted.map(|counts| counts.large_bytes),
            tables: tally.tables.get(),
            split_bytes: self.split.bytes().min(self.shape.record_bytes_max()) as u64,
            split_moves: self.split.moves(),
            migration_backlog_bytes: (used + 1).saturating_sub(begins) * segment,
            user_written_bytes: counters.user_bytes.get(),
            log_written_bytes: self.region.written_bytes(),
            ssd_written_bytes: counters.ssd_bytes.get(),
            log_flushes: counters.flushes.told(Medium::Log),
            ssd_flushes: counters.flushes.told(Medium::Ssd),
        }
    }

    /// Statistics; walks nothing but an index in persistent memory.
    pub fn stats(&self) -> Stats {
        let poisoned = self.writer().failed.is_some();
        let items = self.index.count();
        let usage = Usage { large_live_bytes: Some(items.large_bytes), ..self.usage() };
        let counters = &self.counters;
        let (waiting_bytes, waiting_bytes_most) = self.waiting.bytes();
        Stats {
            index: self.index.kind(),
            index_bytes: self.index.bytes(),
            items,
            usage,
            tables: usage.tables,
            log_live_bytes: usage.log_live_bytes,
            log_used_bytes: usage.log_used_bytes,
            log_bytes: usage.log_bytes,
            ssd_free_bytes: usage.ssd_bytes - usage.ssd_used_bytes,
            ssd_bytes: usage.ssd_bytes,
            user_written_bytes: usage.user_written_bytes,
            media_written_bytes: usage.log_written_bytes + usage.ssd_written_bytes,
            waiting_bytes,
            waiting_bytes_most,
            groups: counters.groups.get(),
            grouped_records: counters.grouped_records.get(),
            stalls: counters.stalls.get(),
            migrate_rate: counters.pace.bytes_per_second(),
            moved_bytes: counters.moved_bytes.get(),
            rate_yields: counters.rate_yields.get(),
            compressed_values: counters.compressed_values.get(),
            compressed_from_bytes: counters.compressed_from_bytes.get(),
            compressed_to_bytes: counters.compressed_to_bytes.get(),
            compaction: counters.compaction.told(),
            kept_records: counters.kept_records.get(),
            migrated_records: counters.migrated_records.get(),
            expired_records: counters.expired_records.get(),
            evicted: counters.evicted(),
            segments_freed: counters.segments_freed.get(),
            tables_freed: counters.tables_freed.get(),
            checkpoints: counters.checkpoints.get(),
            checkpoints_refused: counters.checkpoints_refused.get(),
            split_adapts: self.split.adapts(),
            poisoned,
        }
    }
}
