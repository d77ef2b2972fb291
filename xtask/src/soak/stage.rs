//! What the clients of one server share, and what those of both do.
//!
//! The key space is larger than the memory of the server that evicts. Nine requests in ten go to a
//! hot set, which moves every few seconds, so that what was just evicted is asked for again.

use crate::judge::Judge;
use crate::{Client, place, process, random};
use fastrand::Rng;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::time::Instant;

/// Requests in 10 000 that go to the hot set.
const HOT_PARTS: u32 = 9_000;
/// Keys in it: this part of all.
const HOT_SHARE: u32 = 64;
/// Requests that a client sends at once, at most.
const BATCH_MAX: usize = 32;
/// Keys of a multiget.
const KEYS_OF_A_GET: Range<usize> = 2..9;
/// How often a client drops its connection and comes again, in batches of 10 000.
const RECONNECT_PARTS: u32 = 20;

/// An hour and more: nothing expires in a run, and yet each item has a time.
pub const TTL_SECONDS: u32 = 36_000;
/// Keys that a client has for itself.
const OWN_SPACE: Space = Space { small: 400, large: 24 };

/// Ways to misbehave.
pub const MISDEEDS: usize = 11;

/// What holds for both servers' clients.
#[derive(Default)]
pub struct Scene {
    /// Requests in 10 000 that are large, now.
    pub large_parts: AtomicU32,
    /// How often the hot set has moved.
    pub hot_shifts: AtomicU32,
    /// Set when the run is over.
    pub over: AtomicBool,
    /// What went wrong for well-behaved clients.
    errors: Mutex<Vec<String>>,
}

impl Scene {
    /// Whether the clients should stop.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Tells of an error.
    pub fn error(&self, text: String) {
        self.errors.lock().expect("no client panics with the list in hand").push(text);
    }

    /// How many errors there are, and the first.
    pub fn errors(&self) -> (usize, Option<String>) {
        let errors = self.errors.lock().expect("no client panics with the list in hand");
        (errors.len(), errors.first().cloned())
    }
}

/// The keys that well-behaved clients of a server read and write: small ones, then large ones.
#[derive(Clone, Copy)]
pub struct Space {
    pub small: u32,
    pub large: u32,
}

impl Space {
    /// How many in all.
    pub fn keys(self) -> u32 {
        self.small + self.large
    }
}

/// A server, whoever's keys are in question.
pub struct Served {
    /// For errors and reports.
    name: &'static str,
    /// Where it answers TCP.
    address: SocketAddr,
    /// Even while it serves, odd from before it is ended until it serves again.
    life: AtomicU32,
    seen: Counts,
}

impl Served {
    pub fn new(name: &'static str, address: SocketAddr) -> Served {
        Served { name, address, life: AtomicU32::new(0), seen: Counts::default() }
    }
}

/// Keys of a server, and what their clients share; or what one has for itself.
pub struct Stage<'a> {
    pub scene: &'a Scene,
    served: &'a Served,
    pub name: &'static str,
    pub address: SocketAddr,
    pub seen: &'a Counts,
    /// What the names of keys begin with.
    prefix: String,
    pub space: Space,
    /// Whether the server evicts; if not, what was stored and not deleted is there.
    pub evicts: bool,
    /// Whether clients delete keys.
    pub deletes: bool,
    pub judge: Judge,
    /// Held by who has a change under way by UDP: a repeated request is carried out once as long
    /// as the server lives, and no longer. Taken for itself by who ends the server.
    pub datagrams: RwLock<()>,
    /// Increments of the counter: acknowledged, and sent.
    pub increments: [AtomicU64; 2],
    /// The largest count that was acknowledged.
    pub count: AtomicU64,
}

/// What the clients of one server saw.
#[derive(Default)]
pub struct Counts {
    /// Replies verified, by TCP and memcached's protocol.
    pub tcp: AtomicU64,
    /// By TCP and RESP.
    pub resp: AtomicU64,
    /// And by UDP.
    pub udp: AtomicU64,
    /// Bytes of values verified.
    pub bytes: AtomicU64,
    /// Requests that a full memory refused.
    pub refused: AtomicU64,
    /// Requests by UDP without an answer in time.
    pub unanswered: AtomicU64,
    /// Misdeeds done, by kind.
    pub misdeeds: [AtomicU64; MISDEEDS],
}

