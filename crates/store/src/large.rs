//! Large items: a type-stable table of descriptors, and the pieces that an item's bytes lie in.
//!
//! A large item is a stream (header, key, value) cut into pieces: blocks, and a last piece in the
//! slot that fits it. A piece begins with one word that names its descriptor and its number in it,
//! so that whoever empties a chunk finds the owner. The descriptor lists the pieces (8 bytes for 32
//! KiB; a chain through a side table would make the piece at an offset a walk), and holds the pin.
//! Descriptors are never freed: a late reader may look at one and finds by the pin's generation
//! that it means another item now.

use crate::{geometry::tail_bytes, mark::Mark, memory::Memory, moment::Moment, types::KeyHash};
use laneway_sync::{
    pin::{Killed, Pin, Unpinned},
    prim::{AtomicU16, AtomicU64, Ordering::Relaxed},
};
use std::{
    cell::UnsafeCell,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Bytes of a piece that do not belong to the stream: descriptor (32) | number (32).
pub const PIECE_HEADER_BYTES: usize = 8;

const SEGMENT: usize = 1024;
const SEGMENTS: usize = 8192;

/// One large item's anchor.
#[derive(Debug, Default)]
pub struct Descriptor {
    pin: Pin,
    /// Offset of the first piece, for those who look without a pin.
    first: AtomicU64,
    /// Bytes of all pieces' slots.
    held_bytes: AtomicU64,
    /// Hit mark.
    pub mark: AtomicU16,
    pieces: UnsafeCell<Vec<u64>>,
}

// SAFETY: `pieces` is written only by the thread that owns the descriptor while it is dead and
// unheld (taken from the free list and not yet opened, or told to free it), and read only by
// holders of a pin; the pin's orderings (E)-(H) put these apart. The rest is atomic.
unsafe impl Sync for Descriptor {}

/// All descriptors.
#[derive(Debug)]
pub struct LargeTable {
    segments: Box<[OnceLock<Box<[Descriptor]>>]>,
    list: Mutex<FreeList>,
    /// Where the clock's hand stands.
    pub hand: AtomicU64,
}

#[derive(Debug, Default)]
struct FreeList {
    free: Vec<u32>,
    fresh: u32,
}

impl Default for LargeTable {
    fn default() -> Self {
        LargeTable {
            segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(),
            list: Mutex::default(),
            hand: AtomicU64::new(0),
        }
    }
}

impl LargeTable {
    /// The descriptor of a number, which may come from an unvalidated read.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Descriptor> {
        self.segments.get(number as usize / SEGMENT)?.get()?.get(number as usize % SEGMENT)
    }

    /// A descriptor for a draft.
    pub fn take(&self) -> Option<u32> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = list.free.pop() {
            return Some(number);
        }
        let number = list.fresh;
        self.segments
            .get(number as usize / SEGMENT)?
            .get_or_init(|| (0..SEGMENT).map(|_| Descriptor::default()).collect());
        list.fresh += 1;
        Some(number)
    }

    /// Return a descriptor that is dead, unheld and empty.
    pub fn give(&self, number: u32) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
    }

    /// Numbers ever used run below this.
    pub fn highest(&self) -> u32 {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).fresh
    }
}

impl Descriptor {
    /// Offset of the record (behind the piece's own word) of the item that this is for now.
    #[inline]
    pub fn record_offset(&self) -> usize {
        self.first.load(Relaxed) as usize + PIECE_HEADER_BYTES
    }

    /// Bring to life. Owner only, while dead.
    pub fn open_owner(&self, pieces: Vec<u64>, held_bytes: u64, now: Moment) {
        self.first.store(pieces[0], Relaxed);
        self.held_bytes.store(held_bytes, Relaxed);
        self.mark.store(Mark::new(now).0, Relaxed);
        // SAFETY: the descriptor is dead and unheld, and the caller took it from the free list, so
        // no pin holder reads the list and nobody else writes it; `open_owner` below publishes it.
        unsafe { *self.pieces.get() = pieces };
        self.pin.open_owner();
    }

    /// Pin whatever is alive here now.
    #[inline]
    pub fn pin(&self) -> bool {
        self.pin.generation().is_some_and(|generation| self.pin.try_pin(generation))
    }

    /// Put piece `number` somewhere else: `copy` copies it. False if somebody holds a pin, or the
    /// piece is not at `from`. The caller is inside the item's bucket, so that nobody else kills it
    /// meanwhile.
    pub fn move_piece(&self, number: usize, from: u64, to: u64, copy: impl FnOnce()) -> bool {
        if !self.pin.try_own() {
            return false;
        }
        // SAFETY: dead and unheld by `try_own`, and whoever would free it must enter the bucket
        // first: the list is ours until it is opened again.
        let pieces = unsafe { &mut *self.pieces.get() };
        let there = pieces.get(number) == Some(&from);
        if there {
            copy();
            pieces[number] = to;
            self.first.store(pieces[0], Relaxed);
        }
        self.pin.open_owner();
        there
    }

    /// Let go. If `LastOfDead`, the caller must free it.
    #[inline]
    pub fn unpin(&self) -> Unpinned {
        self.pin.unpin()
    }

    /// No new pins. If `FreeNow`, the caller must free it.
    pub fn kill(&self) -> Killed {
        self.pin.kill()
    }

    /// The offsets of the pieces.
    ///
    /// # Safety
    /// The caller holds a pin, for as long as it uses the answer.
    #[inline]
    pub unsafe fn pieces_pinned(&self) -> &[u64] {
        // SAFETY: a pin is held: nobody writes the list until it is let go.
        unsafe { &*self.pieces.get() }
    }

    /// Take the list of pieces out, to free them.
    ///
    /// # Safety
    /// The caller was told `FreeNow` or `LastOfDead`, and asks once.
    pub unsafe fn take_pieces_owner(&self) -> Vec<u64> {
        // SAFETY: dead and unheld: nobody else reads or writes the list until it is opened again.
        unsafe { std::mem::take(&mut *self.pieces.get()) }
    }

    /// Bytes of its pieces.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    /// Whether somebody reads it, by a guess.
    pub fn is_pinned(&self) -> bool {
        self.pin.count() > 0
    }

    /// Whether it is alive, by a guess.
    pub fn is_alive(&self) -> bool {
        self.pin.generation().is_some()
    }
}

/// Stream bytes in a block.
#[inline]
pub fn payload_bytes(memory: &Memory) -> usize {
    memory.class(memory.block_class()).slot_bytes - PIECE_HEADER_BYTES
}

/// The first word of a piece.
pub fn owner_word(descriptor: u32, piece: usize) -> u64 {
    u64::from(descriptor) | (piece as u64) << 32
}

/// Descriptor and number from the first word of what may be a piece.
pub fn owner_of(word: u64) -> (u32, usize) {
    (word as u32, (word >> 32) as usize)
}

/// The class for a piece of `stream_bytes`; `alone` if it is the item's only one.
pub fn class_for_piece(memory: &Memory, stream_bytes: usize, alone: bool) -> usize {
    let bytes = stream_bytes + PIECE_HEADER_BYTES;
    memory.class_for(if alone { bytes } else { tail_bytes(bytes) })
}

/// A large item found in the index, named for eviction.
#[derive(Debug, Clone, Copy)]
pub struct LargeName {
    /// Its descriptor.
    pub descriptor: u32,
    /// Its key's hash.
    pub hash: KeyHash,
}
