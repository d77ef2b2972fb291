//! Decides whether a request may be executed now: not while its key waits for a device, and not
//! before the item that it looks at is in memory.

use super::pending_writes::is_over;
use super::state::DurableExecutor;
use super::task::{NO_MEMORY, Step, Task};
use crate::latency::Operation;
use laneway_store::Moment;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Look;

/// How often an item is brought into memory for a task before it is found to go at once.
const TRIES_MAX: u8 = 8;
/// Keys behind one that waits that are brought into memory with it.
const AHEAD: usize = 16;

/// Whether a task may go on with a key.
pub(super) enum Ready {
    Now,
    /// Not before the key has what it waits for.
    Behind(Box<[u8]>),
    /// Not before what was appended is durable.
    Settle,
    Never(String),
}

impl<S> DurableExecutor<S> {
    /// Brings the items of some of these keys into memory, as many as go together.
    pub(super) fn fetch_ahead<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        for key in keys.take(AHEAD) {
            if !self.busy.contains_key(key)
                && let Some(look) = self.in_tier_alone(key)
            {
                self.fetch(key, &look);
            }
        }
    }

    /// Whether a key's item is in the tier and nowhere else, and nothing of it is under way. Not
    /// where it may be over, for all that is known of its end: then that is to be read
    /// ([`DurableExecutor::ready_to_count`]). One whose record cannot be read is taken for there,
    /// since it can be deleted without.
    pub(super) fn is_cold(&self, key: &[u8]) -> bool {
        let is_there =
            |look| !self.ends.may_be_over(key, &look, self.now) || self.is_unreadable(key);
        !self.busy.contains_key(key) && self.in_tier_alone(key).is_some_and(is_there)
    }

    /// The same of an item that is not known to be unreadable: who asks for no more than that there
    /// is one may be answered.
    pub(super) fn is_there_cold(&self, key: &[u8]) -> bool {
        self.is_cold(key) && !self.is_unreadable(key)
    }

    /// Whether the tier alone shows an item under a key that is over, or may be, for all that is
    /// known of its end. Not where its record cannot be read: then it is taken for there.
    pub(super) fn may_be_over(&self, key: &[u8]) -> bool {
        let (ends, now) = (&self.ends, self.now);
        let may_be = |look| ends.is_over(key, &look, now) || ends.may_be_over(key, &look, now);
        let is_unseen = !self.has_in_memory(key) && !self.pending.contains_key(key);
        is_unseen && !self.is_unreadable(key) && self.shown(key).is_some_and(may_be)
    }

    /// Whether this is the key whose item was found to be unreadable just now.
    pub(super) fn is_unreadable(&self, key: &[u8]) -> bool {
        self.unreadable.as_ref().is_some_and(|(lost, _)| **lost == *key)
    }

    /// The item that the tier shows under a key whose item is not in memory.
    pub(super) fn in_tier_alone(&self, key: &[u8]) -> Option<Look> {
        let unseen = !self.has_in_memory(key) && !self.pending.contains_key(key);
        unseen.then(|| self.living(key)).flatten()
    }

    fn has_in_memory(&self, key: &[u8]) -> bool {
        self.end_in_memory(key).is_some_and(|end| !end.is_over(self.now))
    }

    /// When the item ends that memory holds, or held until it was over: nobody has taken that back
    /// since.
    fn end_in_memory(&self, key: &[u8]) -> Option<Moment> {
        let store = &self.shared.store;
        store.peek(store.hash(key), key, Moment::NEVER).map(|seen| seen.expires)
    }

    /// Whether there is an item, in memory or beyond.
    pub(super) fn has_item(&self, key: &[u8]) -> bool {
        self.has_in_memory(key)
            || match self.pending.get(key) {
                Some(pending) => !pending.deleted,
                None => self.living(key).is_some(),
            }
    }

    /// The item that the tier shows under a key, unless it has expired.
    pub(super) fn living(&self, key: &[u8]) -> Option<Look> {
        self.shown(key).filter(|look| !self.ends.is_over(key, look, self.now))
    }

    /// The same, for all that the index tells of its end.
    fn shown(&self, key: &[u8]) -> Option<Look> {
        let look = self.durable.tier.look(key)?;
        (!is_over(look.expires_at_seconds, self.now)).then_some(look)
    }

    /// Whether a request for `key` may be executed, which `looks` at the item there is or not. It
    /// has to be asked again where execution finds that memory has forgotten the item since: then
    /// the item is in the tier, or on its way there, and this leads to it.
    pub(super) fn ready(&mut self, task: &mut Task, key: &[u8], looks: bool) -> Ready {
        self.ready_by(task, key, looks, DurableExecutor::fetch)
    }

    /// The same of a request that asks for no more than whether there is an item, and has found
    /// that it is not cold: its end is read, and its value is not.
    pub(super) fn ready_to_count(&mut self, task: &mut Task, key: &[u8]) -> Ready {
        self.ready_by(task, key, true, DurableExecutor::fetch_end)
    }

    /// The same where an item that is not in memory is read by `fetch`.
    pub(super) fn ready_by(
        &mut self,
        task: &mut Task,
        key: &[u8],
        looks: bool,
        fetch: fn(&mut DurableExecutor<S>, &[u8], &Look),
    ) -> Ready {
        if self.busy.contains_key(key) && !is_planted(Bug::BusyIgnored) {
            return Ready::Behind(key.into());
        }
        // Asked once: what is there may be evicted at any time, and what is not comes by the
        // executor alone.
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
        if let Some(end) = self.end_in_memory(key) {
            self.ends.learn(key, end); // no record need be read for that
        }
        let Some(look) = self.shown(key) else { return Ready::Now };
        if self.ends.is_over(key, &look, self.now) {
            self.drop_over(key);
            return Ready::Now;
        }
        if let Some((unreadable, why)) = &self.unreadable
            && **unreadable == *key
        {
            return Ready::Never(why.clone());
        }
        if task.tries == TRIES_MAX {
            return Ready::Never(NO_MEMORY.into());
        }
        task.tries += 1;
        fetch(self, key, &look);
        Ready::Behind(key.into())
    }
}

pub(super) fn step_of(ready: Ready, task: &mut Task) -> Option<Step> {
    match ready {
        Ready::Now => None,
        Ready::Behind(key) => Some(Step::Behind(key)),
        Ready::Settle => Some(Step::Settle),
        Ready::Never(why) => {
            task.fail(why);
            task.count(Operation::Other); // it never comes to be executed
            Some(Step::Done)
        }
    }
}
