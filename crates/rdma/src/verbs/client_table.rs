//! The table of a server's clients over RDMA verbs, which all workers share. Each client has an
//! address to which replies go. One that writes its requests has a queue pair for them, memory in a
//! protection domain of its own, and, where it asked for it, memory that the server grants for long
//! requests. One that sends them has a window, and nothing of the device's.
//! Each worker has one queue pair for all replies (HERD §4.3: a connection for each client would
//! not fit the card's memory).

use super::admission::{Claim, gives_way_among, place_among, share_left};
use super::card::{Card, Domain, Registered, Trouble, Writers, packet_bytes};
use super::carry::{Carry, DEPTH, Granted, STAGE_BYTES, Source};
use super::greeting::{Chosen, Hello, Mailboxes, Span, Welcome};
use super::guest::Way;
use super::inbox::{self, Correspondent};
use super::mailroom::{self, Mailroom};
use super::pair::{Depths, Far, NUMBER_BITS, Pair, Queue, Service, draw};
use super::post::{Handle, Mailbox};
use super::request_ring::{Bounds, RequestRing};
use super::roll::Roll;
use crate::contract::Peer;
use crate::door::{Admitted, Heard, House, address_of, refuse};
use crate::layout::LANES_MAX;
use crate::long::rendezvous::{self, RendezvousBuffer};
use crate::place_set::PlaceSet;
use crate::region::counts;
use crate::remote::{ClientLimits, Grants, Place, WINDOW_DATAGRAMS};
use laneway_sync::edition::Edition;
use laneway_sync::prim::AtomicU64;
use rustix::net::{SendFlags, send, sockopt};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub use super::guest::Guest;

/// When a client whose host has vanished is asked whether it is there, how often, and how many
/// times without an answer.
const SILENCE: Duration = Duration::from_secs(10);
const SILENCE_AGAIN: Duration = Duration::from_secs(5);
const SILENCES_MAX: u32 = 3;
/// Places of a queue where nothing is ever told.
const PLACES_UNUSED: usize = 16;

counts! {
    /// Requests taken, out of slots or as datagrams.
    requests,
    /// Requests, or parts of them, that never arrived, passed over.
    requests_lost,
    /// Slots with a length that no message has, and datagrams that are longer than a message.
    impossible,
    /// Slots with another number than the next.
    stale,
    /// Replies sent: verbs of the kind SEND.
    verbs_send,
    /// Of these, only to tell a client that there is room.
    credits,
    /// Lists of them posted: doorbells of the card.
    doorbells,
    /// Replies that found no place in the card's queue.
    replies_without_room,
    /// Replies to clients that are gone.
    replies_to_nobody,
    /// Times that a queue pair of the worker's broke, and was to begin anew.
    broken,
    /// Times that the one for datagrams did not: until it does nothing comes to it.
    deaf,
    /// Datagrams that were looked at, whatever they were: each was one completion.
    datagrams,
    /// Times that a completion queue was asked for some.
    datagram_polls,
    /// Datagrams of nobody who is a client, thrown away.
    strangers,
    /// Datagrams with another number than their client may send, thrown away.
    unwanted,
    /// Clients that were cut off, for they sent such ones on and on.
    floods,
}

/// All of them. Shared by the workers and the door.
pub struct ClientTable {
    bounds: Bounds,
    limits: ClientLimits,
    grants: Grants,
    granted: Arc<AtomicUsize>,
    /// Of queue pairs that only take.
    unused: Arc<Queue>,
    card: Arc<Card>,
    /// Of the workers' queue pairs, which send replies. Clients' memory is in their own.
    domain: Arc<Domain>,
    /// Counts up with every client that comes or goes.
    edition: Edition,
    /// The generation of the next client. Held while a client gets its place, which takes a while:
    /// workers wait for `clients`.
    entering: Mutex<u32>,
    clients: Mutex<Roll<Arc<Guest>>>,
    /// Those that are gone, as long as a worker has hold of them.
    retired: Mutex<Vec<Arc<Guest>>>,
    /// By worker and lane: the clients that it polls there. Whoever looks at the others in turn
    /// takes some out; who does not polls all.
    active: Vec<PlaceSet>,
    /// Made for the first client that sends datagrams.
    mailroom: OnceLock<Mailroom>,
    /// By worker.
    pub counts: Vec<Counts>,
    /// Of long messages, which are no worker's alone.
    pub long: Arc<rendezvous::Counts>,
    /// Clients that came, were refused, and said something else than hello.
    pub clients_come: AtomicU64,
    /// See above.
    pub clients_refused: AtomicU64,
    /// See above.
    pub hellos_bad: AtomicU64,
}

