//! Requests of a connection that the durable executor takes together: as one job, while earlier
//! ones of the same connection are still to be answered.
//!
//! A write that waits for a device would hold up every request behind it on its connection. So
//! those behind it go along: what is whole in the input, from the first write on, is one job, whose
//! requests are executed one after the other and answered as one; and while the executor has some
//! of a connection's requests the connection is read on, and the next ones are given to it too. It
//! takes a connection's jobs in their order. So the requests of a connection are executed in
//! their order, also a read behind a write, whosever keys they are about; what cannot go along (a
//! value that streams in, `flush_all`, a read that may be long) waits until everything before it is
//! answered.
//!
//! It departs from SplitKV (§3, "submission"), where a thread has as many requests under way as it
//! has callers.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::{joins, key_of_store, value_bytes};
use crate::jobs::handoff::{Spoken, Work};
use crate::latency::Operation;
use crate::request::requests::key_of;
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::{Design, ItemBytes, Route, route};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_wire::reply::CRLF;
use laneway_wire::{KEY_BYTES_MAX, Keys, Request, parse};

/// Requests of one job: executing them is about a step of the executor.
const REQUESTS_MAX: usize = 64;
/// Jobs of one connection from the first on that is not answered: their requests are copies, and
/// the replies to those that are answered stay behind it.
const JOBS_MAX: u64 = 8;
/// What the reads of one job may find in all, since replies are held until all of it is answered.
pub(crate) const READS_BYTES_MAX: u64 = 32 << 10;
/// Keys that one request of a job reads.
pub(crate) const KEYS_MAX: usize = 16;

/// Requests at the front of some input that go together.
pub(crate) struct Row {
    pub(crate) bytes: usize,
    pub(crate) requests: usize,
    /// Bytes of the item of each that stores one.
    pub(crate) sizes: [u64; REQUESTS_MAX],
    /// Bytes of the longest item that these, or requests of the connection that are not answered,
    /// may have stored: memory does not tell of it yet.
    pub(crate) longest: u64,
    /// Bytes of the items that the others may tell of.
    pub(crate) reads: u64,
    /// Bytes that the executor may need beside those until they are answered.
    pub(crate) keeps: u64,
}

/// What a request of a row stores and reads, bytes.
#[derive(Default)]
pub(crate) struct Moves {
    /// Of the item that it stores, or of all of them.
    pub(crate) size: u64,
    /// Of the longest that may be there afterwards.
    pub(crate) longest: u64,
    pub(crate) reads: u64,
    /// See [`Row::keeps`].
    pub(crate) keeps: u64,
}

impl Row {
    /// The requests at the front of `input` that go together, behind such as may have stored an
    /// item of `longest`. `next` is given those before and the rest of the input: it says how long
    /// the first request there is and what it moves, or why the row ends before it.
    pub(crate) fn of(
        input: &[u8],
        longest: u64,
        mut next: impl FnMut(&Row, &[u8]) -> Result<(usize, Moves), End>,
    ) -> (Row, End) {
        let (bytes, requests, sizes) = (0, 0, [0; REQUESTS_MAX]);
        let mut row = Row { bytes, requests, sizes, longest, reads: 0, keeps: 0 };
        while row.requests < REQUESTS_MAX {
            let (bytes, moves) = match next(&row, &input[row.bytes..]) {
                Ok((_, moves)) if READS_BYTES_MAX < row.reads + moves.reads => break,
                Ok(next) => next,
                Err(end) => return (row, end),
            };
            row.sizes[row.requests] = moves.size;
            row.longest = row.longest.max(moves.longest);
            row.reads += moves.reads;
            row.keeps += moves.keeps;
            row.bytes += bytes;
            row.requests += 1;
        }
        (row, End::Full)
    }
}

/// Why a row ends.
pub(crate) enum End {
    /// More bytes are needed.
    Starved(Stop),
    /// There are enough, or the next one cannot go along.
    Full,
}

/// Whether a request without a value is about one key, and so may be one of a row.
pub(crate) fn goes_along(request: &Request<'_>) -> bool {
    use Request::{Arith, Delete, MetaArith, MetaDebug, MetaDelete, MetaGet, MetaNoop, Touch};
    matches!(
        request,
        Arith(_)
            | Delete(_)
            | MetaArith(_)
            | MetaDebug(_)
            | MetaDelete(_)
            | MetaGet(_)
            | MetaNoop
            | Touch(_)
    )
}

