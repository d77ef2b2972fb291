//! Recovery: a store from its media.
//!
//! Superblock, newest checkpoint (or the one before), then the log from the checkpoint's position:
//! for each key the highest sequence counts, across both media. A torn tail is normal. A damaged
//! record before the end of what was durable is a problem: it is named if its name can be read, and
//! everything else is served.

use crate::checkpoint::outline::{self, log_bytes, part_of};
use crate::checkpoint::superblock::{Front, Superblock};
use crate::checkpoint::{self, Head};
use crate::index::fair::FairIndex;
use crate::index::{Entry, Home, Index, Tie, What};
use crate::log::record::{Kind, Record};
use crate::log::segment::{Header, Met, Scan, Shape, life_of};
use crate::log::{Log, Slot, put_header};
use crate::media::bytes::Spare;
use crate::media::disk::{Barrier, Disk, Sticky};
use crate::media::pm::Region;
use crate::recovery::census::{self, Containers};
use crate::recovery::ending::{Ending, flush_newest};
use crate::recovery::filling::{Deletion, Filling};
use crate::recovery::gather::Gathered;
use crate::recovery::ledger::Ledger;
use crate::recovery::lost;
use crate::recovery::make::{make, must_be_blank, new_shape};
use crate::recovery::survey::{Survey, Surveyed, Used, segment_bytes};
use crate::recovery::tree::Tree;
use crate::report::Report;
use crate::ssd::large::SPARE_RUNS_MAX;
use crate::ssd::pointer::Pointer;
use crate::ssd::split::Split;
use crate::ssd::tables::{Dropped, Found, Table, for_each_record, id_of, read_table};
use crate::ssd::value::{Large, Waiting};
use crate::store::{Checkpoint, Maintenance, Shared, Writer};
use crate::types::{Error, Position, Result, Settings, doing};
use laneway_sync::planted::{Bug, is_planted};
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
    let front = Superblock::read(&*media.ssd, &mut report.problems)?;
    let superblock = match (front, purpose) {
        (Front::Store(superblock), _) => superblock,
        (Front::Begun(id), Purpose::Check) => {
            let (shape, _) = new_shape(media.region.bytes(), &settings)?;
            must_be_blank(&*media.region, &shape, Some(id))?;
            return Err(Error::Missing("there is no store here: its making did not end".into()));
        }
        (front, Purpose::Use { new_id }) => {
            report.is_new = true;
            let (shape, tree_segments) = new_shape(media.region.bytes(), &settings)?;
            outline::check(&*media.region, &settings, tree_segments)?;
            let begun = if let Front::Begun(id) = front { Some(id) } else { None };
            let (ssd, ids) = (&*media.ssd, (new_id, begun));
            let compresses = settings.compress_from.is_some();
            make(&media.region, ssd, &shape, tree_segments, compresses, ids)?
        }
        (_, Purpose::Check) => return Err(Error::Missing("there is no store here".into())),
    };
    outline::check(&*media.region, &settings, superblock.tree_segments)?;
    let there = log_bytes(media.region.bytes(), settings.segment_bytes, superblock.tree_segments);
    let shape = Shape::of(there.min(superblock.log_bytes()), settings.segment_bytes)?;
    if (superblock.segment_bytes, superblock.segments) != (shape.segment_bytes, shape.segments) {
        return Err(Error::Mismatch(format!(
            "the store was made with a log of {} segments of {} bytes, and {} of {} were found; \
             nothing was written. Give --pm the store's own log, whole",
            superblock.segments, superblock.segment_bytes, shape.segments, shape.segment_bytes
        )));
    }
    let shape = superblock.shape()?;
    let recovery = Recovery::new(&media, &superblock, shape, purpose, report);
    let Recovered { shared, report, rebuilt, ending } = recovery.run(settings, progress)?;
    if purpose == Purpose::Check {
        return Ok((shared, report));
    }
    // What was found may have been in a cache of the medium: a process that dies takes no cache
    // with it, the power that fails next would. Values first: what is vouched for from now on is
    // not looked at again. In the log only the newest segment can be in a cache.
    doing("sync what was recovered", shared.ssd.sync(Barrier::Recovery))?;
    for (slot, header) in rebuilt {
        let (at, bytes) = (shape.start(slot), u64::from(shape.header_bytes));
        let put = put_header(&*shared.region, &shape, slot, &header);
        doing("rebuild a segment's header", put)?;
        doing("flush a segment's header", shared.region.flush(at, bytes))?;
    }
    ending.make_durable(&*shared.region, &shape)?;
    Ok((shared, report))
}

