//! Facts about the interface, one by one.

use laneway_store::{
    BLOCK_BYTES, Config, Draft, Evictions, Got, Hand, Hook, ItemMeta, KeyHash, Location, Medium,
    Mode, Moment, Refused, SMALL_RECORD_BYTES_MAX, Store, Unlinked,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

const NOW: Moment = Moment::from_seconds(1_000_000);

fn config(mode: Mode, memory_bytes: u64) -> Config {
    Config { memory_bytes, mode, buckets_initial: 1, ..Config::default() }
}

fn cache() -> Arc<Store> {
    Store::new(config(Mode::Cache, 16 << 20)).expect("memory")
}

fn set(store: &Arc<Store>, key: &str, value: &[u8], expires: Moment) -> Result<u64, Refused> {
    let mut draft = store.draft(key.as_bytes(), 0, expires, value.len())?;
    draft.write(value)?;
    let hash = store.hash(key.as_bytes());
    Ok(store.enter(hash, key.as_bytes(), NOW).publish(draft, None))
}

fn get(store: &Arc<Store>, key: &str, now: Moment) -> Option<(ItemMeta, Vec<u8>)> {
    let mut out = Vec::new();
    let hash = store.hash(key.as_bytes());
    match store.get(hash, key.as_bytes(), now, &mut out, &mut |_, _| ()) {
        Got::Miss => None,
        Got::Copied(meta) => Some((meta, out)),
        Got::Large(meta, pinned) => {
            pinned.copy_into(&mut out);
            Some((meta, out))
        }
    }
}

#[test]
fn cas_ids_of_a_key_ascend_and_no_two_stores_have_the_same() {
    let store = cache();
    let mut all = HashSet::new();
    let mut last = HashMap::new();
    for round in 0..300 {
        let key = format!("key{}", round % 7);
        let given = set(&store, &key, b"x", Moment::NEVER).expect("room");
        assert!(all.insert(given), "{given} twice");
        assert!(last.insert(key.clone(), given) < Some(given));
        assert_eq!(get(&store, &key, NOW).expect("hit").0.seq, given);
    }
    assert_eq!(store.stats().seq, *all.iter().max().expect("300 of them"));
    assert_eq!((store.stats().items_total, store.stats().items), (300, 7));
    store.raise_seq(1 << 40);
    assert!(set(&store, "a", b"y", Moment::NEVER).expect("room") > 1 << 40);
    // One in place, and one that somebody chose: the second alone is an item more.
    let hash = store.hash(b"a");
    store.enter(hash, b"a", NOW).renew_seq(None);
    let mut draft = store.draft(b"a", 0, Moment::NEVER, 1).expect("room");
    draft.write(b"z").expect("room");
    assert_eq!(store.enter(hash, b"a", NOW).publish(draft, Some(5)), 5);
    assert_eq!(store.stats().items_total, 302);
}

#[test]
fn a_hand_keeps_the_slot_of_what_was_replaced_until_it_is_emptied() {
    let store = cache();
    let hand = Hand::new(&store);
    let set = |bytes: usize| {
        let value = vec![b'v'; bytes];
        let mut draft =
            store.draft_at_once(Some(&hand), b"a", 0, Moment::NEVER, bytes).expect("room");
        draft.write(&value).expect("room");
        store.enter(store.hash(b"a"), b"a", NOW).keeping(Some(&hand)).publish(draft, None);
    };
    (0..10).for_each(|_| set(100));
    assert_eq!(store.slots_used(), 2, "the item's and the hand's");
    set(1000);
    assert_eq!(store.slots_used(), 2, "of the second slot of the class one was given back");
    (0..10).for_each(|_| set(8_000));
    assert_eq!(store.slots_used(), 3, "large slots are not kept");
    hand.empty();
    assert_eq!(store.slots_used(), 1);
    set(100);
    drop(hand);
    assert_eq!(store.slots_used(), 1);
    assert_eq!(get(&store, "a", NOW).expect("hit").1, vec![b'v'; 100]);
}

#[test]
fn a_hand_keeps_nothing_of_what_was_deleted_and_gives_all_before_its_owner_is_refused() {
    let store = Store::new(config(Mode::Store, 4 << 20)).expect("memory");
    let hand = Hand::new(&store);
    let full = |bytes: usize| {
        let put = |number: &usize| {
            set(&store, &format!("{number}"), &vec![0; bytes], Moment::NEVER).is_ok()
        };
        (0..).take_while(put).count()
    };
    assert!(full(1000) > 1000);
    store.enter(store.hash(b"1"), b"1", NOW).keeping(Some(&hand)).unlink();
    set(&store, "other", &[0; 1000], Moment::NEVER).expect("the slot of what was deleted");
    let mut draft = store.draft_at_once(Some(&hand), b"2", 0, Moment::NEVER, 1000);
    assert!(draft.is_err(), "nothing is left");
    for round in 0..2 {
        store.enter(store.hash(b"3"), b"3", NOW).unlink();
        draft = store.draft_at_once(Some(&hand), b"2", 0, Moment::NEVER, 1000);
        let mut draft = draft.expect("one slot");
        draft.write(&[0; 1000]).expect("room");
        store.enter(store.hash(b"2"), b"2", NOW).keeping(Some(&hand)).publish(draft, None);
        let mut smaller =
            store.draft_at_once(Some(&hand), b"4", 0, Moment::NEVER, 990).expect("its own slot");
        smaller.write(&[0; 990]).expect("room");
        drop(smaller);
        set(&store, "3", &[0; 1000], Moment::NEVER)
            .unwrap_or_else(|why| panic!("round {round}: {why:?}"));
    }
}

#[test]
fn a_bound_below_what_was_given_out_moves_no_cas_id() {
    let store = cache();
    let mut all = HashSet::new();
    for round in 0..3_000 {
        assert!(
            all.insert(set(&store, &format!("key{round}"), b"x", Moment::NEVER).expect("room"))
        );
        if round == 1_500 {
            store.raise_seq(10);
        }
    }
}

#[test]
fn an_item_expires_at_its_second_and_is_counted() {
    let store = cache();
    set(&store, "a", b"x", NOW.plus_seconds(5)).expect("room");
    assert!(get(&store, "a", NOW.plus_seconds(4)).is_some());
    assert!(get(&store, "a", NOW.plus_seconds(5)).is_none());
    let stats = store.stats();
    assert_eq!((stats.items, stats.reclaimed, stats.expired_unfetched), (0, 1, 0));
    assert_eq!((stats.found_expired, stats.found_flushed), (1, 0), "and why it was missed");
    assert_eq!(store.slots_used(), 0);
}

#[test]
fn an_end_is_kept_to_the_millisecond() {
    let store = cache();
    let end = Moment::new(1_000_005, 500);
    for (key, bytes) in [("small", 5), ("large", 100_000)] {
        set(&store, key, &vec![7; bytes], end).expect("room");
        let before = get(&store, key, Moment::new(1_000_005, 499)).expect("it is alive");
        assert_eq!((before.0.expires, before.1.len()), (end, bytes));
        assert!(get(&store, key, end).is_none(), "{key}");
    }
    assert_eq!(store.slots_used(), 0);
}

#[test]
fn an_end_costs_half_a_word_and_milliseconds_cost_one_where_there_are_some() {
    let store = cache();
    let bytes = |expires| {
        set(&store, "key", b"value", expires).expect("room");
        store.stats().bytes
    };
    assert_eq!(bytes(Moment::NEVER), 12 + 8);
    assert_eq!(bytes(NOW.plus_seconds(9)), 16 + 8);
    assert_eq!(bytes(Moment::new(2_000_000, 1)), 24 + 8);
    assert_eq!(bytes(NOW.plus_seconds(9)), 16 + 8);
}

/// A copy of an item with room for this end.
fn copy<'s>(store: &'s Arc<Store>, key: &str, end: Moment) -> Draft<&'s Store> {
    let mut value = Vec::new();
    let hash = store.hash(key.as_bytes());
    let Got::Copied(meta) = store.peek_value(hash, key.as_bytes(), NOW, &mut value) else {
        panic!("{key} is not there");
    };
    let mut draft =
        store.draft_at_once(None, key.as_bytes(), meta.flags, end, value.len()).expect("room");
    draft.write(&value).expect("room");
    draft
}

