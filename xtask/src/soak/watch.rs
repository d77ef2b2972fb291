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

    /// Looks unless it has looked within the last second.
    pub fn sample_each_second(&mut self, elapsed: Duration) -> Result<(), String> {
        let last = self.samples.last().map_or(f64::NEG_INFINITY, |(at, _)| *at);
        if last + 1.0 <= elapsed.as_secs_f64() { self.sample(elapsed) } else { Ok(()) }
    }

    /// The last sample.
    pub fn resident_kb(&self) -> u64 {
        self.samples.last().map_or(0, |(_, kb)| *kb as u64)
    }

    /// By which part of its mean memory grows over the second half of the run, by linear fit of
    /// its floor; and how many hours that half has.
    pub fn growth(&self) -> (f64, f64) {
        let second = self.second_half();
        (growth(&floor(&second)), hours(&second))
    }

    fn second_half(&self) -> Vec<(f64, f64)> {
        let first = self.samples.first().map_or(0.0, |(at, _)| *at);
        let half = self.samples.last().map_or(0.0, |(end, _)| (first + end) / 2.0);
        self.samples.iter().copied().filter(|(at, _)| half <= *at).collect()
    }
}

/// The same over many lives of a server: a floor for each, of its second half. The first life is
/// left out, in which the data are still growing, and the last, which is short.
pub fn growth_over_lives(lives: &[Memory]) -> (f64, f64) {
    let settled = lives.get(1..lives.len().saturating_sub(1)).unwrap_or_default();
    let point = |life: &Memory| {
        let second = life.second_half();
        let least = second.iter().map(|(_, kb)| *kb).fold(f64::INFINITY, f64::min);
        second.first().map(|(at, _)| (*at, least))
    };
    let points: Vec<(f64, f64)> = settled.iter().filter_map(point).collect();
    (growth(&points), hours(&points))
}

fn hours(points: &[(f64, f64)]) -> f64 {
    let ends = points.last().zip(points.first());
    ends.map_or(0.0, |(end, begin)| end.0 - begin.0) / SECONDS_AN_HOUR
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
    fn the_slope_over_lives_is_that_of_their_floors() {
        let life = |begin: u32, floor: f64| {
            let sample = |x: u32| (f64::from(begin + x), if x < 90 { 10.0 } else { floor });
            Memory { process: 1, samples: (0..180).map(sample).collect() }
        };
        let lives = |rise: f64| -> Vec<Memory> {
            (0..12).map(|n| life(180 * n, 1000.0 + rise * f64::from(n))).collect()
        };
        let (flat, hours) = growth_over_lives(&lives(0.0));
        assert!(flat.abs() < 1e-9 && (hours - 9.0 * 180.0 / 3600.0).abs() < 1e-9, "{hours}");
        let (leaking, _) = growth_over_lives(&lives(1.0));
        assert!((leaking - 9.0 / 1005.5).abs() < 1e-9, "{leaking}");
        assert_eq!(growth_over_lives(&[]), (0.0, 0.0));
    }

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
