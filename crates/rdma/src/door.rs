//! Gives a client its region: the client connects to a unix socket of the server, says hello, and
//! is passed the memory and the doorbells (`SCM_RIGHTS`). Every process that may open the socket's
//! path may be a client. The connection stays open; its end is the client's end. Behind the door
//! stands a [`House`]; clients that come over a network have another one ([`crate::verbs`]).
//!
//! The server makes the memory, seals its size and lays it out; the client is told the terms in a
//! line. (HERD's clients are told addresses and keys by a daemon of their own, §4.2.) Nobody waits
//! for a client that says nothing: who has not said hello within [`HELLO_NANOS`] is sent away, and
//! of more than [`HELLOS_MAX`] the oldest, of the address that has most of them. Who became a
//! member and does not use its place within [`PROOF_NANOS`] loses it again: what it said may be
//! invented.
//!
//! It knows no clock and no thread: somebody calls [`Door::turn`] and tells the time.

use crate::contract::Peer;
use crate::layout::{LANES_MAX, Terms};
use crate::mapped::{self, Mapped};
use crate::region::{Region, Registry};
use crate::shmring::{Given, RingRequester};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, accept_with, getpeername, recv, recvmsg, send,
    sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What a client says, and the version of all of this.
pub const HELLO: &[u8] = b"laneway-shm 2\n";
/// The same of one that knows no other replies than frames: as version 2 without places.
pub const HELLO_FRAMED: &[u8] = b"laneway-shm 1\n";
/// What a server says to who says hello of version 2 if it knows version 1 alone.
const SAY_FRAMED: &str = "say laneway-shm 1";
/// Longest line either side says.
const LINE_BYTES_MAX: usize = 256;
/// Connections that have said nothing yet.
pub const HELLOS_MAX: usize = 16;
/// How long a connection may take to say hello.
pub const HELLO_NANOS: u64 = 10_000_000_000;
/// How long a member may leave its place unused.
pub const PROOF_NANOS: u64 = 10_000_000_000;
/// How long a door that has no descriptors left waits before it opens again, and how often it looks
/// for regions that nobody has hold of any more.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often it looks whether hellos are said in time, and new members use their places.
const PROOF_PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long a client waits for the server's line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Descriptors passed at once: the memory, and a doorbell for each lane.
const PASSED_MAX: usize = 1 + LANES_MAX;

/// A connection that has not said hello.
struct Hello {
    stream: OwnedFd,
    said: Vec<u8>,
    from: Option<IpAddr>,
    /// When it is to have said hello.
    say_by: u64,
}

/// One that has.
struct Member {
    stream: OwnedFd,
    peer: Peer,
    /// When it is to have used its place; nothing once it has.
    prove_by: Option<u64>,
}

/// What was heard of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard<T> {
    /// All that it has to say.
    Whole(T),
    /// Less.
    More,
    /// Something else; and what is to be said of it, or was.
    Nonsense(String),
}

/// What became of who said hello.
pub enum Admitted {
    /// It is a member, until its connection ends.
    Member(Peer),
    /// It was one, and is gone.
    Gone,
    /// There is no place for it, and it was told.
    Refused,
}

/// Where the clients of a door live.
pub trait House {
    /// What a client says.
    type Hello;

    /// Judge all that a connection has said. Who says something else is told why it is that.
    fn hear(&self, said: &[u8]) -> Heard<Self::Hello>;
    /// Give a client its place, and say so.
    fn admit(&self, hello: Self::Hello, stream: &OwnedFd) -> Admitted;
    /// Somebody said something else, or nothing for too long, or did not use its place in time.
    fn misheard(&self);
    /// A member is gone.
    fn leave(&self, peer: Peer);
    /// Whether a member has used its place.
    fn is_proven(&self, _peer: Peer) -> bool {
        true
    }
    /// Let go of what those had that are gone, as far as nobody uses it; whether some is left.
    fn bury(&self) -> bool;
}

/// The server's side.
pub struct Door<L, H: House = Registry> {
    listener: L,
    house: Arc<H>,
    hellos: VecDeque<Hello>,
    members: Vec<Member>,
    /// Readable when the door is to close: its other end is gone.
    stop: UnixStream,
    paused: bool,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// Nobody came or went.
    Same,
    /// The registry has changed: workers are to look.
    Changed,
    /// The door is closed.
    Closed,
}

