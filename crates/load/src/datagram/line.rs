//! What one flow of requests goes by: a UDP socket, memory that is shared with the server, or
//! memory of the server's over RDMA.

use super::memory::Memory;
use super::remote::Remote;
use super::socket::{Outbox, Socket};
use super::{Door, Options};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// One of the three.
#[derive(Debug)]
pub enum Line {
    /// A socket.
    Kernel(Socket),
    /// A region.
    Memory(Box<Memory>),
    /// A connection over RDMA.
    Remote(Box<Remote>),
}

impl Line {
    /// One to the server that the options name.
    pub fn open(options: &Options) -> io::Result<Line> {
        Ok(match &options.door {
            Some(Door::Memory { path, .. }) => Line::Memory(Box::new(Memory::open(path)?)),
            Some(Door::Rdma(way)) => Line::Remote(Box::new(Remote::open(way)?)),
            None => Line::Kernel(Socket::open(options.peers.first)?),
        })
    }

    /// Sends what waits, as far as there is room; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        match self {
            Line::Kernel(socket) => socket.send(outbox),
            Line::Memory(memory) => memory.send(outbox),
            Line::Remote(remote) => remote.send(outbox),
        }
    }

    /// Sends frames of a large request, all but the last as long as can be; false if there is no
    /// room now. In memory there are no frames.
    pub fn send_train(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        match self {
            Line::Kernel(socket) => socket.send_train(peer, pieces),
            Line::Remote(remote) => remote.send_train(peer, pieces),
            Line::Memory(_) => Ok(false),
        }
    }

    /// Frames of a train at most: more would never find room.
    pub fn train_frames_max(&self) -> usize {
        match self {
            Line::Remote(remote) => remote.window(),
            Line::Kernel(_) | Line::Memory(_) => usize::MAX,
        }
    }

    /// Whether something waits here, and not in the outbox.
    pub fn has_long(&self) -> bool {
        matches!(self, Line::Memory(memory) if memory.has_long())
    }

    /// A request has ended.
    pub fn ended(&mut self, id: u16) {
        if let Line::Memory(memory) = self {
            memory.ended(id);
        }
    }

    /// Hands every datagram that has come, as many as one call takes, to `take` with its sender.
    pub fn receive(
        &mut self,
        inbox: &mut [u8],
        take: impl FnMut(Option<SocketAddr>, &[u8]),
    ) -> io::Result<()> {
        match self {
            Line::Kernel(socket) => socket.receive(inbox, take),
            Line::Memory(memory) => memory.receive(take),
            Line::Remote(remote) => remote.receive(take),
        }
    }
}
