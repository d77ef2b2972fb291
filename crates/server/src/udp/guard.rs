//! What a stranger may cause: replies to a peer that has not shown that its address is its own have
//! at most [`FACTOR`] bytes per byte of its request, as QUIC has it (RFC 9000 §8.1), or whoever
//! lies about where he is would have us flood somebody else.
//!
//! Where a reply is longer the peer gets a *cookie* instead, a keyed hash of its address; once it
//! has echoed that, it is believed for [`BELIEVED_NANOS`]. Nothing is kept of peers that have not.
//! Peers on the loopback interface or in memory, and all peers of a server that is not public, need
//! none.

use laneway_transport::rdma;
use laneway_wire::udp::HEADER_BYTES;
use laneway_wire::udp::retain::{Bounds, Retained};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes sent to an unproved peer per byte that it sent.
pub const FACTOR: usize = 3;
/// What a datagram costs on the way beside its payload: the headers of IPv4, UDP and ours. Many
/// small replies to one datagram would be more than their bytes.
pub const FRAME_COST_BYTES: usize = LOWER_HEADERS_BYTES + HEADER_BYTES;
const LOWER_HEADERS_BYTES: usize = 20 + 8;
/// How long a peer is believed after it has echoed its cookie.
const BELIEVED_NANOS: u64 = 600_000_000_000;
/// Peers believed at a time; the one believed longest goes first.
const PEERS_MAX: usize = 1 << 16;

/// What a datagram with so many bytes of payload allows its sender to be sent. It pays for the
/// lower headers of one reply, so that the bound holds with these headers and without.
pub fn allowance(payload_bytes: usize) -> usize {
    FACTOR * (HEADER_BYTES + payload_bytes) + LOWER_HEADERS_BYTES
}

/// Who is believed.
pub struct Guard {
    is_public: bool,
    key: RandomState,
    believed: Mutex<Retained<SocketAddr, ()>>,
}

/// A cookie on the wire: an error to those who know no cookies, shorter than three times the
/// shortest `get`.
const BEFORE: &[u8] = b"ERROR cookie ";
const AFTER: &[u8] = b"\r\n";
const DIGITS: usize = 16;

impl Guard {
    /// A guard with a key of its own, which nobody outside can guess.
    pub fn new(is_public: bool) -> Guard {
        let bounds =
            Bounds { entries_max: PEERS_MAX, bytes_max: usize::MAX, age_nanos_max: BELIEVED_NANOS };
        let believed = Mutex::new(Retained::new(bounds));
        Guard { is_public, key: RandomState::new(), believed }
    }

    /// Whether strangers may ask.
    pub fn is_public(&self) -> bool {
        self.is_public
    }

    /// Whether `peer` may be sent more than it sent.
    pub fn believes(&self, peer: &SocketAddr, now_nanos: u64) -> bool {
        let is_near = peer.ip().is_loopback() || rdma::is_in_memory(peer);
        !self.is_public || is_near || self.believed().get(peer, now_nanos).is_some()
    }

    /// What a peer is to echo.
    pub fn put_cookie(&self, peer: &SocketAddr, out: &mut Vec<u8>) {
        out.extend_from_slice(BEFORE);
        out.extend_from_slice(&self.digits(peer));
        out.extend_from_slice(AFTER);
    }

    /// Whether an echo is the cookie of `peer`; then it is believed.
    pub fn proves(&self, peer: &SocketAddr, echo: &[u8], now_nanos: u64) -> bool {
        let digits = echo.trim_ascii_end();
        let digits = digits.strip_prefix(BEFORE).unwrap_or(digits);
        // A keyed hash of 64 bits: whoever times this learns nothing that helps to guess the next.
        let proved = digits == self.digits(peer);
        if proved && self.is_public {
            self.believed().keep(*peer, (), 0, now_nanos);
        }
        proved
    }

    /// Forget whom it no longer believes.
    pub fn expire(&self, now_nanos: u64) {
        if self.is_public {
            self.believed().expire(now_nanos);
        }
    }

    fn believed(&self) -> MutexGuard<'_, Retained<SocketAddr, ()>> {
        self.believed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn digits(&self, peer: &SocketAddr) -> [u8; DIGITS] {
        let hash = self.key.hash_one(peer);
        std::array::from_fn(|at| {
            let nibble = (hash >> (60 - 4 * at)) as usize & 0xf;
            b"0123456789abcdef"[nibble]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRANGER: &str = "192.0.2.1:4000";

    #[test]
    fn a_stranger_is_believed_once_it_has_echoed_its_own_cookie_and_not_for_ever() {
        let guard = Guard::new(true);
        let stranger: SocketAddr = STRANGER.parse().unwrap();
        let other: SocketAddr = "192.0.2.1:4001".parse().unwrap();
        assert!(!guard.believes(&stranger, 0));
        let (mut cookie, mut others) = (Vec::new(), Vec::new());
        guard.put_cookie(&stranger, &mut cookie);
        guard.put_cookie(&other, &mut others);
        assert!(!guard.proves(&stranger, &others, 0) && !guard.believes(&stranger, 0));
        assert!(guard.proves(&stranger, &cookie, 0) && guard.believes(&stranger, 1));
        assert!(!guard.believes(&other, 1));
        assert!(!guard.believes(&stranger, BELIEVED_NANOS + 1));
    }

    #[test]
    fn neighbours_need_no_cookie_and_nobody_does_where_strangers_cannot_come() {
        let near: SocketAddr = "127.0.0.1:4000".parse().unwrap();
        assert!(Guard::new(true).believes(&near, 0));
        assert!(Guard::new(false).believes(&STRANGER.parse().unwrap(), 0));
    }

    #[test]
    fn a_cookie_keeps_the_bound_even_for_the_shortest_get() {
        let mut cookie = Vec::new();
        Guard::new(true).put_cookie(&STRANGER.parse().unwrap(), &mut cookie);
        let request = HEADER_BYTES + b"get k\r\n".len();
        assert!(HEADER_BYTES + cookie.len() <= FACTOR * request);
    }
}
