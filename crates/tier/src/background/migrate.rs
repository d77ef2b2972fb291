//! Migration: making room in the log by moving records to sort tables.
//!
//! By age ([`Settings::migrates_by`](crate::Settings::migrates_by)) the oldest segment is taken,
//! and all that is current of it is sorted by key and written as sort tables.
//!
//! By hotness (SplitKV, hotness-aware migration) it is the segment with the lowest weight. Of its
//! current records those at or above the mean weight are appended again, up to half of the bytes,
//! so that every turn makes room; the rest is written as sort tables. The paper compares the
//! groups' averages too; where all weights are equal it has nothing to choose by, and we take the
//! segment with the least to move.
//!
//! Then the index is switched where the sequence is unchanged, and what freed the segment is made
//! durable before it is used again.
//!
//! What has expired is not moved: a deletion takes its place, if that is shorter.
//!
//! A tombstone is dropped once both checkpoints are younger than it: recovery then never looks at
//! what it deleted. A segment is left as it is while what has to stay in the log is more than three
//! quarters of it: to append that again gains nothing.

use crate::background::clock::Step;
use crate::background::futile::Barren;
use crate::background::moving::{Moving, lines_of};
use crate::index::Home;
use crate::log::append::{Draft, deletion};
use crate::log::record::{self, Kind, Record, Stamp};
use crate::log::segment::{Met, Scan, life_of};
use crate::media::bytes::Blocks;
use crate::media::disk::Barrier;
use crate::media::flushes::Medium;
use crate::ssd::pointer::Extent;
use crate::ssd::tables::{NAMED_RECORD_BYTES, TABLE_ALIGN, Table, key_of, life_of_table};
use crate::stats::Counters;
use crate::store::{Maintenance, Shared};
use crate::types::{BLOCK_BYTES, Error, ItemMeta, MigrateBy, Position, Result, doing};
use std::sync::atomic::Ordering::Relaxed;

/// What a segment holds that is still needed.
#[derive(Default)]
struct Needed {
    /// Items that may go to a sort table.
    items: Vec<Moving>,
    /// What must stay in the log.
    kept: Vec<Moving>,
    /// Tombstones that no checkpoint needs any more.
    forgotten: Vec<(Box<[u8]>, u64)>,
    /// The same for sort tables.
    tables_forgotten: Vec<u64>,
    damaged: bool,
}

/// Which segments are emptied, of those that are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emptying {
    /// Where that gains a quarter of one, and all of it can be read: by migration.
    IfItGains,
    /// Where all of it can be read: by compaction, which is content with less.
    IfWhole,
    /// Each: what cannot be read goes.
    Anyway,
}

impl Shared {
    /// Moves records until more than `reserve` segments are free.
    pub fn make_room(&self, reserve: u32) -> Result<()> {
        let mut checkpoints_left = 2;
        for _ in 0..2 * self.shape.segments {
            let before = self.writer().log.free_slots();
            if reserve < before {
                return Ok(());
            }
            if self.is_held() {
                self.counters.rate_yields.add(1);
            }
            let emptied = self.empty_segment(&mut self.maintenance());
            let emptied = match emptied {
                // Nothing could be evicted for the sort table.
                Err(Error::SsdFull { .. }) if self.evicts() => false,
                // What has to stay there may be deletions, which a checkpoint makes superfluous.
                Err(Error::PmFull) if self.may_have_tombstones() => false,
                // Blocks may be free as soon as the log says so, and nobody else may append that.
                Err(Error::SsdFull { .. }) if self.free_for_tables()? => true,
                // There may be tables of which nothing is current any more.
                Err(full @ Error::SsdFull { .. }) => {
                    match self.compact_tables(&mut self.maintenance()) {
                        Ok(true) => true,
                        Ok(false) | Err(Error::SsdFull { .. }) => return Err(full),
                        Err(error) => return Err(error),
                    }
                }
                emptied => emptied?,
            };
            let gained = before < self.writer().log.free_slots();
            if !gained && !self.evicts() {
                // They take room that a checkpoint may want.
                let _ = self.drop_empty_tables(&mut self.maintenance());
            }
            if !gained && 0 < checkpoints_left && self.may_forget_more() {
                // What is left may be tombstones, which a checkpoint makes superfluous.
                checkpoints_left -= 1;
                let _ = self.checkpoint();
            } else if !emptied {
                break;
            }
        }
        match reserve < self.writer().log.free_slots() {
            true => Ok(()),
            false => Err(Error::PmFull),
        }
    }

