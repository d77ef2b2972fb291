use super::*;
use crate::index::leaf::ENTRIES_MAX;
use crate::media::disk::sim::Random;
use crate::ssd::pointer::{Extent, Pointer};
use smallvec::smallvec;

fn entry(sequence: u64) -> Entry {
    let what = What::Small { value_bytes: sequence as u32 };
    Entry { sequence, home: Home::log(0), record_bytes: 0, expires_at_seconds: 0, what }
}

fn large(number: u32) -> Pointer {
    let extents = smallvec![Extent { start: number, blocks: 2 }];
    Pointer { bytes: 5000, extents, crcs: smallvec![number], original_bytes: 0 }
}

fn with(what: Large, sequence: u64) -> Entry {
    Entry { what: What::Large(Arc::new(what)), ..entry(sequence) }
}

fn all(index: &BTree) -> Vec<(Vec<u8>, u64)> {
    let mut found = Vec::new();
    index.walk(|key, entry| found.push((key.to_vec(), entry.sequence)));
    found
}

/// What it takes, counted anew.
fn recounted(index: &BTree) -> u64 {
    let of = |(first, leaf): (&Key, &Locked)| place_bytes(first) + shared(leaf).allocated_bytes();
    index.read().iter().map(of).sum::<usize>() as u64
}

#[test]
fn an_index_that_is_built_is_the_one_that_is_published() {
    for count in [0, 1, 2, ENTRIES_MAX - 1, ENTRIES_MAX, ENTRIES_MAX + 1, 1000] {
        let (mut builder, published) = (Builder::default(), BTree::default());
        let count = count as u64;
        for number in 0..count {
            let key = format!("key-{number:05}");
            builder.push(key.as_bytes(), &entry(number));
            published.publish(key.as_bytes(), entry(number), Tie::Keep);
        }
        let built = builder.finish();
        assert_eq!(all(&built), all(&published), "{count} entries");
        // Both ends and the middle take new ones.
        for key in ["a", "key-00064x", "z"] {
            let offered = built.publish(key.as_bytes(), entry(count), Tie::Keep);
            assert_eq!(offered, Published::Current(None));
            assert_eq!(built.get(key.as_bytes()), Some(entry(count)));
        }
        assert_eq!(built.bytes(), recounted(&built));
        assert_eq!(published.bytes(), recounted(&published));
    }
}

#[test]
fn offers_in_order_come_to_the_same_as_each_by_itself() {
    let mut random = Random::new(2);
    for (filled, count) in [(0, 1), (0, 1000), (300, 200), (1000, 3000), (3000, 50)] {
        let (at_once, by_itself) = (BTree::default(), BTree::default());
        for number in 0..filled {
            let key = random.below(5000).to_be_bytes();
            at_once.publish(&key, entry(number), Tie::Keep);
            by_itself.publish(&key, entry(number), Tie::Keep);
        }
        let mut offers: Vec<Offer> = (0..count)
            .map(|_| {
                let key = random.below(5000).to_be_bytes();
                let tie = [Tie::Keep, Tie::Replace][random.below(2) as usize];
                (key[..].into(), entry(random.below(2 * filled + 10)), tie)
            })
            .collect();
        offers.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut done = Vec::new();
        at_once.publish_in_order(&offers, |published| done.push(published));
        let expected =
            offers.iter().map(|(key, entry, tie)| by_itself.publish(key, entry.clone(), *tie));
        assert_eq!(done, expected.collect::<Vec<_>>(), "{filled} and {count}");
        assert_eq!(all(&at_once), all(&by_itself), "{filled} and {count}");
        assert_eq!(at_once.bytes(), recounted(&at_once));
    }
}

#[test]
fn entries_out_of_order_find_their_places_too() {
    let (mut builder, published) = (Builder::default(), BTree::default());
    let mut random = Random::new(1);
    for number in 0..2000 {
        let key = random.below(500).to_be_bytes();
        builder.push(&key, &entry(number));
        published.publish(&key, entry(number), Tie::Keep);
    }
    assert_eq!(all(&builder.finish()), all(&published), "the newest of each");
}

/// Keys of so many bytes, in the order in which they come.
fn keys(key_bytes: usize, count: u64, in_order: bool) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        (0..count).map(|number| format!("{number:0key_bytes$}").into_bytes()).collect();
    let mut random = Random::new(count);
    for at in (1..if in_order { 0 } else { keys.len() }).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    keys
}

