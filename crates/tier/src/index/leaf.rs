//! A leaf of the index in memory: entries in the order of their keys, packed.
//!
//! An entry is a head of four bytes and, in one string of bytes with those of its leaf, its key and
//! its body, which is what is known of the key, little-endian, and as long as that takes. So no
//! item has an allocation of its own, wherever it lies; a value in several extents has these here.
//! What is kept with a large item is in its body once it is known.
//!
//! It knows no lock. Sizes are bytes as an allocator hands them out ([`allocated`]).

use crate::index::entry::{Entry, Home, What};
use crate::ssd::pointer::{EXTENTS_MAX, Extent, PIECE_BYTES, Pointer};
use crate::ssd::value::Large;
use crate::types::{BLOCK_BYTES, ItemMeta, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A leaf has at most so many entries.
pub const ENTRIES_MAX: usize = 192;
/// Keys and bodies of a leaf take at most so much, as an end is kept in 16 bits.
const BYTES_MAX: usize = u16::MAX as usize;
/// Two leaves that have no more than this together are joined.
const JOINED_ENTRIES_MAX: usize = ENTRIES_MAX / 8 * 7;
const JOINED_BYTES_MAX: usize = BYTES_MAX / 8 * 7;
/// Room for keys and bodies grows by so much: less is left over, but more often all is copied.
const GROWTH_BYTES: usize = 512;
/// The same of heads.
const GROWTH_HEADS: usize = 8;

/// So much may be left over.
const LEFT_BYTES_MAX: usize = GROWTH_BYTES * 9 / 8 - 1;
const LEFT_HEADS_MAX: usize = GROWTH_HEADS * 5 / 4 - 1;
/// A leaf that has lost so many entries since it was last tried to join it is tried again.
const LOST_ENTRIES: usize = 4;
/// Neighbours have at least so many entries together: each may have lost some since.
const TOGETHER_ENTRIES_MIN: usize = JOINED_ENTRIES_MAX + 1 - 2 * (LOST_ENTRIES - 1);
/// What a leaf takes at most beside its entries and its place in the tree.
const LEAF_BYTES_MAX: usize = 2 * (CHUNK_HEADER_BYTES + CHUNK_ALIGN - 1)
    + LEFT_BYTES_MAX
    + LEFT_HEADS_MAX * size_of::<Head>();

/// What an allocator puts before each piece that it hands out.
const CHUNK_HEADER_BYTES: usize = 8;
const CHUNK_ALIGN: usize = 16;
const CHUNK_BYTES_MIN: usize = 32;

/// What an allocation of `bytes` takes, with what the allocator keeps beside it: as in glibc, and
/// about as much elsewhere.
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let chunk = (bytes + CHUNK_HEADER_BYTES).next_multiple_of(CHUNK_ALIGN);
    if chunk < CHUNK_BYTES_MIN { CHUNK_BYTES_MIN } else { chunk }
}

/// The lengths of the parts of a body.
const HOME_BYTES: usize = 6;
const COMMON_BYTES: usize = 8 + HOME_BYTES + 4 + 4;
const SMALL_BYTES: usize = COMMON_BYTES + 4;
const NEAR_BYTES: usize = COMMON_BYTES + 4 + 4 + 4;
const META_BYTES: usize = 4 + 2 + 8;
/// The numbers of extents and crcs, at the end.
const FAR_NUMBERS_BYTES: usize = 2 + 2;
const FAR_BYTES: usize = COMMON_BYTES + 4 + FAR_NUMBERS_BYTES;
const EXTENT_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// Where a record's place and length lie in a body.
const HOME: Range<usize> = 8..8 + HOME_BYTES;
const RECORD_BYTES_AT: usize = HOME.end;
const EXPIRES_AT: usize = RECORD_BYTES_AT + 4;

