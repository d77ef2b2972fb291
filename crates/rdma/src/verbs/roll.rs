//! Who has which place of a long table, and which places have changed lately: so that those who
//! keep a copy need not look at all of it whenever somebody comes or goes. It knows no client.

use std::collections::VecDeque;
use std::ops::Deref;

/// Changes that are remembered: a copy that has missed more of them is made anew.
const CHANGES_MAX: usize = 1024;

/// See the module's page.
#[derive(Debug)]
pub struct Roll<T> {
    places: Vec<Option<T>>,
    /// The places of the last changes, the last one last.
    changed: VecDeque<usize>,
    /// Changes ever.
    changes: u64,
}

impl<T> Deref for Roll<T> {
    type Target = [Option<T>];

    fn deref(&self) -> &[Option<T>] {
        &self.places
    }
}

impl<T: Clone> Roll<T> {
    /// So many places, all free.
    pub fn new(places: usize) -> Roll<T> {
        Roll { places: vec![None; places], changed: VecDeque::new(), changes: 0 }
    }

    /// A place is somebody's.
    pub fn put(&mut self, place: usize, one: T) {
        self.places[place] = Some(one);
        self.note(place);
    }

    /// A place is free, if whoever has it is meant.
    pub fn take_if(&mut self, place: usize, is_meant: impl FnOnce(&T) -> bool) -> Option<T> {
        let one = self.places[place].take_if(|one| is_meant(one))?;
        self.note(place);
        Some(one)
    }

    fn note(&mut self, place: usize) {
        if self.changed.len() >= CHANGES_MAX {
            self.changed.pop_front();
        }
        self.changed.push_back(place);
        self.changes += 1;
    }

    /// Have a copy say who is there now. It has followed until `seen`, which is 0 of a new one.
    /// `changed` is told of each place that may have changed, with who had it and who has it: of
    /// one that has changed several times, several times.
    pub fn follow(
        &self,
        copy: &mut Vec<Option<T>>,
        seen: &mut u64,
        mut changed: impl FnMut(usize, Option<&T>, Option<&T>),
    ) {
        copy.resize(self.places.len(), None);
        let missed = self.changes - std::mem::replace(seen, self.changes);
        let follow = |place: usize| {
            let now = &self.places[place];
            let before = std::mem::replace(&mut copy[place], now.clone());
            changed(place, before.as_ref(), now.as_ref());
        };
        if missed > self.changed.len() as u64 {
            (0..self.places.len()).for_each(follow);
        } else {
            self.changed.iter().rev().take(missed as usize).copied().for_each(follow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A copy, and what is worked out from it.
    #[derive(Default)]
    struct Follower {
        copy: Vec<Option<u32>>,
        seen: u64,
        there: BTreeSet<u32>,
        told: usize,
    }

    impl Follower {
        fn follow(&mut self, roll: &Roll<u32>) {
            let Follower { copy, seen, there, told } = self;
            roll.follow(copy, seen, |_, before, now| {
                *told += 1;
                before.iter().for_each(|one| _ = there.remove(*one));
                there.extend(now);
            });
        }

        /// It says what the table says, and looked at so many places for it.
        fn check(&self, roll: &Roll<u32>, told: usize) {
            assert_eq!(self.copy[..], roll[..]);
            assert!(self.there.iter().eq(roll.iter().flatten().collect::<BTreeSet<_>>()));
            assert_eq!(self.told, told);
        }
    }

    #[test]
    fn a_copy_follows_by_the_places_that_have_changed_and_no_others() {
        let mut roll = Roll::new(5000);
        let (mut often, mut seldom) = (Follower::default(), Follower::default());
        for number in 0..5000 {
            roll.put(number as usize, number);
            often.follow(&roll);
        }
        often.check(&roll, 5000);
        seldom.follow(&roll);
        seldom.check(&roll, 5000);
        for number in 0..100 {
            assert_eq!(roll.take_if(number as usize, |one| *one != number), None);
            assert_eq!(roll.take_if(number as usize, |one| *one == number), Some(number));
            roll.put(number as usize, 10_000 + number);
        }
        seldom.follow(&roll);
        seldom.check(&roll, 5000 + 200);
        // It has missed too many, and looks at all.
        for number in 0..=CHANGES_MAX as u32 {
            roll.take_if(2000 + number as usize, |_| true).expect("it is there");
        }
        seldom.follow(&roll);
        often.follow(&roll);
        seldom.check(&roll, 5200 + 5000);
        often.check(&roll, 5000 + 5000);
    }
}
