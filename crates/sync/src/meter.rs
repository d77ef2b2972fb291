//! A meter of work, for tests that hold each turn of a worker against its budget. The code that
//! moves bytes, looks at slots, visits items or answers keys says so where it does it; a test takes
//! what has been said since it took last, before and after a turn. Wall-clock time would tell how
//! fast the machine is; this tells whether a loop has a bound.
//!
//! It counts per thread, with the feature `meter`; without, every call is empty. It lies here
//! because store, tier and server have such loops, and all of them know this crate.
//!
//! Beside it, and by the same feature, memory can be refused now and then, as a full store refuses
//! it: the places where a request takes some, or waits for some, ask [`is_refused`] first.

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
    /// Bytes of records copied within memory, into the tier's log or a buffer of their own.
    pub logged: u64,
}

#[cfg(feature = "meter")]
mod counted {
    use super::Work;
    use std::cell::Cell;

    thread_local! {
        static WORK: Cell<Work> = const {
            Cell::new(Work { bytes: 0, slots: 0, items: 0, keys: 0, waits: 0, logged: 0 })
        };
        /// Of so many requests for memory one is refused, on average (0: none); state of the draws.
        static REFUSED: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    }

    pub fn refuse(one_in: u32, seed: u64) {
        REFUSED.set((one_in, seed | 1));
    }

    pub fn is_refused() -> bool {
        let (one_in, state) = REFUSED.get();
        // A linear congruential generator (Knuth): its high bits are as good as is needed here.
        let next = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        REFUSED.set((one_in, next));
        one_in > 0 && ((next >> 32) as u32).is_multiple_of(one_in)
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

    #[inline(always)]
    pub fn refuse(_: u32, _: u64) {}

    #[inline(always)]
    pub fn is_refused() -> bool {
        false
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

/// So many bytes of a record were copied, into the tier's log or a buffer of its own.
#[inline(always)]
pub fn logged(count: usize) {
    counted::add(|work| work.logged += count as u64);
}

/// What this thread did since it was asked last; nothing without the feature `meter`.
#[inline(always)]
pub fn take() -> Work {
    counted::take()
}

/// From now on one of so many requests for memory on this thread is refused (0: none), as the seed
/// draws them; nothing without the feature `meter`.
#[inline(always)]
pub fn refuse(one_in: u32, seed: u64) {
    counted::refuse(one_in, seed);
}

/// Whether this request for memory is to be refused; never without the feature `meter`.
#[inline(always)]
pub fn is_refused() -> bool {
    counted::is_refused()
}
