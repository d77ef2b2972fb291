//! Carries datagrams over the kernel's UDP sockets.
//!
//! A queue is two sockets of one address, a group by `SO_REUSEPORT`: the first receives, and sends
//! small replies; its *sibling* sends large ones from a send buffer of its own and never receives:
//! a filter on the group names the first for every datagram. (A sibling connected to nobody would
//! not receive either, but on a wildcard address connecting also fixes the source of what it sends,
//! and a client that connected to another address of ours would drop it.)
//!
//! Queues are laid out as Minos §4.1 has them: number i at port base + i, so that a client chooses
//! by port. The *ordinary* port is memcached's `-U`: one queue per worker, all of one address,
//! among which the filter chooses by the sender's address and port.
//!
//! One call receives a burst, one sends it (`recvmmsg`, `sendmmsg`). The kernel keeps trains of
//! equal datagrams together on the way in (`UDP_GRO`, where [`Ports::join`] allows it) and cuts
//! them on the way out (`UDP_SEGMENT`). A wildcard address leaves it to the kernel's routes which
//! of a host's addresses a reply comes from: a host that has several is told one of them to listen
//! on.

use crate::cut::each_datagram;
use crate::datagram::{Arrival, BURST, BURST_BYTES, Datagrams, Departure, Path, Queue, Sent};
use crate::receive_burst::{Headers, Message};
use nix::errno::Errno;
use nix::libc::{self, sock_filter, sock_fprog};
use nix::sys::socket::{
    ControlMessage, MsgFlags, SetSockOpt, SockaddrStorage, sendmsg, setsockopt, sockopt,
};
use rustix::net::{
    MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg, sendmsg_addr, sendto,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::array::from_fn;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Bytes of datagrams that wait to be received, at most; less where the system allows less
/// (`net.core.rmem_max`) and we have no right to more.
const RECEIVE_BYTES: usize = 4 << 20;
/// The same for small replies that wait to leave (`net.core.wmem_max`).
const SEND_BYTES_SMALL: usize = 1 << 20;
/// And for large ones: a few trains. What lies in front of a device is in front of small replies,
/// too, where the device has one line for all; the kernel counts each byte about twice.
const SEND_BYTES_LARGE: usize = 256 << 10;

/// Longest arrival: the longest datagram.
const ARRIVAL_BYTES_MAX: usize = 65_535;
/// Where arrivals lie, one behind the other. Not a power of two, or the first lines of all
/// would share one set of the cache.
const STRIDE_BYTES: usize = 65_536 + 3 * 64;
const _: () = assert!(STRIDE_BYTES > ARRIVAL_BYTES_MAX);

/// Arrivals that a call makes ready for, at least, when there were few before.
const EXPECTED_MIN: usize = 4;

/// How often ports are looked for where the kernel is to choose the base.
const BASE_ATTEMPTS: usize = 64;

/// Where a server receives datagrams.
#[derive(Debug, Clone)]
pub struct Ports {
    /// Its addresses; every queue is at each of them.
    pub addresses: Vec<IpAddr>,
    /// How many workers there are.
    pub workers: usize,
    /// Port of worker 0's queue; 0: let the kernel choose one that has free ones behind it.
    pub base: Option<u16>,
    /// Port that all workers share; 0: let the kernel choose.
    pub ordinary: Option<u16>,
    /// Whether the kernel may join datagrams of one sender before they are received (`UDP_GRO`).
    /// It then joins them before programs at tc ingress, too, which are to see them one by one.
    pub join: bool,
}

/// An address that cannot be received on.
#[derive(Debug)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why not.
    pub error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot receive datagrams at {}: {}", self.address, self.error)
    }
}

impl std::error::Error for BindError {}

struct Pair {
    queue: Queue,
    small: Socket,
    large: Socket,
}

/// The sockets of all queues. Shared by all workers.
pub struct Sockets {
    pairs: Vec<Pair>,
}

impl Sockets {
    /// Receive at the given ports. Queues are numbered address by address, the chosen ones of an
    /// address in the order of their workers and then its ordinary ones.
    pub fn bind(ports: &Ports) -> Result<Sockets, BindError> {
        let mut pairs = Vec::new();
        // What the kernel chose at the first address holds for the others.
        let (mut base, mut ordinary) = (ports.base, ports.ordinary);
        for ip in &ports.addresses {
            if let Some(port) = base {
                let chosen = bind_chosen(*ip, port, ports)?;
                base = chosen.first().map(|pair| pair.queue.address.port());
                pairs.extend(chosen);
            }
            if let Some(port) = ordinary {
                let spread =
                    bind_group(SocketAddr::new(*ip, port), ports.workers, false, ports.join)?;
                ordinary = spread.first().map(|pair| pair.queue.address.port());
                pairs.extend(spread);
            }
        }
        Ok(Sockets { pairs })
    }

