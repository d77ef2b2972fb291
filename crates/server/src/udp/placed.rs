//! Long replies that do not leave in datagrams: written into memory that their client lends, slice
//! by slice, and behind the last one a datagram says where. (HERD's replies are one datagram.)
//!
//! A reply for which there is no room leaves in frames, and so does one that loses its place. It is
//! kept as any of several frames is: a client that finds it torn, or was not told, asks for those.

use crate::jobs::handoff::DatagramOrigin;
use laneway_rdma::contract::{Moved, Placed};
use laneway_rdma::long::sealed_descriptor::{PIECE_BYTES, SEALED_DESCRIPTOR_BYTES};
use laneway_transport::datagram::{Datagrams, Departure, Path};
use laneway_wire::udp::frames::{self, Message};
use laneway_wire::udp::{HEADER_BYTES, Header, Kind};
use std::io::{self, IoSlice};

/// Bytes of a notice.
const NOTICE_BYTES: usize = HEADER_BYTES + SEALED_DESCRIPTOR_BYTES;

/// The datagram that says where the reply to request `request_id` lies, which is of `total` frames.
pub fn notice(
    request_id: u16,
    total: u16,
    sealed_descriptor: &[u8; SEALED_DESCRIPTOR_BYTES],
) -> [u8; NOTICE_BYTES] {
    let header = Header { request_id, sequence: 0, total, kind: Kind::Notice };
    let mut out = [0; NOTICE_BYTES];
    out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    out[HEADER_BYTES..].copy_from_slice(sealed_descriptor);
    out
}

/// What a slice came to.
pub enum Written {
    /// So many bytes; there is more.
    More(usize),
    /// So many, maybe none; no more for now.
    Full(usize),
    /// So many, the last ones; the client is told.
    Last(usize),
    /// Its place is lost.
    Lost,
}

/// A reply's place, and how much of it is written.
pub struct Placing {
    placed: Box<dyn Placed>,
    written: usize,
}

impl Placing {
    /// Nothing written yet.
    pub fn new(placed: Box<dyn Placed>) -> Placing {
        Placing { placed, written: 0 }
    }

    /// Write about `budget` bytes, at least one piece, and tell the client behind the last.
    pub fn slice(
        &mut self,
        to: &DatagramOrigin,
        reply: &impl Message,
        datagrams: &mut dyn Datagrams,
        budget: usize,
        now_nanos: u64,
    ) -> io::Result<Written> {
        let (mut moved, bytes) = (0, reply.message_bytes());
        while self.written < bytes {
            let most = PIECE_BYTES.min(bytes - self.written);
            if moved > 0 && moved + most > budget {
                return Ok(Written::More(moved));
            }
            match self.placed.write(&pieces(reply, self.written, most)) {
                Moved::Done => {}
                Moved::Later => return Ok(Written::Full(moved)),
                Moved::Gone => return Ok(Written::Lost),
            }
            self.written += most;
            moved += most;
        }
        let total = frames::frames(bytes).unwrap_or(u16::MAX);
        let Some(sealed_descriptor) = self.placed.notice(now_nanos) else {
            return Ok(Written::Lost);
        };
        let told = notice(to.request_id, total, &sealed_descriptor);
        let departure =
            Departure { peer: to.peer, segment_bytes: None, pieces: &[IoSlice::new(&told)] };
        let sent = datagrams.send(to.queue.into(), Path::Large, &[departure])?;
        Ok(if sent.done > 0 { Written::Last(moved) } else { Written::Full(moved) })
    }
}

/// `bytes` of a reply from `offset` on, where they lie.
fn pieces(reply: &impl Message, offset: usize, bytes: usize) -> Vec<IoSlice<'_>> {
    let mut pieces = Vec::new();
    let (mut at, end) = (offset, offset + bytes);
    while at < end {
        let piece = reply.piece(at);
        let piece = &piece[..piece.len().min(end - at)];
        at += piece.len();
        pieces.push(IoSlice::new(piece));
    }
    pieces
}
