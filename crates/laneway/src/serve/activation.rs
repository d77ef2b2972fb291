//! Socket activation (`sd_listen_fds(3)`): sockets that the service manager opened take the place
//! of the listeners that the flags name. The name that the manager gives a socket
//! (`FileDescriptorName=`) says what comes by it: words joined by `+`.
//!
//! What cannot be used refuses the start: a server that passed a socket over would leave clients in
//! its queue for ever.

use super::places::{BYTES, RATE, rates};
use crate::flags::{Flags, Handover};
use laneway_server::boot::Handed;
use laneway_server::settings::{Port, Rules, Settings};
use listenfd::ListenFd;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::{env, io};

/// The words of a name.
const WORDS: [&str; 7] = ["admin", "bytes=BYTES", "notls", "rate=N", "readonly", "resp", "tls"];
/// Names that systemd gives by itself.
const NAMES_OF_NONE: [&str; 4] = ["", "unknown", "connection", "stored"];
/// A socket without a name has that of its unit.
const UNIT_SUFFIX: &str = ".socket";
/// The first descriptor that is handed over.
const FIRST: usize = 3;
/// In the environment of programs that a launcher of listenfd's starts.
const FIRST_VARIABLE: &str = "LISTEN_FDS_FIRST_FD";

/// Sockets that were handed over.
#[derive(Default)]
pub struct Taken {
    /// Where clients come; where there are any, nothing else is listened on for streams.
    pub listeners: Vec<Handed>,
    /// Where operators look, whatever `--admin` says.
    pub admin: Option<TcpListener>,
}

/// How a socket is served, as its name (`FileDescriptorName=`) says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Use {
    is_admin: bool,
    is_resp: bool,
    rules: Rules,
    tls: Option<bool>,
}

/// Tells which kinds of sockets this process was handed, and takes none of them yet. Flags that
/// name listeners of those kinds mean nothing then. [`take`] says what is wrong with them.
pub fn expected() -> Handover {
    let names = sd_notify::listen_fds()
        .and_then(|sockets| if sockets.len() == 0 { Ok(Vec::new()) } else { names() })
        .unwrap_or_default();
    let meant: Vec<Use> = names.iter().map(|name| meaning(name).unwrap_or_default()).collect();
    let admin = meant.iter().filter(|one| one.is_admin).count();
    let read_only = meant.iter().any(|one| one.rules.read_only);
    Handover { clients: admin < meant.len(), admin: admin > 0, read_only }
}

fn names() -> io::Result<Vec<String>> {
    Ok(sd_notify::listen_fds_with_names()?.map(|(_, name)| name).collect())
}

/// Take what was handed over to this process, and have `settings` say so. Called before there is
/// another thread, since what told of the sockets is taken out of the environment.
pub fn take(flags: &Flags, settings: &mut Settings) -> Result<Taken, String> {
    let told = |error: &dyn std::fmt::Display| format!("sockets handed over (LISTEN_FDS): {error}");
    // Whether they are for this process, and are there; programs that it starts do not inherit
    // them. (Names are looked at only then: those of others' sockets are none of ours.)
    let count = sd_notify::listen_fds().map_err(|error| told(&error))?.len();
    if count == 0 {
        return Ok(Taken::default());
    }
    let names = names().map_err(|error| told(&error))?;
    // One of the two crates counts from there, the other one from 3 on.
    if let Some(first) = env::var_os(FIRST_VARIABLE).filter(|first| first != "3") {
        let first = first.display();
        return Err(told(&format!("{FIRST_VARIABLE}={first}: they must begin with descriptor 3")));
    }
    if flags.daemon {
        let why = "a server in the background (-d) does not have them; leave -d out, as whoever \
                   hands sockets over looks after the process himself";
        return Err(told(&why));
    }
    let (mut sockets, mut taken) = (ListenFd::from_env(), Taken::default());
    for (at, name) in names.iter().enumerate() {
        let place = |error: String| told(&format!("descriptor {} ({name}): {error}", FIRST + at));
        let meant = meaning(name).map_err(place)?;
        let socket = socket(&mut sockets, at).map_err(place)?;
        if meant.is_admin {
            put_admin(&mut taken, socket, &meant).map_err(place)?;
        } else {
            taken.listeners.push(listener(socket, &meant, settings.tls.is_some()).map_err(place)?);
        }
    }
    if !taken.listeners.is_empty() {
        tell(&taken.listeners, settings);
    }
    passed_over(flags, &taken).iter().for_each(|flag| {
        log::warn!("{flag} is passed over, since sockets were handed over (LISTEN_FDS)");
    });
    Ok(taken)
}

/// The words of a name, which are in any order.
fn meaning(name: &str) -> Result<Use, String> {
    let mut meant = Use::default();
    if NAMES_OF_NONE.contains(&name) || name.ends_with(UNIT_SUFFIX) {
        return Ok(meant);
    }
    let (mut rate, mut size) = (None, None);
    for word in name.split('+') {
        match word {
            _ if word.starts_with(RATE) && rate.is_some() => {
                return Err(format!("says {RATE} twice"));
            }
            _ if word.starts_with(BYTES) && size.is_some() => {
                return Err(format!("says {BYTES} twice"));
            }
            _ if word.starts_with(RATE) => rate = word.strip_prefix(RATE),
            _ if word.starts_with(BYTES) => size = word.strip_prefix(BYTES),
            "admin" => meant.is_admin = true,
            "resp" => meant.is_resp = true,
            "readonly" => meant.rules.read_only = true,
            "tls" | "notls" if meant.tls.is_some() => {
                return Err("says twice whether it is encrypted".to_owned());
            }
            "tls" => meant.tls = Some(true),
            "notls" => meant.tls = Some(false),
            _ => {
                return Err(format!(
                    "'{word}' says nothing of a socket; write {} in FileDescriptorName=, joined \
                     by +, or leave it out for memcached's clients",
                    WORDS.join(", ")
                ));
            }
        }
    }
    meant.rules.rates = rates(rate, size)?;
    Ok(meant)
}