/// The highest of a home's 48 bits. The other 47 count the bytes of any medium there is: an SSD's
/// blocks are counted by 32 bits, which is an eighth of it.
const SSD_BIT: u64 = 1 << (8 * HOME_BYTES - 1);
const AT_MAX: u64 = SSD_BIT - 1;

/// What an entry takes beside its key, but for its share of what the leaf takes: of a value in one
/// extent and one piece, all of which is known; no other item takes more, but for values in several
/// extents, of several pieces, or compressed.
pub const ENTRY_BYTES_MAX: usize = size_of::<Head>() + NEAR_BYTES + META_BYTES;

/// The same with its share of a leaf whose place in the tree takes `place_bytes`.
pub const fn item_bytes_max(place_bytes: usize) -> usize {
    ENTRY_BYTES_MAX + (2 * (LEAF_BYTES_MAX + place_bytes)).div_ceil(TOGETHER_ENTRIES_MIN)
}

const LONGEST_BODY_BYTES: usize = FAR_BYTES
    + EXTENTS_MAX * EXTENT_BYTES
    + VALUE_BYTES_MAX.div_ceil(PIECE_BYTES) * CRC_BYTES
    + META_BYTES;
const _: () = {
    assert!(size_of::<Head>() == 4);
    assert!(ENTRY_BYTES_MAX == 52);
    // Whatever comes, a leaf of one entry has room for another.
    assert!(2 * (KEY_BYTES_MAX + LONGEST_BODY_BYTES) <= BYTES_MAX);
    assert!(VALUE_BYTES_MAX <= u32::MAX as usize);
    assert!((u32::MAX as u64) * (BLOCK_BYTES as u64) <= AT_MAX);
};

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Small,
    /// A large value in one extent and one piece, stored as it is.
    Near,
    /// The same, and what is kept with it.
    NearKnown,
    /// Any other large value.
    Far,
    /// The same, and what is kept with it.
    FarKnown,
    Tombstone,
    Lost,
}

/// It was hit since the clock of eviction passed it.
const MARK: u8 = 1 << 7;
/// Hits are counted up to this, and halved each migration cycle.
const WEIGHT_MAX: u8 = MARK - 1;

struct Head {
    /// Where the entry ends; it begins where the one before ends.
    end: u16,
    kind: Kind,
    /// Hits and mark. A hint: nothing hangs on its order, and two hits at once may count as one.
    hint: AtomicU8,
}

/// What is known of a key, as a leaf keeps it.
pub struct Packed {
    kind: Kind,
    body: SmallVec<[u8; 64]>,
}

impl Packed {
    /// Of this entry.
    pub fn of(entry: &Entry) -> Packed {
        let mut front = [0; 64];
        front[..HOME.start].copy_from_slice(&entry.sequence.to_le_bytes());
        front[HOME].copy_from_slice(&raw_of(entry.home));
        front[RECORD_BYTES_AT..EXPIRES_AT].copy_from_slice(&entry.record_bytes.to_le_bytes());
        front[EXPIRES_AT..COMMON_BYTES].copy_from_slice(&entry.expires_at_seconds.to_le_bytes());
        let mut body = SmallVec::from_buf_and_len(front, COMMON_BYTES);
        let kind = match &entry.what {
            What::Small { value_bytes } => {
                body.extend_from_slice(&value_bytes.to_le_bytes());
                Kind::Small
            }
            What::Large(large) => {
                // The expiry is said once.
                let expires = entry.expires_at_seconds;
                let meta = large.meta().filter(|meta| meta.expires_at_seconds == expires);
                pack_large(large, meta, &mut body)
            }
            What::Tombstone => Kind::Tombstone,
            What::Lost => Kind::Lost,
        };
        Packed { kind, body }
    }
}

