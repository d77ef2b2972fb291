//! What is under way between two calls: where the walks over all slots stand, the one that empties
//! chunks (`evict`) and the one that looks for the dead (`sweep`), and what large items that are
//! over still hold (`remains`).

use laneway_sync::prim::AtomicUsize;
use std::sync::Mutex;

/// The chunk being emptied.
#[derive(Debug, Default)]
pub struct Drain {
    pub current: Option<Draining>,
    pub hand: u32,
    /// The last chunk could not be emptied: items in it are held or under construction.
    pub in_vain: bool,
    /// Whether it walks the chunks of the window, or the others.
    pub in_window: bool,
}

impl Drain {
    /// That of the window.
    pub fn of_window() -> Drain {
        Drain { in_window: true, ..Drain::default() }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Draining {
    pub chunk: u32,
    pub class: usize,
    pub slot: usize,
}

/// Where the sweep stands.
#[derive(Debug, Default)]
pub struct Sweeper {
    pub chunk: u32,
    pub slot: usize,
    pub large: u32,
    /// Flush generation when this pass began, and when the one before did.
    pub generation: u32,
    pub generation_before: u32,
    /// Passes completed.
    pub passes: u64,
}

/// Pieces of large items that are over, and buffers, that are not given back yet.
#[derive(Debug, Default)]
pub struct Remains {
    /// By item.
    pub lists: Mutex<Vec<Remainder>>,
    /// How many lists there are, for those who look without the mutex.
    pub count: AtomicUsize,
    /// Buffers of the heap in which values were gathered.
    pub buffers: Mutex<Vec<Vec<u8>>>,
    /// How many of those there are.
    pub buffer_count: AtomicUsize,
}

/// Those of one item.
#[derive(Debug)]
pub struct Remainder {
    /// All its pieces.
    pub pieces: Vec<u64>,
    /// So many of them are given back.
    pub given: usize,
}
