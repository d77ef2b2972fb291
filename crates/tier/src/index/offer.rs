//! Applies an appended record to the index as soon as that is allowed: no change is visible before
//! it is durable, unless the settings say so.

use crate::index::{Entry, Published, Tie, What};
use crate::log::Log;
use crate::ssd::value::Large;
use crate::store::{Offer, Pending, Shared};
use crate::types::Position;
use std::sync::Arc;

impl Shared {
    /// Offers a record to the index; what it replaces goes to the record's `frees`.
    pub fn offer(&self, log: &Log, pending: &mut Pending) {
        let Pending { offer, end, frees, .. } = pending;
        match offer.take() {
            None => {}
            Some(Offer::FlushAll(sequence)) => {
                let gone = self.flush_past_cut(sequence).into_iter();
                frees.extend(gone.filter_map(|entry| self.replaced(log, *end, entry)));
            }
            Some(Offer::Moved(table, moved)) => self.follow(table, &moved),
            Some(Offer::Entry(key, entry)) => self.offer_entry(log, (&key, entry), *end, frees),
        }
    }

    /// The same of the entry of a record that ends there.
    pub fn offer_entry(
        &self,
        log: &Log,
        (key, entry): (&[u8], Entry),
        end: Position,
        frees: &mut Vec<(Position, Arc<Large>)>,
    ) {
        let (home, bytes) = (entry.home, entry.record_bytes);
        let what = entry.what.clone();
        let stale = match &entry.what {
            What::Large(large) => Some((end, large.clone())),
            _ => None,
        };
        // A deletion may have the sequence of the item in whose place migration put it.
        let tie = match entry.what {
            What::Tombstone => Tie::Replace,
            _ => Tie::Keep,
        };
        // Credited first: whoever sees the entry may replace it at once.
        self.credit(home, bytes);
        match self.publish_past_cut(key, entry, tie) {
            Published::Current(before) => {
                frees.extend(before.and_then(|entry| self.replaced(log, end, entry)));
            }
            Published::Stale => {
                self.debit(home, bytes);
                frees.extend(stale);
            }
            Published::Refused => self.debit(home, bytes),
        }
        // Afterwards: nobody else may be promised the same room.
        self.index.fair().into_iter().for_each(|fair| fair.fulfil(key, &what));
    }

    /// An entry was replaced by a record that ends there: the blocks that its value held, and where
    /// the log must be durable before they are free.
    fn replaced(&self, log: &Log, end: Position, entry: Entry) -> Option<(Position, Arc<Large>)> {
        if !matches!(entry.what, What::Large(_)) {
            self.retire(entry);
            return None;
        }
        // Where migration appended its record again meanwhile, that may lie behind us.
        let copied = self.index.fair().and_then(|fair| fair.copied_to(entry.home));
        let vouched = end.max(end_of(log, &entry)).max(copied.unwrap_or_default());
        self.retire(entry).map(|large| (vouched, large))
    }
}

/// Where an entry's record ends; before everything if it lies in a sort table.
fn end_of(log: &Log, entry: &Entry) -> Position {
    let start = match entry.home.is_ssd() {
        true => None,
        false => log.position_of(entry.home.at()),
    };
    let end = |at: Position| Position { offset: at.offset + entry.record_bytes, ..at };
    start.map_or(Position::default(), end)
}