fn pack_large(pointer: &Pointer, meta: Option<ItemMeta>, body: &mut SmallVec<[u8; 64]>) -> Kind {
    body.extend_from_slice(&(pointer.bytes as u32).to_le_bytes());
    let put_meta = |body: &mut SmallVec<[u8; 64]>| {
        let Some(ItemMeta { flags, marks, cas, .. }) = meta else { return };
        body.extend_from_slice(&flags.to_le_bytes());
        body.extend_from_slice(&marks.to_le_bytes());
        body.extend_from_slice(&cas.to_le_bytes());
    };
    if let ([extent], [crc], 0) = (&pointer.extents[..], &pointer.crcs[..], pointer.original_bytes)
        && u64::from(extent.blocks) == pointer.bytes.div_ceil(BLOCK_BYTES as u64)
    {
        body.extend_from_slice(&extent.start.to_le_bytes());
        body.extend_from_slice(&crc.to_le_bytes());
        put_meta(body);
        return if meta.is_some() { Kind::NearKnown } else { Kind::Near };
    }
    for extent in &pointer.extents {
        body.extend_from_slice(&extent.start.to_le_bytes());
        body.extend_from_slice(&extent.blocks.to_le_bytes());
    }
    // As on the media: the length of a value that is compressed is one more.
    let original = Some(pointer.original_bytes).filter(|bytes| *bytes != 0);
    let numbers = pointer.crcs.iter().chain(&original);
    numbers.for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
    put_meta(body);
    for count in [pointer.extents.len(), pointer.crcs.len() + usize::from(original.is_some())] {
        body.extend_from_slice(&(count as u16).to_le_bytes());
    }
    assert!(body.len() <= LONGEST_BODY_BYTES, "a value has a bounded number of extents");
    if meta.is_some() { Kind::FarKnown } else { Kind::Far }
}

/// Numbers of a body. It was written by [`Packed::of`].
fn array<const N: usize>(body: &[u8], at: usize) -> [u8; N] {
    body[at..at + N].try_into().expect("as many as were asked for")
}

fn u16_at(body: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(body, at))
}

fn u32_at(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(body, at))
}

fn u64_at(body: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(body, at))
}

/// A home as a body has it. One beyond every medium stays beyond it.
fn raw_of(home: Home) -> [u8; HOME_BYTES] {
    let raw = home.at().min(AT_MAX) | if home.is_ssd() { SSD_BIT } else { 0 };
    array(&raw.to_le_bytes(), 0)
}

fn home_in(body: &[u8]) -> Home {
    let mut raw = [0; 8];
    raw[..HOME_BYTES].copy_from_slice(&body[HOME]);
    let raw = u64::from_le_bytes(raw);
    if raw & SSD_BIT == 0 { Home::log(raw) } else { Home::ssd(raw & !SSD_BIT) }
}

#[inline]
fn entry_in(kind: Kind, body: &[u8], spare: &mut Option<Arc<Large>>) -> Entry {
    let what = match kind {
        Kind::Small => What::Small { value_bytes: u32_at(body, COMMON_BYTES) },
        Kind::Tombstone => What::Tombstone,
        Kind::Lost => What::Lost,
        large => What::Large(large_in(large, body).in_place_of(spare.take())),
    };
    Entry {
        sequence: u64_at(body, 0),
        home: home_in(body),
        record_bytes: u32_at(body, RECORD_BYTES_AT),
        expires_at_seconds: u32_at(body, EXPIRES_AT),
        what,
    }
}

