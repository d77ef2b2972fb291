//! A disk without room for a write: whichever of all the writes and syncs that a store makes it is,
//! the error tells it, and nothing that was acknowledged is lost.

use crate::common::{Kind, Machine, SSD_BYTES, settings, value};
use laneway_tier::disk::sim::{Faults, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::Region;
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{BLOCK_BYTES, Durability, Error, IndexKind, ItemMeta, Media, Settings, Tier};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What the system says where there is no room.
const TOLD: &str = "No space left on device";
const KEYS: u64 = 40;

/// Counts the writes and syncs of both disks, and refuses some.
#[derive(Default)]
struct Writes {
    made: AtomicU64,
    /// The number of the first that is refused; beyond it, all are where it `stays_full`.
    refused: AtomicU64,
    stays_full: bool,
    has_refused: AtomicBool,
    /// The rest of the last one is refused.
    is_cut: AtomicBool,
}

impl Writes {
    fn refusing(number: u64, stays_full: bool) -> Arc<Writes> {
        Arc::new(Writes { refused: AtomicU64::new(number), stays_full, ..Writes::default() })
    }

    /// There is room again.
    fn make_room(&self) {
        self.refused.store(u64::MAX, Relaxed);
    }

    /// Whether there is room for the next one.
    fn has_room(&self) -> bool {
        let number = self.made.fetch_add(1, Relaxed);
        let refused = self.refused.load(Relaxed);
        let is_refused = number == refused || (self.stays_full && refused < number);
        self.has_refused.fetch_or(is_refused, Relaxed);
        !is_refused
    }
}

/// A disk of the machine.
struct Narrow {
    disk: Arc<SimDisk>,
    writes: Arc<Writes>,
}

fn full() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

impl Disk for Narrow {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read_some(at, into)
    }

    /// Where there is none for all of it there is room for the first block, as a file system may
    /// have it.
    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        if self.writes.is_cut.swap(false, Relaxed) {
            return Err(full());
        }
        if self.writes.has_room() {
            return self.disk.write_some(at, from);
        }
        if from.len() <= BLOCK_BYTES {
            return Err(full());
        }
        self.writes.is_cut.store(true, Relaxed);
        self.disk.write_some(at, &from[..BLOCK_BYTES])
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        match self.writes.has_room() {
            true => self.disk.sync(why),
            false => Err(full()),
        }
    }

    fn is_synced_by(&self, other: &dyn Disk, at: u64, bytes: u64) -> bool {
        self.disk.is_synced_by(other, at, bytes)
    }

    fn cache(&self) -> Option<u64> {
        self.disk.cache()
    }
}

