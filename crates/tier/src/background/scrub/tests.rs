//! Damage at the borders of what a pass reads at once, and at the edges of windows: it is found by
//! steps and by threads alike.

use super::*;
use crate::media::disk::sim::{Faults, Power, Random, SimDisk};
use crate::media::pm::sim::SimRegion;
use crate::recovery::recover::Media;
use crate::tier::Tier;
use crate::types::{ItemMeta, Settings};
use std::collections::BTreeSet;

const VALUE_BYTES: usize = 4 * BLOCK_BYTES - 5;
/// Of a value that lies in many extents.
const LONG_BYTES: usize = 150_001;

/// Bytes that lie nowhere else.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(version);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.number().to_le_bytes());
    words.take(bytes).collect()
}

/// Small items in sort tables, values with gaps between them, and a long one in those gaps.
fn stored() -> (Tier, Arc<SimDisk>) {
    let power = Power::new(u64::MAX);
    let region = Arc::new(SimRegion::new(640 << 10, power.clone(), Faults::default()));
    let ssd = Arc::new(SimDisk::new(4 << 20, power, 1, Faults::default()));
    let media = Media { region, ssd: ssd.clone() };
    let settings = Settings {
        split_bytes: 1024,
        split_adapts: false,
        segment_bytes: 16 << 10,
        compress_from: None,
        table_bytes: 8 << 10,
        checkpoint_bytes: 40 << 10,
        background: false,
        ..Settings::default()
    };
    let (tier, _) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
    let key = |number: u64| format!("key-{number:05}").into_bytes();
    let put = |number: u64, bytes: usize| {
        tier.put(&key(number), &value(number, bytes), ItemMeta::default())
    };
    let maintain = || while tier.maintain().unwrap() {};
    for number in 0..400 {
        put(number, 200).unwrap();
        maintain();
    }
    while tier.migrate().unwrap() {}
    let mut large = 1000;
    while put(large, VALUE_BYTES).is_ok() {
        large += 1;
        maintain();
    }
    for number in (1000..large).step_by(2) {
        assert!(tier.delete(&key(number)).unwrap());
    }
    tier.checkpoint().unwrap();
    put(5000, LONG_BYTES).unwrap();
    tier.checkpoint().unwrap();
    (tier, ssd)
}

/// Its name is that by which damage to it is told.
fn name_of(places: &Places, unit: &Unit) -> (u64, u32) {
    match places.owner(unit) {
        Owner::Item { key } => name(unit.number, key),
        Owner::Checkpoint { .. } => name(unit.number, &[]),
    }
}

/// The first and the last place of each step, and their names; without those in the log.
fn borders(shared: &Shared, bounds: Bounds) -> Vec<[(Unit, (u64, u32)); 2]> {
    let (mut pass, mut borders) = (Pass::new(bounds), Vec::new());
    loop {
        let begin = pass.next;
        match pass.step(shared, &mut |damaged| panic!("{damaged:?}")) {
            Step::Walked => {}
            Step::Read { .. } => borders.push([begin, pass.next - 1].map(|number| {
                let unit = pass.places.units[number];
                (unit, name_of(&pass.places, &unit))
            })),
            Step::Over => break,
        }
    }
    borders.retain(|both| both.iter().all(|(unit, _)| unit.home.is_ssd()));
    borders
}

/// What a pass tells: by steps, or by windows that so many threads read.
fn found(shared: &Shared, bounds: Bounds, threads: Option<usize>) -> Vec<Damaged> {
    let (mut pass, mut found) = (Pass::new(bounds), Vec::new());
    while pass.step(shared, &mut |damaged| found.push(damaged)) != Step::Over {
        if let Some(threads) = threads {
            pass.read_windows(shared, threads, &mut |damaged| found.push(damaged), &mut |_| {});
        }
    }
    assert_eq!(pass.far.done_bytes, pass.far.total_bytes, "{threads:?} threads");
    found
}