impl<T: Transport> Core<T> {
    /// The requests at the front of `input` that go together. `longest`: bytes of the longest item
    /// that requests before them may have stored.
    fn row_of(&self, input: &[u8], longest: u64) -> (Row, End) {
        Row::of(input, longest, |row, rest| {
            let frame = match parse(rest, &self.limits) {
                _ if rest.is_empty() => return Err(End::Starved(Stop::Starved)),
                Ok(Some(frame)) => frame,
                Ok(None) => return Err(End::Starved(Stop::HalfLine)),
                Err(_) => return Err(End::Full),
            };
            let head = frame.head_bytes;
            let Some(value_bytes) = value_bytes(&frame.request) else {
                let reads = self.reads_of(&frame.request, row.longest).ok_or(End::Full)?;
                return Ok((head, Moves { reads, ..Moves::default() }));
            };
            let mut scratch = [0; KEY_BYTES_MAX];
            let key = key_of_store(&frame.request, &mut scratch);
            let size = (key.len() + value_bytes) as u64;
            let whole = head + value_bytes + CRLF.len();
            let route = route(&self.plan, self.id, ItemBytes(size));
            let leaves = matches!(route, Route::Hand(_)) && self.plan.design == Design::Lanes;
            if READ_BYTES < whole || leaves {
                return Err(End::Full);
            }
            if rest.len() < whole {
                return Err(End::Starved(Stop::Starved));
            }
            let longest = match joins(&frame.request) {
                true => self.item_bytes(key, row.longest) + value_bytes as u64,
                false => size,
            };
            Ok((whole, Moves { size, longest, ..Moves::default() }))
        })
    }

    /// Bytes of an item, at most, where requests before it may have stored one of `longest`.
    pub(crate) fn item_bytes(&self, key: &[u8], longest: u64) -> u64 {
        let store = &self.shared.store;
        let bytes = match store.peek(store.hash(key), key, self.now) {
            Some(seen) => u64::from(seen.value_bytes),
            None => self.kept_bytes(key, EXECUTOR),
        };
        longest.max(key.len() as u64 + bytes)
    }

    /// Bytes of the items that a request may tell of; `longest` is what the requests before it may
    /// have stored. `None`: it does not go along.
    fn reads_of(&self, request: &Request<'_>, longest: u64) -> Option<u64> {
        let found = |key: &[u8]| self.item_bytes(key, longest);
        let mut scratch = [0; KEY_BYTES_MAX];
        match request {
            Request::Get(get) => {
                let mut keys = Keys::new(get.keys.rest());
                let bytes = keys.by_ref().take(KEYS_MAX).map(found).sum();
                keys.rest().is_empty().then_some(bytes)
            }
            Request::MetaGet(_) => key_of(request, &mut scratch).map(|(key, _)| found(key)),
            request => goes_along(request).then_some(0),
        }
    }

    /// Bytes of the longest item that those requests of a connection may store that are not
    /// answered. `None` where they are enough, or it is to leave: it would always have some under
    /// way, and so never be between two requests. Nor has a read-only connection any, whose
    /// requests are judged one by one.
    pub(crate) fn longest_given(&self, connection: &Connection<T::Stream>) -> Option<u64> {
        match connection.mode {
            _ if connection.read_only => None,
            _ if JOBS_MAX <= connection.output.held_back() => None,
            _ if connection.output.is_waiting() && self.is_to_leave(connection) => None,
            Mode::Batches { longest } => Some(longest),
            _ => Some(0),
        }
    }
}

impl<T: Transport> Streams<T> {
    /// Gives the requests at the front of `input` to the durable executor, as many as go together.
    /// `None`: not even the first of them goes along with others.
    pub(crate) fn batch(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
    ) -> Option<Step> {
        let before = core.longest_given(connection)?;
        let (row, end) = core.row_of(input, before);
        self.give_row(core, connection, (row, end), (input, None))
    }

    /// The same of the row at the front of `input`.
    pub(crate) fn give_row(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (row, end): (Row, End),
        (input, spoken): (&[u8], Option<Box<Spoken>>),
    ) -> Option<Step> {
        if row.requests == 0 {
            return match end {
                End::Starved(stop) => Some(Step::Stop(0, stop)),
                End::Full => None,
            };
        }
        meter::bytes(row.bytes);
        let bytes = input[..row.bytes].to_vec();
        let work = Work::Batch { bytes, requests: row.requests as u32, spoken };
        let sizes = &row.sizes[..row.requests];
        // What it takes of memory: the copy, and replies that are held until all of it is answered.
        let size = ItemBytes(row.bytes as u64 + row.reads);
        Some(match self.hand_over(core, connection, EXECUTOR, work, size) {
            Ok(()) => {
                for size in sizes {
                    core.count(Operation::Other, *size);
                }
                connection.mode = Mode::Batches { longest: row.longest };
                Step::Took(row.bytes)
            }
            Err(_) => Step::Stop(0, Stop::Quota),
        })
    }
}
