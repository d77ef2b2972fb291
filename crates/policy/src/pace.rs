//! How many bytes a slice moves, so that the worker is soon back at what is small: no more than the
//! settings say, and no more than what took [`SLICE_NANOS`] of late. How long a byte takes differs
//! between ways: a send that copies into the kernel, a read out of it, a copy in memory. Each has
//! its own mean.
//!
//! A slice that took far longer than the mean was most likely interrupted: the CPU was somebody
//! else's. It counts as twice the mean, so that one alone halves nothing, and a way that is slower
//! from now on is known after a few slices.
//!
//! Knows no clock: who moves a slice says how long it took. Departs from Minos (NSDI'19 §3), which
//! has no slices. Units: bytes, nanoseconds.

use crate::units::FRAME_BYTES;

/// How long a slice may take.
pub const SLICE_NANOS: u64 = 10_000;

/// A way that bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out by a stream.
    Send,
    /// In by a stream, into the item.
    Receive,
    /// Out by datagrams.
    Frames,
    /// From memory to memory.
    Copy,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 4] = [Way::Send, Way::Receive, Way::Frames, Way::Copy];

    /// As `stats lanes` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Send => "send",
            Way::Receive => "receive",
            Way::Frames => "frames",
            Way::Copy => "copy",
        }
    }
}

/// A mean is kept in so many parts of a nanosecond a byte.
const PARTS: u64 = 1 << 16;
/// Of the mean, the part that a new slice makes up.
const NEW: u64 = 8;
/// A slice counts as so many times the mean at most.
const OUTLIER: u64 = 2;
/// What a byte takes at first, in parts of a nanosecond: too little to bound anything.
const FIRST: u64 = PARTS / 64;

/// What a byte takes by each way, of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    means: [u64; Way::ALL.len()],
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { means: [FIRST; Way::ALL.len()] }
    }
}

impl Pace {
    /// Bytes of the next slice by this way, at most `most`; at least a frame's.
    pub fn bytes(&self, way: Way, most: usize) -> usize {
        let bytes = SLICE_NANOS * PARTS / self.means[way as usize].max(1);
        most.min(bytes.max(FRAME_BYTES.0) as usize)
    }

    /// A slice by this way has moved so many bytes, and took so long. A short one says little: most
    /// of its time is not its bytes'.
    pub fn note(&mut self, way: Way, bytes: usize, nanos: u64) {
        let bytes = bytes as u64;
        if bytes < FRAME_BYTES.0 {
            return;
        }
        let mean = &mut self.means[way as usize];
        // The bound keeps a slice of a second from overflowing.
        let now = nanos.min(1_000_000_000) * PARTS / bytes;
        *mean = (*mean * (NEW - 1) + now.min(*mean * OUTLIER)).div_ceil(NEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 32 * 1024;

    /// After so many slices at so many bytes a microsecond.
    fn at(pace: &mut Pace, way: Way, bytes_per_us: usize, slices: usize) -> usize {
        for _ in 0..slices {
            let bytes = pace.bytes(way, MOST);
            pace.note(way, bytes, (bytes * 1_000 / bytes_per_us) as u64);
        }
        pace.bytes(way, MOST)
    }

    #[test]
    fn a_slice_takes_ten_microseconds_or_all_that_is_allowed() {
        for (bytes_per_us, bytes) in [(100_000, MOST), (3_277, MOST), (1_000, 10_000), (400, 4_000)]
        {
            let found = at(&mut Pace::default(), Way::Send, bytes_per_us, 200);
            assert!(bytes.abs_diff(found) * 50 <= bytes, "{bytes_per_us}/us: {found} of {bytes}");
        }
        let slow = at(&mut Pace::default(), Way::Send, 1, 400);
        assert_eq!(slow, FRAME_BYTES.0 as usize, "a frame goes however long it takes");
        assert_eq!(Pace::default().bytes(Way::Copy, 1), 1, "never more than is allowed");
        assert_eq!(Pace::default().bytes(Way::Copy, MOST), MOST, "nothing is known yet");
    }

    #[test]
    fn ways_are_apart_and_a_way_that_becomes_faster_is_known() {
        let mut pace = Pace::default();
        assert!(at(&mut pace, Way::Send, 500, 200) < MOST / 4);
        assert_eq!(pace.bytes(Way::Receive, MOST), MOST);
        assert_eq!(at(&mut pace, Way::Send, 10_000, 100), MOST);
    }

    #[test]
    fn one_interrupted_slice_changes_little_and_none_takes_a_way_below_a_frame() {
        let mut pace = Pace::default();
        let before = at(&mut pace, Way::Send, 1_000, 200);
        pace.note(Way::Send, before, u64::MAX);
        let after = pace.bytes(Way::Send, MOST);
        assert!(before * 7 / 8 <= after && after < before, "{before} {after}");
        pace.note(Way::Send, 100, 1_000_000); // too short to say anything
        assert_eq!(pace.bytes(Way::Send, MOST), after);
        (0..10_000).for_each(|_| pace.note(Way::Send, MOST, u64::MAX));
        assert_eq!(pace.bytes(Way::Send, MOST), FRAME_BYTES.0 as usize);
        (0..10_000).for_each(|_| pace.note(Way::Send, MOST, 0));
        assert_eq!(pace.bytes(Way::Send, MOST), MOST);
    }
}
