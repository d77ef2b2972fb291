//! memcached's UDP frame header: eight bytes in front of every datagram (doc/protocol.txt, "UDP
//! protocol").
//!
//! Four big-endian 16-bit numbers: request id, sequence number of this datagram, number of
//! datagrams in the message, reserved. Knows no socket and puts no message together.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// Longest datagram that memcached sends, its header included (`UDP_MAX_PAYLOAD_SIZE`).
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// Bytes of a message that one datagram carries.
pub const FRAME_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Longest message: its datagrams are counted in 16 bits.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX * u16::MAX as usize;

/// The header of one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client, returned with every datagram of the reply.
    pub request_id: u16,
    /// Which datagram of the message this is, from 0.
    pub sequence: u16,
    /// How many there are.
    pub total: u16,
}

impl Header {
    /// Reads the header of `datagram` and returns it with what follows; `None` if it is too short.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let [id_high, id_low, sequence_high, sequence_low, total_high, total_low, _, _] = *header;
        let header = Header {
            request_id: u16::from_be_bytes([id_high, id_low]),
            sequence: u16::from_be_bytes([sequence_high, sequence_low]),
            total: u16::from_be_bytes([total_high, total_low]),
        };
        Some((header, payload))
    }

    /// Whether the whole message is in this datagram. As in memcached only the total counts.
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.total == 1
    }

    /// Whether this datagram can be part of its message at all.
    #[inline]
    pub const fn is_possible(self) -> bool {
        self.sequence < self.total
    }

    /// The header as sent; the reserved number is 0.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [sequence_high, sequence_low] = self.sequence.to_be_bytes();
        let [total_high, total_low] = self.total.to_be_bytes();
        [id_high, id_low, sequence_high, sequence_low, total_high, total_low, 0, 0]
    }
}

/// How many datagrams a message of `message_bytes` takes; `None` where 16 bits cannot count them.
pub const fn datagrams(message_bytes: usize) -> Option<u16> {
    let count = message_bytes.div_ceil(FRAME_BYTES_MAX);
    match count {
        0 => Some(1),
        1..=0xffff => Some(count as u16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_big_endian_and_comes_back() {
        let header = Header { request_id: 0x0102, sequence: 3, total: 0x0405 };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 0, 3, 4, 5, 0, 0]);
        let mut datagram = [0; HEADER_BYTES + 2];
        datagram[..HEADER_BYTES].copy_from_slice(&bytes);
        datagram[HEADER_BYTES..].copy_from_slice(b"hi");
        assert_eq!(Header::parse(&datagram), Some((header, &b"hi"[..])));
    }

    #[test]
    fn short_datagrams_are_refused_and_impossible_ones_known() {
        assert_eq!(Header::parse(&[0, 1, 0, 0, 0, 1, 0]), None);
        let rows = [
            ([0, 1, 0, 0, 0, 0, 0, 0], false, false),
            ([0, 1, 0, 2, 0, 2, 0, 0], false, false),
            ([0, 1, 0, 1, 0, 2, 9, 9], false, true),
            ([0, 1, 0, 0, 0, 1, 0, 0], true, true),
            ([0, 1, 0, 0, 1, 1, 0, 0], false, true),
        ];
        for (bytes, whole, possible) in rows {
            let (header, payload) = Header::parse(&bytes).expect("eight bytes are enough");
            assert!(payload.is_empty());
            assert_eq!((header.is_whole(), header.is_possible()), (whole, possible), "{header:?}");
        }
    }

    #[test]
    fn datagrams_cover_the_message_exactly() {
        let rows = [
            (0, Some(1)),
            (1, Some(1)),
            (FRAME_BYTES_MAX, Some(1)),
            (FRAME_BYTES_MAX + 1, Some(2)),
            (MESSAGE_BYTES_MAX, Some(u16::MAX)),
            (MESSAGE_BYTES_MAX + 1, None),
        ];
        for (bytes, count) in rows {
            assert_eq!(datagrams(bytes), count, "{bytes} bytes");
        }
    }
}
