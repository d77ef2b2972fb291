//! No step of maintenance does more than a step's work, however much there is to do, and all of it
//! gets done. (Here, not among the tests of the interface: `meter` counts in this crate's own tests
//! without its feature.)

use crate::{
    budget::{Budget, COPY_BYTES, END, GIVE, LIST_LOOKS, PICK, STEP, TAKE_OUT},
    geometry::BLOCK_BYTES,
    meter::{self, Work},
    moment::Moment,
    read::Got,
    record::HEADER_BYTES,
    store::Store,
    types::{Config, Mode},
};
use std::sync::Arc;

const NOW: Moment = Moment::from_seconds(1000);

/// A word of a bitmap more, a whole bitmap of them: what the last piece of work may add.
const LAST_SLOTS: u64 = 256;

fn cache(megabytes: u64) -> Arc<Store> {
    let memory_bytes = megabytes << 20;
    let config = Config { memory_bytes, item_bytes_max: 48 << 20, ..Config::default() };
    Store::new(config).expect("a small store")
}

fn set(store: &Arc<Store>, key: &str, value_bytes: usize, expires: Moment) {
    let mut draft = store.draft(key.as_bytes(), 0, expires, value_bytes).expect("room");
    draft.write(&vec![b'v'; value_bytes]).expect("room");
    store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
}

fn hit(store: &Arc<Store>, key: &str) {
    store.get(store.hash(key.as_bytes()), key.as_bytes(), NOW, &mut Vec::new(), &mut |_, _| {});
}

/// What one step did.
fn work_of<R>(step: impl FnOnce() -> R) -> (R, Work) {
    meter::take();
    let result = step();
    (result, meter::take())
}

#[test]
fn a_sweep_of_everything_expired_takes_few_items_out_a_step() {
    let store = cache(32);
    const ITEMS: usize = 50_000;
    (0..ITEMS).for_each(|number| set(&store, &format!("key{number}"), 100, NOW.plus_seconds(1)));
    let mut steps = 0;
    while store.stats().items > 0 {
        let (swept, work) = work_of(|| store.sweep(NOW.plus_seconds(1), 1_000_000));
        assert!(work.items as usize <= STEP / TAKE_OUT + 1, "{work:?}");
        assert!(work.slots as usize <= STEP, "{work:?}");
        assert!(swept.slots > 0);
        steps += 1;
    }
    assert!(steps > ITEMS * TAKE_OUT / STEP, "{steps} steps");
}

#[test]
fn a_lower_limit_gives_free_chunks_back_and_bounds_drafts() {
    let config = Config { memory_bytes: 32 << 20, ..Config::default() };
    let store = Store::new(config).expect("a small store");
    let drafts = store.unpublished_bytes_max();
    (0..200_000).for_each(|number| set(&store, &format!("key{number}"), 100, NOW.plus_seconds(1)));
    while !store.sweep(NOW.plus_seconds(1), 1_000_000).is_over || store.stats().items > 0 {}
    assert!(store.stats().pool_free_bytes > 20 << 20, "{:?}", store.stats());
    store.set_memory_bytes(8 << 20);
    while !store.sweep(NOW.plus_seconds(1), 1_000_000).is_over {}
    let stats = store.stats();
    assert!(stats.pool_free_bytes <= 8 << 20, "{} bytes are kept", stats.pool_free_bytes);
    assert_eq!(store.unpublished_bytes_max(), drafts / 4);
}

#[test]
fn the_memory_limit_goes_no_further_than_there_is_address_space() {
    let store = cache(16);
    store.set_memory_bytes(u64::MAX);
    assert_eq!(store.limit_bytes(), store.memory.items.bytes() as u64);
}

