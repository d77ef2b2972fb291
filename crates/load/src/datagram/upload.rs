//! A request of many datagrams on its way: a large SET, sent a train at a time so that the sender
//! is in time for everything else, and kept until it is answered, as the server may ask for frames
//! that it misses.

use super::line::Line;
use laneway_wire::udp::frames::{frames, put_train};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, Gap, HEADER_BYTES};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;

/// Frames of a train: 32 KB, some 20 µs of the sender's time.
const TRAIN_FRAMES: usize = 24;

/// A request under way or waiting for its reply.
#[derive(Debug)]
pub struct Upload {
    peer: SocketAddr,
    message: Vec<u8>,
    /// Sequence numbers to be sent, ascending; no two ranges meet.
    left: VecDeque<Range<u32>>,
}

impl Upload {
    /// Sends `message` to `peer`; `None` if it is longer than any number of datagrams can be.
    pub fn new(peer: SocketAddr, message: Vec<u8>) -> Option<Self> {
        let total = frames(message.len())?;
        let left = VecDeque::from_iter(std::iter::once(0..u32::from(total)));
        Some(Upload { peer, message, left })
    }

    /// How many frames it has.
    pub fn total(&self) -> u16 {
        frames(self.message.len()).unwrap_or_else(|| unreachable!("checked when it was made"))
    }

    /// Whether everything was sent that is to be sent.
    pub fn is_sent(&self) -> bool {
        self.left.is_empty()
    }

    /// To whom it goes.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends these frames again; those that are to be sent anyway, once.
    pub fn again(&mut self, gaps: impl Iterator<Item = Gap>) {
        for gap in gaps {
            let mut added = gap.sequences();
            self.left.retain(|range| {
                let meets = range.start <= added.end && added.start <= range.end;
                if meets {
                    added = range.start.min(added.start)..range.end.max(added.end);
                }
                !meets
            });
            let at = self.left.partition_point(|range| range.start < added.start);
            self.left.insert(at, added);
        }
    }

    /// Sends a train; false if there is no room.
    pub fn step(&mut self, id: u16, line: &mut Line) -> io::Result<bool> {
        let Some(range) = self.left.front().cloned() else { return Ok(true) };
        let mut sequences = range.clone().map(|sequence| sequence as u16);
        let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES];
        let headers = &mut headers[..TRAIN_FRAMES.min(line.train_frames_max())];
        let mut pieces = Vec::with_capacity(2 * TRAIN_FRAMES);
        let count = put_train(id, self.message.as_slice(), &mut sequences, headers, |piece| {
            pieces.push(IoSlice::new(piece));
        });
        if !line.send_train(self.peer, &pieces, DATAGRAM_BYTES_MAX as u16)? {
            return Ok(false);
        }
        let rest = range.start + count as u32..range.end;
        if rest.is_empty() {
            self.left.pop_front();
        } else {
            self.left[0] = rest;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_asked_for_twice_are_sent_once() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut upload = Upload::new(peer, vec![7; 360 * 1392]).expect("short enough");
        let gap = |first, count| Gap { first, count };
        upload.again([gap(100, 260)].into_iter());
        assert!(
            upload.left.iter().cloned().eq(std::iter::once(0..360)),
            "it was to be sent anyway"
        );
        upload.left.clear();
        for _ in 0..3 {
            upload.again([gap(5, 2), gap(9, 1)].into_iter());
        }
        upload.again([gap(0, 5), gap(300, 1)].into_iter());
        assert_eq!(upload.left, [0..7, 9..10, 300..301]);
    }
}
