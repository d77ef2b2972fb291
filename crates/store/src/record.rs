//! The record of an item: one fixed little-endian layout, for every medium.
//!
//! ```text
//! word 0   sequence (64)
//! word 1   key bytes (8) | flags (4) | flush generation (6) | 14 bits | end's second (32)
//!          the 14 bits: value bytes, or with HAS_EXT the end's milliseconds (10), and 4 unused
//!          the end's second: not in a bare record, whose key begins there
//! word 2   client flags (32) | value bytes (32)      only with HAS_EXT
//! then the key, then the value
//! ```
//! So 16 bytes stand before the key of an ordinary item, and 12 in a *bare* record: that of a short
//! item which was stored without an end. HAS_EXT is set where the client's flags are not zero, on
//! every large item, and where the end has milliseconds when the record is written. The form stays
//! whatever becomes of the end: the key stands where it stands. An item whose record has no room
//! for the end that it is given is written anew ([`crate::Entry::rewrite`]). The flush generation
//! (modulo 64) says which `flush_all`s the item has seen; it is not derived from the sequence,
//! because clients may choose an item's sequence (CAS override).
//!
//! A header read without a pin or a bucket's version is a guess: lengths are bounded, the rest may
//! be anything.

use crate::{moment::Moment, region::Region};
use laneway_sync::prim::Ordering::Relaxed;

/// Header of a short item that was stored without an end.
pub const HEADER_BARE_BYTES: usize = 12;
/// Header of an ordinary item.
pub const HEADER_BYTES: usize = 16;
/// Header with the extra word.
pub const HEADER_EXT_BYTES: usize = 24;

/// Flush generations are kept modulo this.
pub const FLUSH_GENERATIONS: u32 = 64;

const HAS_EXT: u32 = 1;
const STALE: u32 = 2;
const TOKEN_SENT: u32 = 4;
/// With HAS_EXT: in pieces. Without, which what is in pieces never is: bare.
const LARGE_OR_BARE: u32 = 8;

const FLAGS_SHIFT: u32 = 8;
const FLUSH_SHIFT: u32 = 12;
/// The value's length, or with HAS_EXT the end's milliseconds.
const VALUE_SHIFT: u32 = 18;
const MILLIS_MASK: u32 = (1 << 10) - 1;
const END_SHIFT: u32 = 32;
/// Values shorter than this fit in word 1.
pub const VALUE_BYTES_INLINE: usize = 1 << 14;

/// A bare record has this size at most: the four bytes that it saves count for little in a longer
/// one, which takes long to write anew when it is given an end.
pub const BARE_RECORD_BYTES_MAX: usize = 1024;

/// What stands before the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// No end, no client flags.
    Bare,
    /// An end, to the second, or none; no client flags.
    Plain,
    /// Everything.
    Wide,
}

impl Form {
    /// Bytes before the key.
    #[inline]
    pub const fn bytes(self) -> usize {
        match self {
            Form::Bare => HEADER_BARE_BYTES,
            Form::Plain => HEADER_BYTES,
            Form::Wide => HEADER_EXT_BYTES,
        }
    }

    /// Whether an end finds room.
    #[inline]
    pub const fn has_room_for(self, end: Moment) -> bool {
        match self {
            Form::Bare => end.seconds() == 0 && end.millis() == 0,
            Form::Plain => end.millis() == 0,
            Form::Wide => true,
        }
    }
}

/// A record's header, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Sequence.
    pub seq: u64,
    /// When it ends; one for which its form has room.
    pub expires: Moment,
    /// Length of the key.
    pub key_bytes: usize,
    /// Length of the value.
    pub value_bytes: usize,
    /// Client flags; 0 where it is not wide.
    pub flags: u32,
    /// Marked stale.
    pub stale: bool,
    /// The right to recache was given away.
    pub token_sent: bool,
    /// In pieces; then it is wide.
    pub large: bool,
    /// What stands before the key.
    pub form: Form,
    /// `flush_all`s seen, modulo [`FLUSH_GENERATIONS`].
    pub flush: u32,
}

impl Header {
    /// Bytes before the key.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.form.bytes()
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
    /// [`HEADER_EXT_BYTES`](Self::header_bytes), and of the second one only the lower half where
    /// [`HEADER_BARE_BYTES`](Self::header_bytes) are all. Little-endian is up to whoever stores
    /// them.
    #[inline]
    pub fn words(&self) -> [u64; 3] {
        let ext = u64::from(self.flags) | (self.value_bytes as u64) << 32;
        [self.seq, self.word_1(), ext]
    }

    fn word_1(&self) -> u64 {
        let (form, inline) = match self.form {
            Form::Bare => (LARGE_OR_BARE, self.value_bytes as u32),
            Form::Plain => (0, self.value_bytes as u32),
            Form::Wide if self.large => (HAS_EXT | LARGE_OR_BARE, self.expires.millis()),
            Form::Wide => (HAS_EXT, self.expires.millis()),
        };
        let bits = form
            | if self.stale { STALE } else { 0 }
            | if self.token_sent { TOKEN_SENT } else { 0 };
        let packed = self.key_bytes as u32
            | bits << FLAGS_SHIFT
            | self.flush << FLUSH_SHIFT
            | inline << VALUE_SHIFT;
        u64::from(packed) | u64::from(self.expires.seconds()) << END_SHIFT
    }
}

