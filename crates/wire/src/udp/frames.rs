//! A message cut into frames, without copying it: the bytes stay where they are (a reply buffer, a
//! pinned value in pieces), and the cut is a list of slices, header and piece by turns.
//!
//! Frames go out in *trains*: equal datagrams that one system call hands to the kernel, which cuts
//! them apart again (`UDP_SEGMENT`). Only the last frame of a message is shorter than the others,
//! and the kernel wants that one last; so sequences are given in ascending order.

use super::header::{DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX, HEADER_BYTES, Header, Kind};

/// Frames that one train carries at most: what fits the longest datagram of IPv4.
pub const TRAIN_FRAMES_MAX: usize = 65_507 / DATAGRAM_BYTES_MAX;

/// Bytes of the longest train, headers included.
pub const TRAIN_BYTES_MAX: usize = TRAIN_FRAMES_MAX * DATAGRAM_BYTES_MAX;

const _: () = assert!(TRAIN_FRAMES_MAX <= 64, "older kernels cut no train into more datagrams");

/// Bytes to send, wherever they lie.
pub trait Message {
    /// How many there are.
    fn message_bytes(&self) -> usize;
    /// The bytes from `offset` to the end of the piece of memory they lie in: at least one, where
    /// `offset` is below [`message_bytes`](Message::message_bytes).
    fn piece(&self, offset: usize) -> &[u8];
}

impl Message for [u8] {
    fn message_bytes(&self) -> usize {
        self.len()
    }
    fn piece(&self, offset: usize) -> &[u8] {
        &self[offset..]
    }
}

/// A message of three parts: what stands before a value, the value, what stands behind it.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a, B: ?Sized> {
    /// `VALUE key 0 500000\r\n`.
    pub head: &'a [u8],
    /// The value, in as many pieces as it has.
    pub body: &'a B,
    /// `\r\nEND\r\n`.
    pub tail: &'a [u8],
}

impl<B: Message + ?Sized> Message for Parts<'_, B> {
    fn message_bytes(&self) -> usize {
        self.head.len() + self.body.message_bytes() + self.tail.len()
    }
    fn piece(&self, offset: usize) -> &[u8] {
        let Some(offset) = offset.checked_sub(self.head.len()) else { return &self.head[offset..] };
        match offset.checked_sub(self.body.message_bytes()) {
            None => self.body.piece(offset),
            Some(offset) => &self.tail[offset..],
        }
    }
}

/// How many frames a message of `message_bytes` takes; `None` where 16 bits cannot count them.
pub const fn frames(message_bytes: usize) -> Option<u16> {
    let count = message_bytes.div_ceil(FRAME_BYTES_MAX);
    match count {
        0 => Some(1),
        1..=0xffff => Some(count as u16),
        _ => None,
    }
}

