//! The state that workers and the durable executor share.

use super::backup::Backups;
use super::pending_writes::PendingWrites;
use super::scrub::Scrubs;
use super::walks::Walks;
use crate::jobs::handoff::Job;
use laneway_policy::{WorkerId, WorkerTarget};
use laneway_store::Moment;
use laneway_sync::ring::Ring;
use laneway_sync::sleep::{Posted, Sleeper};
use laneway_tier::{Error, Report, Tier};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The executor takes jobs as a worker does, under a number that no worker has.
pub const EXECUTOR: WorkerTarget = WorkerTarget::Worker(WorkerId(u16::MAX));

/// Jobs that wait for the executor at most; connections of more than that wait with their requests
/// unread.
const JOB_PLACES: usize = 1 << 14;

/// Bytes at most of their items, and of batches' requests and replies.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// What the item of one job counts at most.
const COUNTED_BYTES_MAX: u64 = 1 << 20;

/// What one key of a request about several is taken to need until that is answered, beside the
/// bytes of the request: its hash is hidden, and its name stands among what was changed, what is
/// not durable, and what was before. (Copies of a long name are as long as in the request.)
pub const KEY_HELD_BYTES: u64 = 256;

/// What a job counts beside those, so that one of no bytes is there as well.
const JOB_BYTES: u64 = 1;

/// How the store was found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// What the tier says of it.
    pub report: Report,
    /// How long that took.
    pub took_ms: u64,
}

/// What the executor counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests it executed.
    pub requests: AtomicU64,
    /// Items that were brought into memory.
    pub faults: AtomicU64,
    /// Requests that waited behind others of their key, and were looked at again.
    pub released: AtomicU64,
    /// Bytes of their values.
    pub fault_bytes: AtomicU64,
    /// Large values written to the SSD.
    pub spills: AtomicU64,
    /// Changes that waited until the log had room.
    pub set_aside: AtomicU64,
    /// Reads that were answered with what was there before a change under way.
    pub answered_before: AtomicU64,
    /// Writes that were refused or taken back.
    pub refused: Refusals,
    /// Items dropped because they had expired.
    pub expired: AtomicU64,
    /// Reads of items that are damaged, or that a device refused to give.
    pub lost: AtomicU64,
}

/// Writes that were refused or taken back, by what stood in their way.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Log or SSD had no room.
    pub full: AtomicU64,
    /// Memory was so short that the item was evicted at once.
    pub memory: AtomicU64,
    /// A medium failed, then or earlier.
    pub failed: AtomicU64,
}

impl Refusals {
    /// Counts one that this error was the answer to.
    pub fn count(&self, error: &Error) {
        bump(match error {
            Error::PmFull | Error::SsdFull { .. } => &self.full,
            _ => &self.failed,
        });
    }

    /// What was counted so far.
    pub fn told(&self) -> Refused {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed); // statistics
        Refused { full: read(&self.full), memory: read(&self.memory), failed: read(&self.failed) }
    }
}

/// The same, at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// For want of room on log or SSD.
    pub full: u64,
    /// For want of memory.
    pub memory: u64,
    /// Since a medium failed.
    pub failed: u64,
}

impl Refused {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.full + self.memory + self.failed
    }
}

/// The shared part.
pub struct Durable {
    /// What workers ask before they answer.
    pub pending_writes: PendingWrites,
    /// The store.
    pub tier: Arc<Tier>,
    /// Walks over its keys.
    pub walks: Walks,
    /// Requests for the executor.
    pub jobs: Ring<Job>,
    /// Replies wait for a group.
    pub waits: bool,
    /// Else what was written is made durable this often.
    pub interval_nanos: u64,
    /// Bytes of requests that the executor has, queued or not: see [`HELD_BYTES_MAX`].
    held_bytes: AtomicU64,
    /// How the store was found.
    pub recovery: Recovery,
    /// What was done.
    pub counts: Counts,
    /// Copies of the store that clients ask for.
    pub backups: Backups,
    /// Passes over all that is kept.
    pub scrubs: Scrubs,
    /// No more requests come.
    stopping: AtomicBool,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
    helper: OnceLock<Box<Helper>>,
    /// Awake while somebody helps.
    helping: Sleeper,
    /// Somebody wants a step.
    is_wanted: AtomicBool,
}

