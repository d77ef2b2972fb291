//! memcached's binary protocol for tests: requests written, and replies read.

use super::Rig;
use laneway_transport::memory::Client;
use laneway_wire::binary::answer::parse_reply;
use laneway_wire::binary::print::{echo, put_parts};
use laneway_wire::binary::{Echo, Opcode};

/// A request: opcode, extras, key and value; its opaque number is 0, and so is its id.
pub fn request(opcode: Opcode, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    with(echo(opcode, false, 0), 0, (extras, key, value))
}

/// A request of any parts.
pub fn with(echo: Echo, cas: u64, parts: (&[u8], &[u8], &[u8])) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_parts(&mut bytes, echo, cas, parts);
    bytes
}

/// A value is stored.
pub fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    request(Opcode::Set, &[0; 8], key, value)
}

/// A value is asked for.
pub fn get(key: &[u8]) -> Vec<u8> {
    request(Opcode::Get, b"", key, b"")
}

/// Nothing is asked.
pub fn noop() -> Vec<u8> {
    request(Opcode::Noop, b"", b"", b"")
}

/// A reply, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What it repeats.
    pub echo: Echo,
    /// Its status.
    pub status: u16,
    /// The item's id.
    pub cas: u64,
    /// Numbers.
    pub extras: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The value, or the words of an error.
    pub value: Vec<u8>,
}

/// The whole replies at the front, and how many bytes they are.
///
/// # Panics
/// If something else stands there.
pub fn replies(bytes: &[u8]) -> (Vec<Told>, usize) {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let reply = parse_reply(&bytes[at..]);
        let reply = reply.unwrap_or_else(|_| panic!("no reply: {}", super::tail(&bytes[at..])));
        let Some(reply) = reply else { return (all, at) };
        at += reply.bytes;
        all.push(Told {
            echo: reply.echo,
            status: reply.status,
            cas: reply.cas,
            extras: reply.extras.to_vec(),
            key: reply.key.to_vec(),
            value: reply.value.to_vec(),
        });
    }
}

impl Rig {
    /// Send requests and return their replies, which are so many.
    pub fn ask_binary(&mut self, client: &Client, requests: &[u8], count: usize) -> Vec<Told> {
        let back = self.send(client, requests);
        let got = self.until(client, back, |got| replies(got).0.len() >= count);
        let (told, bytes) = replies(&got);
        assert_eq!((told.len(), bytes), (count, got.len()), "more: {}", super::tail(&got));
        told
    }

    /// A request that has one reply.
    pub fn say_binary(&mut self, client: &Client, request: &[u8]) -> Told {
        self.ask_binary(client, request, 1).remove(0)
    }
}
