//! A request of many datagrams on its way: a large SET, sent a train at a time so that the sender
//! is in time for everything else, and kept until it is answered, as the server may ask for frames
//! that it misses.

use super::socket::Socket;
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
    /// Sequence numbers to be sent.
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

    /// Sends these frames again.
    pub fn again(&mut self, gaps: impl Iterator<Item = Gap>) {
        self.left.extend(gaps.map(Gap::sequences));
    }

    /// Sends a train; false if the kernel has no room.
    pub fn step(&mut self, id: u16, socket: &mut Socket) -> io::Result<bool> {
        let Some(range) = self.left.front().cloned() else { return Ok(true) };
        let mut sequences = range.clone().map(|sequence| sequence as u16);
        let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES];
        let mut pieces = Vec::with_capacity(2 * TRAIN_FRAMES);
        let count = put_train(id, self.message.as_slice(), &mut sequences, &mut headers, |piece| {
            pieces.push(IoSlice::new(piece));
        });
        if !socket.send_train(self.peer, &pieces, DATAGRAM_BYTES_MAX as u16)? {
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
