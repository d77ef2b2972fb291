//! What a connection has received and not consumed: bytes behind a cursor, so that serving a long
//! line piece by piece moves nothing, and a memory of whether there is a whole line in it, so that
//! a line that trickles in is not searched from its beginning with every byte.

use laneway_store::{Charge, Refused, Store, meter};
use laneway_wire::{Limits, limits::LINE_BYTES_MAX};
use std::sync::Arc;

/// Bytes kept for a connection that count as the connection's own; beyond, they count as bytes on
/// their way into the store, under the same limit.
pub const FREE_BYTES: usize = 32 << 10;

/// Unconsumed input. Owns no memory while it is empty.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    at: usize,
    /// Counts what is beyond [`FREE_BYTES`].
    charge: Option<Charge>,
    /// It is the beginning of a line, without its end.
    pub half_line: bool,
}

impl Input {
    /// Whether everything was consumed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was not consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Keep what is left of a read.
    pub fn keep(&mut self, rest: &[u8]) {
        assert!(self.bytes.is_empty(), "what came before is forgotten");
        meter::bytes(rest.len());
        self.bytes.extend_from_slice(rest);
    }

    /// More has come. Refused where memory has no room for a line as long as this.
    pub fn append(&mut self, received: &[u8], store: &Arc<Store>) -> Result<(), Refused> {
        if received.is_empty() {
            return Ok(());
        }
        // What is left moves to the front only where more has been consumed: so each byte pays for
        // the move of one at most, however small the pieces are that a long line is served in.
        if self.at > self.bytes.len() - self.at {
            meter::bytes(self.bytes.len() - self.at);
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        meter::bytes(received.len());
        let bytes = self.bytes.len() + received.len();
        if bytes > FREE_BYTES {
            let charge = self.charge.get_or_insert_with(|| store.charge());
            // What the buffer grows to: twice, at times.
            charge.grow_to(bytes.next_power_of_two() as u64)?;
        }
        self.bytes.extend_from_slice(received);
        Ok(())
    }

    /// So many bytes were served.
    pub fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at == self.bytes.len() {
            *self = Input::default(); // an idle connection owns no buffer
        }
    }

    /// Bytes that were consumed from the front, or stood there in other words, come again.
    pub fn put_back(&mut self, bytes: &[u8]) {
        match self.at.checked_sub(bytes.len()) {
            Some(at) => self.bytes[at..self.at].copy_from_slice(bytes),
            None => {
                let rest = self.bytes();
                meter::bytes(bytes.len() + rest.len());
                self.bytes = [bytes, rest].concat();
            }
        }
        self.at = self.at.saturating_sub(bytes.len());
        self.half_line = false;
    }

    /// Whether what is here is the beginning of a line, and `received` goes on with it without
    /// ending it or making it too long: then there is nothing to serve yet.
    pub fn adds_no_line(&self, received: &[u8], limits: &Limits) -> bool {
        let (before, after) = (self.bytes().len(), self.bytes().len() + received.len());
        // Where a line becomes longer than this, the parser decides whether it may.
        let decides = before <= LINE_BYTES_MAX && after > LINE_BYTES_MAX;
        self.half_line && !decides && after <= limits.line_bytes_max && !received.contains(&b'\n')
    }
}

#[cfg(test)]
mod tests;
