//! A task is a job that the durable executor has taken: how far it is, and what its reply waits
//! for. This module also has the items that tasks wait for.

use super::shared::counted;
use crate::execute::redis::{Count, OUT_OF_MEMORY};
use crate::jobs::handoff::{Finished, Job, Origin, Work};
use crate::latency::{self, Operation, PendingLatencies};
use crate::stream::output::{End, Output};
use crate::udp::buffers::Held;
use laneway_policy::WorkerId;
use laneway_store::{Draft, KeyHash, Moment};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{ItemMeta, LargeReader, Position};
use laneway_transport::Token;
use laneway_wire::GetVerb;
use laneway_wire::binary::Echo;
use laneway_wire::binary::reply::{Status, put};
use laneway_wire::resp::Scan;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The line of values that are copied in one step.
pub const SHORT: usize = 0;
/// The line of values of more than a piece.
pub const LONG: usize = 2;

/// Keys of one request that are served before others have their turn.
pub const KEYS_PER_STEP: u64 = 32;

/// A connection: the worker that it lives at, and its name there.
pub type ConnectionName = (WorkerId, Token);

/// A change of a task on its way to the tier.
pub struct Leaving {
    /// The key.
    pub key: Box<[u8]>,
    /// What is kept with its value; none if it is deleted.
    pub meta: Option<ItemMeta>,
}

/// What a value on its way into memory takes of what may be.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Of which line.
    pub of: usize,
    /// Its length.
    pub bytes: u64,
    /// How much of it is in memory.
    pub copied: u64,
}

/// Memory has had no room.
#[derive(Debug, Clone, Copy)]
pub struct Shortage {
    /// Since then.
    pub since_nanos: u64,
    /// For more than this of any value.
    pub furthest: u64,
}

/// Values that come into memory, as many at a time as there may be.
#[derive(Debug, Default)]
pub struct Line {
    /// Bytes of those that have begun.
    pub under_way_bytes: u64,
    /// Those that have not.
    pub waiting: VecDeque<(Box<[u8]>, Share)>,
    /// Memory had no room for the first of them: it begins again then.
    pub again_nanos: u64,
    /// Memory has had room for none of late.
    pub short: Option<Shortage>,
}

impl Line {
    /// Who begins next, if those under way leave room for it in `most` bytes, or there are none.
    pub fn next(&mut self, most: u64) -> Option<(Box<[u8]>, Share)> {
        let under_way = self.under_way_bytes;
        let next = self.waiting.pop_front_if(|(_, share)| {
            under_way == 0 || under_way.saturating_add(share.bytes) <= most
        })?;
        self.under_way_bytes += next.1.bytes;
        Some(next)
    }
}

/// An item that is read, mostly on its way into memory.
pub struct Fault {
    /// The key.
    pub key: Box<[u8]>,
    /// What it takes.
    pub share: Share,
    /// Once it does.
    pub large: Option<Pieces>,
    /// It stays where it is: only its end is asked for.
    pub is_for_end: bool,
}

/// A value that comes in pieces.
pub struct Pieces {
    /// Keeps its blocks.
    pub reader: Arc<LargeReader>,
    /// The item to be.
    pub draft: Draft,
    /// The piece to read next.
    pub next: usize,
}

/// Bytes that were read, on their way into an item to be.
pub struct Filling {
    /// The key.
    pub key: Box<[u8]>,
    /// What it takes.
    pub share: Share,
    /// The item to be.
    pub draft: Draft,
    /// What was read.
    pub bytes: Vec<u8>,
    /// How much of it is in.
    pub done: usize,
    /// What is kept with the item.
    pub meta: ItemMeta,
    /// Where the rest comes from, and the piece to read next.
    pub rest: Option<(Arc<LargeReader>, usize)>,
}

/// A request of a job that is done but for its group.
pub struct Mark {
    /// Where it begins, in bytes of the job.
    start: usize,
    /// Its reply tells of what is durable when the log is up to here.
    until: Option<Position>,
    /// Where its reply begins among the others.
    place: End,
    /// It has changed an item.
    changes: bool,
}

