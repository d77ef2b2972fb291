//! Clients that misbehave, by seed. They expect nothing; the server must only survive them.
//!
//! Each kind is one way in which a client has been seen to hurt a server. Sockets that are left
//! open on purpose are parked, and the oldest is dropped for each new one, so that a run holds a
//! bounded number. None sends `flush_all` or `shutdown`: that would harm the others by right.

use super::mix;
use super::stage::{MISDEEDS, Stage};
use crate::client::{Client, number};
use crate::random;
use fastrand::Rng;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::RangeBounds;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Parked sockets per client.
const PARKED_MAX: usize = 24;
/// A misdeed never waits longer than this for the server to take or give something.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two misdeeds: the others shall be heard too.
const PAUSE: Duration = Duration::from_millis(20);
const LINE_WITHOUT_END_BYTES: usize = 2 << 20;
const FLOOD_REQUESTS: usize = 20_000;
const CHURN_CONNECTIONS: usize = 20;
const DATAGRAMS: usize = 50;
const DATAGRAM_BYTES_MAX: usize = 1_500;
/// Id, frame, frames, and a number that is reserved, two bytes each.
const UDP_HEADER_BYTES: usize = 8;

/// A way to misbehave.
pub struct Kind {
    /// For the report.
    pub name: &'static str,
    act: fn(&mut Culprit) -> io::Result<()>,
}

/// All the ways.
pub const KINDS: [Kind; MISDEEDS] = [
    Kind { name: "garbage", act: Culprit::garbage },
    Kind { name: "half-open connection", act: Culprit::half_open },
    Kind { name: "stops reading", act: Culprit::stop_reading },
    Kind { name: "vanishes in a SET body", act: Culprit::vanish_in_body },
    Kind { name: "2 MB line without end", act: Culprit::endless_line },
    Kind { name: "connection churn", act: Culprit::churn },
    Kind { name: "huge declared length", act: Culprit::huge_length },
    Kind { name: "pipelined flood", act: Culprit::flood },
    Kind { name: "malformed commands", act: Culprit::malformed },
    Kind { name: "body of a wrong length", act: Culprit::wrong_body },
    Kind { name: "garbage datagrams", act: Culprit::garbage_datagrams },
];

struct Culprit {
    address: SocketAddr,
    id: u64,
    random: Rng,
    parked: VecDeque<TcpStream>,
    /// Whether this misdeed has reached the server.
    reached: bool,
}

/// Misbehaves until the soak is over.
pub fn misbehave(stage: &Stage, seed: u64, id: u64) {
    let random = random::stream(seed, id);
    let (parked, reached, address) = (VecDeque::new(), false, stage.address);
    let mut culprit = Culprit { address, id, random, parked, reached };
    let mut turn = 0;
    while !stage.scene.is_over() {
        // The first round does each kind once, so that no short run leaves one out.
        let kind = match turn < KINDS.len() {
            true => (turn + id as usize) % KINDS.len(),
            false => culprit.random.usize(..KINDS.len()),
        };
        // The server may well close on such a client: that is its right, and no error here.
        let _ = (KINDS[kind].act)(&mut culprit);
        // One that never reached the server was none: it may be between two lives.
        if std::mem::take(&mut culprit.reached) {
            stage.seen.misdeeds[kind].fetch_add(1, Relaxed);
            turn = (turn + 1).min(KINDS.len());
        }
        std::thread::sleep(PAUSE);
    }
}

/// What becomes of a connection once a misdeed is sent.
enum Then {
    /// The client hears what comes, so many bytes at most, and leaves.
    Hear(usize),
    /// It leaves at once.
    Leave,
    /// It stays, and hears nothing.
    Park,
}
use Then::{Hear, Leave, Park};

