//! A slab class: chunks cut into slots of one size, with a bitmap of free slots each (segregated
//! fits).
//!
//! One short mutex per class guards its chunk list and bitmaps; it is a futex, so a waiter sleeps.
//! A free list for each worker would strand memory, and keep chunks from becoming wholly free, on
//! which giving them back depends; a worker keeps one slot a class instead, of what it replaced
//! last (`hand`).

use crate::{geometry::Divider, meter};
use laneway_sync::prim::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is known of a chunk beside its content. Guarded by its class's mutex, but for `class`,
/// which readers of hit marks look at (a stale answer leads them to a wrong mark, which is
/// harmless).
#[derive(Debug, Default)]
pub struct ChunkInfo {
    /// Class + 1; 0 = in the pool.
    class: AtomicU8,
    /// 1 = no new slots are taken from it.
    draining: AtomicU8,
    free: AtomicU32,
    /// Where it stands in the class's list of chunks with free slots.
    partial_at: AtomicU32,
    /// No word of the bitmap before this one has a free slot.
    hint: AtomicU32,
}

const NOT_PARTIAL: u32 = u32::MAX;

impl ChunkInfo {
    /// The class it is cut for.
    #[inline]
    pub fn class(&self) -> Option<usize> {
        (self.class.load(Relaxed) as usize).checked_sub(1)
    }

    /// Whether it is being emptied.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed) != 0
    }
}

/// The side tables of chunks that a class works on.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// By chunk number.
    pub infos: &'a [ChunkInfo],
    /// Free bits, `bitmap_words` a chunk.
    pub bitmaps: &'a [AtomicU64],
    /// Words of bitmap that every chunk has.
    pub bitmap_words: usize,
}

impl<'a> Tables<'a> {
    /// The bitmap of a chunk: 1 = free.
    pub fn bitmap(self, chunk: u32) -> &'a [AtomicU64] {
        &self.bitmaps[chunk as usize * self.bitmap_words..][..self.bitmap_words]
    }

    fn info(self, chunk: u32) -> &'a ChunkInfo {
        &self.infos[chunk as usize]
    }
}

/// A byte evicted weighs this over the root of its slot's size: an item four times as large is
/// worth twice as much room to keep, not four times. (All of the misses of a mix of sizes are
/// fewest where an item counts as one whatever its size; large values would hardly be kept then.)
const BYTE_WEIGHT_ONE: u64 = 1 << 16;

/// A class.
#[derive(Debug)]
pub struct Class {
    /// Its number.
    pub number: usize,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Slots in a chunk.
    pub slots: usize,
    /// Divides by `slot_bytes`.
    pub divider: Divider,
    /// What a byte evicted from here counts in the competition for chunks.
    pub byte_weight: u64,
    /// Slots that hold another piece of a large item than its first: they count as no item.
    pub pieces_behind: AtomicU64,
    /// Slots evicted so far.
    pub evicted: AtomicU64,
    /// Evictions since the class last got a chunk.
    pub evicted_since_chunk: AtomicU64,
    /// Bytes evicted lately (halved from time to time): how fast the class turns over.
    pub evicted_bytes_recent: AtomicU64,
    /// Chunks held, readable without the mutex.
    pub chunks_held: AtomicU64,
    /// Slots in use, readable without the mutex.
    pub used: AtomicU64,
    /// Slots ever taken, and how many these were when the draining hand came by last.
    pub taken: AtomicU64,
    /// See `taken`.
    pub taken_before: AtomicU64,
    state: Mutex<ClassState>,
}

/// What the mutex guards.
#[derive(Debug, Default)]
pub struct ClassState {
    /// In address order.
    chunks: Vec<u32>,
    /// Those with free slots, but the draining ones.
    partial: Vec<u32>,
    /// So many of `partial` are wholly free: mostly none, and then nobody looks for one.
    empty: usize,
    /// Where the clock's hand stands.
    pub hand: (u32, u32),
}

/// What freeing a slot left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// A free slot.
    Slot,
    /// A chunk that belongs to the class no more.
    Chunk(u32),
}

