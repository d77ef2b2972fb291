//! What a worker's transport knows of clients in shared memory: whether their slots hold something,
//! and how it is woken for them. ([`crate::rdma`] makes datagrams of what they hold.)
//!
//! A client of which nothing came for a while is *left be*: the worker raises its mark at the
//! client's bell, looks once more, and then not again until it is rung. So a poll costs what those
//! clients cost that ask for something, however many others there are; and so does a sleep, before
//! which the bells of the former are raised, all behind one fence. Marks are each worker's own, so
//! that what one does is right whatever others do that watch the same lane
//! ([`laneway_sync::slot`], under loom). HERD polls the slots of all clients (§4.2).
//!
//! Nothing here waits.

use crate::datagram::Path;
use crate::rdma::spare;
use crate::{Ready, Wait};
use laneway_rdma::region::{Region, Registry};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::slot;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Looks in a row at which nothing was found, until a client is left be: some hundred microseconds
/// of a worker that does nothing else, so that who asks again and again need not ring.
const LOOKS_QUIET: u32 = 1024;
/// The same before a sleep, when its bell is raised in any case.
const LOOKS_QUIET_ASLEEP: u32 = 8;
/// Clients that are left be at a time: when very many came together, no poll takes long for it.
const QUIET_AT_ONCE: usize = 16;
/// Clients that are looked at behind one that has something: that one is reason enough to poll.
const LOOKS_BEHIND: usize = 16;

/// What is known of a client and lane.
#[derive(Debug, Clone, Copy, Default)]
struct Pulse {
    /// Looks in a row at which nothing was found.
    idle: u32,
    /// Whether the kernel tells of its doorbell.
    is_heard: bool,
}

/// What looking and sleeping has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Costs {
    /// Slots looked at.
    pub looks: u64,
    /// Bells at which the worker's mark was raised.
    pub raised: u64,
    /// Fences behind these.
    pub fences: u64,
}

/// What a worker's transport knows of the clients in memory.
pub struct Watch {
    registry: Arc<Registry>,
    worker: usize,
    /// Number of its first queue.
    first: usize,
    /// Of the table that `clients` is a copy of.
    version: u64,
    clients: Vec<Option<Arc<Region>>>,
    /// Which lanes are watched.
    lanes: Vec<bool>,
    /// By lane, and then by place.
    pulses: Vec<Vec<Pulse>>,
    /// By lane: the place that is looked at first.
    turn: Vec<usize>,
    /// Places that are about to be left be.
    quiet: Vec<usize>,
    /// Queues of which room for large replies is waited for.
    rooms: BTreeSet<usize>,
    /// Clients have come or gone since room was looked for.
    is_new: bool,
    costs: Costs,
}

impl Watch {
    /// Worker `worker` of those in `registry`, whose queues are numbered from `first` on.
    pub fn new(registry: Arc<Registry>, worker: usize, first: usize) -> Watch {
        let lanes = registry.terms().lanes;
        let pulses = vec![vec![Pulse::default(); registry.places()]; lanes];
        Watch {
            registry,
            worker,
            first,
            version: 0,
            clients: Vec::new(),
            lanes: vec![false; lanes],
            pulses,
            turn: vec![0; lanes],
            quiet: Vec::new(),
            rooms: BTreeSet::new(),
            is_new: false,
            costs: Costs::default(),
        }
    }

    /// What it has cost so far.
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// Whether `queue` is one of these.
    pub(crate) fn has(&self, queue: usize) -> bool {
        (self.first..self.first + self.lanes.len()).contains(&queue)
    }

    /// A doorbell wakes whoever watches its lane; and this worker, whose replies are taken.
    fn listens(&self, lane: usize) -> bool {
        self.lanes[lane] || lane == self.worker
    }

    /// By which data word the kernel tells of a doorbell, if these begin with `words`.
    fn word(&self, words: u64, lane: usize, place: usize) -> u64 {
        words + (lane * self.pulses[lane].len() + place) as u64
    }

