//! A small blocking client: sends bytes, reads lines and counted bytes, never waits for ever.
//!
//! It does not parse for convenience: what it is given to expect is what must come.

use crate::{Value, place};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

const READ_BYTES: usize = 64 * 1024;
const LINE_BYTES_MAX: u64 = 8 * 1024;

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    lost: bool,
}

impl Client {
    /// Connects; a reply that stays away for longer than [`place::PATIENCE`] counts as lost.
    pub fn connect(address: SocketAddr) -> Result<Client, String> {
        let stream = place::connect(address)?;
        stream.set_nodelay(true).map_err(|e| format!("cannot set up a connection: {e}"))?;
        Ok(Client { stream: BufReader::with_capacity(READ_BYTES, stream), lost: false })
    }

    /// Sends everything.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.get_mut().write_all(bytes);
        self.lost |= sent.is_err();
        sent.map_err(|e| format!("sending failed: {e}"))
    }

    /// Whether the last error was that nothing more comes by this connection, and no wrong reply.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The next line without its `\r\n`.
    pub fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let read = self.stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let length = self.received(read)? as u64;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if length == LINE_BYTES_MAX || line.ends_with(b"\n") => {
                Err("a reply line has no end".into())
            }
            None => self.received(Err(ErrorKind::UnexpectedEof.into())),
        }
    }

    /// The next `length` bytes, which must be followed by `\r\n`, shown to `check`.
    pub fn body(&mut self, length: usize, check: impl FnOnce(&[u8]) -> bool) -> Result<(), String> {
        let mut bytes = vec![0; length + 2];
        let read = self.stream.read_exact(&mut bytes);
        self.received(read)?;
        let (value, end) = bytes.split_at(length);
        let good = end == b"\r\n" && check(value);
        good.then_some(())
            .ok_or_else(|| format!("a value of {length} bytes is not what was stored"))
    }

    /// Reads one line that must be `expected`.
    pub fn expect(&mut self, expected: &str) -> Result<(), String> {
        let line = self.line()?;
        if line == expected { Ok(()) } else { Err(format!("expected `{expected}`, got `{line}`")) }
    }

    /// Sends a `set` of this value, which expires after so many seconds, or never (0).
    pub fn send_set(&mut self, key: &str, seconds: u32, value: Value) -> Result<(), String> {
        let mut bytes = format!("set {key} 0 {seconds} {}\r\n", value.length).into_bytes();
        value.write(&mut bytes);
        bytes.extend_from_slice(b"\r\n");
        self.send(&bytes)
    }

    /// Stores this value for good.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        self.send_set(key, 0, value)?;
        self.expect("STORED")
    }

    /// Gets what must be this value.
    pub fn get(&mut self, key: &str, value: Value) -> Result<(), String> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        self.expect(&format!("VALUE {key} 0 {}", value.length))?;
        self.rest(value)
    }

    /// Stores this value and gets it.
    pub fn turn(&mut self, key: &str, value: Value) -> Result<(), String> {
        self.set(key, value)?;
        self.get(key, value)
    }

    /// What is behind the first line of the reply to a `get` of this value.
    pub fn rest(&mut self, value: Value) -> Result<(), String> {
        self.body(value.length, |bytes| value.is(bytes))?;
        self.expect("END")
    }

    /// The `STAT name value` lines of `stats FAMILY`.
    pub fn stats(&mut self, family: &str) -> Result<Vec<(String, String)>, String> {
        self.send(format!("stats {family}\r\n").replace(" \r", "\r").as_bytes())?;
        let mut found = Vec::new();
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(found);
            }
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), value) => {
                    found.push((name.into(), value.unwrap_or_default().into()));
                }
                _ => return Err(format!("`stats {family}` answers `{line}`")),
            }
        }
    }

    /// The number of this name in `stats FAMILY`.
    pub fn number(&mut self, family: &str, name: &str) -> Result<u64, String> {
        number(&self.stats(family)?, name)
    }

    /// What was read; after an error nothing more comes.
    fn received<T>(&mut self, read: std::io::Result<T>) -> Result<T, String> {
        self.lost |= read.is_err();
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => "the server closed the connection".into(),
            _ => format!("no reply: {error}"),
        })
    }
}

/// The number of this name among statistics.
pub fn number(stats: &[(String, String)], name: &str) -> Result<u64, String> {
    let found = stats.iter().find(|(found, _)| found == name);
    let number = found.and_then(|(_, value)| value.parse().ok());
    number.ok_or_else(|| format!("the statistics have no number {name}"))
}
