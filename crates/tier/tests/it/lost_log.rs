//! A log that is not the one the store on the SSD was made with is refused before a byte is
//! written; a lost one may be accepted, and then never comes back by mistake.

use crate::common::{self, Kind, Machine, PM_BYTES, SEGMENT_BYTES, SSD_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Error, ItemMeta, Settings, Tier, fsck};

const NEW_ID: u64 = 0x0fed_cba9_8765_4321;
const KINDS: [Kind; 2] = [Kind::Pm, Kind::Wal];

fn machine(kind: Kind, log: &[u8], ssd: &[u8]) -> Machine {
    Machine::of(kind, &Faults::default(), u64::MAX, log.to_vec(), ssd.to_vec())
}

fn put(tier: &Tier, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let bytes = if number.is_multiple_of(3) { 2000 } else { 100 };
        tier.put(&number.to_be_bytes(), &value(number, bytes), ItemMeta::default()).unwrap();
    }
}

/// What lies on both media after `work`: log, SSD.
fn images(kind: Kind, id: u64, work: impl FnOnce(&Tier)) -> (Vec<u8>, Vec<u8>) {
    let machine = Machine::new(kind, &Faults::default());
    let (tier, _) = Tier::open(machine.media(), settings(), id, &mut |_, _| {}).unwrap();
    work(&tier);
    drop(tier);
    machine.images()
}

fn refusal(machine: &Machine, settings: Settings) -> String {
    let before = machine.images();
    let refused = machine.open(settings).err().expect("it is refused");
    assert!(matches!(refused, Error::Mismatch(_)), "{refused}");
    let checked = fsck::check(machine.media(), settings).expect_err("as a check is");
    assert_eq!(checked.to_string(), refused.to_string());
    assert!(machine.images() == before, "something was written");
    refused.to_string()
}

fn accepting() -> Settings {
    Settings { accept_lost_log: true, ..settings() }
}

#[test]
fn a_log_that_is_not_the_stores_is_refused_and_nothing_is_written() {
    type Work = fn(&Tier);
    let works: [(&str, Work); 4] = [
        ("nothing stored", |_| {}),
        ("no checkpoint", |tier| put(tier, 0..20)),
        ("a checkpoint", |tier| {
            put(tier, 0..20);
            tier.checkpoint().unwrap();
        }),
        ("much", |tier| {
            put(tier, 0..20);
            tier.checkpoint().unwrap();
            (0..10).for_each(|turn| put(tier, turn * 100..turn * 100 + 30));
            while tier.maintain().unwrap() {}
            tier.settle().unwrap();
        }),
    ];
    for kind in KINDS {
        let (others, _) = images(kind, NEW_ID, |tier| put(tier, 0..9));
        for (name, work) in works {
            let mut sequence = 0;
            let (log, ssd) = images(kind, 7, |tier| {
                work(tier);
                sequence = tier.sequence();
            });
            let blank = machine(kind, &vec![0; PM_BYTES], &ssd);
            let told = refusal(&blank, settings());
            assert!(told.contains("blank") && told.contains("--accept-lost-log"), "{told}");
            let foreign = machine(kind, &others, &ssd);
            for settings in [settings(), accepting()] {
                let told = refusal(&foreign, settings);
                assert!(told.contains("another store's"), "{name}: {told}");
            }
            let (tier, report) = machine(kind, &log, &ssd).open(settings()).unwrap();
            assert_eq!((&report.problems[..], report.log_is_new), (&[][..], false), "{name}");
            assert_eq!(tier.sequence(), sequence, "{name}");
        }
    }
}

#[test]
fn a_young_store_whose_second_superblock_is_damaged_is_not_made_anew_over_its_records() {
    for kind in KINDS {
        for bytes in [100, 5000] {
            let (log, ssd) = images(kind, 7, |tier| {
                tier.put(b"key", &value(1, bytes), ItemMeta::default()).unwrap();
            });
            for damage in [0, 0x55] {
                let mut ssd = ssd.clone();
                ssd[..laneway_tier::BLOCK_BYTES].fill(damage);
                for settings in [settings(), accepting()] {
                    let told = refusal(&machine(kind, &log, &ssd), settings);
                    assert!(told.contains("superblock") && told.contains("damaged"), "{told}");
                }
            }
        }
    }
}

