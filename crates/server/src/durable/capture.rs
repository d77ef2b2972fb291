//! Records which keys a command changes: the store's hook notes them while the durable executor
//! executes.
//!
//! What other threads do meanwhile (evicting, sweeping, the workers' own misses) changes nothing
//! that the tier must hear of: it holds the item still, or it has expired there too.

use laneway_store::{Hook, ItemMeta, KeyHash, Location, Moment, Unlinked};
use std::cell::RefCell;

/// The last thing that happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It has an item, new or changed, that expires then.
    Published {
        /// When.
        expires: Moment,
        /// The item, if the store has told.
        seen: Option<ItemMeta>,
    },
    /// It has none any more.
    Deleted,
}

/// A key that has changed.
#[derive(Debug)]
pub struct Changed {
    /// The key.
    pub key: Box<[u8]>,
    /// Its hash.
    pub hash: KeyHash,
    /// The last thing that happened to it.
    pub change: Change,
}

/// Those of one command.
pub type Changes = Vec<Changed>;

struct Notes {
    keys: Changes,
    /// The next item that is published has only moved.
    moving: bool,
}

impl Notes {
    fn note(&mut self, hash: KeyHash, key: &[u8], change: Change) {
        let is_it = |known: &&mut Changed| known.hash == hash && *known.key == *key;
        match self.keys.iter_mut().find(is_it) {
            Some(known) => known.change = change,
            None => self.keys.push(Changed { key: key.into(), hash, change }),
        }
    }
}

thread_local! {
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// The hook.
pub struct Capture;

fn with(note: impl FnOnce(&mut Notes)) {
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            note(notes);
        }
    });
}

impl Hook for Capture {
    fn published(&self, hash: KeyHash, key: &[u8], _location: Location, meta: &ItemMeta) {
        with(|notes| match std::mem::take(&mut notes.moving) {
            true => {}
            false => {
                let change = Change::Published { expires: meta.expires, seen: Some(*meta) };
                notes.note(hash, key, change);
            }
        });
    }

    fn unlinked(&self, hash: KeyHash, key: &[u8], _location: Location, _seq: u64, why: Unlinked) {
        with(|notes| match why {
            Unlinked::Deleted => notes.note(hash, key, Change::Deleted),
            Unlinked::Moved => notes.moving = true,
            // A new item follows, or the tier knows the expiry, or it still holds the item.
            Unlinked::Replaced | Unlinked::Expired | Unlinked::Evicted => {}
        });
    }
}

/// Runs `command` on this thread and says which keys it changed, in the order of their first
/// change, in the memory of a list that is empty.
pub fn during<R>(room: Changes, command: impl FnOnce() -> R) -> (R, Changes) {
    NOTES.with_borrow_mut(|notes| *notes = Some(Notes { keys: room, moving: false }));
    let result = command();
    let notes = NOTES.with_borrow_mut(Option::take);
    (result, notes.map(|notes| notes.keys).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::{Config, Store};

    const NOW: Moment = Moment::from_seconds(1);
    const END: Moment = Moment::new(9, 500);

    #[test]
    fn what_a_command_changes_is_noted_and_only_while_it_is_asked_for() {
        let store = Store::with_hook(Config::default(), Box::new(Capture)).expect("memory");
        let set = |key: &[u8]| {
            let mut draft = store.draft(key, 0, END, 1).expect("memory");
            draft.write(b"v").expect("memory");
            store.enter(store.hash(key), key, NOW).publish(draft, None);
        };
        set(b"before");
        let ((), changed) = during(Vec::new(), || {
            set(b"one");
            set(b"one");
            set(b"two");
            store.enter(store.hash(b"before"), b"before", NOW).unlink();
            store.enter(store.hash(b"two"), b"two", END); // has expired
        });
        let expected: [(&[u8], Option<Moment>); 3] =
            [(b"one", Some(END)), (b"two", Some(END)), (b"before", None)];
        assert_eq!(changed.len(), expected.len());
        for (Changed { key, hash, change }, (wanted, end)) in changed.iter().zip(expected) {
            assert_eq!((&**key, *hash), (wanted, store.hash(wanted)));
            let Change::Published { expires, seen } = *change else {
                assert_eq!(end, None, "it was deleted");
                continue;
            };
            assert_eq!(Some(expires), end);
            let seen = seen.expect("the store has told");
            assert_eq!((seen.expires, seen.value_bytes), (END, 1));
        }
        let one = store.peek(store.hash(b"one"), b"one", NOW).map(|seen| seen.seq);
        let Change::Published { seen, .. } = changed[0].change else { unreachable!("as above") };
        assert_eq!(seen.map(|seen| seen.seq), one, "the last item that it was given");
    }
}
