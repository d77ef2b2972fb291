//! Compaction: making room among the sort tables, by merging the sparsest into new ones.
//!
//! A table with a damaged record stays while anything of it is current, since what can be read of
//! it is served. It is not read again for this until the next start. What has expired is dropped as
//! by migration ([`crate::background::migrate`]).

use crate::background::moving::Moving;
use crate::index::Home;
use crate::log::Appended;
use crate::log::append::{Draft, Ticket};
use crate::log::record::Kind;
use crate::media::disk::Barrier;
use crate::ssd::tables::{
    DROPPED_RECORD_BYTES, Dropped, Found, NAMED_RECORD_BYTES, Table, for_each_record, is_sparse,
    key_of, read_table,
};
use crate::store::{Maintenance, RESERVE_PUT, Shared};
use crate::types::{Error, ItemMeta, Result};

/// Tables of which nothing is current that are dropped at a time.
pub const DROPS: usize = 64;

impl Shared {
    /// Whether a quarter of what sort tables hold is no longer current.
    pub fn tables_are_sparse(&self) -> bool {
        let (mut live, mut bytes, mut empty) = (0, 0, false);
        self.each_table(|table| {
            if table.may_be_merged() {
                live += table.live;
                bytes += u64::from(table.bytes);
                empty |= table.live == 0;
            }
        });
        empty || live * 4 < bytes * 3
    }

    /// Merges the sparsest tables into new ones; false if that would gain nothing. Where nothing is
    /// evicted, those of which nothing is current go first, by themselves: they need no room, and
    /// make some.
    pub fn compact_tables(&self, turn: &mut Maintenance) -> Result<bool> {
        let (mut nanos, before) = (0, self.tabled_bytes());
        let done = self.clocked(&mut nanos, || self.compact_them(turn))?;
        if done {
            self.split.compaction_took(before.saturating_sub(self.tabled_bytes()), nanos);
        }
        Ok(done)
    }

    /// Bytes of all sort tables.
    pub fn tabled_bytes(&self) -> u64 {
        self.accounts().tables.bytes()
    }

    fn compact_them(&self, turn: &mut Maintenance) -> Result<bool> {
        if !self.evicts() && self.drop_empty_tables(turn)? {
            return Ok(true);
        }
        let mut tables =
            self.tables_that(|table| table.may_be_merged() && (self.evicts() || table.live != 0));
        tables.sort_by_key(|table| table.live * 1000 / u64::from(table.bytes.max(1)));
        let mut live = 0;
        let chosen = tables.iter().take_while(|table| {
            let dense = !is_sparse(table.live, u64::from(table.bytes));
            live += table.live;
            !dense && (table.live == 0 || live <= 2 * self.settings.table_bytes as u64)
        });
        let count = chosen.count();
        tables.truncate(count);
        self.merge(turn, tables)
    }

    /// Frees some of the tables of which nothing is current; false if there are none. What says so
    /// in the log must leave room there, so they are few at a time.
    pub fn drop_empty_tables(&self, turn: &mut Maintenance) -> Result<bool> {
        let mut empty = self.tables_that(|table| table.live == 0);
        empty.truncate(DROPS);
        self.merge(turn, empty)
    }

    /// The tables of which this is so.
    pub fn tables_that(&self, wanted: impl Fn(&Table) -> bool) -> Vec<Table> {
        let mut found = Vec::new();
        self.each_table(|table| found.extend(wanted(table).then_some(*table)));
        found
    }

    /// Shows all sort tables, some at a time: there may be a million, and every write needs the
    /// accounts, which `visit` must not take.
    pub fn each_table(&self, mut visit: impl FnMut(&Table)) {
        let mut next = Some(0);
        while let Some(from) = next.take() {
            for table in self.accounts().tables.some_from(from) {
                visit(table);
                next = Some(table.start() + 1);
            }
            std::thread::yield_now();
        }
    }

    /// Merges these into new ones, and frees them; false if all of them are damaged.
    pub fn merge(&self, _turn: &mut Maintenance, tables: Vec<Table>) -> Result<bool> {
        let (mut moving, mut emptied) = (Vec::new(), Vec::new());
        for table in tables {
            let (mut current, mut is_whole) = (Vec::new(), true);
            // One that cannot be read stays while anything of it is current; who asks for an item
            // of it is told why.
            let Ok(bytes) = read_table(&*self.ssd, &table) else {
                match table.live {
                    0 => emptied.push(table),
                    _ => self.accounts().tables.leave_as_it_is(table.id),
                }
                continue;
            };
            for_each_record(&bytes, &table, self.store_id, |found| match found {
                Found::Record(home, record) => {
                    if self.index.weigh(record.key, record.sequence, home).is_some() {
                        current.push(Moving::of(&record, home, 0));
                    }
                }
                Found::Damaged(..) => is_whole = false,
            });
            if is_whole || table.live == 0 {
                moving.append(&mut current);
                emptied.push(table);
            } else {
                self.accounts().tables.leave_as_it_is(table.id);
            }
        }
        if emptied.is_empty() {
            return Ok(false);
        }
        let moving = self.drop_expired(moving, 0, RESERVE_PUT)?;
        let written = match self.write_tables(moving) {
            // Room that is made for all comes before who copies. Where items are evicted, others
            // go for it.
            Err((Error::SsdFull { .. }, back)) if !self.evicts() && self.give_up_cut_for_room() => {
                self.write_tables(back)
            }
            written => written,
        };
        written.map_err(|(error, _)| error)?;
        self.drop_tables(&emptied)?;
        Ok(true)
    }

