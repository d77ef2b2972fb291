//! A worker's part in handing requests over: it executes the jobs of its own queue, of the shared
//! one and, where the plan says so, one at a time of somebody else's, and brings replies to the
//! connections and datagrams that wait for them.
//!
//! No queue blocks and none loses: a job that finds its queue full stays where it was, as input of
//! its connection; a reply that finds its home's ring full is kept here, and no further job is
//! taken until it is gone. Departs from Minos §3.1: the reply to a stream leaves by its home, since
//! only that worker holds the connection; the values in it are pinned, not copied.

pub mod domains;
pub mod enqueue;
pub mod hand_over;
pub mod handoff;
pub mod offer;
pub mod remote;

use crate::core::Core;
use crate::jobs::handoff::{Finished, Home, Job, Origin};
use crate::jobs::remote::wake_there;
use crate::shared::Shared;
use crate::stream::streams::Streams;
use crate::udp::state::Udp;
use laneway_policy::{BATCH, Role, WorkerId, turn};
use laneway_sync::ring::Ring;
use laneway_transport::Transport;
use std::collections::VecDeque;
use std::io;

/// The parts of a worker that a reply may be for, and what they work with.
pub(crate) struct Parts<T: Transport> {
    pub(crate) core: Core<T>,
    pub(crate) streams: Streams<T>,
    /// Datagrams, where they are served.
    pub(crate) udp: Option<Box<Udp>>,
}

/// What lies between this worker and the others.
#[derive(Default)]
pub(crate) struct Jobs {
    /// Replies whose home had no room for them.
    undelivered: VecDeque<Finished>,
}

/// Which queue of jobs.
#[derive(Clone, Copy)]
enum Queue {
    Own,
    Shared,
}

impl Queue {
    #[inline]
    fn of<T: Transport>(self, core: &Core<T>) -> &Ring<Job> {
        match self {
            Queue::Own => &core.shared.workers[core.id.index()].jobs,
            Queue::Shared => &core.shared.large_jobs,
        }
    }
}

impl Jobs {
    /// Whether every reply is with its home.
    pub(crate) fn is_delivered(&self) -> bool {
        self.undelivered.is_empty()
    }

    /// Whether a job or a reply waits for this worker.
    pub(crate) fn has_any<T: Transport>(&self, core: &Core<T>) -> bool {
        let here = &core.shared.workers[core.id.index()];
        !self.undelivered.is_empty()
            || !here.finished.is_empty()
            || !here.jobs.is_empty()
            || (core.takes_large() && !core.shared.large_jobs.is_empty())
            || core.idle_takes_of().is_some()
    }

    /// Replies that came back go to their connections. Returns whether there were any.
    pub(crate) fn take_finished<T: Transport>(&mut self, to: &mut Parts<T>) -> io::Result<bool> {
        let here = to.core.id.index();
        if self.undelivered.is_empty() && to.core.shared.workers[here].finished.is_empty() {
            return Ok(false);
        }
        let mut any = false;
        for _ in 0..self.undelivered.len() {
            let Some(finished) = self.undelivered.pop_front() else { break };
            self.deliver(to, finished);
            any = true;
        }
        for _ in 0..BATCH {
            let Some(finished) = to.core.shared.workers[here].finished.pop() else { break };
            self.deliver(to, finished);
            any = true;
        }
        to.streams.turn_brought(&mut to.core)?;
        Ok(any)
    }

    /// Execute jobs: those in this worker's own queue, then, if it serves the shared one, from
    /// there, each time one; where small requests are served too, one large one of each. Returns
    /// whether there were any.
    #[inline]
    pub(crate) fn work<T: Transport>(&mut self, to: &mut Parts<T>) -> io::Result<bool> {
        let mut any = false;
        if !Queue::Own.of(&to.core).is_empty() {
            any = self.work_through(to, Queue::Own)?;
        }
        if to.core.takes_large() && !Queue::Shared.of(&to.core).is_empty() {
            any |= self.work_through(to, Queue::Shared)?;
        }
        Ok(any)
    }

