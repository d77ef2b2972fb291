//! The two loops over UDP sockets: one follows a schedule, the other keeps a number of requests in
//! flight on each socket. Both spin, as [`crate::sender`] does and for the same reason.
//!
//! A request is late when the sender was; UDP has no connection that could be busy. A request that
//! is given up is recorded as lost with the timeout as its latency.

use super::flows::Flows;
use super::{Counts, LargeSets, Options};
use crate::connection::{Completion, Context, Request, Target};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::sender::paced::{Pace, SENDS_MAX};
use crate::sender::{Clock, Connections, Edge, Ready};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

/// TCP connections of a thread for what does not go over UDP.
const STREAMS: usize = 4;

/// Sockets and connections of one thread.
pub struct Lines<'a> {
    context: Context<'a>,
    flows: Flows<'a>,
    streams: Option<Connections<'a>>,
    timeout: Duration,
}

/// Something that ended: on which socket, if on one, and when.
type Ended = (Option<usize>, Completion, u64);

impl<'a> Lines<'a> {
    /// Opens `count` sockets, and connections to `target` where large SETs go by TCP.
    pub fn open(
        context: Context<'a>,
        options: &'a Options,
        target: &Target,
        count: usize,
        random: Random,
    ) -> io::Result<Self> {
        let flows = Flows::open(context, options, count, random)?;
        let streams = match options.large_sets {
            LargeSets::Udp => None,
            LargeSets::Tcp => Some(Connections::open(context, target, STREAMS)?),
        };
        Ok(Lines { context, flows, streams, timeout: options.timeout })
    }

    fn in_flight(&self) -> usize {
        self.flows.in_flight() + self.streams.as_ref().map_or(0, Connections::in_flight)
    }

    /// Puts a request on a socket, or on a connection if it must; false if there is no id left.
    fn push(&mut self, flow: usize, request: Request, now_ns: u64) -> io::Result<bool> {
        match &mut self.streams {
            Some(streams) if !self.flows.takes(&request) => {
                let least = (0..streams.count()).min_by_key(|&index| streams.in_flight_on(index));
                let index = least.unwrap_or_else(|| unreachable!("there are connections"));
                streams.push(index, request);
                streams.flush(index)?;
                self.flows.counts.by_tcp += 1;
                Ok(true)
            }
            _ => Ok(self.flows.push(flow, request, now_ns)),
        }
    }

    /// Receives and sends whatever can be; appends what ended.
    fn turn(
        &mut self,
        clock: &Clock,
        ready: &mut Vec<Ready>,
        ended: &mut Vec<Ended>,
    ) -> io::Result<()> {
        self.flows.receive(clock, |flow, completion, now_ns| {
            ended.push((Some(flow), completion, now_ns));
        })?;
        self.flows.flush_rest()?;
        let Some(streams) = self.streams.as_mut().filter(|streams| streams.in_flight() > 0) else {
            return Ok(());
        };
        streams.poll(ready)?;
        let mut completions = Vec::new();
        for &event in ready.iter() {
            let now_ns = streams.serve(event, clock, &mut completions)?;
            let each = completions.drain(..);
            ended.extend(each.map(|completion| (None, completion, now_ns)));
        }
        Ok(())
    }

    /// Runs until the recorder's window has closed and everything sent has its end. `at_edge` is
    /// called as the window opens and closes. Connections that fall silent are given up `drain`
    /// after the window.
    pub fn run(
        self,
        pace: Pace<'_>,
        versions: Random,
        drain: Duration,
        clock: Clock,
        recorder: &mut Recorder,
        mut at_edge: impl FnMut(Edge),
    ) -> io::Result<Counts> {
        let window_ns = recorder.window_ns();
        let give_up_ns = window_ns.end + (drain.max(2 * self.timeout)).as_nanos() as u64;
        let edges = [(window_ns.start, Edge::Open), (window_ns.end, Edge::Close)];
        let mut edges = edges.into_iter().peekable();
        let mut loop_ = Loop { lines: self, pace, versions, recorder, clock, next: 0, flow: 0 };
        loop_.fill()?;
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        loop {
            let now_ns = clock.now_ns();
            if let Some((_, which)) = edges.next_if(|&(at_ns, _)| at_ns <= now_ns) {
                at_edge(which);
            }
            loop_.send_due()?;
            if (loop_.is_done() && edges.peek().is_none()) || now_ns > give_up_ns {
                break;
            }
            loop_.lines.turn(&clock, &mut ready, &mut ended)?;
            loop_.take(&mut ended)?;
            loop_.expire(now_ns)?;
        }
        Ok(loop_.finish())
    }
}

