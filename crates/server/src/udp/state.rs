//! The state of one worker's UDP requests and replies that are under way. It knows no worker. Times
//! are nanoseconds.

use super::ahead::Ahead;
use super::batch::Batch;
use super::buffers::Held;
use super::counts::UdpCounts;
use super::deaf::Deaf;
use super::lending::Lending;
use super::reply::Transfer;
use super::shared::{Key, UdpShared, message_bytes_max};
use super::spare::Spare;
use crate::execute::{Incoming, Joining};
use crate::jobs::handoff::{DatagramOrigin, Served};
use crate::latency::PendingLatencies;
use crate::stream::output::Output;
use laneway_policy::WorkerId;
use laneway_rdma::contract::Lent;
use laneway_transport::datagram::Datagrams;
use laneway_wire::GetVerb;
use laneway_wire::udp::reassembly::{Bounds, Reassembly, Whole};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Messages that one worker puts together at a time.
const MESSAGES_MAX: usize = 1024;
/// Memory of them, at least; twice the largest item if that is more.
const MESSAGE_BYTES_MIN: usize = 8 << 20;
/// How long a message may stand still. A client that used a number again sooner might have frames
/// of two messages put together as one: this is what 65536 requests take at 65 thousand a second.
const STILL_NANOS: u64 = 1_000_000_000;
/// How long late frames of a message are known as such. Later ones begin a message anew, which is
/// known by its content when it is whole.
const STALE_NANOS: u64 = 100_000_000;

/// How long a message stands still before the first time its missing frames are asked for. Longer
/// than a sender's frames are apart, be it interrupted by a few time slices of the scheduler.
pub const PATIENCE_NANOS: u64 = 10_000_000;

/// Where a request came from, and how it is to be treated.
#[derive(Clone, Copy)]
pub struct From {
    /// Where the reply goes.
    pub to: DatagramOrigin,
    /// It is to be carried out once, however often it comes.
    pub once: bool,
    /// Bytes that its sender may be sent for it before it has proved its address.
    pub allowance: usize,
    /// When it came.
    pub arrived_nanos: u64,
}

/// What the workers share, and this worker's counts of it.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// What the workers share.
    pub shared: &'a UdpShared,
    /// This worker's counts.
    pub counts: &'a UdpCounts,
}

impl<'a> At<'a> {
    /// Of this worker.
    pub fn of(shared: &'a UdpShared, worker: WorkerId) -> At<'a> {
        At { shared, counts: &shared.counts[worker.index()] }
    }

    /// There is no room for a request from there: it is not carried out.
    pub(super) fn has_no_room(self, from: &DatagramOrigin, arrived_nanos: u64) {
        self.counts.requests_queue_full.add_owner(1);
        self.shared.given_up(from.queue, &(from.peer, from.request_id), arrived_nanos);
    }
}

impl From {
    /// What names its message.
    pub fn key(&self) -> Key {
        (self.to.peer, self.to.request_id)
    }

    /// The batch that its reply joins.
    pub fn queue(&self) -> usize {
        usize::from(self.to.queue)
    }
}

/// A message that its client lends, on its way in.
pub struct Fetching {
    pub(super) from: From,
    pub(super) lent: Box<dyn Lent>,
    /// What was copied; no memory is taken before the first slice.
    pub(super) bytes: Vec<u8>,
    /// What it takes of [`UdpWorker::storing_bytes`].
    pub(super) counted: usize,
    pub(super) digest: u64,
    /// A card was asked for more, and has not given it.
    pub(super) is_late: bool,
    /// How much of it was here when that was last looked at, and since when.
    pub(super) seen: (usize, u64),
}

/// A large value on its way into its item.
pub struct Storing {
    /// Where it came from.
    pub from: From,
    /// The request, whole.
    pub message: Whole,
    /// How much of it has gone into the item.
    pub at: usize,
    /// The item.
    pub incoming: Box<Incoming>,
}

/// An `append` or `prepend` to a large item.
pub struct JoiningFrom {
    /// Where it came from.
    pub from: From,
    /// Bytes of the request's key and value.
    pub size: u64,
    /// The item to be.
    pub joining: Box<Joining>,
}

/// A `get` of very many keys, under way.
pub struct Gathering {
    pub(super) to: DatagramOrigin,
    pub(super) verb: GetVerb,
    pub(super) exptime: i64,
    pub(super) keys: Vec<u8>,
    /// How many bytes of `keys` are done with.
    pub(super) at: usize,
    pub(super) reply: Output,
    pub(super) reply_bytes: usize,
    /// Counts the keys and the values that were copied.
    pub(super) held: Held,
    pub(super) served: Served,
}

/// What goes in slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slicing {
    /// A large reply.
    Reply,
    /// A large value.
    Value,
    /// A multiget of many keys.
    Keys,
    /// An item that something is joined to.
    Join,
    /// A message that a client lends.
    Lent,
}

