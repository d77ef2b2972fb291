//! What is asked of one key and told: a register with flags, expiry, CAS ids, numbers, appends,
//! stale items and their tokens.
//!
//! Expiry is an interval, since a client knows the server's time only between its call and the
//! reply; its ends lie at full seconds, as memcached counts, or at milliseconds, as Redis does.
//! It knows no server and no bytes of a protocol. Times are unix milliseconds, moments are ticks.

use std::collections::HashMap;

/// A value, by number: equal numbers are equal bytes.
pub type ValueId = u32;

/// Every value of a run, once.
#[derive(Default)]
pub struct Values {
    numbers: HashMap<Vec<u8>, ValueId>,
    bytes: Vec<Vec<u8>>,
    /// What is one behind the other: who looks for an order of requests asks again and again.
    joined: HashMap<(ValueId, ValueId), ValueId>,
}

impl Values {
    /// The number of these bytes.
    pub fn id(&mut self, bytes: &[u8]) -> ValueId {
        if let Some(id) = self.numbers.get(bytes) {
            return *id;
        }
        let id = self.bytes.len() as ValueId;
        self.numbers.insert(bytes.to_vec(), id);
        self.bytes.push(bytes.to_vec());
        id
    }

    /// The bytes of a number.
    pub fn bytes(&self, id: ValueId) -> &[u8] {
        &self.bytes[id as usize]
    }

    /// The number of `first` with `second` over its bytes from `at` on.
    pub(crate) fn over(&mut self, first: &[u8], second: ValueId, at: usize) -> ValueId {
        let (mut both, second) = (first.to_vec(), self.bytes(second));
        both.resize(both.len().max(at + second.len()), 0);
        both[at..at + second.len()].copy_from_slice(second);
        self.id(&both)
    }

    pub(crate) fn joined(&mut self, first: ValueId, second: ValueId) -> ValueId {
        if let Some(id) = self.joined.get(&(first, second)) {
            return *id;
        }
        let both = [self.bytes(first), self.bytes(second)].concat();
        let id = self.id(&both);
        self.joined.insert((first, second), id);
        id
    }
}

/// When an item ends, as far as a client can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expires {
    /// Before this millisecond it is there.
    pub from: u64,
    /// From this millisecond on it is not. 0 is never.
    pub to: u64,
}

/// So many seconds after the beginning of a time's second.
pub(crate) fn full_seconds(ms: u64, seconds: u32) -> u64 {
    (ms / 1000 + u64::from(seconds)).saturating_mul(1000)
}

/// What a client asked for as the end of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// None.
    Never,
    /// So many seconds after the beginning of that in which the server has executed the request.
    Seconds(u32),
    /// By RESP: so many milliseconds after the server has executed the request.
    Millis(u32),
    /// By RESP: this unix millisecond.
    At(u64),
    /// At once: a negative time.
    Past,
}

impl Ttl {
    pub(crate) fn expires(self, operation: &Operation) -> Expires {
        match self {
            Ttl::Never => Expires { from: 0, to: 0 },
            Ttl::Seconds(seconds) => Expires {
                from: full_seconds(operation.called_ms, seconds),
                to: full_seconds(operation.returned_ms, seconds),
            },
            Ttl::Millis(millis) => Expires {
                from: operation.called_ms + u64::from(millis),
                to: operation.returned_ms.saturating_add(millis.into()),
            },
            Ttl::At(at) => Expires { from: at, to: at },
            Ttl::Past => Expires { from: 1, to: 1 },
        }
    }

    /// The same of an item that is there and gets another end. Its record may have no room for
    /// milliseconds, and memory none for another record: then it ends with the second.
    pub(crate) fn given(self, operation: &Operation) -> Expires {
        let Expires { from, to } = self.expires(operation);
        match self {
            Ttl::Millis(_) | Ttl::At(_) if operation.memory_is_short => {
                Expires { from, to: to.div_ceil(1000).saturating_mul(1000) }
            }
            _ => Expires { from, to },
        }
    }
}

/// The item of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    pub(crate) value: ValueId,
    pub(crate) flags: u32,
    pub(crate) expires: Expires,
    /// When the request was sent that made it, or changed it last.
    pub(crate) since: u64,
    /// Its CAS id, once somebody was told; 0 before.
    pub(crate) cas: u64,
    /// It was marked stale.
    pub(crate) stale: bool,
    /// Somebody has won the token of it.
    pub(crate) sent: bool,
}

/// What is stored by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct New {
    /// The value.
    pub value: ValueId,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it ends.
    pub ttl: Ttl,
}

/// What a client asked of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Read it.
    Get,
    /// Read it and give it another end.
    GetTouch(Ttl),
    /// Store it.
    Set(New),
    /// Store it if there is none.
    Add(New),
    /// Store it if there is one.
    Replace(New),
    /// Store it if the CAS id is still this.
    Cas(New, u64),
    /// Bytes behind the value.
    Append(ValueId),
    /// Bytes before the value.
    Prepend(ValueId),
    /// Remove it.
    Delete,
    /// Give it another end.
    Touch(Ttl),
    /// Add to the number.
    Increase(u64),
    /// Subtract from the number, down to 0.
    Decrease(u64),
    /// Remove everything.
    Flush,
    /// `mg`: read it, change its end, make it, win its token.
    Fetch(Fetch),
    /// `md I`: mark it stale, with another end if there is one given.
    Invalidate(Option<Ttl>),
    /// `ms I`: as `Cas`, but an older id stores too, as stale.
    Older(New, u64),
    /// `ma N`: change the number, or make it.
    Count(Count),
    /// By RESP: bytes behind the value, or an item made of them.
    Join(ValueId),
    /// By RESP: bytes over those of the value from here on, or an item made of them.
    Over(u32, ValueId),
    /// By RESP: add to the signed number, which begins at 0.
    Sum(i64),
    /// By RESP: read it and remove it.
    Take,
    /// By RESP: read it and store another.
    Swap(New),
    /// By RESP: the same, if it has not changed in between (`WATCH`).
    Guarded(New),
    /// By RESP: store it if there is none, nor one of other keys (`MSETNX`).
    AddAll(New),
    /// By RESP: the milliseconds that it has left (`PTTL`).
    Left,
    /// By RESP: read it, and give it to another key; only if that has none.
    MoveOut(bool),
    /// By RESP: take the item of another key, whatever it is; only if there is none.
    MoveIn(bool),
    /// By RESP: store something and give it to another key, in one moment.
    Emptied(New),
    /// By RESP: take that.
    Moved(New),
}

