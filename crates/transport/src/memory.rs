//! Streams without a kernel: byte pipes in memory, for tests that repeat exactly from a seed.
//!
//! A [`Net`] has as many listeners as anybody connects to. Tests `connect` to it and hold a
//! [`Client`]; workers hold a [`MemoryTransport`]. The faults of [`Faults`] (short reads, short
//! writes, refusals for the moment, resets) are drawn from the seed, in the order of the calls: one
//! thread, one story.

use crate::datagram::Path;
use crate::draws::Draws;
use crate::memory_bells::Bells;
use crate::memory_datagram::DatagramNet;
use crate::shm_watch::Watch;
use crate::{Interest, Ready, Stream, Token, Transport, Wait, Wake};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes wrong, in parts of 256 per call, and how much a pipe holds.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Seed of all draws.
    pub seed: u64,
    /// A read or write moves fewer bytes than it could.
    pub short: u8,
    /// A read or write answers `WouldBlock` though it could move bytes.
    pub refuse: u8,
    /// A read or write finds the connection reset.
    pub reset: u8,
    /// Bytes a direction holds before writes answer `WouldBlock`.
    pub pipe_bytes: usize,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Faults = Faults { seed: 1, short: 0, refuse: 0, reset: 0, pipe_bytes: 65536 };
}

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
}

#[derive(Default)]
struct Link {
    to_server: Pipe,
    to_client: Pipe,
    reset: bool,
    /// Counts what is told to who waits for bytes, or for the end.
    arrivals: u64,
    /// Counts what is told to who waits for room.
    rooms: u64,
    /// The server's last write found less room than it wanted.
    blocked: bool,
    /// Of `to_client`, where the server has said how much.
    unsent_max: Option<usize>,
    /// Where the client seems to come from, if that was said.
    from: Option<String>,
}

struct State {
    faults: Faults,
    draws: Draws,
    links: Vec<Link>,
    /// Links that nobody has accepted, and the listener of each.
    backlog: VecDeque<(usize, usize)>,
    /// There is no memory to watch a stream with.
    unwatchable: bool,
}

impl State {
    /// What a pipe to the client holds before writes answer `WouldBlock`.
    fn room(&self, link: usize) -> usize {
        let pipe_bytes = self.faults.pipe_bytes;
        self.links[link].unsent_max.map_or(pipe_bytes, |most| most.min(pipe_bytes))
    }

    fn happens(&mut self, parts_of_256: u8) -> bool {
        parts_of_256 > 0 && self.draws.next() & 0xFF < u32::from(parts_of_256)
    }

    /// The first of these listeners that somebody waits at.
    fn waited_at(&self, listeners: &Range<usize>) -> Option<usize> {
        self.backlog.iter().map(|(listener, _)| *listener).find(|at| listeners.contains(at))
    }

    /// How many of `possible` bytes one call moves, or why it moves none.
    fn allowed(&mut self, link: usize, possible: usize) -> io::Result<usize> {
        if self.happens(self.faults.reset) {
            self.links[link].vanish();
        }
        if self.links[link].reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if possible == 0 || self.happens(self.faults.refuse) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.happens(self.faults.short) {
            return Ok(1 + self.draws.next() as usize % possible);
        }
        Ok(possible)
    }
}

/// Moves as many bytes out of a pipe as `room` has, which it holds.
fn take(pipe: &mut VecDeque<u8>, room: &mut [u8]) {
    let (front, back) = pipe.as_slices();
    let from_front = front.len().min(room.len());
    let (first, second) = room.split_at_mut(from_front);
    first.copy_from_slice(&front[..from_front]);
    second.copy_from_slice(&back[..second.len()]);
    pipe.drain(..room.len());
}

impl Link {
    fn vanish(&mut self) {
        self.reset = true;
        self.arrivals += 1;
        self.rooms += 1;
    }

    /// The client has made room, or the server has said that it may use more.
    fn make_room(&mut self) {
        self.rooms += u64::from(std::mem::take(&mut self.blocked));
    }
}

/// A network. Its listeners are numbers.
#[derive(Clone)]
pub struct Net {
    state: Arc<Mutex<State>>,
}

impl Net {
    /// An empty network with the given faults.
    pub fn new(faults: Faults) -> Net {
        let draws = Draws::new(faults.seed);
        let (links, backlog) = (Vec::new(), VecDeque::new());
        let state = State { faults, draws, links, backlog, unwatchable: false };
        Net { state: Arc::new(Mutex::new(state)) }
    }

    /// A client's end of a new connection; it waits in the backlog until a worker accepts it.
    pub fn connect(&self) -> Client {
        self.connect_at(0)
    }