impl Slicing {
    /// All of them, in turn.
    const ALL: [Slicing; 5] =
        [Slicing::Reply, Slicing::Value, Slicing::Keys, Slicing::Join, Slicing::Lent];
}

/// Everything but the sockets.
pub struct UdpWorker {
    /// Small replies, by queue.
    pub batches: Vec<Batch>,
    /// Requests whose replies lie in `batches`.
    pub tallies: Vec<PendingLatencies>,
    /// Queues whose batch is to be sent.
    pub dirty: Vec<usize>,
    /// Queues whose send buffer took no more small replies.
    pub full: Vec<bool>,
    /// Keys of the burst that is being served.
    pub ahead: Ahead,
    /// Queues that have something to receive, this worker's own first.
    pub ready: Vec<usize>,
    /// Requests that this worker receives at a time, by queue; 0 where it does not watch it.
    pub bursts: Vec<u32>,
    /// A queue that it is to read could not be watched.
    pub watches_again: bool,
    /// Messages that are not whole, by their names and their queues.
    pub assembly: Reassembly<(Key, u16)>,
    /// When missing frames are next looked for.
    pub ask_nanos: u64,
    /// Large replies, each with a slice to send.
    pub transfers: VecDeque<Transfer>,
    /// Large replies whose queue's send buffer is full.
    pub parked: VecDeque<Transfer>,
    /// Memory of the messages in `fetching` and `storing`.
    pub storing_bytes: usize,
    /// Memory of the next message that is lent.
    pub(super) spare: Spare,
    /// Whether it hears clients over RDMA.
    pub(super) deaf: Deaf,
    /// Counts these, and those of `assembly`.
    pub held: Held,
    /// Messages that clients lend.
    pub fetching: VecDeque<Fetching>,
    /// Who moves them, and long replies to clients that lend memory for them.
    pub lending: Lending,
    /// Large values on their way in.
    pub storing: VecDeque<Storing>,
    /// Large items that something is joined to.
    pub joinings: VecDeque<JoiningFrom>,
    /// Multigets of very many keys; the first of them is under way.
    pub gatherings: VecDeque<Gathering>,
    /// Whose slice it is next.
    next: Slicing,
    /// Whose turn it is next, where there are both large streams and large datagrams.
    pub is_turn: bool,
    /// The next queue to take a request from when there is nothing else to do.
    pub steal_next: usize,
    bounds: Bounds,
}

/// One worker's UDP.
pub struct Udp {
    /// The queues.
    pub datagrams: Box<dyn Datagrams>,
    /// The rest.
    pub desk: UdpWorker,
    /// What the workers share.
    pub shared: Arc<UdpShared>,
}

impl UdpWorker {
    /// Nothing under way.
    pub fn new(shared: &UdpShared, item_bytes_max: usize) -> UdpWorker {
        let queues = shared.queues.len();
        let message_bytes_max = message_bytes_max(item_bytes_max);
        let bounds = Bounds {
            messages_max: MESSAGES_MAX,
            bytes_max: MESSAGE_BYTES_MIN.max(2 * message_bytes_max),
            message_bytes_max,
            idle_nanos_max: STILL_NANOS,
            stale_nanos_max: STALE_NANOS,
        };
        UdpWorker {
            held: shared.buffers.nothing(),
            batches: (0..queues).map(|_| Batch::default()).collect(),
            tallies: vec![PendingLatencies::default(); queues],
            dirty: Vec::new(),
            full: vec![false; queues],
            ahead: Ahead::default(),
            ready: Vec::new(),
            bursts: vec![0; queues],
            watches_again: false,
            assembly: Reassembly::new(bounds),
            ask_nanos: u64::MAX,
            transfers: VecDeque::new(),
            parked: VecDeque::new(),
            storing_bytes: 0,
            spare: Spare::default(),
            deaf: Deaf::default(),
            fetching: VecDeque::new(),
            lending: Lending::default(),
            storing: VecDeque::new(),
            joinings: VecDeque::new(),
            gatherings: VecDeque::new(),
            next: Slicing::Reply,
            is_turn: false,
            steal_next: 0,
            bounds,
        }
    }

