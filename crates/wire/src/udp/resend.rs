//! Naming the frames of a message that are missing.
//!
//! The payload of a [`Kind::Resend`] frame is a list of gaps, four bytes each:
//! first sequence number and count, big-endian. At one lost datagram in a hundred a message of 360
//! arrives whole 3 times in 100; asking for what is missing costs one small datagram, sending it
//! all again the whole.

use super::header::{FRAME_BYTES_MAX, HEADER_BYTES, Header, Kind};
use crate::reply::Sink;
use core::ops::Range;

/// Bytes of one gap on the wire.
pub const GAP_BYTES: usize = 4;

/// Most gaps that one frame names. Further ones are asked for when these have come.
pub const GAPS_MAX: usize = FRAME_BYTES_MAX / GAP_BYTES;

/// Frames that are missing: `count` of them, from `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Sequence number of the first.
    pub first: u16,
    /// How many; never 0.
    pub count: u16,
}

impl Gap {
    /// The sequence numbers.
    pub const fn sequences(self) -> Range<u32> {
        self.first as u32..self.first as u32 + self.count as u32
    }

    /// As sent.
    pub const fn to_bytes(self) -> [u8; GAP_BYTES] {
        let [first_high, first_low] = self.first.to_be_bytes();
        let [count_high, count_low] = self.count.to_be_bytes();
        [first_high, first_low, count_high, count_low]
    }
}

/// The gaps named by the payload of a frame of kind `Resend`, for a message of `total` frames.
/// Left out are empty ones, ones that reach beyond the message, ones that do not lie behind the gap
/// before them, and a last one that was cut off: whoever answers resends frames that exist, in
/// ascending order and each of them once, or nothing. No datagram asks for more than the message.
pub fn gaps(payload: &[u8], total: u16) -> impl Iterator<Item = Gap> + '_ {
    let mut end = 0;
    payload.chunks_exact(GAP_BYTES).filter_map(move |bytes| {
        let [first_high, first_low, count_high, count_low] = *bytes.first_chunk()?;
        let first = u16::from_be_bytes([first_high, first_low]);
        let count = u16::from_be_bytes([count_high, count_low]);
        let gap = Gap { first, count };
        let Range { start, end: gap_end } = gap.sequences();
        if count == 0 || start < end || gap_end > u32::from(total) {
            return None;
        }
        end = gap_end;
        Some(gap)
    })
}

/// Appends the datagram that asks for `gaps` of a message of `total` frames: at most [`GAPS_MAX`]
/// of them.
pub fn put_resend(
    sink: &mut impl Sink,
    request_id: u16,
    total: u16,
    gaps: impl IntoIterator<Item = Gap>,
) {
    let header = Header { request_id, sequence: 0, total, kind: Kind::Resend };
    sink.put(&header.to_bytes());
    for gap in gaps.into_iter().take(GAPS_MAX) {
        sink.put(&gap.to_bytes());
    }
}

/// The datagram that says that nothing more will be asked of a message of `total` frames.
pub const fn forget(request_id: u16, total: u16) -> [u8; HEADER_BYTES] {
    Header { request_id, sequence: 0, total, kind: Kind::Forget }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn gaps_come_back_from_their_datagram() {
        let asked = [Gap { first: 0, count: 1 }, Gap { first: 300, count: 60 }];
        let mut datagram = Vec::new();
        put_resend(&mut datagram, 9, 360, asked);
        let (header, payload) = Header::parse(&datagram).expect("it has a header");
        assert_eq!(header, Header { request_id: 9, sequence: 0, total: 360, kind: Kind::Resend });
        assert!(gaps(payload, header.total).eq(asked));
    }

    #[test]
    fn gaps_beyond_the_message_are_left_out() {
        let rows: [(&[u8], u16, usize); 6] = [
            (&[0, 0, 0, 0], 10, 0),
            (&[0, 9, 0, 1], 10, 1),
            (&[0, 9, 0, 2], 10, 0),
            (&[255, 255, 255, 255], 65535, 0),
            (&[0, 0, 255, 255], 65535, 1),
            (&[0, 1, 0, 1, 0, 2, 0], 10, 1),
        ];
        for (payload, total, count) in rows {
            assert_eq!(gaps(payload, total).count(), count, "{payload:?} of {total}");
        }
    }

    #[test]
    fn no_datagram_asks_for_more_than_the_message() {
        let all = Gap { first: 0, count: u16::MAX };
        let mut datagram = Vec::new();
        put_resend(&mut datagram, 1, u16::MAX, [all; GAPS_MAX]);
        let frames = |total| -> u32 {
            gaps(&datagram[HEADER_BYTES..], total).map(|gap| u32::from(gap.count)).sum()
        };
        assert_eq!((frames(u16::MAX), frames(10)), (65_535, 0));
        let payload = [0, 5, 0, 3, 0, 7, 0, 2, 0, 1, 0, 1, 0, 8, 0, 1];
        let expected = [Gap { first: 5, count: 3 }, Gap { first: 8, count: 1 }];
        assert!(gaps(&payload, 10).eq(expected), "neither overlapping nor descending");
    }

    #[test]
    fn a_datagram_names_only_as_many_gaps_as_it_holds() {
        let many = (0..1000).map(|at| Gap { first: 2 * at, count: 1 });
        let mut datagram = Vec::new();
        put_resend(&mut datagram, 1, 2000, many);
        assert!(datagram.len() <= super::super::DATAGRAM_BYTES_MAX);
        assert_eq!(gaps(&datagram[HEADER_BYTES..], 2000).count(), GAPS_MAX);
    }
}
