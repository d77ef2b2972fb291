//! `stats topology`: where a client that knows us may send what. `stats conns`: who is there.

use super::lines::Lines;
use laneway_policy::owner::HASH_NAME;
use laneway_policy::{Access, Placement};

/// One worker's place.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerPlace {
    /// UDP port of its queue, if it has one.
    pub udp_port: Option<u16>,
    /// Its NUMA domain.
    pub domain: u16,
}

/// What `stats topology` tells.
#[derive(Debug, Clone, Default)]
pub struct TopologySnapshot {
    /// TCP ports listened on.
    pub tcp_ports: Vec<u16>,
    /// Path of the unix socket.
    pub unix_path: Option<String>,
    /// Path of the door for clients in memory.
    pub shm_path: Option<String>,
    /// TCP port where clients over RDMA say who they are.
    pub rdma_port: Option<u16>,
    /// Where datagrams are taken.
    pub udp_address: Option<String>,
    /// First UDP port of the queues; queue i is at this port + i.
    pub udp_port_base: Option<u16>,
    /// UDP port that all workers share.
    pub udp_port: Option<u16>,
    /// Receive queues.
    pub queues: u64,
    /// Where keys belong, if clients are to send them there themselves. Its seed is not that of the
    /// index, which is told to nobody, since it guards against keys made to collide.
    pub placement: Option<Placement>,
    /// Who may serve a key: a client that knows sends reads to its owner, too (EREW).
    pub access: Option<Access>,
    /// The workers, by number.
    pub workers: Vec<WorkerPlace>,
}

/// Answer `stats topology`.
pub fn write_topology(snapshot: &TopologySnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for port in &snapshot.tcp_ports {
        lines.number("tcp_port", (*port).into());
    }
    if let Some(path) = &snapshot.unix_path {
        lines.text("unix_path", path);
    }
    if let Some(path) = &snapshot.shm_path {
        lines.text("shm_path", path);
    }
    if let Some(port) = snapshot.rdma_port {
        lines.number("rdma_port", port.into());
    }
    if let Some(address) = &snapshot.udp_address {
        lines.text("udp_address", address);
    }
    if let Some(port) = snapshot.udp_port_base {
        lines.number("udp_port_base", port.into());
    }
    if let Some(port) = snapshot.udp_port {
        lines.number("udp_port", port.into());
    }
    lines.number("queues", snapshot.queues);
    if let Some(placement) = &snapshot.placement {
        lines.text("hash", HASH_NAME);
        lines.shown("hash_seed", format_args!("{:016x}", placement.seed()));
        lines.number("domains", placement.domains().into());
    }
    if let Some(access) = snapshot.access {
        lines.text("access", access.name());
    }
    lines.number("workers", snapshot.workers.len() as u64);
    for (index, worker) in snapshot.workers.iter().enumerate() {
        if let Some(port) = worker.udp_port {
            lines.number(&format!("worker:{index}:udp_port"), port.into());
        }
        if snapshot.workers.iter().any(|one| one.domain > 0) {
            lines.number(&format!("worker:{index}:domain"), worker.domain.into());
        }
    }
    lines.end();
}

/// One line group of `stats conns`: a listener or a connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionSnapshot {
    /// Its number (memcached: the file descriptor).
    pub number: u64,
    /// Peer, or the address listened on, in memcached's notation: `tcp:127.0.0.1:11211`.
    pub address: String,
    /// The address it came in by; `None` for a listener.
    pub listen_address: Option<String>,
    /// A socket for datagrams, which no client has for its own.
    pub datagrams: bool,
    /// What it is doing, in memcached's words: `conn_listening`, `conn_read`...
    pub state: &'static str,
    /// Seconds since its last request.
    pub idle_seconds: u64,
    /// In the large lane now.
    pub large: bool,
}

/// One connection of `stats conns`.
pub fn write_connection(connection: &ConnectionSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    let name = |what: &str| format!("{}:{what}", connection.number);
    if connection.datagrams {
        lines.text(&name("UDP"), "UDP");
    }
    lines.text(&name("addr"), &connection.address);
    if let Some(address) = &connection.listen_address {
        lines.text(&name("listen_addr"), address);
    }
    lines.text(&name("state"), connection.state);
    lines.number(&name("secs_since_last_cmd"), connection.idle_seconds);
    if connection.large {
        lines.text(&name("lane"), "large");
    }
}
