//! Recovery: a store from its media.
//!
//! Superblock, newest checkpoint (or the one before), then the log from the checkpoint's position:
//! for each key the highest sequence counts, across both media. A torn tail is normal. A damaged
//! record before the end of what was durable is a problem: it is named if its name can be read, and
//! everything else is served.

use crate::census::{Census, Containers};
use crate::checkpoint::{self, Head, Visit};
use crate::disk::{Barrier, Disk};
use crate::index::{Builder, Entry, Home, Index, Published, Tie, What};
use crate::log::{Log, Slot};
use crate::pm::Region;
use crate::pointer::Pointer;
use crate::record::{Kind, Record};
use crate::segment::{Header, Met, Scan, Shape, life_of};
use crate::stats::Counters;
use crate::store::{Checkpoint, Maintenance, Shared, Writer};
use crate::superblock::{Front, Superblock};
use crate::survey::{Survey, Surveyed, Used, segment_bytes};
use crate::tables::{Dropped, Found, Table, for_each_record, id_of, read_table};
use crate::types::{BLOCK_BYTES, Error, LINE_BYTES, Position, Result, Settings, doing};
use crate::value::{Large, Waiting};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};

/// How far a damaged record's sequence may be above all others and still be believed.
const SEQUENCES_PLAUSIBLE: u64 = 1 << 32;

/// What a store lies on.
#[derive(Clone)]
pub struct Media {
    /// The log.
    pub region: Arc<dyn Region>,
    /// Everything else.
    pub ssd: Arc<dyn Disk>,
}

/// What recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether the store was made just now.
    pub is_new: bool,
    /// Items that can be read.
    pub items: u64,
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log that were replayed.
    pub replayed_bytes: u64,
    /// Records in them.
    pub replayed_records: u64,
    /// Sort tables that were read because the checkpoint did not know them.
    pub tables_read: u64,
    /// What is damaged, one line each. Empty after any crash of a sound machine.
    pub problems: Vec<String>,
}

/// Where recovery stands: bytes done, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// What a store is recovered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be used. Where there is none, one of this id is made.
    Use {
        /// Any random number.
        new_id: u64,
    },
    /// To be looked at: nothing is written.
    Check,
}

/// Opens what lies on `media`.
pub fn recover(
    media: Media,
    settings: Settings,
    purpose: Purpose,
    progress: Progress<'_>,
) -> Result<(Shared, Report)> {
    let mut report = Report::default();
    let shape = Shape::of(media.region.bytes(), settings.segment_bytes)?;
    let superblock = match Superblock::read(&*media.ssd, &mut report.problems)? {
        Front::Store(superblock) => superblock,
        Front::Empty => match purpose {
            Purpose::Use { new_id } => {
                report.is_new = true;
                make(&media, shape, new_id)?
            }
            Purpose::Check => return Err(Error::Mismatch("there is no store here".into())),
        },
    };
    if (superblock.segment_bytes, superblock.segments) != (shape.segment_bytes, shape.segments) {
        return Err(Error::Mismatch(format!(
            "the store was made with a log of {} segments of {} bytes, and {} of {} were found",
            superblock.segments, superblock.segment_bytes, shape.segments, shape.segment_bytes
        )));
    }
    let recovered = Recovery::new(&media, &superblock, shape, report).run(settings, progress)?;
    let Recovered { shared, report, rebuilt } = recovered;
    if purpose == Purpose::Check {
        return Ok((shared, report));
    }
    // What was found may have been in a cache of the medium: a process that dies takes no cache
    // with it, the power that fails next would. Values first: what is vouched for from now on is
    // not looked at again. In the log only the newest segment can be in a cache.
    doing("sync what was recovered", shared.ssd.sync(Barrier::Recovery))?;
    for (slot, header) in rebuilt {
        let (at, bytes) = (shape.start(slot), header.encode(&shape));
        doing("rebuild a segment's header", shared.region.write(at, &bytes))?;
        doing("flush a segment's header", shared.region.flush(at, bytes.len() as u64))?;
    }
    if let Some((slot, end)) = shared.writer().log.newest_sealed() {
        let (start, bytes) = (shape.start(slot), u64::from(shape.segment_bytes));
        if end < shape.segment_bytes {
            // Where it was cut for a value that is not there, the record that points at it is
            // whole: to who reads the log without values, and what is numbered anew from now on
            // would be mixed with what is behind it.
            let cut = shared.region.write(start + u64::from(end), &[0; LINE_BYTES]);
            doing("end the log", cut)?;
        }
        doing("flush what was recovered", shared.region.flush(start, bytes))?;
    }
    doing("fence what was recovered", shared.region.fence(Barrier::Recovery))?;
    Ok((shared, report))
}

