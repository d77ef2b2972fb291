//! Fuzzes recovery: a store's media with bytes changed anywhere.
//!
//! The input is a list of changes, six bytes each: which medium and where (three bytes, a bit),
//! how many bytes, and with what. What is checked: opening never panics; a key holds a value that
//! it once held, nothing, or is said to be lost; an older value than the newest is served only
//! where recovery said that something is damaged; and the store then takes writes or says why not.

#![no_main]

use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::{Error, ItemMeta, Media, Settings, Tier};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

const LOG_BYTES: usize = 8 * 16 * 1024;
const SSD_BYTES: usize = 512 * 1024;
const KEYS: u64 = 40;
const ROUNDS: u64 = 5;
const CHANGE_BYTES: usize = 6;

struct Machine {
    region: Arc<SimRegion>,
    ssd: Arc<SimDisk>,
}

impl Machine {
    fn of(log: Vec<u8>, ssd: Vec<u8>) -> Machine {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::from_image(log, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::from_image(ssd, power, 1, Faults::default()));
        Machine { region, ssd }
    }

    fn open(&self) -> Result<(Tier, Vec<String>), Error> {
        let settings = Settings {
            split_bytes: 1024,
            segment_bytes: 16 << 10,
            compress_from: Some(1),
            table_bytes: 8 << 10,
            checkpoint_bytes: 1 << 20,
            index: None,
            background: false,
            ..Settings::default()
        };
        let media = Media { region: self.region.clone(), ssd: self.ssd.clone() };
        let (tier, report) = Tier::open(media, settings, 77, &mut |_, _| {})?;
        Ok((tier, report.problems))
    }
}

fn value(key: u64, round: u64) -> Vec<u8> {
    // Some are large, and of these some are compressed.
    let bytes = match key % 8 {
        0 => 1500,
        4 => 9000,
        _ => 100 + key,
    };
    (0..bytes).map(|at| (key * 7 + round * 13 + at) as u8).collect()
}

/// A store with everything in it: large values, compressed ones among them, sort tables,
/// tombstones, checkpoints, a tail.
static STORE: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let machine = Machine::of(vec![0; LOG_BYTES], vec![0; SSD_BYTES]);
    let (tier, _) = machine.open().expect("the media are sound");
    for round in 0..ROUNDS {
        for key in 0..KEYS {
            let (name, meta) = (key.to_le_bytes(), ItemMeta::default());
            tier.put(&name, &value(key, round), meta).expect("there is room");
        }
        tier.migrate().expect("there is room");
        if round % 2 == 0 {
            tier.checkpoint().expect("there is room");
        }
        tier.delete(&(KEYS + round).to_le_bytes()).expect("there is room");
    }
    (machine.region.image(), machine.ssd.image())
});

fuzz_target!(|input: &[u8]| {
    let (mut log, mut ssd) = STORE.clone();
    let mut changed = false;
    for change in input.chunks_exact(CHANGE_BYTES) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let image = if change[3] & 1 == 0 { &mut log } else { &mut ssd };
        let at = place % image.len();
        let end = (at + 1 + usize::from(change[3] >> 1)).min(image.len());
        for byte in &mut image[at..end] {
            let new = if change[4] == 0 { *byte ^ change[5] } else { change[5] };
            changed |= *byte != new;
            *byte = new;
        }
    }
    let Ok((tier, problems)) = Machine::of(log, ssd).open() else {
        assert!(changed, "a sound store opens");
        return;
    };
    for key in 0..KEYS {
        match tier.get(&key.to_le_bytes()) {
            Ok(Some(item)) => {
                let round = (0..ROUNDS).find(|round| item.value == value(key, *round));
                let round = round.expect("a key holds what it once held");
                assert!(changed || round == ROUNDS - 1, "a sound store is whole: {problems:?}");
            }
            Ok(None) => assert!(changed, "a sound store is whole"),
            Err(Error::Lost { .. }) => assert!(changed, "a sound store loses nothing"),
            Err(error) => panic!("the medium is sound: {error}"),
        }
    }
    for key in 0..8_u64 {
        if tier.put(&key.to_le_bytes(), &value(key, 0), ItemMeta::default()).is_ok() {
            let item = tier.get(&key.to_le_bytes()).expect("just written").expect("just written");
            assert_eq!(item.value, value(key, 0));
        }
    }
    let _ = tier.maintain();
    let _ = tier.checkpoint();
});
