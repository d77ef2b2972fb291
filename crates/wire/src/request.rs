//! What a client can ask, as borrowed values: nothing here owns or copies the client's bytes.

use crate::base64;
use crate::scan::{self, Tokens};

/// What stands at the front of the input: one request line, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The request.
    pub request: Request<'a>,
    /// Bytes of the request line, its newline included. A value, if any, begins right after.
    pub head_bytes: usize,
}

/// How `shutdown` is to end the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    /// No word.
    Now,
    /// `graceful`: finish what is open first.
    Graceful,
    /// Any other words.
    Unknown,
}

/// One request line, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`: one or more keys.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`: a value of `value_bytes` follows, then
    /// `\r\n`.
    Store(Store<'a>),
    /// `incr`, `decr`.
    Arith(Arith<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`: a value of `value_bytes` follows, then `\r\n`.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaArith(Meta<'a>),
    /// `mn`.
    MetaNoop,
    /// `me`.
    MetaDebug(Meta<'a>),
    /// `flush_all [delay] [noreply]`.
    FlushAll {
        /// Seconds from now (or an absolute unix time, as memcached reads exptime); `None` is at
        /// once.
        delay: Option<i64>,
        /// No answer wanted.
        noreply: bool,
    },
    /// `stats [words]`: the words after `stats`, trimmed.
    Stats(&'a [u8]),
    /// `version`.
    Version,
    /// `verbosity LEVEL`.
    Verbosity {
        /// The level asked for.
        level: u32,
        /// No answer wanted.
        noreply: bool,
    },
    /// `quit`.
    Quit,
    /// `shutdown [graceful]`; words that mean nothing are refused only where it is allowed.
    Shutdown(ShutdownMode),
    /// `cache_memlimit MEGABYTES`.
    MemoryLimit {
        /// The new limit, in MiB.
        megabytes: u64,
        /// No answer wanted.
        noreply: bool,
    },
    /// `backup`, or a command of memcached's that tunes an engine part this server does not have
    /// (`slabs`, `lru`, `lru_crawler`, `watch`, `misbehave`, `extstore`, `debugtime`...): the whole
    /// line without its newline, for the server to answer.
    Admin(&'a [u8]),
}

/// The verbs of [`Get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetVerb {
    /// Values.
    Get,
    /// Values with their CAS ids.
    Gets,
    /// Values, and a new expiry for each.
    Gat,
    /// Values with CAS ids, and a new expiry for each.
    Gats,
}

/// `get`, `gets`, `gat`, `gats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get<'a> {
    /// Which of the four.
    pub verb: GetVerb,
    /// The new expiry, for `gat` and `gats`; 0 otherwise.
    pub exptime: i64,
    /// The keys, separated by spaces; every one was checked for length. Use [`Keys`].
    pub keys: Keys<'a>,
}

/// The keys of a multiget, in order: an iterator over the part of the line that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys<'a> {
    rest: &'a [u8],
}

impl<'a> Keys<'a> {
    /// The keys in `rest`, which holds them separated by spaces and nothing else.
    pub const fn new(rest: &'a [u8]) -> Self {
        Keys { rest }
    }
    /// What has not been iterated over yet.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// The next keys into `places`, as many as there are of either; returns how many. For who looks
    /// at many of them: the line is read once, eight bytes at a time.
    #[inline]
    pub fn take_into(&mut self, places: &mut [&'a [u8]]) -> usize {
        let (found, rest) = scan::split(self.rest, places);
        self.rest = rest;
        found
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut tokens = Tokens::new(self.rest);
        let key = tokens.next();
        self.rest = tokens.rest();
        key
    }
}

/// The verbs of [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerb {
    /// Store whatever was there.
    Set,
    /// Store if the key is absent.
    Add,
    /// Store if the key is present.
    Replace,
    /// Add bytes behind the value.
    Append,
    /// Add bytes before the value.
    Prepend,
    /// Store if the item's CAS id is still the one given.
    Cas(u64),
}

/// `set` and its kin. The value follows the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which of them.
    pub verb: StoreVerb,
    /// The key.
    pub key: &'a [u8],
    /// The client's opaque flags.
    pub flags: u32,
    /// Expiry as given: 0 never, negative already over, up to 30 days relative, else unix time. Any
    /// 64-bit number, so beware of overflow.
    pub exptime: i64,
    /// Bytes of the value, without the `\r\n` behind it.
    pub value_bytes: usize,
    /// No answer wanted.
    pub noreply: bool,
}

/// `incr`, `decr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arith<'a> {
    /// True for `incr`.
    pub increment: bool,
    /// The key.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// No answer wanted.
    pub noreply: bool,
}

/// `delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// No answer wanted.
    pub noreply: bool,
}

/// `touch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new expiry, as in [`Store::exptime`].
    pub exptime: i64,
    /// No answer wanted.
    pub noreply: bool,
}

/// Longest key, in bytes, as stored (memcached's KEY_MAX_LENGTH).
pub const KEY_BYTES_MAX: usize = 250;

/// Room for a decoded key: see [`MetaKey::bytes`].
pub type KeyScratch = [u8; KEY_BYTES_MAX];

