//! What can go wrong, told apart by what the caller can do about it.

use std::fmt;
use std::io;

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// The key is empty, longer than 250 bytes, or holds a space or a control character. Nothing
    /// was sent.
    BadKey,
    /// The expiry cannot be told to the server: see [`crate::Expiry`]. Nothing was sent.
    BadExpiry,
    /// The words after `stats` hold a control character or are too long. Nothing was sent.
    BadWords,
    /// The request is longer than 65535 datagrams carry, or than the one that this server takes.
    /// Nothing was sent; TCP has no such bound.
    RequestTooLong {
        /// Its length.
        bytes: usize,
        /// The longest.
        bytes_max: usize,
    },
    /// [`crate::Settings::requests_max`] or `request_bytes_max` is reached: take answers first.
    /// Nothing was sent.
    Full,
    /// No answer in time, and nothing was changed: the request only reads, or it never left.
    TimedOut {
        /// How often it was sent.
        attempts: u32,
    },
    /// No answer in time to a request that changes something: it may have been carried out, or
    /// not. Sending it again by hand may carry it out twice.
    OutcomeUnknown {
        /// How often it was sent.
        attempts: u32,
    },
    /// The server said no.
    Refused(Refusal),
    /// The reply is longer than [`crate::Settings::reply_message_bytes_max`].
    ReplyTooLong,
    /// A reply came, and it is no answer to this request: a length that is wrong, another key, no
    /// end. Nothing was changed.
    Garbled,
    /// The server does not tell where it takes datagrams, or none of ours reach it there; the text
    /// says what it told.
    NoTopology(String),
    /// The operating system said no.
    Io(io::Error),
}

/// The server's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// `ERROR`: it knows no such command.
    Unknown(String),
    /// `CLIENT_ERROR`: the request is wrong.
    Client(String),
    /// `SERVER_ERROR`: too large, out of memory, and the like. A `set` that is refused in this way
    /// has deleted the old value, unless the server keeps items durably.
    Server(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(why) => write!(f, "ERROR {why}"),
            Refusal::Client(why) => write!(f, "CLIENT_ERROR {why}"),
            Refusal::Server(why) => write!(f, "SERVER_ERROR {why}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadKey => {
                f.write_str("a key has 1 to 250 bytes, no space and no control character")
            }
            Error::BadExpiry => f.write_str(
                "an expiry is at most 2592000 seconds (30 days) away, or a unix time after that",
            ),
            Error::BadWords => f.write_str("the words after stats are one short line"),
            Error::RequestTooLong { bytes, bytes_max } => write!(
                f,
                "a request of {bytes} bytes; {bytes_max} at most this way to this server; use TCP"
            ),
            Error::Full => f.write_str("too many requests are held; take answers first"),
            Error::TimedOut { attempts } => {
                write!(f, "no answer in time, sent {attempts} times; nothing was changed")
            }
            Error::OutcomeUnknown { attempts } => {
                write!(f, "no answer in time, sent {attempts} times; it may have been carried out")
            }
            Error::Refused(refusal) => write!(f, "the server refused: {refusal}"),
            Error::ReplyTooLong => f.write_str("the reply is longer than the settings allow"),
            Error::Garbled => f.write_str("the reply is no answer to the request"),
            Error::NoTopology(told) => {
                write!(f, "no datagram can be sent to the server: {told}")
            }
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