    /// Frees these, once the log says so. In the last segment it says so of all at once: where
    /// groups are padded, each that somebody else leads meanwhile would take a block of it.
    /// Elsewhere others write between: once everything was deleted there may be a million tables.
    pub fn drop_tables(&self, emptied: &[Table]) -> Result<()> {
        let mut writer = self.writer();
        if !self.has_room_for_drops(&writer, emptied.len()) {
            return Err(Error::PmFull);
        }
        let mut dropped = Vec::new();
        for table in emptied {
            let (kind, meta, key) = (Kind::TableDrop, ItemMeta::default(), key_of(table.id));
            let draft = Draft { kind, sequence: None, meta, key: &key, body: &[], what: None };
            let appended;
            (writer, appended) = self.append_on(writer, &draft)?;
            let (Ticket { sequence, .. }, Appended { at, .. }) = appended;
            dropped.push((table.id, Dropped { sequence, home: Home::log(at) }));
            if 0 < writer.log.free_slots() {
                drop(writer);
                writer = self.writer();
            }
        }
        drop(writer);
        self.commit(Barrier::Move)?;
        for (id, note) in dropped {
            self.credit(note.home, DROPPED_RECORD_BYTES);
            let removed = {
                let mut accounts = self.accounts();
                accounts.tables.dropped.insert(id, note);
                accounts.tables.remove(id)
            };
            if let Some(table) = removed {
                self.counters.tally.tables.take(1);
                self.counters.tally.table_live_bytes.take(table.live);
                self.debit(table.home, NAMED_RECORD_BYTES);
                self.index.fair().into_iter().for_each(|fair| fair.table_gone(id));
                let end = table.start() + u64::from(table.bytes);
                self.save_held(Home::ssd(table.start())..Home::ssd(end));
                self.space.free(&[table.extent]);
            }
            self.counters.tables_freed.add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Home;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;
    use crate::recovery::recover::Media;
    use crate::ssd::pointer::Extent;
    use crate::ssd::tables::{SHOWN_AT_ONCE, Table};
    use crate::tier::Tier;
    use crate::types::{ItemMeta, Settings};
    use std::sync::Arc;

    const SEGMENT_BYTES: u32 = 16 << 10;

    #[test]
    fn all_of_many_tables_are_looked_at_some_at_a_time() {
        let power = Power::new(u64::MAX);
        let region_bytes = 10 * SEGMENT_BYTES as usize;
        let region = Arc::new(SimRegion::new(region_bytes, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let settings =
            Settings { segment_bytes: SEGMENT_BYTES, background: false, ..Settings::default() };
        let (tier, _) = Tier::open(Media { region, ssd }, settings, 1, &mut |_, _| {}).unwrap();
        let shared = tier.shared();
        let count = 3 * SHOWN_AT_ONCE as u64 + 5;
        for id in 1..=count {
            let (extent, home) = (Extent { start: id as u32, blocks: 1 }, Home::log(0));
            let live = if id < count { 4000 } else { 0 };
            let (bytes, sequence, is_damaged) = (4000, id, false);
            shared.add_table(Table { id, extent, bytes, sequence, home, live, is_damaged });
        }
        assert!(shared.tables_are_sparse(), "the last one is empty");
        assert_eq!(shared.tabled_bytes(), count * 4000);
        let all: Vec<u64> = shared.tables_that(|_| true).iter().map(|table| table.id).collect();
        assert!(all.into_iter().eq(1..=count));
        assert_eq!(shared.accounts().tables.some_from(0).count(), SHOWN_AT_ONCE);
    }

    #[test]
    fn a_dropped_table_that_was_forgotten_is_not_remembered_by_a_start() {
        let power = Power::new(u64::MAX);
        let region_bytes = 10 * SEGMENT_BYTES as usize;
        let region = Arc::new(SimRegion::new(region_bytes, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let media = Media { region, ssd };
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES,
            table_bytes: 8 << 10,
            background: false,
            ..Settings::default()
        };
        let open = || Tier::open(media.clone(), settings, 1, &mut |_, _| {}).unwrap().0;
        let put_all = |tier: &Tier, first: u64| {
            for number in first..first + 60 {
                tier.put(&number.to_be_bytes(), &[7; 700], ItemMeta::default()).unwrap();
            }
        };
        let dropped = |tier: &Tier| tier.shared().accounts().tables.dropped.clone();
        let tier = open();
        put_all(&tier, 0);
        while tier.migrate().unwrap() {}
        // Nothing of the tables is current any more.
        put_all(&tier, 0);
        let shared = tier.shared();
        assert!(shared.drop_empty_tables(&mut shared.maintenance()).unwrap());
        assert!(!dropped(&tier).is_empty());
        // Both checkpoints know that they are gone, and nothing needs the records that say so.
        for _ in 0..2 {
            tier.checkpoint().unwrap();
        }
        for first in [100, 200, 300] {
            put_all(&tier, first);
            while tier.migrate().unwrap() {}
        }
        assert!(dropped(&tier).is_empty(), "they are forgotten");
        drop(tier);
        let tier = open();
        assert!(dropped(&tier).is_empty(), "their segments have begun anew");
        put_all(&tier, 400);
    }
}
