//! What lies between the core and a server: a UDP socket, or memory that both share. Knows no
//! clock.

use crate::core::Core;
use crate::memory::Memory;
use crate::socket::Socket;
use std::io;

/// One of the two.
pub(crate) enum Link {
    Udp(Box<Socket>),
    Memory(Box<Memory>),
}

impl Link {
    /// Sends everything that the core has to send now.
    pub(crate) fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        match self {
            Link::Udp(socket) => socket.send(core, now_nanos),
            Link::Memory(memory) => memory.send(core, now_nanos),
        }
    }

    /// Waits until something has come, and at most so long.
    pub(crate) fn wait(&mut self, nanos: u64) -> io::Result<()> {
        match self {
            Link::Udp(socket) => socket.wait(nanos),
            Link::Memory(memory) => memory.wait(nanos),
        }
    }

    /// Feeds the core what has come. Whether there may be more.
    pub(crate) fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        match self {
            Link::Udp(socket) => socket.receive(core, now_nanos),
            Link::Memory(memory) => memory.receive(core, now_nanos),
        }
    }
}
