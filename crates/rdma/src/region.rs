//! The server's side of its clients' regions: what it keeps of each where no client can write, and
//! the table of them that the workers share.
//!
//! Several workers may take requests of one lane, one at a time: each tries the lane's lock and
//! goes on if another has it. Replies have a lane for each worker that sends them, so nobody else
//! writes there. (HERD §4.3 has one datagram queue pair for each server process, for the same
//! reason.) Memory orders are those of [`laneway_sync::slot`]; here is bookkeeping.

use crate::contract::{Descriptor, Lenders, Lent, Moved, Peer, Posted};
use crate::layout::Terms;
use crate::mapped::Mapped;
use crate::place_set::PlaceSet;
use laneway_sync::edition::Edition;
use laneway_sync::prim::AtomicU64;
use laneway_sync::slot::{self, Control, Taken};
use laneway_sync::words;
use rustix::thread::futex;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Pieces of one reply at most: a header and what a frame touches.
const PIECES_MAX: usize = 16;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one worker has seen and done. Aligned so that no two write one cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counts {
            /// Every count and its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.load(Relaxed)),)*].into_iter()
            }
        }
    };
}

pub(crate) use counts;

counts! {
    /// Requests taken out of slots.
    requests,
    /// Slots with a length that no message has.
    impossible,
    /// Slots with another number than the next: written twice, or by mistake.
    stale,
    /// Replies sent: verbs of the kind SEND.
    verbs_send,
    /// Pieces of lent memory read: verbs of the kind READ.
    verbs_read,
    /// Replies that found no room: their client does not take what it is sent.
    replies_without_room,
    /// Replies to clients that are gone.
    replies_to_nobody,
    /// Loans claimed.
    loans_claimed,
    /// Loans that could not be: beyond the lent memory, taken back, or claimed before.
    loans_refused,
    /// Clients woken.
    clients_woken,
}

/// Add to a count that this thread alone writes, or nearly.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

/// What became of a look into a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing there, or another worker is looking.
    Nothing,
    /// A request, appended to what the caller gave.
    Request,
    /// A slot that was thrown away: of an impossible length.
    Impossible,
    /// The same: not the next request.
    Stale,
}

/// One client's region.
#[derive(Debug)]
pub struct Region {
    map: Mapped,
    terms: Terms,
    peer: Peer,
    /// One for each lane, written by the client, never read: who waits is told of each write.
    doorbells: Vec<OwnedFd>,
    gone: AtomicBool,
    /// By lane: the number of the next request.
    requests: Vec<Mutex<u32>>,
    /// By worker: the number of its next reply. That worker alone writes it.
    replies: Vec<AtomicU32>,
    /// By worker: whether a reply found no room since it last asked.
    blocked: Vec<AtomicBool>,
}

impl Region {
    /// A region in `map`, whose client writes to `doorbells`, one for each lane.
    pub fn new(map: Mapped, terms: Terms, peer: Peer, doorbells: Vec<OwnedFd>) -> Region {
        assert_eq!(doorbells.len(), terms.lanes, "a doorbell for each lane");
        let region = Region {
            map,
            terms,
            peer,
            doorbells,
            gone: AtomicBool::new(false),
            requests: (0..terms.lanes).map(|_| Mutex::new(1)).collect(),
            replies: (0..terms.lanes).map(|_| AtomicU32::new(1)).collect(),
            blocked: (0..terms.lanes).map(|_| AtomicBool::new(false)).collect(),
        };
        // No worker knows it yet: until one does, the client rings.
        (0..terms.lanes).for_each(|lane| slot::raise_all(region.bell(lane)));
        region
    }

