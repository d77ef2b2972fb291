//! How many connections an address has open (`--connections-per-address`), so that one client that
//! opens more and more keeps nobody else out. Where that is not limited nothing is counted.
//!
//! An address is what password attempts are limited by, too: without its port, and of IPv6 the
//! first half, since whoever has one such address has all of its network. Clients of a unix socket
//! have none, and are not limited. The lock is taken when a connection opens or closes.

use crate::auth::gate::address_of;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Whether a new connection is among those of its address already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// It was counted before its handshake.
    Before,
    /// It is counted now.
    Now,
}

/// Connections by address; those that have none are left out.
#[derive(Debug, Default)]
pub struct PerAddress(Mutex<BTreeMap<String, usize>>);

impl PerAddress {
    /// A connection of this peer has come. False: its address has `most` already.
    pub fn enter(&self, peer: &str, most: usize) -> bool {
        if is_local(peer) {
            return true;
        }
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.entry(address_of(peer).into_owned()).or_default();
        let fits = *open < most;
        *open += usize::from(fits);
        fits
    }

    /// One that was let in has closed.
    pub fn leave(&self, peer: &str) {
        if is_local(peer) {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = address_of(peer);
        if let Some(open) = all.get_mut(&*address) {
            *open -= 1;
            if *open == 0 {
                all.remove(&*address);
            }
        }
    }

    /// Connections that are counted now.
    pub fn open(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Whether a peer came by a unix socket.
pub(crate) fn is_local(peer: &str) -> bool {
    peer == "unix" || peer.starts_with("unix:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_and_no_more_until_one_closes() {
        let all = PerAddress::default();
        for (peer, fits) in [
            ("tcp:10.0.0.1:5000", true),
            ("tcp:10.0.0.1:5001", true),
            ("tcp:10.0.0.1:5002", false),
            ("tcp:10.0.0.2:5000", true),
            ("tcp6:[2001:db8::1]:5000", true),
            ("tcp6:[2001:db8::2]:5000", true),
            ("tcp6:[2001:db8::3]:5000", false), // the same /64
            ("tcp6:[2001:db8:0:1::1]:5000", true),
            ("tcp6:[::ffff:10.0.0.2]:5001", true),
            ("tcp6:[::ffff:10.0.0.2]:5002", false),
            ("unix", true),
            ("unix", true),
            ("unix", true),
        ] {
            assert_eq!(all.enter(peer, 2), fits, "{peer}");
        }
        assert_eq!(all.open(), 7);
        all.leave("tcp:10.0.0.1:5000");
        all.leave("unix");
        assert!(all.enter("tcp:10.0.0.1:5003", 2) && !all.enter("tcp:10.0.0.1:5004", 2));
        for peer in ["tcp:10.0.0.1:5001", "tcp:10.0.0.1:5003"] {
            all.leave(peer);
        }
        assert_eq!(all.open(), 5, "what has none left takes no memory");
        assert_eq!(all.0.lock().map(|all| all.len()).ok(), Some(3));
    }
}
