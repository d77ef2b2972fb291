//! Hands a value that was found to whoever copies it to a place of their own: out of the answer, or
//! out of memory that the server shares, where it lies.

use laneway_rdma::shmring::LyingReply;
use std::ops::Range;

/// The bytes of a value, to be copied.
pub struct Found<'a>(At<'a>);

enum At<'a> {
    Here(&'a [u8]),
    Lying(&'a LyingReply<'a>, Range<usize>),
}

impl<'a> Found<'a> {
    /// Those of an answer.
    pub(crate) fn here(bytes: &'a [u8]) -> Found<'a> {
        Found(At::Here(bytes))
    }

    /// Those in such a range of a reply.
    pub(crate) fn lying(reply: &'a LyingReply<'a>, range: Range<usize>) -> Found<'a> {
        Found(At::Lying(reply, range))
    }

    /// How many.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            At::Here(bytes) => bytes.len(),
            At::Lying(_, range) => range.len(),
        }
    }

    /// All of them, where they lie in memory of this process alone.
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.0 {
            At::Here(bytes) => Some(bytes),
            At::Lying(..) => None,
        }
    }

    /// Fills `out` with those from `from` on.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn copy(&self, from: usize, out: &mut [u8]) {
        match &self.0 {
            At::Here(bytes) => out.copy_from_slice(&bytes[from..from + out.len()]),
            At::Lying(reply, range) => {
                assert!(out.len() <= range.len().saturating_sub(from), "beyond its end");
                reply.copy(range.start + from, out);
            }
        }
    }
}

/// What became of a value that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got<T> {
    /// What was made of its bytes.
    pub taken: T,
    /// As in [`crate::Value`].
    pub flags: u32,
    /// As in [`crate::Value`].
    pub cas: Option<u64>,
}
