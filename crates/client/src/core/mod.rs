//! The client without a socket or a clock: requests and datagrams in, datagrams and answers out.
//!
//! Whoever holds a [`Core`] pushes requests, sends what [`Core::transmit`] returns to the queue it
//! names, feeds what comes back, and calls [`Core::tick`] no later than [`Core::wake_nanos`] says.
//! With the same calls and the same seed it does the same.
//!
//! Its rules:
//! - a read that is not answered is sent again under a new id, to a queue drawn anew, so that
//!   frames of two replies are never put together; all its ids count until it is answered;
//! - a `set`, `delete` or `touch` keeps its id and its queue, by which the server knows it again;
//!   of a long one only the last frame is repeated, for the server asks for what it misses;
//! - anything else is sent once, and to a server that knows no repeated requests (memcached, an
//!   ordinary port) those three are, too;
//! - of a reply of which a part has come, the rest is asked for, and the request is not repeated
//!   unless asking is in vain;
//! - `get`s that wait together go in one datagram ([`Settings::get_keys_max`]), once: what is sent
//!   again goes by itself.
//!
//! Times are nanoseconds since any moment; sizes are bytes.

mod carrier;
mod ids;
mod pace;
mod pending;
mod receive;

use crate::answer::Answer;
use crate::error::Error;
use crate::request::{Repeat, Request};
use crate::settings::Settings;
use crate::topology::Topology;
use carrier::Lengths;
use ids::Ids;
use laneway_wire::udp::frames::frames;
use laneway_wire::udp::reassembly::{Bounds, Reassembly};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX, Header, Kind, MESSAGE_BYTES_MAX};
use pace::{Draws, Rate, RoundTrips, Window};
use pending::{Attempt, Pending};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often a request that may go in frames is lent before it does.
const LENT_TRIES_MAX: u32 = 6;

/// Names a request until its answer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where the bytes that [`Core::transmit`] wrote go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The server's queue.
    pub queue: u16,
    /// They are datagrams of this length each, the last one maybe shorter. Where requests are lent
    /// ([`Topology::in_memory`]) one may be a header that says so, and nothing else: what is to be
    /// lent has [`Core::lent_message`].
    pub segment_bytes: usize,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent again because nothing came.
    pub retries: u64,
    /// Times that missing frames of a reply were asked for.
    pub resends_asked: u64,
    /// Frames of requests that the server asked for again.
    pub frames_resent: u64,
    /// Datagrams too short for a header, or of a kind nobody knows.
    pub unintelligible: u64,
    /// Datagrams that belong to no request: late, repeated, or somebody's mistake.
    pub stray: u64,
    /// Frames that do not fit their reply: repeated, uneven, beyond its end.
    pub frames_refused: u64,
    /// Replies that were no answer to their request.
    pub garbled: u64,
    /// Requests given up.
    pub given_up: u64,
    /// `get`s that left in one datagram with others.
    pub gathered: u64,
}

/// See the module.
pub struct Core {
    settings: Settings,
    topology: Topology,
    draws: Draws,
    ids: Ids,
    pending: BTreeMap<u64, Pending>,
    by_id: BTreeMap<u16, u64>,
    /// Not begun yet.
    waiting: VecDeque<u64>,
    /// Requests of one datagram, and of many, with something to send. Both may name requests that
    /// have ended since.
    singles: VecDeque<u64>,
    trains: VecDeque<u64>,
    /// Datagrams about frames, with their queue.
    asides: VecDeque<(u16, Vec<u8>)>,
    timers: BTreeSet<(u64, u64)>,
    replies: Reassembly<u16>,
    trips: RoundTrips,
    window: Window,
    rate: Rate,
    under_way: usize,
    /// Of `pending`, those that nobody has pushed.
    carriers: usize,
    lengths: Lengths,
    request_bytes: usize,
    answers: VecDeque<(Ticket, Result<Answer, Error>)>,
    answer_bytes: usize,
    serial: u64,
    counts: Counts,
}

/// Bytes that all replies together may take while some of their frames are missing.
fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        messages_max: settings.window_max.max(1) * 4,
        bytes_max: settings.reply_bytes_max,
        message_bytes_max: settings.reply_message_bytes_max,
        idle_nanos_max: settings.deadline_nanos,
        // An id that is used again must not be taken for the one before.
        stale_nanos_max: settings.id_rest_nanos_read / 2,
    }
}

