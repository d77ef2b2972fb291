//! One client's socket, and what it asks both servers: the same requests, in the same packets. What
//! comes back must be the same from both, to the byte, or nothing from both.

use crate::frame::Frame;
use crate::kinds::{self, About, Hook, Kind, Tally};
use crate::raw::Raw;
use crate::requests::{Random, Stored, is_plain, line, reply_to};
use crate::site::{LANE, PORTS, Site};
use laneway_wire::udp::{HEADER_BYTES, Header, Kind as Mark};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::mem::take;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Requests of a batch, beside a train of equal ones.
const BATCH: usize = 16;
const TRAIN: usize = 8;
/// What leaves by another queue may come later than what was asked for behind it.
const REMEMBERED: usize = 256;
/// Replies whose length is near the lane's bound are left to other tests.
const NEAR: Range<usize> = 1300..1520;
/// How often a value of the flow's own is written anew.
const WRITE_EVERY: u64 = 8;
/// A server believes an address for ten minutes.
const BELIEVED: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A packet counts as lost, as one in some 100 000 is between such cards, when a later one has been
/// answered and nothing more has come for so long. So a machine that is slow loses nothing.
const LOST_AFTER: Duration = Duration::from_secs(2);
const RECEIVE_BYTES: usize = 4 << 20;

/// One request, and what either server sent back for it.
struct Ask {
    id: u16,
    kind: Kind,
    text: Vec<u8>,
    is_answered: bool,
    /// It was sent again, so that replies may come twice.
    is_repeated: bool,
    replies: [Vec<Vec<u8>>; 2],
}

impl Ask {
    fn is_settled(&self) -> bool {
        let [one, other] = &self.replies;
        one == other && !(self.is_answered && one.is_empty())
    }
}

pub struct Flow<'a> {
    site: &'a Site,
    raw: &'a Raw,
    to: [SocketAddr; 2],
    hook: Hook,
    from: IpAddr,
    is_served: bool,
    socket: UdpSocket,
    port: u16,
    stored: Stored,
    random: Random,
    next_id: u16,
    batches: u64,
    /// What each server wants to hear of this address, and when it last did.
    cookies: [Vec<u8>; 2],
    proved: Instant,
    current: Vec<Ask>,
    previous: Vec<Ask>,
    tally: Tally,
}