    /// The same at the listener of this number.
    pub fn connect_at(&self, listener: usize) -> Client {
        let mut state = self.lock();
        let link = state.links.len();
        state.links.push(Link::default());
        state.backlog.push_back((listener, link));
        Client { net: self.clone(), link }
    }

    /// The same of a client that seems to come from there, in the form in which sockets tell it
    /// (`tcp:10.0.0.1:5000`).
    pub fn connect_from(&self, peer: &str) -> Client {
        let client = self.connect();
        self.lock().links[client.link].from = Some(peer.to_owned());
        client
    }

    /// From now on no stream can be watched for anything new, and no listener and no queue, or can
    /// again.
    pub fn refuse_watching(&self, refuse: bool) {
        self.lock().unwatchable = refuse;
    }

    fn may_watch(&self) -> io::Result<()> {
        let refused = self.lock().unwatchable;
        if refused { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }

    /// A worker's transport on this network.
    pub fn transport(&self) -> MemoryTransport {
        MemoryTransport {
            net: self.clone(),
            attached: BTreeMap::new(),
            listeners: 0..usize::MAX,
            watching: false,
            datagrams: None,
            queues_watched: BTreeMap::new(),
            rooms_watched: BTreeSet::new(),
            first_in_memory: usize::MAX,
            bells: None,
            woken: Arc::new(MemoryWake(AtomicBool::new(false))),
            asleep: None,
            next: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's end. Its own reads and writes are free of faults: the faults are the server's to
/// bear.
pub struct Client {
    net: Net,
    link: usize,
}

impl Client {
    /// Send as many of `bytes` as the pipe takes now.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut state = self.net.lock();
        let room = state.faults.pipe_bytes;
        let link = &mut state.links[self.link];
        let taken = bytes.len().min(room.saturating_sub(link.to_server.bytes.len()));
        link.to_server.bytes.extend(&bytes[..taken]);
        link.arrivals += u64::from(taken > 0);
        taken
    }

    /// Take at most `most` bytes that have arrived.
    pub fn receive(&self, most: usize) -> Vec<u8> {
        let mut state = self.net.lock();
        let link = &mut state.links[self.link];
        let bytes = &mut link.to_client.bytes;
        let (front, back) = bytes.as_slices();
        let first = front.len().min(most);
        // Not zeroed before, which is counted for the server where memory is used again.
        let taken = [&front[..first], &back[..back.len().min(most - first)]].concat();
        bytes.drain(..taken.len());
        if !taken.is_empty() {
            link.make_room();
        }
        taken
    }

    /// Say that nothing more will be sent (half close).
    pub fn finish(&self) {
        let link = &mut self.net.lock().links[self.link];
        link.to_server.closed = true;
        link.arrivals += 1;
    }

    /// Vanish: the server's next call finds a reset.
    pub fn reset(&self) {
        self.net.lock().links[self.link].vanish();
    }

    /// Whether the server has closed its end, or the link was reset.
    pub fn ended(&self) -> bool {
        let state = self.net.lock();
        let link = &state.links[self.link];
        link.to_client.closed || link.reset
    }
}

/// The server's end of a connection.
pub struct MemoryStream {
    net: Net,
    link: usize,
}

impl Stream for MemoryStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut state = self.net.lock();
        let pipe = &state.links[self.link].to_server;
        if pipe.bytes.is_empty() && pipe.closed && !state.links[self.link].reset {
            return Ok(0);
        }
        let possible = pipe.bytes.len().min(room.len());
        let moved = state.allowed(self.link, possible);
        let link = &mut state.links[self.link];
        // What a fault keeps back is as if it came later.
        link.arrivals += u64::from(moved.as_ref().map_or(0, |moved| *moved) < possible);
        let moved = moved?;
        take(&mut link.to_server.bytes, &mut room[..moved]);
        Ok(moved)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.net.lock();
        let room = state.room(self.link);
        let free = room.saturating_sub(state.links[self.link].to_client.bytes.len());
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let possible = wanted.min(free);
        let moved = state.allowed(self.link, possible);
        let link = &mut state.links[self.link];
        let taken = moved.as_ref().map_or(0, |moved| *moved);
        link.blocked |= taken < wanted;
        if taken < possible {
            link.make_room(); // what a fault refuses is possible a moment later
        }
        let moved = moved?;
        let pipe = &mut link.to_client.bytes;
        let mut left = moved;
        for piece in pieces {
            let whole = piece.len().min(left);
            pipe.extend(&piece[..whole]);
            left -= whole;
        }
        Ok(moved)
    }

    fn limit_unsent(&mut self, bytes_max: Option<usize>) {
        let link = &mut self.net.lock().links[self.link];
        link.unsent_max = bytes_max;
        link.make_room();
    }

    fn peer(&self) -> String {
        let from = self.net.lock().links[self.link].from.clone();
        from.unwrap_or_else(|| format!("memory:{}", self.link))
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.net.lock().links[self.link].to_client.closed = true;
    }
}

struct MemoryWake(AtomicBool);

impl Wake for MemoryWake {
    fn wake(&self) {
        self.0.store(true, SeqCst);
    }
}

/// A stream that is watched.
struct Attached {
    token: Token,
    interest: Interest,
    /// The link's arrivals and rooms as they were told last, since it waits for this.
    told: Option<(u64, u64)>,
}

impl Attached {
    fn is_ready(&self, link: &Link, room: usize) -> bool {
        let readable = !link.to_server.bytes.is_empty() || link.to_server.closed;
        let writable = link.to_client.bytes.len() < room;
        let (arrivals, rooms) = self.told.unwrap_or((u64::MAX, u64::MAX));
        match self.interest {
            Interest::Write if !link.reset => writable && rooms != link.rooms,
            Interest::Read if !link.reset => readable && arrivals != link.arrivals,
            _ => link.reset && arrivals != link.arrivals,
        }
    }
}

/// One worker's transport. `poll` never waits: the test decides when time passes.
pub struct MemoryTransport {
    net: Net,
    attached: BTreeMap<usize, Attached>,
    /// Those that it looks at.
    listeners: Range<usize>,
    watching: bool,
    datagrams: Option<DatagramNet>,
    /// Watched queues, and of how many arrivals of each was told.
    queues_watched: BTreeMap<usize, u64>,
    rooms_watched: BTreeSet<(usize, Path)>,
    /// Queues from this number on are in memory.
    first_in_memory: usize,
    /// Clients in shared memory that ring.
    bells: Option<Bells>,
    woken: Arc<MemoryWake>,
    /// The last poll returned nothing and was allowed to wait.
    asleep: Option<Duration>,
    /// Where the next poll begins, so that a full burst starves nobody.
    next: usize,
}

impl MemoryTransport {
    /// The same, that is told of who comes by these listeners alone.
    pub fn at_listeners(mut self, listeners: Range<usize>) -> MemoryTransport {
        self.listeners = listeners;
        self
    }

