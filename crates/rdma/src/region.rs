//! The server's side of its clients' regions: what it keeps of each where no client can write, and
//! the table of them that the workers share.
//!
//! Several workers may take requests of one lane, one at a time: each tries the lane's lock and
//! goes on if another has it. Replies have a lane for each worker that sends them, so nobody else
//! writes there. (HERD §4.3 has one datagram queue pair for each server process, for the same
//! reason.) Memory orders are those of [`laneway_sync::slot`]; here is bookkeeping.

use crate::contract::{Descriptor, Peer, Posted};
use crate::layout::Terms;
use crate::mapped::Mapped;
use crate::place_set::PlaceSet;
use crate::reply_places::{ReplyPlace, ReplyPlaces};
use laneway_sync::edition::Edition;
use laneway_sync::place;
use laneway_sync::prim::AtomicU64;
use laneway_sync::slot::{self, Control, Taken};
use laneway_sync::words;
use rustix::thread::futex;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// So much of the memory for long replies is asked for at a time, as soon as some of it is to be
/// written.
const STRETCH_BYTES: usize = 64 << 10;

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
                let order = std::sync::atomic::Ordering::Relaxed;
                [$((stringify!($name), self.$name.load(order)),)*].into_iter()
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
    /// Pieces of replies written into memory that clients lend: verbs of the kind WRITE.
    verbs_write,
    /// Replies that lie where their client was told.
    notices,
    /// Long replies for which there was no room there, or that lost it: they went in frames.
    replies_unplaced,
    /// Places whose client did not say in time that it had taken the reply.
    places_expired,
}

/// Add to a count that this thread alone writes, or nearly.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