    /// Whether the rate of migration and compaction lets them wait.
    pub fn is_held(&self) -> bool {
        let Counters { pace, flushes, .. } = &self.counters;
        flushes.now().is_some_and(|now| !pace.may_go(now))
    }

    /// They wrote so many bytes. Of those that went beyond the rate, as much as a turn may write is
    /// made good.
    pub fn moved(&self, bytes: u64) {
        let Counters { pace, flushes, moved_bytes, .. } = &self.counters;
        moved_bytes.add(bytes);
        if let Some(now) = flushes.now() {
            let turn = u64::from(self.shape.segment_bytes).max(self.settings.table_bytes as u64);
            pace.spend(bytes, now, 2 * turn);
        }
    }

    /// Empties one segment; false if there is none that gains anything. One that does not is looked
    /// at once, until that may have changed.
    pub fn empty_segment(&self, turn: &mut Maintenance) -> Result<bool> {
        loop {
            let Some(coldest) = self.coldest(turn) else { return Ok(false) };
            let full = match self.empty(turn, coldest, Emptying::IfItGains) {
                Ok(false) => continue,
                Err(full @ Error::SsdFull { .. }) if !self.evicts() => full,
                Err(full @ Error::PmFull) => full,
                emptied => return emptied,
            };
            // There is no room for a sort table of it, or in the log, and much of it is current.
            // What is current of another may be less, and is appended again; or less of another has
            // to stay in the log.
            let even_dense = matches!(full, Error::PmFull);
            match self.sparsest(turn, coldest, even_dense) {
                None => return Err(full),
                Some(sparsest) => match self.empty(turn, sparsest, Emptying::IfItGains) {
                    Ok(false) => {}
                    emptied => return emptied,
                },
            }
        }
    }

    /// Empties every segment that holds a damaged record; what cannot be read goes.
    pub fn empty_damaged_segments(&self) -> Result<u64> {
        let mut turn = self.maintenance();
        let mut emptied = 0;
        for segment in self.sealed() {
            let (slot, generation, end) = segment;
            if self.needed(slot, generation, end, Position::default())?.damaged {
                self.empty(&mut turn, segment, Emptying::Anyway)?;
                emptied += 1;
            }
        }
        Ok(emptied)
    }

    /// Empties this one; false if it is left as it is.
    pub fn empty(
        &self,
        turn: &mut Maintenance,
        segment: (u32, u64, u32),
        emptying: Emptying,
    ) -> Result<bool> {
        let (mut nanos, mut freed_bytes) = (0, 0);
        let before = self.tabled_bytes();
        let work = || self.empty_it(turn, segment, emptying, &mut freed_bytes);
        let emptied = self.clocked(&mut nanos, work)?;
        if emptied {
            let tabled_bytes = self.tabled_bytes().saturating_sub(before);
            self.split.migration_took(freed_bytes, tabled_bytes, nanos);
        }
        Ok(emptied)
    }

