//! The kernel's side: one UDP socket, bursts of datagrams both ways (`sendmmsg`, `recvmmsg`),
//! trains that the kernel cuts apart (`UDP_SEGMENT`) and puts together (`UDP_GRO`).
//!
//! The socket is bound to one port and connected to none, since a server's queues are many ports;
//! what comes from anywhere else is dropped unread. It knows no clock.

use crate::core::{Core, Departure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::{TimeSpec, TimeValLike};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// Datagrams that one call sends.
const SEND_BURST: usize = 32;
/// Arrivals that one call takes, each maybe of many datagrams.
const RECEIVE_BURST: usize = 16;
/// The longest arrival.
const ARRIVAL_BYTES_MAX: usize = 1 << 16;
/// What the kernel is asked to hold for us; it gives what `net.core.rmem_max` allows.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// A socket towards the queues of one server.
pub(crate) struct Socket {
    socket: UdpSocket,
    /// Where the server is, at any port: an address of one link is nothing without its scope.
    host: SocketAddr,
    /// Single datagrams to send, with their queue; the first `collected` of them count.
    burst: Vec<(u16, Vec<u8>)>,
    train: Vec<u8>,
    arrivals: Vec<Vec<u8>>,
    /// Whether the kernel cuts trains; found out by the first that it refuses.
    cuts_trains: bool,
}

impl Socket {
    /// A socket on a port that the kernel chooses.
    pub(crate) fn open(host: SocketAddr) -> io::Result<Socket> {
        let any = match host {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0))?;
        // Both are wishes: without them it is slower, or more is lost.
        let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES);
        let _ = setsockopt(&socket, sockopt::UdpGroSegment, &true);
        Ok(Socket {
            socket,
            host,
            burst: vec![(0, Vec::new()); SEND_BURST],
            train: Vec::new(),
            arrivals: vec![vec![0; ARRIVAL_BYTES_MAX]; RECEIVE_BURST],
            cuts_trains: true,
        })
    }

    /// Whether it was opened for this one.
    pub(crate) fn leads_to(&self, host: SocketAddr) -> bool {
        self.host == host
    }

    /// Sends everything that the core has to send now.
    pub(crate) fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        loop {
            let mut collected = 0;
            let mut train = None;
            while collected < SEND_BURST && train.is_none() {
                let (queue, bytes) = &mut self.burst[collected];
                let Some(departure) = core.transmit(now_nanos, bytes) else { break };
                if departure.segment_bytes < bytes.len() {
                    std::mem::swap(bytes, &mut self.train);
                    train = Some(departure);
                } else {
                    *queue = departure.queue;
                    collected += 1;
                }
            }
            self.send_burst(core, collected)?;
            match train {
                Some(departure) => self.send_train(core, departure)?,
                None if collected < SEND_BURST => return Ok(()),
                None => {}
            }
        }
    }

    fn send_burst(&mut self, core: &Core, collected: usize) -> io::Result<()> {
        let topology = core.topology();
        let burst = &self.burst[..collected];
        let address = |queue: u16| Some(self.address(topology.port(queue)));
        let addresses: Vec<_> = burst.iter().map(|(queue, _)| address(*queue)).collect();
        let slices: Vec<_> = burst.iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect();
        let mut sent = 0;
        while sent < collected {
            let mut headers = MultiHeaders::preallocate(collected - sent, None);
            let to = &addresses[sent..];
            let none: [ControlMessage<'_>; 0] = [];
            let fd = self.socket.as_raw_fd();
            match sendmmsg(fd, &mut headers, &slices[sent..], to, none, MsgFlags::empty()) {
                Ok(results) => sent += results.count().max(1),
                Err(error) => {
                    passing(error)?;
                    sent += 1; // it is lost, as on the way
                }
            }
        }
        Ok(())
    }

    fn send_train(&mut self, core: &mut Core, departure: Departure) -> io::Result<()> {
        let to = self.address(core.topology().port(departure.queue));
        let segment_bytes = departure.segment_bytes as u16;
        let fd = self.socket.as_raw_fd();
        let send = |bytes: &[u8], cut: &[ControlMessage<'_>]| {
            sendmsg(fd, &[IoSlice::new(bytes)], cut, MsgFlags::empty(), Some(&to))
        };
        if self.cuts_trains {
            match send(&self.train, &[ControlMessage::UdpGsoSegments(&segment_bytes)]) {
                Ok(_) => return Ok(()),
                Err(error) if is_uncut(error) => self.cuts_trains = false,
                Err(error) => return passing(error),
            }
        }
        for datagram in self.train.chunks(departure.segment_bytes) {
            if let Err(error) = send(datagram, &[]) {
                passing(error)?;
            }
        }
        Ok(())
    }

    fn address(&self, port: u16) -> SockaddrStorage {
        at_port(self.host, port).into()
    }

    /// Waits until something has come, and at most so long.
    pub(crate) fn wait(&self, nanos: u64) -> io::Result<()> {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        match ppoll(&mut fds, Some(TimeSpec::nanoseconds(nanos)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Feeds the core what has come. Whether that was a full burst, so that there may be more.
    pub(crate) fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        let space = nix::cmsg_space!(i32);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(RECEIVE_BURST, Some(space));
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.arrivals.iter_mut().map(|bytes| [IoSliceMut::new(bytes)]).collect();
        let fd = self.socket.as_raw_fd();
        let arrived = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let told: Vec<(Option<SocketAddr>, usize, usize)> = match arrived {
            Ok(results) => results
                .map(|message| {
                    let cut = message.cmsgs().into_iter().flatten().find_map(|told| match told {
                        ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
                        _ => None,
                    });
                    let cut = cut.filter(|bytes| *bytes > 0).unwrap_or(ARRIVAL_BYTES_MAX);
                    (message.address.as_ref().and_then(socket_address), message.bytes, cut)
                })
                .collect(),
            Err(Errno::EAGAIN) => return Ok(false),
            Err(error) => return passing(error).map(|()| true),
        };
        for ((peer, bytes, segment_bytes), arrival) in told.iter().zip(&self.arrivals) {
            let from = peer.filter(|peer| peer.ip() == self.host.ip());
            let Some(queue) = from.and_then(|peer| core.topology().queue_at(peer.port())) else {
                continue;
            };
            for datagram in arrival[..*bytes].chunks(*segment_bytes) {
                core.feed(queue, datagram, now_nanos);
            }
        }
        Ok(told.len() == RECEIVE_BURST)
    }
}

fn at_port(host: SocketAddr, port: u16) -> SocketAddr {
    let mut address = host;
    address.set_port(port);
    address
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// The kernel does not cut trains, or not on this way: where a link is narrower than the datagrams
/// (a tunnel), old kernels call the request invalid and new ones the message too long. Datagram by
/// datagram they get through, in fragments.
fn is_uncut(error: Errno) -> bool {
    matches!(
        error,
        Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP
    )
}

/// What only means that a datagram is lost is passed over; everything else is an error.
fn passing(error: Errno) -> io::Result<()> {
    match error {
        Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ECONNREFUSED => Ok(()),
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_one_link_is_sought_on_that_link_at_every_port() {
        for (host, queue) in [
            ("[fe80::1%7]:11211", "[fe80::1%7]:21000"),
            ("[2001:db8::1]:11211", "[2001:db8::1]:21000"),
            ("192.0.2.1:11211", "192.0.2.1:21000"),
        ] {
            let [host, queue]: [SocketAddr; 2] =
                [host, queue].map(|text| text.parse().expect(text));
            let given = SockaddrStorage::from(at_port(host, 21_000));
            assert_eq!(socket_address(&given), Some(queue), "{host}");
        }
    }

    #[test]
    fn a_train_that_no_kernel_cuts_is_sent_by_pieces_and_loss_is_no_error() {
        let narrow = [Errno::EIO, Errno::EINVAL, Errno::EMSGSIZE, Errno::EOPNOTSUPP];
        assert!(narrow.into_iter().all(is_uncut));
        for error in [Errno::EAGAIN, Errno::EINTR, Errno::ENOBUFS, Errno::ECONNREFUSED] {
            assert!(!is_uncut(error) && passing(error).is_ok());
        }
        assert!(!is_uncut(Errno::ENETUNREACH) && passing(Errno::ENETUNREACH).is_err());
    }
}
