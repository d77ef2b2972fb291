//! How much one client may ask for: a token bucket.
//!
//! The bucket is one number, the moment at which it would be full again (the generic cell rate
//! algorithm, ITU-T I.371): what is taken moves that moment on by the time that so much takes at
//! the rate, and the bucket is empty while the moment is [`BURST_NANOS`] or more away. Nothing has
//! to be added as time passes, and several workers can share the number.
//!
//! A request is admitted while the bucket is not empty, and is charged when its cost is known,
//! which may leave a debt: nobody knows a reply's length before it is made. The client waits for
//! its debt, so that over any time a client has the rate and one burst, and one turn's worth at
//! most beside it. Rounding is against the client, and by less than a nanosecond each time.
//!
//! The small lane comes first within a client, too: its large transfers leave the last half of the
//! burst in the bucket ([`BURST_LARGE_NANOS`]). So they wait first, and small requests find
//! something as long as they alone stay below the rate.
//!
//! It knows no clock: moments are arguments, in nanoseconds since any moment.

use crate::pace::SLICE_BYTES_MIN;
use crate::units::FRAME_BYTES;
use core::num::NonZeroU64;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The bucket holds what comes in so long a time: what a client that was silent may have at once.
pub const BURST_NANOS: u64 = 100_000_000;

/// What large transfers may use up of it.
pub const BURST_LARGE_NANOS: u64 = BURST_NANOS / 2;

/// So many a second: requests, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// The rate of so many a second; none for 0, which limits nothing.
    pub fn new(per_second: u64) -> Option<Rate> {
        NonZeroU64::new(per_second).map(Rate)
    }

    /// So many a second.
    pub fn per_second(self) -> u64 {
        self.0.get()
    }

    /// When a bucket is full again of which so many are taken now, and which would have been full
    /// at `full_nanos`.
    pub fn take(self, full_nanos: u64, units: u64, now_nanos: u64) -> u64 {
        let takes = u128::from(units) * NANOS_PER_SECOND;
        let takes = takes.div_ceil(u128::from(self.per_second()));
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        full_nanos.max(now_nanos).saturating_add(takes)
    }

    /// Bytes that one slice of a large transfer may move where so many are left: none where none
    /// are. Where few are it is more, for a slice costs its worker something whatever it moves; and
    /// still no more than leaves a quarter of the burst to small requests, or a frame.
    pub fn slice_bytes(self, left: u64) -> u64 {
        let quarter = self.per_second() / (NANOS_PER_SECOND as u64 / (BURST_NANOS / 4));
        let least = quarter.clamp(FRAME_BYTES.0, SLICE_BYTES_MIN);
        if left == 0 { 0 } else { left.max(least) }
    }

    /// How many may be taken now, one after the other, each of which finds something in the bucket;
    /// `burst_nanos` of it may be used up.
    pub fn allowed(self, full_nanos: u64, burst_nanos: u64, now_nanos: u64) -> u64 {
        let ahead = full_nanos.saturating_sub(now_nanos);
        let Some(left) = burst_nanos.checked_sub(ahead) else { return 0 };
        let more = u128::from(left) * u128::from(self.per_second()) / NANOS_PER_SECOND;
        u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// From when on there is something in a bucket that is full again at `full_nanos`.
pub fn ready_nanos(full_nanos: u64, burst_nanos: u64) -> u64 {
    full_nanos.saturating_sub(burst_nanos)
}
