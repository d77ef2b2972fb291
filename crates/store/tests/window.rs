//! The window: what lies in it, that whoever looks through it sees what the store has, and that
//! what is asked for most moves in.

mod foreign;

use fastrand::Rng;
use foreign::{Foreign, Seen};
use laneway_store::{Config, Got, Mode, Moment, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const NOW: Moment = Moment::from_seconds(1_000_000);
const SEED: (u64, u64) = (5, 6);
const MEBIBYTE: usize = 1 << 20;

fn windowed(mode: Mode, memory_bytes: usize, window_bytes: usize) -> (Arc<Store>, Foreign) {
    let (foreign, window) = Foreign::new(SEED, 64 << 10, window_bytes);
    let config = Config {
        memory_bytes: memory_bytes as u64,
        mode,
        hash_seed: SEED,
        buckets_initial: 64,
        window: Some(window),
        ..Config::default()
    };
    (Store::new(config).expect("memory"), foreign)
}

fn set(store: &Arc<Store>, key: &[u8], value: &[u8], expires: Moment) {
    let mut draft = store.draft(key, 0, expires, value.len()).expect("room");
    draft.write(value).expect("room");
    store.enter(store.hash(key), key, NOW).publish(draft, None);
}

fn get(store: &Arc<Store>, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match store.get(store.hash(key), key, NOW, &mut out, &mut |_, _| ()) {
        Got::Miss => None,
        Got::Copied(_) => Some(out),
        Got::Large(_, pinned) => {
            pinned.copy_into(&mut out);
            Some(out)
        }
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

#[test]
fn no_limit_is_so_low_that_nothing_but_the_window_has_room() {
    let (store, _foreign) = windowed(Mode::Cache, 64 * MEBIBYTE, 16 * MEBIBYTE);
    for number in 0..100_000 {
        set(&store, &name(number), &[7; 200], Moment::NEVER);
    }
    store.set_memory_bytes(MEBIBYTE as u64);
    for _ in 0..10_000 {
        store.sweep(NOW, 100);
    }
    let stats = store.stats();
    assert!(stats.pool_bytes + stats.index_bytes <= stats.limit_bytes, "{stats:?}");
    assert!(stats.limit_bytes < 32 << 20, "{stats:?}");
    for round in 0..5 {
        let large = vec![round; 500_000];
        set(&store, b"large", &large, Moment::NEVER);
        assert!(get(&store, b"large") == Some(large), "round {round}");
    }
    let (small, _foreign) = windowed(Mode::Cache, 4 * MEBIBYTE, 2 * MEBIBYTE);
    let at_start = small.limit_bytes();
    small.set_memory_bytes(MEBIBYTE as u64);
    assert_eq!(small.limit_bytes(), at_start, "no more than at the start");
}

#[test]
fn small_items_are_seen_from_outside_and_every_change_at_once() {
    let (store, foreign) = windowed(Mode::Cache, 16 * MEBIBYTE, 4 * MEBIBYTE);
    for number in 0..10_000 {
        let key = name(number);
        assert_eq!(foreign.look(&key, NOW), Seen::Nothing);
        for value in [&b"first"[..], b"the second", b""] {
            set(&store, &key, value, Moment::NEVER);
            assert_eq!(foreign.look(&key, NOW), Seen::Value(value.to_vec()));
        }
    }
    for number in 0..5_000 {
        let key = name(number);
        store.enter(store.hash(&key), &key, NOW).unlink();
        assert_eq!(foreign.look(&key, NOW), Seen::Nothing);
        assert_eq!(foreign.look(&name(number + 5_000), NOW), Seen::Value(Vec::new()));
    }
    set(&store, b"soon", b"x", NOW.plus_seconds(1));
    assert_eq!(foreign.look(b"soon", NOW), Seen::Value(b"x".to_vec()));
    assert_eq!(foreign.look(b"soon", NOW.plus_seconds(1)), Seen::Nothing);
    assert!(store.flush_all());
    assert_eq!(foreign.look(b"soon", NOW), Seen::Nothing);
    set(&store, b"soon", b"y", Moment::NEVER);
    assert_eq!(foreign.look(b"soon", NOW), Seen::Value(b"y".to_vec()));
    assert_eq!(store.stats().window_bytes, 4 << 20);
}

#[test]
fn what_does_not_fit_is_elsewhere_and_served_from_there() {
    let (store, foreign) = windowed(Mode::Cache, 16 * MEBIBYTE, MEBIBYTE);
    for bytes in [1_800, 20_000, 300_000] {
        let value = vec![b'v'; bytes];
        set(&store, b"key", &value, Moment::NEVER);
        assert_eq!(foreign.look(b"key", NOW), Seen::Elsewhere);
        assert_eq!(get(&store, b"key"), Some(value));
    }
    set(&store, b"key", b"small again", Moment::NEVER);
    assert_eq!(foreign.look(b"key", NOW), Seen::Value(b"small again".to_vec()));
}

#[test]
fn hits_from_outside_keep_an_item_as_hits_from_inside_do() {
    let (store, foreign) = windowed(Mode::Cache, 16 * MEBIBYTE, 4 * MEBIBYTE);
    set(&store, b"key", b"value", Moment::NEVER);
    let fetched = || store.peek(store.hash(b"key"), b"key", NOW).expect("there").fetched;
    assert!(!fetched());
    foreign.look(b"key", NOW);
    assert!(fetched());
    set(&store, b"key", b"value", Moment::NEVER);
    assert!(!fetched(), "a new item");
}

/// Ranks by Zipf's law with exponent 0.99, scattered over the keys.
#[test]
fn the_hit_that_moves_an_item_in_counts() {
    let (store, _foreign) = windowed(Mode::Cache, 32 * MEBIBYTE, 2 * MEBIBYTE);
    let keys: Vec<Vec<u8>> = (0..100_000).map(name).collect();
    keys.iter().for_each(|key| set(&store, key, &[b'v'; 100], Moment::NEVER));
    let mut now = NOW;
    for round in 0..50 {
        for key in keys.iter().step_by(97) {
            now = now.plus_seconds(1);
            let (hash, mut out) = (store.hash(key), Vec::new());
            if matches!(store.get(hash, key, now, &mut out, &mut |_, _| ()), Got::Copied(_)) {
                let meta = store.peek(hash, key, now).expect("it was just hit");
                assert_eq!((meta.idle_seconds, meta.fetched), (0, true), "round {round}");
            }
        }
    }
    assert!(store.stats().promotions > 0, "none moved");
}

fn zipf(keys: u64) -> impl Fn(&mut Rng) -> u64 {
    let mut sum = 0.0;
    let add = |rank: u64| {
        sum += (rank as f64).powf(-0.99);
        sum
    };
    let sums: Vec<f64> = (1..=keys).map(add).collect();
    move |random| {
        let at = random.f64() * sums[sums.len() - 1];
        let rank = sums.partition_point(|&sum| sum < at) as u64;
        rank.wrapping_mul(2_654_435_761) % keys
    }
}

/// Items are stored in an order that has nothing to do with how often they are asked for, so the
/// window begins full of the wrong ones. With room for a tenth of them, it answers most GETs.
#[test]
fn with_room_for_a_tenth_three_of_five_gets_are_answered_from_outside() {
    const KEYS: u64 = 100_003; // prime: scattering the ranks loses none
    let (store, foreign) = windowed(Mode::Cache, 64 * MEBIBYTE, 2 * MEBIBYTE);
    let value = [b'v'; 130]; // 160 bytes with key and header
    (0..KEYS).for_each(|number| set(&store, &name(number), &value, Moment::NEVER));
    let inside = store.stats().window_items;
    assert!((KEYS / 9..=KEYS / 7).contains(&inside), "{inside}");
    let (zipf, mut random) = (zipf(KEYS), Rng::with_seed(1));
    let mut round = |gets: u64| {
        let mut hits = 0;
        for _ in 0..gets {
            let key = name(zipf(&mut random));
            match foreign.look(&key, NOW) {
                Seen::Value(seen) => {
                    assert_eq!(seen, value);
                    hits += 1;
                }
                Seen::Elsewhere => assert_eq!(get(&store, &key).as_deref(), Some(&value[..])),
                Seen::Nothing => panic!("nothing was deleted"),
            }
        }
        hits * 100 / gets
    };
    round(300_000);
    let percent = round(100_000);
    let stats = store.stats();
    println!("{percent} %, {} promotions, {} demotions", stats.promotions, stats.demotions);
    assert!(percent >= 60, "{percent} %");
    assert_eq!((stats.items, stats.evictions), (KEYS, 0));
}

#[test]
fn items_that_are_written_again_keep_their_place_though_the_window_is_full() {
    let (store, foreign) = windowed(Mode::Cache, 64 * MEBIBYTE, MEBIBYTE);
    for number in 0..20_000 {
        set(&store, &name(number), &[b'v'; 100], Moment::NEVER);
    }
    for round in 0..100u8 {
        for number in 0..100 {
            set(&store, &name(number), &[round; 100], Moment::NEVER);
            assert_eq!(foreign.look(&name(number), NOW), Seen::Value(vec![round; 100]));
        }
    }
    assert_eq!(foreign.look(&name(19_999), NOW), Seen::Elsewhere);
}

#[test]
fn sizes_that_are_asked_for_take_the_window_over() {
    let (store, foreign) = windowed(Mode::Cache, 64 * MEBIBYTE, 2 * MEBIBYTE);
    for number in 0..30_000 {
        set(&store, &name(number), &[b'v'; 100], Moment::NEVER);
    }
    for number in 100_000..101_000 {
        set(&store, &name(number), &[b'w'; 900], Moment::NEVER);
    }
    let count = |range: std::ops::Range<u64>| {
        range.filter(|&number| matches!(foreign.look(&name(number), NOW), Seen::Value(_))).count()
    };
    assert_eq!(count(100_000..101_000), 0, "the window was full before they came");
    for _ in 0..200 {
        for number in 100_000..101_000 {
            if foreign.look(&name(number), NOW) == Seen::Elsewhere {
                assert_eq!(get(&store, &name(number)), Some(vec![b'w'; 900]));
            }
        }
    }
    let inside = count(100_000..101_000);
    assert!(inside > 500, "{inside} of 1000, {:?}", store.stats());
}

#[test]
fn a_full_store_that_never_evicts_loses_nothing_by_moving_items() {
    let (store, foreign) = windowed(Mode::Store, 16 * MEBIBYTE, 2 * MEBIBYTE);
    let value = |number: u64| vec![number as u8; 50 + (number % 200) as usize];
    let mut stored = 0;
    for number in 0..100_000 {
        let key = name(number);
        let Ok(mut draft) = store.draft(&key, 0, Moment::NEVER, value(number).len()) else {
            break;
        };
        draft.write(&value(number)).expect("it has its slot");
        store.enter(store.hash(&key), &key, NOW).publish(draft, None);
        stored += 1;
    }
    assert!(stored > 20_000, "{stored}");
    let mut random = Rng::with_seed(3);
    for _ in 0..200_000 {
        // A hundredth of them is asked for most.
        let end = if random.u64(..10) == 0 { stored } else { stored / 100 };
        let number = stored - 1 - random.u64(..end);
        assert_eq!(get(&store, &name(number)), Some(value(number)));
    }
    for number in 0..stored {
        let seen = foreign.look(&name(number), NOW);
        assert!(seen == Seen::Elsewhere || seen == Seen::Value(value(number)), "{number}");
        let key = name(number);
        store.enter(store.hash(&key), &key, NOW).unlink();
    }
    assert_eq!((store.slots_used(), store.stats().evictions), (0, 0));
}

/// Readers, writers, and items that move in and out, all at once: every value belongs to its key.
/// It goes on until items have moved both ways, however the threads' turns fall.
#[test]
fn items_move_under_readers_and_writers_and_none_is_torn() {
    const KEYS: u64 = 20_000;
    const ROUNDS: u64 = 60_000;
    const ROUNDS_MAX: u64 = 1_000 * ROUNDS;
    let (store, _foreign) = windowed(Mode::Cache, 16 * MEBIBYTE, MEBIBYTE);
    let value = |number: u64, round: u64| {
        let mut value = vec![round as u8; 100 + (number % 9) as usize * 100];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value
    };
    (0..KEYS).for_each(|number| set(&store, &name(number), &value(number, 0), Moment::NEVER));
    let moved = || {
        let stats = store.stats();
        stats.promotions > 100 && stats.demotions > 100
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !done.load(Relaxed) {
                    let number = random.u64(..KEYS);
                    let number = if random.u64(..4) > 0 { number / 8 } else { number };
                    let Some(got) = get(store, &name(number)) else { continue };
                    assert_eq!(got[..8], number.to_le_bytes());
                    assert!(got[8..].iter().all(|&byte| byte == got[8]), "{number}: torn");
                }
            });
        }
        let mut random = Rng::with_seed(9);
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS && round % 1_000 == 0 {
                if moved() {
                    break;
                }
                std::thread::yield_now();
            }
            let number = random.u64(..KEYS);
            set(&store, &name(number), &value(number, round), Moment::NEVER);
        }
        done.store(true, Relaxed);
    });
    assert!(moved(), "{:?}", store.stats());
}

/// Half a bucket must never be believed: whoever panics inside one takes the process along. This
/// test's own program is started again for it.
#[test]
fn a_panic_inside_a_bucket_ends_the_process() {
    const VARIABLE: &str = "LANEWAY_TEST_PANIC_INSIDE";
    if std::env::var_os(VARIABLE).is_some() {
        let (store, _foreign) = windowed(Mode::Cache, 4 * MEBIBYTE, MEBIBYTE);
        let inside = move || {
            let _entry = store.enter(store.hash(b"key"), b"key", NOW);
            panic!("inside");
        };
        let caught = std::thread::spawn(inside).join();
        println!("went on: {}", caught.is_err());
        return;
    }
    let program = std::env::current_exe().expect("this test");
    let output = std::process::Command::new(program)
        .args(["a_panic_inside_a_bucket_ends_the_process", "--nocapture", "--exact"])
        .env(VARIABLE, "1")
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && !told.contains("went on"), "{told}");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(6), "an abort");
}
