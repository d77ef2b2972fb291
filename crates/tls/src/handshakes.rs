//! Handshakes under way, of one thread of those that make them: a transport's listeners are
//! accepted from, each connection's handshake goes on as its bytes come, and who is through is
//! handed out. They are bounded in number, where more wait in the kernel's queue, and in time.
//!
//! No worker makes a handshake: a signature takes as long as a hundred small requests.

use crate::acceptor::{Acceptor, Cause};
use crate::stream::{Failure, Progress, TlsStream};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{FOREVER, Interest, Ready, Stream, Token, Transport, Wait};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What is taken from the transport at once.
const BURST: usize = 32;
/// How long accepting pauses where the process has no descriptor left.
const PAUSE_NANOS: u64 = 1_000_000_000;

/// How many handshakes there may be, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Under way at once.
    pub most: usize,
    /// From a connection's beginning to the end of its handshake, nanoseconds.
    pub nanos: u64,
}

/// Who counts connections by where they come from, from before their handshake on.
pub trait Census: Send {
    /// One of this peer has come. False: there are too many, and it is closed.
    fn enter(&self, peer: &str) -> bool;
    /// One that was let in has failed. (Who is through stays counted.)
    fn leave(&self, peer: &str);
}

/// A connection whose handshake is over.
pub struct Finished<S: Stream> {
    /// It.
    pub stream: Box<TlsStream<S>>,
    /// Which of the transport's listeners it came by.
    pub listener: usize,
}

struct Underway<S: Stream> {
    stream: Box<TlsStream<S>>,
    listener: usize,
    interest: Interest,
    /// Until when it may take.
    deadline: u64,
}

/// Handshakes under way.
pub struct Handshakes<T: Transport> {
    transport: T,
    acceptor: Arc<Acceptor>,
    bounds: Bounds,
    census: Option<Box<dyn Census>>,
    /// By slot, with the slot's generation.
    slots: Vec<(u32, Option<Underway<T::Stream>>)>,
    free: Vec<u32>,
    /// Until when each may take, with its slot.
    deadlines: BTreeSet<(u64, u32)>,
    watching: bool,
    /// Accepting pauses until then.
    paused_until: u64,
    ready: Vec<Ready>,
}

impl<T: Transport> Handshakes<T> {
    /// None yet.
    pub fn new(transport: T, acceptor: Arc<Acceptor>, bounds: Bounds) -> Handshakes<T> {
        Handshakes {
            transport,
            acceptor,
            bounds,
            census: None,
            slots: Vec::new(),
            free: Vec::new(),
            deadlines: BTreeSet::new(),
            watching: false,
            paused_until: 0,
            ready: Vec::new(),
        }
    }

    /// The same, where who comes is counted by his address.
    pub fn counted_by(mut self, census: Box<dyn Census>) -> Handshakes<T> {
        self.census = Some(census);
        self
    }

