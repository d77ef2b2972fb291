//! What is seen from outside while the soak runs: resident memory and changes of role.

use crate::client::Client;
use crate::server::Server;
use std::time::Duration;

/// The counter in `stats lanes`.
const ROLE_CHANGES: &str = "role_changes";

/// Samples of one run.
pub struct Watch {
    server: u32,
    /// A connection for `stats lanes`; none if this server has no lanes.
    statistics: Option<Client>,
    role_changes: u64,
    /// Seconds since the begin, and resident KB.
    resident: Vec<(f64, f64)>,
}

impl Watch {
    /// Watches `server`; with `lanes`, its roles too.
    pub fn begin(server: &Server, lanes: bool) -> Result<Watch, String> {
        let statistics = lanes.then(|| Client::connect(server.address())).transpose()?;
        Ok(Watch { server: server.id(), statistics, role_changes: 0, resident: Vec::new() })
    }

    /// Looks once.
    pub fn sample(&mut self, elapsed: Duration) -> Result<(), String> {
        self.resident.push((elapsed.as_secs_f64(), resident_kb(self.server)?));
        if let Some(client) = &mut self.statistics {
            let stats = client.stats("lanes")?;
            let found = stats.iter().find(|(name, _)| name.ends_with(ROLE_CHANGES));
            let Some((_, value)) = found else {
                return Err(format!("`stats lanes` does not say {ROLE_CHANGES}"));
            };
            self.role_changes =
                value.parse().map_err(|_| format!("{ROLE_CHANGES} is `{value}`, not a number"))?;
        }
        Ok(())
    }

    /// Whether this server has roles to count.
    pub fn counts_roles(&self) -> bool {
        self.statistics.is_some()
    }

    /// Changes of role so far.
    pub fn role_changes(&self) -> u64 {
        self.role_changes
    }

    /// The last sample.
    pub fn resident_kb(&self) -> u64 {
        self.resident.last().map_or(0, |(_, kb)| *kb as u64)
    }

    /// By how much of its mean memory grows over the second half of the run, by linear fit of its
    /// floor.
    pub fn growth(&self) -> f64 {
        let half = self.resident.last().map_or(0.0, |(end, _)| end / 2.0);
        let second: Vec<_> = self.resident.iter().copied().filter(|(at, _)| half <= *at).collect();
        growth(&floor(&second))
    }
}

fn resident_kb(id: u32) -> Result<f64, String> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status"))
        .map_err(|e| format!("the server's memory cannot be read: {e}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| "no VmRSS in /proc/PID/status".to_string())
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
    use super::{floor, growth};

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
