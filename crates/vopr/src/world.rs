//! One run: a server, its clients, its disks and its clock, interleaved by draws, and the judges.
//!
//! A run is lives of a server, one after the other. In each, single steps of workers, of the
//! durable executor, of devices and of clients follow each other in drawn order, until the life's
//! share of requests was sent, or the power has failed. Now and then everything comes to rest: then
//! nothing may be unanswered, and nothing of what was in use may be left.

use crate::backup::Backups;
use crate::books::Books;
use crate::datagrams::DatagramClient;
use crate::devices::Devices;
use crate::drops::Drops;
use crate::encryption::Encryption;
use crate::judge;
use crate::life::{Life, ROUNDS_MAX};
use crate::media::{self, Images, LOG_BYTES};
use crate::model::Loss;
use crate::operator::Operator;
use crate::scene::Scene;
use crate::scrub::Scrubs;
use crate::shm::{self, ShmClients};
use crate::streams::StreamClient;
use crate::swarm::{Kept, Swarm};
use crate::users::USERS;
use crate::watcher::Watcher;
use laneway_rig::durable::{Kept as RigKept, Machine, settings};
use laneway_rig::slot_faults::Faults as SlotFaults;
use laneway_rig::{Plan, READ_ONLY, RESP_ALONE, Rig};
use laneway_server::access::client_limits::Rates;
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::Phase;
use laneway_tier::disk::sim::Random;
use laneway_tier::{Durability, MigrateBy, Settings as TierSettings, Tier, WhenFull};
use laneway_transport::memory::Faults;
use laneway_transport::memory_datagram::DatagramFaults;
use std::sync::Arc;
use std::time::Duration;

/// Steps after a loss of power: replies that were sent arrive.
const STEPS_AFTER_POWER_MAX: u64 = 400;
/// Time between two commits where replies do not wait for them.
pub(crate) const COMMIT_INTERVAL: Duration = Duration::from_millis(2);
/// Steps between two rests, about.
const REST_EVERY: u64 = 6_000;
/// Steps without which a life ends, whatever was sent.
const STEPS_MAX: u64 = 3_000_000;
/// The power fails within this many events of the disks.
const EVENTS_MAX: u64 = 160;

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    PowerCut,
    Kill,
    Restart,
}

/// A run under way.
pub struct World {
    pub(crate) swarm: Swarm,
    pub(crate) random: Random,
    /// What was asked and told.
    pub books: Books,
    pub(crate) machine: Option<Machine>,
    pub(crate) clock: ManualClock,
    pub(crate) streams: Vec<StreamClient>,
    /// What those show to each other who encrypt, where any do.
    pub(crate) encryption: Option<Encryption>,
    pub(crate) steps_until_rest: u64,
    /// What its disks held at an earlier end.
    older: Option<Images>,
    /// What they held before bytes of them were changed.
    sound: Option<Images>,
    /// Bytes were changed, at rest or as they were read.
    is_rotten: bool,
    /// Where the boundary between log and SSD begins, and whether it moves.
    split: (usize, bool),
    /// From which length on values are compressed.
    compress_from: Option<usize>,
}

/// Boundaries of a server's life, drawn where they differ from start to start.
const SPLITS: [(usize, bool); 5] =
    [(0, false), (256, false), (2048, true), (8192, false), (usize::MAX, false)];

/// The same of the shortest value that is compressed.
const COMPRESSED_FROM: [Option<usize>; 4] = [None, Some(0), Some(5000), Some(40_000)];

pub(crate) type Outcome<T = ()> = Result<T, String>;

