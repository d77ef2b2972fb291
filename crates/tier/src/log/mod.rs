//! The log: segments of records in persistent memory, appended to at one place.
//!
//! It departs from a log per worker: one log makes the largest groups, and on the `wal` backend a
//! group costs one write of the device whoever is in it. Appending is a copy under a lock.
//!
//! It knows where records are; does not know which of them are current.
pub(crate) mod append;
pub(crate) mod attempt;
pub(crate) mod choose;
pub(crate) mod group;
pub(crate) mod record;
pub(crate) mod segment;

use crate::log::record::{Record, Stamp};
use crate::log::segment::{Header, Listed, Shape, life_of};
use crate::media::disk::Write;
use crate::media::pm::{Region, Written};
use crate::types::{BLOCK_BYTES, Error, LINE_BYTES, Position, Result, doing};
use std::io::{self, IoSlice};
use std::sync::Arc;

/// A slot of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Nothing in it is needed.
    Free,
    /// Appended to.
    Active,
    /// Full, or left behind at a restart.
    Sealed {
        /// Of this life.
        generation: u64,
        /// Where its records end.
        end: u32,
    },
}

struct Active {
    slot: u32,
    generation: u64,
    life: u32,
    /// Where the next record goes.
    tail: u32,
    /// Up to here everything is durable.
    durable: u32,
    /// Up to here everything is in a group.
    grouped: u32,
    /// The last record's stamp says that the segment was durable up to here.
    stamped: u32,
}

/// Where a record went.
#[derive(Debug, Clone, Copy)]
pub struct Appended {
    /// Its offset in the region.
    pub at: u64,
    /// Its length without padding.
    pub record_bytes: u32,
    /// It is durable when the log is up to here.
    pub end: Position,
}

/// A range on its way to durability.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    slot: u32,
    from: u32,
    to: u32,
    generation: u64,
    stamped: u32,
}

impl Group {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        (self.to - self.from).into()
    }

    /// Where it ends.
    pub fn end(&self) -> Position {
        Position { generation: self.generation, offset: self.to }
    }
}

/// Why an append went nowhere.
#[derive(Debug)]
pub enum Refused {
    /// The active segment is full.
    Roll,
    /// The medium refused, or the record is too long.
    Error(Error),
}

/// Puts a header at the front of its slot, and what it lists beyond that at the end. Whoever calls
/// flushes the front; both are durable behind the next fence.
pub fn put_header(
    region: &dyn Region,
    shape: &Shape,
    slot: u32,
    header: &Header,
) -> io::Result<()> {
    let bytes = header.encode(shape);
    let (front, rest) = bytes.split_at(shape.header_bytes as usize);
    region.append(shape.start(slot), &mut [IoSlice::new(front)])?;
    if rest.is_empty() {
        return Ok(());
    }
    let at = shape.start(slot + 1) - rest.len() as u64;
    region.append(at, &mut [IoSlice::new(rest)])?;
    region.flush(at, rest.len() as u64)
}

/// The log. Its owner locks it.
pub struct Log {
    region: Arc<dyn Region>,
    shape: Shape,
    store_id: u64,
    slots: Vec<Slot>,
    /// How many of them are free.
    free_slots: u32,
    active: Option<Active>,
    generation: u64,
    flush_sequence: u64,
    superblock: u64,
    appended_bytes: u64,
}

impl Log {
    /// With these slots in use and the highest generation so far. Appends begin in a fresh segment.
    pub fn new(
        region: Arc<dyn Region>,
        shape: Shape,
        store_id: u64,
        slots: Vec<Slot>,
        generation: u64,
        flush_sequence: u64,
    ) -> Log {
        Log {
            region,
            shape,
            store_id,
            free_slots: slots.iter().filter(|slot| **slot == Slot::Free).count() as u32,
            slots,
            active: None,
            generation,
            flush_sequence,
            superblock: 0,
            appended_bytes: 0,
        }
    }

    /// Goes on in the newest segment, behind its last record: all in front is durable when anything
    /// is appended, and nothing is behind it then ([`crate::recovery::ending`]).
    pub fn go_on(&mut self) {
        let Some((slot, Position { generation, offset })) = self.newest_sealed() else { return };
        self.slots[slot as usize] = Slot::Active;
        let life = life_of(self.store_id, generation);
        let (tail, durable, grouped) = (offset, offset, offset);
        self.active = Some(Active { slot, generation, life, tail, durable, grouped, stamped: 0 });
    }

    /// Everything with a lower sequence was flushed.
    pub fn flush_sequence(&self) -> u64 {
        self.flush_sequence
    }

    /// Sets it, for the headers to come.
    pub fn set_flush_sequence(&mut self, sequence: u64) {
        self.flush_sequence = self.flush_sequence.max(sequence);
    }

