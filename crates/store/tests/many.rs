//! Keys read together are answered as each alone would be.

use laneway_store::{
    Config, FoundItem, GROUP, Got, Group, HugePages, ItemMeta, Mode, Moment,
    SMALL_RECORD_BYTES_MAX, Sought, Store,
};
use laneway_sync::append::Appending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

const NOW: Moment = Moment::from_seconds(1_000_000);
/// Of the head that these tests write.
const HEAD_BYTES_MAX: usize = 60;

fn store() -> Arc<Store> {
    let config = Config {
        memory_bytes: 16 << 20,
        mode: Mode::Cache,
        item_bytes_max: 1 << 20,
        hash_seed: (3, 4),
        unpublished_bytes_max: 4 << 20,
        buckets_initial: 64,
        huge_pages: HugePages::None,
        window: None,
    };
    Store::new(config).expect("room for a small store")
}

fn set(store: &Arc<Store>, key: &[u8], flags: u32, expires: Moment, value: &[u8]) {
    let mut draft = store.draft(key, flags, expires, value.len()).expect("room");
    draft.write(value).expect("room");
    store.enter(store.hash(key), key, NOW).publish(draft, None);
}

fn head(item: &ItemMeta) -> Vec<u8> {
    let ItemMeta { seq, flags, expires, value_bytes, .. } = item;
    format!("<{seq} {flags} {expires:?} {value_bytes}>").into_bytes()
}

fn sought(
    store: &Arc<Store>,
    (group, number, key): (&Group, usize, &[u8]),
    now: Moment,
    bytes_end: u64,
    out: &mut Vec<u8>,
) -> Sought {
    let write = |item: &FoundItem<'_>, out: &mut Appending<'_>| {
        let meta = item.meta();
        let told = (item.seq(), item.flags(), item.value_bytes() as u32);
        assert_eq!(told, (meta.seq, meta.flags, meta.value_bytes));
        out.put(&head(&meta));
        true
    };
    store.get_sought((group, number, key), now, bytes_end, out, (HEAD_BYTES_MAX, b"\r\n"), write)
}

/// What a key alone is answered, as the group would say it.
fn alone(store: &Arc<Store>, key: &[u8], now: Moment) -> (Sought, Vec<u8>) {
    let mut out = Vec::new();
    let got = store.get(store.hash(key), key, now, &mut out, &mut |meta, out| {
        out.extend(head(meta));
    });
    match got {
        Got::Miss => (Sought::Miss, out),
        Got::Copied(meta) => {
            out.extend_from_slice(b"\r\n");
            let bytes = u64::from(meta.key_bytes) + u64::from(meta.value_bytes);
            (Sought::Copied(bytes), out)
        }
        Got::Large(..) => (Sought::Otherwise, out),
    }
}

#[test]
fn a_group_is_answered_as_its_keys_alone_are() {
    let store = store();
    // Lengths around words and lines, keys among them as short and as long as they may be.
    let keys: Vec<Vec<u8>> = (0..600_usize)
        .map(|number| {
            let mut key = format!("{number:x}").into_bytes();
            key.resize(key.len().max(number % 251), b'k');
            key
        })
        .collect();
    for (number, key) in keys.iter().enumerate() {
        let value: Vec<u8> = (0..number % 301).map(|at| (at * 7 + number) as u8).collect();
        match number % 5 {
            0 => {} // a miss
            1 => set(&store, key, number as u32, NOW.plus_seconds(50), &value),
            _ => set(&store, key, 0, Moment::NEVER, &value),
        }
    }
    let mut group = Group::default();
    let mut simple = 0;
    for now in [NOW, NOW.plus_seconds(100)] {
        for keys in keys.chunks(GROUP) {
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            store.seek(&mut group, &keys);
            for (number, key) in keys.iter().enumerate() {
                assert_eq!(group.hash(number), store.hash(key));
                let before = b"what came before".to_vec();
                let mut out = before.clone();
                let said = sought(&store, (&group, number, key), now, u64::MAX, &mut out);
                let added = out.strip_prefix(&before[..]).expect("it stays").to_vec();
                assert_eq!(group.may_have(number), said != Sought::Miss);
                match said {
                    Sought::Otherwise => assert_eq!(added, b""),
                    _ => {
                        simple += 1;
                        assert_eq!((said, added), alone(&store, key, now));
                    }
                }
            }
        }
    }
    // All of the first round, and all but the expired (a fifth) of the second; a tag that two keys
    // share may spoil a few.
    assert!(simple > 1_050, "only {simple} of 1200 were simple");
}

