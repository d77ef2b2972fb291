//! Zipf ranks in constant time and without a table: rejection-inversion (Hörmann and Derflinger,
//! "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
//!
//! Rank `r` (from 0) has a probability in proportion to `1 / (r + 1)^exponent`. Any exponent from 0
//! (uniform) upwards; a draw costs two to four transcendental functions, some 50 ns, whatever the
//! number of ranks, where an alias table would cost a cache miss and 12 bytes a key. It is written
//! here and not taken from `rand_distr`, so that a seed gives the same keys in every version: the
//! records, the simulator and bench/tier are held against each other by them.

use crate::random::Random;

/// A Zipf distribution over the ranks `0..count`.
#[derive(Debug, Clone, PartialEq)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// Integral of the density at the left edge of rank 0, shifted so that rank 0 is never
    /// rejected.
    area_first: f64,
    /// Integral of the density at the right edge of the last rank.
    area_last: f64,
    /// How far right of a rank a draw may lie and be accepted without evaluating the density.
    accept_below: f64,
}

impl Zipf {
    /// The distribution over `count` ranks. `count` is at least 1 and `exponent` finite and >= 0.
    pub fn new(count: u64, exponent: f64) -> Self {
        assert!(count >= 1, "a Zipf distribution over nothing");
        assert!(exponent.is_finite() && exponent >= 0.0, "a Zipf exponent of {exponent}");
        let mut zipf = Zipf {
            count: count as f64,
            exponent,
            area_first: 0.0,
            area_last: 0.0,
            accept_below: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(zipf.count + 0.5);
        zipf.accept_below = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws a rank.
    pub fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.unit() * (self.area_first - self.area_last);
            let x = self.area_inverse(area);
            let k = x.round().clamp(1.0, self.count);
            if k - x <= self.accept_below || area >= self.area(k + 0.5) - self.density(k) {
                return k as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the density from 1 to `x`: `(x^(1-e) - 1) / (1-e)`, and `ln x` where e = 1.
    fn area(&self, x: f64) -> f64 {
        let log_x = x.ln();
        let y = (1.0 - self.exponent) * log_x;
        // expm1(y)/y tends to 1: the series keeps the digits that the quotient would lose.
        let quotient = if y.abs() > 1e-8 { y.exp_m1() / y } else { 1.0 + y / 2.0 };
        quotient * log_x
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let y = (area * (1.0 - self.exponent)).max(-1.0);
        let quotient = if y.abs() > 1e-8 { y.ln_1p() / y } else { 1.0 - y / 2.0 };
        (quotient * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_the_first_ranks_follow_the_definition() {
        const DRAWS: u64 = 400_000;
        let counts = [1, 2, 10, 1_000, 1_000, 100_000, 1_000, 100_000, 1_000];
        let exponents = [0.99, 0.99, 0.0, 0.5, 0.9, 0.99, 1.0, 1.2, 1.4];
        for (count, exponent) in counts.into_iter().zip(exponents) {
            let zipf = Zipf::new(count, exponent);
            let mut random = Random::new(7);
            let mut seen = vec![0_u64; count as usize];
            for _ in 0..DRAWS {
                seen[zipf.rank(&mut random) as usize] += 1;
            }
            let weight = |rank: u64| ((rank + 1) as f64).powf(-exponent);
            let total: f64 = (0..count).map(weight).sum();
            for rank in 0..count.min(20) {
                let expected = weight(rank) / total * DRAWS as f64;
                let off = (seen[rank as usize] as f64 - expected).abs();
                // Five standard deviations.
                let allowed = 5.0 * expected.sqrt() + 1.0;
                assert!(off <= allowed, "e {exponent} n {count} rank {rank}: off by {off}");
            }
        }
    }

    #[test]
    fn ranks_stay_in_range_for_huge_counts() {
        let zipf = Zipf::new(1 << 40, 0.99);
        let mut random = Random::new(3);
        assert!((0..100_000).all(|_| zipf.rank(&mut random) < 1 << 40));
    }
}
