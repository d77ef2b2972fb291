//! A small server that does what docs/protocol.md says of UDP, over any kind of datagrams: it puts
//! requests together, asks for what it misses, answers a repeated request from memory, keeps its
//! replies for those who miss frames of them. And a network to put it on.

use crate::mix::{MILLISECOND, SECOND};
use laneway_transport::datagram::{Datagrams, Departure, Path};
use laneway_transport::memory_datagram::MemoryDatagrams;
use laneway_wire::udp::frames::{TRAIN_FRAMES_MAX, frames, put_train};
use laneway_wire::udp::reassembly::{Bounds, Reassembly, Refused, Taken};
use laneway_wire::udp::resend::{gaps, put_resend};
use laneway_wire::udp::retain::{self, Retained};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, HEADER_BYTES, Header, Kind};
use laneway_wire::{Frame, GetVerb, Request, StoreVerb, parse};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;

/// How long the server waits for the rest of a request before it asks.
const PATIENCE_NANOS: u64 = 5 * MILLISECOND;

type Key = (SocketAddr, u16);

struct Item {
    value: Vec<u8>,
    flags: u32,
    cas: u64,
}

/// What the server did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub executed: u64,
    pub repeats: u64,
    pub resends_asked: u64,
    pub frames_resent: u64,
    pub forgets: u64,
}

pub struct Server {
    datagrams: MemoryDatagrams,
    items: BTreeMap<Vec<u8>, Item>,
    requests: Reassembly<Key>,
    /// Which queue the frames of a request come to.
    queues: BTreeMap<Key, usize>,
    replies: Retained<Key, Vec<u8>>,
    topology: String,
    cas: u64,
    pub counts: Counts,
}

impl Server {
    pub fn new(datagrams: MemoryDatagrams, topology: &str) -> Server {
        let bounds = Bounds {
            messages_max: 1000,
            bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            idle_nanos_max: 2 * SECOND,
            stale_nanos_max: 10 * SECOND,
        };
        let kept = retain::Bounds {
            entries_max: 50_000,
            bytes_max: 256 << 20,
            age_nanos_max: 10 * SECOND,
        };
        Server {
            datagrams,
            items: BTreeMap::new(),
            requests: Reassembly::new(bounds),
            queues: BTreeMap::new(),
            replies: Retained::new(kept),
            topology: topology.to_owned(),
            cas: 0,
            counts: Counts::default(),
        }
    }

    /// Serves what has come.
    pub fn step(&mut self, now_nanos: u64) {
        for queue in 0..self.datagrams.queues() {
            loop {
                let count = self.datagrams.poll(queue, 32).expect("memory does not fail");
                let mut came = Vec::new();
                for index in 0..count {
                    let arrival = self.datagrams.arrival(index);
                    came.extend(arrival.datagrams().map(|bytes| (arrival.peer, bytes.to_vec())));
                }
                if count == 0 {
                    break;
                }
                for (peer, datagram) in &came {
                    self.datagram(queue, *peer, datagram, now_nanos);
                }
            }
        }
        let mut asks = Vec::new();
        self.requests.overdue(now_nanos, PATIENCE_NANOS, |key, overdue| {
            let mut datagram = Vec::new();
            put_resend(&mut datagram, key.1, overdue.total, overdue.gaps);
            asks.push((*key, datagram));
        });
        for (key, datagram) in asks {
            self.counts.resends_asked += 1;
            let queue = self.queues[&key];
            self.send(queue, key.0, &datagram);
        }
    }

    fn datagram(&mut self, queue: usize, peer: SocketAddr, datagram: &[u8], now_nanos: u64) {
        let (header, payload) = Header::parse(datagram).expect("the client sends headers");
        let key = (peer, header.request_id);
        match header.kind {
            Kind::Data | Kind::Once if header.is_whole() => {
                let request = parse(payload, &Default::default());
                let read = matches!(request, Ok(Some(Frame { request: Request::Get(_), .. })));
                assert_eq!(header.kind == Kind::Data, read, "what changes something is marked");
                self.request(queue, key, payload, now_nanos);
            }
            Kind::Data => {
                self.queues.insert(key, queue);
                match self.requests.take(key, header, payload, now_nanos) {
                    Taken::Whole(whole) => {
                        self.request(queue, key, &whole.into_vec(), now_nanos);
                    }
                    Taken::Refused(Refused::Stale) => self.repeat(queue, key, now_nanos),
                    Taken::More | Taken::Refused(_) => {}
                }
            }
            Kind::Resend => {
                let Some(reply) = self.replies.get(&key, now_nanos).cloned() else { return };
                let asked = gaps(payload, header.total).flat_map(|gap| gap.sequences());
                let asked: Vec<u16> = asked.map(|sequence| sequence as u16).collect();
                self.counts.frames_resent += asked.len() as u64;
                self.reply(queue, key, &reply, asked.into_iter());
            }
            Kind::Forget => {
                self.counts.forgets += 1;
                self.replies.forget(&key);
            }
            other => panic!("the client sent a frame of kind {other:?}"),
        }
    }

