//! What the golden images hold, and how they lie in the repository: the lines of both media that
//! are not zeros, and beside each image its manifest, a line for each key.
#![allow(dead_code)] // the tests and the example use a part each

use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::{BLOCK_BYTES, IndexKind, ItemMeta, Media, PIECE_BYTES, Settings, Tier};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

const LINE_BYTES: usize = 64;
const SEGMENT_BYTES: u32 = 8 << 10;
const ITEMS: u64 = 24;
/// Where a superblock has the bytes of a segment.
const SEGMENT_BYTES_AT: usize = 20;
/// More segments than the first block of a header lists.
const SEGMENTS_LONG: usize = 260;

/// What makes the images and the manifests.
pub const REMAKE: &str = "cargo run -p laneway-tier --example golden -- crates/tier/tests/golden";

/// What a store may have beside an index in memory: each choice is a version of its own. A log in
/// front of an index does not grow.
pub const FEATURES: [Features; 4] = [
    Features { index: IndexKind::BTree, compresses: true, is_log_long: false },
    Features { index: IndexKind::Fair, compresses: true, is_log_long: false },
    Features { index: IndexKind::BTree, compresses: false, is_log_long: true },
    Features { index: IndexKind::BTree, compresses: true, is_log_long: true },
];

/// One of these choices.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub index: IndexKind,
    /// Some values are compressed.
    pub compresses: bool,
    /// The log has grown beyond what its first headers list.
    pub is_log_long: bool,
}

/// Key to value and what is kept with it.
pub type Items = BTreeMap<Vec<u8>, (Vec<u8>, ItemMeta)>;

/// Bytes of the log and of the SSD.
#[derive(Clone)]
pub struct Image {
    pub log: Vec<u8>,
    pub ssd: Vec<u8>,
}

impl Image {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for medium in [&self.log, &self.ssd] {
            out.extend_from_slice(&(medium.len() as u32).to_le_bytes());
            let lines = medium.chunks(LINE_BYTES).enumerate();
            let lines: Vec<_> =
                lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0)).collect();
            out.extend_from_slice(&(lines.len() as u32).to_le_bytes());
            for (number, line) in lines {
                out.extend_from_slice(&(number as u32).to_le_bytes());
                out.extend_from_slice(line);
            }
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Image {
        let mut medium = || {
            let mut number = || {
                let (front, rest) = bytes.split_first_chunk().expect("a number");
                bytes = rest;
                u32::from_le_bytes(*front) as usize
            };
            let (mut medium, lines) = (vec![0; number()], number());
            for _ in 0..lines {
                let (front, rest) = bytes.split_first_chunk().expect("a number");
                let at = u32::from_le_bytes(*front) as usize * LINE_BYTES;
                let (line, rest) = rest.split_at(LINE_BYTES);
                medium[at..at + LINE_BYTES].copy_from_slice(line);
                bytes = rest;
            }
            medium
        };
        Image { log: medium(), ssd: medium() }
    }

    /// The version of its superblocks.
    pub fn version(&self) -> u32 {
        u32::from_le_bytes(self.ssd[8..12].try_into().expect("four bytes"))
    }

    /// What opens it.
    pub fn settings(&self) -> Settings {
        let bytes = self.ssd[SEGMENT_BYTES_AT..][..4].try_into().expect("four bytes");
        Settings { segment_bytes: u32::from_le_bytes(bytes), ..settings(None) }
    }

    /// Media that hold it.
    pub fn media(&self) -> (Media, Arc<SimRegion>, Arc<SimDisk>) {
        let power = Power::new(u64::MAX);
        let (log, ssd) = (self.log.clone(), self.ssd.clone());
        let region = Arc::new(SimRegion::from_image(log, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::from_image(ssd, power, 1, Faults::default()));
        (Media { region: region.clone(), ssd: ssd.clone() }, region, ssd)
    }
}

