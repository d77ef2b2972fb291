//! Which item an operation is about (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB",
//! §4.1): Zipf by number, uniform, or the latest. Names are hashes of numbers, so what is popular
//! is spread over the key space as YCSB's scrambled Zipf is.

use laneway_load::random::Random;
use laneway_load::zipf::Zipf;

/// YCSB's constant.
pub const ZIPF_EXPONENT: f64 = 0.99;

/// How popularity is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// The item of rank r in proportion to 1 / (r + 1)^0.99.
    Zipf,
    /// All alike.
    Uniform,
}

impl Distribution {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Zipf => "zipf",
            Distribution::Uniform => "uniform",
        }
    }
}

/// Draws items.
#[derive(Debug, Clone)]
pub struct Draws {
    zipf: Zipf,
    distribution: Distribution,
    records: u32,
}

impl Draws {
    /// Among the first `records` items.
    pub fn new(distribution: Distribution, records: u32) -> Draws {
        Draws { zipf: Zipf::new(u64::from(records), ZIPF_EXPONENT), distribution, records }
    }

    /// One of the first items.
    pub fn number(&self, random: &mut Random) -> u32 {
        match self.distribution {
            Distribution::Zipf => self.zipf.rank(random) as u32,
            Distribution::Uniform => random.below(u64::from(self.records)) as u32,
        }
    }

    /// One of `readable` items, at least as many as there were first: the last ones most often, by
    /// Zipf whatever the distribution (workload D has one of its own).
    pub fn latest(&self, readable: u32, random: &mut Random) -> u32 {
        readable - 1 - self.zipf.rank(random) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u32 = 1000;
    const DRAWS: u32 = 200_000;

    fn counts(draw: impl Fn(&mut Random) -> u32) -> Vec<u32> {
        let mut random = Random::new(3);
        let mut counts = vec![0; 2 * RECORDS as usize];
        (0..DRAWS).for_each(|_| counts[draw(&mut random) as usize] += 1);
        counts
    }

    fn share_of_first(counts: &[u32], items: usize) -> f64 {
        f64::from(counts[..items].iter().sum::<u32>()) / f64::from(DRAWS)
    }

    #[test]
    fn zipf_asks_for_the_first_ones_as_often_as_its_definition_says() {
        let draws = Draws::new(Distribution::Zipf, RECORDS);
        let counts = counts(|random| draws.number(random));
        let weight = |items: u32| -> f64 {
            (1..=items).map(|rank| f64::from(rank).powf(-ZIPF_EXPONENT)).sum()
        };
        for items in [1, 2, 10, 100, 500] {
            let expected = weight(items) / weight(RECORDS);
            let share = share_of_first(&counts, items as usize);
            assert!((share - expected).abs() < 0.01, "{items}: {share} and not {expected}");
        }
        assert_eq!(share_of_first(&counts, RECORDS as usize), 1.0);
    }

    #[test]
    fn uniform_asks_for_all_alike() {
        let draws = Draws::new(Distribution::Uniform, RECORDS);
        let counts = counts(|random| draws.number(random));
        for items in [100, 500, 900] {
            let share = share_of_first(&counts, items);
            assert!((share - items as f64 / f64::from(RECORDS)).abs() < 0.01, "{items}: {share}");
        }
    }

    #[test]
    fn the_latest_are_asked_for_most_and_none_beyond_what_is_there() {
        let draws = Draws::new(Distribution::Uniform, RECORDS);
        let readable = RECORDS + 500;
        let counts = counts(|random| draws.latest(readable, random));
        let newest = counts[readable as usize - 1];
        assert!(counts[..readable as usize - 1].iter().all(|&count| count < newest));
        assert!(counts[readable as usize..].iter().all(|&count| count == 0));
    }
}
