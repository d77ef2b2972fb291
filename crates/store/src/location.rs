//! Where an item is, in 48 bits: 3 bits of medium, 5 bits of size class, 40 bits of 8-byte offset.
//!
//! A slot of a bucket is one word: 16 bits of tag above the location; 0 is an empty slot. The size
//! class is floor log2 of key + value bytes, so that dispatch need not touch the item.

/// Bits of the offset.
const OFFSET_BITS: u32 = 40;
const CLASS_SHIFT: u32 = 40;
const MEDIUM_SHIFT: u32 = 45;
const TAG_SHIFT: u32 = 48;
const LOCATION_MASK: u64 = (1 << TAG_SHIFT) - 1;

/// What kind of place an offset is in. The other numbers are not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Medium {
    /// Item memory: the offset is the record's, in units of 8 bytes.
    Arena = 0,
    /// A large item: the offset is the descriptor's number.
    Extent = 2,
    /// Not an item: the offset is the number of the overflow bucket that continues this one.
    Link = 7,
}

/// 48 bits that say where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location(u64);

impl Location {
    /// `offset` is in units of 8 bytes (or a number, see [`Medium`]).
    #[inline]
    pub fn new(medium: Medium, size_class: u8, offset: u64) -> Self {
        debug_assert!(size_class < 32 && offset < 1 << OFFSET_BITS);
        Location((medium as u64) << MEDIUM_SHIFT | u64::from(size_class) << CLASS_SHIFT | offset)
    }

    /// From a bucket's slot.
    #[inline]
    pub fn of_slot(word: u64) -> Self {
        Location(word & LOCATION_MASK)
    }

    /// The slot's word.
    #[inline]
    pub fn with_tag(self, tag: u16) -> u64 {
        u64::from(tag) << TAG_SHIFT | self.0
    }

    /// What kind of place.
    #[inline]
    pub fn medium(self) -> Medium {
        match self.0 >> MEDIUM_SHIFT & 7 {
            2 => Medium::Extent,
            7 => Medium::Link,
            _ => Medium::Arena,
        }
    }

    /// floor log2 of key + value bytes.
    #[inline]
    pub fn size_class(self) -> u8 {
        (self.0 >> CLASS_SHIFT) as u8 & 31
    }

    /// In units of 8 bytes, or a number.
    #[inline]
    pub fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }

    /// The 48 bits.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The tag in a slot's word.
#[inline]
pub fn tag_of_slot(word: u64) -> u16 {
    (word >> TAG_SHIFT) as u16
}

/// floor log2 of key + value bytes: the size class in a location.
#[inline]
pub fn size_class(key_and_value_bytes: usize) -> u8 {
    key_and_value_bytes.max(1).ilog2().min(31) as u8
}
