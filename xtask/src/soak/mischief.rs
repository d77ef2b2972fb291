//! Clients that misbehave, by seed. They expect nothing; the server must only survive them.
//!
//! Each kind is one way in which a client has been seen to hurt a server. Sockets that are left
//! open on purpose are parked, and the oldest is dropped for each new one, so that a run holds a
//! bounded number. None sends `flush_all` or `shutdown`: that would harm the others by right.

use super::mix;
use super::stage::{MISDEEDS, Stage};
use crate::random;
use fastrand::Rng;
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
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
    act: fn(&mut Culprit) -> std::io::Result<()>,
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
    /// One of the server's UDP ports, if it has any.
    udp_port: Option<u16>,
    id: u64,
    random: Rng,
    parked: VecDeque<TcpStream>,
    /// Whether this misdeed has reached the server.
    reached: Cell<bool>,
}

/// Misbehaves until the soak is over.
pub fn misbehave(stage: &Stage, seed: u64, id: u64) {
    let random = random::stream(seed, id);
    let (parked, reached, address) = (VecDeque::new(), Cell::new(false), stage.address);
    let mut culprit = Culprit { address, udp_port: None, id, random, parked, reached };
    let mut turn = 0;
    while !stage.scene.is_over() {
        // The first round does each kind once, so that no short run leaves one out.
        let kind = match turn < KINDS.len() {
            true => (turn + id as usize) % KINDS.len(),
            false => culprit.random.usize(..KINDS.len()),
        };
        culprit.udp_port = stage.udp_port(&mut culprit.random);
        // The server may well close on such a client: that is its right, and no error here.
        let _ = (KINDS[kind].act)(&mut culprit);
        // One that never reached the server was none: it may be between two lives.
        if culprit.reached.replace(false) {
            stage.seen.misdeeds[kind].fetch_add(1, Relaxed);
            turn = (turn + 1).min(KINDS.len());
        }
        std::thread::sleep(PAUSE);
    }
}

impl Culprit {
    fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        self.reached.set(true);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn park(&mut self, stream: TcpStream) {
        self.parked.push_back(stream);
        if PARKED_MAX < self.parked.len() {
            self.parked.pop_front();
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes);
        bytes
    }

    fn garbage(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let length = self.random.usize(1..4096);
        let bytes = self.bytes(length);
        stream.write_all(&bytes)?;
        stream.write_all(b"\r\n")?;
        stream.read(&mut [0; 4096]).map(|_| ())
    }

    fn half_open(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let begun: [&[u8]; 4] = [b"", b"g", b"get soak-", b"set half 0 0 100000\r\nabc"];
        stream.write_all(begun[self.random.usize(..begun.len())])?;
        self.park(stream);
        Ok(())
    }

    /// Asks many times for a large value and reads none of it, or a little.
    fn stop_reading(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let length = mix::LARGE_BYTES_MAX;
        let key = format!("mischief-{}", self.id);
        write!(stream, "set {key} 0 0 {length} noreply\r\n")?;
        let body = self.bytes(length);
        stream.write_all(&body)?;
        stream.write_all(b"\r\n")?;
        for _ in 0..self.random.usize(1..30) {
            write!(stream, "get {key}\r\n")?;
        }
        let read = self.random.usize(..64 * 1024);
        let _ = stream.read(&mut vec![0; read]);
        self.park(stream);
        Ok(())
    }

    fn vanish_in_body(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let length = mix::large_length(&mut self.random);
        write!(stream, "set mischief-{} 0 0 {length}\r\n", self.id)?;
        let sent = self.random.usize(..length);
        let body = self.bytes(sent);
        stream.write_all(&body)
    }

    fn endless_line(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let words: [&[u8]; 3] = [b"x", b"get ", b"set k "];
        stream.write_all(words[self.random.usize(..words.len())])?;
        let bytes = vec![b'a'; LINE_WITHOUT_END_BYTES];
        stream.write_all(&bytes)?;
        self.park(stream);
        Ok(())
    }

    fn churn(&mut self) -> std::io::Result<()> {
        for _ in 0..CHURN_CONNECTIONS {
            let mut stream = self.connect()?;
            if random::chance(&mut self.random, 5_000) {
                stream.write_all(b"version\r\n")?;
            }
        }
        Ok(())
    }

    fn huge_length(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let lengths = ["1073741824", "2147483647", "4294967296", "18446744073709551615", "-1"];
        let length = lengths[self.random.usize(..lengths.len())];
        let commands = [
            format!("set mischief-{} 0 0 {length}\r\n", self.id),
            format!("ms mischief-{} {length}\r\n", self.id),
            format!("append mischief-{} 0 0 {length}\r\n", self.id),
        ];
        stream.write_all(commands[self.random.usize(..commands.len())].as_bytes())?;
        let sent = self.random.usize(..100_000);
        let body = self.bytes(sent);
        stream.write_all(&body)?;
        self.park(stream);
        Ok(())
    }

    /// Thousands of requests before the first reply is read, if ever.
    fn flood(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let lines = [
            "get mischief-small\r\n",
            "mn\r\n",
            "version\r\n",
            "set mischief-small 0 0 1\r\nx\r\n",
        ];
        let line = lines[self.random.usize(..lines.len())];
        stream.write_all(line.repeat(FLOOD_REQUESTS).as_bytes())?;
        if random::chance(&mut self.random, 5_000) {
            let _ = stream.read(&mut vec![0; 1 << 20]);
        }
        Ok(())
    }

    fn malformed(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
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
        for _ in 0..self.random.usize(1..100) {
            stream.write_all(lines[self.random.usize(..lines.len())].as_bytes())?;
        }
        stream.read(&mut [0; 4096]).map(|_| ())
    }

    /// Longer or shorter than declared, so that what follows is read as something else.
    fn wrong_body(&mut self) -> std::io::Result<()> {
        let mut stream = self.connect()?;
        let declared = self.random.usize(..3_000);
        let sent = self.random.usize(..3_000);
        write!(stream, "set mischief-{} 0 0 {declared}\r\n", self.id)?;
        let body = vec![b'z'; sent];
        stream.write_all(&body)?;
        stream.write_all(b"\r\nversion\r\n")?;
        stream.read(&mut [0; 4096]).map(|_| ())
    }

    /// Broken frames: no header, frames of messages that never end, bodies that are no requests.
    fn garbage_datagrams(&mut self) -> std::io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let Some(port) = self.udp_port else { return Ok(()) };
        for _ in 0..DATAGRAMS {
            let length = self.random.usize(..DATAGRAM_BYTES_MAX);
            let mut bytes = self.bytes(length);
            // Half of them have a header that could be one: frame 0 of one, or of some.
            if UDP_HEADER_BYTES <= length && random::chance(&mut self.random, 5_000) {
                let frames = self.random.usize(1..4) as u8;
                bytes[2..UDP_HEADER_BYTES].copy_from_slice(&[0, 0, 0, frames, 0, 0]);
            }
            let sent = socket.send_to(&bytes, (Ipv4Addr::LOCALHOST, port));
            self.reached.set(sent.is_ok());
        }
        Ok(())
    }
}
