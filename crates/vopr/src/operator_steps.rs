//! What of a run is about who operates the server: single steps.

use crate::life::Life;
use crate::operator::Did;
use crate::world::{Outcome, World};

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
}