fn media(machine: &Machine, kind: Kind, writes: &Arc<Writes>) -> Media {
    let narrow = |disk: Arc<SimDisk>| Arc::new(Narrow { disk, writes: writes.clone() });
    let region: Arc<dyn Region> = match kind {
        Kind::Wal | Kind::WalBeside => Arc::new(WalRegion::new(narrow(machine.log_disk()))),
        _ => machine.media().region,
    };
    Media { region, ssd: narrow(machine.ssd.clone()) }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// What each key may hold, the acknowledged one first: the version, and how long its value is.
#[derive(Default)]
struct Oracle {
    keys: BTreeMap<Vec<u8>, Vec<Option<(u64, usize)>>>,
    errors: Vec<Error>,
    /// A count tells what nobody waited for.
    is_noted: bool,
}

impl Oracle {
    /// A write of a key has ended.
    fn wrote(&mut self, key: &[u8], state: Option<(u64, usize)>, ended: Result<(), Error>) {
        let states = self.keys.entry(key.to_vec()).or_insert_with(|| vec![None]);
        match ended {
            Ok(()) => *states = vec![state],
            Err(error) => {
                states.push(state);
                self.errors.push(error);
            }
        }
    }

    fn did<T>(&mut self, ended: Result<T, Error>) -> Option<T> {
        ended.map_err(|error| self.errors.push(error)).ok()
    }

    /// Everything acknowledged is there.
    fn check(&self, tier: &Tier, when: &str) {
        for (key, states) in &self.keys {
            let item = tier.get(key).unwrap_or_else(|error| panic!("{when}: {error}"));
            let item = item.map(|item| item.value);
            let is = |state: &Option<(u64, usize)>| {
                item == state.map(|(version, bytes)| value(version, bytes))
            };
            let key = key.escape_ascii();
            assert!(states.iter().any(is), "{when}: {key} holds none of {states:?}");
        }
    }
}

/// Puts of all lengths, deletions, migration, compaction and checkpoints.
fn work(tier: &Tier, writes: &Writes, oracle: &mut Oracle, versions: std::ops::Range<u64>) {
    let durable = |written: Result<(), Error>| written.and_then(|()| tier.commit());
    for version in versions {
        let (name, bytes) = (
            key(version % KEYS),
            match version % 16 {
                3 | 9 => 1500,
                6 => 5000,
                11 => 70_000, // too long to wait for its group
                short => 600 + 30 * short as usize,
            },
        );
        let put = tier.put(&name, &value(version, bytes), ItemMeta::default()).map(drop);
        oracle.wrote(&name, Some((version, bytes)), durable(put));
        if version % 7 == 5 {
            let name = key(version * 3 % KEYS);
            oracle.wrote(&name, None, durable(tier.delete(&name).map(drop)));
        }
        match version % 20 {
            8 => {
                oracle.did(tier.migrate());
            }
            13 => {
                oracle.did(tier.checkpoint());
            }
            17 => {
                tier.begin_compaction();
                let before = writes.has_refused.load(Relaxed);
                for _ in 0..12 {
                    oracle.did(tier.maintain());
                }
                // A table that could not be written is written by a later turn, and whoever needs
                // its room before is told.
                oracle.is_noted |= before != writes.has_refused.load(Relaxed);
            }
            _ => {}
        }
    }
}

/// Two lives of a store, of which one write finds no room. How many writes there were, if all did.
fn live(kind: Kind, settings: Settings, number: u64, stays_full: bool) -> Option<u64> {
    let told = format!("{kind:?}, write {number}, stays full: {stays_full}");
    let machine = Machine::new(kind, &Faults::default());
    let writes = Writes::refusing(number, stays_full);
    let open =
        || Tier::open(media(&machine, kind, &writes), settings, 0x1234_5678_9abc, &mut |_, _| {});
    let mut oracle = Oracle::default();
    for life in 0..2 {
        let Some((tier, _)) = oracle.did(open()) else { break };
        work(&tier, &writes, &mut oracle, 60 * life..60 * life + 60);
        let stats = tier.stats();
        if number == u64::MAX && life == 0 {
            assert!(0 < stats.migrated_records && 0 < stats.segments_freed, "{told}: {stats:?}");
            assert!(0 < stats.checkpoints, "{told}: {stats:?}");
        }
        oracle.is_noted |= stats.poisoned || 0 < stats.checkpoints_refused;
        oracle.check(&tier, &told);
        if !writes.has_refused.load(Relaxed) {
            oracle.did(tier.close());
            continue;
        }
        writes.make_room();
        let later = tier.put(b"later", b"there is room", ItemMeta::default()).map(drop);
        match later.and_then(|()| tier.commit()) {
            Ok(()) => assert!(!stats.poisoned, "{told}"),
            Err(error) => {
                assert!(stats.poisoned && error.to_string().contains(TOLD), "{told}: {error}");
            }
        }
        break;
    }
    let has_refused = writes.has_refused.load(Relaxed);
    assert!(
        !has_refused || oracle.is_noted || !oracle.errors.is_empty(),
        "{told}: nobody was told"
    );
    for error in &oracle.errors {
        let is_clear = matches!(error, Error::PmFull) || error.to_string().contains(TOLD);
        assert!(has_refused && is_clear, "{told}: {error}");
    }
    // The process is gone, or the power was.
    let crashed = machine.crashed(number, &Faults::default(), u64::MAX);
    for machine in [&machine, &crashed] {
        let (tier, report) = machine.open(settings).unwrap_or_else(|why| panic!("{told}: {why}"));
        let is_half = |what: &String| what.starts_with("superblock ");
        assert!(report.problems.iter().all(is_half), "{told}: {:?}", report.problems);
        oracle.check(&tier, &told);
        tier.put(b"new", b"value", ItemMeta::default()).unwrap();
        tier.close().unwrap();
    }
    (!has_refused).then(|| writes.made.load(Relaxed))
}

fn each_write(kind: Kind, durability: Durability) {
    let index = kind.is_fair().then_some(IndexKind::Fair);
    let settings = Settings { index, durability, ..settings() };
    let all = live(kind, settings, u64::MAX, false).expect("nothing was refused");
    assert!(50 < all, "{kind:?}: {all} writes");
    for stays_full in [false, true] {
        for number in 0..all {
            assert_eq!(live(kind, settings, number, stays_full), None, "{kind:?}: {number}");
        }
    }
}

#[test]
fn a_disk_without_room_for_any_one_write_is_told_and_loses_nothing_acknowledged() {
    each_write(Kind::Wal, Durability::Ack);
}

#[test]
fn the_same_behind_one_cache() {
    each_write(Kind::WalBeside, Durability::Ack);
}

#[test]
fn the_same_at_an_interval() {
    each_write(Kind::Wal, Durability::Interval);
}

#[test]
fn the_same_of_an_ssd_beside_persistent_memory() {
    each_write(Kind::Pm, Durability::Ack);
    each_write(Kind::PmFair, Durability::Ack);
}

#[test]
fn growing_without_room_for_a_write_is_told_and_done_by_the_next_start() {
    let machine = Machine::new(Kind::Wal, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    let mut oracle = Oracle::default();
    work(&tier, &Writes::refusing(u64::MAX, false), &mut oracle, 0..60);
    assert!(oracle.errors.is_empty(), "{:?}", oracle.errors);
    tier.close().unwrap();
    let mut refused = 0;
    for number in 0.. {
        let longer = machine.longer(&Faults::default(), u64::MAX, (0, SSD_BYTES));
        let writes = Writes::refusing(number, true);
        let media = media(&longer, Kind::Wal, &writes);
        let opened = Tier::open(media, settings(), 7, &mut |_, _| {});
        let error = match opened {
            Ok(_) => break,
            Err(error) => error.to_string(),
        };
        assert!(error.contains(TOLD), "{number}: {error}");
        refused += 1;
        let (tier, report) = longer.open(settings()).unwrap();
        assert_eq!(report.sizes.ssd, 2 * SSD_BYTES as u64, "{number}");
        oracle.check(&tier, &format!("write {number}"));
    }
    assert!(4 <= refused, "{refused}: two superblocks, each written and synced");
}