pub fn settings(index: Option<IndexKind>) -> Settings {
    Settings {
        split_bytes: 1024,
        segment_bytes: SEGMENT_BYTES,
        table_bytes: 4 << 10,
        migrate_percent: 60,
        checkpoint_bytes: 1 << 20,
        index,
        background: false,
        ..Settings::default()
    }
}

fn item(number: u64, salt: u64) -> (Vec<u8>, Vec<u8>, ItemMeta) {
    let bytes = if number.is_multiple_of(8) { 1100 } else { 120 };
    let value = format!("{number}:{salt};").bytes().cycle().take(bytes).collect();
    let meta = ItemMeta {
        flags: number as u32,
        expires_at_seconds: if number.is_multiple_of(5) { 1_900_000_000 } else { 0 },
        marks: (number % 4) as u16,
        cas: 1000 + number + salt,
    };
    (format!("key-{number:02}").into_bytes(), value, meta)
}

/// What is in an image.
pub fn items() -> Items {
    let known = (0..ITEMS).filter(|number| number % 6 != 1).map(|number| {
        // Some were written once more behind the checkpoint.
        item(number, u64::from(number % 6 == 2 || ITEMS - 2 <= number))
    });
    known.map(|(key, value, meta)| (key, (value, meta))).collect()
}

/// The same, written by this program: records of each kind, sort tables, checkpoints, and a log
/// behind them that was not closed.
pub fn make(index: IndexKind) -> Image {
    make_by(settings(Some(index)))
}

fn make_by(settings: Settings) -> Image {
    let tree = if settings.index == Some(IndexKind::Fair) { 256 << 10 } else { 0 };
    let log_bytes = 16 * settings.segment_bytes as usize;
    let blank = Image { log: vec![0; log_bytes.max(2 * tree)], ssd: vec![0; 512 << 10] };
    let (media, region, ssd) = blank.media();
    let (tier, _) =
        Tier::open(media, settings, 0x0123_4567_89ab_cdef, &mut |_, _| {}).expect("it is made");
    let put = |number, salt| {
        let (key, value, meta) = item(number, salt);
        tier.put(&key, &value, meta).expect("room");
    };
    put(0, 9);
    tier.flush_all().expect("room");
    (0..ITEMS - 2).for_each(|number| put(number, 0));
    for turn in 0..30 {
        tier.put(b"filler", &[turn; 900], ItemMeta::default()).expect("room");
    }
    tier.delete(b"filler").expect("room");
    while tier.migrate().expect("room") {}
    tier.checkpoint().expect("room");
    (0..ITEMS).filter(|number| number % 6 == 2).for_each(|number| put(number, 1));
    for number in (0..ITEMS).filter(|number| number % 6 == 1) {
        tier.delete(&item(number, 0).0).expect("room");
    }
    (ITEMS - 2..ITEMS).for_each(|number| put(number, 1));
    drop(tier);
    Image { log: region.image(), ssd: ssd.image() }
}

/// Keys that were deleted or flushed, or never acknowledged.
fn absent() -> Vec<Vec<u8>> {
    let deleted = (0..ITEMS).filter(|number| number % 6 == 1).map(|number| item(number, 0).0);
    deleted.chain([b"filler".to_vec()]).collect()
}

