//! Replies. Errors have memcached's words.

use super::{Broken, Echo, HEADER_BYTES};
use crate::limits::KEY_BYTES_MAX;
use crate::reply::Sink;

/// The first byte of a reply.
pub const REPLY: u8 = 0x81;

/// Bytes of flags before a value.
const FLAGS_BYTES: usize = 4;

/// Most bytes of what stands before a value.
pub const VALUE_HEAD_BYTES_MAX: usize = HEADER_BYTES + FLAGS_BYTES + KEY_BYTES_MAX;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// It was done.
    Done = 0x00,
    /// There is no such item.
    NotFound = 0x01,
    /// There is one, or it has another id.
    Exists = 0x02,
    /// The value is above `-I`.
    TooLarge = 0x03,
    /// The request is not as its opcode has it.
    Invalid = 0x04,
    /// There is nothing to put bytes to, or what comes of it is too large.
    NotStored = 0x05,
    /// The value is no number.
    NotANumber = 0x06,
    /// The client has not said who it is, or wrongly; or it is not allowed.
    Refused = 0x20,
    /// Authentication goes on.
    GoesOn = 0x21,
    /// No such opcode.
    UnknownCommand = 0x81,
    /// No memory.
    OutOfMemory = 0x82,
    /// It is not served there.
    NotSupported = 0x83,
    /// The server has failed.
    Failed = 0x84,
    /// It may be asked again later.
    Busy = 0x85,
}

impl Status {
    /// memcached's words for it.
    pub const fn words(self) -> &'static [u8] {
        match self {
            Status::Done | Status::GoesOn => b"",
            Status::NotFound => b"Not found",
            Status::Exists => b"Data exists for key.",
            Status::TooLarge => b"Too large.",
            Status::Invalid => b"Invalid arguments",
            Status::NotStored => b"Not stored.",
            Status::NotANumber => b"Non-numeric server-side value for incr or decr",
            Status::Refused => b"Auth failure.",
            Status::UnknownCommand => b"Unknown command",
            Status::OutOfMemory => b"Out of memory",
            Status::NotSupported => b"Not supported",
            Status::Failed => b"Internal error",
            Status::Busy => b"Busy",
        }
    }
}

/// The lengths that a header tells of: extras, key, value.
type Lengths = (usize, usize, usize);

/// Puts a header.
#[inline]
fn put_header(
    sink: &mut impl Sink,
    echo: Echo,
    status: Status,
    (extras, key, value): Lengths,
    cas: u64,
) {
    let mut header = [0; HEADER_BYTES];
    (header[0], header[1], header[4]) = (REPLY, echo.opcode, extras as u8);
    header[2..4].copy_from_slice(&(key as u16).to_be_bytes());
    header[6..8].copy_from_slice(&(status as u16).to_be_bytes());
    header[8..12].copy_from_slice(&((extras + key + value) as u32).to_be_bytes());
    header[12..16].copy_from_slice(&echo.opaque);
    header[16..24].copy_from_slice(&cas.to_be_bytes());
    sink.put(&header);
}

/// Puts what stands before a value of so many bytes; `key` is empty where it is not asked for.
#[inline]
pub fn put_value_head(
    sink: &mut impl Sink,
    echo: Echo,
    key: &[u8],
    (flags, value_bytes, cas): (u32, usize, u64),
) {
    put_header(sink, echo, Status::Done, (FLAGS_BYTES, key.len(), value_bytes), cas);
    sink.put(&flags.to_be_bytes());
    sink.put(key);
}

/// Puts a reply that is a key, or some text, or both.
pub fn put(sink: &mut impl Sink, echo: Echo, status: Status, key: &[u8], text: &[u8]) {
    put_header(sink, echo, status, (0, key.len(), text.len()), 0);
    sink.put(key);
    sink.put(text);
}

/// Puts a reply that says no more than that it was done, and the item's new id.
pub fn put_done(sink: &mut impl Sink, echo: Echo, cas: u64) {
    put_header(sink, echo, Status::Done, (0, 0, 0), cas);
}

/// Puts a number, and its item's new id.
pub fn put_number(sink: &mut impl Sink, echo: Echo, number: u64, cas: u64) {
    let bytes = number.to_be_bytes();
    put_header(sink, echo, Status::Done, (0, 0, bytes.len()), cas);
    sink.put(&bytes);
}

/// Puts an error in memcached's words.
pub fn put_error(sink: &mut impl Sink, echo: Echo, status: Status) {
    put(sink, echo, status, b"", status.words());
}

impl Broken {
    /// Puts what is told before the connection is closed.
    pub fn put(self, sink: &mut impl Sink) {
        match self {
            Broken::Magic => {}
            Broken::Lengths(echo) => put_error(sink, echo, Status::UnknownCommand),
            Broken::Arguments(echo) => put_error(sink, echo, Status::Invalid),
        }
    }
}
