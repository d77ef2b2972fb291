//! The state of a key that `WATCH` remembers, and whether it has changed since.

use crate::execute::attempts::unchanged;
use laneway_store::ItemMeta;

/// A key that is watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The key.
    pub key: Box<[u8]>,
    /// What was known of it.
    pub seen: Seen,
}

/// What was known of a key when it began to be watched.
#[derive(Debug, Clone, Copy)]
pub enum Seen {
    /// Its item, with its CAS id, or that there was none.
    Item(Option<ItemMeta>),
    /// Where items are kept durably, and memory may have none of an item that is there.
    Kept {
        /// How often keys were changed that share a counter with it.
        edition: u64,
        /// There was an item, if that was known: it may have been about to be deleted.
        is_there: Option<bool>,
    },
}

/// Whether a key has the item that it had before, or none as before.
pub fn is_same(before: Option<&ItemMeta>, found: Option<&ItemMeta>) -> bool {
    match before {
        Some(before) => unchanged(before, found),
        None => found.is_none(),
    }
}

impl Watched {
    /// Whether nothing has changed: `found` is its item now.
    pub fn holds(&self, found: Option<&ItemMeta>) -> bool {
        matches!(&self.seen, Seen::Item(seen) if is_same(seen.as_ref(), found))
    }

    /// The same where items are kept durably: the counter now, and whether there is an item.
    pub fn holds_kept(&self, edition: u64, is_there: bool) -> bool {
        matches!(self.seen, Seen::Kept { edition: before, is_there: was_there }
            if before == edition && was_there.is_none_or(|was_there| was_there == is_there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::Moment;

    fn item(seq: u64, millis: u32, fetched: bool) -> ItemMeta {
        ItemMeta {
            seq,
            flags: 0,
            expires: Moment::new(1, millis),
            value_bytes: 1,
            key_bytes: 1,
            stale: false,
            token_sent: false,
            fetched,
            idle_seconds: 0,
        }
    }

    #[test]
    fn a_read_is_no_change_and_everything_else_is() {
        let watched = |seen| Watched { key: (*b"k").into(), seen };
        let seen = watched(Seen::Item(Some(item(7, 50, false))));
        assert!(seen.holds(Some(&item(7, 50, true))), "somebody has read it");
        assert!(!seen.holds(Some(&item(8, 50, false))), "it was stored anew");
        assert!(
            !seen.holds(Some(&item(7, 60, false))),
            "it has another end, a few milliseconds later"
        );
        assert!(!seen.holds(None), "it is gone");
        let absent = watched(Seen::Item(None));
        assert!(absent.holds(None) && !absent.holds(Some(&item(1, 0, false))));
        let unknown = watched(Seen::Kept { edition: 3, is_there: None });
        assert!(unknown.holds_kept(3, true) && unknown.holds_kept(3, false));
        let kept = watched(Seen::Kept { edition: 3, is_there: Some(true) });
        assert!(kept.holds_kept(3, true));
        assert!(!kept.holds_kept(4, true) && !kept.holds_kept(3, false));
    }
}
