//! What a disk may hold after the power was cut, at any moment of a run that was logged.
//!
//! At every flush there is one certain state; between two flushes any part of what was written
//! since may be there, sector by sector. The store is opened on such states and compared with what
//! had been acknowledged by then: the writer notes its acknowledgements on the same disk, so the
//! log's order says what came before what. States that no sound disk leaves are the control: a
//! check that finds nothing wrong with them would find nothing.

use super::workload::{self, Expected, LOG_BYTES, Life, SSD_BYTES, Workload};
use super::writes::{Entry, Fate, Write};
use crate::random;
use fastrand::Rng;
use std::ops::Range;

const MIB: u64 = 1 << 20;
/// Where the partitions begin: the log, the SSD, acknowledgements, the SSD of another store.
const PARTITIONS: [Range<u64>; 4] = [
    MIB..MIB + LOG_BYTES,
    2 * MIB..2 * MIB + SSD_BYTES,
    19 * MIB..20 * MIB,
    20 * MIB..20 * MIB + SSD_BYTES,
];
/// The last partition where it holds a file system with log and SSD in it.
const FILES_BYTES: u64 = 48 * MIB;
/// The size of the disk.
pub const DISK_BYTES: u64 = 72 * MIB;
const SECTOR_BYTES: u64 = 512;
/// How far back a disk that ignores flushes may have lost something.
const IGNORED_FLUSHES: usize = 30;
/// Tell the draws of states between flushes, and of the second control, from others.
const BEYOND: u64 = 1 << 62;
const IGNORED: u64 = 1 << 61;

/// What came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Flushes of the log that had something to flush.
    pub flushes: usize,
    /// States as of a flush that held what was acknowledged.
    pub at_flushes: usize,
    /// States between flushes that did.
    pub between: usize,
    /// States without what one flush should have kept, and how many of them were found wanting.
    pub dropped: Caught,
    /// States of a disk that ignores flushes, the same.
    pub ignored: Caught,
}

/// Of a control: how many states there were, and how many were found wanting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caught {
    /// States.
    pub states: usize,
    /// Found wanting.
    pub caught: usize,
}

impl Caught {
    fn count(&mut self, found: &Result<(), String>) {
        self.states += 1;
        self.caught += usize::from(found.is_err());
    }
}

/// The two media of a store.
#[derive(Clone)]
struct Images {
    log: Vec<u8>,
    ssd: Vec<u8>,
}

impl Images {
    fn empty() -> Images {
        Images { log: vec![0; LOG_BYTES as usize], ssd: vec![0; SSD_BYTES as usize] }
    }

