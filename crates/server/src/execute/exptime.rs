//! Expiry as clients write it, turned into unix seconds.

use laneway_store::UnixSeconds;

/// Largest exptime that counts from now; anything above is a unix time. Thirty days, in seconds.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// A time that is over for every item, where 0 would mean never.
const OVER: UnixSeconds = 1;

/// When an item with this `exptime` expires: 0 never, negative at once, up to thirty days from
/// `now`, above that the unix time it says. What does not fit 32 bits is the last second that does.
pub fn expires_at(exptime: i64, now: UnixSeconds) -> UnixSeconds {
    match exptime {
        0 => 0,
        i64::MIN..0 => OVER,
        1..=RELATIVE_SECONDS_MAX => now.saturating_add(exptime as u32),
        _ => u32::try_from(exptime).unwrap_or(u32::MAX),
    }
}

/// Seconds until `expires`, for a reply; `None` if that is never.
pub(super) fn seconds_left(expires: UnixSeconds, now: UnixSeconds) -> Option<u32> {
    (expires != 0).then(|| expires.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_is_read_as_memcached_reads_it() {
        let now = 1_800_000_000;
        for (exptime, expires) in [
            (0, 0),
            (-1, OVER),
            (i64::MIN, OVER),
            (1, now + 1),
            (RELATIVE_SECONDS_MAX, now + 2_592_000),
            (RELATIVE_SECONDS_MAX + 1, 2_592_001),
            (i64::from(now) + 60, now + 60),
            (i64::from(u32::MAX), u32::MAX),
            (i64::MAX, u32::MAX),
        ] {
            assert_eq!(expires_at(exptime, now), expires, "exptime {exptime}");
        }
    }

    #[test]
    fn time_left_never_wraps() {
        assert_eq!(seconds_left(0, 100), None);
        assert_eq!(seconds_left(130, 100), Some(30));
        assert_eq!(seconds_left(OVER, 100), Some(0));
    }
}
