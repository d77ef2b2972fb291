//! The store as one value, and what its parts need of each other: where a record is, what it says,
//! whether it is dead.

use crate::{
    cursor::{Drain, Remains, Sweeper},
    geometry::SMALL_RECORD_BYTES_MAX,
    hash::{Hasher, PARTITIONS},
    hook::{Evictions, Hook},
    index::{Chained, Index, Partition},
    large::LargeTable,
    location::{Location, Medium},
    mark::{self, Mark},
    memory::Memory,
    moment::Moment,
    record::{self, FLUSH_GENERATIONS, HEADER_BYTES, Header},
    types::{Config, HugePages, ItemMeta, KEY_BYTES_MAX, KeyHash, Mode},
};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::{
    prim::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    words,
};
use std::{
    fmt, io,
    sync::{Arc, Mutex, OnceLock},
};

/// The smallest memory a store works with.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// The store. Everything is done through `&Store`, from any thread.
pub struct Store {
    pub(crate) mode: Mode,
    pub(crate) item_bytes_max: u64,
    /// The share of the memory that drafts may hold, as bytes of the memory at the start.
    unpublished_share: (u64, u64),
    hasher: Hasher,
    pub(crate) index: Index,
    pub(crate) memory: Memory,
    pub(crate) large: LargeTable,
    /// CAS ids that are given out are greater than this; each partition draws its own.
    pub(crate) seq_base: AtomicU64,
    /// How often everything was flushed.
    pub(crate) flush_generation: AtomicU32,
    /// What was flushed before this generation is taken out: the last whole pass of the sweep has
    /// seen to that.
    pub(crate) flush_generation_swept: AtomicU32,
    /// The time that the sweep was told last, in milliseconds since 1970, for who makes room and is
    /// told none.
    pub(crate) told_millis: AtomicU64,
    pub(crate) hook: Option<Box<dyn Hook>>,
    pub(crate) evictions: OnceLock<Arc<dyn Evictions>>,
    pub(crate) counters: Counters,
    pub(crate) drain: Mutex<Drain>,
    /// Of the window; who holds it may move items into the window.
    pub(crate) window_drain: Mutex<Drain>,
    pub(crate) sweeper: Mutex<Sweeper>,
    pub(crate) remains: Remains,
}

/// The sequence, above the base, that a partition gives out after so many.
fn seq_behind(partition: usize, before: u64) -> u64 {
    before * PARTITIONS as u64 + partition as u64 + 1
}

/// Counts that are not worth one per partition.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub evictions: AtomicU64,
    pub evicted_unfetched: AtomicU64,
    pub evicted_active: AtomicU64,
    pub expired_unfetched: AtomicU64,
    pub found_expired: AtomicU64,
    pub found_flushed: AtomicU64,
    pub reclaimed: AtomicU64,
    pub reclaimed_flushed: AtomicU64,
    pub read_retries: AtomicU64,
    pub unpublished_bytes: AtomicU64,
    /// Wraps below zero for a moment when the last reader is quicker than the killer.
    pub pinned_dead_bytes: AtomicU64,
    pub evicted_bytes_recent: AtomicU64,
    pub promotions: AtomicU64,
    pub demotions: AtomicU64,
    pub demoted_bytes_recent: AtomicU64,
    /// Hits of items outside the window that would fit into it, to choose some of them.
    pub promotable: AtomicU64,
    /// Bytes of the descriptors' piece lists.
    pub piece_list_bytes: AtomicU64,
}

