//! A connection as one value: stream, unread input, unsent output, and where in the protocol it
//! stands. It belongs to exactly one worker at a time and moves whole.

use crate::access::client_limits::{Bucket, LimitOf};
use crate::counts::clients::ClientSums;
use crate::event_log::{Parting, watcher::Watcher};
use crate::execute::{Incoming, Joining};
use crate::jobs::handoff::Undone;
use crate::lanes::long_answer::LongAnswer;
use crate::latency::PendingLatencies;
use crate::resp::state::{Dialect, Session, Under};
use crate::stream::input::Input;
use crate::stream::output::Output;
use laneway_policy::migrate::Visit;
use laneway_policy::share::Run;
use laneway_policy::{Lane, WorkerId};
use laneway_transport::{Interest, Stream, Token};
use laneway_wire::GetVerb;
use laneway_wire::limits::VALUE_END_BYTES;
use laneway_wire::resp::{Scan, Skip};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the next input bytes are.
pub enum Mode {
    /// Request lines.
    Requests,
    /// Request lines, behind such as the durable executor has and has not answered: it executes
    /// them too, in their order, or they wait until it has answered ([`crate::request::batches`]).
    Batches {
        /// Bytes of the longest item that they may have stored.
        longest: u64,
    },
    /// The rest of a multiget: `line_bytes` more of its line, newline included.
    Keys {
        /// Which of the four.
        verb: GetVerb,
        /// New expiry for `gat`.
        exptime: i64,
        /// What is left of the line.
        line_bytes: usize,
    },
    /// A value that streams straight into its item.
    Body(Box<Incoming>),
    /// The `\r\n` behind such a value; nothing, in the binary protocol.
    BodyEnd(Box<Incoming>),
    /// An `append` or `prepend` to a large item, which is copied slice by slice.
    Joining {
        /// It.
        joining: Box<Joining>,
        /// Bytes of the request's key and value.
        size: u64,
        /// When its last byte came.
        arrived: u64,
    },
    /// None before an answer is whole that is as long as there are items or connections.
    Answering(Box<LongAnswer>),
    /// Nothing that is read: the event log is streamed until the connection closes.
    Watching(Box<Watcher>),
    /// Bytes nobody wants: the body of a refused store.
    Swallow(u64),
    /// The arguments of a RESP request that goes from one to the next.
    Resp(Under),
}

/// What a connection's stream may hold that nobody has read, and nobody will tell of again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Nothing: what comes will be told.
    Nothing,
    /// Bytes: it was told of some, and the reads since have not come to an end of them.
    Bytes,
    /// The end of its peer, and bytes before it.
    End,
}

/// Which of them a [`ConnectionStats`] tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A socket that connections come by.
    Listener,
    /// A socket that datagrams come by.
    Datagrams,
    /// A connection.
    Client,
}

/// What `stats conns` tells of a connection, or of a socket; shared with whoever asks.
pub struct ConnectionStats {
    /// Which.
    pub kind: ConnectionKind,
    /// Serial number, from 1: listeners, then connections as they come.
    pub number: u64,
    /// The address of its peer, or its own if it has none, in memcached's notation.
    pub peer: String,
    /// The address that a connection came to, where its kind of stream can tell.
    pub local: Option<String>,
    /// Where its client is counted (`clients`).
    pub client: u16,
    /// It counts among the connections of its address.
    pub is_limited: bool,
    /// Unix time of the last request.
    pub last_seconds: AtomicU32,
    /// In the large lane now.
    pub large: AtomicBool,
    /// Its value is on its way in.
    pub receives: AtomicBool,
    /// The name and the library that the client has told, by RESP.
    said: Mutex<Introduction>,
}

/// The name and the library that a client has told (`CLIENT SETNAME`, `CLIENT SETINFO`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Introduction {
    /// The name that the client has given itself.
    pub name: Box<[u8]>,
    /// The library that it uses.
    pub library: Box<[u8]>,
    /// The version of that.
    pub library_version: Box<[u8]>,
}

impl ConnectionStats {
    /// Returns the name and the library that the client has told.
    pub fn introduction(&self) -> Introduction {
        self.said().clone()
    }

    /// Returns the same, to be changed.
    pub fn said(&self) -> MutexGuard<'_, Introduction> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It calls itself so.
    pub fn set_name(&self, name: &[u8]) {
        let mut said = self.said();
        if *said.name != *name {
            said.name = name.into();
        }
    }

    /// Of something that was opened just now.
    pub fn new(
        kind: ConnectionKind,
        number: u64,
        peer: String,
        now_seconds: u32,
    ) -> ConnectionStats {
        ConnectionStats {
            kind,
            number,
            peer,
            local: None,
            client: 0,
            is_limited: false,
            last_seconds: AtomicU32::new(now_seconds),
            large: AtomicBool::new(false),
            receives: AtomicBool::new(false),
            said: Mutex::default(),
        }
    }
}

