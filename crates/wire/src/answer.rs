//! Reading a server's replies: the client's half of the grammar, three-way like [`crate::parse`].
//!
//! A line is understood on its own; which request it answers, and when a `get` is over
//! ([`Answer::End`]), the caller knows. A value is not part of the frame: it follows the line,
//! [`Answer::body_bytes`] long.

use crate::limits::{LINE_BYTES_MAX, VALUE_BYTES_MAX, VALUE_END_BYTES};
use crate::scan::{Tokens, find, number_u32, number_u64};

/// One reply line, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerFrame<'a> {
    /// What it says.
    pub answer: Answer<'a>,
    /// Bytes of the line, its newline included. A value, if any, begins right after.
    pub head_bytes: usize,
}

/// One reply line, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// `VALUE`: a value follows.
    Value(Value<'a>),
    /// `END`: no more values, or no more statistics.
    End,
    /// `STORED`
    Stored,
    /// `NOT_STORED`
    NotStored,
    /// `EXISTS`
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `RESET`
    Reset,
    /// What `incr` or `decr` made of the value.
    Number(u64),
    /// `VERSION`: the rest of the line.
    Version(&'a [u8]),
    /// `STAT`: one line of `stats`.
    Stat {
        /// Which.
        name: &'a [u8],
        /// The rest of the line.
        value: &'a [u8],
    },
    /// `VA`: a value follows.
    MetaValue {
        /// Bytes of the value, without the `\r\n` behind it.
        value_bytes: usize,
        /// What else came back.
        returns: Returns<'a>,
    },
    /// `HD`
    MetaDone(Returns<'a>),
    /// `EN`
    MetaMiss(Returns<'a>),
    /// `NF`
    MetaNotFound(Returns<'a>),
    /// `NS`
    MetaNotStored(Returns<'a>),
    /// `EX`
    MetaExists(Returns<'a>),
    /// `MN`
    MetaNoop,
    /// `ME`: the rest of the line.
    MetaDebug(&'a [u8]),
    /// `ERROR`: the rest of the line, usually nothing.
    Error(&'a [u8]),
    /// `CLIENT_ERROR`: why.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR`: why.
    ServerError(&'a [u8]),
}

impl Answer<'_> {
    /// Bytes that follow the line: a value and its `\r\n`, or nothing.
    #[inline]
    pub const fn body_bytes(&self) -> usize {
        match self {
            Answer::Value(value) => value.value_bytes + VALUE_END_BYTES,
            Answer::MetaValue { value_bytes, .. } => *value_bytes + VALUE_END_BYTES,
            _ => 0,
        }
    }

    /// Whether the server refused: `ERROR`, `CLIENT_ERROR`, `SERVER_ERROR`.
    pub const fn is_error(&self) -> bool {
        matches!(self, Answer::Error(_) | Answer::ClientError(_) | Answer::ServerError(_))
    }
}

/// What a `VALUE` line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The client's opaque flags.
    pub flags: u32,
    /// Bytes of the value, without the `\r\n` behind it.
    pub value_bytes: usize,
    /// The CAS id, in the answer to `gets` and `gats`.
    pub cas: Option<u64>,
}

/// The return flags of a meta reply, in the order of the request's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returns<'a> {
    tokens: &'a [u8],
}

impl<'a> Returns<'a> {
    /// The flags in `tokens`, which holds them separated by spaces and nothing else.
    pub const fn new(tokens: &'a [u8]) -> Self {
        Returns { tokens }
    }

    /// Every flag with its argument.
    pub const fn each(&self) -> Tokens<'a> {
        Tokens::new(self.tokens)
    }

    /// The argument of flag `letter`; empty for a flag without one.
    pub fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        self.each().find_map(|token| match token {
            [first, argument @ ..] if *first == letter => Some(argument),
            _ => None,
        })
    }

    /// The argument of flag `letter` as a number.
    pub fn number(&self, letter: u8) -> Option<u64> {
        number_u64(self.argument(letter)?)
    }

    /// Whether flag `letter` came back.
    pub fn has(&self, letter: u8) -> bool {
        self.argument(letter).is_some()
    }
}

/// Not a reply of memcached's: after this the stream cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unintelligible;

/// Reads the reply line at the front of `input`: `Ok(None)` while it has not arrived whole.
#[inline]
pub fn parse_reply(input: &[u8]) -> Result<Option<AnswerFrame<'_>>, Unintelligible> {
    let Some(newline) = find(input, b'\n') else {
        return if input.len() <= LINE_BYTES_MAX { Ok(None) } else { Err(Unintelligible) };
    };
    let line = match &input[..newline] {
        [line @ .., b'\r'] => line,
        line => line,
    };
    let answer = answer(line).ok_or(Unintelligible)?;
    Ok(Some(AnswerFrame { answer, head_bytes: newline + 1 }))
}

fn answer(line: &[u8]) -> Option<Answer<'_>> {
    let mut tokens = Tokens::new(line);
    let word = tokens.next()?;
    let rest = tokens.rest();
    Some(match word {
        b"VALUE" => Answer::Value(value(rest)?),
        b"END" => Answer::End,
        b"STORED" => Answer::Stored,
        b"HD" => Answer::MetaDone(Returns::new(rest)),
        b"VA" => meta_value(rest)?,
        b"EN" => Answer::MetaMiss(Returns::new(rest)),
        b"NF" => Answer::MetaNotFound(Returns::new(rest)),
        b"NS" => Answer::MetaNotStored(Returns::new(rest)),
        b"EX" => Answer::MetaExists(Returns::new(rest)),
        b"MN" => Answer::MetaNoop,
        b"ME" => Answer::MetaDebug(rest),
        b"NOT_STORED" => Answer::NotStored,
        b"EXISTS" => Answer::Exists,
        b"NOT_FOUND" => Answer::NotFound,
        b"DELETED" => Answer::Deleted,
        b"TOUCHED" => Answer::Touched,
        b"OK" => Answer::Ok,
        b"RESET" => Answer::Reset,
        b"VERSION" => Answer::Version(rest),
        b"STAT" => stat(rest)?,
        b"ERROR" | b"ERROR:" => Answer::Error(rest),
        b"CLIENT_ERROR" => Answer::ClientError(rest),
        b"SERVER_ERROR" | b"SERVER_ERROR:" => Answer::ServerError(rest),
        digits if rest.is_empty() => Answer::Number(number_u64(digits)?),
        _ => return None,
    })
}

/// `<key> <flags> <bytes> [<cas id>]`
fn value(rest: &[u8]) -> Option<Value<'_>> {
    let ([key, flags, length, cas], count) = Tokens::new(rest).take_array::<4>();
    let cas = match count {
        3 => None,
        4 => Some(number_u64(cas)?),
        _ => return None,
    };
    Some(Value { key, flags: number_u32(flags)?, value_bytes: value_bytes(length)?, cas })
}

/// `<bytes> <flags>*`
fn meta_value(rest: &[u8]) -> Option<Answer<'_>> {
    let mut tokens = Tokens::new(rest);
    let value_bytes = value_bytes(tokens.next()?)?;
    Some(Answer::MetaValue { value_bytes, returns: Returns::new(tokens.rest()) })
}

/// `<name> <value>`, where the value may hold spaces or be missing.
fn stat(rest: &[u8]) -> Option<Answer<'_>> {
    let mut tokens = Tokens::new(rest);
    let name = tokens.next()?;
    Some(Answer::Stat { name, value: tokens.rest() })
}

fn value_bytes(digits: &[u8]) -> Option<usize> {
    let value_bytes = usize::try_from(number_u64(digits)?).ok()?;
    (value_bytes <= VALUE_BYTES_MAX).then_some(value_bytes)
}
