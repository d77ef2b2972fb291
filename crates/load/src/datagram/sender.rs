//! The two loops over UDP sockets: one follows a schedule, the other keeps a number of requests in
//! flight on each socket. Both spin, as [`crate::sender`] does and for the same reason.
//!
//! A request is late when the sender was; UDP has no connection that could be busy. A request that
//! is given up is recorded as lost with the timeout as its latency.

use super::Counts;
use super::flows::{Ended, Flows};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::sender::paced::{Pace, Paced, SENDS_MAX};
use crate::sender::{Clock, Edge};
use std::collections::BTreeSet;
use std::io;

impl Flows<'_> {
    /// Runs until the recorder's window has closed and everything sent has its end. `at_edge` is
    /// called as the window opens and closes. Connections that fall silent are given up `drain`
    /// after the window.
    pub fn run(
        self,
        paced: Paced<'_>,
        clock: Clock,
        recorder: &mut Recorder,
        mut at_edge: impl FnMut(Edge),
    ) -> io::Result<Counts> {
        let Paced { pace, versions, drain, .. } = paced;
        let window_ns = recorder.window_ns();
        let give_up_ns = window_ns.end + drain.max(2 * self.options.timeout).as_nanos() as u64;
        let edges = [(window_ns.start, Edge::Open), (window_ns.end, Edge::Close)];
        let mut edges = edges.into_iter().peekable();
        let mut loop_ = Loop { flows: self, pace, versions, recorder, clock, next: 0, flow: 0 };
        loop_.fill()?;
        let mut ended = Vec::new();
        loop {
            let now_ns = clock.now_ns();
            if let Some((_, which)) = edges.next_if(|&(at_ns, _)| at_ns <= now_ns) {
                at_edge(which);
            }
            loop_.send_due()?;
            if (loop_.is_done() && edges.peek().is_none()) || now_ns > give_up_ns {
                break;
            }
            loop_.flows.turn(&clock, &mut ended)?;
            loop_.take(&mut ended)?;
            loop_.expire(now_ns)?;
        }
        Ok(loop_.finish())
    }
}

struct Loop<'a, 'p, 'r> {
    flows: Flows<'a>,
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
        self.pace.rest(self.next).is_empty() && self.flows.in_flight() == 0
    }

    fn turn_to_next_flow(&mut self) -> usize {
        self.flow = (self.flow + 1) % self.flows.count();
        self.flow
    }

    /// A closed loop's first requests.
    fn fill(&mut self) -> io::Result<()> {
        let Pace::Closed { depth, .. } = self.pace else { return Ok(()) };
        self.clock.wait();
        let now_ns = self.clock.now_ns();
        for flow in 0..self.flows.count() {
            for _ in 0..depth {
                self.ask_another(flow, now_ns)?;
            }
            self.flows.flush(flow)?;
        }
        Ok(())
    }

    fn ask_another(&mut self, flow: usize, now_ns: u64) -> io::Result<()> {
        let Pace::Closed { asks, draws, .. } = &mut self.pace else { return Ok(()) };
        let ask = self.flows.context.workload.draw(asks, draws);
        let request = self.flows.context.request(ask, now_ns, self.versions.word() as u32);
        if self.flows.push(flow, request, now_ns)? {
            self.recorder.sent(now_ns, now_ns, false);
        }
        Ok(())
    }

    /// Sends what a schedule has due by now.
    fn send_due(&mut self) -> io::Result<()> {
        let mut touched = BTreeSet::new();
        for _ in 0..SENDS_MAX {
            let Some(&arrival) = self.pace.rest(self.next).first() else { break };
            let now_ns = self.clock.now_ns();
            if arrival.due_ns > now_ns {
                break;
            }
            let version = self.versions.word() as u32;
            let request = self.flows.context.request(arrival.ask, arrival.due_ns, version);
            let flow = self.turn_to_next_flow();
            if !self.flows.push(flow, request, now_ns)? {
                // Every id of this socket waits for a reply: try again when one has come.
                break;
            }
            self.next += 1;
            self.recorder.sent(arrival.due_ns, now_ns, false);
            touched.insert(flow);
        }
        touched.into_iter().try_for_each(|flow| self.flows.flush(flow))
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
        self.flows.flush_rest()
    }

    /// Gives up what has no reply in time; a closed loop asks anew.
    fn expire(&mut self, now_ns: u64) -> io::Result<()> {
        let end_ns = self.recorder.window_ns().end;
        let mut lost = Vec::new();
        self.flows.expire(now_ns, |flow, request| lost.push((flow, *request)));
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
        let recorder = self.recorder;
        self.pace.rest(self.next).iter().for_each(|arrival| recorder.never_sent(arrival.due_ns));
        self.flows.finish(recorder, self.clock.now_ns());
        self.flows.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::changing;
    use crate::connection::{Context, Target};
    use crate::datagram::peers::Peers;
    use crate::datagram::{LargeSets, Options};
    use crate::dialect::Dialect;
    use crate::sender::paced::Own;
    use crate::values::Values;
    use crate::workload::{Draws, Workload, WorkloadOptions};
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    const WINDOW_NS: u64 = 20_000_000;

    fn silent() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").expect("loopback")
    }

    fn random() -> Random {
        Random::stream(1, 1)
    }

    /// Asks a socket that answers nothing by others, without waiting for replies.
    fn ran(silent: &UdpSocket, pace: Pace<'_>, start: Instant) -> (Counts, Recorder) {
        let port = silent.local_addr().expect("bound").port();
        let peers = Peers::new("127.0.0.1", port, None).expect("an address");
        let timeout = Duration::from_millis(50);
        let options = Options { peers, door: None, large_sets: LargeSets::Udp, timeout };
        let workload = Workload::new(WorkloadOptions::default()).expect("valid");
        let context =
            Context { workload: &workload, values: &Values::new(1), dialect: Dialect::Text };
        let target = Target::Tcp("nowhere".into());
        let flows = Flows::open(context, &options, &target, 16, random()).expect("sockets");
        let mut recorder = Recorder::new(0..WINDOW_NS);
        let (drain, own) = (Duration::ZERO, Own::Nobody);
        let paced = Paced { pace, drain, versions: random(), own };
        let counts = flows.run(paced, Clock::starting(start), &mut recorder, |_| {});
        (counts.expect("it runs to its end"), recorder)
    }

    #[test]
    fn a_closed_loop_asks_nothing_before_the_start() {
        let silent = silent();
        let hears = silent.try_clone().expect("a descriptor");
        let asked = std::thread::spawn(move || {
            hears.recv(&mut [0; 2048]).expect("a request comes");
            Instant::now()
        });
        let start = Instant::now() + Duration::from_millis(200);
        let pace = Pace::Closed { depth: 1, asks: random(), draws: Draws::default() };
        ran(&silent, pace, start);
        assert!(asked.join().expect("no panic") >= start);
    }

    #[test]
    fn what_leaves_too_late_to_be_waited_for_is_lost_too() {
        // A million requests in 20 ms: the sender is behind when its time is up, and still sends.
        let workload = Workload::new(WorkloadOptions::default()).expect("valid");
        let arrivals = changing(&[workload], 5e7, 0..WINDOW_NS, 0);
        let (counts, recorder) = ran(&silent(), Pace::Open(&arrivals), Instant::now());
        assert_eq!((counts.sent, counts.answered), (counts.lost, 0));
        let told = recorder.counts;
        assert_eq!(told.due, arrivals.len() as u64);
        assert_eq!(told.due, told.lost + told.never_sent);
        assert_eq!(told.lost, counts.lost);
    }
}
