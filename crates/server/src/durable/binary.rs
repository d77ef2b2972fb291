//! Requests by memcached's binary protocol, executed as those by text are. (What they do is
//! `crate::execute::binary`; when they may be executed is [`super::ready`].)

use super::ready::step_of;
use super::state::DurableExecutor;
use super::task::{Step, Task, Voice};
use crate::event_log::DeletedBy;
use crate::execute::{self, Outcome, binary};
use crate::latency::Operation;
use laneway_wire::Request as TextRequest;
use laneway_wire::binary::reply::put_done;
use laneway_wire::binary::{Frame, Request, parse};

/// The key of a request, and as what it is counted; `None` if it is about none.
fn key_of<'a>(request: &Request<'a>) -> Option<(&'a [u8], Operation)> {
    Some(match *request {
        Request::Get(get) => (get.key, Operation::Get),
        Request::Store(store) => (store.key, Operation::Set),
        Request::Join { key, .. } => (key, Operation::Set),
        Request::Arith(arith) => (arith.key, Operation::Arith),
        Request::Delete { key } => (key, Operation::Delete),
        Request::Touch { key, .. } => (key, Operation::Touch),
        _ => return None,
    })
}

/// Puts that a request without more to tell was done.
fn say_done(task: &mut Task, frame: &Frame<'_>) {
    if !frame.quiet {
        let mut out = Vec::new();
        put_done(&mut out, frame.echo, 0);
        task.reply.push_bytes(&out);
    }
}

impl<S> DurableExecutor<S> {
    /// The request that is next.
    pub(super) fn binary(&mut self, task: &mut Task, bytes: &[u8]) -> Step {
        let start = task.range.start;
        let Ok(Some(frame)) = parse(&bytes[start..]) else {
            unreachable!("it was read before it was handed over")
        };
        task.range.end = start + frame.bytes();
        task.voice = Voice::Binary(frame.echo);
        if task.refused.0.contains(&start) {
            task.fail(task.refused.1.clone());
            return Step::Done;
        }
        match frame.request {
            Request::Flush { delay } => return self.binary_flush(task, &frame, delay),
            Request::Stat { .. } => return self.count_all(task),
            _ => {}
        }
        let value = &bytes[start + frame.head_bytes..task.range.end];
        let Some((key, operation)) = key_of(&frame.request) else {
            say_done(task, &frame); // `Noop`
            task.count(Operation::Other);
            return Step::Done;
        };
        if let Request::Get(get) = &frame.request
            && get.touch.is_none()
            && self.tell_before(task, key, operation, |context, out| {
                binary::get(context, &frame, get, context.store.hash(key), out)
            })
        {
            return Step::Done;
        }
        let looks = !execute::stores_blindly(&frame);
        let deletes = matches!(frame.request, Request::Delete { .. }) && frame.cas == 0;
        let adds = execute::adds_binary(&frame);
        loop {
            if deletes && self.is_cold(key) {
                self.perform_cold_delete(task, key, DeletedBy::Delete);
                say_done(task, &frame);
                return Step::Done;
            }
            if adds && self.is_there_cold(key) {
                self.perform_refused_add_binary(task, &frame, (key, value));
                return Step::Done;
            }
            let ready = match deletes || adds {
                true => self.ready_to_count(task, key),
                false => self.ready(task, key, looks),
            };
            if let Some(step) = step_of(ready, task) {
                if matches!(step, Step::Behind(_)) && operation == Operation::Get {
                    self.fetch_ahead(gets_behind(&bytes[task.range.end..]));
                }
                return step;
            }
            if self.perform_binary(task, &frame, (key, value), operation) {
                return Step::Done;
            }
        }
    }

    fn binary_flush(&mut self, task: &mut Task, frame: &Frame<'_>, delay: Option<u32>) -> Step {
        if !self.is_still() {
            return Step::Barrier;
        }
        let delay = delay.map(i64::from);
        let request = TextRequest::FlushAll { delay, noreply: true };
        let step = self.perform_flush(task, &request, delay);
        if matches!(step, Step::Done) {
            say_done(task, frame);
        }
        step
    }

    /// A request that stores only where there is no item, and whose key has one in the tier alone:
    /// that need not be read.
    fn perform_refused_add_binary(
        &mut self,
        task: &mut Task,
        frame: &Frame<'_>,
        (key, value): (&[u8], &[u8]),
    ) {
        let size = (key.len() + value.len()) as u64;
        let is_done = self.execute(task, key, Operation::Set, (size, None), |context, out| {
            execute::refuse_added_binary(context, frame, value.len(), out);
            Outcome::Done
        });
        assert!(is_done, "it looks at nothing that memory could have forgotten");
    }

    /// False as for [`DurableExecutor::execute`].
    fn perform_binary(
        &mut self,
        task: &mut Task,
        frame: &Frame<'_>,
        (key, value): (&[u8], &[u8]),
        operation: Operation,
    ) -> bool {
        let stored = matches!(frame.request, Request::Store(_)).then_some(value);
        let size = if operation == Operation::Set { key.len() + value.len() } else { 0 };
        self.execute(task, key, operation, (size as u64, stored), |context, out| {
            match &frame.request {
                Request::Store(_) | Request::Join { .. } => {
                    execute::store_binary_whole(context, frame, value, out)
                }
                Request::Get(get) => binary::get(context, frame, get, context.store.hash(key), out),
                Request::Arith(arith) => binary::arith(context, frame, arith, out),
                Request::Touch { expiration, .. } => {
                    binary::touch(context, frame, (key, *expiration), out)
                }
                _ => binary::delete(context, frame, key, out),
            }
        })
    }
}

/// The keys of the requests behind one that waits, as far as they ask for values.
fn gets_behind(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let Ok(Some(frame)) = parse(rest) else { return None };
        let Request::Get(get) = frame.request else { return None };
        rest = rest.get(frame.bytes()..).unwrap_or_default();
        Some(get.key)
    })
}