fn make(media: &Media, shape: Shape, store_id: u64) -> Result<Superblock> {
    let mut magic = [0; 8];
    for slot in 0..shape.segments {
        doing("read the log", media.region.read(shape.start(slot), &mut magic))?;
        if magic != [0; 8] {
            return Err(Error::Mismatch(
                "the log holds records and the SSD no store: is --ssd the right one? To begin \
                 anew, remove both"
                    .into(),
            ));
        }
    }
    let blocks = media.ssd.bytes() / BLOCK_BYTES as u64;
    let mut superblock = Superblock {
        store_id,
        generation: 0,
        segment_bytes: shape.segment_bytes,
        segments: shape.segments,
        blocks,
        checkpoints: Default::default(),
    };
    superblock.make(&*media.ssd)?;
    Ok(superblock)
}

/// A store, and what is to be made good where it is used.
struct Recovered {
    shared: Shared,
    report: Report,
    rebuilt: Vec<(u32, Header)>,
}

struct Recovery<'a> {
    media: &'a Media,
    superblock: &'a Superblock,
    shape: Shape,
    report: Report,
    index: Index,
    census: Census,
    sequence: u64,
    flush_sequence: u64,
    last_table_id: u64,
    /// By number: those of the checkpoint, and newer ones.
    tables: BTreeMap<u64, Table>,
    /// Tables whose records are indexed already.
    indexed: BTreeSet<u64>,
    dropped: BTreeMap<u64, Dropped>,
}

/// What a checkpoint fills.
struct Filling {
    builder: Builder,
    census: Census,
}

impl Visit for Filling {
    fn head(&mut self, head: &Head) {
        head.tables.iter().for_each(|table| self.census.table(*table));
    }

    fn entry(&mut self, key: &[u8], entry: Entry) {
        self.census.add(&entry);
        self.builder.push(key, entry);
    }
}

impl Filling {
    fn finish(mut self) -> (Index, Census) {
        if !self.builder.is_in_order() {
            // A key that comes twice was counted twice.
            self.census.give_up();
        }
        (self.builder.finish(), self.census)
    }
}

impl<'a> Recovery<'a> {
    fn new(media: &'a Media, superblock: &'a Superblock, shape: Shape, report: Report) -> Self {
        Recovery {
            media,
            superblock,
            shape,
            report,
            index: Index::default(),
            census: Census::new(shape, superblock.blocks),
            sequence: 0,
            flush_sequence: 0,
            last_table_id: 0,
            tables: BTreeMap::new(),
            indexed: BTreeSet::new(),
            dropped: BTreeMap::new(),
        }
    }

    fn survey(&self) -> Result<Surveyed> {
        Survey {
            region: &*self.media.region,
            ssd: &*self.media.ssd,
            shape: self.shape,
            store_id: self.superblock.store_id,
            blocks: self.superblock.blocks,
            flush_sequence: self.flush_sequence,
        }
        .run()
    }

