//! A client that speaks UDP frames on the memory network, as simple as can be.

use super::{Plan, Rig};
use laneway_policy::ItemBytes;
use laneway_server::jobs::handoff::{DatagramOrigin, Job, Origin};
use laneway_transport::memory_datagram::{DatagramFaults, MemoryClient};
use laneway_wire::udp::frames;
use laneway_wire::udp::reassembly::{Bounds, Reassembly, Taken};
use laneway_wire::udp::resend::put_resend;
use laneway_wire::udp::{FRAME_BYTES_MAX, Gap, Header, Kind, gaps};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

const BOUNDS: Bounds = Bounds {
    messages_max: 1000,
    bytes_max: 64 << 20,
    message_bytes_max: 32 << 20,
    idle_nanos_max: u64::MAX,
    stale_nanos_max: u64::MAX,
};

impl Plan {
    /// The same, with a queue of datagrams for each worker, on a network that loses nothing.
    pub fn with_datagrams(self) -> Plan {
        Plan { datagrams: Some(DatagramFaults::NONE), ..self }
    }
}

/// A request that came as a datagram into this queue, and that nobody has begun; its client is
/// gone.
pub fn orphan(queue: usize, request: &[u8]) -> Job {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let origin = DatagramOrigin { queue: queue as u16, peer, request_id: 0 };
    Job::request(request.to_vec(), ItemBytes(0), 0, Origin::Datagram(origin))
}

pub struct Peer {
    pub socket: MemoryClient,
    queues: Vec<SocketAddr>,
    /// Requests of many frames, in case frames are asked for again.
    sent: BTreeMap<u16, (usize, Vec<u8>)>,
    replies: Reassembly<u16>,
    totals: BTreeMap<u16, u16>,
    /// Whole messages, in the order in which they became whole.
    pub got: Vec<(u16, Vec<u8>)>,
    /// Datagrams that are no data.
    pub others: Vec<(Header, Vec<u8>)>,
    /// Frames asked for again by the server.
    pub asked: usize,
}

impl Peer {
    pub fn new(rig: &Rig) -> Peer {
        let net = rig.datagrams.as_ref().expect("the rig serves datagrams");
        let queues = (0..rig.workers.len()).map(|queue| {
            use laneway_transport::datagram::Datagrams;
            net.datagrams().queue(queue).address
        });
        Peer {
            socket: net.client(),
            queues: queues.collect(),
            sent: BTreeMap::new(),
            replies: Reassembly::new(BOUNDS),
            totals: BTreeMap::new(),
            got: Vec::new(),
            others: Vec::new(),
            asked: 0,
        }
    }

    /// Any bytes, as one datagram.
    pub fn raw(&self, queue: usize, bytes: &[u8]) {
        self.socket.send(self.queues[queue], bytes);
    }

    pub fn datagram(&self, queue: usize, header: Header, payload: &[u8]) {
        self.raw(queue, &[&header.to_bytes()[..], payload].concat());
    }

    /// A request of one datagram.
    pub fn small(&self, queue: usize, id: u16, request: &[u8]) {
        self.datagram(queue, Header::whole(id), request);
    }

    /// The datagrams of a request.
    pub fn frames(id: u16, request: &[u8]) -> Vec<(Header, Vec<u8>)> {
        let total = frames::frames(request.len()).expect("it is short enough");
        let frame = |(sequence, bytes): (usize, &[u8])| {
            let sequence = sequence as u16;
            (Header { request_id: id, sequence, total, kind: Kind::Data }, bytes.to_vec())
        };
        request.chunks(FRAME_BYTES_MAX).enumerate().map(frame).collect()
    }

    /// A request of any length.
    pub fn send(&mut self, queue: usize, id: u16, request: &[u8]) {
        for (header, payload) in Peer::frames(id, request) {
            self.datagram(queue, header, &payload);
        }
        self.remember(queue, id, request);
    }

    /// As if it had been sent: for the server to ask for.
    pub fn remember(&mut self, queue: usize, id: u16, request: &[u8]) {
        self.sent.insert(id, (queue, request.to_vec()));
    }

    /// Ask for frames of a reply.
    pub fn ask_again(&self, queue: usize, id: u16, total: u16, gaps: &[Gap]) {
        let mut datagram = Vec::new();
        put_resend(&mut datagram, id, total, gaps.iter().copied());
        self.raw(queue, &datagram);
    }

    /// Take in what has come; send again what the server asks for.
    pub fn receive(&mut self) {
        while let Some((_, bytes)) = self.socket.receive() {
            let (header, payload) = Header::parse(&bytes).expect("the server sends headers");
            match header.kind {
                Kind::Data if header.is_whole() => {
                    self.got.push((header.request_id, payload.to_vec()));
                }
                Kind::Data => {
                    self.totals.insert(header.request_id, header.total);
                    if let Taken::Whole(whole) =
                        self.replies.take(header.request_id, header, payload, 0)
                    {
                        self.got.push((header.request_id, whole.into_vec()));
                    }
                }
                Kind::Resend => {
                    let Some((queue, request)) = self.sent.get(&header.request_id) else {
                        continue;
                    };
                    let all = Peer::frames(header.request_id, request);
                    for gap in gaps(payload, header.total) {
                        for sequence in gap.sequences() {
                            let (header, payload) = &all[sequence as usize];
                            self.datagram(*queue, *header, payload);
                            self.asked += 1;
                        }
                    }
                }
                _ => self.others.push((header, payload.to_vec())),
            }
        }
    }

    /// Ask for what is missing of a reply under way; false if nothing of it came.
    pub fn ask_for_missing(&self, queue: usize, id: u16) -> bool {
        let gaps = self.replies.missing(&id);
        if let Some(total) = self.totals.get(&id).filter(|_| !gaps.is_empty()) {
            self.ask_again(queue, id, *total, &gaps);
        }
        !gaps.is_empty()
    }

    /// Turn until the reply to `id` is here, and take it.
    pub fn until(&mut self, rig: &mut Rig, id: u16) -> Vec<u8> {
        for _ in 0..20_000 {
            self.receive();
            if let Some(at) = self.got.iter().position(|(got, _)| *got == id) {
                return self.got.remove(at).1;
            }
            rig.turn();
        }
        panic!("no reply to request {id} in 20000 turns");
    }

    pub fn ask(&mut self, rig: &mut Rig, queue: usize, id: u16, request: &[u8]) -> Vec<u8> {
        self.send(queue, id, request);
        self.until(rig, id)
    }

    /// Turn a while, and return what came: request id and reply.
    pub fn all(&mut self, rig: &mut Rig) -> Vec<(u16, Vec<u8>)> {
        rig.turns(20);
        self.receive();
        std::mem::take(&mut self.got)
    }
}

/// A `set` request.
pub fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Sum of one count over all workers.
pub fn count(rig: &Rig, name: &str) -> u64 {
    let udp = rig.shared.udp.get().expect("the rig serves datagrams");
    let of = |worker: &laneway_server::udp::counts::UdpCounts| {
        let found = worker.each().find(|(counted, _)| *counted == name);
        found.unwrap_or_else(|| panic!("there is no count {name}")).1
    };
    udp.counts.iter().map(of).sum()
}
