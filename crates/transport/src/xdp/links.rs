//! Where on the link peers are, by their IP addresses, learned from what they send: a reply goes
//! back to the Ethernet address that the last request came from, be it the peer's or a router's.
//!
//! Each worker knows those it heard itself and asks for others, for a reply may leave by another
//! worker than the one that received the request. Bounded: who invents senders makes all be learned
//! anew, and meanwhile some replies leave by the socket.

use laneway_sync::edition::Edition;
use laneway_xdp::packet::Link;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Where a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// By which interface it is reached.
    pub interface: usize,
    /// Where on the link there.
    pub link: Link,
}

/// Who a peer is: its address; and that of a link-local one means another host at each interface,
/// which its scope tells.
type Host = (IpAddr, u32);

fn host(peer: &SocketAddr) -> Host {
    match peer {
        SocketAddr::V4(v4) => ((*v4.ip()).into(), 0),
        SocketAddr::V6(v6) => ((*v6.ip()).into(), v6.scope_id()),
    }
}

/// Peers known at a time.
const PEERS_MAX: usize = 1 << 16;
/// Moves that are remembered: a worker that has missed more of them forgets all peers.
const MOVES_MAX: usize = 1 << 10;

/// What all workers know.
#[derive(Debug, Default)]
pub struct Neighbours {
    links: RwLock<Known>,
    /// Rises by one with each move, while `links` is held.
    moves: Edition,
}

#[derive(Debug, Default)]
struct Known {
    routes: HashMap<Host, Route>,
    /// Who has moved, the last one last.
    moved: VecDeque<Host>,
}

/// What one worker knows.
#[derive(Debug, Default)]
pub struct Links {
    known: HashMap<Host, Route>,
    /// The last one asked for or learned: the next is often the same.
    last: Option<(Host, Route)>,
    /// Moves that it has followed.
    moves: u64,
}

impl Links {
    /// `peer` has sent something from there.
    #[inline]
    pub fn learn(&mut self, all: &Neighbours, peer: &SocketAddr, route: Route) {
        let peer = host(peer);
        if self.last == Some((peer, route)) {
            return;
        }
        self.last = Some((peer, route));
        if self.known.get(&peer) != Some(&route) {
            self.keep(peer, route);
            all.learn(peer, route);
        }
    }

    /// Before a burst of [`Links::find`]: forget the peers that have moved.
    pub fn follow(&mut self, all: &Neighbours) {
        if all.moves.number() == self.moves {
            return;
        }
        let links = all.read(); // nobody moves meanwhile
        let moves = all.moves.number();
        let missed = usize::try_from(moves - self.moves).unwrap_or(usize::MAX);
        self.moves = moves;
        if missed > links.moved.len() {
            (self.known, self.last) = (HashMap::new(), None);
            return;
        }
        for moved in links.moved.iter().rev().take(missed) {
            self.known.remove(moved);
            self.last = self.last.filter(|(last, _)| last != moved);
        }
    }

    /// Where a peer is.
    #[inline]
    pub fn find(&mut self, all: &Neighbours, peer: &SocketAddr) -> Option<Route> {
        let peer = host(peer);
        if let Some((last, route)) = self.last
            && last == peer
        {
            return Some(route);
        }
        let route = match self.known.get(&peer) {
            Some(route) => *route,
            None => {
                let route = *all.read().routes.get(&peer)?;
                self.keep(peer, route);
                route
            }
        };
        self.last = Some((peer, route));
        Some(route)
    }

    fn keep(&mut self, peer: Host, route: Route) {
        if self.known.len() >= PEERS_MAX {
            self.known.clear();
        }
        self.known.insert(peer, route);
    }
}

impl Neighbours {
    /// Held for one look into a map, once for each peer that is new or has moved.
    fn learn(&self, peer: Host, route: Route) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if links.routes.len() >= PEERS_MAX {
            // Who moves from now on cannot be told from who is new: all forget everybody.
            *links = Known::default();
            self.moves.publish();
        }
        let before = links.routes.insert(peer, route);
        if before.is_some_and(|before| before != route) {
            if links.moved.len() >= MOVES_MAX {
                links.moved.pop_front();
            }
            links.moved.push_back(peer);
            self.moves.publish();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.links.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddrV6};

