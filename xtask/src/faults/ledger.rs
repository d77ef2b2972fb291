//! Clients that know what they were promised: each writes keys of its own and notes what was sent
//! and what was acknowledged, so that after any end of the server every key can be judged.

use crate::{Client, Value, place, random};
use fastrand::Rng;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Through the log, through the log, straight to the SSD, and in many pieces.
const LENGTHS: [usize; 4] = [20, 700, 9_000, 150_000];
/// Keys of one client.
const KEYS: usize = 100;

/// What one key was promised. Versions begin at 1; 0 is "never stored".
#[derive(Clone, Copy, Default)]
struct Promise {
    sent: u64,
    acknowledged: u64,
}

/// One client's keys.
pub struct Ledger {
    client: u64,
    random: Rng,
    promises: Vec<Promise>,
}

/// What many clients share.
#[derive(Default)]
pub struct Shared {
    /// Set when they should stop.
    pub over: AtomicBool,
    /// Writes acknowledged, by all of them.
    pub acknowledged: AtomicU64,
}

impl Ledger {
    /// For the client of this number, with nothing promised.
    pub fn new(client: u64) -> Ledger {
        let random = random::stream(1, client);
        Ledger { client, random, promises: vec![Promise::default(); KEYS] }
    }

    /// What version `version` of a key is.
    fn value(&self, key: usize, version: u64) -> Value {
        let length = LENGTHS[(key + version as usize) % LENGTHS.len()];
        Value { key: self.client * KEYS as u64 + key as u64, version, length }
    }

    /// Writes one key after the other until the run is over or the connection is lost. An error is
    /// a wrong reply: a lost connection is none.
    pub fn write(&mut self, address: SocketAddr, shared: &Shared) -> Result<(), String> {
        let Ok(mut connection) = Client::connect(address) else { return Ok(()) };
        while !shared.over.load(Relaxed) {
            let key = self.random.usize(..KEYS);
            let version = self.promises[key].sent + 1;
            let value = self.value(key, version);
            self.promises[key].sent = version;
            if connection.send_set(&value.key.to_string(), 0, value).is_err() {
                return Ok(());
            }
            match connection.line() {
                Ok(line) if line == "STORED" => {
                    self.promises[key].acknowledged = version;
                    shared.acknowledged.fetch_add(1, Relaxed);
                }
                Ok(line) => return Err(format!("a SET was answered by `{line}`")),
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads every key: it must hold the last write that was acknowledged, or the one under way
    /// behind it. Returns how many keys had something to be lost.
    pub fn check(&mut self, address: SocketAddr) -> Result<usize, String> {
        let mut connection = Client::connect(address)?;
        let mut judged = 0;
        for key in 0..KEYS {
            let Promise { sent, acknowledged } = self.promises[key];
            let name = self.value(key, 0).key;
            connection.send(format!("get {name}\r\n").as_bytes())?;
            let line = connection.line()?;
            judged += usize::from(acknowledged > 0);
            if line == "END" {
                if acknowledged > 0 {
                    return Err(format!("key {name} is lost: version {acknowledged} was stored"));
                }
                self.promises[key] = Promise { sent, acknowledged: 0 };
                continue;
            }
            let candidates = [acknowledged, sent].map(|version| self.value(key, version));
            let length = line.rsplit(' ').next().and_then(|word| word.parse::<usize>().ok());
            let length = length.ok_or_else(|| format!("a GET was answered by `{line}`"))?;
            let mut found = None;
            let told = connection.body(length, |bytes| {
                found = candidates.iter().find(|value| value.version > 0 && value.is(bytes));
                found.is_some()
            });
            told.map_err(|why| {
                format!("key {name}: {why}: neither version {acknowledged} nor {sent}")
            })?;
            connection.expect("END")?;
            // What is there now is what the next check may not lose.
            let there = found.map_or(0, |value| value.version);
            self.promises[key].acknowledged = there;
        }
        Ok(judged)
    }
}

/// Has all of them write until so many more writes are acknowledged; then `fault` is done while
/// they go on, and they end. A connection lost before the fault is an error.
pub fn write_until(
    ledgers: &mut [Ledger],
    address: SocketAddr,
    writes: u64,
    fault: impl FnOnce() -> Result<(), String>,
) -> Result<u64, String> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let writing = |ledger| {
            let shared = &shared;
            scope.spawn(move || Ledger::write(ledger, address, shared))
        };
        let clients: Vec<_> = ledgers.iter_mut().map(writing).collect();
        let reached = place::wait_until("writes are acknowledged", || {
            let ended = clients.iter().any(|client| client.is_finished());
            let acknowledged = shared.acknowledged.load(Relaxed);
            match (writes <= acknowledged, ended) {
                (true, _) => Ok(true),
                (false, false) => Ok(false),
                (false, true) => Err(format!(
                    "a client lost its connection after {acknowledged} of {writes} writes, before \
                     anything was done to the server"
                )),
            }
        });
        let done = reached.and_then(|()| fault());
        shared.over.store(true, Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| Err("a client panicked".into()))?;
        }
        done.map(|()| shared.acknowledged.load(Relaxed))
    })
}

/// Checks all of them; how many keys had something to be lost.
pub fn check_all(ledgers: &mut [Ledger], address: SocketAddr) -> Result<usize, String> {
    ledgers.iter_mut().map(|ledger| ledger.check(address)).sum()
}
