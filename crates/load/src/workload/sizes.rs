//! How large values are: the papers' three modes, one size, two sizes, or an exponential
//! distribution where all that was published is a percentile or a mean.

use crate::arguments::within;
use crate::random::{mix, scale};
use serde::{Deserialize, Serialize};

/// Largest tiny value, in bytes.
pub const TINY_BYTES_MAX: u64 = 13;
/// Largest small value, in bytes.
pub const SMALL_BYTES_MAX: u64 = 1_400;
/// Smallest large value, in bytes.
pub const LARGE_BYTES_MIN: u64 = 1_500;
/// Share of tiny keys among those that are not large.
pub const TINY_SHARE: f64 = 0.4;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// How values are sized.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// The trimodal mix.
    Etc {
        /// Largest large value, in bytes (the paper's s_L).
        large_bytes_max: u64,
    },
    /// All values alike.
    Fixed {
        /// Bytes of every value.
        value_bytes: u64,
    },
    /// One size for small keys, and a range for large ones: noisy neighbours.
    Pair {
        /// Bytes of a small value.
        small_bytes: u64,
        /// Bytes of the least large one.
        large_bytes_min: u64,
        /// Of the largest; between the two they are spread evenly.
        large_bytes_max: u64,
    },
    /// Most are small, and the larger the fewer.
    Spread(Spread),
    /// As a trace lists them, one by one.
    Listed,
}

impl Sizes {
    /// The size of a value, from a random word of its key.
    pub fn value_bytes(&self, word: u64, is_large_key: bool) -> u64 {
        let (low, high) = match *self {
            Sizes::Fixed { value_bytes } => return value_bytes,
            // Whoever has the list does not ask here.
            Sizes::Listed => return 0,
            Sizes::Pair { large_bytes_min, large_bytes_max, .. } if is_large_key => {
                (large_bytes_min, large_bytes_max)
            }
            Sizes::Pair { small_bytes, .. } => return small_bytes,
            Sizes::Spread(spread) => return spread.bytes(word),
            Sizes::Etc { large_bytes_max } if is_large_key => (LARGE_BYTES_MIN, large_bytes_max),
            Sizes::Etc { .. } if (word as f64) < TINY_SHARE * u64::MAX as f64 => {
                (1, TINY_BYTES_MAX)
            }
            Sizes::Etc { .. } => (TINY_BYTES_MAX + 1, SMALL_BYTES_MAX),
        };
        low + scale(mix(word), high - low + 1)
    }

    /// Whether the last keys are large ones.
    pub fn has_large_keys(&self) -> bool {
        matches!(self, Sizes::Etc { .. } | Sizes::Pair { .. })
    }

    /// Says which is out of range, by its flag.
    pub fn check(&self) -> Result<(), String> {
        match *self {
            Sizes::Etc { large_bytes_max } => {
                within("s-large", large_bytes_max, LARGE_BYTES_MIN..=VALUE_BYTES_MAX)
            }
            Sizes::Fixed { value_bytes: bytes } | Sizes::Pair { large_bytes_max: bytes, .. } => {
                within("value-bytes", bytes, 0..=VALUE_BYTES_MAX)
            }
            Sizes::Spread(_) | Sizes::Listed => Ok(()),
        }
    }
}

/// Whole numbers from `least` on whose distance from it is exponentially distributed, rounded down:
/// the distribution that claims least where one number is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    least: u64,
    /// The exponential distribution's mean.
    scale: f64,
}

impl Spread {
    /// The one whose 99th percentile is `p99`, above `least`.
    pub fn with_p99(least: u64, p99: u64) -> Self {
        // A size is at most k with probability 1 - exp(-(k - least + 1) / scale).
        Spread { least, scale: (p99 - least + 1) as f64 / 100_f64.ln() }
    }

    /// The one whose mean is `mean`, above `least`.
    pub fn with_mean(least: u64, mean: f64) -> Self {
        // Rounded down, it is a geometric distribution with a mean of 1 / (exp(1 / scale) - 1).
        Spread { least, scale: 1.0 / (1.0 / (mean - least as f64)).ln_1p() }
    }

    /// The mean.
    pub fn mean(self) -> f64 {
        self.least as f64 + 1.0 / (1.0 / self.scale).exp_m1()
    }

    /// A size, from a random word.
    pub fn bytes(self, word: u64) -> u64 {
        // In (0, 1], so the logarithm is finite; steps of 2^-53 end at 37 times the scale.
        let unit = ((word >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64);
        (self.least + (-unit.ln() * self.scale) as u64).min(VALUE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix_pair;

    const DRAWS: u64 = 400_000;

    #[test]
    fn a_spread_has_the_mean_that_it_was_made_for() {
        for mean in [37.0, 273.0, 1_030.0, 9_497.0] {
            let spread = Spread::with_mean(1, mean);
            let drawn = (0..DRAWS).map(|key| spread.bytes(mix_pair(3, key)));
            let found = drawn.sum::<u64>() as f64 / DRAWS as f64;
            // An exponential distribution's standard deviation is its mean.
            assert!((spread.mean() / mean - 1.0).abs() < 1e-9, "{mean}");
            assert!((found / mean - 1.0).abs() < 5.0 / (DRAWS as f64).sqrt(), "{mean}: {found}");
        }
    }

    #[test]
    fn a_spread_never_leaves_the_range_of_values() {
        let spread = Spread::with_mean(1, 1e9);
        assert_eq!(spread.bytes(0), VALUE_BYTES_MAX);
        assert_eq!(spread.bytes(u64::MAX), 1);
    }
}
