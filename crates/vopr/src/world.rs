//! One run: a server, its clients, its disks and its clock, interleaved by draws, and the judges.
//!
//! A run is lives of a server, one after the other. In each, single steps of workers, of the
//! durable executor, of devices and of clients follow each other in drawn order, until the life's
//! share of requests was sent, or the power has failed. Now and then everything comes to rest: then
//! nothing may be unanswered, and nothing of what was in use may be left.

use crate::books::Books;
use crate::datagrams::DatagramClient;
use crate::devices::Devices;
use crate::hostile::Hostile;
use crate::judge;
use crate::life::Life;
use crate::media::{self, LOG_BYTES};
use crate::model::Loss;
use crate::rig::durable::{Kept as RigKept, Machine, settings};
use crate::rig::{Plan, Rig};
use crate::streams::{Scene, StreamClient};
use crate::swarm::{Kept, Swarm};
use laneway_policy::{Design, Form};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::durable::keeper::Keeper;
use laneway_server::shared::Phase;
use laneway_server::worker::Progress;
use laneway_store::meter;
use laneway_tier::disk::sim::Random;
use laneway_tier::{Durability, Settings as TierSettings, Tier};
use laneway_transport::memory::Faults;
use laneway_transport::memory_datagram::DatagramFaults;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Steps after a loss of power: replies that were sent arrive.
const STEPS_AFTER_POWER_MAX: u64 = 400;
/// Time between two commits where replies do not wait for them.
const COMMIT_INTERVAL: Duration = Duration::from_millis(2);
/// Steps between two rests, about.
const REST_EVERY: u64 = 6_000;
/// Rounds of everybody after which a server at rest has answered everything.
const ROUNDS_MAX: u64 = 60_000;
/// Rounds in a row with nothing to do that make a rest.
const QUIET_ROUNDS: u32 = 12;
const _: () = assert!(COMMIT_INTERVAL.as_nanos() * 4 < QUIET_ROUNDS as u128 * QUIET_NANOS as u128);
/// The same that prove a lost wake-up, where somebody is unanswered: shorter than any sleep.
const SLEEPING_ROUNDS_MAX: u32 = 60;
/// Time that passes in a round with nothing to do.
const QUIET_NANOS: u64 = 1_000_000;
/// Steps without which a life ends, whatever was sent.
const STEPS_MAX: u64 = 3_000_000;
/// The power fails within this many events of the disks.
const EVENTS_MAX: u64 = 160;

/// The longest that anything sleeps: a worker's own bound, and its alarm.
const SLEEP_MAX_NANOS: u64 = 1_000_000_000;

/// Rounds after the last client has left, and the time that passes in each.
const LEAVE_ROUNDS: u32 = 60;
const LEAVE_NANOS: u64 = 500_000_000;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    PowerCut,
    Kill,
    Restart,
}

/// A run under way.
pub struct World {
    swarm: Swarm,
    random: Random,
    /// What was asked and told.
    pub books: Books,
    machine: Option<Machine>,
    clock: ManualClock,
    streams: Vec<StreamClient>,
    steps_until_rest: u64,
}

type Outcome<T = ()> = Result<T, String>;

impl World {
    /// A run that has not begun.
    pub fn new(swarm: &Swarm, traced: bool) -> World {
        let machine = (swarm.kept != Kept::No).then(|| Machine::new(LOG_BYTES, swarm.ssd_bytes));
        World {
            swarm: swarm.clone(),
            random: Random::new(swarm.seed),
            books: Books::new(swarm, traced),
            machine,
            clock: ManualClock::default(),
            streams: (0..swarm.clients).map(StreamClient::new).collect(),
            steps_until_rest: REST_EVERY,
        }
    }

    /// The whole run.
    pub fn run(&mut self) -> Outcome {
        let lives = self.swarm.crashes + 1;
        for (number, last) in (0..lives).map(|number| (number, number + 1 == lives)) {
            let until = u64::from(self.swarm.commands) * u64::from(number + 1) / u64::from(lives);
            self.offer_wrong_media(number)?;
            let mut life = self.begin()?;
            let end = match (self.random.below(4), &self.machine) {
                (0, _) | (_, None) => End::Restart,
                (1, _) => End::Kill,
                _ => End::PowerCut,
            };
            if end == End::PowerCut && !last {
                let events = 1 + self.random.below(EVENTS_MAX);
                self.machine.as_ref().expect("it is kept").power.restore(events);
            }
            self.live(&mut life, until)?;
            if last {
                self.read_all(&mut life)?;
                self.leave(&mut life)?;
            }
            self.end(life, end, last)?;
        }
        self.books.judge()
    }