/// The same, gone on with by a program that may compress values, or whose log is longer: values
/// that compress well, before and behind a checkpoint, and small ones in segments that were begun
/// in the log as it is now. The image, and its manifest.
pub fn make_more(features: Features) -> (Image, String) {
    const PACKED: u64 = 8;
    let Features { index, compresses, is_log_long } = features;
    let segment_bytes = if is_log_long { 2 * SEGMENT_BYTES } else { SEGMENT_BYTES };
    let plain = Settings { segment_bytes, ..settings(Some(index)) };
    let mut image = make_by(plain);
    if is_log_long {
        image.log.resize(SEGMENTS_LONG * segment_bytes as usize, 0);
    }
    let (media, region, ssd) = image.media();
    let more = Settings { compress_from: compresses.then_some(1), ..plain };
    let (tier, _) = Tier::open(media, more, 1, &mut |_, _| {}).expect("it is whole");
    let mut items = items();
    let mut put = |key: String, value: Vec<u8>, flags| {
        let meta = ItemMeta { flags, ..ItemMeta::default() };
        tier.put(key.as_bytes(), &value, meta).expect("room");
        items.insert(key.into_bytes(), (value, meta));
    };
    let text = |number: u64, bytes| {
        let line = format!("{number}: all that is said is said again; ");
        line.bytes().cycle().take(bytes).collect::<Vec<u8>>()
    };
    for number in 0..PACKED {
        put(format!("packed-{number}"), text(number, 9000 + number as usize), number as u32);
        (0..4).for_each(|nth| put(format!("small-{number}-{nth}"), text(nth, 300), 0));
        if number == PACKED / 2 {
            tier.checkpoint().expect("room");
        }
    }
    assert_eq!(tier.stats().compressed_values, if compresses { PACKED } else { 0 });
    drop(tier);
    (Image { log: region.image(), ssd: ssd.image() }, written(&items, &absent()))
}

/// The manifest of an image that [`make`] makes.
pub fn manifest() -> String {
    written(&items(), &absent())
}

/// A line for each key of an image, in the order of the keys.
pub fn written(items: &Items, absent: &[Vec<u8>]) -> String {
    let mut lines: BTreeMap<&[u8], String> = BTreeMap::new();
    for (key, (value, meta)) in items {
        lines.insert(key, line(value, meta));
    }
    lines.extend(absent.iter().map(|key| (&key[..], "absent".to_string())));
    let mut text = String::from("# key: bytes, crc32c, flags, expiry, marks, CAS id\n");
    for (key, line) in lines {
        let _ = writeln!(text, "{}: {line}", key.escape_ascii());
    }
    text
}

/// What a manifest says of an item.
pub fn line(value: &[u8], meta: &ItemMeta) -> String {
    let ItemMeta { flags, expires_at_seconds, marks, cas } = meta;
    let crc = crc32c::crc32c(value);
    format!("{} {crc:08x} {flags} {expires_at_seconds} {marks} {cas}", value.len())
}

/// What is in a store.
pub fn found(tier: &Tier) -> Items {
    let all = tier.scan(b"", None, usize::MAX).into_iter();
    all.map(|(key, item)| item.map(|item| (key, (item.value, item.meta))).expect("whole")).collect()
}

/// Items of the group in whose midst the power fails.
const GROUP_ITEMS: u64 = 8;

/// Short ones, of a line of the log each, and longer ones.
fn of_group(number: u64) -> (Vec<u8>, Vec<u8>) {
    let bytes = if number % 3 == 2 { 200 } else { 1 };
    (format!("gr-{number}").into_bytes(), vec![number as u8 + 1; bytes])
}

/// Zeros, with a mark in each piece of 64 KiB: long, and short in the repository.
fn long(bytes: usize, salt: u8) -> Vec<u8> {
    let mut value = vec![0; bytes];
    value.iter_mut().step_by(64 << 10).for_each(|byte| *byte = salt);
    value.last_mut().into_iter().for_each(|byte| *byte = salt);
    value
}

