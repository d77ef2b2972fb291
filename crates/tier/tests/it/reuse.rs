//! Blocks of values that were replaced: nothing that recovery may still look at is written over, so
//! that no old record whose value is gone ends the log before what was acknowledged behind it.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::{Faults, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{ItemMeta, Media, MigrateBy, Settings, Tier};
use std::io;
use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// Longer than what waits for its group: it is on the SSD before its record is in the log.
const LONG: usize = 70 << 10;
const KEY: &[u8] = b"written-anew";
const BEHIND: &[u8] = b"behind";

type Hook = Box<dyn FnOnce() + Send>;

/// Where a disk is hooked.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Write,
    Sync(Barrier),
}

/// A disk that does something once, in the midst of the next write, or of a sync of a kind.
struct Hooked {
    disk: Arc<SimDisk>,
    hook: Mutex<Option<(At, Hook)>>,
}

impl Hooked {
    fn new(disk: Arc<SimDisk>) -> Arc<Hooked> {
        Arc::new(Hooked { disk, hook: Mutex::new(None) })
    }

    fn at(&self, place: At, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((place, Box::new(hook)));
    }

    fn is_at(&self, place: At) {
        let hook = self.hook.lock().unwrap().take_if(|(at, _)| *at == place);
        if let Some((_, hook)) = hook {
            hook();
        }
    }

    fn was_met(&self) -> bool {
        self.hook.lock().unwrap().is_none()
    }
}

impl Disk for Hooked {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        self.is_at(At::Write);
        self.disk.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        self.is_at(At::Sync(why));
        self.disk.sync(why)
    }
}

/// A store whose log and SSD are hooked, on a machine of its own.
struct Store {
    machine: Machine,
    tier: Arc<Tier>,
    log: Arc<Hooked>,
    ssd: Arc<Hooked>,
}

impl Store {
    fn new() -> Store {
        let machine = Machine::new(Kind::Wal, &Faults::default());
        let (log, ssd) = (Hooked::new(machine.log_disk()), Hooked::new(machine.ssd.clone()));
        let region = Arc::new(WalRegion::new(log.clone()));
        let media = Media { region, ssd: ssd.clone() };
        let (tier, _) = Tier::open(media, settings(), 1, &mut |_, _| {}).unwrap();
        Store { machine, tier: Arc::new(tier), log, ssd }
    }

    fn put(&self, key: &[u8], version: u64, bytes: usize) {
        self.tier.put(key, &value(version, bytes), ItemMeta::default()).unwrap();
    }

    /// Its first segment is full and holds a long value that is often read, so that migration
    /// appends its record again, and small ones that go to a sort table.
    fn with_a_full_segment() -> Store {
        let store = Store::new();
        store.put(KEY, 1, LONG);
        for number in 0..20 {
            store.put(format!("cold-{number}").as_bytes(), number, 900);
        }
        (0..50).for_each(|_| drop(store.tier.get(KEY).unwrap()));
        store
    }

    /// Power fails when a value was written and its record was not, where the blocks of [`KEY`]'s
    /// first value were if they are free.
    fn power_fails_where_its_blocks_are_used_again(&self, what: &str) {
        self.tier.submit_put(b"next", &value(9, LONG), ItemMeta::default(), None).unwrap();
        loses_nothing(&self.machine, what);
    }
}

/// Both keys are there after whatever a loss of power leaves.
fn loses_nothing(machine: &Machine, what: &str) {
    for seed in 0..12 {
        let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
        let (tier, report) = crashed.open(settings()).unwrap();
        assert_eq!(report.problems, [""; 0], "{what}, image {seed}");
        let held = |key: &[u8]| tier.get(key).unwrap().map(|item| item.value);
        assert!(held(BEHIND) == Some(value(3, 100)), "{what}, image {seed}: an item is lost");
        assert!(held(KEY) == Some(value(2, LONG)), "{what}, image {seed}: not the newest value");
    }
}

#[test]
fn a_key_that_is_written_anew_while_its_segment_moves_is_not_appended_again() {
    let store = Store::with_a_full_segment();
    let tier = Arc::downgrade(&store.tier);
    let written_anew = tier.clone();
    // When it was chosen and its sort table is about to be written.
    store.ssd.at(At::Write, move || {
        let tier = written_anew.upgrade().unwrap();
        tier.put(KEY, &value(2, LONG), ItemMeta::default()).unwrap();
    });
    // Appended while what moved is made durable: no record that is durable vouches for that yet.
    let (tell, told) = channel();
    store.log.at(At::Sync(Barrier::Move), move || {
        let tier = tier.upgrade().unwrap();
        tell.send(tier.submit_put(BEHIND, &value(3, 100), ItemMeta::default(), None)).unwrap();
    });
    assert!(store.tier.migrate().unwrap());
    assert!(store.ssd.was_met() && store.log.was_met());
    store.tier.wait(told.recv().unwrap().unwrap()).unwrap();
    store.power_fails_where_its_blocks_are_used_again("written anew");
}