impl ClientTable {
    /// No client yet, and room for so many.
    pub fn new(
        card: Arc<Card>,
        bounds: Bounds,
        limits: ClientLimits,
        grants: Grants,
    ) -> Result<ClientTable, Trouble> {
        let unused = Queue::new(&card, PLACES_UNUSED, None)?;
        let domain = Domain::new(&card)?;
        Ok(ClientTable {
            bounds,
            limits,
            grants,
            granted: Arc::default(),
            unused,
            card,
            domain,
            edition: Edition::new(),
            entering: Mutex::new(0),
            clients: Mutex::new(Roll::new(limits.clients)),
            retired: Mutex::new(Vec::new()),
            active: std::iter::repeat_with(|| PlaceSet::new(limits.clients))
                .take(bounds.lanes * bounds.lanes)
                .collect(),
            mailroom: OnceLock::new(),
            counts: (0..bounds.lanes).map(|_| Counts::default()).collect(),
            long: Arc::default(),
            clients_come: AtomicU64::new(0),
            clients_refused: AtomicU64::new(0),
            hellos_bad: AtomicU64::new(0),
        })
    }

    /// How each client's memory is laid out.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// By which device they come.
    pub fn place(&self) -> &Place {
        self.card.place()
    }

    /// The clients that a worker polls in a lane.
    pub fn active(&self, worker: usize, lane: usize) -> &PlaceSet {
        &self.active[worker * self.bounds.lanes + lane]
    }

    /// Where datagrams arrive, once there was a client that sends them.
    pub fn mailroom(&self) -> Option<&Mailroom> {
        self.mailroom.get()
    }

    /// Places for datagrams of each worker.
    pub fn datagram_places(&self) -> usize {
        self.mailroom().map_or(0, |_| mailroom::PLACES)
    }

    /// How many clients there may be.
    pub fn limits(&self) -> ClientLimits {
        self.limits
    }

    /// Where the workers' queue pairs are.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Changes when a client comes or goes: who sees it finds the table as it was then, or newer.
    #[inline]
    pub fn version(&self) -> u64 {
        self.edition.number()
    }

    /// Has a copy of the table say who is there now, by the places that have changed alone, and
    /// `writers` the places of those that have slots, ascending. The copy has followed until
    /// `seen`, which is 0 of an empty one. `changed` is told who had such a place, and who has it:
    /// once or more often.
    pub fn follow(
        &self,
        (copy, seen): (&mut Vec<Option<Arc<Guest>>>, &mut u64),
        writers: &mut Vec<usize>,
        mut changed: impl FnMut(Option<&Guest>, Option<&Guest>),
    ) {
        self.lock().follow(copy, seen, |place, before, now| {
            let has_slots = now.is_some_and(|guest| guest.has_slots());
            match writers.binary_search(&place) {
                Ok(at) if !has_slots => _ = writers.remove(at),
                Err(at) if has_slots => writers.insert(at, place),
                Ok(_) | Err(_) => {}
            }
            changed(before.map(|guest| &**guest), now.map(|guest| &**guest));
        });
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().iter().flatten().count()
    }

    /// How many of them have slots. The others send their requests.
    pub fn writers(&self) -> usize {
        self.lock().iter().flatten().filter(|guest| guest.has_slots()).count()
    }