#[test]
fn an_item_without_room_for_milliseconds_is_written_anew_and_stays_the_same() {
    let store = cache();
    let given = set(&store, "a", b"value", NOW.plus_seconds(999)).expect("room");
    get(&store, "a", NOW).expect("a hit");
    let [first, second] = [Moment::new(1_000_009, 1), Moment::new(1_000_008, 999)];
    let hash = store.hash(b"a");
    let mut entry = store.enter(hash, b"a", NOW);
    entry.set_stale(true);
    assert!(!entry.has_room_for(first) && entry.has_room_for(first.rounded_up()));
    entry.set_expires(first);
    assert_eq!(entry.meta().expect("there").expires, first.rounded_up(), "it has no room");
    drop(entry);
    let later = NOW.plus_seconds(3);
    let before = store.peek(hash, b"a", later).expect("there");

    let draft = copy(&store, "a", first);
    let mut entry = store.enter(hash, b"a", later);
    entry.rewrite(draft);
    for end in [second, first.rounded_up(), Moment::NEVER, first] {
        assert!(entry.has_room_for(end));
        entry.set_expires(end);
        assert_eq!(entry.meta().expect("there").expires, end, "in place");
    }
    drop(entry);
    let (after, value) = get(&store, "a", later).expect("there");
    assert_eq!(value, b"value");
    assert_eq!(after, ItemMeta { expires: first, ..before }, "nothing else has changed");
    assert_eq!((after.seq, after.stale, after.fetched, after.idle_seconds), (given, true, true, 3));
    let stats = store.stats();
    assert_eq!((stats.items, stats.items_total, store.slots_used()), (1, 1, 1));
    assert_eq!(stats.bytes, 24 + 1 + 5);
}

