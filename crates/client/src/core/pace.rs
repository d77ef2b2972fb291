//! How much may be under way: round trips and when to send again, the window of requests, the rate
//! at which a long request leaves.
//!
//! The retry time is TCP's (RFC 6298): a smoothed round trip and four times its deviation, doubled
//! with each attempt. Window and rate halve when the network or the server loses what it was sent
//! and grow again by a step. It knows no request. Times are nanoseconds.

use crate::settings::{SECOND, Settings};

/// A deterministic stream of random numbers (SplitMix64).
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// Round trips, and what follows from them.
pub(super) struct RoundTrips {
    smoothed_nanos: u64,
    deviation_nanos: u64,
}

impl RoundTrips {
    pub(super) fn new() -> RoundTrips {
        RoundTrips { smoothed_nanos: 0, deviation_nanos: 0 }
    }

    /// The first frame of a reply to a request that was sent once only came after so long.
    pub(super) fn measured(&mut self, nanos: u64) {
        if self.smoothed_nanos == 0 {
            (self.smoothed_nanos, self.deviation_nanos) = (nanos.max(1), nanos / 2);
            return;
        }
        let off = self.smoothed_nanos.abs_diff(nanos);
        self.deviation_nanos = (3 * self.deviation_nanos + off) / 4;
        self.smoothed_nanos = ((7 * self.smoothed_nanos + nanos) / 8).max(1);
    }

    /// How long to wait after attempt number `attempt`, from 1. `draw` spreads it by a quarter, so
    /// that clients that lost together do not come back together.
    pub(super) fn retry_nanos(&self, settings: &Settings, attempt: u32, draw: u64) -> u64 {
        let measured = self.smoothed_nanos + 4 * self.deviation_nanos;
        let base = if self.smoothed_nanos == 0 { settings.retry_nanos_first } else { measured };
        let base = base.max(settings.retry_nanos_min);
        let doubled = base.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        let nanos = doubled.min(settings.retry_nanos_max);
        nanos.saturating_add(draw % (nanos / 4 + 1))
    }
}

/// How many requests may be under way: one more each time that as many were answered.
pub(super) struct Window {
    /// In 256ths of a request.
    allowed: usize,
    most: usize,
    /// Losses of what was sent before this moment have been paid for.
    paid_nanos: u64,
}

impl Window {
    pub(super) fn new(most: usize) -> Window {
        let most = most.max(1) * 256;
        Window { allowed: most, most, paid_nanos: 0 }
    }

    pub(super) fn requests(&self) -> usize {
        self.allowed / 256
    }

    pub(super) fn answered(&mut self) {
        // However wide it is, it grows: a step below the unit would be none.
        let step = (256 * 256 / self.allowed).max(1);
        self.allowed = (self.allowed + step).min(self.most);
    }

    /// Something sent at `sent_nanos` was lost with all that follows it.
    pub(super) fn lost(&mut self, sent_nanos: u64, now_nanos: u64) {
        if sent_nanos >= self.paid_nanos {
            self.allowed = (self.allowed / 2).max(256);
            self.paid_nanos = now_nanos;
        }
    }
}

/// How fast long requests leave.
pub(super) struct Rate {
    bytes_per_second: u64,
    most: u64,
    /// The next train may leave then.
    next_nanos: u64,
    paid_nanos: u64,
}

/// The slowest: one train in 16 ms.
const RATE_MIN: u64 = 4 << 20;

impl Rate {
    pub(super) fn new(most: u64) -> Rate {
        let most = most.max(RATE_MIN);
        Rate { bytes_per_second: most.min(256 << 20), most, next_nanos: 0, paid_nanos: 0 }
    }

    pub(super) fn next_nanos(&self) -> u64 {
        self.next_nanos
    }

    pub(super) fn left(&mut self, bytes: usize, now_nanos: u64) {
        let nanos = bytes as u64 * SECOND / self.bytes_per_second;
        self.next_nanos = self.next_nanos.max(now_nanos) + nanos;
    }

    /// A request of many datagrams arrived.
    pub(super) fn arrived(&mut self) {
        self.bytes_per_second = (self.bytes_per_second + self.bytes_per_second / 16).min(self.most);
    }

    /// Many datagrams of a request sent at `sent_nanos` did not.
    pub(super) fn lost(&mut self, sent_nanos: u64, now_nanos: u64) {
        if sent_nanos >= self.paid_nanos {
            self.bytes_per_second = (self.bytes_per_second / 2).max(RATE_MIN);
            self.paid_nanos = now_nanos;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MILLISECOND;

    #[test]
    fn retries_wait_longer_each_time_up_to_the_bound() {
        let settings = Settings::default();
        let mut trips = RoundTrips::new();
        assert_eq!(trips.retry_nanos(&settings, 1, 0), settings.retry_nanos_first);
        for _ in 0..100 {
            trips.measured(MILLISECOND);
        }
        let waits: Vec<u64> = (1..=8).map(|n| trips.retry_nanos(&settings, n, 0)).collect();
        let expected = [20, 40, 80, 160, 320, 640, 1000, 1000].map(|ms| ms * MILLISECOND);
        assert_eq!(waits, expected);
        for draw in 0..1000 {
            let waited = trips.retry_nanos(&settings, 1, draw * 999_983);
            assert!((20 * MILLISECOND..=25 * MILLISECOND).contains(&waited));
        }
        let never = Settings { retry_nanos_min: u64::MAX, retry_nanos_max: u64::MAX, ..settings };
        assert_eq!(trips.retry_nanos(&never, 1, u64::MAX / 5), u64::MAX);
        let settings = Settings::default();
        for _ in 0..100 {
            trips.measured(300 * MILLISECOND);
        }
        assert!(trips.retry_nanos(&settings, 1, 0) >= 300 * MILLISECOND);
    }

    #[test]
    fn the_window_halves_once_for_what_was_lost_together() {
        let mut window = Window::new(64);
        window.lost(10, 100);
        window.lost(20, 101);
        assert_eq!(window.requests(), 32);
        window.lost(100, 200);
        assert_eq!(window.requests(), 16);
        for _ in 0..16 * 17 {
            window.answered();
        }
        assert!((22..32).contains(&window.requests()), "{}", window.requests());
        for _ in 0..10_000 {
            window.answered();
        }
        assert_eq!(window.requests(), 64);
        for at in 0..20 {
            window.lost(1000 * at + 300, 1000 * at + 301);
        }
        assert_eq!(window.requests(), 1);
    }

    #[test]
    fn a_wide_window_that_was_halved_is_wide_again() {
        let mut window = Window::new(1024);
        window.lost(10, 100);
        assert_eq!(window.requests(), 512);
        for _ in 0..512 * 256 {
            window.answered();
        }
        assert_eq!(window.requests(), 1024);
    }

    #[test]
    fn the_rate_spaces_trains() {
        let mut rate = Rate::new(1 << 20);
        assert_eq!(rate.bytes_per_second, RATE_MIN);
        rate.left(RATE_MIN as usize / 1000, 5 * SECOND);
        assert!((999_000..=MILLISECOND).contains(&(rate.next_nanos() - 5 * SECOND)));
        let mut rate = Rate::new(1 << 30);
        rate.lost(0, 10);
        rate.lost(5, 11);
        assert_eq!(rate.bytes_per_second, 128 << 20);
        for _ in 0..1000 {
            rate.arrived();
        }
        assert_eq!(rate.bytes_per_second, 1 << 30);
    }
}
