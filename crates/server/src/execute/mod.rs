//! Executes requests against the store and writes their replies, byte for byte as memcached 1.6.45
//! does; [`binary`] has the commands of its binary protocol, and [`redis`] those of Redis.
//!
//! Every compound operation has one shape, so that a bucket is held for pointer moves only: look at
//! the item without entering, build what shall replace it outside, enter, see that the item is
//! still the one looked at, publish; else begin again, a bounded number of times ([`attempts`]).
//!
//! A large value is never copied: the head of its reply goes to the output and the value leaves as
//! a [`Transfer`], which the connection moves slice by slice. It knows no connection, worker, lane
//! or clock: time comes in with the [`Context`]. Sizes are bytes.

mod admin;
mod anew;
mod arith;
mod attempts;
pub mod binary;
mod exptime;
mod get;
mod logged;
mod meta;
pub mod redis;
mod remove;
mod reply;
mod store;

pub use admin::AskedOfTier;
pub(crate) use admin::is_checkpoint;
pub use exptime::expires_at;
pub use get::get_key;
pub use meta::get::{
    META_HEAD_BYTES_MAX, is_plain, meta_get_key, put_miss, put_plain_head, tells_of_mark,
};
pub use remove::{deletes_any, say_deleted};
pub use store::{
    Body, Incoming, Joining, Landed, Landing, Spot, adds, adds_binary, begin, begin_binary,
    begin_resp, join_slice, join_whole, joins, key_of_store, looks_at_old, refuse_added,
    refuse_added_binary, refuse_binary, refused_by_size, store_binary_slice, store_binary_whole,
    store_slice, store_whole, stores_blindly, value_behind, value_bytes,
};

use crate::access::client_limits::Limited;
use crate::counts::counters::Counters;
use crate::durable::backup;
use crate::durable::pending_writes::{DurableReader, Sight};
use crate::event_log::{EventLog, asked};
use crate::stats::{self, Question};
use laneway_store::{Draft, Entry, Hand, ItemMeta, KeyHash, Moment, Pinned, Refused, Store};
use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::reply::{BAD_SHUTDOWN, CRLF, MN, OK, SHUTDOWN_DISABLED, VERSION_LINE};
use laneway_wire::{Request, ShutdownMode};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

/// What we call ourselves. Clients compare the first three numbers.
pub const VERSION: &str = "1.6.45-laneway";

/// What is told of [`Outcome::Again`] where a request cannot be kept and asked again.
pub const TRY_AGAIN: &[u8] = b"SERVER_ERROR busy with what came before, try again\r\n";

/// What execution reads of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecuteSettings {
    /// Whether items have CAS ids (`-C` takes them away: they all read 0).
    pub cas_enabled: bool,
    /// Whether `flush_all` is allowed (`-F` forbids it).
    pub flush_enabled: bool,
    /// Whether `shutdown` is allowed (`-A`).
    pub shutdown_enabled: bool,
    /// Whether TLS is spoken.
    pub tls_enabled: bool,
}

impl Default for ExecuteSettings {
    fn default() -> Self {
        ExecuteSettings {
            cas_enabled: true,
            flush_enabled: true,
            shutdown_enabled: false,
            tls_enabled: false,
        }
    }
}

/// What a command is executed in.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The store.
    pub store: &'a Arc<Store>,
    /// Those of other NUMA domains, for commands that are about every item.
    pub others: &'a [Arc<Store>],
    /// Free slots of that store that the executing thread keeps.
    pub hand: Option<&'a Hand>,
    /// What time it is.
    pub now: Moment,
    /// The counters of the worker that executes.
    pub counters: &'a Counters,
    /// The settings.
    pub settings: &'a ExecuteSettings,
    /// Bytes of key and value of the item a read found, for the lanes' statistics; the caller
    /// sets it to 0 first.
    pub touched: &'a Cell<u64>,
    /// Values of items this large are somebody else's to read: [`Outcome::Elsewhere`].
    pub large_from: u64,
    /// Items this large are of the large lane, and counted as that where a read finds them.
    pub large_lane_from: u64,
    /// Where items are kept durably: what must not be answered from memory alone.
    pub pending_writes: Option<DurableReader<'a>>,
    /// Who asks may change nothing, not even by a read that marks its item.
    pub read_only: bool,
    /// Where what happens is logged for those who watch; nowhere where that is of nobody's concern.
    pub log: Option<&'a EventLog>,
    /// The number of the connection that asks; 0 where there is none.
    pub by: u64,
}