#[test]
fn a_log_with_anything_where_a_start_looks_is_refused_before_a_store_is_made_on_it() {
    const BLOCK: usize = laneway_tier::BLOCK_BYTES;
    for kind in KINDS {
        for slot in [0, 1, 7] {
            // Within a header, behind its magic, and in the block behind it.
            for at in [100, BLOCK - 1, BLOCK, 2 * BLOCK - 1] {
                let mut log = vec![0; PM_BYTES];
                log[slot * SEGMENT_BYTES as usize + at] = 7;
                let machine = machine(kind, &log, &vec![0; SSD_BYTES]);
                let refused = machine.open(settings()).err();
                assert!(matches!(refused, Some(Error::Mismatch(_))), "slot {slot}, byte {at}");
                assert!(machine.images() == (log, vec![0; SSD_BYTES]), "something was written");
            }
        }
    }
}

#[test]
fn a_log_of_before_the_checkpoint_is_refused() {
    for kind in KINDS {
        let mut old = Vec::new();
        let machine_of = Machine::new(kind, &Faults::default());
        let (tier, _) = machine_of.open(settings()).unwrap();
        for turn in 0..6 {
            put(&tier, turn * 40..turn * 40 + 40);
            tier.checkpoint().unwrap();
            if turn == 1 {
                old = machine_of.images().0;
            }
        }
        drop(tier);
        let told = refusal(&machine(kind, &old, &machine_of.images().1), settings());
        assert!(told.contains("ends with segment"), "{told}");
    }
}

#[test]
fn a_lost_log_is_gone_on_without_and_does_not_come_back() {
    for kind in KINDS {
        let (lost, ssd) = images(kind, 7, |tier| {
            put(tier, 0..300);
            while tier.migrate().unwrap() {}
            tier.checkpoint().unwrap();
            put(tier, 300..304);
        });
        let there = machine(kind, &vec![0; PM_BYTES], &ssd);
        let (tier, report) = there.open(accepting()).unwrap();
        assert!(report.log_is_new);
        assert!(report.problems[0].contains("is lost"), "{report:?}");
        let kept = (0..300).filter(|number: &u64| {
            tier.get(&number.to_be_bytes()).is_ok_and(|item| {
                item.is_some_and(|item| item.value == value(*number, item.value.len()))
            })
        });
        assert!(kept.count() > 200, "what the SSD had is there");
        assert!(tier.get(&301u64.to_be_bytes()).unwrap().is_none(), "the log had it");
        // Not one write, and yet the log that was lost is not taken for this one's.
        drop(tier);
        let (log, ssd) = there.images();
        let told = refusal(&machine(kind, &lost, &ssd), settings());
        assert!(told.contains("ends with segment"), "{told}");
        let (tier, report) = machine(kind, &log, &ssd).open(settings()).unwrap();
        assert!(!report.log_is_new, "{report:?}");
        put(&tier, 0..300);
        for number in 0..300u64 {
            let item = tier.get(&number.to_be_bytes()).unwrap().unwrap();
            assert_eq!(item.value, value(number, item.value.len()));
        }
    }
}

#[test]
fn no_sequence_of_a_log_that_was_lost_comes_again_however_often_one_is_lost() {
    for kind in KINDS {
        let (_, mut ssd) = images(kind, 7, |tier| {
            put(tier, 0..20);
            tier.checkpoint().unwrap();
        });
        let mut given = 0;
        for lost in 0..3 {
            let there = machine(kind, &vec![0; PM_BYTES], &ssd);
            let (tier, report) = there.open(accepting()).unwrap();
            assert!(report.log_is_new, "{kind:?}, log {lost}: {report:?}");
            assert!(given < tier.sequence(), "{kind:?}, log {lost}");
            // As an owner does at each of its starts; no checkpoint knows of these.
            for _ in 0..10 {
                tier.pass_over(tier.sequence() + (1 << 30)).unwrap();
            }
            tier.commit().unwrap();
            given = tier.sequence();
            drop(tier);
            ssd = there.images().1;
        }
    }
}

/// Fills the SSD to the last block, so that there is no room for a checkpoint.
fn fill(tier: &Tier) {
    let mut number = 1000u64;
    for bytes in [60_000, 8000, 4096] {
        while tier.put(&number.to_be_bytes(), &value(number, bytes), ItemMeta::default()).is_ok() {
            number += 1;
        }
    }
    assert!(matches!(tier.checkpoint(), Err(Error::SsdFull { .. })), "it is full");
}