    /// Whose it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Its doorbell for a lane.
    pub fn doorbell(&self, lane: usize) -> BorrowedFd<'_> {
        self.doorbells[lane].as_fd()
    }

    /// Its client is gone: nothing more is sent to it.
    pub fn leave(&self) {
        self.gone.store(true, Relaxed);
    }

    /// Whether it is.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    fn bell(&self, lane: usize) -> &AtomicU64 {
        &self.map.words()[self.terms.bell(lane)]
    }

    /// Have the client ring for a worker when it posts to this lane. Behind the last of all that
    /// are to ring call [`slot::raised`], and look once more.
    pub fn raise(&self, lane: usize, worker: usize) {
        slot::raise(self.bell(lane), slot::mark(worker));
    }

    /// That worker polls the lane again.
    pub fn lower(&self, lane: usize, worker: usize) {
        slot::lower(self.bell(lane), slot::mark(worker));
    }

    /// Have the client ring when it takes replies of this worker, as [`Region::raise`] has it.
    pub fn raise_room(&self, worker: usize) {
        let bell = &self.map.words()[self.terms.room_bell(worker)];
        slot::raise(bell, slot::mark(worker));
    }

    /// Whether the next slot of a lane holds something, at a glance, or may soon.
    #[inline]
    pub fn has_request(&self, lane: usize) -> bool {
        let next = match self.requests[lane].try_lock() {
            Ok(next) => *next,
            Err(TryLockError::Poisoned(next)) => *next.into_inner(),
            // Whoever has it takes a request and may leave the next one, which nobody will ring
            // for: who looks before a sleep is to look again.
            Err(TryLockError::WouldBlock) => return true,
        };
        slot::is_taken(&self.map.words()[self.terms.request(lane, next)])
    }

    /// Take the next request of a lane: copied behind what is in `out`, its slot freed.
    pub fn take(&self, lane: usize, out: &mut Vec<u8>) -> Look {
        let mut next = match self.requests[lane].try_lock() {
            Ok(next) => next,
            Err(TryLockError::Poisoned(next)) => next.into_inner(),
            Err(TryLockError::WouldBlock) => return Look::Nothing,
        };
        let slot = &self.map.words()[self.terms.request(lane, *next)];
        if !slot::is_taken(slot) {
            return Look::Nothing;
        }
        let start = out.len();
        let (control, look) = match slot::take(slot, out) {
            Taken::Empty => return Look::Nothing,
            Taken::Message(control) => (control, Look::Request),
            Taken::Impossible(control) => (control, Look::Impossible),
        };
        slot::free(slot);
        if control.sequence != *next {
            out.truncate(start);
            return Look::Stale;
        }
        *next = slot::next(*next);
        look
    }

    /// Send a reply of `pieces` in the name of lane `from`, as worker `worker`, which is the
    /// caller.
    pub fn reply(
        &self,
        worker: usize,
        from: usize,
        pieces: &[IoSlice<'_>],
        spare: usize,
    ) -> Posted {
        if self.is_gone() {
            return Posted::Gone;
        }
        let sequence = self.replies[worker].load(Relaxed);
        if !self.has_room_behind(worker, spare) {
            self.blocked[worker].store(true, Relaxed);
            return Posted::Full;
        }
        let mut short: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
        let long: Vec<&[u8]>;
        let slices = if pieces.len() <= PIECES_MAX {
            short.iter_mut().zip(pieces).for_each(|(place, piece)| *place = piece);
            &short[..pieces.len()]
        } else {
            long = pieces.iter().map(|piece| &**piece).collect();
            &long
        };
        let bytes = slices.iter().map(|piece| piece.len()).sum::<usize>();
        let bytes = u16::try_from(bytes).expect("a reply fits its slot");
        let control = Control { sequence, note: from as u16, bytes };
        slot::write(&self.map.words()[self.terms.reply(worker, sequence)], control, slices);
        self.replies[worker].store(slot::next(sequence), Relaxed);
        Posted::Done
    }

    /// Whether this worker's next reply has a place, and `spare` behind it. Places are freed in
    /// turn, so the last tells of all.
    fn has_room_behind(&self, worker: usize, spare: usize) -> bool {
        let next = self.replies[worker].load(Relaxed);
        let free = |sequence| slot::is_free(&self.map.words()[self.terms.reply(worker, sequence)]);
        let last = next.wrapping_add(spare.min(self.terms.replies - 1) as u32).max(1);
        free(next) && (spare == 0 || free(last))
    }

    /// Whether a reply of this worker found no room, and there is some now: told once. A client
    /// that is gone has room for all.
    pub fn has_room_again(&self, worker: usize, spare: usize) -> bool {
        self.blocked[worker].load(Relaxed)
            && (self.is_gone() || self.has_room_behind(worker, spare))
            && self.blocked[worker].swap(false, Relaxed)
    }

    /// Wake the client if it sleeps. Returns whether it did.
    pub fn wake_client(&self) -> bool {
        let word = self.map.sleep_word();
        if !slot::must_wake(word) {
            return false;
        }
        // Nobody waits there any more: nothing lost.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
        true
    }

    fn claim(&self, descriptor: Descriptor) -> bool {
        let Descriptor { loan, number, offset, bytes } = descriptor;
        let end = offset.checked_add(bytes.into());
        let fits = (loan as usize) < self.terms.loans
            && end.is_some_and(|end| end <= self.terms.bulk_bytes as u64);
        fits && slot::claim(&self.map.words()[self.terms.loan(loan as usize)], number)
    }
}

