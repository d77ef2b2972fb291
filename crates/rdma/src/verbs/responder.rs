//! One worker's handle on its server's clients: requests are polled for in their memory and taken
//! out of the lane's inbox, replies leave by the worker's own queue pair, as datagrams.
//!
//! Replies are gathered and posted together when the worker says so ([`Responder::pump`]): one
//! doorbell of the card for all of a burst. With each goes the count of requests that were taken,
//! in the 32 bits that a SEND carries beside ([`super::request_ring::told`]).

use super::card::Trouble;
use super::client_table::{ClientTable, Counts, Guest};
use super::guest::exchange;
use super::inbox::{Correspondents, Mail};
use super::parts;
use super::post::{SIGNAL_EVERY, Sender};
use super::request_ring::{self, PART};
use crate::contract::{Lenders, Lent, MESSAGE_BYTES_MAX, Peer, Placed, Posted, Request, Responder};
use crate::long::sealed_descriptor::SealedDescriptor;
use crate::polled::{Polled, TURN, by_turns};
use crate::region::{Look, add};
use crate::remote::DEPTH;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// Datagrams looked at for each request of a burst, at most: others are parts, or thrown away.
const LOOKS: usize = 4;
/// Of how many polls of a lane one looks for what was lost, and for clients that ask; so does one
/// that follows a poll that found nothing.
const FAR_EVERY: u32 = 64;
/// Clients that such a poll looks far at, for each may cost a look into every slot of its window;
/// where they are very many, as many as have all of them seen after [`FAR_POLLS`].
const FAR_CLIENTS: usize = 8;
const FAR_POLLS: usize = 64;

const _: () = assert!((DEPTH as u64).is_multiple_of(SIGNAL_EVERY));

/// Those of `count` clients whose turn it is to be looked far at, from number `next` on and around.
/// The others follow.
fn far_turn(next: &mut usize, count: usize) -> impl Iterator<Item = usize> + use<> {
    let some = count.div_ceil(FAR_POLLS).max(FAR_CLIENTS).min(count);
    let first = next.checked_rem(count).unwrap_or(0); // some may have gone
    *next = first + some;
    (first..first + some).map(move |number| number % count)
}

/// See the module's page.
pub struct VerbsResponder {
    client_table: Arc<ClientTable>,
    sender: Sender,
    qkey: u32,
    /// Of the table that `clients` is a copy of.
    version: u64,
    clients: Vec<Option<Arc<Guest>>>,
    /// How far it has followed that table's changes.
    seen: u64,
    /// The places of those that have slots, ascending.
    there: Vec<usize>,
    /// Those that send datagrams.
    correspondents: Correspondents,
    /// By lane: whether datagrams are taken before slots are polled. Each goes first every other
    /// time.
    inbox_first: Vec<bool>,
    /// The places of those of whom datagrams came.
    heard: Vec<usize>,
    /// The places of a poll, and whether it looks far there.
    polled: Vec<(usize, bool)>,
    worker: usize,
    /// Whose turn it is, by lane.
    turn: Vec<usize>,
    /// By lane: polls until one looks far.
    near: Vec<u32>,
    /// By lane: whom one looks far at next.
    far: Vec<usize>,
    requests: Polled,
    /// A reply that leaves in parts, and how many have.
    long: Vec<u8>,
    serial: u32,
}

impl VerbsResponder {
    /// Worker number `worker` of those of `client_table`.
    pub fn new(client_table: Arc<ClientTable>, worker: usize) -> Result<VerbsResponder, Trouble> {
        let lanes = client_table.bounds().lanes;
        assert!(worker < lanes, "worker {worker} of {lanes}");
        let (sender, qkey) = Sender::of_datagrams(client_table.domain(), DEPTH)?;
        Ok(VerbsResponder {
            sender,
            qkey,
            version: 0,
            clients: Vec::new(),
            seen: 0,
            there: Vec::new(),
            correspondents: Correspondents::new(),
            inbox_first: vec![false; lanes],
            heard: Vec::new(),
            polled: Vec::new(),
            worker,
            turn: vec![0; lanes],
            near: vec![0; lanes],
            far: vec![0; lanes],
            requests: Polled::default(),
            long: Vec::new(),
            serial: 0,
            client_table,
        })
    }

    fn counts(&self) -> &Counts {
        &self.client_table.counts[self.worker]
    }

    fn follow(&mut self) {
        let version = self.client_table.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let VerbsResponder { client_table, clients, seen, there, correspondents, .. } = self;
        client_table.follow((clients, seen), there, |before, now| {
            exchange(correspondents, before, now);
        });
    }

    /// The clients that ask for something, in turn, and behind them those that are looked far at,
    /// whose request may be missing.
    fn whom_to_poll(&mut self, queue: usize) -> Vec<(usize, bool)> {
        let is_far = self.near[queue] == 0;
        self.near[queue] = self.near[queue].checked_sub(1).unwrap_or(FAR_EVERY);
        let mut polled = std::mem::take(&mut self.polled);
        polled.clear();
        let active = self.client_table.active(self.worker, queue);
        polled.extend(active.walk(self.turn[queue]).map(|place| (place, false)));
        if is_far {
            let far = far_turn(&mut self.far[queue], self.there.len());
            polled.extend(far.map(|number| (self.there[number], true)));
        }
        polled
    }

