//! The small replies of one burst: written one behind the other into one buffer, each with its
//! header before it, and handed to the kernel together (Minos §4.1). A reply of several datagrams
//! is spread out in place and leaves as a train; so do replies to one peer that follow each other
//! and are of one length, for the kernel's UDP costs as much for a train as for a datagram.
//!
//! No allocation once the buffers have grown. It knows no request. Sizes are bytes.

use laneway_transport::datagram::{BURST, Datagrams, Departure, Path};
use laneway_wire::udp::frames::{self, TRAIN_BYTES_MAX, TRAIN_FRAMES_MAX};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX, HEADER_BYTES, Header, Kind};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;

/// Bytes of replies that one burst makes, at most about; requests beyond it are thrown away.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// What the buffer keeps of its memory between bursts.
const BATCH_BYTES_KEPT: usize = 2 * BATCH_BYTES_MAX;

struct Part {
    peer: SocketAddr,
    bytes: Range<usize>,
    segment_bytes: Option<u16>,
}

impl Part {
    /// Whether a datagram can be the next of this train: all before it have one length, it is not
    /// longer, and what is cut apart again stays within what every kernel cuts.
    fn takes(&self, peer: SocketAddr, bytes: &Range<usize>) -> bool {
        let length = self.segment_bytes.map_or(self.bytes.len(), usize::from);
        let are_alike = self.bytes.len().checked_rem(length) == Some(0);
        let joined = bytes.end - self.bytes.start;
        peer == self.peer
            && bytes.start == self.bytes.end
            && are_alike
            && bytes.len() <= length
            && joined <= TRAIN_BYTES_MAX.min(TRAIN_FRAMES_MAX * length)
    }
}

/// The buffer.
#[derive(Default)]
pub struct Batch {
    out: Vec<u8>,
    parts: Vec<Part>,
    /// Where the reply that is being written begins, its header included.
    start: usize,
}

/// What [`Batch::send`] came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Bytes handed to the kernel.
    pub bytes: usize,
    /// Datagrams, or trains of them, that it refused.
    pub refused: usize,
    /// The send buffer is full: the rest is still here.
    pub is_full: bool,
}

impl Batch {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether the burst has made enough.
    pub fn is_over_budget(&self) -> bool {
        self.out.len() >= BATCH_BYTES_MAX
    }

    /// A datagram that is whole already, its header included.
    pub fn datagram(&mut self, peer: SocketAddr, bytes: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(bytes);
        self.leave(peer, start..self.out.len());
    }

