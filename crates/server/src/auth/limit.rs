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

/// In each place the second of the last wrong one, and how many count still.
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

    /// A password from there was wrong. True if it was the last that is looked at.
    pub fn wrong(&self, address: &str, now_seconds: u32) -> bool {
        let place = self.place(address);
        let more = |word| Some(word_of(now_seconds, left(word, now_seconds) + 1));
        // Relaxed: see `allows`. Several workers may find one address wrong at once.
        let before = place.fetch_update(Relaxed, Relaxed, more);
        left(before.unwrap_or_else(|word| word), now_seconds) + 1 == WRONG_MAX
    }

    fn place(&self, address: &str) -> &AtomicU64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(address.as_bytes());
        &self.places[hasher.finish() as usize % PLACES]
    }
}

const fn word_of(second: u32, wrong: u32) -> u64 {
    (second as u64) << 32 | wrong as u64
}

/// How many of a place's wrong passwords count still.
const fn left(word: u64, now_seconds: u32) -> u32 {
    let (second, wrong) = ((word >> 32) as u32, word as u32);
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
            assert!(limit.wrong("a", second), "{second}");
            assert!(!limit.allows("a", second), "{second}");
        }
        assert!(limit.allows("a", u32::MAX));
    }
}
