//! Counts the space that the entries of an index hold: blocks of the SSD, bytes of segments and
//! sort tables.
//!
//! Counted entry by entry, as they come and go: while an index is filled, when each entry is at
//! hand; and, where the index is in persistent memory, for as long as it is used, so that a
//! checkpoint has the count and a start need not look at the entries (docs/disk-format.md,
//! "Checkpoint of a store with a tree").

use crate::index::entry::{Entry, Home, What};
use crate::log::segment::Shape;
use crate::media::bytes::{Put, Reader};
use crate::ssd::pointer::Extent;
use crate::ssd::space::Claims;
use crate::ssd::tables::{Table, Tables};
use std::collections::BTreeMap;

/// The count.
#[derive(Clone)]
pub struct Ledger {
    /// How the log is cut.
    pub shape: Shape,
    /// Of the SSD.
    pub blocks: u64,
    /// Blocks of large values.
    pub claims: Claims,
    /// Blocks that more than one value claims, and how many more: a checkpoint may have a value as
    /// it was before, and the next, found later, where the blocks of that one were.
    contested: BTreeMap<u32, u32>,
    /// Bytes of current records of items by slot.
    pub segments: Vec<u64>,
    /// Sort tables, and what is current in each.
    pub tables: Tables,
    /// Items that can be read.
    pub items: u64,
    /// No entry has a lower sequence.
    pub lowest_sequence: u64,
    /// Nothing was met that only a walk can judge.
    even: bool,
}

/// Each block of an extent by itself.
fn blocks_of(extent: Extent) -> impl Iterator<Item = Extent> {
    (0..extent.blocks).map(move |block| Extent { start: extent.start + block, blocks: 1 })
}

impl Ledger {
    /// Of nothing yet, on an SSD of so many blocks, the first of which are the tier's own.
    pub fn new(shape: Shape, first_block: u32, blocks: u64) -> Ledger {
        Ledger {
            shape,
            blocks,
            claims: Claims::new(first_block, blocks),
            contested: BTreeMap::new(),
            segments: vec![0; shape.segments as usize],
            tables: Tables::default(),
            items: 0,
            lowest_sequence: u64::MAX,
            even: true,
        }
    }

    /// Whether all that was counted goes together; else only a walk can tell.
    pub fn is_even(&self) -> bool {
        self.even && self.contested.is_empty()
    }

    /// Only a walk can tell.
    pub fn give_up(&mut self) {
        self.even = false;
    }

    /// A sort table that entries may be in.
    pub fn table(&mut self, table: Table) {
        let (start, end) = (table.start(), table.start() + u64::from(table.bytes));
        // Where one lies where another lay that has entries yet, whose an entry is cannot be told
        // by its place.
        self.even &= self.tables.take_within(start, end).iter().all(|gone| gone.live == 0);
        self.tables.add(Table { live: 0, ..table });
    }

    /// A sort table that is no more.
    pub fn table_gone(&mut self, id: u64) {
        self.even &= self.tables.remove(id).is_some_and(|table| table.live == 0);
    }

    /// Every entry below this sequence is gone.
    pub fn flushed(&mut self, sequence: u64) {
        self.lowest_sequence = self.lowest_sequence.max(sequence);
    }

    /// An entry is in the index now.
    pub fn add(&mut self, entry: &Entry) {
        match self.live(entry.home) {
            Some(live) => *live += u64::from(entry.record_bytes),
            None => self.even = false,
        }
        self.add_but_record(entry);
    }

    /// The same of one whose record's bytes somebody else counts.
    pub fn add_but_record(&mut self, entry: &Entry) {
        self.lowest_sequence = self.lowest_sequence.min(entry.sequence);
        self.items += u64::from(entry.is_item());
        match &entry.what {
            What::Large(pointer) => pointer.extents.iter().for_each(|extent| self.claim(*extent)),
            What::Lost => self.even = false,
            What::Small { .. } | What::Tombstone => {}
        }
    }

    /// An entry is there no more.
    pub fn remove(&mut self, entry: &Entry) {
        self.items = self.items.saturating_sub(u64::from(entry.is_item()));
        let bytes = u64::from(entry.record_bytes);
        match self.live(entry.home).and_then(|live| Some((live.checked_sub(bytes)?, live))) {
            Some((left, live)) => *live = left,
            None => self.even = false,
        }
        match &entry.what {
            What::Large(pointer) => {
                pointer.extents.iter().for_each(|extent| self.release(*extent));
            }
            // Nobody knows what it held.
            What::Lost => self.even = false,
            What::Small { .. } | What::Tombstone => {}
        }
    }

    fn claim(&mut self, extent: Extent) {
        if self.claims.claim(&[extent]) {
            return;
        }
        // Where only a walk can tell, nothing has to be remembered for the end.
        for block in blocks_of(extent).filter(|_| self.even) {
            if !self.claims.claim(&[block]) {
                *self.contested.entry(block.start).or_default() += 1;
            }
        }
    }

    fn release(&mut self, extent: Extent) {
        if self.contested.is_empty() {
            self.even &= self.claims.release(&[extent]);
            return;
        }
        for block in blocks_of(extent) {
            match self.contested.get_mut(&block.start) {
                Some(1) => drop(self.contested.remove(&block.start)),
                Some(more) => *more -= 1,
                None => self.even &= self.claims.release(&[block]),
            }
        }
    }

    fn live(&mut self, home: Home) -> Option<&mut u64> {
        match home.is_ssd() {
            true => self.tables.at(home.at()).map(|table| &mut table.live),
            false => self.segments.get_mut(self.shape.slot_of(home.at()) as usize),
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.is_even()));
        out.put_u64(self.items);
        out.put_u64(self.lowest_sequence);
        put_words(out, &self.segments);
        let tables: Vec<u64> = self.tables.iter().flat_map(|t| [t.id, t.live]).collect();
        put_words(out, &tables);
        put_words(out, self.claims.words());
    }

    /// Reads one with these sort tables into one that is empty; `None` if it is none of this shape.
    pub fn decode(mut self, reader: &mut Reader<'_>, tables: &[Table]) -> Option<Ledger> {
        let even = reader.u8()? == 1;
        (self.items, self.lowest_sequence) = (reader.u64()?, reader.u64()?);
        let segments = words(reader)?;
        let lives = words(reader)?;
        let claimed = words(reader)?;
        let fits = segments.len() == self.segments.len();
        if !fits || !self.claims.restore(&claimed) {
            return None;
        }
        self.segments = segments;
        for table in tables {
            self.table(*table);
            let mut lives = lives.chunks_exact(2).filter(|pair| pair[0] == table.id);
            match (lives.next(), self.tables.at(table.start())) {
                (Some(pair), Some(table)) => table.live = pair[1],
                _ => self.even = false,
            }
        }
        self.even &= even;
        Some(self)
    }
}

/// Appends words behind their number.
pub fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    out.put_u64(words.len() as u64);
    words.iter().for_each(|word| out.put_u64(*word));
}

/// Reads words behind their number.
pub fn words(reader: &mut Reader<'_>) -> Option<Vec<u64>> {
    let count = reader.u64()? as usize;
    let fits = count <= reader.len() / size_of::<u64>();
    (0..if fits { count } else { 0 }).map(|_| reader.u64()).collect::<Option<_>>().filter(|_| fits)
}
