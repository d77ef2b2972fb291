//! What a command is executed in, and when.

use crate::connection::Connection;
use crate::core::Core;
use crate::execute::redis::Asking;
use laneway_transport::Transport;
use std::cell::Cell;

impl<T: Transport> Core<T> {
    /// What a command about `key` is executed in.
    pub(crate) fn asking<'a>(
        &'a self,
        connection: &mut Connection<T::Stream>,
        touched: &'a Cell<u64>,
        key: &[u8],
        arrived: u64,
    ) -> Asking<'a> {
        Asking {
            context: self.context_here(touched, key),
            version: connection.session().version,
            now_ms: self.now_ms(arrived),
        }
    }

    /// Whether items are kept durably.
    pub(crate) fn keeps(&self) -> bool {
        self.shared.durable.get().is_some()
    }

    /// The unix millisecond of that moment.
    pub(crate) fn now_ms(&self, nanos: u64) -> u64 {
        self.clock.unix_nanos(nanos) / 1_000_000
    }
}
