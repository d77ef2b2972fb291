//! What the workers share of UDP: per queue what was sent and may be asked for again, per worker
//! the frames on their way to it and its counts.
//!
//! The locks here are held for one look into a map, by whoever sends or repeats a reply of many
//! datagrams or a request to be carried out once; a small `get` meets none of them. Bounded by
//! number, bytes and time; the oldest goes first. Times are nanoseconds.

use super::answers::{Answers, Once};
use super::buffers::{Buffers, Held};
use super::counts::UdpCounts;
use super::guard::Guard;
use super::reply::Reply;
use crate::settings::Settings;
use laneway_sync::ring::Ring;
use laneway_transport::datagram::Queue;
use laneway_transport::rdma;
use laneway_wire::udp::MESSAGE_BYTES_MAX;
use laneway_wire::udp::retain::{Bounds, Retained};
use siphasher::sip::SipHasher13;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who sent a message, and its number.
pub type Key = (SocketAddr, u16);

/// Replies of many datagrams kept per queue.
const REPLIES_MAX: usize = 512;
/// Bytes of them, at least; twice the largest item if that is more. Values in them are pinned, and
/// take memory of their own only once they have been replaced.
const REPLY_BYTES_MIN: usize = 16 << 20;
/// How long a reply is kept.
const REPLY_NANOS: u64 = 2_000_000_000;
/// What a request adds to its item: its line.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Trains on their way to one worker.
const TRAIN_PLACES: usize = 256;

/// The longest message that is put together: an item and its line, as far as frames can be counted.
pub fn message_bytes_max(item_bytes_max: usize) -> usize {
    (item_bytes_max + LINE_BYTES_MAX).min(MESSAGE_BYTES_MAX)
}

/// Frames on their way to the worker that puts their message together.
pub struct Train {
    /// The queue that received them.
    pub queue: u16,
    /// Who sent them.
    pub peer: SocketAddr,
    /// Length of each datagram; the last may be shorter.
    pub segment_bytes: usize,
    /// The datagrams, headers included, end to end.
    pub bytes: Vec<u8>,
    /// Counts them.
    pub held: Held,
}

/// One queue's memory.
struct QueueShared {
    replies: Mutex<Retained<Key, Arc<Reply>>>,
    answers: Mutex<Answers>,
}

/// All of it.
pub struct UdpShared {
    /// The queues.
    pub queues: Vec<Queue>,
    /// Counts, by worker.
    pub counts: Vec<UdpCounts>,
    /// Frames on their way, by worker.
    pub trains: Vec<Ring<Train>>,
    /// Who is believed to be where it says.
    pub guard: Guard,
    /// What all of it takes beside the store.
    pub buffers: Arc<Buffers>,
    memory: Vec<QueueShared>,
    secret_seed: u64,
    /// Every frame of every longer request goes through this one: it must be quick. Who finds two
    /// requests that it cannot tell apart harms nobody but himself.
    frame_hasher: foldhash::quality::SeedableRandomState,
}

impl UdpShared {
    /// Nothing remembered yet.
    pub fn new(settings: &Settings, queues: Vec<Queue>) -> UdpShared {
        let is_public = settings.udp.as_ref().is_some_and(|udp| udp.public);
        let reply_bytes_max = REPLY_BYTES_MIN.max(2 * message_bytes_max(settings.item_bytes_max));
        let replies = Bounds {
            entries_max: REPLIES_MAX,
            bytes_max: reply_bytes_max,
            age_nanos_max: REPLY_NANOS,
        };
        let memory = |_: &Queue| QueueShared {
            replies: Mutex::new(Retained::new(replies)),
            answers: Mutex::default(),
        };
        UdpShared {
            counts: (0..settings.workers).map(|_| UdpCounts::default()).collect(),
            trains: (0..settings.workers).map(|_| Ring::new(TRAIN_PLACES)).collect(),
            guard: Guard::new(is_public),
            buffers: Buffers::new(message_bytes_max(settings.item_bytes_max)),
            memory: queues.iter().map(memory).collect(),
            secret_seed: settings.secret_seed,
            frame_hasher: foldhash::quality::SeedableRandomState::with_seed(
                settings.secret_seed,
                foldhash::SharedSeed::global_fixed(),
            ),
            queues,
        }
    }

