//! The UDP ports of a scripted server: memcached's frames over the values of its TCP side, one
//! request at a time, and whatever a network or a server can do wrong with datagrams.

use crate::scripted::{Shared, answer};
use laneway_wire::udp::{FRAME_BYTES_MAX, Gap, Header, Kind};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// Every n-th datagram of replies is not sent.
    Loses(u64),
    /// Every datagram is sent twice, those of a reply in reverse order.
    TwiceInReverse,
    /// Replies come from another port.
    AnotherPort,
    /// Each GET is answered when the next one has come.
    HoldsEachBack,
    /// The first frame of a large SET is dropped the first time, and asked for again.
    AsksAgain,
    /// Frames too short, of impossible numbers and of unknown kinds stand before each reply.
    Rubbish,
    /// Nothing is answered.
    Silent,
}

/// Opens ports from the returned one on, `queues` of them; requests to each are counted.
pub fn serve_udp(
    shared: &Arc<Shared>,
    queues: u16,
    trouble: Trouble,
) -> (u16, Arc<Vec<AtomicU64>>) {
    let sockets = neighbours(queues);
    let port = sockets[0].local_addr().expect("bound").port();
    let counts = Arc::new((0..queues).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    for (queue, socket) in sockets.into_iter().enumerate() {
        let (shared, counts) = (Arc::clone(shared), Arc::clone(&counts));
        std::thread::spawn(move || {
            let mut server = Server::new(socket, shared, trouble);
            loop {
                let Some((peer, id, request)) = server.receive() else { continue };
                // Before the reply, after which the client may look. A count with no data behind
                // it: the sockets order it.
                counts[queue].fetch_add(1, Ordering::Relaxed);
                let reply = answer(&mut &request[..], &server.shared).expect("a request");
                server.answer(peer, id, reply);
            }
        });
    }
    (port, counts)
}

/// Sockets on consecutive ports.
fn neighbours(queues: u16) -> Vec<UdpSocket> {
    loop {
        let first = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = first.local_addr().expect("bound").port();
        let others =
            (1..queues).map(|queue| UdpSocket::bind(("127.0.0.1", port.checked_add(queue)?)).ok());
        if let Some(others) = others.collect::<Option<Vec<_>>>() {
            return std::iter::once(first).chain(others).collect();
        }
    }
}

struct Server {
    socket: UdpSocket,
    other: UdpSocket,
    shared: Arc<Shared>,
    trouble: Trouble,
    datagrams: u64,
    held: Option<(SocketAddr, u16, Vec<u8>)>,
    /// Frames of requests that are not whole.
    parts: HashMap<(SocketAddr, u16), HashMap<u16, Vec<u8>>>,
    asked: Vec<u16>,
}

impl Server {
    fn new(socket: UdpSocket, shared: Arc<Shared>, trouble: Trouble) -> Self {
        let other = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let (parts, asked) = (HashMap::new(), Vec::new());
        Server { socket, other, shared, trouble, datagrams: 0, held: None, parts, asked }
    }

    /// Takes a datagram; a request, if it is the last of one.
    fn receive(&mut self) -> Option<(SocketAddr, u16, Vec<u8>)> {
        let mut datagram = [0; 2_048];
        let (bytes, peer) = loop {
            match self.socket.recv_from(&mut datagram) {
                // The process was halted and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.expect("a datagram"),
            }
        };
        let (header, payload) = Header::parse(&datagram[..bytes]).expect("a header");
        assert_eq!(header.kind, Kind::Data);
        let is_first = header.total > 1 && header.sequence == 0;
        if self.trouble == Trouble::AsksAgain
            && is_first
            && !self.asked.contains(&header.request_id)
        {
            self.asked.push(header.request_id);
            let ask = Header { kind: Kind::Resend, ..header };
            let mut datagram = ask.to_bytes().to_vec();
            datagram.extend_from_slice(&Gap { first: 0, count: 1 }.to_bytes());
            self.socket.send_to(&datagram, peer).expect("sent");
            return None;
        }
        let parts = self.parts.entry((peer, header.request_id)).or_default();
        parts.insert(header.sequence, payload.to_vec());
        if parts.len() < usize::from(header.total) {
            return None;
        }
        let parts = self.parts.remove(&(peer, header.request_id)).expect("just there");
        let request = (0..header.total).flat_map(|sequence| parts[&sequence].clone()).collect();
        Some((peer, header.request_id, request))
    }

    fn answer(&mut self, peer: SocketAddr, id: u16, reply: Vec<u8>) {
        match self.trouble {
            Trouble::Silent => {}
            Trouble::HoldsEachBack => {
                if let Some((peer, id, reply)) = self.held.replace((peer, id, reply)) {
                    self.send(peer, id, &reply);
                }
            }
            Trouble::Rubbish => {
                let strange = Header { kind: Kind::Unknown(7), ..Header::whole(id) }.to_bytes();
                let beyond = Header { sequence: 3, ..Header::whole(id) }.to_bytes();
                for rubbish in [&b"short"[..], &strange, &beyond] {
                    self.socket.send_to(rubbish, peer).expect("sent");
                }
                self.send(peer, id, &reply);
            }
            _ => self.send(peer, id, &reply),
        }
    }

    fn send(&mut self, peer: SocketAddr, id: u16, reply: &[u8]) {
        let total = reply.len().div_ceil(FRAME_BYTES_MAX) as u16;
        let frames = reply.chunks(FRAME_BYTES_MAX).zip(0..).map(|(payload, sequence)| {
            let header = Header { request_id: id, sequence, total, kind: Kind::Data };
            [&header.to_bytes()[..], payload].concat()
        });
        let mut frames: Vec<Vec<u8>> = frames.collect();
        if self.trouble == Trouble::TwiceInReverse {
            frames = frames.into_iter().rev().flat_map(|frame| [frame.clone(), frame]).collect();
        }
        for frame in frames {
            self.datagrams += 1;
            if matches!(self.trouble, Trouble::Loses(nth) if self.datagrams.is_multiple_of(nth)) {
                continue;
            }
            let elsewhere = self.trouble == Trouble::AnotherPort;
            let socket = if elsewhere { &self.other } else { &self.socket };
            socket.send_to(&frame, peer).expect("sent");
        }
    }
}