    /// The queues of so many workers each, from worker 0 on, whose workers count from 0 again.
    pub fn split(self, workers: &[usize]) -> Vec<Sockets> {
        let mut parts: Vec<Sockets> =
            workers.iter().map(|_| Sockets { pairs: Vec::new() }).collect();
        for mut pair in self.pairs {
            let mut first = 0;
            for (part, &count) in parts.iter_mut().zip(workers) {
                if (first..first + count).contains(&pair.queue.worker) {
                    pair.queue.worker -= first;
                    part.pairs.push(pair);
                    break;
                }
                first += count;
            }
        }
        parts
    }

    /// What the queues are.
    pub fn queues(&self) -> impl Iterator<Item = Queue> + '_ {
        self.pairs.iter().map(|pair| pair.queue)
    }

    /// The sockets that receive at the ordinary port, in the order of their workers. Where there
    /// are several addresses, those of each are a group of their own.
    pub fn ordinary(&self) -> Vec<BorrowedFd<'_>> {
        let shared = self.pairs.iter().filter(|pair| !pair.queue.chosen);
        shared.map(|pair| pair.small.as_fd()).collect()
    }

    /// The socket by which `queue` sends on `path`; that of [`Path::Small`] receives, too.
    pub(crate) fn socket(&self, queue: usize, path: Path) -> BorrowedFd<'_> {
        match path {
            Path::Small => self.pairs[queue].small.as_fd(),
            Path::Large => self.pairs[queue].large.as_fd(),
        }
    }
}

fn bind_chosen(ip: IpAddr, base: u16, ports: &Ports) -> Result<Vec<Pair>, BindError> {
    let workers = ports.workers;
    let at = |base: u16| -> Result<Vec<Pair>, BindError> {
        let mut pairs: Vec<Pair> = Vec::new();
        for worker in 0..workers {
            // The kernel's choice for the first decides the rest.
            let base = pairs.first().map_or(base, |pair| pair.queue.address.port());
            let beyond = || BindError {
                address: SocketAddr::new(ip, base),
                error: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{workers} queues from there on end beyond port 65535"),
                ),
            };
            let port = u16::try_from(usize::from(base) + worker * usize::from(base != 0));
            let address = SocketAddr::new(ip, port.map_err(|_| beyond())?);
            for mut pair in bind_group(address, 1, true, ports.join)? {
                pair.queue.worker = worker;
                pairs.push(pair);
            }
        }
        Ok(pairs)
    };
    let mut bound = at(base);
    for _ in 1..BASE_ATTEMPTS {
        match &bound {
            Err(_) if base == 0 => bound = at(base),
            _ => break,
        }
    }
    bound
}

/// `count` queues of one address, each with its sibling.
fn bind_group(
    address: SocketAddr,
    count: usize,
    chosen: bool,
    join: bool,
) -> Result<Vec<Pair>, BindError> {
    let bind = || -> io::Result<Vec<Pair>> {
        // Alone at first, so that an address in use is an error even where its holder would share.
        let first = socket(address, Path::Small)?;
        first.bind(&address.into())?;
        first.set_reuse_port(true)?;
        let bound = first.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
        let mut receiving = vec![first];
        for _ in 1..count {
            receiving.push(follow(bound, Path::Small)?);
        }
        // Behind those that receive: the filter counts sockets in the order they came.
        let siblings =
            (0..count).map(|_| follow(bound, Path::Large)).collect::<io::Result<Vec<Socket>>>()?;
        steer(&receiving[0], bound.is_ipv4(), count)?;
        for socket in &receiving {
            setsockopt(socket, sockopt::UdpGroSegment, &join)?;
        }
        let pair = |(worker, (small, large)): (usize, (Socket, Socket))| {
            let queue = Queue { worker, address: bound, chosen };
            Pair { queue, small, large }
        };
        Ok(receiving.into_iter().zip(siblings).enumerate().map(pair).collect())
    };
    bind().map_err(|error| BindError { address, error })
}

