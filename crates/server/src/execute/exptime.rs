//! Expiry as memcached's clients write it, in seconds, turned into the end of an item.

use laneway_store::Moment;

/// Largest exptime that counts from now; anything above is a unix time. Thirty days, in seconds.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// A time that is over for every item, where 0 would mean never.
const OVER: Moment = Moment::from_seconds(1);

/// When an item with this `exptime` expires: 0 never, negative at once, up to thirty days from
/// the second of `now`, above that the unix time it says. What does not fit 32 bits is the last
/// second that does. Here the clock ticks in seconds, as memcached's does.
pub fn expires_at(exptime: i64, now: Moment) -> Moment {
    match exptime {
        0 => Moment::NEVER,
        i64::MIN..0 => OVER,
        1..=RELATIVE_SECONDS_MAX => {
            Moment::from_seconds(now.seconds().saturating_add(exptime as u32))
        }
        _ => Moment::from_seconds(u32::try_from(exptime).unwrap_or(u32::MAX)),
    }
}

/// Seconds until `expires`, for a reply; `None` if that is never. An end with milliseconds, which
/// only Redis' commands make, is told as the next full second.
pub(super) fn seconds_left(expires: Moment, now: Moment) -> Option<u32> {
    (expires != Moment::NEVER).then(|| expires.seconds_up().saturating_sub(now.seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_is_read_as_memcached_reads_it() {
        let now = 1_800_000_000;
        for (exptime, expires) in [
            (0, 0),
            (-1, 1),
            (i64::MIN, 1),
            (1, now + 1),
            (RELATIVE_SECONDS_MAX, now + 2_592_000),
            (RELATIVE_SECONDS_MAX + 1, 2_592_001),
            (i64::from(now) + 60, now + 60),
            (i64::from(u32::MAX), u32::MAX),
            (i64::MAX, u32::MAX),
        ] {
            let expires = Moment::from_seconds(expires);
            for millis in [0, 999] {
                let told = expires_at(exptime, Moment::new(now, millis));
                assert_eq!(told, expires, "exptime {exptime}");
            }
        }
    }

    #[test]
    fn time_left_never_wraps() {
        let now = Moment::new(100, 700);
        assert_eq!(seconds_left(Moment::NEVER, now), None);
        assert_eq!(seconds_left(Moment::from_seconds(130), now), Some(30));
        assert_eq!(seconds_left(Moment::new(129, 1), now), Some(30));
        assert_eq!(seconds_left(Moment::new(100, 701), now), Some(1));
        assert_eq!(seconds_left(OVER, now), Some(0));
    }
}
