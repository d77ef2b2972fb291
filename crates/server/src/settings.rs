//! The checked settings with which a server is started. Flags are parsed elsewhere.

use crate::access::client_limits::Rates;
use crate::access::recognise::Beside;
use laneway_policy as policy;
use laneway_tls::Told;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use crate::auth::gate::Auth;
pub use crate::auth::users::Users;
pub use laneway_kernel::layout::Range;
pub use laneway_rdma::layout::LANES_MAX;
pub use laneway_rdma::verbs::look::look;
pub use laneway_rdma::verbs::{ClientLimits, DOOR_PORT, Place, SLOTS};
pub use laneway_tls::{Acceptor, Files, Identity, Terms, Verify};

/// What is logged at `-v` so many times: by itself starts, stops and warnings, then settings and
/// changes of roles, then each connection.
pub fn log_level(verbosity: u32) -> log::LevelFilter {
    match verbosity {
        0 => log::LevelFilter::Info,
        1 | 2 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    }
}

/// What an idle worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Polls on and never sleeps.
    Spin,
    /// Polls on for a moment when requests come faster than a sleep and a wake-up cost, else
    /// sleeps.
    Adaptive,
    /// Sleeps at once.
    Block,
}

/// Where UDP is served, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpSettings {
    /// The address of its sockets.
    pub address: IpAddr,
    /// One port per worker from here on: the client picks the queue (Minos §4.1).
    pub port_base: Option<u16>,
    /// One port for all workers, among whom the kernel spreads the peers (memcached's `-U`).
    pub port: Option<u16>,
    /// Strangers may ask: a peer that has not shown that its address is its own gets little for
    /// little.
    pub public: bool,
}

/// Where clients on this host get memory to write their requests into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShmSettings {
    /// The unix socket of the door, and its permission bits: whoever may open it may be a client.
    pub path: PathBuf,
    /// See above.
    pub mode: u32,
    /// Clients at a time.
    pub clients_max: usize,
}

/// Whether the server gives up what it does not need of the machine (`--sandbox`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// It keeps what its user may do.
    #[default]
    Off,
    /// It keeps it, and the kernel logs system calls that would be refused.
    Log,
    /// It has the files and the system calls that serving takes, and no others.
    On,
}

impl Sandbox {
    /// As the flag names it.
    pub fn name(self) -> &'static str {
        match self {
            Sandbox::Off => "off",
            Sandbox::Log => "log",
            Sandbox::On => "on",
        }
    }
}

/// What holds of all clients of a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// They may read, and change nothing.
    pub read_only: bool,
    /// What they may ask for together.
    pub rates: Rates,
}

impl Rules {
    /// What either of the two lets through.
    pub fn looser(self, other: Rules) -> Rules {
        let read_only = self.read_only && other.read_only;
        Rules { read_only, rates: self.rates.looser(other.rates) }
    }
}

/// As they are written before an address.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.read_only { "readonly:" } else { "" })?;
        let (requests, bytes) = self.rates.per_second();
        for (word, per_second) in [("rate", requests), ("bytes", bytes)] {
            if per_second > 0 {
                write!(f, "{word}={per_second}:")?;
            }
        }
        Ok(())
    }
}

/// A TCP address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// It.
    pub address: SocketAddr,
    /// What holds of who comes there.
    pub rules: Rules,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.rules, self.address)
    }
}

/// Which ports Redis' clients may come by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespSettings {
    /// Those of memcached's clients: the first bytes of a connection tell.
    pub shared: bool,
    /// TCP addresses where nothing else is spoken.
    pub addresses: Vec<Port>,
}

impl Default for RespSettings {
    fn default() -> Self {
        RespSettings { shared: true, addresses: Vec::new() }
    }
}

/// Where connections are encrypted.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// What is shown to clients; replaced while the server runs.
    pub acceptor: Arc<Acceptor>,
    /// Where that was read from.
    pub files: Files,
    /// TCP addresses where what comes is encrypted.
    pub addresses: Vec<Port>,
    /// The same where nothing but RESP is spoken.
    pub resp_addresses: Vec<Port>,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// Handshakes under way at once.
    pub handshakes_max: usize,
}

/// Connections that wait between their handshake and a worker, at most; as many more may be on
/// their way to where they wait as the threads that make handshakes take at once.
pub(crate) const GUESTS_MAX: usize = 128;
const GUESTS_ON_THEIR_WAY: usize = 64;

impl TlsSettings {
    /// Connections that no worker has yet, at most.
    pub fn guests_max(&self) -> usize {
        self.handshakes_max + self.handshakes_max.min(GUESTS_MAX + GUESTS_ON_THEIR_WAY)
    }
}

/// Which of memcached's protocols are served by the ports that are not RESP's alone (`-B`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Binding {
    /// Both: the first byte of a connection tells.
    #[default]
    Auto,
    /// The text protocol.
    Ascii,
    /// The binary protocol, and nothing else.
    Binary,
}

impl Binding {
    /// memcached's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Auto => "auto-negotiate",
            Binding::Ascii => "ascii",
            Binding::Binary => "binary",
        }
    }
}

/// Clients over RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaSettings {
    /// The device.
    pub place: Place,
    /// TCP addresses where clients say who they are.
    pub addresses: Vec<SocketAddr>,
    /// Clients at a time.
    pub limits: ClientLimits,
}

/// What of the kernel a server was asked to use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelSettings {
    /// Answer GETs below the socket.
    pub lane: Option<LaneSettings>,
    /// Receive datagrams past the stack.
    pub bypass: Option<BypassSettings>,
    /// Steer the keys of the ordinary UDP port to their owners' sockets, where that is allowed.
    pub steer: bool,
}

