//! A request that came as a [`Job`] is executed, whatever the size of its item; its reply is one
//! value, for whoever sends it.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::{self, Body, Context, Outcome};
use crate::jobs::handoff::{Finished, Job, Origin, Served, Undone, Work};
use crate::latency::Operation;
use crate::request::requests::{operation, writes};
use crate::stream::output::Output;
use crate::stream::step::OUT_BYTES_PER_TURN;
use laneway_transport::Transport;
use laneway_wire::reply::END;
use laneway_wire::{Get, GetVerb, KEY_BYTES_MAX, Keys, Request, parse};

/// The two bytes behind a value.
const VALUE_END_BYTES: usize = 2;

/// What is answered where the executor has no room for a job.
const BUSY: &[u8] = b"SERVER_ERROR too many requests wait for the data folder\r\n";

/// How a request is performed.
struct How {
    /// `END` closes the reply to a `get`.
    ends: bool,
    /// Who asks may change nothing.
    read_only: bool,
    /// Once so many bytes were copied, the keys of a `get` that are left go back.
    bytes_most: usize,
}

impl<T: Transport> Core<T> {
    /// Execute one job. `None`: the executor does, and answers.
    pub(crate) fn perform(&mut self, job: Job) -> Option<Finished> {
        let Job { work, size, arrived_nanos, origin, home, held } = job;
        self.asker = origin.asker();
        let mut served = Served::new(arrived_nanos);
        let mut reply = match work {
            Work::Body(incoming) => {
                self.count_hot(incoming.key(), true);
                let size = incoming.item_bytes();
                let mut out = Vec::new();
                let again = incoming.finish(&self.context_of_job(), &mut out);
                assert!(again.is_ok(), "only what the executor executes is asked again");
                self.count_job(&mut served, Operation::Set, size);
                Output::of(out)
            }
            Work::Batch { .. } | Work::Resp { .. } | Work::Watched(_) => {
                unreachable!("only the durable executor is given such")
            }
            Work::Request { bytes, ends, read_only } => {
                let is_stream = matches!(origin, Origin::Stream(_));
                let most = if is_stream { OUT_BYTES_PER_TURN } else { usize::MAX };
                let how = How { ends, read_only, bytes_most: most };
                let reply = self.perform_request(&mut served, &bytes, &how);
                if served.kept {
                    let work = Work::Request { bytes, ends, read_only };
                    let job = Job { work, size, arrived_nanos, origin, home, held };
                    if self.enqueue(EXECUTOR, job).is_ok() {
                        return None;
                    }
                }
                reply
            }
        };
        let Served { tally, large, kept, undone, .. } = served;
        if kept {
            reply = Output::of(BUSY.to_vec());
        }
        Some(Finished { origin, reply, tally, large, fails: kept, home, undone })
    }

