//! A large value as it is found in the index: where it lies, what is kept with it, and its bytes
//! for as long as they are not on the SSD.
//!
//! What the record in the log says besides the pointer is in the index too
//! ([`crate::index::leaf`]), so that reading a large value is one read of the SSD and none of the
//! log. After a restart from a checkpoint, which does not have it, the first read of a value brings
//! it in.

use crate::ssd::compress::value_of;
use crate::ssd::pointer::Pointer;
use crate::types::{BLOCK_BYTES, ItemMeta};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Values up to this length wait in memory for their group, which writes them together. Longer
/// ones go to the SSD as they arrive: they fill a write of the device by themselves.
pub const WAITING_VALUE_BYTES_MAX: usize = 64 << 10;
/// All that wait take at most this much memory, in the blocks that their group writes; what finds
/// no room is written at once.
pub const WAITING_BYTES_MAX: u64 = 8 << 20;

/// A large value.
#[derive(Debug)]
pub struct Large {
    pointer: Pointer,
    /// What is kept with the item, where it is known.
    meta: OnceLock<ItemMeta>,
    /// What is stored of it, until its group is durable. A lock that nobody holds for long.
    waiting: Mutex<Option<Arc<[u8]>>>,
}

impl From<Pointer> for Large {
    fn from(pointer: Pointer) -> Large {
        Large { pointer, meta: OnceLock::new(), waiting: Mutex::new(None) }
    }
}

impl Deref for Large {
    type Target = Pointer;

    fn deref(&self) -> &Pointer {
        &self.pointer
    }
}

impl PartialEq for Large {
    fn eq(&self, other: &Large) -> bool {
        self.pointer == other.pointer // the rest may be known here and not there
    }
}

impl Eq for Large {}

impl Large {
    /// One whose record is at hand.
    pub fn known(pointer: Pointer, meta: ItemMeta) -> Large {
        Large { meta: OnceLock::from(meta), ..Large::from(pointer) }
    }

    /// One that lies only here until its group writes it, as it is stored.
    pub fn waiting(pointer: Pointer, bytes: Arc<[u8]>) -> Large {
        Large { waiting: Mutex::new(Some(bytes)), ..Large::from(pointer) }
    }

    /// Shared, in the memory of `spare` if nobody else has that: millions that are looked at one
    /// after the other need not be allocated each.
    pub fn in_place_of(self, spare: Option<Arc<Large>>) -> Arc<Large> {
        let Some(mut spare) = spare else { return Arc::new(self) };
        match Arc::get_mut(&mut spare) {
            Some(there) => {
                *there = self;
                spare
            }
            None => Arc::new(self),
        }
    }

    /// What is kept with the item, if it is known.
    pub fn meta(&self) -> Option<ItemMeta> {
        self.meta.get().copied()
    }

    /// Its record says so.
    pub fn know(&self, meta: ItemMeta) {
        // All who know it say the same.
        let _ = self.meta.set(meta);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<[u8]>>> {
        self.waiting.lock().expect("nobody panics inside")
    }

    /// Whether it waits for its group.
    pub fn is_waiting(&self) -> bool {
        self.lock().is_some()
    }

    /// What is stored of it, if that waits for its group.
    pub fn bytes_waiting(&self) -> Option<Arc<[u8]>> {
        self.lock().clone()
    }

    /// The value, if it waits for its group.
    pub fn value_waiting(&self) -> Option<Vec<u8>> {
        let stored = self.bytes_waiting()?;
        let value = value_of(&self.pointer, &stored).expect("it is as it was compressed");
        Some(value.into_owned())
    }

    /// Its bytes are on the SSD. Says what room they took.
    pub fn written(&self) -> u64 {
        self.lock().take().map_or(0, |bytes| room_of(bytes.len()))
    }
}

/// What a value takes while it waits: its group copies it to whole blocks.
pub fn room_of(bytes: usize) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES) as u64
}

/// How much memory waiting values take. A bound and a statistic: nothing hangs on its order.
#[derive(Debug, Default)]
pub struct Waiting {
    now: AtomicU64,
    most: AtomicU64,
}

impl Waiting {
    /// Takes room for a value; false if it has to be written at once.
    pub fn take(&self, bytes: usize) -> bool {
        if bytes == 0 || WAITING_VALUE_BYTES_MAX < bytes {
            return false;
        }
        let bytes = room_of(bytes);
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        if WAITING_BYTES_MAX < now {
            self.now.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.most.fetch_max(now, Relaxed);
        true
    }

    /// Gives room back.
    pub fn give(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Relaxed);
    }

    /// Whether half of the room is taken. A commit gives it back.
    pub fn is_half_full(&self) -> bool {
        WAITING_BYTES_MAX / 2 <= self.now.load(Relaxed)
    }

    /// Bytes now, and the most so far.
    pub fn bytes(&self) -> (u64, u64) {
        (self.now.load(Relaxed), self.most.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_value_by_value_and_in_all() {
        let waiting = Waiting::default();
        assert!(!waiting.take(0) && !waiting.take(WAITING_VALUE_BYTES_MAX + 1));
        let mut values = 0;
        while waiting.take(WAITING_VALUE_BYTES_MAX) {
            values += 1;
        }
        assert_eq!(values * WAITING_VALUE_BYTES_MAX as u64, WAITING_BYTES_MAX);
        assert!(!waiting.take(1) && waiting.is_half_full());
        waiting.give(WAITING_VALUE_BYTES_MAX as u64);
        assert!(waiting.take(1));
        let now = WAITING_BYTES_MAX - WAITING_VALUE_BYTES_MAX as u64 + BLOCK_BYTES as u64;
        assert_eq!(waiting.bytes(), (now, WAITING_BYTES_MAX));
    }

    #[test]
    fn memory_is_used_again_that_nobody_else_has_and_nothing_of_what_was_there_stays() {
        let large = |bytes| Large::from(Pointer { bytes, ..Pointer::default() });
        let first = large(1);
        first.know(ItemMeta::default());
        let first = Arc::new(first);
        let place = Arc::as_ptr(&first);
        let second = large(2).in_place_of(Some(first));
        assert_eq!((Arc::as_ptr(&second), second.bytes, second.meta()), (place, 2, None));
        let third = large(3).in_place_of(Some(second.clone()));
        assert_eq!((second.bytes, third.bytes), (2, 3), "somebody has the second");
        assert_eq!(large(4).in_place_of(None).bytes, 4);
    }

    #[test]
    fn a_value_is_here_until_it_is_written() {
        let large = Large::waiting(Pointer::default(), vec![1, 2].into());
        assert_eq!(large.bytes_waiting().as_deref(), Some(&[1, 2][..]));
        assert_eq!((large.written(), large.written()), (BLOCK_BYTES as u64, 0));
        assert!(large.bytes_waiting().is_none());
    }
}