/// What is asked of several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// Its value.
    Get,
    /// To be counted.
    Count(Count),
    /// To have the value behind it.
    Set,
}

/// A multiget of the text protocol that has begun.
#[derive(Debug, Clone)]
pub struct Gets {
    /// Which of the four verbs.
    pub verb: GetVerb,
    /// The new end, for `gat` and `gats`.
    pub exptime: i64,
    /// The keys that are left, in bytes of the job.
    pub left: Range<usize>,
}

/// A request about several keys by RESP, one key after the other.
#[derive(Debug, Clone, Copy)]
pub struct Several {
    /// What is asked.
    pub each: Each,
    /// Where the next key stands, in bytes of the job.
    pub at: usize,
    /// Keys that are left.
    pub left: u32,
    /// What was counted.
    pub count: i64,
    /// Where the first of its words stands that is yet to be found a key, and how many there are
    /// from there on: before all are, none is served.
    pub unseen: Option<(usize, u32)>,
}

/// In what protocol a request's errors are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Voice {
    /// memcached's text.
    #[default]
    Text,
    /// memcached's binary protocol, of this request.
    Binary(Echo),
    /// RESP.
    Resp,
}

/// One job.
#[derive(Default)]
pub struct Task {
    /// What is to be done; taken out while it is being done.
    pub work: Option<Work>,
    /// What it counts among the bytes that the executor has.
    pub bytes: u64,
    /// When its last byte came.
    pub arrived_nanos: u64,
    /// Where the reply goes; nowhere for the executor's own.
    pub origin: Option<Origin>,
    /// Whose requests these are, where others of the same connection may come before they are
    /// answered: those are executed behind them.
    pub connection: Option<ConnectionName>,
    /// Where its next request begins, in bytes of the job, and where that one ends.
    pub range: Range<usize>,
    /// The requests before that one.
    pub marks: Vec<Mark>,
    /// How far it has come of what has no way back; the first request that is not done.
    pub at: usize,
    /// Where the request that is next is a multiget, and has begun.
    pub gets: Option<Gets>,
    /// Where the request that is next is one about several keys by RESP, and has begun.
    pub several: Option<Several>,
    /// How far the request that is next was read, by RESP.
    pub scan: Scan,
    /// Bytes of it, and of those behind it, that `scan` was shown.
    pub shown: usize,
    /// How errors are told.
    pub voice: Voice,
    /// The reply so far.
    pub reply: Output,
    /// Bytes that were copied into it, and those of values that it holds.
    pub reply_bytes: [usize; 2],
    /// Where in it that to the request that is next begins.
    pub place: End,
    /// What was done, for the latencies.
    pub tally: PendingLatencies,
    /// The reply holds a large value.
    pub large: bool,
    /// The client wants no reply, not even of failure.
    pub quiet: bool,
    /// All that is left of the request that is next is to answer.
    pub done: bool,
    /// The replies tell of what is durable when the log is up to here.
    pub waits_for: Option<Position>,
    /// The same of the reply to the request that is next.
    pub until: Option<Position>,
    /// Keys that are hidden for its sake.
    pub covers: Vec<KeyHash>,
    /// The request that is next has changed an item.
    pub changes: bool,
    /// Requests that are refused, by where they begin, and why: a flush failed for what they have
    /// changed, which may yet be on the medium.
    pub refused: (Vec<usize>, String),
    /// Keys that were changed, in case they must be taken back.
    pub changed: Vec<Box<[u8]>>,
    /// Its connection waits for a change on its account, and is told nothing of before.
    pub counts_as_waiting: bool,
    /// Its number, once something waits for a device on its behalf.
    pub number: Option<u64>,
    /// Changes on their way to the tier.
    pub leaving: Vec<Leaving>,
    /// Keys that are deleted once all of those are there.
    pub deletions: Vec<Box<[u8]>>,
    /// The tier has flushed everything for it, or knows when to, as of this time; memory is next.
    pub flushed_at: Option<Moment>,
    /// What is answered instead.
    pub error: Option<String>,
    /// How often an item was brought into memory for its next key.
    pub tries: u8,
    /// Watched keys whose records cannot be read, by their numbers.
    pub lost: Vec<usize>,
    /// The item of its next key was found in memory before it was executed.
    pub seen: bool,
    /// Counts the bytes of its request, where that came in datagrams.
    pub held: Option<Held>,
    /// Who asks may change nothing.
    pub read_only: bool,
}

