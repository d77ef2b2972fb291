//! One `recvmmsg` for a burst of datagrams, into headers that are kept from call to call, so that
//! a datagram costs no allocation. (The safe bindings of this call allocate headers for each one:
//! what the kernel has written into a header has to be undone before it can be used again.)
//!
//! It knows no queue. Lengths are bytes.
#![allow(unsafe_code)]

use crate::datagram::BURST;
use nix::errno::Errno;
use nix::libc;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A sender's address as the kernel writes it: a `sockaddr_in` or a `sockaddr_in6`.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Name([u8; NAME_BYTES]);

/// The longer of the two, and the padding behind it.
const NAME_BYTES: usize = size_of::<libc::sockaddr_in6>().next_multiple_of(8);

/// A control message that carries one `int`, and its padding.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control {
    header: [u64; 2],
    data: u64,
}

// What `Control` takes a `cmsghdr` for: its length, then level and type. On 64-bit Linux.
const _: () = assert!(size_of::<libc::cmsghdr>() == 16);
const _: () = assert!(std::mem::offset_of!(libc::cmsghdr, cmsg_level) == 8);
const _: () = assert!(std::mem::offset_of!(libc::cmsghdr, cmsg_type) == 12);

/// Room for the headers of a burst.
pub(crate) struct Headers {
    messages: [libc::mmsghdr; BURST],
    pieces: [libc::iovec; BURST],
    names: [Name; BURST],
    controls: [Control; BURST],
}

// SAFETY: the pointers in `messages` and `pieces` are set by each call of `receive`, which uses
// them before it returns and lets nobody else see them; what lies in them between two calls is
// never followed.
unsafe impl Send for Headers {}

/// One message that has been received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its sender; `None` for an address that is neither IPv4 nor IPv6, or none at all.
    pub(crate) peer: Option<SocketAddr>,
    /// Bytes of it that lie in its room.
    pub(crate) bytes: usize,
    /// It is a train of datagrams of this length, the last of which may be shorter (`UDP_GRO`).
    pub(crate) segment_bytes: Option<usize>,
}

impl Headers {
    pub(crate) fn new() -> Box<Headers> {
        // SAFETY: a header of zeros is a valid one, whose pointers are null and lengths are 0.
        let message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Box::new(Headers {
            messages: [message; BURST],
            pieces: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURST],
            names: [Name([0; NAME_BYTES]); BURST],
            controls: [Control { header: [0; 2], data: 0 }; BURST],
        })
    }

    /// Receive what is there, `most` messages at most, without waiting: the first into the first
    /// `stride` bytes of `room`, the next into the next ones. Returns how many there were.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        room: &mut [u8],
        stride: usize,
        most: usize,
    ) -> Result<usize, Errno> {
        let mut ready = 0;
        for (at, bytes) in room.chunks_exact_mut(stride).take(most.min(BURST)).enumerate() {
            let piece = &mut self.pieces[at];
            *piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            self.controls[at].header = [0; 2];
            let header = &mut self.messages[at].msg_hdr;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = NAME_BYTES as libc::socklen_t;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[at]).cast();
            header.msg_controllen = size_of::<Control>() as _;
            header.msg_flags = 0;
            ready = at + 1;
        }
        // SAFETY: the first `ready` headers point at a name, a control and a piece each, which are
        // parts of `self` and so outlive the call, and each length is that of what it stands for.
        // Pieces point at parts of `room` that do not overlap, and `room` is borrowed
        // for writing. The socket is open as long as it is borrowed.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                ready as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        Errno::result(received).map(|count| count as usize)
    }

    /// Message `at` of those that the last call has received.
    pub(crate) fn message(&self, at: usize) -> Message {
        let libc::mmsghdr { msg_hdr, msg_len } = &self.messages[at];
        #[allow(clippy::unnecessary_cast)] // musl has 32 bits here
        let control_bytes = msg_hdr.msg_controllen as usize;
        let name_bytes = (msg_hdr.msg_namelen as usize).min(NAME_BYTES);
        Message {
            peer: peer(&self.names[at].0[..name_bytes]),
            bytes: *msg_len as usize,
            segment_bytes: self.controls[at].segment_bytes(control_bytes),
        }
    }
}

impl Control {
    /// The length of a train's datagrams, if the kernel has written so many bytes and they say so.
    fn segment_bytes(&self, written: usize) -> Option<usize> {
        const GRO: u64 = libc::SOL_UDP as u64 | (libc::UDP_GRO as u64) << 32;
        let said = size_of::<libc::cmsghdr>() + size_of::<libc::c_int>();
        let [length, kind] = self.header;
        let kind = if cfg!(target_endian = "big") { kind.rotate_left(32) } else { kind };
        let is_it = written >= said && length as usize >= said && kind == GRO;
        let [a, b, c, d, ..] = self.data.to_ne_bytes();
        is_it.then_some(libc::c_int::from_ne_bytes([a, b, c, d]) as usize)
    }
}

