//! Item memory as a whole: the regions, the side tables, the classes and the pool they share.
//!
//! A slot is named by its offset in the items' region. Knows slots, not what is in them; never
//! evicts. All the bytes of the chunks count against the limit, so whatever is dead but pinned
//! counts, too.

use crate::{
    class::{ChunkInfo, Class, Freed, Tables},
    geometry::{SLOT_BYTES_MIN, chunk_bytes, slot_sizes},
    mark::{self, Mark},
    pool::{Pool, PoolCounts},
    region::Region,
    types::{ClassStats, Config, Mode, UnixSeconds},
};
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use std::{io, slice, sync::atomic::AtomicU16};

/// The most that item memory may ever be: 40 bits of 8-byte offset.
const ITEM_BYTES_LIMIT: u64 = 8 << 40;

/// Item memory.
#[derive(Debug)]
pub struct Memory {
    /// Where the records are.
    pub items: Region,
    marks: Region,
    bitmaps: Region,
    infos: Box<[ChunkInfo]>,
    classes: Box<[Class]>,
    class_of_size: Box<[u8]>,
    pool: Pool,
    chunk_shift: u32,
    bitmap_words: usize,
    /// What else counts against the limit.
    index_bytes: AtomicU64,
    limit_bytes: AtomicU64,
}

/// A slot by chunk and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotAt {
    /// Its class.
    pub class: usize,
    /// Its chunk.
    pub chunk: u32,
    /// Its number in the chunk.
    pub slot: usize,
}

