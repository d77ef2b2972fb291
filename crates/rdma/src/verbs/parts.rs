//! Replies in parts, for ports whose packets are shorter than the longest message: an Ethernet
//! interface with its usual MTU of 1500 has packets of 1024 bytes, and a datagram of RDMA is one
//! packet. A part begins with a word that says of which message it is; the word that a SEND carries
//! beside says that it is a part ([`super::request_ring::PART`]). What fits one packet is sent as
//! it is everywhere.
//!
//! Parts may be lost and overtake each other, as datagrams may. A message of which one is missing
//! is lost, and asked for again by whoever waits for it. It knows no card: bytes in and out.

use crate::contract::MESSAGE_BYTES_MAX;
use crate::layout::LANES_MAX;
use std::collections::BTreeMap;

/// The shortest packets that are served.
pub const PACKET_BYTES_MIN: usize = 1024;
/// Bytes of the word that a part begins with.
const WORD_BYTES: usize = 8;
/// Bytes of every part but a message's last, without its word.
pub const PART_BYTES: usize = PACKET_BYTES_MIN - WORD_BYTES;
/// Parts of a message at most.
pub const PARTS_MAX: usize = MESSAGE_BYTES_MAX.div_ceil(PART_BYTES);

const _: () = assert!(PARTS_MAX <= 8 && LANES_MAX <= 1 << 16);

/// How many SENDs a message takes where packets have so many bytes.
pub const fn count(message_bytes: usize, packet_bytes: usize) -> usize {
    if message_bytes <= packet_bytes { 1 } else { message_bytes.div_ceil(PART_BYTES) }
}

/// The parts of a message, number `serial` of those that a worker has cut: word and bytes.
pub fn cut(
    serial: u32,
    worker: usize,
    message: &[u8],
) -> impl Iterator<Item = ([u8; WORD_BYTES], &[u8])> {
    let count = message.len().div_ceil(PART_BYTES) as u64;
    message.chunks(PART_BYTES).enumerate().map(move |(number, bytes)| {
        let word = u64::from(serial) << 32 | (worker as u64) << 16 | (number as u64) << 8 | count;
        (word.to_le_bytes(), bytes)
    })
}

/// Who cut a part.
pub fn worker(part: &[u8]) -> Option<usize> {
    part.first_chunk::<WORD_BYTES>().map(|word| worker_of(u64::from_le_bytes(*word)))
}

fn worker_of(word: u64) -> usize {
    usize::from((word >> 16) as u16)
}

/// A message that is being put together.
#[derive(Debug, Default)]
struct Whole {
    serial: u32,
    count: usize,
    /// A bit for each part that is there.
    came: u8,
    bytes: Vec<u8>,
}

/// The client's side: one message of each worker at a time, for a worker sends the parts of one
/// behind each other.
#[derive(Debug, Default)]
pub struct Joiner {
    workers: BTreeMap<usize, Whole>,
}

impl Joiner {
    /// A part came. The message, if it is whole now.
    pub fn take(&mut self, part: &[u8]) -> Option<&[u8]> {
        let (word, bytes) = part.split_first_chunk::<WORD_BYTES>()?;
        let word = u64::from_le_bytes(*word);
        let (serial, worker) = ((word >> 32) as u32, worker_of(word));
        let (number, count) = (usize::from((word >> 8) as u8), usize::from(word as u8));
        let is_last = number + 1 == count;
        let fits = match is_last {
            true => (1..=PART_BYTES).contains(&bytes.len()),
            false => bytes.len() == PART_BYTES,
        };
        if !fits || number >= count || count > PARTS_MAX || worker >= LANES_MAX {
            return None;
        }
        let whole = self.workers.entry(worker).or_default();
        if (whole.serial, whole.count) != (serial, count) {
            (whole.serial, whole.count, whole.came) = (serial, count, 0);
            whole.bytes.clear();
        }
        let at = number * PART_BYTES;
        let end = at + bytes.len();
        whole.bytes.resize(whole.bytes.len().max(end), 0);
        whole.bytes[at..end].copy_from_slice(bytes);
        whole.came |= 1 << number;
        let is_whole = usize::from(whole.came) + 1 == 1 << count;
        is_whole.then_some(&whole.bytes[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seed: usize, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + seed) as u8).collect()
    }