    /// The same with queues of datagrams to watch.
    pub fn with_datagrams(mut self, net: &DatagramNet) -> MemoryTransport {
        self.datagrams = Some(net.clone());
        self
    }

    /// The same with queues in memory, from this number on. Those that are watched are always said
    /// to be ready: looking is what finds out.
    pub fn with_rdma(mut self, first: usize) -> MemoryTransport {
        self.first_in_memory = first;
        self
    }

    /// The same with the queues of `watch`, which are in memory, too: it is told of those that hold
    /// something, and may sleep over the others until a client rings.
    pub fn with_bells(mut self, watch: Watch) -> io::Result<MemoryTransport> {
        self.bells = Some(Bells::new(watch)?);
        Ok(self)
    }

    fn bells_of(&mut self, queue: usize) -> Option<&mut Bells> {
        self.bells.as_mut().filter(|bells| bells.has(queue))
    }

    /// How long the last poll would have slept, had it been a kernel's: it found nothing and was
    /// allowed to wait. `None` where it would be awake by now, since something has come.
    pub fn asleep(&self) -> Option<Duration> {
        let asleep = self.asleep?;
        let state = self.net.lock();
        let listener = self.watching && state.waited_at(&self.listeners).is_some();
        let ready = |(&number, attached): (&usize, &Attached)| {
            attached.is_ready(&state.links[number], state.room(number))
        };
        let awake = listener || self.woken.0.load(SeqCst) || self.attached.iter().any(ready);
        drop(state);
        let datagrams = || {
            let net = self.datagrams.as_ref()?;
            let told = |(queue, told): (&usize, &u64)| {
                net.arrivals(*queue).is_some_and(|arrivals| arrivals != *told)
            };
            let arrived = self.queues_watched.range(..self.first_in_memory).any(told);
            let rooms = self.rooms_watched.range(..(self.first_in_memory, Path::Small));
            let mut rooms = rooms.filter(|(queue, path)| net.has_room(*queue, *path));
            Some(arrived || rooms.next().is_some())
        };
        let is_rung = || self.bells.as_ref().is_some_and(Bells::is_rung);
        let awake = awake || self.first_in_memory < usize::MAX || datagrams() == Some(true);
        let awake = awake || is_rung();
        (!awake).then_some(asleep)
    }

