//! Workloads with a name: `--workload NAME`, where each comes from, and what of it was published.

use super::keys::KeySizes;
use super::sizes::{Sizes, Spread};
use super::twitter::cluster;
use super::{Pattern, WorkloadOptions};

/// Keys where the flags do not say.
const KEYS: u64 = 100_000;
/// Keys shorter than this hold no name of anything.
const KEY_BYTES_LEAST: u64 = 16;
/// Large values of a noisy neighbour: few, so that they fit into any server.
const KEYS_NOISY: u64 = 4;
/// The same where their sizes are spread.
const KEYS_NOISY_RANGE: u64 = 16;

/// Names, in the order of the help, which says what each is.
pub const NAMES: &str = "etc fb-usr fb-etc fb-app fb-var fb-sys ycsb-a ycsb-b ycsb-c ycsb-d ycsb-e \
     ycsb-f noisy-1mb noisy-8mb noisy-10mb noisy-1to10mb twitter-4 twitter-8 twitter-12 \
     twitter-13 twitter-18 twitter-52";

/// The workload called `name`; `twitter-N` works for every cluster of the table. The error lists
/// the names.
pub fn named(name: &str) -> Result<WorkloadOptions, String> {
    if let Some(pool) = name.strip_prefix("fb-").and_then(facebook) {
        return Ok(pool);
    }
    if let Some(letter) = name.strip_prefix("ycsb-").and_then(ycsb) {
        return Ok(letter);
    }
    if let Some(number) = name.strip_prefix("twitter-").and_then(|number| number.parse().ok()) {
        return cluster(number, KEYS);
    }
    match name {
        "etc" => Ok(WorkloadOptions::default()),
        "noisy-1mb" => Ok(noisy(1_000_000, 1_000_000, KEYS_NOISY, 200.0 / 4_200.0)),
        "noisy-8mb" => Ok(noisy(8_000_000, 8_000_000, KEYS_NOISY, 20.0 / 4_020.0)),
        "noisy-10mb" => Ok(noisy(10_000_000, 10_000_000, KEYS_NOISY, 20.0 / 4_020.0)),
        "noisy-1to10mb" => Ok(WorkloadOptions {
            get_share: 0.8,
            ..noisy(1_000_000, 10_000_000, KEYS_NOISY_RANGE, 40.0 / 10_000.0)
        }),
        _ => Err(format!("--workload {name}: there are {NAMES}")),
    }
}

/// What the workloads below share.
fn base(sizes: Sizes) -> WorkloadOptions {
    WorkloadOptions {
        keys: KEYS,
        keys_large: 0,
        large_percent: 0.0,
        sizes,
        ..WorkloadOptions::default()
    }
}

/// The pools of Facebook's memcached as Hippos gives them: shares of requests, and the 99th
/// percentile of sizes. ETC's shares sum to 99.7 % and are scaled to 1; VAR and SYS have no DELETE.
/// Popularity was not published: Zipf 0.99. A DELETE takes any key with the same chance, and a
/// deleted key stays away until a SET brings it back, so that GETs of `fb-etc` miss more and more.
fn facebook(pool: &str) -> Option<WorkloadOptions> {
    let (get, set, delete, key, value) = match pool {
        "usr" => (99.7, 0.2, 0.1, None, None),
        "etc" => (73.4, 2.3, 24.0, Some(45), Some(450)),
        "app" => (83.4, 5.2, 11.4, Some(80), Some(512)),
        "var" => (18.0, 82.0, 0.0, Some(30), Some(200)),
        "sys" => (67.5, 32.5, 0.0, Some(45), Some(640)),
        _ => return None,
    };
    let all = get + set + delete;
    let sizes = match value {
        None => Sizes::Fixed { value_bytes: 2 },
        Some(p99) => Sizes::Spread(Spread::with_p99(1, p99)),
    };
    let key_sizes = match key {
        None => KeySizes::Two { short: 16, long: 22 },
        Some(p99) => KeySizes::Spread(Spread::with_p99(KEY_BYTES_LEAST, p99)),
    };
    let (get_share, delete_share) = (get / all, delete / all);
    Some(WorkloadOptions { get_share, delete_share, key_sizes, ..base(sizes) })
}

