//! Progress of passes over the media; `stats tier` and metrics read it without a lock.
//! [`super::scrubber`] makes the passes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How often all that is kept durably is read and verified, and how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubSettings {
    /// From the begin of one pass to that of the next.
    pub every: Duration,
    /// Bytes a second; 0 for as many as there can be.
    pub bytes_per_second: u64,
    /// The log tells keys of damaged items.
    pub log_keys: bool,
}

/// How passes stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Whole passes since the start.
    pub passes: u64,
    /// The unix time at which the last of them ended; 0 if there was none.
    pub done_seconds: u64,
    /// What the last of them found damaged.
    pub done_damaged: u64,
    /// Bytes read since the start.
    pub bytes: u64,
    /// What was found damaged since the start, each item once.
    pub damaged: u64,
    /// Of the pass that is under way: bytes verified, and bytes in all. Both 0 between passes.
    pub now_bytes: u64,
    /// See above.
    pub now_total_bytes: u64,
}

/// What who scrubs and who tells of it share. Statistics: nothing hangs on their order.
#[derive(Default)]
pub struct Scrubs {
    is_enabled: AtomicBool,
    is_closed: AtomicBool,
    passes: AtomicU64,
    done_seconds: AtomicU64,
    done_damaged: AtomicU64,
    bytes: AtomicU64,
    damaged: AtomicU64,
    now_bytes: AtomicU64,
    now_total_bytes: AtomicU64,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Scrubs {
    /// From now on passes are made, by somebody whom `bell` wakes.
    pub fn enable(&self, bell: Box<dyn Fn() + Send + Sync>) {
        assert!(self.bell.set(bell).is_ok(), "there is one scrubber");
        self.is_enabled.store(true, Relaxed);
    }

    /// The server stops.
    pub fn close(&self) {
        self.is_closed.store(true, Relaxed); // who is woken looks again
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// Whether it does.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    /// How passes stand; none where there are none.
    pub fn told(&self) -> Option<Scrubbed> {
        let read = |count: &AtomicU64| count.load(Relaxed);
        self.is_enabled.load(Relaxed).then(|| Scrubbed {
            passes: read(&self.passes),
            done_seconds: read(&self.done_seconds),
            done_damaged: read(&self.done_damaged),
            bytes: read(&self.bytes),
            damaged: read(&self.damaged),
            now_bytes: read(&self.now_bytes),
            now_total_bytes: read(&self.now_total_bytes),
        })
    }

    /// So many more bytes were read.
    pub(super) fn has_read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Something was found damaged that was not told before.
    pub(super) fn has_found(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }

    /// So far the pass is that is under way.
    pub(super) fn is_at(&self, done: u64, total: u64) {
        self.now_bytes.store(done, Relaxed);
        self.now_total_bytes.store(total, Relaxed);
    }

    /// A pass is whole.
    pub(super) fn has_ended(&self, damaged: u64, now_seconds: u32) {
        self.is_at(0, 0);
        self.done_damaged.store(damaged, Relaxed);
        self.done_seconds.store(now_seconds.into(), Relaxed);
        self.passes.fetch_add(1, Relaxed);
    }
}