fn large_in(kind: Kind, body: &[u8]) -> Large {
    let bytes = u64::from(u32_at(body, COMMON_BYTES));
    let mut at = COMMON_BYTES + 4;
    let mut next = || {
        at += 4;
        u32_at(body, at - 4)
    };
    let pointer = match kind {
        Kind::Near | Kind::NearKnown => {
            let blocks = bytes.div_ceil(BLOCK_BYTES as u64) as u32;
            let extent = Extent { start: next(), blocks };
            let (extents, crcs) = (SmallVec::from_buf([extent]), SmallVec::from_buf([next()]));
            Pointer { bytes, extents, crcs, original_bytes: 0 }
        }
        _ => {
            let (extents, crcs) = far_numbers(body);
            let extents = (0..extents).map(|_| Extent { start: next(), blocks: next() }).collect();
            let pieces = (bytes as usize).div_ceil(PIECE_BYTES);
            let is_compressed = pieces < crcs;
            let crcs = (0..pieces).map(|_| next()).collect();
            let original_bytes = if is_compressed { next() } else { 0 };
            Pointer { bytes, extents, crcs, original_bytes }
        }
    };
    match kind {
        Kind::NearKnown | Kind::FarKnown => {
            let meta = ItemMeta {
                flags: u32_at(body, at),
                expires_at_seconds: u32_at(body, EXPIRES_AT),
                marks: u16_at(body, at + 4),
                cas: u64_at(body, at + 6),
            };
            Large::known(pointer, meta)
        }
        _ => Large::from(pointer),
    }
}

/// How many extents and crcs there are; at the end of what has such a body at its end.
fn far_numbers(bytes: &[u8]) -> (usize, usize) {
    let at = bytes.len() - FAR_NUMBERS_BYTES;
    (u16_at(bytes, at).into(), u16_at(bytes, at + 2).into())
}

/// A leaf.
#[derive(Default)]
pub struct Leaf {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

/// Where an entry is, or would be.
pub type Found = Result<usize, usize>;

impl Leaf {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// What it takes of memory, but for itself.
    pub fn allocated_bytes(&self) -> usize {
        allocated(self.heads.capacity() * size_of::<Head>()) + allocated(self.bytes.capacity())
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.heads[before].end.into())
    }

    /// Where an entry's key and body are, one behind the other.
    #[inline]
    fn places(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let Head { end, kind, .. } = self.heads[index];
        let (start, end) = (self.start(index), usize::from(end));
        let far = || {
            let (extents, crcs) = far_numbers(&self.bytes[..end]);
            FAR_BYTES + extents * EXTENT_BYTES + crcs * CRC_BYTES
        };
        let body = end
            - match kind {
                Kind::Small => SMALL_BYTES,
                Kind::Near => NEAR_BYTES,
                Kind::NearKnown => NEAR_BYTES + META_BYTES,
                Kind::Far => far(),
                Kind::FarKnown => far() + META_BYTES,
                Kind::Tombstone | Kind::Lost => COMMON_BYTES,
            };
        (start..body, body..end)
    }

