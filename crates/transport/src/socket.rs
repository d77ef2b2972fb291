//! TCP and unix sockets over epoll, one epoll set per worker.
//!
//! Listeners are shared: every watching worker has them in its set with `EPOLLEXCLUSIVE`, so one
//! waits, one wakes. (A listener per worker by `SO_REUSEPORT` would leave connections hashed to a
//! worker that turned large, or is busy, waiting in its backlog.)
//!
//! Streams and queues of datagrams are told of once (edge-triggered), or the kernel would look at
//! each again in the next wait, to find it empty. A read that brings less than it had room for has
//! emptied its socket; what comes after is told. (The kernel also ends a read early at urgent data,
//! and at descriptors sent along: a peer that sends these may wait until it sends more.)
//!
//! The alarm is a timer in the set that stands until it goes off, where a timeout of `epoll_wait`
//! would be set and taken away again with every wait.

use crate::data_words::{
    CHANNELS_MAX, DOORBELLS_MAX, PLACES_MAX, WORD_ALARM, WORD_CHANNELS, WORD_DOORBELLS,
    WORD_LISTENERS, WORD_PLACES, WORD_QUEUES, WORD_WAKE,
};
use crate::datagram::Path;
use crate::listener::{named, named_own};
use crate::shm_watch::Watch;
use crate::udp::Sockets;
use crate::verbs;
use crate::xdp::watch::Watch as BypassWatch;
use crate::{FOREVER, Interest, Ready, Stream, Token, Transport, Wait, Wake};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};
use std::time::Duration;

pub use crate::listener::Listener;

/// Events taken from the kernel by one call, at most.
const EVENTS_MAX: usize = 64;

/// A connected socket.
pub struct SocketStream {
    socket: OwnedFd,
    peer: Option<SocketAddr>,
}

impl Stream for SocketStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (received, _) = rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT)?;
        Ok(received)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [piece] = pieces {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            return Ok(rustix::net::send(&self.socket, piece, flags)?);
        }
        let mut none = SendAncillaryBuffer::default();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::sendmsg(&self.socket, pieces, &mut none, flags)?)
    }

    fn limit_unsent(&mut self, bytes_max: Option<usize>) {
        if self.peer.is_none() {
            return; // a unix socket: what is written has arrived
        }
        // To the kernel, 0 is no limit of this socket's own.
        let bytes = bytes_max.map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX).max(1));
        // Where it is refused, more waits than was wanted, as it does everywhere else.
        let _ = SockRef::from(&self.socket).set_tcp_notsent_lowat(bytes);
    }

    fn peer(&self) -> String {
        self.peer.map_or_else(|| "unix".to_owned(), named)
    }

    fn local(&self) -> Option<String> {
        named_own(&SockRef::from(&self.socket))
    }
}

struct EventWake {
    event: OwnedFd,
    /// Set from the first wake until the sleeper has seen it: later wakes cost no system call.
    pending: AtomicBool,
}

