//! Compressed values: read as they were written in every way there is, by whatever comes back to
//! them, and refused by programs that do not know them.

use crate::common::{Kind, Machine, PM_BYTES, settings, value};
use crate::golden::{self, Image, found};
use laneway_tier::backup::{Bounds, Step};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{
    BLOCK_BYTES, Durability, Error, IndexKind, ItemMeta, PIECE_BYTES, Settings, Tier, WhenFull,
    dump, fsck,
};
use std::collections::BTreeSet;

const KINDS: [Kind; 3] = [Kind::Pm, Kind::PmFair, Kind::Wal];
/// Where a superblock has its version, and the two of them.
const VERSION_AT: usize = 8;
const SUPERBLOCK_BYTES: usize = 65_536;
const FRAME_BYTES: usize = 64 << 10;
const SSD_BYTES: usize = 16 << 20;

fn machine(kind: Kind) -> Machine {
    let pm_bytes = if kind.is_fair() { 6 * PM_BYTES } else { PM_BYTES };
    Machine::of(kind, &Faults::default(), u64::MAX, vec![0; pm_bytes], vec![0; SSD_BYTES])
}

fn compressing(kind: Kind) -> Settings {
    let index = kind.is_fair().then_some(IndexKind::Fair);
    Settings { index, compress_from: Some(1), ..settings() }
}

fn key(number: usize) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.below(256) as u8).collect()
}

fn versions(ssd: &[u8]) -> [u8; 2] {
    [0, SUPERBLOCK_BYTES].map(|at| ssd[at + VERSION_AT])
}

/// Of one frame and several, longer than a piece, and such that gain nothing.
fn values() -> Vec<Vec<u8>> {
    let lengths =
        [4097, 9000, 30_000, FRAME_BYTES, FRAME_BYTES + 1, 300_000, PIECE_BYTES - 1, PIECE_BYTES];
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|bytes| value(7, *bytes)).collect();
    all.push(noise(1, 50_000));
    all.push(value(8, PIECE_BYTES + 77_777));
    all.push([noise(2, FRAME_BYTES), value(9, 2 * FRAME_BYTES)].concat());
    all.push(value(10, 2000));
    all.push(value(11, 20));
    all
}

/// How many of them are compressed.
const COMPRESSED: u64 = 8;

fn holds(tier: &Tier, values: &[Vec<u8>], when: &str) {
    for (number, value) in values.iter().enumerate() {
        let key = key(number);
        let look = tier.look(&key).expect("it is there");
        assert_eq!(look.value_bytes, value.len() as u64, "{when}: {number}");
        let item = tier.get(&key).unwrap().expect("it is there");
        assert!(item.value == *value && item.meta.flags == number as u32, "{when}: {number}");
        if let Some(reader) = tier.open_large(&key).unwrap() {
            assert_eq!(reader.value_bytes(), value.len() as u64);
            assert_eq!(reader.pieces(), value.len().div_ceil(PIECE_BYTES));
            let pieces = (0..reader.pieces()).map(|index| reader.piece(index).unwrap());
            assert!(pieces.collect::<Vec<_>>().concat() == *value, "{when}: {number}");
        }
    }
    let scanned = tier.scan(b"", None, usize::MAX);
    assert_eq!(scanned.len(), values.len(), "{when}");
    for ((_, item), value) in scanned.into_iter().zip(values) {
        assert!(item.unwrap().value == *value, "{when}");
    }
}

fn put_all(tier: &Tier, values: &[Vec<u8>]) {
    for (number, value) in values.iter().enumerate() {
        let meta = ItemMeta { flags: number as u32, ..ItemMeta::default() };
        // As it is there as a whole, and as it comes.
        if number % 2 == 0 || value.len() < settings().split_bytes {
            tier.put(&key(number), value, meta).unwrap();
        } else {
            let mut draft = tier.draft_large(&key(number), value.len() as u64).unwrap();
            value.chunks(10_000).for_each(|bytes| draft.write(bytes).unwrap());
            let ticket = draft.finish(meta, None).unwrap();
            tier.wait(ticket).unwrap();
        }
    }
}

#[test]
fn what_is_compressed_is_read_as_it_was_written_in_every_way_and_behind_every_start() {
    for kind in KINDS {
        let (machine, values) = (machine(kind), values());
        let (tier, _) = machine.open(compressing(kind)).unwrap();
        put_all(&tier, &values);
        holds(&tier, &values, "written");
        let stats = tier.stats();
        assert_eq!(stats.compressed_values, COMPRESSED, "{kind:?}");
        assert!(stats.compressed_to_bytes < stats.compressed_from_bytes / 8 * 7, "{stats:?}");
        let all: usize = values.iter().map(Vec::len).sum();
        assert_eq!(stats.user_written_bytes as usize, all + values.len() * key(0).len());
        drop(tier);
        // By the log, by a checkpoint, and where nothing more is compressed.
        let (tier, report) = machine.open(compressing(kind)).unwrap();
        assert_eq!(report.problems, [""; 0]);
        holds(&tier, &values, "by the log");
        tier.checkpoint().unwrap();
        drop(tier);
        let plain = Settings { compress_from: None, ..compressing(kind) };
        let (tier, report) = machine.open(plain).unwrap();
        assert_eq!(report.problems, [""; 0]);
        holds(&tier, &values, "by a checkpoint");
        put_all(&tier, &values[..2]);
        assert_eq!(tier.stats().compressed_values, 0);
        holds(&tier, &values, "where some are stored as they are");
        drop(tier);
        let findings = fsck::check(machine.media(), plain).unwrap();
        assert!(findings.is_sound() && findings.items == values.len() as u64, "{findings:?}");
    }
}