    fn parts(serial: u32, worker: usize, message: &[u8]) -> Vec<Vec<u8>> {
        let parts = cut(serial, worker, message);
        parts.map(|(word, bytes)| [&word[..], bytes].concat()).collect()
    }

    #[test]
    fn a_message_longer_than_a_packet_comes_whole_in_whatever_order_its_parts_come() {
        let mut joiner = Joiner::default();
        let lengths = [PACKET_BYTES_MIN + 1, 2 * PART_BYTES - 1, MESSAGE_BYTES_MAX];
        for (serial, bytes) in (0..).zip(lengths) {
            let message = message(serial as usize, bytes);
            let mut parts = parts(serial, 3, &message);
            assert_eq!(parts.len(), count(bytes, PACKET_BYTES_MIN));
            assert!(parts.iter().all(|part| part.len() <= PACKET_BYTES_MIN));
            assert!(parts.iter().all(|part| super::worker(part) == Some(3)));
            if serial % 2 == 1 {
                parts.reverse();
            }
            let last = parts.pop().expect("there are some");
            assert!(parts.iter().all(|part| joiner.take(part).is_none()), "too early");
            assert_eq!(joiner.take(&last), Some(&message[..]));
        }
    }

    #[test]
    fn what_fits_a_packet_is_one() {
        assert_eq!((count(0, PACKET_BYTES_MIN), count(PACKET_BYTES_MIN, PACKET_BYTES_MIN)), (1, 1));
        assert_eq!(count(MESSAGE_BYTES_MAX, 2048), 1);
        assert_eq!(count(PACKET_BYTES_MIN + 1, PACKET_BYTES_MIN), 2);
    }

    #[test]
    fn parts_of_two_messages_are_never_put_together() {
        let mut joiner = Joiner::default();
        let (first, second) = (message(1, MESSAGE_BYTES_MAX), message(2, MESSAGE_BYTES_MAX - 8));
        let (one, two) = (parts(7, 0, &first), parts(8, 0, &second));
        assert_eq!(joiner.take(&one[0]), None);
        assert_eq!(joiner.take(&two[1]), None, "of the first one part was lost");
        assert_eq!(joiner.take(&two[0]), Some(&second[..]));
        // Another worker's are apart, whatever comes between.
        let (here, there) = (parts(9, 0, &first), parts(9, 1, &second));
        assert_eq!(joiner.take(&here[0]), None);
        assert_eq!(joiner.take(&there[0]), None);
        assert_eq!(joiner.take(&here[1]), Some(&first[..]));
        assert_eq!(joiner.take(&there[1]), Some(&second[..]));
    }

    #[test]
    fn what_is_no_part_is_thrown_away() {
        let mut joiner = Joiner::default();
        let good = parts(1, 0, &message(1, MESSAGE_BYTES_MAX));
        let with = |number: usize, count: u8, bytes: &[u8]| {
            let word = [count, number as u8, 0, 0, 1, 0, 0, 0];
            [&word[..], bytes].concat()
        };
        for bad in [
            Vec::new(),
            good[0][..7].to_vec(),
            good[0][..good[0].len() - 1].to_vec(),
            with(0, 0, b"x"),
            with(2, 2, b"x"),
            with(1, 2, b""),
            with(1, PARTS_MAX as u8 + 1, &[0; PART_BYTES]),
            [2, 1, 0xff, 0xff, 1, 0, 0, 0, 1].to_vec(),
        ] {
            assert_eq!(joiner.take(&bad), None, "{} bytes", bad.len());
        }
        assert_eq!(joiner.take(&good[0]), None);
        assert!(joiner.take(&good[1]).is_some());
    }
}
