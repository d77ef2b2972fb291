//! The sort tables on the SSD: batches of cold records, sorted by key, each in one run of blocks
//! (SplitKV, "sort table"; docs/disk-format.md, "Sort table").
//!
//! A table is named by a record in the log; so is its end. It knows which tables there are and how
//! much of each is current, not what is in them.

use crate::index::entry::Home;
use crate::log::record::{self, Flaw, Kind, Record, bytes_of};
use crate::log::segment::life_of;
use crate::media::bytes::{Blocks, Put, Reader};
use crate::media::disk::Disk;
use crate::ssd::pointer::Extent;
use crate::types::{BLOCK_BYTES, Result, doing};
use std::collections::BTreeMap;

/// Records in a table begin at multiples of this.
pub const TABLE_ALIGN: usize = 8;

/// Who looks at all tables has the accounts for no more than so many at a time.
pub const SHOWN_AT_ONCE: usize = 1024;

/// The length of the record that names a table.
pub const NAMED_RECORD_BYTES: u32 = bytes_of(8, 12) as u32;
/// The length of the record that says that a table is gone.
pub const DROPPED_RECORD_BYTES: u32 = bytes_of(8, 0) as u32;

/// Whether a ninth of so many bytes is not current: what a compaction of the whole store rewrites.
pub const fn is_sparse(live: u64, bytes: u64) -> bool {
    live * 9 < bytes * 8
}

// Padding alone makes no table sparse, or the smallest records would be rewritten again and again.
const _: () = {
    let least = bytes_of(1, 0);
    assert!(!is_sparse(least as u64, least.next_multiple_of(TABLE_ALIGN) as u64));
};

/// One table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its number, never used again.
    pub id: u64,
    /// Where it lies.
    pub extent: Extent,
    /// How much of that is records.
    pub bytes: u32,
    /// Of the record that names it.
    pub sequence: u64,
    /// Where that record is, in the log.
    pub home: Home,
    /// Bytes of current records in it.
    pub live: u64,
    /// It could not be read whole since the start.
    pub is_damaged: bool,
}

impl Table {
    /// Whether compaction can do something about it.
    pub fn may_be_merged(&self) -> bool {
        !self.is_damaged || self.live == 0
    }

    /// Where it begins on the SSD.
    pub fn start(&self) -> u64 {
        u64::from(self.extent.start) * BLOCK_BYTES as u64
    }

    /// The body of the record that names it.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u32(self.extent.start);
        body.put_u32(self.extent.blocks);
        body.put_u32(self.bytes);
        body
    }

    /// From that record, on an SSD of so many blocks.
    pub fn of_record(
        key: &[u8],
        body: &[u8],
        sequence: u64,
        home: Home,
        blocks: u64,
    ) -> Option<Table> {
        let id = id_of(key)?;
        let mut reader = Reader::new(body);
        let extent = Extent { start: reader.u32()?, blocks: reader.u32()? };
        let bytes = reader.u32()?;
        let fits = u64::from(extent.start) + u64::from(extent.blocks) <= blocks
            && bytes as usize <= extent.blocks as usize * BLOCK_BYTES
            && 0 < extent.blocks;
        let (live, is_damaged) = (0, false);
        fits.then_some(Table { id, extent, bytes, sequence, home, live, is_damaged })
    }
}

/// A table's number as a record's key.
pub fn key_of(id: u64) -> [u8; 8] {
    id.to_le_bytes()
}

/// A table's number from a record's key.
pub fn id_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(key.try_into().ok()?))
}

/// A record that says that a table is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Of the record.
    pub sequence: u64,
    /// Where it is, in the log.
    pub home: Home,
}

/// All tables.
#[derive(Debug, Default, Clone)]
pub struct Tables {
    /// By where they begin.
    by_start: BTreeMap<u64, Table>,
    /// Where each begins, by its number: there may be a million.
    starts: BTreeMap<u64, u64>,
    /// Bytes of all of them.
    bytes: u64,
    /// Tables that are gone and must be remembered as such.
    pub dropped: BTreeMap<u64, Dropped>,
    /// The highest number given.
    pub last_id: u64,
}

impl Tables {
    /// Adds one.
    pub fn add(&mut self, table: Table) {
        self.last_id = self.last_id.max(table.id);
        self.starts.insert(table.id, table.start());
        self.bytes += u64::from(table.bytes);
        if let Some(before) = self.by_start.insert(table.start(), table) {
            self.bytes -= u64::from(before.bytes);
            if before.id != table.id {
                self.starts.remove(&before.id);
            }
        }
    }

