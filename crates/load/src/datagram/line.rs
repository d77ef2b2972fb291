//! What one flow of requests goes by: a UDP socket, or memory that is shared with the server.

use super::Options;
use super::memory::Memory;
use super::socket::{Inbox, Outbox, Socket};
use std::io;
use std::net::SocketAddr;

/// One of the two.
#[derive(Debug)]
pub enum Line {
    /// A socket.
    Kernel(Socket),
    /// A region.
    Memory(Box<Memory>),
}

impl Line {
    /// One to the server that the options name.
    pub fn open(options: &Options) -> io::Result<Line> {
        Ok(match &options.door {
            Some(door) => Line::Memory(Box::new(Memory::open(door)?)),
            None => Line::Kernel(Socket::open(options.peers.first())?),
        })
    }

    /// Sends what waits, as far as there is room; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        match self {
            Line::Kernel(socket) => socket.send(outbox),
            Line::Memory(memory) => memory.send(outbox),
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
        inbox: &mut Inbox,
        after_read: impl FnOnce() -> T,
        take: impl FnMut(&T, Option<SocketAddr>, &[u8]),
    ) -> io::Result<()> {
        match self {
            Line::Kernel(socket) => socket.receive(inbox, after_read, take).map(|_| ()),
            Line::Memory(memory) => memory.receive(after_read, take),
        }
    }
}