#[test]
fn a_short_item_without_an_end_is_written_anew_for_one_and_stays_the_same() {
    let store = cache();
    let given = set(&store, "a", b"value", Moment::NEVER).expect("room");
    get(&store, "a", NOW).expect("a hit");
    let (end, hash) = (NOW.plus_seconds(9), store.hash(b"a"));
    let mut entry = store.enter(hash, b"a", NOW);
    assert!(entry.has_room_for(Moment::NEVER) && !entry.has_room_for(end));
    entry.set_token_sent(true);
    entry.set_expires(Moment::NEVER);
    drop(entry);
    let later = NOW.plus_seconds(3);
    let before = store.peek(hash, b"a", later).expect("there");
    assert_eq!((before.seq, before.token_sent, store.stats().bytes), (given, true, 12 + 1 + 5));

    let draft = copy(&store, "a", end);
    let mut entry = store.enter(hash, b"a", later);
    entry.rewrite(draft);
    for end in [Moment::NEVER, end.plus_seconds(1), end] {
        assert!(entry.has_room_for(end));
        entry.set_expires(end);
        assert_eq!(entry.meta().expect("there").expires, end, "in place");
    }
    drop(entry);
    let (after, value) = get(&store, "a", later).expect("there");
    assert_eq!(value, b"value");
    assert_eq!(after, ItemMeta { expires: end, ..before }, "nothing else has changed");
    let stats = store.stats();
    assert_eq!((stats.items, stats.items_total, store.slots_used()), (1, 1, 1));
    assert_eq!(stats.bytes, 16 + 1 + 5);
    assert!(get(&store, "a", end).is_none(), "and it ends");
}

#[test]
fn an_item_without_room_for_an_end_does_not_outlive_it() {
    let store = cache();
    set(&store, "a", b"value", Moment::NEVER).expect("room");
    let mut entry = store.enter(store.hash(b"a"), b"a", NOW);
    entry.set_expires(NOW.plus_seconds(9));
    assert_eq!(entry.meta(), None);
    drop(entry);
    assert!(get(&store, "a", NOW).is_none());
    let stats = store.stats();
    assert_eq!((stats.items, stats.evictions, store.slots_used(), stats.bytes), (0, 1, 0, 0));
}

#[test]
fn what_may_not_be_evicted_and_what_is_long_has_room_for_an_end() {
    let never_evicts = Store::new(config(Mode::Store, 16 << 20)).expect("memory");
    for (store, value_bytes) in [(cache(), 1024), (never_evicts, 5)] {
        set(&store, "a", &vec![7; value_bytes], Moment::NEVER).expect("room");
        assert_eq!(store.stats().bytes, 16 + 1 + value_bytes as u64);
        let end = NOW.plus_seconds(9);
        let mut entry = store.enter(store.hash(b"a"), b"a", NOW);
        assert!(entry.has_room_for(end));
        entry.set_expires(end);
        assert_eq!(entry.meta().expect("there").expires, end, "in place");
    }
}