    /// Whether a datagram's source is one of our own queues. Somebody lies: a queue asks nobody.
    pub fn is_own(&self, peer: &SocketAddr) -> bool {
        let is_it = |Queue { address, .. }: &Queue| {
            let here = || address.ip().is_unspecified() && peer.ip().to_canonical().is_loopback();
            address.port() == peer.port() && (address.ip() == peer.ip() || here())
        };
        self.queues.iter().any(is_it) && !rdma::is_in_memory(peer)
    }

    /// Spreads messages over the workers that put them together.
    pub fn spread(&self, key: &Key) -> u64 {
        self.hash(key)
    }

    fn hash(&self, what: impl Hash) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret_seed, !self.secret_seed);
        what.hash(&mut hasher);
        hasher.finish()
    }

    /// What tells a frame from another: its number in its message, and all of its bytes.
    pub fn digest(&self, sequence: u16, payload: &[u8]) -> u64 {
        self.frame_hasher.hash_one((sequence, payload))
    }

    /// Keep a reply that has left, unless memory is short: then its client asks for all of it.
    pub fn keep_reply(&self, queue: u16, key: Key, reply: Arc<Reply>, bytes: usize, now: u64) {
        if 2 * self.buffers.held() > self.buffers.most() {
            // Frames of the one kept before under this number are no frames of this reply.
            return self.forget_reply(queue, &key);
        }
        let dropped; // what is dropped lets go of its pins after the lock
        {
            let mut replies = self.replies(queue);
            dropped = replies.forget(&key);
            replies.keep(key, reply, bytes, now);
        }
        drop(dropped);
    }

    /// A reply that has left not long ago.
    pub fn kept_reply(&self, queue: u16, key: &Key, now: u64) -> Option<Arc<Reply>> {
        self.replies(queue).get(key, now).cloned()
    }

    /// The client has the reply whole.
    pub fn forget_reply(&self, queue: u16, key: &Key) {
        let reply = self.replies(queue).forget(key);
        drop(reply);
    }

    /// Whether a request is to be carried out; from now on it is under way.
    pub fn once(&self, queue: u16, key: &Key, digest: u64, now: u64) -> Once {
        self.answers(queue).once(self.name(key), digest, now)
    }

    /// One whose answer is forgotten is carried out again: from now on it is under way.
    pub fn again(&self, queue: u16, key: &Key, digest: u64, now: u64) {
        self.answers(queue).again(self.name(key), digest, now);
    }

    /// The answer to the request that is under way under this key, if there is one.
    pub fn answered(&self, queue: u16, key: &Key, reply: &[u8], now: u64) {
        self.answers(queue).answered(self.name(key), reply, now);
    }

    /// The answer to whatever was under this key last; for frames that come late.
    pub fn answer(&self, queue: u16, key: &Key, now: u64) -> Option<Box<[u8]>> {
        self.answers(queue).answer(self.name(key), now)
    }

    /// Whether whatever was under this key last is being carried out.
    pub fn is_under_way(&self, queue: u16, key: &Key, now: u64) -> bool {
        self.answers(queue).is_under_way(self.name(key), now)
    }

    /// Whether the message under this key goes on behind its first request, which was not given up;
    /// from now on it is given up for none of them.
    pub fn goes_on(&self, queue: u16, key: &Key, now: u64) -> bool {
        self.answers(queue).goes_on(self.name(key), now)
    }

    /// The request under way was not carried out after all, or its answer is not kept.
    pub fn given_up(&self, queue: u16, key: &Key, now: u64) {
        self.answers(queue).given_up(self.name(key), now);
    }

    fn name(&self, key: &Key) -> u64 {
        self.hash((key, "answer"))
    }

    /// Forget what is too old, of this queue.
    pub fn expire(&self, queue: u16, now: u64) {
        self.replies(queue).expire(now);
        self.answers(queue).expire(now);
        self.guard.expire(now);
    }

    /// Replies kept now, and their bytes.
    pub fn kept(&self) -> (usize, usize) {
        let each = (0..self.memory.len() as u16).map(|queue| {
            let replies = self.replies(queue);
            (replies.len(), replies.bytes())
        });
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Bytes of the tables of answers, as far as they are in use.
    pub fn answer_bytes(&self) -> usize {
        (0..self.memory.len() as u16).map(|queue| self.answers(queue).bytes()).sum()
    }

    fn replies(&self, queue: u16) -> MutexGuard<'_, Retained<Key, Arc<Reply>>> {
        let replies = &self.memory[usize::from(queue)].replies;
        replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self, queue: u16) -> MutexGuard<'_, Answers> {
        let answers = &self.memory[usize::from(queue)].answers;
        answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
