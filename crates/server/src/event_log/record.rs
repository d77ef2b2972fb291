//! The event log itself: every thread writes its events here, if their class is watched.

use super::event::{Class, Event, HEAD_WORDS, Subject, TEXT_BYTES_MAX, WORDS};
use super::line;
use crate::built::OBSERVES;
use laneway_store::{Evictions, ItemMeta, Moment};
use laneway_sync::journal::Journal;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Events that are remembered.
pub const PLACES: usize = 4096;

/// Connections that may watch at once (memcached's bound).
pub const WATCHERS_MAX: usize = 20;

/// Bytes that the journal takes once somebody has watched: its words, and the version, the length
/// and the box of each place.
pub const JOURNAL_BYTES: u64 = (PLACES * (WORDS * 8 + 32)) as u64;

/// The log.
#[derive(Debug, Default)]
pub struct EventLog {
    /// A bit for each class that anybody watches.
    pub(super) watched: AtomicU32,
    /// The time that was told last, in milliseconds since 1970.
    now_millis: AtomicU64,
    pub(super) journal: OnceLock<Journal>,
    /// The classes of each watcher.
    watchers: Mutex<Vec<u32>>,
    /// Lines written to watchers, and events that they have missed.
    pub(super) sent: AtomicU64,
    pub(super) skipped: AtomicU64,
}

/// What `stats` tells of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Events that were logged.
    pub logged: u64,
    /// Lines that were written to watchers.
    pub sent: u64,
    /// Events that watchers have missed.
    pub skipped: u64,
    /// Connections that watch.
    pub watchers: u64,
}

impl EventLog {
    /// Whether anybody watches anything.
    #[inline]
    pub fn is_watched(&self) -> bool {
        // No partner: a watcher that is told `OK` sees what is caused by that, since what causes
        // it comes by a socket or a queue.
        OBSERVES && self.watched.load(Relaxed) != 0
    }

    /// Whether anybody watches this class.
    #[inline]
    pub fn watches(&self, class: Class) -> bool {
        OBSERVES && self.watched.load(Relaxed) & class as u32 != 0 // see `is_watched`
    }

    /// It is this time.
    pub fn tell_time(&self, now: Moment) {
        self.now_millis.store(now.unix_millis(), Relaxed); // a number that orders nothing
    }

    /// Logs an event, if anybody watches its class.
    pub fn log(&self, event: Event, subject: Subject<'_>) {
        if !self.watches(event.class()) {
            return;
        }
        let Some(journal) = self.journal.get() else { return };
        let text = &subject.text[..subject.text.len().min(TEXT_BYTES_MAX)];
        let mut words = line::words(event, &subject, self.now_millis.load(Relaxed), text);
        journal.write(&mut words[..HEAD_WORDS + text.len().div_ceil(8)]);
    }

    /// What `stats` tells.
    pub fn counts(&self) -> EventCounts {
        EventCounts {
            logged: self.journal.get().map_or(0, Journal::end),
            sent: self.sent.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            watchers: self.watchers().len() as u64,
        }
    }

    /// The classes of each watcher.
    pub(super) fn watchers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Evictions for EventLog {
    fn wants(&self) -> Option<Moment> {
        self.watches(Class::Evictions)
            .then(|| Moment::from_unix_millis(self.now_millis.load(Relaxed)))
    }

    fn evicted(&self, key: &[u8], meta: &ItemMeta, class: u32) {
        let ItemMeta { fetched, expires, idle_seconds, .. } = *meta;
        let value_bytes = u64::from(meta.value_bytes);
        let subject = Subject { text: key, value_bytes, class, by: 0 };
        self.log(Event::Evict { fetched, expires, idle_seconds }, subject);
    }
}
