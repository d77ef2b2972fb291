//! The differences between the protocols where a turn goes through its input; the loop in `receive`
//! is the same for all of them.

use crate::core::Core;
use crate::stream::connection::Connection;
use crate::stream::step::Step;
use crate::stream::streams::Streams;
use laneway_transport::Transport;

/// How many requests a turn may begin, and how many it has begun.
pub(crate) struct Quota {
    pub most: usize,
    pub begun: usize,
    /// How many of these are pairs of an `MSET`.
    pub pairs: usize,
    /// How many such requests have begun: they are not counted among these.
    pub of_pairs: usize,
    /// Bytes that the last step took and that do not stand in the buffer.
    pub taken_beside: usize,
}

impl Quota {
    /// A turn that may begin so many.
    pub fn of(most: usize) -> Quota {
        Quota { most, begun: 0, pairs: 0, of_pairs: 0, taken_beside: 0 }
    }

    /// Requests that have begun, those of several pairs once.
    pub fn requests(&self) -> usize {
        self.begun - self.pairs + self.of_pairs
    }

    /// How many more may begin.
    pub fn left(&self) -> usize {
        self.most - self.begun
    }
}

/// What the protocols differ in.
pub(crate) trait Protocol<T: Transport> {
    /// Whether nothing is left of what was received; `rest` is what stands in the buffer.
    #[inline]
    fn is_dry(_: &mut Connection<T::Stream>, rest: &[u8]) -> bool {
        rest.is_empty()
    }

    /// Serve one request, or what there is of one; where several are read at once, those behind it
    /// too. `quota` counts what has begun.
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step;
}