#[test]
fn on_a_full_ssd_a_lost_log_is_gone_on_without_or_refused_as_before() {
    let mut accepted = 0;
    for (kind, gone) in KINDS.into_iter().flat_map(|kind| [0, 150, 280].map(|gone| (kind, gone))) {
        let (lost, ssd) = images(kind, 7, |tier| {
            put(tier, 0..300);
            while tier.migrate().unwrap() {}
            fill(tier);
            (1000..1002u64).for_each(|n| assert!(tier.delete(&n.to_be_bytes()).unwrap()));
            put(tier, 301..303); // blocks are free once another group vouches for the deletions
            (0..2).for_each(|_| tier.checkpoint().unwrap());
            // The newest checkpoint is shorter than the older one.
            (0..gone).for_each(|n: u64| assert!(tier.delete(&n.to_be_bytes()).unwrap()));
            tier.checkpoint().unwrap();
            fill(tier);
        });
        let there = machine(kind, &vec![0; PM_BYTES], &ssd);
        let is_accepted = match there.open(accepting()) {
            Ok((tier, report)) => {
                assert!(report.log_is_new, "{kind:?}: {report:?}");
                let kept = (gone..300).filter(|&number| is_read(&tier, number)).count() as u64;
                assert!(kept + 100 > 300 - gone, "{kind:?}: {kept}: what the SSD had is there");
                true
            }
            Err(error) => {
                assert!(matches!(error, Error::SsdFull { .. }), "{kind:?}: {error}");
                false
            }
        };
        let (log, ssd) = there.images();
        assert_eq!(machine(kind, &log, &ssd).open(settings()).is_ok(), is_accepted, "{kind:?}");
        assert_eq!(machine(kind, &lost, &ssd).open(settings()).is_err(), is_accepted, "{kind:?}");
        accepted += u32::from(is_accepted);
    }
    assert!(accepted > 0, "the older checkpoint never made room");
}

#[test]
fn power_that_fails_while_a_lost_log_is_accepted_leaves_a_store_that_is_accepted_again() {
    for kind in KINDS {
        let (lost, ssd) = images(kind, 7, |tier| {
            put(tier, 0..300);
            while tier.migrate().unwrap() {}
            tier.checkpoint().unwrap();
        });
        let mut accepted_again = 0;
        for fails_at in 1.. {
            let (blank, ssd) = (vec![0; PM_BYTES], ssd.clone());
            let first = Machine::of(kind, &Faults::default(), fails_at, blank, ssd);
            let is_accepted = first.open(accepting()).is_ok();
            for seed in 0..4 {
                let second = first.crashed(seed, &Faults::default(), u64::MAX);
                let (log, ssd) = second.images();
                let with_own = machine(kind, &log, &ssd).open(settings());
                // Whichever log the SSD is taken to be with, it is one of them.
                let with_lost = machine(kind, &lost, &ssd).open(settings());
                assert!(
                    with_own.is_err() || with_lost.is_err(),
                    "{kind:?}: power failed at event {fails_at}, seed {seed}: both logs fit"
                );
                if with_own.is_err() {
                    let (tier, _) = machine(kind, &log, &ssd).open(accepting()).unwrap();
                    let kept = (0..300).filter(|&number| is_read(&tier, number)).count();
                    assert!(kept > 200, "{kind:?}: event {fails_at}, seed {seed}: {kept} items");
                    accepted_again += 1;
                }
            }
            if is_accepted {
                break;
            }
        }
        assert!(accepted_again > 0, "{kind:?}: power failed before the end");
    }
}

#[test]
fn a_store_whose_making_was_interrupted_anywhere_is_made_again() {
    for kind in [Kind::Pm, Kind::Wal, Kind::PmFair] {
        let mut settings = settings();
        settings.index = kind.is_fair().then_some(laneway_tier::IndexKind::Fair);
        let mut begun = 0;
        for fails_at in 1.. {
            let pm_bytes = if kind.is_fair() { 2 * PM_BYTES } else { PM_BYTES };
            let (log, ssd) = (vec![0; pm_bytes], vec![0; common::SSD_BYTES]);
            let first = Machine::of(kind, &Faults::default(), fails_at, log, ssd);
            let made = Tier::open(first.media(), settings, 7, &mut |_, _| {});
            let is_made = made.is_ok();
            drop(made);
            for seed in 0..8 {
                // Once more in vain, by a start that has another number in mind.
                let second = first.crashed(seed, &Faults::default(), 1 + seed * 3);
                drop(Tier::open(second.media(), settings, NEW_ID, &mut |_, _| {}));
                let third = second.crashed(seed, &Faults::default(), u64::MAX);
                let (tier, report) = third.open(settings).unwrap_or_else(|error| {
                    panic!("{kind:?}: power failed at event {fails_at}, seed {seed}: {error}")
                });
                assert_eq!(report.problems, Vec::<String>::new());
                begun += u64::from(report.is_new);
                put(&tier, 0..3);
            }
            if is_made {
                break;
            }
        }
        assert!(begun > 8, "{kind:?}: {begun} states of an unfinished store");
    }
}

