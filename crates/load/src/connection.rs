//! One connection: requests out, replies in, neither waiting for the other.
//!
//! Replies are checked byte by byte as they arrive and never kept; the value of a large SET is made
//! as it leaves, so neither direction needs a buffer of the size of a value. Every call moves a
//! bounded number of bytes, so that one connection's megabytes do not make the sender late for
//! another's request. It knows no clock.

mod many;
mod stream;

pub(crate) use stream::handshake;
pub use stream::{Stream, Target};

use crate::dialect::{Dialect, Line};
use crate::values::{Checker, Value, Values};
use crate::workload::{Ask, Class, Key, Operation, Workload};
pub(crate) use many::Many;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Most bytes that one read takes.
pub const READ_BYTES: usize = 64 << 10;
/// Longest reply line that is waited for; memcached's are below 300 bytes.
const LINE_BYTES_MAX: usize = 2_048;
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

/// What a corrupt reply is said to have.
pub const WRONG_BYTES: &str = "bytes that no value of this key has";
/// See [`WRONG_BYTES`].
pub const WRONG_LENGTH: &str = "a length that is not this key's";
/// See [`WRONG_BYTES`].
pub const WRONG_KEY: &str = "another key's name";

#[derive(Debug)]
enum Reading {
    Line,
    Value { checker: Checker, ending: &'static [u8], wrong: Option<&'static str> },
    Ending { ending: &'static [u8], wrong: Option<&'static str>, value_bytes: u64 },
}

impl Reading {
    fn value(
        key: Key,
        value_bytes: u64,
        ending: &'static [u8],
        wrong: Option<&'static str>,
    ) -> Self {
        if value_bytes == 0 {
            return Reading::Ending { ending, wrong, value_bytes };
        }
        Reading::Value { checker: Checker::new(key, value_bytes), ending, wrong }
    }

    /// A value in the reply to a GET of several keys; `found` is whose it is, if it was asked for.
    fn one_of_many(context: Context<'_>, found: Option<Key>, value_bytes: u64) -> Self {
        let wrong = match found {
            None => Some(WRONG_KEY),
            Some(key) => (value_bytes != context.workload.value_bytes(key)).then_some(WRONG_LENGTH),
        };
        Reading::value(found.unwrap_or(Key(0)), value_bytes, b"\r\n", wrong)
    }
}

/// The keys of a GET.
pub(crate) fn keys_of<'a>(
    context: Context<'a>,
    request: &Request,
) -> impl Iterator<Item = Key> + 'a {
    context.workload.keys_of(request.key, request.keys, request.version)
}