/// Read the header at `offset`; `None` where that is outside the region.
#[inline]
pub fn read(items: &Region, offset: usize) -> Option<Header> {
    let words = items.words_at(offset, HEADER_EXT_BYTES)?;
    let word = |i: usize| u64::from_le(words[i].load(Relaxed));
    let (seq, word_1) = (word(0), word(1));
    let packed = word_1 as u32;
    let bits = packed >> FLAGS_SHIFT;
    let (wide, inline) = (bits & HAS_EXT != 0, packed >> VALUE_SHIFT);
    let second = (word_1 >> END_SHIFT) as u32;
    let (form, flags, value_bytes, expires) = if wide {
        let (ext, end) = (word(2), Moment::new(second, inline & MILLIS_MASK));
        (Form::Wide, ext as u32, (ext >> 32) as usize, end)
    } else if bits & LARGE_OR_BARE != 0 {
        (Form::Bare, 0, inline as usize, Moment::NEVER)
    } else {
        (Form::Plain, 0, inline as usize, Moment::from_seconds(second))
    };
    Some(Header {
        seq,
        expires,
        key_bytes: packed as u8 as usize,
        value_bytes,
        flags,
        stale: bits & STALE != 0,
        token_sent: bits & TOKEN_SENT != 0,
        large: wide && bits & LARGE_OR_BARE != 0,
        form,
        flush: packed >> FLUSH_SHIFT & (FLUSH_GENERATIONS - 1),
    })
}

/// Write the header at `offset`, before the key that stands there. The caller owns the record, or
/// is inside its bucket.
#[inline]
pub fn write(items: &Region, offset: usize, header: &Header) {
    debug_assert!(
        header.form == Form::Wide
            || !header.large && header.value_bytes < VALUE_BYTES_INLINE && header.flags == 0
    );
    rewrite(items, offset, header);
    if header.form == Form::Wide {
        let words = items.words_at(offset, HEADER_EXT_BYTES).expect("a record inside the region");
        words[2].store(header.words()[2].to_le(), Relaxed);
    }
}

/// Rewrite the first two words after a change in place. The caller is inside the item's bucket.
#[inline]
pub fn rewrite(items: &Region, offset: usize, header: &Header) {
    debug_assert!(header.form.has_room_for(header.expires));
    let words = items.words_at(offset, HEADER_BYTES).expect("a record inside the region");
    words[0].store(header.seq.to_le(), Relaxed);
    let key = match header.form {
        // Nobody else writes this word, by the caller's right to write the record.
        Form::Bare => u64::from_le(words[1].load(Relaxed)) >> END_SHIFT << END_SHIFT,
        Form::Plain | Form::Wide => 0,
    };
    words[1].store((header.word_1() | key).to_le(), Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use laneway_sync::words;

    fn header(expires: Moment, flags: u32, value_bytes: usize, form: Form) -> Header {
        Header {
            seq: 0x0123_4567_89ab_cdef,
            expires,
            key_bytes: 250,
            value_bytes,
            flags,
            stale: true,
            token_sent: false,
            large: false,
            form,
            flush: FLUSH_GENERATIONS - 1,
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let items = Region::reserve(4096, false).expect("a page");
        let last = Moment::new(u32::MAX - 1, 999);
        for header in [
            header(Moment::NEVER, 0, VALUE_BYTES_INLINE - 1, Form::Bare),
            header(Moment::NEVER, 0, VALUE_BYTES_INLINE - 1, Form::Plain),
            header(Moment::from_seconds(u32::MAX), 0, 0, Form::Plain),
            header(Moment::NEVER, 7, 5, Form::Wide),
            header(Moment::new(1_700_000_000, 1), 0, VALUE_BYTES_INLINE - 1, Form::Wide),
            header(last, u32::MAX, 0, Form::Wide),
            Header { large: true, ..header(last, 0, u32::MAX as usize, Form::Wide) },
        ] {
            write(&items, 64, &header);
            assert_eq!(read(&items, 64), Some(header));
        }
    }

    /// The key of a bare record begins in the header's second word: it stays when the header is
    /// written, and the header when the key is.
    #[test]
    fn a_bare_header_ends_where_the_key_begins() {
        let items = Region::reserve(4096, false).expect("a page");
        let key: Vec<u8> = (1..=250).collect();
        let words = items.words_at(64, HEADER_BARE_BYTES + key.len()).expect("inside");
        words::write(words, HEADER_BARE_BYTES, &key);
        let mut bare = header(Moment::NEVER, 0, 300, Form::Bare);
        for (seq, flush) in [(u64::MAX, 0), (0, FLUSH_GENERATIONS - 1)] {
            (bare.seq, bare.flush, bare.stale) = (seq, flush, flush == 0);
            write(&items, 64, &bare);
            assert_eq!(read(&items, 64), Some(bare));
            assert!(words::equal(words, bare.header_bytes(), &key), "the key is there");
        }
        words::write(words, HEADER_BARE_BYTES, &[0xff; 250]);
        assert_eq!(read(&items, 64), Some(bare), "and none of its bytes is an end");
        assert_eq!(bare.record_bytes(), 12 + 250 + 300);
    }

    #[test]
    fn an_end_is_changed_in_place_where_there_is_room_for_it() {
        let items = Region::reserve(4096, false).expect("a page");
        let wide = header(Moment::new(9, 999), 0, 300, Form::Wide);
        write(&items, 0, &wide);
        for expires in [Moment::NEVER, Moment::from_seconds(8), Moment::new(7, 5)] {
            let changed = Header { expires, ..wide };
            rewrite(&items, 0, &changed);
            assert_eq!(read(&items, 0), Some(changed), "the value's length is kept beside it");
            for (form, is_room) in [
                (Form::Bare, expires == Moment::NEVER),
                (Form::Plain, expires.millis() == 0),
                (Form::Wide, true),
            ] {
                assert_eq!(form.has_room_for(expires), is_room, "{form:?}, {expires:?}");
            }
        }
    }
}
