//! The last entries that any thread has written, for any number of readers, each at its own pace: a
//! ring of [`Notice`]s. Nobody waits for anybody. A writer that meets another one in its place,
//! which must have been asleep there for a whole round of the ring, leaves its entry out; a reader
//! that is too slow loses entries. Each entry has a number, so a reader knows how many it has not
//! seen.
//!
//! A number says its entry's place, and the entry repeats it: a reader believes nothing else. So
//! the count of numbers orders nothing, and all orderings are those of the notices.
//!
//! It knows nothing of what the entries say.

use crate::canary::{Canary, sings};
use crate::notice::Notice;
use crate::prim::{AtomicU64, Ordering::Relaxed};

/// The entries.
#[derive(Debug)]
pub struct Journal {
    /// Numbers that were drawn, from 0 on.
    drawn: AtomicU64,
    places: Box<[Notice]>,
}

/// What stands under a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The entry; it was copied.
    Entry,
    /// Nothing any more: another entry has its place, or is about to.
    Lost,
    /// Nothing yet: nobody has drawn the number, or its writer is on its way, or was in the way of
    /// nobody and has left it out.
    Nothing,
}

impl Journal {
    /// An empty journal with so many places (at least 1) for entries of `words_max` words, their
    /// number among these.
    pub fn new(places: usize, words_max: usize) -> Journal {
        assert!(places > 0 && words_max > 0, "a journal has a place for something");
        let places = (0..places).map(|_| Notice::new(words_max)).collect();
        Journal { drawn: AtomicU64::new(0), places }
    }

    /// Writes an entry. Its first word is its number, which is put there.
    ///
    /// # Panics
    /// If it has no word, or more than there is room for.
    pub fn write(&self, words: &mut [u64]) {
        let number = self.drawn.fetch_add(1, Relaxed); // see the module
        words[0] = number;
        self.place(number).try_post(words);
    }

    /// The number of the next entry.
    pub fn end(&self) -> u64 {
        self.drawn.load(Relaxed) // see the module
    }

    /// Entries that are remembered.
    pub fn places(&self) -> u64 {
        self.places.len() as u64
    }

    /// Copies the entry of this number, if it is there. Where it is not, `copy` is of no use.
    pub fn read(&self, number: u64, copy: &mut Vec<u64>) -> Found {
        let is_overdue = self.end() > number + self.places();
        let version = self.place(number).read(0, copy);
        match version.and_then(|_| copy.first()) {
            Some(&found) if found == number || sings(Canary::JournalNumber) => Found::Entry,
            Some(&found) if found > number => Found::Lost,
            _ if is_overdue => Found::Lost,
            _ => Found::Nothing,
        }
    }

    fn place(&self, number: u64) -> &Notice {
        &self.places[(number % self.places()) as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_read_by_their_numbers_and_older_ones_are_lost() {
        let journal = Journal::new(3, 2);
        let mut copy = Vec::new();
        assert_eq!((journal.end(), journal.read(0, &mut copy)), (0, Found::Nothing));
        for value in 10..15 {
            journal.write(&mut [0, value]);
        }
        assert_eq!(journal.end(), 5);
        for number in 0..2 {
            assert_eq!(journal.read(number, &mut copy), Found::Lost, "{number}");
        }
        for number in 2..5 {
            assert_eq!(journal.read(number, &mut copy), Found::Entry);
            assert_eq!(copy, [number, number + 10]);
        }
        assert_eq!(journal.read(5, &mut copy), Found::Nothing);
    }

    #[test]
    fn who_finds_its_place_taken_leaves_its_entry_out_and_is_not_waited_for() {
        let journal = Journal::new(1, 1);
        journal.write(&mut [0]);
        let asleep = journal.places[0].enter_for_test();
        journal.write(&mut [0]);
        let mut copy = Vec::new();
        assert_eq!(journal.read(1, &mut copy), Found::Nothing);
        assert_eq!(journal.read(0, &mut copy), Found::Lost);
        journal.places[0].leave_for_test(asleep);
        assert_eq!(journal.read(1, &mut copy), Found::Nothing, "it was left out");
        journal.write(&mut [0]);
        assert_eq!(
            (journal.read(1, &mut copy), journal.read(2, &mut copy)),
            (Found::Lost, Found::Entry)
        );
    }
}
