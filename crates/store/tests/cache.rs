//! How well the cache keeps what is used: against an exact LRU of equal bytes, and after the sizes
//! shifted.

use fastrand::Rng;
use laneway_store::{Config, Got, HugePages, Mode, Moment, Store};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

const SEED: u64 = 0x1a9e;

/// Zipf by inversion of the cumulative weights; ranks are scattered over the keys.
struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulative = (1..=keys)
            .map(|rank| {
                sum += 1.0 / (rank as f64).powf(theta);
                sum
            })
            .collect();
        Zipf { cumulative }
    }

    fn draw(&self, random: &mut Rng) -> u64 {
        let total = self.cumulative[self.cumulative.len() - 1];
        let at = random.f64() * total;
        self.cumulative.partition_point(|&sum| sum < at) as u64
    }
}

fn store(memory_bytes: u64) -> Arc<Store> {
    Store::new(Config {
        memory_bytes,
        mode: Mode::Cache,
        item_bytes_max: 1 << 20,
        hash_seed: (SEED, 1),
        unpublished_bytes_max: 4 << 20,
        buckets_initial: 1,
        huge_pages: HugePages::None,
        window: None,
    })
    .expect("memory")
}

fn set(store: &Arc<Store>, key: &[u8], value: &[u8], now: Moment) {
    let mut draft = store.draft(key, 0, Moment::NEVER, value.len()).expect("a cache makes room");
    draft.write(value).expect("a cache makes room");
    store.enter(store.hash(key), key, now).publish(draft, None);
}

/// A look-aside cache's request: get, and set after a miss. True on a hit.
fn request(store: &Arc<Store>, key: u64, value: &[u8], now: Moment, out: &mut Vec<u8>) -> bool {
    let name = format!("{key:08}");
    let name = name.as_bytes();
    out.clear();
    let got = store.get(store.hash(name), name, now, out, &mut |_, _| ());
    let hit = !matches!(got, Got::Miss);
    if !hit {
        set(store, name, value, now);
    }
    hit
}

struct Lru {
    bytes_max: u64,
    bytes: u64,
    clock: u64,
    of_key: HashMap<u64, (u64, u64)>,
    by_age: BTreeMap<u64, u64>,
}

impl Lru {
    fn request(&mut self, key: u64, bytes: u64) -> bool {
        self.clock += 1;
        let old = self.of_key.insert(key, (self.clock, bytes));
        self.by_age.insert(self.clock, key);
        match old {
            Some((age, _)) => {
                self.by_age.remove(&age);
                true
            }
            None => {
                self.bytes += bytes;
                while self.bytes > self.bytes_max {
                    let (_, oldest) = self.by_age.pop_first().expect("not empty");
                    self.bytes -= self.of_key.remove(&oldest).expect("known").1;
                }
                false
            }
        }
    }
}

/// Memory beyond key and value that the LRU is charged per item: what memcached spends on an item
/// with CAS.
const LRU_OVERHEAD_BYTES: u64 = 56;

fn miss_ratios(
    size_of: impl Fn(u64) -> usize,
    memory_bytes: u64,
    keys: usize,
    requests: u64,
) -> (f64, f64) {
    let store = store(memory_bytes);
    let zipf = Zipf::new(keys, 0.9);
    let mut lru = Lru {
        bytes_max: memory_bytes,
        bytes: 0,
        clock: 0,
        of_key: HashMap::new(),
        by_age: BTreeMap::new(),
    };
    let mut random = Rng::with_seed(SEED);
    let (mut ours, mut theirs) = (0u64, 0u64);
    let value = vec![7; 1 << 20];
    let mut out = Vec::new();
    for i in 0..requests {
        let key = zipf.draw(&mut random);
        let bytes = size_of(key);
        let hit = request(
            &store,
            key,
            &value[..bytes],
            Moment::from_seconds(1_000_000 + (i / 50_000) as u32),
            &mut out,
        );
        let lru_hit = lru.request(key, 8 + bytes as u64 + LRU_OVERHEAD_BYTES);
        // The first half fills and settles.
        if i >= requests / 2 {
            ours += u64::from(!hit);
            theirs += u64::from(!lru_hit);
        }
    }
    let half = (requests / 2) as f64;
    let stats = store.stats();
    assert!(stats.pool_bytes + stats.index_bytes <= stats.limit_bytes, "{stats:?}");
    println!(
        "seed {SEED:#x}: misses ours {:.4} LRU {:.4}",
        ours as f64 / half,
        theirs as f64 / half
    );
    (ours as f64 / half, theirs as f64 / half)
}