/// One client connection.
pub struct Connection<S> {
    /// The byte stream.
    pub stream: S,
    /// Its name at the worker that holds it; another one at the next.
    pub token: Token,
    /// Received and not consumed.
    pub input: Input,
    /// Replies that have not left.
    pub output: Output,
    /// What the next input bytes are.
    pub mode: Mode,
    /// Which protocol it speaks.
    pub dialect: Dialect,
    /// Requests whose latency is not recorded yet.
    pub tally: PendingLatencies,
    /// The key of the last large request, until its latency is recorded, where keys are told.
    pub noted_key: Option<Box<[u8]>>,
    /// What its client is to be counted for: until replies have left, or a slice is over.
    pub moved: ClientSums,
    /// What its client has left, once it had a turn under a limit, and what its listener has, if
    /// that has one ([`LimitOf`]).
    pub buckets: [Option<Arc<Bucket>>; 2],
    /// It waits since then, one of them being empty; 0 if it does not.
    pub held_nanos: u64,
    /// In the line of this lane.
    pub held_lane: Lane,
    /// And of this bucket.
    pub held_by: LimitOf,
    /// It has waited, and its turn is to come.
    pub let_go: bool,
    /// By which buckets it may have its next turn although others wait.
    pub let_through: [bool; 2],
    /// When what is unserved of its input was found, or else what it served last; later by how long
    /// it has waited for its client's limit since. While its input is served, all requests in that
    /// have arrived then.
    pub found_nanos: u64,
    /// What it waits for; `None` while it is attached nowhere.
    pub interest: Option<Interest>,
    /// What its stream may hold that no event will announce, as long as it waits for the same.
    pub unread: Unread,
    /// In one of its worker's run queues.
    pub queued: bool,
    /// `input` may hold whole requests: work on it before reading more.
    pub unserved: bool,
    /// What comes next waits until a reply has come.
    pub halted: bool,
    /// A large request is under way: its turns are slices.
    pub large: bool,
    /// The last turn that began with a request, at home, had more than one.
    pub pipelined: bool,
    /// Its large reply waits since then for the peer to take more; 0 if it does not.
    pub blocked_nanos: u64,
    /// What its stream was told to leave unsent at most.
    pub unsent_max: Option<usize>,
    /// What its large transfer has moved since it was at the end of its line.
    pub run: Run,
    /// Close once the output has left.
    pub closing: bool,
    /// Why it closes, where that is not its client's wish.
    pub parting: Parting,
    /// It came by a read-only port.
    pub read_only: bool,
    /// The worker that it belongs to; another one's for the time of a visit.
    pub home: WorkerId,
    /// Its stay at a large worker, while it is at one.
    pub visit: Option<Visit>,
    /// Since when it has not said who it is, in Unix time, as far as anybody has asked; of no
    /// meaning once it has.
    pub unproven_since: Option<u32>,
    /// When it was last found to wait for a turn or for a reply, in Unix time, as far as anybody
    /// has looked.
    pub waited_seconds: u32,
    /// For `stats conns`.
    pub card: Arc<ConnectionStats>,
}

impl<S> Connection<S> {
    /// A fresh connection.
    pub fn new(
        stream: S,
        dialect: Dialect,
        home: WorkerId,
        card: Arc<ConnectionStats>,
    ) -> Box<Self> {
        Box::new(Connection {
            stream,
            token: Token { slot: 0, generation: 0 }, // until it settles in
            input: Input::default(),
            output: Output::default(),
            mode: Mode::Requests,
            dialect,
            tally: PendingLatencies::default(),
            noted_key: None,
            moved: ClientSums::default(),
            buckets: [None, None],
            held_nanos: 0,
            held_lane: Lane::Small,
            held_by: LimitOf::Address,
            let_go: false,
            let_through: [false; 2],
            found_nanos: 0,
            interest: None,
            unread: Unread::Nothing,
            queued: false,
            unserved: false,
            halted: false,
            large: false,
            pipelined: false,
            blocked_nanos: 0,
            unsent_max: None,
            run: Run::default(),
            closing: false,
            parting: Parting::Normal,
            read_only: false,
            home,
            visit: None,
            unproven_since: None,
            waited_seconds: 0,
            card,
        })
    }

    /// Whether a value is on its way in that is received in place, in pieces, not through a buffer.
    pub fn streams_in_place(&mut self) -> bool {
        let Mode::Body(incoming) = &mut self.mode else { return false };
        incoming.draft().is_large()
    }