/// A log with five items, and log and SSD with nine and a checkpoint behind them. The start with
/// the first log is refused.
fn checkpointed(kind: Kind, settings: Settings) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let machine_of = Machine::new(kind, &Faults::default());
    let (tier, _) = machine_of.open(settings).unwrap();
    put(&tier, 0..5);
    let old = machine_of.images().0;
    put(&tier, 5..9);
    tier.checkpoint().unwrap();
    drop(tier);
    let (log, ssd) = machine_of.images();
    let told = refusal(&machine(kind, &old, &ssd), settings);
    assert!(told.contains("ends inside of segment 1"), "{told}");
    (old, log, ssd)
}

#[test]
fn a_log_that_ends_inside_of_the_checkpoints_segment_is_refused() {
    for kind in KINDS {
        let (old, log, ssd) = checkpointed(kind, settings());
        let (tier, report) = machine(kind, &old, &ssd).open(accepting()).unwrap();
        assert!(report.log_is_new, "{report:?}");
        drop(tier);
        // Where its first line is blank, nothing tells the last record from none: a start that
        // accepts that has all other records.
        let mut blank = log.clone();
        blank[last_record(&log)..][..64].fill(0);
        refusal(&machine(kind, &blank, &ssd), settings());
        let (tier, report) = machine(kind, &blank, &ssd).open(accepting()).unwrap();
        assert!(report.log_is_new, "{report:?}");
        assert_eq!((0..9).filter(|&number| is_read(&tier, number)).count(), 8, "{report:?}");
        assert!(tier.get(&8u64.to_be_bytes()).is_err(), "it is lost, and known to be");
    }
}

fn is_read(tier: &Tier, number: u64) -> bool {
    tier.get(&number.to_be_bytes()).is_ok_and(|item| item.is_some())
}

/// Where the record of key 8 begins, the last before the checkpoint's position.
fn last_record(log: &[u8]) -> usize {
    let is_it = |line: &[u8]| line.starts_with(&[0x4c, 0x57]) && line[48..56] == 8u64.to_be_bytes();
    64 * log.chunks_exact(64).position(is_it).expect("it is there")
}

#[test]
fn damage_before_the_checkpoints_position_is_told_as_damage() {
    for kind in [Kind::Pm, Kind::PmFair, Kind::Wal] {
        let index = kind.is_fair().then_some(laneway_tier::IndexKind::Fair);
        let settings = Settings { index, ..settings() };
        let (_, log, ssd) = checkpointed(kind, settings);
        let last = last_record(&log);
        let mut damages: Vec<_> = (last..last + 48).map(|at| at..at + 1).collect();
        // The index beside the log tells of the record whatever became of it.
        damages.extend(kind.is_fair().then_some(last..last + 64));
        for damage in damages {
            let mut damaged = log.clone();
            damaged[damage.clone()].iter_mut().for_each(|byte| *byte ^= 0x81);
            let (tier, report) =
                machine(kind, &damaged, &ssd).open(settings).unwrap_or_else(|error| {
                    panic!("{kind:?}, damaged at {damage:?}, record at {last}: {error}")
                });
            assert!(!report.log_is_new, "{damage:?}: {report:?}");
            assert!(tier.get(&8u64.to_be_bytes()).is_err(), "{kind:?} {damage:?}");
            assert!(is_read(&tier, 7), "{kind:?} {damage:?}");
        }
    }
}

#[test]
fn an_ssd_that_is_older_than_the_log_is_refused() {
    for kind in KINDS {
        let machine_of = Machine::new(kind, &Faults::default());
        let (tier, _) = machine_of.open(settings()).unwrap();
        put(&tier, 0..20);
        tier.checkpoint().unwrap();
        let old = machine_of.images().1;
        for turn in 1..3 {
            put(&tier, turn * 100..turn * 100 + 60);
            tier.checkpoint().unwrap();
        }
        put(&tier, 300..360); // in a segment of its own
        let sequence = tier.sequence();
        drop(tier);
        let (log, ssd) = machine_of.images();
        for settings in [settings(), accepting()] {
            let told = refusal(&machine(kind, &log, &old), settings);
            assert!(told.contains("older than the log"), "{told}");
        }
        // One superblock that is damaged is not taken for an older SSD.
        for slot in 0..2 {
            let mut ssd = ssd.clone();
            ssd[slot * 65_536 + 40] ^= 1;
            let (tier, report) = machine(kind, &log, &ssd).open(settings()).unwrap();
            assert!(report.problems[0].contains("superblock"), "{report:?}");
            assert_eq!(tier.sequence(), sequence);
        }
    }
}
