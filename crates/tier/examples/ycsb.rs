//! YCSB A to F on the embedded tier, closed loop: an orientation beside other stores in process.
//!
//! `cargo run --release -p laneway-tier --example ycsb -- FOLDER [items] [threads] [seconds]
//! [ack|interval] [zipf|uniform]`
//!
//! Half of the items have 256 bytes, half 4096. Every value read is verified. With `interval` a
//! thread commits every 10 ms. Keys are drawn beforehand; Zipf 0.99 scrambled over the key space.

#![forbid(unsafe_code)]

use laneway_tier::disk::sim::Random;
use laneway_tier::{Directory, DirectorySettings, Durability, ItemMeta};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ZIPF_THETA: f64 = 0.99;
const SCAN_ITEMS: u64 = 50;
const COMMIT_EVERY: Duration = Duration::from_millis(10);
const DRAWS: usize = 1 << 20;

/// Shares in percent: read, update, insert, scan, read-modify-write.
const WORKLOADS: [(&str, [u64; 5]); 6] = [
    ("A", [50, 50, 0, 0, 0]),
    ("B", [95, 5, 0, 0, 0]),
    ("C", [100, 0, 0, 0, 0]),
    ("D", [95, 0, 5, 0, 0]),
    ("E", [0, 0, 5, 95, 0]),
    ("F", [50, 0, 0, 0, 50]),
];

fn key(number: u64) -> [u8; 16] {
    let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(scrambled >> (60 - 4 * at) & 15) as usize];
    }
    key
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(2) { 256 } else { 4096 }]
}

/// Ranks from 0, drawn by Gray's method, as YCSB does.
fn draws(items: u64, zipf: bool) -> Vec<u64> {
    let mut random = Random::new(1);
    let unit = |random: &mut Random| (random.number() >> 11) as f64 / (1_u64 << 53) as f64;
    let zeta = |count: u64| (1..=count).map(|i| (i as f64).powf(-ZIPF_THETA)).sum::<f64>();
    let (zeta_all, alpha) = (zeta(items), 1.0 / (1.0 - ZIPF_THETA));
    let eta = (1.0 - (2.0 / items as f64).powf(1.0 - ZIPF_THETA)) / (1.0 - zeta(2) / zeta_all);
    let draw = |_| {
        let u = unit(&mut random);
        let scaled = u * zeta_all;
        match zipf {
            false => (u * items as f64) as u64,
            true if scaled < 1.0 => 0,
            true if scaled < 1.0 + 0.5_f64.powf(ZIPF_THETA) => 1,
            true => (items as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64 % items,
        }
    };
    (0..DRAWS).map(draw).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| match arguments.get(index) {
        Some(text) => text.parse().map_err(|_| format!("{text}: a number was expected")),
        None => Ok(default),
    };
    let folder = arguments.first().ok_or("usage: ycsb FOLDER [items] [threads] [seconds] ...")?;
    let (items, threads, seconds) = (number(1, 100_000)?, number(2, 2)?, number(3, 5)?);
    let interval = arguments.get(4).is_some_and(|word| word == "interval");
    let draws = draws(items, arguments.get(5).is_none_or(|word| word == "zipf"));
    let mut settings = DirectorySettings::new(folder);
    settings.ssd_bytes = (items * 16_384).max(1 << 30);
    if interval {
        settings.settings.durability = Durability::Interval;
    }
    let (store, report) = Directory::open(&settings, &mut |_, _| {})?;
    let began = Instant::now();
    for number in (0..items).filter(|_| report.is_new) {
        store.submit_put(&key(number), &value(number), ItemMeta::default(), None)?;
        if number % 256 == 255 {
            store.commit()?;
        }
    }
    store.commit()?;
    let stats = store.stats();
    println!("commit {}", option_env!("LANEWAY_COMMIT").unwrap_or("unknown"));
    println!(
        "load     {:>9.1} kop/s, write amplification {:.2}",
        items as f64 / began.elapsed().as_secs_f64() / 1e3,
        stats.write_amplification()
    );
    let next_item = AtomicU64::new(items);
    let bench = Bench { store, draws, next_item, threads, seconds, interval };
    for (name, shares) in WORKLOADS {
        println!("{name:<8} {:>9.1} kop/s", bench.run(shares)? / 1e3);
    }
    println!("{:#?}", bench.store.stats());
    bench.store.close()?;
    Ok(())
}

struct Bench {
    store: Directory,
    draws: Vec<u64>,
    next_item: AtomicU64,
    threads: u64,
    seconds: u64,
    interval: bool,
}

impl Bench {
    /// Operations a second.
    fn run(&self, shares: [u64; 5]) -> laneway_tier::Result<f64> {
        let (stop, done) = (&AtomicBool::new(false), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let committer = scope.spawn(|| {
                while self.interval && !stop.load(Relaxed) {
                    std::thread::park_timeout(COMMIT_EVERY);
                    self.store.commit()?;
                }
                Ok(())
            });
            let work = move |thread: u64| {
                let mut random = Random::new(thread + 7);
                let mut at = (random.number() as usize) % DRAWS;
                while !stop.load(Relaxed) {
                    at = (at + 1) % DRAWS;
                    operate(&self.store, &shares, self.draws[at], &self.next_item, &mut random)?;
                    done.fetch_add(1, Relaxed);
                }
                Ok(())
            };
            let workers: Vec<_> =
                (0..self.threads).map(|thread| scope.spawn(move || work(thread))).collect();
            std::thread::sleep(Duration::from_secs(self.seconds));
            stop.store(true, Relaxed);
            let mut all = workers.into_iter().chain([committer]);
            all.try_for_each(|thread| thread.join().expect("a worker panicked"))
        })
        .map(|()| done.load(Relaxed) as f64 / self.seconds as f64)
    }
}

fn operate(
    store: &Directory,
    shares: &[u64; 5],
    drawn: u64,
    next_item: &AtomicU64,
    random: &mut Random,
) -> laneway_tier::Result<()> {
    let read = |number: u64| -> laneway_tier::Result<()> {
        if let Some(item) = store.get(&key(number))? {
            assert_eq!(item.value, value(number), "item {number}");
        }
        Ok(())
    };
    let write =
        |number: u64| store.put(&key(number), &value(number), ItemMeta::default()).map(drop);
    let mut percent = random.below(100);
    let kind = shares.iter().position(|share| {
        let hit = percent < *share;
        percent = percent.saturating_sub(*share);
        hit
    });
    match kind {
        Some(0) if shares[2] != 0 => read(next_item.load(Relaxed).saturating_sub(drawn + 1)),
        Some(0) => read(drawn),
        Some(1) => write(drawn),
        Some(2) => write(next_item.fetch_add(1, Relaxed)),
        Some(3) => {
            let limit = 1 + random.below(2 * SCAN_ITEMS) as usize;
            store
                .scan(&key(drawn), None, limit)
                .into_iter()
                .try_for_each(|(_, item)| item.map(drop))
        }
        _ => read(drawn).and_then(|()| write(drawn)),
    }
}