struct Loop<'a, 'p, 'r> {
    lines: Lines<'a>,
    pace: Pace<'p>,
    versions: Random,
    recorder: &'r mut Recorder,
    clock: Clock,
    /// The next arrival of a schedule.
    next: usize,
    /// The socket whose turn it is.
    flow: usize,
}

impl Loop<'_, '_, '_> {
    fn is_done(&self) -> bool {
        let all_sent = match self.pace {
            Pace::Open(arrivals) => self.next == arrivals.len(),
            Pace::Closed { .. } => true,
        };
        all_sent && self.lines.in_flight() == 0
    }

    fn turn_to_next_flow(&mut self) -> usize {
        self.flow = (self.flow + 1) % self.lines.flows.count();
        self.flow
    }

    /// A closed loop's first requests.
    fn fill(&mut self) -> io::Result<()> {
        let Pace::Closed { depth, .. } = self.pace else { return Ok(()) };
        self.clock.wait();
        let now_ns = self.clock.now_ns();
        for flow in 0..self.lines.flows.count() {
            for _ in 0..depth {
                self.ask_another(flow, now_ns)?;
            }
            self.lines.flows.flush(flow)?;
        }
        Ok(())
    }

    fn ask_another(&mut self, flow: usize, now_ns: u64) -> io::Result<()> {
        let Pace::Closed { asks, draws, .. } = &mut self.pace else { return Ok(()) };
        let ask = self.lines.context.workload.draw(asks, draws);
        let request = self.lines.context.request(ask, now_ns, self.versions.word() as u32);
        if self.lines.push(flow, request, now_ns)? {
            self.recorder.sent(now_ns, now_ns, false);
        }
        Ok(())
    }

    /// Sends what a schedule has due by now.
    fn send_due(&mut self) -> io::Result<()> {
        let Pace::Open(arrivals) = self.pace else { return Ok(()) };
        let mut touched = BTreeSet::new();
        for _ in 0..SENDS_MAX {
            let Some(arrival) = arrivals.get(self.next) else { break };
            let now_ns = self.clock.now_ns();
            if arrival.due_ns > now_ns {
                break;
            }
            let version = self.versions.word() as u32;
            let request = self.lines.context.request(arrival.ask, arrival.due_ns, version);
            let flow = self.turn_to_next_flow();
            if !self.lines.push(flow, request, now_ns)? {
                // Every id of this socket waits for a reply: try again when one has come.
                break;
            }
            self.next += 1;
            self.recorder.sent(arrival.due_ns, now_ns, false);
            touched.insert(flow);
        }
        touched.into_iter().try_for_each(|flow| self.lines.flows.flush(flow))
    }

    /// Records what ended; a closed loop asks anew.
    fn take(&mut self, ended: &mut Vec<Ended>) -> io::Result<()> {
        let end_ns = self.recorder.window_ns().end;
        for (flow, completion, now_ns) in ended.drain(..) {
            self.recorder.ended(&completion, now_ns);
            if now_ns < end_ns {
                let flow = flow.unwrap_or_else(|| self.turn_to_next_flow());
                self.ask_another(flow, now_ns)?;
            }
        }
        self.lines.flows.flush_rest()
    }

    /// Gives up what has no reply in time; a closed loop asks anew.
    fn expire(&mut self, now_ns: u64) -> io::Result<()> {
        let end_ns = self.recorder.window_ns().end;
        let mut lost = Vec::new();
        self.lines.flows.expire(now_ns, |flow, request| lost.push((flow, *request)));
        for (flow, request) in lost {
            self.recorder.lost(&request, now_ns);
            if now_ns < end_ns {
                self.ask_another(flow, now_ns)?;
            }
        }
        Ok(())
    }

    /// Counts what was not sent, what was sent too late to be waited for, and what TCP left
    /// unanswered.
    fn finish(mut self) -> Counts {
        if let Pace::Open(arrivals) = self.pace {
            for arrival in &arrivals[self.next..] {
                self.recorder.never_sent(arrival.due_ns);
            }
        }
        let (recorder, now_ns) = (self.recorder, self.clock.now_ns());
        self.lines.flows.give_up_all(|request| recorder.lost(request, now_ns));
        if let Some(streams) = &self.lines.streams {
            streams.for_each_unanswered(|request| recorder.unanswered(request.due_ns));
        }
        self.lines.flows.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::poisson;
    use crate::datagram::peers::Peers;
    use crate::dialect::Dialect;
    use crate::values::Values;
    use crate::workload::{Draws, Workload, WorkloadOptions};
    use std::net::UdpSocket;
    use std::time::Instant;

    /// A socket that answers nothing, and how it is asked.
    fn silent() -> (UdpSocket, Options) {
        let silent = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = silent.local_addr().expect("bound").port();
        let options = Options {
            peers: Peers::new("127.0.0.1", port, None).expect("an address"),
            door: None,
            large_sets: LargeSets::Udp,
            timeout: Duration::from_millis(50),
        };
        (silent, options)
    }

    fn workload() -> Workload {
        Workload::new(WorkloadOptions::default()).expect("valid")
    }

    fn random() -> Random {
        Random::stream(1, 1)
    }

    /// Runs it to its end on so many sockets, without waiting for replies.
    fn ran(
        options: &Options,
        sockets: usize,
        pace: Pace<'_>,
        start: Instant,
        window_ns: u64,
    ) -> (Counts, Recorder) {
        let (workload, values) = (workload(), Values::new(1));
        let context = Context { workload: &workload, values: &values, dialect: Dialect::Text };
        let target = Target::Tcp("nowhere".into());
        let lines = Lines::open(context, options, &target, sockets, random()).expect("sockets");
        let mut recorder = Recorder::new(0..window_ns);
        let clock = Clock::starting(start);
        let counts = lines.run(pace, random(), Duration::ZERO, clock, &mut recorder, |_| {});
        (counts.expect("it runs to its end"), recorder)
    }

    #[test]
    fn a_closed_loop_asks_nothing_before_the_start() {
        let (silent, options) = silent();
        let start = Instant::now() + Duration::from_millis(200);
        let asked = std::thread::spawn(move || {
            silent.recv(&mut [0; 2048]).expect("a request comes");
            (Instant::now(), silent) // which stays open, or the others are refused
        });
        let pace = Pace::Closed { depth: 1, asks: random(), draws: Draws::default() };
        ran(&options, 2, pace, start, 1_000_000);
        let (first, _silent) = asked.join().expect("no panic");
        assert!(first >= start);
    }

    #[test]
    fn what_leaves_too_late_to_be_waited_for_is_lost_too() {
        let (_silent, options) = silent();
        // A million requests in 20 ms: the sender is behind when its time is up, and still sends.
        let window_ns = 20_000_000;
        let arrivals = poisson(&workload(), 5e7, window_ns, 0);
        let pace = Pace::Open(&arrivals);
        let (counts, recorder) = ran(&options, 16, pace, Instant::now(), window_ns);
        assert_eq!((counts.sent, counts.answered), (counts.lost, 0));
        let told = recorder.counts;
        assert_eq!(told.due, arrivals.len() as u64);
        assert_eq!(told.due, told.lost + told.never_sent);
        assert_eq!(told.lost, counts.lost);
    }
}
