//! What a worker does when nothing is ready: sleep, spin, or spin for a moment and then sleep.
//!
//! *Adaptive* spins only where a sleep and a wake-up would cost more than the gap it bridges: the
//! mean gap between bursts is watched, and spinning begins when it falls below [`GAP_NANOS`]. At
//! one request in flight on a busy loopback the gap is longer, and sleeping is what costs least.
//!
//! Who spins without end yields now and then. Under a real-time scheduler nothing else would ever
//! take the CPU away, and there are others in this process: who lets clients in to memory, who
//! hears that the server is to end, workers on the same CPU.

use crate::clock::Clock;
use crate::settings::Idle;
use laneway_transport::Wait;
use std::thread;
use std::time::Duration;

/// A sleep and its wake-up cost about this much CPU time.
const GAP_NANOS: u64 = 4_000;
/// The longest an adaptive worker spins before it sleeps.
const SPIN_NANOS: u64 = 20_000;
/// Polls after which a worker that never sleeps yields.
const SPINS: u32 = 64;

/// One worker's habit of sleeping.
pub struct Sleeper {
    idle: Idle,
    /// Mean gap between bursts, an eighth new each time.
    gap_nanos: u64,
    /// When the wheel first found nothing to do, since the last burst.
    empty_since_nanos: Option<u64>,
    /// Polls without a sleep, where it never sleeps.
    spins: u32,
}

impl Sleeper {
    /// A sleeper that has seen nothing yet.
    pub fn new(idle: Idle) -> Sleeper {
        Sleeper { idle, gap_nanos: SPIN_NANOS, empty_since_nanos: None, spins: 0 }
    }

    /// How to poll at `now_nanos`, when there is nothing else to do for `sleep`.
    pub fn wait(&mut self, now_nanos: u64, sleep: Duration) -> Wait {
        let since = *self.empty_since_nanos.get_or_insert(now_nanos);
        let spin = match self.idle {
            Idle::Block => false,
            Idle::Spin => {
                self.spins = self.spins.wrapping_add(1);
                if self.spins.is_multiple_of(SPINS) {
                    thread::yield_now();
                }
                true
            }
            Idle::Adaptive => self.gap_nanos <= GAP_NANOS && now_nanos - since < SPIN_NANOS,
        };
        if spin { Wait::No } else { Wait::AtMost(sleep) }
    }

    /// A poll found something. The time now, if that had to be asked.
    pub fn found(&mut self, clock: &dyn Clock) -> Option<u64> {
        if self.idle != Idle::Adaptive {
            return None;
        }
        // Work that never ran out leaves no gap; a long sleep says no more than "too long to spin".
        let Some(since) = self.empty_since_nanos.take() else {
            self.gap_nanos = self.gap_nanos * 7 / 8;
            return None;
        };
        let now = clock.nanos();
        let gap = (now - since).min(2 * SPIN_NANOS);
        self.gap_nanos = self.gap_nanos * 7 / 8 + gap / 8;
        Some(now)
    }
}
