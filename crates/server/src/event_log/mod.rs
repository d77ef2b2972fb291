//! The log that `watch` streams: what was asked, stored, deleted and evicted, and which connections
//! came and went, in the lines of memcached 1.6.45 (`line`). [`event`] has the events, [`record`]
//! is where they are written, [`watcher`] one reader of it, and [`asked`] reads the command.
//!
//! Whoever has an event writes it into one [`Journal`](laneway_sync::journal::Journal): no lock, no
//! wait, and while nobody watches one look at a word that nobody writes. The journal remembers
//! [`record::PLACES`] events, whoever watches and however slowly; a watcher that does not keep up
//! is told how many it has missed. Its memory is taken when somebody watches for the first time,
//! and kept.
//!
//! It departs from memcached, which has a buffer for each worker and each watcher, and a thread
//! that copies from the ones to the others: the numbers of our events are their order, and a
//! watcher's lines are written by the worker that has its connection. Only what clients ask for is
//! logged as fetched; memcached also logs the look at the old item before a change.
//!
//! It knows no connection and no clock: time comes with the events, and is that of the last one
//! where an event has none of its own. Times are to the millisecond, sizes bytes.

pub(crate) mod watchers;
pub(crate) mod watching;

pub mod asked;
pub mod event;
mod line;
pub mod record;
pub mod watcher;

pub use event::{Class, DeletedBy, Event, Fetched, Parting, Stored, StoredBy, Subject};
pub use record::{EventCounts, EventLog, JOURNAL_BYTES};