impl Class {
    /// Class `number` of slots of `slot_bytes`.
    pub fn new(number: usize, slot_bytes: usize, chunk_bytes: usize) -> Class {
        Class {
            number,
            slot_bytes,
            slots: chunk_bytes / slot_bytes,
            divider: Divider::new(slot_bytes),
            byte_weight: BYTE_WEIGHT_ONE / (slot_bytes as u64).isqrt(),
            pieces_behind: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            evicted_since_chunk: AtomicU64::new(0),
            evicted_bytes_recent: AtomicU64::new(0),
            chunks_held: AtomicU64::new(0),
            used: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            taken_before: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// The state, for the hand and for tests.
    pub fn lock(&self) -> MutexGuard<'_, ClassState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free slot: chunk and number; none where only `spare` or fewer are free.
    pub fn take(&self, tables: Tables<'_>, spare: u64) -> Option<(u32, usize)> {
        let mut state = self.lock();
        let used = self.used.load(Relaxed);
        if spare > 0 && (state.chunks.len() * self.slots) as u64 <= used + spare {
            return None;
        }
        let &chunk = state.partial.last()?;
        let info = tables.info(chunk);
        let bitmap = tables.bitmap(chunk);
        let hint = info.hint.load(Relaxed) as usize;
        let (at, word) = (hint..bitmap.len())
            .map(|i| (i, bitmap[i].load(Relaxed)))
            .find(|(_, word)| *word != 0)
            .expect("a chunk in `partial` has a free slot behind its hint");
        let bit = word.trailing_zeros();
        bitmap[at].store(word & (word - 1), Relaxed);
        info.hint.store(at as u32, Relaxed);
        let free = info.free.load(Relaxed) - 1;
        info.free.store(free, Relaxed);
        if free as usize + 1 == self.slots {
            state.empty -= 1;
        }
        if free == 0 {
            state.leave_partial(tables, chunk);
        }
        self.used.store(used + 1, Relaxed); // under the mutex, as is the next
        self.taken.store(self.taken.load(Relaxed) + 1, Relaxed);
        Some((chunk, at * 64 + bit as usize))
    }

    /// Take a slot back.
    pub fn give(&self, tables: Tables<'_>, chunk: u32, slot: usize) -> Freed {
        let mut state = self.lock();
        let info = tables.info(chunk);
        let word = &tables.bitmap(chunk)[slot / 64];
        let before = word.load(Relaxed);
        let bit = 1u64 << (slot % 64);
        assert_eq!(before & bit, 0, "slot {slot} of chunk {chunk} freed twice");
        word.store(before | bit, Relaxed);
        info.hint.store(info.hint.load(Relaxed).min(slot as u32 / 64), Relaxed);
        let free = info.free.load(Relaxed) + 1;
        info.free.store(free, Relaxed);
        self.used.store(self.used.load(Relaxed) - 1, Relaxed); // under the mutex
        let all_free = free as usize == self.slots;
        // One wholly free chunk is kept where it is the only one with room, or a class at rest
        // would borrow and return the same chunk for ever.
        if all_free && (info.is_draining() || state.partial.len() > 1) {
            state.leave_partial(tables, chunk);
            state.remove(chunk);
            self.forget(info);
            return Freed::Chunk(chunk);
        }
        state.empty += usize::from(all_free);
        if !info.is_draining() && info.partial_at.load(Relaxed) == NOT_PARTIAL {
            state.join_partial(tables, chunk);
        }
        Freed::Slot
    }

    fn forget(&self, info: &ChunkInfo) {
        info.class.store(0, Relaxed);
        info.draining.store(0, Relaxed);
        self.chunks_held.fetch_sub(1, Relaxed);
    }

    /// Cut a chunk from the pool for this class.
    pub fn add_chunk(&self, tables: Tables<'_>, chunk: u32) {
        let mut state = self.lock();
        let info = tables.info(chunk);
        for (i, word) in tables.bitmap(chunk).iter().enumerate() {
            let left = self.slots.saturating_sub(i * 64);
            word.store(if left >= 64 { u64::MAX } else { (1u64 << left) - 1 }, Relaxed);
        }
        info.free.store(self.slots as u32, Relaxed);
        info.hint.store(0, Relaxed);
        info.draining.store(0, Relaxed);
        info.class.store(self.number as u8 + 1, Relaxed);
        let at = state.chunks.partition_point(|&other| other < chunk);
        state.chunks.insert(at, chunk);
        state.join_partial(tables, chunk);
        state.empty += 1;
        self.chunks_held.fetch_add(1, Relaxed);
        self.evicted_since_chunk.store(0, Relaxed);
    }

    /// Stop taking slots from a chunk (`true`), or begin again. A wholly free chunk leaves the
    /// class at once. `None` if the chunk is not of this class (any more).
    pub fn set_draining(&self, tables: Tables<'_>, chunk: u32, draining: bool) -> Option<Freed> {
        let mut state = self.lock();
        let info = tables.info(chunk);
        if info.class() != Some(self.number) {
            return None;
        }
        if draining && !info.is_draining() {
            state.leave_partial(tables, chunk);
            info.draining.store(1, Relaxed);
            if info.free.load(Relaxed) as usize == self.slots {
                state.empty -= 1;
                state.remove(chunk);
                self.forget(info);
                return Some(Freed::Chunk(chunk));
            }
        } else if !draining && info.is_draining() {
            info.draining.store(0, Relaxed);
            if info.free.load(Relaxed) > 0 {
                state.join_partial(tables, chunk);
            }
        }
        Some(Freed::Slot)
    }

    /// Give one wholly free chunk back, if there is one.
    pub fn release_empty(&self, tables: Tables<'_>) -> Option<u32> {
        let mut state = self.lock();
        if state.empty == 0 {
            return None;
        }
        state.empty -= 1;
        let empty = |&&chunk: &&u32| tables.info(chunk).free.load(Relaxed) as usize == self.slots;
        let chunk = *state.partial.iter().inspect(|_| meter::slots(1)).find(empty)?;
        state.leave_partial(tables, chunk);
        state.remove(chunk);
        self.forget(tables.info(chunk));
        Some(chunk)
    }

    /// Chunks and used slots, of one moment.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.chunks.len() as u64, self.used.load(Relaxed))
    }
}

impl ClassState {
    /// The chunks, in address order.
    pub fn chunks(&self) -> &[u32] {
        &self.chunks
    }

    fn join_partial(&mut self, tables: Tables<'_>, chunk: u32) {
        tables.info(chunk).partial_at.store(self.partial.len() as u32, Relaxed);
        self.partial.push(chunk);
    }

    fn leave_partial(&mut self, tables: Tables<'_>, chunk: u32) {
        let partial_at = &tables.info(chunk).partial_at;
        let at = partial_at.load(Relaxed);
        if at == NOT_PARTIAL {
            return;
        }
        partial_at.store(NOT_PARTIAL, Relaxed); // under the mutex
        self.partial.swap_remove(at as usize);
        if let Some(&moved) = self.partial.get(at as usize) {
            tables.info(moved).partial_at.store(at, Relaxed);
        }
    }

    fn remove(&mut self, chunk: u32) {
        let at = self.chunks.binary_search(&chunk).expect("a chunk of this class");
        self.chunks.remove(at);
    }
}
