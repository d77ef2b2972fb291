//! What of a run is about backups: single steps, the end of a life, and disks that are lost.

use crate::backup::{Copy, End, Turn};
use crate::life::Life;
use crate::media::LOG_BYTES;
use crate::world::{Outcome, World};
use laneway_rig::durable::Machine;
use laneway_server::clock::Clock;
use laneway_tier::{Error, dump};

/// The longest key, under which a `flush_all` to come is kept.
const SCHEDULE_KEY_BYTES: usize = 256;
/// Steps after which a backup has ended.
const STEPS_MAX: u32 = 100_000;

impl World {
    /// Something of a backup, now and then.
    pub(crate) fn step_backup(&mut self, life: &mut Life) -> Outcome {
        let Some(backups) = &mut life.backups else { return Ok(()) };
        match backups.turn() {
            Turn::Rest => {}
            Turn::Ask => backups.ask(&life.rig, self.swarm.has_users()),
            Turn::Leave => backups.leave(),
            Turn::Copy => return self.step_copier(life),
            Turn::Exchange => backups.exchange(),
            Turn::Migrate => {
                // A medium that refuses is the next writer's to find out.
                life.tier.iter().for_each(|tier| drop(tier.migrate()));
            }
        }
        Ok(())
    }

    /// At the end of a life a backup is finished, so that it is judged.
    pub(crate) fn finish_backup(&mut self, life: &mut Life) -> Outcome {
        for _ in 0..STEPS_MAX {
            match &life.backups {
                Some(backups) if backups.is_under_way() => self.step_copier(life)?,
                _ => return Ok(()),
            }
        }
        Err("a backup does not end".into())
    }

    fn step_copier(&mut self, life: &mut Life) -> Outcome {
        let (doubt, keys) = (self.may_doubt(), self.swarm.keys as u64);
        let moment = self.books.moment();
        let (Some(backups), Some(tier)) = (&mut life.backups, &life.tier) else { return Ok(()) };
        let now_nanos = self.clock.nanos();
        let now = self.clock.unix_seconds(now_nanos);
        let Some(told) = backups.step(tier, moment, now_nanos, now) else { return Ok(()) };
        self.books.say(|| format!("a backup: {} {}", told.standing.name(), told.error));
        match backups.judge(&told, tier, doubt, keys)? {
            End::Done(copy) => {
                self.books.counts.backups += 1;
                backups.done = copy;
            }
            End::Failed => self.books.counts.backups_failed += 1,
        }
        Ok(())
    }

    /// Now and then the disks are lost, and somebody loads the last copy into new ones. Says since
    /// when everything is lost.
    pub(crate) fn restored(&mut self, life: &mut Life) -> Result<Option<(Machine, u64)>, String> {
        let Some(backups) = life.backups.as_mut() else { return Ok(None) };
        let Some(Copy { moment, stream }) = backups.done.take() else { return Ok(None) };
        if !backups.is_restored() {
            return Ok(None);
        }
        let why = |error: &Error| format!("a whole copy cannot be restored: {error}");
        let machine = Machine::new(LOG_BYTES, self.swarm.ssd_bytes);
        let tier = machine.open(self.tier_settings()).map_err(|error| why(&error))?;
        match dump::load(&tier, &stream[..]) {
            Ok(_) => {}
            // Where there is no room for all of it the operator takes larger disks, which a run
            // has not.
            Err(Error::PmFull | Error::SsdFull { .. }) => return Ok(None),
            Err(error) => return Err(why(&error)),
        }
        // It would be carried out a second time.
        let has_flush_to_come = tier.look(&[0; SCHEDULE_KEY_BYTES]).is_some();
        let evicted = tier.evicted();
        if has_flush_to_come || 0 < evicted.small.items + evicted.large.items {
            return Ok(None);
        }
        match tier.settle() {
            Err(Error::PmFull | Error::SsdFull { .. }) => return Ok(None),
            settled => settled.map_err(|error| why(&error))?,
        }
        self.books.counts.restores += 1;
        self.books.say(|| "the disks are lost, and a backup is loaded into new ones".into());
        Ok(Some((machine, moment)))
    }
}
