//! The record of an item: one fixed little-endian layout, for every medium.
//!
//! ```text
//! word 0   sequence (64)
//! word 1   end's second (32) | key bytes (8) | flags (4) | flush generation (6) | 14 bits
//!          the 14 bits: value bytes, or with HAS_EXT the end's milliseconds (10), and 4 unused
//! word 2   client flags (32) | value bytes (32)      only with HAS_EXT
//! then the key, then the value
//! ```
//! So 16 bytes stand before the key of an ordinary item. HAS_EXT is set where the client's flags
//! are not zero, on every large item, and where the end has milliseconds when the record is
//! written. It stays when they go: the key stands where it stands. An item without HAS_EXT that is
//! given an end with milliseconds is written anew ([`crate::Entry::rewrite`]). The flush generation
//! (modulo 64) says which `flush_all`s the item has seen; it is not derived from the sequence,
//! because clients may choose an item's sequence (CAS override).
//!
//! A header read without a pin or a bucket's version is a guess: lengths are bounded, the rest may
//! be anything.

use crate::{moment::Moment, region::Region};
use laneway_sync::prim::Ordering::Relaxed;

/// Header of an ordinary item.
pub const HEADER_BYTES: usize = 16;
/// Header with the extra word.
pub const HEADER_EXT_BYTES: usize = 24;

/// Flush generations are kept modulo this.
pub const FLUSH_GENERATIONS: u32 = 64;

const HAS_EXT: u32 = 1;
const STALE: u32 = 2;
const TOKEN_SENT: u32 = 4;
const LARGE: u32 = 8;

const FLAGS_SHIFT: u32 = 8;
const FLUSH_SHIFT: u32 = 12;
/// The value's length, or with HAS_EXT the end's milliseconds.
const VALUE_SHIFT: u32 = 18;
const MILLIS_MASK: u32 = (1 << 10) - 1;
/// Values shorter than this fit in word 1.
pub const VALUE_BYTES_INLINE: usize = 1 << 14;

/// A record's header, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Sequence.
    pub seq: u64,
    /// When it ends; with milliseconds only where it is `wide`.
    pub expires: Moment,
    /// Length of the key.
    pub key_bytes: usize,
    /// Length of the value.
    pub value_bytes: usize,
    /// Client flags; 0 where it is not `wide`.
    pub flags: u32,
    /// Marked stale.
    pub stale: bool,
    /// The right to recache was given away.
    pub token_sent: bool,
    /// In pieces; then it is `wide`.
    pub large: bool,
    /// With the extra word.
    pub wide: bool,
    /// `flush_all`s seen, modulo [`FLUSH_GENERATIONS`].
    pub flush: u32,
}

impl Header {
    /// Bytes before the key.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        header_bytes(self.wide)
    }

    /// Offset of the value in the record.
    #[inline]
    pub fn value_at(&self) -> usize {
        self.header_bytes() + self.key_bytes
    }

    /// Bytes of the whole record.
    #[inline]
    pub fn record_bytes(&self) -> usize {
        self.value_at() + self.value_bytes
    }

    /// The words as they stand in the record; the third one only with
    /// [`HEADER_EXT_BYTES`](Self::header_bytes). Little-endian is up to whoever stores them.
    #[inline]
    pub fn words(&self) -> [u64; 3] {
        let ext = u64::from(self.flags) | (self.value_bytes as u64) << 32;
        [self.seq, self.word_1(), ext]
    }

    fn word_1(&self) -> u64 {
        let bits = if self.wide { HAS_EXT } else { 0 }
            | if self.stale { STALE } else { 0 }
            | if self.token_sent { TOKEN_SENT } else { 0 }
            | if self.large { LARGE } else { 0 };
        let inline = if self.wide { self.expires.millis() } else { self.value_bytes as u32 };
        let packed = self.key_bytes as u32
            | bits << FLAGS_SHIFT
            | self.flush << FLUSH_SHIFT
            | inline << VALUE_SHIFT;
        u64::from(self.expires.seconds()) | u64::from(packed) << 32
    }
}