#[test]
fn damage_at_each_border_of_a_read_is_found_and_told_in_one_order() {
    let (tier, ssd) = stored();
    let shared = tier.shared();
    for (step_bytes, places) in [(20 << 10, 100), (256 << 10, 100_000)] {
        let bounds = Bounds { step_bytes, places, share: u64::MAX };
        let borders = borders(shared, bounds);
        assert!(5 < borders.len(), "{} reads", borders.len());
        let is_spread =
            |unit: &Unit| matches!(unit.part, Part::Piece { parts, .. } if 1 < parts.get());
        let spread = borders.iter().flatten().filter(|(unit, _)| is_spread(unit)).count();
        assert!(256 << 10 == step_bytes || 5 < spread, "{spread} parts of what several reads give");
        for (at_end, in_end) in [(0_usize, false), (0, true), (1, false), (1, true)] {
            let damaged = borders.iter().map(|both| both[at_end]);
            let flip = || {
                for (unit, _) in damaged.clone() {
                    let skip = if in_end { u64::from(unit.bytes) - 1 } else { 0 };
                    ssd.flip_bit(unit.home.at() + skip, 3);
                }
            };
            flip();
            let by_steps = found(shared, bounds, None);
            let names: BTreeSet<_> = by_steps.iter().map(|damaged| damaged.name).collect();
            let expected: BTreeSet<_> = damaged.clone().map(|(_, name)| name).collect();
            assert_eq!(names, expected, "steps of {step_bytes}, {at_end}, {in_end}");
            for threads in [0, 1, 3] {
                let by_threads = found(shared, bounds, Some(threads));
                assert_eq!(by_threads, by_steps, "{threads} threads, steps of {step_bytes}");
            }
            flip();
        }
    }
    assert_eq!(found(shared, Bounds::ALONE, Some(3)), [], "all is as it was");
}

/// The first and the last place of each window, and their names; without those in the log.
fn edges(shared: &Shared, bounds: Bounds) -> Vec<(Unit, (u64, u32))> {
    let (mut pass, mut edges) = (Pass::new(bounds), Vec::new());
    loop {
        match pass.step(shared, &mut |damaged| panic!("{damaged:?}")) {
            Step::Over => break,
            Step::Walked => {
                let both = [pass.places.units.first(), pass.places.units.last()];
                let named = |unit: &Unit| (*unit, name_of(&pass.places, unit));
                edges.extend(both.into_iter().flatten().map(named));
            }
            Step::Read { .. } => {}
        }
    }
    edges.retain(|(unit, _)| unit.home.is_ssd());
    // A window may have one place, and a bit that is flipped twice is as it was.
    edges.dedup_by_key(|(unit, _)| (unit.home, unit.number));
    edges
}

#[test]
fn damage_at_each_edge_of_a_window_is_told_alike_whatever_reads_windows_and_threads_there_are() {
    let (tier, ssd) = stored();
    let shared = tier.shared();
    let bounds = |step_bytes, places| Bounds { step_bytes, places, share: u64::MAX };
    let edges = edges(shared, bounds(20 << 10, 50));
    assert!(6 < edges.len(), "{} edges", edges.len());
    for (unit, _) in &edges {
        ssd.flip_bit(unit.home.at() + u64::from(unit.bytes) / 2, 5);
    }
    let expected: BTreeSet<_> = edges.iter().map(|(_, name)| *name).collect();
    let mut first = None;
    for places in [3, 50, 77, 100_000] {
        for step_bytes in [1, 20 << 10, 4 << 20] {
            for threads in [0, 1, 2, 8] {
                let found = found(shared, bounds(step_bytes, places), Some(threads));
                let told = format!("{threads} threads, {places} places, reads of {step_bytes}");
                let names: BTreeSet<_> = found.iter().map(|damaged| damaged.name).collect();
                assert_eq!(names, expected, "{told}");
                assert_eq!(&found, first.get_or_insert_with(|| found.clone()), "{told}");
            }
        }
    }
}