impl<'a> Context<'a> {
    /// Counts a value that was refused.
    fn count_refused(&self, refused: Refused) {
        match refused {
            Refused::TooLarge => self.counters.store_too_large.bump_owner(),
            Refused::OutOfMemory => self.counters.store_no_memory.bump_owner(),
        }
    }

    /// Begin an item that is finished before this request ends.
    fn draft(
        &self,
        key: &[u8],
        flags: u32,
        expires: Moment,
        value_bytes: usize,
    ) -> Result<Draft<&'a Store>, Refused> {
        self.store.draft_at_once(self.hand, key, flags, expires, value_bytes)
    }

    /// Enter a key's bucket for writing.
    fn enter(&self, hash: KeyHash, key: &[u8]) -> Entry<'a> {
        self.store.enter(hash, key, self.now).keeping(self.hand)
    }

    /// Note the item whose value is read. False if reading it is somebody else's.
    fn reads(&self, item: &ItemMeta) -> bool {
        let bytes = item.item_bytes();
        self.touched.set(bytes);
        bytes < self.large_from
    }

    /// How far a worker sees, before it looks for an item.
    pub(crate) fn sight(&self) -> Sight {
        match self.pending_writes {
            Some(DurableReader::Worker(pending_writes)) => pending_writes.sight(),
            _ => Sight::default(),
        }
    }

    /// Whether the executor must answer for an item that was found in memory since.
    pub(crate) fn is_hidden(&self, hash: KeyHash, sight: Sight) -> bool {
        match self.pending_writes {
            Some(DurableReader::Worker(pending)) => pending.hides_since(hash, sight),
            _ => false,
        }
    }

    /// Whether what changes an item is the executor's, for only it changes the tier too.
    fn leaves_changes(&self) -> bool {
        matches!(self.pending_writes, Some(DurableReader::Worker(_)))
            && !is_planted(Bug::TokenUnwritten)
    }

    /// Whether memory has forgotten an item that the executor found there a moment ago. Whoever
    /// misses it must change nothing, and end with [`Outcome::Kept`]: the item is in the tier.
    fn has_forgotten(&self) -> bool {
        matches!(self.pending_writes, Some(DurableReader::DurableExecutor { seen: true }))
            && !is_planted(Bug::EvictedIsAbsent)
    }

    /// Who answers for a key that was not found in memory, if anybody must: the executor, or before
    /// it whoever reads values of this size.
    fn beyond_memory(&self, hash: KeyHash, key: &[u8]) -> Option<Outcome> {
        if self.has_forgotten() {
            return Some(Outcome::Kept);
        }
        let Some(DurableReader::Worker(pending_writes)) = self.pending_writes else { return None };
        let value_bytes = pending_writes.value_bytes(key, self.now);
        if value_bytes.is_none() && !pending_writes.hides(hash) {
            return None;
        }
        let bytes = value_bytes.map_or(0, |value_bytes| key.len() as u64 + value_bytes);
        self.touched.set(bytes);
        Some(if bytes < self.large_from { Outcome::Kept } else { Outcome::Elsewhere })
    }

    /// Whether the old item stays where a new one is refused, whoever refuses it: a deletion would
    /// be kept durably, and if memory alone forgot the item, it would be read again.
    fn refuses_without_loss(&self) -> bool {
        self.pending_writes.is_some()
    }

    /// Whether the executor executes.
    fn is_executors(&self) -> bool {
        matches!(self.pending_writes, Some(DurableReader::DurableExecutor { .. }))
    }

    /// The CAS id of an item as clients see it.
    fn cas(&self, meta: &ItemMeta) -> u64 {
        self.shown(meta.seq)
    }

    /// A sequence as clients see it.
    fn shown(&self, seq: u64) -> u64 {
        if self.settings.cas_enabled { seq } else { 0 }
    }
}

/// What is left to do once a command has been executed. Its reply, or the head of it, is in `out`.
pub enum Outcome {
    /// Nothing.
    Done,
    /// Everything: the value is too large to be read here. Nothing was done or counted, and
    /// `out` is as it was.
    Elsewhere,
    /// Everything: it is much work, a part of which was done. The same request, asked again,
    /// goes on with it; nothing was counted, and `out` is as it was.
    Again,
    /// The same: the item is being changed, or it is not in memory, and its executor answers.
    Kept,
    /// The reply goes on with a large value.
    Transfer(Transfer),
    /// Close the connection once the replies have left (`quit`).
    Close,
    /// Stop the server.
    Shutdown {
        /// Let clients finish first.
        graceful: bool,
    },
    /// Flush everything when it is this second; 0 cancels a flush that was to come, since one that
    /// is due at once was already done.
    FlushAt(u32),
    /// Answer this by the stats module: it needs the state that all workers share.
    Stats(stats::Question),
    /// Answer this by what all workers share.
    Backup(Box<backup::Asked>),
    /// Have the data folder's store do this, and answer.
    Tier(AskedOfTier),
    /// Have the clients of each address ask for so much a second at most, and answer.
    ClientLimit(Limited, u64),
    /// Stream the event log from now on.
    Watch(asked::Asked),
    /// Log this much from now on (0, 1 or 2).
    Verbosity(u32),
}

