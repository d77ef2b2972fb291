//! Statistics of hot keys: rates over a window of time, and how evenly the workers were loaded
//! (`stats balance`; KeySched §2 "Max-Ave-Ratio"). This module knows no scheduler. Times are
//! nanoseconds, everything else counts requests.

/// Rates are told of so much time at least, and at most twice as much.
const WINDOW_NANOS: u64 = 1_000_000_000;

/// What was counted of a key: until a moment, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// When that was, or how long it took.
    pub nanos: u64,
    /// Reads of the key.
    pub reads: u64,
    /// Writes of it.
    pub writes: u64,
    /// Requests of any kind.
    pub all: u64,
}

/// The last second or two of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    marks: [Counted; 2],
}

impl Window {
    /// It begins.
    pub fn new(now: Counted) -> Window {
        Window { marks: [now; 2] }
    }

    /// Go on, if it has become long enough.
    pub fn advance(&mut self, now: Counted) {
        if now.nanos.saturating_sub(self.marks[1].nanos) >= WINDOW_NANOS {
            self.marks = [self.marks[1], now];
        }
    }

    /// What it holds.
    pub fn since(&self, now: Counted) -> Counted {
        let [from, _] = self.marks;
        Counted {
            nanos: now.nanos.saturating_sub(from.nanos),
            reads: now.reads.saturating_sub(from.reads),
            writes: now.writes.saturating_sub(from.writes),
            all: now.all.saturating_sub(from.all),
        }
    }
}

/// The busiest worker's load over the mean (KeySched §2 "Max-Ave-Ratio"); `None` without any.
pub fn max_ave_ratio(loads: &[u64]) -> Option<f64> {
    let sum: u64 = loads.iter().sum();
    let max = loads.iter().copied().max()?;
    (sum > 0).then(|| max as f64 * loads.len() as f64 / sum as f64)
}

/// How evenly the workers were loaded, slot by slot and over the run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Balance {
    /// Slots that are over.
    pub slots: u64,
    /// Requests that each worker executed in them.
    pub run: Vec<u64>,
    /// The same, if every key had stayed where its hash says.
    pub run_by_hash: Vec<u64>,
    /// The last slot's.
    pub slot: Vec<u64>,
    /// The sum of the slots' ratios.
    pub ratios: f64,
    /// The same, if every key had stayed where its hash says.
    pub ratios_by_hash: f64,
}

impl Balance {
    /// No slot is over.
    pub fn new(workers: usize) -> Balance {
        let none = vec![0; workers];
        Balance { run: none.clone(), run_by_hash: none.clone(), slot: none, ..Balance::default() }
    }

    /// A slot is over, in which the workers executed this, and by key hash would have executed
    /// that.
    pub fn add(&mut self, loads: &[u64], by_hash: &[u64]) {
        self.slots += 1;
        self.slot.copy_from_slice(loads);
        for (sums, slot) in [(&mut self.run, loads), (&mut self.run_by_hash, by_hash)] {
            for (sum, load) in sums.iter_mut().zip(slot) {
                *sum += load;
            }
        }
        self.ratios += max_ave_ratio(loads).unwrap_or(1.0);
        self.ratios_by_hash += max_ave_ratio(by_hash).unwrap_or(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_one_to_two_seconds_and_empties_when_nothing_comes() {
        let mark = |seconds: u64, reads| Counted {
            nanos: seconds * 1_000_000_000 / 2,
            reads,
            writes: 0,
            all: 2 * reads,
        };
        let mut window = Window::new(mark(0, 0));
        for half in 1..=10 {
            window.advance(mark(half, half * 50));
            let since = window.since(mark(half, half * 50));
            assert!(since.nanos <= 2_000_000_000, "{since:?}");
            assert_eq!(since.reads * 1_000_000_000 / since.nanos, 100, "a second");
            assert_eq!(since.all, 2 * since.reads);
        }
        let later = window.since(mark(100, 500));
        assert!(later.reads * 1_000_000_000 / later.nanos < 5, "{later:?}");
    }

    #[test]
    fn balance_sums_loads_over_the_run_and_ratios_over_the_slots() {
        assert_eq!(max_ave_ratio(&[]), None);
        assert_eq!(max_ave_ratio(&[0, 0]), None);
        let mut balance = Balance::new(2);
        balance.add(&[30, 10], &[40, 0]);
        balance.add(&[10, 30], &[40, 0]);
        assert_eq!(max_ave_ratio(&balance.run), Some(1.0));
        assert_eq!(max_ave_ratio(&balance.run_by_hash), Some(2.0));
        assert_eq!((balance.slots, balance.ratios, balance.ratios_by_hash), (2, 3.0, 4.0));
        assert_eq!(balance.slot, [10, 30]);
    }
}
