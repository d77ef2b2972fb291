//! What a worker's transport knows of clients over RDMA: whether their slots hold something, or
//! their datagrams have come. Their requests become datagrams as those of clients in memory do
//! ([`crate::rdma`]).
//!
//! A client with slots cannot ring: its card writes to memory, and no kernel is told. So a worker
//! that sleeps looks up every [`SLEEP`], as long as there is such a client. (HERD's never sleep.)
//! One that is awake looks at those each time that have asked lately, and at some of the others in
//! turn: a look costs what the former cost, and a request behind a pause waits for some more looks.
//!
//! Datagrams of all clients are one look, and the kernel tells a sleeper of them: it has the lane
//! armed, looks once more, and sleeps as long as it likes.

use crate::datagram::Path;
use crate::{Ready, Wait};
use laneway_rdma::place_set::PlaceSet;
use laneway_rdma::verbs::ClientTable;
use laneway_rdma::verbs::client_table::Guest;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep while somebody may write: one turn of a few microseconds in it is less than
/// one percent of a CPU.
const SLEEP: Duration = Duration::from_millis(1);
/// Of how many sleeps, or looks of who does not sleep, one ends with a poll of every lane, which
/// finds what comes behind a request that was lost.
const SLEEPS_FAR: u32 = 8;
const LOOKS_FAR: u32 = 4096;
/// Looks in a row at which nothing was found, until a client is one of the others.
const LOOKS_QUIET: u32 = 1024;
/// Of these so many are looked at each time.
const OTHERS: usize = 16;

/// Whom of the clients of a lane a look is at.
#[derive(Debug)]
struct Rounds {
    /// By place: looks in a row at which nothing was found.
    idle: Vec<u32>,
    /// Which of those that have slots is next, if it is one of the others.
    next: usize,
}

impl Rounds {
    fn new(places: usize) -> Rounds {
        Rounds { idle: vec![0; places], next: 0 }
    }

    /// Whether somebody has something, of those in `active` and some others of `there`, or of `all`
    /// of these. `has` tells it of a place; nothing where nobody is.
    fn look(
        &mut self,
        active: &PlaceSet,
        there: &[usize],
        all: bool,
        mut has: impl FnMut(usize) -> Option<bool>,
    ) -> bool {
        let mut found = false;
        for place in active.walk(0) {
            let idle = &mut self.idle[place];
            match has(place) {
                Some(true) => (*idle, found) = (0, true),
                Some(false) => *idle = idle.saturating_add(1),
                None => *idle = LOOKS_QUIET,
            }
            if *idle >= LOOKS_QUIET {
                active.remove(place);
            }
        }
        let others = if all { there.len() } else { OTHERS.min(there.len()) };
        for _ in 0..others {
            let next = self.next % there.len(); // some may have gone
            let place = there[next];
            self.next = next + 1;
            if !active.has(place) && has(place) == Some(true) {
                self.idle[place] = 0;
                active.add(place);
                found = true;
            }
        }
        found
    }
}

/// The part of a worker's transport.
pub struct Watch {
    client_table: Arc<ClientTable>,
    worker: usize,
    /// Number of its first queue.
    first: usize,
    version: u64,
    clients: Vec<Option<Arc<Guest>>>,
    /// How far it has followed the table's changes.
    seen: u64,
    /// The places of those that have slots.
    there: Vec<usize>,
    /// How many send datagrams.
    senders: usize,
    /// Which lanes are watched.
    lanes: Vec<bool>,
    /// Of which the kernel tells when datagrams come.
    heard: Vec<bool>,
    /// By lane.
    rounds: Vec<Rounds>,
    /// Queues of which room for large replies is waited for.
    rooms: BTreeSet<usize>,
    sleeps: u32,
    looks: u32,
}

impl Watch {
    /// Worker `worker` of those of `client_table`, whose queues are numbered from `first` on.
    pub fn new(client_table: Arc<ClientTable>, worker: usize, first: usize) -> Watch {
        let (lanes, places) = (client_table.bounds().lanes, client_table.limits().clients);
        Watch {
            client_table,
            worker,
            first,
            version: 0,
            clients: Vec::new(),
            seen: 0,
            there: Vec::new(),
            senders: 0,
            lanes: vec![false; lanes],
            heard: vec![false; lanes],
            rounds: (0..lanes).map(|_| Rounds::new(places)).collect(),
            rooms: BTreeSet::new(),
            sleeps: 0,
            looks: 0,
        }
    }

