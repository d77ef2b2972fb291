//! Single steps of somebody: a worker, the durable executor, a device, a client, or time.

use crate::hostile::Hostile;
use crate::judge;
use crate::life::Life;
use crate::world::{Outcome, World};
use laneway_policy::{Design, Form};
use laneway_rig::RigTransport;
use laneway_server::clock::Clock;
use laneway_server::worker::{Progress, Worker};
use laneway_store::meter;
use std::time::Duration;

/// The longest that anything sleeps: a worker's own bound, and its alarm.
const SLEEP_MAX_NANOS: u64 = 1_000_000_000;

/// Steps between two replacements of certificate and key, about.
const RELOADS_EVERY: u64 = 2_000;

/// How long a worker sleeps, if it does: what lies decrypted keeps it awake.
fn asleep(worker: &Worker<RigTransport>) -> Option<Duration> {
    let transport = worker.transport();
    if transport.has_to_tell() { None } else { transport.inner().asleep() }
}

impl World {
    /// What was asked for a time to come may be under way.
    pub(crate) fn note_time(&mut self) {
        let now_ms = self.clock.moment(self.clock.nanos()).unix_millis();
        self.books.flush_if_due(now_ms);
    }

    /// One step of somebody.
    pub(crate) fn step(&mut self, life: &mut Life) -> Outcome {
        self.books.counts.steps += 1;
        self.clock.advance(self.random.below(20_000));
        self.note_time();
        self.step_backup(life)?;
        self.step_scrub(life)?;
        self.step_operator(life)?;
        self.step_watcher(life)?;
        self.step_shm(life)?;
        self.step_pool(life);
        match self.random.below(100) {
            0..50 => {
                let worker = self.random.below(life.rig.workers.len() as u64) as usize;
                self.step_worker(life, worker)?;
            }
            50..64 => drop(self.step_executor(life)?),
            64..72 if !self.swarm.slow_devices || self.random.one_in(10) => {
                self.step_devices(life);
            }
            72..94 => self.step_stream(life)?,
            94..97 => self.step_datagrams(life)?,
            97 => self.step_hostile(life)?,
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
                self.note_time();
            }
            _ => {}
        }
        self.note_drops(life);
        Ok(())
    }

    /// Those who make TLS handshakes have a step each, or none; certificate and key are replaced.
    fn step_pool(&mut self, life: &mut Life) {
        let Some(encryption) = &mut self.encryption else { return };
        if let Some(pool) = &mut life.rig.pool {
            if self.random.one_in(3) {
                pool.shake(&self.clock);
            }
            if self.random.one_in(3) {
                pool.bring(&self.clock);
            }
        }
        if self.random.one_in(RELOADS_EVERY) {
            self.books.counts.reloads += 1;
            self.books.say(|| "certificate and key are replaced".into());
            encryption.reload();
        }
    }

    /// A step of a worker, unless it sleeps: who has something for it must wake it.
    pub(crate) fn step_worker(&mut self, life: &mut Life, number: usize) -> Outcome<bool> {
        let now = self.clock.nanos();
        let worker = &mut life.rig.workers[number];
        let until = &mut life.asleep_until_nanos[number];
        if now < *until && asleep(worker).is_some() {
            return Ok(false);
        }
        meter::take();
        let progress = worker.step();
        let work = meter::take();
        let asleep = asleep(worker);
        let shared = life.rig.place(number);
        *until = match asleep {
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
        let swarm = &self.swarm;
        // And one that misbehaves.
        let in_memory = swarm.shm_clients + usize::from(swarm.shm_clients > 0);
        let clients = swarm.clients + swarm.datagram_clients + in_memory + swarm.hostile;
        let connections = clients + usize::from(life.watcher.is_some());
        let in_slices = self.swarm.design == Design::Lanes;
        judge::over_budget(&work, connections as u64, in_slices, self.swarm.helps)
            .map_err(|what| format!("a step of worker {number} {what}"))?;
        if life.rig.executor.is_some() {
            judge::executor_over_budget(&work)?;
            self.note_commit(life);
        }
        Ok(progress != Progress::Idle)
    }

    pub(crate) fn step_executor(&mut self, life: &mut Life) -> Outcome<bool> {
        let Some(executor) = &life.rig.executor else { return Ok(false) };
        let now = self.clock.nanos();
        meter::take();
        let busy = executor.lock().step(now, self.clock.moment(now));
        judge::executor_over_budget(&meter::take())?;
        self.note_commit(life);
        Ok(busy)
    }

    /// Whoever stepped the durable executor may have had it begin a commit.
    fn note_commit(&mut self, life: &mut Life) {
        if let Some(devices) = &life.devices
            && devices.has_begun_commit()
        {
            life.commit_moment = self.books.moment();
        }
    }

    /// Something that waits for a device ends.
    pub(crate) fn step_devices(&mut self, life: &mut Life) -> bool {
        let Some(devices) = &life.devices else { return false };
        let busy = devices.step(&mut self.random);
        if devices.has_committed() {
            life.durable_moment = life.commit_moment;
        }
        busy
    }

    /// Notes what the tier has dropped since this was called last.
    pub(crate) fn note_drops(&mut self, life: &mut Life) {
        let Some(drops) = &mut life.drops else { return };
        let now = self.books.moment();
        for (key, until) in drops.take(now) {
            self.books.dropped(key, until);
        }
        drops.look(self.swarm.keys, now);
    }

    pub(crate) fn step_stream(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, streams) = self.scene(&life.rig);
        let number = scene.random.below(streams.len() as u64) as usize;
        if scene.random.one_in(2) {
            for _ in 0..scene.swarm.burst {
                streams[number].ask(&mut scene);
            }
        }
        streams[number].exchange(&mut scene, &life.rig.net)
    }

    pub(crate) fn step_datagrams(&mut self, life: &mut Life) -> Outcome {
        let now_nanos = self.clock.nanos();
        let (mut scene, _) = self.scene(&life.rig);
        let Some(most) = (life.datagrams.len() as u64).checked_sub(1) else { return Ok(()) };
        let number = scene.random.below(most + 1) as usize;
        let client = &mut life.datagrams[number];
        client.asking.ask(&mut scene, now_nanos);
        client.exchange(&mut scene, now_nanos)
    }

    pub(crate) fn step_hostile(&mut self, life: &mut Life) -> Outcome {
        let (mut scene, _) = self.scene(&life.rig);
        let mut gone_on = Ok(());
        life.hostile.retain_mut(|hostile| match hostile.go_on(&mut scene) {
            Ok(stays) => stays,
            Err(what) => {
                gone_on = Err(what);
                false
            }
        });
        gone_on?;
        if life.hostile.len() < scene.swarm.hostile && scene.random.one_in(4) {
            let hostile = Hostile::new(&mut scene, &life.rig.net);
            life.hostile.push(hostile);
        }
        Ok(())
    }

    /// Workers change roles, as the control loop could have them do.
    pub(crate) fn change_roles(&mut self, life: &mut Life) {
        let domain = match life.rig.domains.len() as u64 {
            1 => 0,
            domains => self.random.below(domains) as usize,
        };
        let workers = life.rig.domains[domain].workers.len() as u64;
        let has_roles = self.swarm.form == Form::Roles
            && matches!(self.swarm.design, Design::Lanes | Design::Minos);
        if workers < 2 || !has_roles {
            return;
        }
        let large = 1 + self.random.below(workers - 1) as usize;
        self.books.counts.role_changes += 1;
        self.books.say(|| format!("{large} workers turn large"));
        life.rig.publish_large_in(domain, large);
        life.rig.domains[domain].wake_all(); // as the control loop does
    }
}
