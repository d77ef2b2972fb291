//! A reply of many datagrams, on its way: its bytes stay where they are (a buffer, pinned values),
//! and leave in trains of frames, a slice a turn, or go into memory that their client lends.
//!
//! It knows no socket and no lane. Sizes are bytes.

use super::buffers::{Buffers, Held};
use super::placed::{Placing, Written};
use crate::jobs::handoff::DatagramOrigin;
use crate::latency::PendingLatencies;
use crate::stream::output::{Output, Piece};
use laneway_rdma::contract::Placed;
use laneway_transport::datagram::{Datagrams, Departure, Path};
use laneway_transport::rdma;
use laneway_wire::udp::frames::{self, Message, TRAIN_FRAMES_MAX};
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, Gap, HEADER_BYTES};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

/// A whole reply. Values in it stay pinned until it is dropped.
pub struct Reply {
    /// Each with the offset at which it begins.
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
    /// Counts what of it was copied, once it is to stay for a while.
    held: Option<Held>,
}

impl Reply {
    /// The reply that somebody has executed.
    pub fn of(output: Output) -> Reply {
        let mut reply = Reply { pieces: Vec::new(), bytes: 0, held: None };
        for piece in output.into_pieces() {
            let bytes = match &piece {
                Piece::Bytes(bytes) => bytes.len(),
                Piece::Value(value) => value.value_bytes(),
            };
            if bytes > 0 {
                reply.pieces.push((reply.bytes, piece));
                reply.bytes += bytes;
            }
        }
        reply
    }

    /// Count what of it was copied. False: there is no room for it.
    pub fn hold(&mut self, buffers: &Arc<Buffers>) -> bool {
        let copied = |(_, piece): &(usize, Piece)| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Value(_) => 0,
        };
        self.held = buffers.hold(self.pieces.iter().map(copied).sum());
        self.held.is_some()
    }

    /// All of it, behind what is in `out`.
    pub fn copy_into(&self, out: &mut Vec<u8>) {
        for (_, piece) in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Value(value) => value.copy_into(out),
            }
        }
    }
}

impl Message for Reply {
    fn message_bytes(&self) -> usize {
        self.bytes
    }
    fn piece(&self, offset: usize) -> &[u8] {
        let number = self.pieces.partition_point(|(start, _)| *start <= offset) - 1;
        let (start, piece) = &self.pieces[number];
        match piece {
            Piece::Bytes(bytes) => &bytes[offset - start..],
            Piece::Value(value) => value.piece(offset - start),
        }
    }
}

/// Frames of a reply that are still to leave.
pub struct Transfer {
    /// Where they go.
    pub to: DatagramOrigin,
    /// What they are cut from.
    pub reply: Arc<Reply>,
    /// Which frames, in ascending order.
    left: Vec<Range<u32>>,
    /// Where it goes instead, as long as it has that place.
    placing: Option<Placing>,
    /// Requests that are answered when the last frame has left.
    pub tally: PendingLatencies,
    /// It is sent for the first time: it is kept afterwards.
    pub is_first: bool,
    /// Bytes it has moved since others had their turn.
    pub run_bytes: usize,
    /// When it last found the send buffer full.
    pub parked_nanos: u64,
}

/// What one slice came to.
pub enum Slice {
    /// So many bytes left; there is more.
    More(usize),
    /// So many bytes left, maybe none; the send buffer takes no more for now.
    Full(usize),
    /// So many bytes left, the last ones.
    Last(usize),
}

impl Transfer {
    /// All frames of a reply. `None` if 16 bits cannot count them.
    pub fn first(
        to: DatagramOrigin,
        reply: Arc<Reply>,
        tally: PendingLatencies,
    ) -> Option<Transfer> {
        let total = frames::frames(reply.message_bytes())?;
        // One range: there is always at least one frame.
        let left = std::iter::once(0..u32::from(total)).collect();
        Some(Transfer {
            to,
            reply,
            left,
            placing: None,
            tally,
            is_first: true,
            run_bytes: 0,
            parked_nanos: 0,
        })
    }

    /// The same, to where its client has room for it, if it has.
    pub fn placed(self, placed: Option<Box<dyn Placed>>) -> Transfer {
        Transfer { placing: placed.map(Placing::new), ..self }
    }

