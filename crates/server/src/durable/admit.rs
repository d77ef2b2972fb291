//! Which task may go on: not while its key waits for a device, and not before the item it looks at
//! is in memory.

use super::state::Keeper;
use super::task::{NO_MEMORY, Step, Task};
use super::veil::is_over;
use crate::execute::{self, Incoming};
use crate::handoff::Work;
use crate::requests::key_of;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Look;
use laneway_wire::reply::ERROR;
use laneway_wire::{Get, KEY_BYTES_MAX, Keys, Request, parse};

/// How often an item is brought into memory for a task before it is found to go at once.
const TRIES_MAX: u8 = 8;
/// Keys of a multiget that are brought into memory together.
const AHEAD: usize = 16;

/// Whether a task may go on with a key.
enum Ready {
    Now,
    /// Not before the key has what it waits for.
    Behind(Box<[u8]>),
    /// Not before what was appended is durable.
    Settle,
    Never(String),
}

impl<S> Keeper<S> {
    /// Goes on with a task as far as it can.
    pub(super) fn admit(&mut self, mut task: Task) {
        loop {
            if task.done && !task.next_request() {
                return self.conclude(task);
            }
            let step = match task.work.take().expect("what is not done is to be done") {
                Work::Body(incoming) => self.body(&mut task, incoming),
                Work::Request { bytes, ends } => {
                    let step = self.request(&mut task, &bytes, ends);
                    task.work = Some(Work::Request { bytes, ends });
                    step
                }
                Work::Batch { bytes, requests } => {
                    let step = self.request(&mut task, &bytes, true);
                    task.work = Some(Work::Batch { bytes, requests });
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
                (Step::Barrier, _) => self.barrier.push_back(task),
                (Step::Suspend, _) => {
                    let number = task.number.expect("it waits for what it has ordered");
                    self.suspended.insert(number, task);
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
                Some(again) => incoming = Box::new(again),
            }
        }
    }

    fn request(&mut self, task: &mut Task, bytes: &[u8], ends: bool) -> Step {
        let start = task.range.start;
        task.range.end = bytes.len();
        let bytes = &bytes[start..];
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
            Request::Get(get) => return self.keys(task, get, ends),
            Request::FlushAll { delay, .. } if self.is_still() => {
                return self.perform_flush(task, &frame.request, *delay);
            }
            Request::FlushAll { .. } => return Step::Barrier,
            Request::Stats(_) => return self.count_all(task),
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                execute::key_of_store(request, &mut scratch)
            }
            Request::MetaNoop => {
                self.perform_nothing(task, &frame.request);
                return Step::Done;
            }
            request => key_of(request, &mut scratch).map_or(&[][..], |(key, _)| key),
        };
        let looks = execute::looks_at_old(&frame.request);
        loop {
            if let Request::Delete(_) = frame.request
                && self.is_cold(key)
            {
                self.perform_cold_delete(task, key);
                return Step::Done;
            }
            let ready = self.ready(task, key, looks);
            if let Some(step) = step_of(ready, task) {
                return step;
            }
            if self.perform_request(task, &frame.request, key, value) {
                return Step::Done;
            }
        }
    }

    /// Keys of a multiget, one after the other.
    fn keys(&mut self, task: &mut Task, get: &Get<'_>, ends: bool) -> Step {
        let text = get.keys.rest();
        loop {
            let mut keys = Keys::new(&text[task.at..]);
            let Some(key) = keys.next() else { break };
            let ready = self.ready(task, key, true);
            if let Some(step) = step_of(ready, task) {
                if matches!(step, Step::Behind(_)) {
                    self.fetch_ahead(keys);
                }
                return step;
            }
            if !self.perform_key(task, get, key) {
                continue;
            }
            task.tries = 0;
            task.at = text.len() - keys.rest().len();
            if task.done {
                return Step::Done;
            }
            if !task.leaving.is_empty() {
                return Step::More;
            }
        }
        if ends {
            task.reply.push_bytes(laneway_wire::reply::END);
        }
        Step::Done
    }

    fn fetch_ahead(&mut self, keys: Keys<'_>) {
        for key in keys.take(AHEAD) {
            if !self.busy.contains_key(key)
                && let Some(look) = self.in_tier_alone(key)
            {
                self.fetch(key, &look);
            }
        }
    }

    /// Whether a key's item is in the tier and nowhere else, and nothing of it is under way.
    fn is_cold(&self, key: &[u8]) -> bool {
        !self.busy.contains_key(key) && self.in_tier_alone(key).is_some()
    }

    fn in_tier_alone(&self, key: &[u8]) -> Option<Look> {
        let unseen = !self.has_in_memory(key) && !self.pending.contains_key(key);
        unseen.then(|| self.living(key)).flatten()
    }

    fn has_in_memory(&self, key: &[u8]) -> bool {
        let store = &self.shared.store;
        store.peek(store.hash(key), key, self.now_seconds).is_some()
    }

    /// The item that the tier shows under a key, unless it has expired.
    fn living(&self, key: &[u8]) -> Option<Look> {
        let look = self.durable.tier.look(key)?;
        (!is_over(look.expires_at_seconds, self.now_seconds)).then_some(look)
    }

    /// Whether a request for `key` may be executed, which `looks` at the item there is or not. It
    /// has to be asked again where execution finds that memory has forgotten the item since: then
    /// the item is in the tier, or on its way there, and this leads to it.
    fn ready(&mut self, task: &mut Task, key: &[u8], looks: bool) -> Ready {
        if self.busy.contains_key(key) && !is_planted(Bug::BusyIgnored) {
            return Ready::Behind(key.into());
        }
        // Asked once: what is there may be evicted at any time, and what is not comes by the keeper
        // alone.
        task.seen = looks && self.has_in_memory(key);
        if !looks || task.seen {
            return Ready::Now;
        }
        match self.pending.get(key) {
            Some(pending) if pending.deleted => return Ready::Now,
            // Evicted before it was durable: the tier does not show it yet.
            Some(_) => return Ready::Settle,
            None => {}
        }
        let Some(look) = self.living(key) else { return Ready::Now };
        if let Some((unreadable, why)) = &self.unreadable
            && **unreadable == *key
        {
            return Ready::Never(why.clone());
        }
        if task.tries == TRIES_MAX {
            return Ready::Never(NO_MEMORY.into());
        }
        task.tries += 1;
        self.fetch(key, &look);
        Ready::Behind(key.into())
    }
}

fn step_of(ready: Ready, task: &mut Task) -> Option<Step> {
    match ready {
        Ready::Now => None,
        Ready::Behind(key) => Some(Step::Behind(key)),
        Ready::Settle => Some(Step::Settle),
        Ready::Never(why) => {
            task.fail(why);
            Some(Step::Done)
        }
    }
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
