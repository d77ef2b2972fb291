//! This is the server's side of Pilaf's index: 3-1 cuckoo hashing, a bucket with one item in one of
//! three places (HERD §5.1.1), and key and value in an extent.
//!
//! A PUT writes a new extent, then the bucket, and gives the old extent back: whoever READs finds
//! the old item, the new one, or bytes whose checksum is wrong. An item that moves to make room is
//! written to its new place before the old is overwritten, and the way to a free bucket is known
//! before anything moves; so no key is out of the index while others come in.
//!
//! What the server goes by it keeps for itself; the memory that clients READ it only writes.
//! Departs from Pilaf: an index without room says so, and is not made larger under its readers.

use super::extents::{Extent, Extents};
use super::opened::Opened;
use super::record::{self, BUCKET_BYTES, Bucket, PLACES, Shape};
use std::collections::HashSet;
use std::fmt;
use std::io;

/// Buckets that are looked at for a way to a free one, at most.
const SEARCH_MAX: usize = 4096;

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// No place for one more item.
    Index {
        /// Items in it.
        items: usize,
        /// Places in it.
        places: usize,
    },
    /// No memory for so many bytes.
    Extents {
        /// Of key and value.
        bytes: usize,
    },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Full::Index { items, places } => write!(
                f,
                "the index has no place for this key: {items} of {places} are taken; make it larger"
            ),
            Full::Extents { bytes } => {
                write!(f, "no extent of {bytes} bytes is left; make the memory larger")
            }
        }
    }
}

#[derive(Debug)]
struct Item {
    key: Box<[u8]>,
    value_bytes: usize,
    extent: Extent,
    checksum: u64,
}

#[derive(Debug, Default)]
struct Seat {
    version: u32,
    item: Option<Item>,
}

/// The index and its extents.
#[derive(Debug)]
pub struct Cuckoo {
    seats: Vec<Seat>,
    items: usize,
    extents: Extents,
    memory: Opened,
    room: Vec<u8>,
}

impl Cuckoo {
    /// An empty index of so many buckets, with so many bytes of extents.
    pub fn new(buckets: usize, extent_bytes: usize) -> io::Result<Cuckoo> {
        let buckets = buckets.max(1);
        let shape = Shape::Cuckoo { buckets };
        let mut memory = Opened::new(shape.index_bytes().saturating_add(extent_bytes))?;
        let extents = Extents::new(shape.index_bytes(), memory.bytes());
        for bucket in 0..buckets {
            memory.write(bucket * BUCKET_BYTES, &Bucket::default().to_bytes());
        }
        let seats = (0..buckets).map(|_| Seat::default()).collect();
        Ok(Cuckoo { seats, items: 0, extents, memory, room: Vec::new() })
    }

    /// What clients must know.
    pub fn shape(&self) -> Shape {
        Shape::Cuckoo { buckets: self.seats.len() }
    }

    /// What they READ.
    pub fn memory(&mut self) -> &mut Opened {
        &mut self.memory
    }

    /// Items in it.
    pub fn items(&self) -> usize {
        self.items
    }

    fn places(&self, key: &[u8]) -> [usize; PLACES] {
        std::array::from_fn(|place| record::place(key, place, self.seats.len()))
    }

    fn key(&self, bucket: usize) -> Option<&[u8]> {
        self.seats[bucket].item.as_ref().map(|item| &*item.key)
    }

