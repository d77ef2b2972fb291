use super::*;
use crate::media::disk::sim::Random;
use std::collections::BTreeMap;

const META: ItemMeta =
    ItemMeta { flags: 7, expires_at_seconds: 9, marks: 0x8001, cas: u64::MAX - 1 };

fn pointer(extents: u32, bytes: u64) -> Pointer {
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64) as u32;
    let each = |n: u32| Extent {
        start: 1000 * n + 5,
        blocks: if n == 0 { blocks - (extents - 1) } else { 1 },
    };
    let crcs = (0..bytes.div_ceil(PIECE_BYTES as u64)).map(|n| n as u32 ^ 0xdead_beef);
    let extents = (0..extents).map(each).collect();
    Pointer { bytes, extents, crcs: crcs.collect(), original_bytes: 0 }
}

fn compressed(extents: u32, bytes: u64) -> Pointer {
    Pointer { original_bytes: bytes as u32 + 1, ..pointer(extents, bytes) }
}

/// Entries of every kind.
fn entries() -> Vec<Entry> {
    let whats = [
        What::Small { value_bytes: u32::MAX },
        What::Large(Arc::new(pointer(1, 4097).into())),
        What::Large(Arc::new(Large::known(pointer(1, PIECE_BYTES as u64), META))),
        What::Large(Arc::new(pointer(3, 5 * BLOCK_BYTES as u64).into())),
        What::Large(Arc::new(Large::known(pointer(2, VALUE_BYTES_MAX as u64), META))),
        What::Large(Arc::new(Pointer::default().into())),
        What::Large(Arc::new(pointer(EXTENTS_MAX as u32, 2 << 20).into())),
        What::Large(Arc::new(compressed(1, 5000).into())),
        What::Large(Arc::new(Large::known(compressed(2, 9000), META))),
        What::Tombstone,
        What::Lost,
    ];
    let homes = [Home::log(0), Home::log(AT_MAX), Home::ssd(0), Home::ssd(AT_MAX)];
    let entry = |(what, home): (&What, Home)| {
        let (record_bytes, expires_at_seconds) = (u32::MAX - 1, META.expires_at_seconds);
        let sequence = u64::MAX - 3;
        Entry { sequence, home, record_bytes, expires_at_seconds, what: what.clone() }
    };
    whats.iter().flat_map(|what| homes.map(|home| entry((what, home)))).collect()
}

fn check(leaf: &Leaf, expected: &BTreeMap<Vec<u8>, Entry>) {
    assert_eq!(leaf.len(), expected.len());
    for (index, (key, entry)) in expected.iter().enumerate() {
        assert_eq!(leaf.find(key), Ok(index));
        assert_eq!((leaf.key(index), &leaf.entry(index)), (&key[..], entry));
        assert_eq!(leaf.sequence(index), entry.sequence);
        assert_eq!((leaf.home(index), leaf.is_item(index)), (entry.home, entry.is_item()));
        if let (What::Large(now), What::Large(then)) = (&leaf.entry(index).what, &entry.what) {
            assert_eq!(now.meta(), then.meta());
        }
    }
}

#[test]
fn what_is_packed_reads_back_as_it_was_whatever_comes_and_goes() {
    let (mut random, kinds) = (Random::new(3), entries());
    let (mut leaf, mut model) = (Leaf::default(), BTreeMap::new());
    for _ in 0..20_000 {
        let length = 1 + random.below(40) as usize;
        let key = vec![b'a' + random.below(5) as u8; length];
        let entry = &kinds[random.below(kinds.len() as u64) as usize];
        let (found, packed) = (leaf.find(&key), Packed::of(entry));
        match (found, random.below(3)) {
            (Ok(index), 0) => {
                leaf.remove(index);
                model.remove(&key);
            }
            (found, _) if !leaf.has_room(found, &key, &packed) => {
                // The upper half goes, and comes back to what stays, or does not.
                let upper = leaf.split_off(leaf.len() / 2);
                match leaf.is_to_have(&upper) {
                    true => leaf.join(upper),
                    false => drop(model.split_off(upper.key(0))),
                }
            }
            (Ok(index), _) => {
                leaf.replace(index, &packed);
                model.insert(key, entry.clone());
            }
            (Err(index), _) => {
                leaf.insert(index, &key, &packed);
                model.insert(key, entry.clone());
            }
        }
        let left = leaf.bytes.capacity() - leaf.bytes.len();
        assert!(left <= LEFT_BYTES_MAX, "{left} bytes are left over");
    }
    check(&leaf, &model);
    let taken = leaf.take();
    check(&taken, &model);
    assert_eq!((leaf.len(), taken.bytes.capacity()), (0, taken.bytes.len()));
}

#[test]
fn leaves_that_are_joined_are_as_they_were_before_they_were_split() {
    let (mut leaf, mut model) = (Leaf::default(), BTreeMap::new());
    for (number, entry) in entries().into_iter().take(20).enumerate() {
        let key = format!("key-{number:02}").into_bytes();
        leaf.insert(number, &key, &Packed::of(&entry));
        model.insert(key, entry);
    }
    leaf.hit(15);
    let upper = leaf.split_off(7);
    assert_eq!((leaf.len(), upper.len(), upper.weight(8)), (7, 13, 1));
    assert!(leaf.is_to_have(&upper));
    leaf.join(upper);
    check(&leaf, &model);
    assert_eq!(leaf.weight(15), 1);
}

#[test]
fn hits_and_marks_do_not_disturb_each_other() {
    let mut leaf = Leaf::default();
    leaf.insert(0, b"a", &Packed::of(&Entry::unreadable()));
    assert!(!leaf.take_mark(0) && leaf.weight(0) == 0);
    (0..300).for_each(|_| leaf.hit(0));
    assert_eq!((leaf.cool(0), leaf.weight(0)), (WEIGHT_MAX, WEIGHT_MAX / 2));
    assert!(leaf.take_mark(0) && !leaf.take_mark(0));
    assert_eq!(leaf.weight(0), WEIGHT_MAX / 2);
}

#[test]
fn an_allocation_takes_what_the_allocator_makes_of_it() {
    let cases = [(0, 0), (1, 32), (24, 32), (25, 48), (504, 512), (505, 528)];
    cases.iter().for_each(|&(asked, takes)| assert_eq!(allocated(asked), takes, "{asked}"));
}
