//! Requests in batches, each sent whole and waited for: for what is counted and not timed. It knows
//! no latency.

use super::{Clock, Connections};
use crate::connection::{Completion, Context, Target};
use crate::random::Random;
use crate::workload::{Ask, Draws, Workload};
use std::time::{Duration, Instant};

/// Without any reply for so long, the server is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Of the workload's seed.
const ASKS_STREAM: u64 = 1;
const VERSIONS_STREAM: u64 = 2;

/// Connections, and what is in flight on them.
pub struct Batches<'a> {
    connections: Connections<'a>,
    clock: Clock,
    /// The random numbers that asks are drawn with.
    pub asks: Random,
    draws: Draws,
    versions: Random,
}

impl<'a> Batches<'a> {
    /// Opens so many connections.
    pub fn open(context: Context<'a>, target: &Target, count: usize) -> Result<Self, String> {
        let connections = Connections::open(context, target, count)
            .map_err(|error| format!("cannot connect to {target}: {error}"))?;
        let seed = context.workload.options().seed;
        Ok(Batches {
            connections,
            clock: Clock::starting(Instant::now()),
            asks: Random::stream(seed, ASKS_STREAM),
            draws: Draws::default(),
            versions: Random::stream(seed, VERSIONS_STREAM),
        })
    }

    /// What is asked for.
    pub fn workload(&self) -> &'a Workload {
        self.connections.context().workload
    }

    /// Draws what is asked for next.
    pub fn draw(&mut self) -> Ask {
        self.workload().draw(&mut self.asks, &mut self.draws)
    }

    /// Puts one more request into the batch; they go to the connections in turn.
    pub fn push(&mut self, ask: Ask) {
        let request = self.connections.context().request(ask, 0, self.versions.word() as u32);
        let index = self.connections.in_flight() % self.connections.count();
        self.connections.push(index, request);
    }

    /// Sends what was pushed and waits for every reply: how each ended.
    pub fn finish(&mut self) -> Result<Vec<Completion>, String> {
        let broken = |error: std::io::Error| format!("the connection broke: {error}");
        for index in 0..self.connections.count() {
            self.connections.flush(index).map_err(broken)?;
        }
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        while self.connections.in_flight() > 0 {
            self.connections.wait(SILENCE_MAX, &mut ready).map_err(broken)?;
            if ready.is_empty() {
                return Err(format!("no reply for {} s", SILENCE_MAX.as_secs()));
            }
            for &event in &ready {
                self.connections.serve(event, &self.clock, &mut ended).map_err(broken)?;
            }
        }
        Ok(ended)
    }
}