/// Memory on loan.
struct OnLoan {
    region: Arc<Region>,
    registry: Arc<Registry>,
    loan: usize,
    offset: usize,
    bytes: usize,
}

impl Lent for OnLoan {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&mut self, offset: usize, bytes: usize, out: &mut Vec<u8>) -> Moved {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "beyond what was lent");
        let lent = &self.region.map.words()[self.region.terms.bulk()];
        words::read_into(lent, self.offset + offset, bytes, out);
        add(&self.registry.shared.verbs_read, 1);
        Moved::Done
    }
}

impl Drop for OnLoan {
    fn drop(&mut self) {
        slot::end_loan(&self.region.map.words()[self.region.terms.loan(self.loan)]);
    }
}

/// The server's clients. Shared by all workers and the door.
#[derive(Debug)]
pub struct Registry {
    terms: Terms,
    places: usize,
    /// Counts up with every client that comes or goes.
    edition: Edition,
    /// Held while a client gets its region, which takes a while: workers wait for `clients`.
    entering: Mutex<()>,
    clients: Mutex<Vec<Option<Arc<Region>>>>,
    /// Regions whose clients are gone, as long as a worker has hold of them: to unmap one may take
    /// milliseconds, and is not for a worker to do.
    retired: Mutex<Vec<Arc<Region>>>,
    /// By worker and lane: the clients that it polls there. Whoever knows how to be rung for takes
    /// some out; the others poll all.
    active: Vec<PlaceSet>,
    /// By worker: the clients of which a reply found no room, and which may have some now.
    blocked: Vec<PlaceSet>,
    /// By worker.
    pub counts: Vec<Counts>,
    /// Of what is nobody's alone.
    pub shared: Counts,
    /// Clients that came, were refused for want of a place, and said something else than hello.
    pub clients_come: AtomicU64,
    /// See above.
    pub clients_refused: AtomicU64,
    /// See above.
    pub hellos_bad: AtomicU64,
}

impl Registry {
    /// No client yet, and room for so many.
    pub fn new(terms: Terms, clients_max: usize) -> Registry {
        let clients = Mutex::new(vec![None; clients_max]);
        let sets = |count| -> Vec<PlaceSet> {
            std::iter::repeat_with(|| PlaceSet::new(clients_max)).take(count).collect()
        };
        Registry {
            terms,
            places: clients_max,
            active: sets(terms.lanes * terms.lanes),
            blocked: sets(terms.lanes),
            edition: Edition::new(),
            entering: Mutex::new(()),
            clients,
            retired: Mutex::new(Vec::new()),
            counts: (0..terms.lanes).map(|_| Counts::default()).collect(),
            shared: Counts::default(),
            clients_come: AtomicU64::new(0),
            clients_refused: AtomicU64::new(0),
            hellos_bad: AtomicU64::new(0),
        }
    }

    /// The clients that a worker polls in a lane: it is that worker who takes some out.
    pub fn active(&self, worker: usize, lane: usize) -> &PlaceSet {
        &self.active[worker * self.terms.lanes + lane]
    }

    /// The clients of which a reply of this worker found no room.
    pub fn blocked(&self, worker: usize) -> &PlaceSet {
        &self.blocked[worker]
    }

    /// What each client gets.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// How many clients there may be.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Changes when a client comes or goes: who sees it finds the table as it was then, or newer.
    #[inline]
    pub fn version(&self) -> u64 {
        self.edition.number()
    }

    /// Everybody, by number.
    pub fn clients(&self) -> Vec<Option<Arc<Region>>> {
        self.lock().clone()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().iter().flatten().count()
    }