#[test]
fn what_was_flushed_moves_nowhere() {
    let store = cache(16);
    for number in 0..60_000 {
        set(&store, &format!("key{number}"), 100, Moment::NEVER);
        hit(&store, &format!("key{number}"));
    }
    assert!(store.flush_all());
    store.set_memory_bytes(4 << 20);
    let mut steps = 0;
    while store.memory.pool_counts().available < 0 {
        let ((), work) = work_of(|| store.drain_step(&mut Budget::of(STEP)));
        assert_eq!(work.bytes, 0, "a flushed item was copied");
        steps += 1;
        assert!(steps < 1_000_000, "chunks are not emptied");
    }
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn several_stores_are_swept_one_at_a_time_and_flushed_once_all_can_be() {
    const STRETCH: u64 = 1024;
    let stores = [cache(16), cache(16), cache(16)];
    // No generation is left for a flush of these.
    for store in &stores[1..] {
        (0..20_000).for_each(|number| set(store, &format!("key{number}"), 100, Moment::NEVER));
        (0..60).for_each(|_| assert!(store.flush_all()));
    }
    set(&stores[0], "key", 100, Moment::NEVER);
    let is_there = || stores[0].peek(stores[0].hash(b"key"), b"key", NOW).is_some();
    let mut steps = 0;
    loop {
        let (is_over, work) = work_of(|| Store::flush_each(stores.iter()));
        assert!(work.slots <= STRETCH, "{work:?}");
        if is_over {
            break;
        }
        assert!(is_there(), "one is flushed for the others' sake");
        steps += 1;
    }
    assert!(!is_there() && steps > 2 * 20_000 / STRETCH, "{steps} steps");
}

/// Stores new items until evictions begin, each asked for so often.
fn fill_cache(store: &Arc<Store>, hits: usize, expires: Moment) {
    for number in 0.. {
        if store.stats().evictions > 0 {
            break;
        }
        let key = format!("old{number:06}");
        set(store, &key, 100, expires);
        (0..hits).for_each(|_| hit(store, &key));
    }
}

#[test]
fn what_is_dead_makes_room_before_what_lives_and_is_no_eviction() {
    const NEW: u64 = 2_000;
    // What was asked for often and flushed, and what has expired as the sweep was told.
    for (hits, expires) in [(3, Moment::NEVER), (0, NOW.plus_seconds(1))] {
        let store = cache(16);
        fill_cache(&store, hits, expires);
        if expires == Moment::NEVER {
            assert!(store.flush_all());
        }
        store.sweep(NOW.plus_seconds(1), 1);
        let before = store.stats();
        let key = |number: u64| format!("new{number:06}");
        (0..NEW).for_each(|number| set(&store, &key(number), 100, Moment::NEVER));
        let after = store.stats();
        let evicted = after.evictions - before.evictions;
        assert!(evicted < NEW / 20, "{evicted} evicted though so much is dead");
        assert!(after.reclaimed - before.reclaimed > NEW / 2, "{after:?}");
        let lives = |key: String| store.peek(store.hash(key.as_bytes()), key.as_bytes(), NOW);
        let lost = (0..NEW).filter(|number| lives(key(*number)).is_none()).count();
        assert!((lost as u64) < NEW / 20, "{lost} are lost though so much is dead");
    }
}

#[test]
fn a_dead_large_item_whose_last_piece_makes_room_is_no_eviction_of_its_class() {
    let store = cache(16);
    for number in 0.. {
        if store.stats().evictions > 0 {
            break;
        }
        set(&store, &format!("large{number}"), 40_000, Moment::NEVER);
    }
    assert!(store.flush_all());
    let counts = || {
        let of_classes: u64 = store.class_stats().iter().map(|class| class.evicted).sum();
        let stats = store.stats();
        (of_classes, stats.evictions, stats.reclaimed)
    };
    let before = counts();
    // As large as the slots of their last pieces, the smallest that there are.
    let slots = store.class_stats().iter().map(|class| class.slot_bytes).min();
    let slot_bytes = slots.expect("they have pieces") as usize;
    for number in 0..100 {
        let key = format!("small{number:03}");
        set(&store, &key, slot_bytes - HEADER_BYTES - key.len(), Moment::NEVER);
    }
    let after = counts();
    assert!(after.2 > before.2, "{after:?} after {before:?}");
    assert_eq!(after.0 - before.0, after.1 - before.1, "{after:?} after {before:?}");
}

#[test]
fn what_is_being_read_is_not_evicted_in_vain() {
    const READ: usize = 10;
    let store = cache(32);
    let key = |number: usize| format!("key{number}");
    let store_some = |numbers: std::ops::Range<usize>| {
        numbers.for_each(|number| set(&store, &key(number), 1 << 20, Moment::NEVER));
    };
    store_some(0..READ);
    let pin = |number: usize| {
        let (key, mut out) = (key(number), Vec::new());
        match store.get(store.hash(key.as_bytes()), key.as_bytes(), NOW, &mut out, &mut |_, _| {}) {
            Got::Large(_, pinned) => pinned,
            Got::Miss | Got::Copied(_) => panic!("{key} is large, and there"),
        }
    };
    let pins: Vec<_> = (0..READ).map(pin).collect();
    let are_there = || {
        let is_there = |number: &usize| {
            let key = key(*number);
            store.peek(store.hash(key.as_bytes()), key.as_bytes(), NOW).is_some()
        };
        (0..READ).filter(is_there).count()
    };
    store_some(READ..100);
    assert!(store.stats().evictions > 50, "it is full");
    assert_eq!((are_there(), store.stats().pinned_dead_bytes), (READ, 0));
    drop(pins);
    store_some(100..200);
    assert_eq!(are_there(), 0, "nobody reads them any more");
}

/// Readers who relieve each other keep no memory for ever.
#[test]
fn what_always_has_a_reader_makes_room_all_the_same() {
    let store = cache(32);
    let key = |number: usize| format!("key{number}");
    (0..64).for_each(|number| set(&store, &key(number), 1 << 20, Moment::NEVER));
    let pin = |number: usize| {
        let (key, mut out) = (key(number), Vec::new());
        match store.get(store.hash(key.as_bytes()), key.as_bytes(), NOW, &mut out, &mut |_, _| {}) {
            Got::Large(_, pinned) => Some(pinned),
            Got::Miss | Got::Copied(_) => None,
        }
    };
    let readers = || -> Vec<_> { (0..64).filter_map(pin).collect() };
    let (mut pins, value) = (readers(), vec![b'v'; 1 << 20]);
    assert!(pins.len() > 20, "most of the memory is being read");
    let is_stored = (0..64).any(|_| {
        let draft = store.draft(b"new", 0, Moment::NEVER, value.len());
        let stored = draft.is_ok_and(|mut draft| draft.write(&value).is_ok());
        pins = readers(); // the next come before those go
        stored
    });
    assert!(is_stored, "{} are read still", pins.len());
}

#[test]
fn a_small_draft_does_no_more_than_a_few_steps_whatever_has_to_make_room() {
    let store = cache(16);
    // Full of what is asked for, so that the hand has to go round.
    for number in 0.. {
        if store.stats().evictions > 1000 {
            break;
        }
        set(&store, &format!("small{number}"), 60, Moment::NEVER);
        hit(&store, &format!("small{number}"));
        hit(&store, &format!("small{number}"));
    }
    // Then of each size something: none of these classes has a chunk.
    let sizes = (100..16_000).step_by(97).cycle().take(5_000);
    let most = Work {
        slots: (STEP + 2 * PICK) as u64 + 4 * LAST_SLOTS,
        items: 64,
        bytes: (STEP * COPY_BYTES + 2 * BLOCK_BYTES) as u64,
        ..Work::default()
    };
    for (number, bytes) in sizes.enumerate() {
        let key = format!("other{number}");
        let (draft, work) = work_of(|| store.draft(key.as_bytes(), 0, Moment::NEVER, bytes));
        let mut draft = draft.expect("a cache makes room");
        assert!(work.slots <= most.slots, "{bytes} bytes: {work:?}");
        assert!(work.items <= most.items, "{bytes} bytes: {work:?}");
        assert!(work.bytes <= most.bytes, "{bytes} bytes: {work:?}");
        draft.write(&vec![b'v'; bytes]).expect("a slot of its own");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        hit(&store, &key);
    }
}

#[test]
fn a_large_draft_waits_for_memory_in_steps_where_small_items_have_all_of_it() {
    let store = cache(16);
    for number in 0.. {
        if store.stats().evictions > 1000 {
            break;
        }
        set(&store, &format!("small{number}"), 10, Moment::NEVER);
    }
    let bytes = 2 << 20;
    let mut draft = store.draft(b"large", 0, Moment::NEVER, bytes).expect("it takes nothing yet");
    let mut waits = 0;
    while draft.missing() > 0 {
        let (ready, work) = work_of(|| draft.prepare().expect("a cache makes room"));
        assert!(work.slots as usize <= STEP + PICK + LIST_LOOKS, "{work:?}");
        assert!(work.items <= 64, "{work:?}");
        match ready {
            None => waits += 1,
            Some(ready) => draft.write(&vec![b'l'; ready]).expect("it is prepared"),
        }
        assert!(waits < 100_000, "it never gets there");
    }
    assert!(waits > 100, "{waits}: it took much, and not at once");
    store.enter(store.hash(b"large"), b"large", NOW).publish(draft, None);
    assert!(store.peek(store.hash(b"large"), b"large", NOW).is_some());
}

/// The most pieces that whoever ends an item gives back at once.
const END_PIECES: u64 = END.div_ceil(GIVE) as u64;

/// An item of 8 MiB, of more pieces than end at once.
fn set_large(store: &Arc<Store>, key: &str) {
    set(store, key, (8 << 20) - 100, Moment::NEVER);
}

fn used(store: &Store) -> u64 {
    store.class_stats().iter().map(|class| class.used).sum()
}

/// Steps of the sweep until nothing is left to be freed.
fn sweep_all(store: &Store, now: Moment) {
    for steps in 0.. {
        let (swept, work) = work_of(|| store.sweep(now, 10_000));
        assert!(work.items <= (STEP / GIVE) as u64, "{work:?}");
        if swept.is_over {
            break;
        }
        assert!(steps < 1000, "it never gets there");
    }
}

#[test]
fn whoever_ends_a_large_item_gives_back_few_of_its_pieces_and_the_sweep_the_others() {
    let store = cache(64);
    let hash = store.hash(b"large");
    let delete = || store.enter(hash, b"large", NOW).unlink();
    let replace = || set(&store, "large", 3, Moment::NEVER);
    let read_to_its_end = || {
        let found = store.get(hash, b"large", NOW, &mut Vec::new(), &mut |_, _| {});
        delete();
        meter::take();
        drop(found);
    };
    let vanish = || {
        let mut draft = store.draft(b"other", 0, Moment::NEVER, (8 << 20) - 100).expect("room");
        draft.write(&vec![b'v'; 8 << 20][..draft.missing()]).expect("room");
        meter::take();
        drop(draft);
    };
    let ends: [&dyn Fn(); 4] = [&delete, &replace, &read_to_its_end, &vanish];
    for (number, end) in ends.into_iter().enumerate() {
        set_large(&store, "large");
        assert!(used(&store) > 2 * END_PIECES);
        let ((), work) = work_of(end);
        assert!(work.items <= END_PIECES + 4, "way {number}: {work:?}");
        delete();
        assert!(used(&store) > END_PIECES, "way {number}: the others are still there");
        sweep_all(&store, NOW);
        assert_eq!((used(&store), store.stats().items), (0, 0), "way {number}");
        assert!(store.class_stats().iter().all(|class| class.items == 0), "way {number}");
    }
}

#[test]
fn a_sweep_or_an_eviction_of_large_items_gives_back_few_of_their_pieces_a_step() {
    let store = cache(128);
    for number in 0..4 {
        set(&store, &format!("large{number}"), 7 << 20, NOW.plus_seconds(1));
    }
    sweep_all(&store, NOW.plus_seconds(1));
    assert_eq!((used(&store), store.stats().items), (0, 0));
    // Of small items none is left to be evicted: each of these takes from large ones.
    const BOUND: u64 = ((2 * STEP + 2 * PICK) / GIVE) as u64;
    (0..3).for_each(|number| set(&store, &format!("other{number}"), 40 << 20, Moment::NEVER));
    assert!(used(&store) / 3 > BOUND, "one of them alone has more pieces");
    for number in 0..4_000 {
        let key = format!("small{number}");
        let (draft, work) = work_of(|| store.draft(key.as_bytes(), 0, Moment::NEVER, 15_000));
        assert!(work.items <= BOUND, "{number}: {work:?}");
        let mut draft = draft.expect("a cache makes room");
        draft.write(&[b'v'; 15_000]).expect("a slot of its own");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
    }
}

#[test]
fn a_store_that_may_not_evict_finds_the_memory_of_what_was_deleted() {
    let config = Config { memory_bytes: 32 << 20, item_bytes_max: 16 << 20, ..Config::default() };
    let store = Store::new(Config { mode: Mode::Store, ..config }).expect("a small store");
    let fill = |store: &Arc<Store>| {
        let mut stored = 0;
        loop {
            let key = format!("key{stored}");
            let Ok(mut draft) = store.draft(key.as_bytes(), 0, Moment::NEVER, 9_000) else {
                break;
            };
            draft.write(&[b'v'; 9_000]).expect("a slot of its own");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
            stored += 1;
        }
        stored
    };
    set(&store, "large", 15 << 20, Moment::NEVER);
    let before = fill(&store);
    store.enter(store.hash(b"large"), b"large", NOW).unlink();
    assert!(used(&store) > before as u64 + END_PIECES, "most of its pieces are not given yet");
    let behind = fill(&store);
    assert!(behind - before > (14 << 20) / 10_000, "{behind} behind {before}");
}

#[test]
fn nothing_is_refused_while_pieces_of_what_was_deleted_remain() {
    let config = Config { memory_bytes: 160 << 20, item_bytes_max: 32 << 20, ..Config::default() };
    let config = Config { mode: Mode::Store, unpublished_bytes_max: 160 << 20, ..config };
    let store = Store::new(config).expect("a small store");
    // Uploads side by side: their pieces alternate, and no chunk is empty before the last is given.
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let begin = |name: &&[u8]| store.draft(name, 0, Moment::NEVER, 30 << 20).expect("a descriptor");
    let mut drafts = names.each_ref().map(begin);
    let piece = vec![b'v'; 32 << 10];
    while drafts[0].missing() > 0 {
        let bytes = drafts[0].missing().min(piece.len());
        drafts.iter_mut().for_each(|draft| draft.write(&piece[..bytes]).expect("room"));
    }
    for (name, draft) in names.iter().zip(drafts) {
        store.enter(store.hash(name), name, NOW).publish(draft, None);
    }
    let fill = |from: usize| {
        (from..).take_while(|number| {
            let key = format!("key{number}");
            let Ok(mut draft) = store.draft(key.as_bytes(), 0, Moment::NEVER, 9_000) else {
                return false;
            };
            draft.write(&[b'v'; 9_000]).expect("a slot of its own");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
            true
        })
    };
    let before = fill(0).count();
    names.iter().for_each(|name| store.enter(store.hash(name), name, NOW).unlink());
    let behind = fill(before).count();
    assert!(!store.has_remains(), "{behind} stored");
    assert_eq!(fill(before + behind).count(), 0, "more room is found later");
}

#[test]
fn who_may_not_evict_looks_for_an_empty_chunk_without_passing_the_others() {
    let config = Config { memory_bytes: 64 << 20, mode: Mode::Store, ..Config::default() };
    let store = Store::new(config).expect("a small store");
    let mut keys = Vec::new();
    for number in 0.. {
        let key = format!("key{number}");
        let Ok(mut draft) = store.draft(key.as_bytes(), 0, Moment::NEVER, 4_000) else {
            break;
        };
        draft.write(&[b'v'; 4_000]).expect("a slot of its own");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        keys.push(key);
    }
    // Free slots in every chunk, and no chunk that is free.
    for key in keys.iter().step_by(100) {
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).unlink();
    }
    let (draft, work) = work_of(|| store.draft(b"another", 0, Moment::NEVER, 100));
    assert!(draft.is_err(), "no chunk is free for another size");
    let classes = store.memory.block_class() as u64 + 1;
    assert!(work.slots <= classes, "{work:?}");
    // One that is, among many, is found.
    for key in &keys[..keys.len() / 2] {
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).unlink();
    }
    assert!(store.draft(b"another", 0, Moment::NEVER, 100).is_ok());
}

