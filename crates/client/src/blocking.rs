//! The core with a socket and a clock: calls that return when the answer is there.
//!
//! A client belongs to one thread at a time, and holds about a megabyte of buffers. Where the
//! server takes datagrams it asks over TCP, as any client would, or over UDP; and it asks again
//! after a request that the server did not answer, for it may have been started anew with other
//! ports or workers.
#![allow(clippy::disallowed_methods, reason = "its caller gives no time")]

use crate::answer::{self, Answer, Value};
use crate::core::{Core, Counts, Ticket};
use crate::error::Error;
use crate::found::{Found, Got};
use crate::link::Link;
use crate::memory::{Left, Memory};
use crate::remote::Remote;
use crate::request::{Expiry, Request};
use crate::settings::Settings;
use crate::socket::Socket;
use crate::topology::Topology;
use laneway_rdma::contract::LongRequester as _;
use laneway_rdma::door;
use laneway_rdma::verbs::{self, Lending, Place, Service};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest answer about the topology: two lines per worker, a thousand workers.
const TOPOLOGY_BYTES_MAX: usize = 1 << 17;

/// How long one of several addresses is asked before the next is, too (RFC 8305, section 5).
const ATTEMPT_NANOS: u64 = 250_000_000;

/// Bursts received before time is looked at again.
const BURSTS_MAX: usize = 64;

/// A client of one server. See the crate's page for how to use it.
pub struct Client {
    core: Core,
    link: Link,
    begun: Instant,
    guide: Option<Guide>,
    /// A request was not answered: the topology may be out of date.
    doubts: bool,
    /// Requests that may be under way, whatever a server has room for.
    window_asked: usize,
}

/// How a server is reached that was asked where it is.
struct Reached {
    /// None: as before.
    link: Option<Link>,
    topology: Topology,
    /// Requests that may be under way.
    window_max: usize,
}

/// Whom to ask where the server takes datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Guide {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    /// The door itself: who is let in again is told.
    Memory(PathBuf),
    /// The same of RDMA.
    Remote(SocketAddr, Place, Option<Service>),
}

impl Guide {
    /// How the server is reached now, which was reached by `link`.
    fn ask(&self, settings: Settings, link: &Link) -> Result<Reached, Error> {
        let window_max = settings.window_max;
        Ok(match self {
            Guide::Tcp(address) => {
                let (_, datagrams, topology) =
                    topology_by_tcp(&[*address], settings.topology_nanos)?;
                // A socket has a megabyte of buffers, and whoever is slow is mostly where he was.
                let is_there = matches!(link, Link::Udp(socket) if socket.leads_to(datagrams));
                let moved = match is_there {
                    true => None,
                    false => Some(Link::Udp(Box::new(Socket::open(datagrams)?))),
                };
                Reached { link: moved, topology, window_max }
            }
            Guide::Udp(address) => {
                Reached { link: None, topology: topology_by_udp(*address, settings)?, window_max }
            }
            Guide::Remote(door, place, service) => {
                Reached::of(Client::by_rdma(&[*door], place, *service, settings)?.0)
            }
            Guide::Memory(path) => Reached::of(Client::in_memory(path, settings)?),
        })
    }
}

impl Reached {
    /// As this new client does it.
    fn of(client: Client) -> Reached {
        let Client { link, core, .. } = client;
        let window_max = core.settings().window_max;
        Reached { link: Some(link), topology: *core.topology(), window_max }
    }
}

impl Client {
    /// Asks the server at `address` over TCP where it takes datagrams, or over UDP if it refuses
    /// TCP. Where a name has several addresses the first that accepts TCP is the server's.
    pub fn connect(address: impl ToSocketAddrs) -> Result<Client, Error> {
        Client::connect_with(address, Settings::default())
    }

