//! How often an address may send a wrong password: so many at once, then one a second. Whoever has
//! none left is refused unseen, with a right password too; otherwise its answer would be worth a
//! guess. Addresses share a fixed number of places by a hash with a secret seed: there is no table
//! that strangers could fill, and a neighbour in a place is rare and cannot be aimed at.
//!
//! Knows no clock: seconds are an argument, and may step back.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Wrong passwords at once.
pub const WRONG_MAX: u32 = 20;

/// Places.
const PLACES: usize = 4096;

/// In each place the second of the last wrong one, how many count still, and whether that was told
/// since there were none.
pub struct Limit {
    seed: u64,
    places: Box<[AtomicU64]>,
}

impl Limit {
    /// Nobody was wrong.
    pub fn new(seed: u64) -> Limit {
        Limit { seed, places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether a password from there is looked at.
    pub fn allows(&self, address: &str, now_seconds: u32) -> bool {
        // Relaxed, with no partner: the place is one word, and orders nothing else.
        left(self.place(address).load(Relaxed), now_seconds) < WRONG_MAX
    }

    /// A password from there was wrong. True if it was the last that is looked at, for the first
    /// time since none counted: whoever goes on guessing is told of once.
    pub fn wrong(&self, address: &str, now_seconds: u32) -> bool {
        let after = |word: u64| {
            let wrong = left(word, now_seconds);
            let was_told = wrong > 0 && word & TOLD != 0;
            let is_told = was_told || wrong + 1 >= WRONG_MAX;
            let told = if is_told { TOLD } else { 0 };
            ((u64::from(now_seconds) << 32) | told | u64::from(wrong + 1), is_told && !was_told)
        };
        // Relaxed: see `allows`. Several workers may find one address wrong at once.
        let more = |word| Some(after(word).0);
        let before = self.place(address).fetch_update(Relaxed, Relaxed, more);
        after(before.unwrap_or_else(|word| word)).1
    }

    fn place(&self, address: &str) -> &AtomicU64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(address.as_bytes());
        &self.places[hasher.finish() as usize % PLACES]
    }
}

/// That a place has been told of.
const TOLD: u64 = 1 << 31;

/// How many of a place's wrong passwords count still.
const fn left(word: u64, now_seconds: u32) -> u32 {
    let (second, wrong) = ((word >> 32) as u32, (word & !TOLD) as u32);
    wrong.saturating_sub(now_seconds.saturating_sub(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_wrong_so_often_at_once_and_once_a_second_for_ever() {
        let limit = Limit::new(1);
        for number in 1..=WRONG_MAX {
            assert!(limit.allows("a", 50));
            assert_eq!(limit.wrong("a", 50), number == WRONG_MAX);
        }
        assert!(!limit.allows("a", 50) && limit.allows("b", 50));
        assert!(!limit.allows("a", 10), "the clock has stepped back");
        for second in 51..500 {
            assert!(limit.allows("a", second), "{second}");
            assert!(!limit.wrong("a", second), "{second}: it is told already");
            assert!(!limit.allows("a", second), "{second}");
        }
        // Once nothing counts any more it is told anew.
        let later = 500 + WRONG_MAX;
        let told: Vec<bool> = (0..WRONG_MAX).map(|_| limit.wrong("a", later)).collect();
        assert_eq!(told.iter().position(|told| *told), Some(WRONG_MAX as usize - 1));
        assert!(limit.allows("a", u32::MAX));
    }
}
