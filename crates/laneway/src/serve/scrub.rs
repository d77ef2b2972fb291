//! How often the data folder is read and verified: `--scrub-every`, `--scrub-rate`, checked.

use crate::flags::{self, Flags};
use laneway_server::durable::scrub::ScrubSettings;
use std::time::Duration;

const DAY: u64 = 86_400;
/// Every week.
const EVERY: Duration = Duration::from_secs(7 * DAY);
/// More often is no scrub but a load.
const EVERY_MIN: Duration = Duration::from_secs(60);
const EVERY_MAX: Duration = Duration::from_secs(366 * DAY);
/// Some ten terabytes a week: little beside what an SSD can do.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// How often and how fast; none where it is off.
pub fn settings(flags: &Flags) -> Result<Option<ScrubSettings>, String> {
    let every = match flags.scrub_every.as_deref() {
        None => EVERY,
        Some("off") => {
            let why = "nothing is scrubbed (--scrub-every off); leave one of them out";
            return flags::refuse(flags, "scrub-rate", why).map(|()| None);
        }
        Some(text) => {
            time(text).filter(|time| (EVERY_MIN..=EVERY_MAX).contains(time)).ok_or_else(|| {
                format!(
                    "--scrub-every {text}: must be off, or a number with s, m, h or d behind it \
                     from 60s to 366d, such as 7d (the default)"
                )
            })?
        }
    };
    let bytes_per_second = flags.scrub_rate.unwrap_or(BYTES_PER_SECOND);
    Ok(Some(ScrubSettings { every, bytes_per_second, log_keys: flags.log_keys }))
}

/// A number of seconds, minutes, hours or days.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => DAY,
        _ => return None,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| is_number)?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(
        every: Option<&str>,
        scrub_rate: Option<u64>,
    ) -> Result<Option<ScrubSettings>, String> {
        let scrub_every = every.map(str::to_owned);
        settings(&Flags { scrub_every, scrub_rate, ..Flags::default() })
    }

    #[test]
    fn a_scrub_is_made_every_week_unless_something_else_is_said() {
        let week = ScrubSettings { every: EVERY, bytes_per_second: 16 << 20, log_keys: false };
        assert_eq!(given(None, None), Ok(Some(week)));
        for (text, seconds) in [("60s", 60), ("90m", 5400), ("12h", 43_200), ("366d", 366 * DAY)] {
            let every = Duration::from_secs(seconds);
            assert_eq!(given(Some(text), None), Ok(Some(ScrubSettings { every, ..week })));
        }
        let bytes_per_second = 0;
        assert_eq!(given(None, Some(0)), Ok(Some(ScrubSettings { bytes_per_second, ..week })));
        assert_eq!(given(Some("off"), None), Ok(None));
    }

    #[test]
    fn a_time_that_is_none_is_refused_with_those_that_are() {
        for text in [
            "",
            "7",
            "d",
            "7w",
            "59s",
            "367d",
            "+7d",
            "-1d",
            "1.5h",
            "99999999999999999999d",
            "700000000000000000d",
            "7\u{e4}",
        ] {
            let why = given(Some(text), None).expect_err(text);
            assert!(why.starts_with("--scrub-every") && why.contains("such as 7d"), "{why}");
        }
        let why = given(Some("off"), Some(1)).expect_err("a rate of nothing");
        assert!(why.starts_with("--scrub-rate: nothing is scrubbed"), "{why}");
    }
}
