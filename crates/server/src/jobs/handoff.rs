//! What workers hand to each other: a [`Job`] is one parsed request that is not begun yet, and a
//! [`Finished`] reply is what comes back (Minos §3.1 "software queue", §5 "SHO", "HKH+WS").
//!
//! Any worker may execute a job. The reply of a stream's request goes back to the connection's
//! home, into the place that [`Output::reserve`] kept for it, so that replies leave in the order of
//! the requests; a connection has at most one job under way, so that its requests are executed in
//! their order too, but for batches, which the durable executor takes in their order. The reply of
//! a datagram is sent by whoever executed it.
//!
//! Dropped, a job was never there and a reply lets go of what it pins. It knows no worker and no
//! queue. Times are nanoseconds, sizes bytes.

use crate::execute::Incoming;
use crate::execute::redis::Watched;
use crate::latency::PendingLatencies;
use crate::stream::output::{Output, Ticket};
use crate::udp::buffers::Held;
use laneway_policy::{ItemBytes, WorkerId};
use laneway_transport::Token;
use laneway_wire::GetVerb;
use laneway_wire::resp::reply::Version;
use std::net::SocketAddr;

/// Jobs that a queue holds at most.
pub const JOB_PLACES: usize = 1024;

/// Who asked, and so where the reply goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A connection: its reply has a place in an [`Output`].
    Stream(StreamOrigin),
    /// A datagram.
    Datagram(DatagramOrigin),
}

impl Origin {
    /// The number of the connection that asks; 0 where there is none.
    pub fn asker(self) -> u64 {
        match self {
            Origin::Stream(origin) => origin.asker,
            Origin::Datagram(_) => 0,
        }
    }
}

/// A connection's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOrigin {
    /// The worker that it lives at. It does not move while it waits.
    pub worker: WorkerId,
    /// Its name there; stale once it has closed.
    pub token: Token,
    /// The reply's place.
    pub ticket: Ticket,
    /// The connection's number.
    pub asker: u64,
}

/// Where a datagram came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramOrigin {
    /// The queue that received it, and whose port the reply leaves from.
    pub queue: u16,
    /// Who sent it.
    pub peer: SocketAddr,
    /// The request's number in its header.
    pub request_id: u16,
}

/// What is to be done.
pub enum Work {
    /// A whole request as it was received: its line, and the value behind it where there is one.
    Request {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether `END` closes the reply to a `get`; not so for the first keys of a longer one.
        ends: bool,
        /// Who asks may change nothing.
        read_only: bool,
    },
    /// A value that has streamed into its item, `\r\n` included.
    Body(Box<Incoming>),
    /// Whole requests of one connection, to be executed one after the other; their replies are one.
    /// For the durable executor alone, which also keeps the order of several of these.
    Batch {
        /// The bytes.
        bytes: Vec<u8>,
        /// How many.
        requests: u32,
        /// By whom; `None` for a client of memcached's protocol.
        spoken: Option<Box<Spoken>>,
    },
    /// A whole request of a client that speaks RESP, for the durable executor alone.
    Resp {
        /// The bytes.
        bytes: Vec<u8>,
        /// By whom.
        spoken: Box<Spoken>,
    },
    /// A transaction behind `WATCH`, for the durable executor alone.
    Watched(Box<WatchedRequests>),
}

/// Requests that are executed in one moment, if nothing that is watched has changed.
pub struct WatchedRequests {
    /// The requests, whole.
    pub bytes: Vec<u8>,
    /// How many.
    pub count: u32,
    /// What must not have changed.
    pub watched: Vec<Watched>,
    /// By whom.
    pub spoken: Spoken,
}

/// What is to be known of a client that speaks RESP to answer its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spoken {
    /// The version of the protocol.
    pub version: Version,
    /// The request is the beginning of a longer one: only an error is told.
    pub goes_on: bool,
    /// Bytes that its requests may take beside their own until they are answered.
    pub keeps: u64,
}

/// The worker of another NUMA domain that received a request, and sends its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Its domain.
    pub domain: u16,
    /// Its number there.
    pub worker: WorkerId,
}

/// One request that somebody else executes.
pub struct Job {
    /// What is to be done.
    pub work: Work,
    /// Bytes of the item as far as they are known; 0 where nobody has looked.
    pub size: ItemBytes,
    /// When its last byte came.
    pub arrived_nanos: u64,
    /// Where the reply goes.
    pub origin: Origin,
    /// By whom, where another domain has received the request.
    pub home: Option<Home>,
    /// Counts its bytes, where it came in datagrams. (A connection has one job at a time.)
    pub held: Option<Held>,
}

impl Job {
    /// Bytes that whoever executes it needs until it is answered, beside its item's.
    pub fn keeps(&self) -> u64 {
        match &self.work {
            Work::Resp { spoken, .. } | Work::Batch { spoken: Some(spoken), .. } => spoken.keeps,
            Work::Watched(requests) => requests.spoken.keeps,
            _ => 0,
        }
    }

    /// A whole request.
    pub fn request(bytes: Vec<u8>, size: ItemBytes, arrived_nanos: u64, origin: Origin) -> Job {
        let work = Work::Request { bytes, ends: true, read_only: false };
        Job { work, size, arrived_nanos, origin, home: None, held: None }
    }
}

/// A reply on its way to who asked.
pub struct Finished {
    /// Who asked.
    pub origin: Origin,
    /// The reply: bytes and pinned values. Empty where none is wanted.
    pub reply: Output,
    /// What was done, for the latencies; the worker that sends the last byte records them.
    pub tally: PendingLatencies,
    /// It holds a value of the large lane.
    pub large: bool,
    /// It ends with an error: nothing of the same request may follow, since clients take the error
    /// for the end of the reply.
    pub fails: bool,
    /// By whom it is sent, where another domain has received the request.
    pub home: Option<Home>,
    /// Keys of a `get` that were not looked up: the reply was long enough without.
    pub undone: Option<Undone>,
}

/// The rest of a `get`, given back to its connection.
pub struct Undone {
    /// Which of the four.
    pub verb: GetVerb,
    /// New expiry for `gat`.
    pub exptime: i64,
    /// The keys.
    pub keys: Vec<u8>,
}

/// What executing has found out, besides the reply.
pub(crate) struct Served {
    pub(crate) tally: PendingLatencies,
    pub(crate) arrived_nanos: u64,
    pub(crate) large: bool,
    /// Nothing of it counts: the executor is to do it.
    pub(crate) kept: bool,
    /// Bytes of large values in the reply, which are pinned.
    pub(crate) pinned_bytes: usize,
    /// Keys that are left.
    pub(crate) undone: Option<Undone>,
}

impl Served {
    /// Nothing yet, of a request that came then.
    pub(crate) fn new(arrived_nanos: u64) -> Served {
        Served {
            tally: PendingLatencies::default(),
            arrived_nanos,
            large: false,
            kept: false,
            pinned_bytes: 0,
            undone: None,
        }
    }
}
