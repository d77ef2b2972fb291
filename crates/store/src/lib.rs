//! The in-memory store (facade; bodies under construction).
#![allow(missing_docs, unused_variables, clippy::unimplemented)]

/// The seeded 64-bit hash of a key (SipHash-1-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub u64);

/// Absolute unix seconds; 0 = never. Injected: nothing here reads a clock.
pub type UnixSeconds = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode { Cache, Store }

#[derive(Debug, Clone)]
pub struct Config {
    pub memory_bytes: u64,
    pub mode: Mode,
    /// Largest item: key + value + header.
    pub item_bytes_max: u64,
    pub hash_seed: (u64, u64),
    /// The most bytes drafts of large values may hold before they are published.
    pub unpublished_bytes_max: u64,
    /// Buckets to begin with; the index grows from there.
    pub buckets_initial: u64,
    /// Back the memory by huge pages where the kernel offers them.
    pub huge_pages: bool,
}

/// What is known of one live item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemMeta {
    /// CAS id = log sequence = migration guard.
    pub seq: u64,
    pub flags: u32,
    /// 0 = never
    pub expires: UnixSeconds,
    pub value_bytes: u32,
    pub key_bytes: u8,
    /// marked stale by `md I` 
    pub stale: bool,
    /// somebody already won the right to recache
    pub token_sent: bool,
    /// fetched since stored, before this access
    pub fetched: bool,
    /// seconds since the last access (saturates)
    pub idle_seconds: u32,
}

/// Why a draft was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused { TooLarge, OutOfMemory }

/// Answer to `get`.
pub enum Got { Miss, Copied(ItemMeta), Large(ItemMeta, Pinned) }

pub struct Store { }
/// A large item pinned: its bytes stay where they are until this is dropped. Send, 'static (holds an Arc of the store).
pub struct Pinned { }
/// An item under construction, visible to nobody. Dropped = memory returned. Send, 'static.
pub struct Draft { }
/// A bucket entered for writing (short! pointer moves only), looking at one key. Drop leaves it.
pub struct Entry<'s> { _s: &'s Store }

impl Store {
    pub fn new(config: Config) -> std::io::Result<std::sync::Arc<Store>> { unimplemented!() }
    pub fn hash(&self, key: &[u8]) -> KeyHash { unimplemented!() }
    /// Ask the cache for the bucket line.
    pub fn prefetch(&self, hash: KeyHash) {}
    /// GET. `head` writes what stands before the value (it may be called again after a torn read; `out` is
    /// truncated first); the value is copied behind it if the item is small (contiguous). A large one is pinned and
    /// `head` is not called. Marks the hit. Expired and flushed items are misses (and are unlinked).
    pub fn get(self: &std::sync::Arc<Self>, hash: KeyHash, key: &[u8], now: UnixSeconds, out: &mut Vec<u8>, head: &mut dyn FnMut(&ItemMeta, &mut Vec<u8>)) -> Got { unimplemented!() }
    /// Metadata only; leaves no hit mark.
    pub fn peek(&self, hash: KeyHash, key: &[u8], now: UnixSeconds) -> Option<ItemMeta> { unimplemented!() }
    /// Size class (floor log2 of key+value bytes) from the index alone, for dispatch: `None` on miss.
    pub fn size_class(&self, hash: KeyHash, key: &[u8]) -> Option<u8> { unimplemented!() }
    /// Begin an item. Small ones take their slot at once (evicting in cache mode); large ones take blocks as bytes arrive.
    pub fn draft(self: &std::sync::Arc<Self>, key: &[u8], flags: u32, expires: UnixSeconds, value_bytes: usize, now: UnixSeconds) -> Result<Draft, Refused> { unimplemented!() }
    /// Enter the key's bucket. At most 64 tries, then yields to the scheduler between tries.
    pub fn enter(&self, hash: KeyHash, key: &[u8], now: UnixSeconds) -> Entry<'_> { unimplemented!() }
    /// Everything stored so far is dead from now on.
    pub fn flush_all(&self) {}
    /// One bounded turn of the background sweep: looks at about `slots` slots; returns items expired.
    pub fn sweep(&self, now: UnixSeconds, slots: usize) -> usize { 0 }
    pub fn stats(&self) -> Stats { unimplemented!() }
    pub fn class_stats(&self) -> Vec<ClassStats> { unimplemented!() }
    /// `cache_memlimit`
    pub fn set_memory_bytes(&self, bytes: u64) {}
}

impl Entry<'_> {
    /// The live item, if there is one (expired and flushed ones are not).
    pub fn meta(&self) -> Option<ItemMeta> { unimplemented!() }
    pub fn set_expires(&mut self, expires: UnixSeconds) {}
    pub fn set_stale(&mut self, stale: bool) {}
    pub fn set_token_sent(&mut self, sent: bool) {}
    pub fn set_flags_seq(&mut self, seq: u64) {}
    /// A fresh CAS id for the item in place (md I).
    pub fn renew_seq(&mut self, explicit: Option<u64>) -> u64 { 0 }
    pub fn mark_fetched(&mut self) {}
    pub fn unlink(&mut self) {}
    /// Make the draft (which must be complete) the key's item, replacing any old one. Returns its sequence.
    pub fn publish(&mut self, draft: Draft, seq: Option<u64>) -> u64 { unimplemented!() }
}

impl Draft {
    /// Value bytes still to come.
    pub fn missing(&self) -> usize { 0 }
    pub fn is_large(&self) -> bool { false }
    /// Copy `bytes` in behind what is there; takes memory as needed. At most `missing()` bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> { Ok(()) }
    /// Room to receive into directly (large drafts): a piece of at most one block, taken now; then `advance`.
    pub fn room(&mut self) -> Result<&mut [u8], Refused> { unimplemented!() }
    pub fn advance(&mut self, bytes: usize) {}
    /// Flags on the item to be: stale / token sent.
    pub fn set_marks(&mut self, stale: bool, token_sent: bool) {}
}

impl Pinned {
    pub fn value_bytes(&self) -> usize { 0 }
    /// The value's bytes from `offset` to the end of the piece it lies in (pieces are at most about 32 KiB).
    pub fn piece(&self, offset: usize) -> &[u8] { &[] }
    /// Copy all of the value behind `out` (append, incr; not the data path).
    pub fn copy_into(&self, out: &mut Vec<u8>) {}
}

#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub items: u64, pub items_total: u64, pub bytes: u64, pub limit_bytes: u64,
    pub evictions: u64, pub evicted_unfetched: u64, pub evicted_active: u64, pub expired_unfetched: u64, pub reclaimed: u64,
    pub index_bytes: u64, pub buckets: u64, pub buckets_overflow: u64, pub slots_filled: u64,
    pub metadata_bytes: u64, pub pool_bytes: u64, pub pool_free_bytes: u64, pub pinned_dead_bytes: u64, pub unpublished_bytes: u64,
    pub read_retries: u64, pub seq: u64,
}
#[derive(Debug, Clone, Default)]
pub struct ClassStats { pub slot_bytes: u64, pub chunks: u64, pub slots: u64, pub used: u64, pub bytes: u64, pub evicted: u64, pub class: u32 }