/// What a lock guards, unless somebody is at it. Whoever panicked there left it whole.
pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guarded) => Some(guarded),
        Err(TryLockError::Poisoned(guarded)) => Some(guarded.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
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
    /// Who has what of the memory for long replies.
    places: Mutex<ReplyPlaces>,
    /// By stretch of that: whether the kernel has found memory for it.
    backed: Vec<AtomicBool>,
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
            places: Mutex::new(ReplyPlaces::new(terms.places, terms.reply_bytes)),
            backed: (0..terms.reply_bytes.div_ceil(STRETCH_BYTES))
                .map(|_| AtomicBool::new(false))
                .collect(),
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
        // Whoever has it takes a request and may leave the next one, which nobody will ring for:
        // who looks before a sleep is to look again.
        let Some(next) = try_lock(&self.requests[lane]) else { return true };
        slot::is_taken(&self.map.words()[self.terms.request(lane, *next)])
    }

    /// Take the next request of a lane: copied behind what is in `out`, its slot freed.
    pub fn take(&self, lane: usize, out: &mut Vec<u8>) -> Look {
        let Some(mut next) = try_lock(&self.requests[lane]) else { return Look::Nothing };
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
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let bytes = u16::try_from(bytes).expect("a reply fits its slot");
        let control = Control { sequence, note: from as u16, bytes };
        let slot = &self.map.words()[self.terms.reply(worker, sequence)];
        slot::write(slot, control, pieces.iter().map(|piece| &**piece));
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

    /// Begin to read what was lent.
    pub fn claim(&self, descriptor: Descriptor) -> bool {
        let Descriptor { loan, number, offset, bytes } = descriptor;
        let end = offset.checked_add(bytes.into());
        let fits = (loan as usize) < self.terms.loans
            && end.is_some_and(|end| end <= self.terms.bulk_bytes as u64);
        fits && slot::claim(&self.map.words()[self.terms.loan(loan as usize)], number)
    }

    /// Bytes of the memory that the client lends, behind what is in `out`.
    ///
    /// # Panics
    /// If they are beyond its end.
    pub fn read_lent(&self, offset: usize, bytes: usize, out: &mut Vec<u8>) {
        words::read_into(&self.map.words()[self.terms.bulk()], offset, bytes, out);
    }

    /// Give back what was claimed.
    pub fn end_loan(&self, loan: usize) {
        slot::end_loan(&self.map.words()[self.terms.loan(loan)]);
    }

    /// Whether its client takes long replies out of memory.
    pub fn has_places(&self) -> bool {
        self.terms.places > 0 && !self.is_gone()
    }

    /// Room for the reply of `bytes` to request `id` in the memory for long replies, if there is
    /// any; and how many places ended by time meanwhile.
    pub fn place(&self, id: u16, bytes: usize, now_nanos: u64) -> (Option<ReplyPlace>, u64) {
        let mut places = self.places();
        let expired = places.expired();
        let placed = places.take(id, bytes, now_nanos, |of| place::end(self.place_word(of)));
        if let Some(of) = placed {
            self.say_writing(of.place, u64::from(id) + 1);
        }
        (placed, places.expired() - expired)
    }

    /// Write a piece of a reply, `at` from where its place begins: as far as the caller was given.
    /// False: nobody wants it any more, or there is no memory for it.
    ///
    /// # Panics
    /// If that is beyond all memory for replies.
    pub fn write_reply(&self, of: ReplyPlace, at: usize, pieces: &[IoSlice<'_>]) -> bool {
        if self.is_gone() || !self.places().is_wanted(of) {
            return false;
        }
        let (from, bytes) = (of.offset + at, pieces.iter().map(|piece| piece.len()).sum::<usize>());
        if !self.is_backed(from, from + bytes) {
            return false;
        }
        // Whatever becomes of it now, nobody else writes there before its writer lets go of it. Who
        // was there before has ended under the lock that was just held.
        place::ended();
        let memory = &self.map.words()[self.terms.long_replies()];
        let mut at = from;
        for piece in pieces {
            words::write(memory, at, piece);
            at += piece.len();
        }
        true
    }

    /// Whether there is memory for these bytes of that for long replies. A page that nobody has
    /// touched may have none, and to write it would end the server.
    fn is_backed(&self, from: usize, to: usize) -> bool {
        let first = self.terms.long_replies().start;
        (from / STRETCH_BYTES..to.div_ceil(STRETCH_BYTES)).all(|stretch| {
            if self.backed[stretch].load(Relaxed) {
                return true;
            }
            let start = stretch * STRETCH_BYTES;
            let end = (start + STRETCH_BYTES).min(self.terms.reply_bytes);
            let is_backed = self.map.back(first + start / 8..first + end / 8);
            self.backed[stretch].store(is_backed, Relaxed);
            is_backed
        })
    }

    /// All of a reply is written: its client is being told, and has it for so long. False: nobody
    /// wants it any more.
    pub fn tell_reply(&self, of: ReplyPlace, now_nanos: u64, keep_nanos: u64) -> bool {
        let mut places = self.places();
        let is_wanted = places.tell(of, now_nanos, keep_nanos);
        if is_wanted {
            // Under the lock: who ends it does so behind this.
            place::tell(self.place_word(of.place), of.number);
            self.say_writing(of.place, 0);
        }
        is_wanted
    }

    /// The writer of a reply lets go of it untold.
    pub fn let_go_of_reply(&self, of: ReplyPlace) {
        let mut places = self.places();
        if places.let_go(of) {
            self.say_writing(of.place, 0);
        }
    }

    /// Tells the client whose reply is on its way into a place. It only waits longer for it.
    fn say_writing(&self, of: usize, said: u64) {
        self.map.words()[self.terms.writing(of)].store(said, Relaxed);
    }

    /// The client has taken the reply to request `id`.
    pub fn has_taken(&self, id: u16) {
        self.places().taken(id, |of| place::end(self.place_word(of)));
    }

    fn place_word(&self, of: usize) -> &AtomicU64 {
        &self.map.words()[self.terms.place(of)]
    }

    fn places(&self) -> MutexGuard<'_, ReplyPlaces> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server's clients. Shared by all workers and the door.
#[derive(Debug)]
pub struct Registry {
    terms: Terms,
    places: usize,
    /// Counts up with every client that comes or goes.
    edition: Edition,
    /// The generation of the next client. Held while a client gets its region, which takes a while:
    /// workers wait for `clients`.
    entering: Mutex<u32>,
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
    /// Clients that came, were refused for want of a place or of memory, and said something else
    /// than hello.
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
            entering: Mutex::new(0),
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

    /// What each client gets, but for one that knows no places.
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

    /// One of them, if it is there.
    pub fn client(&self, peer: Peer) -> Option<Arc<Region>> {
        let region = self.lock().get(usize::from(peer.client)).cloned().flatten();
        region.filter(|region| region.peer() == peer)
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
        let mut generation = self.entering.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else takes a place meanwhile.
        let Some(place) = self.lock().iter().position(Option::is_none) else {
            self.clients_refused.fetch_add(1, Relaxed);
            return Ok(None);
        };
        let peer = Peer { client: place as u16, generation: *generation };
        *generation = generation.wrapping_add(1);
        let region = make(peer).inspect_err(|_| {
            self.clients_refused.fetch_add(1, Relaxed);
        })?;
        let region = Arc::new(region);
        self.clients_come.fetch_add(1, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped;

    #[test]
    fn a_reply_for_which_there_is_no_memory_is_not_written() {
        let terms = Terms { reply_bytes: 8192, ..Terms::of(1, 0) };
        // It ends before the memory for long replies: for that the kernel finds none.
        let memory = mapped::create(terms.bulk_at(), terms.bulk_at()).expect("memory");
        let map = Mapped::map(&memory, terms.region_bytes()).expect("mapped");
        let region = Region::new(map, terms, Peer { client: 0, generation: 1 }, vec![memory]);
        let place = region.place(7, 100, 0).0.expect("all is free");
        assert!(!region.write_reply(place, 0, &[IoSlice::new(&[7; 100])]));
    }

    #[test]
    fn who_gets_no_region_is_refused_and_has_not_come() {
        let terms = Terms { window: 2, replies: 2, loans: 1, ..Terms::of(1, 0) };
        let registry = Registry::new(terms, 2);
        let counts =
            || [&registry.clients_come, &registry.clients_refused].map(|count| count.load(Relaxed));
        let refused = registry.enter(|_| Err(io::ErrorKind::OutOfMemory.into()));
        assert!(refused.is_err());
        assert_eq!((registry.count(), counts()), (0, [0, 1]));
        let entered = registry.enter(|peer| {
            let memory = mapped::create(terms.region_bytes(), terms.bulk_at())?;
            let map = Mapped::of(&memory, terms.region_bytes())?;
            Ok(Region::new(map, terms, peer, vec![memory]))
        });
        assert!(entered.expect("memory").is_some());
        assert_eq!((registry.count(), counts()), (1, [1, 1]));
    }

    #[test]
    fn a_lane_that_another_worker_looks_into_is_looked_into_again() {
        let terms = Terms { window: 2, replies: 2, loans: 1, ..Terms::of(2, 0) };
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
