//! RESP for tests: requests written, and where a reply ends, by a way of its own.

use super::{Rig, hit, peer};
use laneway_transport::memory::Client;

/// What a test speaks: facts of the lanes hold for memcached's text and for RESP alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    Text,
    Resp,
}

impl Speech {
    pub const BOTH: [Speech; 2] = [Speech::Text, Speech::Resp];

    /// The request that stores a value.
    pub fn storing(self, key: &str, value: &[u8]) -> Vec<u8> {
        match self {
            Speech::Text => peer::set(key, value),
            Speech::Resp => request(&[b"SET", key.as_bytes(), value]),
        }
    }

    /// The reply to it.
    pub fn stored(self) -> &'static [u8] {
        match self {
            Speech::Text => b"STORED\r\n",
            Speech::Resp => b"+OK\r\n",
        }
    }

    /// Store a value.
    pub fn set(self, rig: &mut Rig, client: &Client, key: &str, value: &[u8]) {
        let told = rig.ask(client, &self.storing(key, value), b"\r\n");
        assert_eq!(told, self.stored());
    }

    /// The request of one key.
    pub fn get(self, key: &str) -> Vec<u8> {
        match self {
            Speech::Text => format!("get {key}\r\n").into_bytes(),
            Speech::Resp => request(&[b"GET", key.as_bytes()]),
        }
    }

    /// The whole reply to it.
    pub fn hit(self, key: &str, value: &[u8]) -> Vec<u8> {
        match self {
            Speech::Text => [&hit(key, value)[..], b"END\r\n"].concat(),
            Speech::Resp => bulk(value),
        }
    }

    /// The same where there is no such key.
    pub fn miss(self) -> &'static [u8] {
        match self {
            Speech::Text => b"END\r\n",
            Speech::Resp => b"$-1\r\n",
        }
    }

    /// A request that does nothing, and its reply.
    pub fn ping(self) -> (Vec<u8>, &'static [u8]) {
        match self {
            Speech::Text => (b"mn\r\n".to_vec(), b"MN\r\n"),
            Speech::Resp => (words("PING"), b"+PONG\r\n"),
        }
    }
}

/// A request.
pub fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend(bulk(arg));
    }
    bytes
}

/// The same of words, cut at spaces.
pub fn words(line: &str) -> Vec<u8> {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    request(&args)
}

/// A value as a reply has it.
pub fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// How long the reply at the front is; `None` if it is not whole.
///
/// # Panics
/// If it is none.
pub fn reply_bytes(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let text = std::str::from_utf8(&bytes[1..head - 2]).unwrap_or_default();
    let number = || text.parse::<i64>().unwrap_or_else(|_| panic!("no length: {text:?}"));
    match bytes[0] {
        b'+' | b'-' | b':' | b'_' => Some(head),
        b'$' | b'=' if number() < 0 => Some(head),
        b'$' | b'=' => {
            let end = head + number() as usize + 2;
            let whole = bytes.get(..end)?;
            assert!(whole.ends_with(b"\r\n"), "a bulk string has no end");
            Some(end)
        }
        kind @ (b'*' | b'%' | b'~') => {
            let replies = number().max(0) * if kind == b'%' { 2 } else { 1 };
            let mut at = head;
            for _ in 0..replies {
                at += reply_bytes(&bytes[at..])?;
            }
            Some(at)
        }
        kind => panic!("no reply begins with {:?}: {}", kind as char, super::tail(bytes)),
    }
}

/// Whether so many replies are there, and nothing behind them.
pub fn are_replies(bytes: &[u8], count: usize) -> bool {
    let mut at = 0;
    for _ in 0..count {
        match reply_bytes(&bytes[at..]) {
            Some(length) => at += length,
            None => return false,
        }
    }
    assert_eq!(at, bytes.len(), "more than {count} replies: {}", super::tail(bytes));
    true
}

impl Rig {
    /// Send requests and return their replies, which are so many.
    pub fn ask_resp(&mut self, client: &Client, requests: &[u8], count: usize) -> Vec<u8> {
        let back = self.send(client, requests);
        self.until(client, back, |got| are_replies(got, count))
    }

    /// A request of words, and its reply.
    pub fn say_resp(&mut self, client: &Client, line: &str) -> String {
        let reply = self.ask_resp(client, &words(line), 1);
        String::from_utf8_lossy(&reply).into_owned()
    }
}
