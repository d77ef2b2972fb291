//! Reads places on the media and verifies that they hold what the index said of them. It changes
//! nothing, so several threads may do it at once, each with places of its own.

use super::window::{Owner, Part, Places, Unit};
use crate::media::fetch::Wanted;
use crate::reading::read::verified;
use crate::store::Shared;
use crc32c::crc32c;
use std::ops::Range;

/// The most that is read at a time, and so the room that a thread keeps to read into.
pub const AT_ONCE_BYTES: usize = 4 << 20;

/// What is known of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It could not be read, or it holds something else than the index said.
    Nothing,
    /// It is whole.
    Whole,
    /// It is one part of a piece and has this crc. Whether it is whole depends on the other parts.
    Part(u32),
}

/// What was seen of some places.
pub struct Checked {
    /// What was seen of each, in their order.
    pub seen: Vec<Seen>,
    /// Bytes that were read.
    pub bytes: u64,
}

/// Reads and verifies the places of this range. Neighbours are read together.
pub fn check(shared: &Shared, places: &Places, batch: Range<usize>) -> Checked {
    let units = &places.units[batch];
    let mut seen = vec![Seen::Nothing; units.len()];
    let (mut wanted, mut read_bytes) = (Vec::with_capacity(units.len()), 0);
    for (number, unit) in units.iter().enumerate() {
        let bytes = unit.bytes as usize;
        if unit.home.is_ssd() || shared.region.disk().is_some() {
            wanted.push(Wanted { home: unit.home, bytes, what: number });
            continue;
        }
        read_bytes += u64::from(unit.bytes);
        if let Ok(record) = shared.read_record(unit.home, bytes) {
            seen[number] = seen_of(places, unit, &record);
        }
    }
    read_bytes += shared.fetch_keeping(
        AT_ONCE_BYTES,
        wanted,
        || {},
        |&number, bytes| seen[number] = seen_of(places, &units[number], bytes),
    );
    Checked { seen, bytes: read_bytes }
}

/// Whether these bytes are what the index says, as far as they alone can tell.
fn seen_of(places: &Places, unit: &Unit, bytes: &[u8]) -> Seen {
    let is_whole = match unit.part {
        Part::Record => match places.owner(unit) {
            Owner::Item { key } => verified(bytes, key, unit.number).is_some(),
            Owner::Checkpoint { .. } => false,
        },
        Part::Piece { parts, .. } if 1 < parts.get() => return Seen::Part(crc32c(bytes)),
        Part::Piece { crc, .. } => crc32c(bytes) == crc,
    };
    if is_whole { Seen::Whole } else { Seen::Nothing }
}