fn socket(address: SocketAddr, path: Path) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?; // the IPv4 wildcard gets queues of its own
    }
    let send_bytes = match path {
        Path::Small => SEND_BYTES_SMALL,
        Path::Large => SEND_BYTES_LARGE,
    };
    set_size(&socket, sockopt::RcvBufForce, sockopt::RcvBuf, RECEIVE_BYTES);
    set_size(&socket, sockopt::SndBufForce, sockopt::SndBuf, send_bytes);
    Ok(socket)
}

/// As near as we may: beyond the system's limit only with the right to.
fn set_size<F, A>(socket: &Socket, force: F, ask: A, bytes: usize)
where
    F: SetSockOpt<Val = usize>,
    A: SetSockOpt<Val = usize>,
{
    if setsockopt(socket, force, &bytes).is_err() {
        // The kernel cuts what is too much and refuses nothing.
        let _ = setsockopt(socket, ask, &bytes);
    }
}

fn follow(address: SocketAddr, path: Path) -> io::Result<Socket> {
    let socket = socket(address, path)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Have the first `count` sockets of the group receive, each its share of peers, and no other.
fn steer(socket: &Socket, ipv4: bool, count: usize) -> io::Result<()> {
    /// What a filter adds to offsets that count from the network header (`SKF_NET_OFF`).
    const NETWORK: u32 = libc::SKF_NET_OFF as u32;
    let (address_at, port_at) = if ipv4 { (12, 20) } else { (20, 40) };
    let line = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = if count == 1 {
        vec![line(libc::BPF_RET | libc::BPF_K, 0)]
    } else {
        vec![
            line(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, NETWORK + port_at),
            line(libc::BPF_MISC | libc::BPF_TAX, 0),
            line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NETWORK + address_at),
            line(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
            // Multiply by 2^32 over the golden ratio and take the middle: neighbours part.
            line(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, 0x9E37_79B1),
            line(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
            line(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count as u32),
            line(libc::BPF_RET | libc::BPF_A, 0),
        ]
    };
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    Ok(setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?)
}

#[derive(Clone, Copy)]
struct Received {
    peer: SocketAddr,
    bytes: usize,
    segment_bytes: usize,
}

/// One worker's handle on the sockets, with room for a burst.
pub struct UdpDatagrams {
    sockets: Arc<Sockets>,
    /// A burst of arrivals, [`STRIDE_BYTES`] apart. Pages that no arrival was long enough for are
    /// never touched.
    room: Vec<u8>,
    headers: Box<Headers>,
    received: [Received; BURST],
    count: usize,
    /// How many arrivals to make ready for: what the last poll that found any found, and as much
    /// again, but no more bytes than a burst's.
    expected: usize,
    failures: u64,
}

/// Failures after which one poll asks the kernel no more. One that a socket had pending is told
/// once, and what has come lies behind it. Behind so many it waits for the next arrival: no peer
/// causes them (sockets without IP_RECVERR are told of nobody's), and to go on asking would make a
/// failure that lasts a busy loop.
const FAILURES_PER_POLL: u64 = 4;

impl UdpDatagrams {
    /// A handle on all queues.
    pub fn new(sockets: Arc<Sockets>) -> UdpDatagrams {
        UdpDatagrams {
            sockets,
            room: vec![0; BURST * STRIDE_BYTES],
            headers: Headers::new(),
            received: [Received { peer: NOBODY, bytes: 0, segment_bytes: 1 }; BURST],
            count: 0,
            expected: EXPECTED_MIN,
            failures: 0,
        }
    }

    /// Receive at most `most` behind the `count` that are there.
    fn receive(&mut self, queue: usize, most: usize) -> Result<usize, Errno> {
        let socket = self.sockets.socket(queue, Path::Small);
        let room = &mut self.room[self.count * STRIDE_BYTES..];
        let count = self.headers.receive(socket, room, STRIDE_BYTES, most)?;
        for (at, place) in self.received[self.count..][..count].iter_mut().enumerate() {
            let Message { peer, bytes, segment_bytes } = self.headers.message(at);
            // From nowhere that could be answered: it is left empty, and counted as too short.
            let bytes = if peer.is_some() { bytes } else { 0 };
            // A control message that was cut off tells nothing: then it is one datagram.
            let segment_bytes = segment_bytes.unwrap_or(bytes).max(1);
            *place = Received { peer: peer.unwrap_or(NOBODY), bytes, segment_bytes };
        }
        self.count += count;
        Ok(count)
    }

    /// Receive until the burst is full or there is no more. Only a mistake of ours is an error;
    /// what else a kernel may answer is counted, and it is asked again.
    fn gather(
        &mut self,
        burst: usize,
        mut receive: impl FnMut(&mut Self, usize) -> Result<usize, Errno>,
    ) -> io::Result<usize> {
        self.count = 0;
        let burst = burst.min(BURST);
        let mut most = burst.min(self.expected);
        let mut failures = 0;
        while most > 0 && failures < FAILURES_PER_POLL {
            match receive(self, most) {
                // Fewer than asked for: there are no more.
                Ok(count) if count < most => break,
                Ok(_) => most = (burst - self.count).min(self.as_long_left()),
                Err(Errno::EAGAIN) => break,
                // Who is told once does not stop before the queue is empty.
                Err(Errno::EINTR) => {}
                Err(error @ (Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT)) => {
                    return Err(error.into());
                }
                Err(_) => failures += 1,
            }
        }
        self.failures += failures;
        if self.count > 0 {
            let as_long = BURST_BYTES.div_ceil(self.longest());
            self.expected = (2 * self.count).clamp(EXPECTED_MIN, BURST).min(as_long);
        }
        Ok(self.count)
    }

    /// Bytes of the longest arrival, at least 1.
    fn longest(&self) -> usize {
        self.received[..self.count].iter().map(|arrival| arrival.bytes).fold(1, usize::max)
    }

    /// How many more arrivals, if they are as long as the longest so far, reach [`BURST_BYTES`].
    fn as_long_left(&self) -> usize {
        let bytes: usize = self.received[..self.count].iter().map(|arrival| arrival.bytes).sum();
        BURST_BYTES.saturating_sub(bytes).div_ceil(self.longest())
    }
}

/// The sender of what came from no address.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Datagrams for UdpDatagrams {
    fn queues(&self) -> usize {
        self.sockets.pairs.len()
    }

    fn queue(&self, queue: usize) -> Queue {
        self.sockets.pairs[queue].queue
    }

    fn poll(&mut self, queue: usize, burst: usize) -> io::Result<usize> {
        self.gather(burst, |this, most| this.receive(queue, most))
    }

    fn take_failures(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    fn arrival(&self, index: usize) -> Arrival<'_> {
        let Received { peer, bytes, segment_bytes } = self.received[..self.count][index];
        let start = index * STRIDE_BYTES;
        Arrival { peer, segment_bytes, bytes: &self.room[start..start + bytes] }
    }

    fn send(&mut self, queue: usize, path: Path, departures: &[Departure<'_>]) -> io::Result<Sent> {
        let socket = self.sockets.socket(queue, path);
        let mut sent = Sent::default();
        while let Some(next) = departures.get(sent.done) {
            match send_alike(socket, &departures[sent.done..]) {
                Ok(count) => sent.done += count,
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => break,
                Err(Errno::EINTR) => {}
                Err(error @ (Errno::EBADF | Errno::ENOTSOCK | Errno::EFAULT)) => {
                    return Err(error.into());
                }
                Err(_) if next.segment_bytes.is_some() => {
                    let sent_whole = send_singly(next, |datagram| {
                        let mut control = SendAncillaryBuffer::default();
                        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                        let sent = sendmsg_addr(socket, &next.peer, datagram, &mut control, flags);
                        sent.map(|_| ()).map_err(|error| Errno::from_raw(error.raw_os_error()))
                    });
                    match sent_whole {
                        Ok(is_sent) => {
                            sent.refused += usize::from(!is_sent);
                            sent.done += 1;
                        }
                        Err(datagrams) => {
                            sent.datagrams_of_next = datagrams;
                            break;
                        }
                    }
                }
                Err(_) => {
                    sent.refused += 1;
                    sent.done += 1;
                }
            }
        }
        Ok(sent)
    }
}

/// Sends a train, or else as many single datagrams as there are in front of the next one, in one
/// call. At least one departure leaves, or the error is the first one's.
fn send_alike(socket: BorrowedFd<'_>, departures: &[Departure<'_>]) -> Result<usize, Errno> {
    let first = &departures[0];
    if let Some(segment_bytes) = first.segment_bytes {
        let control = [ControlMessage::UdpGsoSegments(&segment_bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let peer = SockaddrStorage::from(first.peer);
        sendmsg(socket.as_raw_fd(), first.pieces, &control, flags, Some(&peer))?;
        return Ok(1);
    }
    let single = departures.iter().take(BURST).take_while(|one| one.segment_bytes.is_none());
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = match (&departures[..single.count()], first.pieces) {
        ([one], [bytes]) => sendto(socket, bytes, flags, &one.peer).map(|_| 1),
        ([one], pieces) => {
            let mut control = SendAncillaryBuffer::default();
            sendmsg_addr(socket, &one.peer, pieces, &mut control, flags).map(|_| 1)
        }
        (several, _) => send_burst(socket, several, flags),
    };
    sent.map_err(|error| Errno::from_raw(error.raw_os_error()))
}

fn send_burst(
    socket: BorrowedFd<'_>,
    departures: &[Departure<'_>],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let peers: [Option<SocketAddrAny>; BURST] =
        from_fn(|at| departures.get(at).map(|departure| departure.peer.into()));
    let mut controls: [SendAncillaryBuffer<'_, '_, '_>; BURST] = from_fn(|_| Default::default());
    let mut control = controls.iter_mut();
    let mut messages: [MMsgHdr<'_>; BURST] = from_fn(|at| {
        let control = control.next().expect("there is one for each");
        match &peers[at] {
            Some(peer) => MMsgHdr::new_with_addr(peer, departures[at].pieces, control),
            None => MMsgHdr::new(&[], control),
        }
    });
    sendmmsg(socket, &mut messages[..departures.len()], flags)
}

/// Sends a train that the kernel does not cut on this way (a link that is too narrow, a device that
/// cannot), datagram by datagram, by `one`. Whether all of it left; if not, it never can. An error:
/// the send buffer was full behind so many.
fn send_singly(
    departure: &Departure<'_>,
    mut one: impl FnMut(&[IoSlice<'_>]) -> Result<(), Errno>,
) -> Result<bool, usize> {
    let sent = each_datagram(departure, |datagram| {
        loop {
            match one(datagram) {
                Err(Errno::EINTR) => {}
                sent => return sent,
            }
        }
    });
    match sent {
        Ok(()) => Ok(true),
        Err((datagrams, Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM)) => Err(datagrams),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_kernel_answers_to_a_receive_the_worker_goes_on_and_counts_it() {
        let ports = Ports {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            workers: 1,
            base: None,
            ordinary: Some(0),
            join: true,
        };
        let sockets = Arc::new(Sockets::bind(&ports).expect("loopback has a free port"));
        let mut datagrams = UdpDatagrams::new(sockets);
        let mut run = |answers: &[Result<usize, Errno>]| {
            let mut answers = answers.iter();
            let count = datagrams.gather(BURST, |this, _| {
                let answer = *answers.next().unwrap_or(&Err(Errno::EAGAIN));
                this.count += answer.unwrap_or(0);
                answer
            });
            (count.ok(), datagrams.take_failures(), answers.len())
        };
        for odd in [Errno::EIO, Errno::ENOMEM, Errno::ECONNREFUSED, Errno::EPERM] {
            assert_eq!(run(&[Err(odd), Ok(1)]), (Some(1), 1, 0), "{odd}: it is asked again");
        }
        assert_eq!(run(&[Err(Errno::EIO); 100]), (Some(0), 4, 96), "not for ever");
        assert_eq!(run(&[Err(Errno::EINTR), Ok(1)]), (Some(1), 0, 0));
        assert_eq!(run(&[Err(Errno::EBADF)]), (None, 0, 0), "this one would be our mistake");
    }

    #[test]
    fn a_train_cut_on_our_side_that_finds_the_buffer_full_says_how_far_it_came() {
        let pieces = [IoSlice::new(b"aaaabb"), IoSlice::new(b"bbcc")];
        let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let departure = Departure { peer, segment_bytes: Some(4), pieces: &pieces };
        let run = |answers: &[Result<(), Errno>]| {
            let (mut answers, mut left) = (answers.iter(), Vec::new());
            let came = send_singly(&departure, |pieces| {
                let answer = *answers.next().unwrap_or(&Ok(()));
                left.extend(pieces.iter().filter(|_| answer.is_ok()).map(|piece| piece.to_vec()));
                answer
            });
            (came, left.concat())
        };
        let all = b"aaaabbbbcc".to_vec();
        assert_eq!(run(&[]), (Ok(true), all.clone()));
        assert_eq!(run(&[Ok(()), Err(Errno::EINTR)]), (Ok(true), all));
        for full in [Errno::EAGAIN, Errno::ENOBUFS] {
            let came = (Err(1), b"aaaa".to_vec());
            assert_eq!(run(&[Ok(()), Err(full)]), came);
            assert_eq!(run(&[Err(full)]), (Err(0), Vec::new()));
        }
        let refused = (Ok(false), Vec::new());
        assert_eq!(run(&[Err(Errno::EHOSTUNREACH)]), refused);
    }
}