impl<L: AsFd, H: House> Door<L, H> {
    /// A door at `listener`, a listening socket that does not block, for the clients of `house`. It
    /// closes when the second value is dropped.
    pub fn new(listener: L, house: Arc<H>) -> io::Result<(Door<L, H>, UnixStream)> {
        let (stop, stopper) = UnixStream::pair()?;
        let (hellos, members) = (VecDeque::new(), Vec::new());
        Ok((Door { listener, house, hellos, members, stop, paused: false }, stopper))
    }

    /// Wait for something to happen, `most` at most, and do what is to be done. `now` tells the
    /// time, in nanoseconds.
    pub fn turn(&mut self, most: Option<&Timespec>, now: impl Fn() -> u64) -> io::Result<Turned> {
        // What is left is let go of soon, but nobody says when.
        let is_left = self.house.bury();
        let is_proving = self.members.iter().any(|member| member.prove_by.is_some());
        let is_timed = is_proving || !self.hellos.is_empty();
        let most = match most {
            _ if self.paused => Some(&PAUSE),
            None if is_left => Some(&PAUSE),
            None if is_timed => Some(&PROOF_PAUSE),
            most => most,
        };
        let (stops, comes, said, gone) = {
            let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
            let wanted = if self.paused { PollFlags::empty() } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), wanted));
            fds.extend(self.hellos.iter().map(|h| PollFd::new(&h.stream, PollFlags::IN)));
            fds.extend(self.members.iter().map(|m| PollFd::new(&m.stream, PollFlags::IN)));
            match poll(&mut fds, most) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let (hellos, members) = happened[2..].split_at(self.hellos.len());
            (happened[0], happened[1], hellos.to_vec(), members.to_vec())
        };
        self.paused = false;
        if stops {
            return Ok(Turned::Closed);
        }
        let now = now();
        let mut changed = self.part(&gone, now);
        changed |= self.listen(&said, now);
        if comes {
            self.accept(now);
        }
        Ok(if changed { Turned::Changed } else { Turned::Same })
    }

    /// Members have nothing more to say: whatever comes of one, be it its end, is the end. So is
    /// the time by which it was to use its place.
    fn part(&mut self, gone: &[bool], now: u64) -> bool {
        let mut gone = gone.iter();
        let house = &self.house;
        let before = self.members.len();
        self.members.retain_mut(|member| {
            let is_gone = gone.next().is_some_and(|gone| *gone);
            let peer = member.peer;
            member.prove_by = member.prove_by.filter(|_| !house.is_proven(peer));
            let is_late = member.prove_by.is_some_and(|prove_by| prove_by <= now);
            if is_late {
                house.misheard();
            }
            if is_gone || is_late {
                house.leave(peer);
            }
            !(is_gone || is_late)
        });
        self.members.len() < before
    }

    /// Who has said hello becomes a member; who said something else is told, and sent away. So is
    /// who took too long, without a word.
    fn listen(&mut self, said: &[bool], now: u64) -> bool {
        let mut changed = false;
        for has_said in said {
            let Some(mut hello) = self.hellos.pop_front() else { break };
            let is_late = hello.say_by <= now;
            if !has_said {
                match is_late {
                    true => self.house.misheard(),
                    false => self.hellos.push_back(hello),
                }
                continue;
            }
            if !hello.read() {
                continue; // that was its end
            }
            match self.house.hear(&hello.said) {
                Heard::Whole(said) => match self.house.admit(said, &hello.stream) {
                    Admitted::Member(peer) => {
                        let prove_by = Some(now.saturating_add(PROOF_NANOS));
                        self.members.push(Member { stream: hello.stream, peer, prove_by });
                        changed = true;
                    }
                    Admitted::Gone => changed = true,
                    Admitted::Refused => {}
                },
                Heard::More if is_late => self.house.misheard(),
                Heard::More => self.hellos.push_back(hello),
                Heard::Nonsense(why) => {
                    self.house.misheard();
                    refuse(&hello.stream, &why);
                }
            }
        }
        changed
    }

    /// The oldest that has not said hello, of the address that has most of these: who opens many
    /// connections sends away its own.
    fn send_one_away(&mut self) {
        let count = |from| self.hellos.iter().filter(|hello| hello.from == from).count();
        let most = self.hellos.iter().map(|hello| count(hello.from)).max();
        let oldest = self.hellos.iter().position(|hello| Some(count(hello.from)) == most);
        oldest.and_then(|oldest| self.hellos.remove(oldest));
    }

    fn accept(&mut self, now: u64) {
        match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(stream) => {
                let from = address_of(&stream);
                let say_by = now.saturating_add(HELLO_NANOS);
                self.hellos.push_back(Hello { stream, said: Vec::new(), from, say_by });
                if self.hellos.len() > HELLOS_MAX {
                    self.send_one_away();
                    self.house.misheard();
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // For want of descriptors or memory: whoever waits would wake us again at once.
            Err(_) => self.paused = true,
        }
    }
}