    /// Every count and its name, summed.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        let mut sums: Vec<(&'static str, u64)> = self.shared.each().collect();
        for counts in &self.counts {
            sums.iter_mut().zip(counts.each()).for_each(|(sum, (_, count))| sum.1 += count);
        }
        sums
    }

    /// Give a client the first free place and what `make` makes for it. `None`: there is none.
    pub fn enter(
        &self,
        make: impl FnOnce(Peer) -> io::Result<Region>,
    ) -> io::Result<Option<Arc<Region>>> {
        let _alone = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else takes a place meanwhile.
        let Some(place) = self.lock().iter().position(Option::is_none) else {
            self.clients_refused.fetch_add(1, Relaxed);
            return Ok(None);
        };
        let generation = self.clients_come.fetch_add(1, Relaxed) as u32;
        let region = Arc::new(make(Peer { client: place as u16, generation })?);
        let mut clients = self.lock();
        clients[place] = Some(region.clone());
        // Who takes it out does so for the client before; it sees the edition, and adds it again.
        self.active.iter().for_each(|active| active.add(place));
        self.edition.publish();
        Ok(Some(region))
    }

    /// A client is gone: its place is free. Its memory goes by [`Registry::bury`].
    pub fn leave(&self, peer: Peer) {
        let mut clients = self.lock();
        let place = &mut clients[usize::from(peer.client)];
        if let Some(region) = place.take_if(|region| region.peer() == peer) {
            region.leave();
            self.edition.publish();
            self.retired().push(region);
        }
    }

    /// Unmap the regions of clients that are gone and that no worker has hold of any more. Whether
    /// some are left.
    pub fn bury(&self) -> bool {
        let mut retired = self.retired();
        let (held, free): (Vec<_>, Vec<_>) =
            retired.drain(..).partition(|region| Arc::strong_count(region) > 1);
        *retired = held;
        let is_left = !retired.is_empty();
        drop(retired); // who is told that a client leaves does not wait for what follows
        drop(free);
        is_left
    }

    fn retired(&self) -> MutexGuard<'_, Vec<Arc<Region>>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Region>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Claims for all workers.
#[derive(Debug, Clone)]
pub struct RingLenders {
    registry: Arc<Registry>,
}

impl RingLenders {
    /// Of everybody in `registry`.
    pub fn new(registry: Arc<Registry>) -> RingLenders {
        RingLenders { registry }
    }
}

impl Lenders for RingLenders {
    fn bytes(&self, said: &[u8]) -> Option<usize> {
        Descriptor::parse(said).map(|descriptor| descriptor.bytes as usize)
    }

    fn claim(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        let descriptor = Descriptor::parse(said)?;
        let region = self.registry.lock().get(usize::from(peer.client)).cloned().flatten();
        let region = region.filter(|region| region.peer() == peer);
        let claimed = region.filter(|region| region.claim(descriptor));
        let counts = &self.registry.shared;
        add(if claimed.is_some() { &counts.loans_claimed } else { &counts.loans_refused }, 1);
        let lent = OnLoan {
            region: claimed?,
            registry: self.registry.clone(),
            loan: descriptor.loan as usize,
            offset: descriptor.offset as usize,
            bytes: descriptor.bytes as usize,
        };
        Some(Box::new(lent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped;

    #[test]
    fn a_lane_that_another_worker_looks_into_is_looked_into_again() {
        let terms = Terms { lanes: 2, window: 2, replies: 2, loans: 1, bulk_bytes: 0 };
        let memory = mapped::create(terms.region_bytes(), terms.bulk_at()).expect("memory");
        let map = Mapped::of(&memory, terms.region_bytes()).expect("mapped");
        let doorbells = vec![memory.try_clone().expect("any descriptor"), memory];
        let peer = Peer { client: 0, generation: 0 };
        let region = Region::new(map, terms, peer, doorbells);
        assert!(!region.has_request(0));
        let other = region.requests[0].lock().expect("not poisoned");
        assert_eq!(region.take(0, &mut Vec::new()), Look::Nothing);
        assert!(region.has_request(0) && !region.has_request(1));
        drop(other);
        assert!(!region.has_request(0));
    }
}
