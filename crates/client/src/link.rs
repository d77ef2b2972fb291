//! What lies between the core and a server: a UDP socket, memory that both share, or memory of the
//! server that is written over RDMA. It knows no clock.

use crate::core::Core;
use crate::memory::Memory;
use crate::remote::Remote;
use crate::socket::Socket;
use std::io;

/// One of the three.
pub(crate) enum Link {
    Udp(Box<Socket>),
    Memory(Box<Memory>),
    Remote(Box<Remote>),
}

impl Link {
    /// Sends everything that the core has to send now.
    pub(crate) fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        match self {
            Link::Udp(socket) => socket.send(core, now_nanos),
            Link::Memory(memory) => memory.send(core, now_nanos),
            Link::Remote(remote) => remote.send(core, now_nanos),
        }
    }

    /// What lies in memory that it shares with the server, if it does.
    pub(crate) fn memory(&mut self) -> Option<&mut Memory> {
        match self {
            Link::Memory(memory) => Some(memory),
            Link::Udp(_) | Link::Remote(_) => None,
        }
    }

    /// Waits until something has come, and at most so long.
    pub(crate) fn wait(&mut self, nanos: u64) -> io::Result<()> {
        match self {
            Link::Udp(socket) => socket.wait(nanos),
            Link::Memory(memory) => memory.wait(nanos),
            Link::Remote(remote) => remote.wait(nanos),
        }
    }

    /// Feeds the core what has come. Whether there may be more.
    pub(crate) fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        match self {
            Link::Udp(socket) => socket.receive(core, now_nanos),
            Link::Memory(memory) => memory.receive(core, now_nanos),
            Link::Remote(remote) => remote.receive(core, now_nanos),
        }
    }
}
