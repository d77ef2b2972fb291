//! The closed loop: a fixed number of requests in flight on each connection, the next one leaving
//! when one has ended. It finds peaks and the cost of a request; its latencies say nothing about
//! what users would wait, as a slow server is simply asked less.

use super::{Clock, Connections, Edge};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::workload::Draws;
use std::io;
use std::time::Duration;

/// What one thread keeps up.
#[derive(Debug)]
pub struct ClosedLoop {
    /// Requests in flight on each connection.
    pub depth: usize,
    /// How long after the window replies are waited for.
    pub drain: Duration,
    /// Where requests are drawn from.
    pub asks: Random,
    /// What those drawn left behind.
    pub draws: Draws,
    /// Where the versions of written values come from.
    pub versions: Random,
}

impl ClosedLoop {
    /// Runs until the recorder's window has closed. `at_edge` is called as it opens and closes.
    pub fn run(
        &mut self,
        connections: &mut Connections<'_>,
        clock: Clock,
        recorder: &mut Recorder,
        mut at_edge: impl FnMut(Edge),
    ) -> io::Result<()> {
        let window_ns = recorder.window_ns();
        let give_up_ns = window_ns.end + self.drain.as_nanos() as u64;
        clock.wait();
        for index in 0..connections.count() {
            for _ in 0..self.depth {
                self.push(connections, recorder, index, clock.now_ns());
            }
            connections.flush(index)?;
        }
        let mut edges = [(window_ns.start, Edge::Open), (window_ns.end, Edge::Close)].into_iter();
        let mut edge = edges.next();
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        while connections.in_flight() > 0 || edge.is_some() {
            let now_ns = clock.now_ns();
            if let Some((_, which)) = edge.filter(|&(at_ns, _)| at_ns <= now_ns) {
                at_edge(which);
                edge = edges.next();
            }
            if now_ns > give_up_ns {
                break;
            }
            connections.poll(Duration::ZERO, &mut ready)?;
            for &event in &ready {
                let now_ns = connections.serve(event, &clock, &mut ended)?;
                if ended.is_empty() {
                    continue;
                }
                let goes_on = now_ns < window_ns.end;
                for completion in ended.drain(..) {
                    recorder.ended(&completion, now_ns);
                    if goes_on {
                        self.push(connections, recorder, event.index, now_ns);
                    }
                }
                connections.flush(event.index)?;
            }
        }
        connections.for_each_unanswered(|request| recorder.unanswered(request.due_ns));
        Ok(())
    }

    fn push(
        &mut self,
        connections: &mut Connections<'_>,
        recorder: &mut Recorder,
        index: usize,
        now_ns: u64,
    ) {
        let workload = connections.context().workload;
        let ask = workload.draw(&mut self.asks, &mut self.draws);
        let version = self.versions.word() as u32;
        connections.push(index, connections.context().request(ask, now_ns, version));
        recorder.sent(now_ns, now_ns, false);
    }
}