/// Stores new items until one is refused; how many were stored.
fn fill(store: &Arc<Store>, name: &str, expires: Moment) -> usize {
    let fits = |number: &usize| {
        let key = format!("{name}{number:06}");
        let Ok(mut draft) = store.draft(key.as_bytes(), 0, expires, 100) else { return false };
        draft.write(&[b'v'; 100]).expect("a slot of its own");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        true
    };
    (0..).take_while(fits).count()
}

#[test]
fn who_may_not_evict_finds_the_memory_of_what_was_flushed_or_has_expired() {
    let config = Config { memory_bytes: 8 << 20, mode: Mode::Store, ..Config::default() };
    let store = Store::new(config).expect("a small store");
    let before = fill(&store, "a", NOW.plus_seconds(1));
    assert_eq!(fill(&store, "b", Moment::NEVER), 0, "all of them live");
    // It looks at next to nothing, and knows the time then.
    store.sweep(NOW.plus_seconds(1), 1);
    let behind = fill(&store, "b", Moment::NEVER);
    assert!(behind * 10 > before * 9, "{behind} in the place of {before} that have expired");
    assert!(store.flush_all());
    let (draft, work) = work_of(|| store.draft(b"c", 0, Moment::NEVER, 104));
    assert!(draft.is_ok() && work.items == 1, "{work:?}");
    drop(draft);
    let behind = fill(&store, "c", Moment::NEVER);
    assert!(behind * 10 > before * 9, "{behind} in the place of {before} that were flushed");
    let (draft, work) = work_of(|| store.draft(b"d", 0, Moment::NEVER, 104));
    assert!(draft.is_err(), "what is left lives");
    assert!(work.slots <= STEP as u64 / 4, "a refusal is cheap: {work:?}");
}