/// The rest of a reply whose head is in the output: a large value, then `tail`.
pub struct Transfer {
    /// The value.
    pub value: Pinned,
    /// Which bytes of it.
    pub part: Range<usize>,
    /// What stands behind it.
    pub tail: &'static [u8],
}

/// The head is written; the value and what stands behind it are to come.
fn transfer(value: Pinned, tail: &'static [u8]) -> Outcome {
    let part = 0..value.value_bytes();
    Outcome::Transfer(Transfer { value, part, tail })
}

/// Execute a request that no value follows.
///
/// A [`Request::Get`] is answered whole, `END` included, large values copied: a connection that can
/// hold transfers calls [`get_key`] for each key instead.
///
/// # Panics
/// If a value follows the request: those go to [`store_whole`] or [`begin`].
pub fn command(context: &Context<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Outcome {
    match request {
        Request::Get(keys) => return get::get_whole(context, keys, out),
        Request::Store(_) | Request::MetaSet(_) => unreachable!("a value follows this request"),
        Request::Arith(arith) => return arith::classic(context, arith, out),
        Request::Delete(delete) => return remove::delete(context, delete, out),
        Request::Touch(touch) => return remove::touch(context, touch, out),
        Request::MetaGet(meta) => return meta::get::meta_get(context, meta, out),
        Request::MetaDelete(meta) => return meta::delete::meta_delete(context, meta, out),
        Request::MetaArith(meta) => return meta::arith::meta_arith(context, meta, out),
        Request::MetaNoop => {
            context.counters.cmd_meta.bump_owner();
            out.extend_from_slice(MN);
        }
        Request::MetaDebug(meta) => return meta::debug::meta_debug(context, meta, out),
        Request::FlushAll { delay, noreply } => {
            return remove::flush_all(context, *delay, *noreply, out);
        }
        Request::Stats(words) => match stats::question(words) {
            Ok(question) => return Outcome::Stats(question),
            Err(reply) => out.extend_from_slice(reply),
        },
        Request::Version => {
            out.extend_from_slice(VERSION_LINE);
            out.extend_from_slice(VERSION.as_bytes());
            out.extend_from_slice(CRLF);
        }
        Request::Verbosity { level, noreply } => {
            reply::unless(*noreply, OK, out);
            return Outcome::Verbosity((*level).min(admin::VERBOSITY_MAX));
        }
        Request::Quit => return Outcome::Close,
        Request::Shutdown(mode) => match mode {
            _ if !context.settings.shutdown_enabled => out.extend_from_slice(SHUTDOWN_DISABLED),
            ShutdownMode::Now => return Outcome::Shutdown { graceful: false },
            ShutdownMode::Graceful => return Outcome::Shutdown { graceful: true },
            ShutdownMode::Unknown => out.extend_from_slice(BAD_SHUTDOWN),
        },
        Request::MemoryLimit { megabytes, noreply } => {
            admin::memory_limit(context, *megabytes, *noreply, out);
        }
        Request::Admin(line) => return admin_command(context, line, out),
    }
    Outcome::Done
}

/// A line that is about the server, not about an item.
fn admin_command(context: &Context<'_>, line: &[u8], out: &mut Vec<u8>) -> Outcome {
    if let Some((form, classes)) = stats::asked_dump(line) {
        return Outcome::Stats(Question::Dump { form, classes });
    }
    let asked = admin::backup(line).map(|asked| asked.map(|asked| Outcome::Backup(asked.into())));
    let asked = asked.or_else(|| admin::of_tier(line).map(|asked| asked.map(Outcome::Tier)));
    let limit = |(limited, most)| Outcome::ClientLimit(limited, most);
    let asked = asked.or_else(|| admin::client_limit(line).map(|asked| asked.map(limit)));
    let asked = asked.or_else(|| asked::asked(line).map(|asked| asked.map(Outcome::Watch)));
    match asked {
        Some(Ok(outcome)) => outcome,
        Some(Err(reply)) => {
            out.extend_from_slice(reply);
            Outcome::Done
        }
        None => {
            admin::answer(line, context.settings.tls_enabled, out);
            Outcome::Done
        }
    }
}
