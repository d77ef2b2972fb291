//! Where on the link peers are, by their IP addresses, learned from what they send: a reply goes
//! back to the Ethernet address that the last request came from, be it the peer's or a router's.
//!
//! Each worker knows those it heard itself and asks for others, for a reply may leave by another
//! worker than the one that received the request. Bounded: who invents senders makes all be learned
//! anew, and meanwhile some replies leave by the socket.

use laneway_sync::edition::Edition;
use laneway_xdp::packet::Link;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

/// Peers known at a time.
const PEERS_MAX: usize = 1 << 16;

/// What all workers know.
#[derive(Debug, Default)]
pub struct Neighbours {
    links: RwLock<HashMap<IpAddr, Link>>,
    /// Rises when a known peer moves.
    moves: Edition,
}

/// What one worker knows.
#[derive(Debug, Default)]
pub struct Links {
    known: HashMap<IpAddr, Link>,
    /// The last one asked for or learned: the next is often the same.
    last: Option<(IpAddr, Link)>,
    /// Moves that it has followed.
    moves: u64,
}

impl Links {
    /// `peer` has sent something from there.
    #[inline]
    pub fn learn(&mut self, all: &Neighbours, peer: IpAddr, link: Link) {
        if self.last == Some((peer, link)) {
            return;
        }
        self.last = Some((peer, link));
        if self.known.get(&peer) != Some(&link) {
            self.keep(peer, link);
            all.learn(peer, link);
        }
    }

    /// Before a burst of [`Links::find`]: forget everything if a peer has moved.
    pub fn follow(&mut self, all: &Neighbours) {
        let moves = all.moves.number(); // who sees the move finds the new link
        if moves != self.moves {
            *self = Links { moves, ..Links::default() };
        }
    }

    /// Where a peer is.
    #[inline]
    pub fn find(&mut self, all: &Neighbours, peer: IpAddr) -> Option<Link> {
        if let Some((last, link)) = self.last
            && last == peer
        {
            return Some(link);
        }
        let link = match self.known.get(&peer) {
            Some(link) => *link,
            None => {
                let links = all.links.read().unwrap_or_else(PoisonError::into_inner);
                let link = *links.get(&peer)?;
                drop(links);
                self.keep(peer, link);
                link
            }
        };
        self.last = Some((peer, link));
        Some(link)
    }

    fn keep(&mut self, peer: IpAddr, link: Link) {
        if self.known.len() >= PEERS_MAX {
            self.known.clear();
        }
        self.known.insert(peer, link);
    }
}

impl Neighbours {
    /// Held for one look into a map, once for each peer that is new or has moved.
    fn learn(&self, peer: IpAddr, link: Link) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= PEERS_MAX {
            links.clear();
        }
        let before = links.insert(peer, link);
        if before.is_some_and(|before| before != link) {
            self.moves.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const fn link(last: u8) -> Link {
        Link { peer: [2, 0, 0, 0, 0, last], own: [2; 6] }
    }

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn what_one_worker_hears_another_finds_and_the_last_word_counts() {
        let all = Neighbours::default();
        let (mut one, mut two) = (Links::default(), Links::default());
        assert_eq!(two.find(&all, peer(1)), None);
        one.learn(&all, peer(1), link(1));
        two.follow(&all);
        assert_eq!(two.find(&all, peer(1)), Some(link(1)));
        one.learn(&all, peer(1), link(2));
        two.follow(&all);
        assert_eq!(two.find(&all, peer(1)), Some(link(2)), "it has moved");
        one.follow(&all);
        assert_eq!(one.find(&all, peer(1)), Some(link(2)));
    }

    #[test]
    fn invented_senders_are_bounded() {
        let all = Neighbours::default();
        let mut links = Links::default();
        for number in 1..=PEERS_MAX as u32 + 10 {
            links.learn(&all, peer(number), link(1));
            assert_eq!(links.find(&all, peer(number)), Some(link(1)));
        }
        assert_eq!(links.known.len(), 10);
        assert_eq!(all.links.read().expect("nobody panicked").len(), 10);
    }
}
