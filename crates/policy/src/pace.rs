//! How many bytes a slice moves, so that the worker is soon back at what is small: no more than the
//! settings say, and no more than what takes [`SLICE_NANOS`] where nothing disturbs it. How long a
//! byte takes differs between ways: a send that copies into the kernel, a read out of it, a copy
//! in memory. Each has its own pace.
//!
//! Part of what a slice takes is not its bytes': the system call, the packets' way through the
//! kernel, waking the receiver. Fewer bytes do not shorten that. Were it counted as the bytes', a
//! slice that took long would make the next one smaller, which would take longer for each of its
//! bytes, and so on down to a frame: then a transfer costs three times as much CPU, and small
//! requests wait no less. So there are two rules. A slice has [`SLICE_BYTES_MIN`] at least,
//! whatever it took. And the pace is that of slices that went well: one that was faster is believed
//! eight times as much as one that was slower, which waited for the CPU or woke somebody.
//!
//! It knows no clock: who moves a slice says how long it took. It departs from Minos (NSDI'19 §3),
//! which has no slices. Units: bytes, nanoseconds.

use crate::units::{FRAME_BYTES, SLICE_BYTES};

/// How long a slice may take that nothing disturbs.
pub const SLICE_NANOS: u64 = 10_000;

/// What a slice has at least where the settings allow it and so much is left: copying so many bytes
/// takes about as long as a system call that sends them.
pub const SLICE_BYTES_MIN: u64 = SLICE_BYTES.0 / 2;

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

/// A pace is kept in so many parts of a nanosecond a byte.
const PARTS: u64 = 1 << 16;
/// Of the way to what a faster slice took, the part that the pace goes.
const FASTER: u64 = 8;
/// The same of a slower one.
const SLOWER: u64 = 64;
/// A slice counts as so many times the pace at most.
const OUTLIER: u64 = 2;
/// A byte is taken to need so many parts of a nanosecond before anything was measured. That is a
/// little less than what would bound a slice of [`SLICE_BYTES`], so a slow machine is known after
/// some twenty slices.
const FIRST: u64 = PARTS / 4;

/// The pace remembers for each way how long a byte takes in a slice that nothing disturbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    paces: [u64; Way::ALL.len()],
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { paces: [FIRST; Way::ALL.len()] }
    }
}

impl Pace {
    /// Bytes of the next slice by this way, at most `most`.
    pub fn bytes(&self, way: Way, most: usize) -> usize {
        let bytes = SLICE_NANOS * PARTS / self.paces[way as usize].max(1);
        most.min(bytes.max(SLICE_BYTES_MIN) as usize)
    }

    /// A slice by this way has moved so many bytes, and took so long. A short one says little: most
    /// of its time is not its bytes'.
    pub fn note(&mut self, way: Way, bytes: usize, nanos: u64) {
        let bytes = bytes as u64;
        if bytes < FRAME_BYTES.0 {
            return;
        }
        let pace = &mut self.paces[way as usize];
        // The bound keeps a slice of a second from overflowing.
        let now = (nanos.min(1_000_000_000) * PARTS / bytes).min(*pace * OUTLIER);
        *pace = match now < *pace {
            // Never 0, from which twice leads nowhere.
            true => (*pace - (*pace - now).div_ceil(FASTER)).max(1),
            false => *pace + (now - *pace).div_ceil(SLOWER),
        };
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
    fn a_slice_takes_ten_microseconds_or_all_that_is_allowed_and_has_a_least() {
        let least = SLICE_BYTES_MIN as usize;
        for (bytes_per_us, bytes) in
            [(100_000, MOST), (3_277, MOST), (2_500, 25_000), (1_700, 17_000), (1_000, least)]
        {
            let found = at(&mut Pace::default(), Way::Send, bytes_per_us, 1_000);
            assert!(bytes.abs_diff(found) * 50 <= bytes, "{bytes_per_us}/us: {found} of {bytes}");
        }
        assert_eq!(at(&mut Pace::default(), Way::Send, 1, 1_000), least, "however long it takes");
        assert_eq!(Pace::default().bytes(Way::Copy, 1), 1, "never more than is allowed");
        assert_eq!(Pace::default().bytes(Way::Copy, MOST), MOST, "nothing is known yet");
    }

    #[test]
    fn ways_are_apart_and_a_way_that_becomes_faster_is_known() {
        let mut pace = Pace::default();
        assert!(at(&mut pace, Way::Send, 500, 1_000) < MOST);
        assert_eq!(pace.bytes(Way::Receive, MOST), MOST);
        assert_eq!(at(&mut pace, Way::Send, 10_000, 100), MOST);
    }

    /// A slice takes a fixed time beside that of its bytes, much more where it wakes the receiver,
    /// and a few are interrupted: what is learned of it must not run away towards small slices.
    #[test]
    fn what_a_slice_takes_beside_its_bytes_does_not_make_it_smaller_and_smaller() {
        let mut pace = Pace::default();
        for slice in 0..10_000_u64 {
            let bytes = pace.bytes(Way::Send, MOST);
            let fixed = match slice % 16 {
                0 => 2_700_000,                     // the CPU was somebody else's
                number if number % 2 == 0 => 9_000, // the receiver slept
                _ => 2_000,
            };
            pace.note(Way::Send, bytes, fixed + bytes as u64 / 4);
        }
        // At 1/4 ns a byte, 10 us less what is fixed at best are 32 KB.
        let bytes = pace.bytes(Way::Send, MOST);
        assert!(bytes >= MOST * 5 / 8, "{bytes}");
    }

    #[test]
    fn one_interrupted_slice_changes_little_and_none_takes_a_way_below_the_least() {
        let mut pace = Pace::default();
        let before = at(&mut pace, Way::Send, 2_500, 1_000);
        pace.note(Way::Send, before, u64::MAX);
        let after = pace.bytes(Way::Send, MOST);
        assert!(before * 31 / 32 <= after && after < before, "{before} {after}");
        pace.note(Way::Send, 100, 1_000_000); // too short to say anything
        assert_eq!(pace.bytes(Way::Send, MOST), after);
        (0..10_000).for_each(|_| pace.note(Way::Send, MOST, u64::MAX));
        assert_eq!(pace.bytes(Way::Send, MOST), SLICE_BYTES_MIN as usize);
        (0..1_000).for_each(|_| pace.note(Way::Send, MOST, 0));
        assert_eq!(pace.bytes(Way::Send, MOST), MOST);
    }
}