    fn plan(&self, tier: Option<&Arc<Tier>>) -> Plan {
        let swarm = &self.swarm;
        let base = match swarm.hot {
            true => Plan::hot(swarm.access, swarm.workers),
            false => Plan::of(swarm.workers, swarm.form),
        };
        let item_bytes_max = (swarm.value_bytes_max * 2).max(256 << 10);
        Plan {
            design: swarm.design,
            access: swarm.access,
            memory_bytes: swarm.memory_bytes,
            item_bytes_max: item_bytes_max.min(swarm.memory_bytes as usize / 4),
            store_mode: swarm.store_mode,
            adaptive: swarm.adaptive,
            threshold_bytes: 8 << 10,
            faults: Faults {
                seed: swarm.seed ^ self.books.counts.steps,
                short: swarm.short,
                refuse: swarm.refuse,
                reset: swarm.reset,
                pipe_bytes: swarm.pipe_bytes,
            },
            datagrams: (swarm.datagram_clients > 0).then(|| DatagramFaults {
                receive_bytes: 4 << 20,
                ..DatagramFaults::each(swarm.seed, swarm.datagram_faults)
            }),
            kept: tier.map(|tier| RigKept {
                interval: (swarm.kept == Kept::Interval).then_some(COMMIT_INTERVAL),
                ..RigKept::of(tier)
            }),
            clock: Some(self.clock.clone()),
            ..base
        }
    }

    fn tier_settings(&self) -> TierSettings {
        let interval = self.swarm.kept == Kept::Interval;
        let durability = if interval { Durability::Interval } else { Durability::Ack };
        TierSettings { durability, ..settings() }
    }

    /// Now and then, where there is a store already.
    fn offer_wrong_media(&mut self, life: u32) -> Outcome {
        let settings = self.tier_settings();
        let Some(machine) = self.machine.as_ref().filter(|_| life > 0) else { return Ok(()) };
        if !self.random.one_in(3) {
            return Ok(());
        }
        self.books.counts.wrong_media += 1;
        media::offer_wrong(machine, settings, self.random.below(4))
    }

    fn begin(&mut self) -> Outcome<Life> {
        let tier = match &self.machine {
            None => None,
            Some(machine) => {
                let tier = machine.open(self.tier_settings());
                Some(tier.map_err(|error| format!("the store does not open: {error}"))?)
            }
        };
        if let (Some(machine), true) = (&self.machine, self.swarm.disk_faults) {
            // Where writes are acknowledged before they are durable a disk that refuses them loses
            // them, as a crash does; the run would have nothing to hold the server to.
            let faults = media::faults(&mut self.random, self.swarm.kept != Kept::Interval);
            machine.log.set_faults(faults.clone());
            machine.ssd.set_faults(faults);
        }
        let plan = self.plan(tier.as_ref());
        let mut rig = Rig::new(&plan);
        let devices = tier.as_ref().map(|tier| Devices::new(tier.clone()));
        if let Some(devices) = &devices {
            rig.keeper = Some(Keeper::new(rig.shared.clone(), Box::new(devices.clone())));
        }
        let swarm = &self.swarm;
        let udp = |(number, net)| {
            DatagramClient::new(number, net, swarm.workers, swarm.seed ^ number as u64)
        };
        let nets = rig.datagrams.iter().cycle().take(swarm.datagram_clients);
        let datagrams = nets.enumerate().map(udp).collect();
        self.books.say(|| "a server starts".into());
        let durable_moment = self.books.moment();
        let asleep_until_nanos = vec![0; swarm.workers];
        let hostile = Vec::new();
        Ok(Life {
            rig,
            tier,
            devices,
            datagrams,
            hostile,
            asleep_until_nanos,
            commit_moment: durable_moment,
            durable_moment,
        })
    }