#[test]
fn what_is_written_anew_has_seen_no_more_flushes() {
    let store = cache();
    set(&store, "a", b"value", Moment::NEVER).expect("room");
    let draft = copy(&store, "a", Moment::new(1_000_009, 1));
    let mut entry = store.enter(store.hash(b"a"), b"a", NOW);
    assert!(store.flush_all());
    entry.rewrite(draft);
    drop(entry);
    assert!(get(&store, "a", NOW).is_none(), "it was stored before the flush");
}

#[test]
fn a_draft_takes_an_end_with_milliseconds_if_it_was_begun_with_room() {
    let store = cache();
    let end = Moment::new(1_000_009, 1);
    for (begun, kept) in [(Moment::LATER, end), (NOW, end.rounded_up())] {
        let mut draft = store.draft(b"a", 0, begun, 1).expect("room");
        draft.set_expires(end);
        draft.write(b"v").expect("room");
        store.enter(store.hash(b"a"), b"a", NOW).publish(draft, None);
        assert_eq!(get(&store, "a", NOW).expect("there").0.expires, kept, "{begun:?}");
    }
}

#[test]
fn the_sweep_takes_expired_items_without_being_asked_for_them() {
    let store = cache();
    for i in 0..500 {
        set(&store, &format!("dies-{i}"), &[0; 50], NOW.plus_seconds(1)).expect("room");
        set(&store, &format!("lives-{i}"), &[0; 50], Moment::NEVER).expect("room");
    }
    set(&store, "large", &[1; 100_000], NOW.plus_seconds(1)).expect("room");
    let mut expired = 0;
    for _ in 0..2000 {
        expired += store.sweep(NOW.plus_seconds(1), 100).expired;
    }
    assert_eq!(expired, 501);
    assert_eq!((store.stats().items, store.slots_used()), (500, 500));
}

#[test]
fn a_flush_spares_what_comes_after_it() {
    let store = cache();
    set(&store, "before", b"x", Moment::NEVER).expect("room");
    assert!(store.flush_all());
    set(&store, "after", b"x", Moment::NEVER).expect("room");
    assert!(get(&store, "before", NOW).is_none());
    assert!(get(&store, "before", NOW).is_none(), "now it is simply not there");
    assert!(get(&store, "after", NOW).is_some());
    let stats = store.stats();
    assert_eq!((stats.found_expired, stats.found_flushed), (0, 1));
}

#[test]
fn the_size_class_comes_from_the_index() {
    let store = cache();
    for (bytes, class) in [(1usize, 2u8), (60, 5), (61, 6), (62, 6), (125, 7), (100_000, 16)] {
        let key = "abc"; // 3 bytes
        set(&store, key, &vec![0; bytes], Moment::NEVER).expect("room");
        let found = store.size_class(store.hash(key.as_bytes()), key.as_bytes());
        assert_eq!(found, Some(class), "{bytes}");
    }
    assert_eq!(store.size_class(store.hash(b"none"), b"none"), None);
}

#[test]
fn a_peek_leaves_no_mark_and_a_get_does() {
    let store = cache();
    set(&store, "a", b"x", Moment::NEVER).expect("room");
    let peek = |now| store.peek(store.hash(b"a"), b"a", now).expect("hit");
    assert_eq!(
        (peek(NOW.plus_seconds(3)).fetched, peek(NOW.plus_seconds(3)).idle_seconds),
        (false, 3)
    );
    let (meta, _) = get(&store, "a", NOW.plus_seconds(4)).expect("hit");
    assert_eq!((meta.fetched, meta.idle_seconds), (false, 4));
    assert_eq!(
        (peek(NOW.plus_seconds(6)).fetched, peek(NOW.plus_seconds(6)).idle_seconds),
        (true, 2)
    );
}