    /// The value is there; what stands behind it comes next: a `\r\n`, or nothing, which is there
    /// already.
    pub fn body_is_whole(&mut self) {
        if let Mode::Body(incoming) = std::mem::replace(&mut self.mode, Mode::Requests) {
            self.mode = Mode::BodyEnd(incoming);
            self.large = false; // two bytes are no large work
            self.unserved |= self.dialect.is_binary();
        }
    }

    /// It has not said who it is, and must.
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self.dialect, Dialect::Unproven(_))
    }

    /// All that was executed of transactions has been charged for once every reply has left. What
    /// was charged for before and is in no count, as `PING` in one moment with others, pays for
    /// nothing else.
    pub(crate) fn forget_prepaid(&mut self) {
        let is_settled = self.output.is_empty() && self.tally.is_empty();
        if let Dialect::Resp(session) = &mut self.dialect
            && is_settled
            && session.front.is_empty()
        {
            session.prepaid = 0;
        }
    }

    /// Its stream is ready; `ends`: and has the peer's end in it.
    pub fn is_told(&mut self, ends: bool) {
        let known = self.unread == Unread::End;
        self.unread = if ends || known { Unread::End } else { Unread::Bytes };
    }

    /// A read has found nothing.
    pub fn has_read_all(&mut self) {
        self.unread = Unread::Nothing;
    }

    /// Keys that somebody has not looked up come next, before what is left of their line.
    pub fn put_back(&mut self, undone: &Undone) {
        let Undone { verb, exptime, keys } = undone;
        let (end, behind) = match self.mode {
            Mode::Keys { line_bytes, .. } => (&b" "[..], line_bytes),
            _ => (&b"\r\n"[..], 0),
        };
        let keys = [keys, end].concat();
        self.input.put_back(&keys);
        let line_bytes = keys.len() + behind;
        self.mode = Mode::Keys { verb: *verb, exptime: *exptime, line_bytes };
    }

    /// Whether what comes next is served though replies are still to come.
    #[inline]
    pub fn goes_on(&self) -> bool {
        matches!(self.mode, Mode::Batches { .. }) && !self.halted && !self.closing
    }

    /// Whether a reply must come before anything else is served.
    #[inline]
    pub fn waits(&self) -> bool {
        self.output.is_waiting() && !self.goes_on()
    }

    /// A reply has come and is in its place.
    pub fn is_answered(&mut self) {
        self.halted = false;
        if matches!(self.mode, Mode::Batches { .. }) && !self.output.is_waiting() {
            self.mode = Mode::Requests;
        }
        self.unserved = self.has_input();
    }

    /// Whether its input goes on with a request, not in the middle of one.
    pub(crate) fn is_at_request(&self) -> bool {
        matches!(self.mode, Mode::Requests | Mode::Batches { .. })
    }

    /// Whether its last request is done, but for sending the reply.
    pub fn is_between_requests(&self) -> bool {
        let is_filling = matches!(&self.dialect, Dialect::Resp(session)
            if session.filling.is_some() || session.copying.is_some());
        matches!(self.mode, Mode::Requests | Mode::Watching(_)) && !self.large && !is_filling
    }

    /// Whether it streams the event log.
    pub fn is_watching(&self) -> bool {
        matches!(self.mode, Mode::Watching(_))
    }

    /// Whether nothing of a request is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.mode, Mode::Requests) && self.output.is_empty() && !self.has_input()
    }

    /// Whether there is what it can serve without another byte.
    pub fn has_input(&self) -> bool {
        let has_more = match &self.dialect {
            Dialect::Resp(session) => !session.front.is_empty(),
            Dialect::Binary => matches!(self.mode, Mode::BodyEnd(_)),
            Dialect::Undecided | Dialect::Memcached | Dialect::Unproven(_) => false,
        };
        has_more || !self.input.is_empty()
    }

    /// What it keeps, where it speaks RESP.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) fn session(&mut self) -> &mut Session {
        match &mut self.dialect {
            Dialect::Resp(session) => session,
            _ => unreachable!("it does not speak RESP"),
        }
    }

    /// The rest of a value that was refused is of no interest, and neither is what belongs to it.
    pub(crate) fn swallow_value(&mut self, missing: usize) {
        self.mode = match &mut self.dialect {
            Dialect::Resp(session) => {
                session.scan = Scan::default();
                let behind = session.storing.take().map_or(0, |storing| storing.behind);
                Mode::Resp(Under::Skip(Skip::new(missing, behind)))
            }
            Dialect::Binary => Mode::Swallow(missing as u64),
            Dialect::Undecided | Dialect::Memcached | Dialect::Unproven(_) => {
                Mode::Swallow((missing + VALUE_END_BYTES) as u64)
            }
        };
    }
}

