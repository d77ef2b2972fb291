//! Goes on with a task, request by request, until it is done or waits for something.

use super::perform::body_of;
use super::ready::step_of;
use super::state::DurableExecutor;
use super::task::{Gets, KEYS_PER_STEP, NO_MEMORY, Step, Task};
use crate::execute::{self, Incoming};
use crate::jobs::handoff::{Origin, Work};
use crate::request::requests::key_of;
use crate::udp::buffers::Held;
use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::limits::BINARY_REQUEST;
use laneway_wire::reply::{END, ERROR};
use laneway_wire::udp::MESSAGE_BYTES_MAX;
use laneway_wire::{Get, KEY_BYTES_MAX, Keys, Request, parse};
use std::ops::Range;

impl<S> DurableExecutor<S> {
    /// Goes on with a task as far as it can.
    pub(super) fn admit(&mut self, mut task: Task) {
        loop {
            if task.done && !task.next_request() {
                return self.conclude(task);
            }
            let step = match task.work.take().expect("what is not done is to be done") {
                Work::Body(incoming) => self.body(&mut task, incoming),
                Work::Request { bytes, ends, read_only } => {
                    let step = self.request(&mut task, &bytes, ends);
                    task.work = Some(Work::Request { bytes, ends, read_only });
                    step
                }
                Work::Batch { bytes, requests, spoken } => {
                    let step = match spoken.as_deref() {
                        None => self.request(&mut task, &bytes, true),
                        Some(spoken) => self.resp(&mut task, &bytes, *spoken),
                    };
                    task.work = Some(Work::Batch { bytes, requests, spoken });
                    step
                }
                Work::Resp { bytes, spoken } => {
                    let step = self.resp(&mut task, &bytes, *spoken);
                    task.work = Some(Work::Resp { bytes, spoken });
                    step
                }
                Work::Watched(requests) => {
                    let step = self.watched(&mut task, &requests);
                    task.work = Some(Work::Watched(requests));
                    step
                }
            };
            task.done |= matches!(step, Step::Done);
            let number = task.number.filter(|_| !task.leaving.is_empty());
            if !task.done || number.is_some() {
                self.stall(&task);
            }
            match (step, number) {
                (Step::Behind(key), _) => self.busy.entry(key).or_default().push_back(task),
                (Step::Settle, _) => self.settling.push(task),
                (Step::Yield, _) => self.yielded.push_back(task),
                (Step::Barrier, _) => self.barrier.push_back(task),
                (Step::Suspend, _) => {
                    let number = task.number.expect("it waits for what it has ordered");
                    self.suspended.insert(number, task);
                }
                (Step::Count, _) => {
                    let number = task.number.expect("as above");
                    self.counting.insert(number, task);
                }
                (_, Some(number)) => drop(self.suspended.insert(number, task)),
                _ => continue,
            }
            return;
        }
    }

    /// A task waits: what else its connection asks is executed behind it.
    fn stall(&mut self, task: &Task) {
        if let Some(connection) = task.connection
            && !is_planted(Bug::BatchOvertakes)
        {
            self.turns.stall(connection);
        }
    }

    /// A value that has streamed into its item.
    fn body(&mut self, task: &mut Task, mut incoming: Box<Incoming>) -> Step {
        task.quiet = incoming.is_noreply();
        loop {
            let ready = self.ready(task, incoming.key(), incoming.looks_at_old());
            if let Some(step) = step_of(ready, task) {
                task.work = Some(Work::Body(incoming));
                return step;
            }
            match self.perform_body(task, *incoming) {
                None => return Step::Done,
                Some(again) => incoming = again,
            }
        }
    }

