//! An item whose record has no room for the milliseconds of its new end is written anew, with room.

use super::attempts::unchanged;
use crate::execute::Context;
use laneway_store::{Draft, Entry, Got, ItemMeta, KeyHash, Moment, Store};

/// The way of an item to an end with milliseconds. Mostly there is room for them, or none are
/// asked for, and it ends with [`Anew::give`]; else the item is copied outside of its bucket
/// ([`Anew::copy`]), and the copy takes its place if it is still the same.
#[derive(Default)]
pub(super) struct Anew<'a> {
    copied: Option<(ItemMeta, Draft<&'a Store>)>,
    /// There is no memory for a copy: the next full second has to do.
    is_short: bool,
}

impl<'a> Anew<'a> {
    /// Gives the item this end, if there is one. False: it is to be copied, and asked again.
    pub(super) fn give(&mut self, entry: &mut Entry<'_>, at: Moment) -> bool {
        let Some(found) = entry.meta() else { return true };
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
