//! Answers reads of keys whose changes are under way with what was there before
//! ([`super::note_before`] says why that is linearizable).
//!
//! The ordinary commands execute such a read. Their store holds the item as it was then, and
//! nothing else ([`crate::resp::scratch`]). The read leaves no hit mark in memory: the item there
//! came behind it, and `mg` with `h` would tell that it was read.

use super::shared::bump;
use super::state::DurableExecutor;
use super::task::Task;
use crate::execute::{self, Context, Outcome, tells_of_mark};
use crate::latency::Operation;
use crate::request::requests::writes;
use crate::resp::scratch::{Scratch, finish};
use laneway_store::Moment;
use laneway_wire::{Get, Request};
use std::cell::Cell;

/// No read is answered here that would make the replies of a job longer than this. The job was
/// admitted by the lengths of the items that there are now, and those before may be longer.
const REPLY_BYTES_MAX: usize = 32 << 10;

impl<S> DurableExecutor<S> {
    /// A key of a `get` or `gets`: see [`DurableExecutor::tell_before`].
    pub(super) fn tell_key_before(&mut self, task: &mut Task, get: &Get<'_>, key: &[u8]) -> bool {
        !writes(get.verb)
            && self.tell_before(task, key, Operation::Get, |context, out| {
                let hash = context.store.hash(key);
                execute::get_key(context, get.verb, Moment::NEVER, key, hash, out)
            })
    }

    /// The same for an `mg` that changes nothing, and does not tell whether and when others read.
    pub(super) fn tell_meta_before(
        &mut self,
        task: &mut Task,
        request: &Request<'_>,
        key: &[u8],
    ) -> bool {
        let Request::MetaGet(meta) = request else { return false };
        let flags = &meta.flags;
        let changes = [flags.exptime, flags.vivify, flags.recache].iter().any(Option::is_some);
        !changes
            && !tells_of_mark(meta)
            && self.tell_before(task, key, Operation::Get, |context, out| {
                execute::command(context, request, out)
            })
    }

    /// Answers a read that changes nothing, by its `command`, with what was there before changes
    /// of its key. False: there are none, or whoever asks must wait for them, and nothing was done.
    pub(super) fn tell_before(
        &mut self,
        task: &mut Task,
        key: &[u8],
        operation: Operation,
        command: impl FnOnce(&Context<'_>, &mut Vec<u8>) -> Outcome,
    ) -> bool {
        if self.befores.is_empty() {
            return false;
        }
        let named = (key, self.shared.store.hash(key));
        if !self.befores.may_tell(named, task.asker()) {
            return false;
        }
        let log = self.durable.tier.durable_and_shown(); // only now, since it takes a lock
        let Some(before) = self.befores.at(named, log) else { return false };
        if let Some((value, meta)) = before.item() {
            // It may have been changed in time, as by `touch`: then it was never absent.
            let is_over = meta.expires.is_over(self.now);
            if is_over || REPLY_BYTES_MAX < task.reply_bytes[0] + value.len() {
                return false;
            }
        }
        let item_bytes_max = self.limits.item_bytes_max as u64;
        let made = || Scratch::new(item_bytes_max).ok().map(Box::new);
        let Some(mut trial) = self.trial.take().or_else(made) else { return false };
        let holds = match before.item() {
            Some(item) => {
                self.moved += item.0.len() as u64; // and once more into the reply
                trial.hold(key, item, self.now)
            }
            None => true,
        };
        if holds {
            self.tell_of(&trial, task, key, operation, command);
            self.befores.tell(named, log.0);
        }
        trial.clear(self.now);
        self.trial = Some(trial);
        holds
    }

    fn tell_of(
        &mut self,
        trial: &Scratch,
        task: &mut Task,
        key: &[u8],
        operation: Operation,
        command: impl FnOnce(&Context<'_>, &mut Vec<u8>) -> Outcome,
    ) {
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.scratch);
        let context = Context {
            store: trial.store(),
            hand: None,
            pending_writes: None,
            read_only: task.read_only,
            by: task.asker(),
            ..self.context(&touched, false)
        };
        let outcome = command(&context, &mut out);
        finish(outcome, &mut out);
        self.put_reply(task, out, Outcome::Done);
        self.account(task, (key, false), operation, touched.get());
        bump(&self.durable.counts.answered_before);
    }
}
