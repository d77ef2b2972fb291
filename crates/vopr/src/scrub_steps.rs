//! What of a run is about the scrubber: single steps, and the end of a life.

use crate::life::Life;
use crate::world::{Outcome, World};
use laneway_server::clock::Clock;

impl World {
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
}
