//! A stream that is encrypted on its way, over a plain one.
//!
//! **Reading** fills the room it is given, as far as the socket has bytes: so a read that brings
//! less has emptied both the socket and what lay decrypted, as with a plain stream. The end of the
//! peer is told by [`Stream::has_more`].
//!
//! **Writing** encrypts at most [`SEALED_BYTES_MAX`] bytes, two full records, and hands them to the
//! socket before it encrypts more. Where the socket does not take all, the last byte of what was
//! encrypted is told as not written, so that whoever writes waits for room and comes again with
//! what follows, that byte first; it is not encrypted twice. So what a peer that does not read
//! keeps in memory is bounded, and a reply counts as sent only when the socket has it.
//!
//! A stream owns no buffer of ours while nothing lies between two reads; the session has one of
//! about 4 KiB.

use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Stream;
use rustls::{Connection, Error, HandshakeKind, ProtocolVersion};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

/// The most plaintext that is encrypted and has not left, bytes: two records.
pub const SEALED_BYTES_MAX: usize = 32 << 10;
/// What one read takes from the socket, at most.
const RECEIVED_BYTES_MAX: usize = 32 << 10;
/// And at least, for a small rest of a value: what comes behind it is small, too.
const RECEIVED_BYTES_MIN: usize = 4 << 10;
/// Of records' headers and seals for as much plaintext.
const OVERHEAD_BYTES: usize = 256;
/// Records that a connection of TLS 1.2 sends at most: fewer than AES-GCM's keys may protect
/// (RFC 8446 §5.5); rustls stops at 2^24, and passes over whatever is written then. TLS 1.3 takes
/// new keys by itself.
const RECORDS_MAX_1_2: u64 = (1 << 24) - 64;
/// The most plaintext of a record, bytes.
const RECORD_BYTES: usize = 16 << 10;
/// Reads from the socket beyond those that would fill the room: a peer that sends records without
/// bytes must not hold its worker.
const READS_MORE: usize = 4;

thread_local! {
    /// Where ciphertext is received into, so that a stream needs no memory for it.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; RECEIVED_BYTES_MAX]);
}

/// Why nothing comes any more.
enum End {
    /// The peer has said so, or the socket has ended.
    Closed,
    /// The socket failed.
    Lost(ErrorKind),
    /// The peer broke the protocol, or refused us.
    Broken(Error),
}

impl End {
    /// As a read tells it.
    fn told(&self) -> io::Result<usize> {
        match self {
            End::Closed => Ok(0),
            End::Lost(kind) => Err((*kind).into()),
            End::Broken(error) => Err(io::Error::new(ErrorKind::InvalidData, error.clone())),
        }
    }
}

/// How far a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It is over, and all that belongs to it has left.
    Done,
    /// It goes on when there is something to read.
    Read,
    /// It goes on when there is room to write.
    Write,
}

/// Why a handshake failed.
#[derive(Debug)]
pub enum Failure {
    /// The peer has gone.
    Gone,
    /// What it sent, or refused.
    Refused(Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Gone => f.write_str("the peer has gone"),
            Failure::Refused(error) => error.fmt(f),
        }
    }
}

/// An encrypted stream.
pub struct TlsStream<S: Stream> {
    inner: S,
    session: Connection,
    /// Received, and not taken by the session, from `left_at` on.
    left: Vec<u8>,
    left_at: usize,
    /// Bytes that lie decrypted in the session; where it has ended by what is wrong, at most.
    plain: usize,
    /// The socket has no more, as far as this read has seen.
    dry: bool,
    /// A read has stopped before the socket was dry, or before the room was full.
    stopped: bool,
    /// The last byte that was encrypted has not been told as written.
    holds_back: bool,
    /// Records that were encrypted, at most so many.
    records: u64,
    end: Option<End>,
}

