//! The context in which a command is executed.

use crate::core::Core;
use crate::execute::redis::Asking;
use crate::stream::connection::Connection;
use laneway_transport::Transport;

impl<T: Transport> Core<T> {
    /// What a command about `key` is executed in.
    pub(crate) fn asking(&self, connection: &mut Connection<T::Stream>, key: &[u8]) -> Asking<'_> {
        let version = connection.session().version;
        Asking { context: self.context_here(key), version }
    }

    /// Whether items are kept durably.
    pub(crate) fn keeps(&self) -> bool {
        self.shared.durable.get().is_some()
    }
}