    /// Post what was gathered. A pair that broke begins anew: what was under way is lost, as
    /// datagrams may be.
    fn post(&mut self) {
        if self.sender.has_gathered() {
            add(&self.counts().doorbells, 1);
        }
        if self.sender.post() {
            return;
        }
        add(&self.counts().broken, 1);
        // A device that refuses this too is gone: every later reply finds a broken pair again, and
        // the clients hear nothing, as if they were cut off.
        let _ = self.sender.open_datagrams(self.qkey);
    }

    /// At most [`TURN`] requests of one client.
    fn take_of(&mut self, guest: &Guest, lane: usize, burst: usize, far: bool) {
        for _ in 0..TURN.min(burst - self.requests.len()) {
            let start = self.requests.room.len();
            let (look, lost) = guest.take(lane, far, &mut self.requests.room);
            let counts = &self.client_table.counts[self.worker];
            add(&counts.requests_lost, lost.into());
            match look {
                Look::Request => {
                    self.requests.add(guest.peer(), start);
                    add(&counts.requests, 1);
                }
                Look::Stale => add(&counts.stale, 1),
                Look::Impossible => add(&counts.impossible, 1),
                Look::Nothing => break,
            }
        }
        self.tell(guest, lane, far);
    }

    /// Say how many of a lane were taken, if that is to be said.
    fn tell(&mut self, guest: &Guest, lane: usize, far: bool) {
        if self.sender.has_room(0) && guest.is_to_be_told(lane, far) {
            self.sender.send(0..0, &guest.mailbox, request_ring::told(lane, guest.tell(lane)));
            let counts = &self.client_table.counts[self.worker];
            add(&counts.verbs_send, 1);
            add(&counts.credits, 1);
        }
    }

    /// Requests out of a lane's slots, up to a burst with those that are there.
    fn take_slots(&mut self, queue: usize, burst: usize) {
        // Where nobody has slots nobody takes places out of those that are polled: all of them are.
        if self.there.is_empty() || self.requests.len() >= burst {
            return; // everybody keeps their turn
        }
        let polled = self.whom_to_poll(queue);
        let clients = std::mem::take(&mut self.clients);
        by_turns(&polled, burst, self.requests.len(), |(place, far)| {
            if let Some(Some(guest)) = clients.get(*place) {
                self.take_of(guest, queue, burst, *far);
            }
            self.requests.len()
        });
        // Behind whoever came first, so that each is first in turn.
        if let Some((first, _)) = polled.first() {
            self.turn[queue] = (first + 1) % clients.len().max(1);
        }
        (self.clients, self.polled) = (clients, polled);
    }

    /// Requests that came to a lane as datagrams, up to a burst with those that are there.
    fn take_datagrams(&mut self, lane: usize, burst: usize) {
        if self.correspondents.is_empty() {
            return;
        }
        let table = Arc::clone(&self.client_table);
        let inbox = table.mailroom().and_then(|mailroom| mailroom.inbox(lane));
        let Some(mut inbox) = inbox else { return };
        let counts = &table.counts[self.worker];
        self.heard.clear();
        for _ in 0..LOOKS * burst {
            let start = self.requests.room.len();
            if self.requests.len() >= burst {
                break;
            }
            let room = &mut self.requests.room;
            let Some(opened) = inbox.next(lane, &self.correspondents, room) else { break };
            add(&counts.datagrams, 1);
            add(&counts.requests_lost, opened.lost.into());
            let peer = opened.who.map(|who| who.peer());
            self.heard.extend(peer.map(|peer| usize::from(peer.client)));
            match (opened.mail, peer) {
                (Mail::Request, Some(peer)) => {
                    self.requests.add(peer, start);
                    add(&counts.requests, 1);
                }
                (Mail::Stranger, _) | (_, None) => add(&counts.strangers, 1),
                (Mail::Nothing, _) => {}
                (Mail::Impossible, _) => add(&counts.impossible, 1),
                (Mail::Unwanted, _) => add(&counts.unwanted, 1),
                (Mail::Flood, Some(peer)) => {
                    add(&counts.floods, 1);
                    if let Some(Some(guest)) = self.clients.get(usize::from(peer.client)) {
                        guest.cut_off();
                    }
                }
            }
        }
        inbox.give_back();
        add(&counts.broken, inbox.take_broken());
        add(&counts.deaf, inbox.take_refused());
        add(&counts.datagram_polls, inbox.take_polls());
        drop(inbox);
        let (heard, clients) = (std::mem::take(&mut self.heard), std::mem::take(&mut self.clients));
        for guest in heard.iter().filter_map(|place| clients.get(*place)?.as_ref()) {
            self.tell(guest, lane, false);
        }
        (self.heard, self.clients) = (heard, clients);
    }
}

