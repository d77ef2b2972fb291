//! What a start finds behind the checkpoint, gathered, and put into the index in the order of keys.
//!
//! A log is in no order of keys: to put its records into an index of millions one by one means to
//! wait for memory several times for each. In order, what one finds the next needs, too.

use crate::index::{Entry, Index, Published, Tie};
use crate::key::Key;
use crate::ledger::Ledger;

/// As many are put in at once; some 20 MB.
const AT_ONCE: usize = 1 << 18;

/// What was found.
pub struct Gathered {
    entries: Vec<(Key, Entry, Tie)>,
    /// How many are enough.
    enough: usize,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered { entries: Vec::new(), enough: AT_ONCE }
    }
}

impl Gathered {
    /// Adds one; whether it is time to put them in.
    pub fn push(&mut self, key: &[u8], entry: Entry, tie: Tie) -> bool {
        self.entries.push((key.into(), entry, tie));
        self.enough <= self.entries.len()
    }

    /// Offers all of them to the index, and counts in `ledger` what that changed. They stay here.
    pub fn offer_to(&mut self, index: &Index, ledger: &mut Ledger) {
        // Those of one key stay in their order.
        self.entries.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        // A value may lie where another's blocks were that comes later by its key: all that goes
        // is counted before all that comes, and what both came and went meanwhile not at all.
        let mut came = Vec::new();
        for of_key in self.entries.chunk_by(|(one, ..), (other, ..)| one == other) {
            let mut newest = None;
            for (key, entry, tie) in of_key {
                let published = index.publish(key, entry.clone(), *tie);
                let Published::Current(before) = published else { continue };
                if newest.replace(entry).is_none()
                    && let Some(before) = before
                {
                    ledger.remove(&before);
                }
            }
            came.extend(newest);
        }
        came.into_iter().for_each(|entry| ledger.add(entry));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census;
    use crate::disk::sim::Random;
    use crate::index::{Home, What};
    use crate::pointer::{Extent, Pointer};
    use crate::segment::Shape;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const BLOCKS: u64 = 60;

    /// Records as a log has them: blocks of a value that was replaced are used again, and now and
    /// then a record is there twice.
    fn log(seed: u64) -> Vec<(Vec<u8>, Entry, Tie)> {
        let mut random = Random::new(seed);
        let (mut free, mut held): (Vec<u32>, BTreeMap<Vec<u8>, u32>) =
            ((40..60).collect(), [].into());
        let mut log = Vec::new();
        for sequence in 1..400 {
            let key = format!("key-{:02}", random.below(15)).into_bytes();
            free.extend(held.remove(&key));
            let start = free.swap_remove(random.below(free.len() as u64) as usize);
            let extents = vec![Extent { start, blocks: 1 }];
            let large = Pointer { bytes: 4096, extents, crcs: vec![1] };
            let what = match random.below(4) {
                0 => What::Tombstone,
                1 => What::Small { value_bytes: 9 },
                _ => What::Large(Arc::new(large.into())),
            };
            match what {
                What::Large(_) => drop(held.insert(key.clone(), start)),
                _ => free.push(start),
            }
            let home = Home::log(sequence * 1000);
            let entry = Entry { sequence, home, record_bytes: 100, expires_at_seconds: 0, what };
            log.push((key.clone(), entry.clone(), Tie::Replace));
            if random.below(8) == 0 {
                let home = Home::log(sequence * 1000 + 500);
                log.push((key, Entry { home, ..entry }, Tie::Replace));
            }
        }
        log
    }

    #[test]
    fn in_order_comes_to_the_same_as_one_by_one() {
        let shape = Shape::of(8 * 64 * 1024, 64 * 1024).unwrap();
        for (seed, enough) in (1..20).flat_map(|seed| [1, 7, 64, 100_000].map(|n| (seed, n))) {
            let (one_by_one, index) = (Index::default(), Index::default());
            let mut ledgers = [census::ledger(shape, BLOCKS), census::ledger(shape, BLOCKS)];
            let mut gathered = Gathered { enough, ..Gathered::default() };
            for (key, entry, tie) in log(seed) {
                let published = one_by_one.publish(&key, entry.clone(), tie);
                let Published::Current(before) = published else { panic!("not the newest") };
                before.iter().for_each(|before| ledgers[0].remove(before));
                ledgers[0].add(&entry);
                if gathered.push(&key, entry, tie) {
                    gathered.offer_to(&index, &mut ledgers[1]);
                    gathered.clear();
                }
            }
            gathered.offer_to(&index, &mut ledgers[1]);
            let all = |index: &Index| {
                let mut all = Vec::new();
                index.walk(|key, entry| all.push((key.to_vec(), entry.clone())));
                all
            };
            let told = format!("seed {seed}, {enough} at once");
            assert_eq!(all(&index), all(&one_by_one), "{told}");
            let [expected, counted] = ledgers;
            assert!(counted.even, "{told}");
            assert_eq!(counted.items, expected.items, "{told}");
            assert_eq!(counted.segments, expected.segments, "{told}");
            assert_eq!(counted.claims.words(), expected.claims.words(), "{told}");
        }
    }
}