    /// Takes one out.
    pub fn remove(&mut self, id: u64) -> Option<Table> {
        let start = self.starts.remove(&id)?;
        let table = self.by_start.remove(&start)?;
        self.bytes -= u64::from(table.bytes);
        Some(table)
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The table of this number.
    pub fn get(&self, id: u64) -> Option<&Table> {
        self.by_start.get(self.starts.get(&id)?)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Table> {
        self.by_start.get_mut(self.starts.get(&id)?)
    }

    /// Notes that one cannot be read whole.
    pub fn leave_as_it_is(&mut self, id: u64) {
        if let Some(table) = self.get_mut(id) {
            table.is_damaged = true;
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Table> {
        self.by_start.values()
    }

    /// Some of them, from the first on that begins there or behind.
    pub fn some_from(&self, start: u64) -> impl Iterator<Item = &Table> {
        self.by_start.range(start..).map(|(_, table)| table).take(SHOWN_AT_ONCE)
    }

    /// Some of those that are gone, from this number on.
    pub fn some_dropped_from(&self, id: u64) -> impl Iterator<Item = (u64, Dropped)> {
        self.dropped.range(id..).map(|(id, dropped)| (*id, *dropped)).take(SHOWN_AT_ONCE)
    }

    /// The table that holds a byte of the SSD.
    pub fn at(&mut self, at: u64) -> Option<&mut Table> {
        let (_, table) = self.by_start.range_mut(..=at).next_back()?;
        (at < table.start() + u64::from(table.bytes)).then_some(table)
    }

    /// Takes out those that have bytes from `start` to `end`.
    pub fn take_within(&mut self, start: u64, end: u64) -> Vec<Table> {
        let before = self.by_start.range(..end).rev();
        let within = before.take_while(|(_, table)| start < table.start() + u64::from(table.bytes));
        let ids: Vec<u64> = within.map(|(_, table)| table.id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The table whose record is at `home`.
    pub fn named_at(&mut self, id: u64, home: Home) -> Option<&mut Table> {
        self.get_mut(id).filter(|table| table.home == home)
    }
}

/// All records of a table.
pub fn read_table(ssd: &dyn Disk, table: &Table) -> Result<Vec<u8>> {
    let Extent { blocks, .. } = table.extent;
    let mut bytes = Blocks::zeroed(blocks as usize * BLOCK_BYTES);
    doing("read a sort table", ssd.read_all(table.start(), bytes.as_mut()))?;
    Ok(bytes.as_slice()[..table.bytes as usize].to_vec())
}

/// A number that only records of this table carry. The store's id is random, so no client can put
/// one into a value, where a search behind a damaged record would find it.
pub fn life_of_table(store_id: u64, id: u64) -> u32 {
    const NO_SEGMENT: u64 = 1 << 63; // no generation is that high
    life_of(store_id, NO_SEGMENT | id)
}

/// What a table holds at a place.
pub enum Found<'a> {
    /// A whole record.
    Record(Home, Record<'a>),
    /// A damaged one, and what it claims to be, if the next begins where it claims to end.
    Damaged(Home, Option<(Kind, u64, &'a [u8])>),
}

/// Calls `visit` with each record of a table in order. Damage is passed over to the next whole
/// record.
pub fn for_each_record<'a>(
    bytes: &'a [u8],
    table: &Table,
    store_id: u64,
    mut visit: impl FnMut(Found<'a>),
) {
    let life = life_of_table(store_id, table.id);
    let whole = |at: usize| match record::decode(&bytes[at..]) {
        Ok((record, stamp)) if stamp.life == life => Ok(record),
        Ok(_) => Err(Flaw::Nothing),
        Err(flaw) => Err(flaw),
    };
    let mut at = 0;
    while at < bytes.len() {
        let home = Home::ssd(table.start() + at as u64);
        let flaw = match whole(at) {
            Ok(record) => {
                visit(Found::Record(home, record));
                at += record.bytes().next_multiple_of(TABLE_ALIGN);
                continue;
            }
            Err(flaw) => flaw,
        };
        let later = (at + TABLE_ALIGN..bytes.len()).step_by(TABLE_ALIGN);
        let next = later.into_iter().find(|&at| whole(at).is_ok()).unwrap_or(bytes.len());
        let claim = match flaw {
            Flaw::Damaged { bytes: claimed }
                if at + claimed.next_multiple_of(TABLE_ALIGN) == next =>
            {
                record::claim(&bytes[at..])
            }
            _ => None,
        };
        visit(Found::Damaged(home, claim));
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: u64, start: u32) -> Table {
        let (extent, home) = (Extent { start, blocks: 4 }, Home::log(id * 64));
        Table { id, extent, bytes: 16_000, sequence: id, home, live: 7, is_damaged: false }
    }

    #[test]
    fn a_table_is_found_by_its_number_as_by_its_place() {
        let mut tables = Tables::default();
        for (id, start) in [(3, 100), (1, 200), (2, 300)] {
            tables.add(table(id, start));
        }
        assert_eq!((tables.get(1), tables.bytes()), (Some(&table(1, 200)), 3 * 16_000));
        assert_eq!(tables.at(table(1, 200).start() + 15_999).map(|found| found.id), Some(1));
        assert!(tables.named_at(1, Home::log(64)).is_some());
        assert!(tables.named_at(1, Home::log(128)).is_none() && tables.get(4).is_none());
        tables.leave_as_it_is(1);
        assert!(tables.get(1).is_some_and(|table| table.is_damaged));
        assert_eq!(tables.remove(3), Some(table(3, 100)));
        assert_eq!((tables.remove(3), tables.get(3)), (None, None));
        // One lies where another lay, and one across the ends of two.
        tables.add(table(5, 200));
        assert_eq!((tables.get(1), tables.get(5)), (None, Some(&table(5, 200))));
        assert_eq!(tables.bytes(), 2 * 16_000);
        let within = tables.take_within(table(5, 200).start() + 1, table(2, 300).start() + 1);
        assert_eq!(within, [table(2, 300), table(5, 200)]);
        assert_eq!((tables.iter().count(), tables.get(5), tables.last_id), (0, None, 5));
        assert_eq!(tables.bytes(), 0);
    }
}