/// The address in a `sockaddr`.
fn peer(name: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(part(name, 0)?));
    let port = u16::from_be_bytes(part(name, 2)?);
    match family {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(part::<4>(name, 4)?);
            Some(SocketAddrV4::new(ip, port).into())
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(part(name, 4)?);
            let ip = Ipv6Addr::from(part::<16>(name, 8)?);
            let scope = u32::from_ne_bytes(part(name, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

fn part<const N: usize>(name: &[u8], at: usize) -> Option<[u8; N]> {
    name.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{setsockopt, sockopt};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Write;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    const STRIDE: usize = 4096;

    /// The next `count` messages and their bytes, `most` a call at most; nothing is behind them.
    fn next(
        headers: &mut Headers,
        socket: &UdpSocket,
        count: usize,
        most: usize,
    ) -> Vec<(Message, Vec<u8>)> {
        let mut found = Vec::new();
        let mut room = vec![0; most * STRIDE];
        while found.len() < count {
            let mut waits = [PollFd::new(socket, PollFlags::IN)];
            poll(&mut waits, None).expect("a socket can be waited for");
            let come = headers.receive(socket.as_fd(), &mut room, STRIDE, most);
            for at in 0..come.expect("something has come") {
                let message = headers.message(at);
                let bytes = room[at * STRIDE..][..message.bytes].to_vec();
                found.push((message, bytes));
            }
        }
        let behind = headers.receive(socket.as_fd(), &mut room, STRIDE, most);
        assert_eq!((found.len(), behind), (count, Err(Errno::EAGAIN)));
        found
    }

    #[test]
    fn headers_are_good_for_call_after_call_over_both_families() {
        let mut headers = Headers::new();
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(local) else {
                let _ =
                    writeln!(std::io::stderr(), "SKIPPED: datagrams at {local}: no such address");
                continue;
            };
            let from = UdpSocket::bind(local).expect("loopback has a free port");
            let peer = from.local_addr().expect("it is bound");
            let address = socket.local_addr().expect("it is bound");
            for round in 0..3 {
                let bytes = |number: u8| vec![number; 1 + round * usize::from(number)];
                for number in 0..4 {
                    from.send_to(&bytes(number), address).expect("loopback takes it");
                }
                for (number, found) in (0..4).zip(next(&mut headers, &socket, 4, 3)) {
                    let bytes = bytes(number);
                    let message =
                        Message { peer: Some(peer), bytes: bytes.len(), segment_bytes: None };
                    assert_eq!(found, (message, bytes), "{local}, round {round}");
                }
            }
        }
    }

    #[test]
    fn a_train_tells_the_length_of_its_datagrams_and_the_next_message_is_not_taken_for_one() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        setsockopt(&socket, sockopt::UdpGroSegment, &true).expect("UDP_GRO, Linux 5.0");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = socket.local_addr().expect("it is bound");
        let mut headers = Headers::new();
        for _ in 0..3 {
            setsockopt(&from, sockopt::UdpGsoSegment, &100).expect("UDP_SEGMENT, Linux 4.18");
            from.send_to(&[7; 250], address).expect("loopback takes it");
            setsockopt(&from, sockopt::UdpGsoSegment, &0).expect("as before");
            from.send_to(&[8; 250], address).expect("loopback takes it");
            let found = next(&mut headers, &socket, 2, 4).into_iter();
            let found: Vec<_> =
                found.map(|(message, bytes)| (message.segment_bytes, bytes)).collect();
            assert_eq!(found, [(Some(100), vec![7; 250]), (None, vec![8; 250])]);
        }
    }

    #[test]
    fn what_is_no_address_of_the_internet_is_nobody() {
        assert_eq!(peer(&[]), None);
        let unix = (libc::AF_UNIX as u16).to_ne_bytes();
        assert_eq!(peer(&[&unix[..], &[0; 26]].concat()), None);
        let short = (libc::AF_INET as u16).to_ne_bytes();
        assert_eq!(peer(&[&short[..], &[0; 4]].concat()), None, "cut");
        let whole = [&short[..], &[0x2b, 0xcb, 127, 0, 0, 1], &[0; 8]].concat();
        assert_eq!(peer(&whole), Some(SocketAddr::from(([127, 0, 0, 1], 11211))));
    }
}