/// Where a connection comes from, if that is an address of the network; of IPv6 the first half,
/// since whoever has one such address has all of its network.
pub(crate) fn address_of(stream: &OwnedFd) -> Option<IpAddr> {
    let address = SocketAddr::try_from(getpeername(stream).ok()??).ok()?;
    Some(network_of(address.ip().to_canonical()))
}

pub(crate) fn network_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

/// Whose door is closed is no client any more.
impl<L, H: House> Drop for Door<L, H> {
    fn drop(&mut self) {
        self.members.iter().for_each(|member| self.house.leave(member.peer));
    }
}

impl Hello {
    /// Take in what came. False: it was the end.
    fn read(&mut self) -> bool {
        let mut room = [0; LINE_BYTES_MAX];
        match recv(&self.stream, &mut room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok((count, _)) => {
                self.said.extend_from_slice(&room[..count]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

/// What a client in shared memory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// It knows no other replies than frames.
    Framed,
    /// It takes long replies out of memory.
    Placed,
}

impl Version {
    /// Of what a server gives, what such a client gets.
    fn of(self, terms: Terms) -> Terms {
        match self {
            Version::Framed => terms.framed(),
            Version::Placed => terms,
        }
    }

    fn hello(self) -> &'static [u8] {
        match self {
            Version::Framed => HELLO_FRAMED,
            Version::Placed => HELLO,
        }
    }
}

impl House for Registry {
    type Hello = Version;

    fn hear(&self, said: &[u8]) -> Heard<Version> {
        match said {
            said if said == HELLO => Heard::Whole(Version::Placed),
            said if said == HELLO_FRAMED => Heard::Whole(Version::Framed),
            said if HELLO.starts_with(said) || HELLO_FRAMED.starts_with(said) => Heard::More,
            _ => Heard::Nonsense("say laneway-shm 2".into()),
        }
    }

    /// Give a client its region.
    fn admit(&self, version: Version, stream: &OwnedFd) -> Admitted {
        let terms = version.of(self.terms());
        let mut passed = None;
        let entered = self.enter(|peer| {
            let (region, fds) = make(terms, peer)?;
            passed = Some(fds);
            Ok(region)
        });
        let (region, fds) = match (entered, passed) {
            (Ok(Some(region)), Some(fds)) => (region, fds),
            (Ok(_), _) => {
                let most = self.clients().len();
                refuse(stream, &format!("there are {most} clients already: raise --shm-clients"));
                return Admitted::Refused;
            }
            (Err(error), _) => {
                refuse(stream, &format!("no region can be made: {error}"));
                return Admitted::Refused;
            }
        };
        let peer = region.peer();
        if pass(stream, &line_of(terms, version), &fds).is_err() {
            self.leave(peer);
            return Admitted::Gone;
        }
        Admitted::Member(peer)
    }

    fn misheard(&self) {
        self.hellos_bad.fetch_add(1, Relaxed);
    }

    fn leave(&self, peer: Peer) {
        Registry::leave(self, peer);
    }

    fn bury(&self) -> bool {
        Registry::bury(self)
    }
}

/// Say no. Whoever does not hear it hears the end.
pub(crate) fn refuse(stream: &OwnedFd, why: &str) {
    let line = format!("ERROR {why}\n");
    let _ = send(stream, line.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

fn make(terms: Terms, peer: Peer) -> io::Result<(Region, Vec<OwnedFd>)> {
    let memory = mapped::create(terms.region_bytes(), terms.bulk_at())?;
    let map = Mapped::of(&memory, terms.region_bytes())?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let doorbells: Vec<OwnedFd> =
        (0..terms.lanes).map(|_| eventfd(0, flags)).collect::<Result<_, _>>()?;
    let mut passed = vec![memory];
    for doorbell in &doorbells {
        passed.push(doorbell.try_clone()?);
    }
    Ok((Region::new(map, terms, peer, doorbells), passed))
}

/// What a client of that version is told of its region.
fn line_of(terms: Terms, version: Version) -> String {
    let Terms { lanes, window, replies, loans, bulk_bytes, places, reply_bytes } = terms;
    let told = format!("OK {lanes} {window} {replies} {loans} {bulk_bytes}");
    match version {
        Version::Framed => format!("{told}\n"),
        Version::Placed => format!("{told} {places} {reply_bytes}\n"),
    }
}

fn pass(stream: &OwnedFd, line: &str, fds: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&borrowed)), "there is space for them");
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut control, flags)?;
    Ok(())
}

/// Become a client of a server in this process: what the door would give, without a door. The
/// server has to be told when it leaves, and seems gone once the stream is dropped. `None`: there
/// is no place.
pub fn join(registry: &Registry) -> io::Result<Option<(Given, Peer, UnixStream)>> {
    join_as(Version::Placed, registry)
}

/// The same as a client of that version.
pub fn join_as(
    version: Version,
    registry: &Registry,
) -> io::Result<Option<(Given, Peer, UnixStream)>> {
    let terms = version.of(registry.terms());
    let mut passed = Vec::new();
    let entered = registry.enter(|peer| {
        let (region, fds) = make(terms, peer)?;
        passed = fds;
        Ok(region)
    })?;
    let Some(region) = entered else { return Ok(None) };
    let (ours, theirs) = UnixStream::pair()?;
    let doorbells = passed.split_off(1);
    let map = Mapped::of(&passed[0], terms.region_bytes())?;
    Ok(Some((Given { map, terms, doorbells, door: ours.into() }, region.peer(), theirs)))
}

/// Become a client of the server whose door is at `path`, of the version that it knows.
pub fn enter(path: &Path) -> io::Result<RingRequester> {
    let entered = enter_as(Version::Placed, path);
    let is_old = matches!(&entered, Err(error) if error.to_string() == SAY_FRAMED);
    if is_old { enter_as(Version::Framed, path) } else { entered }
}

/// The same as a client of that version.
pub fn enter_as(version: Version, path: &Path) -> io::Result<RingRequester> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(version.hello())?;
    let mut said = Vec::new();
    let mut fds = Vec::new();
    while !said.ends_with(b"\n") && said.len() <= LINE_BYTES_MAX {
        if hear(&stream, &mut said, &mut fds)? == 0 {
            break;
        }
    }
    let line = String::from_utf8_lossy(&said).trim_end().to_string();
    let Some(terms) = read_terms(&line) else {
        let why = line.strip_prefix("ERROR ").unwrap_or("it does not speak laneway-shm 2");
        return Err(io::Error::other(why.to_string()));
    };
    if fds.len() != 1 + terms.lanes {
        let what = format!("{} descriptors came for {} lanes", fds.len(), terms.lanes);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let doorbells = fds.split_off(1);
    let map = Mapped::of(&fds[0], terms.region_bytes())?;
    Ok(RingRequester::new(Given { map, terms, doorbells, door: stream.into() }))
}

fn hear(stream: &UnixStream, said: &mut Vec<u8>, fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut room = [0; LINE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(&mut room)];
    // A process that was halted and goes on, whose socket has a time limit, is interrupted.
    let received =
        retry_on_intr(|| recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    said.extend_from_slice(&room[..received.bytes]);
    Ok(received.bytes)
}

fn read_terms(line: &str) -> Option<Terms> {
    let words: Option<Vec<usize>> =
        line.strip_prefix("OK ")?.split(' ').map(|word| word.parse().ok()).collect();
    let words = words?;
    let (first, behind) = words.split_first_chunk::<5>()?;
    let &[lanes, window, replies, loans, bulk_bytes] = first;
    let (places, reply_bytes) = match behind {
        [] => (0, 0),
        &[places, reply_bytes] => (places, reply_bytes),
        _ => return None,
    };
    let terms = Terms { lanes, window, replies, loans, bulk_bytes, places, reply_bytes };
    terms.check().is_ok().then_some(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one() {
        let of = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn terms_are_read_as_they_were_written_and_impossible_ones_are_not() {
        let terms = Terms::of(2, 8192);
        assert_eq!(read_terms("OK 2 32 64 16 8192"), Some(terms.framed()));
        assert_eq!(read_terms("OK 2 32 64 16 8192 16 8192"), Some(terms));
        for version in [Version::Framed, Version::Placed] {
            let terms = version.of(terms);
            assert_eq!(read_terms(line_of(terms, version).trim_end()), Some(terms));
        }
        for line in ["", "OK", "OK 2 32 64 16", "OK 2 32 64 16 8192 1", "OK 0 32 64 16 8192"] {
            assert_eq!(read_terms(line), None, "{line}");
        }
        assert_eq!(read_terms("OK 2 32 64 16 8192 1 8 9"), None);
        assert_eq!(read_terms("OK 2 32 64 16 -1"), None);
        assert_eq!(read_terms("ERROR OK 2 32 64 16 8192"), None);
    }
}
