//! Cells: a key of any length and what it leads to, out of line, written once.
//!
//! A cell that is longer than a line is a chain of lines, each with where the next is in its last 8
//! bytes, so that a cell needs no lines that lie together and memory never lies too badly for one.
//!
//! It departs from the log's records as the place of keys: a record moves to the SSD, where a
//! comparison of keys would wait for a device.

use super::part::{LINE, Part, Step};
use crate::types::KEY_BYTES_MAX;
use crc32c::crc32c;
use std::io;

/// Length 4, crc of the rest 4, length of the key 2.
const HEAD_BYTES: usize = 10;
/// No cell is longer: the longest key, and a pointer to a value in the most pieces and extents.
const BYTES_MAX: usize = 8 << 10;
/// The lines of the longest.
pub const LINES_MAX: u64 = BYTES_MAX.div_ceil(LINK_AT) as u64;

/// What a line of a chain holds besides where the next is.
const LINK_AT: usize = LINE as usize - 8;

/// The lines of a cell.
pub fn lines_of(key_bytes: usize, payload_bytes: usize) -> u64 {
    lines_of_bytes(HEAD_BYTES + key_bytes + payload_bytes)
}

fn lines_of_bytes(bytes: usize) -> u64 {
    if bytes <= LINE as usize { 1 } else { bytes.div_ceil(LINK_AT) as u64 }
}

/// A cell that was read, and is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Where it lies.
    pub at: u64,
    /// Where its lines lie; the first is `at`.
    pub lines: Vec<u64>,
    /// Its key.
    pub key: Vec<u8>,
    /// What the key leads to.
    pub payload: Vec<u8>,
}

/// The first 8 bytes of a key as a number of the same order.
pub fn prefix_of(key: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = key.len().min(8);
    word[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(word)
}

/// Writes a cell in lines that nothing leads to yet, and starts its way out.
pub fn write(part: &Part, lines: &[u64], key: &[u8], payload: &[u8]) -> io::Result<()> {
    let bytes = HEAD_BYTES + key.len() + payload.len();
    let mut out = vec![0; 8];
    out[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(payload);
    let crc = crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    let held = if lines.len() == 1 { LINE as usize } else { LINK_AT };
    for (index, data) in out.chunks(held).enumerate() {
        let mut line = data.to_vec();
        if let Some(next) = lines.get(index + 1) {
            line.extend_from_slice(&next.to_le_bytes());
        }
        part.write(lines[index], &line)?;
        part.flush(lines[index], LINE, Step::Cell)?;
    }
    Ok(())
}

/// The first `wanted` of the bytes of the cell at an offset, and the lines they lie in. `holds`
/// says where lines may be.
fn gather(
    part: &Part,
    at: u64,
    wanted: usize,
    holds: impl Fn(u64) -> bool,
) -> Option<(Vec<u8>, Vec<u64>)> {
    if !holds(at) {
        return None;
    }
    let bytes = part.load(at) as u32 as usize;
    if !(HEAD_BYTES..=BYTES_MAX).contains(&bytes) {
        return None;
    }
    let held = if lines_of_bytes(bytes) == 1 { LINE as usize } else { LINK_AT };
    let wanted = wanted.min(bytes);
    let (mut out, mut lines, mut line) = (Vec::with_capacity(wanted), vec![at], at);
    loop {
        out.extend(part.read(line, held.min(wanted - out.len())));
        if out.len() == wanted {
            return Some((out, lines));
        }
        line = part.load(line + LINK_AT as u64);
        if !holds(line) {
            return None;
        }
        lines.push(line);
    }
}

/// Reads the cell at an offset.
pub fn read(part: &Part, at: u64, holds: impl Fn(u64) -> bool) -> Option<Cell> {
    let (bytes, lines) = gather(part, at, BYTES_MAX, holds)?;
    let crc = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    if crc32c(&bytes[8..]) != crc {
        return None;
    }
    let key_bytes = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let body = &bytes[HEAD_BYTES..];
    let (key, payload) = body.split_at_checked(key_bytes)?;
    Some(Cell { at, lines, key: key.to_vec(), payload: payload.to_vec() })
}

/// The key of a cell that an entry leads to: not verified, so that a search costs no crc.
pub fn key(part: &Part, at: u64, holds: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
    let key_bytes = holds(at).then(|| part.load(at + 8) as usize & 0xffff)?;
    let (mut bytes, _) = gather(part, at, HEAD_BYTES + key_bytes, holds)?;
    (bytes.len() == HEAD_BYTES + key_bytes && key_bytes <= KEY_BYTES_MAX).then(|| {
        bytes.drain(..HEAD_BYTES);
        bytes
    })
}