    /// Counts what is free of the segment behind it, but for what was appended again.
    fn empty_it(
        &self,
        turn: &mut Maintenance,
        (slot, generation, end): (u32, u64, u32),
        emptying: Emptying,
        freed_bytes: &mut u64,
    ) -> Result<bool> {
        let oldest = turn.checkpoints[1].position;
        let live = self.accounts().segments[slot as usize];
        let needed = self.needed(slot, generation, end, oldest)?;
        if needed.damaged && emptying != Emptying::Anyway {
            turn.quarantined.insert(slot);
            return Ok(false);
        }
        // Before anything is appended: what has to stay would fill as much as becomes free.
        if emptying == Emptying::IfItGains && !self.gains(&[&needed.kept]) {
            let superblock = turn.generation;
            turn.barren.insert(slot, Barren { generation, live, superblock });
            return Ok(false);
        }
        let stays = self.stays(&needed.kept, &needed.items);
        let items = self.drop_expired(needed.items, stays, 0)?;
        let (hot, cold) = self.divide(items, &needed.kept);
        self.must_have_room(&[&needed.kept, &hot], &cold)?;
        let cold = match self.write_tables_with_room(turn, cold) {
            Ok(()) => Vec::new(),
            // No room for a sort table: where that gains a quarter, all is appended again.
            Err((Error::SsdFull { .. }, cold)) if self.gains(&[&needed.kept, &hot, &cold]) => cold,
            Err((error, _)) => return Err(error),
        };
        let again_bytes = lines_of(&[&needed.kept, &hot, &cold]);
        *freed_bytes = u64::from(end - self.shape.header_bytes).saturating_sub(again_bytes);
        self.append_all_again(&[&needed.kept, &hot, &cold], generation)?;
        self.commit(Barrier::Move)?;
        for (key, sequence) in needed.forgotten {
            self.index.remove(&key, sequence);
        }
        let (start, end) = (self.shape.start(slot), self.shape.start(slot + 1));
        self.save_held(Home::log(start)..Home::log(end));
        let mut writer = self.writer();
        let mut accounts = self.accounts();
        for id in needed.tables_forgotten {
            accounts.tables.dropped.remove(&id);
        }
        let live = std::mem::take(&mut accounts.segments[slot as usize]);
        writer.log.release(slot);
        self.counters.tally.log_live_bytes.take(live);
        self.counters.tally.free_segments.set(writer.log.free_slots().into());
        turn.quarantined.remove(&slot);
        self.counters.segments_freed.add(1);
        Ok(true)
    }

    fn needed(&self, slot: u32, generation: u64, end: u32, oldest: Position) -> Result<Needed> {
        let mut bytes = vec![0; self.shape.segment_bytes as usize];
        doing("read the log", self.region.read(self.shape.start(slot), &mut bytes))?;
        let life = life_of(self.store_id, generation);
        let scan = Scan { life, from: self.shape.header_bytes, sealed_end: Some(end), vouched: 0 };
        let mut needed = Needed::default();
        let start = self.shape.start(slot);
        scan.run(&bytes, |met| match met {
            Met::Damaged { .. } => needed.damaged = true,
            Met::Record { offset, record, .. } => {
                let home = Home::log(start + u64::from(offset));
                let is_old = Position { generation, offset } < oldest;
                self.sort_out(&mut needed, &record, home, is_old);
            }
        });
        Ok(needed)
    }

    fn sort_out(&self, needed: &mut Needed, record: &Record<'_>, home: Home, is_old: bool) {
        match record.kind {
            Kind::Small | Kind::Large | Kind::Delete => {
                let weight = self.index.weigh(record.key, record.sequence, home);
                let Some(weight) = weight else { return };
                match record.kind {
                    Kind::Delete if is_old => {
                        needed.forgotten.push((record.key.into(), record.sequence));
                    }
                    Kind::Delete => needed.kept.push(Moving::of(record, home, 0)),
                    _ => needed.items.push(Moving::of(record, home, weight)),
                }
            }
            Kind::Table => {
                let id = crate::ssd::tables::id_of(record.key).unwrap_or(0);
                if self.accounts().tables.named_at(id, home).is_some() {
                    needed.kept.push(Moving::of(record, home, 0));
                }
            }
            Kind::TableDrop => {
                let id = crate::ssd::tables::id_of(record.key).unwrap_or(0);
                let here = self.accounts().tables.dropped.get(&id).is_some_and(|d| d.home == home);
                if here && is_old {
                    needed.tables_forgotten.push(id);
                } else if here {
                    needed.kept.push(Moving::of(record, home, 0));
                }
            }
            // The headers of later segments say the same.
            Kind::FlushAll | Kind::SegmentFree | Kind::Note => {}
        }
    }