impl Core {
    /// A client of the server described by `topology`. `seed` decides every draw: the first id,
    /// queues of reads, spread of retries.
    pub fn new(settings: Settings, topology: Topology, seed: u64) -> Core {
        let mut draws = Draws::new(seed);
        Core {
            ids: Ids::new(draws.next() as u16),
            pending: BTreeMap::new(),
            by_id: BTreeMap::new(),
            waiting: VecDeque::new(),
            singles: VecDeque::new(),
            trains: VecDeque::new(),
            asides: VecDeque::new(),
            timers: BTreeSet::new(),
            replies: Reassembly::new(bounds(&settings)),
            trips: RoundTrips::new(),
            window: Window::new(settings.window_max),
            rate: Rate::new(settings.rate_max),
            under_way: 0,
            carriers: 0,
            lengths: Lengths::default(),
            request_bytes: 0,
            answers: VecDeque::new(),
            answer_bytes: 0,
            serial: 0,
            counts: Counts::default(),
            settings,
            topology,
            draws,
        }
    }

    /// Whether [`Core::push`] takes this request now.
    pub fn has_room(&self, request: &Request) -> bool {
        let held = self.pending.len() - self.carriers + self.answers.len();
        let fits = self.request_bytes + request.bytes() <= self.settings.request_bytes_max;
        held < self.settings.requests_max.max(1) && (fits || self.pending.is_empty())
    }

    /// Takes a request, to be sent when its turn comes. An error means that it was not taken.
    pub fn push(&mut self, request: Request, now_nanos: u64) -> Result<Ticket, Error> {
        let head = request.head()?;
        let bytes = Pending::message_bytes(&head, &request);
        let bytes_max = match self.topology.lent_bytes_max() {
            _ if !self.topology.is_extended() => FRAME_BYTES_MAX,
            Some(lent) if !self.topology.is_framed() => {
                lent.clamp(FRAME_BYTES_MAX, MESSAGE_BYTES_MAX)
            }
            _ => MESSAGE_BYTES_MAX,
        };
        let total = frames(bytes).filter(|_| bytes <= bytes_max);
        let total = total.ok_or(Error::RequestTooLong { bytes, bytes_max })?;
        if !self.has_room(&request) {
            return Err(Error::Full);
        }
        self.serial += 1;
        let deadline_nanos = now_nanos.saturating_add(self.settings.deadline_nanos);
        let pending =
            Pending::new(request, head, total, self.topology.is_extended(), deadline_nanos);
        self.request_bytes += pending.bytes();
        self.timers.insert((deadline_nanos, self.serial));
        self.pending.insert(self.serial, pending);
        self.waiting.push_back(self.serial);
        Ok(Ticket(self.serial))
    }

    /// The next answer. What a request whose answer is an [`Error`] may have done, that error says.
    pub fn answer(&mut self) -> Option<(Ticket, Result<Answer, Error>)> {
        let (ticket, answer) = self.answers.pop_front()?;
        self.answer_bytes -= answer_bytes(&answer);
        Some((ticket, answer))
    }

    /// Whether every request was answered and taken.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.answers.is_empty() && self.asides.is_empty()
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bounds and patience.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Whether a request goes under this id.
    pub fn is_under_way(&self, id: u16) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Whether a datagram that has waited for room may still leave: not what is of a request that
    /// is over, for its id is another's soon, or may not leave any more. What is about frames says
    /// something of requests that are over, too.
    pub(crate) fn may_leave(&self, datagram: &[u8], now_nanos: u64) -> bool {
        Header::parse(datagram).is_none_or(|(header, _)| match header.kind {
            Kind::Data | Kind::Once | Kind::Lent => {
                let serial = self.by_id.get(&header.request_id);
                let pending = serial.and_then(|serial| self.pending.get(serial));
                pending.is_some_and(|pending| pending.may_leave(now_nanos))
            }
            Kind::Resend | Kind::Forget | Kind::Cookie | Kind::Notice | Kind::Unknown(_) => true,
        })
    }