impl World {
    /// A run that has not begun.
    pub fn new(swarm: &Swarm, traced: bool) -> World {
        let machine = (swarm.kept != Kept::No).then(|| Machine::new(LOG_BYTES, swarm.ssd_bytes));
        let clock = ManualClock::default();
        clock.run(swarm.clock_nanos);
        let encryption = Encryption::of(swarm);
        let streams = (0..swarm.clients).map(|number| {
            let encryption = encryption.as_ref().filter(|_| swarm.encrypts(number));
            let config = encryption.map(|encryption| encryption.client(number as u64));
            let listener = match () {
                () if swarm.reads_only(number) => READ_ONLY,
                () if swarm.is_alone(number) => RESP_ALONE,
                () => 0,
            };
            StreamClient::new(number, swarm.voice(number), listener, config)
        });
        let streams = streams.collect();
        World {
            swarm: swarm.clone(),
            random: Random::new(swarm.seed),
            books: Books::new(swarm, traced),
            machine,
            clock,
            streams,
            encryption,
            steps_until_rest: REST_EVERY,
            older: None,
            sound: None,
            is_rotten: false,
            split: (settings().split_bytes, false),
            compress_from: None,
        }
    }

    /// The whole run.
    pub fn run(&mut self) -> Outcome {
        let lives = self.swarm.crashes + 1;
        for (number, last) in (0..lives).map(|number| (number, number + 1 == lives)) {
            let until = u64::from(self.swarm.commands) * u64::from(number + 1) / u64::from(lives);
            self.offer_wrong_media(number)?;
            let Some(tier) = self.open()? else { break };
            let mut life = self.begin(tier);
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

    /// What all who come by one listener may ask for.
    fn listener_rates(&self) -> Rates {
        let (requests, bytes) = self.swarm.listener_rates;
        Rates::new(requests.into(), bytes.into())
    }

    fn plan(&self, tier: Option<&Arc<Tier>>) -> Plan {
        let swarm = &self.swarm;
        let base = match swarm.hot {
            true => Plan::hot(swarm.access, swarm.workers),
            false => Plan::of(swarm.workers, swarm.form),
        };
        let item_bytes_max = (swarm.value_bytes_max * 2).max(256 << 10);
        let memory_of_one = swarm.memory_bytes / u64::from(swarm.domains());
        Plan {
            domains: swarm.domains(),
            design: swarm.design,
            access: swarm.access,
            memory_bytes: swarm.memory_bytes,
            item_bytes_max: item_bytes_max.min(memory_of_one as usize / 4),
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
            // Memory loses nothing.
            shm: (swarm.shm_clients > 0).then(|| SlotFaults::each(swarm.seed, 0)),
            terms: Some(shm::terms(swarm.workers)),
            rings: true,
            kept: tier.map(|tier| RigKept {
                interval: (swarm.kept == Kept::Interval).then_some(COMMIT_INTERVAL),
                ..RigKept::of(tier)
            }),
            clock: Some(self.clock.clone()),
            users: swarm.has_users().then_some(USERS),
            slow: (swarm.slow_micros > 0).then(|| Duration::from_micros(swarm.slow_micros.into())),
            log_keys: swarm.log_keys,
            connections_per_address: if swarm.per_address { 1024 } else { 0 },
            listener_rates: self.listener_rates(),
            resp_alone: swarm.resp_alone,
            tls: self.encryption.as_ref().map(|encryption| encryption.acceptor().clone()),
            ..base
        }
    }

    pub(crate) fn tier_settings(&self) -> TierSettings {
        let interval = self.swarm.kept == Kept::Interval;
        let durability = if interval { Durability::Interval } else { Durability::Ack };
        let when_full = if self.swarm.evicts { WhenFull::Evict } else { WhenFull::Refuse };
        let (split_bytes, split_adapts) = self.split;
        let compress_from = self.compress_from;
        let migrate_by = if self.swarm.by_age { MigrateBy::Age } else { MigrateBy::Hotness };
        let base = TierSettings { compress_from, durability, when_full, ..settings() };
        TierSettings { split_bytes, split_adapts, migrate_by: Some(migrate_by), ..base }
    }

    /// Now and then, where there is a store already.
    fn offer_wrong_media(&mut self, life: u32) -> Outcome {
        let settings = self.tier_settings();
        let Some(machine) = self.machine.as_ref().filter(|_| life > 0) else { return Ok(()) };
        if !self.random.one_in(3) {
            return Ok(());
        }
        match (self.random.below(6), self.older.as_ref().filter(|_| !self.is_rotten)) {
            (which @ 0..4, _) => {
                self.books.counts.wrong_media += 1;
                media::offer_wrong(machine, settings, which)
            }
            (_, None) => Ok(()),
            (which, Some(older)) => {
                let refused = media::offer_older(machine, settings, older, which == 4)?;
                self.books.counts.older_media += 1;
                self.books.counts.older_refused += u64::from(refused);
                Ok(())
            }
        }
    }

    /// Opens the store, where there is one. `Ok(None)`: it is damaged and refused, for good.
    fn open(&mut self) -> Outcome<Option<Option<Arc<Tier>>>> {
        if self.swarm.splits {
            self.split = SPLITS[self.random.below(SPLITS.len() as u64) as usize];
        }
        if self.swarm.compresses {
            let which = self.random.below(COMPRESSED_FROM.len() as u64) as usize;
            self.compress_from = COMPRESSED_FROM[which];
        }
        let settings = self.tier_settings();
        let Some(machine) = &self.machine else { return Ok(Some(None)) };
        let sound = self.sound.take();
        match machine.open_damaged(settings, 7) {
            Ok((tier, problems)) => {
                media::takes_all(machine, &tier)?;
                if !problems.is_empty() && !self.is_rotten {
                    return Err(format!("the store tells of damage: {}", problems.join("; ")));
                }
                let keys = media::keys_told(&problems);
                problems.iter().for_each(|problem| self.books.say(|| problem.clone()));
                if keys != Some(0) {
                    self.books.damaged(keys);
                }
                Ok(Some(Some(tier)))
            }
            Err(error) if self.is_rotten => {
                self.books.say(|| format!("the store is refused: {error}"));
                self.books.counts.rots_refused += 1;
                let Some(sound) = sound else { return Ok(None) };
                // As who has a copy does.
                let machine = self.machine.insert(sound.machine());
                let tier = machine.open(settings);
                tier.map(|tier| Some(Some(tier))).map_err(|error| format!("a copy: {error}"))
            }
            Err(error) => Err(format!("the store does not open: {error}")),
        }
    }

    fn begin(&mut self, tier: Option<Arc<Tier>>) -> Life {
        if let Some(machine) = &self.machine {
            let mut faults = Default::default();
            if self.swarm.disk_faults {
                // Where writes are acknowledged before they are durable a disk that refuses them
                // loses them, as a crash does; the run would have nothing to hold the server to.
                faults = media::faults(&mut self.random, self.swarm.kept != Kept::Interval);
            }
            if self.swarm.rot && self.random.one_in(3) {
                self.books.counts.rots += 1;
                self.is_rotten = true;
                faults = media::flips(&mut self.random, faults);
            }
            machine.log.set_faults(faults.clone());
            machine.ssd.set_faults(faults);
        }
        if let Some(tier) = tier.as_ref().filter(|_| self.swarm.splits) {
            let clock = self.clock.clone();
            tier.lend_clock(Box::new(move || clock.nanos()));
        }
        let tier_drops = tier.as_ref().filter(|tier| tier.evicts()).map(Drops::of);
        self.encryption.iter_mut().for_each(Encryption::start);
        let plan = self.plan(tier.as_ref());
        let mut rig = Rig::new(&plan);
        let (requests, bytes) = (self.swarm.client_rate.into(), self.swarm.client_bytes.into());
        rig.shared.connections.clients.limits.set(Rates::new(requests, bytes));
        let devices = tier.as_ref().map(|tier| Devices::new(tier.clone()));
        if let Some(devices) = &devices {
            rig.keep(Box::new(devices.clone()));
            if self.swarm.helps {
                rig.let_help();
            }
        }
        let swarm = &self.swarm;
        let seed = swarm.seed ^ self.books.moment();
        let shared = &rig.shared;
        let backups = swarm.backups.then(|| Backups::new(shared, seed)).flatten();
        let now_nanos = self.clock.nanos();
        let scrubs = swarm.scrubs.then(|| Scrubs::new(shared, seed, now_nanos)).flatten();
        let operator = swarm.operates.then(|| Operator::new(shared, seed, &self.clock)).flatten();
        let watches = swarm.watch && !swarm.has_users();
        let watcher = watches.then(|| Watcher::new(&mut rig, seed)).flatten();
        let udp =
            |(number, net)| DatagramClient::new(number, net, swarm, swarm.seed ^ number as u64);
        let nets = rig.datagrams.iter().cycle().take(swarm.datagram_clients);
        let datagrams = nets.enumerate().map(udp).collect();
        let count = swarm.shm_clients;
        let shm = (count > 0).then(|| ShmClients::new(count, &rig, seed));
        self.books.say(|| "a server starts".into());
        let durable_moment = self.books.moment();
        let asleep_until_nanos = vec![0; swarm.workers];
        let hostile = Vec::new();
        Life {
            rig,
            tier,
            devices,
            drops: tier_drops,
            backups,
            scrubs,
            operator,
            watcher,
            datagrams,
            shm,
            hostile,
            asleep_until_nanos,
            began_nanos: now_nanos,
            commit_moment: durable_moment,
            durable_moment,
        }
    }

    pub(crate) fn scene<'a>(&'a mut self, rig: &Rig) -> (Scene<'a>, &'a mut Vec<StreamClient>) {
        let now_nanos = self.clock.nanos();
        let may_miss = self.may_miss(rig);
        let may_doubt = self.may_doubt();
        let may_close = rig.shared.phase() != Phase::Running;
        let scene = Scene {
            swarm: &self.swarm,
            random: &mut self.random,
            books: &mut self.books,
            encryption: self.encryption.as_ref(),
            now_ms: self.clock.moment(now_nanos).unix_millis(),
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
        self.rest(life)?;
        self.finish_backup(life)?;
        self.finish_scrub(life)?;
        self.finish_watching(life)?;
        let goes_on = until < u64::from(self.swarm.commands);
        if goes_on && self.swarm.flush && self.random.one_in(3) {
            // Alone: nothing before or behind it makes it durable.
            let (mut scene, streams) = self.scene(&life.rig);
            streams[0].ask_flush(&mut scene);
            self.rest(life)?;
        }
        Ok(())
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

    /// Whether devices may refuse.
    pub(crate) fn may_doubt(&self) -> bool {
        let kept = self.swarm.kept != Kept::No;
        kept && (self.swarm.disk_faults || self.is_rotten || self.has_no_power())
    }

    pub(crate) fn has_no_power(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.power.is_off())
    }

    pub(crate) fn now(&self, life: &Life) -> (u64, bool) {
        let now = self.clock.moment(self.clock.nanos()).unix_millis();
        (now, self.may_miss(&life.rig))
    }

    /// Whether an item may be gone without a trace.
    fn may_miss(&self, rig: &Rig) -> bool {
        judge::may_miss(self.swarm.kept, rig)
    }

    /// The server ends, and the machine with it or not.
    fn end(&mut self, mut life: Life, end: End, last: bool) -> Outcome {
        let off = self.has_no_power();
        self.books.counts.evictions += life.rig.evictions();
        self.books.counts.tier_evictions += life.rig.tier_evictions();
        if let Some(net) = &life.rig.datagrams {
            let fates = net.fates();
            self.books.counts.datagram_faults +=
                fates.dropped + fates.duplicated + fates.reordered + fates.overflowed;
        }
        let is_settled = end == End::Restart && !off && self.stop(&mut life)?;
        if let Some(encryption) = &self.encryption {
            self.books.counts.shaken(&encryption.acceptor().told());
        }
        self.note_drops(&mut life);
        let (now, may_miss) = self.now(&life);
        {
            let (mut scene, streams) = self.scene(&life.rig);
            streams.iter_mut().for_each(|client| client.disconnect(scene.books));
            life.datagrams.iter_mut().for_each(|client| client.asking.disconnect(&mut scene));
        }
        if let Some(registry) = &life.rig.registry {
            self.books.counts.in_memory(&registry.sums());
        }
        self.part_with_shm(&mut life);
        let restored = if last { None } else { self.restored(&mut life)? };
        let loss = match (self.swarm.kept, &restored) {
            (_, Some((_, moment))) => Loss::Since(*moment),
            (Kept::No, _) => Loss::All,
            (Kept::Always, _) => Loss::Nothing,
            (Kept::Interval, _) if end == End::Restart && !off => Loss::Nothing,
            (Kept::Interval, _) => Loss::Since(life.durable_moment),
        };
        let is_settled = is_settled && restored.is_none();
        self.books.lose(loss, now, may_miss);
        if self.swarm.back && self.random.one_in(2) {
            self.books.stepped_back(now);
            self.clock = self.clock.stepped_back(1 + self.random.below(5) as u32);
        }
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
        if let Some((machine, _)) = restored {
            // What was copied of the others before is another store's.
            (self.machine, self.older) = (Some(machine), None);
        }
        self.books.say(|| format!("the server ends: {end:?}"));
        if end != End::PowerCut {
            self.leave_media(is_settled);
        }
        self.enlarge(salt);
        Ok(())
    }

    /// Now and then who operates the server gives it larger disks, where the ones that it has are
    /// sound. What `salt` has of it costs no draw, so that a seed keeps its run.
    fn enlarge(&mut self, salt: u64) {
        let Some(machine) = &self.machine else { return };
        if !self.swarm.operates || self.is_rotten || !salt.is_multiple_of(2) {
            return;
        }
        self.machine = Some(media::enlarged(machine, salt));
        self.books.counts.enlarged += 1;
        self.books.say(|| "the disks are larger".into());
    }

    /// The disks lie there for a while: they are copied, or rot. What the log has behind the last
    /// record that vouches for others, damage turns into a torn tail; so only a settled one rots.
    fn leave_media(&mut self, is_settled: bool) {
        let Some(machine) = &self.machine else { return };
        if self.random.one_in(2) {
            self.older = Some(Images::of(machine));
        }
        if self.swarm.rot && is_settled && self.random.one_in(2) {
            let mut images = Images::of(machine);
            images.rot(&mut self.random);
            self.sound = Some(Images::of(machine));
            self.machine = Some(images.machine());
            self.books.counts.rots += 1;
            self.is_rotten = true;
            self.books.say(|| "log or SSD rot".into());
        }
    }

    /// An orderly end: what is under way is finished, everything is made durable. Whether a
    /// checkpoint has vouched for all of it.
    fn stop(&mut self, life: &mut Life) -> Outcome<bool> {
        life.hostile.clear();
        life.shm.iter_mut().for_each(|clients| clients.end_hostile(&life.rig));
        life.backups.iter_mut().for_each(Backups::leave);
        life.operator.iter_mut().for_each(Operator::leave);
        // Nobody comes any more when the workers begin to leave.
        if let Some(pool) = life.rig.pool.take() {
            pool.close(&life.rig.clock);
        }
        life.rig.domains.iter().for_each(|shared| shared.enter_phase(Phase::Draining));
        for _ in 0..2_000 {
            if life.rig.shared.is_drained() {
                break;
            }
            self.round(life)?;
            self.clock.advance(1_000_000);
            self.note_time();
        }
        life.rig.domains.iter().for_each(|shared| shared.enter_phase(Phase::Stopped));
        for worker in &mut life.rig.workers {
            worker.step().map_err(|error| format!("a worker that stops: {error}"))?;
            worker.finish();
        }
        if let Some(durable) = life.rig.shared.durable.get() {
            durable.stop();
        }
        for _ in 0..ROUNDS_MAX {
            let busy = self.step_executor(life)? | self.step_devices(life);
            if !busy && life.rig.keeps_nothing() {
                let (Some(tier), Some(machine)) = (&life.tier, &self.machine) else {
                    return Ok(false);
                };
                let before = media::superblocks(machine);
                // A medium that refuses has refused the writes that it would lose, too.
                let settled = tier.settle().is_ok();
                return Ok(settled && before < media::superblocks(machine));
            }
        }
        Err("the durable executor does not stop".into())
    }
}
