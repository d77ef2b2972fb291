//! Two groups under way: one is written while the one before it is synced. Disks that stop at each
//! sync until they are told how that ends hold the two where the power may fail.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::{Faults, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{Durability, Error, ItemMeta, Media, Result, Settings, Tier};
use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// No test waits so long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Crash states of each situation.
const STATES: u64 = 150;
const SIZES: [usize; 2] = [100, 3000]; // in the log, and on the SSD

type Verdict = Sender<io::Result<()>>;

/// What happens at a gate.
enum Event {
    Write,
    Sync(Verdict),
}

/// A disk that tells what is done to it, once it is closed, and whose syncs then wait to be told
/// how they end.
struct Gate {
    disk: Arc<SimDisk>,
    events: Mutex<Option<Sender<Event>>>,
}

impl Gate {
    fn new(disk: Arc<SimDisk>) -> Arc<Gate> {
        Arc::new(Gate { disk, events: Mutex::new(None) })
    }

    fn events(&self) -> Option<Sender<Event>> {
        self.events.lock().unwrap().clone()
    }
}

impl Disk for Gate {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        let written = self.disk.write_some(at, from);
        self.events().into_iter().for_each(|events| events.send(Event::Write).unwrap());
        written
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        if let Some(events) = self.events() {
            let (verdict, told) = channel();
            events.send(Event::Sync(verdict)).unwrap();
            told.recv().unwrap()?;
        }
        self.disk.sync(why)
    }

    fn is_synced_by(&self, other: &dyn Disk, at: u64, bytes: u64) -> bool {
        self.disk.is_synced_by(other, at, bytes)
    }

    fn cache(&self) -> Option<u64> {
        self.disk.cache()
    }
}

/// A store with one item that is durable, and gates before its disks.
struct Store {
    machine: Machine,
    gates: [Arc<Gate>; 2],
    tier: Arc<Tier>,
}

impl Store {
    fn open(kind: Kind, settings: Settings) -> Store {
        let machine = Machine::new(kind, &Faults::default());
        let gates = [Gate::new(machine.log_disk()), Gate::new(machine.ssd.clone())];
        let [log, ssd] = gates.clone();
        let media = Media { region: Arc::new(WalRegion::new(log)), ssd };
        let (tier, report) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let store = Store { machine, gates, tier: Arc::new(tier) };
        put(&store.tier, 0, SIZES[0]).unwrap();
        store.tier.commit().unwrap();
        store
    }

    fn close(&self) -> Receiver<Event> {
        let (events, come) = channel();
        self.gates.iter().for_each(|gate| *gate.events.lock().unwrap() = Some(events.clone()));
        come
    }

    fn reopen(&self) {
        self.gates.iter().for_each(|gate| *gate.events.lock().unwrap() = None);
    }

    fn writes(&self, number: u64, bytes: usize) -> Receiver<Result<()>> {
        let tier = self.tier.clone();
        start(move || put(&tier, number, bytes))
    }

    /// Two writers: the group of one is at its sync, that of the other is written.
    fn two_under_way(&self, bytes: [usize; 2], come: &Receiver<Event>) -> TwoUnderWay {
        let first = self.writes(1, bytes[0]);
        let verdict = next_sync(come);
        let second = self.writes(2, bytes[1]);
        // Its record and, if it is a large one, its value.
        for _ in 0..1 + usize::from(SIZES[0] < bytes[1]) {
            match next(come) {
                Event::Write => {}
                Event::Sync(_) => panic!("one group is synced at a time"),
            }
        }
        TwoUnderWay { first, verdict, second }
    }

    /// In any state that a loss of power may leave now these are there, and nothing else is torn.
    fn keeps(&self, acknowledged: &[u64], sizes: [usize; 3]) {
        for seed in 0..STATES {
            let crashed = self.machine.crashed(seed, &Faults::default(), u64::MAX);
            let (tier, report) = crashed.open(settings()).unwrap();
            assert_eq!(report.problems, [""; 0], "seed {seed}");
            for (number, bytes) in (0..).zip(sizes) {
                match tier.get(&key(number)).unwrap() {
                    Some(item) => assert_eq!(item.value, value(number, bytes), "seed {seed}"),
                    None => assert!(!acknowledged.contains(&number), "seed {seed}: {number} gone"),
                }
            }
        }
    }
}

struct TwoUnderWay {
    first: Receiver<Result<()>>,
    verdict: Verdict,
    second: Receiver<Result<()>>,
}

fn next(come: &Receiver<Event>) -> Event {
    come.recv_timeout(PATIENCE).expect("the next group is written while one is synced")
}

fn next_sync(come: &Receiver<Event>) -> Verdict {
    loop {
        if let Event::Sync(verdict) = next(come) {
            return verdict;
        }
    }
}

/// How many syncs a group takes.
fn syncs(kind: Kind, bytes: usize) -> usize {
    1 + usize::from(kind == Kind::Wal && SIZES[0] < bytes)
}

/// All syncs of a group are well, of which the first waits.
fn all_are_well(syncs: usize, first: &Verdict, come: &Receiver<Event>) {
    first.send(Ok(())).unwrap();
    (1..syncs).for_each(|_| next_sync(come).send(Ok(())).unwrap());
}

/// Does this on a thread, which says what came of it.
fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, end) = channel();
    thread::spawn(move || done.send(work()));
    end
}

