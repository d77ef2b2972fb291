//! Whether a request may be executed now: not while its key waits for a device, and not before the
//! item it looks at is in memory.

use super::state::Keeper;
use super::task::{NO_MEMORY, Step, Task};
use super::veil::is_over;
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

impl<S> Keeper<S> {
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

    /// Whether a key's item is in the tier and nowhere else, and nothing of it is under way.
    pub(super) fn is_cold(&self, key: &[u8]) -> bool {
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
        let look = self.durable.tier.look(key)?;
        (!is_over(look.expires_at_seconds, self.now_seconds)).then_some(look)
    }

    /// Whether a request for `key` may be executed, which `looks` at the item there is or not. It
    /// has to be asked again where execution finds that memory has forgotten the item since: then
    /// the item is in the tier, or on its way there, and this leads to it.
    pub(super) fn ready(&mut self, task: &mut Task, key: &[u8], looks: bool) -> Ready {
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

pub(super) fn step_of(ready: Ready, task: &mut Task) -> Option<Step> {
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