impl Wake for EventWake {
    fn wake(&self) {
        // (W) pairs with (R) in `poll`: what was handed over before the wake is seen after it.
        if !self.pending.swap(true, AcqRel) {
            // Only a full counter (2^64 - 2 wakes) can refuse, and then the sleeper wakes anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

/// One worker's epoll set.
pub struct SocketTransport {
    epoll: OwnedFd,
    wake: Arc<EventWake>,
    /// `None` where the kernel gives none.
    alarm: Option<OwnedFd>,
    listeners: Arc<Vec<Listener>>,
    watching: bool,
    queues: Option<Arc<Sockets>>,
    /// What is watched for, by queue and path.
    queues_watching: BTreeMap<(usize, Path), Watching>,
    /// Clients in memory, where they are served.
    rdma: Option<Watch>,
    /// Clients over RDMA, where they are.
    verbs: Option<verbs::Watch>,
    /// The way past the stack, where there is one.
    bypass: Option<BypassWatch>,
}

/// What one socket of a queue is watched for.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Watching {
    arrivals: bool,
    room: bool,
}

impl Watching {
    /// Several workers may watch one queue: one waits, one wakes. Told once (edge-triggered), or
    /// the kernel would look at the queue again in the next wait, only to find it empty.
    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::EXCLUSIVE | epoll::EventFlags::ET;
        flags.set(epoll::EventFlags::IN, self.arrivals);
        flags.set(epoll::EventFlags::OUT, self.room);
        flags
    }
}

impl SocketTransport {
    /// A set over the server's listeners, none of which is watched yet.
    pub fn new(listeners: Arc<Vec<Listener>>) -> io::Result<SocketTransport> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &event, epoll::EventData::new_u64(WORD_WAKE), epoll::EventFlags::IN)?;
        let wake = Arc::new(EventWake { event, pending: AtomicBool::new(false) });
        let alarm = alarm(&epoll)?;
        Ok(SocketTransport {
            epoll,
            wake,
            alarm,
            listeners,
            watching: false,
            queues: None,
            queues_watching: BTreeMap::new(),
            rdma: None,
            verbs: None,
            bypass: None,
        })
    }

    /// The same with a way past the stack to the server's queues of datagrams.
    pub fn with_bypass(mut self, watch: BypassWatch) -> SocketTransport {
        self.bypass = Some(watch);
        self
    }

    /// The same with queues in memory, numbered behind those of UDP.
    pub fn with_rdma(mut self, watch: Watch) -> SocketTransport {
        self.rdma = Some(watch);
        self
    }

    /// The same with queues of clients over RDMA, numbered behind those of UDP, too.
    pub fn with_verbs(mut self, watch: verbs::Watch) -> SocketTransport {
        self.verbs = Some(watch);
        self
    }

    /// The same with the server's queues of datagrams, none of which is watched yet.
    pub fn with_datagrams(mut self, queues: Arc<Sockets>) -> SocketTransport {
        self.queues = Some(queues);
        self
    }

    fn watch_queue(
        &mut self,
        queue: usize,
        path: Path,
        change: impl FnOnce(&mut Watching),
    ) -> io::Result<()> {
        let queues = self.queues.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let before = self.queues_watching.get(&(queue, path)).copied().unwrap_or_default();
        let mut after = before;
        change(&mut after);
        if after == before {
            return Ok(());
        }
        let socket = queues.socket(queue, path);
        // An exclusive entry cannot be changed, only replaced.
        if before != Watching::default() {
            epoll::delete(&self.epoll, socket)?;
            self.queues_watching.remove(&(queue, path));
        }
        if after != Watching::default() {
            let number = 2 * queue as u64 + u64::from(path == Path::Large);
            let data = epoll::EventData::new_u64(WORD_QUEUES + number);
            epoll::add(&self.epoll, socket, data, after.flags())?;
            self.queues_watching.insert((queue, path), after);
        }
        Ok(())
    }

    /// Look into the memory that clients write. How long the kernel may then wait.
    fn poll_memory(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let before = ready.len();
        if let Some(watch) = &mut self.verbs {
            watch.follow(&self.epoll, WORD_CHANNELS);
            watch.look(ready);
        }
        let wait = if ready.len() == before { wait } else { Wait::No };
        let wait = self.poll_shared_memory(ready, wait);
        match &mut self.verbs {
            Some(watch) if ready.len() == before => watch.wait(ready, wait),
            _ => wait,
        }
    }

    fn poll_shared_memory(&mut self, ready: &mut Vec<Ready>, wait: Wait) -> Wait {
        let Some(watch) = &mut self.rdma else { return wait };
        watch.follow(&self.epoll, WORD_DOORBELLS);
        let before = ready.len();
        watch.look(ready);
        match wait {
            Wait::AtMost(_) if ready.len() == before => watch.arm(ready, wait),
            _ => Wait::No,
        }
    }

    /// Tell an event. One of the way past the stack is one of each of its queues, and a queue's
    /// may come by both ways.
    fn tell(&mut self, event: &epoll::Event, ready: &mut Vec<Ready>) {
        let bell = event.data.u64().wrapping_sub(WORD_DOORBELLS);
        if let Some(rdma) = self.rdma.as_mut().filter(|_| bell < DOORBELLS_MAX) {
            // Whoever rang has written before: the next poll looks.
            rdma.told(bell);
            return ready.push(Ready::Woken);
        }
        let channel = event.data.u64().wrapping_sub(WORD_CHANNELS);
        if let Some(verbs) = self.verbs.as_mut().filter(|_| channel < CHANNELS_MAX) {
            return verbs.told(channel as usize, ready);
        }
        let Some(bypass) = &self.bypass else { return ready.push(self.ready(event)) };
        let place = WORD_PLACES.wrapping_sub(event.data.u64());
        if place < PLACES_MAX {
            return bypass.told(place as usize, ready);
        }
        match self.ready(event) {
            Ready::Datagrams(queue) => bypass.told_by_socket(queue, ready),
            told => ready.push(told),
        }
    }

    fn ready(&self, event: &epoll::Event) -> Ready {
        match event.data.u64() {
            WORD_ALARM => Ready::Woken,
            WORD_WAKE => {
                let mut count = [0u8; 8];
                let _ = rustix::io::read(&self.wake.event, &mut count); // empty: woken twice
                // (R) pairs with (W): cleared before the caller looks at what it was woken for.
                self.wake.pending.swap(false, AcqRel);
                Ready::Woken
            }
            word if word >= WORD_LISTENERS => Ready::Listener((word - WORD_LISTENERS) as usize),
            word if word >= WORD_QUEUES => {
                let number = (word - WORD_QUEUES) as usize;
                let (queue, path) = (number / 2, [Path::Small, Path::Large][number % 2]);
                // Room is told alone: who has it sends, stops watching, and is told the rest. What
                // is neither is an error, which receiving finds.
                let flags = event.flags;
                if path == Path::Large || flags.contains(epoll::EventFlags::OUT) {
                    Ready::Room(queue, path)
                } else {
                    Ready::Datagrams(queue)
                }
            }
            word => {
                let flags = event.flags;
                let ready = if flags.intersects(ENDS) { Ready::Ending } else { Ready::Stream };
                ready(Token::unpack(word))
            }
        }
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    epoll::EventFlags::ET
        | match interest {
            Interest::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Nothing => epoll::EventFlags::empty(),
        }
}

