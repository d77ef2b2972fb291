//! Two groups under way: one is written while the one before it is synced. A disk that stops at
//! each sync until it is told how that ends makes every order of the two happen that matters.

mod common;

use common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::{Faults, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{ItemMeta, Media, Result, Tier};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// No test waits so long unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Crash states of each situation.
const STATES: u64 = 150;
const SIZES: [usize; 2] = [100, 3000]; // in the log, and on the SSD

type Verdict = Sender<io::Result<()>>;

/// A disk whose syncs, once it is closed, wait to be told how they end.
struct Gate {
    disk: Arc<SimDisk>,
    arrivals: Mutex<Option<Sender<Verdict>>>,
}

impl Gate {
    fn close(&self) -> Receiver<Verdict> {
        let (arrivals, come) = channel();
        *self.arrivals.lock().unwrap() = Some(arrivals);
        come
    }

    fn open(&self) {
        self.arrivals.lock().unwrap().take();
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
        self.disk.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        let arrivals = self.arrivals.lock().unwrap().clone();
        if let Some(arrivals) = arrivals {
            let (verdict, told) = channel();
            arrivals.send(verdict).unwrap();
            told.recv().unwrap()?;
        }
        self.disk.sync(why)
    }
}

/// A store with one item that is durable, and a gate before its log's disk.
struct Store {
    machine: Machine,
    gate: Arc<Gate>,
    tier: Arc<Tier>,
}

impl Store {
    fn new() -> Store {
        let machine = Machine::new(Kind::Wal, &Faults::default());
        let gate = Arc::new(Gate { disk: machine.log_disk(), arrivals: Mutex::new(None) });
        let media = Media { region: Arc::new(WalRegion::new(gate.clone())), ..machine.media() };
        let (tier, report) = Tier::open(media, settings(), 1, &mut |_, _| {}).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let store = Store { machine, gate, tier: Arc::new(tier) };
        put(&store.tier, 0, SIZES[0]).unwrap();
        store
    }

    /// A thread that writes this item; returns when its group is written and about to be synced.
    fn writes(&self, number: u64, bytes: usize, come: &Receiver<Verdict>) -> Writing {
        let tier = self.tier.clone();
        let thread = thread::spawn(move || put(&tier, number, bytes));
        let verdict = come.recv_timeout(PATIENCE).expect("a group is begun beside the other");
        Writing { thread, verdict }
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

/// A writer whose group is at the gate.
struct Writing {
    thread: JoinHandle<Result<()>>,
    verdict: Verdict,
}

impl Writing {
    fn ends(self) -> Result<()> {
        self.thread.join().unwrap()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn put(tier: &Tier, number: u64, bytes: usize) -> Result<()> {
    tier.put(&key(number), &value(number, bytes), ItemMeta::default()).map(|_| ())
}

fn failure() -> io::Result<()> {
    Err(io::Error::other("the sync of one group failed"))
}

#[test]
fn who_comes_while_a_group_is_synced_is_durable_when_both_are() {
    for (bytes, later_bytes) in SIZES.into_iter().flat_map(|a| SIZES.map(|b| (a, b))) {
        let sizes = [SIZES[0], bytes, later_bytes];
        let store = Store::new();
        let come = store.gate.close();
        let first = store.writes(1, bytes, &come);
        let second = store.writes(2, later_bytes, &come);
        store.keeps(&[0], sizes);
        first.verdict.send(Ok(())).unwrap();
        first.ends().unwrap();
        store.keeps(&[0, 1], sizes);
        second.verdict.send(Ok(())).unwrap();
        second.ends().unwrap();
        store.keeps(&[0, 1, 2], sizes);
        assert_eq!(store.tier.get(&key(2)).unwrap().unwrap().value, value(2, later_bytes));
    }
}

#[test]
fn a_group_does_not_outlive_the_one_before_it() {
    for bytes in SIZES {
        let store = Store::new();
        let come = store.gate.close();
        let first = store.writes(1, bytes, &come);
        let second = store.writes(2, bytes, &come);
        // Its own sync is well, and nobody may hear of it: what lies before it may be lost.
        second.verdict.send(Ok(())).unwrap();
        first.verdict.send(failure()).unwrap();
        assert!(first.ends().is_err());
        assert!(second.ends().is_err());
        store.gate.open();
        assert!(store.tier.refuses_writes().is_some());
        for (number, is_there) in [(0, true), (1, false), (2, false)] {
            assert_eq!(store.tier.get(&key(number)).unwrap().is_some(), is_there, "{number}");
        }
    }
}

#[test]
fn what_was_durable_before_a_group_failed_is_so_still() {
    let store = Store::new();
    let come = store.gate.close();
    let first = store.writes(1, SIZES[0], &come);
    let second = store.writes(2, SIZES[0], &come);
    first.verdict.send(Ok(())).unwrap();
    first.ends().unwrap();
    second.verdict.send(failure()).unwrap();
    assert!(second.ends().is_err());
    store.gate.open();
    assert!(put(&store.tier, 3, SIZES[0]).is_err(), "a failed flush stays failed");
    assert_eq!(store.tier.get(&key(1)).unwrap().unwrap().value, value(1, SIZES[0]));
    store.keeps(&[0, 1], [SIZES[0]; 3]);
}

#[test]
fn a_checkpoint_waits_for_both_groups_and_holds_up_nobody_for_ever() {
    let store = Store::new();
    let come = store.gate.close();
    let first = store.writes(1, SIZES[0], &come);
    let second = store.writes(2, SIZES[0], &come);
    let tier = store.tier.clone();
    let checkpoint = thread::spawn(move || tier.checkpoint());
    let tier = store.tier.clone();
    let third = thread::spawn(move || put(&tier, 3, SIZES[0]));
    second.verdict.send(Ok(())).unwrap();
    first.verdict.send(Ok(())).unwrap();
    store.gate.open();
    // Whoever came to the gate before it was opened.
    let rest = thread::spawn(move || come.iter().for_each(|verdict| verdict.send(Ok(())).unwrap()));
    assert!(first.ends().is_ok() && second.ends().is_ok());
    third.join().unwrap().unwrap();
    checkpoint.join().unwrap().unwrap();
    rest.join().unwrap();
    store.keeps(&[0, 1, 2], [SIZES[0]; 3]);
}
