//! One connection: requests out, replies in, neither waiting for the other.
//!
//! Replies are checked byte by byte as they arrive and never kept; the value of a large SET is made
//! as it leaves, so neither direction needs a buffer of the size of a value. Every call moves a
//! bounded number of bytes, so that one connection's megabytes do not make the sender late for
//! another's request. It knows no clock.

mod reader;
mod stream;

pub(crate) use reader::Reader;
pub use reader::{NO_REPLY, WRONG_BYTES, WRONG_END, WRONG_KEY, WRONG_LENGTH};
pub use stream::{Stream, Target};
pub(crate) use stream::{connect, handshake};

use crate::dialect::Dialect;
use crate::values::{Value, Values};
use crate::workload::{Ask, Class, Key, Operation, Workload};
use reader::LINE_BYTES_MAX;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Most bytes that one read takes.
pub const READ_BYTES: usize = 64 << 10;
/// Values from this size on are made while they leave.
const STREAMED_BYTES_MIN: u64 = 16 << 10;
/// Most bytes that one flush hands to the kernel.
const FLUSH_BYTES_MAX: usize = 64 << 10;

/// A request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: Key,
    /// Read, write or removal.
    pub operation: Operation,
    /// Keys of a GET; the others follow from this one and `version`.
    pub keys: u16,
    /// The workload's class of the key.
    pub class: Class,
    /// Bytes of the value, written or expected.
    pub value_bytes: u64,
    /// Which value a SET writes, and which further keys a GET of several has.
    pub version: u32,
    /// Latency is counted from here: nanoseconds from the start of the run.
    pub due_ns: u64,
}

impl Request {
    /// What a SET writes.
    pub(crate) fn value(&self) -> Value {
        Value { key: self.key, bytes: self.value_bytes, version: self.version }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// GET: the value, every byte as it must be.
    Hit,
    /// GET: not there.
    Miss,
    /// GET of several keys: how many came, every byte as it must be.
    Many {
        /// Keys with a value.
        hits: u16,
        /// Keys without.
        misses: u16,
        /// Bytes of the values together.
        value_bytes: u64,
    },
    /// SET: stored.
    Stored,
    /// DELETE: it is not there now.
    Deleted,
    /// The server refused.
    Refused(String),
    /// The reply is not what the key's value can be.
    Corrupt(&'static str),
}

/// A request with its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub request: Request,
    /// Its end.
    pub outcome: Outcome,
}

/// What all connections of a thread share.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Keys and sizes.
    pub workload: &'a Workload,
    /// Bytes of values.
    pub values: &'a Values,
    /// The language.
    pub dialect: Dialect,
}

impl Context<'_> {
    /// Makes a request of an ask.
    pub fn request(&self, ask: Ask, due_ns: u64, version: u32) -> Request {
        Request {
            key: ask.key,
            operation: ask.operation,
            keys: ask.keys,
            class: self.workload.class(ask.key),
            value_bytes: self.workload.value_bytes(ask.key),
            version,
            due_ns,
        }
    }
}

/// The keys of a GET.
pub(crate) fn keys_of<'a>(
    context: Context<'a>,
    request: &Request,
) -> impl Iterator<Item = Key> + 'a {
    context.workload.keys_of(request.key, request.keys, request.version)
}

/// Writes a request; of a SET what stands before its value.
pub(crate) fn write_head(context: Context<'_>, request: &Request, out: &mut Vec<u8>) {
    let Context { workload, dialect, .. } = context;
    let name = workload.key_name(request.key);
    match request.operation {
        Operation::Get if request.keys > 1 => {
            let names = keys_of(context, request).map(|key| workload.key_name(key));
            dialect.get(request.keys.into(), names, out);
        }
        Operation::Get => dialect.get(1, std::iter::once(name), out),
        Operation::Delete => dialect.delete(&name, out),
        Operation::Set => {
            dialect.set(&name, request.value_bytes, workload.ttl_s(request.key), out);
        }
    }
}

/// One connection and everything in flight on it.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    reader: Reader,
    /// The beginning of a reply line whose end has not come.
    line_begun: Vec<u8>,
    awaiting: VecDeque<Request>,
    /// The last so many of `awaiting` are not yet in `output`.
    unwritten: usize,
    output: Vec<u8>,
    output_sent: usize,
    /// A large value that follows `output`, and how much of it left.
    streaming: Option<(Value, u64)>,
}

