//! The context in which a command is executed.

use crate::core::Core;
use crate::execute::redis::Asking;
use crate::stream::connection::Connection;
use laneway_transport::Transport;
use std::cell::Cell;

impl<T: Transport> Core<T> {
    /// What a command about `key` is executed in.
    pub(crate) fn asking<'a>(
        &'a self,
        connection: &mut Connection<T::Stream>,
        touched: &'a Cell<u64>,
        key: &[u8],
    ) -> Asking<'a> {
        let version = connection.session().version;
        Asking { context: self.context_here(touched, key), version }
    }

    /// Whether items are kept durably.
    pub(crate) fn keeps(&self) -> bool {
        self.shared.durable.get().is_some()
    }
}
