//! A worker notes its large and slow requests ([`crate::latency::noted`]), as it records how long
//! they took.

use crate::core::Core;
use crate::latency::PendingLatencies;
use crate::stream::connection::Connection;
use laneway_policy::route::lane;
use laneway_policy::{ItemBytes, Lane};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use std::net::SocketAddr;

impl<T: Transport> Core<T> {
    /// Note what a connection has been answered just now.
    #[cold]
    pub(crate) fn note_answered(&self, connection: &mut Connection<T::Stream>, now_nanos: u64) {
        let moved = connection.moved.bytes_in + connection.moved.bytes_out;
        let times = connection.tally.times(now_nanos, self.now.seconds(), moved);
        let key = connection.noted_key.take();
        if times.is_large() && is_planted(Bug::LargeUnnoted) {
            return;
        }
        let noted = &self.shared.workers[self.id.index()].noted;
        let (client, key) = (&connection.card.peer, key.as_deref().unwrap_or_default());
        noted.note_owner(&times, self.shared.slow.nanos(), client, key);
    }

    /// Note what was answered to this peer by datagrams, or to several, if that is notable.
    #[inline]
    pub(crate) fn note_datagrams(
        &self,
        tally: &mut PendingLatencies,
        peer: Option<&SocketAddr>,
        now_nanos: u64,
    ) {
        if tally.is_notable(now_nanos, self.shared.slow.nanos()) {
            self.note_datagrams_of(tally, peer, now_nanos);
        }
    }

    #[cold]
    fn note_datagrams_of(
        &self,
        tally: &mut PendingLatencies,
        peer: Option<&SocketAddr>,
        now_nanos: u64,
    ) {
        let times = tally.times(now_nanos, self.now.seconds(), 0);
        let client = match peer {
            Some(peer) if peer.is_ipv6() => format!("udp6:{peer}"),
            Some(peer) => format!("udp:{peer}"),
            None => "udp".to_owned(), // a batch goes to many
        };
        let noted = &self.shared.workers[self.id.index()].noted;
        noted.note_owner(&times, self.shared.slow.nanos(), &client, b"");
    }

    /// The connection has been served a request for an item of this size: its key is to be told,
    /// if it is large and keys are told at all.
    #[inline]
    pub(crate) fn note_key(&self, connection: &mut Connection<T::Stream>, key: &[u8], size: u64) {
        if self.logs_keys && size > 0 && lane(&self.plan, ItemBytes(size)) == Lane::Large {
            connection.noted_key = Some(key.into());
        }
    }
}
