//! Decides whether the log is the one that the checkpoints were made with.
//!
//! A folder whose log is not mounted, or a path that leads to another store's, looks like a log
//! with nothing in it. To go on from there would serve old values, and the first write would be the
//! other store's loss.

use crate::checkpoint::superblock::Superblock;
use crate::log::record::Kind;
use crate::media::disk::Barrier;
use crate::recovery::survey::Surveyed;
use crate::report::Report;
use crate::store::Shared;
use crate::types::{Error, Position, Result, SEQUENCE_MAX, SEQUENCES_LOST_MAX};
use laneway_sync::planted::{Bug, is_planted};
use std::path::Path;

/// More segments than any log was begun with while it was away.
const GENERATIONS: u64 = 1 << 32;

/// What to do where there is a store and not its log.
const WAY_OUT: &str = "Give --pm the store's own log, or mount what it is on. If it is lost for \
                       good, serve --accept-lost-log goes on with what the SSD had at the last \
                       checkpoint";

/// The last segment that was begun, as a checkpoint of this position knows.
pub fn last_begun(position: Position) -> u64 {
    position.generation.saturating_sub(u64::from(position.offset == 0))
}

/// Refuses a log that is blank, of another store, or ends before the newest checkpoint; a lost one
/// may be accepted, but never another store's. Refuses an SSD that is older than the log. Returns
/// how many generations the log goes on above what the checkpoint knows, so that the lost one is
/// never taken for it.
pub fn check(
    superblock: &Superblock,
    surveyed: &Surveyed,
    may_be_lost: Option<bool>,
    report: &mut Report,
) -> Result<u64> {
    let &Surveyed { ref used, foreign, superblock: known, ends_before, .. } = surveyed;
    // A store is made with its first segment.
    let needed = last_begun(superblock.checkpoints[0].position).max(1);
    let newest = used.last().map_or(0, |used| used.generation);
    let is_older = is_planted(Bug::OlderLogAccepted);
    if superblock.generation + u64::from(superblock.is_alone) < known && !is_older {
        return Err(Error::Mismatch(format!(
            "the SSD is older than the log: its superblock is number {}, and the log was written \
             with number {known}; nothing was written. Give --ssd the one that this log was \
             written with",
            superblock.generation
        )));
    }
    if needed <= newest && (ends_before.is_none() || is_older) {
        let told = || format!("{foreign} segments of the log have headers of another store");
        report.problems.extend((foreign != 0).then(told));
        return Ok(0);
    }
    let what = match (newest, foreign) {
        _ if ends_before.is_some() => {
            format!("the log ends inside of segment {newest}, or is damaged there")
        }
        (0, 0) => "the log is blank".to_string(),
        (0, _) => {
            return Err(Error::Mismatch(
                "the log is another store's, and nothing was written to it: give --pm the log of \
                 this one"
                    .into(),
            ));
        }
        (newest, _) => format!("the log ends with segment {newest}"),
    };
    let told = format!(
        "{what}, and the newest checkpoint on the SSD was made with it further on, in segment \
         {needed}"
    );
    match may_be_lost {
        Some(true) => {
            report.log_is_new = true;
            let lost = if ends_before.is_some() { "it held from there on" } else { "it held" };
            report.problems.push(format!("{told}: what {lost} is lost"));
            Ok(GENERATIONS)
        }
        Some(false) => Err(Error::Mismatch(format!("{told}; nothing was written. {WAY_OUT}"))),
        None => Err(Error::Mismatch(format!(
            "{told}, and its index with it; nothing was written. Give --pm the right log; if \
             nothing was ever stored here, remove the log and the SSD's file, and both are made \
             anew"
        ))),
    }
}

/// A log that is not there.
pub fn missing(path: &Path) -> Error {
    let path = path.display();
    Error::Mismatch(format!("the log {path} is missing; nothing was written. {WAY_OUT}"))
}

impl Shared {
    /// Has the log that was accepted known as the store's from now on, by both superblocks.
    ///
    /// The log's first record comes last. Until the SSD names a position in the new log, a start
    /// without `--accept-lost-log` must go on being refused, and a log with a record of this store
    /// in it would be taken for the store's own.
    pub fn replace_lost_log(&self, report: &Report) -> Result<()> {
        self.pass_over_lost();
        match self.checkpoint() {
            // On a full SSD the older checkpoint makes room. Both are of the lost log, and this
            // start has read the newest whole if nothing else is wrong.
            Err(Error::SsdFull { .. }) if report.problems.len() == 1 => {
                self.give_up_older_checkpoint();
                self.checkpoint()?;
            }
            result => result?,
        }
        match self.checkpoint() {
            // The newest superblock is enough. The older one gets there with the next checkpoint.
            Err(Error::SsdFull { .. }) => {}
            result => result?,
        }
        self.append_note(Kind::Note, &[], &[])?;
        self.commit(Barrier::Group)
    }

    /// The checkpoints to come say so: the next log may be lost, too.
    fn pass_over_lost(&self) {
        let mut writer = self.writer();
        if writer.sequence <= SEQUENCE_MAX - SEQUENCES_LOST_MAX {
            writer.sequence += SEQUENCES_LOST_MAX;
        }
    }

    /// Frees the body of the older checkpoint. If the power fails before the next superblock, the
    /// newest checkpoint is the only one that is whole.
    fn give_up_older_checkpoint(&self) {
        let older = std::mem::take(&mut self.maintenance().checkpoints[1].body);
        self.space.free(&older.extents);
    }
}