    fn request(&mut self, task: &mut Task, bytes: &[u8], ends: bool) -> Step {
        let start = task.range.start;
        if bytes.get(start) == Some(&BINARY_REQUEST) {
            return self.binary(task, bytes);
        }
        if let Some(gets) = task.gets.take() {
            return self.keys(task, bytes, gets, ends);
        }
        task.range.end = bytes.len();
        let (job, bytes) = (bytes, &bytes[start..]);
        let frame = match parse(bytes, &self.limits) {
            Ok(Some(frame)) => frame,
            // It was parsed before it was handed over.
            Ok(None) => {
                task.reply.push_bytes(ERROR);
                return Step::Done;
            }
            Err(malformed) => {
                task.reply.push_bytes(malformed.reply);
                return Step::Done;
            }
        };
        let value_bytes = execute::value_behind(&frame.request);
        let value = &bytes[frame.head_bytes..];
        let value = &value[..value.len().min(value_bytes)];
        task.range.end = start + frame.head_bytes + value.len();
        task.quiet = is_noreply(&frame.request);
        if task.refused.0.contains(&start) {
            task.fail(task.refused.1.clone());
            return Step::Done;
        }
        let mut scratch = [0; KEY_BYTES_MAX];
        let key = match &frame.request {
            Request::Get(Get { verb, exptime, keys }) => {
                let left = range_of(keys.rest(), job);
                let gets = Gets { verb: *verb, exptime: *exptime, left };
                return self.keys(task, job, gets, ends);
            }
            Request::FlushAll { delay, .. } if self.is_still() => {
                return self.perform_flush(task, &frame.request, *delay);
            }
            Request::FlushAll { .. } => return Step::Barrier,
            Request::Stats(_) => return self.count_all(task),
            Request::Admin(_) => return self.checkpoint(task),
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                execute::key_of_store(request, &mut scratch)
            }
            Request::MetaNoop => {
                self.perform_nothing(task, &frame.request);
                return Step::Done;
            }
            request => key_of(request, &mut scratch).map_or(&[][..], |(key, _)| key),
        };
        self.request_of_key(task, &frame.request, (key, value))
    }

    /// A request about one key, and the value behind it.
    fn request_of_key(
        &mut self,
        task: &mut Task,
        request: &Request<'_>,
        (key, value): (&[u8], &[u8]),
    ) -> Step {
        if self.tell_meta_before(task, request, key) {
            return Step::Done;
        }
        let looks = execute::looks_at_old(request);
        let deletes = execute::deletes_any(request);
        let adds = execute::adds(request, body_of(request, value));
        loop {
            if let Some(by) = deletes.filter(|_| self.is_cold(key)) {
                self.perform_cold_delete(task, key, by);
                let mut out = Vec::new();
                execute::say_deleted(request, &mut out);
                task.reply.push_bytes(&out);
                return Step::Done;
            }
            if adds && self.is_there_cold(key) {
                self.perform_refused_add(task, request, key, value);
                return Step::Done;
            }
            let ready = match deletes.is_some() || adds {
                true => self.ready_by(task, key, looks, DurableExecutor::fetch_end),
                false => self.ready(task, key, looks),
            };
            if let Some(step) = step_of(ready, task) {
                return step;
            }
            if self.perform_request(task, request, key, value) {
                return Step::Done;
            }
        }
    }

    /// Keys of a multiget, one after the other; of many, some at a time.
    fn keys(&mut self, task: &mut Task, bytes: &[u8], mut gets: Gets, ends: bool) -> Step {
        let mut keys = Keys::new(&bytes[gets.left.clone()]);
        let get = Get { verb: gets.verb, exptime: gets.exptime, keys };
        task.gets = Some(gets.clone());
        let mut done = 0;
        while let Some(key) = keys.clone().next() {
            if done == KEYS_PER_STEP {
                return Step::Yield;
            }
            let [copied_before, _] = task.reply_bytes;
            if !self.tell_key_before(task, &get, key) {
                let ready = self.ready(task, key, true);
                if let Some(step) = step_of(ready, task) {
                    if matches!(step, Step::Behind(_)) {
                        keys.next();
                        self.fetch_ahead(&mut keys);
                    }
                    return step;
                }
                if !self.perform_key(task, &get, key) {
                    continue;
                }
            }
            keys.next();
            done += 1;
            task.tries = 0;
            gets.left.start = gets.left.end - keys.rest().len();
            task.gets = Some(gets.clone());
            bound_reply(task, copied_before);
            if task.done {
                return Step::Done;
            }
            if !task.leaving.is_empty() {
                return Step::More;
            }
        }
        if ends {
            task.reply.push_bytes(END);
        }
        Step::Done
    }
}

/// A reply by frames is no longer than they carry, and takes no memory that they have not; an error
/// takes its place. (A multiget by TCP comes in jobs of a few keys.)
fn bound_reply(task: &mut Task, copied_before: usize) {
    let [copied, pinned] = task.reply_bytes;
    if !matches!(task.origin, Some(Origin::Datagram(_))) {
        return;
    }
    let grows = |held: &mut Held| held.grow(copied - copied_before);
    if copied + pinned + END.len() > MESSAGE_BYTES_MAX {
        task.fail("reply too long for UDP");
    } else if !task.held.as_mut().is_none_or(grows) {
        task.fail(NO_MEMORY);
    }
}

/// Where the keys of a multiget stand in the job that it is read from.
fn range_of(text: &[u8], bytes: &[u8]) -> Range<usize> {
    let start = text.as_ptr().addr() - bytes.as_ptr().addr();
    start..start + text.len()
}

fn is_noreply(request: &Request<'_>) -> bool {
    match request {
        Request::Store(store) => store.noreply,
        Request::Delete(delete) => delete.noreply,
        Request::Arith(arith) => arith.noreply,
        Request::Touch(touch) => touch.noreply,
        Request::FlushAll { noreply, .. } => *noreply,
        _ => false,
    }
}
