//! What is said of clients on other hosts, in every build: which device and service carries their
//! requests, how much memory there is for them, and what a machine lacks. So flags are read and
//! checked alike whether the build has [`crate::verbs`] or not.
//!
//! Whoever names a device does it as `ibv_devinfo` prints it, with `:PORT` and `:GID` behind it if
//! the first port and the best address will not do.

use std::fmt;
use std::str::FromStr;

/// Slots of a client and lane: HERD's figures at their widest.
pub const WINDOW: usize = 32;
/// Datagrams that a client of [`Service::Datagrams`] may have under way in a lane: their places are
/// everybody's.
pub const WINDOW_DATAGRAMS: usize = 8;
/// TCP port of the door where nobody says another: that of perftest and of the examples of verbs.
pub const DOOR_PORT: u16 = 18515;
/// Replies under way of one worker.
pub const DEPTH: usize = 256;

/// Which device, port and address (`DEVICE[:PORT[:GID]]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The device's name.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Index of the port's address; the best there is if none is said.
    pub gid: Option<u8>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let mut parts = text.split(':');
        let device = parts.next().unwrap_or_default().to_owned();
        // It becomes part of a path.
        if device.is_empty() || device.contains('/') || device.starts_with('.') {
            return Err("write DEVICE, DEVICE:PORT or DEVICE:PORT:GID".into());
        }
        let port = parts.next().map_or(Ok(1), str::parse).ok().filter(|port| *port > 0);
        let port = port.ok_or("a port is a number from 1 to 255")?;
        let gid = parts.next().map(str::parse).transpose();
        let gid =
            gid.map_err(|_| "GID is an index from 0 to 255, as `rdma link` or show_gids has")?;
        match parts.next() {
            Some(_) => Err("write DEVICE, DEVICE:PORT or DEVICE:PORT:GID".into()),
            None => Ok(Place { device, port, gid }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.port)?;
        self.gid.map_or(Ok(()), |gid| write!(f, ":{gid}"))
    }
}

/// How requests are carried: whether their device sees that they arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// UC, HERD's choice: nothing comes back, what is lost is lost silently.
    Unreliable,
    /// RC: the devices acknowledge and repeat.
    Reliable,
    /// UD: no connection. A client costs the device nothing, so thousands may be served; what finds
    /// no place is lost silently.
    Datagrams,
}

impl Service {
    /// Every one.
    pub const ALL: [Service; 3] = [Service::Unreliable, Service::Reliable, Service::Datagrams];

    /// What verbs call it.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Unreliable => "uc",
            Service::Reliable => "rc",
            Service::Datagrams => "ud",
        }
    }
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Service, &'static str> {
        let found = Service::ALL.into_iter().find(|service| service.name() == text);
        found.ok_or("must be uc, rc or ud")
    }
}

/// How a client's memory is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The server's workers.
    pub lanes: usize,
    /// Slots of each: a power of two, so that numbers go on through their end.
    pub window: usize,
}

/// What clients of unreliable connections are granted for their long requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grants {
    /// One of them, at most.
    pub client_bytes: usize,
    /// All of them, of which one address gets half. Who comes when no more is left sends frames.
    pub all_bytes: usize,
}

/// Memory for long messages that a client gives of its own; 0: they go in frames. A wish: where so
/// much may not be locked, there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lending {
    /// For replies.
    pub replies_bytes: usize,
    /// For requests; over unreliable connections the server grants as much, or less.
    pub requests_bytes: usize,
}

impl Lending {
    /// Everything goes in frames.
    pub const NOTHING: Lending = Lending { replies_bytes: 0, requests_bytes: 0 };
    /// Four of the longest values, unless a server is told otherwise.
    pub const USUAL: Lending = Lending { replies_bytes: 4 << 20, requests_bytes: 4 << 20 };
}

/// One thing that RDMA needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What.
    pub name: &'static str,
    /// What is there.
    pub there: String,
    /// Or what is missing, and what to do.
    pub missing: Option<String>,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.missing {
            None => write!(f, "{}: available ({})", self.name, self.there),
            Some(missing) => write!(f, "{}: missing: {missing}", self.name),
        }
    }
}
