//! The log that QEMU's `blklogwrites` keeps of a disk's writes and flushes, in the order in which
//! they came to their end.
//!
//! The format is that of Linux's dm-log-writes: a sector with magic, version, number of entries and
//! size of a sector; then, for each entry, a sector that says where and how much, and its data. The
//! number is brought up to date at flushes only, so what is behind it is read as far as there is
//! anything: a machine that was killed has written that, too.

use crate::random;
use fastrand::Rng;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1 << 0;
/// Never seen: QEMU makes a flush of it.
const FUA: u64 = 1 << 1;
/// Where the logs begin.
const SECTOR_BYTES_MIN: u64 = 512;
/// What a disk writes in one piece.
const ATOM_BYTES: usize = 512;

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Where on the disk.
    pub at: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// What a disk was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// To write.
    Write(Write),
    /// To make everything before durable.
    Flush,
}

/// How much of a write that was never flushed a disk has kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All of it.
    Kept,
    /// Nothing.
    Dropped,
    /// Some of its sectors, by this seed.
    Torn(u64),
}

impl Fate {
    /// Any of them.
    pub fn draw(random: &mut Rng) -> Fate {
        match random.usize(..3) {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            _ => Fate::Torn(random.u64(..)),
        }
    }

    /// The parts of a write that are there.
    pub fn parts(self, write: &Write) -> impl Iterator<Item = (u64, &[u8])> {
        let mut random = match self {
            Fate::Torn(seed) => random::stream(seed, write.at),
            _ => random::stream(0, 0),
        };
        let pieces = (write.at..).step_by(ATOM_BYTES).zip(write.bytes.chunks(ATOM_BYTES));
        pieces.filter(move |_| match self {
            Fate::Kept => true,
            Fate::Dropped => false,
            Fate::Torn(_) => random::chance(&mut random, 5_000),
        })
    }
}

/// Reads the log of a disk of this size.
pub fn read(path: &Path, disk_bytes: u64) -> Result<Vec<Entry>, String> {
    let told = |why: String| format!("{}: {why}", path.display());
    let file = File::open(path).map_err(|error| told(error.to_string()))?;
    parse(|at, into| file.read_exact_at(into, at), disk_bytes).map_err(told)
}

fn parse(
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    disk_bytes: u64,
) -> Result<Vec<Entry>, String> {
    let words = |at: u64| -> io::Result<[u64; 4]> {
        let mut bytes = [0; 32];
        read(at, &mut bytes)?;
        let word = |index: usize| {
            let word = bytes[8 * index..8 * index + 8].try_into();
            u64::from_le_bytes(word.expect("8 bytes of 32"))
        };
        Ok([0, 1, 2, 3].map(word))
    };
    let [magic, version, count, sector_bytes] =
        words(0).map_err(|error| format!("no superblock: {error}"))?;
    let sector_bytes = sector_bytes & u64::from(u32::MAX);
    if (magic, version) != (MAGIC, VERSION) || sector_bytes < SECTOR_BYTES_MIN {
        return Err("not a log of writes, version 1 (was nothing ever flushed?)".into());
    }
    let mut entries = Vec::new();
    let mut at = sector_bytes;
    for number in 0.. {
        let counted = number < count;
        let header = words(at);
        let [sector, sectors, flags, _] = match header {
            Ok([0, 0, 0, _]) | Err(_) if !counted => return Ok(entries),
            Ok([0, 0, 0, _]) => return Err(format!("entry {number} is missing")),
            header => header.map_err(|error| format!("entry {number}: {error}"))?,
        };
        let [start, bytes] = [sector, sectors].map(|count| count.saturating_mul(sector_bytes));
        if flags & !(FLUSH | FUA) != 0 || disk_bytes < start.saturating_add(bytes) {
            return Err(format!(
                "entry {number}: flags {flags:#x}, sector {sector}, {sectors} sectors: impossible"
            ));
        }
        at += sector_bytes;
        if 0 < bytes {
            let mut data = vec![0; bytes as usize];
            match read(at, &mut data) {
                Ok(()) => entries.push(Entry::Write(Write { at: start, bytes: data })),
                Err(_) if !counted => return Ok(entries),
                Err(error) => return Err(format!("entry {number}: {error}")),
            }
            at += bytes;
        }
        if flags & FLUSH != 0 {
            entries.push(Entry::Flush);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = 1 << 20;

    fn log(count: u64, entries: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sector = |words: [u64; 4], data: usize| {
            let end = bytes.len() + 512;
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            bytes.resize(end, 0);
            bytes.resize(end + data, 7);
        };
        sector([MAGIC, VERSION, count, 512], 0);
        for &(at, sectors, flags) in entries {
            sector([at, sectors, flags, 0], sectors as usize * 512);
        }
        bytes
    }

    fn parsed(bytes: &[u8]) -> Result<Vec<Entry>, String> {
        let read = |at: u64, into: &mut [u8]| {
            let found = bytes.get(at as usize..at as usize + into.len());
            found
                .map(|found| into.copy_from_slice(found))
                .ok_or(io::ErrorKind::UnexpectedEof.into())
        };
        parse(read, DISK_BYTES)
    }

    fn write(at: u64, bytes: usize) -> Entry {
        Entry::Write(Write { at, bytes: vec![7; bytes] })
    }

    #[test]
    fn entries_are_read_as_far_as_there_are_any() {
        let mut bytes = log(2, &[(8, 2, 0), (0, 0, FLUSH), (1, 1, 0)]);
        let whole = [write(4096, 1024), Entry::Flush, write(512, 512)];
        assert_eq!(parsed(&bytes).unwrap(), whole, "beyond the count, to the end of the file");
        bytes.truncate(bytes.len() - 1);
        assert_eq!(parsed(&bytes).unwrap(), whole[..2], "the last one is not whole");
        bytes.resize(bytes.len() + 4096, 0);
        assert!(parsed(&log(2, &[(8, 2, 0), (0, 0, FLUSH)])).unwrap() == whole[..2]);
    }

    #[test]
    fn a_log_that_makes_no_sense_is_refused() {
        assert!(parsed(&[0; 4096]).unwrap_err().contains("not a log"));
        assert!(parsed(&log(3, &[(8, 2, 0)])).is_err(), "entries are missing");
        assert!(parsed(&log(1, &[(8, 2, 1 << 2)])).is_err(), "a discard");
        assert!(parsed(&log(1, &[(u64::MAX / 2, 1, 0)])).is_err(), "beyond the disk");
        assert!(parsed(&log(1, &[(2047, 2, 0)])).is_err(), "half beyond the disk");
    }

    #[test]
    fn a_torn_write_is_there_in_part_and_always_in_the_same_part() {
        let write = Write { at: 4096, bytes: vec![7; 64 * ATOM_BYTES] };
        let count = |fate: Fate| fate.parts(&write).count();
        assert_eq!((count(Fate::Kept), count(Fate::Dropped)), (64, 0));
        let torn = count(Fate::Torn(9));
        assert!(0 < torn && torn < 64 && torn == count(Fate::Torn(9)));
        let (at, bytes) = Fate::Kept.parts(&write).last().unwrap();
        assert_eq!((at, bytes.len()), (4096 + 63 * 512, 512));
    }
}
