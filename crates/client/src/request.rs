//! What can be asked, and how it is written.
//!
//! Every request knows whether it may be sent again without harm: [`Repeat`]. It knows no id, queue
//! or time.

use crate::error::Error;
use laneway_wire::limits::VALUE_BYTES_MAX;
use laneway_wire::print::put_request;
use laneway_wire::{
    Arith, Delete, Get, GetVerb, KEY_BYTES_MAX, Keys, Request as Line, Store, StoreVerb, Touch,
};
use std::fmt;
use std::sync::Arc;

/// From here on the protocol takes an exptime for a unix time.
const RELATIVE_SECONDS_MAX: u32 = 30 * 24 * 60 * 60;
/// Longest line of words after `stats`.
const WORDS_BYTES_MAX: usize = 200;

/// When an item ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// So many seconds from when the server reads it: 1 to 2 592 000 (thirty days).
    Seconds(u32),
    /// At this unix time, above 2 592 000.
    At(u32),
}

impl Expiry {
    fn exptime(self) -> Result<i64, Error> {
        match self {
            Expiry::Never => Ok(0),
            Expiry::Seconds(seconds @ 1..=RELATIVE_SECONDS_MAX) => Ok(seconds.into()),
            Expiry::At(time) if time > RELATIVE_SECONDS_MAX => Ok(time.into()),
            Expiry::Seconds(_) | Expiry::At(_) => Err(Error::BadExpiry),
        }
    }
}

/// Whether a request may be sent again when no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It changes nothing: again, under another id.
    Free,
    /// It changes something, and the server knows a repeated one by its id: again, under the same.
    /// Where the server does not ([`crate::Topology::is_extended`]) as [`Repeat::Never`].
    SameId,
    /// Twice is not once (`incr`, `append`, `cas`, ...): never.
    Never,
}

/// What to do with the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Get { with_cas: bool },
    Store(StoreVerb),
    Delete,
    Touch,
    Arith { increment: bool, delta: u64 },
    Stats,
}

/// Where the bytes of a value lie.
#[derive(Clone)]
enum Body {
    Owned(Vec<u8>),
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Owned(bytes) => bytes,
            Body::Shared(shared) => (**shared).as_ref(),
        }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Body {}

/// One request.
///
/// ```
/// use laneway_client::{Expiry, Request};
/// let request = Request::set("user:7", "Ada").flags(1).expiry(Expiry::Seconds(60));
/// assert_eq!(request.key(), b"user:7");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) command: Command,
    key: Vec<u8>,
    value: Body,
    flags: u32,
    expiry: Expiry,
}

impl fmt::Debug for Request {
    /// Tells how long the value is, not what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("command", &self.command)
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("value_bytes", &self.value.bytes().len())
            .field("flags", &self.flags)
            .field("expiry", &self.expiry)
            .finish()
    }
}

impl Request {
    fn new(command: Command, key: impl Into<Vec<u8>>, value: Vec<u8>) -> Request {
        let value = Body::Owned(value);
        Request { command, key: key.into(), value, flags: 0, expiry: Expiry::Never }
    }

    fn store(verb: StoreVerb, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::new(Command::Store(verb), key, value.into())
    }

    /// The value of `key`.
    pub fn get(key: impl Into<Vec<u8>>) -> Request {
        Request::new(Command::Get { with_cas: false }, key, Vec::new())
    }

    /// The value of `key` and its CAS id.
    pub fn gets(key: impl Into<Vec<u8>>) -> Request {
        Request::new(Command::Get { with_cas: true }, key, Vec::new())
    }

    /// Store, whatever was there.
    pub fn set(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::store(StoreVerb::Set, key, value)
    }

    /// Store if there is nothing. Never sent twice.
    pub fn add(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::store(StoreVerb::Add, key, value)
    }

    /// Store if there is something. Never sent twice.
    pub fn replace(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::store(StoreVerb::Replace, key, value)
    }

    /// Put behind the value that is there. Never sent twice.
    pub fn append(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::store(StoreVerb::Append, key, value)
    }