    fn scene<'a>(&'a mut self, rig: &Rig) -> (Scene<'a>, &'a mut Vec<StreamClient>) {
        let now_nanos = self.clock.nanos();
        let may_miss = judge::may_miss(self.swarm.kept, rig);
        let kept = self.swarm.kept != Kept::No;
        let may_doubt = kept && (self.swarm.disk_faults || self.has_no_power());
        let may_close = rig.shared.phase() != Phase::Running;
        let scene = Scene {
            swarm: &self.swarm,
            random: &mut self.random,
            books: &mut self.books,
            now_seconds: self.clock.unix_seconds(now_nanos),
            may_miss,
            may_doubt,
            may_close,
        };
        (scene, &mut self.streams)
    }

    /// Steps in drawn order until so many requests were sent.
    fn live(&mut self, life: &mut Life, until: u64) -> Outcome {
        for _ in 0..STEPS_MAX {
            if self.has_no_power() {
                return self.fade(life);
            }
            if self.books.counts.commands >= until {
                break;
            }
            self.step(life)?;
            self.steps_until_rest -= 1;
            if self.steps_until_rest == 0 {
                self.steps_until_rest = 1 + self.random.below(2 * REST_EVERY);
                self.rest(life)?;
            }
        }
        self.rest(life)
    }

    /// The disks are gone, and the server goes on for a moment.
    fn fade(&mut self, life: &mut Life) -> Outcome {
        for _ in 0..self.random.below(STEPS_AFTER_POWER_MAX) {
            self.step(life)?;
        }
        // What was sent arrives.
        let (mut scene, streams) = self.scene(&life.rig);
        for client in streams {
            while client.receive_rest(&mut scene)? {}
        }
        Ok(())
    }

    fn has_no_power(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.power.is_off())
    }

    /// One step of somebody.
    fn step(&mut self, life: &mut Life) -> Outcome {
        self.books.counts.steps += 1;
        self.clock.advance(self.random.below(20_000));
        match self.random.below(100) {
            0..50 => {
                let worker = self.random.below(life.rig.workers.len() as u64) as usize;
                self.step_worker(life, worker)?;
            }
            50..64 => drop(self.step_keeper(life)?),
            64..72 if !self.swarm.slow_devices || self.random.one_in(10) => {
                self.step_devices(life);
            }
            72..94 => self.step_stream(life)?,
            94..97 => self.step_datagrams(life)?,
            97 => self.step_hostile(life),
            98 if self.random.one_in(4) => self.change_roles(life),
            98 => {
                if let Some(tier) = &life.tier {
                    // A medium that refuses is the next writer's to find out.
                    let _ = tier.maintain();
                }
            }
            _ if self.swarm.jumps && self.random.one_in(8) => {
                self.books.counts.jumps += 1;
                self.clock.advance(200_000_000 + self.random.below(1_300_000_000));
            }
            _ => {}
        }
        Ok(())
    }

    /// A step of a worker, unless it sleeps: who has something for it must wake it.
    fn step_worker(&mut self, life: &mut Life, number: usize) -> Outcome<bool> {
        let now = self.clock.nanos();
        let worker = &mut life.rig.workers[number];
        let until = &mut life.asleep_until_nanos[number];
        if now < *until && worker.transport().asleep().is_some() {
            return Ok(false);
        }
        meter::take();
        let progress = worker.step();
        let work = meter::take();
        let shared = &life.rig.shared.workers[number];
        *until = match worker.transport().asleep() {
            // It is about to sleep: it says so and looks once more, as it does before a real poll,
            // of which the one in memory only looks at once.
            Some(longest) if shared.jobs.is_empty() && shared.finished.is_empty() => {
                shared.sleeper.fall_asleep();
                now + (longest.as_nanos() as u64).min(SLEEP_MAX_NANOS)
            }
            _ => 0,
        };
        let progress = progress.map_err(|error| format!("worker {number}: {error}"))?;
        self.books.counts.work_max(&work);
        let connections = self.swarm.clients + self.swarm.datagram_clients + self.swarm.hostile;
        let in_slices = self.swarm.design == Design::Lanes;
        judge::over_budget(&work, connections as u64, in_slices)
            .map_err(|what| format!("a step of worker {number} {what}"))?;
        Ok(progress != Progress::Idle)
    }

    fn step_keeper(&mut self, life: &mut Life) -> Outcome<bool> {
        let Some(keeper) = &mut life.rig.keeper else { return Ok(false) };
        let now = self.clock.nanos();
        meter::take();
        let busy = keeper.step(now, self.clock.unix_seconds(now));
        judge::keeper_over_budget(&meter::take())?;
        if let Some(devices) = &life.devices
            && devices.has_begun_commit()
        {
            life.commit_moment = self.books.moment();
        }
        Ok(busy)
    }

    /// Something that waits for a device ends.
    fn step_devices(&mut self, life: &mut Life) -> bool {
        let Some(devices) = &life.devices else { return false };
        let busy = devices.step(&mut self.random);
        if devices.has_committed() {
            life.durable_moment = life.commit_moment;
        }
        busy
    }

    fn step_stream(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        let number = scene.random.below(streams.len() as u64) as usize;
        if scene.random.one_in(2) {
            streams[number].ask(&mut scene);
        }
        streams[number].exchange(&mut scene, &life.rig.net)
    }

    fn step_datagrams(&mut self, life: &mut Life) -> Outcome {
        let now_nanos = self.clock.nanos();
        let (mut scene, _) = self.scene(&life.rig);
        let Some(most) = (life.datagrams.len() as u64).checked_sub(1) else { return Ok(()) };
        let number = scene.random.below(most + 1) as usize;
        let client = &mut life.datagrams[number];
        client.ask(&mut scene, now_nanos);
        client.exchange(&mut scene, now_nanos)
    }

    fn step_hostile(&mut self, life: &mut Life) {
        let (mut scene, _) = self.scene(&life.rig);
        life.hostile.retain_mut(|hostile| hostile.go_on(&mut scene));
        if life.hostile.len() < scene.swarm.hostile && scene.random.one_in(4) {
            let hostile = Hostile::new(&mut scene, &life.rig.net);
            life.hostile.push(hostile);
        }
    }

    /// Workers change roles, as the control loop could have them do.
    fn change_roles(&mut self, life: &mut Life) {
        let workers = self.swarm.workers as u64;
        let has_roles = self.swarm.form == Form::Roles
            && matches!(self.swarm.design, Design::Lanes | Design::Minos);
        if workers < 2 || !has_roles {
            return;
        }
        let large = 1 + self.random.below(workers - 1) as usize;
        self.books.counts.role_changes += 1;
        self.books.say(|| format!("{large} workers turn large"));
        life.rig.publish_large(large);
        life.rig.shared.wake_all(); // as the control loop does
    }

    /// Everybody goes on in turn, and nobody asks anything new, until there is nothing to do.
    fn rest(&mut self, life: &mut Life) -> Outcome {
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
                // Longer than the interval between two commits.
                life.durable_moment = self.books.moment();
                return judge::rest(life, self.swarm.memory_bytes);
            }
            self.pass_time(life, busy);
        }
        Err(format!("no answer after {ROUNDS_MAX} rounds: {}", self.waits_for(life)))
    }

    /// Whether a client waits for nothing that time brings: neither for a repeat over UDP nor for
    /// memory that the durable executor is short of.
    fn is_forgotten(&self, life: &Life) -> bool {
        let idle = life.rig.keeper.as_ref().is_none_or(Keeper::is_idle);
        idle && !self.streams.iter().all(StreamClient::is_idle)
    }

    fn now(&self, life: &Life) -> (u32, bool) {
        let now = self.clock.unix_seconds(self.clock.nanos());
        (now, judge::may_miss(self.swarm.kept, &life.rig))
    }

    /// A step of everything that is the server's. Returns whether any had something to do.
    fn round_of_server(&mut self, life: &mut Life) -> Outcome<bool> {
        let mut busy = false;
        for worker in 0..life.rig.workers.len() {
            busy |= self.step_worker(life, worker)?;
        }
        busy |= self.step_keeper(life)? | self.step_devices(life);
        self.books.counts.steps += 1;
        Ok(busy)
    }

    /// The same, and the clients.
    fn round(&mut self, life: &mut Life) -> Outcome<bool> {
        let busy = self.round_of_server(life)?;
        let now_nanos = self.clock.nanos();
        let (mut scene, streams) = self.scene(&life.rig);
        for client in streams {
            client.exchange(&mut scene, &life.rig.net)?;
        }
        for client in &mut life.datagrams {
            client.exchange(&mut scene, now_nanos)?;
        }
        Ok(busy)
    }

    /// A moment, or until a client over UDP asks again.
    fn pass_time(&mut self, life: &Life, busy: bool) {
        let now = self.clock.nanos();
        let wakes = life.datagrams.iter().filter(|client| !client.is_idle());
        let next = wakes.filter_map(DatagramClient::wake_nanos).min();
        self.clock.advance(match next {
            Some(next) if !busy && next > now => (next - now).min(100_000_000),
            _ if busy => 10_000,
            _ => QUIET_NANOS,
        });
    }

    fn is_answered(&self, life: &Life) -> bool {
        self.streams.iter().all(StreamClient::is_idle)
            && life.datagrams.iter().all(DatagramClient::is_idle)
            && life.rig.keeper.as_ref().is_none_or(Keeper::is_idle)
    }

    fn waits_for(&self, life: &Life) -> String {
        let streams = self.streams.iter().filter(|client| !client.is_idle());
        let datagrams = life.datagrams.iter().filter(|client| !client.is_idle());
        let mut all: Vec<String> = streams.map(StreamClient::waits_for).collect();
        all.extend(datagrams.map(DatagramClient::waits_for));
        if life.rig.keeper.as_ref().is_some_and(|keeper| !keeper.is_idle()) {
            all.push("the durable executor is not idle".into());
        }
        all.join("; ")
    }

    /// Every key, by clients that come last.
    fn read_all(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        streams[0].read_all(&mut scene);
        self.rest(life)
    }

    /// Every client leaves: the server keeps nothing of them.
    fn leave(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        streams.iter_mut().for_each(|client| client.leave(scene.books));
        life.hostile.drain(..).for_each(|hostile| hostile.vanish());
        life.datagrams.iter_mut().for_each(|client| client.disconnect(&mut scene));
        // Longer than replies by UDP are kept, and than the times after which a server tidies up.
        for _ in 0..LEAVE_ROUNDS {
            self.round_of_server(life)?;
            self.clock.advance(LEAVE_NANOS);
        }
        life.datagrams.clear();
        let open = life.rig.shared.connections.open.load(Relaxed);
        let cards = laneway_server::shared::lock(&life.rig.shared.connections.cards).len();
        if open + cards > 0 {
            return Err(format!("{open} connections are open, and {cards} told, of no client"));
        }
        judge::rest(life, self.swarm.memory_bytes)
    }

    /// The server ends, and the machine with it or not.
    fn end(&mut self, mut life: Life, end: End, last: bool) -> Outcome {
        let off = self.has_no_power();
        self.books.counts.evictions += life.rig.shared.store.stats().evictions;
        if let Some(net) = &life.rig.datagrams {
            let fates = net.fates();
            self.books.counts.datagram_faults +=
                fates.dropped + fates.duplicated + fates.reordered + fates.overflowed;
        }
        if end == End::Restart && !off {
            self.stop(&mut life)?;
        }
        let (now, may_miss) = self.now(&life);
        {
            let (mut scene, streams) = self.scene(&life.rig);
            streams.iter_mut().for_each(|client| client.disconnect(scene.books));
            life.datagrams.iter_mut().for_each(|client| client.disconnect(&mut scene));
        }
        let loss = match self.swarm.kept {
            Kept::No => Loss::All,
            Kept::Always => Loss::Nothing,
            Kept::Interval if end == End::Restart && !off => Loss::Nothing,
            Kept::Interval => Loss::Since(life.durable_moment),
        };
        self.books.lose(loss, now, may_miss);
        drop(life);
        if last {
            return Ok(());
        }
        let salt = self.random.number();
        let counts = &mut self.books.counts;
        if let Some(machine) = &self.machine {
            self.machine = Some(match off || end == End::PowerCut {
                true => {
                    counts.power_cuts += 1;
                    machine.crashed(salt)
                }
                false => {
                    counts.kills += u64::from(end == End::Kill);
                    counts.restarts += u64::from(end == End::Restart);
                    Machine::of(u64::MAX, machine.log.image(), machine.ssd.image())
                }
            });
        } else {
            counts.restarts += 1;
        }
        self.books.say(|| format!("the server ends: {end:?}"));
        Ok(())
    }

    /// An orderly end: what is under way is finished, everything is made durable.
    fn stop(&mut self, life: &mut Life) -> Outcome {
        life.hostile.clear();
        life.rig.shared.enter_phase(Phase::Draining);
        for _ in 0..2_000 {
            if life.rig.shared.is_drained() {
                break;
            }
            self.round(life)?;
            self.clock.advance(1_000_000);
        }
        life.rig.shared.enter_phase(Phase::Stopped);
        for worker in &mut life.rig.workers {
            worker.step().map_err(|error| format!("a worker that stops: {error}"))?;
            worker.finish();
        }
        if let Some(durable) = life.rig.shared.durable.get() {
            durable.stop();
        }
        for _ in 0..ROUNDS_MAX {
            let busy = self.step_keeper(life)? | self.step_devices(life);
            if !busy && life.rig.keeper.as_ref().is_none_or(Keeper::is_idle) {
                if let Some(tier) = &life.tier {
                    // A medium that refuses has refused the writes that it would lose, too.
                    let _ = tier.settle();
                }
                return Ok(());
            }
        }
        Err("the durable executor does not stop".into())
    }
}
