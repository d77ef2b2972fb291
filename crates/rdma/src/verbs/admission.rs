//! Who is let in, and who gives way: what the table of clients decides by what it is told of those
//! that are there. Nobody is authenticated. It knows no card and no connection.

use super::inbox::Source;
use crate::contract::Peer;
use std::net::IpAddr;

/// A place that is free among those taken from these addresses, for a client that comes from one;
/// or why there is none. One address gets half of them: nobody is authenticated, and the others are
/// to find some.
pub(super) fn place_among(
    taken: &[Option<Option<IpAddr>>],
    from: Option<IpAddr>,
) -> Result<usize, String> {
    let (most, share) = (taken.len(), taken.len().div_ceil(2));
    let there = taken.iter().filter(|place| **place == Some(from)).count();
    if let Some(from) = from.filter(|_| there >= share) {
        return Err(format!("there are {share} clients of {from} already"));
    }
    let place = taken.iter().position(Option::is_none);
    place.ok_or_else(|| format!("there are {most} clients already"))
}

/// What a client says of where its datagrams come from, and the address from where it said so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub sender: Source,
    pub from: Option<IpAddr>,
}

impl Claim {
    /// Whether it says a port that is at its own address.
    fn is_near(&self) -> bool {
        self.from.is_some() && self.sender.port.network() == self.from
    }
}

/// Of those that are there, by what they say and whether datagrams have come from there: the one
/// that gives way to a newcomer that says the same. It may be invented: who has the queue pair is
/// heard as soon as it is let in, and stays. Until then who says a port at its own address gives
/// way to nobody from elsewhere, who may say hello as often as he likes.
pub(super) fn gives_way_among(
    mut there: impl Iterator<Item = (Claim, Peer, bool)>,
    newcomer: Claim,
) -> Result<Option<Peer>, &'static str> {
    match there.find(|(claim, ..)| claim.sender == newcomer.sender) {
        None => Ok(None),
        Some((claim, _, is_proven)) if is_proven || claim.is_near() && !newcomer.is_near() => {
            Err("a client with this queue pair is there already")
        }
        Some((_, peer, _)) => Ok(Some(peer)),
    }
}

/// How much of `most` may still be granted to one address that has so much, as [`place_among`] has
/// it; nothing is known of who has none.
pub(super) fn share_left(most: usize, there: Option<usize>) -> usize {
    there.map_or(most, |there| most.div_ceil(2).saturating_sub(there))
}

#[cfg(test)]
mod tests {
    use super::super::inbox::Port;
    use super::*;

    #[test]
    fn one_address_gets_half_of_the_places_and_another_finds_one() {
        let (one, other) = (Some([10, 0, 0, 1].into()), Some([10, 0, 0, 2].into()));
        let mut taken = vec![None; 3];
        for number in 0..2 {
            assert_eq!(place_among(&taken, one), Ok(number));
            taken[number] = Some(one);
        }
        let told = place_among(&taken, one).expect_err("it has its share");
        assert_eq!(told, "there are 2 clients of 10.0.0.1 already");
        assert_eq!(place_among(&taken, other), Ok(2));
        taken[2] = Some(other);
        let told = place_among(&taken, other).expect_err("all are taken");
        assert_eq!(told, "there are 3 clients already");
        taken[0] = None;
        assert_eq!(place_among(&taken, one), Ok(0));
        assert_eq!(place_among(&[None], one), Ok(0));
    }

    fn claim(address: [u8; 4], number: u32, from: Option<IpAddr>) -> Claim {
        let gid = std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
        Claim { sender: Source { port: Port::Global(gid), number }, from }
    }

    fn peer(client: u16) -> Peer {
        Peer { client, generation: 7 }
    }

    #[test]
    fn who_has_sent_nothing_gives_way_to_who_says_that_the_queue_pair_is_its_own() {
        let claim = |number| claim([10, 0, 0, 1], number, None);
        let there = [(claim(1), peer(0), true), (claim(2), peer(1), false)];
        let gives_way = |number| gives_way_among(there.into_iter(), claim(number));
        assert_eq!((gives_way(2), gives_way(3)), (Ok(Some(peer(1))), Ok(None)));
        assert!(gives_way(1).is_err_and(|why| why.contains("there already")));
    }

    #[test]
    fn who_says_a_port_at_its_own_address_gives_way_to_nobody_from_elsewhere() {
        let (port, other) = ([10_u8, 0, 0, 1], Some([10, 0, 0, 2].into()));
        let own = Some(port.into());
        for (there, newcomer, gives_way) in [
            (own, own, true),
            (own, other, false),
            (own, None, false),
            (other, own, true),
            (other, other, true),
            (None, other, true),
        ] {
            let there = [(claim(port, 1, there), peer(0), false)];
            let told = gives_way_among(there.into_iter(), claim(port, 1, newcomer));
            assert_eq!(told.is_ok(), gives_way, "{there:?}, {newcomer:?}");
        }
        // The number of a port in its subnet says nothing of an address.
        let sender = Source { port: Port::Local(1), number: 1 };
        let there = [(Claim { sender, from: own }, peer(0), false)];
        assert!(gives_way_among(there.into_iter(), Claim { sender, from: other }).is_ok());
    }

    #[test]
    fn one_address_is_granted_half_of_the_memory() {
        assert_eq!((share_left(100, Some(0)), share_left(100, Some(30))), (50, 20));
        assert_eq!((share_left(100, Some(50)), share_left(100, Some(60))), (0, 0));
        assert_eq!(share_left(100, None), 100);
    }
}