    const fn route(last: u8) -> Route {
        Route { interface: 0, link: Link { peer: [2, 0, 0, 0, 0, last], own: [2; 6] } }
    }

    fn peer(number: u32) -> SocketAddr {
        (Ipv4Addr::from_bits(number), 9).into()
    }

    #[test]
    fn what_one_worker_hears_another_finds_and_the_last_word_counts() {
        let all = Neighbours::default();
        let (mut one, mut two) = (Links::default(), Links::default());
        assert_eq!(two.find(&all, &peer(1)), None);
        one.learn(&all, &peer(1), route(1));
        two.follow(&all);
        assert_eq!(two.find(&all, &peer(1)), Some(route(1)));
        one.learn(&all, &peer(1), route(2));
        two.follow(&all);
        assert_eq!(two.find(&all, &peer(1)), Some(route(2)), "it has moved");
        one.follow(&all);
        assert_eq!(one.find(&all, &peer(1)), Some(route(2)));
        let elsewhere = Route { interface: 1, ..route(2) };
        one.learn(&all, &peer(1), elsewhere);
        two.follow(&all);
        assert_eq!(two.find(&all, &peer(1)), Some(elsewhere), "to another interface");
    }

    #[test]
    fn a_link_local_address_is_another_host_at_each_interface() {
        let all = Neighbours::default();
        let (mut one, mut two) = (Links::default(), Links::default());
        let peer = |port: u16, scope: u32| -> SocketAddr {
            SocketAddrV6::new("fe80::9".parse().expect("an address"), port, 0, scope).into()
        };
        let routes = [route(1), Route { interface: 1, ..route(2) }];
        for (scope, route) in (1..).zip(routes) {
            one.learn(&all, &peer(4000, scope), route);
        }
        two.follow(&all);
        for links in [&mut one, &mut two] {
            for (scope, route) in (1..).zip(routes) {
                assert_eq!(links.find(&all, &peer(4001, scope)), Some(route), "{scope}");
            }
        }
    }

    #[test]
    fn invented_senders_are_bounded() {
        let all = Neighbours::default();
        let mut links = Links::default();
        for number in 1..=PEERS_MAX as u32 + 10 {
            links.learn(&all, &peer(number), route(1));
            assert_eq!(links.find(&all, &peer(number)), Some(route(1)));
        }
        assert_eq!(links.known.len(), 10);
        assert_eq!(all.read().routes.len(), 10);
        let known = links.known.len();
        links.follow(&all);
        assert_eq!((known, links.known.len()), (10, 0), "who moves now is as good as new");
    }

    #[test]
    fn who_moves_is_forgotten_alone_unless_very_many_do() {
        let all = Neighbours::default();
        let (mut one, mut two) = (Links::default(), Links::default());
        let others = 2..2 + 2 * MOVES_MAX as u32;
        one.learn(&all, &peer(1), route(1));
        two.follow(&all);
        for number in others.clone() {
            one.learn(&all, &peer(number), route(1));
            two.find(&all, &peer(number)).expect("another has heard it");
        }
        // By two interfaces in turn.
        for interface in 1..20 {
            let elsewhere = Route { interface, ..route(1) };
            one.learn(&all, &peer(1), elsewhere);
            one.follow(&all);
            two.follow(&all);
            assert_eq!(two.known.len(), others.len());
            assert_eq!(two.find(&all, &peer(1)), Some(elsewhere));
        }
        for number in others.clone() {
            one.learn(&all, &peer(number), route(2));
        }
        two.follow(&all);
        assert!(two.known.is_empty());
        for number in others {
            assert_eq!(two.find(&all, &peer(number)), Some(route(2)));
        }
    }
}
