//! Finds the places that a pass reads next, in the order of the media and in bounded memory.
//!
//! The index is in the order of keys, and not in that of the media. So a walk of the whole index
//! keeps the places that come first behind what was read: they are the *window*. Once these were
//! read, another walk finds the next window. Windows of a sixth of the places take six walks, each
//! of some tens of nanoseconds an entry.
//!
//! A place has no allocation of its own. It takes 40 bytes of one list, and the keys of a window
//! lie one behind the other in another list, each once. Later windows use the same memory again.

use crate::index::{Entry, Home, What};
use crate::ssd::pointer::{PIECE_BYTES, Pointer};
use crate::types::BLOCK_BYTES;
use laneway_sync::planted::{Bug, is_planted};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// Room for the places that are offered between two calls of `make_room`, about.
const SPARE: usize = 4096;
/// The same for their keys.
const SPARE_KEY_BYTES: usize = 64 << 10;
/// What the keys of a window take for each of its places, at most. Where keys are longer, the
/// window has fewer places.
const KEY_BYTES: usize = 64;
/// What the keys take in all, at most, or twice as much for a moment: their ends have 32 bits.
const KEYS_BYTES_MAX: usize = 1 << 30;

/// Whose bytes they are.
#[derive(Clone, Copy)]
pub enum Owner<'a> {
    /// An item's.
    Item {
        /// Its key.
        key: &'a [u8],
    },
    /// A checkpoint's.
    Checkpoint {
        /// 0 for the newest.
        age: usize,
        /// Where it lies.
        body: &'a Pointer,
    },
}

fn number_of_checkpoint(age: usize) -> u64 {
    u64::MAX - age as u64
}

/// What of its owner it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The record.
    Record,
    /// What of a piece lies in one extent.
    Piece {
        /// Which piece.
        piece: u32,
        /// Which part of it.
        part: u32,
        /// How many parts it has.
        parts: NonZeroU32,
        /// Of the whole piece.
        crc: u32,
    },
}

/// Where something lies, and whose it is: nothing else is there.
pub type Place = (Home, u64);

/// Bytes that are verified together.
#[derive(Clone, Copy)]
pub struct Unit {
    /// Where they begin.
    pub home: Home,
    /// Their owner's: an item's sequence, or a number above all of them.
    pub number: u64,
    /// How many they are.
    pub bytes: u32,
    /// The number of their owner's key; a checkpoint has none.
    key: Option<NonZeroU32>,
    /// What of their owner they are.
    pub part: Part,
}

const _: () = assert!(size_of::<Unit>() == 40);

impl Unit {
    fn place(&self) -> Place {
        (self.home, self.number)
    }
}

/// Keys one behind the other, numbered from 1 on.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Where each ends; it begins where the one before ends.
    ends: Vec<u32>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) -> Option<NonZeroU32> {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        NonZeroU32::new(self.ends.len() as u32)
    }

    fn get(&self, number: NonZeroU32) -> &[u8] {
        let at = number.get() as usize - 1;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin as usize..self.ends[at] as usize]
    }

    /// Lets go of all keys that none of these has. Those that stay have other numbers.
    fn keep(&mut self, units: &mut [Unit]) {
        // The number that each has then, and 0 for those that go.
        let mut numbers = vec![0; self.ends.len()];
        for key in units.iter().filter_map(|unit| unit.key) {
            numbers[key.get() as usize - 1] = 1;
        }
        let (mut begin, mut end, mut count) = (0, 0, 0);
        for (at, number) in numbers.iter_mut().enumerate() {
            let next = self.ends[at] as usize;
            if *number != 0 {
                self.bytes.copy_within(begin..next, end);
                end += next - begin;
                self.ends[count] = end as u32;
                count += 1;
                *number = count as u32;
            }
            begin = next;
        }
        self.bytes.truncate(end);
        self.ends.truncate(count);
        for unit in units {
            unit.key = unit.key.and_then(|key| NonZeroU32::new(numbers[key.get() as usize - 1]));
        }
    }
}

/// Places, and whose they are.
#[derive(Default)]
pub struct Places {
    /// The places.
    pub units: Vec<Unit>,
    keys: Keys,
    /// Where the checkpoints lie, by their age.
    bodies: Vec<Pointer>,
}