impl Memory {
    /// Reserve address space for up to four times the limit (at least 1 GiB), in which the limit
    /// may be raised later.
    pub fn new(config: &Config) -> io::Result<Memory> {
        let chunk_bytes = chunk_bytes(config.memory_bytes);
        let mut reserve = (config.memory_bytes.saturating_mul(4)).clamp(1 << 30, ITEM_BYTES_LIMIT);
        let items = loop {
            match Region::reserve(reserve as usize, config.huge_pages) {
                Ok(region) => break region,
                // A limit on address space: be content with less room to grow.
                Err(_) if reserve / 2 > config.memory_bytes => reserve /= 2,
                Err(error) => return Err(error),
            }
        };
        let chunks = items.bytes() / chunk_bytes;
        let slots_max = chunk_bytes / SLOT_BYTES_MIN + 1;
        let bitmap_words = slots_max.div_ceil(64);
        let classes: Box<[Class]> = slot_sizes(chunk_bytes)
            .into_iter()
            .enumerate()
            .map(|(number, slot_bytes)| Class::new(number, slot_bytes, chunk_bytes))
            .collect();
        let mut class_of_size = vec![0; classes.last().expect("classes").slot_bytes / 8 + 1];
        for (eighth, class) in class_of_size.iter_mut().enumerate() {
            *class = classes.partition_point(|c| c.slot_bytes < eighth * 8) as u8;
        }
        let limit = config.memory_bytes;
        Ok(Memory {
            marks: Region::reserve(chunks * marks_stride(chunk_bytes) * 2, false)?,
            bitmaps: Region::reserve(chunks * bitmap_words * 8, false)?,
            infos: (0..chunks).map(|_| ChunkInfo::default()).collect(),
            classes,
            class_of_size: class_of_size.into(),
            pool: Pool::new(
                chunk_bytes as u64,
                chunks as u32 - 1,
                limit,
                config.mode == Mode::Cache,
            ),
            chunk_shift: chunk_bytes.ilog2(),
            bitmap_words,
            index_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(limit),
            items,
        })
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            infos: &self.infos,
            bitmaps: self.bitmaps.words(),
            bitmap_words: self.bitmap_words,
        }
    }

    fn chunk_bytes(&self) -> usize {
        1 << self.chunk_shift
    }

    /// The class whose slots hold `bytes`, which is at most a block.
    #[inline]
    pub fn class_for(&self, bytes: usize) -> usize {
        self.class_of_size[bytes.div_ceil(8)] as usize
    }

    /// The class of blocks.
    #[inline]
    pub fn block_class(&self) -> usize {
        self.classes.len() - 1
    }

    /// A class by number.
    #[inline]
    pub fn class(&self, class: usize) -> &Class {
        &self.classes[class]
    }

    /// All classes.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// A slot from the chunks that the class has.
    #[inline]
    pub fn take(&self, class: usize) -> Option<usize> {
        let (chunk, slot) = self.classes[class].take(self.tables())?;
        Some(((chunk as usize) << self.chunk_shift) + slot * self.classes[class].slot_bytes)
    }

    /// One more chunk for the class, if the pool has one for it.
    pub fn grow(&self, class: usize, entitled: bool) -> bool {
        let Some(chunk) = self.pool.take(self.index_bytes.load(Relaxed), entitled) else {
            return false;
        };
        self.classes[class].add_chunk(self.tables(), chunk);
        true
    }

    /// Take a slot back.
    #[inline]
    pub fn give(&self, offset: usize) {
        let at = self.slot_at(offset).expect("a slot in use has a class");
        let freed = self.classes[at.class].give(self.tables(), at.chunk, at.slot);
        self.return_chunk(freed);
    }

    fn return_chunk(&self, freed: Freed) {
        if let Freed::Chunk(chunk) = freed {
            self.pool.give(chunk, self.index_bytes.load(Relaxed), |chunk| {
                self.items.discard((chunk as usize) << self.chunk_shift, self.chunk_bytes());
            });
        }
    }

    /// Which slot an offset is in. Any offset is allowed; `None` if the chunk has no class.
    #[inline]
    pub fn slot_at(&self, offset: usize) -> Option<SlotAt> {
        let chunk = offset >> self.chunk_shift;
        let class = self.infos.get(chunk)?.class()?;
        let slot = self.classes[class].divider.divide(offset & (self.chunk_bytes() - 1));
        Some(SlotAt { class, chunk: chunk as u32, slot })
    }

    /// The offset of a slot.
    pub fn offset_of(&self, at: SlotAt) -> usize {
        ((at.chunk as usize) << self.chunk_shift) + at.slot * self.classes[at.class].slot_bytes
    }

    /// The hit mark of the slot at an offset.
    #[inline]
    pub fn mark(&self, offset: usize) -> Option<&AtomicU16> {
        self.slot_at(offset).map(|at| self.mark_of(at))
    }

    /// The hit mark of a slot.
    #[inline]
    pub fn mark_of(&self, at: SlotAt) -> &AtomicU16 {
        let words = self.marks.words();
        // SAFETY: the marks' region is used through this slice alone, so it holds nothing but
        // 16-bit atomics; it is page-aligned, zeroed, a multiple of 8 long, and borrowed from
        // `self`, which keeps the mapping.
        let marks: &[AtomicU16] =
            unsafe { slice::from_raw_parts(words.as_ptr().cast(), words.len() * 4) };
        &marks[at.chunk as usize * marks_stride(self.chunk_bytes()) + at.slot]
    }

    /// Ask the cache for the first two lines of the slot at an offset, and for its mark.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        self.items.prefetch(offset);
        self.items.prefetch(offset + 64);
        if let Some(at) = self.slot_at(offset) {
            self.marks
                .prefetch(2 * (at.chunk as usize * marks_stride(self.chunk_bytes()) + at.slot));
        }
    }

    /// Give a new item's slot a new mark.
    #[inline]
    pub fn reset_mark(&self, offset: usize, now: UnixSeconds) {
        if let Some(place) = self.mark(offset) {
            mark::store(place, mark::load(place), Mark::new(now));
        }
    }

    /// Whether a slot is in use, by a guess outside the class's mutex.
    pub fn is_used(&self, at: SlotAt) -> bool {
        let word = self.tables().bitmap(at.chunk)[at.slot / 64].load(Relaxed);
        word >> (at.slot % 64) & 1 == 0
    }

    /// The class of a chunk now.
    pub fn class_of_chunk(&self, chunk: u32) -> Option<usize> {
        self.infos.get(chunk as usize)?.class()
    }

    /// Whether a chunk is being emptied.
    pub fn is_draining(&self, chunk: u32) -> bool {
        self.infos[chunk as usize].is_draining()
    }

    /// Begin or end emptying a chunk. False if the chunk left its class (because it is empty, or
    /// long ago).
    pub fn set_draining(&self, class: usize, chunk: u32, draining: bool) -> bool {
        match self.classes[class].set_draining(self.tables(), chunk, draining) {
            Some(freed @ Freed::Chunk(_)) => {
                self.return_chunk(freed);
                false
            }
            Some(Freed::Slot) => true,
            None => false,
        }
    }

    /// Give wholly free chunks of any class back to the pool; true if there was one.
    pub fn release_empty(&self) -> bool {
        let mut any = false;
        for class in &self.classes {
            if let Some(chunk) = class.release_empty(self.tables()) {
                self.return_chunk(Freed::Chunk(chunk));
                any = true;
            }
        }
        any
    }

    /// Chunk numbers in use run from 1 to here.
    pub fn chunk_highest(&self) -> u32 {
        self.pool.highest()
    }

    /// The pool in numbers.
    pub fn pool_counts(&self) -> PoolCounts {
        self.pool.counts(self.index_bytes.load(Relaxed))
    }

    /// What the index takes now.
    pub fn set_index_bytes(&self, bytes: u64) {
        self.index_bytes.store(bytes, Relaxed);
    }

    /// Change the limit, as far as address space was reserved.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Relaxed);
        self.pool.set_limit_bytes(bytes);
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Bytes of the pool's chunks: in classes, and free but backed.
    pub fn pool_bytes(&self) -> (u64, u64) {
        let counts = self.pool_counts();
        (counts.taken << self.chunk_shift, counts.free << self.chunk_shift)
    }

    /// Bytes of marks and bitmaps of all slots in the classes' chunks.
    pub fn side_bytes(&self) -> u64 {
        let slots: u64 =
            self.classes.iter().map(|c| c.chunks_held.load(Relaxed) * c.slots as u64).sum();
        slots * 2 + slots.div_ceil(8)
    }

    /// Every class that has chunks.
    pub fn class_stats(&self) -> Vec<ClassStats> {
        let row = |class: &Class| {
            let (chunks, used) = class.counts();
            (chunks > 0).then(|| ClassStats {
                slot_bytes: class.slot_bytes as u64,
                chunks,
                slots: chunks * class.slots as u64,
                used,
                bytes: used * class.slot_bytes as u64,
                evicted: class.evicted.load(Relaxed),
                class: class.number as u32 + 1,
            })
        };
        self.classes.iter().filter_map(row).collect()
    }

    /// Slots in use, over all classes.
    pub fn slots_used(&self) -> u64 {
        self.classes.iter().map(|class| class.counts().1).sum()
    }
}

/// Marks of one chunk, with room for the smallest slots.
#[inline]
fn marks_stride(chunk_bytes: usize) -> usize {
    const MARKS_PER_PAGE: usize = 2048;
    (chunk_bytes / SLOT_BYTES_MIN + 1).next_multiple_of(MARKS_PER_PAGE)
}
