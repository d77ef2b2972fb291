//! Cells: a key of any length and what it leads to, out of line, written once.
//!
//! Departs from the log's records as the place of keys: a record moves to the SSD, where a
//! comparison of keys would wait for a device.

use super::part::{LINE, Part, Step};
use crate::types::KEY_BYTES_MAX;
use crc32c::crc32c;
use std::io;

/// Length 4, crc of the rest 4, length of the key 2.
const HEAD_BYTES: usize = 10;

/// The lines of a cell.
pub fn lines_of(key_bytes: usize, payload_bytes: usize) -> u64 {
    ((HEAD_BYTES + key_bytes + payload_bytes) as u64).div_ceil(LINE)
}

/// A cell that was read, and is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Where it lies.
    pub at: u64,
    /// How many lines it takes.
    pub lines: u64,
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

/// Writes a cell where nothing leads to yet, and starts its way out.
pub fn write(part: &Part, at: u64, key: &[u8], payload: &[u8]) -> io::Result<()> {
    let bytes = HEAD_BYTES + key.len() + payload.len();
    let mut out = vec![0; 8];
    out[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(payload);
    let crc = crc32c(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    part.write(at, &out)?;
    part.flush(at, bytes as u64, Step::Cell)
}

/// Reads the cell at an offset of the heap, which ends at `end`.
pub fn read(part: &Part, at: u64, end: u64) -> Option<Cell> {
    let head = part.load(at);
    let (bytes, crc) = (head as u32 as usize, (head >> 32) as u32);
    if bytes < HEAD_BYTES || end < at + bytes as u64 {
        return None;
    }
    let mut body = part.read(at + 8, bytes - 8);
    if crc32c(&body) != crc {
        return None;
    }
    let key_bytes = usize::from(u16::from_le_bytes([body[0], body[1]]));
    if body.len() < 2 + key_bytes {
        return None;
    }
    let payload = body.split_off(2 + key_bytes);
    body.drain(..2);
    Some(Cell { at, lines: (bytes as u64).div_ceil(LINE), key: body, payload })
}

/// The key of a cell that an entry leads to: not verified, so that a search costs no crc.
pub fn key(part: &Part, at: u64, end: u64) -> Option<Vec<u8>> {
    let key_bytes = part.load(at + 8) as usize & 0xffff;
    let fits = key_bytes <= KEY_BYTES_MAX && at + (HEAD_BYTES + key_bytes) as u64 <= end;
    fits.then(|| part.read(at + HEAD_BYTES as u64, key_bytes))
}
