//! Cache lines that every worker writes: counters, locks, the ends of queues. A line that another
//! worker wrote last has to come from its core first, and only one can have it at a time; so what a
//! request costs grows with the workers, up to where a line itself is the bottleneck.
//!
//! Each request writes one line of each of several kinds when it is begun. Of a kind there is one
//! (a lock of every store) or there are many, of which one is drawn (a count of each partition of
//! the index). Not modelled: lines that are only read, and how far apart two cores are. Unit:
//! picoseconds.

use super::{Doing, Run};
use laneway_load::random::Random;

/// The lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedLines {
    /// Kinds, of each of which a request writes one.
    pub each: u32,
    /// Lines of a kind.
    pub spread: u32,
    /// Until a line of another worker's is there.
    pub transfer: u64,
}

/// Where they are.
#[derive(Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    random: Random,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    owner: Option<usize>,
    /// From when on another can have it.
    free: u64,
}

impl Lines {
    pub(super) fn new(shared: Option<SharedLines>, seed: u64) -> Lines {
        let lines = shared.map_or(0, |shared| (shared.each * shared.spread) as usize);
        Lines { lines: vec![Line::default(); lines], random: Random::stream(seed, 3) }
    }

    /// How long a worker waits from now on for those that one request writes.
    fn wait(&mut self, worker: usize, shared: SharedLines, now: u64) -> u64 {
        let mut at = now;
        for kind in self.lines.chunks_mut(shared.spread as usize) {
            let line = &mut kind[self.random.below(u64::from(shared.spread)) as usize];
            if line.owner != Some(worker) {
                at = at.max(line.free) + if line.owner.is_some() { shared.transfer } else { 0 };
                *line = Line { owner: Some(worker), free: at };
            }
        }
        at - now
    }
}

impl Run<'_> {
    /// What the shared lines add to what is begun.
    pub(super) fn wait_for_lines(&mut self, worker: usize, doing: &Doing) -> u64 {
        let Some(shared) = self.machine.lines else { return 0 };
        let begun = match doing {
            Doing::Serve(_) => 1,
            Doing::Turn(_, requests) => *requests,
            Doing::Piece(_) => {
                let front = self.workers[worker].transfers.front();
                u32::from(front.is_some_and(|one| one.bytes_left == one.request.bytes))
            }
            _ => 0,
        };
        let mut at = self.now;
        for _ in 0..begun {
            at += self.lines.wait(worker, shared, at);
        }
        at - self.now
    }
}