    /// Whether it goes there.
    pub fn is_placed(&self) -> bool {
        self.placing.is_some()
    }

    /// Its place is given back: it goes in frames, from its front on.
    pub fn send_in_frames(&mut self) {
        (self.placing, self.parked_nanos) = (None, 0);
    }

    /// Some frames again; those of a gap that lies before the one in front of it are left out.
    pub fn again(
        to: DatagramOrigin,
        reply: Arc<Reply>,
        gaps: impl Iterator<Item = Gap>,
    ) -> Transfer {
        let mut left: Vec<Range<u32>> = Vec::new();
        for gap in gaps {
            let range = gap.sequences();
            if left.last().is_none_or(|last| last.end <= range.start) {
                left.push(range);
            }
        }
        left.reverse();
        let (tally, run_bytes, parked_nanos) = (PendingLatencies::default(), 0, 0);
        let (placing, is_first) = (None, false);
        Transfer { to, reply, left, placing, tally, is_first, run_bytes, parked_nanos }
    }

    /// Hand about `budget` bytes to the kernel, at least one frame.
    /// The time is asked for where [`Transfer::is_placed`].
    pub fn slice(
        &mut self,
        datagrams: &mut dyn Datagrams,
        budget: usize,
        now_nanos: u64,
    ) -> io::Result<Slice> {
        if let Some(placing) = &mut self.placing {
            match placing.slice(&self.to, &*self.reply, datagrams, budget, now_nanos)? {
                Written::More(bytes) => return Ok(Slice::More(bytes)),
                Written::Full(bytes) => return Ok(Slice::Full(bytes)),
                Written::Last(bytes) => return Ok(Slice::Last(bytes)),
                Written::Lost => self.placing = None,
            }
        }
        let mut moved = 0;
        while moved == 0 || moved + DATAGRAM_BYTES_MAX <= budget {
            let frames = ((budget - moved) / DATAGRAM_BYTES_MAX).clamp(1, TRAIN_FRAMES_MAX);
            let (bytes, is_full) = self.train(datagrams, frames)?;
            moved += bytes;
            if is_full {
                return Ok(Slice::Full(moved));
            }
            if self.left.is_empty() {
                return Ok(Slice::Last(moved));
            }
        }
        Ok(Slice::More(moved))
    }

    /// One train of at most `frames`: how many bytes left, and whether the send buffer is full.
    fn train(&mut self, datagrams: &mut dyn Datagrams, frames: usize) -> io::Result<(usize, bool)> {
        let mut headers = [[0; HEADER_BYTES]; TRAIN_FRAMES_MAX];
        let mut pieces: Vec<IoSlice<'_>> = Vec::with_capacity(4 * frames);
        let mut sequences = self.left.iter().rev().cloned().flatten().map(|number| number as u16);
        let mut bytes = 0;
        let count = frames::put_train(
            self.to.request_id,
            &*self.reply,
            &mut sequences,
            &mut headers[..frames],
            |piece| {
                bytes += piece.len();
                pieces.push(IoSlice::new(piece));
            },
        );
        let departure = Departure {
            peer: self.to.peer,
            segment_bytes: Some(DATAGRAM_BYTES_MAX as u16),
            pieces: &pieces,
        };
        let queue = usize::from(self.to.queue);
        let sent = datagrams.send(queue, Path::Large, &[departure])?;
        if sent.done == 0 {
            let part = sent.datagrams_of_next;
            self.advance(part);
            return Ok((bytes.min(part * DATAGRAM_BYTES_MAX), true));
        }
        self.advance(count);
        Ok((bytes, false))
    }

    fn advance(&mut self, mut frames: usize) {
        while let Some(range) = self.left.last_mut() {
            let step = frames.min((range.end - range.start) as usize);
            range.start += step as u32;
            frames -= step;
            if range.start < range.end {
                return;
            }
            self.left.pop();
        }
    }

    /// Whether it goes to a client that shares memory, which alone can make room for it.
    pub fn is_in_memory(&self) -> bool {
        rdma::is_here(&self.to.peer)
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}
