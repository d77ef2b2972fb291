//! The lane's writer, small: one thread, a fixed number of buckets a partition, records of one
//! length of slot. It builds a record outside, enters the bucket (odd), moves the location, leaves.

use laneway_kernel::layout::{Interface, Settings};
use laneway_kernel::{Error, Lane, Memory, Program, Room};
use laneway_store::layout::{Form, Hasher, Header, PARTITIONS, SLOTS, bucket_of, link_word, place};
use laneway_store::layout::{OVERFLOW_SLOTS, is_link, size_class};
use laneway_store::{Location, Medium, Moment};
use laneway_sync::words;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const PORT: u16 = 11211;
pub const SEED: (u64, u64) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
/// The wall clock of the tests stands at 2001, and the time since boot is added to it.
pub const UNIX_MINUS_BOOT_NS: i64 = 1_000_000_000 * 1_000_000_000;
pub const PAST: Moment = Moment::from_seconds(1);
pub const FUTURE: Moment = Moment::from_seconds(4_000_000_000);

const BUCKETS_EACH: u64 = 64;
const OVERFLOWS: u32 = 256;
const SLOT_BYTES: usize = 2048;

/// What an item is, besides its key and value.
#[derive(Clone, Copy)]
pub struct Attributes {
    pub seq: u64,
    pub flags: u32,
    pub expires: Moment,
    pub flush: u32,
    pub stale: bool,
    pub medium: Medium,
}

pub const PLAIN: Attributes = Attributes {
    seq: 7,
    flags: 0,
    expires: Moment::NEVER,
    flush: 0,
    stale: false,
    medium: Medium::Arena,
};

pub struct Writer {
    pub lane: Lane,
    memory: Memory,
    hasher: Hasher,
    next_slot: usize,
    next_overflow: AtomicU64,
}

impl Writer {
    pub fn new(program: Program, own: &[&str]) -> Result<Writer, Error> {
        let room = Room {
            buckets: PARTITIONS as u32 * BUCKETS_EACH as u32,
            overflows: OVERFLOWS,
            items_bytes: 4 << 20,
        };
        let lane = Lane::load(program, &room)?;
        for partition in 0..PARTITIONS {
            lane.control().set_buckets(partition, BUCKETS_EACH);
        }
        let memory = lane.memory()?;
        let hasher = Hasher::new(SEED);
        let writer = Writer { lane, memory, hasher, next_slot: 1, next_overflow: 0.into() };
        writer.lane.control().open(&writer.settings(own));
        Ok(writer)
    }

    pub fn settings(&self, own: &[&str]) -> Settings {
        Settings {
            ports: vec![PORT..=PORT],
            own: own.iter().map(|text| text.parse().expect("an address")).collect(),
            served: Vec::new(),
            refused: Vec::new(),
            // Where trial runs happen, unless they are told otherwise.
            interfaces: vec![Interface { index: 1, ethernet: [0; 6], mtu_bytes: 65_536 }],
            period_bytes: 0,
            mtu_bytes: 1500,
            payload_bytes_max: 1472,
            hash_start: self.hasher.start(),
            unix_minus_boot_ns: UNIX_MINUS_BOOT_NS,
        }
    }

    fn bucket(&self, key: &[u8]) -> (usize, u16) {
        let hash = self.hasher.hash(key);
        (place(hash.partition(), bucket_of(hash, BUCKETS_EACH)), hash.tag())
    }

    /// A slot for a record that no location leads to.
    pub fn slot(&mut self) -> usize {
        // The last slot of an element is where the lane serves nothing.
        if self.next_slot % ((1 << 20) / SLOT_BYTES) == (1 << 20) / SLOT_BYTES - 1 {
            self.next_slot += 1;
        }
        self.next_slot += 1;
        (self.next_slot - 1) * SLOT_BYTES
    }

    /// Write a record at a byte offset; the word that leads to it.
    pub fn record(&self, at: usize, key: &[u8], value: &[u8], with: Attributes) -> u64 {
        let header = Header {
            seq: with.seq,
            expires: with.expires,
            key_bytes: key.len(),
            value_bytes: value.len(),
            flags: with.flags,
            stale: with.stale,
            token_sent: false,
            large: false,
            form: match with.expires {
                _ if with.flags != 0 => Form::Wide,
                Moment::NEVER => Form::Bare,
                end if end.millis() != 0 => Form::Wide,
                _ => Form::Plain,
            },
            flush: with.flush,
        };
        let words = &self.memory.items[at / 8..];
        for (place, word) in words.iter().zip(header.words()) {
            place.store(word, Relaxed);
        }
        words::write(words, header.header_bytes(), key);
        words::write(words, header.value_at(), value);
        let class = size_class(key.len() + value.len());
        Location::new(with.medium, class, at as u64 / 8).with_tag(self.bucket(key).1)
    }

    /// Make `word` the key's location, in place of the one that leads to `old`.
    pub fn link(&self, key: &[u8], old: Option<u64>, word: u64) {
        let (bucket, _) = self.bucket(key);
        let before = self.memory.buckets[bucket].version.enter();
        self.replace(bucket, old.unwrap_or(0), word);
        self.memory.buckets[bucket].version.leave(before);
    }

    /// Put `word` where `old` stands in the chain, lengthening it if there is no room.
    fn replace(&self, bucket: usize, old: u64, word: u64) {
        let mut slots = &self.memory.buckets[bucket].slots[..];
        loop {
            if let Some(slot) = slots.iter().find(|slot| slot.load(Relaxed) == old) {
                return slot.store(word, Relaxed);
            }
            let last = &slots[slots.len() - 1];
            let link = last.load(Relaxed);
            let number = match is_link(link) {
                true => Location::of_slot(link).offset(),
                false => {
                    let number = self.next_overflow.fetch_add(1, Relaxed) + 1;
                    let next = &self.memory.overflows[number as usize].slots;
                    next[0].store(link, Relaxed);
                    last.store(link_word(number), Relaxed);
                    number
                }
            };
            slots = &self.memory.overflows[number as usize].slots;
        }
    }

    /// A new item.
    pub fn set(&mut self, key: &[u8], value: &[u8], with: Attributes) -> u64 {
        let at = self.slot();
        let word = self.record(at, key, value, with);
        self.link(key, None, word);
        word
    }

    /// Be inside the key's bucket while `inside` runs.
    pub fn hold<R>(&self, key: &[u8], inside: impl FnOnce() -> R) -> R {
        let version = &self.memory.buckets[self.bucket(key).0].version;
        let before = version.enter();
        let result = inside();
        version.leave_unchanged(before);
        result
    }

    /// Keys that lie in the bucket of the first, with tags of their own.
    pub fn neighbours(&self, count: usize) -> Vec<Vec<u8>> {
        let (bucket, _) = self.bucket(b"n0");
        let keys = (0..).map(|i| format!("n{i}").into_bytes());
        keys.filter(|key| self.bucket(key).0 == bucket).take(count).collect()
    }
}

/// What a lookup may find without a third overflow bucket.
pub const REACHED: usize = SLOTS - 1 + OVERFLOW_SLOTS - 1 + OVERFLOW_SLOTS;