    /// A superblock of this number is durable: headers to come say so, so that an SSD that is older
    /// than the log is known as such.
    pub fn set_superblock(&mut self, number: u64) {
        self.superblock = number;
    }

    /// Bytes appended since the log was opened.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// How many slots are free.
    pub fn free_slots(&self) -> u32 {
        self.free_slots
    }

    /// Whether padded records of these lengths find room one behind the other, in segments that are
    /// free. Where there is one, what is left of the active one is not counted: deletions may take
    /// that meanwhile.
    pub fn has_room_for(&self, mut records: impl Iterator<Item = u32>) -> bool {
        let end = self.shape.records_end();
        let mut free_slots = self.free_slots;
        let last = self.active.as_ref().filter(|_| free_slots == 0);
        let mut room = last.map_or(0, |active| end - active.tail);
        records.all(|bytes| {
            if room < bytes && 0 < free_slots {
                (room, free_slots) = (end - self.shape.header_bytes, free_slots - 1);
            }
            let rest = room.checked_sub(bytes);
            room = rest.unwrap_or(room);
            rest.is_some()
        })
    }

    /// The sealed slot of the highest generation, and where its records end.
    pub fn newest_sealed(&self) -> Option<(u32, Position)> {
        let sealed = (0..).zip(&self.slots).filter_map(|(slot, state)| match *state {
            Slot::Sealed { generation, end } => Some((Position { generation, offset: end }, slot)),
            _ => None,
        });
        sealed.max().map(|(end, slot)| (slot, end))
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Where the next record would go.
    pub fn tail(&self) -> Position {
        self.active.as_ref().map_or(Position { generation: self.generation + 1, offset: 0 }, |a| {
            Position { generation: a.generation, offset: a.tail }
        })
    }

    /// Up to where everything is durable.
    pub fn durable(&self) -> Position {
        self.active
            .as_ref()
            .map_or(self.tail(), |a| Position { generation: a.generation, offset: a.durable })
    }

    /// The position of an offset in the region, if its slot is in use.
    pub fn position_of(&self, at: u64) -> Option<Position> {
        let slot = self.shape.slot_of(at);
        let offset = (at - self.shape.start(slot)) as u32;
        let generation = match self.slots.get(slot as usize)? {
            Slot::Free => return None,
            Slot::Active => self.active.as_ref()?.generation,
            Slot::Sealed { generation, .. } => *generation,
        };
        Some(Position { generation, offset })
    }

    /// Appends a record; it is durable after a group that covers it.
    pub fn append(&mut self, record: &Record<'_>) -> std::result::Result<Appended, Refused> {
        let record_bytes = record.bytes();
        if self.shape.record_bytes_max() < record_bytes {
            return Err(Refused::Error(Error::ValueBytes(record.body.len())));
        }
        let padded = record_bytes.next_multiple_of(LINE_BYTES) as u32;
        let active = self.active.as_mut().ok_or(Refused::Roll)?;
        if self.shape.records_end() - active.tail < padded {
            return Err(Refused::Roll);
        }
        let stamp = Stamp { life: active.life, durable_to: active.durable };
        let (header, commit) = record::frame(record, stamp);
        // The padding is written too: bytes of an earlier life would otherwise share the line.
        let padding = &[0u8; LINE_BYTES][..padded as usize - record_bytes];
        let parts = [&header[..], record.key, record.body, &commit[..], padding];
        let at = self.shape.start(active.slot) + u64::from(active.tail);
        let appended = self.region.append(at, &mut parts.map(IoSlice::new));
        let written = doing("append to the log", appended);
        written.map_err(Refused::Error)?;
        active.tail += padded;
        active.stamped = active.durable;
        self.appended_bytes += u64::from(padded);
        let end = Position { generation: active.generation, offset: active.tail };
        Ok(Appended { at, record_bytes: record_bytes as u32, end })
    }

    /// What is free of the block in which what is in no group yet ends; none if nothing is.
    pub fn gap(&self) -> Option<usize> {
        let active = self.active.as_ref().filter(|active| active.grouped < active.tail)?;
        let gap = (active.tail as usize).next_multiple_of(BLOCK_BYTES) - active.tail as usize;
        (0 < gap).then_some(gap)
    }

    /// How much is in no group yet.
    pub fn loose_bytes(&self) -> u32 {
        self.active.as_ref().map_or(0, |active| active.tail - active.grouped)
    }

    /// What is in no group yet, as one.
    pub fn take_group(&mut self) -> Option<Group> {
        let active = self.active.as_mut()?;
        let from = std::mem::replace(&mut active.grouped, active.tail);
        (from < active.tail).then_some(Group {
            slot: active.slot,
            from,
            to: active.tail,
            generation: active.generation,
            stamped: active.stamped,
        })
    }

    /// Notes that a group is durable. What comes before the position that is returned will be known
    /// as durable by whoever reads the log.
    pub fn settle(&mut self, group: Group) -> Position {
        if let Some(active) = &mut self.active
            && active.generation == group.generation
        {
            active.durable = active.durable.max(group.to);
        }
        Position { generation: group.generation, offset: group.stamped }
    }

    /// Seals the active segment, all of which must be durable, and begins the next unless fewer
    /// than `reserve` slots would then be free. False if there was no room.
    pub fn roll(&mut self, reserve: u32) -> Result<bool> {
        if self.free_slots() <= reserve {
            return Ok(false);
        }
        if let Some(active) = self.active.take() {
            assert_eq!(active.durable, active.tail, "a segment is durable before it is sealed");
            self.slots[active.slot as usize] =
                Slot::Sealed { generation: active.generation, end: active.tail };
        }
        let free = self.slots.iter().position(|slot| *slot == Slot::Free);
        let slot = free.expect("counted above") as u32;
        self.generation += 1;
        let listed = (0..).zip(&self.slots).filter_map(|(slot, state)| match *state {
            Slot::Sealed { generation, end } => Some(Listed { slot, end, generation }),
            _ => None,
        });
        let header = Header {
            store_id: self.store_id,
            generation: self.generation,
            flush_sequence: self.flush_sequence,
            superblock: self.superblock,
            listed: listed.collect(),
        };
        doing("begin a segment", put_header(&*self.region, &self.shape, slot, &header))?;
        self.slots[slot as usize] = Slot::Active;
        self.free_slots -= 1;
        // The header becomes durable with the first group.
        self.active = Some(Active {
            slot,
            generation: self.generation,
            life: life_of(self.store_id, self.generation),
            tail: self.shape.header_bytes,
            durable: 0,
            grouped: 0,
            stamped: 0,
        });
        Ok(true)
    }

    /// Lets a sealed slot be used again.
    pub fn release(&mut self, slot: u32) {
        assert!(matches!(self.slots[slot as usize], Slot::Sealed { .. }), "only what is sealed");
        self.slots[slot as usize] = Slot::Free;
        self.free_slots += 1;
    }

    /// Ends the records before `at` for good. Where nothing is behind them the block is not written
    /// again: what is in it is served from now on.
    pub fn cut(region: &dyn Region, at: u64) -> Result<()> {
        let mut line = [0; LINE_BYTES];
        doing("read the end of the log", region.read(at, &mut line))?;
        match line == [0; LINE_BYTES] {
            true => Ok(()),
            false => doing("end the log", region.write(at, &[0; LINE_BYTES])),
        }
    }

    /// Writes a group and its values, for a sync of both. Needs no lock: what is appended meanwhile
    /// is the next group's.
    pub fn write(
        region: &dyn Region,
        shape: &Shape,
        group: Group,
        values: &[Write<'_>],
    ) -> Result<Written> {
        let at = shape.start(group.slot) + u64::from(group.from);
        doing("flush the log", region.flush(at, u64::from(group.to - group.from)))?;
        doing("write a group", region.write_with(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::Kind;
    use crate::media::disk::sim::{Faults, Power};
    use crate::media::pm::sim::SimRegion;
    use crate::types::ItemMeta;

    const STORE_ID: u64 = 7;

    #[test]
    fn a_record_in_the_log_is_what_it_is_encoded_as_and_zeros() {
        let shape = Shape::of(6 * 8192, 8192).unwrap();
        let earlier = vec![0xff; 6 * 8192];
        let region = SimRegion::from_image(earlier, Power::new(u64::MAX), Faults::default());
        let region = Arc::new(region);
        let slots = vec![Slot::Free; shape.segments as usize];
        let mut log = Log::new(region.clone(), shape, STORE_ID, slots, 0, 0);
        assert!(log.roll(0).unwrap());
        let stamp = Stamp { life: life_of(STORE_ID, 1), durable_to: 0 };
        let (keys, bodies) = ([b'k'; 9], [b'b'; 24]);
        for body_bytes in 0..bodies.len() {
            let (key, body) = (&keys[..1 + body_bytes % 9], &bodies[..body_bytes]);
            let (kind, sequence, meta) = (Kind::Small, body_bytes as u64, ItemMeta::default());
            let record = Record { kind, sequence, meta, key, body };
            let appended = log.append(&record).unwrap();
            let mut encoded = Vec::new();
            record::encode(&mut encoded, &record, stamp);
            assert_eq!(appended.record_bytes as usize, encoded.len());
            encoded.resize(encoded.len().next_multiple_of(LINE_BYTES), 0);
            let mut there = vec![1; encoded.len()];
            region.read(appended.at, &mut there).unwrap();
            assert_eq!(there, encoded, "a body of {body_bytes}");
        }
    }
}
