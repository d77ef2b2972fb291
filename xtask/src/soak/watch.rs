//! What is seen from outside while the soak runs: resident memory.

use crate::place;
use std::time::Duration;

const SECONDS_AN_HOUR: f64 = 3600.0;

/// Resident memory of one process.
pub struct Memory {
    process: u32,
    /// Seconds since the begin of the run, and resident KB.
    samples: Vec<(f64, f64)>,
}

impl Memory {
    /// Of this process; nothing is sampled yet.
    pub fn of(process: u32) -> Memory {
        Memory { process, samples: Vec::new() }
    }

    /// Looks once.
    pub fn sample(&mut self, elapsed: Duration) -> Result<(), String> {
        let resident = place::resident_kib(self.process)?;
        self.samples.push((elapsed.as_secs_f64(), resident as f64));
        Ok(())
    }

    /// The last sample.
    pub fn resident_kb(&self) -> u64 {
        self.samples.last().map_or(0, |(_, kb)| *kb as u64)
    }

    /// By which part of its mean memory grows over the second half of the run, by linear fit of
    /// its floor; and how many hours that half has.
    pub fn growth(&self) -> (f64, f64) {
        let first = self.samples.first().map_or(0.0, |(at, _)| *at);
        let end = self.samples.last().map_or(0.0, |(end, _)| *end);
        let half = f64::midpoint(first, end);
        let second = self.samples.iter().copied().filter(|(at, _)| half <= *at);
        (growth(&floor(&second.collect::<Vec<_>>())), (end - half) / SECONDS_AN_HOUR)
    }
}

/// Stretches of a run of which each gives one point to the fit.
const STRETCHES: usize = 10;

/// The least of each stretch. What connections hold for a moment (the beginning of a long line, a
/// value half-way in) comes and goes by a megabyte or two; what is never given back raises the
/// floor.
fn floor(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let least = |stretch: &[(f64, f64)]| {
        let least = stretch.iter().map(|(_, kb)| *kb).fold(f64::INFINITY, f64::min);
        (stretch[stretch.len() / 2].0, least)
    };
    samples.chunks(samples.len().div_ceil(STRETCHES).max(1)).map(least).collect()
}

/// Least squares: slope times duration, over the mean.
fn growth(samples: &[(f64, f64)]) -> f64 {
    let count = samples.len() as f64;
    if samples.len() < 2 {
        return 0.0;
    }
    let mean_x = samples.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = samples.iter().map(|(_, y)| y).sum::<f64>() / count;
    let above = samples.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
    let below = samples.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
    let duration = samples[samples.len() - 1].0 - samples[0].0;
    above / below * duration / mean_y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_forgets_peaks_and_keeps_leaks() {
        let peak = |x: u32| if x % 7 == 3 { 50.0 } else { 0.0 };
        let run = |leak: f64| -> Vec<(f64, f64)> {
            (0..300).map(|x| (f64::from(x), 1000.0 + peak(x) + leak * f64::from(x))).collect()
        };
        assert!(growth(&floor(&run(0.0))).abs() < 1e-9);
        let leaking = growth(&floor(&run(0.1)));
        assert!((leaking - 0.03).abs() < 0.005, "{leaking}: 30 of 1000 leaked");
    }

    #[test]
    fn growth_is_the_rise_of_the_fitted_line_over_the_mean() {
        let line = |rise: f64| -> Vec<(f64, f64)> {
            (0..=10).map(|x| (f64::from(x), 1000.0 + rise * f64::from(x))).collect()
        };
        assert_eq!(growth(&line(0.0)), 0.0);
        assert!((growth(&line(10.0)) - 100.0 / 1050.0).abs() < 1e-9);
        let saw: Vec<(f64, f64)> = (0..100).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        assert!(growth(&saw) < 0.1, "a saw tooth does not grow");
    }
}
