//! To whom a key belongs: the function's vectors, which other languages are held to, and how
//! evenly it spreads the keys that people have.

use laneway_policy::owner::{self, DOMAINS_MAX, HASH_NAME, SEED};
use laneway_policy::{OwnerHash, Placement, WorkerId};
use proptest::prelude::*;

#[test]
fn the_vectors_of_owner_1() {
    assert_eq!(HASH_NAME, "owner-1", "another function needs another name");
    let bytes: Vec<u8> = (0..250).map(|i: u8| i.wrapping_mul(73)).collect();
    let rows: [(u64, &[u8], u64, u16, u16); 8] = [
        (0, b"", 0x0000_0000_0000_0000, 0, 0),
        (SEED, b"", 0x21c0_1b6e_9bec_1d4d, 0, 0),
        (SEED, b"a", 0xeeab_1076_00f7_bad7, 1, 6),
        (SEED, b"key:0001", 0x8a26_a8c3_31bc_a35d, 1, 3),
        (SEED, b"key:00012", 0x712e_6111_459e_0edd, 0, 3),
        (1, b"user:session:4f2a", 0x37c2_aef4_9948_bacb, 0, 1),
        (u64::MAX, &bytes[..16], 0x00a4_6926_1638_15e6, 0, 0),
        (0x0123_4567_89ab_cdef, &bytes, 0x4c93_0169_0379_18fe, 0, 2),
    ];
    for (seed, key, expected, of_2, of_7) in rows {
        let hash = owner::hash(seed, key);
        assert_eq!(hash.0, expected, "seed {seed:#x}, key {key:?}: {:#018x}", hash.0);
        assert_eq!((hash.queue(2).0, hash.queue(7).0), (of_2, of_7), "{key:?}");
    }
}

#[test]
fn the_keys_that_people_have_spread_evenly() {
    type KeyOf = fn(u64) -> Vec<u8>;
    let kinds: [(&str, KeyOf); 6] = [
        ("numbers", |i| i.to_string().into_bytes()),
        ("padded numbers", |i| format!("{i:016}").into_bytes()),
        ("a prefix", |i| format!("user:session:{i:x}").into_bytes()),
        ("a suffix", |i| format!("{i}:profile:v2:en_GB").into_bytes()),
        ("words", |i| i.to_le_bytes().to_vec()),
        ("high bytes", |i| i.to_be_bytes().to_vec()),
    ];
    for (kind, key) in kinds {
        for queues in [2, 3, 8, 28] {
            let keys = 2000 * u64::from(queues);
            let mut counts = vec![0_u64; usize::from(queues)];
            for i in 0..keys {
                counts[owner::hash(SEED, &key(i)).queue(queues).index()] += 1;
            }
            // Fair draws stay within 2000 ± 5 standard deviations (45 each) nearly always.
            let within = counts.iter().all(|&count| count.abs_diff(2000) < 225);
            assert!(within, "{kind} over {queues} queues: {counts:?}");
        }
    }
}

#[test]
fn every_bit_of_a_key_moves_half_of_the_high_bits() {
    for length in [1, 7, 8, 9, 16, 40] {
        let key: Vec<u8> = (0..length).map(|i| b'a' + i % 26).collect();
        let before = owner::hash(SEED, &key).0;
        let mut flipped = 0;
        let bits = key.len() * 8;
        for bit in 0..bits {
            let mut other = key.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            flipped += ((owner::hash(SEED, &other).0 ^ before) >> 48).count_ones();
        }
        let mean = f64::from(flipped) / bits as f64;
        assert!((6.0..10.0).contains(&mean), "{length} bytes: {mean} of 16 bits on average");
    }
}

#[test]
fn zeros_and_lengths_are_told_apart() {
    let hashes: Vec<u64> = (0..=16).map(|length| owner::hash(0, &vec![0; length]).0).collect();
    for (i, hash) in hashes.iter().enumerate() {
        assert!(!hashes[..i].contains(hash), "{i} zeros");
    }
}

#[test]
fn a_placement_needs_queues_for_every_domain() {
    for (queues, domains, fits) in [
        (0, 1, false),
        (1, 0, false),
        (1, 1, true),
        (1, 2, false),
        (2, 2, true),
        (100, DOMAINS_MAX, true),
        (100, DOMAINS_MAX + 1, false),
    ] {
        assert_eq!(Placement::new(SEED, queues, domains).is_some(), fits, "{queues} {domains}");
    }
}

proptest! {
    #[test]
    fn an_owner_is_a_queue_of_the_keys_domain(
        hash: u64, draw: u64, queues in 1_u16..1025, domains in 1..=DOMAINS_MAX,
    ) {
        let hash = OwnerHash(hash);
        let Some(placement) = Placement::new(SEED, queues, domains) else {
            prop_assert!(queues < domains);
            return Ok(());
        };
        let domain = placement.domain(hash);
        prop_assert!(domain < domains);
        let (first, count) = placement.queues_of(domain);
        prop_assert!(0 < count);
        for worker in [placement.owner(hash), placement.any_of_domain(hash, draw)] {
            prop_assert!(first <= worker && worker.0 < first.0 + count);
        }
        if domains == 1 {
            prop_assert_eq!(placement.owner(hash), hash.queue(queues));
        }
    }

    #[test]
    fn domains_divide_the_queues_without_gap_or_overlap(
        queues in 1_u16..1025, domains in 1..=DOMAINS_MAX,
    ) {
        let Some(placement) = Placement::new(SEED, queues, domains) else { return Ok(()) };
        let mut next = 0;
        for domain in 0..domains {
            let (first, count) = placement.queues_of(domain);
            prop_assert_eq!(first, WorkerId(next));
            next += count;
        }
        prop_assert_eq!(next, queues);
    }
}
