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
    },
    /// It has none any more.
    Deleted,
}

/// Keys, and the last thing that happened to each.
pub type Changes = Vec<(Box<[u8]>, Change)>;

#[derive(Default)]
struct Notes {
    keys: Changes,
    /// The next item that is published has only moved.
    moving: bool,
}

impl Notes {
    fn note(&mut self, key: &[u8], change: Change) {
        match self.keys.iter_mut().find(|(known, _)| **known == *key) {
            Some((_, last)) => *last = change,
            None => self.keys.push((key.into(), change)),
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
    fn published(&self, _hash: KeyHash, key: &[u8], _location: Location, meta: &ItemMeta) {
        with(|notes| match notes.moving {
            true => notes.moving = false,
            false => notes.note(key, Change::Published { expires: meta.expires }),
        });
    }

    fn unlinked(&self, _hash: KeyHash, key: &[u8], _location: Location, _seq: u64, why: Unlinked) {
        with(|notes| match why {
            Unlinked::Deleted => notes.note(key, Change::Deleted),
            Unlinked::Moved => notes.moving = true,
            // A new item follows, or the tier knows the expiry, or it still holds the item.
            Unlinked::Replaced | Unlinked::Expired | Unlinked::Evicted => {}
        });
    }
}

/// Runs `command` on this thread and says which keys it changed, in the order of their first
/// change.
pub fn during<R>(command: impl FnOnce() -> R) -> (R, Changes) {
    NOTES.set(Some(Notes::default()));
    let result = command();
    let notes = NOTES.take();
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
        let ((), changed) = during(|| {
            set(b"one");
            set(b"one");
            set(b"two");
            store.enter(store.hash(b"before"), b"before", NOW).unlink();
            store.enter(store.hash(b"two"), b"two", END); // has expired
        });
        let expected: [(&[u8], Change); 3] = [
            (b"one", Change::Published { expires: END }),
            (b"two", Change::Published { expires: END }),
            (b"before", Change::Deleted),
        ];
        assert_eq!(changed.len(), expected.len());
        for ((key, change), (wanted, which)) in changed.iter().zip(expected) {
            assert_eq!((&**key, *change), (wanted, which));
        }
    }
}
