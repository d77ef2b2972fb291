//! What a run measured: latencies per operation and class, and counts of everything else.
//!
//! Latency histograms (the hdrhistogram crate: three significant digits at any magnitude) hold
//! nanoseconds. A request belongs to the measured window by the time it was due; throughput counts
//! what ended within the window.

use crate::connection::{Completion, Outcome, Request};
use crate::laps::{LATE_NS, Laps};
use crate::phases::Phases;
use crate::workload::{Class, Operation};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Longest latency told apart; longer ones count as this long.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Counts that threads add up.
macro_rules! summed {
    ($(#[$whole:meta])* pub struct $name:ident {
        $($(#[$each:meta])* pub $field:ident: u64,)*
    }) => {
        $(#[$whole])*
        pub struct $name {
            $($(#[$each])* pub $field: u64,)*
        }

        impl $name {
            /// Adds another thread's counts.
            pub fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}
pub(crate) use summed;

summed! {
    /// Counts of a run, most of which stand in reports. Those of requests are of requests due
    /// within the window.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    pub struct Counts {
        /// Due, whether sent or not.
        pub due: u64,
        /// Sent more than [`LATE_NS`] after they were due.
        pub late: u64,
        /// The latest of them, in nanoseconds.
        #[serde(skip)]
        pub late_ns_max: u64,
        /// Not sent by the end of the run.
        pub never_sent: u64,
        /// Sent, and no reply by the end of the run.
        pub unanswered: u64,
        /// Sent by UDP, and given up for want of a whole reply in time. It counts among the
        /// latencies.
        pub lost: u64,
        /// Sent on a connection that was busy, as none was idle.
        pub no_idle_connection: u64,
        /// GETs answered with a right value; of a GET of several keys, each.
        pub hits: u64,
        /// GETs answered with nothing.
        pub misses: u64,
        /// SETs done.
        pub stored: u64,
        /// Refused by the server, warm-up included.
        pub refused: u64,
        /// DELETEs done, whether there was something to remove or not.
        pub deleted: u64,
        /// Answered with a wrong value, warm-up included.
        pub corrupt: u64,
        /// Requests of the large class.
        pub large: u64,
        /// Value bytes moved either way.
        pub value_bytes: u64,
        /// Value bytes moved either way by large requests.
        #[serde(skip)]
        pub value_bytes_large: u64,
        /// Ended within the window, whenever they were due.
        #[serde(skip)]
        pub ended_within: u64,
        /// Keys of these.
        #[serde(skip)]
        pub keys_within: u64,
        /// Ended at any time, warm-up included.
        #[serde(skip)]
        pub ended: u64,
    }
}

/// Records one thread's run.
#[derive(Debug, Clone)]
pub struct Recorder {
    window_ns: Range<u64>,
    latency_ns: [Histogram<u64>; OPERATIONS.len() * CLASSES.len()],
    /// The same run, lap by lap.
    pub laps: Laps,
    /// The same run, part by part, where what is asked for changes within it.
    pub phases: Option<Phases>,
    /// Counts so far.
    pub counts: Counts,
    /// The first corrupt reply and the first refusal, in words.
    pub first_fault: Option<String>,
}

impl Recorder {
    /// Measures what is due within `window_ns`.
    pub fn new(window_ns: Range<u64>) -> Self {
        let empty = || {
            let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
            histogram.unwrap_or_else(|error| unreachable!("constant bounds: {error}"))
        };
        Recorder {
            laps: Laps::new(window_ns.clone()),
            phases: None,
            window_ns,
            latency_ns: std::array::from_fn(|_| empty()),
            counts: Counts::default(),
            first_fault: None,
        }
    }

    /// The measured window.
    pub fn window_ns(&self) -> Range<u64> {
        self.window_ns.clone()
    }

    /// A request due at `due_ns` left at `now_ns`, on a connection that was busy or not.
    pub fn sent(&mut self, due_ns: u64, now_ns: u64, busy: bool) {
        if !self.window_ns.contains(&due_ns) {
            return;
        }
        let late_ns = now_ns.saturating_sub(due_ns);
        self.counts.due += 1;
        self.counts.late += u64::from(late_ns > LATE_NS);
        self.counts.late_ns_max = self.counts.late_ns_max.max(late_ns);
        self.counts.no_idle_connection += u64::from(busy);
        self.left(due_ns, late_ns);
    }

    /// A request due at `due_ns` was not sent by the end.
    pub fn never_sent(&mut self, due_ns: u64) {
        if self.window_ns.contains(&due_ns) {
            self.counts.due += 1;
            self.counts.never_sent += 1;
            self.left(due_ns, u64::MAX);
        }
    }

    fn left(&mut self, due_ns: u64, late_ns: u64) {
        self.laps.sent(due_ns, late_ns);
        if let Some(phases) = &mut self.phases {
            phases.sent(due_ns, late_ns);
        }
    }

    /// A request due at `due_ns` was sent and has no reply by the end.
    pub fn unanswered(&mut self, due_ns: u64) {
        self.counts.unanswered += u64::from(self.window_ns.contains(&due_ns));
    }

    /// A request that was sent is given up at `now_ns`. It took at least that long, so this is its
    /// latency: leaving it out would flatter whoever loses the slow ones.
    pub fn lost(&mut self, request: &Request, now_ns: u64) {
        if self.window_ns.contains(&request.due_ns) {
            self.counts.lost += 1;
            self.latency(request, now_ns);
        }
    }

    fn latency(&mut self, request: &Request, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(request.due_ns).max(1);
        self.laps.answered(request.due_ns, request.class, latency_ns);
        if let Some(phases) = self.phases.as_mut().filter(|_| request.class == Class::Small) {
            phases.answered(request.due_ns, latency_ns);
        }
        self.latency_ns[index(request.operation, request.class)].saturating_record(latency_ns);
    }

    /// A request ended at `now_ns`.
    pub fn ended(&mut self, completion: &Completion, now_ns: u64) {
        let request = &completion.request;
        self.counts.ended += 1;
        if self.window_ns.contains(&now_ns) {
            self.counts.ended_within += 1;
            self.counts.keys_within += u64::from(request.keys);
        }
        // A wrong answer counts whenever it comes.
        let fault = match &completion.outcome {
            Outcome::Corrupt(what) => {
                self.counts.corrupt += 1;
                Some(format!("of key number {}: the reply has {what}", request.key.0))
            }
            Outcome::Refused(words) => {
                self.counts.refused += 1;
                Some(format!("of {} bytes: the server says {words:?}", request.value_bytes))
            }
            _ => None,
        };
        if let Some(words) = fault {
            self.first_fault.get_or_insert_with(|| format!("{:?} {words}", request.operation));
        }
        if !self.window_ns.contains(&request.due_ns) {
            return;
        }
        let bytes = request.value_bytes;
        let (hits, misses, stored, deleted, moved) = match completion.outcome {
            Outcome::Hit => (1, 0, 0, 0, bytes),
            Outcome::Many { hits, misses, value_bytes } => (hits, misses, 0, 0, value_bytes),
            Outcome::Miss => (0, 1, 0, 0, 0),
            Outcome::Stored => (0, 0, 1, 0, bytes),
            Outcome::Deleted => (0, 0, 0, 1, 0),
            Outcome::Refused(_) | Outcome::Corrupt(_) => return,
        };
        self.counts.hits += u64::from(hits);
        self.counts.misses += u64::from(misses);
        self.counts.stored += stored;
        self.counts.deleted += deleted;
        self.counts.value_bytes += moved;
        if request.class == Class::Large {
            self.counts.large += 1;
            self.counts.value_bytes_large += moved;
            if let Some(phases) = &mut self.phases {
                phases.moved(now_ns, moved);
            }
        }
        self.latency(request, now_ns);
    }

    /// Adds another thread's record of the same window.
    pub fn merge(&mut self, other: &Recorder) {
        for (own, others) in self.latency_ns.iter_mut().zip(&other.latency_ns) {
            *own += others;
        }
        let late_ns_max = self.counts.late_ns_max.max(other.counts.late_ns_max);
        self.counts.add(&other.counts);
        self.counts.late_ns_max = late_ns_max; // of two the larger, and not their sum
        self.laps.merge(&other.laps);
        if let (Some(own), Some(others)) = (&mut self.phases, &other.phases) {
            own.merge(others);
        }
        if self.first_fault.is_none() {
            self.first_fault.clone_from(&other.first_fault);
        }
    }

    /// The latencies of an operation and a class; `None` means of all of them, together.
    pub fn latency_ns(&self, operation: Option<Operation>, class: Option<Class>) -> Histogram<u64> {
        let mut merged = self.latency_ns[0].clone();
        merged.reset();
        for own_operation in OPERATIONS {
            for own_class in CLASSES {
                if operation.is_none_or(|wanted| wanted == own_operation)
                    && class.is_none_or(|wanted| wanted == own_class)
                {
                    merged += &self.latency_ns[index(own_operation, own_class)];
                }
            }
        }
        merged
    }
}

const OPERATIONS: [Operation; 3] = [Operation::Get, Operation::Set, Operation::Delete];
const CLASSES: [Class; 2] = [Class::Small, Class::Large];

const fn index(operation: Operation, class: Class) -> usize {
    operation as usize * CLASSES.len() + class as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Key;

    fn completion(due_ns: u64, class: Class, outcome: Outcome) -> Completion {
        let operation = Operation::Get;
        let request =
            Request { key: Key(1), operation, keys: 1, class, value_bytes: 10, version: 0, due_ns };
        Completion { request, outcome }
    }

    #[test]
    fn only_what_is_due_within_the_window_is_measured() {
        let mut recorder = Recorder::new(1_000..2_000);
        for due_ns in [0, 999, 1_000, 1_999, 2_000] {
            recorder.sent(due_ns, due_ns, false);
            recorder.ended(&completion(due_ns, Class::Small, Outcome::Hit), due_ns + 500);
        }
        assert_eq!(recorder.counts.due, 2);
        assert_eq!(recorder.counts.hits, 2);
        assert_eq!(recorder.counts.ended, 5);
        assert_eq!(recorder.counts.ended_within, 2); // those that ended at 1499 and at 1500
        assert_eq!(recorder.counts.keys_within, 2);
        assert_eq!(recorder.latency_ns(None, None).len(), 2);
    }

    #[test]
    fn a_wrong_answer_counts_outside_the_window_too() {
        let mut recorder = Recorder::new(1_000..2_000);
        recorder.ended(&completion(0, Class::Small, Outcome::Corrupt("a hole")), 10);
        recorder.ended(&completion(0, Class::Small, Outcome::Refused("no".into())), 10);
        assert_eq!((recorder.counts.corrupt, recorder.counts.refused), (1, 1));
        assert!(recorder.first_fault.is_some_and(|words| words.contains("a hole")));
    }

    #[test]
    fn threads_merge_with_their_laps_and_phases() {
        let mut one = Recorder::new(0..10);
        one.phases = Some(Phases::new(0..10, 1));
        let mut two = one.clone();
        one.sent(1, 1, false);
        two.sent(1, 2_000_000, false);
        one.ended(&completion(1, Class::Small, Outcome::Hit), 2);
        two.ended(&completion(1, Class::Small, Outcome::Miss), 2);
        two.ended(&completion(1, Class::Large, Outcome::Hit), 2);
        one.merge(&two);
        assert_eq!((one.counts.hits, one.counts.misses, one.counts.large), (2, 1, 1));
        assert_eq!((one.counts.late, one.counts.late_ns_max), (1, 1_999_999));
        assert_eq!(one.latency_ns(None, None).len(), 3);
        assert_eq!(one.latency_ns(Some(Operation::Get), Some(Class::Large)).len(), 1);
        assert_eq!(one.latency_ns(Some(Operation::Set), None).len(), 0);
        let quiet = one.laps.quiet();
        assert_eq!((quiet.laps, quiet.laps_quiet), (1, 0), "half of its requests were late");
        let part = one.phases.expect("there").told(&[]).parts[0];
        assert_eq!((part.small.count, part.disturbed), (2, 1));
        assert!(part.large_megabytes_per_s > 0.0, "ten bytes in ten nanoseconds");
    }
}