    fn apply(&mut self, write: &Write, fate: Fate) {
        for (at, bytes) in fate.parts(write) {
            for (range, image) in PARTITIONS.iter().zip([&mut self.log, &mut self.ssd]) {
                if range.contains(&at) {
                    let at = (at - range.start) as usize;
                    image[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
    }

    /// Whether a store opens there and holds what was acknowledged.
    fn check(self, workload: Workload, acknowledged: u64) -> Result<(), String> {
        let tier = workload::open(self.log, self.ssd)?;
        let life = Life { first: 1, acknowledged };
        Expected::after(workload, &[life]).check(&tier).map(drop)
    }
}

/// What was written to the store between two flushes, and what had been acknowledged before each
/// of these writes.
#[derive(Default)]
struct Step<'a> {
    writes: Vec<(&'a Write, u64)>,
    /// What was acknowledged when the next step's first write came.
    acknowledged: u64,
}

impl Step<'_> {
    fn acknowledged_before(&self) -> u64 {
        self.writes.first().map_or(self.acknowledged, |(_, acknowledged)| *acknowledged)
    }
}

/// The steps of a log, and at their end what came after the last flush.
fn steps(entries: &[Entry]) -> Vec<Step<'_>> {
    let store = PARTITIONS[0].start..PARTITIONS[1].end;
    let mut steps = vec![Step::default()];
    let mut flushed = false;
    for entry in entries {
        let last = steps.len() - 1;
        match entry {
            Entry::Flush => flushed |= !steps[last].writes.is_empty(),
            Entry::Write(write) if write.at == PARTITIONS[2].start => {
                let number = write.bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                steps[last].acknowledged = number;
            }
            Entry::Write(write) if store.contains(&write.at) => {
                let acknowledged = steps[last].acknowledged;
                if std::mem::take(&mut flushed) {
                    steps.push(Step { acknowledged, ..Step::default() });
                }
                let last = steps.len() - 1;
                steps[last].writes.push((write, acknowledged));
            }
            Entry::Write(_) => {}
        }
    }
    if flushed {
        let acknowledged = steps[steps.len() - 1].acknowledged;
        steps.push(Step { acknowledged, ..Step::default() });
    }
    steps
}

/// True for `wanted` of `of` indices, evenly spread.
fn is_chosen(index: usize, wanted: usize, of: usize) -> bool {
    index * wanted / of != (index + 1) * wanted / of
}

/// Opens `wanted` states of each kind, and the controls.
pub fn replay(
    entries: &[Entry],
    workload: Workload,
    wanted: usize,
    controls: usize,
) -> Result<Tally, String> {
    let steps = steps(entries);
    let flushes = steps.len() - 1;
    // Only the last can be without.
    let written = steps.iter().filter(|step| !step.writes.is_empty()).count();
    let mut tally = Tally { flushes, ..Tally::default() };
    let mut durable = Images::empty();
    for (index, step) in steps.iter().enumerate() {
        if index < written && is_chosen(index, wanted, written) {
            let mut random = random::stream(workload.seed ^ BEYOND, index as u64);
            let (images, acknowledged) = between(&durable, step, &mut random);
            images.check(workload, acknowledged).map_err(|why| {
                format!(
                    "between flushes {index} and {}: {acknowledged} acknowledged: {why}",
                    index + 1
                )
            })?;
            tally.between += 1;
        }
        if index == flushes {
            break;
        }
        if is_chosen(index, controls, flushes) && step.acknowledged_before() < step.acknowledged {
            tally.dropped.count(&durable.clone().check(workload, step.acknowledged));
            tally.ignored.count(&without_flushes(&steps[..=index], workload));
        }
        step.writes.iter().for_each(|(write, _)| durable.apply(write, Fate::Kept));
        if is_chosen(index, wanted, flushes) {
            let acknowledged = step.acknowledged;
            durable.clone().check(workload, acknowledged).map_err(|why| {
                format!("at flush {}: {acknowledged} acknowledged: {why}", index + 1)
            })?;
            tally.at_flushes += 1;
        }
    }
    Ok(tally)
}

/// A state somewhere in a step, and what had been acknowledged then.
fn between(durable: &Images, step: &Step<'_>, random: &mut Rng) -> (Images, u64) {
    let mut images = durable.clone();
    let count = 1 + random.usize(..step.writes.len());
    // Sometimes all or nothing, so that both ends are met often.
    let mood = random.usize(..8);
    for (write, _) in &step.writes[..count] {
        let fate = match mood {
            0 => Fate::Dropped,
            1 => Fate::Kept,
            _ => Fate::draw(random),
        };
        images.apply(write, fate);
    }
    let next = step.writes.get(count);
    (images, next.map_or(step.writes[count - 1].1, |(_, acknowledged)| *acknowledged))
}

/// The last steps on a disk that takes flushes for nothing.
fn without_flushes(steps: &[Step<'_>], workload: Workload) -> Result<(), String> {
    let mut random = random::stream(workload.seed ^ IGNORED, steps.len() as u64);
    let mut images = Images::empty();
    let certain = steps.len().saturating_sub(IGNORED_FLUSHES);
    for (index, step) in steps.iter().enumerate() {
        for (write, _) in &step.writes {
            let fate = if index < certain { Fate::Kept } else { Fate::draw(&mut random) };
            images.apply(write, fate);
        }
    }
    images.check(workload, steps[steps.len() - 1].acknowledged)
}

/// What the disk holds when the power is cut: what was flushed, and any part of the rest.
pub fn cut(disk: &mut [u8], entries: &[Entry], random: &mut Rng) {
    let flushed = entries.iter().rposition(|entry| *entry == Entry::Flush).unwrap_or(0);
    for (index, entry) in entries.iter().enumerate() {
        let Entry::Write(write) = entry else { continue };
        let fate = if index < flushed { Fate::Kept } else { Fate::draw(random) };
        for (at, bytes) in fate.parts(write) {
            disk[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// A new disk: zeros behind a table of its partitions, the last of which has room for `files` or is
/// an SSD.
pub fn new_disk(files: bool) -> Vec<u8> {
    const TABLE: usize = 446;
    const ENTRY_BYTES: usize = 16;
    const LINUX: u8 = 0x83;
    let mut disk = vec![0; DISK_BYTES as usize];
    let mut partitions = PARTITIONS.clone();
    if files {
        partitions[3].end = partitions[3].start + FILES_BYTES;
    }
    for (index, range) in partitions.iter().enumerate() {
        let entry = &mut disk[TABLE + index * ENTRY_BYTES..][..ENTRY_BYTES];
        // Cylinders and heads say "too large for us": what counts are the sectors.
        entry[1..8].copy_from_slice(&[0xfe, 0xff, 0xff, LINUX, 0xfe, 0xff, 0xff]);
        let sectors = |bytes: u64| ((bytes / SECTOR_BYTES) as u32).to_le_bytes();
        entry[8..12].copy_from_slice(&sectors(range.start));
        entry[12..16].copy_from_slice(&sectors(range.end - range.start));
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_tier::disk::sim::{Faults, Power, SimDisk};
    use laneway_tier::disk::{Barrier, Disk};
    use laneway_tier::pm::wal::WalRegion;
    use laneway_tier::{Media, Tier};
    use std::io;
    use std::sync::{Arc, Mutex};

    const WORKLOAD: Workload = Workload { seed: 3 };
    const GROUPS: usize = 120;

    /// A partition of a disk whose writes and flushes are logged.
    struct Logged {
        partition: usize,
        disk: SimDisk,
        entries: Arc<Mutex<Vec<Entry>>>,
    }

    impl Disk for Logged {
        fn bytes(&self) -> u64 {
            self.disk.bytes()
        }

        fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
            self.disk.read_some(at, into)
        }

        fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
            let write = Write { at: PARTITIONS[self.partition].start + at, bytes: from.to_vec() };
            self.entries.lock().unwrap().push(Entry::Write(write));
            self.disk.write_some(at, from)
        }

        fn sync(&self, why: Barrier) -> io::Result<()> {
            self.entries.lock().unwrap().push(Entry::Flush);
            self.disk.sync(why)
        }
    }

    /// What a writer does to a disk.
    fn logged() -> Vec<Entry> {
        let entries: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let power = Power::new(u64::MAX);
        let disk = |partition: usize| {
            let bytes = PARTITIONS[partition].end - PARTITIONS[partition].start;
            let disk = SimDisk::new(bytes as usize, power.clone(), 0, Faults::default());
            Arc::new(Logged { partition, disk, entries: entries.clone() })
        };
        let media = Media { region: Arc::new(WalRegion::new(disk(0))), ssd: disk(1) };
        let settings = workload::settings(false);
        let (tier, _) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
        let mut next = 1;
        for _ in 0..GROUPS {
            let end = WORKLOAD.group_end(next);
            WORKLOAD.write_group(&tier, next..=end).unwrap();
            let mut bytes = end.to_le_bytes().to_vec();
            bytes.resize(4096, 0);
            let note = Write { at: PARTITIONS[2].start, bytes };
            entries.lock().unwrap().push(Entry::Write(note));
            tier.maintain().unwrap();
            next = end + 1;
        }
        std::mem::take(&mut *entries.lock().unwrap())
    }

    #[test]
    fn a_sound_log_holds_all_that_was_acknowledged_and_the_controls_do_not() {
        let entries = logged();
        let tally = replay(&entries, WORKLOAD, 40, 20).unwrap();
        assert_eq!((tally.at_flushes, tally.between), (40, 40), "{tally:?}");
        assert!(GROUPS <= tally.flushes, "{tally:?}");
        for control in [tally.dropped, tally.ignored] {
            assert!(0 < control.states && control.caught == control.states, "{tally:?}");
        }
    }

    #[test]
    fn a_disk_that_forgot_one_write_is_noticed() {
        let mut entries = logged();
        let log = &PARTITIONS[0];
        let is_log = |entry: &Entry| matches!(entry, Entry::Write(w) if log.contains(&w.at));
        let middle = entries.len() / 2;
        let at = middle + entries[middle..].iter().position(is_log).unwrap();
        entries.remove(at);
        assert!(replay(&entries, WORKLOAD, entries.len(), 0).is_err());
    }

    #[test]
    fn what_was_flushed_survives_a_cut_and_the_rest_may_not() {
        let write = |at: u64| Entry::Write(Write { at, bytes: vec![7; 512 * 8] });
        let entries = [write(0), Entry::Flush, write(8192)];
        let mut parts = 0;
        for seed in 0..20 {
            let mut disk = vec![0; 16384];
            cut(&mut disk, &entries, &mut random::stream(seed, 0));
            assert!(disk[..4096].iter().all(|byte| *byte == 7), "flushed");
            let kept = disk[8192..12288].iter().filter(|byte| **byte == 7).count();
            parts += usize::from(0 < kept && kept < 4096);
        }
        assert!(0 < parts, "never torn");
    }

    #[test]
    fn partitions_do_not_overlap_and_end_on_the_disk() {
        assert!(PARTITIONS.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(PARTITIONS[3].end <= DISK_BYTES);
        assert!(PARTITIONS[3].start + FILES_BYTES <= DISK_BYTES);
        let disk = new_disk(true);
        assert_eq!(disk[510..512], [0x55, 0xaa]);
        assert_eq!(disk[446 + 8..446 + 12], 2048_u32.to_le_bytes(), "the first at 1 MiB");
    }
}