impl Responder for VerbsResponder {
    fn queues(&self) -> usize {
        self.client_table.bounds().lanes
    }

    fn poll_slots(&mut self, queue: usize, burst: usize) -> usize {
        self.follow();
        self.requests.clear();
        let inbox_first = &mut self.inbox_first[queue];
        *inbox_first = !*inbox_first;
        if *inbox_first {
            self.take_datagrams(queue, burst);
            self.take_slots(queue, burst);
        } else {
            self.take_slots(queue, burst);
            self.take_datagrams(queue, burst);
        }
        if self.requests.len() == 0 {
            self.near[queue] = 0;
            self.post(); // nobody else may come to say who has room
        }
        self.requests.len()
    }

    fn request(&self, index: usize) -> Request<'_> {
        self.requests.request(index)
    }

    fn reply(&mut self, peer: Peer, queue: usize, pieces: &[IoSlice<'_>], spare: usize) -> Posted {
        self.follow();
        let guest = self.clients.get(usize::from(peer.client)).and_then(Option::as_ref);
        let Some(guest) = guest.filter(|guest| guest.peer() == peer && !guest.is_gone()) else {
            add(&self.counts().replies_to_nobody, 1);
            return Posted::Gone;
        };
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(bytes <= MESSAGE_BYTES_MAX, "a reply is one message");
        let sends = guest.sends(bytes);
        if !self.sender.has_room(spare + sends - 1) {
            add(&self.client_table.counts[self.worker].replies_without_room, 1);
            return Posted::Full;
        }
        let (word, mailbox) = (request_ring::told(queue, guest.tell(queue)), &guest.mailbox);
        if sends == 1 {
            self.sender.send_copy(mailbox, word, pieces.iter().map(|piece| &**piece));
        } else {
            self.long.clear();
            pieces.iter().for_each(|piece| self.long.extend_from_slice(piece));
            self.serial = self.serial.wrapping_add(1);
            for (head, bytes) in parts::cut(self.serial, self.worker, &self.long) {
                self.sender.send_copy(mailbox, word | PART, [&head[..], bytes].into_iter());
            }
        }
        add(&self.client_table.counts[self.worker].verbs_send, sends as u64);
        Posted::Done
    }

    fn pump(&mut self) -> io::Result<()> {
        self.post();
        Ok(())
    }

    fn tidy(&mut self) {
        self.follow();
        self.sender.poll();
        let mailroom = self.client_table.mailroom();
        if let Some(mut inbox) = mailroom.and_then(|mailroom| mailroom.inbox(self.worker)) {
            inbox.hear_again();
            // Who only looked for datagrams may have found it broken.
            add(&self.counts().broken, inbox.take_broken());
            add(&self.counts().deaf, inbox.take_refused());
        }
    }

    fn lenders(&self) -> Box<dyn Lenders> {
        Box::new(VerbsLenders { client_table: self.client_table.clone() })
    }
}

/// Long messages of all clients, for all workers.
struct VerbsLenders {
    client_table: Arc<ClientTable>,
}

impl Lenders for VerbsLenders {
    fn bytes(&self, said: &[u8]) -> Option<usize> {
        SealedDescriptor::parse(said).map(|sealed_descriptor| sealed_descriptor.bytes as usize)
    }

    fn claim(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        self.client_table.guest(peer)?.rendezvous()?.claim(SealedDescriptor::parse(said)?, false)
    }

    fn claim_again(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        self.client_table.guest(peer)?.rendezvous()?.claim(SealedDescriptor::parse(said)?, true)
    }

    fn place(&self, peer: Peer, id: u16, bytes: usize, now_nanos: u64) -> Option<Box<dyn Placed>> {
        self.client_table.guest(peer)?.rendezvous()?.place(id, bytes, now_nanos)
    }

    fn taken(&self, peer: Peer, id: u16) {
        let guest = self.client_table.guest(peer);
        if let Some(rendezvous) = guest.as_ref().and_then(|guest| guest.rendezvous()) {
            rendezvous.taken(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_looked_far_at_in_turn_and_few_at_a_time() {
        for count in [1, 7, 8, 9, 64, 500, 4096] {
            let (mut next, mut seen) = (0, vec![0; count]);
            for _ in 0..FAR_POLLS {
                let there: Vec<usize> = far_turn(&mut next, count).collect();
                assert!(there.len() <= FAR_CLIENTS.max(count / FAR_POLLS + 1), "{count}");
                there.iter().for_each(|client| seen[*client] += 1);
            }
            assert!(seen.iter().all(|times| *times > 0), "{count}");
        }
    }

    #[test]
    fn nobody_and_those_that_have_gone_have_no_turn() {
        let mut next = 0;
        assert_eq!(far_turn(&mut next, 0).count(), 0);
        assert_eq!(far_turn(&mut next, 100).count(), FAR_CLIENTS);
        assert!(far_turn(&mut next, 3).eq([2, 0, 1]));
    }
}
