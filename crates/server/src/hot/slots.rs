//! Hot keys that the kernel leads to their workers (KeySched in software, MICA §4.1.2 in the place
//! of the network card): the slots of the steering table that do not lead home, and where to.
//!
//! A slot is a four-thousandth of all keys, so a hot key takes the cold ones of its slot along;
//! these are handed over in software, and so is a hot key whose slot a hotter one has. Only what
//! changes is written. Steering is routing and never safety: a datagram that was on its way when
//! its slot was rewritten is handed over where it arrives.
//!
//! It knows no key, worker or clock. What rewrites a slot is given.

use laneway_kernel::layout::{Lead, slot_of};
use laneway_kernel::steering::middle_of_slot;
use laneway_policy::Placement;
use laneway_policy::owner::OwnerHash;
use std::fmt;

/// Writes one slot of the table.
pub type Rewrite = Box<dyn FnMut(usize, Lead) + Send>;

/// The slots that hot keys have moved.
pub struct Slots {
    placement: Placement,
    rewrite: Rewrite,
    away: Vec<(usize, Lead)>,
    wanted: Vec<(usize, Lead)>,
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("away", &self.away).finish_non_exhaustive()
    }
}

impl Slots {
    /// Every slot leads to the owner of the middle of it.
    pub fn new(placement: Placement, rewrite: Rewrite) -> Slots {
        Slots { placement, rewrite, away: Vec::new(), wanted: Vec::new() }
    }

    /// Lead the slots of hot keys where these are to go, and all others home. The hottest key comes
    /// first: of those in one slot it decides.
    pub fn follow(&mut self, hot: impl Iterator<Item = (OwnerHash, Lead)>) {
        self.wanted.clear();
        for (hash, lead) in hot {
            let slot = slot_of(hash.0);
            if !self.wanted.iter().any(|(taken, _)| *taken == slot) {
                self.wanted.push((slot, lead));
            }
        }
        let Slots { placement, rewrite, away, wanted } = self;
        for &(slot, lead) in wanted.iter() {
            let before = away.iter().find(|(at, _)| *at == slot).map(|(_, lead)| *lead);
            if lead != before.unwrap_or_else(|| home(placement, slot)) {
                rewrite(slot, lead);
            }
        }
        for &(slot, _) in away.iter() {
            if !wanted.iter().any(|(at, _)| *at == slot) {
                rewrite(slot, home(placement, slot));
            }
        }
        away.clear();
        away.extend(wanted.iter().filter(|(slot, lead)| *lead != home(placement, *slot)));
    }
}

/// Where a slot leads as long as none of its keys is hot.
fn home(placement: &Placement, slot: usize) -> Lead {
    Lead::Socket(placement.owner(OwnerHash(middle_of_slot(slot))).0.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_kernel::layout::STEER_SLOTS;
    use std::sync::mpsc::{Receiver, channel};

    const WORKERS: u16 = 4;

    fn slots() -> (Slots, Receiver<(usize, Lead)>) {
        let placement = Placement::new(0, WORKERS, 1).expect("workers");
        let (sender, receiver) = channel();
        let rewrite = move |slot, lead| sender.send((slot, lead)).expect("the test listens");
        (Slots::new(placement, Box::new(rewrite)), receiver)
    }

    fn in_slot(slot: usize) -> OwnerHash {
        OwnerHash(middle_of_slot(slot) + 7)
    }

    #[test]
    fn only_what_changes_is_written_and_what_cools_down_goes_home() {
        let (mut slots, written) = slots();
        let lead = |slots: &mut Slots, hot: &[(usize, Lead)]| {
            slots.follow(hot.iter().map(|(slot, lead)| (in_slot(*slot), *lead)));
            written.try_iter().collect::<Vec<_>>()
        };
        let to = Lead::Socket;
        assert_eq!(lead(&mut slots, &[]), []);
        // Slot 5 is worker 0's, the last one worker 3's.
        assert_eq!(lead(&mut slots, &[(5, to(2)), (4095, to(3))]), [(5, to(2))]);
        assert_eq!(lead(&mut slots, &[(4095, to(3)), (5, to(2))]), []);
        assert_eq!(lead(&mut slots, &[(5, to(1)), (9, to(3))]), [(5, to(1)), (9, to(3))]);
        assert_eq!(lead(&mut slots, &[(9, Lead::Anyone)]), [(9, Lead::Anyone), (5, to(0))]);
        // Home because that is the key's owner now, and home because it is hot no more.
        assert_eq!(lead(&mut slots, &[(9, to(0))]), [(9, to(0))]);
        assert_eq!(lead(&mut slots, &[]), []);
    }

    #[test]
    fn of_two_hot_keys_in_one_slot_the_hotter_decides() {
        let (mut slots, written) = slots();
        let two = [(OwnerHash(1), Lead::Socket(3)), (OwnerHash(2), Lead::Socket(1))];
        slots.follow(two.into_iter());
        assert_eq!(written.try_iter().collect::<Vec<_>>(), [(0, Lead::Socket(3))]);
    }

    #[test]
    fn the_table_is_always_what_was_asked_for_last() {
        let (mut slots, written) = slots();
        let placement = Placement::new(0, WORKERS, 1).expect("workers");
        let all_home: Vec<Lead> = (0..STEER_SLOTS).map(|slot| home(&placement, slot)).collect();
        let mut table = all_home.clone();
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let hot: Vec<(usize, Lead)> = (0..draw(6))
                .map(|_| match (draw(12) as usize, draw(5) as u32) {
                    (slot, 4) => (slot, Lead::Anyone),
                    (slot, socket) => (slot, Lead::Socket(socket)),
                })
                .collect();
            slots.follow(hot.iter().map(|(slot, lead)| (in_slot(*slot), *lead)));
            written.try_iter().for_each(|(slot, lead)| table[slot] = lead);
            let mut expected = all_home.clone();
            hot.iter().rev().for_each(|(slot, lead)| expected[*slot] = *lead);
            assert_eq!(table, expected, "after {hot:?}");
        }
    }
}