impl Connection {
    /// Connects to `target`; the connection never blocks.
    pub fn connect(target: &Target) -> io::Result<Self> {
        let stream = Stream::connect(target)?;
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Connection {
            stream,
            reader: Reader::default(),
            line_begun: Vec::new(),
            awaiting: VecDeque::new(),
            unwritten: 0,
            output: Vec::new(),
            output_sent: 0,
            streaming: None,
        })
    }

    /// Requests without an end yet.
    pub fn in_flight(&self) -> usize {
        self.awaiting.len()
    }

    /// The requests without an end, oldest first.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.awaiting.iter()
    }

    /// Whether nothing asked waits here.
    fn all_taken(&self) -> bool {
        self.output_sent == self.output.len() && self.streaming.is_none() && self.unwritten == 0
    }

    /// Adds a request; [`Connection::flush`] sends it.
    pub fn push(&mut self, context: Context<'_>, request: Request) {
        self.awaiting.push_back(request);
        self.unwritten += 1;
        self.write_waiting(context);
    }

    /// Turns requests into bytes, up to a large value.
    fn write_waiting(&mut self, context: Context<'_>) {
        while self.streaming.is_none() && self.unwritten > 0 {
            let request = self.awaiting[self.awaiting.len() - self.unwritten];
            self.unwritten -= 1;
            write_head(context, &request, &mut self.output);
            if request.operation != Operation::Set {
                continue;
            }
            let value = request.value();
            if value.bytes < STREAMED_BYTES_MIN {
                context.values.append(value, &mut self.output);
                self.output.extend_from_slice(Dialect::SET_ENDING);
            } else {
                self.streaming = Some((value, 0));
            }
        }
    }

    /// Hands bytes to the kernel until it takes no more or [`FLUSH_BYTES_MAX`] have gone; true if
    /// something is left.
    pub fn flush(&mut self, context: Context<'_>) -> io::Result<bool> {
        let mut budget = FLUSH_BYTES_MAX;
        while !self.all_taken() && budget > 0 {
            let sent = if self.output_sent < self.output.len() {
                write_some(&mut self.stream, &self.output[self.output_sent..])?
            } else if let Some((value, at)) = self.streaming {
                let mut head = [0; 16];
                let piece = context.values.piece(value, at, &mut head);
                write_some(&mut self.stream, &piece[..piece.len().min(budget)])?
            } else {
                0
            };
            let Some(sent) = std::num::NonZeroUsize::new(sent) else { break };
            budget = budget.saturating_sub(sent.get());
            self.advance(context, sent.get());
        }
        if self.stream.holds_back() {
            match self.stream.flush() {
                Err(error) if !is_try_again(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(!self.all_taken() || self.stream.holds_back())
    }

    fn advance(&mut self, context: Context<'_>, sent: usize) {
        if self.output_sent < self.output.len() {
            self.output_sent += sent;
            if self.output_sent == self.output.len() {
                self.output.clear();
                self.output_sent = 0;
            }
        } else if let Some((value, at)) = &mut self.streaming {
            *at += sent as u64;
            if *at == value.bytes {
                self.streaming = None;
                self.output.extend_from_slice(Dialect::SET_ENDING);
                self.write_waiting(context);
            }
        }
    }

    /// Reads once, up to [`READ_BYTES`], and appends what ended to `ended`. Returns the bytes read,
    /// 0 where there was nothing. `after_read` runs between the read and the checking of its bytes:
    /// the moment to look at the clock.
    pub fn receive(
        &mut self,
        context: Context<'_>,
        buffer: &mut Vec<u8>,
        ended: &mut Vec<Completion>,
        after_read: impl FnOnce(),
    ) -> io::Result<usize> {
        let kept = self.line_begun.len();
        buffer.resize(LINE_BYTES_MAX + READ_BYTES, 0);
        buffer[..kept].copy_from_slice(&self.line_begun);
        let read = match self.stream.read(&mut buffer[kept..kept + READ_BYTES]) {
            Ok(0) => return Err(closed(self.awaiting.len())),
            Ok(read) => read,
            Err(error) if is_try_again(&error) => return Ok(0),
            Err(error) => return Err(error),
        };
        after_read();
        self.line_begun.clear();
        let mut input = &buffer[..kept + read];
        while !input.is_empty() {
            let Some(request) = self.awaiting.front() else { return Err(nonsense(input)) };
            let taken = self.reader.take(context, request, input);
            let (used, outcome) = taken.map_err(|_| nonsense(input))?;
            if let Some(outcome) = outcome {
                self.end(ended, outcome);
            }
            if used == 0 {
                self.line_begun.extend_from_slice(input);
                break;
            }
            input = &input[used..];
        }
        Ok(read)
    }

    fn end(&mut self, ended: &mut Vec<Completion>, outcome: Outcome) {
        if let Some(request) = self.awaiting.pop_front() {
            ended.push(Completion { request, outcome });
        }
        self.unwritten = self.unwritten.min(self.awaiting.len());
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn write_some(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if is_try_again(&error) => Ok(0),
        other => other,
    }
}

fn is_try_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn closed(in_flight: usize) -> io::Error {
    let words = format!("the server closed a connection with {in_flight} requests in flight");
    io::Error::new(ErrorKind::ConnectionReset, words)
}

fn nonsense(input: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&input[..input.len().min(60)]).into_owned();
    let words = format!("the server's answer fits no request in flight: {shown:?}");
    io::Error::new(ErrorKind::InvalidData, words)
}
