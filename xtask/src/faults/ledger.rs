//! Clients that know what they were promised: each writes keys of its own, and the judge keeps what
//! was sent and what was acknowledged, so that after any end of the server every key can be judged.

use crate::judge::{Judge, View};
use crate::look::look;
use crate::{Client, place, random};
use fastrand::Rng;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const CLIENTS: u32 = 4;
/// Keys of one client.
const KEYS: u32 = 100;
/// Through the log, through the log, straight to the SSD, and in many pieces.
const LENGTHS: [usize; 4] = [20, 700, 9_000, 150_000];

/// All clients' keys.
pub struct Ledger {
    judge: Judge,
    /// One for each client.
    randoms: Vec<Rng>,
}

impl Ledger {
    /// With nothing promised.
    pub fn new() -> Ledger {
        let randoms = (0..CLIENTS).map(|client| random::stream(1, client.into())).collect();
        Ledger { judge: Judge::new(CLIENTS * KEYS, false), randoms }
    }

    /// Has all clients write until so many more writes are acknowledged; then `fault` is done while
    /// they go on, and they end. A connection lost before the fault is an error.
    pub fn write_until(
        &mut self,
        address: SocketAddr,
        writes: u64,
        fault: impl FnOnce() -> Result<(), String>,
    ) -> Result<u64, String> {
        let (judge, over, acknowledged) = (&self.judge, AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writing = |(writer, random)| {
                let (over, acknowledged) = (&over, &acknowledged);
                scope.spawn(move || write(judge, writer, random, address, over, acknowledged))
            };
            let clients: Vec<_> = self.randoms.iter_mut().enumerate().map(writing).collect();
            let reached = place::wait_until("writes are acknowledged", || {
                let ended = clients.iter().any(|client| client.is_finished());
                let acknowledged = acknowledged.load(Relaxed);
                match (writes <= acknowledged, ended) {
                    (true, _) => Ok(true),
                    (false, false) => Ok(false),
                    (false, true) => Err(format!(
                        "a client lost its connection after {acknowledged} of {writes} writes, \
                         before anything was done to the server"
                    )),
                }
            });
            let done = reached.and_then(|()| fault());
            over.store(true, Relaxed);
            place::join(clients)?;
            done.map(|()| acknowledged.load(Relaxed))
        })
    }

    /// Reads every key: it must hold the last write that was acknowledged, or the one under way
    /// behind it. Returns how many keys hold something.
    pub fn check(&self, address: SocketAddr) -> Result<usize, String> {
        let (mut connection, mut view) = (Client::connect(address)?, View::new(&self.judge));
        let mut there = 0;
        for key in 0..CLIENTS * KEYS {
            view.ask(key);
            connection.send(format!("mg {key} v\r\n").as_bytes())?;
            there += usize::from(look(&mut view, &mut connection, key)?);
        }
        Ok(there)
    }
}

/// Writes one key after the other until the run is over or the connection is lost. An error is a
/// wrong reply: a lost connection is none.
fn write(
    judge: &Judge,
    writer: usize,
    random: &mut Rng,
    address: SocketAddr,
    over: &AtomicBool,
    acknowledged: &AtomicU64,
) -> Result<(), String> {
    let Ok(mut connection) = Client::connect(address) else { return Ok(()) };
    let mut view = View::new(judge);
    while !over.load(Relaxed) {
        let key = writer as u32 * KEYS + random.u32(..KEYS);
        let stamp = view.next(key, writer);
        let length = LENGTHS[(key + stamp.version) as usize % LENGTHS.len()];
        let mut bytes = format!("set {key} 0 0 {length}\r\n").into_bytes();
        stamp.write(key, length, &mut bytes);
        bytes.extend_from_slice(b"\r\n");
        if connection.send(&bytes).is_err() {
            return Ok(());
        }
        match connection.line() {
            Ok(line) if line == "STORED" => view.found(key, stamp)?,
            Ok(line) => return Err(format!("a SET was answered by `{line}`")),
            Err(_) => return Ok(()),
        }
        view.over();
        acknowledged.fetch_add(1, Relaxed);
    }
    Ok(())
}
