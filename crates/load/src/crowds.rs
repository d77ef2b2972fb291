//! How what is popular changes while a run goes on: a hot set that moves to other keys, a flash
//! crowd that all asks for one, and hot keys that are written.
//!
//! All of it is a function of the time since the run began (warm-up included), so that the same
//! seed sends the same requests. Knows no clock and no sizes. A rank is a small key's number.

use crate::random::Random;
use serde::{Deserialize, Serialize};

const SECOND_NS: f64 = 1e9;

/// What changes; by default nothing does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Crowds {
    /// Every so many seconds the popularity of all small keys moves on to other keys; 0 never.
    pub shift_s: f64,
    /// Share of the requests that a flash crowd makes, 0 to 1: all for one key, the least popular.
    pub flash_share: f64,
    /// When it comes, seconds.
    pub flash_at_s: f64,
    /// How long it stays, seconds.
    pub flash_for_s: f64,
    /// So many of the most popular keys are written more often than others.
    pub write_keys: u64,
    /// Share of the requests for these that write, 0 to 1.
    pub write_share: f64,
}

impl Crowds {
    /// The error names the flag, the value, the limit and the way out.
    pub fn check(&self) -> Result<(), String> {
        let Crowds { shift_s, flash_share, flash_at_s, flash_for_s, write_share, .. } = *self;
        if !(shift_s == 0.0 || (0.001..=86_400.0).contains(&shift_s)) {
            return Err(format!("--hot-shift {shift_s}: seconds, 0.001 to 86400, or 0 for never"));
        }
        if !(0.0..=1.0).contains(&flash_share) {
            return Err(format!("--flash-share {flash_share}: must be in 0..=1"));
        }
        if !(0.0..=86_400.0).contains(&flash_at_s) || !(0.0..=86_400.0).contains(&flash_for_s) {
            return Err(format!(
                "--flash-at {flash_at_s}, --flash-for {flash_for_s}: seconds, 0 to 86400"
            ));
        }
        if flash_share > 0.0 && flash_for_s == 0.0 {
            let way_out = "give --flash-for too, seconds";
            return Err(format!("--flash-share {flash_share}: a crowd that stays; {way_out}"));
        }
        if !(0.0..=1.0).contains(&write_share) {
            return Err(format!("--write-share {write_share}: must be in 0..=1"));
        }
        if write_share > 0.0 && self.write_keys == 0 {
            let way_out = "give --write-keys too, how many of the hottest";
            return Err(format!("--write-share {write_share}: of which keys? {way_out}"));
        }
        if flash_share == 0.0 && flash_for_s > 0.0 {
            return Err(format!("--flash-for {flash_for_s}: how many? give --flash-share too"));
        }
        if write_share == 0.0 && self.write_keys > 0 {
            let keys = self.write_keys;
            return Err(format!("--write-keys {keys}: how often? give --write-share too"));
        }
        Ok(())
    }

    /// Whether the flash crowd makes this request.
    pub fn is_flash(&self, random: &mut Random, now_ns: u64) -> bool {
        if self.flash_share == 0.0 {
            return false; // and nothing is drawn: what was sent before there were crowds is sent
        }
        let since_s = now_ns as f64 / SECOND_NS - self.flash_at_s;
        (0.0..self.flash_for_s).contains(&since_s) && random.chance(self.flash_share)
    }

    /// The key that has `rank` now, of `count`. Each shift leaves those far behind that were
    /// popular: it goes on by about 0.618 of all keys, so that it comes back late.
    pub fn key(&self, rank: u64, count: u64, now_ns: u64) -> u64 {
        if self.shift_s == 0.0 {
            return rank;
        }
        let shifts = (now_ns as f64 / SECOND_NS / self.shift_s) as u64;
        let stride = (count as f64 * 0.618_033_988_749_895) as u64 | 1;
        let moved = u128::from(shifts) * u128::from(stride) + u128::from(rank);
        (moved % u128::from(count)) as u64
    }

    /// Share of the requests for the key of `rank` that write, where it is written more often than
    /// others.
    pub fn write_share_of(&self, rank: u64) -> Option<f64> {
        (rank < self.write_keys).then_some(self.write_share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_hot_set_moves_far_and_stays_within_the_keys() {
        let still = Crowds::default();
        assert_eq!(still.key(5, 10, 99 * SECOND), 5);
        let moving = Crowds { shift_s: 2.0, ..Crowds::default() };
        for count in [1, 2, 7, 1000] {
            let mut first: Vec<u64> =
                (0..count.min(20)).map(|shift| moving.key(0, count, 2 * shift * SECOND)).collect();
            assert!(first.iter().all(|key| *key < count));
            assert_eq!(moving.key(0, count, 2 * SECOND - 1), first[0], "before the shift");
            first.sort_unstable();
            first.dedup();
            assert!(first.len() as u64 >= count.min(20) / 2, "{count}: {first:?}");
        }
        let mut all: Vec<u64> = (0..1000).map(|rank| moving.key(rank, 1000, 7 * SECOND)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1000), "every rank has a key of its own");
    }

    #[test]
    fn a_flash_crowd_comes_and_goes() {
        let crowds =
            Crowds { flash_share: 0.3, flash_at_s: 1.0, flash_for_s: 2.0, ..Crowds::default() };
        let mut random = Random::new(1);
        let mut share = |at_ns: u64| {
            (0..10_000).filter(|_| crowds.is_flash(&mut random, at_ns)).count() as f64 / 10_000.0
        };
        assert_eq!([share(0), share(SECOND - 1), share(3 * SECOND)], [0.0; 3]);
        assert!((share(SECOND) - 0.3).abs() < 0.02 && (share(3 * SECOND - 1) - 0.3).abs() < 0.02);
    }

    #[test]
    fn what_cannot_be_says_flag_and_way_out() {
        let none = Crowds::default();
        for (crowds, words) in [
            (Crowds { shift_s: -1.0, ..none.clone() }, "--hot-shift -1"),
            (Crowds { flash_share: 1.5, ..none.clone() }, "--flash-share 1.5"),
            (Crowds { flash_share: 0.5, ..none.clone() }, "--flash-for"),
            (Crowds { flash_at_s: -1.0, ..none.clone() }, "--flash-at -1"),
            (Crowds { write_share: 2.0, write_keys: 1, ..none.clone() }, "--write-share 2"),
            (Crowds { write_share: 0.5, ..none.clone() }, "--write-keys"),
            (Crowds { write_keys: 3, ..none.clone() }, "--write-keys 3"),
            (Crowds { flash_for_s: 3.0, ..none.clone() }, "--flash-for 3"),
            (Crowds { shift_s: f64::NAN, ..none.clone() }, "--hot-shift NaN"),
        ] {
            let error = crowds.check().expect_err(words);
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(none.check(), Ok(()));
    }
}
