//! One UDP socket of the client, in bursts: many requests leave by one system call (sendmmsg), many
//! replies come by one (recvmmsg).
//!
//! The kernel may hand over several datagrams of one sender as one piece (`UDP_GRO`), and takes the
//! frames of a large request as one (`UDP_SEGMENT`). Replies are taken in that form so that the
//! kernel need not cut them apart on the sender's time; whoever sends them one by one is received
//! one by one. Never blocks. It knows no request.

use laneway_wire::udp::DATAGRAM_BYTES_MAX;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Most arrivals that one call takes, and most requests that one call sends.
const BURST: usize = 32;
/// Room for one arrival: the longest UDP datagram.
const ARRIVAL_BYTES_MAX: usize = 64 << 10;
/// What the kernel is asked to hold for us: the replies of a few milliseconds.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

/// How many of an outbox may have left one by one before it is tidied.
const LEFT_MAX: usize = 256;

/// Room for a burst of arrivals, shared by all sockets.
pub const INBOX_BYTES: usize = BURST * ARRIVAL_BYTES_MAX;

/// Requests to be sent together, each one datagram.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// To whom, and where each ends.
    each: Vec<(SockaddrStorage, usize)>,
    /// How many of them have left one by one, and where their bytes end.
    sent: usize,
    begin: usize,
}

impl Outbox {
    /// Adds a datagram to `peer`: what `write` appends.
    pub fn add(&mut self, peer: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.each.push((peer.into(), self.bytes.len()));
    }

    /// Gives what is first to `send`, and lets go of it if that is true. `None`: nothing waits.
    pub fn first(&mut self, send: impl FnOnce(SocketAddr, &[u8]) -> bool) -> Option<bool> {
        let &(peer, end) = self.each.get(self.sent)?;
        let Some(peer) = address(&peer) else { return Some(false) };
        let sent = send(peer, &self.bytes[self.begin..end]);
        if sent {
            (self.sent, self.begin) = (self.sent + 1, end);
        }
        if self.sent == self.each.len() || self.sent == LEFT_MAX {
            self.each.drain(..self.sent);
            self.bytes.drain(..self.begin);
            self.each.iter_mut().for_each(|(_, end)| *end -= self.begin);
            (self.sent, self.begin) = (0, 0);
        }
        Some(sent)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }
}

/// A bound, unconnected socket.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    /// For sending: it has no control messages, so it can be used again and again.
    headers: MultiHeaders<SockaddrStorage>,
}

impl Socket {
    /// A socket that can reach `peer`.
    pub fn open(peer: SocketAddr) -> io::Result<Self> {
        let socket = match (peer, peer.ip().is_loopback()) {
            (SocketAddr::V4(_), true) => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
            (SocketAddr::V4(_), false) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            (SocketAddr::V6(_), true) => UdpSocket::bind((Ipv6Addr::LOCALHOST, 0))?,
            (SocketAddr::V6(_), false) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        socket.set_nonblocking(true)?;
        // Where the right is missing, as much as the system's limit allows.
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER_BYTES)
            .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES))?;
        // A kernel without it hands over every datagram by itself.
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(Socket { socket, headers: MultiHeaders::preallocate(BURST, None) })
    }

    /// Sends what waits, as far as the kernel takes it now; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        let mut sent = 0;
        let mut begin = 0;
        while sent < outbox.each.len() {
            let group = &outbox.each[sent..outbox.each.len().min(sent + BURST)];
            let mut slices = Vec::with_capacity(BURST);
            let mut peers = Vec::with_capacity(BURST);
            let mut from = begin;
            for &(peer, end) in group {
                slices.push([IoSlice::new(&outbox.bytes[from..end])]);
                peers.push(Some(peer));
                from = end;
            }
            let fd = self.socket.as_raw_fd();
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(fd, &mut self.headers, &slices, &peers, [], flags) {
                Ok(done) => {
                    let done = done.count();
                    begin = group[done - 1].1;
                    sent += done;
                }
                Err(error) if is_try_again(error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        outbox.each.drain(..sent);
        outbox.bytes.drain(..begin);
        outbox.each.iter_mut().for_each(|(_, end)| *end -= begin);
        Ok(!outbox.is_empty())
    }

    /// Sends frames of a large request; false if the kernel takes none now.
    pub fn send_train(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        let control = [ControlMessage::UdpGsoSegments(&(DATAGRAM_BYTES_MAX as u16))];
        let peer = SockaddrStorage::from(peer);
        let flags = MsgFlags::MSG_DONTWAIT;
        match sendmsg(self.socket.as_raw_fd(), pieces, &control, flags, Some(&peer)) {
            Ok(_) => Ok(true),
            Err(error) if is_try_again(error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a burst of arrivals and hands each datagram to `take` with its sender.
    pub fn receive(
        &mut self,
        inbox: &mut [u8],
        mut take: impl FnMut(Option<SocketAddr>, &[u8]),
    ) -> io::Result<()> {
        let mut rooms: Vec<[IoSliceMut<'_>; 1]> =
            inbox.chunks_mut(ARRIVAL_BYTES_MAX).map(|room| [IoSliceMut::new(room)]).collect();
        // The kernel shortens a header's room for control messages to what came; made anew for each
        // call, the next arrival's segment size cannot be lost.
        let space = nix::cmsg_space!(i32);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BURST, Some(space));
        let fd = self.socket.as_raw_fd();
        let arrivals = match recvmmsg(fd, &mut headers, &mut rooms, MsgFlags::MSG_DONTWAIT, None) {
            Ok(arrivals) => arrivals,
            Err(error) if is_try_again(error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for arrival in arrivals {
            let segment_bytes = arrival.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
                _ => None,
            });
            let from = arrival.address.as_ref().and_then(address);
            for bytes in arrival.iovs() {
                let segment_bytes = segment_bytes.unwrap_or(bytes.len()).max(1);
                bytes.chunks(segment_bytes).for_each(|datagram| take(from, datagram));
            }
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
        (Some(four), _) => Some(SocketAddr::from(*four)),
        (_, Some(six)) => Some(SocketAddr::from(*six)),
        _ => None,
    }
}

/// Nothing there, no room, or a port that nobody listens at: the request then times out and is
/// counted.
fn is_try_again(error: Errno) -> bool {
    matches!(error, Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED | Errno::ENOBUFS)
}