    /// The transport that they come by.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// How many are under way.
    pub fn underway(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Deadlines that are kept: one for each that is under way.
    pub fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// One turn: wait until something is ready or late, and go on with it. What is through is
    /// added to `finished`; what failed is closed, and counted. `clock` tells nanoseconds. Returns
    /// an error of a listener that brings nobody for now.
    pub fn step(
        &mut self,
        clock: &dyn Fn() -> u64,
        finished: &mut Vec<Finished<T::Stream>>,
    ) -> io::Result<Option<io::Error>> {
        let now = clock();
        match self.watch(now) {
            // The kernel has no room to watch the listeners: they bring nobody for now, either.
            Err(error) if !self.watching => {
                self.paused_until = now + PAUSE_NANOS;
                return Ok(Some(error));
            }
            watched => watched?,
        }
        let mut ready = std::mem::take(&mut self.ready);
        let polled = self.transport.poll(&mut ready, BURST, self.wait(now));
        // What came in time is not late, though this thread may be.
        let (mut refused, now) = (None, clock());
        for event in ready.drain(..) {
            match event {
                Ready::Listener(listener) => {
                    refused = self.accept(listener, now, finished).err().or(refused);
                }
                Ready::Stream(token) | Ready::Ending(token) => self.go_on(token, finished),
                Ready::Datagrams(_) | Ready::Room(..) | Ready::Woken => {}
            }
        }
        self.ready = ready;
        self.end_late(now);
        polled?;
        if refused.is_some() {
            self.paused_until = now + PAUSE_NANOS;
        }
        Ok(refused)
    }

    /// Whether new ones are let in.
    fn watch(&mut self, now: u64) -> io::Result<()> {
        let watch = self.underway() < self.bounds.most && self.paused_until <= now;
        if watch != self.watching {
            self.transport.watch_listeners(watch)?;
            self.watching = watch;
        }
        Ok(())
    }

    /// Until the first deadline, or the end of a pause.
    fn wait(&self, now: u64) -> Wait {
        let late = self.deadlines.first().map_or(u64::MAX, |(deadline, _)| *deadline);
        let pause = if self.paused_until > now { self.paused_until } else { u64::MAX };
        match late.min(pause) {
            u64::MAX => Wait::AtMost(FOREVER),
            due => Wait::AtMost(Duration::from_nanos(due.saturating_sub(now))),
        }
    }

    fn accept(
        &mut self,
        listener: usize,
        now: u64,
        finished: &mut Vec<Finished<T::Stream>>,
    ) -> io::Result<()> {
        for _ in 0..BURST {
            if self.underway() >= self.bounds.most {
                return Ok(());
            }
            let Some(inner) = self.transport.accept(listener)? else { return Ok(()) };
            let peer = inner.peer();
            if self.census.as_ref().is_some_and(|census| !census.enter(&peer)) {
                continue;
            }
            let stream = self.acceptor.stream(inner).map_err(|error| {
                self.leaves(&peer);
                io::Error::other(error)
            })?;
            let (stream, interest) = (Box::new(stream), Interest::Read);
            self.acceptor.counts().begins();
            let deadline = now.saturating_add(self.bounds.nanos);
            let token = self.place(Underway { stream, listener, interest, deadline });
            self.deadlines.insert((deadline, token.slot));
            let (_, place) = &self.slots[token.slot as usize];
            let stream = place.as_ref().map(|underway| underway.stream.inner());
            let attached = stream.map(|inner| self.transport.attach(inner, token, interest));
            if let Some(Err(error)) = attached {
                // The kernel has no room to watch it.
                self.slots[token.slot as usize].1 = None;
                self.release(token, deadline);
                self.leaves(&peer);
                self.acceptor.counts().fails(Cause::Other);
                return Err(error);
            }
            self.go_on(token, finished); // a client that speaks first has spoken, most of the time
        }
        Ok(())
    }

    fn place(&mut self, underway: Underway<T::Stream>) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, place) = &mut self.slots[slot as usize];
        *place = Some(underway);
        Token { slot, generation: *generation }
    }

    fn release(&mut self, token: Token, deadline: u64) {
        self.deadlines.remove(&(deadline, token.slot));
        let (generation, _) = &mut self.slots[token.slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(token.slot);
    }

    /// A handshake goes on.
    fn go_on(&mut self, token: Token, finished: &mut Vec<Finished<T::Stream>>) {
        let Some(mut underway) = self.take(token) else { return }; // it is over
        let interest = match underway.stream.handshake() {
            Ok(Progress::Done) => {
                self.forget(token, &underway);
                self.acceptor.counts().is_done(&underway.stream);
                let Underway { stream, listener, .. } = underway;
                return finished.push(Finished { stream, listener });
            }
            Ok(Progress::Read) => Interest::Read,
            Ok(Progress::Write) => Interest::Write,
            Err(failure) => {
                log::trace!(peer = &*underway.stream.peer(); "no TLS handshake: {failure}");
                return self.fail(token, &underway, Cause::of(&failure));
            }
        };
        if interest != underway.interest {
            underway.interest = interest;
            let stream = underway.stream.inner();
            if self.transport.rearm(stream, token, interest).is_err() {
                return self.fail(token, &underway, Cause::of(&Failure::Gone));
            }
        }
        self.slots[token.slot as usize].1 = Some(underway);
    }

    fn take(&mut self, token: Token) -> Option<Underway<T::Stream>> {
        let (generation, place) = self.slots.get_mut(token.slot as usize)?;
        if *generation == token.generation { place.take() } else { None }
    }

    fn forget(&mut self, token: Token, underway: &Underway<T::Stream>) {
        // The kernel forgets a closed descriptor by itself; one that goes on is attached anew.
        let _ = self.transport.detach(underway.stream.inner());
        self.release(token, underway.deadline);
    }

    fn fail(&mut self, token: Token, underway: &Underway<T::Stream>, cause: Cause) {
        self.forget(token, underway);
        if !is_planted(Bug::HandshakeLeaked) {
            self.leaves(&underway.stream.peer());
        }
        self.acceptor.counts().fails(cause);
    }

    fn leaves(&self, peer: &str) {
        if let Some(census) = &self.census {
            census.leave(peer);
        }
    }

    fn end_late(&mut self, now: u64) {
        while let Some((deadline, slot)) = self.deadlines.first().copied() {
            if now < deadline {
                return;
            }
            self.deadlines.pop_first();
            let token = Token { slot, generation: self.slots[slot as usize].0 };
            if let Some(underway) = self.take(token) {
                self.fail(token, &underway, Cause::Late);
            }
        }
    }
}

impl<T: Transport> Drop for Handshakes<T> {
    fn drop(&mut self) {
        for (_, place) in &self.slots {
            if let Some(underway) = place {
                self.acceptor.counts().is_left();
                self.leaves(&underway.stream.peer());
            }
        }
    }
}
