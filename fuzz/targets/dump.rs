//! Fuzzes dumps of a store: arbitrary bytes, and a whole dump with bytes changed, cut off or put
//! in, read into an empty store.
//!
//! An input that begins with 0 is a dump as it is; any other is a list of changes of four bytes:
//! where (two bytes), how many bytes less, and with what. What is checked: nothing panics; what is
//! said to be loaded is there; and of a dump that was changed nothing is there that was not in it,
//! for each record has a checksum.

#![no_main]

use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::dump::{dump, load};
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::{ItemMeta, Media, Settings, Tier};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, LazyLock};

const LOG_BYTES: usize = 8 * 16 * 1024;
const SSD_BYTES: usize = 512 * 1024;
const KEYS: u64 = 12;

fn store() -> Tier {
    let power = Power::new(u64::MAX);
    let log = vec![0; LOG_BYTES];
    let region = Arc::new(SimRegion::from_image(log, power.clone(), Faults::default()));
    let ssd = Arc::new(SimDisk::from_image(vec![0; SSD_BYTES], power, 1, Faults::default()));
    let settings = Settings {
        split_bytes: 1024,
        segment_bytes: 16 << 10,
        table_bytes: 8 << 10,
        checkpoint_bytes: 1 << 20,
        index: None,
        background: false,
        ..Settings::default()
    };
    Tier::open(Media { region, ssd }, settings, 77, &mut |_, _| {}).expect("it is new").0
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; if key.is_multiple_of(4) { 1500 } else { 20 }]
}

static DUMP: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let tier = store();
    for key in 0..KEYS {
        tier.put(&key.to_le_bytes(), &value(key), ItemMeta::default()).expect("there is room");
    }
    let mut bytes = Vec::new();
    assert_eq!(dump(&tier, &mut bytes).expect("it is written").items, KEYS);
    bytes
});

fuzz_target!(|input: &[u8]| {
    if let Some((0, raw)) = input.split_first() {
        let tier = store();
        if let Ok(items) = load(&tier, &mut &raw[..]) {
            assert!(tier.scan(&[], None, 1 << 16).len() as u64 <= items);
        }
        return;
    }
    let mut bytes = DUMP.clone();
    for change in input.chunks_exact(4) {
        let &[low, high, less, with] = change else { unreachable!() };
        let at = usize::from(u16::from_le_bytes([low, high])) % (bytes.len() + 1);
        let end = (at + usize::from(less)).min(bytes.len());
        bytes.splice(at..end, [with]);
    }
    let tier = store();
    let loaded = load(&tier, &mut &bytes[..]);
    assert!(loaded.is_ok() || bytes != *DUMP, "a whole dump is read");
    for (key, item) in tier.scan(&[], None, 1 << 16) {
        let number = key[..].try_into().map(u64::from_le_bytes).expect("a key that was dumped");
        assert_eq!(item.expect("the media are sound").value, value(number), "{number}");
    }
});
