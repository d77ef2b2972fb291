//! Somebody who looks at a store through its window, as the program in the kernel does, but by
//! reading files: the arrays are memory files, and nothing of the store's code looks anything up.
#![allow(dead_code)] // each test binary uses a part

use laneway_store::layout::{CHAIN_MAX, Hasher, OVERFLOW_SLOTS, PARTITIONS, SLOTS};
use laneway_store::layout::{bucket_of, is_link, place, tag_of_slot};
use laneway_store::{Location, Medium, Moment, Onlooker, SharedArray, Window};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Hits are marked by so many bytes of items, up to so many.
const GRANULE_BYTES: usize = 16;
const MARK_MAX: u8 = 3;
const FLUSH_GENERATIONS: u32 = 64;

/// What an onlooker finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Value(Vec<u8>),
    /// No such key, or it is dead.
    Nothing,
    /// Behind the end of the window.
    Elsewhere,
}

#[derive(Debug)]
struct Told {
    buckets: [AtomicU64; PARTITIONS],
    flush: AtomicU32,
    marks: Vec<AtomicU8>,
}

impl Onlooker for Told {
    fn set_buckets(&self, partition: usize, buckets: u64) {
        self.buckets[partition].store(buckets, Relaxed);
    }

    fn set_flush(&self, generation: u32) {
        self.flush.store(generation, Relaxed);
    }

    fn take_hits(&self, offset: usize) -> u8 {
        self.marks[offset / GRANULE_BYTES].swap(0, Relaxed)
    }
}

/// The onlooker.
pub struct Foreign {
    told: Arc<Told>,
    buckets: File,
    overflows: File,
    items: File,
    items_bytes: usize,
    hasher: Hasher,
}

fn array(bytes: usize) -> (File, SharedArray) {
    let name = c"window";
    let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    let file = File::from(file);
    file.set_len(bytes.next_multiple_of(4096) as u64).expect("a length");
    let shared = file.try_clone().expect("a descriptor").into();
    (file, SharedArray { file: Arc::new(shared), bytes })
}

impl Foreign {
    /// An onlooker, and the window for a store whose hash function has this seed.
    pub fn new(seed: (u64, u64), buckets: usize, items_bytes: usize) -> (Foreign, Window) {
        let told = Arc::new(Told {
            buckets: [const { AtomicU64::new(0) }; PARTITIONS],
            flush: AtomicU32::new(0),
            marks: (0..items_bytes / GRANULE_BYTES).map(|_| AtomicU8::new(0)).collect(),
        });
        let (buckets, shared_buckets) = array(buckets * 64);
        let (overflows, shared_overflows) = array(shared_buckets.bytes / 2);
        let (items, shared_items) = array(items_bytes);
        let window = Window {
            buckets: shared_buckets,
            overflows: shared_overflows,
            items: shared_items,
            onlooker: told.clone(),
        };
        let hasher = Hasher::new(seed);
        (Foreign { told, buckets, overflows, items, items_bytes, hasher }, window)
    }

    /// Look a key up while nobody writes. A hit is marked.
    pub fn look(&self, key: &[u8], now: Moment) -> Seen {
        let hash = self.hasher.hash(key);
        let buckets = self.told.buckets[hash.partition()].load(Relaxed);
        let place = place(hash.partition(), bucket_of(hash, buckets));
        let Some(words) = words(&self.buckets, place * 64, 1 + SLOTS) else {
            return Seen::Elsewhere;
        };
        assert_eq!(words[0] & 1, 0, "nobody is inside");
        let mut slots = words[1..].to_vec();
        for _ in 0..=CHAIN_MAX {
            for &word in slots.iter().filter(|&&word| word != 0 && !is_link(word)) {
                if tag_of_slot(word) != hash.tag() {
                    continue;
                }
                if let Some(seen) = self.examine(Location::of_slot(word), key, now.seconds()) {
                    return seen;
                }
            }
            let last = slots[slots.len() - 1];
            if !is_link(last) {
                return Seen::Nothing;
            }
            let number = Location::of_slot(last).offset() as usize;
            match self::words(&self.overflows, number * 8 * OVERFLOW_SLOTS, OVERFLOW_SLOTS) {
                Some(words) => slots = words,
                None => return Seen::Elsewhere,
            }
        }
        panic!("a chain without end")
    }

    /// The record at a location, if it is the key's.
    fn examine(&self, location: Location, key: &[u8], now: u32) -> Option<Seen> {
        let offset = location.offset() as usize * 8;
        if location.medium() != Medium::Arena || offset >= self.items_bytes {
            return Some(Seen::Elsewhere);
        }
        assert!(offset % (64 << 10) <= (64 << 10) - 2048, "what is read from here may end outside");
        let head = words(&self.items, offset, 3).expect("inside");
        let (packed, end) = (head[1] as u32 as usize, (head[1] >> 32) as u32);
        let (header_bytes, value_bytes, expires, millis) = match packed >> 8 & 9 {
            0 => (16, packed >> 18, end, 0),
            8 => (12, packed >> 18, 0, 0), // its key begins where others have an end
            _ => (24, (head[2] >> 32) as usize, end, packed >> 18 & 1023),
        };
        let mut bytes = vec![0; key.len() + value_bytes];
        self.items.read_exact_at(&mut bytes, (offset + header_bytes) as u64).expect("inside");
        if packed & 255 != key.len() || &bytes[..key.len()] != key {
            return None;
        }
        let flush = (packed >> 12) as u32 % FLUSH_GENERATIONS;
        if millis != 0 {
            return Some(Seen::Elsewhere); // an end between its seconds is not looked at from here
        }
        let flushed = flush != self.told.flush.load(Relaxed) % FLUSH_GENERATIONS;
        if flushed || (expires != 0 && expires <= now) {
            return Some(Seen::Nothing);
        }
        let mark = &self.told.marks[offset / GRANULE_BYTES];
        mark.store((mark.load(Relaxed) + 1).min(MARK_MAX), Relaxed);
        Some(Seen::Value(bytes.split_off(key.len())))
    }
}

fn words(file: &File, at: usize, count: usize) -> Option<Vec<u64>> {
    let mut bytes = vec![0; 8 * count];
    file.read_exact_at(&mut bytes, at as u64).ok()?;
    let word = |eight: &[u8; 8]| u64::from_le_bytes(*eight);
    Some(bytes.as_chunks::<8>().0.iter().map(word).collect())
}
