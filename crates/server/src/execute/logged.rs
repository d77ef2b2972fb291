//! Execution reports events to the event log ([`crate::event_log`]) by a function for each kind of
//! event. While no client watches, each of them is one load of a word.

use super::Context;
use crate::event_log::{Class, DeletedBy, Event, EventLog, Fetched, Stored, StoredBy, Subject};
use laneway_store::{ItemMeta, Moment};

impl Context<'_> {
    /// A value was asked for: counts that, and logs it. `found`: its item, if there is one.
    #[inline]
    pub(super) fn tell_get(&self, key: &[u8], found: Option<&ItemMeta>) {
        self.counters.cmd_get.bump_owner();
        match found {
            Some(item) => self.count_found(item.item_bytes()),
            None => self.counters.get_misses.bump_owner(),
        }
        self.log_get(key, found.map(|item| item.value_bytes.into()));
    }

    /// The same of an item that was to be given another end.
    #[inline]
    pub(super) fn tell_touch(&self, key: &[u8], found: Option<&ItemMeta>) {
        let counters = self.counters;
        counters.cmd_touch.bump_owner();
        if found.is_some() { &counters.touch_hits } else { &counters.touch_misses }.bump_owner();
        self.log_get(key, found.map(|item| item.value_bytes.into()));
    }

    /// Counts that a read has found an item of so many bytes.
    #[inline]
    pub(super) fn count_found(&self, item_bytes: u64) {
        self.counters.get_hits.bump_owner();
        if self.large_lane_from <= item_bytes {
            self.counters.get_hits_large.bump_owner();
        }
    }

    /// A key was asked for; the bytes of its item's value, if there is one.
    #[inline]
    pub(crate) fn log_get(&self, key: &[u8], value_bytes: Option<u64>) {
        if let Some(log) = self.watched_log(Class::Fetchers) {
            let fetched = if value_bytes.is_some() { Fetched::Found } else { Fetched::Missed };
            self.log(log, Event::Get(fetched), key, value_bytes);
        }
    }

    /// A value of so many bytes came for a key; its item ends then.
    #[inline]
    pub(super) fn log_store(
        &self,
        key: &[u8],
        (stored, by): (Stored, StoredBy),
        expires: Moment,
        value_bytes: u64,
    ) {
        if let Some(log) = self.watched_log(Class::Mutations) {
            self.log(log, Event::Store(stored, by, expires), key, Some(value_bytes));
        }
    }

    /// Whether anybody watches what is stored.
    #[inline]
    pub(super) fn logs_stores(&self) -> bool {
        self.watched_log(Class::Mutations).is_some()
    }

    /// This item was deleted.
    #[inline]
    pub(super) fn log_delete(&self, key: &[u8], by: DeletedBy, item: &ItemMeta) {
        self.log_delete_of(key, by, item.value_bytes.into());
    }

    /// An item was deleted whose value has so many bytes.
    #[inline]
    pub(crate) fn log_delete_of(&self, key: &[u8], by: DeletedBy, value_bytes: u64) {
        if let Some(log) = self.watched_log(Class::Deletions) {
            self.log(log, Event::Delete(by), key, Some(value_bytes));
        }
    }

    /// What was tried out elsewhere is carried out: the item of a key is this one now; before it
    /// was that one.
    pub(crate) fn log_change(&self, key: &[u8], now: Option<&ItemMeta>, before: Option<&ItemMeta>) {
        match (now, before) {
            (Some(item), _) => {
                let what = (Stored::Stored, StoredBy::Set);
                self.log_store(key, what, item.expires, item.value_bytes.into());
            }
            (None, Some(item)) => self.log_delete(key, DeletedBy::Delete, item),
            (None, None) => {}
        }
    }

    #[inline]
    fn watched_log(&self, class: Class) -> Option<&EventLog> {
        self.log.filter(|log| log.watches(class))
    }

    #[cold]
    #[inline(never)]
    fn log(&self, log: &EventLog, event: Event, key: &[u8], value_bytes: Option<u64>) {
        log.tell_time(self.now);
        let class =
            value_bytes.map_or(0, |bytes| self.store.class_number(key.len() as u64 + bytes));
        let value_bytes = value_bytes.unwrap_or(0);
        log.log(event, Subject { text: key, value_bytes, class, by: self.by });
    }
}
