//! Bursty arrivals: a Poisson process that has one rate in bursts and a lower one between them, a
//! Markov-modulated Poisson process of two states (Heffes and Lucantoni, IEEE JSAC 4(6), 1986).
//!
//! Bursts and what lies between them last exponential times. The mean over all is the rate that was
//! asked for, whatever the bursts. The states have random numbers of their own, so that a factor of
//! one gives the very arrivals of the Poisson process. Unit: picoseconds.

use laneway_load::random::Random;

/// How bursty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bursts {
    /// The rate in a burst, in rates between bursts; 1: Poisson.
    pub factor: f64,
    /// Of the time, what lies in bursts; above 0 and below 1.
    pub share: f64,
    /// A burst lasts so long, on average.
    pub length: u64,
}

impl Bursts {
    /// A burst and the time to the next one, on average.
    pub fn cycle(&self) -> f64 {
        self.length as f64 / self.share
    }

    /// The rates in a burst and between two, in mean rates.
    pub fn rates(&self) -> [f64; 2] {
        let between = 1.0 / (1.0 + self.share * (self.factor - 1.0));
        [self.factor * between, between]
    }
}

/// The state that the process is in.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    random: Random,
    rates: [f64; 2],
    lengths: [f64; 2],
    /// 0: a burst; 1: none.
    state: usize,
    /// Until it changes.
    left: u64,
}

impl Clock {
    /// In one of the states, as likely as it is at any time.
    pub(crate) fn new(bursts: &Bursts, seed: u64) -> Clock {
        let mut random = Random::stream(seed, 1);
        let state = usize::from(!random.chance(bursts.share));
        let length = bursts.length as f64;
        let lengths = [length, bursts.cycle() - length];
        let mut clock = Clock { random, rates: bursts.rates(), lengths, state, left: 0 };
        clock.lasts();
        clock
    }

    fn lasts(&mut self) {
        self.left = (self.random.exponential(self.lengths[self.state]) as u64).max(1);
    }

    /// The gap to the next arrival, where it would be so long at the mean rate. At rates of one
    /// nothing is rounded: what is left stays a multiple of what `gap` is one of.
    pub(crate) fn gap(&mut self, mut gap: f64) -> u64 {
        let mut elapsed = 0;
        loop {
            let rate = self.rates[self.state];
            let whole = self.left as f64 * rate;
            if gap < whole {
                let last = ((gap / rate) as u64).min(self.left);
                self.left -= last;
                return elapsed + last;
            }
            gap -= whole;
            elapsed += self.left;
            self.state = 1 - self.state;
            self.lasts();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_rate_is_kept_and_so_is_the_share_of_the_time_in_bursts() {
        for (factor, share) in [(1.0, 0.5), (10.0, 0.1), (100.0, 0.01)] {
            let bursts = Bursts { factor, share, length: 2_000_000 };
            let mut clock = Clock::new(&bursts, 7);
            let mut random = Random::new(3);
            let (mut time, mut within, arrivals) = (0_u64, 0_u64, 4_000_000_u64);
            for _ in 0..arrivals {
                let gap = clock.gap(random.exponential(1e6));
                time += gap;
                within += u64::from(clock.state == 0);
            }
            let mean = time as f64 / arrivals as f64;
            assert!((mean / 1e6 - 1.0).abs() < 0.02, "factor {factor}: {mean}");
            let expected = share * bursts.rates()[0];
            let got = within as f64 / arrivals as f64;
            assert!((got / expected - 1.0).abs() < 0.03, "factor {factor}: {got}, {expected}");
        }
    }

    #[test]
    fn a_factor_of_one_changes_no_gap() {
        let mut clock = Clock::new(&Bursts { factor: 1.0, share: 0.3, length: 500 }, 1);
        let mut random = Random::new(5);
        for _ in 0..100_000 {
            let gap = random.exponential(1_000.0);
            assert_eq!(clock.gap(gap), gap as u64);
        }
    }
}
