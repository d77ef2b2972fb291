//! Where the datagrams of all clients arrive: for each of the server's workers one queue pair that
//! takes them, however many clients there are, and a completion queue that a sleeper can be woken
//! by. It is made when the first client comes that sends datagrams, so that nobody else's memory is
//! locked for it.
//!
//! It has pairs of its own beside those by which workers reply. A reply goes wherever a client says
//! that it is, and when that breaks the pair, what others have sent is not to be lost.

use super::card::{Domain, Trouble, packet_bytes};
use super::greeting::QKEY_MAX;
use super::inbox::{Came, Inbox, Port, ROUTE_BYTES, Ring, Source, port_of};
use super::pair::{Channel, Queue, draw};
use super::post::Receiver;
use crate::layout::LINE_BYTES;
use crate::region::try_lock;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

/// Places for datagrams of each worker: what may arrive together, not who exists. Each is as long
/// as the port's longest packet, for a device that is sent a longer one than it has room for breaks
/// the pair.
pub const PLACES: usize = 1024;

/// The places of one pair.
pub struct CardRing {
    receiver: Receiver,
    qkey: u32,
    /// Whether routes are headers of IPv4.
    is_v4: bool,
    route: Vec<u8>,
}

impl Ring for CardRing {
    fn poll(&mut self, out: &mut VecDeque<Came>) -> io::Result<()> {
        self.receiver.poll(out)
    }

    fn source(&mut self, came: &Came) -> Source {
        let number = came.number;
        if let Some(lid) = came.lid {
            return Source { port: Port::Local(lid), number };
        }
        self.route.clear();
        self.receiver.read_route(came, &mut self.route);
        Source { port: port_of(&self.route, self.is_v4), number }
    }

    fn take(&mut self, came: Came, out: &mut Vec<u8>) {
        self.receiver.take(came, out);
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.receiver.give_back()
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.receiver.open_datagrams(self.qkey).map_err(io::Error::other)
    }
}

/// What one worker's lane has.
struct Arrivals {
    number: u32,
    queue: Arc<Queue>,
    channel: Arc<Channel>,
    inbox: Mutex<Inbox<CardRing>>,
}

/// See the module's page.
pub struct Mailroom {
    qkey: u32,
    lanes: Vec<Arrivals>,
}

impl Mailroom {
    /// For so many workers. Its key is drawn now, and told to nobody who was not greeted.
    pub(super) fn new(domain: &Arc<Domain>, lanes: usize) -> Result<Mailroom, Trouble> {
        let qkey = draw() & QKEY_MAX;
        let lanes = (0..lanes).map(|_| arrivals(domain, qkey)).collect::<Result<_, _>>()?;
        Ok(Mailroom { qkey, lanes })
    }

    /// What it asks of whoever sends.
    pub(super) fn qkey(&self) -> u32 {
        self.qkey
    }

    /// The queue pairs, by lane.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.lanes.iter().map(|lane| lane.number).collect()
    }

    /// A lane's datagrams, unless somebody else is at them.
    pub(super) fn inbox(&self, lane: usize) -> Option<MutexGuard<'_, Inbox<CardRing>>> {
        try_lock(&self.lanes[lane].inbox)
    }

    /// Whether a lane has something, or may soon: who is at it takes some and may leave others.
    pub fn has_some(&self, lane: usize) -> bool {
        self.inbox(lane).is_none_or(|mut inbox| inbox.has_some())
    }

    /// Readable when something has come to a lane since it was armed.
    pub fn descriptor(&self, lane: usize) -> BorrowedFd<'_> {
        self.lanes[lane].channel.descriptor()
    }

    /// Have the descriptor told of what comes from now on. Look once more behind it. False: it is
    /// not.
    pub fn arm(&self, lane: usize) -> bool {
        let Arrivals { queue, channel, .. } = &self.lanes[lane];
        // A card may take no notice of this until its last event was taken (mlx5 numbers them). One
        // that was to be told of it may have stopped watching, and has left it.
        channel.clear();
        queue.arm().is_ok()
    }

    /// Have the descriptor be told anew: it has been.
    pub fn clear(&self, lane: usize) {
        self.lanes[lane].channel.clear();
    }
}

fn arrivals(domain: &Arc<Domain>, qkey: u32) -> Result<Arrivals, Trouble> {
    let card = domain.card();
    let channel = Arc::new(Channel::new(card)?);
    let stride = (ROUTE_BYTES + packet_bytes(card.mtu())).next_multiple_of(LINE_BYTES);
    let receiver = Receiver::new(domain, Some(channel.clone()), qkey, stride, PLACES)?;
    let (number, queue) = (receiver.number(), receiver.queue().clone());
    let is_v4 = card.has_v4_routes();
    let ring = CardRing { receiver, qkey, is_v4, route: Vec::with_capacity(ROUTE_BYTES) };
    Ok(Arrivals { number, queue, channel, inbox: Mutex::new(Inbox::new(ring)) })
}
