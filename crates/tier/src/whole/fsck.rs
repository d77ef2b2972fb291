//! Checking a store, and repairing one.
//!
//! A check writes nothing: it recovers the store in memory and reads every item, in the order in
//! which they lie on the media ([`crate::background::scrub`]). A repair drops what the check names,
//! and only that: each lost item becomes a deletion, and segments with damaged records are emptied
//! of everything else and given back.

use crate::background::scrub::{Bounds, Damaged, Pass, Step};
use crate::index::What;
use crate::index::fair::FairIndex;
use crate::log::append::Draft;
use crate::log::record::Kind;
use crate::media::disk::Disk;
use crate::recovery::grow::sizes_of;
use crate::recovery::recover::{Media, Purpose, recover};
use crate::report::Report;
use crate::store::{RESERVE_DELETE, Shared};
use crate::tier::Tier;
use crate::types::{Error, ItemMeta, Result, Settings};

/// Threads of a check that read and verify: while some look at what they have read, the device is
/// busy with what the others asked for. They are more than there may be CPUs, as most of them wait.
const READERS: usize = 8;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What recovery says, and what else of the store's own is damaged.
    pub report: Report,
    /// Items that were read whole.
    pub items: u64,
    /// Items that cannot be read, and why, in the order of their keys. A repair drops them.
    pub lost: Vec<(Vec<u8>, String)>,
    /// How many of these a device refused to give. It may do so another time, so a repair drops
    /// nothing while there are any.
    pub refused: u64,
    /// What is to be done about a load into the folder that did not come to its end.
    pub half_loaded: Option<String>,
}

impl Findings {
    /// Whether there is nothing to repair, and all is there that was to be loaded.
    pub fn is_sound(&self) -> bool {
        self.report.problems.is_empty() && self.lost.is_empty() && self.half_loaded.is_none()
    }
}

/// What a check is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The log is replayed.
    Opening,
    /// All that is in use is read.
    Reading,
}

/// Hears how far a check is: bytes done, and bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(Stage, u64, u64);

/// Reads everything, writes nothing.
pub fn check(media: Media, settings: Settings) -> Result<Findings> {
    check_telling(media, settings, &mut |_, _, _| {})
}

/// The same; `progress` hears how far it is.
pub fn check_telling(media: Media, settings: Settings, progress: Progress<'_>) -> Result<Findings> {
    let mut replayed = |done, total| progress(Stage::Opening, done, total);
    let (shared, mut report) = recover(media, settings, Purpose::Check, &mut replayed)?;
    report.sizes = sizes_of(&shared);
    Ok(read_all(&shared, report, progress))
}

/// Drops what cannot be read. Returns what was found before; a check of the store afterwards is
/// sound. Refuses a store whose index in persistent memory is damaged, since what it does not lead
/// to any more nobody could name, and one of whose items a device does not give some.
pub fn repair(media: Media, settings: Settings) -> Result<Findings> {
    let settings = Settings { background: false, ..settings };
    let (tier, report) = Tier::open(media, settings, 0, &mut |_, _| {})?;
    repair_open(tier, report, &mut |_, _, _| {})
}

/// The same for a store that is open and that nothing happens to meanwhile.
pub(crate) fn repair_open(tier: Tier, report: Report, progress: Progress<'_>) -> Result<Findings> {
    let shared = tier.shared();
    if let Some(damages) = shared.index.fair().map(FairIndex::damages).filter(|count| *count != 0) {
        return Err(Error::Corrupt(format!(
            "the index in persistent memory is damaged in {damages} places, and a repair does not \
             make it anew: move what can be read to a new store by laneway dump and load"
        )));
    }
    let findings = read_all(shared, report, progress);
    if 0 < findings.refused {
        return Err(Error::Unavailable(format!(
            "a device refuses to give {} items, and may give them another time, so nothing was \
             dropped: look at the device, copy it elsewhere, and check again",
            findings.refused
        )));
    }
    for (key, _) in &findings.lost {
        let what = Some(What::Tombstone);
        let meta = ItemMeta::default();
        let draft = Draft { kind: Kind::Delete, sequence: None, meta, key, body: &[], what };
        shared.append_with_room(&draft, RESERVE_DELETE)?;
    }
    tier.commit()?;
    shared.empty_damaged_segments()?;
    // Two, so that both superblocks and both checkpoints are of the repaired store.
    for _ in 0..2 {
        match tier.checkpoint() {
            // Where only items were damaged, their deletions in the log are all of the repair.
            Err(Error::SsdFull { .. }) if findings.report.problems.is_empty() => {}
            // A damaged one is of no use, but its blocks are; and the older one is of little.
            Err(Error::SsdFull { .. }) if shared.give_up_checkpoint()? => tier.checkpoint()?,
            result => result?,
        }
    }
    tier.close()?;
    Ok(findings)
}

/// How many items can be read, and which cannot.
fn read_all(shared: &Shared, report: Report, progress: Progress<'_>) -> Findings {
    let mut findings = Findings { report, ..Findings::default() };
    let (bounds, readers) = match waits_for_files(shared) {
        true => (Bounds::FILES, READERS),
        false => (Bounds::ALONE, 0),
    };
    let mut pass = Pass::new(bounds);
    progress(Stage::Reading, 0, 0);
    let mut note = |damaged| findings.note(damaged);
    while pass.step(shared, &mut note) != Step::Over {
        pass.read_windows(shared, readers, &mut note, &mut |far| {
            progress(Stage::Reading, far.done_bytes, far.total_bytes);
        });
    }
    let far = pass.far;
    debug_assert_eq!(far.done_bytes, far.total_bytes, "nothing was left out");
    findings.lost.sort();
    findings.lost.dedup_by(|one, other| one.0 == other.0);
    findings.items = far.items - findings.lost.len() as u64;
    findings
}