impl Task {
    /// Of a job.
    pub fn of(job: Job) -> Task {
        let bytes = counted(&job);
        let Job { work, size: _, arrived_nanos, origin, home: _, held } = job;
        let connection = match (&work, origin) {
            (Work::Batch { .. }, Origin::Stream(origin)) => Some((origin.worker, origin.token)),
            _ => None,
        };
        Task { bytes, connection, held, ..Task::new(work, arrived_nanos, Some(origin)) }
    }

    /// How many requests it has.
    pub fn requests(&self) -> u32 {
        match &self.work {
            Some(Work::Batch { requests, .. }) => *requests,
            _ => 1,
        }
    }

    /// The request that is next is done: the one behind it is next. False: there is none.
    pub fn next_request(&mut self) -> bool {
        match &self.work {
            Some(Work::Batch { bytes, .. }) if self.range.end < bytes.len() => {}
            _ => return false,
        }
        let Task { until, place, changes, .. } = *self;
        self.marks.push(Mark { start: self.range.start, until, place, changes });
        self.end_reply();
        self.go_to(self.range.end);
        true
    }

    /// The request that begins there is next; nothing of it was done.
    fn go_to(&mut self, start: usize) {
        self.range = start..start;
        (self.at, self.tries, self.seen, self.quiet, self.done) = (0, 0, false, false, false);
        (self.until, self.error, self.place) = (None, None, self.reply.end());
        (self.gets, self.several) = (None, None);
        (self.scan, self.shown) = (Scan::default(), 0);
        self.changes = false;
    }

    /// The reply to the request that is next is whole, or an error is told instead.
    fn end_reply(&mut self) {
        let Some(why) = self.error.take() else { return };
        self.reply.rewind(self.place);
        match (self.voice, self.quiet) {
            (Voice::Resp, _) if why == NO_MEMORY_STORING => self.reply.push_bytes(OUT_OF_MEMORY),
            (Voice::Resp, _) => self.reply.push_bytes(format!("-ERR {why}\r\n").as_bytes()),
            (Voice::Binary(echo), _) => {
                let is_short = why == NO_MEMORY_STORING || why == NO_MEMORY;
                let status = if is_short { Status::OutOfMemory } else { Status::Failed };
                let mut out = Vec::new();
                put(&mut out, echo, status, b"", why.as_bytes());
                self.reply.push_bytes(&out);
            }
            (Voice::Text, false) => {
                self.reply.push_bytes(format!("SERVER_ERROR {why}\r\n").as_bytes());
            }
            (Voice::Text, true) => {}
        }
    }

    /// The number of the connection that asks; 0 where there is none.
    pub fn asker(&self) -> u64 {
        self.origin.map_or(0, Origin::asker)
    }

    /// Of any work.
    pub fn new(work: Work, arrived_nanos: u64, origin: Option<Origin>) -> Task {
        let voice = match &work {
            Work::Batch { spoken: Some(_), .. } | Work::Resp { .. } | Work::Watched(_) => {
                Voice::Resp
            }
            Work::Request { .. } | Work::Batch { .. } => Voice::Text, // until it is read
            Work::Body(incoming) => match incoming.echo() {
                _ if incoming.is_resp() => Voice::Resp,
                Some(echo) => Voice::Binary(echo),
                None => Voice::Text,
            },
        };
        let read_only = matches!(work, Work::Request { read_only: true, .. });
        let work = Some(work);
        Task { work, arrived_nanos, origin, voice, read_only, ..Task::default() }
    }