#[test]
fn who_may_not_evict_finds_the_memory_of_a_large_item_that_has_expired() {
    let config = Config { memory_bytes: 32 << 20, item_bytes_max: 16 << 20, ..Config::default() };
    let store = Store::new(Config { mode: Mode::Store, ..config }).expect("a small store");
    set(&store, "large", 15 << 20, NOW.plus_seconds(1));
    fill(&store, "a", Moment::NEVER);
    store.sweep(NOW.plus_seconds(1), 1);
    let behind = fill(&store, "b", Moment::NEVER);
    assert!(behind > (8 << 20) / 128, "{behind} in its place");
}

#[test]
fn who_looks_for_what_is_dead_leaves_the_marks_of_what_lives() {
    let config = Config { memory_bytes: 8 << 20, mode: Mode::Store, ..Config::default() };
    let store = Store::new(config).expect("a small store");
    // A second begins, and the sweep has not been told of it yet.
    store.sweep(Moment::from_seconds(NOW.seconds() - 1), 1);
    set(&store, "large", 100_000, Moment::NEVER);
    let stored = fill(&store, "a", Moment::NEVER);
    (0..100).for_each(|_| assert_eq!(fill(&store, "b", Moment::NEVER), 0, "all of them live"));
    let idle = |key: &str| {
        let seen = store.peek(store.hash(key.as_bytes()), key.as_bytes(), NOW);
        seen.expect("it lives").idle_seconds
    };
    assert_eq!(idle("large"), 0);
    assert!((0..stored).all(|number| idle(&format!("a{number:06}")) == 0));
}