/// Whether a thread that reads waits for a device. Where that is simulated, or is memory, it does
/// not, and what a simulated one meets must not hang on which thread is faster.
fn waits_for_files(shared: &Shared) -> bool {
    let is_file = |disk: &dyn Disk| disk.file().is_some();
    is_file(&*shared.ssd) && shared.region.disk().is_none_or(is_file)
}

impl Findings {
    fn note(&mut self, damaged: Damaged) {
        if let Some(key) = damaged.key {
            self.refused += u64::from(damaged.is_refused);
            self.lost.push((key.into(), damaged.why));
            return;
        }
        // A start has told of what it met itself, if in other words.
        let front = |problem: &str| problem.split(':').next().unwrap_or_default().to_owned();
        let is_told = |told: &String| front(told) == front(&damaged.why);
        if !self.report.problems.iter().any(is_told) {
            self.report.problems.push(damaged.why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::outline::part_of;
    use crate::index::Entry;
    use crate::index::fastfair::FairTree;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::Region;
    use crate::media::pm::sim::SimRegion;
    use crate::types::{BLOCK_BYTES, IndexKind};
    use std::sync::Arc;

    /// Of the two, either; and with so little room that there is none for a third.
    #[test]
    fn a_damaged_checkpoint_is_repaired_on_a_full_ssd() {
        for age in [0, 1] {
            let power = Power::new(u64::MAX);
            let region = Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
            let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
            let media = Media { region, ssd: ssd.clone() };
            let settings = Settings {
                split_bytes: 1024,
                segment_bytes: 16 << 10,
                migrate_percent: 100,
                background: false,
                ..Settings::default()
            };
            let (tier, _) = Tier::open(media.clone(), settings, 1, &mut |_, _| {}).unwrap();
            let key = |number: u64| format!("a key of some bytes {number:04}").into_bytes();
            let put = |number: u64, bytes: usize| {
                tier.put(&key(number), &vec![7_u8; bytes], ItemMeta::default()).unwrap();
            };
            (0..300).for_each(|number| put(number, 100));
            for _ in 0..2 {
                tier.checkpoint().unwrap();
            }
            let mut items = 300;
            while 3 * BLOCK_BYTES < tier.stats().ssd_free_bytes as usize {
                let spare = tier.stats().ssd_free_bytes as usize - 3 * BLOCK_BYTES;
                put(items, spare.min(8 * BLOCK_BYTES));
                items += 1;
            }
            let body = tier.shared().maintenance().checkpoints[age].body.clone();
            drop(tier);
            ssd.flip_bit(u64::from(body.extents[0].start) * BLOCK_BYTES as u64 + 40, 3);
            let found = repair(media.clone(), settings).unwrap();
            assert!(!found.report.problems.is_empty() && found.lost.is_empty(), "{found:?}");
            let again = check(media.clone(), settings).unwrap();
            assert!(again.is_sound() && again.items == items, "{age}: {again:?}");
        }
    }

    /// No write is taken that would lead here; a store that somebody else filled is read all the
    /// same.
    #[test]
    fn a_store_whose_tree_has_no_room_for_its_log_is_opened_to_be_read() {
        let power = Power::new(u64::MAX);
        let region: Arc<dyn Region> =
            Arc::new(SimRegion::new(512 << 10, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let media = Media { region: region.clone(), ssd };
        let index = Some(IndexKind::Fair);
        let settings =
            Settings { segment_bytes: 16 << 10, index, background: false, ..Settings::default() };
        let open = || Tier::open(media.clone(), settings, 1, &mut |_, _| {}).unwrap();
        let (tier, _) = open();
        let key = |number: u64| format!("key {number:04}").into_bytes();
        for number in 0..100 {
            tier.put(&key(number), b"value", ItemMeta::default()).unwrap();
        }
        let part = part_of(&region, &tier.shared().shape, tier.shared().tree_segments).unwrap();
        drop(tier);
        // The tree as if it held nothing of the log, and had no line left.
        FairTree::format(&part, 1).unwrap();
        let (mut tree, _) = FairTree::open(part, None);
        tree.walk_all(|_, _| ());
        tree.begin().unwrap();
        let mut payload = Vec::new();
        let gone = Entry { what: What::Tombstone, ..Entry::unreadable() };
        gone.encode(&mut payload);
        for length in [200, 30, 8] {
            for number in 0..5000 {
                let _ = tree.put(format!("{number:0length$}").as_bytes(), &payload);
            }
        }
        assert_eq!(tree.room().lines, 0, "{:?}", tree.room());
        for _ in 0..2 {
            let (tier, report) = open();
            assert!(report.problems.iter().any(|what| what.contains("dump")), "{report:?}");
            assert!(tier.refuses_writes().is_some() && tier.stats().poisoned);
            for number in 0..100 {
                assert_eq!(tier.get(&key(number)).unwrap().unwrap().value, b"value");
            }
            assert_eq!(tier.scan(b"", None, usize::MAX).len(), 100);
            assert!(tier.put(b"key", b"value", ItemMeta::default()).is_err());
            assert!(!tier.maintain().unwrap_or(false));
        }
    }
}
