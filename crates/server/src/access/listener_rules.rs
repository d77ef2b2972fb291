//! What holds of the connections of one listener, whoever they are of.

use crate::access::client_limits::{Bucket, ClientLimits, LimitOf};
use crate::settings::Rules;
use crate::stream::connection::Connection;
use std::sync::Arc;

/// The rules of a listener that is open.
#[derive(Debug, Clone, Default)]
pub struct ListenerRules {
    /// Who comes there may read, and change nothing.
    pub read_only: bool,
    /// What all who come there have left together, if they are limited.
    pub limit: Option<Arc<Bucket>>,
}

impl ListenerRules {
    /// Those of listeners that are set so, each with a bucket of its own. Made once, for all NUMA
    /// domains together.
    pub fn of(all: &[Rules], limits: &ClientLimits) -> Vec<ListenerRules> {
        let of_one = |rules: &Rules| ListenerRules {
            read_only: rules.read_only,
            limit: limits.listener(rules.rates),
        };
        all.iter().map(of_one).collect()
    }

    /// They hold of this connection, which has come by it.
    pub(crate) fn apply<S>(&self, connection: &mut Connection<S>) {
        connection.read_only = self.read_only;
        connection.buckets[LimitOf::Listener as usize].clone_from(&self.limit);
    }
}