    /// The request under this id, in pieces: one that is to be lent. It is copied once, to where it
    /// is lent.
    pub fn lent_message(&self, id: u16) -> Option<[&[u8]; 3]> {
        let serial = self.by_id.get(&id)?;
        self.pending.get(serial).map(Pending::pieces)
    }

    /// There is no room for the request under this id where it was to be lent: it goes in frames.
    pub fn send_in_frames(&mut self, id: u16) {
        let Some(&serial) = self.by_id.get(&id) else { return };
        if let Some(pending) = self.pending.get_mut(&serial) {
            pending.in_frames();
        }
        self.enqueue(serial);
        self.set_timer(serial, u64::MAX);
    }

    /// The server as this client knows it.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The server is another one now, or has been started anew: everything from now on goes where
    /// `topology` says. Word of replies that has not left yet is dropped: who was to have it lets
    /// go of them in time.
    ///
    /// # Panics
    /// If a request was not answered, whose queue might no longer exist, or its answer not taken.
    pub fn move_to(&mut self, topology: Topology) {
        assert!(self.pending.is_empty() && self.answers.is_empty(), "requests are under way");
        self.asides.clear();
        self.topology = topology;
    }

    /// After [`Core::move_to`]: the server has room for so many requests at a time.
    pub(crate) fn open_window(&mut self, window_max: usize) {
        if window_max != self.settings.window_max {
            self.settings.window_max = window_max;
            self.window = Window::new(window_max);
            self.replies = Reassembly::new(bounds(&self.settings));
        }
    }

    /// Writes the next datagrams to send into `out` and says where they go; `None` when there are
    /// none now.
    pub fn transmit(&mut self, now_nanos: u64, out: &mut Vec<u8>) -> Option<Departure> {
        self.transmit_short(now_nanos, out).or_else(|| self.transmit_train(now_nanos, out))
    }

    /// The same, but nothing of requests that are longer than a datagram: where one of these waits
    /// for room others need not.
    pub(crate) fn transmit_short(
        &mut self,
        now_nanos: u64,
        out: &mut Vec<u8>,
    ) -> Option<Departure> {
        out.clear();
        if let Some((queue, datagram)) = self.asides.pop_front() {
            out.extend_from_slice(&datagram);
            return Some(Departure { queue, segment_bytes: out.len() });
        }
        self.begin_waiting(now_nanos);
        while let Some(serial) = self.singles.pop_front() {
            if let Some(departure) = self.put(serial, now_nanos, out) {
                return Some(departure);
            }
        }
        None
    }

    /// The next frames of a long request, or word that it is lent. `out` is empty.
    fn transmit_train(&mut self, now_nanos: u64, out: &mut Vec<u8>) -> Option<Departure> {
        while self.rate.next_nanos() <= now_nanos
            && let Some(&serial) = self.trains.front()
        {
            let departure = self.put(serial, now_nanos, out);
            if !self.pending.get(&serial).is_some_and(|pending| pending.queued) {
                self.trains.pop_front();
            }
            if departure.is_some() {
                // In memory nothing is lost for leaving fast.
                if self.topology.is_framed() {
                    let bytes = self.leaving_bytes(serial, out);
                    self.rate.left(bytes, now_nanos);
                }
                return departure;
            }
        }
        None
    }

    /// How much is on its way with what was written for a request.
    fn leaving_bytes(&self, serial: u64, out: &[u8]) -> usize {
        match self.pending.get(&serial) {
            Some(pending) if pending.is_lent(&self.topology) => pending.lent_bytes(),
            _ => out.len(),
        }
    }

    /// Gives up every request at once, as if its deadline had passed.
    pub fn abandon(&mut self, now_nanos: u64) {
        while let Some(&serial) = self.pending.keys().next() {
            self.give_up(serial, now_nanos);
        }
        self.asides.clear();
    }