    fn poll_datagrams(&mut self, ready: &mut Vec<Ready>, room_end: usize) {
        let first = self.first_in_memory;
        let in_memory = self.queues_watched.range(first..);
        ready.extend(in_memory.map(|(queue, _)| Ready::Datagrams(*queue)));
        let in_memory = self.rooms_watched.range((first, Path::Small)..);
        ready.extend(in_memory.map(|(queue, path)| Ready::Room(*queue, *path)));
        let Some(net) = &self.datagrams else { return };
        for (queue, told) in self.queues_watched.range_mut(..first) {
            // Told once, so not where the caller has no room for it.
            if ready.len() < room_end
                && let Some(arrivals) = net.arrivals(*queue)
                && arrivals != *told
            {
                *told = arrivals;
                ready.push(Ready::Datagrams(*queue));
            }
        }
        let rooms = self.rooms_watched.range(..(first, Path::Small));
        let free = rooms.filter(|(queue, path)| net.has_room(*queue, *path));
        ready.extend(free.map(|(queue, path)| Ready::Room(*queue, *path)));
    }
}

impl Transport for MemoryTransport {
    type Stream = MemoryStream;

    fn poll(&mut self, ready: &mut Vec<Ready>, burst: usize, wait: Wait) -> io::Result<()> {
        let (before, room_end) = (ready.len(), ready.len() + burst);
        if self.woken.0.swap(false, SeqCst) {
            ready.push(Ready::Woken);
        }
        if let Some(bells) = &mut self.bells {
            bells.hear(ready)?;
        }
        let state = self.net.lock();
        if let Some(listener) = state.waited_at(&self.listeners)
            && self.watching
            && ready.len() < room_end
        {
            ready.push(Ready::Listener(listener));
        }
        // Where all had their turn, the next poll begins at the first.
        let (next, mut cut_at) = (self.next, 0);
        for part in [next..usize::MAX, 0..next].into_iter().filter(|part| !part.is_empty()) {
            for (&number, attached) in self.attached.range_mut(part) {
                if ready.len() >= room_end {
                    cut_at = number;
                    break;
                }
                let link = &state.links[number];
                if attached.is_ready(link, state.room(number)) {
                    attached.told = Some((link.arrivals, link.rooms));
                    let ends = link.reset || link.to_server.closed;
                    let told = if ends { Ready::Ending } else { Ready::Stream };
                    ready.push(told(attached.token));
                }
            }
            if cut_at > 0 {
                break;
            }
        }
        drop(state);
        self.next = cut_at;
        self.poll_datagrams(ready, room_end);
        ready.truncate(room_end);
        let has_some = ready.len() > before;
        if let Some(bells) = &mut self.bells {
            // Beyond the burst, as the kernel's transport has it: room is told once.
            bells.look(ready, wait, has_some);
        }
        self.asleep = match wait {
            Wait::AtMost(longest) if ready.len() == before => Some(longest),
            _ => None,
        };
        Ok(())
    }

    fn watch_datagrams(&mut self, queue: usize, watch: bool) -> io::Result<()> {
        if let Some(bells) = self.bells_of(queue) {
            bells.watch(queue, watch);
        } else if watch {
            self.net.may_watch()?;
            self.queues_watched.entry(queue).or_insert(0);
        } else {
            self.queues_watched.remove(&queue);
        }
        Ok(())
    }

    fn watch_room(&mut self, queue: usize, path: Path, watch: bool) -> io::Result<()> {
        if let Some(bells) = self.bells_of(queue) {
            bells.watch_room(queue, watch);
        } else if watch {
            self.rooms_watched.insert((queue, path));
        } else {
            self.rooms_watched.remove(&(queue, path));
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<Option<MemoryStream>> {
        let mut state = self.net.lock();
        let at = state.backlog.iter().position(|(at, _)| *at == listener);
        let link = at.and_then(|at| state.backlog.remove(at));
        Ok(link.map(|(_, link)| MemoryStream { net: self.net.clone(), link }))
    }

    fn watch_listeners(&mut self, watch: bool) -> io::Result<()> {
        if watch && !self.watching {
            self.net.may_watch()?;
        }
        self.watching = watch;
        Ok(())
    }

    fn attach(
        &mut self,
        stream: &MemoryStream,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.net.may_watch()?;
        let before = self.attached.insert(stream.link, Attached { token, interest, told: None });
        assert!(before.is_none(), "stream {} attached twice", stream.link);
        Ok(())
    }

    fn rearm(&mut self, stream: &MemoryStream, token: Token, interest: Interest) -> io::Result<()> {
        self.net.may_watch()?;
        let before = self.attached.insert(stream.link, Attached { token, interest, told: None });
        assert!(before.is_some(), "stream {} rearmed before it was attached", stream.link);
        Ok(())
    }

    fn detach(&mut self, stream: &MemoryStream) -> io::Result<()> {
        let before = self.attached.remove(&stream.link);
        assert!(before.is_some(), "stream {} detached twice", stream.link);
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.woken.clone()
    }
}