    /// The reply waits for this too.
    pub fn wait_for(&mut self, position: Position) {
        self.waits_for = self.waits_for.max(Some(position));
        self.until = self.until.max(Some(position));
    }

    /// The request that is next is refused in these words before any of it is executed.
    pub fn refuse(&mut self, words: &[u8]) {
        self.reply.push_bytes(words);
        self.count(Operation::Other);
    }

    /// One more request is answered, which is about no large item.
    pub fn count(&mut self, operation: Operation) {
        self.tally.add(latency::row(operation, false), self.arrived_nanos);
    }

    /// It failed: this is answered instead of whatever the reply would have been.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.done = true;
        self.error.get_or_insert(why.into());
    }

    /// Whether it can be done once more, since nothing of it need be taken back.
    pub fn has_changed_nothing(&self) -> bool {
        self.changed.is_empty() && !matches!(self.work, None | Some(Work::Body(_)))
    }

    /// Whether its requests can be done once more from the first on that is not durable, since each
    /// has an answer of its own then: those that wrote are refused, and those that read are not.
    pub fn has_several(&self) -> bool {
        self.requests() > 1
    }

    /// As if nothing had been done of what is not durable, nor of what came behind it. What has
    /// changed an item is refused then: to do it again would tell of an item that it may itself
    /// have changed, as the store will say when it is opened again.
    pub fn begin_again_behind(&mut self, durable: Position, why: &str) {
        let is_lost = |mark: &Mark| Some(durable) < mark.until || is_planted(Bug::BatchRedone);
        let first = self.marks.iter().position(is_lost);
        let (mut start, mut place) = (self.range.start, self.place);
        let mut refused = Vec::new();
        refused.extend(self.changes.then_some(start));
        if let Some(first) = first {
            (start, place) = (self.marks[first].start, self.marks[first].place);
            let again = self.marks.drain(first..).filter(|mark| mark.changes);
            refused.extend(again.map(|mark| mark.start));
        }
        if !is_planted(Bug::BatchRedone) {
            self.refused.0.append(&mut refused);
            self.refused.1 = why.to_owned();
        }
        self.reply.rewind(place);
        self.go_to(start);
        (self.waits_for, self.number) = (None, None);
    }

    /// As if nothing of it had been done.
    pub fn begin_again(&mut self) {
        let work = self.work.take().expect("it is whole");
        let covers = std::mem::take(&mut self.covers);
        let (bytes, connection, held) = (self.bytes, self.connection, self.held.take());
        let counts_as_waiting = self.counts_as_waiting;
        let anew = Task::new(work, self.arrived_nanos, self.origin);
        *self = Task { covers, bytes, connection, held, counts_as_waiting, ..anew };
    }

    /// The reply, if somebody waits for one.
    pub fn finish(mut self) -> Option<Finished> {
        let is_batch = self.connection.is_some(); // its values are small
        let fails = self.error.is_some() && !is_batch;
        let large = self.large && !fails && !is_batch;
        self.end_reply();
        let Task { origin, reply, tally, .. } = self;
        let (origin, home, undone) = (origin?, None, None);
        Some(Finished { origin, reply, tally, large, fails, home, undone })
    }
}

/// What is answered where memory is so short that an item is evicted before it is kept.
pub(super) const NO_MEMORY_STORING: &str = "out of memory storing object";
/// What is answered where memory has no room for an item.
pub(super) const NO_MEMORY: &str = "out of memory reading object";

/// Where a task goes from here.
pub(super) enum Step {
    /// All is done but the answer.
    Done,
    /// There is more to do once its values are on the SSD.
    More,
    /// Behind others that wait for this key.
    Behind(Box<[u8]>),
    /// Until what was appended is durable.
    Settle,
    /// Until nothing else is under way.
    Barrier,
    /// Until what it asked for has ended.
    Suspend,
    /// Until everything is counted, or a checkpoint is made: nobody waits for that.
    Count,
    /// Until others had their turn.
    Yield,
}
