//! Optimistic reads: look, copy, validate (MICA §4.3.2, Minos §4.2), and pins for what is too large
//! to copy.
//!
//! Nothing is written but the hit mark, and that only if it changes. A torn read begins again;
//! after 64 tries it yields to the scheduler between tries.

use crate::{
    large::{PIECE_HEADER_BYTES, payload_bytes},
    mark, meter,
    moment::Moment,
    store::{Record, Store},
    types::{ItemMeta, KeyHash},
};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::{
    prim::{Ordering::Relaxed, Patience},
    words,
};
use std::{fmt, slice, sync::Arc};

/// Answer to [`Store::get`].
#[derive(Debug)]
pub enum Got {
    /// No such item, or it is dead.
    Miss,
    /// The head was written and the value copied behind it.
    Copied(ItemMeta),
    /// A large item, pinned; nothing was written.
    Large(ItemMeta, Pinned),
}

/// A large item pinned: its bytes stay where they are until this is dropped.
pub struct Pinned {
    store: Arc<Store>,
    descriptor: u32,
    /// Offset of the value in the stream.
    value_at: usize,
    value_bytes: usize,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("value_bytes", &self.value_bytes).finish_non_exhaustive()
    }
}

/// What one optimistic look found.
enum Look {
    Torn,
    Miss,
    /// The header is validated; what lies behind it is not.
    Hit(Record, usize, u64),
}

