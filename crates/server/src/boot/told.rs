//! What a running server reports of itself: where it listens, and whether its workers make turns.

use super::{Server, ServerStream};
use crate::shared::{Phase, Shared};
use laneway_transport::socket::Listener;
use std::net::SocketAddr;
use std::sync::Arc;

impl Server {
    /// Where it listens for memcached's clients, with the ports that the kernel chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners[..self.resp_from()].iter().filter_map(Listener::address).collect()
    }

    /// The same where nothing but RESP is spoken.
    pub fn resp_addresses(&self) -> Vec<SocketAddr> {
        self.listeners[self.resp_from()..].iter().filter_map(Listener::address).collect()
    }

    /// Where it listens for memcached's clients that encrypt.
    pub fn tls_addresses(&self) -> Vec<SocketAddr> {
        self.handshakes.iter().flat_map(|running| running.addresses(false)).collect()
    }

    /// The same where nothing but RESP is spoken.
    pub fn tls_resp_addresses(&self) -> Vec<SocketAddr> {
        self.handshakes.iter().flat_map(|running| running.addresses(true)).collect()
    }

    /// Of all these, those where nothing may be changed.
    pub fn read_only_addresses(&self) -> Vec<SocketAddr> {
        let shared = &self.domains[0];
        let all = self.listeners.iter().enumerate();
        let plain = all.filter(|(number, _)| shared.is_read_only(*number));
        let plain = plain.filter_map(|(_, listener)| listener.address());
        plain.chain(self.handshakes.iter().flat_map(|tls| tls.read_only_addresses())).collect()
    }

    /// The unix sockets that it listens on, each with the words that stand before an address.
    pub fn unix_places(&self) -> Vec<String> {
        let shared = &self.domains[0];
        let all = self.listeners.iter().enumerate();
        let unix = all.filter(|(_, listener)| listener.address().is_none());
        let told = unix.map(|(number, listener)| {
            let read_only = if shared.is_read_only(number) { "readonly:" } else { "" };
            let resp = if number >= self.resp_from() { "resp:" } else { "" };
            let name = listener.name().unwrap_or_else(|| "unix:".to_owned());
            format!("{read_only}{resp}{}", name.trim_start_matches("unix:"))
        });
        told.collect()
    }

    fn resp_from(&self) -> usize {
        self.domains[0].resp_from.get().copied().unwrap_or(self.listeners.len())
    }

    /// Where clients over RDMA say who they are.
    pub fn rdma_addresses(&self) -> &[SocketAddr] {
        &self.rdma_addresses
    }

    /// What its workers share; of several NUMA domains, those of the first one.
    pub fn shared(&self) -> &Arc<Shared<ServerStream>> {
        &self.domains[0]
    }

    /// Reads a number of each worker that grows every few seconds as long as the worker makes
    /// turns, whoever calls it and when; none once the workers are told to leave.
    pub fn turns(&self) -> impl Fn() -> Vec<u64> + Send + 'static {
        let domains = self.domains.clone();
        move || {
            let serving = domains.iter().filter(|shared| shared.phase() != Phase::Stopped);
            let workers = serving.flat_map(|shared| shared.workers.iter());
            workers.map(|worker| worker.turns.get()).collect()
        }
    }
}