/// What an `mg` asks besides the value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetch {
    /// Another end (`T`).
    pub touch: Option<Ttl>,
    /// An empty item if there is none (`N`).
    pub vivify: Option<Ttl>,
    /// The token, if it ends within so many seconds (`R`).
    pub recache: Option<u32>,
    /// It came by a read-only port: nobody wins the token by it.
    pub read_only: bool,
}

/// What an `ma` asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Upwards.
    pub is_up: bool,
    /// By how much.
    pub by: u64,
    /// When the number ends that is made if there is none.
    pub ttl: Ttl,
    /// That number.
    pub initial: u64,
}

impl Asked {
    /// Whether it leaves an item as it is, for whoever compares it.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Asked::Get | Asked::Left)
    }

    /// Whether a refusal may remove the item there is: that of a `set` does, and of an `ms` in any
    /// mode, so that no stale value stays behind.
    pub(crate) fn stores(self) -> bool {
        use Asked::{Add, Append, Cas, Older, Prepend, Replace, Set};
        matches!(self, Set(_) | Add(_) | Replace(_) | Cas(..) | Older(..) | Append(_) | Prepend(_))
    }
}

/// What a reader saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The value.
    pub value: ValueId,
    /// Its flags.
    pub flags: Option<u32>,
    /// Its CAS id, where that was asked for.
    pub cas: Option<u64>,
    /// What an `mg` tells of its token.
    pub marks: Option<Marks>,
}

/// What an `mg` tells of an item's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// The reader has won it (`W`).
    pub won: bool,
    /// Somebody had it already (`Z`).
    pub sent: bool,
    /// The item is stale (`X`).
    pub stale: bool,
}

/// What a client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The item that a read found, or none.
    Value(Option<Seen>),
    /// It was done.
    Done,
    /// The condition did not hold.
    NotStored,
    /// The CAS id is another.
    Exists,
    /// There is no item.
    NotFound,
    /// The number that came of it.
    Number(u64),
    /// The same, with a sign.
    Signed(i64),
    /// The milliseconds that an item has left; or what says that it has no end, or is not there.
    Left(i64),
    /// This value came, which ends then: a unix millisecond, or -1 for never.
    Moved(ValueId, i64),
    /// The item is no number.
    NotNumber,
    /// Nothing was asked to be told, but it was executed.
    Silence,
    /// The server refused: nothing changed, but that a refused `set` may have removed the old item.
    Refused,
    /// Nobody heard: it took effect or it did not.
    Unknown,
    /// What changes in one moment was too much: nothing was done.
    TooMuch,
    /// A device refused. Whether it took effect shows when the store is opened again, at the
    /// latest: what a failed flush should have made durable may be there.
    Doubt,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// What was asked.
    pub asked: Asked,
    /// What was told.
    pub told: Told,
    /// When it was asked.
    pub called: u64,
    /// When it was told.
    pub returned: u64,
    /// The same in the server's time.
    pub called_ms: u64,
    /// The same in the server's time.
    pub returned_ms: u64,
    /// What was made at this moment or before may be gone: the tier told, before this returned,
    /// that it dropped it; or memory was full, and nothing else holds the item.
    pub gone_until: u64,
    /// Memory is so short that a joined value may find no room (memcached's word for that is
    /// `NOT_STORED`), nor the milliseconds of another end.
    pub memory_is_short: bool,
    /// Nothing but this operation may have changed the item while it was under way, but the item's
    /// end: it was compared with itself.
    pub is_alone: bool,
    /// The operation before it of the same connection, where its requests are executed in order: by
    /// number in the key's history.
    pub behind: Option<usize>,
    /// Which request of the run it belongs to, for the trace.
    pub request: u64,
}

/// A failure of the whole server.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    /// Nothing is left.
    All,
    /// What was acknowledged is left.
    Nothing,
    /// A state since this moment is left.
    Since(u64),
    /// Damage was told: any state that there ever was is left, or none.
    Any,
    /// The wall clock was stepped back from this millisecond: what has ended since may be there
    /// again, or may be gone.
    Back(u64),
}

/// What happened to one key.
#[derive(Default)]
pub struct History {
    /// Operations, in the order of their calls.
    pub operations: Vec<Operation>,
    /// Whoever is told that an item has changed was told so because it has: nothing evicts one, and
    /// none is known by what it shares with others.
    pub is_exact: bool,
    /// Failures, in order; every operation that was called before one has returned before it.
    pub losses: Vec<(u64, Loss)>,
}

/// Why a history is impossible.
#[derive(Debug)]
pub struct Impossible {
    /// The operation that cannot be.
    pub operation: Operation,
    /// The items that could have been there.
    pub possible: Vec<Option<Item>>,
}
