use super::*;
use std::collections::HashSet;

fn etc(large_percent: f64, large_bytes_max: u64) -> Workload {
    Workload::new(WorkloadOptions {
        keys: 1_000_000,
        keys_large: 10_000,
        large_percent,
        sizes: Sizes::Etc { large_bytes_max },
        ..WorkloadOptions::default()
    })
    .expect("valid")
}

/// Share of the value bytes that large requests move, in percent.
fn bytes_large_percent(workload: &Workload) -> f64 {
    let mut random = Random::new(11);
    let (mut large, mut all) = (0, 0);
    for _ in 0..2_000_000 {
        let key = workload.draw(&mut random, &mut Draws::default()).key;
        let bytes = workload.value_bytes(key);
        all += bytes;
        if workload.class(key) == Class::Large {
            large += bytes;
        }
    }
    100.0 * large as f64 / all as f64
}

#[test]
fn bytes_of_large_requests_are_those_of_the_papers_table_1() {
    // p_L percent, s_L bytes, percent of the data (Minos, Table 1).
    for (large_percent, large_bytes_max, expected) in [
        (0.125, 250_000, 25.0),
        (0.125, 500_000, 40.0),
        (0.125, 1_000_000, 60.0),
        (0.0625, 500_000, 25.0),
        (0.25, 500_000, 60.0),
        (0.5, 500_000, 75.0),
        (0.75, 500_000, 80.0),
    ] {
        let found = bytes_large_percent(&etc(large_percent, large_bytes_max));
        // The paper rounds to 5 points; the sizes of the few hottest keys move the rest.
        assert!((found - expected).abs() <= 6.0, "{large_percent} {large_bytes_max}: {found}");
    }
}

#[test]
fn a_class_holds_its_share_of_keys_and_all_sizes_of_its_range_alike() {
    let workload = etc(0.125, 500_000);
    let (mut tiny, mut small) = ([0_u32; TINY_BYTES_MAX as usize + 1], 0);
    for key in (0..990_000).map(Key) {
        assert_eq!(workload.class(key), Class::Small);
        match workload.value_bytes(key) {
            bytes @ 1..=TINY_BYTES_MAX => tiny[bytes as usize] += 1,
            14..=SMALL_BYTES_MAX => small += 1,
            other => panic!("key {key:?} has {other} bytes"),
        }
    }
    let all_tiny = tiny.iter().sum::<u32>();
    let share = f64::from(all_tiny) / f64::from(all_tiny + small);
    assert!((share - TINY_SHARE).abs() < 0.005, "{share}");
    let mean = f64::from(all_tiny) / TINY_BYTES_MAX as f64;
    assert!(tiny[1..].iter().all(|&count| (f64::from(count) - mean).abs() < 6.0 * mean.sqrt()));
    for key in (990_000..1_000_000).map(Key) {
        assert_eq!(workload.class(key), Class::Large);
        assert!((LARGE_BYTES_MIN..=500_000).contains(&workload.value_bytes(key)));
    }
}

#[test]
fn another_first_key_shares_no_name() {
    let names = |first_key| -> HashSet<Vec<u8>> {
        let options = WorkloadOptions { first_key, ..WorkloadOptions::default() };
        let workload = Workload::new(options).expect("valid");
        (0..100_000).map(|key| workload.key_name(Key(key)).to_vec()).collect()
    };
    let (one, other) = (names(0), names(100_000));
    assert_eq!((one.len(), other.len()), (100_000, 100_000));
    assert!(one.is_disjoint(&other));
    assert!(one.iter().flatten().all(u8::is_ascii_alphanumeric));
}

#[test]
fn what_is_filled_is_told_apart_from_what_is_asked() {
    let base = WorkloadOptions::default();
    let asked = WorkloadOptions { get_share: 0.5, large_percent: 0.75, ..base.clone() };
    assert_eq!(asked.data(), base.data());
    for other in [
        WorkloadOptions { first_key: 1, ..base.clone() },
        WorkloadOptions { keys: 7_000, ..base.clone() },
        WorkloadOptions { seed: 2, ..base.clone() },
    ] {
        assert_ne!(other.data(), base.data());
    }
}

#[test]
fn fixed_sizes_have_one_class() {
    for (value_bytes, class) in [(100, Class::Small), (1_500, Class::Large), (0, Class::Small)] {
        let sizes = Sizes::Fixed { value_bytes };
        let options = WorkloadOptions { sizes, ..WorkloadOptions::default() };
        let workload = Workload::new(options).expect("valid");
        let ask = workload.draw(&mut Random::new(1), &mut Draws::default());
        assert_eq!(workload.value_bytes(ask.key), value_bytes);
        assert_eq!(workload.class(ask.key), class);
    }
}
