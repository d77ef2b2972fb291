//! Somebody who operates the server while it is at work: has checkpoints made and the store
//! compacted over a connection of their own, compacts it by the library as well, and bounds what
//! migration writes.
//!
//! The judges: a checkpoint that is answered has all that was appended when it was asked for; and
//! at a byte a second migration makes one turn, and beside it only such as are told to have gone
//! beyond the rate. What a compaction loses, the clients' histories miss.

use laneway_rig::{Rig, RigStream};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::Shared;
use laneway_tier::disk::sim::Random;
use laneway_tier::{Error, Tier};
use laneway_transport::memory::Client;
use std::sync::Arc;

/// Turns of migration that are looked at in one go.
const TURNS: u64 = 4;
/// Rates that it may have meanwhile, in bytes a second.
const RATES: [u64; 4] = [0, 1, 16 << 10, 1 << 20];

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// Nothing that is counted.
    Nothing,
    /// A checkpoint was answered.
    Checkpoint,
    /// The store was compacted.
    Compaction,
    /// The server was told to do that beside everything else.
    CompactionAsked,
}

/// What is asked for over the connection.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// A checkpoint, when so many bytes had been appended.
    Checkpoint(u64),
    /// A compaction.
    Compaction,
    /// That the compaction is given up.
    Stop,
}

impl Asked {
    fn line(self) -> &'static [u8] {
        match self {
            Asked::Checkpoint(_) => b"checkpoint\r\n",
            Asked::Compaction => b"compact\r\n",
            Asked::Stop => b"compact stop\r\n",
        }
    }
}

/// Who operates it.
pub struct Operator {
    random: Random,
    tier: Arc<Tier>,
    client: Option<Client>,
    /// What the client still has to send.
    out: Vec<u8>,
    /// What it was told so far.
    got: Vec<u8>,
    /// What is not answered yet.
    asked: Option<Asked>,
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::PmFull | Error::SsdFull { .. })
}

impl Operator {
    /// Of this server, which keeps items, and has this clock.
    pub fn new(shared: &Shared<RigStream>, seed: u64, clock: &ManualClock) -> Option<Operator> {
        let tier = shared.durable.get()?.tier.clone();
        let clock = clock.clone();
        tier.lend_clock(Box::new(move || clock.nanos()));
        let mut random = Random::new(seed ^ 0x0b5e_0b5e);
        tier.limit_migration(RATES[random.below(RATES.len() as u64) as usize]);
        let (out, got) = (Vec::new(), Vec::new());
        Some(Operator { random, tier, client: None, out, got, asked: None })
    }

    /// Something now and then. `doubt`: devices may refuse.
    pub fn turn(&mut self, rig: &Rig, has_users: bool, doubt: bool) -> Result<Did, String> {
        match self.random.below(600) {
            0 if !has_users && self.asked.is_none() => {
                self.ask(rig, Asked::Checkpoint(self.tier.checkpointed().0));
            }
            67 if !has_users && self.asked.is_none() => {
                let stops = self.random.one_in(4);
                self.ask(rig, if stops { Asked::Stop } else { Asked::Compaction });
            }
            1..60 => return self.exchange(doubt),
            60 if self.random.one_in(4) => return self.compact(doubt),
            61..67 => self.watch_rate()?,
            _ => {}
        }
        Ok(Did::Nothing)
    }

    /// The connection is closed.
    pub fn leave(&mut self) {
        if let Some(client) = self.client.take() {
            client.reset();
        }
        self.out.clear();
        self.got.clear();
        self.asked = None;
    }

    fn ask(&mut self, rig: &Rig, asked: Asked) {
        if self.client.as_ref().is_none_or(Client::ended) {
            self.leave();
            self.client = Some(rig.net.connect());
        }
        self.out = asked.line().to_vec();
        self.asked = Some(asked);
    }

    fn exchange(&mut self, doubt: bool) -> Result<Did, String> {
        let Some(client) = &self.client else { return Ok(Did::Nothing) };
        let sent = client.send(&self.out);
        self.out.drain(..sent);
        self.got.extend(client.receive(1000));
        let has_ended = client.ended();
        if self.got.ends_with(b"\r\n") {
            let (told, asked) = (std::mem::take(&mut self.got), self.asked.take());
            return self.judge(&told, asked, doubt);
        }
        if has_ended {
            self.leave();
        }
        Ok(Did::Nothing)
    }

    fn judge(&self, told: &[u8], asked: Option<Asked>, doubt: bool) -> Result<Did, String> {
        match (asked, told) {
            (Some(Asked::Checkpoint(asked)), b"OK\r\n") => return self.judge_checkpoint(asked),
            (Some(Asked::Compaction), b"OK\r\n") => return Ok(Did::CompactionAsked),
            (Some(Asked::Stop), b"OK\r\n") => return Ok(Did::Nothing),
            _ => {}
        }
        let told = String::from_utf8_lossy(told);
        let is_full = told.contains("no room for") || told.contains("the log is full");
        let is_refused = match asked {
            Some(Asked::Compaction) => told.contains("a compaction is under way"),
            Some(Asked::Stop) => told.contains("no compaction is under way"),
            Some(Asked::Checkpoint(_)) | None => is_full,
        };
        match is_refused || (doubt && told.starts_with("SERVER_ERROR ")) {
            true => Ok(Did::Nothing),
            false => Err(format!("{asked:?} is answered by {told:?}")),
        }
    }

    fn judge_checkpoint(&self, asked: u64) -> Result<Did, String> {
        let (_, checkpointed) = self.tier.checkpointed();
        match asked <= checkpointed {
            true => Ok(Did::Checkpoint),
            false => Err(format!(
                "a checkpoint is answered that has {checkpointed} bytes of {asked} asked for"
            )),
        }
    }

    fn compact(&self, doubt: bool) -> Result<Did, String> {
        match self.tier.compact(&mut |_, _| {}) {
            Ok(()) => Ok(Did::Compaction),
            Err(error) if doubt || is_full(&error) => Ok(Did::Nothing),
            Err(error) => Err(format!("a compaction fails: {error}")),
        }
    }

    /// At a byte a second.
    fn watch_rate(&mut self) -> Result<(), String> {
        let before = self.tier.stats();
        let (mut turns, mut moved) = (0, before.moved_bytes);
        self.tier.limit_migration(1);
        for _ in 0..TURNS {
            // A medium that refuses is the next writer's to find out.
            let _ = self.tier.maintain();
            let now = self.tier.stats().moved_bytes;
            turns += u64::from(now != moved);
            moved = now;
        }
        let yields = self.tier.stats().rate_yields - before.rate_yields;
        self.tier.limit_migration(RATES[self.random.below(RATES.len() as u64) as usize]);
        // Eviction merges tables, and is not held to it.
        match 1 + yields < turns && !self.tier.evicts() {
            true => Err(format!(
                "migration makes {turns} turns at a byte a second, and tells that {yields} went \
                 beyond that"
            )),
            false => Ok(()),
        }
    }
}