/// What of a stream's events says that no later one will tell of its end.
const ENDS: epoll::EventFlags =
    epoll::EventFlags::RDHUP.union(epoll::EventFlags::HUP).union(epoll::EventFlags::ERR);

/// A timer in the set, that is not set. It is never read: told once, it need not be.
fn alarm(epoll: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let Ok(alarm) = timerfd_create(TimerfdClockId::Monotonic, flags) else { return Ok(None) };
    let data = epoll::EventData::new_u64(WORD_ALARM);
    epoll::add(epoll, &alarm, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    Ok(Some(alarm))
}

impl Transport for SocketTransport {
    type Stream = SocketStream;

    fn poll(&mut self, ready: &mut Vec<Ready>, burst: usize, wait: Wait) -> io::Result<()> {
        let wait = match &mut self.bypass {
            Some(bypass) => bypass.look(ready, wait),
            None => wait,
        };
        let wait = self.poll_memory(ready, wait);
        let timeout = match wait {
            Wait::No => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Wait::AtMost(time) if time == FOREVER => None,
            // Whole milliseconds, rounded up: epoll_wait rather than epoll_pwait2, and no
            // spinning through the last fraction of one.
            Wait::AtMost(time) => {
                let milliseconds = time.as_nanos().div_ceil(1_000_000) as u64;
                Timespec::try_from(Duration::from_millis(milliseconds)).ok()
            }
        };
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room[..burst.min(EVENTS_MAX)], timeout.as_ref()) {
            Ok((events, _)) => events.iter().for_each(|event| self.tell(event, ready)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let (Some(watch), Wait::AtMost(_)) = (&mut self.rdma, wait) {
            watch.disarm();
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<SocketStream>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::acceptfrom_with(&self.listeners[listener], flags) {
            Ok((socket, address)) => {
                let peer = address.and_then(|address| SocketAddr::try_from(address).ok());
                Ok(Some(SocketStream { socket, peer }))
            }
            // The client left before we came, or another worker was first.
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn watch_listeners(&mut self, watch: bool) -> io::Result<()> {
        if watch == self.watching {
            return Ok(());
        }
        for (number, listener) in self.listeners.iter().enumerate() {
            if !watch {
                epoll::delete(&self.epoll, listener)?;
                continue;
            }
            let data = epoll::EventData::new_u64(WORD_LISTENERS + number as u64);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            if let Err(error) = epoll::add(&self.epoll, listener, data, flags) {
                // All or none: whoever asked tries again.
                for added in &self.listeners[..number] {
                    let _ = epoll::delete(&self.epoll, added); // it is there
                }
                return Err(error.into());
            }
        }
        self.watching = watch;
        Ok(())
    }

    fn attach(
        &mut self,
        stream: &SocketStream,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.pack());
        Ok(epoll::add(&self.epoll, &stream.socket, data, flags(interest))?)
    }

    fn rearm(&mut self, stream: &SocketStream, token: Token, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.pack());
        Ok(epoll::modify(&self.epoll, &stream.socket, data, flags(interest))?)
    }

    fn detach(&mut self, stream: &SocketStream) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, &stream.socket)?)
    }

    fn watch_datagrams(&mut self, queue: usize, watch: bool) -> io::Result<()> {
        if let Some(rdma) = self.rdma.as_mut().filter(|rdma| rdma.has(queue)) {
            rdma.watch(queue, watch, &self.epoll, WORD_DOORBELLS);
            return Ok(());
        }
        if let Some(verbs) = self.verbs.as_mut().filter(|verbs| verbs.has(queue)) {
            verbs.watch(queue, watch, &self.epoll, WORD_CHANNELS);
            return Ok(());
        }
        if let Some(bypass) = &mut self.bypass {
            bypass.watch(queue, watch, &self.epoll, WORD_PLACES)?;
        }
        self.watch_queue(queue, Path::Small, |watching| watching.arrivals = watch)
    }

    fn watch_room(&mut self, queue: usize, path: Path, watch: bool) -> io::Result<()> {
        if let Some(rdma) = self.rdma.as_mut().filter(|rdma| rdma.has(queue)) {
            rdma.watch_room(queue, watch);
            return Ok(());
        }
        if let Some(verbs) = self.verbs.as_mut().filter(|verbs| verbs.has(queue)) {
            verbs.watch_room(queue, watch);
            return Ok(());
        }
        if self.bypass.as_mut().is_some_and(|bypass| bypass.watch_room(queue, path, watch)) {
            return Ok(());
        }
        self.watch_queue(queue, path, |watching| watching.room = watch)
    }

    fn set_alarm(&mut self, after: Duration) -> bool {
        let Some(alarm) = &self.alarm else { return false };
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        // To the kernel, 0 is no alarm.
        let after = after.max(Duration::from_nanos(1));
        let Ok(it_value) = Timespec::try_from(after) else { return false };
        let timer = Itimerspec { it_interval: none, it_value };
        timerfd_settime(alarm, TimerfdTimerFlags::empty(), &timer).is_ok()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.wake.clone()
    }
}
