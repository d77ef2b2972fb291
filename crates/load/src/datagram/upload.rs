//! A request of many datagrams on its way: a large SET, sent a train at a time so that the sender
//! is in time for everything else, and kept until it is answered, as the server may ask for frames
//! that it misses.

use super::line::Line;
use laneway_wire::udp::frames::{frames, put_train};
use laneway_wire::udp::{Gap, HEADER_BYTES};
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// Frames of a train: 32 KB, some 20 µs of the sender's time.
const TRAIN_FRAMES: usize = 24;

/// A request under way or waiting for its reply.
#[derive(Debug)]
pub struct Upload {
    /// To whom it goes.
    pub peer: SocketAddr,
    message: Vec<u8>,
    /// How many frames it has.
    pub total: u16,
    /// The first frame that was not sent yet.
    next: u16,
    /// Those before it that are to be sent again.
    again: BTreeSet<u16>,
}

impl Upload {
    /// Sends `message` to `peer`; `None` if it is longer than any number of datagrams can be.
    pub fn new(peer: SocketAddr, message: Vec<u8>) -> Option<Self> {
        let total = frames(message.len())?;
        Some(Upload { peer, message, total, next: 0, again: BTreeSet::new() })
    }

    /// Whether everything was sent that is to be sent.
    pub fn is_sent(&self) -> bool {
        self.next == self.total && self.again.is_empty()
    }

    /// Sends these frames again; those that are to be sent anyway, once.
    pub fn again(&mut self, gaps: impl Iterator<Item = Gap>) {
        let (next, asked) = (self.next, gaps.flat_map(Gap::sequences));
        let asked = asked.map(|sequence| sequence as u16);
        self.again.extend(asked.filter(|&sequence| sequence < next));
    }

    /// Sends a train; false if there is no room.
    pub fn step(&mut self, id: u16, line: &mut Line) -> io::Result<bool> {
        if self.is_sent() {
            return Ok(true);
        }
        let mut sequences = self.again.iter().copied().chain(self.next..self.total);
        let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES];
        let headers = &mut headers[..TRAIN_FRAMES.min(line.train_frames_max())];
        let mut pieces = Vec::with_capacity(2 * TRAIN_FRAMES);
        let count = put_train(id, self.message.as_slice(), &mut sequences, headers, |piece| {
            pieces.push(IoSlice::new(piece));
        });
        if !line.send_train(self.peer, &pieces)? {
            return Ok(false);
        }
        for _ in 0..count {
            if self.again.pop_first().is_none() {
                self.next += 1;
            }
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
        assert!(upload.again.is_empty(), "it was to be sent anyway");
        upload.next = 360;
        for _ in 0..3 {
            upload.again([gap(5, 2), gap(9, 1)].into_iter());
        }
        upload.again([gap(0, 5), gap(300, 1)].into_iter());
        assert_eq!(upload.again, BTreeSet::from([0, 1, 2, 3, 4, 5, 6, 9, 300]));
    }
}
