//! The clients in shared memory of a worker that never waits ([`crate::memory`]): the slots are
//! looked at and the doorbells heard as [`crate::socket`] does both, but a sleep begins with one
//! poll and ends with the next, and whoever steps the workers decides when that is.
//!
//! The doorbells are the kernel's, and so is the set that hears them: it is asked and never waited
//! for. One thread that rings and asks in the same order is told the same.

use crate::shm_watch::Watch;
use crate::{Ready, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;
use std::io;
use std::mem::MaybeUninit;

/// The data word of the first doorbell: nothing else is in the set.
const WORDS: u64 = 0;
/// Doorbells heard by one poll, at most; the next one hears the others.
const EVENTS_MAX: usize = 64;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// See the module's page.
pub(crate) struct Bells {
    watch: Watch,
    epoll: OwnedFd,
    /// The last poll began a sleep.
    is_armed: bool,
}

impl Bells {
    pub(crate) fn new(watch: Watch) -> io::Result<Bells> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Bells { watch, epoll, is_armed: false })
    }

    /// Whether `queue` is one of these.
    pub(crate) fn has(&self, queue: usize) -> bool {
        self.watch.has(queue)
    }

    pub(crate) fn watch(&mut self, queue: usize, watch: bool) {
        self.watch.watch(queue, watch, &self.epoll, WORDS);
    }

    pub(crate) fn watch_room(&mut self, queue: usize, watch: bool) {
        self.watch.watch_room(queue, watch);
    }

    /// Ends a sleep: hears who has rung.
    pub(crate) fn hear(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let (events, _) = epoll::wait(&self.epoll, &mut room[..], Some(&AT_ONCE))?;
        events.iter().for_each(|event| self.watch.told(event.data.u64()));
        if !events.is_empty() {
            ready.push(Ready::Woken);
        }
        if std::mem::take(&mut self.is_armed) {
            self.watch.disarm();
        }
        Ok(())
    }

    /// Looks into the slots. Where the caller has nothing else and may wait, a sleep begins, unless
    /// something is found after all.
    pub(crate) fn look(&mut self, ready: &mut Vec<Ready>, wait: Wait, has_else: bool) {
        self.watch.follow(&self.epoll, WORDS);
        let before = ready.len();
        self.watch.look(ready);
        let may_sleep = !has_else && ready.len() == before && wait != Wait::No;
        self.is_armed = may_sleep && self.watch.arm(ready, wait) != Wait::No;
    }

    /// Whether somebody has rung who was not heard yet.
    pub(crate) fn is_rung(&self) -> bool {
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut fds, Some(&AT_ONCE)).is_ok_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::{Faults, MemoryTransport, Net};
    use crate::shm_watch::Watch;
    use crate::{FOREVER, Ready, Transport as _, Wait};
    use laneway_rdma::contract::{Posted, Requester as _, Responder as _};
    use laneway_rdma::door;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::{RingRequester, RingResponder};
    use std::sync::Arc;

    fn poll(transport: &mut MemoryTransport) -> Vec<Ready> {
        let mut ready = Vec::new();
        transport.poll(&mut ready, 32, Wait::AtMost(FOREVER)).expect("memory does not fail");
        ready
    }

    #[test]
    fn a_worker_sleeps_until_a_client_that_was_left_be_rings() {
        let registry = Arc::new(Registry::new(Terms::of(1, 0), 1));
        let watch = Watch::new(registry.clone(), 0, 0);
        let transport = Net::new(Faults::NONE).transport().with_bells(watch);
        let mut transport = transport.expect("there are descriptors");
        transport.watch_datagrams(0, true).expect("memory does not fail");
        let joined = door::join(&registry).expect("there is memory");
        let (given, _, _server) = joined.expect("there is a place");
        let mut client = RingRequester::new(given);
        let mut responder = RingResponder::new(registry.clone(), 0);
        for round in 0..3 {
            for _ in 0..20 {
                assert_eq!(poll(&mut transport), [], "round {round}");
            }
            assert!(!registry.active(0, 0).has(0), "it is left be");
            assert_eq!(client.post_request(0, b"x"), Posted::Done);
            assert!(transport.asleep().is_some(), "nobody has rung");
            client.pump().expect("memory does not fail");
            assert!(transport.asleep().is_none());
            assert_eq!(poll(&mut transport), [Ready::Woken, Ready::Datagrams(0)]);
            assert!(transport.asleep().is_none(), "it had something");
            assert_eq!(responder.poll_slots(0, 8), 1);
        }
    }
}
