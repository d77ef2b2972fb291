//! The UDP side of the load generator: memcached's frames, towards one port that everyone shares
//! (`-U`) or towards a port for each queue of the server, of which the client chooses one: any for
//! a GET, that of the key's owner for a PUT (Minos §4.1).
//!
//! In the order a request meets it: [`sender`] (when), [`peers`] (to which port), [`flows`] (the
//! flows), [`mod@line`] (what one goes by: a socket, [`memory`] shared with the server, or a
//! connection over RDMA, [`remote`]),
//! [`upload`] (a request of many datagrams), [`socket`] (bursts to and from the kernel), [`flight`]
//! (which request a datagram answers), [`reply`] (whether every byte of it is right).
//!
//! Whatever is sent is answered or lost, and both are counted: a request without a whole reply when
//! its time is up is given up, never sent again, and counts with that time as its latency, so that
//! losing the slow ones improves no percentile. It departs from the clients of Minos, which write
//! by UDP too: memcached refuses requests of many datagrams, so towards it large SETs go by TCP.

pub mod endpoint;
pub mod flight;
pub mod flows;
pub mod line;
pub mod memory;
pub mod peers;
pub mod remote;
pub mod reply;
pub mod sender;
pub mod socket;
pub mod upload;

use crate::recorder::summed;
use peers::Peers;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Which way large SETs go: those that one datagram does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeSets {
    /// In many datagrams, as a server of ours takes them.
    Udp,
    /// Over a few TCP connections, as memcached wants.
    Tcp,
}

/// Where a server gives room in its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// Shared with this host's.
    Memory {
        /// Where it is.
        path: PathBuf,
        /// Clients beside, of the same memory, that ask for nothing.
        idle: usize,
    },
    /// To be written over RDMA.
    Rdma(remote::Way),
}

/// How requests travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// To which ports.
    pub peers: Peers,
    /// The server's door, where its memory is the way: its queues are then those that the ports
    /// stand for.
    pub door: Option<Door>,
    /// The way of large SETs.
    pub large_sets: LargeSets,
    /// When a request without a whole reply is given up.
    pub timeout: Duration,
}

summed! {
    /// What became of everything that was sent over UDP, warm-up included.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Counts {
        /// Requests sent.
        pub sent: u64,
        /// Requests whose whole reply came in time.
        pub answered: u64,
        /// Requests given up. Every request sent is answered or lost.
        pub lost: u64,
        /// Large SETs that went over TCP, and are none of the above.
        pub by_tcp: u64,
        /// Datagrams of replies.
        pub datagrams_received: u64,
        /// Datagrams that came twice.
        pub duplicates: u64,
        /// Datagrams for a request that had been given up.
        pub after_timeout: u64,
        /// Datagrams for no request in flight, or from a port that it was not sent to.
        pub stray: u64,
        /// Datagrams too short for a header, or whose numbers fit no message.
        pub impossible: u64,
        /// Datagrams of a kind that we do not know.
        pub other_kind: u64,
        /// Datagrams by which the server asked for frames of a large SET again.
        pub resends_asked: u64,
        /// Proofs of our address that the server asked for, and got.
        pub cookies: u64,
    }
}