    fn run(mut self, settings: Settings, progress: Progress<'_>) -> Result<Recovered> {
        let position = self.load_checkpoint()?;
        let Surveyed { used, flush_sequence, rebuilt, unvouched, problems } = self.survey()?;
        self.flush_sequence = flush_sequence;
        self.report.problems.extend(problems);
        let mut slots = vec![Slot::Free; self.shape.segments as usize];
        let mut generation = position.generation.saturating_sub(u64::from(position.offset == 0));
        let total = used.len() as u64 * u64::from(self.shape.segment_bytes);
        for (done, segment) in used.iter().enumerate() {
            progress(done as u64 * u64::from(self.shape.segment_bytes), total);
            let end = match segment.generation < position.generation {
                true => segment.end,
                false => self.replay(segment, position)?,
            };
            generation = generation.max(segment.generation);
            slots[segment.slot as usize] = Slot::Sealed { generation: segment.generation, end };
        }
        progress(total, total);
        self.load_tables()?;
        if self.census.lowest_sequence() < self.flush_sequence {
            for gone in self.index.flush(self.flush_sequence) {
                self.census.remove(&gone);
            }
        }
        let containers = Containers {
            slots: &slots,
            tables: &self.tables,
            dropped: &self.dropped,
            last_table_id: self.last_table_id,
            checkpoints: &self.superblock.checkpoints,
        };
        let counted = self.census.finish(&self.index, &containers);
        self.report.items = counted.items;
        self.report.problems.extend(counted.problems);
        let (space, accounts) = (counted.space, counted.accounts);
        let (region, shape) = (self.media.region.clone(), self.shape);
        let store_id = self.superblock.store_id;
        let log = Log::new(region, shape, store_id, slots, generation, self.flush_sequence);
        let mut writer = Writer::new(log, self.sequence.max(self.flush_sequence));
        // Until a group of this life is durable the next start would look at these values again.
        let until = writer.log.tail();
        let unused = unvouched.into_iter().filter(|pointer| space.take_these(&pointer.extents));
        writer.waiting.extend(unused.map(|pointer| (until, Arc::new(Large::from(pointer)))));
        let maintenance = Maintenance {
            generation: self.superblock.generation,
            checkpoints: self.superblock.checkpoints.clone(),
            ..Maintenance::default()
        };
        let shared = Shared {
            settings,
            store_id,
            ssd: self.media.ssd.clone(),
            region: self.media.region.clone(),
            shape,
            index: self.index,
            space,
            writer: Mutex::new(writer),
            settled: Condvar::new(),
            groups: Default::default(),
            arrived: Condvar::new(),
            waiting: Waiting::default(),
            accounts: Mutex::new(accounts),
            maintenance: Mutex::new(maintenance),
            counters: Counters::default(),
        };
        Ok(Recovered { shared, report: self.report, rebuilt })
    }

    fn problem(&mut self, what: String) {
        self.report.problems.push(what);
    }

    /// The newest checkpoint that can be read, or none; where to replay from.
    fn load_checkpoint(&mut self) -> Result<Position> {
        let blocks = self.superblock.blocks;
        for (age, checkpoint) in self.superblock.checkpoints.iter().enumerate() {
            let Checkpoint { position, body } = checkpoint;
            if body.bytes == 0 {
                // Made before the first checkpoint: all of the log is still there.
                return Ok(Position::default());
            }
            let mut filling =
                Filling { builder: Builder::default(), census: Census::new(self.shape, blocks) };
            match checkpoint::read(&*self.media.ssd, body, blocks, &mut filling) {
                Ok(head) if head.position == *position => {
                    (self.index, self.census) = filling.finish();
                    self.report.checkpoint_bytes = body.bytes;
                    self.sequence = head.sequence;
                    self.flush_sequence = head.flush_sequence;
                    self.last_table_id = head.last_table_id;
                    self.indexed = head.tables.iter().map(|table| table.id).collect();
                    self.tables = head.tables.iter().map(|table| (table.id, *table)).collect();
                    self.dropped = head.dropped.into_iter().collect();
                    return Ok(*position);
                }
                Ok(_) => self.problem("a checkpoint is not the one that was asked for".into()),
                Err(error) => self.problem(format!("checkpoint {age} (0 is the newest): {error}")),
            }
        }
        // Tombstones older than the checkpoints may be gone, and so may what led to tables.
        Err(Error::Corrupt(
            "no checkpoint can be read, and the log alone is not the whole store".into(),
        ))
    }

    fn replay(&mut self, segment: &Used, position: Position) -> Result<u32> {
        let bytes = segment_bytes(&*self.media.region, &self.shape, segment.slot)?;
        let from = match segment.generation == position.generation {
            true => position.offset.max(self.shape.header_bytes),
            false => self.shape.header_bytes,
        };
        let life = life_of(self.superblock.store_id, segment.generation);
        let start = self.shape.start(segment.slot);
        let scan = Scan { life, from, sealed_end: Some(segment.end) };
        let end = scan.run(&bytes, |met| match met {
            Met::Record { offset, record, .. } => {
                self.report.replayed_records += 1;
                self.meet(&record, Home::log(start + u64::from(offset)));
            }
            Met::Damaged { offset, claim } => {
                let home = Home::log(start + u64::from(offset));
                let place = format!("log segment {}, offset {offset}", segment.generation);
                self.meet_damaged(&place, claim, home);
            }
        });
        self.report.replayed_bytes += u64::from(end.saturating_sub(from));
        Ok(end)
    }

