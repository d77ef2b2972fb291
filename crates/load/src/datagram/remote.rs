//! One connection over RDMA, in place of a socket: requests are written into slots of the server's
//! memory, or sent to a worker, long ones in frames, and replies come as datagrams. Never blocks,
//! and never sleeps: the loop spins, as with sockets. It knows no request.

use super::memory::peer;
use super::socket::Outbox;
use laneway_rdma::contract::{Posted, Requester as _};
use laneway_rdma::verbs::{self, Lending, Place, Service, VerbsRequester};
use laneway_wire::udp::DATAGRAM_BYTES_MAX;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};

/// Replies that one look takes at most.
const BURST: usize = 64;

/// How a server is reached over RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Its door, `HOST:PORT`.
    pub door: String,
    /// Our device.
    pub place: Place,
    /// How requests travel; nothing: as the server chooses.
    pub service: Option<Service>,
}

/// A connection.
#[derive(Debug)]
pub struct Remote {
    verbs: VerbsRequester,
    frame: Vec<u8>,
}

impl Remote {
    /// One to the server behind a door.
    pub fn open(way: &Way) -> io::Result<Remote> {
        let stream = TcpStream::connect(&way.door)?;
        let verbs = verbs::enter(stream, &way.place, way.service, Lending::NOTHING)?;
        Ok(Remote { verbs, frame: Vec::new() })
    }

    /// Sends what waits, as far as there is room; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        let verbs = &mut self.verbs;
        let mut post = |peer: SocketAddr, bytes: &[u8]| {
            verbs.post_request(peer.port().into(), bytes) == Posted::Done
        };
        while outbox.first(&mut post) == Some(true) {}
        self.verbs.pump()?;
        Ok(!outbox.is_empty())
    }

    /// Requests that may be under way to one worker.
    pub fn window(&self) -> usize {
        self.verbs.window()
    }

    /// Sends frames of a large request; false if there is no room for all of them now.
    pub fn send_train(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        let queue = usize::from(peer.port());
        self.frame.clear();
        pieces.iter().for_each(|piece| self.frame.extend_from_slice(piece));
        let frames = self.frame.chunks(DATAGRAM_BYTES_MAX);
        if self.verbs.room(queue) < frames.len() {
            // Posting nothing, it asks for room now and then.
            self.verbs.want_room(queue);
            self.verbs.pump()?;
            return Ok(false);
        }
        for frame in frames {
            self.verbs.post_request(queue, frame);
        }
        self.verbs.pump()?;
        Ok(true)
    }

    /// Hands every datagram that is there to `take` with the queue it came from.
    pub fn receive(&mut self, mut take: impl FnMut(Option<SocketAddr>, &[u8])) -> io::Result<()> {
        if !self.verbs.has_reply() {
            return Ok(());
        }
        self.verbs.poll_replies(BURST, &mut |queue, bytes| take(Some(peer(queue)), bytes));
        self.verbs.pump()
    }
}
