//! A few words that somebody posts now and then, whole, and many read: each reader takes a copy
//! when the version has changed, and never waits.
//!
//! The words lie behind a [`Version`]: a post enters it, so that two of them cannot mix; a read
//! that meets a post is void and leaves the reader what it knew. Whoever reads again later has the
//! newer words. All orderings are those of the version; the words themselves are relaxed.
//!
//! It knows nothing of what the words say.

use crate::canary::{Canary, sings};
use crate::prim::{AtomicU64, Ordering::Relaxed};
use crate::version::Version;

/// The words.
#[derive(Debug)]
pub struct Notice {
    version: Version,
    len: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Notice {
    /// An empty notice with room for so many words.
    pub fn new(words_max: usize) -> Notice {
        Notice {
            version: Version::new(),
            len: AtomicU64::new(0),
            words: (0..words_max).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Replace the words.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn post(&self, words: &[u64]) {
        self.assert_room(words);
        self.write(self.version.enter(), words);
    }

    /// The same, unless somebody else is just replacing them. Tells whether it was done.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn try_post(&self, words: &[u64]) -> bool {
        self.assert_room(words);
        let Some(before) = self.version.try_enter() else { return false };
        self.write(before, words);
        true
    }

    fn assert_room(&self, words: &[u64]) {
        assert!(words.len() <= self.words.len(), "a notice of {} words", words.len());
    }

    fn write(&self, before: u64, words: &[u64]) {
        self.len.store(words.len() as u64, Relaxed);
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Relaxed);
        }
        self.version.leave(before);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn enter_for_test(&self) -> u64 {
        self.version.enter()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn leave_for_test(&self, before: u64) {
        self.version.leave_unchanged(before);
    }

    /// Copy the words if they are not those of version `known`; its version then. `None` if they
    /// are, or if they are just being replaced: `copy` is of no use then. Nothing was posted at
    /// version 0.
    #[inline]
    pub fn read(&self, known: u64, copy: &mut Vec<u64>) -> Option<u64> {
        let version = self.version.read_begin()?;
        if version == known {
            return None;
        }
        self.copy(version, copy)
    }

    #[cold]
    fn copy(&self, version: u64, copy: &mut Vec<u64>) -> Option<u64> {
        // The length may be that of another post: bounded here, and checked with the rest.
        let len = (self.len.load(Relaxed) as usize).min(self.words.len());
        copy.clear();
        copy.extend(self.words[..len].iter().map(|word| word.load(Relaxed)));
        let is_whole = self.version.validate(version) || sings(Canary::NoticeCheck);
        is_whole.then_some(version)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_posted_is_read_once_and_whole() {
        let notice = Notice::new(4);
        let mut copy = Vec::new();
        assert_eq!(notice.read(0, &mut copy), None);
        notice.post(&[1, 2, 3]);
        let first = notice.read(0, &mut copy).expect("it is new");
        assert_eq!(copy, [1, 2, 3]);
        assert_eq!(notice.read(first, &mut copy), None);
        notice.post(&[4]);
        notice.post(&[]);
        let third = notice.read(first, &mut copy).expect("it is new");
        assert!(copy.is_empty() && third != first);
    }

    #[test]
    #[should_panic(expected = "a notice of 3 words")]
    fn more_words_than_there_is_room_for_are_a_bug() {
        Notice::new(2).post(&[1, 2, 3]);
    }
}