/// A store of values of every kind: small ones in log and sort tables, a large one in several
/// extents, one of several pieces, some with an expiry, replaced, deleted and flushed, before and
/// behind a checkpoint; and the power fails in the midst of a group. What was acknowledged, what
/// has gone, and the image, in which some of the group is there and some is not.
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
pub fn make_cut(index: IndexKind) -> (Image, String) {
    let power = Power::new(u64::MAX);
    let tree = if index == IndexKind::Fair { 256 << 10 } else { 0 };
    let log = vec![0; (16 * SEGMENT_BYTES as usize).max(2 * tree)];
    let region = Arc::new(SimRegion::from_image(log, power.clone(), Faults::default()));
    let ssd = Arc::new(SimDisk::new(3 << 20, power.clone(), 1, Faults::default()));
    let media = Media { region: region.clone(), ssd: ssd.clone() };
    let (tier, _) = Tier::open(media, settings(Some(index)), 0xfeed_0123_4567_89ab, &mut |_, _| {})
        .expect("it is made");
    let mut items = Items::new();
    let put = |items: &mut Items, key: Vec<u8>, value: Vec<u8>, meta: ItemMeta| {
        tier.put(&key, &value, meta).expect("room");
        items.insert(key, (value, meta));
    };
    let mut gone = Vec::new();
    tier.put(b"flushed", b"value", ItemMeta::default()).expect("room");
    tier.flush_all().expect("room");
    gone.push(b"flushed".to_vec());
    let meta = |flags, expires_at_seconds| ItemMeta {
        flags,
        expires_at_seconds,
        marks: 1,
        cas: u64::from(flags) + 7,
    };
    put(&mut items, b"pieces".to_vec(), long(PIECE_BYTES + 100_003, 3), meta(1, 0));
    // Gaps of a block each, and little room elsewhere.
    let gap = |number: u64| format!("gap-{number:02}").into_bytes();
    (0..12).for_each(|number| put(&mut items, gap(number), long(1100, 5), meta(2, 1_900_000_000)));
    let free_blocks = tier.stats().ssd_free_bytes as usize / BLOCK_BYTES;
    let filler = vec![0; (free_blocks - 3) * BLOCK_BYTES];
    tier.put(b"filler", &filler, ItemMeta::default()).expect("room");
    for number in (0..12).step_by(2) {
        tier.delete(&gap(number)).expect("room");
        items.remove(&gap(number));
        gone.push(gap(number));
    }
    put(&mut items, b"extents".to_vec(), long(5 * BLOCK_BYTES - 9, 7), meta(3, 0));
    tier.delete(b"filler").expect("room");
    gone.push(b"filler".to_vec());
    for number in 0..16 {
        let (key, value, meta) = item(number, 0);
        put(&mut items, key, value, meta);
    }
    // Segments that are over, of which nothing else is left.
    for _ in 0..30 {
        tier.put(b"churn", &[0; 900], ItemMeta::default()).expect("room");
    }
    tier.delete(b"churn").expect("room");
    gone.push(b"churn".to_vec());
    while tier.migrate().expect("room") {}
    tier.checkpoint().expect("room");
    for number in 12..20 {
        let (key, value, meta) = item(number, 1);
        put(&mut items, key, value, meta);
    }
    tier.delete(&item(3, 0).0).expect("room");
    items.remove(&item(3, 0).0);
    gone.push(item(3, 0).0);
    put(&mut items, b"empty".to_vec(), Vec::new(), meta(4, 1_900_000_001));
    for (key, value) in (0..GROUP_ITEMS).map(of_group) {
        tier.submit_put(&key, &value, ItemMeta::default(), None).expect("room");
    }
    power.restore(0);
    assert!(tier.commit().is_err(), "the power has failed");
    drop(tier);
    let kept = |seed| {
        let image = Image { log: region.crash_image(seed), ssd: ssd.crash_image(seed ^ 0x55) };
        let (tier, _) = Tier::open(image.media().0, settings(None), 1, &mut |_, _| {}).ok()?;
        let found = found(&tier);
        let of_group = (0..GROUP_ITEMS).map(of_group).filter(|(key, _)| found.contains_key(key));
        let kept = of_group.count() as u64;
        (2..GROUP_ITEMS).contains(&kept).then_some((image, found))
    };
    let (image, found) = (0..100_000).find_map(kept).expect("some of the group is kept");
    for (key, value) in (0..GROUP_ITEMS).map(of_group) {
        match found.contains_key(&key) {
            true => drop(items.insert(key, (value, ItemMeta::default()))),
            false => gone.push(key),
        }
    }
    assert!(found == items, "what was acknowledged is there");
    let manifest = written(&items, &gone);
    (image, manifest)
}
