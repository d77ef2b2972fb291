//! A small blocking client: sends bytes, reads lines and counted bytes, never waits for ever.
//!
//! It does not parse for convenience: what it is given to expect is what must come.

use crate::random::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a reply may stay away before it counts as lost.
pub const REPLY_PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;
const LINE_BYTES_MAX: usize = 8 * 1024;

/// One connection.
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    lost: bool,
}

impl Client {
    /// Connects; replies may take [`REPLY_PATIENCE`].
    pub fn connect(address: SocketAddr) -> Result<Client, String> {
        let stream = TcpStream::connect_timeout(&address, REPLY_PATIENCE)
            .map_err(|e| format!("cannot connect to {address}: {e}"))?;
        let set = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(REPLY_PATIENCE)))
            .and_then(|()| stream.set_write_timeout(Some(REPLY_PATIENCE)));
        set.map_err(|e| format!("cannot set up a connection: {e}"))?;
        Ok(Client { stream, input: Vec::new(), start: 0, lost: false })
    }

    /// Sends everything.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sent = self.stream.write_all(bytes);
        self.lost |= sent.is_err();
        sent.map_err(|e| format!("sending failed: {e}"))
    }

    /// Whether the last error was that nothing more comes by this connection, and no wrong reply.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The next line without its `\r\n`.
    pub fn line(&mut self) -> Result<String, String> {
        let mut searched = 0;
        loop {
            let waiting = &self.input[self.start..];
            if let Some(at) = waiting[searched..].windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&waiting[..searched + at]).into_owned();
                self.start += searched + at + 2;
                return Ok(line);
            }
            if LINE_BYTES_MAX < waiting.len() {
                return Err("a reply line has no end".into());
            }
            searched = waiting.len().saturating_sub(1);
            self.fill()?;
        }
    }

    /// The next `length` bytes, which must be followed by `\r\n`, shown to `check`.
    pub fn body(&mut self, length: usize, check: impl FnOnce(&[u8]) -> bool) -> Result<(), String> {
        while self.input.len() - self.start < length + 2 {
            self.fill()?;
        }
        let bytes = &self.input[self.start..self.start + length + 2];
        let (value, end) = bytes.split_at(length);
        let good = end == b"\r\n" && check(value);
        self.start += length + 2;
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

    fn fill(&mut self) -> Result<(), String> {
        self.input.drain(..self.start);
        self.start = 0;
        let held = self.input.len();
        self.input.resize(held + READ_BYTES, 0);
        let got = self.stream.read(&mut self.input[held..]);
        self.input.truncate(held + got.as_ref().copied().unwrap_or(0));
        let interrupted = |e: &std::io::Error| e.kind() == std::io::ErrorKind::Interrupted;
        self.lost |= got.as_ref().map_or_else(|e| !interrupted(e), |bytes| *bytes == 0);
        match got {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(_) => Ok(()),
            Err(e) if interrupted(&e) => Ok(()),
            Err(e) => Err(format!("no reply: {e}")),
        }
    }
}

/// The number of this name among statistics.
pub fn number(stats: &[(String, String)], name: &str) -> Result<u64, String> {
    let found = stats.iter().find(|(found, _)| found == name);
    let number = found.and_then(|(_, value)| value.parse().ok());
    number.ok_or_else(|| format!("the statistics have no number {name}"))
}
