//! Parses the header of one datagram: four big-endian 16-bit numbers.
//!
//! Request id, sequence number of this datagram, number of datagrams in the message, and one that
//! memcached reserves: it sends 0 and does not look at what comes, and its clients send whatever
//! they have there (libmemcached: bytes of its buffer). So that number alone says nothing.
//!
//! We add frames of our own [`Kind`]s. Their mark is a sequence number that no part of a message
//! can have, [`MARKED_SEQUENCE`], together with [`MARK`] in the high byte of the reserved number;
//! its low byte is the kind. Everything else is [`Kind::Data`].

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// Longest datagram that memcached sends, its header included (`UDP_MAX_PAYLOAD_SIZE`).
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// Bytes of a message that one datagram carries.
pub const FRAME_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES;

/// Longest message: its datagrams are counted in 16 bits.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX * u16::MAX as usize;

/// The sequence number of frames of our own kinds. The parts of a message are at most 65535, and
/// are counted from 0: none of them has this one.
pub const MARKED_SEQUENCE: u16 = u16::MAX;

/// High byte of the reserved number of such frames.
pub const MARK: u8 = 0xa7;

/// What a frame is, as told by its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No mark: a piece of a request or of a reply. The only kind that memcached knows.
    Data,
    /// 1: asks for frames of the message with this id: the payload lists [`super::Gap`]s.
    Resend,
    /// 2: the message with this id is whole, or no longer wanted: nothing will be asked again.
    Forget,
    /// 3: as [`Kind::Data`], a request that is to be carried out once however often it comes: the
    /// server remembers the answer for a while under peer, id and content, and gives it again. What
    /// it remembers is bounded: a repeat that it has forgotten is carried out again.
    /// Clients mark what they may repeat and what must not happen twice; requests of several
    /// datagrams are treated so in any case.
    Once,
    /// 4: a server that strangers reach has the payload for its client to send back, as it is, to
    /// prove its address; until then longer replies are withheld.
    Cookie,
    /// 5: the request does not stand here, but in memory that its client lends: the payload says
    /// where (a descriptor of 24 bytes). Only where requests come by memory.
    Lent,
    /// 6: the reply does not stand here, but in memory that its client lends: the payload says
    /// where (a sealed descriptor of 24 bytes), the total of how many frames it would be. Only over
    /// RDMA.
    Notice,
    /// Anything else means nothing yet.
    Unknown(u8),
}

impl Kind {
    /// From the low byte of a marked frame's reserved number.
    const fn from_number(number: u8) -> Kind {
        match number {
            1 => Kind::Resend,
            2 => Kind::Forget,
            3 => Kind::Once,
            4 => Kind::Cookie,
            5 => Kind::Lent,
            6 => Kind::Notice,
            other => Kind::Unknown(other),
        }
    }

    /// The number of a kind of ours; `None`: no mark.
    const fn number(self) -> Option<u8> {
        match self {
            Kind::Data => None,
            Kind::Resend => Some(1),
            Kind::Forget => Some(2),
            Kind::Once => Some(3),
            Kind::Cookie => Some(4),
            Kind::Lent => Some(5),
            Kind::Notice => Some(6),
            Kind::Unknown(other) => Some(other),
        }
    }
}

/// The header of one datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client, returned with every datagram of the reply.
    pub request_id: u16,
    /// Which datagram of the message this is, from 0; 0 for every kind but data.
    pub sequence: u16,
    /// How many there are.
    pub total: u16,
    /// What the datagram is.
    pub kind: Kind,
}

impl Header {
    /// The header of a message that one datagram carries whole.
    #[inline]
    pub const fn whole(request_id: u16) -> Header {
        Header { request_id, sequence: 0, total: 1, kind: Kind::Data }
    }

    /// Reads the header of `datagram` and returns it with what follows; `None` if it is too short.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (header, payload) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let [id_high, id_low, sequence_high, sequence_low, total_high, total_low, mark, number] =
            *header;
        let sequence = u16::from_be_bytes([sequence_high, sequence_low]);
        let (sequence, kind) = match (sequence, mark) {
            (MARKED_SEQUENCE, MARK) => (0, Kind::from_number(number)),
            _ => (sequence, Kind::Data),
        };
        let header = Header {
            request_id: u16::from_be_bytes([id_high, id_low]),
            sequence,
            total: u16::from_be_bytes([total_high, total_low]),
            kind,
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

    /// Whether it is the last of its message.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.sequence as u32 + 1 == self.total as u32
    }

    /// The header as sent. A kind of ours has no sequence number.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let (sequence, [high, low]) = match self.kind.number() {
            None => (self.sequence, [0, 0]),
            Some(number) => (MARKED_SEQUENCE, [MARK, number]),
        };
        let [sequence_high, sequence_low] = sequence.to_be_bytes();
        let [total_high, total_low] = self.total.to_be_bytes();
        [id_high, id_low, sequence_high, sequence_low, total_high, total_low, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_big_endian_and_comes_back() {
        let header = Header { request_id: 0x0102, sequence: 3, total: 0x0405, kind: Kind::Data };
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
            ([0, 1, 0, 0, 0, 0, 0, 0], false, false, false),
            ([0, 1, 0, 2, 0, 2, 0, 0], false, false, false),
            ([0, 1, 0, 1, 0, 2, 9, 9], false, true, true),
            ([0, 1, 0, 0, 0, 1, 0, 0], true, true, true),
            ([0, 1, 0, 0, 1, 1, 0, 0], false, true, false),
        ];
        for (bytes, whole, possible, last) in rows {
            let (header, payload) = Header::parse(&bytes).expect("eight bytes are enough");
            assert!(payload.is_empty());
            let told = (header.is_whole(), header.is_possible(), header.is_last());
            assert_eq!(told, (whole, possible, last), "{header:?}");
        }
    }

    #[test]
    fn every_kind_comes_back() {
        let ours = (0..=u8::MAX).map(Kind::from_number);
        for kind in ours.chain([Kind::Data]) {
            let header = Header { request_id: 7, sequence: 0, total: u16::MAX, kind };
            assert_eq!(Header::parse(&header.to_bytes()), Some((header, &b""[..])));
        }
        assert_eq!(Header::whole(7).to_bytes(), [0, 7, 0, 0, 0, 1, 0, 0]);
        let once = Header { kind: Kind::Once, ..Header::whole(7) };
        assert_eq!(once.to_bytes(), [0, 7, 0xff, 0xff, 0, 1, 0xa7, 3]);
    }

    #[test]
    fn whatever_memcacheds_clients_leave_in_the_reserved_number_is_data() {
        for sequence in [0, 1, 0x0d0a, u16::MAX - 1, u16::MAX] {
            for reserved in 0..=u16::MAX {
                let [high, low] = reserved.to_be_bytes();
                let [sequence_high, sequence_low] = sequence.to_be_bytes();
                let bytes = [0, 7, sequence_high, sequence_low, 0, 1, high, low];
                let (header, _) = Header::parse(&bytes).expect("eight bytes");
                let is_ours = sequence == MARKED_SEQUENCE && high == MARK;
                assert_eq!(header.kind == Kind::Data, !is_ours, "{bytes:?}");
                assert!(header.is_whole());
            }
        }
    }
}