/// A step of the executor by whoever asks, at this time.
type Helper = dyn Fn(u64, Moment) -> Helped + Send + Sync;

/// What has come of [`Durable::help`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helped {
    /// Another thread steps the executor, and will again.
    Elsewhere,
    /// This thread has stepped it. There may be replies for it.
    Done,
    /// The same, and the step has left jobs that can begin at once, or somebody has asked for one
    /// meanwhile: this thread helps again, or wakes the executor's.
    More,
}

/// Somebody helps, until this is dropped.
struct Helping<'a>(&'a Sleeper);

impl Drop for Helping<'_> {
    fn drop(&mut self) {
        self.0.fall_asleep();
    }
}

impl Durable {
    /// For a store that was opened. With an interval writes are acknowledged before they are
    /// durable.
    pub fn new(tier: Arc<Tier>, interval: Option<Duration>, recovery: Recovery) -> Durable {
        Durable {
            pending_writes: PendingWrites::new(tier.clone()),
            tier,
            walks: Walks::default(),
            jobs: Ring::new(JOB_PLACES),
            waits: interval.is_none(),
            interval_nanos: interval.map_or(0, |interval| interval.as_nanos() as u64),
            held_bytes: AtomicU64::new(0),
            recovery,
            counts: Counts::default(),
            backups: Backups::default(),
            scrubs: Scrubs::default(),
            stopping: AtomicBool::new(false),
            bell: OnceLock::new(),
            helper: OnceLock::new(),
            helping: Sleeper::new(),
            is_wanted: AtomicBool::new(false),
        }
    }

    /// How the executor is woken; once, before it runs.
    pub fn set_bell(&self, bell: Box<dyn Fn() + Send + Sync>) {
        assert!(self.bell.set(bell).is_ok(), "there is one executor");
    }

    /// How others step the executor; once, before there are any.
    pub(super) fn set_helper(&self, helper: Box<Helper>) {
        assert!(self.helper.set(helper).is_ok(), "there is one executor");
        self.helping.fall_asleep();
    }

    /// What was given to the executor is executed: by this thread; or by the one that helps just
    /// now, which looks once more when it has done so; or by the executor's, which is then woken.
    pub fn help(&self, now_nanos: u64, now: Moment) -> Helped {
        let Some(helper) = self.helper.get() else {
            self.ring();
            return Helped::Elsewhere;
        };
        // (C) pairs with (D). It reads, too: so who sees that of another sees this one.
        self.is_wanted.swap(true, Ordering::Release);
        if !Posted::now().must_wake(&self.helping) {
            return Helped::Elsewhere;
        }
        // (D) pairs with (C): the step finds what was put down by all whose wish ends here.
        self.is_wanted.swap(false, Ordering::Acquire);
        let helping = Helping(&self.helping);
        let helped = helper(now_nanos, now);
        drop(helping);
        match helped {
            Helped::Elsewhere => self.ring(),
            // Asleep first: who comes from now on helps, and who came before is seen.
            Helped::Done if self.is_wanted.load(Ordering::Relaxed) => return Helped::More,
            Helped::Done | Helped::More => {}
        }
        helped
    }

    /// Wake the executor, or make its next sleep none.
    pub fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// Give the executor a job; gives it back if it has enough. [`Durable::help`] sees to it that
    /// the job is executed.
    pub fn push(&self, job: Job) -> Result<(), Job> {
        let bytes = counted(&job);
        // A count: nothing else hangs on it.
        let held = self.held_bytes.fetch_add(bytes + JOB_BYTES, Ordering::Relaxed);
        let fits = held + bytes <= HELD_BYTES_MAX;
        let pushed = if fits { self.jobs.push(job) } else { Err(job) };
        if pushed.is_err() {
            self.answered(bytes);
        }
        pushed
    }

