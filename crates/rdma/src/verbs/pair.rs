//! Queue pairs, and the queues that say what has completed. What goes through them is posted
//! elsewhere ([`super::post`]).
#![allow(unsafe_code)]

use super::card::{Address, Card, Domain, Trouble, check, refused};
use super::ffi::{self, Completion};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

pub use crate::remote::Service;

/// Longest message that is asked to travel in its request; a device that has less says so.
const INLINE_BYTES: u32 = 256;
/// A QP number and a packet number have so many bits.
pub const NUMBER_BITS: u32 = 24;

/// A number that nobody outside can guess.
pub fn draw() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// What wakes a sleeper when something has completed.
pub struct Channel {
    card: Arc<Card>,
    channel: NonNull<ffi::Channel>,
}

// SAFETY: the library locks what its calls share; the pointer belongs to no thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub fn new(card: &Arc<Card>) -> Result<Channel, Trouble> {
        // SAFETY: the card's context is open.
        let channel = unsafe { (card.library.create_comp_channel)(card.context.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| refused("a completion channel"))?;
        let channel = Channel { card: card.clone(), channel };
        let blocked = |error: rustix::io::Errno| Trouble::of("a channel", error.into());
        rustix::io::ioctl_fionbio(channel.descriptor(), true).map_err(blocked)?;
        Ok(channel)
    }

    /// Readable when there is an event.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel and its descriptor are there as long as `self`, which is borrowed.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Take the events of all its queues, which is one.
    pub fn clear(&self) {
        loop {
            let (mut queue, mut own) = (std::ptr::null_mut(), std::ptr::null_mut());
            let channel = self.channel.as_ptr();
            // SAFETY: the channel is alive and does not block; both places are ours.
            let status =
                unsafe { (self.card.library.get_cq_event)(channel, &raw mut queue, &raw mut own) };
            if status != 0 {
                return;
            }
            // SAFETY: the event is of a queue that is still there: it waits for its events.
            unsafe { (self.card.library.ack_cq_events)(queue, 1) };
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: its queues hold an `Arc` of it, so they are gone.
        unsafe { (self.card.library.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A completion queue.
pub struct Queue {
    card: Arc<Card>,
    queue: NonNull<ffi::CompletionQueue>,
    /// Whoever sleeps until something completes does it there.
    pub channel: Option<Arc<Channel>>,
}

// SAFETY: the library locks what its calls share; the pointer belongs to no thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    pub fn new(
        card: &Arc<Card>,
        places: usize,
        channel: Option<Arc<Channel>>,
    ) -> Result<Arc<Queue>, Trouble> {
        let waker =
            channel.as_ref().map_or(std::ptr::null_mut(), |channel| channel.channel.as_ptr());
        let own = std::ptr::null_mut();
        // SAFETY: context and channel are alive; the queue has no word of its own.
        let queue = unsafe {
            (card.library.create_cq)(card.context.as_ptr(), places as i32, own, waker, 0)
        };
        let queue = NonNull::new(queue).ok_or_else(|| refused("a completion queue"))?;
        Ok(Arc::new(Queue { card: card.clone(), queue, channel }))
    }

    /// Take what has completed, as far as there is room; how many that were.
    pub fn poll(&self, room: &mut [Completion]) -> io::Result<usize> {
        // SAFETY: the queue is alive, the room ours.
        let count =
            unsafe { ffi::poll_cq(self.queue.as_ptr(), room.len() as i32, room.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::other("a completion queue is broken"))
    }

    /// Have the channel be told of what completes from now on. Look once more behind it.
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is alive.
        match unsafe { ffi::request_notice(self.queue.as_ptr()) } {
            0 => Ok(()),
            status => Err(io::Error::from_raw_os_error(status.abs())),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(channel) = &self.channel {
            channel.clear();
        }
        // SAFETY: its queue pairs hold an `Arc` of it, so they are gone; its events are answered.
        unsafe { (self.card.library.destroy_cq)(self.queue.as_ptr()) };
    }
}

/// The other side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Far {
    /// Its port.
    pub address: Address,
    /// Its path's longest packet.
    pub mtu: u8,
    /// Its queue pair.
    pub number: u32,
    /// Its first packet's number.
    pub psn: u32,
}

/// Places of a queue pair.
pub struct Depths {
    pub sends: usize,
    pub receives: usize,
}

/// A queue pair that is reset.
pub struct Pair {
    domain: Arc<Domain>,
    pub(super) pair: NonNull<ffi::QueuePair>,
    pub(super) inline_bytes: usize,
    // Behind the pair.
    pub(super) sends: Arc<Queue>,
    pub(super) receives: Arc<Queue>,
}

// SAFETY: the library locks what its calls share; the pointer belongs to no thread.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// A pair for connections, or, without a service, for datagrams.
    pub fn new(
        domain: &Arc<Domain>,
        service: Option<Service>,
        sends: &Arc<Queue>,
        receives: &Arc<Queue>,
        depths: &Depths,
    ) -> Result<Pair, Trouble> {
        let mut wanted = ffi::QueuePairWanted {
            own: std::ptr::null_mut(),
            send_cq: sends.queue.as_ptr(),
            receive_cq: receives.queue.as_ptr(),
            shared_receive_queue: std::ptr::null_mut(),
            capacity: ffi::Capacity {
                sends: depths.sends as u32,
                receives: depths.receives as u32,
                pieces_per_send: 1,
                pieces_per_receive: 1,
                inline_bytes: INLINE_BYTES,
            },
            kind: match service {
                Some(Service::Unreliable) => ffi::QP_UC,
                Some(Service::Reliable) => ffi::QP_RC,
                Some(Service::Datagrams) | None => ffi::QP_UD,
            },
            signal_all: 0,
        };
        let create = |wanted: &mut ffi::QueuePairWanted| {
            // SAFETY: the domain and both queues are alive; what is wanted is ours.
            NonNull::new(unsafe {
                (domain.card().library.create_qp)(domain.domain.as_ptr(), &raw mut *wanted)
            })
        };
        let pair = create(&mut wanted).or_else(|| {
            // A device that takes nothing inline refuses rather than answer with less.
            wanted.capacity.inline_bytes = 0;
            create(&mut wanted)
        });
        let pair = pair.ok_or_else(|| refused("a queue pair"))?;
        let inline_bytes = wanted.capacity.inline_bytes as usize;
        let (sends, receives) = (sends.clone(), receives.clone());
        Ok(Pair { domain: domain.clone(), pair, inline_bytes, sends, receives })
    }

    /// By which the other side knows it.
    pub fn number(&self) -> u32 {
        // SAFETY: the pair is alive.
        unsafe { (*self.pair.as_ptr()).number }
    }

    fn modify(
        &self,
        what: &'static str,
        mut attributes: ffi::QueuePairAttributes,
        mask: i32,
    ) -> Result<(), Trouble> {
        let mask = mask | ffi::SET_STATE;
        // SAFETY: the pair is alive, the attributes are ours.
        let status = unsafe {
            (self.domain.card().library.modify_qp)(self.pair.as_ptr(), &raw mut attributes, mask)
        };
        check(what, status)
    }

    /// Connect it: it receives from `far`, and sends to it from packet `psn` on. If `far` may READ
    /// by it, too, `is_read` says so: reliable connections alone can.
    pub fn connect(
        &self,
        service: Service,
        is_read: bool,
        psn: u32,
        far: &Far,
    ) -> Result<(), Trouble> {
        let reads = if is_read { ffi::ACCESS_REMOTE_READ } else { 0 };
        let is_reliable = service == Service::Reliable;
        let only = |mask| if is_reliable { mask } else { 0 };
        let port = self.domain.card().place().port;
        let begun = ffi::QueuePairAttributes {
            state: ffi::STATE_INIT,
            port,
            access: (ffi::ACCESS_REMOTE_WRITE | reads) as u32,
            ..Default::default()
        };
        let mask = ffi::SET_PKEY_INDEX | ffi::SET_PORT | ffi::SET_ACCESS;
        self.modify("a queue pair's beginning", begun, mask)?;
        let receives = ffi::QueuePairAttributes {
            state: ffi::STATE_READY_TO_RECEIVE,
            path: self.domain.card().path(&far.address),
            path_mtu: i32::from(far.mtu.min(self.domain.card().mtu())),
            remote_qpn: far.number,
            rq_psn: far.psn,
            reads_remote: 1,
            rnr_timer: RNR_TIMER,
            ..Default::default()
        };
        let mask = ffi::SET_PATH | ffi::SET_PATH_MTU | ffi::SET_REMOTE_QPN | ffi::SET_RQ_PSN;
        let mask = mask | only(ffi::SET_READS_REMOTE | ffi::SET_RNR_TIMER);
        self.modify("a queue pair's path", receives, mask)?;
        let sends = ffi::QueuePairAttributes {
            state: ffi::STATE_READY_TO_SEND,
            sq_psn: psn,
            timeout: TIMEOUT,
            retries: RETRIES,
            rnr_retries: RETRIES,
            reads: 1,
            ..Default::default()
        };
        let reliable = ffi::SET_TIMEOUT | ffi::SET_RETRIES | ffi::SET_RNR_RETRIES | ffi::SET_READS;
        self.modify("a queue pair's sending", sends, ffi::SET_SQ_PSN | only(reliable))
    }

    /// Have it take and send datagrams under `qkey`. One that was open begins anew: what it was
    /// about to send is forgotten.
    pub fn open_datagrams(&self, qkey: u32) -> Result<(), Trouble> {
        let port = self.domain.card().place().port;
        let state = |state| ffi::QueuePairAttributes { state, qkey, port, ..Default::default() };
        self.modify("a queue pair's end", state(ffi::STATE_RESET), 0)?;
        let mask = ffi::SET_PKEY_INDEX | ffi::SET_PORT | ffi::SET_QKEY;
        self.modify("a queue pair's beginning", state(ffi::STATE_INIT), mask)?;
        self.modify("a queue pair's receiving", state(ffi::STATE_READY_TO_RECEIVE), 0)?;
        self.modify("a queue pair's sending", state(ffi::STATE_READY_TO_SEND), ffi::SET_SQ_PSN)
    }
}

/// Of a reliable connection, as verbs count them: 4.096 us times 2^14 until a packet is sent again,
/// 7 times; 0.64 ms until one that found no place is.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;
const RNR_TIMER: u8 = 12;

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: the pair is ours and ended once; the memory that its requests name is held by
        // whoever holds the pair, and let go of behind it.
        unsafe { (self.domain.card().library.destroy_qp)(self.pair.as_ptr()) };
    }
}