impl<S: Stream> Connection<S> {
    /// A read has brought `bytes`, and had room for `room`.
    #[inline]
    pub fn has_read(&mut self, bytes: usize, room: usize) {
        let has_more = self.stream.has_more();
        match self.unread {
            Unread::Bytes if bytes < room && !has_more => self.unread = Unread::Nothing,
            // No event will tell of what the stream holds back, whatever this read was for.
            Unread::Nothing if has_more => self.unread = Unread::Bytes,
            _ => {}
        }
    }
}

/// The connections of one worker, by slot. A slot's generation changes with every new holder.
pub struct Table<S> {
    slots: Vec<(u32, Option<Box<Connection<S>>>)>,
    free: Vec<u32>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new() }
    }
}

impl<S> Table<S> {
    /// A new place for a connection; empty until [`Table::put`].
    pub fn reserve(&mut self) -> Token {
        match self.free.pop() {
            Some(slot) => Token { slot, generation: self.slots[slot as usize].0 },
            None => {
                self.slots.push((0, None));
                Token { slot: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    /// Take the connection out for a turn; `None` for a stale token.
    pub fn take(&mut self, token: Token) -> Option<Box<Connection<S>>> {
        let (generation, connection) = self.slots.get_mut(token.slot as usize)?;
        if *generation == token.generation { connection.take() } else { None }
    }

    /// Put it back after a turn.
    pub fn put(&mut self, token: Token, connection: Box<Connection<S>>) {
        let (generation, place) = &mut self.slots[token.slot as usize];
        assert!(*generation == token.generation && place.is_none(), "the place is another's");
        *place = Some(connection);
    }

    /// Look at it in place; `None` for a stale token.
    pub fn get_mut(&mut self, token: Token) -> Option<&mut Connection<S>> {
        let (generation, connection) = self.slots.get_mut(token.slot as usize)?;
        if *generation == token.generation { connection.as_deref_mut() } else { None }
    }

    /// Give the place up: its token is stale from now on.
    pub fn release(&mut self, token: Token) {
        let (generation, connection) = &mut self.slots[token.slot as usize];
        assert!(*generation == token.generation && connection.is_none(), "the place is in use");
        *generation = generation.wrapping_add(1);
        self.free.push(token.slot);
    }

    /// Tokens in use, in slot order, from `from` on.
    pub fn tokens_from(&self, from: u32) -> impl Iterator<Item = Token> + '_ {
        let slots = self.slots.iter().enumerate().skip(from as usize);
        slots
            .filter(|(_, (_, connection))| connection.is_some())
            .map(|(slot, (generation, _))| Token { slot: slot as u32, generation: *generation })
    }

    /// Those that nobody has taken out.
    pub fn connections(&self) -> impl Iterator<Item = &Connection<S>> {
        self.slots.iter().filter_map(|(_, connection)| connection.as_deref())
    }

    /// Places, used or not.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Connections held.
    pub fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_transport::Transport;
    use laneway_transport::memory::{Faults, MemoryStream, Net};
    use std::io;

    /// A stream that holds back what it is told to.
    struct Holding(MemoryStream, bool);

    impl Stream for Holding {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.0.read(room)
        }
        fn write(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
            self.0.write(pieces)
        }
        fn has_more(&self) -> bool {
            self.1
        }
        fn limit_unsent(&mut self, bytes_max: Option<usize>) {
            self.0.limit_unsent(bytes_max);
        }
        fn peer(&self) -> String {
            self.0.peer()
        }
        fn local(&self) -> Option<String> {
            self.0.local()
        }
    }

    #[test]
    fn what_a_stream_holds_back_is_unread_whatever_was_known_before() {
        let net = Net::new(Faults::NONE);
        let _client = net.connect();
        let mut transport = net.transport();
        transport.watch_listeners(true).expect("memory");
        let stream = transport.accept(0).expect("memory").expect("a client has come");
        let dialect = Dialect::Undecided;
        let card = Arc::new(ConnectionStats::new(ConnectionKind::Client, 1, String::new(), 0));
        let mut connection = Connection::new(Holding(stream, true), dialect, WorkerId(0), card);
        for (before, holds, after) in [
            (Unread::Nothing, true, Unread::Bytes),
            (Unread::Nothing, false, Unread::Nothing),
            (Unread::Bytes, true, Unread::Bytes),
            (Unread::Bytes, false, Unread::Nothing),
            (Unread::End, false, Unread::End),
            (Unread::End, true, Unread::End),
        ] {
            (connection.unread, connection.stream.1) = (before, holds);
            connection.has_read(10, 20);
            assert_eq!(connection.unread, after, "{before:?}, {holds}");
            (connection.unread, connection.stream.1) = (before, holds);
            connection.has_read(20, 20);
            let full = if before == Unread::Bytes { Unread::Bytes } else { after };
            assert_eq!(connection.unread, full, "{before:?}, {holds}, the room was filled");
        }
    }
}