#[test]
fn what_is_not_simple_is_left_to_others() {
    let store = store();
    set(&store, b"small", 0, Moment::NEVER, b"value");
    set(&store, b"large", 0, Moment::NEVER, &vec![b'l'; SMALL_RECORD_BYTES_MAX + 1]);
    set(&store, b"dead", 0, NOW.plus_seconds(1), b"value");
    set(&store, b"replaced", 0, Moment::NEVER, b"before");
    set(&store, b"deleted", 0, Moment::NEVER, b"before");
    let keys: [&[u8]; 6] = [b"small", b"large", b"dead", b"replaced", b"deleted", b"no"];
    let mut group = Group::default();
    store.seek(&mut group, &keys);
    set(&store, b"replaced", 0, Moment::NEVER, b"after");
    store.enter(store.hash(b"deleted"), b"deleted", NOW).unlink();
    let answers = |now, bytes_end| {
        let answer = |number: usize| {
            let mut out = Vec::new();
            let said = sought(&store, (&group, number, keys[number]), now, bytes_end, &mut out);
            assert_eq!(said == Sought::Otherwise || said == Sought::Miss, out.is_empty());
            said
        };
        [0, 1, 2, 3, 4, 5].map(answer)
    };
    use Sought::{Copied, Miss, Otherwise};
    let [dead, later] = [NOW, NOW.plus_seconds(9)].map(|now| answers(now, u64::MAX)[2]);
    assert_eq!((dead, later), (Copied(9), Otherwise));
    let said = answers(NOW, 11);
    assert_eq!(said, [Copied(10), Otherwise, Copied(9), Otherwise, Otherwise, Miss]);
    assert_eq!(answers(NOW, 10)[0], Otherwise, "it has as many bytes as are too many");
    assert!(store.flush_all());
    assert_eq!(answers(NOW, u64::MAX)[0], Otherwise, "it is flushed");
}

#[test]
fn keys_of_a_group_leave_hit_marks() {
    let store = store();
    set(&store, b"key", 0, Moment::NEVER, b"value");
    let fetched = || store.peek(store.hash(b"key"), b"key", NOW).expect("it is there").fetched;
    assert!(!fetched());
    let mut group = Group::default();
    store.seek(&mut group, &[&b"key"[..]]);
    assert!(!fetched());
    let said = sought(&store, (&group, 0, b"key"), NOW, u64::MAX, &mut Vec::new());
    assert_eq!(said, Sought::Copied(8));
    assert!(fetched());
}

#[test]
fn a_group_never_returns_a_value_that_was_not_written() {
    const WRITES: usize = 30_000;
    let store = store();
    let keys: Vec<Vec<u8>> = (0..12).map(|number| format!("key{number}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..WRITES {
                let key = keys[number * 5 % keys.len()];
                match number % 7 {
                    0 => drop(store.enter(store.hash(key), key, NOW)),
                    1 => {
                        let mut entry = store.enter(store.hash(key), key, NOW);
                        if entry.meta().is_some() {
                            entry.unlink();
                        }
                    }
                    _ => set(&store, key, 0, Moment::NEVER, &vec![number as u8; 20 + number % 300]),
                }
            }
            done.store(true, Relaxed);
        });
        let mut group = Group::default();
        let mut out = Vec::new();
        while !done.load(Relaxed) {
            store.seek(&mut group, &keys);
            for (number, key) in keys.iter().enumerate() {
                out.clear();
                let said = sought(&store, (&group, number, key), NOW, u64::MAX, &mut out);
                let Sought::Copied(bytes) = said else { continue };
                let value_at = out.iter().position(|&byte| byte == b'>').expect("a head") + 1;
                let value = out[value_at..].strip_suffix(b"\r\n").expect("a tail");
                assert_eq!(value.len() + key.len(), bytes as usize);
                assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
            }
        }
    });
}
