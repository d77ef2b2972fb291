//! Sends over the connections of one thread at a pace.
//!
//! In the open loop requests leave when they are due, whatever became of those before. In the
//! closed loop a fixed number of requests is in flight on each connection, the next one leaving
//! when one has ended. It finds peaks and the cost of a request; its latencies say nothing about
//! what users would wait, as a slow server is simply asked less.

use super::{Clock, Connections, Edge, Ready};
use crate::arrivals::Arrival;
use crate::connection::{Completion, Request};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::workload::{Class, Draws, Operation};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Most requests sent before replies are looked at: where the sender is behind, reading must go on.
pub(crate) const SENDS_MAX: usize = 32;

/// When requests leave.
#[derive(Debug)]
pub enum Pace<'a> {
    /// When they are due.
    Open(&'a [Arrival]),
    /// When one before them has ended: so many in flight on each connection or socket.
    Closed {
        /// Requests in flight on each.
        depth: usize,
        /// Where requests are drawn from.
        asks: Random,
        /// What those drawn left behind.
        draws: Draws,
    },
}

impl Pace<'_> {
    /// What a schedule has from number `next` on; nothing of a closed loop.
    pub(crate) fn rest(&self, next: usize) -> &[Arrival] {
        match self {
            Pace::Open(arrivals) => &arrivals[next..],
            Pace::Closed { .. } => &[],
        }
    }
}

/// Some requests may have connections for themselves, as those of another client have: this says
/// which ones, and how many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// None.
    Nobody,
    /// The large ones.
    Large(usize),
    /// The SETs.
    Sets(usize),
}

impl Own {
    /// How many connections these are.
    pub fn connections(self) -> usize {
        match self {
            Own::Nobody => 0,
            Own::Large(count) | Own::Sets(count) => count,
        }
    }

    /// Whether they are this request's.
    fn has(self, request: &Request) -> bool {
        match self {
            Own::Nobody => false,
            Own::Large(_) => request.class == Class::Large,
            Own::Sets(_) => request.operation == Operation::Set,
        }
    }
}

/// What one thread follows.
#[derive(Debug)]
pub struct Paced<'a> {
    /// When requests leave.
    pub pace: Pace<'a>,
    /// How long after the window replies are waited for.
    pub drain: Duration,
    /// Where the versions of written values come from.
    pub versions: Random,
    /// Which requests of an open loop have the last ones of the connections for themselves, and
    /// leave the others.
    pub own: Own,
}

struct Sender<'a, 'b> {
    pace: Pace<'a>,
    versions: Random,
    connections: &'a mut Connections<'b>,
    recorder: &'a mut Recorder,
    clock: Clock,
    /// The next arrival of a schedule.
    next: usize,
    own: Own,
    /// The first connection that some requests have for themselves.
    first_own: usize,
    /// Idle connections: those for all, or for all others; and those that some have for themselves.
    idle: [VecDeque<usize>; 2],
}

impl Paced<'_> {
    /// Runs until the recorder's window has closed and replies are there or waited for no more.
    /// `at_edge` is called as the window opens and closes.
    pub fn run(
        self,
        connections: &mut Connections<'_>,
        clock: Clock,
        recorder: &mut Recorder,
        mut at_edge: impl FnMut(Edge),
    ) -> io::Result<()> {
        let window_ns = recorder.window_ns();
        let give_up_ns = window_ns.end + self.drain.as_nanos() as u64;
        let Paced { pace, versions, own, .. } = self;
        let next = 0;
        let first_own = connections.count() - own.connections();
        let idle = [(0..first_own).collect(), (first_own..connections.count()).collect()];
        let mut sender =
            Sender { pace, versions, connections, recorder, clock, next, own, first_own, idle };
        sender.fill()?;
        let edges = [(window_ns.start, Edge::Open), (window_ns.end, Edge::Close)];
        let mut edges = edges.into_iter().peekable();
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        loop {
            let now_ns = clock.now_ns();
            if let Some((_, which)) = edges.next_if(|&(at_ns, _)| at_ns <= now_ns) {
                at_edge(which);
            }
            sender.send_due()?;
            if (sender.is_done() && edges.peek().is_none()) || now_ns > give_up_ns {
                break;
            }
            sender.connections.poll(&mut ready)?;
            for &event in &ready {
                sender.serve(event, &mut ended)?;
                sender.send_due()?;
            }
        }
        sender.finish();
        Ok(())
    }
}

