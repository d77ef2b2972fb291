//! The boundary between the two ways of a value: whatever it was when something was written, that
//! is read, moved, backed up and checked; and where it moves by itself, it does so by what media
//! take.

use crate::common::{self, Kind, Machine, PM_BYTES, settings, value};
use crate::timed::timed_disk::OPTANE_SSD;
use crate::timed::{Log, Timed};
use laneway_tier::backup::{Bounds, Step};
use laneway_tier::disk::sim::Faults;
use laneway_tier::dump::load;
use laneway_tier::{IndexKind, ItemMeta, Settings, Tier, fsck};

const KEYS: u64 = 60;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn machine(kind: Kind) -> Machine {
    let pm_bytes = if kind.is_fair() { 6 * PM_BYTES } else { PM_BYTES };
    Machine::of(kind, &Faults::default(), u64::MAX, vec![0; pm_bytes], vec![0; 8 << 20])
}

/// From a few bytes to more than a block; the longest that the log of this machine takes is longer.
fn item(number: u64, version: u64) -> Vec<u8> {
    value(version, [90, 700, 1500, 5000][(number % 4) as usize])
}

fn check(tier: &Tier, versions: &[u64], when: &str) {
    for (number, &version) in (0..).zip(versions) {
        let found = tier.get(&key(number)).unwrap().map(|item| item.value);
        let wanted = (0 < version).then(|| item(number, version));
        assert!(found == wanted, "{when}: item {number} of version {version}");
    }
}

#[test]
fn what_was_written_by_any_boundary_is_kept_by_any_other() {
    for kind in [Kind::Pm, Kind::PmFair, Kind::Wal] {
        let index = kind.is_fair().then_some(IndexKind::Fair);
        let mut machine = machine(kind);
        let mut versions = vec![0; KEYS as usize];
        let mut version = 0;
        for (life, split_bytes) in [1024, 0, usize::MAX, 256, 4096, 0].into_iter().enumerate() {
            let settings = Settings { split_bytes, index, ..settings() };
            let (tier, report) = machine.open(settings).unwrap();
            assert!(report.problems.is_empty(), "{kind:?}, {split_bytes}: {report:?}");
            check(&tier, &versions, "after a loss of power");
            // Others each time, so that each way is left behind by some.
            for number in (0..KEYS).filter(|number| !(number + life as u64).is_multiple_of(3)) {
                version += 1;
                tier.put(&key(number), &item(number, version), ItemMeta::default()).unwrap();
                versions[number as usize] = version;
                let wanted = split_bytes <= item(number, version).len();
                let is_large = tier.open_large(&key(number)).unwrap().is_some();
                assert_eq!(is_large, wanted, "{number} with {split_bytes}");
            }
            check(&tier, &versions, "written");
            tier.migrate().unwrap();
            check(&tier, &versions, "migrated");
            if life % 2 == 1 {
                tier.checkpoint().unwrap();
                tier.compact(&mut |_, _| {}).unwrap();
                check(&tier, &versions, "compacted");
            }
            let mut stream = Vec::new();
            let mut backup = tier.backup(Bounds::NONE).unwrap();
            while backup.step(&mut stream).unwrap() == Step::More {}
            drop(backup);
            let other = self::machine(Kind::Wal);
            let (restored, _) =
                other.open(Settings { split_bytes: 700, ..common::settings() }).unwrap();
            load(&restored, &stream[..]).unwrap();
            check(&restored, &versions, "restored");
            drop(tier);
            machine = machine.crashed(life as u64, &Faults::default(), u64::MAX);
            let found = fsck::check(machine.media(), settings).unwrap();
            assert!(found.is_sound(), "{kind:?}, {split_bytes}: {found:?}");
        }
    }
}

/// The paper's media, on which 6 000 bytes take less by way of the log, as long as migration writes
/// many items at once.
fn optane(split_adapts: bool) -> Timed {
    let settings = Settings {
        split_adapts,
        segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 40,
        background: false,
        ..Settings::default()
    };
    Timed::open(Log::Memory, OPTANE_SSD, (4 << 20, 32 << 20), settings)
}

fn put(machine: &Timed, bytes: usize, times: u64) {
    for nth in 0..times {
        let key = format!("key-{}", nth % 200);
        machine.tier.put(key.as_bytes(), &vec![7; bytes], ItemMeta::default()).unwrap();
        if nth % 8 == 0 {
            machine.maintain();
        }
    }
}

#[test]
fn a_boundary_that_adapts_moves_by_what_the_media_take_and_one_that_is_set_stays() {
    let (fixed, adapts) = (optane(false), optane(true));
    for machine in [&fixed, &adapts] {
        assert_eq!(machine.tier.usage().split_bytes, 4096);
        put(machine, 6000, 2000);
    }
    let usage = fixed.tier.usage();
    assert_eq!((usage.split_bytes, usage.split_moves), (4096, 0));
    assert!(!fixed.tier.stats().split_adapts && adapts.tier.stats().split_adapts);
    let usage = adapts.tier.usage();
    assert!(8192 <= usage.split_bytes && 0 < usage.split_moves, "{usage:?}");
    assert!(!adapts.tier.is_large(9, 6000) && fixed.tier.is_large(9, 6000));
    assert!(adapts.time.now() < fixed.time.now());
}

/// More values at a time than wait in memory: some of each group are written by themselves.
#[test]
fn a_boundary_that_adapts_learns_from_groups_that_not_all_values_found_room_to_wait_for() {
    let settings = Settings {
        split_adapts: true,
        checkpoint_bytes: 1 << 40,
        background: false,
        ..Settings::default()
    };
    let machine = Timed::open(Log::Memory, OPTANE_SSD, (32 << 20, 64 << 20), settings);
    let value = vec![7_u8; 6000];
    for _ in 0..26 {
        for nth in 0..1100 {
            let key = format!("key-{}", nth % 200);
            machine.tier.submit_put(key.as_bytes(), &value, ItemMeta::default(), None).unwrap();
        }
        machine.tier.commit().unwrap();
    }
    assert_eq!(machine.tier.stats().waiting_bytes_most, 8 << 20);
    let usage = machine.tier.usage();
    assert!(8192 <= usage.split_bytes && 0 < usage.split_moves, "{usage:?}");
}
