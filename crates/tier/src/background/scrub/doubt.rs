//! Looks at an item by itself that did not verify when it was read among others: another item may
//! lie at its place by now, which is no damage.

use super::window::{Owner, Part, Unit};
use crate::index::{Entry, Home, What};
use crate::reading::read::verified;
use crate::ssd::large::read_piece;
use crate::ssd::pointer::Pointer;
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Result};

/// A block that a device refused to give, and what it said: there may be many records in it, for
/// each of which it would be asked again, for seconds.
pub struct Refused {
    block: Home,
    why: String,
}

impl Refused {
    /// That in which this begins.
    pub fn of(unit: &Unit, why: String) -> Refused {
        Refused { block: block_of(unit.home), why }
    }

    /// What the device said, if this record is in that block and still is what counts.
    pub fn why(&self, shared: &Shared, owner: Owner<'_>, unit: &Unit) -> Option<String> {
        let Owner::Item { key } = owner else { return None };
        if unit.part != Part::Record || self.block != block_of(unit.home) {
            return None;
        }
        let is_there = |now: &Entry| now.sequence == unit.number && now.home == unit.home;
        shared.index.get(key).filter(is_there).map(|_| self.why.clone())
    }
}

fn block_of(home: Home) -> Home {
    Home::from_raw(home.raw() - home.raw() % BLOCK_BYTES as u64)
}

/// How often an item may move while it is looked at. Who moves one has verified it.
const TRIES: usize = 64;

/// Whether it is whole, or is not current any more. An error: a device does not give it.
pub fn is_there(shared: &Shared, owner: Owner<'_>, unit: &Unit) -> Result<bool> {
    let (key, sequence) = match owner {
        Owner::Item { key } => (key, unit.number),
        Owner::Checkpoint { body, .. } => return is_checkpoint_whole(shared, body, unit.part),
    };
    for _ in 0..TRIES {
        let Some(now) = shared.index.get(key).filter(|now| now.sequence == sequence) else {
            return Ok(true); // it was replaced
        };
        let read = match (unit.part, &now.what) {
            // Who moved it has found it so.
            (_, What::Lost) => return Ok(false),
            (Part::Record, What::Small { .. } | What::Large(_)) => {
                let bytes = shared.read_record(now.home, now.record_bytes as usize);
                bytes.map(|bytes| verified(&bytes, key, sequence).is_some())
            }
            (Part::Piece { piece, .. }, What::Large(large)) => {
                let Some(_held) = shared.hold(key, &now, large) else { continue };
                match large.bytes_waiting() {
                    Some(_) => Ok(true),
                    None => read_piece(&*shared.ssd, large, piece as usize).map(|it| it.is_some()),
                }
            }
            _ => return Ok(true), // it was deleted
        };
        match read {
            Ok(true) => return Ok(true),
            read if shared.index.get(key).as_ref() == Some(&now) => return read,
            _ => {}
        }
    }
    Ok(true)
}

fn is_checkpoint_whole(shared: &Shared, body: &Pointer, part: Part) -> Result<bool> {
    let Part::Piece { piece, .. } = part else { return Ok(true) };
    let read = read_piece(&*shared.ssd, body, piece as usize).map(|piece| piece.is_some());
    // Its blocks are used again once a superblock names it no more.
    let is_named = shared.maintenance().checkpoints.iter().any(|named| named.body == *body);
    if is_named { read } else { Ok(true) }
}

/// What it is, at the beginning of a sentence of what is wrong with it; of a value in so many
/// pieces.
pub fn what(owner: Owner<'_>, unit: &Unit, pieces: usize) -> String {
    match (owner, unit.part) {
        (Owner::Checkpoint { age, .. }, _) => format!("checkpoint {age} (0 is the newest): it"),
        (Owner::Item { .. }, Part::Record) if unit.home.is_ssd() => {
            "its record in a sort table".into()
        }
        (Owner::Item { .. }, Part::Record) => "its record in the log".into(),
        (Owner::Item { .. }, Part::Piece { piece, .. }) => match pieces {
            1 => "its value on the SSD".into(),
            pieces => format!("piece {piece} of {pieces} of its value on the SSD"),
        },
    }
}
