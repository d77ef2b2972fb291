//! What is said of clients on other hosts, in every build: which device and service carries their
//! requests, how much memory there is for them, and what a machine lacks. So flags are read and
//! checked alike whether the build has [`crate::verbs`] or not.
//!
//! Whoever names a device does it as `ibv_devinfo` prints it, with `:PORT` and `:GID` behind it if
//! the first port and the best address will not do.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Slots of a client and lane: HERD's figures at their widest.
pub const WINDOW: usize = 32;
/// Clients that have slots at a time, where nobody says another number.
pub const SLOTS: usize = 64;
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

    /// What who leaves the choice to the server says.
    pub const ANY: &str = "any";

    /// From what somebody wants: nothing if that is the server's choice.
    pub fn wanted(text: &str) -> Result<Option<Service>, &'static str> {
        match text {
            Service::ANY => Ok(None),
            text => text.parse().map(Some).map_err(|_| "must be any, uc, rc or ud"),
        }
    }

    /// What [`Self::wanted`] understands.
    pub fn name_of(wanted: Option<Service>) -> &'static str {
        wanted.map_or(Service::ANY, Service::name)
    }

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

/// How many clients there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// All of them.
    pub clients: usize,
    /// Those that have slots. Others send their requests.
    pub slots: usize,
}

impl ClientLimits {
    /// How a client is served that asks for a service, or for any, and comes from an address; or
    /// why it is not. `writers` are the addresses of those that have slots: one address gets half
    /// of these at most, as it does of all places.
    pub fn service(
        &self,
        wanted: Option<Service>,
        from: Option<IpAddr>,
        writers: &[Option<IpAddr>],
    ) -> Result<Service, String> {
        if wanted == Some(Service::Datagrams) {
            return Ok(Service::Datagrams);
        }
        let (most, share) = (self.slots, self.slots.div_ceil(2));
        let there = writers.iter().filter(|writer| **writer == from).count();
        let why = match from {
            _ if writers.len() >= most => format!("{most} clients have slots already"),
            Some(from) if there >= share => format!("{share} clients of {from} have slots already"),
            _ => return Ok(wanted.unwrap_or(Service::Unreliable)),
        };
        match wanted {
            None => Ok(Service::Datagrams),
            Some(_) => Err(format!("{why}: say ud or any, or raise --rdma-slots")),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const OTHER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn who_asks_for_no_service_gets_slots_while_there_are_some_and_sends_beyond() {
        let limits = ClientLimits { clients: 100, slots: 4 };
        let mut writers = Vec::new();
        // One address has half of them, another the rest, and a third none.
        for (from, expected) in [
            (ONE, Service::Unreliable),
            (ONE, Service::Unreliable),
            (ONE, Service::Datagrams),
            (OTHER, Service::Unreliable),
            (OTHER, Service::Unreliable),
            (OTHER, Service::Datagrams),
            (None, Service::Datagrams),
        ] {
            assert_eq!(limits.service(None, from, &writers), Ok(expected), "{writers:?}");
            if expected == Service::Unreliable {
                writers.push(from);
            }
        }
        // One that leaves makes room.
        writers.remove(0);
        assert_eq!(limits.service(None, ONE, &writers), Ok(Service::Unreliable));
        assert_eq!(limits.service(None, OTHER, &writers), Ok(Service::Datagrams));
        assert_eq!(limits.service(None, None, &writers), Ok(Service::Unreliable));
    }

    #[test]
    fn who_asks_for_a_service_gets_that_or_is_told_why_not() {
        let limits = ClientLimits { clients: 100, slots: 2 };
        for wanted in Service::ALL {
            assert_eq!(limits.service(Some(wanted), ONE, &[]), Ok(wanted));
        }
        for wanted in [Service::Unreliable, Service::Reliable] {
            let told = limits.service(Some(wanted), ONE, &[ONE]).expect_err("it has its share");
            assert!(told.starts_with("1 clients of 10.0.0.1 have slots already: "), "{told}");
            let told = limits.service(Some(wanted), ONE, &[ONE, OTHER]).expect_err("there are 2");
            assert_eq!(told, "2 clients have slots already: say ud or any, or raise --rdma-slots");
            let none = ClientLimits { slots: 0, ..limits };
            assert!(none.service(Some(wanted), None, &[]).is_err());
        }
        let full = [ONE, OTHER];
        assert_eq!(limits.service(Some(Service::Datagrams), ONE, &full), Ok(Service::Datagrams));
        let none = ClientLimits { slots: 0, ..limits };
        assert_eq!(none.service(None, ONE, &[]), Ok(Service::Datagrams));
    }

    #[test]
    fn a_service_is_wanted_by_its_name_or_none() {
        for wanted in Service::ALL.map(Some).into_iter().chain([None]) {
            assert_eq!(Service::wanted(Service::name_of(wanted)), Ok(wanted));
        }
        assert_eq!(Service::wanted("xrc"), Err("must be any, uc, rc or ud"));
    }
}
