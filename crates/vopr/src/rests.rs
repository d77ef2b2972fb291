//! Rest: everybody goes on until there is nothing to do. Then nothing may be unanswered, and
//! nothing of what was in use may be left.

use crate::backup::Backups;
use crate::judge;
use crate::life::{Life, ROUNDS_MAX};
use crate::operator::Operator;
use crate::shm::ShmClients;
use crate::shm_steps;
use crate::streams::StreamClient;
use crate::watcher::Watcher;
use crate::world::{COMMIT_INTERVAL, Outcome, World};
use laneway_server::clock::Clock;
use std::sync::atomic::Ordering::Relaxed;

/// Rounds in a row with nothing to do that make a rest.
const QUIET_ROUNDS: u32 = 12;
const _: () = assert!(COMMIT_INTERVAL.as_nanos() * 4 < QUIET_ROUNDS as u128 * QUIET_NANOS as u128);
/// The same that prove a lost wake-up, where somebody is unanswered: shorter than any sleep.
const SLEEPING_ROUNDS_MAX: u32 = 60;
/// Time that passes in a round with nothing to do.
const QUIET_NANOS: u64 = 1_000_000;
/// Rounds after the last client has left, and the time that passes in each.
const LEAVE_ROUNDS: u32 = 60;
/// The same where clients are limited: what those who left have sent is read as fast as they may
/// ask.
const LEAVE_ROUNDS_LIMITED: u32 = 600;
const LEAVE_NANOS: u64 = 500_000_000;

impl World {
    /// Everybody goes on in turn, and nobody asks anything new, until there is nothing to do.
    pub(crate) fn rest(&mut self, life: &mut Life) -> Outcome {
        let mut quiet = 0;
        for _ in 0..ROUNDS_MAX {
            if self.has_no_power() {
                return Ok(());
            }
            let busy = self.round(life)?;
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet > SLEEPING_ROUNDS_MAX && self.is_forgotten(life) {
                return Err(format!("everybody sleeps: {}", self.waits_for(life)));
            }
            if quiet > QUIET_ROUNDS && self.is_answered(life) {
                let (now, may_miss) = self.now(life);
                self.books.settle(now, may_miss);
                let may_doubt = self.may_doubt();
                self.books.flush_if_over(now, may_miss, may_doubt);
                // Longer than the interval between two commits.
                life.durable_moment = self.books.moment();
                return judge::rest(life, &self.swarm);
            }
            self.pass_time(life, busy);
            self.note_time();
        }
        Err(format!("no answer after {ROUNDS_MAX} rounds: {}", self.waits_for(life)))
    }

    /// Whether a client waits for nothing that time brings: neither for a repeat over UDP nor for
    /// memory that the durable executor is short of, nor for what it may ask.
    pub(crate) fn is_forgotten(&self, life: &Life) -> bool {
        let brings_nothing = life.rig.keeps_nothing() && !self.swarm.is_limited();
        let is_awaited = !self.streams.iter().all(StreamClient::is_idle);
        brings_nothing && (is_awaited || shm_steps::is_untaken(life))
    }

    /// A step of everything that is the server's. Returns whether any had something to do.
    pub(crate) fn round_of_server(&mut self, life: &mut Life) -> Outcome<bool> {
        let mut busy = false;
        for worker in 0..life.rig.workers.len() {
            busy |= self.step_worker(life, worker)?;
        }
        busy |= self.step_executor(life)? | self.step_devices(life);
        if let Some(pool) = &mut life.rig.pool {
            busy |= pool.shake(&self.clock) | pool.bring(&self.clock);
        }
        self.note_drops(life);
        self.books.counts.steps += 1;
        Ok(busy)
    }

    /// The same, and the clients.
    pub(crate) fn round(&mut self, life: &mut Life) -> Outcome<bool> {
        let busy = self.round_of_server(life)?;
        let now_nanos = self.clock.nanos();
        let (mut scene, streams) = self.scene(&life.rig);
        for client in streams {
            client.exchange(&mut scene, &life.rig.net)?;
        }
        for client in &mut life.datagrams {
            client.exchange(&mut scene, now_nanos)?;
        }
        self.exchange_shm(life)?;
        Ok(busy)
    }

    /// A moment, or until a client over UDP or in memory asks again.
    pub(crate) fn pass_time(&mut self, life: &Life, busy: bool) {
        let now = self.clock.nanos();
        let wakes = life.datagrams.iter().filter(|client| !client.asking.is_idle());
        let wakes = wakes.filter_map(|client| client.asking.core.wake_nanos());
        // What was not taken is not waited for so long that a worker wakes by itself.
        let in_memory = life.shm.as_ref().filter(|_| !shm_steps::is_untaken(life));
        let next = wakes.chain(in_memory.and_then(ShmClients::wake_nanos)).min();
        self.clock.advance(match next {
            Some(next) if !busy && next > now => (next - now).min(100_000_000),
            _ if busy => 10_000,
            _ => QUIET_NANOS,
        });
    }

    pub(crate) fn is_answered(&self, life: &Life) -> bool {
        self.streams.iter().all(StreamClient::is_idle)
            && life.datagrams.iter().all(|client| client.asking.is_idle())
            && shm_steps::is_idle(life)
            && life.rig.keeps_nothing()
    }

    pub(crate) fn waits_for(&self, life: &Life) -> String {
        let streams = self.streams.iter().filter(|client| !client.is_idle());
        let datagrams = life.datagrams.iter().filter(|client| !client.asking.is_idle());
        let mut all: Vec<String> = streams.map(StreamClient::waits_for).collect();
        all.extend(datagrams.map(|client| client.asking.waits_for()));
        all.extend(life.shm.iter().flat_map(ShmClients::waits_for));
        if shm_steps::is_untaken(life) {
            all.push("a request lies in memory".into());
        }
        if !life.rig.keeps_nothing() {
            all.push("the durable executor is not idle".into());
        }
        all.join("; ")
    }

    /// Every key, by clients that come last.
    pub(crate) fn read_all(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        streams[0].read_all(&mut scene);
        self.rest(life)
    }

    /// Every client leaves: the server keeps nothing of them.
    pub(crate) fn leave(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        streams.iter_mut().for_each(|client| client.leave(scene.books));
        life.watcher.take().iter().for_each(Watcher::vanish);
        life.hostile.drain(..).for_each(|hostile| hostile.vanish());
        life.backups.iter_mut().for_each(Backups::leave);
        life.operator.iter_mut().for_each(Operator::leave);
        life.datagrams.iter_mut().for_each(|client| client.asking.disconnect(&mut scene));
        self.part_with_shm(life);
        // Longer than replies by UDP are kept, and than the times after which a server tidies up.
        let rounds = [LEAVE_ROUNDS, LEAVE_ROUNDS_LIMITED][usize::from(self.swarm.is_limited())];
        for _ in 0..rounds {
            self.round_of_server(life)?;
            self.clock.advance(LEAVE_NANOS);
        }
        life.datagrams.clear();
        life.shm = None;
        shm_steps::are_gone(life)?;
        let open = life.rig.shared.connections.open.load(Relaxed);
        let cards = laneway_server::shared::lock(&life.rig.shared.connections.cards).len();
        if open + cards > 0 {
            return Err(format!("{open} connections are open, and {cards} told, of no client"));
        }
        let told = self.encryption.as_ref().map(|encryption| encryption.acceptor().told());
        let (left, knocking) = (told.map_or(0, |told| told.underway), life.rig.knocking());
        if left + knocking as u64 > 0 {
            return Err(format!("{left} handshakes are under way, {knocking} of no client"));
        }
        judge::rest(life, &self.swarm)
    }
}
