//! Concurrent histories of hot keys whose owners change all the time: every one of them must be
//! linearizable, by seed over the memory transport and with a thread for each worker; and when an
//! owner does not look whether an item is still what it read, the checker must find it.
//!
//! `LANEWAY_HISTORY_OPERATIONS` and `LANEWAY_HISTORY_SEED` make it longer and other.

use crate::checker::{Asked, Operation, Told, check};
use crate::crowd::{number, plan, stats};
use crate::rig::{Plan, Rig};
use laneway_load::random::Random;
use laneway_policy::Access;
use laneway_server::clock::Clock;
use laneway_server::stats::Question;
use laneway_server::worker::Progress;
use laneway_store::{Got, Moment};
use laneway_transport::memory::{Client, Net};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

/// Keys that everybody asks for.
const KEYS: usize = 3;
const CLIENTS: usize = 8;
/// Looks without an answer after which a thread's client gives up.
const QUIET_MAX: u32 = 50_000_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn operations() -> usize {
    setting("LANEWAY_HISTORY_OPERATIONS").unwrap_or(12_000) as usize
}

fn first_seed() -> u64 {
    setting("LANEWAY_HISTORY_SEED").unwrap_or(1)
}

/// One client: what it has asked and not been told yet.
struct Asker {
    client: Client,
    random: Random,
    got: Vec<u8>,
    open: Option<(usize, Asked, u64)>,
    /// Makes its values its own.
    name: u64,
    written: u64,
}

impl Asker {
    fn new(net: &Net, seed: u64, name: u64) -> Asker {
        Asker {
            client: net.connect(),
            random: Random::stream(seed, name),
            got: Vec::new(),
            open: None,
            name,
            written: 0,
        }
    }

    /// Ask something. Counters are increased and read, other keys have all happen to them.
    fn ask(&mut self, now: u64) {
        let key = self.random.below(KEYS as u64) as usize;
        self.written += 1;
        let value = self.name << 32 | self.written << 8;
        let asked = match (key, self.random.below(10)) {
            (0, 0..4) => Asked::Increase(1),
            (0, 4) => Asked::Add(0),
            (0, _) => Asked::Get,
            (_, 0 | 1) => Asked::Set(value),
            (_, 2) => Asked::Add(value),
            (_, 3) => Asked::Delete,
            (_, 4) => Asked::Increase(1),
            _ => Asked::Get,
        };
        let line = match asked {
            Asked::Get => format!("get hot{key}\r\n"),
            Asked::Set(value) => store("set", key, value),
            Asked::Add(value) => store("add", key, value),
            Asked::Delete => format!("delete hot{key}\r\n"),
            Asked::Increase(by) => format!("incr hot{key} {by}\r\n"),
        };
        assert_eq!(self.client.send(line.as_bytes()), line.len(), "a short line fits");
        self.open = Some((key, asked, now));
    }

    /// What it was told, if all of it has come. The clock is read after the reply: a thread that
    /// lost its CPU between an earlier look and the reply would claim to have been told too soon.
    fn hear(&mut self, mut tick: impl FnMut() -> u64) -> Option<(usize, Operation)> {
        let (key, asked, called) = self.open?;
        self.got.extend(self.client.receive(usize::MAX));
        let end: &[u8] = if asked == Asked::Get { b"END\r\n" } else { b"\r\n" };
        if !self.got.ends_with(end) {
            return None;
        }
        let told = told(asked, &String::from_utf8_lossy(&self.got));
        self.got.clear();
        self.open = None;
        Some((key, Operation { asked, told, called, returned: tick() }))
    }
}

fn store(verb: &str, key: usize, value: u64) -> String {
    let value = value.to_string();
    format!("{verb} hot{key} 0 0 {}\r\n{value}\r\n", value.len())
}

fn told(asked: Asked, reply: &str) -> Told {
    let number = |line: &str| line.trim_end().parse().ok();
    match (asked, reply) {
        (Asked::Get, "END\r\n") | (Asked::Increase(_), "NOT_FOUND\r\n") => Told::Value(None),
        (Asked::Get, _) => {
            let value = reply.lines().nth(1).and_then(number);
            Told::Value(Some(value.unwrap_or_else(|| panic!("{reply:?}"))))
        }
        (Asked::Increase(_), _) => {
            Told::Value(Some(number(reply).unwrap_or_else(|| panic!("{reply:?}"))))
        }
        (_, "STORED\r\n" | "DELETED\r\n") => Told::Done(true),
        (_, "NOT_STORED\r\n" | "NOT_FOUND\r\n") => Told::Done(false),
        _ => panic!("{asked:?}: {reply:?}"),
    }
}

fn hot_plan(access: Access, workers: usize) -> Plan {
    let plan = plan(access, workers, 40);
    let hot = laneway_policy::hot::HotSettings {
        threshold: laneway_policy::hot::HotThreshold::Requests(2),
        ..plan.hot.expect("it is on")
    };
    Plan { hot: Some(hot), ..plan }
}

/// Checks each key's history.
fn verdict(histories: &[Vec<Operation>]) -> Result<(), Operation> {
    histories.iter().try_for_each(|history| check(None, history))
}

