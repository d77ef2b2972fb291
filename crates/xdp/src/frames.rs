//! Which frames are out of our hands. A frame's address in a ring is a number; what keeps two
//! parties from believing that they have the same frame is that the [`Frame`] itself lies here from
//! the moment its address goes out until the moment it comes back, and comes out once.

use crate::mapped::{FRAME_BYTES, Frame};

/// A place for each of a row of frames.
#[derive(Debug)]
pub(crate) struct Away {
    /// Number of the first one.
    first: u32,
    frames: Box<[Option<Frame>]>,
    count: usize,
}

impl Away {
    /// For frames `first..first + count`, none of which is away.
    pub(crate) fn new(first: u32, count: u32) -> Away {
        Away { first, frames: (0..count).map(|_| None).collect(), count: 0 }
    }

    /// Where a frame's bytes begin, as rings have it.
    pub(crate) fn address(frame: &Frame) -> u64 {
        u64::from(frame.number()) * FRAME_BYTES as u64
    }

    /// How many are away.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// A frame goes out of our hands.
    ///
    /// # Panics
    /// If it is none of these: frames of two queues were mixed up.
    pub(crate) fn give(&mut self, frame: Frame) {
        let place = frame.number().checked_sub(self.first);
        let place = place.and_then(|place| self.frames.get_mut(place as usize));
        let place = place.expect("a frame of this queue");
        assert!(place.is_none(), "there is one of each");
        *place = Some(frame);
        self.count += 1;
    }

    /// The frame of an address has come back. None if no such frame was away: whoever says so is
    /// not believed.
    pub(crate) fn take(&mut self, address: u64) -> Option<Frame> {
        let number = u32::try_from(address / FRAME_BYTES as u64).ok()?;
        let place = number.checked_sub(self.first)? as usize;
        let frame = self.frames.get_mut(place)?.take()?;
        self.count -= 1;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::frames;

    #[test]
    fn a_frame_comes_back_once_and_only_if_it_was_away() {
        let (_memory, mut all) = frames(4).expect("memory");
        let mut away = Away::new(2, 2);
        let last = all.pop().expect("four");
        assert_eq!(Away::address(&last), 3 * 2048);
        away.give(last);
        assert_eq!(away.len(), 1);
        for address in [0, 2 * 2048, 4 * 2048, u64::MAX] {
            assert!(away.take(address).is_none(), "{address}");
        }
        assert_eq!(away.take(3 * 2048 + 256).map(|frame| frame.number()), Some(3));
        assert!(away.take(3 * 2048).is_none() && away.len() == 0);
    }

    #[test]
    #[should_panic(expected = "a frame of this queue")]
    fn frames_of_another_queue_are_not_taken() {
        let (_memory, mut all) = frames(1).expect("memory");
        Away::new(1, 4).give(all.pop().expect("one"));
    }
}
