//! What a command is executed in, and when.

use crate::connection::Connection;
use crate::core::Core;
use crate::execute::Context;
use crate::execute::redis::Asking;
use laneway_policy::Design;
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
        let context = self.context_for(touched, key);
        // Only connections move: in a rival design what is large is read here.
        let large_from =
            if self.plan.design == Design::Lanes { context.large_from } else { u64::MAX };
        Asking {
            context: Context { large_from, ..context },
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