    /// Put before the value that is there. Never sent twice.
    pub fn prepend(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Request {
        Request::store(StoreVerb::Prepend, key, value)
    }

    /// Store if the CAS id is still the one that a [`Request::gets`] returned. Never sent twice.
    pub fn cas(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, id: u64) -> Request {
        Request::store(StoreVerb::Cas(id), key, value)
    }

    /// Delete.
    pub fn delete(key: impl Into<Vec<u8>>) -> Request {
        Request::new(Command::Delete, key, Vec::new())
    }

    /// Give the item another expiry.
    pub fn touch(key: impl Into<Vec<u8>>, expiry: Expiry) -> Request {
        Request::new(Command::Touch, key, Vec::new()).expiry(expiry)
    }

    /// Add to a number. Never sent twice.
    pub fn increment(key: impl Into<Vec<u8>>, delta: u64) -> Request {
        Request::new(Command::Arith { increment: true, delta }, key, Vec::new())
    }

    /// Subtract from a number, which stops at 0. Never sent twice.
    pub fn decrement(key: impl Into<Vec<u8>>, delta: u64) -> Request {
        Request::new(Command::Arith { increment: false, delta }, key, Vec::new())
    }

    /// Statistics: what stands behind `stats`, or nothing.
    pub fn stats(words: &str) -> Request {
        Request::new(Command::Stats, "", words.as_bytes().to_vec())
    }

    /// In place of the value that was given, bytes that somebody else has, too. They are read where
    /// they lie until the request is answered, and must stay as they are.
    pub fn shared(mut self, value: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Request {
        self.value = Body::Shared(value);
        self
    }

    /// The number that the server keeps beside a stored value and returns with it.
    pub fn flags(mut self, flags: u32) -> Request {
        self.flags = flags;
        self
    }

    /// When a stored item ends.
    pub fn expiry(mut self, expiry: Expiry) -> Request {
        self.expiry = expiry;
        self
    }

    /// The key; empty for `stats`.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether it may be sent again when no answer comes.
    pub fn repeat(&self) -> Repeat {
        match self.command {
            Command::Get { .. } | Command::Stats => Repeat::Free,
            Command::Store(StoreVerb::Set) | Command::Delete | Command::Touch => Repeat::SameId,
            Command::Store(_) | Command::Arith { .. } => Repeat::Never,
        }
    }

    /// Bytes it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.bytes().len()
    }

    /// What stands before the value, or what is wrong with the request.
    pub(crate) fn head(&self) -> Result<Vec<u8>, Error> {
        let mut head = Vec::with_capacity(self.key.len() + 48);
        if self.command == Command::Stats {
            let words = self.value.bytes();
            let control = words.iter().any(|byte| !(b' '..=b'~').contains(byte));
            if control || words.len() > WORDS_BYTES_MAX {
                return Err(Error::BadWords);
            }
            put_request(&mut head, &Line::Stats(words.trim_ascii()));
            return Ok(head);
        }
        check_key(&self.key)?;
        let (bytes, bytes_max) = (self.value.bytes().len(), VALUE_BYTES_MAX);
        if bytes > bytes_max {
            return Err(Error::RequestTooLong { bytes, bytes_max });
        }
        put_request(&mut head, &self.line(self.expiry.exptime()?));
        Ok(head)
    }

    /// The value, and what stands behind it.
    pub(crate) fn body(&self) -> (&[u8], &'static [u8]) {
        match self.command {
            Command::Store(_) => (self.value.bytes(), b"\r\n"),
            _ => (b"", b""),
        }
    }

    fn line(&self, exptime: i64) -> Line<'_> {
        let key = self.key.as_slice();
        let noreply = false;
        match self.command {
            Command::Get { with_cas } => {
                let verb = if with_cas { GetVerb::Gets } else { GetVerb::Get };
                Line::Get(Get { verb, keys: Keys::new(key), exptime: 0 })
            }
            Command::Store(verb) => Line::Store(Store {
                verb,
                key,
                flags: self.flags,
                exptime,
                value_bytes: self.value.bytes().len(),
                noreply,
            }),
            Command::Delete => Line::Delete(Delete { key, noreply }),
            Command::Touch => Line::Touch(Touch { key, exptime, noreply }),
            Command::Arith { increment, delta } => {
                Line::Arith(Arith { increment, key, delta, noreply })
            }
            Command::Stats => Line::Stats(key),
        }
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    let plain = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    if (1..=KEY_BYTES_MAX).contains(&key.len()) && plain { Ok(()) } else { Err(Error::BadKey) }
}
