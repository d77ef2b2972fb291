//! A meter of work, for tests that hold each turn of a worker against its budget. The code that
//! moves bytes, looks at slots, visits items or answers keys says so where it does it; a test takes
//! what has been said since it took last, before and after a turn. Wall-clock time would tell how
//! fast the machine is; this tells whether a loop has a bound.
//!
//! It counts per thread, with the feature `meter`; without, every call is empty. It lies here
//! because store, tier and server have such loops, and all of them know this crate.

/// Work done by this thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes copied within memory, or between memory and a stream or socket.
    pub bytes: u64,
    /// Slots, descriptors or chunks looked at by a walk.
    pub slots: u64,
    /// Items moved, taken out, or listed; pieces of memory taken or freed.
    pub items: u64,
    /// Requests answered, each key of a `get` being one.
    pub keys: u64,
    /// Times that a device was waited for: reads, writes and flushes of simulated media.
    pub waits: u64,
}

#[cfg(feature = "meter")]
mod counted {
    use super::Work;
    use std::cell::Cell;

    thread_local! {
        static WORK: Cell<Work> = const {
            Cell::new(Work { bytes: 0, slots: 0, items: 0, keys: 0, waits: 0 })
        };
    }

    pub fn add(change: impl FnOnce(&mut Work)) {
        WORK.with(|cell| {
            let mut work = cell.get();
            change(&mut work);
            cell.set(work);
        });
    }

    pub fn take() -> Work {
        WORK.take()
    }
}

#[cfg(not(feature = "meter"))]
mod counted {
    use super::Work;

    #[inline(always)]
    pub fn add(_: impl FnOnce(&mut Work)) {}

    #[inline(always)]
    pub fn take() -> Work {
        Work::default()
    }
}

/// So many bytes were copied.
#[inline(always)]
pub fn bytes(count: usize) {
    counted::add(|work| work.bytes += count as u64);
}

/// So many slots, descriptors or chunks were looked at.
#[inline(always)]
pub fn slots(count: usize) {
    counted::add(|work| work.slots += count as u64);
}

/// So many items were moved, taken out or listed, or pieces of memory taken or freed.
#[inline(always)]
pub fn items(count: usize) {
    counted::add(|work| work.items += count as u64);
}

/// So many requests, or keys of one, were answered.
#[inline(always)]
pub fn keys(count: usize) {
    counted::add(|work| work.keys += count as u64);
}

/// A device was waited for.
#[inline(always)]
pub fn wait() {
    counted::add(|work| work.waits += 1);
}

/// What this thread did since it was asked last; nothing without the feature `meter`.
#[inline(always)]
pub fn take() -> Work {
    counted::take()
}