#[test]
fn misses_no_more_than_lru_with_items_of_one_size() {
    let (ours, lru) = miss_ratios(|_| 100, 16 << 20, 400_000, 1_500_000);
    assert!(ours <= lru, "ours {ours} LRU {lru}");
}

#[test]
fn misses_hardly_more_than_lru_with_items_of_many_sizes() {
    let size = |key: u64| 20 + (key.wrapping_mul(0x9e37_79b9) >> 7) as usize % 1000;
    let (ours, lru) = miss_ratios(size, 32 << 20, 200_000, 1_200_000);
    assert!(ours <= lru * 1.03, "ours {ours} LRU {lru}");
}

#[test]
fn misses_hardly_more_than_lru_with_large_items_among_small_ones() {
    let size = |key: u64| match key % 50 {
        0 => 20_000 + (key as usize * 977) % 180_000,
        _ => 50 + (key as usize * 31) % 500,
    };
    let (ours, lru) = miss_ratios(size, 64 << 20, 100_000, 800_000);
    assert!(ours <= lru * 1.05, "ours {ours} LRU {lru}");
}

/// Hit ratio over `measured` requests of values of `bytes`, after `warm` requests.
fn hit_ratio(
    store: &Arc<Store>,
    zipf: &Zipf,
    random: &mut Rng,
    keys_from: u64,
    bytes: usize,
    warm: u64,
    measured: u64,
) -> f64 {
    let value = vec![9; bytes];
    let mut out = Vec::new();
    let mut hits = 0u64;
    for i in 0..warm + measured {
        let key = keys_from + zipf.draw(random);
        let hit = request(store, key, &value, Moment::from_seconds(1_000_000), &mut out);
        hits += u64::from(hit && i >= warm);
    }
    hits as f64 / measured as f64
}

/// Enough requests that twice the memory is written, at the miss ratio there is.
fn write_twice(
    store: &Arc<Store>,
    zipf: &Zipf,
    random: &mut Rng,
    keys_from: u64,
    bytes: usize,
    memory: u64,
) {
    let value = vec![9; bytes];
    let mut out = Vec::new();
    let mut left = 2 * memory as i64;
    while left > 0 {
        let key = keys_from + zipf.draw(random);
        if !request(store, key, &value, Moment::from_seconds(1_000_000), &mut out) {
            left -= bytes as i64;
        }
    }
}

#[test]
fn after_a_shift_of_sizes_it_hits_as_a_fresh_store_does() {
    let memory = 24 << 20;
    let shifted = store(memory);
    let mut random = Rng::with_seed(SEED);
    for (turn, bytes) in [100usize, 300, 4096].into_iter().enumerate() {
        // Four times as many keys as fit.
        let zipf = Zipf::new(4 * memory as usize / (bytes + 50), 0.9);
        let from = turn as u64 * 10_000_000;
        write_twice(&shifted, &zipf, &mut random, from, bytes, memory);
        let measured = 200_000;
        let ours = hit_ratio(&shifted, &zipf, &mut random, from, bytes, 0, measured);
        let fresh = store(memory);
        let mut random_fresh = Rng::with_seed(SEED + 1);
        write_twice(&fresh, &zipf, &mut random_fresh, from, bytes, memory);
        let best = hit_ratio(&fresh, &zipf, &mut random_fresh, from, bytes, 0, measured);
        println!("seed {SEED:#x}: {bytes} bytes: shifted {ours:.4} fresh {best:.4}");
        assert!(ours >= best * 0.95, "{bytes} bytes: shifted {ours} fresh {best}");
    }
}

/// Values of two blocks and a short piece compete with their own last pieces for chunks.
#[test]
fn a_small_memory_stays_mostly_full_of_values_of_a_few_blocks() {
    const LIMIT: usize = 6 << 20;
    const VALUE: usize = 66_000;
    const FIT: usize = LIMIT / VALUE;
    let store = Store::new(Config { memory_bytes: LIMIT as u64, ..Config::default() });
    let store = store.expect("a small store");
    let value = vec![b'x'; VALUE];
    let key = |number: usize| format!("key{number:06}").into_bytes();
    for number in 0..30 * FIT {
        let mut draft =
            store.draft(&key(number), 0, Moment::NEVER, VALUE).expect("something is evicted");
        draft.write(&value).expect("something is evicted");
        store
            .enter(store.hash(&key(number)), &key(number), Moment::from_seconds(1))
            .publish(draft, None);
        if number > 2 * FIT {
            let alive = |of: &usize| {
                store.peek(store.hash(&key(*of)), &key(*of), Moment::from_seconds(1)).is_some()
            };
            let live = (number.saturating_sub(4 * FIT)..=number).filter(alive).count();
            assert!(live >= FIT / 2, "{live} of {FIT} after {number}");
        }
    }
}