/// The newer record is in a group under way when the older one is appended again behind it.
#[test]
fn a_record_appended_again_behind_a_newer_one_keeps_its_blocks_until_it_is_vouched_for() {
    // Which of two threads goes on first after the group is for them to decide, hence the rounds.
    for round in 0..40 {
        let store = Store::with_a_full_segment();
        let newer = store.tier.submit_put(KEY, &value(2, LONG), ItemMeta::default(), None).unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let tier = &store.tier;
            let migrates = scope.spawn(move || told.recv().map(|()| tier.migrate().unwrap()));
            let tier = Arc::downgrade(&store.tier);
            store.log.at(At::Sync(Barrier::Group), move || {
                tell.send(()).unwrap();
                while tier.upgrade().unwrap().stats().kept_records == 0 {
                    std::thread::yield_now();
                }
            });
            store.tier.wait(newer).unwrap();
            store.put(BEHIND, 3, 100);
            assert_eq!(migrates.join().unwrap(), Ok(true));
        });
        assert!(store.log.was_met());
        store.power_fails_where_its_blocks_are_used_again(&format!("round {round}"));
    }
}

/// What was found at a start may be looked at again at the next one: until a group of the new life
/// is durable, the newest segment's old records are all that there is.
#[test]
fn blocks_that_a_start_finds_unused_stay_until_a_group_is_durable() {
    for deletes in [false, true] {
        let store = Store::new();
        let Store { machine, tier, .. } = &store;
        let submit = |key: &[u8], version, bytes| {
            tier.submit_put(key, &value(version, bytes), ItemMeta::default(), None).unwrap()
        };
        submit(KEY, 1, LONG);
        if deletes {
            tier.submit_delete(KEY, None).unwrap();
        }
        submit(KEY, 2, LONG);
        tier.wait(submit(BEHIND, 3, 100)).unwrap();
        for seed in 0..4 {
            let machine = machine.crashed(seed, &Faults::default(), u64::MAX);
            let (tier, _) = machine.open(settings()).unwrap();
            let free = tier.stats().ssd_free_bytes;
            for number in 0..6 {
                let name = format!("next-{number}");
                let next = value(9 + number, LONG);
                tier.submit_put(name.as_bytes(), &next, ItemMeta::default(), None).unwrap();
            }
            loses_nothing(&machine, &format!("found by a start, image {seed}"));
            tier.commit().unwrap();
            tier.commit().unwrap();
            let taken = free - tier.stats().ssd_free_bytes;
            assert!(taken <= 5 * (LONG as u64).next_multiple_of(4096), "they are free in the end");
        }
    }
}

/// The newest checkpoint may remember a deletion that migration has forgotten since.
#[test]
fn a_deletion_that_was_forgotten_is_not_remembered_by_a_start_once_its_slot_is_used_again() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let settings = Settings { migrate_by: Some(MigrateBy::Age), ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let put = |tier: &Tier, numbers: Range<u64>| {
        for number in numbers {
            tier.put(&number.to_be_bytes(), &value(number, 700), ItemMeta::default()).unwrap();
        }
    };
    tier.put(KEY, b"value", ItemMeta::default()).unwrap();
    assert!(tier.delete(KEY).unwrap());
    for _ in 0..2 {
        tier.checkpoint().unwrap();
    }
    assert_eq!(tier.stats().items.tombstones, 1, "both checkpoints have it");
    // More than the whole log.
    for first in [100, 200, 300, 400] {
        put(&tier, first..first + 60);
        while tier.migrate().unwrap() {}
    }
    assert_eq!(tier.stats().items.tombstones, 0, "nothing needs it");
    put(&tier, 500..560);
    drop(tier);
    let (tier, report) = machine.open(settings).unwrap();
    assert_eq!(report.problems, [""; 0]);
    let stats = tier.stats();
    assert_eq!((stats.items.tombstones, stats.items.items()), (0, 300));
    assert_eq!(tier.get(KEY).unwrap(), None);
    // One that is still in the log behind the checkpoint, or was copied there, is.
    assert!(tier.delete(&500_u64.to_be_bytes()).unwrap());
    tier.checkpoint().unwrap();
    // More than a segment, and no more than there is room for: making some makes checkpoints, too.
    put(&tier, 600..625);
    drop(tier);
    let (tier, _) = machine.open(settings).unwrap();
    assert_eq!(tier.stats().items.tombstones, 1);
    while tier.migrate().unwrap() {}
    assert_eq!(tier.stats().items.tombstones, 1, "one checkpoint is older");
    put(&tier, 700..725);
    drop(tier);
    let (tier, _) = machine.open(settings).unwrap();
    assert_eq!(tier.stats().items.tombstones, 1);
    assert_eq!(tier.get(&500_u64.to_be_bytes()).unwrap(), None);
}
