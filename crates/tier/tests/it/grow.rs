//! A store grows into media that are larger than it, and a loss of power at any moment of that
//! leaves it as large as it was or as large as they are.

use crate::common::{Kind, Machine, PM_BYTES, SEGMENT_BYTES, SSD_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{
    Directory, DirectorySettings, Error, IndexKind, ItemMeta, Report, Settings, Sizes, Tier,
    WhenFull, fsck,
};
use std::path::PathBuf;

const KINDS: [Kind; 2] = [Kind::Pm, Kind::Wal];
const LARGER: Sizes = Sizes { log: 16 * SEGMENT_BYTES as u64, ssd: 2 * SSD_BYTES as u64 };
/// More segments than the block of a header lists: 16 bytes for each, behind 64.
const LONG: Sizes = Sizes { log: 300 * SEGMENT_BYTES as u64, ..LARGER };
/// A superblock, and where its number is in it.
const SUPERBLOCK_BYTES: usize = 65_536;
const NUMBER_AT: usize = 40;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn try_put(tier: &Tier, number: u64, bytes: usize) -> laneway_tier::Result<u64> {
    tier.put(&key(number), &value(number, bytes), ItemMeta::default())
}

fn put(tier: &Tier, number: u64, bytes: usize) {
    try_put(tier, number, bytes).unwrap();
}

fn hold(tier: &Tier, items: impl IntoIterator<Item = (u64, usize)>) {
    for (number, bytes) in items {
        let item = tier.get(&key(number)).unwrap();
        let item = item.unwrap_or_else(|| panic!("item {number} is gone"));
        assert!(item.value == value(number, bytes), "item {number} has other bytes");
    }
}

fn of(kind: Kind, fails_at: u64, (log, ssd): (Vec<u8>, Vec<u8>)) -> Machine {
    Machine::of(kind, &Faults::default(), fails_at, log, ssd)
}

/// What both media hold, and behind that `fill`, as a file or a device has it there.
fn longer(machine: &Machine, sizes: Sizes, fill: u8) -> (Vec<u8>, Vec<u8>) {
    let (mut log, mut ssd) = machine.images();
    log.resize(sizes.log as usize, fill);
    ssd.resize(sizes.ssd as usize, fill);
    (log, ssd)
}

/// Puts until the store is full; how many items it took.
fn fill(tier: &Tier, from: u64, bytes: usize) -> u64 {
    let refused =
        |number: &u64| try_put(tier, *number, bytes).and_then(|_| tier.maintain()).is_err();
    let number = (from..100_000).find(refused).expect("it is full some time");
    number - from
}

fn is_sound(machine: &Machine) {
    let found = fsck::check(machine.media(), settings()).unwrap();
    assert!(found.is_sound(), "{:?} {:?}", found.report, found.lost);
}

fn opened(machine: &Machine) -> (Tier, Report) {
    let (tier, report) = machine.open(settings()).unwrap();
    assert_eq!(report.problems, [""; 0]);
    (tier, report)
}

#[test]
fn a_full_store_goes_on_in_what_its_media_have_grown_by() {
    for kind in KINDS {
        // Through the log, and straight to the SSD; behind the end are zeros, or anything.
        for (bytes, behind) in [(200, 0), (5000, 0xa5)] {
            let machine = Machine::new(kind, &Faults::default());
            let (tier, report) = opened(&machine);
            let before = Sizes { log: PM_BYTES as u64, ssd: SSD_BYTES as u64 };
            assert_eq!((report.sizes, report.grown_from), (before, None));
            let count = fill(&tier, 0, bytes);
            drop(tier);
            let machine = of(kind, u64::MAX, longer(&machine, LARGER, behind));
            // A check writes nothing: for it the store is as large as it was.
            is_sound(&machine);
            let checked = fsck::check(machine.media(), settings()).unwrap();
            assert_eq!(checked.report.sizes, before);
            let (tier, report) = opened(&machine);
            assert_eq!((report.sizes, report.grown_from), (LARGER, Some(before)));
            let usage = tier.usage();
            assert_eq!((usage.log_bytes, usage.ssd_bytes), (LARGER.log, LARGER.ssd));
            hold(&tier, (0..count).map(|number| (number, bytes)));
            tier.checkpoint().unwrap();
            let more = fill(&tier, count, bytes);
            assert!(count / 2 < more, "{kind:?}: {more} more than {count}");
            drop(tier);
            let (tier, report) = opened(&machine);
            assert_eq!((report.sizes, report.grown_from), (LARGER, None));
            hold(&tier, (0..count + more).map(|number| (number, bytes)));
            drop(tier);
            is_sound(&machine);
        }
    }
}

/// A store with a checkpoint, records behind it, values, and what was migrated.
fn mixed(kind: Kind) -> (Machine, Vec<(u64, usize)>) {
    let machine = Machine::new(kind, &Faults::default());
    let (tier, _) = opened(&machine);
    let items: Vec<(u64, usize)> =
        (0..450).map(|number| (number, [100, 700, 3000][number as usize % 3])).collect();
    for (number, bytes) in &items {
        put(&tier, *number, *bytes);
        tier.maintain().unwrap();
        if [60, 120].contains(number) {
            tier.checkpoint().unwrap();
        }
    }
    assert!(0 < tier.stats().tables, "some were migrated");
    drop(tier);
    (machine, items)
}

/// Damages the newest superblock.
fn damage_newest(ssd: &mut [u8]) {
    let number = |slot: usize| {
        let at = slot * SUPERBLOCK_BYTES + NUMBER_AT;
        u64::from_le_bytes(ssd[at..at + 8].try_into().unwrap())
    };
    let newest = usize::from(number(0) < number(1));
    ssd[newest * SUPERBLOCK_BYTES + NUMBER_AT] ^= 0x40;
}

#[test]
fn a_loss_of_power_at_any_moment_of_growing_leaves_a_store_that_grows_and_loses_nothing() {
    // More than an SSD of before holds, in values that go straight there.
    const LARGE: std::ops::Range<u64> = 1000..1270;
    const SMALL: std::ops::Range<u64> = 2000..2020;
    let rows = KINDS.map(|kind| [(kind, LARGER), (kind, LONG)]);
    for (kind, larger) in rows.into_iter().flatten() {
        let (machine, items) = mixed(kind);
        let images = longer(&machine, larger, 0);
        let mut cuts = 0;
        for fails_at in 1.. {
            let machine = of(kind, fails_at, images.clone());
            if machine.open(settings()).is_ok() {
                break;
            }
            cuts += 1;
            for seed in 0..4 {
                let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
                is_sound(&crashed);
                let (tier, report) = opened(&crashed);
                assert_eq!(report.sizes, larger, "{kind:?}, event {fails_at}, seed {seed}");
                hold(&tier, items.iter().copied());
                if seed != 0 {
                    continue;
                }
                LARGE.for_each(|number| put(&tier, number, 5000));
                SMALL.for_each(|number| put(&tier, number, 900));
                drop(tier);
                // Whichever superblock is lost, the other one knows of what is new.
                let (log, mut ssd) = crashed.images();
                damage_newest(&mut ssd);
                let (tier, report) = of(kind, u64::MAX, (log, ssd)).open(settings()).unwrap();
                assert_eq!(report.sizes, larger);
                let told = &report.problems;
                assert!(told.len() == 1 && told[0].starts_with("superblock "), "{told:?}");
                hold(&tier, items.iter().copied());
                hold(&tier, LARGE.map(|number| (number, 5000)));
                hold(&tier, SMALL.map(|number| (number, 900)));
            }
        }
        assert!(4 <= cuts, "{kind:?}: two superblocks, each written and synced");
    }
}

#[test]
fn a_cache_evicts_no_more_once_it_has_grown_until_that_is_full_too() {
    let evicting = Settings { when_full: WhenFull::Evict, ..settings() };
    for kind in KINDS {
        let machine = Machine::sized(kind, &Faults::default(), SSD_BYTES / 2);
        let (tier, _) = machine.open(evicting).unwrap();
        let evicted = |tier: &Tier| {
            let stats = tier.stats();
            stats.evicted.small.items + stats.evicted.large.items
        };
        let mut number = 0;
        while evicted(&tier) == 0 {
            put(&tier, number, 5000);
            tier.maintain().unwrap();
            number += 1;
        }
        drop(tier);
        let machine = of(kind, u64::MAX, longer(&machine, LARGER, 0));
        let (tier, report) = machine.open(evicting).unwrap();
        assert_eq!((report.sizes, &report.problems[..]), (LARGER, &[][..]));
        let held = report.items;
        for number in number..number + 100 {
            put(&tier, number, 5000);
            tier.maintain().unwrap();
        }
        assert_eq!((evicted(&tier), tier.stats().items.items()), (0, held + 100), "{kind:?}");
        while evicted(&tier) == 0 {
            number += 1;
            put(&tier, 10_000 + number, 5000);
            tier.maintain().unwrap();
        }
    }
}

#[test]
fn a_log_grows_as_far_as_its_headers_list_and_before_an_index_the_ssd_alone_grows() {
    // 16 bytes for each segment, behind 64, in half of one.
    let most = u64::from(SEGMENT_BYTES) * 508;
    let (machine, items) = mixed(Kind::Pm);
    let huge = Sizes { log: 600 * u64::from(SEGMENT_BYTES), ..LARGER };
    let machine = of(Kind::Pm, u64::MAX, longer(&machine, huge, 0));
    for _ in 0..2 {
        let (tier, report) = opened(&machine);
        assert_eq!(report.sizes, Sizes { log: most, ..LARGER });
        hold(&tier, items.iter().copied());
        (5000..5400).for_each(|number| put(&tier, number, 900));
    }
    is_sound(&machine);
    let fair = Settings { index: Some(IndexKind::Fair), ..settings() };
    let machine = Machine::new(Kind::PmFair, &Faults::default());
    let (tier, before) = machine.open(fair).unwrap();
    (0..50).for_each(|number| put(&tier, number, 700));
    tier.close().unwrap();
    let huge = Sizes { log: 3 * before.sizes.log, ssd: 2 * before.sizes.ssd };
    let machine = of(Kind::PmFair, u64::MAX, longer(&machine, huge, 0));
    // More than the SSD of before holds, and then both ways to open an index.
    const MORE: std::ops::Range<u64> = 1000..1150;
    for round in 0..3 {
        let (tier, report) = machine.open(fair).unwrap();
        let sizes = Sizes { ssd: huge.ssd, ..before.sizes };
        let grown_from = (round == 0).then_some(before.sizes);
        assert_eq!((report.sizes, report.grown_from), (sizes, grown_from));
        assert_eq!(report.problems, [""; 0]);
        hold(&tier, (0..50).map(|number| (number, 700)));
        if round == 0 {
            for number in MORE {
                put(&tier, number, 20_000);
                tier.maintain().unwrap();
            }
        }
        hold(&tier, MORE.map(|number| (number, 20_000)));
        if round == 1 {
            tier.close().unwrap();
        }
    }
}

/// Nothing leaves the log by itself.
fn patient() -> Settings {
    Settings { migrate_percent: 100, checkpoint_bytes: u64::MAX, ..settings() }
}

/// Puts items of 900 bytes from this number on until no more than so many segments are free; the
/// number behind the last.
fn fill_log(tier: &Tier, mut number: u64, free_segments: u64) -> u64 {
    let free = |tier: &Tier| {
        let usage = tier.usage();
        (usage.log_bytes - usage.log_used_bytes) / u64::from(SEGMENT_BYTES)
    };
    while free_segments < free(tier) {
        put(tier, number, 900);
        number += 1;
    }
    number
}

#[test]
fn a_log_whose_headers_list_more_than_their_block_takes_is_read_and_grows_on() {
    const FIRST: u64 = 10_000;
    for kind in KINDS {
        let (mut machine, items) = mixed(kind);
        let mut number = FIRST;
        let hold_all = |tier: &Tier, number: u64| {
            hold(tier, items.iter().copied());
            hold(tier, (FIRST..number).map(|number| (number, 900)));
        };
        for segments in [252, 260, 300, 508] {
            let sizes = Sizes { log: segments * u64::from(SEGMENT_BYTES), ..LARGER };
            machine = of(kind, u64::MAX, longer(&machine, sizes, 0xa5));
            let (tier, report) = machine.open(patient()).unwrap();
            assert_eq!((report.sizes, &report.problems[..]), (sizes, &[][..]), "{kind:?}");
            hold_all(&tier, number);
            number = fill_log(&tier, number, 5);
            drop(tier);
            is_sound(&machine);
            // Programs from before are told so before they take any of it for something else.
            let (_, ssd) = machine.images();
            let versions = [0, SUPERBLOCK_BYTES].map(|at| ssd[at + 8]);
            assert_eq!(versions, [if segments <= 252 { 2 } else { 6 }; 2]);
        }
        let (tier, report) = machine.open(patient()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        hold_all(&tier, number);
        // And what is emptied is used again.
        (0..40).for_each(|_| assert!(tier.migrate().unwrap()));
        number = fill_log(&tier, number, 5);
        hold_all(&tier, number);
        drop(tier);
        is_sound(&machine);
    }
}

/// A list of two blocks at the end of the slot would cover records that were appended when it was
/// one at most.
#[test]
fn a_newest_header_that_rots_when_the_log_has_grown_again_is_rebuilt_beside_its_records() {
    const SLOT_BYTES: usize = 32 << 10;
    const GENERATION_AT: usize = 24;
    let settings = Settings { segment_bytes: SLOT_BYTES as u32, ..patient() };
    let sizes = |segments: usize| Sizes { log: (segments * SLOT_BYTES) as u64, ..LARGER };
    for kind in KINDS {
        let machine = of(kind, u64::MAX, (vec![0; 8 * SLOT_BYTES], vec![0; SSD_BYTES]));
        drop(machine.open(settings).unwrap());
        let machine = of(kind, u64::MAX, longer(&machine, sizes(300), 0));
        let (tier, _) = machine.open(settings).unwrap();
        let used = || tier.usage().log_used_bytes as usize / SLOT_BYTES;
        let mut number = 0;
        while used() < 290 {
            put(&tier, number, 900);
            number += 1;
        }
        // One is in the newest segment, and most of it is free.
        for _ in 0..22 {
            put(&tier, number, 900);
            number += 1;
        }
        assert_eq!(used(), 290);
        drop(tier);
        let machine = of(kind, u64::MAX, longer(&machine, sizes(520), 0));
        drop(machine.open(settings).unwrap());
        let (mut log, ssd) = machine.images();
        let generation = |slot: &usize| {
            let (number, _) = log[slot * SLOT_BYTES + GENERATION_AT..].split_first_chunk().unwrap();
            u64::from_le_bytes(*number)
        };
        let newest = (0..520).max_by_key(generation).unwrap();
        log[newest * SLOT_BYTES + GENERATION_AT + 8] ^= 1;
        let machine = of(kind, u64::MAX, (log, ssd));
        for problems in [1, 0] {
            let (tier, report) = machine.open(settings).unwrap();
            assert_eq!((report.sizes, report.problems.len()), (sizes(520), problems));
            hold(&tier, (0..number).map(|number| (number, 900)));
        }
    }
}

#[test]
fn a_loss_of_power_while_headers_list_more_than_their_block_takes_loses_nothing() {
    const FIRST: u64 = 10_000;
    for kind in KINDS {
        let (machine, _) = mixed(kind);
        let machine = of(kind, u64::MAX, longer(&machine, LONG, 0));
        let (tier, _) = machine.open(patient()).unwrap();
        let number = fill_log(&tier, FIRST, 10);
        drop(tier);
        let images = machine.images();
        let mut cuts = 0;
        for fails_at in (1..).step_by(7) {
            let machine = of(kind, fails_at, images.clone());
            let mut acknowledged = number;
            let mut is_cut = true;
            if let Ok((tier, _)) = machine.open(patient()) {
                // Three segments.
                let mut put =
                    |number| try_put(&tier, number, 900).map(|_| acknowledged = number + 1);
                is_cut = (number..number + 36).any(|number| put(number).is_err());
            }
            if !is_cut {
                break;
            }
            cuts += 1;
            let crashed = machine.crashed(fails_at, &Faults::default(), u64::MAX);
            let (tier, report) = crashed.open(patient()).unwrap();
            assert_eq!(report.problems, [""; 0], "{kind:?}, event {fails_at}");
            hold(&tier, (FIRST..acknowledged).step_by(11).map(|number| (number, 900)));
            hold(&tier, (number..acknowledged).map(|number| (number, 900)));
            put(&tier, 9000, 900);
        }
        assert!(8 < cuts, "{kind:?}: {cuts}");
    }
}

#[test]
fn an_ssd_from_before_the_store_grew_is_refused_beside_its_log() {
    let (machine, _) = mixed(Kind::Pm);
    let (_, old) = longer(&machine, LARGER, 0);
    let machine = of(Kind::Pm, u64::MAX, longer(&machine, LARGER, 0));
    let (tier, _) = opened(&machine);
    put(&tier, 1, 100);
    drop(tier);
    let (log, _) = machine.images();
    let mixed = of(Kind::Pm, u64::MAX, (log, old));
    let before = mixed.images();
    let refused = mixed.open(settings()).err();
    assert!(matches!(refused, Some(Error::Mismatch(_))), "{refused:?}");
    assert!(mixed.images() == before, "something was written");
}

/// A device is made larger by room that another copy of the log was in.
#[test]
fn what_is_left_of_another_copy_of_the_log_behind_its_end_is_refused_with_the_way_out() {
    for kind in KINDS {
        let (machine, items) = mixed(kind);
        let (mut log, ssd) = longer(&machine, LARGER, 0);
        let copied = LARGER.log as usize - PM_BYTES;
        log.copy_within(..copied, PM_BYTES);
        let before = of(kind, u64::MAX, (log.clone(), ssd.clone()));
        let told = before.open(settings()).err().expect("it is refused").to_string();
        assert!(told.contains("write zeros") && told.contains(&PM_BYTES.to_string()), "{told}");
        assert!(before.images() == (log.clone(), ssd.clone()), "something was written");
        log[PM_BYTES..].fill(0);
        let (tier, report) = opened(&of(kind, u64::MAX, (log, ssd)));
        assert_eq!(report.sizes, LARGER);
        hold(&tier, items);
    }
}

#[test]
fn a_store_whose_log_was_lost_grows_at_the_next_start() {
    let before = Sizes { log: PM_BYTES as u64, ssd: SSD_BYTES as u64 };
    for kind in KINDS {
        let (machine, _) = mixed(kind);
        let (_, ssd) = longer(&machine, LARGER, 0);
        let machine = of(kind, u64::MAX, (vec![0; LARGER.log as usize], ssd));
        let (tier, report) =
            machine.open(Settings { accept_lost_log: true, ..settings() }).unwrap();
        assert!(report.log_is_new);
        assert_eq!((report.sizes, report.grown_from), (before, None));
        put(&tier, 9000, 100);
        drop(tier);
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!((report.sizes, report.grown_from), (LARGER, Some(before)));
        hold(&tier, [(9000, 100)]);
    }
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("laneway-tier-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn files_grow_where_that_is_asked_for_and_there_is_room_and_never_shrink() {
    const MIB: u64 = 1 << 20;
    let path = scratch("grow");
    let mut how = DirectorySettings::new(&path);
    (how.pm_bytes, how.ssd_bytes) = (32 * MIB, 16 * MIB);
    let open = |how: &DirectorySettings| Directory::open(how, &mut |_, _| {});
    let lengths = || ["log", "ssd"].map(|name| path.join(name).metadata().unwrap().len() / MIB);
    let sizes = |report: &Report| [report.sizes.log / MIB, report.sizes.ssd / MIB];
    let (store, _) = open(&how).unwrap();
    store.put(b"k", b"v", ItemMeta::default()).unwrap();
    store.close().unwrap();
    let rows = [
        // Sizes that nobody asked for are those of a new store.
        ((256, false), (4096, false), [32, 16]),
        ((256, false), (20, true), [32, 20]),
        // In whole segments.
        ((41, true), (24, true), [40, 24]),
        ((36, true), (17, true), [40, 24]),
    ];
    for ((pm, pm_grows), (ssd, ssd_grows), now) in rows {
        (how.pm_bytes, how.ssd_bytes) = (pm * MIB, ssd * MIB);
        (how.pm_grows, how.ssd_grows) = (pm_grows, ssd_grows);
        let (store, report) = open(&how).unwrap();
        assert_eq!((lengths(), sizes(&report), &report.problems[..]), (now, now, &[][..]));
        assert_eq!(store.get(b"k").unwrap().unwrap().value, b"v");
        if now[0] == 32 {
            store.close().unwrap();
        }
    }
    // Where there is no room for one of them neither is longer.
    (how.pm_bytes, how.ssd_bytes) = (48 * MIB, 1 << 60);
    let refused = open(&how).err().expect("no disk has that").to_string();
    assert!(refused.contains("--ssd-size") && refused.contains("MiB more"), "{refused}");
    assert_eq!(lengths(), [40, 24]);
    how.ssd_bytes = 32 * MIB;
    let (store, report) = open(&how).unwrap();
    assert_eq!((lengths(), sizes(&report)), ([48, 32], [48, 32]));
    assert_eq!(store.get(b"k").unwrap().unwrap().value, b"v");
    store.close().unwrap();
    // Another store's log is refused, and is no longer than it was.
    let mut other = DirectorySettings::new(path.join("other"));
    (other.pm_bytes, other.ssd_bytes) = (48 * MIB, 16 * MIB);
    drop(open(&other).unwrap());
    let foreign = path.join("other/log");
    (how.pm_path, how.pm_bytes, how.ssd_bytes) = (Some(foreign.clone()), 64 * MIB, 64 * MIB);
    let refused = open(&how).err();
    assert!(matches!(refused, Some(Error::Mismatch(_))), "{refused:?}");
    assert_eq!((foreign.metadata().unwrap().len(), lengths()), (48 * MIB, [48, 32]));
    std::fs::remove_dir_all(&path).unwrap();
}
