//! Time, injected: the one place of the server that reads a clock. Tests hand out a
//! [`ManualClock`].
#![allow(clippy::disallowed_methods, reason = "this is the server's clock")]

use laneway_store::Moment;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds of a time that somebody has typed; what is too long to be counted, as a time meant
/// as "for ever" may be, is as long as can be.
pub(crate) fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The same in whole seconds.
pub(crate) fn seconds_of(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Where a worker gets its time from.
pub trait Clock: Send {
    /// Nanoseconds since some fixed moment; never goes backwards.
    fn nanos(&self) -> u64;
    /// The same right behind a moment that it gave, when nothing to speak of has been done since:
    /// that moment once more, but by a clock that somebody moves by hand.
    fn right_after(&self, _nanos: u64) -> u64 {
        self.nanos()
    }
    /// Seconds since 1970, at a moment that [`Clock::nanos`] gave.
    fn unix_seconds(&self, nanos: u64) -> u32;
    /// Nanoseconds since 1970, of the same second.
    fn unix_nanos(&self, nanos: u64) -> u64;
    /// The same to the millisecond, for expiry.
    #[inline]
    fn moment(&self, nanos: u64) -> Moment {
        Moment::from_unix_nanos(self.unix_nanos(nanos))
    }
    /// This clock's unix time minus the time since the machine's boot (suspended or not), of which
    /// the kernel makes the same time. 0 for a clock that the kernel has nothing to do with.
    fn unix_minus_boot_nanos(&self) -> i64 {
        0
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
    /// Unix time of `start`, so that one reading gives both times and expiry never jumps with the
    /// wall clock.
    start_unix_nanos: u64,
}

impl SystemClock {
    /// Begins now.
    pub fn start() -> SystemClock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { start: Instant::now(), start_unix_nanos: unix.as_nanos() as u64 }
    }
}

impl Clock for SystemClock {
    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn right_after(&self, nanos: u64) -> u64 {
        nanos
    }
    fn unix_seconds(&self, nanos: u64) -> u32 {
        ((self.start_unix_nanos + nanos) / 1_000_000_000) as u32
    }
    fn unix_nanos(&self, nanos: u64) -> u64 {
        self.start_unix_nanos + nanos
    }
    fn unix_minus_boot_nanos(&self) -> i64 {
        // Every Linux has this clock; without it items would expire by the time since 1970 alone.
        let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |boot| boot.num_nanoseconds());
        (self.start_unix_nanos + self.nanos()) as i64 - boot
    }
}

/// A clock that a test moves by hand.
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
    /// It goes on by so many each time that it is asked.
    runs: Arc<AtomicU64>,
    /// The wall clock was stepped back by so much since.
    seconds_back: u32,
}

impl ManualClock {
    /// Unix time at nanosecond 0 of every manual clock.
    pub const UNIX_START: u32 = 1_700_000_000;

    /// Let time pass.
    pub fn advance(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// Go on by so many nanoseconds each time that somebody asks: work takes time from now on.
    pub fn run(&self, nanos: u64) {
        self.runs.store(nanos, Relaxed);
    }

    /// The same clock for a server to come, which finds the wall clock stepped back.
    pub fn stepped_back(&self, seconds: u32) -> ManualClock {
        let seconds_back = self.seconds_back + seconds;
        ManualClock { seconds_back, ..self.clone() }
    }
}

impl Clock for ManualClock {
    fn nanos(&self) -> u64 {
        match self.runs.load(Relaxed) {
            0 => self.nanos.load(Relaxed),
            by => self.nanos.fetch_add(by, Relaxed) + by,
        }
    }
    fn unix_seconds(&self, nanos: u64) -> u32 {
        Self::UNIX_START + (nanos / 1_000_000_000) as u32 - self.seconds_back
    }
    fn unix_nanos(&self, nanos: u64) -> u64 {
        u64::from(Self::UNIX_START - self.seconds_back) * 1_000_000_000 + nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_meant_for_ever_is_as_long_as_can_be() {
        let for_ever = Duration::from_millis(u64::MAX);
        assert_eq!((nanos_of(for_ever), seconds_of(for_ever)), (u64::MAX, u32::MAX));
        let beyond = Duration::from_secs(u64::from(u32::MAX) + 2);
        assert_eq!((nanos_of(beyond), seconds_of(beyond)), (4_294_967_297_000_000_000, u32::MAX));
        let short = Duration::from_millis(1_500);
        assert_eq!((nanos_of(short), seconds_of(short)), (1_500_000_000, 1));
    }
}
