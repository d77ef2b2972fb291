//! Item memory as a whole: the regions, the side tables, the classes and the pool they share.
//!
//! A slot is named by its offset in the items' region. It knows slots, not what is in them; never
//! evicts. All the bytes of the chunks count against the limit, so whatever is dead but pinned
//! counts, too.
//!
//! Where there is a window, the first chunks lie in it and have a pool and classes of their own:
//! as many as its records have sizes, numbered behind the ordinary ones.

use crate::{
    class::{ChunkInfo, Class, Freed, Tables},
    geometry::{SLOT_BYTES_MIN, chunk_bytes, class_number, slot_sizes},
    mark::{self, Mark},
    moment::Moment,
    pool::{Pool, PoolCounts},
    region::Region,
    types::{ClassStats, Config, HugePages, Mode},
    window::{Onlooker, WINDOW_RECORD_BYTES_MAX, WINDOW_TAIL_BYTES},
};
use laneway_sync::prim::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::{io, ops::Range, slice, sync::Arc};

/// The most that item memory may ever be: 40 bits of 8-byte offset.
const ITEM_BYTES_LIMIT: u64 = 8 << 40;

/// What the cache fetches.
const CACHE_LINE_BYTES: usize = 64;

/// The most of an item that is asked for ahead; a reader that goes on finds the rest on its way by
/// then.
const PREFETCH_BYTES_MAX: usize = 4 * CACHE_LINE_BYTES;

/// The free slots of a class in the window that are kept for items that are there already, or that
/// are asked for often: one in so many.
const SPARE_FRACTION: u64 = 32;

/// What is different about the window.
#[derive(Debug)]
struct WindowMemory {
    pool: Pool,
    onlooker: Arc<dyn Onlooker>,
}

/// Item memory.
#[derive(Debug)]
pub struct Memory {
    /// Where the records are.
    pub items: Region,
    marks: Region,
    bitmaps: Region,
    infos: Box<[ChunkInfo]>,
    classes: Box<[Class]>,
    /// Classes from here on are the window's.
    ordinary: usize,
    class_of_size: Box<[u8]>,
    pool: Pool,
    window: Option<WindowMemory>,
    /// Offsets below this are in the window.
    window_bytes: usize,
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
    /// Reserve address space, in which the limit may be raised later.
    pub fn new(config: &Config) -> io::Result<Memory> {
        let chunk_bytes = chunk_bytes(config.memory_bytes);
        let shared = config.window.as_ref();
        let window_chunks = shared.map_or(0, |window| window.items.bytes / chunk_bytes) as u32;
        let window_bytes = window_chunks as usize * chunk_bytes;
        let items = reserve_items(config)?;
        let chunks = items.bytes() / chunk_bytes;
        let slots_max = chunk_bytes / SLOT_BYTES_MIN + 1;
        let bitmap_words = slots_max.div_ceil(64);
        let sizes = slot_sizes(chunk_bytes);
        let ordinary = sizes.len();
        let mut class_of_size = vec![0; sizes[ordinary - 1] / 8 + 1];
        for (eighth, class) in class_of_size.iter_mut().enumerate() {
            *class = sizes.partition_point(|&slot_bytes| slot_bytes < eighth * 8) as u8;
        }
        let in_window = match window_bytes {
            0 => 0,
            _ => usize::from(class_of_size[WINDOW_RECORD_BYTES_MAX.div_ceil(8)]) + 1,
        };
        let wide = sizes.iter().map(|&slot_bytes| (slot_bytes, chunk_bytes));
        let cut = sizes[..in_window].iter().map(|&bytes| (bytes, chunk_bytes - WINDOW_TAIL_BYTES));
        let class = |(number, (slot_bytes, bytes))| Class::new(number, slot_bytes, bytes);
        let limit = config.memory_bytes;
        let pool = |numbers, limit| {
            Pool::new(chunk_bytes as u64, numbers, limit, config.mode == Mode::Cache)
        };
        // Chunk 0 is nobody's.
        let first = window_chunks.max(1);
        let window_limit = u64::from(first - 1) * chunk_bytes as u64;
        Ok(Memory {
            marks: Region::reserve(
                chunks * marks_stride(chunk_bytes) * 2,
                config.huge_pages == HugePages::All,
            )?,
            bitmaps: Region::reserve(chunks * bitmap_words * 8, false)?,
            infos: (0..chunks).map(|_| ChunkInfo::default()).collect(),
            classes: wide.chain(cut).enumerate().map(class).collect(),
            ordinary,
            class_of_size: class_of_size.into(),
            pool: pool(first..=chunks as u32 - 1, limit),
            window: shared.map(|window| WindowMemory {
                pool: pool(1..=first - 1, window_limit),
                onlooker: window.onlooker.clone(),
            }),
            window_bytes,
            chunk_shift: chunk_bytes.ilog2(),
            bitmap_words,
            index_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(limit),
            items,
        })
    }

