//! The word of a place in memory that two processes share says whether the message that was written
//! there is there still. One side writes messages into places and gives them to others later; the
//! other copies a message and then asks the word whether it had all of it: a sequence lock whose
//! reader may come too late, and is told so.
//!
//! A word holds the number of its message while that lies there, and 0 otherwise. Numbers are new
//! for each message of all places, and never 0, so that no reader takes one message for another.
//! Places may overlap those before them: a word that has ended stays so until its reader has seen
//! it. Bytes are copied by [`crate::words`]. The writer only stores into words, so that whatever a
//! peer writes there makes no difference to it.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release},
    fence,
};

/// The order of (A), which a canary takes away.
#[inline(always)]
fn tell_order() -> Ordering {
    if sings(Canary::PlaceTell) { Relaxed } else { Release }
}

/// The writer's side: message `number` is written, and may be read.
#[inline]
pub fn tell(word: &AtomicU64, number: u64) {
    // (A) pairs with (D): who sees the number sees the message.
    word.store(number, tell_order());
}

/// The message is over. Before its memory is written again call [`ended`].
#[inline]
pub fn end(word: &AtomicU64) {
    word.store(0, Relaxed);
}

/// Behind all words that ended, and before any of their memory is written again, by whoever writes
/// there: where that is another thread, it has seen the end by means of its own.
#[inline]
pub fn ended() {
    if !sings(Canary::PlaceEnded) {
        fence(Release); // (B) pairs with (C): who reads a newer byte sees that the word has ended
    }
}

/// The reader's side, before the first byte: whether message `number` is there.
#[inline]
pub fn is_told(word: &AtomicU64, number: u64) -> bool {
    word.load(Acquire) == number // (D) pairs with (A)
}

/// Behind the last byte: whether all that was read since [`is_told`] is of that message.
#[inline]
pub fn is_told_still(word: &AtomicU64, number: u64) -> bool {
    if !sings(Canary::PlaceReader) {
        fence(Acquire); // (C) pairs with (B)
    }
    word.load(Relaxed) == number
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_there_from_when_it_is_told_until_it_ends() {
        let word = AtomicU64::new(0);
        assert!(!is_told(&word, 5));
        tell(&word, 5);
        assert!(is_told(&word, 5) && is_told_still(&word, 5) && !is_told(&word, 4));
        end(&word);
        ended();
        assert!(!is_told(&word, 5) && !is_told_still(&word, 5));
    }
}