impl Culprit {
    /// Sends these bytes on a connection of their own.
    fn send(&mut self, bytes: &[u8], then: Then) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        self.reached = true;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        match then {
            Hear(most) => return stream.read(&mut vec![0; most]).map(|_| ()),
            Leave => {}
            Park => {
                self.parked.push_back(stream);
                if PARKED_MAX < self.parked.len() {
                    self.parked.pop_front();
                }
            }
        }
        Ok(())
    }

    /// These lines, and behind them so many bytes of garbage.
    fn with_garbage(&mut self, lines: &str, length: impl RangeBounds<usize>) -> Vec<u8> {
        let mut bytes = vec![0; self.random.usize(length)];
        self.random.fill(&mut bytes);
        [lines.as_bytes(), &bytes].concat()
    }

    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.random.usize(..choices.len())]
    }

    fn garbage(&mut self) -> io::Result<()> {
        let bytes = self.with_garbage("", 1..4096);
        self.send(&[&bytes[..], b"\r\n"].concat(), Hear(4096))
    }

    fn half_open(&mut self) -> io::Result<()> {
        let begun = self.one_of(&["", "g", "get soak-", "set half 0 0 100000\r\nabc"]);
        self.send(begun.as_bytes(), Park)
    }

    /// Asks many times for a large value and reads nothing of it.
    fn stop_reading(&mut self) -> io::Result<()> {
        let (key, length) = (format!("mischief-{}", self.id), mix::LARGE_BYTES_MAX);
        let mut bytes =
            self.with_garbage(&format!("set {key} 0 0 {length} noreply\r\n"), length..=length);
        let gets = format!("get {key}\r\n").repeat(self.random.usize(1..30));
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(gets.as_bytes());
        self.send(&bytes, Park)
    }

    fn vanish_in_body(&mut self) -> io::Result<()> {
        let length = mix::large_length(&mut self.random);
        let line = format!("set mischief-{} 0 0 {length}\r\n", self.id);
        let bytes = self.with_garbage(&line, ..length);
        self.send(&bytes, Leave)
    }

    fn endless_line(&mut self) -> io::Result<()> {
        let begun = self.one_of(&["x", "get ", "set k "]);
        self.send((begun.to_owned() + &"a".repeat(LINE_WITHOUT_END_BYTES)).as_bytes(), Park)
    }

    fn churn(&mut self) -> io::Result<()> {
        for _ in 0..CHURN_CONNECTIONS {
            let line = self.one_of(&["", "version\r\n"]);
            self.send(line.as_bytes(), Leave)?;
        }
        Ok(())
    }

    fn huge_length(&mut self) -> io::Result<()> {
        let lengths = ["1073741824", "2147483647", "4294967296", "18446744073709551615", "-1"];
        let (id, length) = (self.id, self.one_of(&lengths));
        let commands = [
            format!("set mischief-{id} 0 0 {length}\r\n"),
            format!("ms mischief-{id} {length}\r\n"),
            format!("append mischief-{id} 0 0 {length}\r\n"),
        ];
        let line = self.one_of(&commands.each_ref().map(String::as_str)).to_owned();
        let bytes = self.with_garbage(&line, ..100_000);
        self.send(&bytes, Park)
    }

    /// Thousands of requests before the first reply is read, if ever.
    fn flood(&mut self) -> io::Result<()> {
        let lines = [
            "get mischief-small\r\n",
            "mn\r\n",
            "version\r\n",
            "set mischief-small 0 0 1\r\nx\r\n",
        ];
        let bytes = self.one_of(&lines).repeat(FLOOD_REQUESTS);
        let hears = random::chance(&mut self.random, 5_000);
        self.send(bytes.as_bytes(), if hears { Hear(1 << 20) } else { Leave })
    }

    fn malformed(&mut self) -> io::Result<()> {
        let long = format!("get {}\r\n", "k".repeat(251));
        let lines = [
            "get\r\n",
            "set a b c d\r\n",
            "set k 0 0\r\n",
            "incr k notanumber\r\n",
            "cas k 0 0 1\r\nx\r\n",
            "mg\r\n",
            "mg k notaflag!\r\n",
            "ms k S10\r\n",
            "touch k\r\n",
            "delete\r\n",
            "stats nothing\r\n",
            "verbosity\r\n",
            "\r\n\r\n\r\n",
            long.as_str(),
        ];
        let count = self.random.usize(1..100);
        let bytes: String = (0..count).map(|_| self.one_of(&lines)).collect();
        self.send(bytes.as_bytes(), Hear(4096))
    }

    /// Longer or shorter than declared, so that what follows is read as something else.
    fn wrong_body(&mut self) -> io::Result<()> {
        let (declared, sent) = (self.random.usize(..3_000), self.random.usize(..3_000));
        let (id, body) = (self.id, "z".repeat(sent));
        let bytes = format!("set mischief-{id} 0 0 {declared}\r\n{body}\r\nversion\r\n");
        self.send(bytes.as_bytes(), Hear(4096))
    }

    /// One of the server's UDP ports, if it serves and has any.
    fn udp_port(&mut self) -> Option<u16> {
        let told = Client::connect(self.address).and_then(|mut client| client.stats("topology"));
        let told = told.ok()?;
        let (base, queues) = (number(&told, "udp_port_base").ok()?, number(&told, "queues").ok()?);
        let queue = (0 < queues && base != 0).then(|| self.random.u64(..queues))?;
        u16::try_from(base + queue).ok()
    }

    /// Broken frames: no header, frames of messages that never end, bodies that are no requests.
    fn garbage_datagrams(&mut self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let Some(port) = self.udp_port() else { return Ok(()) };
        for _ in 0..DATAGRAMS {
            let mut bytes = self.with_garbage("", ..DATAGRAM_BYTES_MAX);
            // Half of them have a header that could be one: frame 0 of one, or of some.
            if UDP_HEADER_BYTES <= bytes.len() && random::chance(&mut self.random, 5_000) {
                let frames = self.random.usize(1..4) as u8;
                bytes[2..UDP_HEADER_BYTES].copy_from_slice(&[0, 0, 0, frames, 0, 0]);
            }
            let sent = socket.send_to(&bytes, (Ipv4Addr::LOCALHOST, port));
            self.reached = sent.is_ok();
        }
        Ok(())
    }
}