/// The socket at this place, if it is one for streams.
fn socket(sockets: &mut ListenFd, at: usize) -> Result<OwnedFd, String> {
    if let Ok(Some(tcp)) = sockets.take_tcp_listener(at) {
        return Ok(tcp.into());
    }
    if let Ok(Some(unix)) = sockets.take_unix_listener(at) {
        return Ok(unix.into());
    }
    Err(match sockets.take_udp_socket(at) {
        Ok(_) => {
            "a UDP socket cannot be taken, since each worker needs one of its own; leave \
                  ListenDatagram= out, and say udp-port (-U)"
        }
        Err(_) => {
            "it is neither a TCP nor a unix socket for streams (ListenStream=), and nothing else \
             can be used"
        }
    }
    .to_owned())
}

fn put_admin(taken: &mut Taken, socket: OwnedFd, meant: &Use) -> Result<(), String> {
    if *meant != (Use { is_admin: true, ..Use::default() }) {
        return Err("'admin' goes with no other word".to_owned());
    }
    if taken.admin.is_some() {
        return Err("there is one socket for admin already".to_owned());
    }
    // Looked at as a listener for clients would be, which it is not to become.
    let same = socket.try_clone().map_err(|error| error.to_string())?;
    if listener(same, meant, false)?.address().is_none() {
        return Err("the admin endpoint is served by TCP, not by a unix socket".to_owned());
    }
    taken.admin = Some(socket.into());
    Ok(())
}

/// A socket for clients; TCP is encrypted where anything is, unless its name says otherwise.
fn listener(socket: OwnedFd, meant: &Use, has_tls: bool) -> Result<Handed, String> {
    let handed = Handed::new(socket, meant.is_resp, meant.rules);
    let mut handed = handed.map_err(|error| {
        format!("{error}; the unit needs Accept=no, which hands listeners over")
    })?;
    let is_tcp = handed.address().is_some();
    match meant.tls {
        Some(true) if !has_tls => {
            return Err("'tls' needs a certificate; say tls (-Z) and tls-cert".to_owned());
        }
        Some(true) if !is_tcp => return Err("a unix socket is never encrypted".to_owned()),
        _ => {}
    }
    handed.encrypts = is_tcp && has_tls && meant.tls != Some(false);
    Ok(handed)
}

/// What settings say of where the server listens is what `stats settings` tells.
fn tell(listeners: &[Handed], settings: &mut Settings) {
    let ports = |is_resp: bool, encrypts: bool| {
        let of_kind = |one: &&Handed| (one.is_resp, one.encrypts) == (is_resp, encrypts);
        let ports = listeners
            .iter()
            .filter(of_kind)
            .filter_map(|one| Some(Port { address: one.address()?, rules: one.rules }));
        ports.collect::<Vec<Port>>()
    };
    settings.unix = None;
    settings.addresses = ports(false, false);
    settings.resp.addresses = ports(true, false);
    if let Some(tls) = &mut settings.tls {
        (tls.addresses, tls.resp_addresses) = (ports(false, true), ports(true, true));
    }
}

/// Flags that name listeners of the server's own.
fn passed_over(flags: &Flags, taken: &Taken) -> Vec<&'static str> {
    let has_clients = !taken.listeners.is_empty();
    let given = [
        // It says where RDMA's door is, whatever is handed over.
        ("listen (-l)", has_clients && !flags.listen.is_empty() && flags.rdma.is_none()),
        ("port (-p)", has_clients && flags.port.is_some()),
        ("unix-socket (-s)", has_clients && flags.unix_socket.is_some()),
        ("unix-mask (-a)", has_clients && flags.unix_mask.is_some()),
        ("resp", has_clients && flags.resp.is_some()),
        ("admin", taken.admin.is_some() && flags.admin.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_server::access::client_limits::Rates;

    #[test]
    fn a_name_says_what_comes_by_a_socket() {
        let nothing = Use::default;
        let rules =
            |read_only, requests, bytes| Rules { read_only, rates: Rates::new(requests, bytes) };
        for (name, wanted) in [
            ("", nothing()),
            ("unknown", nothing()),
            ("laneway.socket", nothing()),
            ("cache@2.socket", nothing()),
            ("resp", Use { is_resp: true, ..nothing() }),
            ("readonly+resp", Use { is_resp: true, rules: rules(true, 0, 0), ..nothing() }),
            ("tls", Use { tls: Some(true), ..nothing() }),
            ("notls+readonly", Use { tls: Some(false), rules: rules(true, 0, 0), ..nothing() }),
            ("rate=50", Use { rules: rules(false, 50, 0), ..nothing() }),
            ("bytes=1k+readonly+rate=5", Use { rules: rules(true, 5, 1024), ..nothing() }),
            ("admin", Use { is_admin: true, ..nothing() }),
        ] {
            assert_eq!(meaning(name), Ok(wanted), "{name}");
        }
        for name in ["rsep", "resp+", "RESP", "resp,readonly", "memcached"] {
            let said = meaning(name).expect_err(name);
            assert!(WORDS.iter().all(|word| said.contains(word)), "{said}");
        }
        assert!(meaning("tls+notls").is_err() && meaning("tls+tls").is_err());
        assert!(meaning("rate=1k").is_err() && meaning("readonly+bytes=").is_err());
        for (name, word) in [("rate=5+rate=60", "rate="), ("bytes=1k+resp+bytes=2k", "bytes=")] {
            assert_eq!(meaning(name), Err(format!("says {word} twice")));
        }
    }
}