    pub(crate) fn watch(&mut self, queue: usize, watch: bool, epoll: &OwnedFd, words: u64) {
        let lane = queue - self.first;
        let before = self.listens(lane);
        self.lanes[lane] = watch;
        let after = self.listens(lane);
        for place in (0..self.clients.len()).filter(|_| before != after) {
            let word = after.then(|| self.word(words, lane, place));
            if let Some(region) = &self.clients[place] {
                self.pulses[lane][place].is_heard = listen(epoll, region, lane, word);
            }
        }
        // Who was left be may have rung unheard, or will: whoever polls the lane polls all.
        self.registry.active(self.worker, lane).add_all();
        self.pulses[lane].iter_mut().for_each(|pulse| pulse.idle = 0);
    }

    pub(crate) fn watch_room(&mut self, queue: usize, watch: bool) {
        if watch {
            self.rooms.insert(queue);
        } else {
            self.rooms.remove(&queue);
        }
    }

    /// Take in who has come, and let go of who has gone.
    pub(crate) fn follow(&mut self, epoll: &OwnedFd, words: u64) {
        let version = self.registry.version();
        if version == self.version {
            return;
        }
        self.version = version;
        self.is_new = true;
        let before = std::mem::replace(&mut self.clients, self.registry.clients());
        for place in 0..self.clients.len() {
            let (old, new) = (before.get(place).and_then(Option::as_ref), &self.clients[place]);
            if old.map(|region| region.peer()) == new.as_ref().map(|region| region.peer()) {
                continue;
            }
            for lane in 0..self.lanes.len() {
                let listens = self.listens(lane);
                if let Some(region) = old.filter(|_| listens) {
                    listen(epoll, region, lane, None);
                }
                let word = self.word(words, lane, place);
                let mut pulse = Pulse::default();
                if let Some(region) = &self.clients[place] {
                    pulse.is_heard = listens && listen(epoll, region, lane, Some(word));
                    // Whoever was there before may have been left be a moment ago.
                    self.registry.active(self.worker, lane).add(place);
                }
                self.pulses[lane][place] = pulse;
            }
        }
    }

    /// The doorbell was rung whose data word is the first and so many.
    pub(crate) fn told(&mut self, number: u64) {
        let places = self.registry.places() as u64;
        let (lane, place) = ((number / places) as usize, (number % places) as usize);
        if let Some(pulses) = self.pulses.get_mut(lane)
            && !is_planted(Bug::RungUnheard)
        {
            pulses[place].idle = 0;
            self.registry.active(self.worker, lane).add(place);
        }
    }

    /// Say what is ready.
    pub(crate) fn look(&mut self, ready: &mut Vec<Ready>) {
        for lane in 0..self.lanes.len() {
            if self.lanes[lane] && self.has_request(lane) {
                ready.push(Ready::Datagrams(self.first + lane));
            }
        }
        let is_new = std::mem::take(&mut self.is_new);
        if self.rooms.is_empty() {
            return;
        }
        let spare = spare(self.registry.terms().replies);
        let blocked = self.registry.blocked(self.worker);
        let mut has_room = is_new;
        for place in blocked.walk(0) {
            let region = self.clients.get(place).and_then(Option::as_ref);
            if region.is_none_or(|region| region.has_room_again(self.worker, spare)) {
                blocked.remove(place);
                has_room = true;
            }
        }
        if has_room {
            ready.extend(self.rooms.iter().map(|queue| Ready::Room(*queue, Path::Large)));
        }
    }

    /// Whether a client of a lane has something. All are looked at that are not left be, unless one
    /// has.
    fn has_request(&mut self, lane: usize) -> bool {
        let active = self.registry.active(self.worker, lane);
        let (mut found, mut left) = (false, usize::MAX);
        for place in active.walk(self.turn[lane]) {
            let Some(region) = self.clients.get(place).and_then(Option::as_ref) else {
                active.remove(place); // whoever comes there is added
                continue;
            };
            if left == 0 {
                self.turn[lane] = place;
                break;
            }
            left -= 1;
            self.costs.looks += 1;
            let pulse = &mut self.pulses[lane][place];
            if region.has_request(lane) {
                pulse.idle = 0;
                left = if found { left } else { LOOKS_BEHIND };
                found = true;
                continue;
            }
            pulse.idle = pulse.idle.saturating_add(1);
            let is_quiet = pulse.idle >= LOOKS_QUIET && pulse.is_heard;
            if is_quiet && self.quiet.len() < QUIET_AT_ONCE {
                self.quiet.push(place);
            }
        }
        let found_late = !self.quiet.is_empty() && self.leave_be(lane);
        found || found_late
    }