    fn perform_request(&mut self, served: &mut Served, bytes: &[u8], how: &How) -> Output {
        let frame = match parse(bytes, &self.limits) {
            Ok(Some(frame)) => frame,
            // It was parsed before it was handed over.
            Ok(None) => return Output::of(b"ERROR\r\n".to_vec()),
            Err(malformed) => return Output::of(malformed.reply.to_vec()),
        };
        let value = &bytes[frame.head_bytes..];
        let mut out = Vec::new();
        match &frame.request {
            Request::Get(get) => return self.perform_get(served, get, how),
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                let value_bytes = execute::value_bytes(request).expect("matched above");
                let mut scratch = [0; KEY_BYTES_MAX];
                self.count_hot(execute::key_of_store(request, &mut scratch), true);
                // What is not there has no end either, and is answered so.
                let body = value.get(..value_bytes + VALUE_END_BYTES).unwrap_or_default();
                let outcome =
                    execute::store_whole(&self.context_of_job(), request, Body::of(body), &mut out);
                assert!(matches!(outcome, Outcome::Done), "the executor alone is asked again");
                let mut scratch = [0; KEY_BYTES_MAX];
                let size = execute::key_of_store(request, &mut scratch).len() + value_bytes;
                self.count_job(served, Operation::Set, size as u64);
            }
            request => {
                self.count_hot_request(request);
                let context = self.context_of_job();
                let context = Context { read_only: how.read_only, ..context };
                let outcome = execute::command(&context, request, &mut out);
                self.count_job(served, operation(request), self.touched.get());
                return self.conclude_job(served, outcome, out);
            }
        }
        Output::of(out)
    }

    /// Keys one after the other; large values are pinned where they come. Once so many bytes were
    /// copied the keys that are left go back to their connection, which asks for them again when
    /// this much of the reply has left.
    fn perform_get(&mut self, served: &mut Served, get: &Get<'_>, how: &How) -> Output {
        let mut reply = Output::default();
        let Get { verb, exptime, .. } = *get;
        let mut keys = Keys::new(get.keys.rest());
        let most = (usize::MAX, how.bytes_most);
        self.perform_keys(served, (verb, exptime), &mut keys, most, &mut reply);
        let mut left = keys;
        if left.next().is_some() && !served.kept {
            served.undone = Some(Undone { verb, exptime, keys: keys.rest().to_vec() });
        } else if how.ends {
            reply.push_bytes(END);
        }
        reply
    }

    /// Look up at most so many of the keys, and no more once so many bytes of small values were
    /// copied. Returns how many bytes that adds to the reply.
    pub(crate) fn perform_keys(
        &mut self,
        served: &mut Served,
        (verb, exptime): (GetVerb, i64),
        keys: &mut Keys<'_>,
        (keys_most, bytes_most): (usize, usize),
        reply: &mut Output,
    ) -> usize {
        let expires = execute::expires_at(exptime, self.now);
        let mut out = Vec::new();
        let (mut added, mut copied) = (0, 0);
        for key in keys.take(keys_most) {
            self.count_hot(key, writes(verb));
            let before = out.len();
            let hash = self.shared.store.hash(key);
            // Its size is no reason to leave it to somebody else, and neither is its place.
            let context = Context { large_from: u64::MAX, ..self.context_for(key) };
            let outcome = execute::get_key(&context, verb, expires, key, hash, &mut out);
            self.count_job(served, Operation::Get, self.touched.get());
            if matches!(outcome, Outcome::Kept) {
                served.kept = true;
                break;
            }
            if let Outcome::Transfer(transfer) = outcome {
                reply.push_bytes(&out);
                served.pinned_bytes += transfer.value.value_bytes();
                added += out.len() + transfer.value.value_bytes() + transfer.tail.len();
                out.clear();
                reply.push_value(transfer.value);
                reply.push_bytes(transfer.tail);
                served.large = true;
                continue;
            }
            copied += out.len() - before;
            if copied >= bytes_most {
                break;
            }
        }
        reply.push_bytes(&out);
        added + out.len()
    }

    fn conclude_job(&mut self, served: &mut Served, outcome: Outcome, mut out: Vec<u8>) -> Output {
        match outcome {
            Outcome::Done => {}
            Outcome::Again => out.extend_from_slice(execute::TRY_AGAIN),
            Outcome::Kept => served.kept = true,
            Outcome::Transfer(transfer) => {
                served.large = true;
                let mut reply = Output::of(out);
                reply.push_value(transfer.value);
                reply.push_bytes(transfer.tail);
                return reply;
            }
            // A job is executed whatever its size, and is a request for a key: what is asked of the
            // whole server is answered by who received it, or by the executor.
            _ => unreachable!("a job is a request for a key"),
        }
        Output::of(out)
    }

    /// A job is executed where it lies, whatever its item's size.
    fn context_of_job(&self) -> Context<'_> {
        Context { large_from: u64::MAX, ..self.context() }
    }

    fn count_job(&self, served: &mut Served, operation: Operation, size: u64) {
        self.tally_request(&mut served.tally, operation, size, served.arrived_nanos);
    }
}
