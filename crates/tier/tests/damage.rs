//! Damage at rest is told, also where what would have told of it is damaged too.

mod common;

use common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{BLOCK_BYTES, ItemMeta};

/// A superblock of 65 536 bytes, and where its number is.
const SUPERBLOCK_BYTES: usize = 65_536;
const NUMBER_AT: usize = 40;

fn place_of(ssd: &[u8], value: &[u8]) -> usize {
    let mut blocks = ssd.chunks(BLOCK_BYTES).position(|block| block.starts_with(&value[..64]));
    blocks.take().expect("the value is on the SSD") * BLOCK_BYTES
}

#[test]
fn a_log_that_is_cut_where_only_a_damaged_superblock_vouched_for_it_is_told() {
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        let large = value(1, 3000);
        tier.put(b"large", &large, ItemMeta::default()).unwrap();
        tier.checkpoint().unwrap();
        drop(tier);
        let (log, ssd) = machine.images();
        let number = |slot: usize| ssd[slot * SUPERBLOCK_BYTES + NUMBER_AT];
        let newest = if number(0) < number(1) { 1 } else { 0 };
        for (superblock, value) in [(false, true), (true, false), (true, true)] {
            let mut ssd = ssd.clone();
            let at = place_of(&ssd, &large);
            ssd[at + 5] ^= u8::from(value);
            ssd[newest * SUPERBLOCK_BYTES + NUMBER_AT] ^= u8::from(superblock);
            let damaged = Machine::of(kind, &Faults::default(), u64::MAX, log.clone(), ssd);
            let (tier, report) = damaged.open(settings()).unwrap();
            let tells_of_log = report.problems.iter().any(|problem| problem.contains("is cut"));
            assert_eq!(tells_of_log, superblock && value, "{report:?}");
            match tier.get(b"large") {
                Ok(None) => assert!(tells_of_log),
                Ok(Some(item)) => assert!(!value && item.value == large),
                Err(error) => assert!(value, "{error}"),
            }
        }
    }
}