    /// Have the items, and what is known of their slots, on this NUMA node.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        [&self.items, &self.marks, &self.bitmaps].iter().try_for_each(|it| it.prefer_node(node))
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
        self.ordinary - 1
    }

    /// The window's class whose slots hold `bytes`, if there is a window and they fit.
    #[inline]
    pub fn window_class_for(&self, bytes: usize) -> Option<usize> {
        let fits = self.window_bytes > 0 && bytes <= WINDOW_RECORD_BYTES_MAX;
        fits.then(|| self.ordinary + self.class_for(bytes))
    }

    /// Whether a class is the window's.
    #[inline]
    pub fn is_window_class(&self, class: usize) -> bool {
        class >= self.ordinary
    }

    /// The number by which a class is told.
    pub fn class_number(&self, class: usize) -> u32 {
        class_number(self.ordinary_class(class), self.ordinary)
    }

    /// The ordinary class of the same slots.
    pub fn ordinary_class(&self, class: usize) -> usize {
        if self.is_window_class(class) { class - self.ordinary } else { class }
    }

    /// The classes that share a pool with this one.
    pub fn classes_beside(&self, class: usize) -> Range<usize> {
        match self.is_window_class(class) {
            true => self.ordinary..self.classes.len(),
            false => 0..self.ordinary,
        }
    }

    /// Whether an offset is in the window.
    #[inline]
    pub fn is_in_window(&self, offset: usize) -> bool {
        offset < self.window_bytes
    }

    /// Length of the window.
    pub fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// A class by number.
    #[inline]
    pub fn class(&self, class: usize) -> &Class {
        &self.classes[class]
    }

    /// A slot from the chunks that the class has.
    #[inline]
    pub fn take(&self, class: usize) -> Option<usize> {
        self.take_sparing(class, 0)
    }

    /// A slot in the window, from chunks that the class has or is given, unless few are free.
    pub fn take_spared(&self, class: usize, entitled: bool) -> Option<usize> {
        loop {
            let this = &self.classes[class];
            let slots = this.chunks_held.load(Relaxed) * this.slots as u64;
            if let Some(offset) = self.take_sparing(class, slots / SPARE_FRACTION + 1) {
                return Some(offset);
            }
            if !self.grow(class, entitled) {
                return None;
            }
        }
    }

    fn take_sparing(&self, class: usize, spare: u64) -> Option<usize> {
        let (chunk, slot) = self.classes[class].take(self.tables(), spare)?;
        Some(((chunk as usize) << self.chunk_shift) + slot * self.classes[class].slot_bytes)
    }

    /// One more chunk for the class, if the pool has one for it.
    pub fn grow(&self, class: usize, entitled: bool) -> bool {
        let chunk = match &self.window {
            Some(window) if self.is_window_class(class) => window.pool.take(0, entitled),
            _ => self.pool.take(self.other_bytes(), entitled),
        };
        let Some(chunk) = chunk else { return false };
        self.classes[class].add_chunk(self.tables(), chunk);
        true
    }

    /// The first chunk of a class that has none, beyond the limit if need be: as many may go beyond
    /// it as there are classes, until others have been emptied.
    pub fn overdraw(&self, class: usize) -> bool {
        if self.is_window_class(class) || self.classes[class].chunks_held.load(Relaxed) > 0 {
            return false;
        }
        let Some(chunk) = self.pool.overdraw(self.other_bytes(), self.ordinary) else {
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

    /// The class of a slot that its last user may keep: an ordinary one, whose chunk is not being
    /// emptied.
    #[inline]
    pub(crate) fn class_to_keep(&self, offset: usize) -> Option<usize> {
        let info = self.infos.get(offset >> self.chunk_shift)?;
        let class = info.class()?;
        (!self.is_window_class(class) && !info.is_draining()).then_some(class)
    }

    fn return_chunk(&self, freed: Freed) {
        let Freed::Chunk(chunk) = freed else { return };
        let offset = (chunk as usize) << self.chunk_shift;
        match &self.window {
            Some(window) if self.is_in_window(offset) => window.pool.give(chunk, 0, |_| ()),
            _ => self.pool.give(chunk, self.other_bytes(), |chunk| self.discard_chunk(chunk)),
        }
    }

    fn discard_chunk(&self, chunk: u32) {
        self.items.discard((chunk as usize) << self.chunk_shift, self.chunk_bytes());
    }

    /// Returns one free chunk to the system if there are more than the limit allows; true if so.
    pub fn discard_surplus(&self) -> bool {
        self.pool.discard_surplus(self.other_bytes(), |chunk| self.discard_chunk(chunk))
    }

    /// What counts against the limit beside ordinary chunks.
    fn other_bytes(&self) -> u64 {
        self.index_bytes.load(Relaxed) + self.window_bytes as u64
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
        &self.marks()[self.mark_number(at)]
    }

    /// All hit marks.
    #[inline]
    fn marks(&self) -> &[AtomicU16] {
        let words = self.marks.words();
        // SAFETY: the marks' region is used through this slice alone, so it holds nothing but
        // 16-bit atomics; it is page-aligned, zeroed, a multiple of 8 long, and borrowed from
        // `self`, which keeps the mapping.
        unsafe { slice::from_raw_parts(words.as_ptr().cast(), words.len() * 4) }
    }

    /// Where among the marks a slot's is.
    #[inline]
    fn mark_number(&self, at: SlotAt) -> usize {
        at.chunk as usize * marks_stride(self.chunk_bytes()) + at.slot
    }

    /// A hit mark by the number that [`Memory::prefetch`] gave.
    #[inline]
    pub fn mark_by_number(&self, number: usize) -> Option<&AtomicU16> {
        self.marks().get(number)
    }

    /// Ask the cache for the first lines of the slot at an offset, `bytes` long, and for its mark,
    /// whose number is returned.
    #[inline]
    pub fn prefetch(&self, offset: usize, bytes: usize) -> Option<usize> {
        for line in (0..bytes.min(PREFETCH_BYTES_MAX)).step_by(CACHE_LINE_BYTES) {
            self.items.prefetch(offset + line);
        }
        let number = self.mark_number(self.slot_at(offset)?);
        self.marks.prefetch(2 * number);
        Some(number)
    }

    /// Give the slot of an item that came a mark.
    #[inline]
    pub fn set_mark(&self, offset: usize, after: Mark) {
        if let Some(place) = self.mark(offset) {
            mark::store(place, mark::load(place), after);
        }
        self.take_hits(offset);
    }

    /// Hits that an onlooker marked at a record since this was asked last.
    #[inline]
    fn take_hits(&self, offset: usize) -> u8 {
        match &self.window {
            Some(window) if self.is_in_window(offset) => window.onlooker.take_hits(offset),
            _ => 0,
        }
    }

    /// The mark at `place`, which is that of the slot at `offset`, with an onlooker's hits since it
    /// was looked at last, as of `now` if that is told.
    #[inline]
    pub fn load_mark(&self, place: &AtomicU16, offset: usize, now: Option<Moment>) -> Mark {
        let mark = mark::load(place);
        let hits = self.take_hits(offset);
        if hits == 0 {
            return mark;
        }
        let after = now.map_or(mark.warmed(hits), |now| mark.warmed(hits - 1).hit(now));
        mark::store(place, mark, after);
        after
    }

    /// Whether the slot at an offset has room for so many bytes.
    pub fn holds(&self, offset: usize, bytes: usize) -> bool {
        self.slot_at(offset).is_some_and(|at| bytes <= self.classes[at.class].slot_bytes)
    }

    /// The numbers of the chunks that were ever in use, in the window or not.
    pub fn chunks_of(&self, in_window: bool) -> Range<u32> {
        let first = (self.window_bytes >> self.chunk_shift).max(1) as u32;
        if in_window { 1..first } else { first..self.pool.highest() + 1 }
    }

    /// Tell an onlooker the flush generation.
    pub fn set_flush(&self, generation: u32) {
        if let Some(window) = &self.window {
            window.onlooker.set_flush(generation);
        }
    }

    /// Whether a slot is in use, by a guess outside the class's mutex.
    pub fn is_used(&self, at: SlotAt) -> bool {
        let word = self.tables().bitmap(at.chunk)[at.slot / 64].load(Relaxed);
        word >> (at.slot % 64) & 1 == 0
    }

    /// The first slot in use of a chunk of this class, from one on, by the same guess; and how many
    /// words of the bitmap were looked at.
    pub fn used_from(&self, class: usize, chunk: u32, slot: usize) -> (Option<usize>, usize) {
        let slots = self.classes[class].slots;
        let (bitmap, first) = (self.tables().bitmap(chunk), slot / 64);
        for (number, word) in bitmap[..slots.div_ceil(64)].iter().enumerate().skip(first) {
            let behind = if number == first { u64::MAX << (slot % 64) } else { u64::MAX };
            let used = !word.load(Relaxed) & behind;
            if used != 0 {
                let at = number * 64 + used.trailing_zeros() as usize;
                return ((at < slots).then_some(at), number + 1 - first);
            }
        }
        (None, slots.div_ceil(64).saturating_sub(first))
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
        for class in &self.classes[..self.ordinary] {
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
        self.pool.counts(self.other_bytes())
    }

    /// What the index takes now.
    pub fn set_index_bytes(&self, bytes: u64) {
        self.index_bytes.store(bytes, Relaxed);
    }

    /// Change the limit, as far as address space was reserved.
    pub fn set_limit_bytes(&self, bytes: u64) {
        let bytes = bytes.min(self.items.bytes() as u64);
        self.limit_bytes.store(bytes, Relaxed);
        self.pool.set_limit_bytes(bytes);
    }

    /// The limit.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Bytes of the pool's chunks: in classes, and free but backed.
    pub fn pool_bytes(&self) -> (u64, u64) {
        let (taken, free) = self.pool.taken_and_free();
        let own = self.window.as_ref().map_or(0, |window| window.pool.taken_and_free().0);
        ((taken + own) << self.chunk_shift, free << self.chunk_shift)
    }

    /// Bytes of marks and bitmaps of all slots in the classes' chunks.
    pub fn side_bytes(&self) -> u64 {
        let slots: u64 =
            self.classes.iter().map(|c| c.chunks_held.load(Relaxed) * c.slots as u64).sum();
        slots * 2 + slots.div_ceil(8)
    }

    /// Every class that has chunks; the window's slots are told with the ordinary ones.
    pub fn class_stats(&self) -> Vec<ClassStats> {
        let row = |class: &Class| {
            let (mut chunks, mut used) = class.counts();
            let mut slots = chunks * class.slots as u64;
            if let Some(window) = self.classes[self.ordinary..].get(class.number) {
                let (more_chunks, more_used) = window.counts();
                (chunks, used) = (chunks + more_chunks, used + more_used);
                slots += more_chunks * window.slots as u64;
            }
            (chunks > 0).then(|| ClassStats {
                slot_bytes: class.slot_bytes as u64,
                chunks,
                slots,
                used,
                items: used.saturating_sub(class.pieces_behind.load(Relaxed)),
                bytes: used * class.slot_bytes as u64,
                evicted: class.evicted.load(Relaxed),
                class: class_number(class.number, self.ordinary),
            })
        };
        self.classes[..self.ordinary].iter().filter_map(row).collect()
    }

    /// Slots of the window in use.
    pub fn window_slots_used(&self) -> u64 {
        slots_used(&self.classes[self.ordinary..])
    }

    /// Slots in use, over all classes.
    pub fn slots_used(&self) -> u64 {
        slots_used(&self.classes)
    }
}

/// Takes no lock: statistics.
fn slots_used(classes: &[Class]) -> u64 {
    classes.iter().map(|class| class.used.load(Relaxed)).sum()
}

/// Address space for up to four times the limit (at least 1 GiB), behind the window.
fn reserve_items(config: &Config) -> io::Result<Region> {
    let array = config.window.as_ref().map(|window| &window.items);
    let huge_pages = config.huge_pages == HugePages::All;
    let mut reserve = (config.memory_bytes.saturating_mul(4)).clamp(1 << 30, ITEM_BYTES_LIMIT);
    loop {
        match Region::reserve_behind(array, reserve as usize, huge_pages) {
            Ok(region) => return Ok(region),
            // A limit on address space: be content with less room to grow.
            Err(_) if reserve / 2 > config.memory_bytes => reserve /= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Marks of one chunk, with room for the smallest slots.
#[inline]
fn marks_stride(chunk_bytes: usize) -> usize {
    const MARKS_PER_PAGE: usize = 2048;
    (chunk_bytes / SLOT_BYTES_MIN + 1).next_multiple_of(MARKS_PER_PAGE)
}