impl Store {
    /// GET. `head` writes what stands before the value (it may be called again after a torn read;
    /// `out` is truncated first); the value is copied behind it if the item is small (contiguous).
    /// A large one is pinned and `head` is not called. Marks the hit. Expired and flushed items are
    /// misses (and are unlinked).
    #[inline]
    pub fn get(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
        head: &mut dyn FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Got {
        self.read::<true>(hash, key, now, out, head)
    }

    /// The value alone, as [`Store::get`] has it; leaves no hit mark.
    pub fn peek_value(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
    ) -> Got {
        self.read::<false>(hash, key, now, out, &mut |_, _| {})
    }

    #[inline]
    fn read<const MARKS: bool>(
        self: &Arc<Self>,
        hash: KeyHash,
        key: &[u8],
        now: Moment,
        out: &mut Vec<u8>,
        head: &mut dyn FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Got {
        let start = out.len();
        let mut patience = Patience::new();
        loop {
            match self.look(hash, key) {
                Look::Torn => {}
                Look::Miss => return Got::Miss,
                Look::Hit(record, ..) if self.is_dead(&record.header, now) => {
                    self.reap(hash, key, now);
                    return Got::Miss;
                }
                Look::Hit(record, bucket, before) => {
                    let version = &self.index.bucket(bucket).version;
                    let (place, mark) = self.look_at_mark(record.location, now);
                    let meta = self.meta_of(&record.header, mark, now);
                    let got = if record.header.large {
                        let pinned = self.pin(&record);
                        pinned.map(|pinned| Got::Large(meta, pinned))
                    } else {
                        head(&meta, out);
                        self.copy_value(&record, out);
                        Some(Got::Copied(meta))
                    };
                    if let Some(got) = got
                        && version.validate(before)
                    {
                        if !MARKS {
                            return got;
                        }
                        if let Some(place) = place {
                            mark::store(place, mark, mark.hit(now));
                        }
                        if self.is_promotable(&record, mark) {
                            self.promote(&record, mark.hit(now));
                        }
                        return got;
                    }
                    out.truncate(start);
                }
            }
            self.counters.read_retries.fetch_add(1, Relaxed);
            patience.pause();
        }
    }

    /// Metadata only; leaves no hit mark.
    pub fn peek(&self, hash: KeyHash, key: &[u8], now: Moment) -> Option<ItemMeta> {
        let mut patience = Patience::new();
        loop {
            match self.look(hash, key) {
                Look::Torn => {}
                Look::Miss => return None,
                Look::Hit(record, ..) if self.is_dead(&record.header, now) => {
                    self.reap(hash, key, now);
                    return None;
                }
                Look::Hit(record, ..) => {
                    let (_, mark) = self.look_at_mark(record.location, now);
                    return Some(self.meta_of(&record.header, mark, now));
                }
            }
            self.counters.read_retries.fetch_add(1, Relaxed);
            patience.pause();
        }
    }

    /// Size class (floor log2 of key+value bytes) from the index alone, for dispatch: `None` on
    /// miss. A tag shared by two keys of a bucket, or an item that died, may make the answer wrong;
    /// nothing but routing may hang on it.
    #[inline]
    pub fn size_class(&self, hash: KeyHash, key: &[u8]) -> Option<u8> {
        let _ = key; // the tag decides
        let mut patience = Patience::new();
        loop {
            let primary = self.index.primary(hash);
            let version = &self.index.bucket(primary).version;
            if let Some(before) = version.read_begin() {
                let found = self.index.find(primary, hash.tag(), |_| true);
                if version.validate(before)
                    && (found.is_some() || self.index.primary(hash) == primary)
                {
                    return found.map(|(_, location)| location.size_class());
                }
            }
            patience.pause();
        }
    }

    #[inline]
    fn look(&self, hash: KeyHash, key: &[u8]) -> Look {
        let primary = self.index.primary(hash);
        let version = &self.index.bucket(primary).version;
        let Some(before) = version.read_begin() else { return Look::Torn };
        let mut record = None;
        let found = self.index.find(primary, hash.tag(), |location| {
            record = self.record_of(location, key);
            record.is_some()
        });
        if !version.validate(before) {
            return Look::Torn;
        }
        match (found, record) {
            (Some(_), Some(record)) => Look::Hit(record, primary, before),
            // The bucket may have been split between our finding it and our reading it.
            _ if self.index.primary(hash) != primary => Look::Torn,
            _ => Look::Miss,
        }
    }

    /// The header was validated, so the lengths are those of a record that was there.
    #[inline]
    pub(crate) fn copy_value(&self, record: &Record, out: &mut Vec<u8>) {
        let (value_at, value_bytes) = (record.header.value_at(), record.header.value_bytes);
        meter::bytes(value_bytes);
        let words = self.memory.items.words_at(record.offset, value_at + value_bytes);
        words::read_into(words.expect("a linked record"), value_at, value_bytes, out);
    }

    /// Pin a large item; the caller validates afterwards that it is still the one it looked up.
    #[cold]
    fn pin(self: &Arc<Self>, record: &Record) -> Option<Pinned> {
        let number = record.location.offset() as u32;
        self.large.get(number)?.pin().then(|| Pinned {
            store: self.clone(),
            descriptor: number,
            value_at: record.header.value_at(),
            value_bytes: record.header.value_bytes,
        })
    }

    /// Unlink an item that is dead by now.
    #[cold]
    fn reap(&self, hash: KeyHash, key: &[u8], now: Moment) {
        drop(self.enter(hash, key, now)); // entering does it
    }
}

impl Pinned {
    /// Length of the value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The value's bytes from `offset` to the end of the piece it lies in (pieces are at most about
    /// 32 KiB). Empty at the end of the value.
    pub fn piece(&self, offset: usize) -> &[u8] {
        if offset >= self.value_bytes {
            return &[];
        }
        let payload = payload_bytes(&self.store.memory);
        let at = self.value_at + offset;
        let len = (payload - at % payload).min(self.value_bytes - offset);
        let descriptor = self.store.large.get(self.descriptor).expect("a pinned descriptor");
        // SAFETY: `self` is the pin; the slice is used before `self` can be dropped.
        let piece = unsafe { descriptor.pieces_pinned() }[at / payload] as usize;
        let start = piece + PIECE_HEADER_BYTES + at % payload;
        let pointer = self.store.memory.items.pointer(start, len);
        // SAFETY: `pointer` checked that the range is inside the region, which lives as long as the
        // store that `self` holds. The bytes are initialised: a published draft wrote all of its
        // value. While the pin is held nobody writes them: items in place are changed in their
        // headers only, pieces
        // are moved only where no pin is held (`Pin::try_own`) and freed by the last unpin.
        unsafe { slice::from_raw_parts(pointer, len) }
    }

    /// Copy all of the value behind `out` (append, incr; not the data path).
    pub fn copy_into(&self, out: &mut Vec<u8>) {
        meter::bytes(self.value_bytes);
        let mut offset = 0;
        out.reserve(self.value_bytes);
        while offset < self.value_bytes {
            let piece = self.piece(offset);
            out.extend_from_slice(piece);
            offset += piece.len();
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if is_planted(Bug::PinLeaked) {
            return;
        }
        self.store.unpin(self.descriptor);
    }
}
