//! What of a run is about who watches the server: single steps, and the end of a life.

use crate::life::{Life, ROUNDS_MAX};
use crate::world::{Outcome, World};

/// Time that passes between two rounds: longer than the server waits before it looks for news.
const ROUND_NANOS: u64 = 1_000_000;

impl World {
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
