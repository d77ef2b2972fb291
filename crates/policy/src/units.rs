//! The units everything else is counted in, and the few constants that tie them together.
//!
//! The size of an item is its key + value in bytes; the header an item has in memory or on the wire
//! is not part of it. Packets are Minos's unit of cost (§3.1). It knows no protocol: a packet is
//! what fits one Ethernet frame of payload, whatever carries it.

use core::fmt;

/// Size of an item (or of all items of a multiget together): key + value, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ItemBytes(pub u64);

impl ItemBytes {
    /// Packets that carry this many bytes; even nothing needs one.
    pub const fn packets(self) -> Packets {
        let full = self.0.div_ceil(FRAME_BYTES.0);
        Packets(if full == 0 { 1 } else { full })
    }
}

impl fmt::Display for ItemBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time in nanoseconds since a moment that the caller chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// One worker, by its number: `0..workers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Network packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Packets(pub u64);

/// Payload of one frame: an MTU of 1500 less 20 bytes of IP and 8 of UDP.
pub const FRAME_BYTES: ItemBytes = ItemBytes(1500 - 20 - 8);

/// The most a large transfer moves in one turn, unless the settings say otherwise.
pub const SLICE_BYTES: ItemBytes = ItemBytes(32 * 1024);

/// Largest value any setting allows (`-I 1g`).
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Longest key.
pub const KEY_BYTES_MAX: u64 = 250;

/// Largest item: what the histogram must be able to count apart.
pub const ITEM_BYTES_MAX: ItemBytes = ItemBytes(VALUE_BYTES_MAX + KEY_BYTES_MAX);

/// Requests read from one RX queue in one turn (Minos §5: 32).
pub const BATCH: u32 = 32;

/// Most workers a plan can hold.
pub const WORKERS_MAX: u16 = 1024;

const _: () = assert!(FRAME_BYTES.0 < SLICE_BYTES.0); // the clamp [frame, slice] is not empty
const _: () = assert!(SLICE_BYTES.0 < ITEM_BYTES_MAX.0); // something is left to slice
/// The same where a large transfer waits for its slice on the same worker. Undisturbed, a turn
/// finds one or two requests ready and this changes nothing. After a gap (the CPU was somebody
/// else's) a backlog of small requests would shut large ones out until the last of it is gone, 32
/// requests for a slice; so the large lane keeps a share, about a tenth of the worker's time.
pub const BATCH_BESIDE_LARGE: u32 = 8;

const _: () = assert!(BATCH_BESIDE_LARGE <= BATCH);
const _: () = assert!(BATCH.is_power_of_two());
const _: () = assert!(FRAME_BYTES.packets().0 == 1);
const _: () = assert!(ItemBytes(FRAME_BYTES.0 + 1).packets().0 == 2);