impl KernelSettings {
    /// Whether a program is to be loaded, and so whether there are capabilities to give up.
    pub fn is_any(&self) -> bool {
        self.lane.is_some() || self.bypass.is_some() || self.steer
    }
}

/// Where datagrams are received past the kernel's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BypassSettings {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// The kernel copies packets even where the card could move them itself.
    pub copy: bool,
    /// Workers have the card's driver look for packets, where the kernel lets them.
    pub busy_poll: bool,
}

/// Where the lane is, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSettings {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// At the driver's hook rather than at tc ingress.
    pub xdp: bool,
    /// Memory for items that it serves; part of the memory for all items.
    pub items_bytes: u64,
    /// Who is served; empty: who is on the interfaces' links.
    pub peers: Vec<Range>,
    /// Megabits of replies in a second to one address, on one CPU, elsewhere than at the loopback;
    /// 0: no limit.
    pub rate_megabits: u32,
}

impl LaneSettings {
    /// Whether the kernel would join datagrams of one sender (GRO) before the lane's program sees
    /// them, which then could answer none. It does at tc, where they come from a card.
    pub fn is_behind_joining(&self) -> bool {
        !self.xdp && self.interfaces.iter().any(|name| name != "lo")
    }
}

/// A NUMA domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainSettings {
    /// Where its workers run; anywhere if it has none.
    pub cpus: Vec<usize>,
    /// Where its memory is; where it is first touched if that is not said.
    pub node: Option<u32>,
}

/// Everything a server needs to know before it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Worker threads.
    pub workers: usize,
    /// TCP addresses to listen on, where nothing is encrypted.
    pub addresses: Vec<Port>,
    /// Unix socket to listen on instead, and its permission bits.
    pub unix: Option<(PathBuf, u32)>,
    /// Who may ask, where not everybody may (`-Y`).
    pub auth: Option<Arc<Auth>>,
    /// Redis' protocol.
    pub resp: RespSettings,
    /// TLS, where it is spoken.
    pub tls: Option<TlsSettings>,
    /// memcached's protocols (`-B`).
    pub binding: Binding,
    /// UDP, where it is served.
    pub udp: Option<UdpSettings>,
    /// Clients in memory, where they are served.
    pub shm: Option<ShmSettings>,
    /// Clients over RDMA, where they are served.
    pub rdma: Option<RdmaSettings>,
    /// Kernel queue of connections not yet accepted (`-b`).
    pub backlog: i32,
    /// Most connections at a time (`-c`).
    pub connections_max: usize,
    /// Largest item (`-I`), bytes.
    pub item_bytes_max: usize,
    /// Memory for items (`-m`), bytes.
    pub memory_bytes: u64,
    /// Answer "out of memory" instead of evicting (`-M`).
    pub store_mode: bool,
    /// Items lie on huge pages (`-L`), as the index does anyway.
    pub huge_pages: bool,
    /// CAS ids are kept (`-C` turns them off).
    pub cas: bool,
    /// `flush_all` is allowed (`-F` forbids it).
    pub flush: bool,
    /// `stats cachedump` is allowed (`-X` forbids it).
    pub dump: bool,
    /// `watch` is allowed (`-W` and `-X` forbid it).
    pub watch: bool,
    /// The `shutdown` command is allowed (`-A`).
    pub shutdown: bool,
    /// How verbose (`-v` times).
    pub verbosity: u32,
    /// Close connections on which nothing came for so long; zero never.
    pub idle_timeout: Duration,
    /// What an idle worker does.
    pub idle: Idle,
    /// Time between two plans.
    pub epoch: Duration,
    /// How long a stopping server lets requests under way finish.
    pub drain: Duration,
    /// What of the kernel it uses.
    pub kernel: KernelSettings,
    /// The NUMA domains; none given is one.
    pub domains: Vec<DomainSettings>,
    /// Goes into the sketches that find hot keys and into the hashes of datagrams; random, and told
    /// to nobody.
    pub secret_seed: u64,
    /// Requests that take so long are logged; none are where it is not said.
    pub slow: Option<Duration>,
    /// Keys of large requests are told, in the log and to clients.
    pub log_keys: bool,
    /// Most connections of one address at a time; 0 for any number.
    pub connections_per_address: usize,
    /// What the clients of an address may ask for.
    pub client_rates: Rates,
    /// What it gives up of the machine.
    pub sandbox: Sandbox,
    /// The policy's own settings.
    pub policy: policy::Settings,
}

impl Settings {
    /// What is spoken beside memcached's text, where a connection's first bytes tell.
    pub fn beside(&self) -> Beside {
        Beside { resp: self.resp.shared, binary: self.binding == Binding::Auto }
    }

    /// How many of its ports are read-only.
    pub fn read_only_ports(&self) -> usize {
        self.ports().filter(|port| port.rules.read_only).count()
    }

    /// How many of its ports have a limit of their own.
    pub fn limited_ports(&self) -> usize {
        self.ports().filter(|port| port.rules.rates.is_any()).count()
    }

    fn ports(&self) -> impl Iterator<Item = &Port> {
        let tls = self.tls.iter().flat_map(|tls| tls.addresses.iter().chain(&tls.resp_addresses));
        self.addresses.iter().chain(&self.resp.addresses).chain(tls)
    }

    /// What is told of TLS, where it is spoken.
    pub fn tls_told(&self) -> Option<Told> {
        self.tls.as_ref().map(|tls| tls.acceptor.told())
    }
}