    /// Whether it has no request.
    pub fn is_idle(&self) -> bool {
        // Whoever stops looks again and again.
        self.held_bytes() == 0 && self.jobs.is_empty()
    }

    /// Bytes that its requests take; for tests.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed) // a count
    }

    /// A job that counted so many bytes is done.
    pub fn answered(&self, bytes: u64) {
        self.held_bytes.fetch_sub(bytes + JOB_BYTES, Ordering::Relaxed); // as above
    }

    /// No more requests come.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release); // (X) pairs with (Y): all jobs came before
        self.ring();
    }

    /// Whether no more requests come.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) // (Y) pairs with (X)
    }
}

/// What a job counts among the bytes that the executor may have. Its item's bytes are bounded where
/// memory gives them, so that a long one is not counted whole: it would shut out all others, and
/// be shut out where there are any. What the executor itself needs for it counts, up to half of
/// what there may be in all.
pub fn counted(job: &Job) -> u64 {
    job.size.0.min(COUNTED_BYTES_MAX) + job.keeps().min(HELD_BYTES_MAX / 2)
}

/// Count one more.
pub fn bump(count: &AtomicU64) {
    add(count, 1);
}

/// Count so many more.
pub fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed); // statistics: nothing hangs on it
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_tier::disk::sim::{Faults, Power, SimDisk};
    use laneway_tier::pm::sim::SimRegion;
    use laneway_tier::{Media, Settings};

    const NOW: Moment = Moment::from_seconds(1);

    fn durable() -> Arc<Durable> {
        let power = Power::new(u64::MAX);
        let region = Arc::new(SimRegion::new(8 << 20, power.clone(), Faults::default()));
        let ssd = Arc::new(SimDisk::new(8 << 20, power, 1, Faults::default()));
        let segment_bytes = 64 << 10;
        let settings = Settings { segment_bytes, background: false, ..Settings::default() };
        let media = Media { region, ssd };
        let (tier, report) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
        let recovery = Recovery { report, took_ms: 0 };
        Arc::new(Durable::new(Arc::new(tier), None, recovery))
    }

    #[test]
    fn who_asks_for_a_step_during_a_step_leaves_it_to_who_makes_that_one() {
        let durable = durable();
        let rings = Arc::new(AtomicU64::new(0));
        let counts = rings.clone();
        durable.set_bell(Box::new(move || bump(&counts)));
        let rung = || rings.load(Ordering::Relaxed);
        assert_eq!((durable.help(0, NOW), rung()), (Helped::Elsewhere, 1), "nobody can");
        let (asker, steps) = (Arc::downgrade(&durable), AtomicU64::new(0));
        durable.set_helper(Box::new(move |_, _| {
            let step = steps.fetch_add(1, Ordering::Relaxed);
            if step == 0 {
                // As another thread would.
                let asker = asker.upgrade().expect("it is being asked");
                assert_eq!(asker.help(0, NOW), Helped::Elsewhere);
            }
            if step < 2 { Helped::Done } else { Helped::Elsewhere }
        }));
        assert_eq!((durable.help(0, NOW), rung()), (Helped::More, 1), "it was asked meanwhile");
        assert_eq!((durable.help(0, NOW), rung()), (Helped::Done, 1));
        assert_eq!((durable.help(0, NOW), rung()), (Helped::Elsewhere, 2), "another has it locked");
        assert_eq!((durable.help(0, NOW), rung()), (Helped::Elsewhere, 3), "it may be asked again");
    }

    #[test]
    fn what_is_refused_counts_by_what_stood_in_its_way() {
        let refusals = Refusals::default();
        refusals.count(&Error::PmFull);
        refusals.count(&Error::SsdFull { blocks: 1 });
        refusals.count(&Error::Poisoned("the log: no such device".into()));
        bump(&refusals.memory);
        assert_eq!(refusals.told(), Refused { full: 2, memory: 1, failed: 1 });
        assert_eq!(refusals.told().total(), 4);
    }
}
