//! Where bytes arrive and leave. A transport belongs to one worker: it says which streams are ready
//! (`poll`), hands over new ones (`accept`), and can be woken by another worker (`waker`).
//!
//! Kinds: [`socket`] (TCP and unix sockets over epoll) and [`memory`] (no kernel, seeded faults,
//! for tests that repeat exactly). Datagrams come and go beside the streams ([`datagram`]): the
//! same `poll` says which of their queues has something. Nothing here knows the protocol, the store
//! or the lanes; nothing here reads a clock: how long to wait is the caller's word.
//!
//! A stream is a value. It may move to another worker at any time: `detach` there, `attach` here.
//! Readiness is told once (edge-triggered): whoever is told reads until a read brings less than it
//! had room for, and knows then that what comes later will be told. What is there when a stream is
//! attached, or waits for something else, is told anew; so a stream that moved with unread bytes is
//! ready at its new place.
#![deny(unsafe_code)]

mod cut;
mod data_words;
pub mod datagram;
mod draws;
mod listener;
pub mod memory;
mod memory_bells;
pub mod memory_datagram;
pub mod rdma;
mod receive_burst;
pub mod scheduler;
pub mod shm_watch;
pub mod socket;
pub mod udp;
pub mod verbs;
#[cfg(feature = "af-xdp")]
pub mod xdp;
#[cfg(not(feature = "af-xdp"))]
#[path = "xdp_absent.rs"]
pub mod xdp;

use datagram::Path;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

/// Names an attached stream in the events of its transport: slot and generation, so that an event
/// that outlived its stream is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// Place in the worker's table of connections.
    pub slot: u32,
    /// Changes whenever the slot gets another stream.
    pub generation: u32,
}

impl Token {
    const fn pack(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
    const fn unpack(word: u64) -> Token {
        Token { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// What a stream waits for. A vanished peer is always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read.
    Read,
    /// Room to write; reads are left to pile up at the peer.
    Write,
    /// Nothing but the end of the peer.
    Nothing,
}

/// One thing that happened. Each is told once; see the variants for what is told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Somebody waits at a listener: call [`Transport::accept`].
    Listener(usize),
    /// A stream has what it was waiting for. Bytes that are left unread are not told again until
    /// more arrive, or the stream is attached or rearmed; the same of room that is left unused.
    /// After a read that brought less than it had room for, or found nothing, or a write that moved
    /// less than it was given, what comes next is told.
    Stream(Token),
    /// The same of a stream whose peer has sent its last, or is gone: no later arrival will tell of
    /// what is left unread, the end included, which a read of 0 bytes or an error is.
    Ending(Token),
    /// A queue has something to [`receive`](datagram::Datagrams::poll), or another worker has been
    /// first. Told once: what is left in the queue is not told again until more arrives, or it is
    /// watched anew.
    Datagrams(usize),
    /// A queue that was full on this path has room for departures.
    Room(usize, Path),
    /// Another thread called [`Wake::wake`].
    Woken,
}

/// The longest wait of all: only something ready ends it.
pub const FOREVER: Duration = Duration::MAX;

/// How long `poll` may wait when nothing is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this long; [`Wake::wake`] ends it early.
    AtMost(Duration),
}

/// A non-blocking byte stream.
pub trait Stream: Send + 'static {
    /// Bytes read; 0 at the end of the stream; `WouldBlock` when there is nothing now.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;
    /// Bytes written from the front of `pieces`, in one call; `WouldBlock` when there is no room.
    /// What was not written comes first in the next call.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Whether a read would bring something, bytes or the end, that has left the socket already, so
    /// that no event will tell of it. A kind that keeps nothing back never has.
    #[inline]
    fn has_more(&self) -> bool {
        false
    }
    /// From now on `write` takes no more than leaves about so many bytes waiting to be sent for the
    /// first time; `None`: as many as the kernel likes. A kind that cannot tell passes it over.
    fn limit_unsent(&mut self, bytes_max: Option<usize>);
    /// The peer's address in memcached's notation (`tcp:127.0.0.1:41000`, `unix:/path`).
    fn peer(&self) -> String;
    /// The address that the peer has connected to, if this kind of stream has one.
    fn local(&self) -> Option<String> {
        None
    }
}

/// Ends another thread's wait. Cheap to call twice.
pub trait Wake: Send + Sync {
    /// End the wait, or keep the next one from beginning.
    fn wake(&self);
}

/// One worker's share of the outside.
pub trait Transport: Send {
    /// Its kind of stream; every worker of a server has the same kind, so streams can move.
    type Stream: Stream;

    /// Append what is ready to `ready`, at most `burst` things.
    fn poll(&mut self, ready: &mut Vec<Ready>, burst: usize, wait: Wait) -> io::Result<()>;
    /// The next new stream of a listener; `None` when nobody waits (another worker may have been
    /// first).
    fn accept(&mut self, listener: usize) -> io::Result<Option<Self::Stream>>;
    /// Whether this worker watches the listeners. All workers that do share them fairly.
    fn watch_listeners(&mut self, watch: bool) -> io::Result<()>;
    /// Watch a stream under `token`.
    fn attach(&mut self, stream: &Self::Stream, token: Token, interest: Interest)
    -> io::Result<()>;
    /// Change what an attached stream waits for.
    fn rearm(&mut self, stream: &Self::Stream, token: Token, interest: Interest) -> io::Result<()>;
    /// Forget a stream. Events already queued for its token may still come once.
    fn detach(&mut self, stream: &Self::Stream) -> io::Result<()>;
    /// Whether this worker is told that `queue`, its own or another's, has arrivals. Of several
    /// that watch one queue, at least one is told.
    fn watch_datagrams(&mut self, queue: usize, watch: bool) -> io::Result<()>;
    /// Whether this worker is told that `queue` has room on `path`: for as long as it has
    /// departures that [`send`](datagram::Datagrams::send) left undone, or `poll` never waits.
    fn watch_room(&mut self, queue: usize, path: Path, watch: bool) -> io::Result<()>;
    /// End a wait after this long, once, as [`Wake::wake`] does; the alarm before it is forgotten.
    /// False where there are no alarms, and only [`Wait::AtMost`] bounds a wait. One alarm for many
    /// waits costs less than a bound for each.
    fn set_alarm(&mut self, _after: Duration) -> bool {
        false
    }
    /// A handle by which other threads end this worker's wait.
    fn waker(&self) -> Arc<dyn Wake>;
}
