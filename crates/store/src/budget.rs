//! How much one step of maintenance may do: sweeping, emptying chunks, looking for what to evict,
//! listing. A worker does one such step in a turn, between small requests, so each is about as long
//! as a slice of a large transfer, some 10 microseconds, however much there is to do; the next step
//! goes on where it stopped. All of the numbers stand here; `meter` counts what they bound.
//!
//! Work is counted in units of about 20 nanoseconds. A step ends behind the piece of work that
//! spends the last unit, so it may exceed them by one: at most an item moved.

use crate::geometry::{CHUNK_BYTES_MAX, SLOT_BYTES_MIN};

/// Units of one step.
pub const STEP: usize = 512;
/// A free slot, a word of a bitmap, a chunk passed by, a hit mark: what lies densely.
pub const LOOK: usize = 1;
/// The header of a record, or a descriptor: a cache miss.
pub const READ: usize = 4;
/// Taking an item out of the index, or moving it: several cache misses, a bucket and a mutex.
pub const TAKE_OUT: usize = 24;
/// Giving a piece of a large item back: a mutex, a word of a bitmap, the chunk's counts.
pub const GIVE: usize = 4;
/// Bytes copied for a unit.
pub const COPY_BYTES: usize = 256;

/// What the hand of one draft may look for its victims, whatever the number of its tries.
pub const PICK: usize = 2 * STEP;
/// Marks that the hand of a clock looks at before it takes the least used of them.
pub const PICK_LOOKS: usize = 256;

/// Steps after which a draft that waits for memory gives up: enough to empty a chunk of the
/// smallest slots twice, in case what was left in the first one could not be moved.
pub const WAIT_STEPS: usize =
    2 * CHUNK_BYTES_MAX / SLOT_BYTES_MIN * (LOOK + TAKE_OUT + PICK_LOOKS) / STEP;

/// Items that one step of a listing tells.
pub const LIST_ITEMS: usize = 64;
/// Slots and chunks that one step of a listing looks at: most may be free, or of other classes.
pub const LIST_LOOKS: usize = 1024;

/// What a request that ends a large item gives back of its pieces at once, 2 MiB of them. The rest
/// is given back by steps of the sweep, or of whoever needs memory.
pub const END: usize = STEP / 2;

/// What is left of a step.
#[derive(Debug)]
pub struct Budget(usize);

impl Budget {
    /// Of so many units.
    pub fn of(units: usize) -> Budget {
        Budget(units)
    }

    /// Half of what is left, for a part of the step; the other half stays.
    pub fn split(&mut self) -> Budget {
        let half = self.0 / 2;
        self.0 -= half;
        Budget(half)
    }

    /// So much was done.
    pub fn spend(&mut self, units: usize) {
        self.0 = self.0.saturating_sub(units);
    }

    /// Whether the step has done enough.
    pub fn is_spent(&self) -> bool {
        self.0 == 0
    }
}
