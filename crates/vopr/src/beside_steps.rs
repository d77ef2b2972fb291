//! What of a run is about those beside its clients: who operates the server, the scrubber, and who
//! watches. Single steps, and the end of a life.

use crate::life::{Life, ROUNDS_MAX};
use crate::operator::Did;
use crate::world::{Outcome, World};
use laneway_server::clock::Clock;

/// Time that passes between two rounds: longer than the server waits before it looks for news.
const ROUND_NANOS: u64 = 1_000_000;

impl World {
    /// Something of the operator's, now and then.
    pub(crate) fn step_operator(&mut self, life: &mut Life) -> Outcome {
        let (doubt, has_users) = (self.may_doubt(), self.swarm.has_users());
        let Some(operator) = &mut life.operator else { return Ok(()) };
        let did = match operator.turn(&life.rig, has_users, doubt) {
            // It went off meanwhile, so devices have refused.
            Err(_) if self.has_no_power() => Did::Nothing,
            did => did?,
        };
        match did {
            Did::Nothing => {}
            Did::Checkpoint => self.books.counts.checkpoints += 1,
            Did::Compaction => self.books.counts.compactions += 1,
            Did::CompactionAsked => self.books.counts.compactions_asked += 1,
        }
        Ok(())
    }

    /// A step of the scrubber, now and then.
    pub(crate) fn step_scrub(&mut self, life: &mut Life) -> Outcome {
        let may_doubt = self.may_doubt();
        let now_nanos = self.clock.nanos();
        let now = self.clock.unix_seconds(now_nanos);
        let Some(scrubs) = &mut life.scrubs else { return Ok(()) };
        self.books.counts.scrubs += scrubs.turn(now_nanos, now);
        match scrubs.damaged() {
            damaged @ 1.. if !may_doubt => {
                Err(format!("the scrubber finds {damaged} items damaged, and no device has failed"))
            }
            _ => Ok(()),
        }
    }

    /// At the end of a life a bit flips, and is found.
    pub(crate) fn finish_scrub(&mut self, life: &mut Life) -> Outcome {
        let may_doubt = self.may_doubt();
        let now_nanos = self.clock.nanos();
        let now = (now_nanos, self.clock.unix_seconds(now_nanos));
        let (Some(scrubs), Some(tier), Some(machine)) =
            (&mut life.scrubs, &life.tier, &self.machine)
        else {
            return Ok(());
        };
        if may_doubt {
            return Ok(());
        }
        let damaged = scrubs.whole_pass(now.0, now.1)?;
        if damaged != 0 {
            return Err(format!("a pass finds {damaged} items damaged, and no device has failed"));
        }
        self.books.counts.flips += u64::from(scrubs.flip_and_find(machine, tier, now)?);
        // The bit is as it was.
        life.scrubs = None;
        Ok(())
    }

    /// A step of the watcher.
    pub(crate) fn step_watcher(&mut self, life: &mut Life) -> Outcome {
        let Some(watcher) = &mut life.watcher else { return Ok(()) };
        if !watcher.turn()? {
            life.watcher = None; // its connection broke
        }
        Ok(())
    }

    /// At the end of a life it has been told of everything.
    pub(crate) fn finish_watching(&mut self, life: &mut Life) -> Outcome {
        for _ in 0..ROUNDS_MAX {
            let logged = life.rig.shared.connections.events.counts().logged;
            let Some(watcher) = &mut life.watcher else { return Ok(()) };
            if self.has_no_power() {
                return Ok(());
            }
            if !watcher.read(usize::MAX)? {
                life.watcher = None;
                return Ok(());
            }
            if watcher.knows(logged) {
                let (told, skipped) = watcher.counts();
                self.books.counts.events_told += told;
                self.books.counts.events_skipped += skipped;
                watcher.judge(&life.rig.shared.watch(0).totals, &self.swarm)?;
                watcher.vanish();
                life.watcher = None;
                return Ok(());
            }
            self.round(life)?;
            self.clock.advance(ROUND_NANOS);
            self.note_time();
        }
        Err("a watcher is not told of all that was logged".into())
    }
}
