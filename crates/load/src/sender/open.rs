//! The open loop: requests leave when they are due, whatever became of those before.

use super::{Clock, Connections, Edge, Ready};
use crate::arrivals::Arrival;
use crate::connection::{Completion, Request};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::workload::{Class, Operation};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Most requests sent before replies are looked at: where the sender is behind, reading must go on.
const SENDS_MAX: usize = 32;

/// Which requests have connections for themselves, and how many, as those of another client.
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
pub struct OpenLoop<'a> {
    /// When what is due.
    pub arrivals: &'a [Arrival],
    /// How long after the last due time replies are waited for.
    pub drain: Duration,
    /// Where the versions of written values come from.
    pub versions: Random,
    /// Which requests have the last ones of the connections for themselves, and leave the others.
    pub own: Own,
}

struct Sender<'a, 'b> {
    arrivals: &'a [Arrival],
    versions: &'a mut Random,
    connections: &'a mut Connections<'b>,
    recorder: &'a mut Recorder,
    clock: Clock,
    next: usize,
    own: Own,
    /// The first connection that some requests have for themselves.
    first_own: usize,
    /// Idle connections: those for all, or for all others; and those that some have for themselves.
    idle: [VecDeque<usize>; 2],
}

impl OpenLoop<'_> {
    /// Runs the schedule to its end. `at_edge` is called as the measured window opens and closes.
    pub fn run(
        &mut self,
        connections: &mut Connections<'_>,
        clock: Clock,
        recorder: &mut Recorder,
        mut at_edge: impl FnMut(Edge),
    ) -> io::Result<()> {
        let window_ns = recorder.window_ns();
        let give_up_ns = window_ns.end + self.drain.as_nanos() as u64;
        let OpenLoop { arrivals, versions, own, .. } = self;
        let (next, own) = (0, *own);
        let first_own = connections.count() - own.connections();
        let idle = [(0..first_own).collect(), (first_own..connections.count()).collect()];
        let mut sender =
            Sender { arrivals, versions, connections, recorder, clock, next, own, first_own, idle };
        let mut edges = [(window_ns.start, Edge::Open), (window_ns.end, Edge::Close)].into_iter();
        let mut edge = edges.next();
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        loop {
            let now_ns = clock.now_ns();
            if let Some((_, which)) = edge.filter(|&(at_ns, _)| at_ns <= now_ns) {
                at_edge(which);
                edge = edges.next();
            }
            sender.send_due()?;
            if (sender.is_done() && edge.is_none()) || now_ns > give_up_ns {
                break;
            }
            sender.connections.poll(Duration::ZERO, &mut ready)?;
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
        self.next == self.arrivals.len() && self.connections.in_flight() == 0
    }

    /// Sends what is due by now.
    fn send_due(&mut self) -> io::Result<()> {
        for _ in 0..SENDS_MAX {
            let Some(arrival) = self.arrivals.get(self.next) else { return Ok(()) };
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
        for completion in ended.drain(..) {
            self.recorder.ended(&completion, now_ns);
        }
        if self.connections.in_flight_on(event.index) == 0 {
            self.idle[usize::from(event.index >= self.first_own)].push_back(event.index);
        }
        Ok(())
    }

    /// Counts what was not sent and what was not answered.
    fn finish(self) {
        for arrival in &self.arrivals[self.next..] {
            self.recorder.never_sent(arrival.due_ns);
        }
        let recorder = self.recorder;
        self.connections.for_each_unanswered(|request| recorder.unanswered(request.due_ns));
    }
}