    /// Leave those be of whom nothing came for long. Whether one of them has something after all.
    fn leave_be(&mut self, lane: usize) -> bool {
        let (worker, registry) = (self.worker, &self.registry);
        let region = |place: usize| self.clients.get(place).and_then(Option::as_ref);
        for region in self.quiet.iter().filter_map(|place| region(*place)) {
            region.raise(lane, worker);
            self.costs.raised += 1;
        }
        slot::raised();
        self.costs.fences += 1;
        let mut found = false;
        for place in self.quiet.drain(..) {
            self.costs.looks += 1;
            if region(place).is_some_and(|region| region.has_request(lane)) {
                self.pulses[lane][place].idle = 0;
                found = true;
            } else {
                registry.active(worker, lane).remove(place);
            }
        }
        found
    }

    /// The clients that are looked at in the lanes that are watched.
    fn each_active(&self) -> impl Iterator<Item = (usize, usize, &Region)> {
        let lanes = (0..self.lanes.len()).filter(move |lane| self.lanes[*lane]);
        lanes.flat_map(move |lane| {
            let places = self.registry.active(self.worker, lane).walk(0);
            places.filter_map(move |place| {
                let region = self.clients.get(place).and_then(Option::as_deref)?;
                Some((lane, place, region))
            })
        })
    }

    /// Before a sleep: have the clients ring, and look once more. What is to be waited then.
    pub(crate) fn arm(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let before = ready.len();
        let mut raised = 0;
        let active = self.each_active().filter(|_| !is_planted(Bug::BellUnraised));
        for (lane, _, region) in active {
            region.raise(lane, self.worker);
            raised += 1;
        }
        if !self.rooms.is_empty() {
            for place in self.registry.blocked(self.worker).walk(0) {
                if let Some(region) = self.clients.get(place).and_then(Option::as_ref) {
                    region.raise_room(self.worker);
                    raised += 1;
                }
            }
        }
        slot::raised();
        self.costs.raised += raised;
        self.costs.fences += 1;
        self.look(ready);
        if ready.len() > before {
            return Wait::No;
        }
        // Nobody has anything behind the fence: who was quiet for some time is left be.
        for (lane, place, _) in self.each_active() {
            let Pulse { idle, is_heard } = self.pulses[lane][place];
            if idle >= LOOKS_QUIET_ASLEEP && is_heard {
                self.registry.active(self.worker, lane).remove(place);
            }
        }
        wait
    }

    /// Awake again.
    pub(crate) fn disarm(&mut self) {
        // Of more workers than there are marks another may have left a client be under ours.
        if self.lanes.len() <= slot::MARKS {
            for (lane, _, region) in self.each_active() {
                region.lower(lane, self.worker);
            }
        }
    }
}

/// Have the kernel tell of a doorbell, or not any more. Whether it does.
///
/// Edge by edge: nobody reads a doorbell, for its client may change how it is read. A doorbell that
/// the kernel does not take (for want of memory, say) wakes nobody: its client is never left be,
/// and its requests wait for the end of a sleep, which is a second at most.
fn listen(epoll: &OwnedFd, region: &Region, lane: usize, word: Option<u64>) -> bool {
    let doorbell = region.doorbell(lane);
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    match word {
        Some(word) => epoll::add(epoll, doorbell, epoll::EventData::new_u64(word), flags).is_ok(),
        None => {
            let _ = epoll::delete(epoll, doorbell);
            false
        }
    }
}

#[cfg(test)]
mod tests;