    /// Whether `queue` is one of these.
    pub(crate) fn has(&self, queue: usize) -> bool {
        (self.first..self.first + self.lanes.len()).contains(&queue)
    }

    pub(crate) fn watch(&mut self, queue: usize, watch: bool, epoll: &OwnedFd, words: u64) {
        let lane = queue - self.first;
        self.lanes[lane] = watch;
        self.listen(lane, epoll, words);
        // Nobody has looked at the others meanwhile, or will: whoever polls the lane polls all.
        self.client_table.active(self.worker, lane).add_all();
    }

    pub(crate) fn watch_room(&mut self, queue: usize, watch: bool) {
        if watch {
            self.rooms.insert(queue);
        } else {
            self.rooms.remove(&queue);
        }
    }

    /// Take in who has come and gone. Datagrams are told by data words from `words` on.
    pub(crate) fn follow(&mut self, epoll: &OwnedFd, words: u64) {
        let version = self.client_table.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let Watch { client_table, clients, seen, there, senders, .. } = self;
        let sends = |guest: Option<&Guest>| usize::from(guest.is_some_and(|it| !it.has_slots()));
        client_table.follow((clients, seen), there, |before, now| {
            *senders = *senders + sends(now) - sends(before);
        });
        (0..self.lanes.len()).for_each(|lane| self.listen(lane, epoll, words));
    }

    /// Have the kernel tell of a lane's datagrams as long as it is watched: once each time, and one
    /// of those who watch it.
    fn listen(&mut self, lane: usize, epoll: &OwnedFd, words: u64) {
        let Some(mailroom) = self.client_table.mailroom() else { return };
        let (before, after) = (self.heard[lane], self.lanes[lane]);
        if before == after {
            return;
        }
        let descriptor = mailroom.descriptor(lane);
        self.heard[lane] = after && {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let flags = flags | epoll::EventFlags::EXCLUSIVE;
            let data = epoll::EventData::new_u64(words + lane as u64);
            epoll::add(epoll, descriptor, data, flags).is_ok()
        };
        if before {
            let _ = epoll::delete(epoll, descriptor); // it is there
        }
    }

    /// Datagrams came to a lane since it was armed.
    pub(crate) fn told(&mut self, lane: usize, ready: &mut Vec<Ready>) {
        if let Some(mailroom) = self.client_table.mailroom() {
            mailroom.clear(lane);
            ready.push(Ready::Datagrams(self.first + lane));
        }
    }

    /// Say what is ready. The card makes room in a moment, and tells nobody: whoever waits for it
    /// tries again.
    pub(crate) fn look(&mut self, ready: &mut Vec<Ready>) {
        self.looks = self.looks.wrapping_add(1);
        if self.there.is_empty() {
            // Nobody's slots are looked at.
        } else if self.looks.is_multiple_of(LOOKS_FAR) {
            ready.extend(self.watched().map(|lane| Ready::Datagrams(self.first + lane)));
        } else {
            self.look_at(false, ready);
        }
        self.look_for_datagrams(ready);
        ready.extend(self.rooms.iter().map(|queue| Ready::Room(*queue, Path::Large)));
    }

    fn look_at(&mut self, all: bool, ready: &mut Vec<Ready>) {
        for (lane, rounds) in self.rounds.iter_mut().enumerate() {
            let clients = &self.clients;
            let has = |place: usize| {
                let guest = clients.get(place)?.as_ref().filter(|guest| guest.has_slots())?;
                Some(guest.has_request(lane))
            };
            let active = self.client_table.active(self.worker, lane);
            if self.lanes[lane] && rounds.look(active, &self.there, all, has) {
                ready.push(Ready::Datagrams(self.first + lane));
            }
        }
    }

    fn look_for_datagrams(&self, ready: &mut Vec<Ready>) {
        let Some(mailroom) = self.client_table.mailroom().filter(|_| self.senders > 0) else {
            return;
        };
        let lanes = self.watched().filter(|lane| mailroom.has_some(*lane));
        ready.extend(lanes.map(|lane| Ready::Datagrams(self.first + lane)));
    }

