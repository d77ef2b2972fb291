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
            Some(Door::Memory(door)) => Line::Memory(Box::new(Memory::open(door)?)),
            Some(Door::Rdma(way)) => Line::Remote(Box::new(Remote::open(way)?)),
            None => Line::Kernel(Socket::open(options.peers.first())?),
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

    /// Sends frames of a large request, all but the last `segment_bytes` long; false if there is no
    /// room now. In memory there are no frames.
    pub fn send_train(
        &mut self,
        peer: SocketAddr,
        pieces: &[IoSlice<'_>],
        segment_bytes: u16,
    ) -> io::Result<bool> {
        match self {
            Line::Kernel(socket) => socket.send_train(peer, pieces, segment_bytes),
            Line::Remote(remote) => remote.send_train(peer, pieces, segment_bytes),
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

    /// Takes what has come: see [`Socket::receive`].
    pub fn receive<T>(
        &mut self,
        inbox: &mut [u8],
        after_read: impl FnOnce() -> T,
        take: impl FnMut(&T, Option<SocketAddr>, &[u8]),
    ) -> io::Result<()> {
        match self {
            Line::Kernel(socket) => socket.receive(inbox, after_read, take),
            Line::Memory(memory) => memory.receive(after_read, take),
            Line::Remote(remote) => remote.receive(after_read, take),
        }
    }
}