#[test]
fn an_item_takes_64_bytes_and_its_key_wherever_it_lies_and_however_keys_come_and_go() {
    const COUNT: u64 = 20_000;
    let kinds: [fn(u64) -> Entry; 2] =
        [entry, |number| with(Large::known(large(number as u32), ItemMeta::default()), number)];
    for (key_bytes, in_order) in [(6, false), (30, true), (30, false), (250, false)] {
        for of in kinds {
            let (index, keys) = (BTree::default(), keys(key_bytes, COUNT, in_order));
            let empty = index.bytes();
            let check = |items: u64| {
                assert_eq!(index.bytes(), recounted(&index));
                let each = (index.bytes() - empty).div_ceil(items);
                let most = (ITEM_BYTES_MAX + key_bytes) as u64;
                assert!(each <= most, "{each} a key of {key_bytes} bytes, of {items}");
            };
            for (number, key) in keys.iter().enumerate() {
                index.publish(key, of(number as u64), Tie::Keep);
                if number != 0 && number % 1999 == 0 {
                    check(number as u64 + 1);
                }
            }
            let whole = index.bytes();
            for (number, key) in keys.iter().enumerate() {
                index.remove(key, number as u64).unwrap();
                if number % 1999 == 0 && number + 1000 < COUNT as usize {
                    check(COUNT - 1 - number as u64);
                }
            }
            assert_eq!((index.bytes(), all(&index).len()), (empty, 0));
            let again = keys.iter().enumerate();
            again.for_each(|(n, key)| drop(index.publish(key, of(n as u64), Tie::Keep)));
            assert_eq!(index.bytes(), whole);
            assert_eq!(index.flush(COUNT).len() as u64, COUNT);
            assert_eq!((index.bytes(), all(&index).len()), (empty, 0));
        }
    }
}

#[test]
fn full_leaves_that_lose_half_are_joined_with_neighbours_of_which_little_is_left() {
    const FULL: usize = ENTRIES_MAX - 1; // as a split leaves it where keys come in order
    const KEY_BYTES: usize = 30;
    let (index, keys) = (BTree::default(), keys(KEY_BYTES, 40 * FULL as u64, true));
    let empty = index.bytes();
    for (number, key) in keys.iter().enumerate() {
        let what = Large::known(large(number as u32), ItemMeta::default());
        index.publish(key, with(what, number as u64), Tie::Keep);
    }
    // Of every other leaf one entry stays, of those between a little less than half.
    for (odd, stay) in [(1, 1), (0, ENTRIES_MAX / 2 - 3)] {
        for (number, key) in keys.iter().enumerate() {
            if number / FULL % 2 == odd && stay <= number % FULL {
                index.remove(key, number as u64).unwrap();
            }
        }
    }
    assert_eq!(index.bytes(), recounted(&index));
    let each = (index.bytes() - empty).div_ceil(all(&index).len() as u64);
    assert!(each <= (ITEM_BYTES_MAX + KEY_BYTES) as u64, "{each} for each");
}

#[test]
fn a_walk_meets_what_stays_once_while_leaves_are_split_and_joined() {
    let (index, keys) = (BTree::default(), keys(8, 4000, true));
    for (number, key) in keys.iter().enumerate() {
        index.publish(key, entry(number as u64), Tie::Keep);
    }
    let (mut from, mut met, mut random) = (Some(Box::default()), Vec::new(), Random::new(5));
    while let Some(begin) = from {
        from = index.look_through(&begin, |_, entry, _| met.push(entry.sequence));
        // All but every tenth goes at some time, and others come.
        for _ in 0..300 {
            let number = random.below(4000);
            let key = &keys[number as usize];
            if number % 10 != 0 {
                index.remove(key, number);
                index.publish(&[&key[..], b"+"].concat(), entry(10_000), Tie::Keep);
            }
        }
    }
    let stays: Vec<u64> = met.iter().copied().filter(|n| *n < 4000 && n % 10 == 0).collect();
    assert_eq!(stays, (0..4000).step_by(10).collect::<Vec<u64>>());
}

#[test]
fn what_is_kept_with_a_large_item_is_known_once_its_record_was_read() {
    let (index, meta) = (BTree::default(), ItemMeta { flags: 5, ..ItemMeta::default() });
    index.publish(b"key", with(large(7).into(), 3), Tie::Keep);
    let known = || match index.get(b"key").unwrap().what {
        What::Large(large) => large.meta(),
        _ => None,
    };
    index.know(b"key", 2, meta);
    assert_eq!(known(), None, "of another item");
    index.know(b"key", 3, meta);
    assert_eq!(known(), Some(meta));
    assert!(index.relocate(b"key", 3, Home::log(0), Home::ssd(4096)));
    assert_eq!((known(), index.get(b"key").unwrap().home), (Some(meta), Home::ssd(4096)));
    assert_eq!(index.bytes(), recounted(&index));
}

#[test]
fn a_value_that_waits_for_its_group_is_the_one_that_the_group_writes() {
    let index = BTree::default();
    let value = Large::waiting(large(7), vec![1; 5000].into());
    let offered = with(value, 1);
    let What::Large(value) = &offered.what else { unreachable!() };
    index.publish(b"key", offered.clone(), Tie::Keep);
    index.publish(b"other", with(large(9).into(), 2), Tie::Keep);
    let waits = |key: &[u8]| match index.get(key).unwrap().what {
        What::Large(large) => large.bytes_waiting().is_some(),
        _ => false,
    };
    assert!(waits(b"key") && !waits(b"other"));
    value.written();
    assert!(!waits(b"key"));
    index.written(value);
    assert_eq!(index.get(b"key"), Some(offered.clone()));
    assert!(index.waiting.values.read().unwrap().is_empty());
}
