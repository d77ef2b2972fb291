//! The listeners of TCP and of unix sockets: opened as the settings say, or handed over by whoever
//! started the process (socket activation).

use super::StartError;
use crate::settings::{Port, Rules, Settings};
use laneway_transport::socket::Listener;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A listener that was open before the server began, and what comes by it.
pub struct Handed {
    listener: Listener,
    /// Nothing but RESP is spoken there.
    pub is_resp: bool,
    /// What comes there is encrypted; then there are settings for that.
    pub encrypts: bool,
    /// What holds of who comes there.
    pub rules: Rules,
}

impl Handed {
    /// This socket, TCP or unix, which listens already and where nothing is encrypted. An error
    /// says why it cannot be used.
    pub fn new(socket: OwnedFd, is_resp: bool, rules: Rules) -> io::Result<Handed> {
        let listener = Listener::opened_before(socket)?;
        Ok(Handed { listener, is_resp, encrypts: false, rules })
    }

    /// Its address, if it is one of TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.address()
    }
}

/// Listeners of one kind, encrypted or not, each with what holds of who comes there.
#[derive(Default)]
pub struct Listeners {
    /// Those of memcached's clients, and where the first bytes tell.
    others: Vec<(Listener, Rules)>,
    /// Those where nothing but RESP is spoken.
    resp: Vec<(Listener, Rules)>,
}

impl Listeners {
    /// All of them; the rules of each; and the first one where nothing but RESP is spoken.
    pub fn in_order(self) -> (Vec<Listener>, Vec<Rules>, usize) {
        let resp_from = self.others.len();
        let (listeners, rules) = self.others.into_iter().chain(self.resp).unzip();
        (listeners, rules, resp_from)
    }

    fn at(others: &[Port], resp: &[Port], backlog: i32) -> Result<Listeners, StartError> {
        Ok(Listeners { others: tcp(others, backlog)?, resp: tcp(resp, backlog)? })
    }
}

/// The listeners that encrypt nothing, and those that do.
pub fn all(settings: &Settings, handed: Vec<Handed>) -> Result<(Listeners, Listeners), StartError> {
    if !handed.is_empty() {
        return Ok(sorted(handed));
    }
    let backlog = settings.backlog;
    let mut plain = Listeners::at(&settings.addresses, &settings.resp.addresses, backlog)?;
    if let Some((path, mode)) = &settings.unix {
        let listener = Listener::unix(path, *mode, backlog);
        let place = path.display().to_string();
        let listener = listener.map_err(|error| StartError::Listen(place, error))?;
        plain.others = vec![(listener, Rules::default())];
    }
    let encrypted = match &settings.tls {
        Some(tls) => Listeners::at(&tls.addresses, &tls.resp_addresses, backlog)?,
        None => Listeners::default(),
    };
    Ok((plain, encrypted))
}

fn sorted(handed: Vec<Handed>) -> (Listeners, Listeners) {
    let (mut plain, mut encrypted) = (Listeners::default(), Listeners::default());
    for Handed { listener, is_resp, encrypts, rules } in handed {
        let of_kind = if encrypts { &mut encrypted } else { &mut plain };
        let place = if is_resp { &mut of_kind.resp } else { &mut of_kind.others };
        place.push((listener, rules));
    }
    (plain, encrypted)
}

/// Whether that may be for want of IPv6: a machine without it still serves the IPv4 wildcard.
pub(super) fn lacks_ipv6(address: SocketAddr, error: &io::Error) -> bool {
    address.is_ipv6() && address.ip().is_unspecified() && error.kind() != io::ErrorKind::AddrInUse
}

/// Listeners at these addresses, each with its rules.
fn tcp(ports: &[Port], backlog: i32) -> Result<Vec<(Listener, Rules)>, StartError> {
    let mut listeners = Vec::new();
    for Port { address, rules } in ports {
        match Listener::tcp(*address, backlog) {
            Ok(listener) => listeners.push((listener, *rules)),
            Err(error) if lacks_ipv6(*address, &error) && !listeners.is_empty() => {}
            Err(error) => return Err(StartError::Listen(address.to_string(), error)),
        }
    }
    Ok(listeners)
}