/// A store, and what is to be made good where it is used.
struct Recovered {
    shared: Shared,
    report: Report,
    rebuilt: Vec<(u32, Header)>,
    ending: Ending,
}

struct Recovery<'a> {
    media: &'a Media,
    superblock: &'a Superblock,
    shape: Shape,
    report: Report,
    purpose: Purpose,
    index: Index,
    ledger: Ledger,
    /// The index in persistent memory, until the log was read.
    tree: Option<Tree>,
    /// Up to where that holds the log.
    tree_holds: Position,
    /// What the index is to be offered yet.
    gathered: Gathered,
    /// Why the store is only to be read.
    refused: Option<String>,
    sequence: u64,
    flush_sequence: u64,
    last_table_id: u64,
    /// By number: those of the checkpoint, and newer ones.
    tables: BTreeMap<u64, Table>,
    /// Tables whose records are indexed already.
    indexed: BTreeSet<u64>,
    dropped: BTreeMap<u64, Dropped>,
    /// Those of the checkpoint.
    deletions: Vec<Deletion>,
}

impl<'a> Recovery<'a> {
    fn new(
        media: &'a Media,
        superblock: &'a Superblock,
        shape: Shape,
        purpose: Purpose,
        report: Report,
    ) -> Self {
        Recovery {
            media,
            superblock,
            shape,
            report,
            purpose,
            index: Index::default(),
            ledger: census::ledger(shape, superblock.blocks),
            tree: None,
            tree_holds: Position::default(),
            gathered: Gathered::default(),
            refused: None,
            sequence: 0,
            flush_sequence: 0,
            last_table_id: 0,
            tables: BTreeMap::new(),
            indexed: BTreeSet::new(),
            dropped: BTreeMap::new(),
            deletions: Vec::new(),
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
            checkpointed: self.superblock.checkpoints[0].position,
            tree_holds: self.tree_holds,
            may_have_been_newer: self.superblock.is_alone,
        }
        .run()
    }