    /// Every count and its name, summed.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = Counts::default().each().collect();
        for counts in &self.counts {
            sums.iter_mut().zip(counts.each()).for_each(|(sum, (_, count))| sum.1 += count);
        }
        sums.extend(self.long.each());
        sums
    }

    /// Whether a worker's queue pair for datagrams broke and did not begin anew, which is tried
    /// with each [`crate::contract::Responder::tidy`]. Nothing where there is none, or somebody
    /// else is at it.
    pub fn is_deaf(&self, worker: usize) -> Option<bool> {
        Some(self.mailroom()?.inbox(worker)?.is_deaf())
    }

    /// What a client gets by a service, and the line that says so; or why it gets nothing. Where
    /// the device has no more for one that writes, one that asked for no service sends.
    fn welcome(
        &self,
        hello: &Hello,
        service: Service,
        peer: Peer,
        (door, from): (Arc<OwnedFd>, Option<IpAddr>),
    ) -> Result<(Guest, String), String> {
        let refused = |error: Trouble| format!("the server's device refuses: {error}");
        let mailbox = self.mailbox(hello).map_err(refused)?;
        let written = match service {
            Service::Datagrams => None,
            Service::Unreliable | Service::Reliable => {
                match self.welcome_writer(hello, service, (door.clone(), from)) {
                    Err(_) if hello.service.is_none() => None,
                    made => Some(made.map_err(refused)?),
                }
            }
        };
        let (way, chosen) = match written {
            Some(made) => made,
            None => {
                let other = self.gives_way(hello, from)?;
                let made = self.welcome_sender(hello, peer).map_err(refused)?;
                other.into_iter().for_each(|other| self.leave(other));
                made
            }
        };
        let granted_bytes = match &chosen {
            Chosen::Slots(welcome) => welcome.grant.bytes as usize,
            Chosen::Datagrams(_) => 0,
        };
        let line = match (hello.service, chosen) {
            (None, chosen) => chosen.to_string(),
            (Some(_), Chosen::Slots(welcome)) => welcome.to_string(),
            (Some(_), Chosen::Datagrams(mailboxes)) => mailboxes.to_string(),
        };
        let packet_bytes = packet_bytes(hello.far.mtu.min(self.card.mtu()));
        let gone = AtomicBool::new(false);
        Ok((Guest { peer, way, mailbox, packet_bytes, door, gone, from, granted_bytes }, line))
    }

    /// The way of a client that sends datagrams, which has nothing of the device's.
    fn welcome_sender(&self, hello: &Hello, peer: Peer) -> Result<(Way, Chosen), Trouble> {
        let bounds = Bounds { window: WINDOW_DATAGRAMS, ..self.bounds };
        // No lane is what marks a request.
        if bounds.lanes >= LANES_MAX {
            let why = io::ErrorKind::Unsupported.into();
            return Err(Trouble::of("requests as datagrams to so many workers", why));
        }
        let mailroom = match self.mailroom.get() {
            Some(mailroom) => mailroom,
            None => {
                let mailroom = Mailroom::new(&self.domain, bounds.lanes)?;
                self.mailroom.get_or_init(|| mailroom)
            }
        };
        let welcome = Mailboxes {
            bounds,
            address: self.card.address(),
            mtu: self.card.mtu(),
            qkey: mailroom.qkey(),
            numbers: mailroom.numbers(),
        };
        let correspondent = Arc::new(Correspondent::new(peer, bounds));
        Ok((Way::Datagrams(self.sender(hello), correspondent), Chosen::Datagrams(welcome)))
    }

    /// Where a client's replies go.
    fn mailbox(&self, hello: &Hello) -> Result<Arc<Mailbox>, Trouble> {
        let handle = Arc::new(Handle::new(&self.domain, &hello.far.address)?);
        let (number, qkey) = (hello.replies_number, hello.replies_qkey);
        Ok(Arc::new(Mailbox { handle, number, qkey }))
    }

    /// What its datagrams will say of where they come from.
    fn sender(&self, hello: &Hello) -> inbox::Source {
        inbox::Source { port: self.card.port(&hello.far.address), number: hello.sends_number }
    }

    /// The client that gives way to this one if it sends, for nothing would tell the datagrams of
    /// the two apart; an error where it does not.
    fn gives_way(&self, hello: &Hello, from: Option<IpAddr>) -> Result<Option<Peer>, &'static str> {
        let clients = self.lock();
        let senders = clients.iter().flatten().filter_map(|guest| {
            let claim = Claim { sender: guest.sender()?, from: guest.from };
            Some((claim, guest.peer(), guest.is_proven()))
        });
        gives_way_among(senders, Claim { sender: self.sender(hello), from })
    }

    /// The way of a client that writes.
    fn welcome_writer(
        &self,
        hello: &Hello,
        service: Service,
        (door, from): (Arc<OwnedFd>, Option<IpAddr>),
    ) -> Result<(Way, Chosen), Trouble> {
        // Its own, so that its queue pair reaches nobody else's memory, whatever key it guesses.
        let domain = Domain::new(&self.card)?;
        let memory = Registered::new(&domain, self.bounds.bytes(), Writers::Remote)?;
        let memory = Arc::new(memory);
        let depths = Depths { sends: DEPTH, receives: 1 };
        let sends = Queue::new(&self.card, 2 * DEPTH, None)?;
        let pair = Pair::new(&domain, Some(service), &sends, &self.unused, &depths)?;
        let psn = draw() & ((1 << NUMBER_BITS) - 1);
        pair.connect(service, false, psn, &hello.far)?;
        let far =
            Far { address: self.card.address(), mtu: self.card.mtu(), number: pair.number(), psn };
        let (source, grant) = self.source(hello, &domain, from);
        let (slots_address, slots_rkey) = (memory.address(), memory.rkey());
        let welcome = Welcome { bounds: self.bounds, far, slots_address, slots_rkey, grant };
        let (replies_bytes, requests_bytes) = (hello.replies.bytes as usize, source.bytes());
        let (spans, counts) = ((hello.replies, source), self.long.clone());
        let carry = Carry::new(&domain, pair, memory.clone(), spans, door, counts)?;
        let rendezvous =
            RendezvousBuffer::new(carry, replies_bytes, requests_bytes, self.long.clone());
        let request_ring = RequestRing::new(self.bounds);
        Ok((Way::Slots { rendezvous, memory, request_ring }, Chosen::Slots(welcome)))
    }

    /// Where a client's long requests will lie, and what it is told of it.
    fn source(&self, hello: &Hello, domain: &Arc<Domain>, from: Option<IpAddr>) -> (Source, Span) {
        let bytes = hello.requests.bytes as usize;
        if bytes == 0 {
            return (Source::Nowhere, Span::default());
        }
        if hello.service == Some(Service::Reliable) {
            return (Source::Theirs(hello.requests), Span::default());
        }
        let bytes = bytes.min(self.grants.client_bytes);
        let most = self.grants.all_bytes;
        let may = bytes > 0 && bytes <= share_left(most, from.map(|from| self.granted_at(from)));
        let granted = may.then(|| Granted::new(domain, bytes, &self.granted, most));
        match granted.flatten() {
            Some(granted) => {
                self.long.grants.fetch_add(1, Relaxed);
                let span = granted.span();
                (Source::Ours(granted), span)
            }
            None => {
                self.long.grants_refused.fetch_add(1, Relaxed);
                (Source::Nowhere, Span::default())
            }
        }
    }

    /// What the clients of an address have been granted.
    fn granted_at(&self, from: IpAddr) -> usize {
        let clients = self.lock();
        let there = clients.iter().flatten().filter(|guest| guest.from == Some(from));
        there.map(|guest| guest.granted_bytes).sum()
    }

    /// Memory locked for each client, beside what it is granted.
    pub fn client_bytes(&self) -> usize {
        self.bounds.bytes() + STAGE_BYTES
    }

    /// Memory that is granted now.
    pub fn granted_bytes(&self) -> usize {
        self.granted.load(Relaxed)
    }

    /// The client, if it is still there.
    pub(super) fn guest(&self, peer: Peer) -> Option<Arc<Guest>> {
        let guest = self.lock().get(usize::from(peer.client)).cloned().flatten();
        guest.filter(|guest| guest.peer == peer)
    }

    /// A place for a client that says hello from an address, and how it is served; or why it is
    /// not.
    fn place_for(&self, hello: &Hello, from: Option<IpAddr>) -> Result<(usize, Service), String> {
        let clients = self.lock();
        let taken = clients.iter().map(|guest| guest.as_ref().map(|guest| guest.from));
        let place = place_among(&taken.collect::<Vec<_>>(), from)
            .map_err(|why| format!("{why}: raise --rdma-clients"))?;
        let writers = clients.iter().flatten().filter(|guest| guest.has_slots());
        let writers: Vec<_> = writers.map(|guest| guest.from).collect();
        Ok((place, self.limits.service(hello.service, from, &writers)?))
    }

    fn lock(&self) -> MutexGuard<'_, Roll<Arc<Guest>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Arc<Guest>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House for ClientTable {
    type Hello = Hello;

    fn hear(&self, said: &[u8]) -> Heard<Hello> {
        Hello::hear(said)
    }

    fn admit(&self, hello: Hello, stream: &OwnedFd) -> Admitted {
        // There may be several doors: nobody else takes a place meanwhile.
        let mut generation = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |why: &str| {
            self.clients_refused.fetch_add(1, Relaxed);
            refuse(stream, why);
            Admitted::Refused
        };
        let from = address_of(stream);
        let (place, service) = match self.place_for(&hello, from) {
            Ok(found) => found,
            Err(why) => return refused(&why),
        };
        let peer = Peer { client: place as u16, generation: *generation };
        *generation = generation.wrapping_add(1);
        let door = match stream.try_clone() {
            Ok(door) => Arc::new(door),
            Err(error) => return refused(&format!("its connection cannot be kept: {error}")),
        };
        let (guest, line) = match self.welcome(&hello, service, peer, (door, from)) {
            Ok(made) => made,
            Err(why) => return refused(&why),
        };
        self.clients_come.fetch_add(1, Relaxed);
        keep_asking(stream);
        let has_slots = guest.has_slots();
        // Before the client hears of it: it may write at once.
        self.lock().put(place, Arc::new(guest));
        if has_slots {
            self.active.iter().for_each(|active| active.add(place));
        }
        self.edition.publish();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(stream, line.as_bytes(), flags) {
            Ok(count) if count == line.len() => Admitted::Member(peer),
            _ => {
                self.leave(peer);
                Admitted::Gone
            }
        }
    }

    fn misheard(&self) {
        self.hellos_bad.fetch_add(1, Relaxed);
    }

    fn is_proven(&self, peer: Peer) -> bool {
        self.guest(peer).is_none_or(|guest| guest.is_proven())
    }

    fn leave(&self, peer: Peer) {
        let mut clients = self.lock();
        let place = usize::from(peer.client);
        if let Some(guest) = clients.take_if(place, |guest| guest.peer == peer) {
            guest.gone.store(true, Relaxed);
            // Its second descriptor lives as long as a worker has hold of it; the end is told now.
            guest.cut_off();
            self.edition.publish();
            self.retired().push(guest);
        }
    }

    fn bury(&self) -> bool {
        let mut retired = self.retired();
        // Messages under way have hold of the rendezvous buffer alone: its pair and memory end
        // here, not at a worker.
        let (held, free): (Vec<_>, Vec<_>) = retired.drain(..).partition(Guest::is_held);
        *retired = held;
        let is_left = !retired.is_empty();
        drop(retired); // who is told that a client leaves does not wait for what follows
        drop(free);
        is_left
    }
}

/// A host that vanished closes no connection. A wish: without it such a client keeps its place.
fn keep_asking(stream: &OwnedFd) {
    let _ = sockopt::set_tcp_keepidle(stream, SILENCE);
    let _ = sockopt::set_tcp_keepintvl(stream, SILENCE_AGAIN);
    let _ = sockopt::set_tcp_keepcnt(stream, SILENCES_MAX);
    let _ = sockopt::set_socket_keepalive(stream, true);
}