/// Bytes before the key, with the extra word or without.
#[inline]
pub fn header_bytes(wide: bool) -> usize {
    if wide { HEADER_EXT_BYTES } else { HEADER_BYTES }
}

/// Read the header at `offset`; `None` where that is outside the region.
#[inline]
pub fn read(items: &Region, offset: usize) -> Option<Header> {
    let words = items.words_at(offset, HEADER_EXT_BYTES)?;
    let word = |i: usize| u64::from_le(words[i].load(Relaxed));
    let (seq, word_1) = (word(0), word(1));
    let packed = (word_1 >> 32) as u32;
    let bits = packed >> FLAGS_SHIFT;
    let (wide, inline) = (bits & HAS_EXT != 0, packed >> VALUE_SHIFT);
    let second = word_1 as u32;
    let (flags, value_bytes, expires) = if wide {
        let ext = word(2);
        (ext as u32, (ext >> 32) as usize, Moment::new(second, inline & MILLIS_MASK))
    } else {
        (0, inline as usize, Moment::from_seconds(second))
    };
    Some(Header {
        seq,
        expires,
        key_bytes: packed as u8 as usize,
        value_bytes,
        flags,
        stale: bits & STALE != 0,
        token_sent: bits & TOKEN_SENT != 0,
        large: bits & LARGE != 0,
        wide,
        flush: packed >> FLUSH_SHIFT & (FLUSH_GENERATIONS - 1),
    })
}

/// Write the header at `offset`. The caller owns the record, or is inside its bucket.
#[inline]
pub fn write(items: &Region, offset: usize, header: &Header) {
    debug_assert!(
        header.wide
            || !header.large
                && header.value_bytes < VALUE_BYTES_INLINE
                && (header.flags, header.expires.millis()) == (0, 0)
    );
    let words = items.words_at(offset, header.header_bytes()).expect("a record inside the region");
    for (place, word) in words.iter().zip(header.words()) {
        place.store(word.to_le(), Relaxed);
    }
}

/// Rewrite the first two words after a change in place. The caller is inside the item's bucket.
#[inline]
pub fn rewrite(items: &Region, offset: usize, header: &Header) {
    let words = items.words_at(offset, HEADER_BYTES).expect("a record inside the region");
    words[0].store(header.seq.to_le(), Relaxed);
    words[1].store(header.word_1().to_le(), Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn header(expires: Moment, flags: u32, value_bytes: usize, wide: bool) -> Header {
        Header {
            seq: 0x0123_4567_89ab_cdef,
            expires,
            key_bytes: 250,
            value_bytes,
            flags,
            stale: true,
            token_sent: false,
            large: false,
            wide,
            flush: FLUSH_GENERATIONS - 1,
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let items = Region::reserve(4096, false).expect("a page");
        let last = Moment::new(u32::MAX - 1, 999);
        for header in [
            header(Moment::NEVER, 0, VALUE_BYTES_INLINE - 1, false),
            header(Moment::from_seconds(u32::MAX), 0, 0, false),
            header(Moment::NEVER, 7, 5, true),
            header(Moment::new(1_700_000_000, 1), 0, VALUE_BYTES_INLINE - 1, true),
            header(last, u32::MAX, 0, true),
            Header { large: true, ..header(last, 0, u32::MAX as usize, true) },
        ] {
            write(&items, 64, &header);
            assert_eq!(read(&items, 64), Some(header));
        }
    }

    #[test]
    fn an_end_is_changed_in_place_where_there_is_room_for_it() {
        let items = Region::reserve(4096, false).expect("a page");
        let wide = header(Moment::new(9, 999), 0, 300, true);
        write(&items, 0, &wide);
        for expires in [Moment::NEVER, Moment::from_seconds(8), Moment::new(7, 5)] {
            let changed = Header { expires, ..wide };
            rewrite(&items, 0, &changed);
            assert_eq!(read(&items, 0), Some(changed), "the value's length is kept beside it");
        }
    }
}