    /// The same with other bounds and patience.
    pub fn connect_with(address: impl ToSocketAddrs, settings: Settings) -> Result<Client, Error> {
        let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        let (guide, address, topology) = match topology_by_tcp(&addresses, settings.topology_nanos)
        {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let (found, topology) = topology_by_any_udp(addresses.as_slice(), &settings)?;
                (Guide::Udp(found), found, topology)
            }
            other => {
                let (server, address, topology) = other?;
                (Guide::Tcp(server), address, topology)
            }
        };
        Ok(Client::of(address, topology, settings)?.guided(guide))
    }

    /// Asks over UDP: `address` is any of the server's UDP ports. Where a name has several
    /// addresses the first that answers is the server's, 127.0.0.1 before all others.
    pub fn connect_udp(address: impl ToSocketAddrs, settings: Settings) -> Result<Client, Error> {
        let (address, topology) = topology_by_any_udp(address, &settings)?;
        Ok(Client::of(address, topology, settings)?.guided(Guide::Udp(address)))
    }

    /// Asks nothing: `address` is an ordinary UDP port (`-U`) of Laneway or memcached, which takes
    /// requests of one datagram, about 1300 bytes of value. What changes something is sent once:
    /// memcached does not know a repeated request. Of several addresses of a name it is 127.0.0.1,
    /// or else the first.
    pub fn single(address: impl ToSocketAddrs, settings: Settings) -> Result<Client, Error> {
        let address = resolve(address)?[0];
        Client::of(address, Topology::single(address.port()), settings)
    }

    /// A client of the server described by `topology`, at the host of `address`. It keeps to that
    /// topology whatever happens.
    pub fn of(
        address: SocketAddr,
        topology: Topology,
        settings: Settings,
    ) -> Result<Client, Error> {
        let link = Link::Udp(Box::new(Socket::open(address)?));
        Ok(Client::by(link, topology, settings))
    }

    /// A client of the server on this host whose `--shm` is `path`: requests are written into
    /// memory that the server polls. [`Settings::in_memory`] suits.
    pub fn connect_shm(path: impl AsRef<Path>, settings: Settings) -> Result<Client, Error> {
        let path = path.as_ref();
        let client = Client::in_memory(path, settings)?;
        Ok(client.guided(Guide::Memory(path.to_owned())))
    }

    fn in_memory(path: &Path, mut settings: Settings) -> Result<Client, Error> {
        let ring = door::enter(path)?;
        let (terms, window_asked) = (ring.terms(), settings.window_max);
        // Half of the places for replies are small ones', and each request has one.
        settings.window_max = settings.window_max.min((terms.replies / 2).max(1));
        let topology = Topology::in_memory(terms.lanes as u16, terms.bulk_bytes);
        let link = Link::Memory(Box::new(Memory::new(ring)));
        Client { window_asked, ..Client::by(link, topology, settings) }.told()
    }

    /// The same, knowing what the server tells of its keys.
    fn told(mut self) -> Result<Client, Error> {
        match self.ask(Request::stats("topology"))? {
            Answer::Stats(stats) => {
                let topology = self.core.topology().told(&stats).map_err(Error::NoTopology)?;
                self.core.move_to(topology);
                Ok(self)
            }
            _ => Err(Error::NoTopology("nothing".into())),
        }
    }

    /// A client of the server whose `--rdma-port` is at `door`, by a device of this host's, such as
    /// `mlx5_0` or `rxe0:1`. [`Settings::in_memory`] suits. Requests travel by the service that is
    /// chosen; HERD's is the unreliable one, and datagrams are for a server of very many clients.
    /// With `None` the server chooses: HERD's for the first that come (64 unless it is told
    /// otherwise), datagrams beyond.
    pub fn connect_rdma(
        door: impl ToSocketAddrs,
        place: &Place,
        service: impl Into<Option<Service>>,
        settings: Settings,
    ) -> Result<Client, Error> {
        let service = service.into();
        let doors: Vec<SocketAddr> = door.to_socket_addrs()?.collect();
        let (client, door) = Client::by_rdma(&doors, place, service, settings)?;
        Ok(client.guided(Guide::Remote(door, place.clone(), service)))
    }

    fn by_rdma(
        doors: &[SocketAddr],
        place: &Place,
        service: Option<Service>,
        mut settings: Settings,
    ) -> Result<(Client, SocketAddr), Error> {
        let stream = connect_any(doors, Duration::from_nanos(settings.topology_nanos))?;
        let door = stream.peer_addr()?;
        let verbs = verbs::enter(stream, place, service, Lending::USUAL)?;
        let (bounds, window_asked) = (verbs.bounds(), settings.window_max);
        settings.window_max = settings.window_max.min(verbs.window());
        let topology = Topology::remote(bounds.lanes as u16, verbs.lent_bytes_max());
        let link = Link::Remote(Box::new(Remote::new(verbs)));
        let client = Client { window_asked, ..Client::by(link, topology, settings) };
        Ok((client.told()?, door))
    }

    fn by(link: Link, topology: Topology, settings: Settings) -> Client {
        // Keys of the process's random state: another sequence of draws for every client.
        let seed = RandomState::new().hash_one(topology.count());
        let window_asked = settings.window_max;
        let core = Core::new(settings, topology, seed);
        Client { core, link, begun: Instant::now(), guide: None, doubts: false, window_asked }
    }

    fn guided(self, guide: Guide) -> Client {
        Client { guide: Some(guide), ..self }
    }

    /// After a request that was not answered: ask once where the server is now. A server that does
    /// not say is asked again after the next one.
    fn look_again(&mut self) {
        if !std::mem::take(&mut self.doubts) {
            return;
        }
        // A server in memory that is still there has only been slow.
        let is_there = match &self.link {
            Link::Udp(_) => false,
            Link::Memory(memory) => !memory.ring().is_server_gone(),
            Link::Remote(remote) => !remote.verbs().is_server_gone(),
        };
        if is_there {
            return;
        }
        let settings = Settings { window_max: self.window_asked, ..self.core.settings().clone() };
        if let Some(guide) = &self.guide
            && let Ok(reached) = guide.ask(settings, &self.link)
        {
            self.go_over(reached);
        }
    }

    /// Asks the server there from now on.
    fn go_over(&mut self, Reached { link, topology, window_max }: Reached) {
        if let Some(link) = link {
            self.link = link;
        }
        // The new server needs neither what the old one was yet to be told, nor what nobody waits
        // for.
        let now_nanos = self.now_nanos();
        self.core.abandon(now_nanos);
        while self.core.answer().is_some() {}
        self.core.move_to(topology);
        self.core.open_window(window_max);
    }

    /// The value of `key`, if there is one.
    pub fn get(&mut self, key: impl Into<Vec<u8>>) -> Result<Option<Value>, Error> {
        value(self.ask(Request::get(key)))
    }

    /// Has `take` copy the value that a `get` or `gets` finds, out of where it lies: in shared
    /// memory nobody copies a long one before. What it makes of the value comes back, if there is
    /// one. If it takes more than a second or two the bytes may be another reply's meanwhile: then
    /// it is called once more, and only what it made the last time counts.
    pub fn get_to<T>(
        &mut self,
        request: Request,
        mut take: impl FnMut(&Found<'_>) -> T,
    ) -> Result<Option<Got<T>>, Error> {
        if let Some(memory) = self.link.memory() {
            memory.leave_next(true);
        }
        let answer = value(self.ask(request.clone()));
        let left = self.link.memory().and_then(|memory| {
            memory.leave_next(false);
            memory.left()
        });
        let Some(found) = answer? else { return Ok(None) };
        let Some(left) = left else { return Ok(Some(got(found, &mut take))) };
        match self.take_left(&left, &mut take) {
            Some(taken) => Ok(Some(Got { taken, flags: found.flags, cas: found.cas })),
            // Asked for anew it is copied as soon as it has come.
            None => Ok(value(self.ask(request))?.map(|found| got(found, &mut take))),
        }
    }

    /// The same of a value that was left lying; `None`: it was not there any more.
    fn take_left<T>(&mut self, left: &Left, take: &mut impl FnMut(&Found<'_>) -> T) -> Option<T> {
        let taken = self.link.memory()?.reply(left).and_then(|reply| {
            let taken = take(&Found::lying(&reply, left.range.clone()));
            reply.is_there().then_some(taken)
        });
        self.core.has_taken(left.name);
        let now_nanos = self.now_nanos();
        // The next call tells of a server that is gone.
        let _ = self.link.send(&mut self.core, now_nanos);
        taken
    }

    /// The values of many keys, in their order, with many requests under way at once.
    pub fn get_many<K: Into<Vec<u8>>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Value>, Error>> {
        let answers = self.ask_many(keys.into_iter().map(|key| Request::get(key)));
        answers.into_iter().map(value).collect()
    }

    /// Stores a value for ever; [`Client::ask`] takes [`Request::set`] with flags and an expiry.
    pub fn set(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        done(self.ask(Request::set(key, value))).map(|_| ())
    }

    /// Deletes `key`; false if there was nothing.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> Result<bool, Error> {
        done(self.ask(Request::delete(key)))
    }

    /// Gives the item another expiry; false if there is none.
    pub fn touch(&mut self, key: impl Into<Vec<u8>>, expiry: Expiry) -> Result<bool, Error> {
        done(self.ask(Request::touch(key, expiry)))
    }

    /// Statistics: what stands behind `stats`, or nothing.
    pub fn stats(&mut self, words: &str) -> Result<Vec<(String, String)>, Error> {
        match self.ask(Request::stats(words))? {
            Answer::Stats(stats) => Ok(stats),
            Answer::Done => Ok(Vec::new()),
            _ => Err(Error::Garbled),
        }
    }

    /// The answer to one request.
    pub fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        self.ask_many([request]).pop().unwrap_or(Err(Error::Garbled))
    }

    /// The answers to many requests, in their order. They are under way together: one may overtake
    /// another, also of the same key.
    pub fn ask_many(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Vec<Result<Answer, Error>> {
        self.look_again();
        let mut requests = requests.into_iter().peekable();
        let mut tickets: BTreeMap<Ticket, usize> = BTreeMap::new();
        let mut answers: Vec<Option<Result<Answer, Error>>> = Vec::new();
        loop {
            let now_nanos = self.now_nanos();
            while let Some(request) = requests.next_if(|request| self.core.has_room(request)) {
                let pushed = self.core.push(request, now_nanos);
                answers.push(pushed.map_or_else(
                    |error| Some(Err(error)),
                    |ticket| {
                        tickets.insert(ticket, answers.len());
                        None
                    },
                ));
            }
            let turned = self.turn(now_nanos);
            if turned.is_err() {
                self.core.abandon(now_nanos);
            }
            while let Some((ticket, answer)) = self.core.answer() {
                self.doubts |=
                    matches!(answer, Err(Error::TimedOut { .. } | Error::OutcomeUnknown { .. }));
                let Some(place) = tickets.remove(&ticket) else { continue };
                answers[place] = Some(match (&turned, answer) {
                    (Err(error), Err(Error::TimedOut { .. })) => Err(Error::Io(again(error))),
                    (_, answer) => answer,
                });
            }
            // Word of replies leaves when there is room for it, and keeps nobody waiting.
            if requests.peek().is_none() && tickets.is_empty() {
                return answers.into_iter().flatten().collect();
            }
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        self.core.counts()
    }

    /// The server as this client knows it.
    pub fn topology(&self) -> &Topology {
        self.core.topology()
    }

    /// Sends what is to be sent, waits for what comes or for the next thing to do, and does it.
    fn turn(&mut self, now_nanos: u64) -> io::Result<()> {
        self.link.send(&mut self.core, now_nanos)?;
        if let Some(wake_nanos) = self.core.wake_nanos() {
            self.link.wait(wake_nanos.saturating_sub(self.now_nanos()))?;
        }
        let now_nanos = self.now_nanos();
        // A flood, from wherever, holds up no deadline.
        for _ in 0..BURSTS_MAX {
            if !self.link.receive(&mut self.core, now_nanos)? {
                break;
            }
        }
        self.core.tick(now_nanos);
        // Word that a reply is whole leaves at once: nobody may call again for a long time.
        self.link.send(&mut self.core, now_nanos)
    }

    fn now_nanos(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn value(answer: Result<Answer, Error>) -> Result<Option<Value>, Error> {
    match answer? {
        Answer::Value(value) => Ok(Some(value)),
        Answer::Missing => Ok(None),
        _ => Err(Error::Garbled),
    }
}

fn got<T>(value: Value, take: &mut impl FnMut(&Found<'_>) -> T) -> Got<T> {
    let Value { data, flags, cas } = value;
    Got { taken: take(&Found::here(&data)), flags, cas }
}

fn done(answer: Result<Answer, Error>) -> Result<bool, Error> {
    match answer? {
        Answer::Done => Ok(true),
        Answer::Missing => Ok(false),
        _ => Err(Error::Garbled),
    }
}

fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// The addresses of a name, at least one. 127.0.0.1 comes first: unless it is told otherwise a
/// server takes datagrams there alone.
fn resolve(address: impl ToSocketAddrs) -> Result<Vec<SocketAddr>, Error> {
    let mut found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if found.is_empty() {
        let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        return Err(none.into());
    }
    found.sort_by_key(|address| address.ip() != Ipv4Addr::LOCALHOST); // the others as they came
    Ok(found)
}

/// The first of the addresses that tells, with what it tells: nobody refuses a datagram, so each is
/// asked for a moment before any is waited for.
fn topology_by_any_udp(
    address: impl ToSocketAddrs,
    settings: &Settings,
) -> Result<(SocketAddr, Topology), Error> {
    let addresses = resolve(address)?;
    let share_nanos = settings.deadline_nanos / addresses.len() as u64;
    let rounds = [ATTEMPT_NANOS.min(share_nanos), share_nanos];
    let mut refused = None;
    for deadline_nanos in rounds.into_iter().skip(usize::from(addresses.len() == 1)) {
        for address in &addresses {
            match topology_by_udp(*address, Settings { deadline_nanos, ..settings.clone() }) {
                Ok(topology) => return Ok((*address, topology)),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    Err(refused.expect("there is an address"))
}

fn topology_by_udp(address: SocketAddr, settings: Settings) -> Result<Topology, Error> {
    let mut client = Client::of(address, Topology::single(address.port()), settings)?;
    topology_of(client.ask(Request::stats("topology")))
}

fn connect_any(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let mut first = None;
    for address in addresses {
        match TcpStream::connect_timeout(address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Also which of the addresses it is, and the one for datagrams. The connection knows: 0.0.0.0
/// leads to another, and only what comes from that one is the server's. All of the answer has so
/// long to come, however little of it comes at a time.
fn topology_by_tcp(
    addresses: &[SocketAddr],
    nanos_max: u64,
) -> Result<(SocketAddr, SocketAddr, Topology), Error> {
    let timeout = Duration::from_nanos(nanos_max);
    let mut stream = connect_any(addresses, timeout)?;
    let address = stream.peer_addr()?;
    let asked = Instant::now();
    stream.write_all(b"stats topology\r\n")?;
    let request = Request::stats("topology");
    let mut told = Vec::new();
    let mut room = [0; 4096];
    while told.len() <= TOPOLOGY_BYTES_MAX {
        let left = timeout.saturating_sub(asked.elapsed());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut room) {
            // A process that was halted and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        told.extend_from_slice(&room[..count]);
        if let Ok(answer) = answer::read(&request, told.as_slice()) {
            let datagrams = match &answer {
                Ok(Answer::Stats(stats)) => datagrams_at(stats, address)?,
                _ => address,
            };
            return Ok((address, datagrams, topology_of(answer)?));
        }
        if count == 0 {
            break;
        }
    }
    Err(Error::NoTopology(format!("{} bytes without an end", told.len())))
}

/// Where datagrams for a server go that is at `address`: unless it says otherwise it takes them at
/// 127.0.0.1 alone, whatever of its addresses takes connections.
fn datagrams_at(stats: &[(String, String)], address: SocketAddr) -> Result<SocketAddr, Error> {
    let told = stats.iter().find(|(name, _)| name == "udp_address");
    let Some(at) = told.and_then(|(_, value)| value.parse::<IpAddr>().ok()) else {
        return Ok(address);
    };
    let connected = address.ip().to_canonical();
    let (is_here, is_any) = (connected.is_loopback(), at.is_unspecified());
    let is_other_family = at.is_ipv4() != connected.is_ipv4();
    match at {
        _ if !is_here && at.is_loopback() => Err(Error::NoTopology(format!(
            "datagrams reach it at {at} alone; connect to that address on its own host, or start \
             it with --udp-listen ADDRESS --udp-public"
        ))),
        _ if !is_here && is_any && is_other_family => Err(Error::NoTopology(format!(
            "datagrams reach it at {at}, which takes none for {connected}; connect to an address \
             of the same family"
        ))),
        IpAddr::V4(_) if is_here && is_any => Ok((Ipv4Addr::LOCALHOST, address.port()).into()),
        IpAddr::V6(_) if is_here && is_any => Ok((Ipv6Addr::LOCALHOST, address.port()).into()),
        // No socket of one family takes what comes by the other.
        _ if is_here || is_other_family => Ok((at, address.port()).into()),
        _ => Ok(address),
    }
}

fn topology_of(answer: Result<Answer, Error>) -> Result<Topology, Error> {
    match answer {
        Ok(Answer::Stats(stats)) => Topology::read(&stats).map_err(Error::NoTopology),
        Ok(_) => Err(Error::NoTopology("nothing".into())),
        Err(Error::Refused(refusal)) => Err(Error::NoTopology(refusal.to_string())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SECOND;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::RingRequester;
    use std::net::TcpListener;

    /// What a test waits at most for what must come: more than any thread waits for a CPU.
    const PATIENCE_NANOS: u64 = 60 * SECOND;

    /// A server's queue that answers every request by `END`.
    fn answering(socket: std::net::UdpSocket) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut room = [0; 2048];
            loop {
                let (bytes, peer) = socket.recv_from(&mut room).expect("it receives");
                if room[8..bytes].starts_with(b"quit") {
                    return;
                }
                let reply = [&room[..8], b"END\r\n"].concat();
                socket.send_to(&reply, peer).expect("it sends");
            }
        })
    }

    /// A server that tells each of these in turn to who asks where it takes datagrams.
    fn telling(told: Vec<String>) -> (SocketAddr, std::thread::JoinHandle<()>) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = server.local_addr().expect("it is bound");
        let telling = std::thread::spawn(move || {
            for told in told {
                let (mut stream, _) = server.accept().expect("the client comes");
                let mut line = [0; 16];
                stream.read_exact(&mut line).expect("it asks");
                assert_eq!(&line, b"stats topology\r\n");
                stream.write_all(told.as_bytes()).expect("it listens");
            }
        });
        (address, telling)
    }

    /// Soon asks anew where a server is that does not answer.
    fn doubting() -> Settings {
        Settings {
            deadline_nanos: 20_000_000,
            topology_nanos: PATIENCE_NANOS,
            ..Settings::default()
        }
    }

    #[test]
    fn a_server_that_was_started_anew_at_another_address_and_port_is_found_again() {
        let moved_to = Ipv4Addr::new(127, 0, 0, 2);
        let bound = |at| std::net::UdpSocket::bind((at, 0)).expect("a port is free");
        // Nobody reads the one of before.
        let (before, after) = (bound(Ipv4Addr::LOCALHOST), bound(moved_to));
        let port = |socket: &std::net::UdpSocket| socket.local_addr().expect("it is bound").port();
        let (first, second) = (port(&before), port(&after));
        let told = [(Ipv4Addr::LOCALHOST, first), (moved_to, second)].map(|(at, port)| {
            let told = format!("STAT udp_port_base {port}\r\nSTAT queues 1\r\n");
            format!("{told}STAT udp_address {at}\r\nEND\r\n")
        });
        let (address, telling) = telling(told.to_vec());
        let mut client = Client::connect_with(address, doubting()).expect("it tells");
        assert_eq!(client.topology().port(0), first);
        assert!(matches!(client.get("k"), Err(Error::TimedOut { .. })), "nobody answers there");
        client.core.settings_mut().deadline_nanos = PATIENCE_NANOS;
        let answers = answering(after);
        assert_eq!(client.get("k").expect("it is found"), None);
        assert_eq!((client.topology().port(0), client.doubts), (second, false));
        telling.join().expect("it told twice");
        let quit = [&[0, 0, 0, 0, 0, 1, 0, 0][..], b"quit"].concat();
        before.send_to(&quit, (moved_to, second)).expect("it sends");
        answers.join().expect("it answered");
    }

    #[test]
    fn a_server_that_is_where_it_was_is_asked_by_the_same_socket() {
        // Nobody reads it.
        let queue = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = queue.local_addr().expect("it is bound").port();
        let told = format!("STAT udp_port_base {port}\r\nSTAT queues 1\r\nEND\r\n");
        let (address, telling) = telling(vec![told; 2]);
        let mut client = Client::connect_with(address, doubting()).expect("it tells");
        let socket = |client: &Client| match &client.link {
            Link::Udp(socket) => std::ptr::from_ref::<Socket>(socket),
            _ => unreachable!("it is asked by datagrams"),
        };
        let before = socket(&client);
        for _ in 0..2 {
            assert!(matches!(client.get("k"), Err(Error::TimedOut { .. })), "nobody answers");
        }
        telling.join().expect("it told twice");
        assert_eq!(socket(&client), before);
    }

    #[test]
    fn a_server_that_is_found_again_has_a_window_of_its_own() {
        let settings = Settings { window_max: 2, get_keys_max: 1, ..Settings::default() };
        let (address, topology) = ((Ipv4Addr::LOCALHOST, 9).into(), Topology::single(9));
        let mut client = Client::of(address, topology, settings).expect("a socket");
        let leave_at_once = |core: &mut Core| {
            for number in 0..100 {
                core.push(Request::get(format!("k{number}")), 0).expect("there is room");
            }
            std::iter::from_fn(|| core.transmit(0, &mut Vec::new())).count()
        };
        assert_eq!(leave_at_once(&mut client.core), 2);
        for window_max in [16, 1] {
            client.go_over(Reached { link: None, topology, window_max });
            assert_eq!(leave_at_once(&mut client.core), window_max);
        }
    }

    #[test]
    fn a_server_that_tells_a_byte_at_a_time_is_given_up_in_time() {
        const LIMIT: Duration = Duration::from_millis(50);
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = server.local_addr().expect("it is bound");
        let dripping = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("the client comes");
            stream.read_exact(&mut [0; 16]).expect("it asks");
            stream.set_read_timeout(Some(LIMIT / 5)).expect("a time-out can be set");
            // Until the client has gone, or for far longer than it should wait.
            for _ in 0..200 {
                let is_gone = stream.write_all(b"S").is_err();
                if is_gone || matches!(stream.read(&mut [0]), Ok(0)) {
                    return;
                }
            }
        });
        let told = topology_by_tcp(&[address], LIMIT.as_nanos() as u64);
        assert!(matches!(told, Err(Error::Io(_))), "{told:?}");
        dripping.join().expect("it ended");
    }

    #[test]
    fn a_server_that_takes_no_word_of_its_replies_keeps_nobody_waiting() {
        let terms = Terms { window: 1, replies: 2, loans: 1, ..Terms::of(1, 8192) };
        let registry = Registry::new(terms, 1);
        let (given, _, server) = door::join(&registry).expect("memory").expect("a place");
        let link = Link::Memory(Box::new(Memory::new(RingRequester::new(given))));
        let settings = Settings { deadline_nanos: 20_000_000, ..Settings::in_memory() };
        let mut client = Client::by(link, Topology::in_memory(1, 8192), settings);
        // One lies in the only slot, one waits for it, and one waits for that.
        (1..4).for_each(|id| client.core.has_taken((0, id, 2)));
        assert!(matches!(client.get("k"), Err(Error::TimedOut { .. })), "it stands still");
        // As a client does that has asked for the first time.
        assert!(!client.core.is_idle());
        let topology = *client.core.topology();
        client.core.move_to(topology);
        assert!(client.core.is_idle());
        drop(server);
        assert!(matches!(client.get("k"), Err(Error::Io(_))), "it is gone");
    }

    #[test]
    fn datagrams_go_where_the_server_takes_them_and_not_where_it_was_connected_to() {
        for (told, connected, wanted) in [
            (None, "10.0.0.5:7", Some("10.0.0.5:7")),
            (Some("127.0.0.1"), "127.0.0.1:7", Some("127.0.0.1:7")),
            (Some("127.0.0.1"), "[::1]:7", Some("127.0.0.1:7")), // localhost is both
            (Some("127.0.0.1"), "10.0.0.5:7", None),
            (Some("::1"), "[2001:db8::1]:7", None),
            (Some("10.0.0.5"), "127.0.0.1:7", Some("10.0.0.5:7")),
            (Some("10.0.0.5"), "192.0.2.1:7", Some("192.0.2.1:7")), // something lies between
            (Some("0.0.0.0"), "127.0.0.2:7", Some("127.0.0.1:7")),
            (Some("0.0.0.0"), "10.0.0.5:7", Some("10.0.0.5:7")),
            (Some("::"), "[::1]:7", Some("[::1]:7")),
            (Some("0.0.0.0"), "[2001:db8::1]:7", None), // a name has addresses of both families
            (Some("::"), "10.0.0.5:7", None),
            (Some("10.0.0.5"), "[2001:db8::1]:7", Some("10.0.0.5:7")),
            (Some("10.0.0.5"), "[::ffff:10.0.0.5]:7", Some("[::ffff:10.0.0.5]:7")),
            (Some("nonsense"), "10.0.0.5:7", Some("10.0.0.5:7")),
        ] {
            let stats = told.map(|told| ("udp_address".to_owned(), told.to_owned()));
            let stats: Vec<(String, String)> = stats.into_iter().collect();
            let found = datagrams_at(&stats, connected.parse().expect(connected)).ok();
            let wanted: Option<SocketAddr> = wanted.map(|wanted| wanted.parse().expect(wanted));
            assert_eq!(found, wanted, "{told:?} {connected}");
        }
    }

    #[test]
    fn every_address_of_a_name_is_tried() {
        let told = "STAT udp_port_base 21000\r\nSTAT queues 2\r\nEND\r\n".to_owned();
        let (live, telling) = telling(vec![told; 2]);
        // The port of one who connected: nobody listens there, nor can as long as it is open.
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let held =
            TcpStream::connect(other.local_addr().expect("it is bound")).expect("it listens");
        let dead = held.local_addr().expect("it is bound");
        let (address, datagrams, topology) =
            topology_by_tcp(&[dead, live], PATIENCE_NANOS).expect("the second answers");
        assert_eq!((address, datagrams, topology), (live, live, Topology::queues(21_000, 2)));
        let wildcard = SocketAddr::from((Ipv4Addr::UNSPECIFIED, live.port()));
        let (address, ..) =
            topology_by_tcp(&[wildcard], PATIENCE_NANOS).expect("it leads to this host");
        assert_eq!(address, live, "only what comes from there is believed");
        telling.join().expect("it told twice");
    }
}