#[test]
fn a_full_store_refuses_and_a_full_cache_evicts() {
    let full = Store::new(config(Mode::Store, 2 << 20)).expect("memory");
    let refused =
        (0..100_000).find_map(|i| set(&full, &format!("k{i}"), &[0; 100], Moment::NEVER).err());
    assert_eq!(refused, Some(Refused::OutOfMemory));
    assert_eq!(full.stats().evictions, 0);
    assert!(get(&full, "k0", NOW).is_some(), "what was stored stays");

    let cache = Store::new(config(Mode::Cache, 2 << 20)).expect("memory");
    for i in 0..100_000 {
        set(&cache, &format!("k{i}"), &[0; 100], Moment::NEVER).expect("a cache makes room");
    }
    let stats = cache.stats();
    assert!(
        stats.evictions > 50_000 && stats.pool_bytes + stats.index_bytes <= 2 << 20,
        "{stats:?}"
    );
    assert!(get(&cache, "k99999", NOW).is_some());
}

#[test]
fn too_large_is_refused_and_the_largest_fits() {
    let store = cache();
    assert_eq!(set(&store, "k", &vec![0; 1 << 20], Moment::NEVER), Err(Refused::TooLarge));
    assert!(set(&store, "k", &vec![0; (1 << 20) - 100], Moment::NEVER).is_ok());
}

#[test]
fn announcing_a_large_value_reserves_nothing() {
    let store = Store::new(Config { item_bytes_max: 1 << 30, ..config(Mode::Cache, 8 << 20) });
    let store = store.expect("memory");
    let drafts: Vec<_> = (0..100)
        .map(|_| store.draft(b"k", 0, Moment::NEVER, 900 << 20).expect("nothing taken"))
        .collect();
    assert_eq!((store.stats().pool_bytes, store.slots_used()), (0, 0));
    drop(drafts);
}

#[test]
fn unpublished_bytes_are_capped_and_come_back() {
    let store = Store::new(Config {
        item_bytes_max: 1 << 20,
        unpublished_bytes_max: 2 << 20,
        ..config(Mode::Cache, 64 << 20)
    })
    .expect("memory");
    let mut drafts = Vec::new();
    let refused = (0..20).find_map(|_| {
        let mut draft = store.draft(b"k", 0, Moment::NEVER, 1_000_000).expect("nothing taken");
        let written = draft.write(&vec![1; 900_000]).err();
        drafts.push(draft);
        written
    });
    assert_eq!(refused, Some(Refused::OutOfMemory));
    assert!(store.stats().unpublished_bytes > 1 << 20);
    drop(drafts);
    assert_eq!((store.stats().unpublished_bytes, store.slots_used()), (0, 0));
}

#[test]
fn pieces_follow_one_another_and_none_is_longer_than_a_block() {
    let store = cache();
    for bytes in [SMALL_RECORD_BYTES_MAX, 20_000, 32_700, 32_736, 65_500, 300_001] {
        let value: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        set(&store, "k", &value, Moment::NEVER).expect("room");
        let got = store.get(store.hash(b"k"), b"k", NOW, &mut Vec::new(), &mut |_, _| ());
        let Got::Large(_, pinned) = got else { panic!("{bytes} is large") };
        let mut offset = 0;
        while offset < bytes {
            let piece = pinned.piece(offset);
            assert!(!piece.is_empty() && piece.len() <= BLOCK_BYTES);
            assert_eq!(piece, &value[offset..offset + piece.len()]);
            assert_eq!(pinned.piece(offset + piece.len() / 2), &piece[piece.len() / 2..]);
            offset += piece.len();
        }
        assert!(pinned.piece(bytes).is_empty());
    }
}

#[test]
fn a_lower_limit_is_reached_little_by_little() {
    let store = Store::new(config(Mode::Cache, 16 << 20)).expect("memory");
    let fill = |from: u32| {
        (from..from + 100_000).for_each(|i| {
            set(&store, &format!("k{i}"), &[0; 200], Moment::NEVER).expect("a cache makes room");
        });
    };
    fill(0);
    assert!(store.stats().pool_bytes > 12 << 20);
    store.set_memory_bytes(4 << 20);
    for _ in 0..10_000 {
        store.sweep(NOW, 100);
    }
    let stats = store.stats();
    assert!(stats.pool_bytes + stats.index_bytes <= 4 << 20, "{stats:?}");
    fill(100_000);
    store.set_memory_bytes(32 << 20);
    fill(200_000);
    let stats = store.stats();
    assert!(stats.pool_bytes > 12 << 20 && stats.limit_bytes == 32 << 20, "{stats:?}");
}

