//! When a checkpoint is due: what a start would have to read behind the last one decides.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Error, ItemMeta, Settings, Tier};

const VALUE_BYTES: usize = 500;

fn put(tier: &Tier, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = format!("key-{number:05}");
        tier.put(key.as_bytes(), &value(number, VALUE_BYTES), ItemMeta::default()).unwrap();
    }
}

fn maintain(tier: &Tier) -> u64 {
    while tier.maintain().unwrap() {}
    tier.stats().checkpoints
}

#[test]
fn new_sort_tables_make_a_checkpoint_due() {
    for (checkpoint_bytes, expected) in [(80 << 10, 1), (400 << 10, 0)] {
        let machine = Machine::new(Kind::Pm, &Faults::default());
        let settings = Settings { checkpoint_bytes, migrate_percent: 20, ..settings() };
        let (tier, _) = machine.open(settings).unwrap();
        put(&tier, 0..110);
        assert_eq!(tier.stats().checkpoints, 0);
        let checkpoints = maintain(&tier);
        let stats = tier.stats();
        assert!(0 < stats.migrated_records && stats.kept_records == 0, "{stats:?}");
        assert_eq!(checkpoints, expected, "{stats:?}");
    }
}

#[test]
fn what_a_start_had_to_read_makes_the_next_checkpoint_due() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let settings = Settings { checkpoint_bytes: 60 << 10, migrate_percent: 100, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    put(&tier, 0..70);
    assert_eq!(maintain(&tier), 0);
    drop(tier);
    let (tier, report) = machine.open(settings).unwrap();
    assert!(30 << 10 < report.replayed_bytes, "{report:?}");
    assert_eq!(maintain(&tier), 0);
    put(&tier, 70..140);
    assert_eq!(maintain(&tier), 1, "{:?}", tier.stats());
}

#[test]
fn a_checkpoint_now_leaves_a_start_nothing_to_replay_and_is_made_once() {
    for kind in [Kind::Pm, Kind::Wal, Kind::PmFair] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        put(&tier, 0..40);
        tier.delete(b"key-00001").unwrap();
        for _ in 0..3 {
            tier.checkpoint_now().unwrap();
            assert_eq!(tier.stats().checkpoints, 1, "{kind:?}: nothing was written since");
        }
        let machine = machine.crashed(1, &Faults::default(), u64::MAX);
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!((report.items, report.replayed_records), (39, 0), "{kind:?}: {report:?}");
        tier.checkpoint_now().unwrap();
        assert_eq!(tier.stats().checkpoints, 0, "{kind:?}: nor was anything replayed");
        put(&tier, 50..51);
        tier.checkpoint_now().unwrap();
        assert_eq!(tier.stats().checkpoints, 1, "{kind:?}");
    }
}

#[test]
fn a_checkpoint_for_which_there_is_no_room_is_refused_and_loses_nothing() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 0..20);
    let mut larges = 0;
    while tier
        .put(format!("large-{larges}").as_bytes(), &value(1, 4096), ItemMeta::default())
        .is_ok()
    {
        larges += 1;
    }
    let refused = tier.checkpoint_now();
    assert!(matches!(refused, Err(Error::SsdFull { .. })), "{refused:?}");
    drop(tier);
    let (tier, report) = machine.open(settings()).unwrap();
    assert_eq!((report.items, &report.problems[..]), (20 + larges, &[][..]));
    // Room for it is all it needs.
    tier.flush_all().unwrap();
    // Blocks are free once a later group vouches for it.
    put(&tier, 0..3);
    tier.checkpoint_now().unwrap();
}

const WRITES: u64 = 20_000;

/// Bytes written to both media for each of a user's: writes of 200 bytes to 5000 keys.
fn amplification(pad_groups: bool, group: u64) -> f64 {
    const SEGMENT_BYTES: u32 = 256 << 10;
    const LOG_BYTES: usize = 32 * SEGMENT_BYTES as usize;
    const SSD_BYTES: usize = 16 << 20;
    let (log, ssd) = (vec![0; LOG_BYTES], vec![0; SSD_BYTES]);
    let machine = Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd);
    let (segment_bytes, checkpoint_bytes) = (SEGMENT_BYTES, LOG_BYTES as u64);
    let settings = Settings { pad_groups, segment_bytes, checkpoint_bytes, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    for number in 0..WRITES {
        let key = format!("key-{:05}", number * 7919 % 5000);
        tier.submit_put(key.as_bytes(), &value(number, 200), ItemMeta::default(), None).unwrap();
        if (number + 1) % group == 0 {
            tier.commit().unwrap();
            while tier.maintain().unwrap() {}
        }
    }
    tier.stats().write_amplification()
}

#[test]
fn padding_costs_little_where_the_log_has_room_and_nothing_where_groups_are_large() {
    let costs = [1, 8, 64].map(|group| {
        let [without, with] = [false, true].map(|pads| amplification(pads, group));
        println!("groups of {group}: {without:.1} without padding, {with:.1} with");
        with / without
    });
    // A group that is not padded writes the block that it begins in once more.
    assert!(costs[0] < 1.3 && costs[1] < 1.0 && costs[2] < 1.0, "{costs:?}");
}
