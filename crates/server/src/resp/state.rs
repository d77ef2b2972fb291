//! The state of a connection that speaks RESP, kept from one turn to the next; it moves with the
//! connection.

use crate::execute::redis::{Set, Watched};
use crate::execute::{Incoming, Spot};
use laneway_store::{Charge, Draft};
use laneway_wire::resp::reply::Version;
use laneway_wire::resp::{Scan, Skip};

/// Which protocol a connection speaks.
pub enum Dialect {
    /// Its first bytes tell.
    Undecided,
    /// memcached's text.
    Memcached,
    /// memcached's binary protocol.
    Binary,
    /// RESP.
    Resp(Box<Session>),
    /// One of these, once it has said who it is.
    Unproven(Box<Unproven>),
}

impl Dialect {
    /// RESP, from its beginning.
    pub fn resp() -> Dialect {
        Dialect::Resp(Box::default())
    }

    /// Whether it is known to be RESP.
    pub fn is_resp(&self) -> bool {
        match self {
            Dialect::Resp(_) => true,
            Dialect::Unproven(unproven) => matches!(unproven.spoken, Spoken::Resp(_)),
            Dialect::Undecided | Dialect::Memcached | Dialect::Binary => false,
        }
    }

    /// Whether it is known to be memcached's binary protocol.
    pub fn is_binary(&self) -> bool {
        match self {
            Dialect::Binary => true,
            Dialect::Unproven(unproven) => matches!(unproven.spoken, Spoken::Binary { .. }),
            Dialect::Undecided | Dialect::Memcached | Dialect::Resp(_) => false,
        }
    }
}

/// What a request asks that goes from one argument to the next.
pub enum Under {
    /// A command about several keys.
    Keys {
        /// Which.
        what: EachKey,
        /// Keys that are left.
        left: u32,
        /// What was counted.
        count: i64,
        /// Bytes of the request that are left: those of these keys.
        bytes: usize,
    },
    /// `MSET`: so many pairs are left.
    Pairs(u32),
    /// The rest of a request that is answered already.
    Skip(Skip),
}

/// Which command about several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EachKey {
    /// `MGET`
    Get,
    /// Those that count.
    Count(crate::execute::redis::Count),
}

/// What is done with a value once it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `SET`: options stand behind the value.
    Set,
    /// One of its older kin, which has said all before.
    Told(Set),
    /// `APPEND`, `SETRANGE`
    Join(Spot),
    /// One of several.
    Pair {
        /// Pairs behind this one.
        left: u32,
    },
}

/// A value that is on its way into its item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Storing {
    /// What it is for.
    pub verb: Verb,
    /// Arguments behind it.
    pub behind: u32,
}

/// Requests that wait for `EXEC`.
#[derive(Default)]
pub struct Transaction {
    /// As they came.
    pub bytes: Vec<u8>,
    /// How many.
    pub requests: u32,
    /// Of these, those that the limits of clients were charged for as they came.
    pub charged: u32,
    /// One of them was refused: all will be.
    pub is_broken: bool,
    /// Counts the bytes as bytes on their way in.
    pub charge: Option<Charge>,
}

/// Requests that come before the input: a transaction's, or one that was written in line.
#[derive(Default)]
pub struct Front {
    bytes: Vec<u8>,
    at: usize,
    /// Counts the bytes.
    _charge: Option<Charge>,
}

impl Front {
    /// These requests, whole.
    pub fn new(bytes: Vec<u8>, charge: Option<Charge>) -> Front {
        Front { bytes, at: 0, _charge: charge }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What is left of them.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// So many bytes were served.
    pub fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        if self.is_empty() {
            *self = Front::default();
        }
    }
}

impl Session {
    /// The value that was on its way is there, and what stands behind it was read.
    pub(crate) fn end_storing(&mut self) {
        (self.scan, self.storing) = (Scan::default(), None);
    }
}

/// What a connection keeps.
#[derive(Default)]
pub struct Session {
    /// The version of the protocol.
    pub version: Version,
    /// How far the request at the front of the input has been looked at, or what stands behind a
    /// value that is on its way.
    pub scan: Scan,
    /// Served before the input.
    pub front: Front,
    /// What is done with the value that is on its way.
    pub storing: Option<Storing>,
    /// The item of a long value that lies whole at the front, as far as it was copied there.
    pub filling: Option<Draft>,
    /// The same where the durable executor is given it.
    pub copying: Option<Box<Incoming>>,
    /// Behind `MULTI`.
    pub transaction: Option<Transaction>,
    /// Of the request at the front, bytes that were copied into that already.
    pub queued_bytes: usize,
    /// The beginning of the long request at the front, as far as it was copied for the durable
    /// executor.
    pub handing: Vec<u8>,
    /// Requests of transactions that are executed, or being, and that the limits of clients were
    /// charged for before.
    pub prepaid: u64,
    /// Keys that must not have changed when `EXEC` comes.
    pub watched: Vec<Watched>,
    /// Turns in which what is to change in one moment was tried in vain.
    pub turns: u32,
    /// What the client calls itself.
    pub name: Vec<u8>,
    /// How far a `RANDOMKEY` has come that has found nothing yet.
    pub seeking: Option<Seeking>,
}

/// A search for any key.
pub struct Seeking {
    /// Where it goes on: a point in the space of hashes, the domains' one behind the other.
    pub cursor: u64,
    /// Stretches that are left.
    pub left: usize,
}

/// A connection of a server with users, before it has said who it is ([`crate::auth::unproven`]).
pub struct Unproven {
    /// Which protocol it speaks.
    pub spoken: Spoken,
    /// Requests of it that were refused.
    pub refused: u32,
}

/// Which protocol such a connection speaks.
pub enum Spoken {
    /// Its first bytes tell.
    Undecided,
    /// memcached's text.
    Memcached,
    /// memcached's binary protocol.
    Binary {
        /// A mechanism of SASL has begun.
        begun: bool,
    },
    /// RESP.
    Resp(Box<Session>),
}

impl Unproven {
    /// Nothing has come yet.
    pub fn new(spoken: Spoken) -> Box<Unproven> {
        Box::new(Unproven { spoken, refused: 0 })
    }

    /// Where the binary protocol alone is spoken.
    pub fn binary() -> Box<Unproven> {
        Unproven::new(Spoken::Binary { begun: false })
    }

    /// Where RESP alone is spoken.
    pub fn resp() -> Box<Unproven> {
        Unproven::new(Spoken::Resp(Box::default()))
    }
}
