//! What the golden images hold, and how they lie in the repository: the lines of both media that
//! are not zeros.

use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::{IndexKind, ItemMeta, Media, Settings, Tier};
use std::collections::BTreeMap;
use std::sync::Arc;

const LINE_BYTES: usize = 64;
const SEGMENT_BYTES: u32 = 8 << 10;
const ITEMS: u64 = 24;

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
    let tree = if index == IndexKind::Fair { 256 << 10 } else { 0 };
    let log_bytes = 16 * SEGMENT_BYTES as usize;
    let blank = Image { log: vec![0; log_bytes.max(2 * tree)], ssd: vec![0; 512 << 10] };
    let (media, region, ssd) = blank.media();
    let (tier, _) = Tier::open(media, settings(Some(index)), 0x0123_4567_89ab_cdef, &mut |_, _| {})
        .expect("it is made");
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
