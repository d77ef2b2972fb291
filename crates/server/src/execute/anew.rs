//! An item whose record has no room for its new end is written anew, with room: for milliseconds,
//! or for any end where a short item was stored without one.

use super::Context;
use super::attempts::{Attempts, unchanged};
use laneway_store::{Draft, Entry, Got, ItemMeta, KeyHash, Moment, Store};
use laneway_sync::planted::{Bug, is_planted};

/// The way of an item to another end. Mostly there is room for it, and it ends with
/// [`Anew::give`]; else the item is copied outside of its bucket ([`Anew::copy`]), and the copy
/// takes its place if it is still the same.
#[derive(Default)]
pub(super) struct Anew<'a> {
    copied: Option<(ItemMeta, Draft<&'a Store>)>,
    attempts: Attempts,
    /// There is no memory for a copy, or others change the item all the time: the next full second
    /// has to do, or where there is no room for that either, the item is evicted.
    is_short: bool,
}

impl<'a> Anew<'a> {
    /// Gives the item this end, if there is one. False: it is to be copied, and asked again.
    pub(super) fn give(&mut self, entry: &mut Entry<'_>, at: Moment) -> bool {
        let Some(found) = entry.meta() else { return true };
        if is_planted(Bug::EndUnkept) && !entry.has_room_for(at) {
            return true;
        }
        if self.is_short || entry.has_room_for(at) {
            entry.set_expires(at);
            return true;
        }
        match self.copied.take() {
            Some((seen, draft)) if unchanged(&seen, Some(&found)) => {
                entry.rewrite(draft);
                true
            }
            _ => false,
        }
    }

    /// Copies the item, if there is one that needs it. The caller has left its bucket.
    pub(super) fn copy(&mut self, context: &Context<'a>, key: &[u8], hash: KeyHash, at: Moment) {
        self.is_short |= !self.attempts.again();
        let mut value = Vec::new();
        // A long value's record has room, so it needs no copy.
        if let Got::Copied(seen) = context.store.peek_value(hash, key, context.now, &mut value) {
            self.copy_of(context, key, (&seen, &value), at);
        }
    }

    /// The same of an item whose value was read.
    pub(super) fn copy_of(
        &mut self,
        context: &Context<'a>,
        key: &[u8],
        (seen, value): (&ItemMeta, &[u8]),
        at: Moment,
    ) {
        let draft = context.draft(key, seen.flags, at, value.len());
        match draft.and_then(|mut draft| draft.write(value).map(|()| draft)) {
            Ok(draft) => self.copied = Some((*seen, draft)),
            Err(_) => self.is_short = true,
        }
    }
}

/// Gives the item this end, and does `then` in its bucket, if it is still the one that was seen.
/// Tells whether.
pub(super) fn end_seen(
    context: &Context<'_>,
    (key, hash): (&[u8], KeyHash),
    seen: &ItemMeta,
    at: Moment,
    then: impl FnOnce(&mut Entry<'_>),
) -> bool {
    let mut anew = Anew::default();
    let mut entry = context.enter(hash, key);
    if !unchanged(seen, entry.meta().as_ref()) {
        return false;
    }
    if !anew.give(&mut entry, at) {
        drop(entry);
        anew.copy(context, key, hash, at);
        entry = context.enter(hash, key);
        if !unchanged(seen, entry.meta().as_ref()) || !anew.give(&mut entry, at) {
            return false;
        }
    }
    then(&mut entry);
    true
}