/// One worker after the other, by seed. With `bug`, beside them one that increases `hot0` wrongly.
fn by_seed(
    access: Access,
    workers: usize,
    seed: u64,
    count: usize,
    bug: bool,
) -> Vec<Vec<Operation>> {
    let mut rig = Rig::new(&hot_plan(access, workers));
    let mut askers: Vec<Asker> =
        (0..CLIENTS as u64).map(|name| Asker::new(&rig.net, seed, name)).collect();
    let mut hasty = bug.then(|| Hasty { random: Random::stream(seed, 99), read: None, turns: 0 });
    let mut histories = vec![Vec::new(); KEYS];
    let (mut now, mut done) = (0, 0);
    let mut tick = || {
        now += 1;
        now
    };
    // What was asked is told: an operation without its return could not be checked.
    while done < count || askers.iter().any(|asker| asker.open.is_some()) {
        for asker in &mut askers {
            if let Some((key, operation)) = asker.hear(&mut tick) {
                histories[key].push(operation);
                done += 1;
            }
            if asker.open.is_none() && done < count && asker.random.chance(0.7) {
                asker.ask(tick());
            }
        }
        rig.turn();
        if let Some(hasty) = &mut hasty {
            histories[0].extend(hasty.turn(&rig, &mut tick));
        }
    }
    let moved = number(&stats(&rig, &Question::HotKeys), "moved");
    assert!(moved > count as f64 / 200.0, "the keys moved {moved} times in {count} operations");
    histories
}

/// The bug: an owner of the last slot that increases `hot0` as `incr` does, in the same store and
/// by the same steps, but for the look whether the item is still what it read. What it does is part
/// of the history.
struct Hasty {
    random: Random,
    /// What it read, and when it began.
    read: Option<(u64, u64)>,
    turns: u32,
}

impl Hasty {
    fn turn(&mut self, rig: &Rig, mut tick: impl FnMut() -> u64) -> Option<Operation> {
        const KEY: &[u8] = b"hot0";
        let store = &rig.shared.store;
        let (hash, now) = (store.hash(KEY), rig.clock.moment(rig.clock.nanos()));
        let asked = Asked::Increase(1);
        self.turns += 1;
        let Some((read, called)) = self.read else {
            if self.random.chance(0.2) {
                let (called, mut out) = (tick(), Vec::new());
                match store.get(hash, KEY, now, &mut out, &mut |_, _| {}) {
                    Got::Copied(_) => {
                        let text = String::from_utf8(out).expect("a number");
                        self.read = Some((text.trim().parse().expect("a number"), called));
                        self.turns = 0;
                    }
                    _ => {
                        let told = Told::Value(None);
                        return Some(Operation { asked, told, called, returned: tick() });
                    }
                }
            }
            return None;
        };
        if self.turns < 12 {
            return None;
        }
        let number = (read + 1).to_string();
        let draft = store.draft(KEY, 0, Moment::NEVER, number.len());
        let mut draft = draft.expect("there is memory");
        draft.write(number.as_bytes()).expect("it fits");
        store.enter(hash, KEY, now).publish(draft, None);
        self.read = None;
        Some(Operation { asked, told: Told::Value(Some(read + 1)), called, returned: tick() })
    }
}

#[test]
fn histories_under_moves_are_linearizable_by_seed() {
    let each = operations() / 4;
    for (run, (access, workers)) in
        [(Access::Erew, 2), (Access::Erew, 5), (Access::Crew, 2), (Access::Crew, 5)]
            .into_iter()
            .enumerate()
    {
        let seed = first_seed() + run as u64;
        let histories = by_seed(access, workers, seed, each, false);
        if let Err(operation) = verdict(&histories) {
            panic!(
                "{access}, {workers} workers: {operation:?} cannot be; again with: \
                 LANEWAY_HISTORY_SEED={} LANEWAY_HISTORY_OPERATIONS={} cargo test -p \
                 laneway-server --test hot histories",
                first_seed(),
                operations()
            );
        }
    }
}

#[test]
fn an_owner_that_does_not_look_whether_the_item_is_still_the_same_is_found() {
    let found =
        (1..=5).filter(|&seed| verdict(&by_seed(Access::Erew, 4, seed, 2_000, true)).is_err());
    assert_eq!(found.count(), 5);
}

/// Every worker has a thread, and every client too.
#[test]
fn histories_of_threads_under_moves_are_linearizable() {
    for (access, seed) in [(Access::Erew, first_seed()), (Access::Crew, first_seed() + 1)] {
        let mut rig = Rig::new(&hot_plan(access, 3));
        let workers = std::mem::take(&mut rig.workers);
        let (clock, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let each = operations() / 2 / CLIENTS;
        let tick = || clock.fetch_add(1, SeqCst) + 1;
        let mut histories = vec![Vec::new(); KEYS];
        thread::scope(|scope| {
            for mut worker in workers {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        let progress = worker.step().expect("memory transports do not fail");
                        if progress == Progress::Idle {
                            thread::yield_now();
                        }
                    }
                });
            }
            let client = |name: u64| {
                let (net, tick) = (&rig.net, &tick);
                move || {
                    let mut asker = Asker::new(net, seed, name);
                    let (mut heard, mut quiet) = (Vec::new(), 0_u32);
                    while heard.len() < each {
                        quiet += 1;
                        assert!(quiet < QUIET_MAX, "no reply to client {name}");
                        if asker.open.is_none() {
                            asker.ask(tick());
                        }
                        match asker.hear(tick) {
                            Some(operation) => {
                                heard.push(operation);
                                quiet = 0;
                            }
                            None => thread::yield_now(),
                        }
                    }
                    heard
                }
            };
            let clients: Vec<_> =
                (0..CLIENTS as u64).map(|name| scope.spawn(client(name))).collect();
            let heard: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            over.store(true, SeqCst);
            for (key, operation) in heard.into_iter().flat_map(|h| h.expect("no client panics")) {
                histories[key].push(operation);
            }
        });
        if let Err(operation) = verdict(&histories) {
            panic!("{access}, seed {seed}: {operation:?} cannot be");
        }
        let moved = number(&stats(&rig, &Question::HotKeys), "moved");
        assert!(moved > 0.0, "{access}: no key moved");
    }
}