/// The key of a meta command, as sent: text, or base64 where the request has the `b` flag. The
/// parser checked it: it is 1 to [`KEY_BYTES_MAX`] bytes long and base64 text decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaKey<'a> {
    /// The token on the line (base64 text where `base64` is set): what a `k` flag returns.
    pub token: &'a [u8],
    /// Whether the token is base64: the request had the `b` flag.
    pub base64: bool,
}

impl<'a> MetaKey<'a> {
    /// The key as stored: the token itself, or what it decodes to, written into `scratch`.
    pub fn bytes<'s>(&self, scratch: &'s mut KeyScratch) -> &'s [u8]
    where
        'a: 's,
    {
        if !self.base64 {
            return self.token;
        }
        match base64::decode(self.token, scratch) {
            Some(length) => &scratch[..length],
            None => &[], // not reached for what `parse` returned: it decoded the key once
        }
    }
}

/// A meta request without a value: `mg`, `md`, `ma`, `me`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// Its flags.
    pub flags: MetaFlags<'a>,
}

/// `ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaSet<'a> {
    /// Key and flags.
    pub meta: Meta<'a>,
    /// Bytes of the value that follows, without its `\r\n`.
    pub value_bytes: usize,
}

/// Mode of `ms` (flag `M`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetaSetMode {
    /// `S`
    #[default]
    Set,
    /// `E`
    Add,
    /// `R`
    Replace,
    /// `A`
    Append,
    /// `P`
    Prepend,
}

/// The flags of a meta request: read once into fields, and kept as text because replies return
/// flags in the order the client gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaFlags<'a> {
    /// The flags part of the line as sent, tokens separated by spaces.
    pub tokens: &'a [u8],
    /// `b`: the key is base64.
    pub key_base64: bool,
    /// `q`: the uninteresting answers (EN, HD, NF... by command) are left out.
    pub quiet: bool,
    /// `v` (mg, ma): return the value.
    pub value: bool,
    /// `C(token)`: compare the CAS id.
    pub cas_compare: Option<u64>,
    /// `E(token)`: the CAS id to give the item.
    pub cas_explicit: Option<u64>,
    /// `F(token)`: client flags (ms).
    pub client_flags: Option<u32>,
    /// `T(token)`: expiry to set.
    pub exptime: Option<i64>,
    /// `N(token)`: vivify on miss, with this expiry.
    pub vivify: Option<i64>,
    /// `R(token)` (mg): win a recache if less than this many seconds remain.
    pub recache: Option<i64>,
    /// `I`: invalidate: mark stale (md), or store if older (ms).
    pub invalidate: bool,
    /// `x` (md): drop the value, keep the item.
    pub drop_value: bool,
    /// `M(token)` of ms.
    pub set_mode: MetaSetMode,
    /// `M(token)` of ma: true when decrementing.
    pub decrement: bool,
    /// `D(token)` of ma; 1 if absent.
    pub delta: Option<u64>,
    /// `J(token)` of ma: initial value on vivify; 0 if absent.
    pub initial: Option<u64>,
    /// One bit per flag letter given, see [`MetaFlags::wants`].
    pub returns: u64,
}

impl<'a> MetaFlags<'a> {
    /// The flags as sent, in order, each with its argument: `b"k"`, `b"T30"`.
    pub const fn each(&self) -> Tokens<'a> {
        Tokens::new(self.tokens)
    }
    /// The `O` flag with its argument, as it goes back to the client.
    pub fn opaque(&self) -> Option<&'a [u8]> {
        if !self.wants(b'O') {
            return None;
        }
        self.each().find(|token| token[0] == b'O')
    }
    /// Whether a flag was given, by its letter: `b'c'`, `b'f'`, `b'h'`, `b'k'`, `b'l'`, `b'O'`,
    /// `b's'`, `b't'`, `b'u'`...
    pub const fn wants(&self, letter: u8) -> bool {
        self.returns & Self::bit(letter) != 0
    }
    /// The bit of a flag letter.
    pub const fn bit(letter: u8) -> u64 {
        if letter.is_ascii_lowercase() {
            1 << (letter - b'a')
        } else if letter.is_ascii_uppercase() {
            1 << (26 + letter - b'A')
        } else {
            0
        }
    }
}

/// What to do with the input behind a malformed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Go on with what follows the line.
    Continue,
    /// Skip this many bytes behind the line first: the body of a refused `set` with its `\r\n`.
    Swallow(usize),
    /// Close the connection once the reply has left.
    Close,
}

/// The client is wrong: what it is told, and how to go on. An ordinary value, no failure of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// The reply line with its `\r\n`; empty where memcached says nothing.
    pub reply: &'static [u8],
    /// Bytes of the line, newline included: consumed whatever follows.
    pub head_bytes: usize,
    /// How to go on behind the line.
    pub then: Then,
    /// Given where a `set` or `ms` was refused for its size: memcached drops the old item of that
    /// key, so that no stale value stays behind.
    pub unlink: Option<MetaKey<'a>>,
}

/// Limits the parser enforces; all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest item (`-I`): key + value + header of the item must fit.
    pub item_bytes_max: usize,
    /// Longest multiget line; any other line is refused above 2048 bytes.
    pub line_bytes_max: usize,
}
