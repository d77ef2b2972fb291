//! What a try counts, and that only the last one is told.

use super::*;
use crate::counts::counters::Totals;
use crate::execute::ExecuteSettings;
use laneway_wire::resp::reply::Version;

const NOW: Moment = Moment::from_seconds(1);

fn set(store: &Arc<Store>, key: &[u8], value: &[u8]) {
    let mut draft = store.draft(key, 0, Moment::NEVER, value.len()).expect("memory");
    draft.write(value).expect("memory");
    store.enter(store.hash(key), key, NOW).publish(draft, None);
}

fn request(words: &[&str]) -> String {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
}

/// Somebody changes an item after each of the first tries.
#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn what_was_tried_in_vain_is_not_counted() {
    let store: Arc<Store> = Store::new(Config::default()).expect("memory");
    set(&store, b"k", b"12345");
    let requests = [
        request(&["GET", "k"]),
        request(&["MGET", "none", "k"]),
        request(&["SET", "k", "ab"]),
        request(&["SET", "k", "ab", "WHAT"]),
        request(&["PING"]),
        request(&["TTL", "k"]),
        request(&["INCR", "n"]),
        request(&["DEL", "k", "none"]),
        request(&["MSETNX", "a", "1", "b", "23"]),
        request(&["RENAME", "a", "longer"]),
    ];
    let requests = requests.concat().into_bytes();
    let (counters, settings) = (Counters::default(), ExecuteSettings::default());
    let touched = Cell::new(0);
    let context = Context {
        store: &store,
        others: &[],
        hand: None,
        now: NOW,
        counters: &counters,
        settings: &settings,
        touched: &touched,
        large_from: u64::MAX,
        large_lane_from: u64::MAX,
        pending_writes: None,
        read_only: false,
        log: None,
        by: 0,
    };
    let asking = Asking { context, version: Version::Two };
    let mut scratch = Scratch::new(1 << 20).expect("memory");
    let (mut asked, mut out) = (Vec::new(), Vec::new());
    for is_last in [false, false, true] {
        let keys = Keys::of(&requests, &[]).expect("they are few");
        keys.asked.iter().for_each(|key| {
            scratch.copy(&store, key, NOW).expect("it is short");
        });
        scratch.run(&requests, &asking, (&mut asked, &mut out)).expect("they are small");
        if is_last {
            break;
        }
        set(&store, b"k", b"12345");
        let number = scratch.keys().position(|key| key == b"k").expect("it is asked about");
        let found = store.peek(store.hash(b"k"), b"k", NOW);
        assert!(!scratch.is_as_copied(number, found.as_ref()), "somebody has changed it");
        scratch.clear(NOW);
        (asked, out) = (Vec::new(), Vec::new());
    }
    let mut totals = Totals::default();
    totals.add(&counters);
    assert_eq!(totals, Totals::default(), "nothing is counted until it is told");
    counters.take_over(scratch.counters());
    totals.add(&counters);
    let wanted = Totals {
        cmd_get: 3,
        get_hits: 2,
        get_misses: 1,
        cmd_set: 3,
        incr_misses: 1,
        delete_hits: 1,
        delete_misses: 1,
        resp_keyless: 1,
        ..Totals::default()
    };
    assert_eq!(totals, wanted);
    let told: Vec<(&str, Operation, u64)> = asked
        .iter()
        .map(|asked| (str::from_utf8(asked.key).expect("text"), asked.operation, asked.size))
        .collect();
    let wanted = [
        ("k", Operation::Get, 6),
        ("none", Operation::Get, 0),
        ("k", Operation::Get, 6),
        ("k", Operation::Set, 3),
        ("k", Operation::Other, 0),
        ("n", Operation::Arith, 0),
        ("k", Operation::Delete, 0),
        ("none", Operation::Delete, 0),
        ("a", Operation::Set, 2),
        ("b", Operation::Set, 3),
        ("a", Operation::Set, 2),
    ];
    assert_eq!(told, wanted);
}