impl Places {
    /// Whose this one of them is.
    pub fn owner(&self, unit: &Unit) -> Owner<'_> {
        match unit.key {
            Some(key) => Owner::Item { key: self.keys.get(key) },
            None => {
                let age = (u64::MAX - unit.number) as usize;
                Owner::Checkpoint { age, body: &self.bodies[age] }
            }
        }
    }

    /// None, in the same memory.
    fn emptied(mut self) -> Places {
        self.units.clear();
        self.keys.bytes.clear();
        self.keys.ends.clear();
        self.bodies.clear();
        self
    }
}

/// Who offers places.
struct Offering<'a> {
    number: u64,
    key: Option<&'a [u8]>,
    /// The number of the key, once a place of it was kept.
    kept: Option<NonZeroU32>,
}

/// Places in the order of the media, a bounded number at a time.
pub struct Window {
    most: usize,
    places: Places,
    /// Up to this place all was read.
    behind: Option<Place>,
    /// Places from this one on are for later windows.
    below: Option<Place>,
}

impl Window {
    /// The first one, of about so many places.
    pub fn new(most: usize) -> Window {
        Window { most: most.max(1), places: Places::default(), behind: None, below: None }
    }

    /// Offers an item. Returns how many bytes it has, whether they are in this window or not. A
    /// value that is in memory alone, and waits for its group, does not count.
    pub fn item(&mut self, key: &[u8], entry: &Entry) -> u64 {
        let mut by = Offering { number: entry.sequence, key: Some(key), kept: None };
        let mut all = self.offer(&mut by, entry.home, entry.record_bytes, Part::Record);
        if let What::Large(large) = &entry.what
            && !large.is_waiting()
        {
            all += self.offer_pieces(&mut by, large);
        }
        all
    }

    /// Offers a checkpoint, the newest first, as an item is.
    pub fn checkpoint(&mut self, body: Pointer) -> u64 {
        let number = number_of_checkpoint(self.places.bodies.len());
        let all = self.offer_pieces(&mut Offering { number, key: None, kept: None }, &body);
        self.places.bodies.push(body);
        all
    }

    fn offer_pieces(&mut self, by: &mut Offering<'_>, pointer: &Pointer) -> u64 {
        let mut all = 0;
        for lies in lies(pointer).chunk_by(|one, next| one.piece == next.piece) {
            let Some(parts) = NonZeroU32::new(lies.len() as u32) else { continue };
            for (part, &Lies { piece, at, bytes }) in (0..).zip(lies) {
                // No pointer has fewer of them than pieces.
                let crc = pointer.crcs.get(piece as usize).copied().unwrap_or_default();
                let what = Part::Piece { piece, part, parts, crc };
                all += self.offer(by, Home::ssd(at), bytes, what);
            }
        }
        all
    }

    fn offer(&mut self, by: &mut Offering<'_>, home: Home, bytes: u32, part: Part) -> u64 {
        let place = (home, by.number);
        let is_next = self.behind.is_none_or(|behind| behind < place);
        if is_next && self.below.is_none_or(|below| place < below) {
            let Places { units, keys, .. } = &mut self.places;
            if let (None, Some(key)) = (by.kept, by.key) {
                by.kept = keys.push(key);
            }
            units.push(Unit { home, number: by.number, bytes, key: by.kept, part });
        }
        bytes.into()
    }

    /// Makes room for what comes next, if there are too many: keeps those that come first. It goes
    /// over all of them, so whoever offers items does this while nobody waits for a lock.
    pub fn make_room(&mut self) {
        let Places { units, keys, .. } = &mut self.places;
        units.reserve(SPARE);
        keys.ends.reserve(SPARE);
        keys.bytes.reserve(SPARE_KEY_BYTES);
        let keys_bytes = self.most.saturating_mul(KEY_BYTES).min(KEYS_BYTES_MAX);
        let is_full = 2 * self.most <= units.len() || 2 * keys_bytes <= keys.bytes.len();
        let stay = self.most.min(units.len() / 2);
        if !is_full || stay == 0 {
            return;
        }
        let (_, first_left, _) = units.select_nth_unstable_by_key(stay, Unit::place);
        self.below = Some(first_left.place());
        units.truncate(stay);
        keys.keep(units);
    }