    /// When [`Core::tick`] and [`Core::transmit`] have something to do next, if nothing comes
    /// before; `None` if nothing is under way.
    pub fn wake_nanos(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(nanos, _)| *nanos);
        let train = (!self.trains.is_empty()).then(|| self.rate.next_nanos());
        let begin = self.may_begin().then(|| self.ids.ready_nanos());
        [timer, train, begin].into_iter().flatten().min()
    }

    /// Does what is due: asks for missing frames, sends again, gives up.
    pub fn tick(&mut self, now_nanos: u64) {
        while let Some(&(nanos, serial)) = self.timers.first()
            && nanos <= now_nanos
        {
            let pending = &self.pending[&serial];
            if pending.deadline_nanos <= now_nanos {
                self.give_up(serial, now_nanos);
            } else if pending.heard.is_some() {
                self.ask_or_retry(serial, now_nanos);
            } else {
                self.retry(serial, now_nanos);
            }
        }
        self.replies.expire(now_nanos);
    }

    /// What is due to be sent again waits on where `is_on_its_way` says, of an id of it, that its
    /// reply is being written: asked for once more it would be written twice.
    pub(crate) fn put_off(&mut self, now_nanos: u64, is_on_its_way: impl Fn(u16) -> bool) {
        let due: Vec<u64> =
            self.timers.range(..=(now_nanos, u64::MAX)).map(|(_, serial)| *serial).collect();
        let until_nanos = now_nanos.saturating_add(self.settings.retry_nanos_min.max(1));
        for serial in due {
            let pending = &self.pending[&serial];
            let is_awaited = pending.is_read() && pending.heard.is_none();
            let is_late = pending.deadline_nanos <= now_nanos;
            if is_awaited && !is_late && pending.ids().any(&is_on_its_way) {
                self.set_timer(serial, until_nanos);
            }
        }
    }

    fn may_begin(&self) -> bool {
        let room = self.under_way < self.window.requests();
        !self.waiting.is_empty() && room && self.answer_bytes <= self.settings.reply_bytes_max
    }

    /// Begins requests while the window has room and ids have rested.
    fn begin_waiting(&mut self, now_nanos: u64) {
        while self.may_begin() {
            if self.waiting.front().is_some_and(|serial| self.pending.contains_key(serial)) {
                self.gather(now_nanos);
                let Some(&serial) = self.waiting.front() else { return };
                if !self.begin(serial, now_nanos) {
                    return;
                }
            }
            self.waiting.pop_front(); // it has begun, or had ended
        }
    }

    /// Sends a request under a fresh id; false if none has rested.
    fn begin(&mut self, serial: u64, now_nanos: u64) -> bool {
        let Some(id) = self.ids.take(now_nanos) else { return false };
        let draw = self.draws.next();
        let Some(pending) = self.pending.get_mut(&serial) else { return false };
        let queue = self.topology.queue(&pending.request, draw);
        if !pending.is_begun() {
            self.under_way += 1;
            self.counts.retries += u64::from(pending.carrier.is_some());
        }
        pending.begin(Attempt { id, queue });
        self.by_id.insert(id, serial);
        self.enqueue(serial);
        true
    }

    /// Puts a request that has something to send in its queue.
    fn enqueue(&mut self, serial: u64) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        if !pending.queued {
            pending.queued = true;
            let queue = if pending.total == 1 { &mut self.singles } else { &mut self.trains };
            queue.push_back(serial);
        }
    }

    /// Writes a request's next frames, and sets its timer when those were the last.
    fn put(&mut self, serial: u64, now_nanos: u64, out: &mut Vec<u8>) -> Option<Departure> {
        let pending = self.pending.get_mut(&serial)?;
        if !pending.may_leave(now_nanos) {
            // Whoever was stopped for a while comes too late.
            pending.queued = false;
            return None;
        }
        let is_lent = pending.is_lent(&self.topology);
        if is_lent {
            pending.put_lent(out)
        } else {
            pending.put(out)
        }
        pending.queued = pending.has_unsent();
        let queue = pending.attempt()?.queue;
        if !pending.queued {
            pending.sent_nanos = now_nanos;
            pending.whole_nanos = pending.whole_nanos.or(Some(now_nanos));
            let wait_nanos = match (pending.repeat, pending.heard) {
                (Repeat::Never, _) => u64::MAX,
                (_, Some(_)) => self.settings.resend_nanos,
                (_, None) => {
                    let draw = self.draws.next();
                    self.trips.retry_nanos(&self.settings, pending.tries, draw)
                }
            };
            self.set_timer(serial, now_nanos.saturating_add(wait_nanos));
        }
        let segment_bytes = if is_lent { out.len() } else { out.len().min(DATAGRAM_BYTES_MAX) };
        (!out.is_empty()).then_some(Departure { queue, segment_bytes })
    }

    fn set_timer(&mut self, serial: u64, nanos: u64) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        self.timers.remove(&(pending.timer_nanos, serial));
        pending.timer_nanos = nanos.min(pending.deadline_nanos);
        self.timers.insert((pending.timer_nanos, serial));
    }

    /// Nothing came in time.
    fn retry(&mut self, serial: u64, now_nanos: u64) {
        let Some(pending) = self.pending.get(&serial) else { return };
        self.window.lost(pending.sent_nanos, now_nanos);
        if pending.total > 1 {
            self.rate.lost(pending.sent_nanos, now_nanos);
        }
        if self.part(serial) {
            return;
        }
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        let begun = match pending.repeat {
            Repeat::Free => self.begin(serial, now_nanos),
            // Only an answer that is late, or the deadline, ends it now.
            Repeat::SameId if !pending.may_leave(now_nanos) => {
                return self.set_timer(serial, u64::MAX);
            }
            Repeat::SameId
                if pending.is_lent(&self.topology) && pending.tries >= LENT_TRIES_MAX =>
            {
                pending.in_frames();
                self.enqueue(serial);
                true
            }
            Repeat::SameId => {
                pending.again();
                self.enqueue(serial);
                true
            }
            Repeat::Never => false,
        };
        self.counts.retries += u64::from(begun);
        // Until it has left only the deadline ends it; without a free id another try is made soon.
        let wait_nanos = if begun { u64::MAX } else { self.settings.retry_nanos_min.max(1) };
        self.set_timer(serial, now_nanos.saturating_add(wait_nanos));
    }

    fn give_up(&mut self, serial: u64, now_nanos: u64) {
        let pending = &self.pending[&serial];
        self.counts.given_up += u64::from(pending.cargo.is_none());
        let attempts = pending.sends;
        let error = if pending.is_read() && pending.garbled {
            Error::Garbled
        } else if pending.is_read() || !pending.is_begun() {
            Error::TimedOut { attempts }
        } else {
            Error::OutcomeUnknown { attempts }
        };
        self.complete(serial, Err(error), now_nanos);
    }

    /// Lets a request go, with its answer.
    fn complete(&mut self, serial: u64, answer: Result<Answer, Error>, now_nanos: u64) {
        let is_answered = matches!(answer, Ok(_) | Err(Error::Refused(_)));
        let Some(pending) = self.let_go(serial, is_answered, now_nanos) else { return };
        if let Some(carrier) = pending.carrier {
            self.unload(carrier, is_answered, now_nanos);
        }
        if pending.cargo.is_some() {
            return;
        }
        if let Ok(Answer::Value(value)) = &answer {
            self.lengths.found(pending.request.key().len() + value.data.len());
        }
        self.answer_bytes += answer_bytes(&answer);
        self.answers.push_back((Ticket(serial), answer));
    }

    /// The same without an answer. Where the server may answer one of its ids yet, they rest as
    /// long as those of a write: of two misses nobody can tell which is whose.
    fn let_go(&mut self, serial: u64, is_answered: bool, now_nanos: u64) -> Option<Pending> {
        let pending = self.pending.remove(&serial)?;
        self.timers.remove(&(pending.timer_nanos, serial));
        self.request_bytes -= pending.bytes();
        self.under_way -= usize::from(pending.is_under_way());
        self.carriers -= usize::from(pending.cargo.is_some());
        let is_over = is_answered && pending.sends == 1 && pending.is_whole();
        let rests_long = !pending.is_read() || !is_over;
        let rest_nanos = match rests_long {
            true => self.settings.id_rest_nanos_write,
            false => self.settings.id_rest_nanos_read,
        };
        for &Attempt { id, .. } in &pending.attempts {
            self.by_id.remove(&id);
            self.replies.forget(&id, now_nanos);
            self.ids.give(id, rests_long, now_nanos, rest_nanos);
        }
        Some(pending)
    }
}

fn answer_bytes(answer: &Result<Answer, Error>) -> usize {
    match answer {
        Ok(Answer::Value(value)) => value.data.len(),
        _ => 0,
    }
}