/// Writes the headers of the next frames, as many as there is room for and at most
/// [`TRAIN_FRAMES_MAX`], and hands header and piece of each to `put`, in turns. Returns how many
/// frames that were; 0 when `sequences`, which ascend, are at their end.
///
/// `put` builds a list of slices for a call that gathers, or copies into a buffer. A frame whose
/// bytes lie in two pieces of memory is put as three slices: at most `headers.len()` frames make
/// `2 * frames + pieces of memory touched` slices.
///
/// # Panics
/// If the message is longer than [`super::MESSAGE_BYTES_MAX`], or a sequence number is not below
/// its [`frames`].
pub fn put_train<'a, M: Message + ?Sized>(
    request_id: u16,
    message: &'a M,
    sequences: &mut impl Iterator<Item = u16>,
    headers: &'a mut [[u8; HEADER_BYTES]],
    mut put: impl FnMut(&'a [u8]),
) -> usize {
    let bytes = message.message_bytes();
    let total = frames(bytes).expect("whoever makes a longer message refuses to send it");
    let room = headers.len().min(TRAIN_FRAMES_MAX);
    let mut count = 0;
    for (header, sequence) in headers[..room].iter_mut().zip(sequences) {
        assert!(sequence < total, "frame {sequence} of {total}");
        *header = Header { request_id, sequence, total, kind: Kind::Data }.to_bytes();
        count += 1;
    }
    let headers: &'a [[u8; HEADER_BYTES]] = headers;
    for header in &headers[..count] {
        put(header);
        let [_, _, high, low, ..] = *header;
        let start = usize::from(u16::from_be_bytes([high, low])) * FRAME_BYTES_MAX;
        let end = bytes.min(start + FRAME_BYTES_MAX);
        let mut at = start;
        while at < end {
            let piece = message.piece(at);
            let piece = &piece[..piece.len().min(end - at)];
            put(piece);
            at += piece.len();
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::MESSAGE_BYTES_MAX;
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn frames_cover_the_message_exactly() {
        let rows = [
            (0, Some(1)),
            (1, Some(1)),
            (FRAME_BYTES_MAX, Some(1)),
            (FRAME_BYTES_MAX + 1, Some(2)),
            (MESSAGE_BYTES_MAX, Some(u16::MAX)),
            (MESSAGE_BYTES_MAX + 1, None),
        ];
        for (bytes, count) in rows {
            assert_eq!(frames(bytes), count, "{bytes} bytes");
        }
    }

    /// A message in pieces of `1` bytes.
    struct Pieces<'a>(&'a [u8], usize);

    impl Message for Pieces<'_> {
        fn message_bytes(&self) -> usize {
            self.0.len()
        }
        fn piece(&self, offset: usize) -> &[u8] {
            let end = (offset / self.1 + 1) * self.1;
            &self.0[offset..end.min(self.0.len())]
        }
    }

    #[test]
    fn trains_carry_every_byte_under_its_header() {
        let body: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let (head, tail) = (b"VALUE k 0 100000\r\n", b"\r\nEND\r\n");
        let whole = [&head[..], &body, tail].concat();
        for piece_bytes in [1000, 4096, 100_000] {
            let message = Parts { head, body: &Pieces(&body, piece_bytes), tail };
            let total = frames(message.message_bytes()).expect("it is short enough");
            let mut sequences = 0..total;
            let mut sent = Vec::new();
            loop {
                let mut train = Vec::new();
                let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES_MAX];
                let count = put_train(77, &message, &mut sequences, &mut headers, |slice| {
                    assert!(!slice.is_empty());
                    train.extend_from_slice(slice);
                });
                if count == 0 {
                    break;
                }
                assert!(train.len() <= TRAIN_BYTES_MAX);
                assert_eq!(train.len().div_ceil(DATAGRAM_BYTES_MAX), count);
                sent.extend(train.chunks(DATAGRAM_BYTES_MAX).map(<[u8]>::to_vec));
            }
            assert_eq!(sent.len(), usize::from(total));
            let mut got = Vec::new();
            for (sequence, datagram) in (0..total).zip(&sent) {
                let (header, payload) = Header::parse(datagram).expect("it has a header");
                let expected = Header { request_id: 77, sequence, total, kind: Kind::Data };
                assert_eq!(header, expected);
                got.extend_from_slice(payload);
            }
            assert!(got == whole, "in pieces of {piece_bytes}");
        }
    }

    #[test]
    fn chosen_frames_leave_in_one_train() {
        let message = [9; 3 * FRAME_BYTES_MAX + 5];
        let mut headers = [[0; HEADER_BYTES]; 8];
        let mut bytes = 0;
        let mut sequences = [1, 3].into_iter();
        let mut put = |slice: &[u8]| bytes += slice.len();
        assert_eq!(put_train(1, &message[..], &mut sequences, &mut headers, &mut put), 2);
        assert_eq!(bytes, DATAGRAM_BYTES_MAX + HEADER_BYTES + 5);
    }

    #[test]
    fn an_empty_message_is_one_frame_without_bytes() {
        let mut headers = [[0; HEADER_BYTES]; 1];
        let mut slices = Vec::new();
        let count = put_train(3, &[][..], &mut (0..1), &mut headers, |s| slices.push(s.to_vec()));
        assert_eq!((count, slices), (1, alloc::vec![Header::whole(3).to_bytes().to_vec()]));
    }
}