    /// All were offered. What is in this window, in its order.
    pub fn close(&mut self) -> Places {
        let mut places = std::mem::take(&mut self.places);
        places.units.sort_unstable_by_key(Unit::place);
        self.behind = places.units.last().map(Unit::place).or(self.behind);
        if is_planted(Bug::ScrubberSkips) {
            places.units.pop();
        }
        places
    }

    /// Whether no place is left for another window.
    pub fn is_last(&self) -> bool {
        self.below.is_none()
    }

    /// Makes it the next one, of at least so many places, in the memory of those that were read.
    pub fn go_on(&mut self, most: usize, read: Places) {
        self.most = self.most.max(most);
        self.below = None;
        self.places = read.emptied();
    }
}

/// What of one piece lies in one extent.
struct Lies {
    piece: u32,
    /// Byte offset on the SSD.
    at: u64,
    /// Of the value; the rest of the last block is not counted.
    bytes: u32,
}

/// All of it, in the order of the value.
fn lies(pointer: &Pointer) -> SmallVec<[Lies; 1]> {
    let (piece_bytes, block) = (PIECE_BYTES as u64, BLOCK_BYTES as u64);
    let mut all = SmallVec::new();
    let mut done = 0;
    for extent in &pointer.extents {
        let mut at = u64::from(extent.start) * block;
        let end = at + u64::from(extent.blocks) * block;
        while at < end && done < pointer.bytes {
            let takes = (end - at).min(piece_bytes - done % piece_bytes);
            let bytes = takes.min(pointer.bytes - done) as u32;
            all.push(Lies { piece: (done / piece_bytes) as u32, at, bytes });
            (at, done) = (at + takes, done + takes);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::Random;
    use crate::ssd::pointer::Extent;
    use smallvec::smallvec;
    use std::sync::Arc;

    /// Places of an item, at most.
    const AT_ONCE: usize = 10;

    fn entry(sequence: u64, home: Home, what: What) -> Entry {
        Entry { sequence, home, record_bytes: 64, expires_at_seconds: 0, what }
    }

    /// Records in log and tables, and values in extents of a few blocks all over the SSD.
    fn items(random: &mut Random) -> Vec<(Vec<u8>, Entry)> {
        let mut blocks: Vec<u32> = (32..2000).collect();
        (1..=100)
            .map(|number| {
                let at = number * 64;
                let home = if random.one_in(2) { Home::log(at) } else { Home::ssd(at) };
                let what = match random.below(3) {
                    0 => What::Small { value_bytes: 9 },
                    _ => {
                        let count = 1 + random.below(9) as usize;
                        let mut take = || {
                            let at = random.below(blocks.len() as u64) as usize;
                            Extent { start: blocks.swap_remove(at), blocks: 1 }
                        };
                        let extents = (0..count).map(|_| take()).collect();
                        let bytes = (count * BLOCK_BYTES) as u64 - random.below(4000);
                        let crcs = smallvec![0; (bytes as usize).div_ceil(PIECE_BYTES)];
                        let pointer = Pointer { bytes, extents, crcs, original_bytes: 0 };
                        What::Large(Arc::new(pointer.into()))
                    }
                };
                (format!("key {}", random.number()).into_bytes(), entry(number, home, what))
            })
            .collect()
    }

    /// The key of a place is that of its item, whose numbers go from 1 on.
    fn assert_is_whose(places: &Places, unit: &Unit, items: &[(Vec<u8>, Entry)]) {
        let (key, entry) = &items[unit.number as usize - 1];
        assert_eq!(entry.sequence, unit.number);
        assert!(matches!(places.owner(unit), Owner::Item { key: its } if its == key), "{key:?}");
    }

    #[test]
    fn windows_of_any_size_give_every_place_once_and_in_order() {
        for seed in 0..20 {
            let items = items(&mut Random::new(seed));
            let mut expected = None;
            for most in [1, 2, 3, 10, 64, 100_000] {
                let (mut window, mut met, mut walks) = (Window::new(most), Vec::new(), 0);
                let total: u64 = loop {
                    let mut bytes = 0;
                    for (key, entry) in &items {
                        bytes += window.item(key, entry);
                        window.make_room();
                    }
                    walks += 1;
                    let places = window.close();
                    let units = &places.units;
                    assert!(units.len() < 2 * most + AT_ONCE, "{} places", units.len());
                    for unit in units {
                        assert_is_whose(&places, unit, &items);
                        met.push((unit.place(), unit.bytes, unit.part));
                    }
                    if window.is_last() {
                        break bytes;
                    }
                    window.go_on(0, places);
                };
                assert!(met.is_sorted_by_key(|(place, ..)| *place), "seed {seed}, {most}");
                let bytes: u64 = met.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum();
                assert_eq!(bytes, total, "seed {seed}, windows of {most}");
                let least = met.len() / (2 * most + AT_ONCE);
                assert!(least <= walks && walks <= met.len() / most + 1, "{walks} walks");
                assert_eq!(*expected.get_or_insert_with(|| met.clone()), met, "{seed}, {most}");
            }
        }
    }

    #[test]
    fn a_value_in_several_extents_is_parts_of_pieces_of_a_megabyte() {
        let block = |bytes: usize| (bytes / BLOCK_BYTES) as u32;
        let extents = smallvec![
            Extent { start: 500, blocks: block(PIECE_BYTES) + 2 },
            Extent { start: 100, blocks: 1 },
        ];
        let bytes = (PIECE_BYTES + 2 * BLOCK_BYTES + 5) as u64;
        let crcs = smallvec![71, 72];
        let pointer = Pointer { bytes, extents, crcs, original_bytes: 0 };
        let mut window = Window::new(100);
        let what = What::Large(Arc::new(pointer.into()));
        assert_eq!(window.item(b"k", &entry(9, Home::log(64), what)), bytes + 64);
        let places = window.close();
        let units = places.units.iter();
        let met: Vec<_> = units.map(|unit| (unit.home, unit.bytes, unit.part)).collect();
        let at = |block: usize| Home::ssd((block * BLOCK_BYTES) as u64);
        let piece = |piece, part, parts| {
            let (parts, crc) = (NonZeroU32::new(parts).unwrap(), 71 + piece);
            Part::Piece { piece, part, parts, crc }
        };
        let behind = 500 + PIECE_BYTES / BLOCK_BYTES;
        assert_eq!(
            met,
            [
                (Home::log(64), 64, Part::Record),
                (at(100), 5, piece(1, 1, 2)),
                (at(500), PIECE_BYTES as u32, piece(0, 0, 1)),
                (at(behind), 2 * BLOCK_BYTES as u32, piece(1, 0, 2)),
            ]
        );
    }

    /// Far more items than a window has places for, with keys of any length.
    #[test]
    fn memory_is_bounded_by_places_whatever_the_number_of_items_and_the_length_of_keys() {
        const MOST: usize = 2000;
        const ITEMS: u64 = 20_000;
        for key_bytes in [8, 21, KEY_BYTES, 250] {
            let mut random = Random::new(key_bytes as u64);
            let mut order: Vec<u64> = (1..=ITEMS).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            let key = |number: u64| format!("{number:0key_bytes$}").into_bytes();
            let (mut window, mut met) = (Window::new(MOST), 0);
            loop {
                for &number in &order {
                    let what = What::Small { value_bytes: 9 };
                    window.item(&key(number), &entry(number, Home::ssd(number * 64), what));
                    let Places { units, keys, .. } = &window.places;
                    assert!(units.len() <= 2 * MOST && keys.ends.len() <= units.len());
                    let most = 2 * MOST * KEY_BYTES + key_bytes;
                    assert!(keys.bytes.len() <= most, "{} bytes of keys", keys.bytes.len());
                    window.make_room();
                }
                let places = window.close();
                for unit in &places.units {
                    met += 1;
                    let its = key(met);
                    assert!(matches!(places.owner(unit), Owner::Item { key } if key == its));
                    assert_eq!(unit.home, Home::ssd(met * 64));
                }
                if window.is_last() {
                    break;
                }
                let room = [places.units.capacity(), places.keys.ends.capacity()];
                assert!(room.iter().all(|room| *room <= 2 * (2 * MOST + SPARE)), "{room:?}");
                window.go_on(0, places);
            }
            assert_eq!(met, ITEMS, "keys of {key_bytes} bytes");
        }
    }
}