fn ends<T>(end: Receiver<T>) -> T {
    end.recv_timeout(PATIENCE).expect("it waits for what does not come")
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn put(tier: &Tier, number: u64, bytes: usize) -> Result<()> {
    tier.put(&key(number), &value(number, bytes), ItemMeta::default()).map(|_| ())
}

fn failure() -> io::Result<()> {
    Err(io::Error::other("the sync of a group failed"))
}

const KINDS: [Kind; 2] = [Kind::Wal, Kind::WalBeside];

#[test]
fn what_is_written_while_a_group_is_synced_is_durable_behind_it() {
    for kind in KINDS {
        for (bytes, later_bytes) in SIZES.into_iter().flat_map(|a| SIZES.map(|b| (a, b))) {
            let sizes = [SIZES[0], bytes, later_bytes];
            let store = Store::open(kind, settings());
            let come = store.close();
            let TwoUnderWay { first, verdict, second } =
                store.two_under_way([bytes, later_bytes], &come);
            store.keeps(&[0], sizes);
            let no_more = come.try_recv();
            assert!(matches!(no_more, Err(TryRecvError::Empty)), "one is synced at a time");
            all_are_well(syncs(kind, bytes), &verdict, &come);
            ends(first).unwrap();
            let verdict = next_sync(&come);
            store.keeps(&[0, 1], sizes);
            assert!(store.tier.get(&key(2)).unwrap().is_none(), "it is not durable yet");
            all_are_well(syncs(kind, later_bytes), &verdict, &come);
            ends(second).unwrap();
            store.keeps(&[0, 1, 2], sizes);
            assert_eq!(store.tier.get(&key(2)).unwrap().unwrap().value, value(2, later_bytes));
        }
    }
}

#[test]
fn a_group_does_not_outlive_the_one_before_it() {
    for (kind, bytes) in KINDS.into_iter().flat_map(|kind| SIZES.map(|bytes| (kind, bytes))) {
        let store = Store::open(kind, settings());
        let come = store.close();
        let TwoUnderWay { first, verdict, second } = store.two_under_way([bytes; 2], &come);
        verdict.send(failure()).unwrap();
        store.reopen(); // what is synced from now on is well
        assert!(ends(first).is_err());
        assert!(ends(second).is_err());
        assert!(put(&store.tier, 3, bytes).is_err(), "a failed flush stays failed");
        for (number, is_there) in [(0, true), (1, false), (2, false)] {
            assert_eq!(store.tier.get(&key(number)).unwrap().is_some(), is_there, "{number}");
        }
    }
}

#[test]
fn what_was_durable_before_a_group_failed_is_so_still() {
    let store = Store::open(Kind::Wal, settings());
    let come = store.close();
    let TwoUnderWay { first, verdict, second } = store.two_under_way([SIZES[0]; 2], &come);
    verdict.send(Ok(())).unwrap();
    ends(first).unwrap();
    next_sync(&come).send(failure()).unwrap();
    assert!(ends(second).is_err());
    store.reopen();
    assert_eq!(store.tier.get(&key(1)).unwrap().unwrap().value, value(1, SIZES[0]));
    store.keeps(&[0, 1], [SIZES[0]; 3]);
}

#[test]
fn a_checkpoint_and_a_new_segment_wait_for_what_is_under_way() {
    for by_a_new_segment in [false, true] {
        let store = Store::open(Kind::Wal, settings());
        let come = store.close();
        let TwoUnderWay { first, verdict, second } = store.two_under_way([SIZES[0]; 2], &come);
        let tier = store.tier.clone();
        let third = start(move || match by_a_new_segment {
            // As many as a segment does not hold.
            true => (3..40).try_for_each(|number| {
                let value = value(number, 1000);
                tier.submit_put(&key(number), &value, ItemMeta::default(), None).map(|_| ())
            }),
            false => tier.checkpoint(),
        });
        verdict.send(Ok(())).unwrap();
        ends(first).unwrap();
        // A checkpoint's body would come to a disk before the second is over. The group that ends a
        // segment may be written, as any next one, and is synced behind the second.
        let verdict = match (by_a_new_segment, next(&come)) {
            (_, Event::Sync(verdict)) => verdict,
            (true, Event::Write) => next_sync(&come),
            (false, Event::Write) => panic!("it did not wait"),
        };
        assert!(matches!(third.try_recv(), Err(TryRecvError::Empty)));
        store.keeps(&[0, 1], [SIZES[0]; 3]);
        while let Ok(event) = come.try_recv() {
            assert!(by_a_new_segment && matches!(event, Event::Write), "it did not wait");
        }
        store.reopen();
        verdict.send(Ok(())).unwrap();
        // Whoever was at a gate when it was opened.
        let rest = start(move || {
            for event in come {
                if let Event::Sync(verdict) = event {
                    verdict.send(Ok(())).unwrap();
                }
            }
        });
        ends(second).unwrap();
        ends(third).unwrap();
        ends(rest);
        store.tier.commit().unwrap();
        store.keeps(&[0, 1, 2], [SIZES[0]; 3]);
    }
}

#[test]
fn what_is_shown_at_an_interval_is_read_from_memory_until_its_sync_is_well() {
    let at_interval = Settings { durability: Durability::Interval, ..settings() };
    let store = Store::open(Kind::Wal, at_interval);
    let come = store.close();
    // Several blocks of the log: the newest is in memory in any case.
    (1..10).for_each(|number| put(&store.tier, number, 900).unwrap());
    let tier = store.tier.clone();
    let commit = start(move || tier.commit());
    next_sync(&come).send(failure()).unwrap();
    assert!(ends(commit).is_err());
    store.reopen();
    // What the disk has of it nobody knows.
    store.machine.set_log_faults(Faults { read_error_one_in: 1, ..Faults::default() });
    assert!(matches!(put(&store.tier, 10, 900), Err(Error::Poisoned(_))));
    for number in 1..10 {
        assert_eq!(store.tier.get(&key(number)).unwrap().unwrap().value, value(number, 900));
    }
}