impl<S: Stream> TlsStream<S> {
    /// A stream whose handshake has not begun.
    pub fn new(inner: S, mut session: Connection) -> TlsStream<S> {
        session.set_buffer_limit(Some(SEALED_BYTES_MAX));
        TlsStream {
            inner,
            session,
            left: Vec::new(),
            left_at: 0,
            plain: 0,
            dry: false,
            stopped: false,
            holds_back: false,
            records: 0,
            end: None,
        }
    }

    /// The stream below.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Whether the session was taken up again, without certificates.
    pub fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The version spoken, once it is agreed.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.session.protocol_version()
    }

    /// Encrypted bytes, or such that are not yet taken by the session; for tests.
    pub fn held_bytes(&self) -> usize {
        self.left.len().saturating_add(self.plain)
    }

    /// Go on with the handshake as far as the socket allows.
    pub fn handshake(&mut self) -> Result<Progress, Failure> {
        self.dry = false;
        loop {
            match self.flush() {
                Ok(true) => {}
                Ok(false) => return Ok(Progress::Write),
                Err(_) => return Err(self.failure()),
            }
            // Who says with the end of its handshake that it ends may have asked before that.
            let ends_well = matches!(self.end, None | Some(End::Closed));
            if ends_well && !self.session.is_handshaking() {
                return Ok(Progress::Done);
            }
            if self.end.is_some() {
                return Err(self.failure());
            }
            if self.dry && self.left.is_empty() {
                return Ok(Progress::Read);
            }
            self.receive(RECEIVED_BYTES_MIN);
        }
    }

    fn failure(&self) -> Failure {
        match &self.end {
            Some(End::Broken(error)) => Failure::Refused(error.clone()),
            Some(End::Closed | End::Lost(_)) | None => Failure::Gone,
        }
    }

    /// Take decrypted bytes; how many.
    fn take_plain(&mut self, room: &mut [u8]) -> usize {
        if self.plain == 0 || room.is_empty() {
            return 0;
        }
        // There are some, so it is neither empty nor at its end.
        let bytes = self.session.reader().read(room).unwrap_or(0);
        self.plain = if bytes == 0 { 0 } else { self.plain - bytes };
        bytes
    }

    /// Have the session take what was received, or else receive, for about `wanted` bytes.
    fn receive(&mut self, wanted: usize) {
        if self.left.is_empty() {
            return self.receive_anew(wanted);
        }
        let left = std::mem::take(&mut self.left);
        self.left_at += self.feed(&left[self.left_at..]);
        if self.left_at < left.len() && self.end.is_none() {
            self.left = left;
        } else {
            self.left_at = 0;
        }
        self.answer();
    }

    fn receive_anew(&mut self, wanted: usize) {
        SCRATCH.with_borrow_mut(|scratch| {
            let most = (wanted + OVERHEAD_BYTES).clamp(RECEIVED_BYTES_MIN, RECEIVED_BYTES_MAX);
            match self.inner.read(&mut scratch[..most]) {
                Ok(0) => self.ends(End::Closed),
                Ok(bytes) => {
                    self.dry = bytes < most;
                    let taken = self.feed(&scratch[..bytes]);
                    if taken < bytes && self.end.is_none() {
                        self.left.extend_from_slice(&scratch[taken..bytes]);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.dry = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.ends(End::Lost(error.kind())),
            }
        });
        self.answer();
    }

    /// Have the session take bytes until some lie decrypted; how many it took.
    fn feed(&mut self, received: &[u8]) -> usize {
        let mut rest = received;
        while !rest.is_empty() && self.plain == 0 && self.end.is_none() {
            match self.session.read_tls(&mut rest) {
                Ok(0) => self.ends(End::Closed), // what comes behind the peer's end is nobody's
                Ok(_) => match self.session.process_new_packets() {
                    Ok(state) => {
                        self.plain = state.plaintext_bytes_to_read();
                        if state.peer_has_closed() && !is_planted(Bug::GoodbyeUnheard) {
                            self.ends(End::Closed);
                        }
                    }
                    Err(error) => {
                        // What came before the record that is wrong is good. Nobody tells how much.
                        self.plain = usize::MAX;
                        self.ends(End::Broken(error));
                    }
                },
                Err(error) => self.ends(End::Lost(error.kind())),
            }
        }
        received.len() - rest.len()
    }

    /// The first reason is the one.
    fn ends(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// What the session has to say by itself, such as why it ends, goes as far as there is room:
    /// the rest goes before the next reply.
    fn answer(&mut self) {
        if self.session.wants_write() {
            let _ = self.flush(); // a socket that failed is found by the next read
        }
    }

    /// Hand what is encrypted to the socket; whether it took all.
    fn flush(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            let mut sink = Sink { stream: &mut self.inner, is_full: false };
            match self.session.write_tls(&mut sink) {
                Ok(_) if sink.is_full => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether the keys may protect no more.
    fn is_used_up(&self) -> bool {
        self.records >= RECORDS_MAX_1_2
            && self.session.protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

    /// Encrypt from `pieces`, behind the first `skipped` bytes; how many.
    fn seal(&mut self, pieces: &[IoSlice<'_>], skipped: usize) -> io::Result<usize> {
        if let [piece] = pieces {
            return self.session.writer().write(&piece[skipped..]);
        }
        let mut rest: Vec<IoSlice<'_>> = pieces.to_vec();
        let mut rest = &mut rest[..];
        IoSlice::advance_slices(&mut rest, skipped);
        self.session.writer().write_vectored(rest)
    }
}

impl<S: Stream> Stream for TlsStream<S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.dry = false;
        self.stopped = false;
        let mut reads = room.len() / RECEIVED_BYTES_MAX + READS_MORE;
        let mut filled = self.take_plain(room);
        while filled < room.len() && self.end.is_none() && !(self.dry && self.left.is_empty()) {
            if reads == 0 {
                self.stopped = true;
                break;
            }
            reads -= usize::from(self.left.is_empty());
            self.receive(room.len() - filled);
            filled += self.take_plain(&mut room[filled..]);
        }
        match &self.end {
            _ if filled > 0 || room.is_empty() => Ok(filled),
            Some(end) => end.told(),
            // Another try finds more.
            None if self.stopped => Err(ErrorKind::Interrupted.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(End::Lost(_) | End::Broken(_)) = &self.end {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        if wanted == 0 {
            return Ok(0);
        }
        if !self.flush()? || self.session.is_handshaking() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let holds_back = std::mem::take(&mut self.holds_back) && !is_planted(Bug::SealedTwice);
        let mut sealed = usize::from(holds_back);
        while sealed < wanted {
            if self.is_used_up() {
                return Err(ErrorKind::BrokenPipe.into()); // what follows needs another connection
            }
            let more = self.seal(pieces, sealed)?;
            if more == 0 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.records += (more.div_ceil(RECORD_BYTES) + 1) as u64;
            sealed += more;
            if !self.flush()? {
                self.holds_back = true;
                return match sealed - 1 {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    told => Ok(told),
                };
            }
        }
        Ok(wanted)
    }

    fn has_more(&self) -> bool {
        self.plain > 0 || !self.left.is_empty() || self.stopped || self.end.is_some()
    }

    fn limit_unsent(&mut self, bytes_max: Option<usize>) {
        self.inner.limit_unsent(bytes_max);
    }

    fn peer(&self) -> String {
        self.inner.peer()
    }

    fn local(&self) -> Option<String> {
        self.inner.local()
    }
}

impl<S: Stream> Drop for TlsStream<S> {
    /// Tells the peer that nothing was cut off, as far as there is room.
    fn drop(&mut self) {
        if !self.session.is_handshaking() && !matches!(self.end, Some(End::Lost(_))) {
            self.session.send_close_notify();
        }
        let _ = self.flush(); // the peer may be gone
    }
}

/// The socket, as the session writes to it.
struct Sink<'s, S> {
    stream: &'s mut S,
    /// It has taken less than it was given.
    is_full: bool,
}

impl<S: Stream> Write for Sink<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let taken = self.stream.write(pieces)?;
        self.is_full = taken < wanted;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