#[test]
fn a_value_takes_the_blocks_of_what_is_stored_of_it_and_gives_them_back() {
    for durability in [Durability::Ack, Durability::Interval] {
        let machine = machine(Kind::Wal);
        let (tier, _) = machine.open(Settings { durability, ..compressing(Kind::Wal) }).unwrap();
        for value in [value(1, 40_000), value(2, 400_000)] {
            let before = tier.stats();
            tier.put(b"key", &value, ItemMeta::default()).unwrap();
            tier.commit().unwrap();
            let after = tier.stats();
            let stored = after.compressed_to_bytes - before.compressed_to_bytes;
            let blocks = stored.div_ceil(BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
            assert_eq!(before.ssd_free_bytes - after.ssd_free_bytes, blocks);
            assert_eq!(after.waiting_bytes, 0, "what waits is counted as it is stored");
            assert!(blocks < value.len() as u64 / 8 * 7);
            assert_eq!(after.items.large_bytes, stored, "what is current is part of what is used");
            assert_eq!(after.usage.large_live_bytes, Some(stored));
            tier.delete(b"key").unwrap();
            for number in 0..3u8 {
                tier.put(b"other", &[number], ItemMeta::default()).unwrap();
                tier.commit().unwrap();
            }
            assert_eq!(tier.stats().ssd_free_bytes, before.ssd_free_bytes);
        }
    }
}

#[test]
fn a_copy_has_values_as_they_were_and_may_be_loaded_with_and_without_compression() {
    let (machine, values) = (machine(Kind::Pm), values());
    let (tier, _) = machine.open(compressing(Kind::Pm)).unwrap();
    put_all(&tier, &values);
    let (mut backup, mut stream) = (tier.backup(Bounds::NONE).unwrap(), Vec::new());
    while backup.step(&mut stream).unwrap() != Step::Over {}
    assert_eq!((backup.lost().items, backup.items()), (0, values.len() as u64));
    drop(backup);
    for compress_from in [None, Some(1)] {
        let copy = self::machine(Kind::Wal);
        let (tier, _) = copy.open(Settings { compress_from, ..settings() }).unwrap();
        dump::load(&tier, &stream[..]).unwrap();
        holds(&tier, &values, "loaded");
        assert_eq!(0 < tier.stats().compressed_values, compress_from.is_some());
    }
}

/// What a medium says of a value one byte of which is damaged, for bytes all over it.
fn told_of_damage(compress_from: Option<usize>) -> BTreeSet<String> {
    let machine = machine(Kind::Pm);
    let settings = Settings { compress_from, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let (_, before) = machine.images();
    let bytes = 3 * FRAME_BYTES + 1000;
    tier.put(b"key", &value(1, bytes), ItemMeta::default()).unwrap();
    let (_, behind) = machine.images();
    let first = before.iter().zip(&behind).position(|(before, behind)| before != behind);
    let start = first.expect("it is on the SSD") / BLOCK_BYTES * BLOCK_BYTES;
    let compressed = tier.stats().compressed_to_bytes as usize;
    let stored = if compressed == 0 { bytes } else { compressed };
    // So that it was acknowledged, whatever is left of it.
    tier.checkpoint().unwrap();
    drop(tier);
    let (log, sound) = machine.images();
    let mut told = BTreeSet::new();
    for at in [0, 2, 3, 4, 5, stored / 3, stored / 2, stored - 1] {
        let mut ssd = sound.clone();
        ssd[start + at] ^= 0x10;
        let damaged = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log.clone(), ssd);
        let (tier, _) = damaged.open(settings).unwrap();
        let read = tier.get(b"key");
        assert!(matches!(read, Err(Error::Lost { .. })), "byte {at} of {stored}: {read:?}");
        told.extend(read.err().map(|error| error.to_string()));
        let reader = tier.open_large(b"key").unwrap().expect("its record is whole");
        told.extend(reader.piece(0).err().map(|error| error.to_string()));
        assert!(tier.scan(b"", None, 9)[0].1.is_err());
        drop((reader, tier));
        assert_eq!(fsck::check(damaged.media(), settings).unwrap().lost.len(), 1);
    }
    told
}

/// Each byte that is stored of it counts.
#[test]
fn a_damaged_compressed_value_is_lost_as_any_other_and_told_in_the_same_words() {
    assert_eq!(told_of_damage(Some(1)), told_of_damage(None));
}

fn image_of(machine: &Machine) -> Image {
    let (log, ssd) = machine.images();
    Image { log, ssd }
}

/// A program from before such values reads the version before anything else, and refuses this one.
#[test]
fn superblocks_say_that_values_may_be_compressed_before_one_is_and_from_then_on() {
    for (kind, plain) in [(Kind::Pm, 2), (Kind::PmFair, 3)] {
        let machine = machine(kind);
        let off = Settings { compress_from: None, ..compressing(kind) };
        let (tier, _) = machine.open(off).unwrap();
        tier.put(b"before", &value(1, 9000), ItemMeta::default()).unwrap();
        tier.checkpoint().unwrap();
        drop(tier);
        assert_eq!(versions(&machine.images().1), [plain; 2]);
        for settings in [compressing(kind), off] {
            let (tier, report) = machine.open(settings).unwrap();
            assert_eq!((report.problems, report.grown_from), (Vec::new(), None));
            assert_eq!(versions(&machine.images().1), [plain + 2; 2], "before the first write");
            tier.put(b"behind", &value(2, 9000), ItemMeta::default()).unwrap();
            for _ in 0..2 {
                tier.checkpoint().unwrap();
                assert_eq!(versions(&machine.images().1), [plain + 2; 2]);
            }
            assert_eq!(tier.get(b"before").unwrap().unwrap().value, value(1, 9000));
            assert_eq!(tier.get(b"behind").unwrap().unwrap().value, value(2, 9000));
        }
        // The version is under no checksum: one that is damaged is not believed alone.
        let mut image = image_of(&machine);
        image.ssd[VERSION_AT] = plain;
        let (media, _, ssd) = image.media();
        let open = |settings| Tier::open(media.clone(), settings, 1, &mut |_, _| {});
        drop(open(off).unwrap());
        assert_eq!(versions(&ssd.image()), [plain + 2; 2]);
    }
}

/// Whatever the power leaves of the upgrade, nothing is lost, and no compressed value is in a store
/// that does not say so twice.
#[test]
fn a_store_from_before_is_upgraded_while_its_power_fails_at_any_event() {
    for (bytes, plain) in [
        (&include_bytes!("../golden/format-2-cut.image")[..], 2),
        (&include_bytes!("../golden/format-3-cut.image")[..], 3),
    ] {
        let image = Image::decode(bytes);
        let settings = Settings { compress_from: Some(1), ..golden::settings(None) };
        let (media, ..) = image.media();
        let (tier, _) = Tier::open(media, golden::settings(None), 1, &mut |_, _| {}).unwrap();
        let expected = found(&tier);
        drop(tier);
        let kind = if plain == 3 { Kind::PmFair } else { Kind::Pm };
        let mut events = 0;
        let mut ends = [0; 3];
        loop {
            events += 1;
            let (log, ssd) = (image.log.clone(), image.ssd.clone());
            let first = Machine::of(kind, &Faults::default(), events, log, ssd);
            let opened = Tier::open(first.media(), settings, 1, &mut |_, _| {});
            let wrote = opened.as_ref().is_ok_and(|(tier, _)| {
                tier.put(b"zipped", &value(3, 9000), ItemMeta::default()).is_ok()
            });
            drop(opened);
            let crashed = first.crashed(events, &Faults::default(), u64::MAX);
            let says = versions(&crashed.images().1);
            ends[says.iter().filter(|version| **version == plain + 2).count()] += 1;
            assert!(!wrote || says == [plain + 2; 2]);
            let (tier, report) =
                Tier::open(crashed.media(), settings, 1, &mut |_, _| {}).expect("it is whole");
            assert_eq!(report.problems, [""; 0], "{events}");
            let mut there = found(&tier);
            let zipped = there.remove(&b"zipped"[..]);
            assert!(zipped.is_some() || !wrote, "{events}: what was acknowledged");
            assert!(zipped.is_none_or(|(it, _)| it == value(3, 9000)), "{events}");
            assert!(there == expected, "{events}");
            assert_eq!(versions(&crashed.images().1), [plain + 2; 2]);
            if wrote {
                break;
            }
        }
        assert!(ends.iter().all(|count| 0 < *count), "{ends:?}: before, between and behind");
    }
}

/// Room is that of what is stored: a cache of compressible values holds more of them.
#[test]
fn a_full_cache_evicts_by_what_is_stored_and_holds_more() {
    let held = |compress_from| {
        let machine = Machine::sized(Kind::Wal, &Faults::default(), 2 << 20);
        let when_full = WhenFull::Evict;
        let settings = Settings { when_full, compress_from, ..settings() };
        let (tier, _) = machine.open(settings).unwrap();
        for number in 0..1000 {
            tier.put(&key(number), &value(number as u64, 30_000), ItemMeta::default()).unwrap();
            while tier.maintain().unwrap() {}
        }
        for (key, item) in tier.scan(b"", None, usize::MAX) {
            let number: u64 = String::from_utf8(key).unwrap()[4..].parse().unwrap();
            assert_eq!(item.unwrap().value, value(number, 30_000));
        }
        assert!(0 < tier.evicted().large.items);
        tier.stats().items.large
    };
    let (plain, compressed) = (held(None), held(Some(1)));
    assert!(plain * 2 < compressed, "{plain} and {compressed}");
}