/// YCSB's core workloads (Cooper et al., 2010), a record of ten fields of 100 B being one value.
fn ycsb(letter: &str) -> Option<WorkloadOptions> {
    let (get_share, pattern, keys_per_get) = match letter {
        "a" => (0.5, Pattern::Popular, 1),
        "b" => (0.95, Pattern::Popular, 1),
        "c" => (1.0, Pattern::Popular, 1),
        "d" => (0.95, Pattern::Latest, 1),
        "e" => (0.95, Pattern::Scan, 100),
        "f" => (0.5, Pattern::ReadModifyWrite, 1),
        _ => return None,
    };
    let key_sizes = KeySizes::Fixed { key_bytes: 23 };
    let sizes = Sizes::Fixed { value_bytes: 1_000 };
    Some(WorkloadOptions { get_share, pattern, keys_per_get, key_sizes, ..base(sizes) })
}

/// A noisy neighbour: small GETs, and now and then one of a few very large values.
fn noisy(
    large_bytes_min: u64,
    large_bytes_max: u64,
    keys_large: u64,
    large_share: f64,
) -> WorkloadOptions {
    WorkloadOptions {
        keys: KEYS + keys_large,
        keys_large,
        large_percent: 100.0 * large_share,
        get_share: 1.0,
        ..base(Sizes::Pair { small_bytes: 100, large_bytes_min, large_bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::workload::{Ask, Class, Draws, Key, Operation, Workload};

    const DRAWS: usize = 200_000;

    fn drawn(name: &str) -> (Workload, Vec<Ask>) {
        let workload = Workload::new(named(name).expect(name)).expect(name);
        let (mut random, mut draws) = (Random::new(5), Draws::default());
        let asks = (0..DRAWS).map(|_| workload.draw(&mut random, &mut draws)).collect();
        (workload, asks)
    }

    fn share(asks: &[Ask], of: impl Fn(&Ask) -> bool) -> f64 {
        asks.iter().filter(|ask| of(ask)).count() as f64 / asks.len() as f64
    }

    /// Five standard deviations of a share of [`DRAWS`].
    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= 5.0 * (wanted * (1.0 - wanted) / DRAWS as f64).sqrt() + 1e-9
    }

    #[test]
    fn the_pools_have_their_published_shares_and_percentiles() {
        for (name, shares, key_p99, value_p99) in [
            ("fb-usr", [0.997, 0.002, 0.001], 22, 2),
            ("fb-etc", [73.4 / 99.7, 2.3 / 99.7, 24.0 / 99.7], 45, 450),
            ("fb-app", [0.834, 0.052, 0.114], 80, 512),
            ("fb-var", [0.18, 0.82, 0.0], 30, 200),
            ("fb-sys", [0.675, 0.325, 0.0], 45, 640),
        ] {
            let (workload, asks) = drawn(name);
            for (operation, wanted) in
                [Operation::Get, Operation::Set, Operation::Delete].into_iter().zip(shares)
            {
                let found = share(&asks, |ask| ask.operation == operation);
                assert!(near(found, wanted), "{name} {operation:?}: {found}, not {wanted}");
            }
            let over_p99 = |bytes: &dyn Fn(Key) -> u64, p99: u64| {
                let over = (0..KEYS as u32).filter(|&key| bytes(Key(key)) > p99);
                over.count() as f64 / KEYS as f64
            };
            let key = over_p99(&|key| workload.key_name(key).len() as u64, key_p99);
            let value = over_p99(&|key| workload.value_bytes(key), value_p99);
            for (what, over) in [("keys", key), ("values", value)] {
                // 1 % and five standard deviations; USR's are the largest there are.
                let wanted =
                    if name == "fb-usr" { over == 0.0 } else { (over - 0.01).abs() < 0.0016 };
                assert!(wanted, "{name}: {over} of the {what} are longer");
            }
        }
    }

    #[test]
    fn ycsb_mixes_and_orders_as_it_says() {
        for (name, get) in [("ycsb-a", 0.5), ("ycsb-b", 0.95), ("ycsb-c", 1.0)] {
            let (workload, asks) = drawn(name);
            assert!(near(share(&asks, |ask| ask.operation == Operation::Get), get), "{name}");
            assert_eq!(workload.value_bytes(asks[0].key), 1_000);
            assert_eq!(workload.key_name(asks[0].key).len(), 23);
        }
        // F: two of three requests read, and every write is of the key read just before.
        let (_, asks) = drawn("ycsb-f");
        assert!(near(share(&asks, |ask| ask.operation == Operation::Set), 1.0 / 3.0));
        for pair in asks.windows(2).filter(|pair| pair[1].operation == Operation::Set) {
            assert_eq!((pair[0].operation, pair[0].key), (Operation::Get, pair[1].key));
        }
    }

    #[test]
    fn ycsb_d_reads_what_was_written_last() {
        let (_, asks) = drawn("ycsb-d");
        let mut newest = KEYS as u32 - 1;
        let (mut reads, mut of_newest) = (0, 0);
        for ask in &asks {
            if ask.operation == Operation::Set {
                newest += 1;
                assert_eq!(ask.key.0, newest, "each write is of the next new key");
            } else {
                assert!(ask.key.0 <= newest);
                reads += 1;
                of_newest += usize::from(ask.key.0 == newest);
            }
        }
        // Zipf 0.99 over 100 000 keys: the most popular one has 8 %.
        let hottest = of_newest as f64 / reads as f64;
        assert!((0.07..0.09).contains(&hottest), "{hottest}");
    }

    #[test]
    fn ycsb_e_scans_consecutive_keys() {
        let (workload, asks) = drawn("ycsb-e");
        let scans: Vec<&Ask> = asks.iter().filter(|ask| ask.operation == Operation::Get).collect();
        let mean = scans.iter().map(|ask| f64::from(ask.keys)).sum::<f64>() / scans.len() as f64;
        assert!((mean - 50.5).abs() < 0.4, "{mean}");
        for ask in scans.iter().take(1_000) {
            let keys: Vec<u32> = workload.keys_of(ask.key, ask.keys, 7).map(|key| key.0).collect();
            assert!(keys.windows(2).all(|pair| pair[1] == pair[0] + 1), "{keys:?}");
            assert!(keys.iter().all(|&key| u64::from(key) < KEYS), "{keys:?}");
        }
    }

    #[test]
    fn noisy_neighbours_are_as_many_and_as_large_as_said() {
        for (name, share_large, least_mb, most_mb, sets) in [
            ("noisy-1mb", 200.0 / 4_200.0, 1, 1, 0.0),
            ("noisy-8mb", 20.0 / 4_020.0, 8, 8, 0.0),
            ("noisy-1to10mb", 0.004, 1, 10, 0.2),
        ] {
            let (workload, asks) = drawn(name);
            let large = |ask: &Ask| workload.class(ask.key) == Class::Large;
            assert!(near(share(&asks, large), share_large), "{name}");
            assert!(near(share(&asks, |ask| ask.operation == Operation::Set), sets), "{name}");
            for ask in &asks {
                let wanted = match large(ask) {
                    true => least_mb * 1_000_000..=most_mb * 1_000_000,
                    false => 100..=100,
                };
                assert!(wanted.contains(&workload.value_bytes(ask.key)), "{name}");
            }
        }
    }

    #[test]
    fn keys_of_a_multiget_are_popular_ones_that_the_version_decides() {
        let options = WorkloadOptions { keys_per_get: 50, ..named("ycsb-c").expect("there") };
        let workload = Workload::new(options).expect("good");
        let keys = |version| -> Vec<Key> { workload.keys_of(Key(9), 50, version).collect() };
        assert_eq!((keys(1).len(), keys(1)[0].0), (50, 9));
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
        let hottest = (0..2_000).flat_map(|version| keys(version).into_iter().skip(1));
        let hottest = hottest.filter(|key| key.0 == 0).count() as f64 / (2_000.0 * 49.0);
        assert!((0.075..0.089).contains(&hottest), "{hottest}");
    }
}