    /// A reply begins.
    pub fn begin(&mut self) {
        self.start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_BYTES]);
    }

    /// Where the reply is written to.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// What has been written of it.
    pub fn reply(&self) -> &[u8] {
        &self.out[self.start + HEADER_BYTES..]
    }

    /// Begin it anew.
    pub fn clear_reply(&mut self) {
        self.out.truncate(self.start + HEADER_BYTES);
    }

    /// There is none.
    pub fn abandon(&mut self) {
        self.out.truncate(self.start);
    }

    /// The reply is whole: see that it leaves. Returns of how many frames it is; `None`, and it
    /// stays as it is, where they cannot be counted.
    pub fn end(&mut self, peer: SocketAddr, request_id: u16, kind: Kind) -> Option<u16> {
        let total = frames::frames(self.reply().len())?;
        if total == 1 {
            let header = Header { request_id, sequence: 0, total, kind };
            self.out[self.start..self.start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
            self.leave(peer, self.start..self.out.len());
            return Some(total);
        }
        assert_eq!(kind, Kind::Data, "frames of our own kinds are one datagram each");
        self.spread(request_id, total);
        let bytes = self.start..self.out.len();
        let segment_bytes = Some(DATAGRAM_BYTES_MAX as u16);
        for start in bytes.clone().step_by(TRAIN_BYTES_MAX) {
            let bytes = start..bytes.end.min(start + TRAIN_BYTES_MAX);
            self.parts.push(Part { peer, bytes, segment_bytes });
        }
        Some(total)
    }

    /// One datagram is whole: it joins those before it, if it may.
    fn leave(&mut self, peer: SocketAddr, bytes: Range<usize>) {
        if let Some(last) = self.parts.last_mut()
            && last.takes(peer, &bytes)
        {
            last.segment_bytes.get_or_insert(last.bytes.len() as u16);
            last.bytes.end = bytes.end;
            return;
        }
        self.parts.push(Part { peer, bytes, segment_bytes: None });
    }

    /// Make room for a header before each frame, from the last frame on.
    fn spread(&mut self, request_id: u16, total: u16) {
        let message = self.start + HEADER_BYTES;
        let end = self.out.len();
        self.out.resize(end + (usize::from(total) - 1) * HEADER_BYTES, 0);
        for sequence in (0..total).rev() {
            let number = usize::from(sequence);
            let from = message + number * FRAME_BYTES_MAX;
            let to = self.start + number * DATAGRAM_BYTES_MAX;
            self.out.copy_within(from..end.min(from + FRAME_BYTES_MAX), to + HEADER_BYTES);
            let header = Header { request_id, sequence, total, kind: Kind::Data }.to_bytes();
            self.out[to..to + HEADER_BYTES].copy_from_slice(&header);
        }
    }

    /// Hand everything to the kernel, from the address of `queue`.
    pub fn send(&mut self, datagrams: &mut dyn Datagrams, queue: usize) -> io::Result<Flushed> {
        let mut flushed = Flushed::default();
        let mut sent = 0;
        while sent < self.parts.len() && !flushed.is_full {
            let parts = &self.parts[sent..self.parts.len().min(sent + BURST)];
            let done = send_some(datagrams, queue, &self.out, parts)?;
            flushed.refused += done.refused;
            flushed.is_full = done.done < parts.len();
            flushed.bytes += parts[..done.done].iter().map(|part| part.bytes.len()).sum::<usize>();
            sent += done.done;
            if let (true, Some(part)) = (flushed.is_full, self.parts.get_mut(sent)) {
                // Of a train that was cut on our side, the rest is still to leave.
                let segment_bytes = part.segment_bytes.map_or(0, usize::from);
                let left = part.bytes.start + done.datagrams_of_next * segment_bytes;
                part.bytes.start = left.min(part.bytes.end);
            }
        }
        self.parts.drain(..sent);
        if self.parts.is_empty() {
            self.forget();
        }
        Ok(flushed)
    }

    /// Throw everything away. Returns how many datagrams, or trains of them, that was.
    pub fn forget(&mut self) -> usize {
        let dropped = self.parts.len();
        self.parts.clear();
        self.out.clear();
        self.out.shrink_to(BATCH_BYTES_KEPT);
        dropped
    }
}

fn send_some(
    datagrams: &mut dyn Datagrams,
    queue: usize,
    out: &[u8],
    parts: &[Part],
) -> io::Result<laneway_transport::datagram::Sent> {
    let departure = |part: &Part, pieces| {
        let Part { peer, segment_bytes, .. } = *part;
        Departure { peer, segment_bytes, pieces }
    };
    if let [part] = parts {
        let piece = [IoSlice::new(&out[part.bytes.clone()])];
        return datagrams.send(queue, Path::Small, &[departure(part, &piece)]);
    }
    let mut pieces = [IoSlice::new(&[]); BURST];
    for (piece, part) in pieces.iter_mut().zip(parts) {
        *piece = IoSlice::new(&out[part.bytes.clone()]);
    }
    let departures: [Departure<'_>; BURST] = std::array::from_fn(|at| {
        let at = at.min(parts.len() - 1);
        departure(&parts[at], std::slice::from_ref(&pieces[at]))
    });
    datagrams.send(queue, Path::Small, &departures[..parts.len()])
}

#[cfg(test)]
mod tests;
