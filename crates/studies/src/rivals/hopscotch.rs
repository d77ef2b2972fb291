//! The server's side of FaRM-KV's index as HERD has it (§5.1.2): an item stands in one of the six
//! slots that begin at its key's home, its value in the slot or, for values of many lengths, in an
//! extent.
//!
//! To make room where none is, the next free slot is brought nearer by moving items of
//! neighbourhoods that reach it; each is written to its new slot before the old one is overwritten,
//! and all moves are known before the first. Values in slots are overwritten where they stand:
//! whoever READs that meanwhile sees a wrong checksum.
//!
//! It departs from FaRM-KV, which chains blocks behind neighbourhoods that are full: here that is
//! an index without room, and to be half empty does not suffice.

use super::cuckoo::Full;
use super::extents::{Extent, Extents};
use super::opened::Opened;
use super::record::{self, NEIGHBOURHOOD, Shape, Slot, Slots, Value};
use std::io;
use std::ops::Range;

/// Slots that are looked at for a free one, at most.
const REACH: usize = 4096;

#[derive(Debug)]
enum Held {
    Here(Vec<u8>),
    There { extent: Extent, bytes: usize, checksum: u64 },
}

#[derive(Debug)]
struct Item {
    key: Box<[u8]>,
    home: usize,
    held: Held,
}

#[derive(Debug, Default)]
struct Seat {
    version: u32,
    item: Option<Item>,
}

/// The index and its extents.
#[derive(Debug)]
pub struct Hopscotch {
    slots: Slots,
    seats: Vec<Seat>,
    items: usize,
    extents: Extents,
    memory: Opened,
    room: Vec<u8>,
}

impl Hopscotch {
    /// An empty index of such slots, with so many bytes of extents.
    pub fn new(slots: Slots, extent_bytes: usize) -> io::Result<Hopscotch> {
        let slots = Slots { homes: slots.homes.max(1), ..slots };
        let shape = Shape::Hopscotch(slots);
        let memory = Opened::new(shape.index_bytes().saturating_add(extent_bytes))?;
        let extents = Extents::new(shape.index_bytes(), memory.bytes());
        let seats: Vec<Seat> = (0..slots.count()).map(|_| Seat::default()).collect();
        let mut index = Hopscotch { slots, seats, items: 0, extents, memory, room: Vec::new() };
        (0..slots.count()).for_each(|seat| index.publish(seat));
        Ok(index)
    }

    /// What clients must know.
    pub fn shape(&self) -> Shape {
        Shape::Hopscotch(self.slots)
    }

    /// What they READ.
    pub fn memory(&mut self) -> &mut Opened {
        &mut self.memory
    }

    /// Items in it.
    pub fn items(&self) -> usize {
        self.items
    }

    fn neighbourhood(&self, key: &[u8]) -> Range<usize> {
        let home = record::home(key, self.slots.homes);
        home..home + NEIGHBOURHOOD
    }

    fn key(&self, seat: usize) -> Option<&[u8]> {
        self.seats[seat].item.as_ref().map(|item| &*item.key)
    }

