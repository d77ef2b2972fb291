//! Hands requests of a connection over to another worker or to the durable executor, and decides in
//! what pieces. A request without a value goes as its line, one with a value as its line and the
//! value, and one whose value streams in as the finished draft. The keys of a multiget that go to
//! one queue go together.
//!
//! What is handed over is consumed only when it lies in its queue: a full queue leaves everything
//! as it was, for the next turn. `lanes` moves whole connections instead, see
//! [`crate::stream::places`].

use crate::core::Core;
use crate::execute::Incoming;
use crate::jobs::handoff::{Job, Origin, StreamOrigin, Work};
use crate::request::requests::{verb_words, writes};
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::{Design, ItemBytes, WorkerTarget};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_wire::{GetVerb, Keys};

/// Keys of a multiget that one job looks up.
const KEYS_PER_JOB: usize = 64;

/// The most that the executor is to bring into memory for one reply: values in a reply stay there
/// until they have left.
const KEPT_BYTES_MAX: u64 = 256 << 10;

/// A multiget that is being served: what is left of its line begins at some key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeysLeft<'a> {
    pub(crate) verb: GetVerb,
    pub(crate) exptime: i64,
    /// The rest of the line, newline included.
    pub(crate) line: &'a [u8],
    /// The same without its end.
    pub(crate) text: &'a [u8],
    /// Where in it the next key begins.
    pub(crate) at: usize,
}

impl<T: Transport> Streams<T> {
    /// Hand the first `bytes` of `input` over: a whole request.
    pub(crate) fn hand_request(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        request: &[u8],
        size: u64,
    ) -> Step {
        meter::bytes(request.len());
        let (bytes, read_only) = (request.to_vec(), connection.read_only);
        let work = Work::Request { bytes, ends: true, read_only };
        match self.hand_over(core, connection, to, work, ItemBytes(size)) {
            Ok(()) => Step::Stop(request.len(), Stop::Ticket),
            Err(_) => Step::Stop(0, Stop::Quota),
        }
    }

    /// A request that turned out to be for another worker to serve: a large one, which nothing was
    /// done for yet. In `lanes` its connection moves; else it is handed over.
    pub(crate) fn elsewhere(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        request: &[u8],
        size: u64,
    ) -> Step {
        if core.plan.design == Design::Lanes {
            return Step::Stop(0, Stop::Hand);
        }
        let to = core.queue_for_size(size);
        self.hand_request(core, connection, to, request, size)
    }

    /// Hand keys of a multiget over, from the next one on: at most `most`, and as many as go to the
    /// same queue.
    pub(crate) fn hand_keys(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        left: KeysLeft<'_>,
        (most, size): (usize, u64),
    ) -> Step {
        let KeysLeft { verb, exptime, line, text, at } = left;
        let writes = writes(verb);
        let mut keys = Keys::new(&text[at..]);
        let mut end = at;
        let mut kept_bytes = 0;
        for taken in 0..most.min(KEYS_PER_JOB) {
            let mut next = keys;
            let Some(key) = next.next() else { break };
            kept_bytes += core.kept_bytes(key, to);
            if taken > 0 && (!core.goes_along(key, writes, to) || KEPT_BYTES_MAX < kept_bytes) {
                break;
            }
            keys = next;
            end = text.len() - keys.rest().len();
        }
        let ends = keys.next().is_none();
        let mut bytes = verb_words(verb, exptime);
        bytes.extend_from_slice(&text[at..end]);
        bytes.extend_from_slice(b"\r\n");
        let work = Work::Request { bytes, ends, read_only: connection.read_only };
        let handed = self.hand_over(core, connection, to, work, ItemBytes(size));
        let (taken, stop) = match handed {
            Ok(()) if ends => {
                connection.mode = Mode::Requests;
                return Step::Stop(line.len(), Stop::Ticket);
            }
            Ok(()) => (end, Stop::Ticket),
            Err(_) => (at, Stop::Quota),
        };
        connection.mode = Mode::Keys { verb, exptime, line_bytes: line.len() - taken };
        Step::Stop(taken, stop)
    }

    /// A value that streamed in is whole: to whom does storing it belong? Gives it back if here.
    pub(crate) fn hand_body(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        incoming: Box<Incoming>,
    ) -> Result<Step, Box<Incoming>> {
        let size = incoming.item_bytes();
        let to = core.queue_for_store(incoming.key(), || incoming.joins(), size);
        let Some(to) = to else { return Err(incoming) };
        let work = Work::Body(incoming);
        match self.hand_over(core, connection, to, work, ItemBytes(size)) {
            Ok(()) => Ok(Step::Stop(0, Stop::Ticket)),
            Err(Work::Body(incoming)) => {
                connection.mode = Mode::BodyEnd(incoming);
                Ok(Step::Stop(0, Stop::Quota))
            }
            Err(_) => unreachable!("what comes back is what was given"),
        }
    }

    /// Put a request of `connection` into a queue, and keep its reply's place. `Err` gives the work
    /// back: the queue is full.
    pub(crate) fn hand_over(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        work: Work,
        size: ItemBytes,
    ) -> Result<(), Work> {
        connection.output.push_bytes(&self.out);
        self.out.clear();
        let ticket = connection.output.reserve();
        let (worker, token, asker) = (core.id, connection.token, connection.card.number);
        let origin = Origin::Stream(StreamOrigin { worker, token, ticket, asker });
        let arrived_nanos = connection.found_nanos;
        let job = Job { work, size, arrived_nanos, origin, home: None, held: None };
        core.enqueue(to, job).map_err(|job| {
            connection.output.give_up(ticket);
            job.work
        })
    }
}
