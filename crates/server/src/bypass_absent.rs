//! What stands in for the way past the kernel's stack in a build without the feature `af-xdp`: it
//! is never open, and whoever asks for it is told how to build it.

use crate::settings::BypassSettings;
use crate::stats::BypassSnapshot;
use laneway_kernel::Error;
use laneway_transport::datagram::{Datagrams, Queue};
use laneway_transport::socket::SocketTransport;
use std::io;

/// The way, which this build cannot open.
#[derive(Debug)]
pub enum Way {}

impl Way {
    /// Says so, and the way out.
    pub fn open(
        settings: &BypassSettings,
        _queues: &[Queue],
        _again: impl FnMut() -> bool,
    ) -> Result<Way, Error> {
        let why = "built without the feature `af-xdp`; build with `cargo build --release \
                   --features af-xdp`, which needs clang (Debian: apt-get install clang)";
        Err(Error::said(format!("--af-xdp {}", settings.interfaces.join(",")), why))
    }

    /// A worker's transport and its handle on the queues, with this way before its sockets.
    pub fn join(
        &self,
        _worker: usize,
        _transport: SocketTransport,
        _sockets: Box<dyn Datagrams>,
    ) -> io::Result<(SocketTransport, Box<dyn Datagrams>)> {
        match *self {}
    }

    /// From now on everything goes up the stack.
    pub fn close(&self) -> Result<(), Error> {
        match *self {}
    }

    /// What it is, in words.
    pub fn told(&self) -> String {
        match *self {}
    }

    /// For `stats kernel`.
    pub fn snapshot(&self) -> BypassSnapshot {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_the_way_says_so_and_how_to_build_it() {
        let settings =
            BypassSettings { interfaces: vec!["eth0".to_owned()], ..BypassSettings::default() };
        let told = Way::open(&settings, &[], || false).expect_err("there is none").to_string();
        assert!(told.contains("--af-xdp eth0: built without the feature `af-xdp`"), "{told}");
        assert!(told.contains("--features af-xdp"), "{told}");
    }
}