impl<'a> Stage<'a> {
    /// The keys that all write. Of a server that keeps everything nobody deletes them: what was
    /// stored there must be there.
    pub fn new(scene: &'a Scene, served: &'a Served, space: Space, evicts: bool) -> Stage<'a> {
        Stage {
            scene,
            served,
            name: served.name,
            address: served.address,
            seen: &served.seen,
            prefix: "shared".into(),
            space,
            evicts,
            deletes: evicts,
            judge: Judge::new(space.keys(), evicts),
            datagrams: RwLock::new(()),
            increments: Default::default(),
            count: AtomicU64::new(0),
        }
    }

    /// Keys of the same server that nobody but this writer has.
    pub fn own(&self, writer: usize) -> Stage<'a> {
        let stage = Stage::new(self.scene, self.served, OWN_SPACE, self.evicts);
        Stage { prefix: format!("own-{writer}"), deletes: true, ..stage }
    }

    /// Whether one client alone has these keys.
    pub fn is_own(&self) -> bool {
        self.deletes && !self.evicts
    }

    /// A key, as it is called.
    pub fn key(&self, key: u32) -> String {
        format!("{}-{key}", self.prefix)
    }

    /// The counter that all increment, where nothing is evicted.
    pub fn counter(&self) -> String {
        format!("{}-counter", self.prefix)
    }

    /// Stores the counter's first value.
    pub fn make_counter(&self) -> Result<(), String> {
        let mut client = Client::connect(self.address)?;
        let line = format!("set {} 0 {TTL_SECONDS} 1\r\n0\r\n", self.counter());
        client.send(line.as_bytes())?;
        client.expect("STORED")
    }

    /// The server begins to end, or serves again.
    pub fn turn_life(&self) {
        self.served.life.fetch_add(1, SeqCst);
    }

    /// Which life this is; to be read before a connection is made.
    pub fn life(&self) -> u32 {
        self.served.life.load(SeqCst)
    }

    /// Whether a connection that was made in `life` may be lost without anybody's fault.
    fn may_lose(&self, life: u32) -> bool {
        life != self.life() || life % 2 == 1
    }

    /// Has a client speak by one connection after the other until the run is over. It ends a
    /// connection itself, or loses it when the server is ended: only then is an error none.
    pub fn each_connection(
        &self,
        mut converse: impl FnMut(&mut Client) -> Result<(), String>,
    ) -> Result<(), String> {
        while let Some((mut connection, life)) = self.connect()? {
            match converse(&mut connection) {
                Err(why) if !(connection.is_lost() && self.may_lose(life)) => return Err(why),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a client is to drop its connection and come again.
    pub fn is_to_reconnect(&self, random: &mut Rng) -> bool {
        random::chance(random, RECONNECT_PARTS)
    }

    /// How many small requests a batch has, and whether a large one is behind them: with the chance
    /// that any of its requests is large, p_L each.
    pub fn batch(&self, random: &mut Rng) -> (usize, bool) {
        let count = random.usize(1..=BATCH_MAX);
        let parts = self.scene.large_parts.load(Relaxed);
        let large = (0..count).any(|_| random::chance(random, parts));
        (count - usize::from(large), large)
    }

    /// A connection and the life that it was made in; nothing when the run is over.
    fn connect(&self) -> Result<Option<(Client, u32)>, String> {
        let deadline = Instant::now() + 2 * place::PATIENCE;
        while !self.scene.is_over() {
            let life = self.life();
            match Client::connect(self.address) {
                Ok(client) => return Ok(Some((client, life))),
                Err(why) if !self.may_lose(life) || deadline < Instant::now() => return Err(why),
                Err(_) => std::thread::sleep(process::POLL_INTERVAL),
            }
        }
        Ok(None)
    }

    /// A small key, likely a hot one.
    pub fn small_key(&self, random: &mut Rng) -> u32 {
        draw(self.space.small, self.scene.hot_shifts.load(Relaxed), random)
    }

    /// The keys of a multiget. Each stands there once: of two replies to one key nothing would say
    /// which is which, and of what moment.
    pub fn small_keys(&self, random: &mut Rng) -> Vec<u32> {
        let count = random.usize(KEYS_OF_A_GET);
        let mut keys: Vec<u32> = (0..count).map(|_| self.small_key(random)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// A large key.
    pub fn large_key(&self, random: &mut Rng) -> u32 {
        let shifts = self.scene.hot_shifts.load(Relaxed);
        self.space.small + draw(self.space.large, shifts, random)
    }

    /// Tells of an error of this server's.
    pub fn error(&self, text: String) {
        self.scene.error(format!("{}: {text}", self.name));
    }

    /// An increment of the shared counter will leave; the largest count that is known.
    pub fn begin_count(&self) -> u64 {
        let before = self.count.load(SeqCst);
        self.increments[1].fetch_add(1, SeqCst);
        before
    }

    /// It was answered by this count, and `before` was known when it left.
    pub fn counted(&self, before: u64, count: u64) -> Result<(), String> {
        // One client's replies come in order, so its last count was known, too.
        let before = if self.is_own() { self.count.load(SeqCst) } else { before };
        if count <= before {
            return Err(format!("the counter is {count} behind {before}: increments are lost"));
        }
        let sent = self.increments[1].load(SeqCst);
        if sent < count {
            return Err(format!("the counter is {count}, and {sent} increments were sent"));
        }
        self.count.fetch_max(count, SeqCst);
        self.increments[0].fetch_add(1, SeqCst);
        Ok(())
    }

    /// Counts a reply that was as it must be.
    pub fn verified(&self, replies: &AtomicU64, bytes: usize) {
        replies.fetch_add(1, Relaxed);
        self.seen.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

/// One of `keys`: of the hot ones after so many shifts, or any.
fn draw(keys: u32, shifts: u32, random: &mut Rng) -> u32 {
    let hot = (keys / HOT_SHARE).max(1);
    match random::chance(random, HOT_PARTS) {
        // Sets follow each other without overlap, round and round.
        true => (shifts.wrapping_mul(hot) % keys + random.u32(..hot)) % keys,
        false => random.u32(..keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_set_moves_over_all_keys() {
        let mut random = random::stream(1, 1);
        let keys = 640;
        let mut middle_of = |shifts| {
            let mut drawn: Vec<u32> = (0..999).map(|_| draw(keys, shifts, &mut random)).collect();
            assert!(drawn.iter().all(|key| *key < keys));
            drawn.sort_unstable();
            drawn[drawn.len() / 2]
        };
        for shifts in [0, 5, 63, 64 * 100 + 5] {
            let set = (shifts * 10) % keys;
            assert!((set..set + 10).contains(&middle_of(shifts)), "after {shifts} shifts");
        }
    }
}
