//! Reads of the lane while the values are overwritten, by a writer of the test's own and by the
//! store: none may be torn, and without the look at the version some are. `LANEWAY_TORN_READS` says
//! how many reads the hunts make.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]

mod common;

use common::frame::{self, Frame};
use common::writer::{PLAIN, PORT, UNIX_MINUS_BOOT_NS, Writer};
use laneway_kernel::layout::{Interface, Settings};
use laneway_kernel::{Lane, Outcome, Program, Room};
use laneway_store::layout::Hasher;
use laneway_store::{Config, Moment, Store};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const NOW: Moment = Moment::from_seconds(1);
const KEY: &[u8] = b"key";
const VALUE_BYTES: usize = 1200;
/// Reads of a hunt that is to find nothing, at least.
const READS: u64 = 100_000;
/// Of these, replies while values were overwritten: a tenth at least.
const HITS_SHARE: u64 = 10;
/// Overwrites meanwhile, at least.
const OVERWRITES: u64 = 1_000;
/// Such a hunt gives up after so many times its reads: one of its threads may have no CPU for
/// seconds.
const READS_FACTOR_MAX: u64 = 100;
/// Reads of a hunt that must find something, at most.
const READS_MAX: u64 = 50_000_000;

fn reads() -> u64 {
    match std::env::var("LANEWAY_TORN_READS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("LANEWAY_TORN_READS={text}: a number?")),
        Err(_) => READS,
    }
}

/// What a reader saw.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    /// Replies since the first overwrite.
    hits: u64,
    torn: u64,
    overwrites: u64,
}

impl Seen {
    /// Whether that is all that a hunt of so many reads was to see.
    fn is_enough(&self, reads: u64) -> bool {
        self.reads >= reads
            && self.hits > reads / HITS_SHARE
            && self.overwrites >= OVERWRITES.min(reads)
    }
}

/// Sets it when the holder goes, also by a panic.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Read until that is enough, at most `reads_max` times, while a thread overwrites. Each read asks
/// so many times for the key.
fn hunt(program: Program, times: usize, reads_max: u64, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut writer = Writer::new(program, &["10.9.0.1"]).expect("loaded");
    let places = [writer.slot(), writer.slot()];
    let value_bytes = VALUE_BYTES / times;
    let mut linked = writer.record(places[0], KEY, &[b'a'; VALUE_BYTES][..value_bytes], PLAIN);
    writer.link(KEY, None, linked);
    let (writer, done, overwrites) = (&writer, AtomicBool::new(false), AtomicU64::new(0));
    let seen = std::thread::scope(|scope| {
        let _end = SetAtEnd(&done);
        scope.spawn(|| {
            for round in 1.. {
                if done.load(Relaxed) {
                    return;
                }
                // By turns: the record that is not linked, and perhaps still read, is reused.
                let value = [b'a' + (round % 26) as u8; VALUE_BYTES];
                let word = writer.record(places[round % 2], KEY, &value[..value_bytes], PLAIN);
                writer.link(KEY, Some(linked), word);
                linked = word;
                overwrites.fetch_add(1, Relaxed);
            }
        });
        read(&writer.lane, &overwrites, times, reads_max, is_enough)
    });
    let counts = writer.lane.counts().expect("counters");
    println!("{program:?}: {seen:?}, {} retries", counts.retries());
    assert!(counts.of(Outcome::Hit) >= seen.hits);
    seen
}

fn read(
    lane: &Lane,
    overwrites: &AtomicU64,
    times: usize,
    reads_max: u64,
    is_enough: impl Fn(&Seen) -> bool,
) -> Seen {
    let request = Frame::v4(format!("get{}\r\n", " key".repeat(times)).as_bytes()).bytes();
    let head = format!("VALUE key 0 {}\r\n", VALUE_BYTES / times);
    let mut seen = Seen::default();
    while seen.reads < reads_max && !is_enough(&seen) {
        seen.reads += 1;
        if seen.reads.is_multiple_of(1_000) {
            std::thread::yield_now(); // the writer may have no other CPU
        }
        seen.overwrites = overwrites.load(Relaxed);
        let answered = lane.try_frame(&request, 1).expect("a trial run");
        if !answered.hit {
            continue;
        }
        let text = frame::open(&answered.frame).text;
        let values = text.strip_suffix(b"END\r\n").expect("all of a reply");
        seen.hits += u64::from(seen.overwrites > 0);
        // Each value is whole; one that is asked for again may be the next.
        seen.torn += u64::from(values.chunks(values.len() / times).any(|value| {
            let value = &value[head.len()..value.len() - 2];
            value.iter().any(|&byte| byte != value[0])
        }));
    }
    seen
}