    #[inline(never)]
    fn work_through<T: Transport>(&mut self, to: &mut Parts<T>, queue: Queue) -> io::Result<bool> {
        let mut any = false;
        // No more than lie there now: what a reply brings behind it waits for the next turn.
        let mut most = queue.of(&to.core).len().min(BATCH as usize);
        if to.core.may_offer() {
            most = most.div_ceil(2); // others look here too
        }
        for _ in 0..most {
            if !self.undelivered.is_empty() {
                break;
            }
            let Some(job) = queue.of(&to.core).pop() else { break };
            let is_large = job.size >= to.core.plan.threshold;
            self.run(to, job)?;
            any = true;
            if is_large && to.core.plan.role(to.core.id) != Role::Large {
                break; // small requests come first, then one more
            }
        }
        Ok(any)
    }

    /// With nothing else to do: take one job of another worker, if the plan lets this one.
    pub(crate) fn steal<T: Transport>(&mut self, to: &mut Parts<T>) -> io::Result<bool> {
        if !self.undelivered.is_empty() {
            return Ok(false);
        }
        match to.core.idle_takes_of() {
            Some(whose) => self.take_from(to, whose),
            None => Ok(false),
        }
    }

    /// In front of a slice a large worker takes small requests, as many as the plan lets it.
    /// Returns whether there were any.
    pub(crate) fn steal_between_slices<T: Transport>(
        &mut self,
        to: &mut Parts<T>,
    ) -> io::Result<bool> {
        if to.core.plan.role(to.core.id) != Role::Large {
            return Ok(false);
        }
        let mut took = 0;
        while self.undelivered.is_empty()
            && let Some(whose) = turn::between_slices(&to.core.plan, took, &to.core)
            && self.take_from(to, whose)?
        {
            took += 1;
        }
        Ok(took > 0)
    }

    /// Execute one job of another worker's. Returns whether there was one.
    fn take_from<T: Transport>(&mut self, to: &mut Parts<T>, whose: WorkerId) -> io::Result<bool> {
        let Some(job) = to.core.shared.workers[whose.index()].jobs.pop() else { return Ok(false) };
        to.core.lanes().stolen.add_owner(1);
        self.run(to, job)?;
        Ok(true)
    }

    fn run<T: Transport>(&mut self, to: &mut Parts<T>, job: Job) -> io::Result<()> {
        let Parts { core, udp, .. } = to;
        let elsewhere = match job.origin {
            Origin::Stream(origin) => origin.worker != core.id,
            Origin::Datagram(origin) => usize::from(origin.queue) != core.id.index(),
        };
        if elsewhere || job.home.is_some() {
            core.lanes().jobs_of_others.add_owner(1);
        }
        let job = match udp {
            Some(udp) => udp.begin_gathering(core, job),
            None => Some(job),
        };
        match job.and_then(|job| core.perform(job)) {
            Some(finished) => {
                self.deliver(to, finished);
                to.streams.turn_brought(&mut to.core)
            }
            None => Ok(()),
        }
    }

    /// Take a reply to who waits for it.
    fn deliver<T: Transport>(&mut self, to: &mut Parts<T>, mut finished: Finished) {
        let Parts { core, streams, udp } = to;
        if let Some(home) = finished.home.take() {
            return self.send_home(&core.shared, home, finished);
        }
        let origin = match finished.origin {
            Origin::Stream(origin) => origin,
            Origin::Datagram(_) => {
                if let Some(udp) = udp {
                    udp.deliver(core, finished);
                }
                return;
            }
        };
        if origin.worker == core.id {
            return streams.bring(core, origin, finished);
        }
        match core.shared.workers[origin.worker.index()].finished.push(finished) {
            Ok(()) => core.wake_one([origin.worker]),
            Err(finished) => self.undelivered.push_back(finished),
        }
    }

    /// Take a reply back to the NUMA domain where its request was received; it stays here while
    /// there is no room.
    fn send_home<S>(&mut self, shared: &Shared<S>, home: Home, finished: Finished) {
        let domains = shared.domains.get();
        let there = domains.and_then(|domains| domains.neighbour(home.domain));
        let Some(there) = there else { return }; // the server has ended
        match there.workers[home.worker.index()].finished.push(finished) {
            Ok(()) => wake_there(&there, home.worker.index()),
            Err(finished) => {
                let finished = Finished { home: Some(home), ..finished };
                self.undelivered.push_back(finished);
            }
        }
    }
}