/// What a listener was told, as text.
#[derive(Default, Clone)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Hook for Told {
    fn published(&self, _: KeyHash, key: &[u8], location: Location, meta: &ItemMeta) {
        let key = String::from_utf8_lossy(key);
        let large = location.medium() == Medium::Extent;
        self.0.lock().unwrap().push(format!(
            "+{key}:{}:{}:{large}",
            meta.seq,
            meta.expires.seconds()
        ));
    }

    fn unlinked(&self, _: KeyHash, key: &[u8], _: Location, seq: u64, why: Unlinked) {
        let key = String::from_utf8_lossy(key);
        self.0.lock().unwrap().push(format!("-{key}:{seq}:{why:?}"));
    }
}

#[test]
fn the_hook_hears_of_every_change_in_order() {
    let told = Told::default();
    let store = Store::with_hook(config(Mode::Cache, 16 << 20), Box::new(told.clone()));
    let store = store.expect("memory");
    let first = set(&store, "a", b"x", Moment::NEVER).expect("room");
    let second = set(&store, "a", &[0; 50_000], Moment::NEVER).expect("room");
    store.enter(store.hash(b"a"), b"a", NOW).set_expires(NOW.plus_seconds(9));
    store.enter(store.hash(b"a"), b"a", NOW.plus_seconds(9));
    let third = set(&store, "b", b"x", Moment::NEVER).expect("room");
    store.enter(store.hash(b"b"), b"b", NOW).unlink();
    let heard = told.0.lock().unwrap().clone();
    let expected = [
        format!("+a:{first}:0:false"),
        format!("-a:{first}:Replaced"),
        format!("+a:{second}:0:true"),
        format!("+a:{second}:1000009:true"),
        format!("-a:{second}:Expired"),
        format!("+b:{third}:0:false"),
        format!("-b:{third}:Deleted"),
    ];
    assert_eq!(heard, expected);
}

/// The classes that evicted items were told in.
#[derive(Default)]
struct Classes(Mutex<Vec<u32>>);

impl Evictions for Classes {
    fn wants(&self) -> Option<Moment> {
        Some(NOW)
    }

    fn evicted(&self, _: &[u8], _: &ItemMeta, class: u32) {
        self.0.lock().unwrap().push(class);
    }
}

/// Their keys and values have 113 bytes, so that without an end they would lie in the class before.
#[test]
fn what_is_evicted_is_told_in_the_class_that_it_was_in() {
    let store = Store::new(config(Mode::Cache, 2 << 20)).expect("memory");
    let told = Arc::new(Classes::default());
    store.tell_evictions(told.clone());
    for number in 0..30_000 {
        let key = format!("k{number:06}");
        set(&store, &key, &[7; 106], NOW.plus_seconds(9)).expect("a cache makes room");
    }
    let classes = store.class_stats();
    let [of_all] = &classes[..] else { panic!("they are of one size: {classes:?}") };
    let told = told.0.lock().unwrap();
    assert_eq!(told.len() as u64, store.stats().evictions);
    assert!(!told.is_empty() && told.iter().all(|&class| class == of_all.class));
    assert!(store.class_number(113) < of_all.class);
}

/// Replay what the hook heard of a cache under pressure: it must end with what the store holds.
#[test]
fn what_the_hook_heard_adds_up_to_what_is_there() {
    let told = Told::default();
    let store = Store::with_hook(config(Mode::Cache, 2 << 20), Box::new(told.clone()));
    let store = store.expect("memory");
    for i in 0..30_000u32 {
        let bytes = [100, 300, 4000][(i / 10_000) as usize];
        set(&store, &format!("k{}", i % 7000), &vec![0; bytes], Moment::NEVER)
            .expect("a cache makes room");
        get(&store, &format!("k{}", i / 2 % 7000), NOW);
    }
    let mut alive = std::collections::HashSet::new();
    let mut moved = 0;
    for line in told.0.lock().unwrap().iter() {
        let key = line[1..].split(':').next().expect("a key").to_owned();
        moved += u32::from(line.ends_with("Moved"));
        let fits = if line.starts_with('+') { alive.insert(key) } else { alive.remove(&key) };
        assert!(fits, "{line} does not follow");
    }
    assert!(moved > 0, "the shift of sizes moved nothing");
    assert_eq!(alive.len() as u64, store.stats().items);
    assert!(alive.iter().all(|key| get(&store, key, NOW).is_some()));
}