    /// Whether there is something to do without waiting.
    pub fn is_busy(&self) -> bool {
        !self.ready.is_empty() || self.has_slices() || !self.dirty.is_empty()
    }

    /// Whether a large transfer has a slice to move.
    pub fn has_slices(&self) -> bool {
        Slicing::ALL.into_iter().any(|kind| self.has(kind))
    }

    /// Whose slice it is: each kind of which there is something has every fifth one at least, so
    /// that a stream of values on their way in holds up no reply, and the other way round.
    pub fn take_turn(&mut self) -> Option<Slicing> {
        let from = Slicing::ALL.into_iter().position(|kind| kind == self.next).unwrap_or(0);
        let mut in_turn = Slicing::ALL.into_iter().cycle().skip(from).take(Slicing::ALL.len() + 1);
        let kind = in_turn.find(|kind| self.has(*kind))?;
        self.next = in_turn.next().unwrap_or(Slicing::Reply);
        Some(kind)
    }

    fn has(&self, kind: Slicing) -> bool {
        match kind {
            Slicing::Reply => !self.transfers.is_empty(),
            Slicing::Value => !self.storing.is_empty(),
            Slicing::Keys => !self.gatherings.is_empty(),
            Slicing::Join => !self.joinings.is_empty(),
            Slicing::Lent => !self.fetching.is_empty(),
        }
    }

    /// Whether nothing is under way that a stopping server should finish: no reply that has not
    /// left, no value on its way in.
    pub fn is_idle(&self) -> bool {
        let replies = !self.transfers.is_empty() || !self.parked.is_empty();
        let requests = !self.storing.is_empty()
            || !self.fetching.is_empty()
            || !self.gatherings.is_empty()
            || !self.joinings.is_empty()
            || !self.assembly.is_empty();
        !replies && !requests && self.batches.iter().all(Batch::is_empty)
    }

    /// Messages of several frames that are not whole, or not stored yet, and the memory they take.
    pub fn unfinished_messages(&self) -> (usize, usize) {
        let unstored = self.fetching.len() + self.storing.len();
        (self.assembly.len() + unstored, self.assembly.bytes() + self.storing_bytes)
    }

    /// Whether replies wait for room in a send buffer, and there is no other large one to send
    /// meanwhile.
    pub fn waits_for_room(&self) -> bool {
        // A client in memory that takes nothing is no wire that is full.
        let waits = self.parked.iter().any(|transfer| !transfer.is_in_memory());
        let large = waits && self.transfers.is_empty();
        large || self.full.contains(&true)
    }

    /// Whether a message of so many bytes may wait for its value to be stored: as much waits as
    /// may lie here in pieces, and one of any length.
    pub fn may_store(&self, message_bytes: usize) -> bool {
        self.storing.is_empty() || self.storing_bytes + message_bytes <= self.bounds.bytes_max
    }

    /// The longest message that is taken.
    pub fn message_bytes_max(&self) -> usize {
        self.bounds.message_bytes_max
    }

    /// Large replies under way to one peer.
    pub fn transfers_to(&self, peer: &SocketAddr) -> usize {
        let all = self.transfers.iter().chain(&self.parked);
        all.filter(|transfer| transfer.to.peer == *peer).count()
    }

    /// Whether a message of so many bytes may be copied from its client: as if it came in pieces.
    pub fn may_fetch(&self, message_bytes: usize) -> bool {
        self.storing.is_empty() && self.fetching.is_empty()
            || self.storing_bytes + message_bytes <= self.bounds.bytes_max
    }

    /// Bring the account up to what messages take that are not whole, or not stored. (What is spare
    /// is not in it: were all workers' in there, others' messages would find no room.)
    pub fn account(&mut self) {
        self.held.set(self.assembly.bytes() + self.storing_bytes);
    }

    /// The batch of a queue has something to send.
    pub fn soil(&mut self, queue: usize) {
        if !self.dirty.contains(&queue) {
            self.dirty.push(queue);
        }
    }

    /// Give up every message that is not whole. Returns how many.
    pub fn give_up_messages(&mut self) -> usize {
        let dropped = self.assembly.len();
        if dropped > 0 {
            self.assembly.clear();
        }
        self.ask_nanos = u64::MAX;
        dropped
    }
}
