//! Whether the log has room for the records that emptying a segment, or merging sort tables,
//! appends. The record that frees a segment always needs room. Without it no segment would ever
//! be free again, and nothing could be appended any more.
//!
//! In the last free segment the tier alone appends, and what deletes everything. But anybody may
//! lead a group there, at an interval for example, and where groups are padded that takes a block.
//! So what is appended piece by piece is counted with that, and the rest is appended at once
//! ([`crate::background::again`]).

use crate::background::futile::Vain;
use crate::background::moving::{Moving, lines_of};
use crate::log::append::Draft;
use crate::log::record::{Kind, bytes_of};
use crate::media::disk::Barrier;
use crate::ssd::tables::{DROPPED_RECORD_BYTES, NAMED_RECORD_BYTES};
use crate::stats::Counters;
use crate::store::{Maintenance, RESERVE_PUT, Shared, Writer};
use crate::types::{BLOCK_BYTES, Error, ItemMeta, LINE_BYTES, Result};
use std::iter::repeat_n;
use std::sync::atomic::Ordering::Relaxed;

/// What [`Maintenance::vain`] has, in this order.
const EMPTYING: usize = 0;
const MERGING: usize = 1;

impl Shared {
    /// Makes room for a record that may leave no fewer than `reserve` segments. Not for a put where
    /// that was in vain and nothing has changed since: each would write the whole log anew. As time
    /// goes on, items expire.
    pub fn seek_room(&self, reserve: u32) -> Result<()> {
        let Counters { user_bytes, tables_freed, evicted_blocks, .. } = &self.counters;
        let now_seconds = u64::from(self.now_seconds.load(Relaxed));
        let written = user_bytes.get() + tables_freed.get() + evicted_blocks.get();
        let changed = 1 + written + now_seconds;
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

    /// Empties a segment for maintenance; false too where that is in vain.
    pub fn empty_unless_in_vain(&self) -> Result<bool> {
        self.unless_in_vain(EMPTYING, |turn| self.empty_segment(turn))
    }

    /// Merges sort tables for maintenance; false too where that is in vain.
    pub fn merge_unless_in_vain(&self) -> Result<bool> {
        self.unless_in_vain(MERGING, |turn| self.compact_tables(turn))
    }

    /// Does not do what found no room before, where nothing has changed since that may give some.
    /// Maintenance comes fifty times a second while somebody writes, and to find no room takes a
    /// walk over one segment or two, or over some sort tables.
    fn unless_in_vain(
        &self,
        kind: usize,
        work: impl FnOnce(&mut Maintenance) -> Result<bool>,
    ) -> Result<bool> {
        let mut turn = self.maintenance();
        let now = Vain {
            appended_bytes: self.writer().log.appended_bytes(),
            free_blocks: self.space.free_blocks(),
            now_seconds: self.now_seconds.load(Relaxed),
            superblock: turn.generation,
        };
        // To who is told no time no second ever passes: any write may have made some.
        let least = match now.now_seconds {
            0 => 1,
            _ => u64::from(self.shape.segment_bytes) / 4,
        };
        let is_as_before = |before: Vain| {
            now.appended_bytes < before.appended_bytes + least
                && now.free_blocks <= before.free_blocks
                && now.now_seconds == before.now_seconds
                && now.superblock == before.superblock
        };
        if turn.vain[kind].is_some_and(is_as_before) {
            return Ok(false);
        }
        let done = work(&mut turn);
        let is_full = matches!(done, Err(Error::SsdFull { .. } | Error::PmFull));
        // Where items are evicted, a turn that fails has made some room all the same.
        turn.vain[kind] = (is_full && !self.evicts()).then_some(now);
        done
    }

    /// Whether the log has room for records of these lengths and one more that frees a segment.
    pub fn leaves_room(&self, records: impl IntoIterator<Item = usize>) -> bool {
        self.leaves_room_in(&self.writer(), records)
    }

    /// The same for who holds the writer.
    pub fn leaves_room_in(
        &self,
        writer: &Writer,
        records: impl IntoIterator<Item = usize>,
    ) -> bool {
        let freed = bytes_of(0, size_of::<u64>());
        let padded = |bytes: usize| bytes.next_multiple_of(LINE_BYTES) as u32;
        writer.log.has_room_for(records.into_iter().chain([freed]).map(padded))
    }

    /// What a record of this length takes at most if somebody may lead a group that ends with it:
    /// where groups are padded, all but a line of a block more.
    pub fn padded(&self, bytes: usize) -> usize {
        bytes + if self.settings.pad_groups { BLOCK_BYTES - LINE_BYTES } else { 0 }
    }

    /// Refuses to empty a segment if what that appends might fill the last free one. It appends one
    /// record for each sort table that the `cold` go to, and the records of `again` once more.
    /// Before these others may lead groups; then all is appended at once.
    pub fn must_have_room(&self, again: &[&[Moving]], cold: &[Moving]) -> Result<()> {
        let names = repeat_n(self.padded(NAMED_RECORD_BYTES as usize), self.tables_of(cold));
        let again = again.iter().copied().flatten().map(Moving::bytes);
        self.room_or_full(names.chain([self.padded(0)]).chain(again))
    }

    /// What of the last segment emptying one needs, of which these are kept, whatever becomes of
    /// its items.
    pub fn stays(&self, kept: &[Moving], items: &[Moving]) -> usize {
        let name = self.padded(NAMED_RECORD_BYTES as usize).next_multiple_of(LINE_BYTES);
        lines_of(&[kept]) as usize + self.tables_of(items) * name
    }

    /// How many sort tables these go to at most.
    fn tables_of(&self, cold: &[Moving]) -> usize {
        // Any two neighbouring tables are longer together than the longest one may be: else they
        // were one.
        let most = self.settings.table_bytes.max(BLOCK_BYTES);
        let longest = self.run_bytes().clamp(BLOCK_BYTES, most) as u64;
        (1 + 2 * lines_of(&[cold]) / longest).min(cold.len() as u64) as usize
    }

    /// Refuses if there is no room for what names so many sort tables.
    pub fn must_have_room_for_names(&self, tables: usize) -> Result<()> {
        self.room_or_full(repeat_n(self.padded(NAMED_RECORD_BYTES as usize), tables))
    }

    /// Whether there is room for what says that so many sort tables are gone, as one group.
    pub fn has_room_for_drops(&self, writer: &Writer, tables: usize) -> bool {
        let drops = repeat_n(DROPPED_RECORD_BYTES as usize, tables);
        self.leaves_room_in(writer, drops.chain([self.padded(0)]))
    }

    /// Makes free what only waits for its group, or for a later one to vouch for that; false if
    /// nothing does. Leaves so many segments free, or fails.
    ///
    /// Nothing becomes free too early, however few segments that leaves: a group frees what is in
    /// front of its offset 36, which was durable when its last record was appended. What `reserve`
    /// says is whose room the notes take.
    pub fn free_what_waits(&self, reserve: u32) -> Result<bool> {
        if self.writer().waiting.is_empty() {
            // What replaced a value may be in no group yet, or in one that is under way.
            self.commit(Barrier::Group)?;
            if self.writer().waiting.is_empty() {
                return Ok(false);
            }
        }
        // The first may still be appended before the group of what waits is durable.
        for _ in 0..2 {
            let (kind, meta) = (Kind::Note, ItemMeta::default());
            let note = Draft { kind, sequence: None, meta, key: &[], body: &[], what: None };
            self.append(&note, reserve)?.ok_or(Error::PmFull)?;
            self.commit(Barrier::Group)?;
        }
        Ok(true)
    }

    /// The same for migration, which finds no room on the SSD: where the log is full nobody else
    /// may be able to append anything. False too where the log would then have less room than a
    /// turn that gains a quarter takes.
    pub fn free_for_tables(&self) -> Result<bool> {
        let note = self.padded(LINE_BYTES);
        let turn = self.shape.records_end() / 4 * 3;
        match self.leaves_room([note, note, turn as usize]) {
            true => self.free_what_waits(0),
            false => Ok(false),
        }
    }

    /// Whether the index may have deletions that a checkpoint makes superfluous.
    pub fn may_have_tombstones(&self) -> bool {
        self.index.counted().is_none_or(|counts| 0 < counts.tombstones)
    }

    /// Whether something was appended since the older checkpoint. Migration forgets deletions in
    /// front of that, so that it may forget more behind another one.
    pub fn may_forget_more(&self) -> bool {
        let turn = self.maintenance();
        turn.checkpoints[1].position < self.writer().log.durable()
    }

    /// Whether all of these, appended again, leave a quarter of a segment free.
    pub fn gains(&self, all: &[&[Moving]]) -> bool {
        lines_of(all) * 4 <= u64::from(self.shape.records_end()) * 3
    }

    fn room_or_full(&self, records: impl Iterator<Item = usize>) -> Result<()> {
        match self.leaves_room(records) {
            true => Ok(()),
            false => Err(Error::PmFull),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::append::deletion;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::recovery::recover::Media;
    use crate::store::{RESERVE_DELETE, RESERVE_FLUSH};
    use crate::tier::Tier;
    use crate::types::Settings;
    use std::ops::Range;
    use std::sync::Arc;

    /// So long that what is current of a full one is more than migration appends again.
    const SEGMENT_BYTES: u32 = 64 << 10;
    /// Records of a line that fill one.
    const LINES: u64 = (SEGMENT_BYTES as u64 - BLOCK_BYTES as u64) / LINE_BYTES as u64;
    /// Keys from here on were never there.
    const OTHERS: u64 = 1 << 32;

    /// A store, and its log of six segments.
    fn open() -> (Tier, Arc<SimRegion>) {
        let power = Power::new(u64::MAX);
        let region_bytes = 6 * SEGMENT_BYTES as usize;
        let region = Arc::new(SimRegion::new(region_bytes, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES,
            migrate_percent: 30,
            background: false,
            ..Settings::default()
        };
        let media = Media { region: region.clone(), ssd };
        (Tier::open(media, settings, 1, &mut |_, _| {}).unwrap().0, region)
    }

    /// Whether the active segment, of which deletions leave two free, has one line left.
    fn is_at_the_last_line(shared: &Shared) -> bool {
        let writer = shared.writer();
        let end = SEGMENT_BYTES - LINE_BYTES as u32;
        writer.log.free_slots() == RESERVE_DELETE && writer.log.tail().offset == end
    }

    /// Appends deletions of these keys, of a line each, which leave so many segments free.
    fn delete(shared: &Shared, keys: Range<u64>, reserve: u32) {
        for number in keys {
            let key = number.to_be_bytes();
            let appended = shared.append(&deletion(&key, None), reserve).unwrap();
            assert!(appended.is_some(), "{number}");
        }
        shared.commit(Barrier::Group).unwrap();
    }

    #[test]
    fn a_segment_of_which_nearly_all_has_to_stay_is_left_until_that_has_changed() {
        const ITEMS: u64 = 80;
        let (tier, _) = open();
        let shared = tier.shared();
        delete(shared, OTHERS..OTHERS + 2 * LINES, RESERVE_DELETE);
        for number in 0..ITEMS {
            tier.put(&number.to_be_bytes(), &[7; 700], ItemMeta::default()).unwrap();
        }
        // It begins the next segment.
        delete(shared, OTHERS + 2 * LINES..OTHERS + 2 * LINES + 1, RESERVE_DELETE);
        let free = || shared.writer().log.free_slots();
        assert_eq!(free(), 2);
        assert!(tier.migrate().unwrap(), "the third oldest has nothing that has to stay");
        let stats = tier.stats();
        assert_eq!((stats.migrated_records, stats.kept_records, free()), (ITEMS, 0, 3));
        let appended = || shared.writer().log.appended_bytes();
        let before = appended();
        assert!(!tier.migrate().unwrap() && !tier.maintain().unwrap());
        assert_eq!(appended(), before, "nothing was written for nothing");
        // Who needs room has checkpoints made, behind which nothing has to stay.
        shared.make_room(4).unwrap();
        assert_eq!((tier.stats().kept_records, free()), (0, 5));
    }

    /// Fills the last segment but for so much, as a turn that came to no end.
    fn leave_256_lines(shared: &Shared) {
        for _ in 0..44 {
            shared.append_note(Kind::Note, &[], &[0; 1024 - bytes_of(0, 0)]).unwrap();
        }
        shared.commit(Barrier::Group).unwrap();
        assert_eq!(shared.writer().log.free_slots(), 0);
    }

    #[test]
    fn where_more_of_a_segment_has_to_stay_than_finds_room_another_is_emptied() {
        const KEPT: u64 = 400;
        /// Of two lines each; they fill two segments with what is kept.
        const ITEMS: u64 = (2 * LINES - KEPT) / 2;
        let (tier, _) = open();
        let shared = tier.shared();
        delete(shared, OTHERS..OTHERS + KEPT, RESERVE_DELETE);
        for number in 0..ITEMS {
            tier.put(&number.to_be_bytes(), &[7; 50], ItemMeta::default()).unwrap();
        }
        delete(shared, OTHERS + KEPT..OTHERS + KEPT + 3 * LINES, RESERVE_FLUSH);
        leave_256_lines(shared);
        assert!(tier.migrate().unwrap());
        let stats = tier.stats();
        assert_eq!((shared.writer().log.free_slots(), stats.kept_records), (1, 0));
        assert_eq!(stats.migrated_records, LINES / 2, "the second oldest has items alone");
    }

    #[test]
    fn deletions_of_what_has_expired_leave_the_last_segment_room_for_what_has_to_stay() {
        const KEPT: u64 = 200;
        /// Of two lines each.
        const ITEMS: u64 = (LINES - KEPT) / 2;
        const EXPIRES: u32 = 100;
        let (tier, _) = open();
        let shared = tier.shared();
        delete(shared, OTHERS..OTHERS + KEPT, RESERVE_DELETE);
        let meta = ItemMeta { expires_at_seconds: EXPIRES, ..ItemMeta::default() };
        for number in 0..ITEMS {
            tier.put(&number.to_be_bytes(), &[7; 50], meta).unwrap();
        }
        // Of the four segments behind that all has to stay.
        delete(shared, OTHERS + KEPT..OTHERS + KEPT + 4 * LINES, RESERVE_FLUSH);
        leave_256_lines(shared);
        tier.tell_time(EXPIRES);
        assert!(tier.migrate().unwrap());
        let stats = tier.stats();
        assert_eq!((shared.writer().log.free_slots(), stats.kept_records), (1, KEPT));
        // More than these would have had room in front of the record that frees the segment.
        assert!(0 < stats.expired_records && stats.expired_records < 56, "{stats:?}");
        assert_eq!(stats.migrated_records + stats.expired_records, ITEMS);
    }

    #[test]
    fn where_there_is_no_room_maintenance_tries_again_once_that_may_have_changed() {
        let (tier, region) = open();
        let put = |number: u64, bytes: usize| {
            tier.put(&number.to_be_bytes(), &vec![7; bytes], ItemMeta::default())
        };
        let large = (0..).find(|number| put(*number, 4096).is_err());
        assert!(large.is_some_and(|large| 200 < large), "{large:?}");
        // They fill the first segment.
        for number in OTHERS..OTHERS + 100 {
            put(number, 700).unwrap();
        }
        assert!(matches!(tier.maintain(), Err(Error::SsdFull { .. })));
        let before = region.read_bytes();
        assert!(!tier.maintain().unwrap());
        assert_eq!(region.read_bytes(), before, "it has looked at the log");
        tier.tell_time(1);
        assert!(tier.maintain().is_err());
        assert!(!tier.maintain().unwrap());
        // A quarter of a segment might have replaced something.
        for number in OTHERS + 100..OTHERS + 122 {
            put(number, 700).unwrap();
        }
        assert!(tier.maintain().is_err());
    }

    #[test]
    fn a_store_that_is_told_no_time_drops_a_table_as_soon_as_all_of_it_was_deleted() {
        const ITEMS: u64 = 60;
        let (tier, _) = open();
        let shared = tier.shared();
        let put = |number: u64, bytes: usize| {
            tier.put(&number.to_be_bytes(), &vec![7; bytes], ItemMeta::default())
        };
        for number in 0..ITEMS {
            put(number, 700).unwrap();
        }
        // It begins the next segment, so that theirs can be emptied.
        delete(shared, OTHERS..OTHERS + LINES - 12 * ITEMS + 1, RESERVE_DELETE);
        assert!(tier.migrate().unwrap());
        let held = (ITEMS..).find(|number| put(*number, 4096).is_err());
        let held = held.expect("an SSD has an end");
        let delete = |number: u64| assert!(tier.delete(&number.to_be_bytes()).unwrap());
        // There is no room to merge what is left of the table.
        (0..ITEMS / 2).for_each(delete);
        assert!(matches!(tier.maintain(), Err(Error::SsdFull { .. })));
        assert!(!tier.maintain().unwrap());
        (ITEMS / 2..ITEMS).for_each(delete);
        assert!(tier.maintain().unwrap() && 0 < tier.stats().tables_freed);
        put(held, 4096).unwrap();
    }

    #[test]
    fn everything_is_deleted_where_one_segment_is_free_and_nothing_can_be_emptied() {
        let (tier, _) = open();
        let shared = tier.shared();
        let put = |number: u64| tier.put(&number.to_be_bytes(), &[7; 4096], ItemMeta::default());
        let held = (0..).find(|number| put(*number).is_err()).expect("an SSD has an end");
        let mut others = OTHERS;
        while !is_at_the_last_line(shared) {
            delete(shared, others..others + 1, RESERVE_DELETE);
            others += 1;
        }
        // The segment behind it is begun by a turn that came to no end, and full of deletions, too.
        delete(shared, others..others + 1, RESERVE_DELETE);
        shared.append_note(Kind::Note, &[], &[]).unwrap();
        delete(shared, others + 1..others + LINES, RESERVE_DELETE);
        assert_eq!(shared.writer().log.free_slots(), 1);
        assert!(tier.delete(&0_u64.to_be_bytes()).is_err());
        tier.flush_all().unwrap();
        assert!(1 < shared.writer().log.free_slots());
        for number in 0..held / 2 {
            put(number).unwrap();
        }
    }

    /// A deletion of a large value is the last record of a full log, so that no later one can say
    /// that its blocks are free, and those are all that the sort tables of a segment can have.
    #[test]
    fn migration_says_itself_that_blocks_are_free_where_nobody_else_can_append() {
        let (tier, _) = open();
        let shared = tier.shared();
        let put = |number: u64, bytes: usize| {
            tier.put(&number.to_be_bytes(), &vec![7; bytes], ItemMeta::default())
        };
        put(0, 64 << 10).unwrap();
        let held = (1..).find(|number| put(*number, 4096).is_err()).expect("an SSD has an end");
        let mut others = OTHERS;
        while !is_at_the_last_line(shared) {
            delete(shared, others..others + 1, RESERVE_DELETE);
            others += 1;
        }
        delete(shared, 0..1, RESERVE_DELETE);
        assert!(!shared.writer().waiting.is_empty() && shared.space.free_blocks() == 0);
        for number in 1..held.min(20) {
            assert!(tier.delete(&number.to_be_bytes()).unwrap(), "{number}");
        }
        assert!(0 < tier.stats().segments_freed && 0 < tier.stats().tables);
    }
}