fn possible() -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    if cpus < 2 {
        let why = "SKIPPED: one CPU: a program is never interrupted by its writer";
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    cpus >= 2 && common::available()
}

#[test]
fn no_reply_is_torn_while_values_are_overwritten() {
    if possible() {
        let reads = reads();
        let reads_max = READS_FACTOR_MAX * reads;
        for times in [1, 4] {
            let is_enough = |seen: &Seen| seen.is_enough(reads);
            let seen = hunt(Program::TrafficControl, times, reads_max, is_enough);
            assert_eq!(seen.torn, 0, "{times} keys");
            assert!(seen.is_enough(reads), "{times} keys: {seen:?}");
        }
    }
}

/// The store's own writers: two threads that overwrite the key and its neighbours, so that slots
/// are reused at once, and buckets split under the reader.
#[test]
fn no_reply_is_torn_while_a_store_overwrites_values_and_grows() {
    if !possible() {
        return;
    }
    let room = Room { buckets: 64 * 64, overflows: 64 * 64, items_bytes: 8 << 20 };
    let lane = Lane::load(Program::TrafficControl, &room).expect("loaded");
    let config = Config {
        buckets_initial: 64,
        window: Some(lane.window().expect("its arrays")),
        ..Config::default()
    };
    let hasher = Hasher::new(config.hash_seed);
    let store = Store::new(config).expect("memory");
    lane.control().open(&Settings {
        ports: vec![PORT..=PORT],
        own: vec![[10, 9, 0, 1].into()],
        served: Vec::new(),
        refused: Vec::new(),
        interfaces: vec![Interface { index: 1, ethernet: [0; 6], mtu_bytes: 65_536 }],
        period_bytes: 0,
        mtu_bytes: 1500,
        payload_bytes_max: 1400,
        hash_start: hasher.start(),
        unix_minus_boot_ns: UNIX_MINUS_BOOT_NS,
    });
    let done = AtomicBool::new(false);
    let overwrites = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&done);
        for writer in 0..2u64 {
            let (store, done, overwrites) = (&store, &done, &overwrites);
            scope.spawn(move || {
                for round in 0.. {
                    if done.load(Relaxed) {
                        return;
                    }
                    let neighbour = format!("neighbour-{writer}-{}", round % 2000);
                    let key = if round % 4 > 0 { KEY } else { neighbour.as_bytes() };
                    let value = [b'a' + (round % 26) as u8; VALUE_BYTES];
                    let mut draft =
                        store.draft(key, 0, Moment::NEVER, VALUE_BYTES).expect("a cache");
                    draft.write(&value).expect("it has its slot");
                    store.enter(store.hash(key), key, NOW).publish(draft, None);
                    overwrites.fetch_add(1, Relaxed);
                }
            });
        }
        let reads = reads();
        let reads_max = READS_FACTOR_MAX * reads;
        let seen = read(&lane, &overwrites, 1, reads_max, |seen| seen.is_enough(reads));
        println!("a store: {seen:?}");
        assert_eq!(seen.torn, 0);
        assert!(seen.is_enough(reads), "{seen:?}");
    });
}

#[test]
fn without_validation_replies_are_torn() {
    if possible() {
        for times in [1, 4] {
            let seen = hunt(Program::Unvalidated, times, READS_MAX, |seen| seen.torn > 0);
            assert!(seen.torn > 0, "the hunt for {times} would not notice: {seen:?}");
        }
    }
}