    /// A request that is known already: a short reply again, and nothing else.
    fn repeat(&mut self, queue: usize, key: Key, now_nanos: u64) {
        self.counts.repeats += 1;
        if let Some(reply) = self.replies.get(&key, now_nanos).cloned()
            && frames(reply.len()) == Some(1)
        {
            self.reply(queue, key, &reply, 0..1);
        }
    }

    fn request(&mut self, queue: usize, key: Key, bytes: &[u8], now_nanos: u64) {
        if self.replies.get(&key, now_nanos).is_some() {
            return self.repeat(queue, key, now_nanos);
        }
        self.counts.executed += 1;
        let reply = self.execute(bytes);
        let total = frames(reply.len()).expect("values are short enough");
        self.replies.keep(key, reply.clone(), reply.len(), now_nanos);
        self.reply(queue, key, &reply, 0..total);
    }

    fn execute(&mut self, bytes: &[u8]) -> Vec<u8> {
        let limits = laneway_wire::Limits { item_bytes_max: 1 << 30, ..Default::default() };
        let frame = parse(bytes, &limits).expect("the client writes requests").expect("whole ones");
        let body = &bytes[frame.head_bytes..];
        let missing = b"NOT_FOUND\r\n".to_vec();
        match frame.request {
            Request::Get(get) => {
                let mut out = Vec::new();
                for key in get.keys {
                    let Some(item) = self.items.get(key) else { continue };
                    let key = String::from_utf8_lossy(key);
                    let length = item.value.len();
                    out.extend(format!("VALUE {key} {} {length}", item.flags).bytes());
                    if get.verb == GetVerb::Gets {
                        out.extend(format!(" {}", item.cas).bytes());
                    }
                    out.extend([b"\r\n", &item.value[..], b"\r\n"].concat());
                }
                [&out[..], b"END\r\n"].concat()
            }
            Request::Store(store) => {
                assert_eq!(body.len(), store.value_bytes + 2, "the length is the value's");
                assert!(body.ends_with(b"\r\n"));
                let old = self.items.get(store.key);
                match (store.verb, old) {
                    (StoreVerb::Add, Some(_)) => return b"NOT_STORED\r\n".to_vec(),
                    (StoreVerb::Cas(_), None) => return missing,
                    (StoreVerb::Cas(id), Some(item)) if item.cas != id => {
                        return b"EXISTS\r\n".to_vec();
                    }
                    _ => {}
                }
                self.cas += 1;
                let value = body[..store.value_bytes].to_vec();
                let item = Item { value, flags: store.flags, cas: self.cas };
                self.items.insert(store.key.to_vec(), item);
                b"STORED\r\n".to_vec()
            }
            Request::Delete(delete) => match self.items.remove(delete.key) {
                Some(_) => b"DELETED\r\n".to_vec(),
                None => missing,
            },
            Request::Touch(touch) if self.items.contains_key(touch.key) => b"TOUCHED\r\n".to_vec(),
            Request::Arith(arith) => match self.items.get_mut(arith.key) {
                Some(item) => {
                    let text = String::from_utf8_lossy(&item.value);
                    let number = text.parse::<u64>().expect("a number") + arith.delta;
                    item.value = number.to_string().into_bytes();
                    format!("{number}\r\n").into_bytes()
                }
                None => missing,
            },
            Request::Stats(b"topology") => self.topology.clone().into_bytes(),
            _ => missing,
        }
    }

    fn reply(
        &mut self,
        queue: usize,
        key: Key,
        reply: &[u8],
        mut sequences: impl Iterator<Item = u16>,
    ) {
        loop {
            let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES_MAX];
            let mut train = Vec::new();
            let put = |slice: &[u8]| train.extend_from_slice(slice);
            if put_train(key.1, reply, &mut sequences, &mut headers, put) == 0 {
                return;
            }
            self.send(queue, key.0, &train);
        }
    }

    fn send(&mut self, queue: usize, peer: SocketAddr, bytes: &[u8]) {
        let pieces = [IoSlice::new(bytes)];
        let segment_bytes = Some(DATAGRAM_BYTES_MAX as u16);
        let departure = Departure { peer, segment_bytes, pieces: &pieces };
        let sent = self.datagrams.send(queue, Path::Small, &[departure]);
        assert_eq!(sent.expect("memory does not fail").done, 1);
    }
}
