//! Has the plain values of the store's interface. Sizes are in bytes, times are moments.

use crate::{moment::Moment, window::Window};

/// The seeded 64-bit hash of a key (SipHash-1-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u64);

/// The longest key, as in memcached.
pub const KEY_BYTES_MAX: usize = 250;

/// What happens when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Evict what was not used lately.
    Cache,
    /// Never evict: refuse.
    Store,
}

/// What lies on huge pages (2 MiB), where an address is translated in fewer steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// Nothing.
    None,
    /// The index. It is dense, so that at most the last page of its buckets and that of its
    /// overflow buckets are resident without being used.
    Index,
    /// Index, items and hit marks. Each class of items fills its own chunks, and a chunk's marks
    /// have room for the smallest items, so that more is resident than is used.
    All,
}

/// How to build a [`Store`](crate::Store).
#[derive(Debug, Clone)]
pub struct Config {
    /// Chunks and index together may take this much.
    pub memory_bytes: u64,
    /// Evict or refuse.
    pub mode: Mode,
    /// Largest item: key + value + header.
    pub item_bytes_max: u64,
    /// The key of the hash function.
    pub hash_seed: (u64, u64),
    /// The most bytes drafts of large values may hold before they are published.
    pub unpublished_bytes_max: u64,
    /// Buckets to begin with; the index grows from there.
    pub buckets_initial: u64,
    /// What lies on huge pages where the kernel offers them.
    pub huge_pages: HugePages,
    /// Memory through which somebody else looks at the store.
    pub window: Option<Window>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory_bytes: 64 << 20,
            mode: Mode::Cache,
            item_bytes_max: 1 << 20,
            hash_seed: (0x6c61_6e65_7761_7931, 0x6c61_6e65_7761_7932),
            unpublished_bytes_max: 16 << 20,
            buckets_initial: 4096,
            huge_pages: HugePages::None,
            window: None,
        }
    }
}

/// What is known of one live item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemMeta {
    /// CAS id = log sequence = migration guard.
    pub seq: u64,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it ends.
    pub expires: Moment,
    /// Length of the value.
    pub value_bytes: u32,
    /// Length of the key.
    pub key_bytes: u8,
    /// Marked stale by `md I`.
    pub stale: bool,
    /// Somebody already won the right to recache.
    pub token_sent: bool,
    /// Fetched since stored, before this access.
    pub fetched: bool,
    /// Seconds since the last access; saturates at [`crate::IDLE_SECONDS_MAX`].
    pub idle_seconds: u32,
}

impl ItemMeta {
    /// Bytes of key and value.
    #[inline]
    pub fn item_bytes(&self) -> u64 {
        u64::from(self.key_bytes) + u64::from(self.value_bytes)
    }
}

/// Why a draft was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Larger than `item_bytes_max`.
    TooLarge,
    /// No memory left, and nothing may or can be evicted; or too many bytes are under construction.
    OutOfMemory,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::TooLarge => "object too large for cache",
            Refused::OutOfMemory => "out of memory storing object",
        })
    }
}

impl std::error::Error for Refused {}

/// Adds the fields of one to those of another.
macro_rules! add {
    ($to:expr, $from:expr; $($field:ident)*) => { $($to.$field += $from.$field;)* };
}

/// Counts and sizes of the whole store.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Items linked now (dead ones that nobody met yet included).
    pub items: u64,
    /// Items ever published.
    pub items_total: u64,
    /// Bytes of linked items: header + key + value.
    pub bytes: u64,
    /// The memory limit.
    pub limit_bytes: u64,
    /// Live items unlinked to make room.
    pub evictions: u64,
    /// Of these, never fetched.
    pub evicted_unfetched: u64,
    /// Of these, used since the hand came by last.
    pub evicted_active: u64,
    /// Items that expired without having been fetched.
    pub expired_unfetched: u64,
    /// Lookups that met an item which had expired; the item goes with it.
    pub found_expired: u64,
    /// The same of one that was flushed.
    pub found_flushed: u64,
    /// Expired or flushed items whose memory was taken back.
    pub reclaimed: u64,
    /// Of these, flushed.
    pub reclaimed_flushed: u64,
    /// Bytes of buckets in use, overflow included.
    pub index_bytes: u64,
    /// Primary buckets.
    pub buckets: u64,
    /// Overflow buckets in use.
    pub buckets_overflow: u64,
    /// Slots that hold a location.
    pub slots_filled: u64,
    /// Index, item headers, hit marks, bitmaps and piece lists.
    pub metadata_bytes: u64,
    /// Bytes of chunks ever taken from the system and not given back.
    pub pool_bytes: u64,
    /// Of these, in no class.
    pub pool_free_bytes: u64,
    /// Bytes of dead large items that somebody still reads.
    pub pinned_dead_bytes: u64,
    /// Bytes held by drafts of large items.
    pub unpublished_bytes: u64,
    /// Optimistic reads that had to begin again.
    pub read_retries: u64,
    /// The latest sequence given out.
    pub seq: u64,
    /// Bytes of the window's records, counted in `pool_bytes` as they are used; 0 without one.
    pub window_bytes: u64,
    /// Records in the window.
    pub window_items: u64,
    /// Items that moved into the window because they were asked for often.
    pub promotions: u64,
    /// Items that made room for these.
    pub demotions: u64,
}

impl Stats {
    /// Add another store's, for who has several.
    pub fn add(&mut self, other: &Stats) {
        add! {
            self, other;
            items items_total bytes limit_bytes evictions evicted_unfetched evicted_active
            expired_unfetched found_expired found_flushed reclaimed reclaimed_flushed index_bytes
            buckets buckets_overflow slots_filled metadata_bytes pool_bytes pool_free_bytes
            pinned_dead_bytes unpublished_bytes read_retries window_bytes window_items promotions
            demotions
        }
        self.seq = self.seq.max(other.seq);
    }
}

/// One slab class.
#[derive(Debug, Clone, Default)]
pub struct ClassStats {
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Chunks of this class.
    pub chunks: u64,
    /// Slots in these chunks.
    pub slots: u64,
    /// Slots taken, by items and drafts.
    pub used: u64,
    /// Items and drafts whose record begins in a slot of this class.
    pub items: u64,
    /// Bytes of the slots taken.
    pub bytes: u64,
    /// Slots evicted so far.
    pub evicted: u64,
    /// The class's number.
    pub class: u32,
}

impl ClassStats {
    /// Add those of the same class in another store, for who has several.
    pub fn add(&mut self, other: &ClassStats) {
        add!(self, other; chunks slots used items bytes evicted);
    }
}