    fn run(mut self, settings: Settings, progress: Progress<'_>) -> Result<Recovered> {
        let position = self.load_checkpoint()?;
        let surveyed = self.survey()?;
        let may_be_lost = (self.superblock.tree_segments == 0).then_some(settings.accept_lost_log);
        let passed = match lost::check(self.superblock, &surveyed, may_be_lost, &mut self.report) {
            Err(_) if is_planted(Bug::WrongLogAccepted) => 0,
            checked => checked?,
        };
        self.forget_what_has_gone(&surveyed, position);
        let Surveyed { used, flush_sequence, rebuilt, unvouched, problems, .. } = surveyed;
        self.flush_sequence = flush_sequence;
        self.report.problems.extend(problems);
        let slots = self.replay_all(&used, position, progress)?;
        let newest = used.last().map_or(0, |used| used.generation);
        let generation = newest.max(lost::last_begun(position) + passed);
        self.load_tree(&used)?;
        self.drop_flushed()?;
        let containers = Containers {
            slots: &slots,
            tables: &self.tables,
            dropped: &self.dropped,
            last_table_id: self.last_table_id,
            checkpoints: &self.superblock.checkpoints,
        };
        let (counted, kept) = census::finish(self.ledger, &self.index, &containers);
        self.report.items = counted.items;
        self.report.problems.extend(counted.problems);
        let (space, accounts) = (counted.space, counted.accounts);
        let (region, shape) = (self.media.region.clone(), self.shape);
        let Superblock { store_id, generation: number, .. } = *self.superblock;
        let mut log = Log::new(region, shape, store_id, slots, generation, self.flush_sequence);
        log.set_superblock(number);
        let known = self.superblock.checkpoints.iter().map(|it| it.position);
        let known = known.chain([self.tree_holds]);
        let ending = Ending::of(&mut log, &shape, known, settings.pad_groups);
        let mut writer = Writer::new(log, self.sequence.max(self.flush_sequence));
        writer.failed = self.refused;
        writer.tabled_bytes = self.report.replayed_bytes + self.report.table_bytes;
        // Until a group of this life is durable the next start would look at these values again.
        let until = writer.log.tail();
        let unused = unvouched.into_iter().filter(|pointer| space.take_these(&pointer.extents));
        writer.waiting.extend(unused.map(|pointer| (until, Arc::new(Large::from(pointer)))));
        if let (Some(fair), Some(kept)) = (self.index.fair(), kept) {
            Tree::begin(fair, kept, &self.tables, writer.log.durable())?;
        }
        let maintenance = Maintenance::behind(number, self.superblock.checkpoints.clone());
        let shared = Shared {
            split: Split::new(&settings, &shape),
            settings,
            store_id,
            ssd: Arc::new(Sticky::new(self.media.ssd.clone())),
            region: self.media.region.clone(),
            shape,
            tree_segments: self.superblock.tree_segments,
            has_compressed: self.superblock.has_compressed,
            index: self.index,
            space,
            writer: Mutex::new(writer),
            settled: Condvar::new(),
            groups: Default::default(),
            waiting: Waiting::default(),
            spare_runs: Spare::new(SPARE_RUNS_MAX),
            accounts: Mutex::new(accounts),
            maintenance: Mutex::new(maintenance),
            cut: Default::default(),
            now_seconds: Default::default(),
            owed: Default::default(),
            futile: Default::default(),
            counters: Default::default(),
        };
        Ok(Recovered { shared: shared.tallied(), report: self.report, rebuilt, ending })
    }

    /// Leaves of the deletions and dropped tables that the checkpoint remembers those that are
    /// still said where they were then. Migration has forgotten the others since, as nothing needed
    /// them any more, or has appended them again behind the checkpoint, where they are met.
    fn forget_what_has_gone(&mut self, surveyed: &Surveyed, position: Position) {
        surveyed.forget_dropped(&mut self.dropped, &self.shape, position);
        let slots = surveyed.slots_from_before(position);
        for (key, sequence, home) in std::mem::take(&mut self.deletions) {
            if !slots.contains(&self.shape.slot_of(home.at()))
                && let Some(gone) = self.index.remove(&key, sequence)
            {
                self.ledger.remove(&gone);
            }
        }
    }

    fn replay_all(
        &mut self,
        used: &[Used],
        position: Position,
        progress: Progress<'_>,
    ) -> Result<Vec<Slot>> {
        let mut slots = vec![Slot::Free; self.shape.segments as usize];
        let total = used.len() as u64 * u64::from(self.shape.segment_bytes);
        for (done, segment) in used.iter().enumerate() {
            progress(done as u64 * u64::from(self.shape.segment_bytes), total);
            let end = match segment.generation < position.generation {
                true => segment.end,
                false => self.replay(segment, position)?,
            };
            slots[segment.slot as usize] = Slot::Sealed { generation: segment.generation, end };
        }
        progress(total, total);
        Ok(slots)
    }

