//! memcached's binary protocol: requests in, replies out, without copying a key or a value.
//!
//! A request is a header of [`HEADER_BYTES`] bytes, which says how long its extras (numbers of
//! fixed size), its key and its whole body are; then extras, key and value. So the size of a value
//! is known before the value arrives, and [`parse()`] asks for no more of a request than what
//! stands before its value. Numbers are big-endian.
//!
//! Most opcodes have a *quiet* twin, which is not answered where that would tell nothing: a hit of
//! another kind than a value, or the miss of a read. A failure is always told. Each reply repeats
//! the request's opcode and its *opaque* number ([`Echo`]).
//!
//! It departs from memcached 1.6.45 (`proto_bin.c`), each time where it would take bytes of one
//! request for another: what a request brings beyond what its opcode has is refused
//! ([`Broken::Arguments`]); the body of an unknown opcode is passed over exactly; and a header that
//! is refused is refused at once, not when its key is there.
//!
//! It knows no command's effect, no clock, no connection. Sizes are bytes.

pub mod answer;
mod opcode;
mod parse;
pub mod print;
pub mod reply;

pub use opcode::{Opcode, QUIET};
pub use parse::parse;

/// Bytes of the header of a request, and of a reply.
pub const HEADER_BYTES: usize = 24;

/// An `expiration` of [`Arith`] by which nothing is made where nothing is.
pub const NEVER_MADE: u32 = u32::MAX;

/// What of a request its reply repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Echo {
    /// The opcode as it was sent.
    pub opcode: u8,
    /// Four bytes for the client's own use.
    pub opaque: [u8; 4],
}

/// A request, but for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What its reply repeats.
    pub echo: Echo,
    /// What would tell nothing is not answered.
    pub quiet: bool,
    /// The id that the item must have; 0 for any.
    pub cas: u64,
    /// What is asked.
    pub request: Request<'a>,
    /// Bytes of header, extras and key.
    pub head_bytes: usize,
    /// Bytes of the value behind them.
    pub value_bytes: usize,
}

impl Frame<'_> {
    /// Bytes of all of the request.
    pub const fn bytes(&self) -> usize {
        self.head_bytes + self.value_bytes
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// A value.
    Get(Get<'a>),
    /// A value is stored.
    Store(Store<'a>),
    /// Bytes are put behind a value, or before it.
    Join {
        /// Before it.
        before: bool,
        /// The key.
        key: &'a [u8],
    },
    /// A number is changed.
    Arith(Arith<'a>),
    /// An item is deleted.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// An item's expiry is changed.
    Touch {
        /// The key.
        key: &'a [u8],
        /// The new one.
        expiration: u32,
    },
    /// Everything is deleted.
    Flush {
        /// When; at once if that is not said, or 0.
        delay: Option<u32>,
    },
    /// Nothing: its reply tells that all before it was served.
    Noop,
    /// The server's version.
    Version,
    /// The connection is to be closed.
    Quit,
    /// How much is logged.
    Verbosity {
        /// The level.
        level: u32,
    },
    /// Statistics.
    Stat {
        /// Of which kind; empty for the general ones.
        name: &'a [u8],
    },
    /// Which mechanisms of authentication there are.
    SaslList,
    /// Authentication; its value is the mechanism's.
    Sasl {
        /// It goes on, rather than begins.
        goes_on: bool,
        /// The mechanism.
        mechanism: &'a [u8],
    },
    /// An opcode that is none; all of its body counts as its value.
    Unknown,
}

/// A value is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Get<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The reply repeats the key.
    pub with_key: bool,
    /// The item's new expiry.
    pub touch: Option<u32>,
}

/// When a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// Always.
    Set,
    /// If there is no item.
    Add,
    /// If there is one.
    Replace,
}

/// A value is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// When.
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// Kept for the client.
    pub flags: u32,
    /// The expiry.
    pub expiration: u32,
}

/// A number is to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arith<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Upwards.
    pub increment: bool,
    /// By so much.
    pub delta: u64,
    /// What it is from now on where there is no item.
    pub initial: u64,
    /// The expiry of an item that is made so; [`NEVER_MADE`]: none is made.
    pub expiration: u32,
}

/// The client does not speak the protocol: its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// No request begins here. It is told nothing.
    Magic,
    /// Extras and key are longer than the body that they are part of: an unknown command.
    Lengths(Echo),
    /// Extras, key or value are not those of the opcode: invalid arguments.
    Arguments(Echo),
}