    /// Give a key a value; neither is longer than a slot has room for. Nothing has changed if there
    /// is no room.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let mut around = self.neighbourhood(key);
        let home = around.start;
        let (seat, moves) = match around.find(|seat| self.key(*seat) == Some(key)) {
            Some(seat) => (seat, Vec::new()),
            None => self
                .moves(home)
                .ok_or(Full::Index { items: self.items, places: self.seats.len() })?,
        };
        let held = self.hold(value)?;
        for (from, to) in moves {
            let item = self.seats[from].item.take();
            self.seat(to, item);
        }
        let old = self.seats[seat].item.take();
        self.seat(seat, Some(Item { key: key.into(), home, held }));
        match old {
            Some(Item { held: Held::There { extent, .. }, .. }) => self.extents.give(extent),
            Some(_) => {}
            None => self.items += 1,
        }
        Ok(())
    }

    /// Where a value is to be.
    fn hold(&mut self, value: &[u8]) -> Result<Held, Full> {
        if self.slots.value_bytes_max.is_some() {
            return Ok(Held::Here(value.to_vec()));
        }
        let bytes = value.len();
        let extent = self.extents.take(bytes).ok_or(Full::Extents { bytes })?;
        self.memory.write(extent.at(), value);
        Ok(Held::There { extent, bytes, checksum: record::checksum(&[value]) })
    }

    /// A slot of the neighbourhood that is free after these moves, which go from the last slot
    /// concerned to the first.
    fn moves(&self, home: usize) -> Option<(usize, Vec<(usize, usize)>)> {
        let end = self.seats.len().min(home + REACH);
        let mut free = (home..end).find(|seat| self.seats[*seat].item.is_none())?;
        let mut moves = Vec::new();
        while free >= home + NEIGHBOURHOOD {
            let mut nearer = free + 1 - NEIGHBOURHOOD..free;
            // None of these has been moved: all that were stood at `free` or behind it.
            let from = nearer.find(|seat| {
                let item = self.seats[*seat].item.as_ref();
                item.is_some_and(|item| item.home + NEIGHBOURHOOD > free)
            })?;
            moves.push((from, free));
            free = from;
        }
        Some((free, moves))
    }

    fn seat(&mut self, seat: usize, item: Option<Item>) {
        self.seats[seat].item = item;
        self.seats[seat].version = self.seats[seat].version.wrapping_add(1);
        self.publish(seat);
    }

    fn publish(&mut self, seat: usize) {
        let Seat { version, item } = &self.seats[seat];
        let empty = match self.slots.value_bytes_max {
            Some(_) => Value::Here(&[]),
            None => Value::There { unit: 0, bytes: 0, checksum: 0 },
        };
        let (key, value) = match item {
            None => (&[][..], empty),
            Some(Item { key, held: Held::Here(value), .. }) => (&**key, Value::Here(value)),
            Some(Item { key, held: Held::There { extent, bytes, checksum }, .. }) => {
                let there = Value::There { unit: extent.unit, bytes: *bytes, checksum: *checksum };
                (&**key, there)
            }
        };
        self.room.clear();
        self.slots.write(&Slot { key, value, version: *version }, &mut self.room);
        self.memory.write(seat * self.slots.slot_bytes(), &self.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Slots = Slots { homes: 256, key_bytes_max: 4, value_bytes_max: Some(8) };
    const FAR: Slots = Slots { homes: 256, key_bytes_max: 4, value_bytes_max: None };

    fn key(number: u32) -> [u8; 4] {
        number.to_le_bytes()
    }

    /// Everything that was put is in its neighbourhood, once, and nothing else is.
    fn check(index: &Hopscotch, keys: u32) {
        for number in 0..keys {
            let mut places = index.neighbourhood(&key(number));
            assert!(places.any(|seat| index.key(seat) == Some(&key(number))), "{number} of {keys}");
        }
        let taken = index.seats.iter().filter(|seat| seat.item.is_some()).count();
        assert_eq!((taken, index.items()), (keys as usize, keys as usize));
    }

    #[test]
    fn keys_find_a_place_until_a_neighbourhood_is_full_and_then_none_is_lost() {
        for slots in [NEAR, FAR] {
            let mut index = Hopscotch::new(slots, 1 << 16).expect("memory");
            let mut keys = 0;
            let mut moved = 0;
            let full = loop {
                let home = record::home(&key(keys), slots.homes);
                moved += index.moves(home).map_or(0, |(_, moves)| moves.len());
                match index.put(&key(keys), b"value") {
                    Ok(()) => keys += 1,
                    Err(full) => break full,
                }
                check(&index, keys);
            };
            assert!(keys > 64 && moved > 0, "{keys} keys, {moved} moves");
            assert_eq!(full, Full::Index { items: keys as usize, places: 261 });
            check(&index, keys);
            for number in 0..keys {
                assert_eq!(index.put(&key(number), b"other"), Ok(()), "what is there may change");
            }
            check(&index, keys);
        }
    }

    #[test]
    fn no_room_for_a_value_changes_nothing() {
        let mut index = Hopscotch::new(FAR, 0).expect("memory");
        let mut keys = 0;
        while index.extents.take(1024).is_some() {}
        while index.put(&key(keys), &[0; 512]).is_ok() {
            keys += 1;
            assert!(keys < 10);
        }
        assert_eq!(index.put(b"late", &[0; 1024]), Err(Full::Extents { bytes: 1024 }));
        check(&index, keys);
    }
}