    /// All that was gathered has been offered, so its memory is given back, too.
    fn drop_flushed(&mut self) -> Result<()> {
        self.gathered = Gathered::default();
        if self.ledger.lowest_sequence < self.flush_sequence && !is_planted(Bug::FlushMarkIgnored) {
            for gone in self.index.flush(self.flush_sequence) {
                self.ledger.remove(&gone);
            }
            self.ledger.flushed(self.flush_sequence);
        }
        self.index.fair().map_or(Ok(()), FairIndex::check)
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
                self.open_tree(None);
                return Ok(Position::default());
            }
            let ledger = census::ledger(self.shape, blocks);
            if self.superblock.tree_segments != 0 {
                match outline::read(&*self.media.ssd, body, ledger) {
                    Ok((head, outline)) if head.position == *position => {
                        self.report.checkpoint_bytes = body.bytes;
                        self.take_head(head);
                        self.open_tree(Some(outline).filter(|_| age == 0));
                        return Ok(*position);
                    }
                    Ok(_) => self.problem("a checkpoint is not the one that was asked for".into()),
                    Err(error) => {
                        self.problem(format!("checkpoint {age} (0 is the newest): {error}"));
                    }
                }
                continue;
            }
            let mut filling = Filling::of(ledger);
            match checkpoint::read(&*self.media.ssd, body, blocks, &mut filling) {
                Ok(head) if head.position == *position => {
                    self.report.entries_read = filling.counts.entries();
                    self.deletions = std::mem::take(&mut filling.deletions);
                    (self.index, self.ledger) = filling.finish();
                    self.report.checkpoint_bytes = body.bytes;
                    self.take_head(head);
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

    fn take_head(&mut self, head: Head) {
        self.sequence = head.sequence;
        self.flush_sequence = head.flush_sequence;
        self.last_table_id = head.last_table_id;
        self.indexed = head.tables.iter().map(|table| table.id).collect();
        self.tables = head.tables.iter().map(|table| (table.id, *table)).collect();
        self.dropped = head.dropped.into_iter().collect();
    }

    /// Opens the index in persistent memory, if that is where it is.
    fn open_tree(&mut self, outline: Option<outline::Outline>) {
        let region = &self.media.region;
        let Some(part) = part_of(region, &self.shape, self.superblock.tree_segments) else {
            return;
        };
        let outline = outline.filter(|_| self.purpose != Purpose::Check);
        let (tree, ledger) = Tree::open(part, outline);
        self.tree_holds = tree.holds();
        match ledger {
            Some(ledger) => self.ledger = ledger,
            None => self.tables.values().for_each(|table| self.ledger.table(*table)),
        }
        self.tree = Some(tree);
    }

    /// The log was read: what it and new sort tables have behind the tree goes there.
    fn load_tree(&mut self, used: &[Used]) -> Result<()> {
        self.load_tables()?;
        let Some(tree) = self.tree.take() else {
            self.offer_gathered();
            return Ok(());
        };
        if !tree.is_of(self.superblock.store_id) {
            return Err(Error::Corrupt("the index in persistent memory is not there".into()));
        }
        let (blocks, problems) = (self.superblock.blocks, &mut self.report.problems);
        if self.purpose == Purpose::Check {
            // Nothing is written: the entries are looked at in memory.
            let (index, entries) = tree.into_memory(&mut self.ledger, blocks, problems);
            (self.index, self.report.entries_read) = (index, entries);
        } else {
            // The tree leads to what is durable only.
            doing("sync what was recovered", self.media.ssd.sync(Barrier::Recovery))?;
            flush_newest(&*self.media.region, self.shape, used.last().map(|used| used.slot))?;
            let (index, entries) = tree.into_index(&mut self.ledger, blocks, problems)?;
            (self.index, self.report.entries_read) = (index, entries);
        }
        self.offer_gathered();
        match self.index.fair().map(|fair| (fair.check(), fair.was_full())) {
            None | Some((Ok(()), _)) => Ok(()),
            Some((Err(error), true)) => self.do_without(&error),
            Some((result, false)) => result,
        }
    }

    /// The tree cannot take what the log has behind it: the store is opened all the same, to be
    /// read. What the tree has and what it lacks are looked at in memory, and nothing is written.
    fn do_without(&mut self, error: &Error) -> Result<()> {
        self.index = Index::default();
        self.ledger = census::ledger(self.shape, self.superblock.blocks);
        self.open_tree(None);
        let Some(tree) = self.tree.take() else { return Ok(()) };
        let (blocks, problems) = (self.superblock.blocks, &mut self.report.problems);
        let (index, entries) = tree.into_memory(&mut self.ledger, blocks, problems);
        (self.index, self.report.entries_read) = (index, entries);
        self.offer_gathered();
        // The tree was counted with what it took of them.
        self.ledger.give_up();
        let why = format!(
            "{error}: what the log has behind it is in memory, and writes are refused; move the \
             store to one of more persistent memory by laneway dump and load"
        );
        self.problem(why.clone());
        self.refused = Some(why);
        Ok(())
    }

    fn replay(&mut self, segment: &Used, position: Position) -> Result<u32> {
        let bytes = segment_bytes(&*self.media.region, &self.shape, segment.slot)?;
        let from = match segment.generation == position.generation {
            true => position.offset.max(self.shape.header_bytes),
            false => self.shape.header_bytes,
        };
        let life = life_of(self.superblock.store_id, segment.generation);
        let start = self.shape.start(segment.slot);
        let scan = Scan { life, from, sealed_end: Some(segment.end), vouched: 0 };
        let end = scan.run(&bytes, |met| match met {
            Met::Record { offset, record, .. } => {
                self.report.replayed_records += 1;
                let at = Position { generation: segment.generation, offset };
                let home = Home::log(start + u64::from(offset));
                self.meet(&record, home, at < self.tree_holds);
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

    /// Where `is_held` the index in persistent memory has it.
    fn meet(&mut self, record: &Record<'_>, home: Home, is_held: bool) {
        self.sequence = self.sequence.max(record.sequence);
        let what = match record.kind {
            Kind::Small if is_planted(Bug::SplitAssumed) && 4096 <= record.body.len() => return,
            Kind::Small => What::Small { value_bytes: record.body.len() as u32 },
            Kind::Large => match Pointer::of_value(record.body, self.superblock.blocks) {
                Some(pointer) => What::Large(Arc::new(Large::known(pointer, record.meta))),
                None => What::Lost,
            },
            Kind::Delete if is_planted(Bug::TombstoneIgnored) => return,
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
                        let is_new = self.tables.insert(table.id, table).is_none();
                        // Entries of a tree may be in it already.
                        if is_new && self.tree.is_some() {
                            self.ledger.table(table);
                        }
                        if is_held {
                            self.indexed.insert(table.id);
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
        if !is_held {
            self.publish(record.key, entry, Tie::Replace);
        }
    }

    fn publish(&mut self, key: &[u8], entry: Entry, tie: Tie) {
        self.gathered.push(key, entry, tie);
    }

    fn offer_gathered(&mut self) {
        self.report.entries_read += self.gathered.count();
        self.gathered.offer_to(&self.index, &mut self.ledger);
    }

    fn meet_damaged(&mut self, place: &str, claim: Option<(Kind, u64, &[u8])>, home: Home) {
        let named = claim.filter(|(kind, ..)| kind.is_of_item());
        match named {
            Some((kind, claimed, key)) if !key.is_empty() => {
                let key_told = key.escape_ascii();
                self.problem(format!(
                    "{place}: a record is damaged; it claims to be of key {key_told}"
                ));
                // An older value of the key must not come back, and newer ones must count: a
                // sequence far above all others is the damage itself.
                let is_believed = claimed <= self.sequence + SEQUENCES_PLAUSIBLE;
                let sequence = if is_believed { claimed } else { self.sequence + 1 };
                self.sequence = self.sequence.max(sequence);
                let entry = Entry { sequence, home, ..Entry::unreadable() };
                // A deletion may have the sequence of the item that it is of.
                let tie = if kind == Kind::Delete { Tie::Replace } else { Tie::Keep };
                self.publish(key, entry, tie);
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
            self.report.table_bytes += u64::from(table.bytes);
            if self.tree.is_none() {
                self.gathered.table(table);
            }
            let bytes = read_table(&*self.media.ssd, &table)?;
            for_each_record(&bytes, &table, self.superblock.store_id, |found| match found {
                Found::Record(home, record) => self.meet(&record, home, false),
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