    /// Appends a deletion in the place of each item that has expired; what is left has to move.
    ///
    /// It has the item's own sequence: the executor of a server may have given its next one to a
    /// write of the key that is still to come, and that one must count. Older records of the key
    /// stay hidden as behind any deletion. An item moves where fewer than `reserve` segments would
    /// be left: compaction gives none back, and leaves what checkpoints and migration need. It also
    /// does where the last segment would not have room for `stays` bytes: if deletions took the
    /// room of what has to stay, the segment could not be emptied any more.
    pub fn drop_expired(
        &self,
        items: Vec<Moving>,
        stays: usize,
        reserve: u32,
    ) -> Result<Vec<Moving>> {
        let now_seconds = self.now_seconds.load(Relaxed);
        let mut left = Vec::with_capacity(items.len());
        for moving in items {
            // Notes may have begun one of the last segments: deletions must not fill it.
            let has_room = reserve <= self.writer().log.free_slots();
            let bytes = self.padded(record::bytes_of(moving.key.len(), 0));
            if !has_room
                || !moving.is_worth_dropping(now_seconds)
                || !self.leaves_room([stays, bytes])
            {
                left.push(moving);
                continue;
            }
            match self.append(&deletion(&moving.key, Some(moving.sequence)), reserve) {
                Ok(Some(_)) => self.counters.expired_records.add(1),
                // No room in the log, or in an index in persistent memory.
                Ok(None) | Err(Error::PmFull) => left.push(moving),
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }

    /// Hot and cold; none is hot if beside what is `kept` that would gain nothing.
    fn divide(&self, mut items: Vec<Moving>, kept: &[Moving]) -> (Vec<Moving>, Vec<Moving>) {
        if self.settings.migrates_by() == MigrateBy::Age || items.is_empty() {
            return (Vec::new(), items);
        }
        let weights: u64 = items.iter().map(|item| u64::from(item.weight)).sum();
        let mean = weights.div_ceil(items.len() as u64).max(1);
        let half = items.iter().map(Moving::bytes).sum::<usize>() / 2;
        items.sort_by_key(|item| std::cmp::Reverse(item.weight));
        let mut bytes = 0;
        let hot = items.iter().take_while(|item| {
            bytes += item.bytes();
            mean <= u64::from(item.weight) && bytes <= half
        });
        let hot = hot.count();
        if !self.gains(&[kept, &items[..hot]]) {
            return (Vec::new(), items);
        }
        let cold = items.split_off(hot);
        (items, cold)
    }

    /// Appends a record of the tier's own; returns its sequence and place.
    pub fn append_note(&self, kind: Kind, key: &[u8], body: &[u8]) -> Result<(u64, Home)> {
        let meta = ItemMeta::default();
        let draft = Draft { kind, sequence: None, meta, key, body, what: None };
        let (ticket, appended) = self.append(&draft, 0)?.ok_or(Error::PmFull)?;
        Ok((ticket.sequence, Home::log(appended.at)))
    }

    /// As [`Shared::write_tables`], but that items on the SSD are evicted for it if need be.
    fn write_tables_with_room(
        &self,
        turn: &mut Maintenance,
        mut cold: Vec<Moving>,
    ) -> std::result::Result<(), (Error, Vec<Moving>)> {
        if let Err(error) = self.evict_ahead(turn) {
            return Err((error, cold));
        }
        loop {
            let full = match self.write_tables(cold) {
                // Who writes comes before who copies.
                Err((Error::SsdFull { .. }, back))
                    if !self.evicts() && self.give_up_cut_for_room() =>
                {
                    cold = back;
                    continue;
                }
                Err((full @ Error::SsdFull { .. }, back)) if self.evicts() => {
                    cold = back;
                    full
                }
                written => return written,
            };
            match self.evict_for_tables(turn) {
                Ok(Step::Looked | Step::Dropped) => {}
                Ok(Step::Nothing | Step::NoLog) => return Err((full, cold)),
                Err(error) => return Err((error, cold)),
            }
        }
    }

    /// Writes cold records as sort tables and points the index at them. Gives the records back if
    /// there is no room.
    pub fn write_tables(
        &self,
        mut cold: Vec<Moving>,
    ) -> std::result::Result<(), (Error, Vec<Moving>)> {
        cold.sort_by(|one, other| one.key.cmp(&other.key));
        // Nothing is written unless there is room for all.
        let mut cut: Vec<(Extent, Vec<u8>, Vec<usize>)> = Vec::new();
        let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
        // Nobody else names tables: maintenance is one at a time.
        let first_id = self.accounts().tables.last_id + 1;
        let mut run_bytes = self.run_bytes();
        for (index, moving) in cold.iter().enumerate() {
            offsets.push(bytes.len());
            let life = life_of_table(self.store_id, first_id + cut.len() as u64);
            record::encode(&mut bytes, &moving.record(), Stamp { life, durable_to: 0 });
            bytes.resize(bytes.len().next_multiple_of(TABLE_ALIGN), 0);
            let next = cold.get(index + 1).map(|next| next.bytes().next_multiple_of(TABLE_ALIGN));
            let is_full = self.settings.table_bytes <= bytes.len();
            if is_full || next.is_none_or(|next| run_bytes < bytes.len() + next) {
                match self.space.take_run(bytes.len().div_ceil(BLOCK_BYTES) as u32) {
                    Ok(extent) => {
                        cut.push((extent, std::mem::take(&mut bytes), std::mem::take(&mut offsets)))
                    }
                    Err(error) => {
                        cut.iter().for_each(|(extent, ..)| self.space.free(&[*extent]));
                        return Err((error, cold));
                    }
                }
                run_bytes = self.run_bytes();
            }
        }
        // Nor without room in the log for what names them: of short free runs there are many.
        if let Err(error) = self.must_have_room_for_names(cut.len()) {
            cut.iter().for_each(|(extent, ..)| self.space.free(&[*extent]));
            return Err((error, cold));
        }
        let mut tables: Vec<(Table, Vec<usize>)> = Vec::new();
        let mut nanos = 0;
        for (extent, bytes, offsets) in &mut cut {
            match self.clocked(&mut nanos, || self.write_table(*extent, bytes)) {
                Ok(table) => tables.push((table, std::mem::take(offsets))),
                Err(error) => {
                    cut.iter().for_each(|(extent, ..)| self.space.free(&[*extent]));
                    return Err((error, cold));
                }
            }
        }
        if tables.is_empty() {
            return Ok(());
        }
        let sync = || self.ssd.sync(Barrier::Table);
        let timed = || self.counters.flushes.timed(Medium::Ssd, sync);
        let synced = doing("sync sort tables", self.clocked(&mut nanos, timed));
        let written: u64 = tables.iter().map(|(table, _)| u64::from(table.bytes)).sum();
        if 0 < nanos {
            let count = tables.len() as u64;
            self.split.table_took(written / count, nanos / count);
        }
        match synced.and_then(|()| self.name_tables(&tables, &cold)) {
            Ok(()) => {
                self.writer().tabled_bytes += written;
                Ok(())
            }
            Err(error) => {
                // Whether they are durable is unknown.
                self.writer().failed = Some(error.to_string());
                Err((error, cold))
            }
        }
    }

    fn write_table(&self, extent: Extent, bytes: &[u8]) -> Result<Table> {
        let mut blocks = Blocks::zeroed(bytes.len());
        blocks.as_mut()[..bytes.len()].copy_from_slice(bytes);
        let home = Home::log(0); // until it is named
        let table = Table {
            id: 0,
            extent,
            bytes: bytes.len() as u32,
            sequence: 0,
            home,
            live: 0,
            is_damaged: false,
        };
        doing("write a sort table", self.ssd.write_all(table.start(), blocks.as_slice()))?;
        self.counters.ssd_bytes.add(blocks.as_slice().len() as u64);
        self.moved(blocks.as_slice().len() as u64);
        Ok(table)
    }

    /// Names tables in the log and points the index at their records, which are `cold` in order.
    fn name_tables(&self, tables: &[(Table, Vec<usize>)], cold: &[Moving]) -> Result<()> {
        let first_id = self.accounts().tables.last_id + 1;
        let mut cold = cold.iter();
        for (id, (table, offsets)) in (first_id..).zip(tables) {
            let mut table = *table;
            table.id = id;
            if self.index.fair().is_some() {
                let moved = offsets.iter().zip(&mut cold).map(|(offset, moving)| {
                    self.counters.migrated_records.add(1);
                    moving.moved(Home::ssd(table.start() + *offset as u64))
                });
                let (key, body, meta) = (key_of(id), table.body(), ItemMeta::default());
                let (kind, what) = (Kind::Table, None);
                let draft = Draft { kind, sequence: None, meta, key: &key, body: &body, what };
                self.name_later(&draft, table, moved.collect())?;
                continue;
            }
            let named = self.append_note(Kind::Table, &key_of(table.id), &table.body())?;
            (table.sequence, table.home) = named;
            self.credit(table.home, NAMED_RECORD_BYTES);
            self.add_table(table);
            for (offset, moving) in offsets.iter().zip(&mut cold) {
                self.relocate(moving, Home::ssd(table.start() + *offset as u64));
                self.counters.migrated_records.add(1);
            }
        }
        Ok(())
    }
}
