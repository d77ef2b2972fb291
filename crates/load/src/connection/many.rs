//! The replies to a GET of several keys: which of them came, and whether each is right.

use crate::connection::Outcome;
use crate::workload::Key;
use std::collections::VecDeque;

/// What came so far of a GET of several keys.
#[derive(Debug)]
pub(crate) struct Many {
    /// Keys that have no reply yet, in the order asked.
    left: VecDeque<Key>,
    hits: u16,
    misses: u16,
    value_bytes: u64,
    wrong: Option<&'static str>,
}

impl Many {
    /// Nothing, so far.
    pub(crate) fn new(keys: impl Iterator<Item = Key>) -> Self {
        Many { left: keys.collect(), hits: 0, misses: 0, value_bytes: 0, wrong: None }
    }

    /// A value whose key stands in the reply: keys before it were missed. Nothing where the key is
    /// none of those that are left.
    pub(crate) fn named(&mut self, is: impl Fn(Key) -> bool) -> Option<Key> {
        let at = self.left.iter().position(|&key| is(key))?;
        self.misses += at as u16;
        self.left.drain(..at);
        self.left.pop_front()
    }

    /// A value in its turn.
    pub(crate) fn next(&mut self) -> Option<Key> {
        self.left.pop_front()
    }

    /// The next key in turn is not there.
    pub(crate) fn missed(&mut self) {
        self.misses += u16::from(self.left.pop_front().is_some());
    }

    /// A value was read to its end.
    pub(crate) fn read(&mut self, value_bytes: u64, wrong: Option<&'static str>) {
        self.wrong = self.wrong.or(wrong);
        self.hits += 1;
        self.value_bytes += value_bytes;
    }

    /// Whether every key has its reply.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.is_empty()
    }

    /// No more replies come.
    pub(crate) fn end(&self) -> Outcome {
        match self.wrong {
            Some(wrong) => Outcome::Corrupt(wrong),
            None => Outcome::Many {
                hits: self.hits,
                misses: self.misses + self.left.len() as u16,
                value_bytes: self.value_bytes,
            },
        }
    }
}