impl<'a> Flow<'a> {
    pub fn new(
        site: &'a Site,
        raw: &'a Raw,
        (to, hook): ([SocketAddr; 2], Hook),
        (from, is_served): (IpAddr, bool),
        stored: &Stored,
        seed: u64,
    ) -> Flow<'a> {
        let socket = site.client.socket(&SocketAddr::new(from, 0).to_string());
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BYTES).expect("root may");
        socket.set_read_timeout(Some(LOOK_AGAIN)).expect("a time-out");
        let port = socket.local_addr().expect("it is bound").port();
        let mut flow = Flow {
            site,
            raw,
            to,
            hook,
            from,
            is_served,
            socket,
            port,
            stored: stored.clone(),
            random: Random(seed),
            next_id: 0,
            batches: 0,
            cookies: [Vec::new(), Vec::new()],
            proved: Instant::now(),
            current: Vec::new(),
            previous: Vec::new(),
            tally: Tally::default(),
        };
        flow.cookies = [0, 1].map(|at| flow.ask_for_cookie(at));
        flow.prove();
        flow
    }

    /// A long reply to a stranger is a cookie instead.
    fn ask_for_cookie(&mut self, at: usize) -> Vec<u8> {
        let (key, _) = self.stored.iter().max_by_key(|(_, (value, _))| value.len()).expect("items");
        let request = [&Header::whole(0).to_bytes()[..], b"gets ", key, b"\r\n"].concat();
        self.socket.send_to(&request, self.to[at]).expect("sent");
        let began = Instant::now();
        let mut bytes = [0; 2048];
        loop {
            assert!(began.elapsed() < self.site.patience, "no cookie from {}", self.to[at]);
            let Ok((length, _)) = self.socket.recv_from(&mut bytes) else { continue };
            let (header, payload) = Header::parse(&bytes[..length]).expect("a header");
            assert_eq!(header.kind, Mark::Cookie, "{}", payload.escape_ascii());
            return payload.to_vec();
        }
    }

    fn prove(&mut self) {
        let header = Header { kind: Mark::Cookie, ..Header::whole(0) };
        for (to, cookie) in self.to.iter().zip(&self.cookies) {
            let echo = [&header.to_bytes()[..], cookie].concat();
            self.socket.send_to(&echo, to).expect("sent");
        }
        // A number that no piece of a message has.
        self.tally.add(Tally { packets: 1, frame: 1, ..Tally::default() });
        self.proved = Instant::now();
    }

    /// What was counted since the last time.
    pub fn tally(&mut self) -> Tally {
        take(&mut self.tally)
    }

    /// A batch of requests to both, and its replies. With `spoilt` their headers are broken, and
    /// nobody foresees what the lane's program counts.
    pub fn batch(&mut self, spoilt: bool) {
        if self.proved.elapsed() > BELIEVED {
            self.prove();
        }
        if self.batches.is_multiple_of(WRITE_EVERY) {
            self.write();
        }
        self.batches += 1;
        for _ in 0..BATCH {
            let (text, is_sure) = self.text();
            let about = self.about(&text);
            let kind = match spoilt {
                true => Kind::Spoilt(self.random.below(1 << 30) as u64),
                false => Kind::draw(&mut self.random, &about),
            };
            self.ask(kind, text, is_sure);
        }
        self.train();
        self.last();
        self.settle();
    }

    /// What is left when nothing is asked any more.
    pub fn end(&mut self) {
        for _ in 0..2 {
            self.last();
            self.settle();
        }
    }

    /// A request that only the servers answer: by then they have seen all before it.
    fn last(&mut self) {
        self.ask(Kind::Socket, b"mn\r\n".to_vec(), true);
    }

    /// Another value of a key that nobody else asks for; it is there before anything else is sent.
    fn write(&mut self) {
        let key = format!("own-{}", self.port);
        let length = self.random.below(1000);
        let value = vec![b'a' + (length % 26) as u8; length];
        let set = format!("set {key} 0 0 {length}\r\n");
        self.ask(Kind::Socket, [set.as_bytes(), &value, b"\r\n"].concat(), true);
        self.wait();
        self.stored.insert(key.into_bytes(), (value, 0));
    }

    /// Equal requests in one call: what follows each other so is what a card joins.
    fn train(&mut self) {
        let key = self.key();
        let text = [b"get ", &key[..], b"\r\n"].concat();
        let ids: Vec<u16> = (0..TRAIN).map(|_| self.put(Kind::Socket, &text, true)).collect();
        let segment = (HEADER_BYTES + text.len()) as i32;
        setsockopt(&self.socket, sockopt::UdpGsoSegment, &segment).expect("UDP_SEGMENT");
        let one = |id: &u16| [&Header::whole(*id).to_bytes()[..], &text].concat();
        let all: Vec<u8> = ids.iter().flat_map(one).collect();
        for to in self.to {
            self.socket.send_to(&all, to).expect("sent");
        }
        setsockopt(&self.socket, sockopt::UdpGsoSegment, &0).expect("as before");
        for id in ids {
            self.count(Kind::Socket, &text, id);
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let at = self.random.below(self.stored.len());
        self.stored.keys().nth(at).expect("as many").clone()
    }

    /// A request, and whether the servers answer it whatever else they do.
    fn text(&mut self) -> (Vec<u8>, bool) {
        if self.random.one_in(2) {
            let key = self.key();
            return match self.random.one_in(2) {
                true => ([b"get ", &key[..], b"\r\n"].concat(), true),
                false => ([b"mg ", &key[..], b" v s k f\r\n"].concat(), true),
            };
        }
        let keys: Vec<&[u8]> = self.stored.keys().map(Vec::as_slice).collect();
        loop {
            let text = line(&mut self.random, &keys);
            let reply = reply_to(&text, &self.stored);
            if is_comparable(&text) && reply.is_none_or(|reply| !NEAR.contains(&reply.len())) {
                return (text, false);
            }
        }
    }

    fn about(&self, text: &[u8]) -> About {
        let reply = reply_to(text, &self.stored);
        let is_hit = reply.is_some_and(|reply| reply.len() < NEAR.start && is_taken(text));
        let (hook, is_v6, is_served) = (self.hook, self.from.is_ipv6(), self.is_served);
        About { hook, is_v6, is_served, is_hit, text_bytes: text.len() }
    }

    fn frame(&self, at: usize, text: &[u8], id: u16) -> Frame {
        let (to, port) = (self.to[at].ip(), PORTS[at]);
        Frame { source: self.from, to, port, head: [id, 0, 1, 0], text: text.to_vec() }
    }

    /// One request to both.
    fn ask(&mut self, kind: Kind, text: Vec<u8>, is_sure: bool) {
        let special = (kind == Kind::Ambiguous)
            .then(|| kinds::ambiguous_id(&self.frame(LANE, &text, 0), self.port))
            .flatten()
            .filter(|id| !self.is_used(*id));
        let kind = if kind == Kind::Ambiguous && special.is_none() { Kind::Whole } else { kind };
        if let Some(id) = special {
            self.next_id = id;
        }
        let id = self.put(kind, &text, is_sure);
        for at in [0, 1] {
            self.send(at, kind, &text, id);
        }
        self.count(kind, &text, id);
    }

    fn send(&self, at: usize, kind: Kind, text: &[u8], id: u16) {
        if kind == Kind::Socket {
            let datagram = [&Header::whole(id).to_bytes()[..], text].concat();
            self.socket.send_to(&datagram, self.to[at]).expect("sent");
            return;
        }
        for frame in kinds::pack(kind, &self.frame(at, text, id), self.port, &self.site.link) {
            self.raw.send(&frame);
        }
    }

    /// What only one of them has answered, to the other again. That one answers what it should not
    /// is not mended so.
    fn repeat(&mut self) {
        let (mut current, mut previous) = (take(&mut self.current), take(&mut self.previous));
        for ask in current.iter_mut().chain(&mut previous).filter(|ask| !ask.is_settled()) {
            let heard = [0, 1].map(|at| ask.replies[at].len());
            for at in [0, 1] {
                if heard[at] < heard[1 - at] || (heard == [0, 0] && ask.is_answered) {
                    self.send(at, ask.kind, &ask.text, ask.id);
                    ask.is_repeated = true;
                    self.tally.repeated += 1;
                }
            }
        }
        (self.current, self.previous) = (current, previous);
    }

    /// Remember a request; its id.
    fn put(&mut self, kind: Kind, text: &[u8], is_sure: bool) -> u16 {
        while self.is_used(self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let is_answered = is_sure && kind.is_answered(self.from.is_ipv6(), self.site.has_vlan);
        let (id, text, replies) = (self.next_id, text.to_vec(), [Vec::new(), Vec::new()]);
        self.current.push(Ask { id, kind, text, is_answered, is_repeated: false, replies });
        id
    }

    fn is_used(&self, id: u16) -> bool {
        self.current.iter().chain(&self.previous).any(|ask| ask.id == id)
    }

    fn count(&mut self, kind: Kind, text: &[u8], id: u16) {
        let frame = self.frame(LANE, text, id);
        self.tally.add(kind.tally(&self.about(text), &frame, self.port));
    }

    /// Until both have sent the same.
    fn settle(&mut self) {
        self.wait();
        self.previous.append(&mut self.current);
        let excess = self.previous.len().saturating_sub(REMEMBERED);
        self.previous.drain(..excess);
    }

    fn wait(&mut self) {
        let began = Instant::now();
        let (mut bytes, mut heard) = ([0; 2048], began);
        while !self.is_settled() {
            if heard.elapsed() > LOST_AFTER {
                if self.current.last().is_some_and(Ask::is_settled) {
                    self.repeat();
                }
                self.last();
                heard = Instant::now();
            }
            assert!(began.elapsed() < self.site.patience, "{}", self.told());
            match self.socket.recv_from(&mut bytes) {
                Ok((length, from)) => {
                    self.hear(&bytes[..length], from);
                    heard = Instant::now();
                }
                Err(why) if is_nothing(&why) => {}
                Err(why) => panic!("receiving: {why}"),
            }
        }
    }

    fn is_settled(&self) -> bool {
        let last = self.current.last();
        last.is_some_and(Ask::is_settled)
            && self.current.iter().chain(&self.previous).all(Ask::is_settled)
    }

    fn hear(&mut self, bytes: &[u8], from: SocketAddr) {
        let at = self.to.iter().position(|to| *to == from);
        let at = at.unwrap_or_else(|| panic!("{from} was asked nothing"));
        let (header, _) = Header::parse(bytes).expect("a header");
        let mut asked = self.current.iter_mut().chain(&mut self.previous);
        let Some(ask) = asked.find(|ask| ask.id == header.request_id) else {
            panic!("{from} answers what was not asked lately: {}", bytes.escape_ascii());
        };
        ask.replies[at].push(bytes.to_vec());
        ask.replies[at].sort_unstable();
        if ask.is_repeated {
            ask.replies[at].dedup();
        }
    }

    /// What they do not agree about.
    fn told(&self) -> String {
        let mut told = format!("{} of {:?} at {:?}:", self.from, self.site.card, self.hook);
        let asked = self.current.iter().chain(&self.previous);
        for ask in asked.filter(|ask| !ask.is_settled()).take(4) {
            let (kind, text) = (ask.kind, ask.text.escape_ascii());
            told.push_str(&format!("\n{kind:?} id {} {text}", ask.id));
            for (at, name) in ["the lane's server", "the other"].iter().enumerate() {
                let replies: Vec<_> =
                    ask.replies[at].iter().map(|reply| reply.escape_ascii().to_string()).collect();
                told.push_str(&format!("\n  {name}: {replies:?}"));
            }
        }
        told
    }
}

fn is_nothing(why: &std::io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Whether two servers with the same items answer it alike: it changes nothing, and asks for
/// nothing that each counts for itself (unique numbers, times).
fn is_comparable(text: &[u8]) -> bool {
    let its_own: [&[u8]; 4] = [b"gets", b"me ", b"md ", b"gat"];
    let mut flags = text.split(|byte| b" \r\n".contains(byte)).skip(2);
    let is_meta = text.starts_with(b"mg");
    let counts = |flag: &[u8]| flag.first().is_some_and(|flag| b"chlN".contains(flag));
    let is_its_own = its_own.iter().any(|start| text.starts_with(start));
    !(is_its_own || is_meta && flags.any(counts))
}

/// Whether the lane's program takes a request that has a reply. Behind the last flag of `mg` it
/// lets a space pass.
fn is_taken(text: &[u8]) -> bool {
    let line = text.strip_suffix(b"\r\n").filter(|line| line.starts_with(b"mg "));
    let Some(line) = line else { return is_plain(text) };
    is_plain(&[line.strip_suffix(b" ").unwrap_or(line), b"\r\n"].concat())
}
