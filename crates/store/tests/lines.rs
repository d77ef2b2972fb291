//! What stores and look-ups of different threads share: read-modify-writes and cache lines, counted
//! by the atomics themselves (feature `lines`). The table in docs/performance-log.md says the same.

use laneway_store::{Config, Got, Hand, Moment, Store};
use laneway_sync::lines::{self, Touched};
use std::sync::Arc;

const NOW: Moment = Moment::from_seconds(1_800_000_000);
const VALUE: [u8; 100] = [b'v'; 100];

fn store() -> Arc<Store> {
    let config = Config { memory_bytes: 64 << 20, buckets_initial: 1 << 12, ..Config::default() };
    Store::new(config).expect("memory for a store")
}

fn touched(work: impl FnOnce()) -> Touched {
    lines::take();
    work();
    lines::take()
}

fn set(store: &Store, hand: &Hand, key: &str) {
    let (key, hand) = (key.as_bytes(), Some(hand));
    let mut draft = store.draft_at_once(hand, key, 0, Moment::NEVER, VALUE.len()).expect("room");
    draft.write(&VALUE).expect("a slot of its own");
    store.enter(store.hash(key), key, NOW).keeping(hand).publish(draft, None);
}

fn get(store: &Arc<Store>, key: &str) {
    let (mut out, key) = (Vec::new(), key.as_bytes());
    let got = store.get(store.hash(key), key, NOW, &mut out, &mut |_, _| ());
    assert!(matches!(got, Got::Copied(_)) && out == VALUE);
}

/// Stored twice: from then on a store takes the slot that the one before has left.
fn settle(store: &Store, hand: &Hand, keys: &[String]) {
    keys.iter().chain(keys).for_each(|key| set(store, hand, key));
}

fn keys(prefix: &str) -> Vec<String> {
    (0..40).map(|number| format!("{prefix}{number}")).collect()
}

#[test]
fn a_get_exchanges_nothing_and_writes_its_hit_mark_at_most() {
    let store = store();
    let hand = Hand::new(&store);
    let keys = keys("key");
    settle(&store, &hand, &keys);
    for key in &keys {
        let first = touched(|| get(&store, key));
        assert_eq!((first.exchanges, first.stored.len()), (0, 1), "{key}: its mark");
        (0..3).for_each(|_| get(&store, key));
        let again = touched(|| get(&store, key));
        assert_eq!((again.exchanges, again.stored.len()), (0, 0), "{key}: in the same second");
    }
}

#[test]
fn a_store_over_an_item_of_its_size_exchanges_its_bucket_and_a_count() {
    let store = store();
    let hand = Hand::new(&store);
    let keys = keys("key");
    settle(&store, &hand, &keys);
    for key in &keys {
        set(&store, &hand, key); // the slot in hand is its own now
        let again = touched(|| set(&store, &hand, key));
        assert_eq!(again.exchanges, 2, "{key}: enters the bucket, draws a CAS id");
        let record_lines = (16 + key.len() + VALUE.len()).div_ceil(64) + 1;
        assert!(again.stored.len() <= 3 + record_lines, "{key}: bucket, count, mark: {again:?}");
    }
}

#[test]
fn stores_and_look_ups_of_different_threads_share_no_written_line() {
    let store = store();
    let (one, other) = (Hand::new(&store), Hand::new(&store));
    // Keys of about one length, so that all items are of one class and lie beside each other.
    let (ours, between, theirs) = (keys("our"), keys("few"), keys("his"));
    settle(&store, &one, &ours);
    settle(&store, &Hand::new(&store), &between); // marks of 32 slots share a line
    settle(&store, &other, &theirs);
    let partition = |key: &str| store.hash(key.as_bytes()).partition();
    let mut counts = 0;
    for our in &ours {
        let stores = touched(|| set(&store, &one, our));
        for their in &theirs {
            let looks = touched(|| get(&store, their));
            let writes = touched(|| set(&store, &other, their));
            if partition(our) == partition(their) {
                counts += stores.shared_with(&writes).len();
                continue;
            }
            assert_eq!(stores.shared_with(&looks).len(), 0, "{our} stored, {their} looked at");
            assert_eq!(stores.shared_with(&writes).len(), 0, "{our} and {their} stored");
        }
    }
    assert!(counts > 0, "stores of one partition draw from one count");
}
