//! Percentiles as reports tell them: microseconds out of histograms of nanoseconds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of so many significant digits, with nothing in it. It resizes itself, so that adding
/// to it (`+=`) cannot fail.
pub fn empty(digits: u8) -> Histogram<u64> {
    Histogram::new(digits).unwrap_or_else(|error| unreachable!("constant digits: {error}"))
}

/// Points of a distribution of microseconds; all 0 where the count is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The largest.
    pub max: f64,
}

impl Quantiles {
    /// Of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Quantiles::default();
        }
        let us_at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Quantiles {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: us_at(0.5),
            p90: us_at(0.9),
            p99: us_at(0.99),
            p99_9: us_at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}
