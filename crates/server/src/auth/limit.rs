//! Limits how often an address may send a wrong password: `WRONG_MAX` times at once, then one a
//! second. An address that has used up its attempts is refused before its password is compared, and
//! a right password is refused, too; otherwise the answer would tell a guesser something.
//!
//! Addresses share a fixed number of places by a hash with a secret seed. A place counts for one
//! address, whose tag it keeps: another one that was wrong takes the place over and begins anew. So
//! nobody is refused for what others did, however many addresses they have (but for one in 2^26
//! that have the same place); and whoever guesses from more addresses than there are places is
//! limited by little, as his places are forgotten in between.
//!
//! Knows no clock: seconds are an argument, and may step back.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Wrong passwords at once.
pub const WRONG_MAX: u32 = 20;

/// Places.
const PLACES: usize = 4096;

/// A place: from the top the second of the last wrong password (32 bits), the tag of the address
/// (26), whether it was told of since none counted (1), and how many count still (5).
const TAG: u64 = ((1 << TAG_BITS) - 1) << TAG_SHIFT;
const TAG_BITS: u32 = 26;
const TAG_SHIFT: u32 = 6;
const TOLD: u64 = 1 << 5;
const COUNT: u64 = TOLD - 1;
const _: () = assert!(TAG_BITS + TAG_SHIFT == 32 && (WRONG_MAX as u64) < COUNT);

/// The places of all addresses, and the second of the last warning.
pub struct Limit {
    seed: u64,
    places: Box<[AtomicU64]>,
    warnings: Warnings,
}

impl Limit {
    /// Nobody was wrong.
    pub fn new(seed: u64) -> Limit {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Limit { seed, places, warnings: Warnings::new() }
    }

    /// Whether a password from there is looked at.
    pub fn allows(&self, address: &str, now_seconds: u32) -> bool {
        let (place, tag) = self.place(address);
        // Relaxed, with no partner: the place is one word, and orders nothing else.
        left(place.load(Relaxed), tag, now_seconds) < WRONG_MAX
    }

    /// A password from there was wrong. If it was the last that is looked at, for the first time
    /// since none counted, the log is to warn, at most once a second for all addresses: then it
    /// returns how many such warnings were left out since the last.
    pub fn wrong(&self, address: &str, now_seconds: u32) -> Option<u32> {
        let (place, tag) = self.place(address);
        let after = |word: u64| {
            let wrong = left(word, tag, now_seconds);
            let was_told = wrong > 0 && word & TOLD != 0;
            let is_told = was_told || wrong + 1 >= WRONG_MAX;
            let told = if is_told { TOLD } else { 0 };
            // Several workers may find one address wrong at once, and so count beyond the most.
            let count = u64::from(wrong + 1).min(COUNT);
            ((u64::from(now_seconds) << 32) | tag | told | count, is_told && !was_told)
        };
        // Relaxed: see `allows`.
        let more = |word| Some(after(word).0);
        let before = place.fetch_update(Relaxed, Relaxed, more);
        let is_new = after(before.unwrap_or_else(|word| word)).1;
        if is_new { self.warnings.another(now_seconds) } else { None }
    }

    /// The place of an address, and its tag there.
    fn place(&self, address: &str) -> (&AtomicU64, u64) {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write(address.as_bytes());
        let hash = hasher.finish();
        // The place is from the low bits, the tag from the high ones.
        (&self.places[hash as usize % PLACES], (hash >> 32) & TAG)
    }
}

/// How many wrong passwords of the address with this tag a place counts still.
const fn left(word: u64, tag: u64, now_seconds: u32) -> u32 {
    if word & TAG != tag {
        return 0;
    }
    let (second, wrong) = ((word >> 32) as u32, (word & COUNT) as u32);
    wrong.saturating_sub(now_seconds.saturating_sub(second))
}

/// The second of the last warning, and in the low half how many were left out since.
struct Warnings(AtomicU64);

impl Warnings {
    fn new() -> Warnings {
        Warnings(AtomicU64::new(u64::from(u32::MAX) << 32))
    }

    /// There is cause for another. If it is to be written: how many were left out since the last.
    fn another(&self, now_seconds: u32) -> Option<u32> {
        let second = u64::from(now_seconds) << 32;
        let is_later = |word: u64| word >> 32 != u64::from(now_seconds);
        let after = |word: u64| {
            let out = u64::from((word as u32).saturating_add(1));
            Some(if is_later(word) { second } else { second | out })
        };
        // Relaxed, with no partner: it is one word, and orders nothing else.
        let word = self.0.fetch_update(Relaxed, Relaxed, after).unwrap_or_else(|word| word);
        is_later(word).then_some(word as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_wrong_so_often_at_once_and_once_a_second_for_ever() {
        let limit = Limit::new(1);
        for number in 1..=WRONG_MAX {
            assert!(limit.allows("a", 50));
            assert_eq!(limit.wrong("a", 50).is_some(), number == WRONG_MAX);
        }
        assert!(!limit.allows("a", 50) && limit.allows("b", 50));
        assert!(!limit.allows("a", 10), "the clock has stepped back");
        for second in 51..500 {
            assert!(limit.allows("a", second), "{second}");
            assert_eq!(limit.wrong("a", second), None, "{second}: it is told already");
            assert!(!limit.allows("a", second), "{second}");
        }
        // Once nothing counts any more it is told anew.
        let later = 500 + WRONG_MAX;
        let told: Vec<_> = (0..WRONG_MAX).map(|_| limit.wrong("a", later)).collect();
        assert_eq!(told.iter().position(Option::is_some), Some(WRONG_MAX as usize - 1));
        assert!(limit.allows("a", u32::MAX));
    }

    #[test]
    fn many_addresses_that_guess_lock_nobody_else_out_and_the_log_warns_once_a_second() {
        let limit = Limit::new(3);
        let mut written = Vec::new();
        for number in 0..4 * PLACES {
            let address = format!("tcp:stranger{number}");
            for _ in 0..WRONG_MAX {
                written.extend(limit.wrong(&address, 70));
            }
        }
        assert_eq!(written, [0], "one line for all of them");
        for number in 0..1000 {
            assert!(limit.allows(&format!("tcp:innocent{number}"), 70), "{number}");
        }
        // One that guesses now is limited, whoever had its place; its line tells of the others.
        let warned = (0..WRONG_MAX).filter_map(|_| limit.wrong("tcp:another", 71));
        assert_eq!(warned.collect::<Vec<_>>(), [4 * PLACES as u32 - 1]);
        assert!(!limit.allows("tcp:another", 71));
    }
}
