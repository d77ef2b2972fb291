//! Decides by the size of an item whether this worker stores it or the connection moves to a large
//! worker. It serves the designs in which the worker that received a request executes it.

use crate::core::Core;
use laneway_policy::{Design, ItemBytes, Route, route};
use laneway_transport::Transport;

/// What becomes of an item of this size.
pub(crate) enum Sized {
    /// It is served here.
    Here(Route),
    /// Its connection moves.
    Hand,
    /// No item is that large.
    TooLarge,
}

impl<T: Transport> Core<T> {
    /// What becomes of an item with a value of so many bytes.
    pub(crate) fn sized(&self, key: &[u8], flags: u32, value_bytes: usize) -> Sized {
        if !self.limits.item_fits(key.len(), flags, value_bytes) {
            return Sized::TooLarge;
        }
        let route = route(&self.plan, self.id, ItemBytes((key.len() + value_bytes) as u64));
        let moves = matches!(route, Route::Hand(_)) && self.plan.design == Design::Lanes;
        if moves { Sized::Hand } else { Sized::Here(route) }
    }

    /// The same by RESP, where one that is too large is counted here.
    pub(crate) fn resp_sized(&self, key: &[u8], value_bytes: usize) -> Sized {
        let sized = self.sized(key, 0, value_bytes);
        if matches!(sized, Sized::TooLarge) {
            self.counters().store_too_large.bump_owner();
        }
        sized
    }
}
