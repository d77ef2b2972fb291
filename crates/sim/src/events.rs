//! Which source of events is next: a tournament over a fixed set of sources, each with the time of
//! its one pending event.
//!
//! A worker finishes one piece of work at a time, the wire one frame, and one arrival is to come;
//! so there is no queue of events, only a contest between a few. A change costs one comparison per
//! level (4 for 8 workers) and nothing is allocated. Equal times go to the lower number, which
//! makes runs repeat exactly. Unit: picoseconds.

/// The time of a source that has nothing to come.
pub const NEVER: u64 = u64::MAX;

/// The tournament.
#[derive(Debug, Clone)]
pub struct Events {
    times: Vec<u64>,
    /// `winners[1]` is the source that is next; the children of node `i` are `2i` and `2i + 1`,
    /// and below the inner nodes stand the sources themselves.
    winners: Vec<u16>,
}

impl Events {
    /// So many sources, none with anything to come.
    pub fn new(sources: usize) -> Self {
        let leaves = sources.next_power_of_two().max(2);
        assert!(leaves <= 1 << 15);
        let mut winners = vec![0; 2 * leaves];
        for (source, slot) in winners[leaves..].iter_mut().enumerate() {
            *slot = source as u16;
        }
        for node in (1..leaves).rev() {
            winners[node] = winners[2 * node];
        }
        Events { times: vec![NEVER; leaves], winners }
    }

    /// The next event's source and time.
    #[inline]
    pub fn next(&self) -> (usize, u64) {
        let source = usize::from(self.winners[1]);
        (source, self.times[source])
    }

    /// The next event of `source` is at `time`.
    #[inline]
    pub fn set(&mut self, source: usize, time: u64) {
        self.times[source] = time;
        let mut node = (self.times.len() + source) / 2;
        while node > 0 {
            let left = self.winners[2 * node];
            let right = self.winners[2 * node + 1];
            let right_wins = self.times[usize::from(right)] < self.times[usize::from(left)];
            self.winners[node] = if right_wins { right } else { left };
            node /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_load::random::Random;

    #[test]
    fn the_earliest_is_next_and_the_lower_number_among_equals() {
        for sources in [1, 2, 3, 11, 64] {
            let mut events = Events::new(sources);
            let mut naive = vec![NEVER; sources];
            let mut random = Random::new(sources as u64);
            for _ in 0..2_000 {
                let source = random.below(sources as u64) as usize;
                let time = if random.chance(0.1) { NEVER } else { random.below(50) };
                events.set(source, time);
                naive[source] = time;
                let expected = (0..sources).min_by_key(|&s| naive[s]).map(|s| (s, naive[s]));
                assert_eq!(Some(events.next()), expected);
            }
        }
    }
}