    fn meet(&mut self, record: &Record<'_>, home: Home) {
        self.sequence = self.sequence.max(record.sequence);
        let what = match record.kind {
            Kind::Small => What::Small { value_bytes: record.body.len() as u32 },
            Kind::Large => match Pointer::of_value(record.body, self.superblock.blocks) {
                Some(pointer) => What::Large(Arc::new(Large::known(pointer, record.meta))),
                None => What::Lost,
            },
            Kind::Delete => What::Tombstone,
            Kind::FlushAll => {
                self.flush_sequence = self.flush_sequence.max(record.sequence);
                return;
            }
            Kind::Table => {
                let (key, body, blocks) = (record.key, record.body, self.superblock.blocks);
                match Table::of_record(key, body, record.sequence, home, blocks) {
                    Some(table) => {
                        self.last_table_id = self.last_table_id.max(table.id);
                        if self.tables.insert(table.id, table).is_none() {
                            self.census.table(table);
                        }
                    }
                    None => self.problem("a record of a sort table makes no sense".into()),
                }
                return;
            }
            Kind::TableDrop => {
                if let Some(id) = id_of(record.key) {
                    self.last_table_id = self.last_table_id.max(id);
                    self.dropped.insert(id, Dropped { sequence: record.sequence, home });
                }
                return;
            }
            Kind::SegmentFree | Kind::Note => return,
        };
        let record_bytes = record.bytes() as u32;
        let (sequence, expires_at_seconds) = (record.sequence, record.meta.expires_at_seconds);
        let entry = Entry { sequence, home, record_bytes, expires_at_seconds, what };
        self.publish(record.key, entry, Tie::Replace);
    }

    fn publish(&mut self, key: &[u8], entry: Entry, tie: Tie) {
        if let Published::Current(before) = self.index.publish(key, entry.clone(), tie) {
            if let Some(before) = before {
                self.census.remove(&before);
            }
            self.census.add(&entry);
        }
    }

    fn meet_damaged(&mut self, place: &str, claim: Option<(Kind, u64, &[u8])>, home: Home) {
        let named = claim.filter(|(kind, ..)| kind.is_of_item());
        match named {
            Some((_, claimed, key)) if !key.is_empty() => {
                let key_told = key.escape_ascii();
                self.problem(format!(
                    "{place}: a record is damaged; it claims to be of key {key_told}"
                ));
                // An older value of the key must not come back, and newer ones must count: a
                // sequence far above all others is the damage itself.
                let sequence = match claimed <= self.sequence + SEQUENCES_PLAUSIBLE {
                    true => claimed,
                    false => self.sequence + 1,
                };
                self.sequence = self.sequence.max(sequence);
                let what = What::Lost;
                let entry = Entry { sequence, home, record_bytes: 0, expires_at_seconds: 0, what };
                self.publish(key, entry, Tie::Keep);
            }
            _ => self.problem(format!("{place}: a record is damaged, and what it was is unknown")),
        }
    }

    /// Reads the tables that the checkpoint did not know.
    fn load_tables(&mut self) -> Result<()> {
        let dropped = &self.dropped;
        self.tables.retain(|id, _| !dropped.contains_key(id));
        let unread: Vec<Table> = self
            .tables
            .values()
            .filter(|table| !self.indexed.contains(&table.id))
            .copied()
            .collect();
        for table in unread {
            self.report.tables_read += 1;
            let bytes = read_table(&*self.media.ssd, &table)?;
            for_each_record(&bytes, &table, self.superblock.store_id, |found| match found {
                Found::Record(home, record) => self.meet(&record, home),
                Found::Damaged(home, claim) => {
                    let offset = home.at() - table.start();
                    let place = format!("sort table {}, offset {offset}", table.id);
                    self.meet_damaged(&place, claim, home);
                }
            });
        }
        Ok(())
    }
}
