//! The classes of events that a client may watch, and the events themselves.

use laneway_store::{Moment, Refused};

/// Of a key, or of a client's address.
const TEXT_WORDS: usize = 32;
/// The longest key, and what is kept of a longer one or of an address.
pub(super) const TEXT_BYTES_MAX: usize = 250;
/// Words before those.
pub(super) const HEAD_WORDS: usize = 6;
/// Words of an event at most.
pub(super) const WORDS: usize = HEAD_WORDS + TEXT_WORDS;

const _: () = assert!(TEXT_BYTES_MAX <= TEXT_WORDS * 8);

/// What may be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Class {
    /// Keys that were asked for.
    Fetchers = 1,
    /// Values that were sent to be stored, and numbers that were changed.
    Mutations = 1 << 1,
    /// Items that memory had no room for.
    Evictions = 1 << 2,
    /// Connections that came and went.
    Connections = 1 << 3,
    /// Items that were deleted.
    Deletions = 1 << 4,
}

/// Each class by its name in the protocol.
pub const CLASSES: [(&str, Class); 5] = [
    ("fetchers", Class::Fetchers),
    ("mutations", Class::Mutations),
    ("evictions", Class::Evictions),
    ("connevents", Class::Connections),
    ("deletions", Class::Deletions),
];

/// What became of a key that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fetched {
    /// There is no item.
    Missed,
    /// Its item was found.
    Found,
}

/// What became of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stored {
    /// The condition was not met.
    NotStored,
    /// It was stored.
    Stored,
    /// The CAS id was another.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// The value is too large.
    TooLarge,
    /// Memory is short.
    NoMemory,
}

impl From<Refused> for Stored {
    fn from(refused: Refused) -> Stored {
        match refused {
            Refused::TooLarge => Stored::TooLarge,
            Refused::OutOfMemory => Stored::NoMemory,
        }
    }
}

/// How an item was stored. memcached logs the first six.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StoredBy {
    /// Where there was none.
    Add,
    /// Whatever there was.
    Set,
    /// Where there was one.
    Replace,
    /// Behind the value there was.
    Append,
    /// Before it.
    Prepend,
    /// By CAS id.
    Cas,
    /// A number was made larger.
    Incr,
    /// A number was made smaller.
    Decr,
}

/// How an item was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeletedBy {
    /// By a command of its own.
    Delete,
    /// By the meta command.
    MetaDelete,
}

/// Why a connection has closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Parting {
    /// Its stream has failed.
    Error,
    /// The client wanted it so, or broke the protocol's rules.
    #[default]
    Normal,
    /// Nothing came for too long.
    IdleTimeout,
    /// The server stops.
    Shutdown,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A key was asked for.
    Get(Fetched),
    /// A value came; its item ends then.
    Store(Stored, StoredBy, Moment),
    /// An item was deleted.
    Delete(DeletedBy),
    /// An item was evicted.
    Evict {
        /// Somebody had asked for it since it was stored.
        fetched: bool,
        /// When it would have ended.
        expires: Moment,
        /// For so many seconds nobody had used it.
        idle_seconds: u32,
    },
    /// A connection has come.
    Open,
    /// One has gone.
    Close(Parting),
}

impl Event {
    /// The class that it is of.
    pub(super) fn class(self) -> Class {
        match self {
            Event::Get(_) => Class::Fetchers,
            Event::Store(..) => Class::Mutations,
            Event::Delete(_) => Class::Deletions,
            Event::Evict { .. } => Class::Evictions,
            Event::Open | Event::Close(_) => Class::Connections,
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Subject<'a> {
    /// The key; of a connection its client's address.
    pub text: &'a [u8],
    /// Bytes of the value.
    pub value_bytes: u64,
    /// Number of the size class; 0 where there is no item.
    pub class: u32,
    /// The number of the connection that caused it; 0 where that is not known.
    pub by: u64,
}
