//! When a checkpoint is due: what a start would have to read behind the last one decides.

mod common;

use common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{ItemMeta, Settings, Tier};

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
