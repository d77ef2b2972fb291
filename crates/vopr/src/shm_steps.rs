//! What of a run is about clients in shared memory: single steps, rests, and the end of a life.

use crate::life::Life;
use crate::world::{Outcome, World};
use laneway_server::clock::Clock;

impl World {
    /// Something of a client's, now and then.
    pub(crate) fn step_shm(&mut self, life: &mut Life) -> Outcome {
        let now_nanos = self.clock.nanos();
        let Some(clients) = &mut life.shm else { return Ok(()) };
        let (mut scene, _) = self.scene(&life.rig);
        clients.step(&mut scene, &life.rig, now_nanos)
    }

    /// All go on with what they have asked.
    pub(crate) fn exchange_shm(&mut self, life: &mut Life) -> Outcome {
        let now_nanos = self.clock.nanos();
        let Some(clients) = &mut life.shm else { return Ok(()) };
        let (mut scene, _) = self.scene(&life.rig);
        clients.exchange(&mut scene, now_nanos)
    }

    /// They leave, or the server ends.
    pub(crate) fn part_with_shm(&mut self, life: &mut Life) {
        let Some(clients) = &mut life.shm else { return };
        let (mut scene, _) = self.scene(&life.rig);
        clients.leave(&mut scene, &life.rig);
    }
}

/// Whether a request lies in memory that no worker takes.
pub(crate) fn is_untaken(life: &Life) -> bool {
    life.shm.as_ref().is_some_and(|clients| clients.is_untaken(&life.rig))
}

/// Whether no client waits for anything.
pub(crate) fn is_idle(life: &Life) -> bool {
    life.shm.as_ref().is_none_or(|clients| clients.is_idle(&life.rig))
}

/// Once all have left: their regions are gone, too.
pub(crate) fn are_gone(life: &Life) -> Outcome {
    let Some(registry) = &life.rig.registry else { return Ok(()) };
    match (registry.count(), registry.bury()) {
        (0, false) => Ok(()),
        (count, _) => Err(format!("{count} clients in memory are left, or regions of others")),
    }
}