/// One connection and everything in flight on it.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    reading: Reading,
    /// What came of the oldest request, if it is for several keys and its reply has begun.
    many: Option<Many>,
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
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            reading: Reading::Line,
            many: None,
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

    /// Whether everything asked was handed to the kernel.
    pub fn all_sent(&self) -> bool {
        self.all_taken() && !self.stream.holds_back()
    }

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
            let name = context.workload.key_name(request.key);
            match request.operation {
                Operation::Get if request.keys > 1 => {
                    let names =
                        keys_of(context, &request).map(|key| context.workload.key_name(key));
                    context.dialect.get_many(request.keys.into(), names, &mut self.output);
                    continue;
                }
                Operation::Get => {
                    context.dialect.get(&name, &mut self.output);
                    continue;
                }
                Operation::Delete => {
                    context.dialect.delete(&name, &mut self.output);
                    continue;
                }
                Operation::Set => {}
            }
            let Request { key, value_bytes: bytes, version, .. } = request;
            let ttl_s = context.workload.ttl_s(key);
            context.dialect.set(&name, bytes, ttl_s, &mut self.output);
            let value = Value { key, bytes, version };
            if bytes < STREAMED_BYTES_MIN {
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
        Ok(!self.all_sent())
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
            let used = self.take(context, input, ended)?;
            if used == 0 {
                if input.len() > LINE_BYTES_MAX {
                    return Err(nonsense(input));
                }
                self.line_begun.extend_from_slice(input);
                break;
            }
            input = &input[used..];
        }
        Ok(read)
    }

    /// Takes the next part of a reply; 0 if a line is not whole yet.
    fn take(
        &mut self,
        context: Context<'_>,
        input: &[u8],
        ended: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        match &mut self.reading {
            Reading::Line => self.take_line(context, input, ended),
            Reading::Value { checker, ending, wrong } => {
                let left = usize::try_from(checker.bytes_left()).unwrap_or(usize::MAX);
                let used = input.len().min(left);
                checker.feed(context.values, &input[..used]);
                if checker.bytes_left() == 0 {
                    let wrong = wrong.or((!checker.is_good()).then_some(WRONG_BYTES));
                    let value_bytes = checker.bytes();
                    self.reading = Reading::Ending { ending, wrong, value_bytes };
                }
                Ok(used)
            }
            Reading::Ending { ending, wrong, value_bytes } => {
                let used = input.len().min(ending.len());
                if input[..used] != ending[..used] {
                    return Err(nonsense(input));
                }
                *ending = &ending[used..];
                if ending.is_empty() {
                    let (wrong, value_bytes) = (*wrong, *value_bytes);
                    self.reading = Reading::Line;
                    self.value_ended(context, value_bytes, wrong, ended);
                }
                Ok(used)
            }
        }
    }

    fn take_line(
        &mut self,
        context: Context<'_>,
        input: &[u8],
        ended: &mut Vec<Completion>,
    ) -> io::Result<usize> {
        let Some(newline) = input.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n')
        else {
            return Ok(0);
        };
        let line = &input[..=newline];
        let Some(request) = self.awaiting.front().copied() else { return Err(nonsense(line)) };
        if request.keys > 1 {
            self.take_line_of_many(context, &request, line, ended)?;
            return Ok(newline + 1);
        }
        match (context.dialect.line(line), request.operation) {
            (Line::Value { value_bytes, key, ending }, Operation::Get) => {
                // A wrong value is read to its end all the same, to stay in step.
                let name = context.workload.key_name(request.key);
                let wrong = if key.is_some_and(|key| *key != *name) {
                    Some(WRONG_KEY)
                } else {
                    (value_bytes != request.value_bytes).then_some(WRONG_LENGTH)
                };
                self.reading = Reading::value(request.key, value_bytes, ending, wrong);
            }
            (Line::Miss, Operation::Get) => self.end(ended, Outcome::Miss),
            (Line::Stored, Operation::Set) => self.end(ended, Outcome::Stored),
            (Line::Deleted, Operation::Delete) => self.end(ended, Outcome::Deleted),
            (Line::Refused(words), _) => {
                self.end(ended, Outcome::Refused(String::from_utf8_lossy(words).into_owned()));
            }
            _ => return Err(nonsense(line)),
        }
        Ok(newline + 1)
    }

    /// A line of the reply to a GET of several keys.
    fn take_line_of_many(
        &mut self,
        context: Context<'_>,
        request: &Request,
        line: &[u8],
        ended: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let many = self.many.get_or_insert_with(|| Many::new(keys_of(context, request)));
        match context.dialect.line(line) {
            Line::Value { value_bytes, key: Some(name), .. } => {
                let found = many.named(|key| *context.workload.key_name(key) == *name);
                self.reading = Reading::one_of_many(context, found, value_bytes);
            }
            Line::Value { value_bytes, key: None, .. } => {
                let found = many.next();
                self.reading = Reading::one_of_many(context, found, value_bytes);
            }
            // The END of memcached, which says it once, and a missing value of Redis.
            Line::Miss if context.dialect == Dialect::Text => self.many_ended(ended),
            Line::Miss => {
                many.missed();
                self.many_ended_if_whole(ended);
            }
            Line::Many(count) if count == u64::from(request.keys) => {}
            Line::Refused(words) => {
                let words = String::from_utf8_lossy(words).into_owned();
                self.many = None;
                self.end(ended, Outcome::Refused(words));
            }
            _ => return Err(nonsense(line)),
        }
        Ok(())
    }

    /// A value and what ends it were read.
    fn value_ended(
        &mut self,
        context: Context<'_>,
        value_bytes: u64,
        wrong: Option<&'static str>,
        ended: &mut Vec<Completion>,
    ) {
        match &mut self.many {
            None => self.end(ended, wrong.map_or(Outcome::Hit, Outcome::Corrupt)),
            Some(many) => {
                many.read(value_bytes, wrong);
                if context.dialect == Dialect::Resp {
                    self.many_ended_if_whole(ended);
                }
            }
        }
    }

    fn many_ended_if_whole(&mut self, ended: &mut Vec<Completion>) {
        if self.many.as_ref().is_some_and(Many::is_whole) {
            self.many_ended(ended);
        }
    }

    fn many_ended(&mut self, ended: &mut Vec<Completion>) {
        if let Some(many) = self.many.take() {
            self.end(ended, many.end());
        }
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
