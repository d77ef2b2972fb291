//! One worker's latencies: for each operation and lane how long requests took in all, and how long
//! they spent in each [`Part`] of it.
//!
//! Most requests are served at once and their replies leave at once: for these the whole time is
//! service. They are counted in one histogram, `straight`, and only the others in one for each
//! part; who reads puts both together. So the common request costs one bucket.

use super::histogram::{Histogram, Reading};
use super::{PendingLatencies, ROWS};
use std::sync::{Mutex, PoisonError};

/// Where a request's time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// From when it was found to have arrived until its first turn: behind others, in the line of
    /// its lane, or on its way to a large worker.
    Wait,
    /// From then until the last byte of its reply was handed to the kernel, `Drain` left out.
    Service,
    /// While its reply could not leave, because the client took no more.
    Drain,
}

impl Part {
    /// All, in the order that a request meets them.
    pub const ALL: [Part; 3] = [Part::Wait, Part::Service, Part::Drain];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        ["wait", "service", "drain"][self as usize]
    }
}

/// One operation in one lane.
#[derive(Debug, Default)]
struct Row {
    /// Of requests that neither waited nor drained: all of their time is service.
    straight: Histogram,
    /// Of the others: all of their time.
    whole: Histogram,
    /// Of the others, by part.
    parts: [Histogram; Part::ALL.len()],
}

/// One worker's histograms.
#[derive(Default)]
pub struct RecordedLatencies {
    rows: [Row; ROWS],
    /// What was there at the last `stats reset`. Only who asks takes the lock.
    baseline: Mutex<Vec<Reading>>,
}

impl RecordedLatencies {
    /// Record every request of `tally`, done at `now_nanos`, and empty it; `each` is told of the
    /// rows, and of how many requests each of them has. Only the worker that owns the book calls
    /// this.
    #[inline]
    pub fn settle(
        &self,
        tally: &mut PendingLatencies,
        now_nanos: u64,
        mut each: impl FnMut(usize, u64),
    ) {
        let took = now_nanos.saturating_sub(tally.since_nanos).max(1);
        let is_straight = tally.wait_nanos == 0 && tally.drain_nanos == 0;
        let mut used = tally.used;
        while used != 0 {
            let row = used.trailing_zeros() as usize;
            used &= used - 1;
            let requests = u64::from(std::mem::take(&mut tally.counts[row]));
            each(row, requests);
            if is_straight {
                self.rows[row].straight.add_owner(took, requests);
            } else {
                self.rows[row].add_parts(tally, took, requests);
            }
        }
        tally.settled();
    }

    /// Add what is here since the start, by row.
    pub fn read_into(&self, sum: &mut [Latencies]) {
        for (sum, row) in sum.iter_mut().zip(&self.rows) {
            row.read_into(sum);
        }
    }

    /// Add the whole times since the last reset, by row.
    pub fn read_whole_into(&self, sum: &mut [Reading]) {
        let whole = self.read_whole();
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        for (row, (sum, mut whole)) in sum.iter_mut().zip(whole).enumerate() {
            if let Some(before) = baseline.get(row) {
                whole.subtract(before);
            }
            sum.add_reading(&whole);
        }
    }

    /// `stats reset`: count from here.
    pub fn reset(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.read_whole();
    }

    fn read_whole(&self) -> Vec<Reading> {
        let read = |row: &Row| {
            let mut whole = Reading::default();
            whole.add(&row.straight);
            whole.add(&row.whole);
            whole
        };
        self.rows.iter().map(read).collect()
    }
}

impl Row {
    fn add_parts(&self, tally: &PendingLatencies, took: u64, requests: u64) {
        let (wait, drain) = (tally.wait_nanos, tally.drain_nanos);
        self.whole.add_owner(took, requests);
        for (part, nanos) in [
            (Part::Wait, wait),
            (Part::Service, took.saturating_sub(wait.saturating_add(drain))),
            (Part::Drain, drain),
        ] {
            self.parts[part as usize].add_owner(nanos, requests);
        }
    }

    fn read_into(&self, sum: &mut Latencies) {
        // Read once, so that every bucket of what is told only grows from one reading to the next.
        let mut straight = Reading::default();
        straight.add(&self.straight);
        sum.whole.add_reading(&straight);
        sum.whole.add(&self.whole);
        for (part, (sum, histogram)) in sum.parts.iter_mut().zip(&self.parts).enumerate() {
            sum.add(histogram);
            match part == Part::Service as usize {
                true => sum.add_reading(&straight),
                false => sum.add_zeros(straight.count()),
            }
        }
    }
}

/// The latencies of one operation in one lane, as read. Each part counts every request.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    /// From arrival to the last byte of the reply.
    pub whole: Reading,
    /// Of it, by [`Part`].
    pub parts: [Reading; Part::ALL.len()],
}

impl Latencies {
    /// Add others.
    pub fn add(&mut self, other: &Latencies) {
        self.whole.add_reading(&other.whole);
        for (part, more) in self.parts.iter_mut().zip(&other.parts) {
            part.add_reading(more);
        }
    }
}