    /// Give a key a value. Nothing has changed if there is no room.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let known = self.places(key).into_iter().find(|bucket| self.key(*bucket) == Some(key));
        let way = match known {
            Some(bucket) => vec![bucket],
            None => {
                self.way(key).ok_or(Full::Index { items: self.items, places: self.seats.len() })?
            }
        };
        let bytes = key.len() + value.len();
        let extent = self.extents.take(bytes).ok_or(Full::Extents { bytes })?;
        self.room.clear();
        self.room.extend_from_slice(key);
        self.room.extend_from_slice(value);
        self.memory.write(extent.at(), &self.room);
        let checksum = record::checksum(&[&self.room]);
        for step in way.windows(2).rev() {
            let item = self.seats[step[0]].item.take();
            self.seat(step[1], item);
        }
        let item = Item { key: key.into(), value_bytes: value.len(), extent, checksum };
        let old = self.seats[way[0]].item.take();
        self.seat(way[0], Some(item));
        match old {
            Some(old) => self.extents.give(old.extent),
            None => self.items += 1,
        }
        Ok(())
    }

    /// Buckets from one of the key's places to a free one, each item of which may move to the next.
    /// The shortest such way.
    fn way(&self, key: &[u8]) -> Option<Vec<usize>> {
        let mut met: HashSet<usize> = HashSet::new();
        let mut looked: Vec<(usize, Option<usize>)> = Vec::new();
        let mut meet = |buckets: [usize; PLACES], from, looked: &mut Vec<_>| {
            looked.extend(buckets.into_iter().filter(|b| met.insert(*b)).map(|b| (b, from)));
        };
        meet(self.places(key), None, &mut looked);
        let mut number = 0;
        while number < looked.len().min(SEARCH_MAX) {
            let (bucket, _) = looked[number];
            match self.key(bucket) {
                None => return Some(trace(&looked, number)),
                Some(other) => meet(self.places(other), Some(number), &mut looked),
            }
            number += 1;
        }
        None
    }

    fn seat(&mut self, bucket: usize, item: Option<Item>) {
        let seat = &mut self.seats[bucket];
        seat.version = seat.version.wrapping_add(1);
        let version = seat.version;
        let record = match &item {
            None => Bucket { version, ..Bucket::default() },
            Some(Item { key, value_bytes, extent, checksum }) => Bucket {
                unit: extent.unit,
                key_bytes: key.len(),
                value_bytes: *value_bytes,
                tag: record::tag(key),
                version,
                extent_checksum: *checksum,
            },
        };
        seat.item = item;
        self.memory.write(bucket * BUCKET_BYTES, &record.to_bytes());
    }
}

/// The buckets that led to number `last`, first to last.
fn trace(looked: &[(usize, Option<usize>)], last: usize) -> Vec<usize> {
    let mut way = vec![looked[last].0];
    let mut from = looked[last].1;
    while let Some(number) = from {
        way.push(looked[number].0);
        from = looked[number].1;
    }
    way.reverse();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> [u8; 4] {
        number.to_le_bytes()
    }

    /// Everything that was put is in one of its places, once, and nothing else is.
    fn check(index: &Cuckoo, keys: u32) {
        for number in 0..keys {
            let mut places = index.places(&key(number)).to_vec();
            places.sort_unstable();
            places.dedup();
            let found = places.iter().filter(|place| index.key(**place) == Some(&key(number)));
            assert_eq!(found.count(), 1, "key {number} of {keys}");
        }
        assert_eq!(index.seats.iter().filter(|seat| seat.item.is_some()).count(), index.items());
    }

    #[test]
    fn keys_find_a_place_until_the_index_is_full_and_then_none_is_lost() {
        let mut index = Cuckoo::new(512, 512 * 24).expect("memory");
        let mut keys = 0;
        let full = loop {
            match index.put(&key(keys), b"value") {
                Ok(()) => keys += 1,
                Err(full) => break full,
            }
            check(&index, keys);
        };
        // 3-1 cuckoo hashing is full at 0.918 of its buckets.
        assert!((440..512).contains(&keys), "{keys} of 512");
        assert_eq!(full, Full::Index { items: keys as usize, places: 512 });
        assert!(full.to_string().contains("make it larger"), "{full}");
        check(&index, keys);
        for number in 0..keys {
            assert_eq!(index.put(&key(number), b"other"), Ok(()), "what is there may change");
        }
        check(&index, keys);
    }

    #[test]
    fn no_room_for_a_value_changes_nothing() {
        let mut index = Cuckoo::new(64, 0).expect("memory");
        let room = index.memory.bytes() - index.shape().index_bytes();
        let value = [1; 60];
        let fit = room / 64;
        assert!(fit < 40);
        for number in 0..fit as u32 {
            assert_eq!(index.put(&key(number), &value), Ok(()));
        }
        let full = index.put(b"late", &value).expect_err("there is no extent");
        assert_eq!(full, Full::Extents { bytes: 64 });
        assert!(full.to_string().contains("no extent of 64 bytes"), "{full}");
        check(&index, fit as u32);
    }

    #[test]
    fn one_bucket_holds_one_item() {
        let mut index = Cuckoo::new(0, 64).expect("memory");
        assert_eq!(index.put(b"a", b"1"), Ok(()));
        assert_eq!(index.put(b"b", b"2"), Err(Full::Index { items: 1, places: 1 }));
        assert_eq!(index.put(b"a", b"3"), Ok(()));
    }
}