/// An item looked up: its place in the index is known to the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub location: Location,
    /// Of the header.
    pub offset: usize,
    pub header: Header,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Store {
    /// An empty store.
    pub fn new(config: Config) -> io::Result<Arc<Store>> {
        Store::build(config, None)
    }

    /// An empty store with a listener.
    pub fn with_hook(config: Config, hook: Box<dyn Hook>) -> io::Result<Arc<Store>> {
        Store::build(config, Some(hook))
    }

    /// Tells of evictions from now on. Who was named first stays.
    pub fn tell_evictions(&self, to: Arc<dyn Evictions>) {
        let _ = self.evictions.set(to);
    }

    /// The number of the size class that an item with so many bytes of key and value, without
    /// client flags and an end, is told in.
    pub fn class_number(&self, item_bytes: u64) -> u32 {
        let bytes = usize::try_from(item_bytes).unwrap_or(usize::MAX / 2);
        self.class_number_of(self.form_for(0, Moment::NEVER, bytes).bytes() + bytes)
    }

    /// The number of the size class that a record is told in.
    pub(crate) fn class_number_of(&self, record_bytes: usize) -> u32 {
        let class = match record_bytes <= SMALL_RECORD_BYTES_MAX {
            true => self.memory.class_for(record_bytes),
            false => self.memory.block_class(), // its first piece, at least
        };
        self.memory.class_number(class)
    }

    fn build(mut config: Config, hook: Option<Box<dyn Hook>>) -> io::Result<Arc<Store>> {
        config.memory_bytes = config.memory_bytes.max(MEMORY_BYTES_MIN);
        let memory = Memory::new(&config)?;
        // The smallest slots filled, at 12 bytes of index per item, and some.
        let buckets_max = (memory.items.bytes() / 24 * 16 / 64) as u64;
        let buckets = config.buckets_initial.min(config.memory_bytes / 16 / 64).max(1);
        let window = config.window.as_ref();
        let huge_pages = config.huge_pages != HugePages::None;
        let index = Index::new(buckets, buckets_max, huge_pages, window)?;
        memory.set_index_bytes(index.bytes());
        Ok(Arc::new(Store {
            mode: config.mode,
            item_bytes_max: config.item_bytes_max,
            unpublished_share: (config.unpublished_bytes_max, config.memory_bytes),
            hasher: Hasher::new(config.hash_seed),
            index,
            memory,
            large: LargeTable::default(),
            seq_base: AtomicU64::new(0),
            flush_generation: AtomicU32::new(0),
            flush_generation_swept: AtomicU32::new(0),
            told_millis: AtomicU64::new(0),
            hook,
            evictions: OnceLock::new(),
            counters: Counters::default(),
            drain: Mutex::default(),
            window_drain: Mutex::new(Drain::of_window()),
            sweeper: Mutex::default(),
            remains: Remains::default(),
        }))
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// Ask the cache for the bucket line.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.index.prefetch(hash);
    }

    /// Ask the cache for the items' own lines, and their hit marks', going by their tags; best some
    /// time after [`prefetch`](Self::prefetch) of each. Of keys whose tag is not in their primary
    /// bucket the overflow bucket is asked for first, and waited for when all others are on their
    /// way.
    #[inline]
    pub fn prefetch_items(&self, hashes: &[KeyHash]) {
        for hashes in hashes.chunks(u64::BITS as usize) {
            let mut chained = 0_u64;
            for (at, &hash) in hashes.iter().enumerate() {
                match self.index.find_ahead(self.index.primary(hash), hash.tag()) {
                    Ok(Some(location)) => {
                        self.prefetch_location(location);
                    }
                    Ok(None) => {}
                    Err(Chained) => chained |= 1 << at,
                }
            }
            while chained != 0 {
                let hash = hashes[chained.trailing_zeros() as usize];
                let found = self.index.find(self.index.primary(hash), hash.tag(), |_| true);
                if let Some((_, location)) = found {
                    self.prefetch_location(location);
                }
                chained &= chained - 1;
            }
        }
    }

    /// Ask the cache for the lines of an item, if it is small, and for its hit mark's, whose number
    /// is returned.
    #[inline]
    pub(crate) fn prefetch_location(&self, location: Location) -> Option<usize> {
        if location.medium() != Medium::Arena {
            return None;
        }
        // Key and value together are less than this, and not less than half of it.
        let bytes = HEADER_BYTES + (2 << location.size_class());
        self.memory.prefetch(location.offset() as usize * 8, bytes)
    }

    /// Have what is stored from now on, and the index, on this NUMA node as long as it has room.
    /// An error says that the kernel does not bind memory, or not for us, and changes nothing else.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        self.index.prefer_node(node)?;
        self.memory.prefer_node(node)
    }

    /// `cache_memlimit`. Raising reaches as far as address space was reserved (four times the first
    /// limit, 1 GiB at least). Lowering takes effect little by little, with every draft and sweep.
    pub fn set_memory_bytes(&self, bytes: u64) {
        self.memory.set_limit_bytes(bytes.max(self.memory_bytes_least()));
    }

    /// The lowest limit. What lies in a window stays, and so does the index's part of it: beside
    /// them two of the largest items have room, or else nothing but what fits in there could be
    /// kept; and no more than there was at the start.
    fn memory_bytes_least(&self) -> u64 {
        let window_bytes = self.memory.window_bytes() as u64;
        if window_bytes == 0 {
            return MEMORY_BYTES_MIN;
        }
        let (_, at_start) = self.unpublished_share;
        let least = window_bytes + self.index.bytes() + 2 * self.item_bytes_max;
        least.min(at_start).max(MEMORY_BYTES_MIN)
    }

    /// The memory limit.
    pub fn limit_bytes(&self) -> u64 {
        self.memory.limit_bytes()
    }

    /// The largest item that is taken.
    pub fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max
    }

    /// What drafts of large values may hold before they are published: the same share of the memory
    /// as at the start, whatever its limit has become, and one item of the largest size always.
    pub(crate) fn unpublished_bytes_max(&self) -> u64 {
        let (bytes, of) = self.unpublished_share;
        let share = u128::from(bytes) * u128::from(self.limit_bytes()) / u128::from(of);
        (share as u64).max(self.item_bytes_max + self.item_bytes_max / 8 + (64 << 10))
    }

    /// The greatest sequence given out, or the one that none may be below.
    pub fn seq(&self) -> u64 {
        let last = |(number, partition): (usize, &Partition)| {
            let drawn = partition.counts.drawn.load(Relaxed);
            drawn.checked_sub(1).map_or(0, |before| seq_behind(number, before))
        };
        let most = self.index.partitions().iter().enumerate().map(last).max();
        self.seq_base.load(Relaxed) + most.unwrap_or(0)
    }

    /// The greatest sequence given out for a store under this hash, or one that none may be below.
    pub fn seq_of(&self, hash: KeyHash) -> u64 {
        let drawn = self.index.partition(hash).counts.drawn.load(Relaxed);
        let last = drawn.checked_sub(1).map_or(0, |before| seq_behind(hash.partition(), before));
        self.seq_base.load(Relaxed) + last
    }

    /// Give out no sequence up to this one any more. Before anything is stored, or for good: where
    /// sequences were given out above it, nothing changes.
    pub fn raise_seq(&self, at_least: u64) {
        if at_least <= self.seq() {
            return; // each partition's would move against the others'
        }
        self.seq_base.fetch_max(at_least, Relaxed); // a bound; what has an id is published later
    }

    /// A sequence for a store under this hash. Of one key each is greater than the last, and none
    /// is given twice; stores in different partitions write no line in common for it.
    pub(crate) fn draw_seq(&self, hash: KeyHash) -> u64 {
        let before = self.index.partition(hash).counts.draw();
        self.seq_base.load(Relaxed) + seq_behind(hash.partition(), before)
    }

    /// Where the record of a location begins; any location, as it may come from an unvalidated
    /// read.
    #[inline]
    pub(crate) fn record_offset(&self, location: Location) -> Option<usize> {
        match location.medium() {
            Medium::Arena => Some(location.offset() as usize * 8),
            Medium::Extent => Some(self.large.get(location.offset() as u32)?.record_offset()),
            _ => None,
        }
    }

    /// The record at a location, if its key is `key`. Not validated.
    #[inline]
    pub(crate) fn record_of(&self, location: Location, key: &[u8]) -> Option<Record> {
        let offset = self.record_offset(location)?;
        let header = record::read(&self.memory.items, offset)?;
        if header.key_bytes != key.len() {
            return None;
        }
        let key_at = header.header_bytes();
        let words = self.memory.items.words_at(offset, key_at + key.len())?;
        words::equal(words, key_at, key).then_some(Record { location, offset, header })
    }

    /// The key of the record at `offset`, appended to `out`. Not validated.
    pub(crate) fn key_at(&self, offset: usize, header: &Header, out: &mut Vec<u8>) -> Option<()> {
        if header.key_bytes > KEY_BYTES_MAX {
            return None;
        }
        let key_at = header.header_bytes();
        let words = self.memory.items.words_at(offset, key_at + header.key_bytes)?;
        let from = out.len();
        out.resize(from + header.key_bytes, 0);
        words::read_to(words, key_at, &mut out[from..]);
        Some(())
    }

    /// The same, in `room`.
    #[inline]
    pub(crate) fn key_in<'r>(
        &self,
        offset: usize,
        header: &Header,
        room: &'r mut [u8; KEY_BYTES_MAX],
    ) -> Option<&'r [u8]> {
        let key = room.get_mut(..header.key_bytes)?;
        let key_at = header.header_bytes();
        let words = self.memory.items.words_at(offset, key_at + key.len())?;
        words::read_to(words, key_at, key);
        Some(key)
    }

    /// The hash of whatever key the record at a location holds. Not validated.
    pub(crate) fn hash_of(&self, location: Location) -> Option<KeyHash> {
        let offset = self.record_offset(location)?;
        let header = record::read(&self.memory.items, offset)?;
        let mut room = [0; KEY_BYTES_MAX];
        self.key_in(offset, &header, &mut room).map(|key| self.hash(key))
    }

    /// Expired, or flushed.
    #[inline]
    pub(crate) fn is_dead(&self, header: &Header, now: Moment) -> bool {
        (header.expires.is_over(now) && !is_planted(Bug::ExpiredServed))
            || header.flush != self.flush_now()
    }

    /// The flush generation that records are stamped with.
    #[inline]
    pub(crate) fn flush_now(&self) -> u32 {
        self.flush_generation.load(Relaxed) % FLUSH_GENERATIONS
    }

    /// The hit mark of an item.
    #[inline]
    pub(crate) fn mark_of(&self, location: Location) -> Option<&AtomicU16> {
        match location.medium() {
            Medium::Arena => self.memory.mark(location.offset() as usize * 8),
            Medium::Extent => self.large.get(location.offset() as u32).map(|d| &d.mark),
            _ => None,
        }
    }

    /// The hit mark of an item, and what it says, an onlooker's hits included.
    #[inline]
    pub(crate) fn look_at_mark(
        &self,
        location: Location,
        now: Moment,
    ) -> (Option<&AtomicU16>, Mark) {
        let Some(place) = self.mark_of(location) else { return (None, Mark(0)) };
        let mark = match location.medium() {
            Medium::Arena => {
                self.memory.load_mark(place, location.offset() as usize * 8, Some(now))
            }
            _ => mark::load(place),
        };
        (Some(place), mark)
    }

    /// What the interface tells of an item.
    #[inline]
    pub(crate) fn meta_of(&self, header: &Header, mark: Mark, now: Moment) -> ItemMeta {
        ItemMeta {
            seq: header.seq,
            flags: header.flags,
            expires: header.expires,
            value_bytes: header.value_bytes as u32,
            key_bytes: header.key_bytes as u8,
            stale: header.stale,
            token_sent: header.token_sent,
            fetched: mark.fetched(),
            idle_seconds: mark.idle_seconds(now),
        }
    }
}