impl Sender<'_, '_> {
    fn is_done(&self) -> bool {
        self.pace.rest(self.next).is_empty() && self.connections.in_flight() == 0
    }

    /// A closed loop's first requests.
    fn fill(&mut self) -> io::Result<()> {
        let Pace::Closed { depth, .. } = self.pace else { return Ok(()) };
        self.clock.wait();
        for index in 0..self.connections.count() {
            for _ in 0..depth {
                self.ask_another(index, self.clock.now_ns());
            }
            self.connections.flush(index)?;
        }
        Ok(())
    }

    /// A closed loop's next request on a connection, which is to be flushed.
    fn ask_another(&mut self, index: usize, now_ns: u64) {
        let Pace::Closed { asks, draws, .. } = &mut self.pace else { return };
        let context = self.connections.context();
        let ask = context.workload.draw(asks, draws);
        let version = self.versions.word() as u32;
        self.connections.push(index, context.request(ask, now_ns, version));
        self.recorder.sent(now_ns, now_ns, false);
    }

    /// Sends what a schedule has due by now.
    fn send_due(&mut self) -> io::Result<()> {
        for _ in 0..SENDS_MAX {
            let Some(&arrival) = self.pace.rest(self.next).first() else { return Ok(()) };
            let now_ns = self.clock.now_ns();
            if arrival.due_ns > now_ns {
                return Ok(());
            }
            self.next += 1;
            let version = self.versions.word() as u32;
            let request = self.connections.context().request(arrival.ask, arrival.due_ns, version);
            let (index, busy) = self.choose(&request);
            self.connections.push(index, request);
            self.connections.flush(index)?;
            self.recorder.sent(arrival.due_ns, now_ns, busy);
        }
        Ok(())
    }

    /// An idle connection, the one idle for longest; or else the one with the shortest queue.
    fn choose(&mut self, request: &Request) -> (usize, bool) {
        let (kind, those) = match self.own.has(request) {
            true => (1, self.first_own..self.connections.count()),
            false => (0, 0..self.first_own),
        };
        if let Some(index) = self.idle[kind].pop_front() {
            return (index, false);
        }
        let shortest = those.min_by_key(|&index| self.connections.in_flight_on(index));
        (shortest.unwrap_or_else(|| unreachable!("a sender has connections")), true)
    }

    fn serve(&mut self, event: Ready, ended: &mut Vec<Completion>) -> io::Result<()> {
        let now_ns = self.connections.serve(event, &self.clock, ended)?;
        if ended.is_empty() {
            return Ok(());
        }
        let index = event.index;
        let goes_on = now_ns < self.recorder.window_ns().end;
        for completion in ended.drain(..) {
            self.recorder.ended(&completion, now_ns);
            if goes_on {
                self.ask_another(index, now_ns);
            }
        }
        match self.pace {
            Pace::Closed { .. } => self.connections.flush(index)?,
            Pace::Open(_) if self.connections.in_flight_on(index) == 0 => {
                self.idle[usize::from(index >= self.first_own)].push_back(index);
            }
            Pace::Open(_) => {}
        }
        Ok(())
    }

    /// Counts what was not sent and what was not answered.
    fn finish(self) {
        let recorder = self.recorder;
        self.pace.rest(self.next).iter().for_each(|arrival| recorder.never_sent(arrival.due_ns));
        self.connections.for_each_unanswered(|request| recorder.unanswered(request.due_ns));
    }
}