    /// The key of an entry.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.places(index).0]
    }

    /// The last key, if there is one.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.key(last))
    }

    fn body(&self, index: usize) -> &[u8] {
        &self.bytes[self.places(index).1]
    }

    /// Looks for a key.
    pub fn find(&self, key: &[u8]) -> Found {
        self.find_between(0, self.len(), key)
    }

    fn find_between(&self, mut low: usize, mut high: usize, key: &[u8]) -> Found {
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The same where `key` is not before the entry `from`, and likely near behind it.
    pub fn find_from(&self, from: usize, key: &[u8]) -> Found {
        let (mut low, mut step) = (from, 1);
        while low + step < self.len() && self.key(low + step) < key {
            (low, step) = (low + step, 2 * step);
        }
        self.find_between(low, (low + step + 1).min(self.len()), key)
    }

    /// The sequence of an entry.
    pub fn sequence(&self, index: usize) -> u64 {
        u64_at(self.body(index), 0)
    }

    /// Where its record is.
    pub fn home(&self, index: usize) -> Home {
        home_in(self.body(index))
    }

    /// Whether it stands for an item.
    pub fn is_item(&self, index: usize) -> bool {
        !matches!(self.heads[index].kind, Kind::Tombstone | Kind::Lost)
    }

    /// What is known of its key.
    pub fn entry(&self, index: usize) -> Entry {
        entry_in(self.heads[index].kind, self.body(index), &mut None)
    }

    /// A key, and what is known of it; a large value takes the place of `spare`
    /// ([`Large::in_place_of`]).
    #[inline]
    pub fn both(&self, index: usize, spare: &mut Option<Arc<Large>>) -> (&[u8], Entry) {
        let (key, body) = self.places(index);
        (&self.bytes[key], entry_in(self.heads[index].kind, &self.bytes[body], spare))
    }

    /// Whether an entry of `key` can be put where it was found, or would be.
    pub fn has_room(&self, found: Found, key: &[u8], packed: &Packed) -> bool {
        let (entries, bytes) = match found {
            Ok(index) => (0, packed.body.len().saturating_sub(self.body(index).len())),
            Err(_) => (1, key.len() + packed.body.len()),
        };
        self.len() + entries <= ENTRIES_MAX && self.bytes.len() + bytes <= BYTES_MAX
    }

    /// Whether one behind the last can be put here, and another then: as full as a split leaves
    /// leaves where keys come in order.
    pub fn has_room_in_order(&self, key: &[u8], packed: &Packed) -> bool {
        self.len() + 1 < ENTRIES_MAX && self.has_room(Err(self.len()), key, packed)
    }

    /// Puts a new entry before the one of this number.
    pub fn insert(&mut self, index: usize, key: &[u8], packed: &Packed) {
        let start = self.start(index);
        let (body, end) = (start + key.len(), start + key.len() + packed.body.len());
        if index == self.len() {
            // As an index is filled: nothing has to be moved.
            self.make_room(end);
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(&packed.body);
        } else {
            self.resize(index, start..start, end - start);
            self.bytes[start..body].copy_from_slice(key);
            self.bytes[body..end].copy_from_slice(&packed.body);
        }
        if self.heads.len() == self.heads.capacity() {
            self.heads.reserve_exact(GROWTH_HEADS);
        }
        let hint = AtomicU8::new(0);
        self.heads.insert(index, Head { end: end as u16, kind: packed.kind, hint });
    }

    /// Says another thing of a key.
    pub fn replace(&mut self, index: usize, packed: &Packed) {
        let (_, body) = self.places(index);
        let start = body.start;
        self.resize(index, body, packed.body.len());
        self.bytes[start..start + packed.body.len()].copy_from_slice(&packed.body);
        self.heads[index].kind = packed.kind;
    }

    /// Its record is elsewhere.
    pub fn relocate(&mut self, index: usize, to: Home) {
        let (_, body) = self.places(index);
        self.bytes[body][HOME].copy_from_slice(&raw_of(to));
    }

    /// Forgets a key.
    pub fn remove(&mut self, index: usize) {
        let (key, body) = self.places(index);
        self.resize(index, key.start..body.end, 0);
        self.heads.remove(index);
        self.trim();
    }

    /// Forgets all keys but those of which `stays` says that they do.
    pub fn retain(&mut self, mut stays: impl FnMut(&Leaf, usize) -> bool) {
        // From the end: where all go, nothing is moved.
        for index in (0..self.len()).rev() {
            if !stays(self, index) {
                self.remove(index);
            }
        }
    }

    /// Makes room for so many bytes of keys and bodies in all.
    fn make_room(&mut self, after: usize) {
        assert!(after <= BYTES_MAX, "it was asked whether there is room");
        if self.bytes.capacity() < after {
            let filled = after + CHUNK_HEADER_BYTES;
            let capacity = filled.next_multiple_of(GROWTH_BYTES) - CHUNK_HEADER_BYTES;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Makes other room of what lies in `place`, at the end of which the entry `index` ends, or
    /// which is before it.
    fn resize(&mut self, index: usize, place: Range<usize>, room: usize) {
        let (before, had) = (self.bytes.len(), place.len());
        if room == had {
            return;
        }
        let after = before + room - had;
        self.make_room(after);
        if before < after {
            self.bytes.resize(after, 0);
        }
        self.bytes.copy_within(place.end..before, place.start + room);
        self.bytes.truncate(after);
        let longer = (room as u16).wrapping_sub(had as u16);
        for head in &mut self.heads[index..] {
            head.end = head.end.wrapping_add(longer);
        }
        if after < before {
            self.trim();
        }
    }

    /// Gives back what is left over. Some more may be, or where entries come and go all would be
    /// copied each time.
    fn trim(&mut self) {
        if self.heads.is_empty() {
            *self = Leaf::default();
            return;
        }
        if LEFT_BYTES_MAX < self.bytes.capacity() - self.bytes.len() {
            let filled = self.bytes.len() + CHUNK_HEADER_BYTES;
            self.bytes.shrink_to(filled.next_multiple_of(GROWTH_BYTES) - CHUNK_HEADER_BYTES);
        }
        if LEFT_HEADS_MAX < self.heads.capacity() - self.heads.len() {
            self.heads.shrink_to(self.heads.len().next_multiple_of(GROWTH_HEADS));
        }
    }

    /// Takes the entries from this number on.
    pub fn split_off(&mut self, at: usize) -> Leaf {
        let start = self.start(at);
        let mut upper =
            Leaf { heads: self.heads.split_off(at), bytes: self.bytes.split_off(start) };
        upper.heads.iter_mut().for_each(|head| head.end -= start as u16);
        self.trim();
        upper
    }

    /// Takes all entries, in no more room than they need; the room that they had stays.
    pub fn take(&mut self) -> Leaf {
        let taken = Leaf { heads: self.heads.drain(..).collect(), bytes: self.bytes[..].to_vec() };
        self.bytes.clear();
        taken
    }

    /// Whether it is to have the entries of the leaf behind it, too.
    pub fn is_to_have(&self, next: &Leaf) -> bool {
        self.len() + next.len() <= JOINED_ENTRIES_MAX
            && self.bytes.len() + next.bytes.len() <= JOINED_BYTES_MAX
    }

    /// Whether it may be worth while to look for one to join it with. Not after each entry that
    /// goes: its neighbours may be full.
    pub fn may_be_joined(&self) -> bool {
        self.len() <= JOINED_ENTRIES_MAX && self.len().is_multiple_of(LOST_ENTRIES)
    }

    /// Takes the entries of the leaf behind it.
    pub fn join(&mut self, mut next: Leaf) {
        let before = self.bytes.len();
        self.heads.reserve_exact(next.len());
        self.bytes.reserve_exact(next.bytes.len());
        self.bytes.extend_from_slice(&next.bytes);
        self.heads.extend(next.heads.drain(..).map(|mut head| {
            head.end += before as u16;
            head
        }));
        self.trim();
    }

    /// Counts a hit, and marks it.
    pub fn hit(&self, index: usize) {
        let hint = &self.heads[index].hint;
        let now = hint.load(Relaxed);
        let hit = MARK | ((now & WEIGHT_MAX) + 1).min(WEIGHT_MAX);
        // The line is others' as well: where all was said, nobody writes to it.
        if hit != now {
            hint.store(hit, Relaxed);
        }
    }

    /// Hits that were counted.
    pub fn weight(&self, index: usize) -> u8 {
        self.heads[index].hint.load(Relaxed) & WEIGHT_MAX
    }

    /// The same, and half as many from now on.
    pub fn cool(&self, index: usize) -> u8 {
        let hint = &self.heads[index].hint;
        let now = hint.load(Relaxed);
        hint.store((now & MARK) | ((now & WEIGHT_MAX) / 2), Relaxed);
        now & WEIGHT_MAX
    }

    /// Whether it was hit since this was asked last.
    pub fn take_mark(&self, index: usize) -> bool {
        self.heads[index].hint.fetch_and(WEIGHT_MAX, Relaxed) & MARK != 0
    }
}

#[cfg(test)]
mod tests;
