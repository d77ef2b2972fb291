//! A request on its way, and the lines that replies are made of.

use crate::model::{Asked, Fetch, Told, Ttl};

/// Which protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// memcached's text and meta protocols.
    Text,
    /// memcached's binary one.
    Binary,
    /// RESP.
    Resp,
}

/// What a reply tells each of the keys it is about, behind its length; `None` while it is not
/// whole.
pub type Heard = Result<Option<(usize, Vec<Told>)>, String>;

/// Longest line of a reply that is not a value.
const LINE_BYTES_MAX: usize = 2048;

/// What kind of reply comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// One line of the text protocol.
    Line,
    /// `VALUE` for each key that is there, in the order of the keys, then `END`.
    Values {
        /// The keys asked for.
        keys: Vec<usize>,
        /// With the CAS id.
        cas: bool,
    },
    /// One meta reply; `value` where `v` was asked for.
    Meta {
        /// The value comes with a hit.
        value: bool,
    },
    /// `STORED`, unless there is no room.
    Stored,
    /// Lines up to `END`, or one line of another kind.
    Stats,
    /// `OK`, a line for each item, and this line.
    Dump(&'static str),
    /// The same: everything goes in so many seconds.
    Later(u32),
    /// Nothing.
    Silence,
    /// One line that refuses: the request is wrong on purpose.
    Refusal,
    /// A reply of RESP.
    Resp(Reply),
    /// One of memcached's binary protocol.
    Binary(Kind),
}

/// What kind of reply of RESP comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// `OK`, or null where a condition was not met.
    Stored,
    /// `OK` for several.
    StoredAll,
    /// 1 if all were stored, 0 if none was.
    StoredAbsent,
    /// Those to `WATCH`, `GET`, `MULTI`, `SET` and `EXEC`.
    Guarded,
    /// The same, of which `SET` and so `EXEC` are refused.
    GuardedRefused,
    /// Those to `WATCH`, `MULTI`, what reads an item, its end and renames it, and `EXEC`.
    Moved,
    /// Those to `WATCH`, `MULTI`, `SET`, what renames the item, and `EXEC`.
    MovedFresh,
    /// So many replies, of which the last, that to `EXEC`, says that nothing was executed.
    Aborted(usize),
    /// 1, or 0 where there is none.
    Found,
    /// Milliseconds that are left, or a number below 0.
    Left,
    /// A number from 0.
    Number,
    /// Any number.
    Signed,
    /// A value, or null.
    Value,
    /// Such replies, in an array.
    Values,
    /// Anything.
    Any,
    /// An error: the request is wrong on purpose.
    Refusal,
}

/// What kind of reply of the binary protocol comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One reply about a key.
    One,
    /// The same, but none where it would tell nothing, and that to `NOOP` behind it.
    Quiet,
    /// One for each key that is there, in the order of the keys, and that to `NOOP` behind them.
    Values,
    /// One, whatever it says.
    Any,
    /// Replies up to an empty one, or an error.
    Stats,
    /// One that refuses: the request is wrong on purpose.
    Refusal,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub struct Request {
    /// The bytes that are sent.
    pub bytes: Vec<u8>,
    /// What is asked of which keys.
    pub asked: Vec<(usize, Asked)>,
    /// What comes back.
    pub expect: Expect,
    /// What of a meta request comes back with every reply to it.
    pub echo: Vec<String>,
    /// Some replies to it do not come, and `MN` comes behind it.
    pub is_quiet: bool,
    /// For the trace.
    pub shown: String,
}

impl Request {
    /// As a client asks it who may not write: a write changes nothing, and is refused.
    pub fn refused_if_writes(mut self) -> Request {
        let reads = |asked: &Asked| match asked {
            Asked::Get | Asked::Left => true,
            Asked::Fetch(fetch) => *fetch == Fetch::default(),
            _ => false,
        };
        let is_about_server = ["Stat reset", "Verbosity"].contains(&&*self.shown);
        let stores = self.expect == Expect::Stored || is_about_server;
        if self.asked.iter().all(|(_, asked)| reads(asked)) && !stores {
            for (_, asked) in &mut self.asked {
                if let Asked::Fetch(fetch) = asked {
                    fetch.read_only = true;
                }
            }
            return self;
        }
        self.asked.clear();
        self.expect = match self.expect {
            Expect::Silence => Expect::Silence,
            Expect::Resp(Reply::Guarded) => Expect::Resp(Reply::GuardedRefused),
            Expect::Resp(Reply::Moved) => Expect::Resp(Reply::Aborted(6)),
            Expect::Resp(Reply::MovedFresh) => Expect::Resp(Reply::Aborted(5)),
            Expect::Resp(_) => Expect::Resp(Reply::Refusal),
            // The last reply is that to `NOOP` behind it.
            Expect::Binary(Kind::Quiet) => Expect::Binary(Kind::Any),
            Expect::Binary(_) => Expect::Binary(Kind::Refusal),
            _ => Expect::Refusal,
        };
        self
    }
}

/// The name of a key; some are as long as keys may be.
pub fn key_name(key: usize) -> String {
    match key % 7 {
        6 => format!("k{key}-{}", "x".repeat(240)),
        _ => format!("k{key}"),
    }
}

/// A name that its number can be read from again.
pub(crate) fn key_number(name: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix('k')?;
    let number: usize = text.split('-').next()?.parse().ok()?;
    (key_name(number).as_bytes() == name).then_some(number)
}

pub(crate) fn exptime(ttl: Ttl) -> String {
    match ttl {
        Ttl::Never => "0".into(),
        Ttl::Seconds(seconds) => seconds.to_string(),
        Ttl::Past => "-1".into(),
        Ttl::Millis(_) | Ttl::At(_) => unreachable!("these are RESP's"),
    }
}

fn shown(line: &str) -> String {
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line.to_owned(),
    }
}

pub(crate) fn request(
    line: String,
    body: Option<&[u8]>,
    asked: (usize, Asked),
    expect: Expect,
) -> Request {
    let mut bytes = line.clone().into_bytes();
    bytes.extend_from_slice(b"\r\n");
    if let Some(body) = body {
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"\r\n");
    }
    Request::of(bytes, vec![asked], expect, &line)
}

impl Request {
    /// These bytes, of which a line is shown.
    pub(crate) fn of(
        bytes: Vec<u8>,
        asked: Vec<(usize, Asked)>,
        expect: Expect,
        line: &str,
    ) -> Request {
        let (echo, is_quiet) = (Vec::new(), false);
        Request { bytes, asked, expect, echo, is_quiet, shown: shown(line) }
    }

    /// Something that has no bytes here.
    pub fn elsewhere(asked: (usize, Asked), what: &str) -> Request {
        Request::of(Vec::new(), vec![asked], Expect::Line, what)
    }
}

/// The first line of `got`, and its length with its end.
pub(crate) fn line(got: &[u8]) -> Result<Option<(&str, usize)>, String> {
    let window = &got[..got.len().min(LINE_BYTES_MAX)];
    let Some(at) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if got.len() < LINE_BYTES_MAX {
            Ok(None)
        } else {
            Err("a line without end".into())
        };
    };
    let text = std::str::from_utf8(&got[..at]).map_err(|_| "a line that is no text".to_owned())?;
    Ok(Some((text, at + 2)))
}

/// What a refusal means for the item.
pub fn refusal(why: &str) -> Told {
    const UNTRIED: [&str; 4] = ["out of memory", "Out of memory", "too large", "no room"];
    match UNTRIED.iter().any(|words| why.contains(words)) {
        true => Told::Refused,
        false => Told::Doubt,
    }
}