    /// Have whoever sleeps be told of datagrams that come from now on. False: nobody will be.
    fn arm(&self) -> bool {
        let Some(mailroom) = self.client_table.mailroom() else { return true };
        // All of them, whatever became of the first.
        let unarmed = self.watched().filter(|lane| !(self.heard[*lane] && mailroom.arm(*lane)));
        unarmed.count() == 0
    }

    fn watched(&self) -> impl Iterator<Item = usize> {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(|(_, watched)| **watched).map(|(lane, _)| lane)
    }

    /// Before a sleep, with nothing ready: how long it may be.
    pub(crate) fn wait(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let Wait::AtMost(mut time) = wait else { return wait };
        if self.senders > 0 {
            let (before, is_armed) = (ready.len(), self.arm());
            self.look_for_datagrams(ready);
            if ready.len() > before {
                return Wait::No;
            }
            time = if is_armed { time } else { time.min(SLEEP) };
        }
        if self.there.is_empty() {
            return Wait::AtMost(time);
        }
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.sleeps.is_multiple_of(SLEEPS_FAR) {
            ready.extend(self.watched().map(|lane| Ready::Datagrams(self.first + lane)));
            return Wait::No;
        }
        let before = ready.len();
        self.look_at(true, ready);
        if ready.len() > before {
            return Wait::No;
        }
        Wait::AtMost(time.min(SLEEP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 1_000;
    /// A look at all places, of which place 7 always has something and `also` does: whether there
    /// was something, and how many were looked at.
    fn look(
        rounds: &mut Rounds,
        active: &PlaceSet,
        all: bool,
        also: Option<usize>,
    ) -> (bool, usize) {
        let everybody: Vec<usize> = (0..PLACES).collect();
        let mut looks = 0;
        let found = rounds.look(active, &everybody, all, |place| {
            looks += 1;
            Some(place == 7 || Some(place) == also)
        });
        (found, looks)
    }

    fn quiet() -> (Rounds, PlaceSet) {
        let (mut rounds, active) = (Rounds::new(PLACES), PlaceSet::new(PLACES));
        active.add_all();
        assert_eq!(look(&mut rounds, &active, false, None), (true, PLACES));
        (0..LOOKS_QUIET).for_each(|_| _ = look(&mut rounds, &active, false, None));
        (rounds, active)
    }

    #[test]
    fn a_look_costs_the_same_beside_a_thousand_quiet_clients() {
        let (mut rounds, active) = quiet();
        assert_eq!(active.walk(0).collect::<Vec<_>>(), [7]);
        for _ in 0..PLACES {
            let (found, looks) = look(&mut rounds, &active, false, None);
            assert!(found && looks <= 1 + OTHERS);
        }
    }

    #[test]
    fn who_was_quiet_is_found_in_turn_and_before_a_sleep_at_once() {
        let (mut rounds, active) = quiet();
        let turns = (0..PLACES).position(|_| {
            look(&mut rounds, &active, false, Some(500));
            active.has(500)
        });
        assert!(turns.is_some_and(|turns| turns <= PLACES / OTHERS), "{turns:?}");
        let (mut rounds, active) = quiet();
        assert!(look(&mut rounds, &active, true, Some(3)).0 && active.has(3) && active.has(7));
    }

    #[test]
    fn places_of_those_that_send_are_not_looked_at() {
        let (mut rounds, active) = (Rounds::new(PLACES), PlaceSet::new(PLACES));
        // One of three was quiet, and its turn comes with the next look, however many send.
        let there = [3, 400, PLACES - 1];
        let mut looked = Vec::new();
        let found = rounds.look(&active, &there, false, |place| {
            looked.push(place);
            Some(place == 400)
        });
        looked.sort_unstable();
        assert_eq!((found, looked.as_slice()), (true, &there[..]));
        assert_eq!(active.walk(0).collect::<Vec<_>>(), [400]);
        // Those that are left when others have gone have their turn.
        assert!(rounds.look(&active, &there[..1], false, |place| Some(place == 3)));
    }

    #[test]
    fn places_where_nobody_is_are_not_looked_at_again_and_no_places_are_none() {
        let (mut rounds, active) = (Rounds::new(10), PlaceSet::new(10));
        active.add_all();
        assert!(!rounds.look(&active, &[], false, |_| None));
        assert_eq!(active.walk(0).count(), 0);
        assert!(!Rounds::new(0).look(&PlaceSet::new(0), &[], true, |_| Some(true)));
    }
}
