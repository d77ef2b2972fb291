//! The test for a quiet host: before a run, while nothing is measured, it finds out whether other
//! processes or the hypervisor take the CPUs away from the comparison.
//!
//! A hypervisor that gives a CPU away, and a process that takes one, look the same from inside: a
//! thread that does nothing but read the clock finds that time has passed. So one such thread on
//! each CPU of a comparison tells both, also where the kernel counts neither. A run begins when
//! both CPUs are left alone, or when the patience for it is used up, which is counted and told.
//! Nothing here knows a latency of what is measured.

use crate::cpu::{self, CLIENT_CPU, SERVER_CPU};
use serde::{Deserialize, Serialize};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the CPUs are watched at a time.
const WINDOW: Duration = Duration::from_millis(500);
/// A longer time between two readings of the clock is one in which the thread did not run; what
/// interrupts take is shorter.
const GAP: Duration = Duration::from_micros(100);
/// Share of the window that a CPU may be away where it counts as left alone.
const AWAY_SHARE_MAX: f64 = 0.01;

/// How quiet the machine was, over all runs of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Times that a run waited for it.
    pub waits: u64,
    /// Seconds that these took together.
    pub waited_s: f64,
    /// Of the waits, those that ended before it was quiet.
    pub never_quiet: u64,
}

impl Host {
    /// Waits until the CPUs are left alone, at most this long.
    pub fn wait_until_quiet(&mut self, patience: Duration) {
        let began = Instant::now();
        let mut told = false;
        self.waits += 1;
        loop {
            let watches = [SERVER_CPU, CLIENT_CPU].map(watch);
            let shares = watches.map(|watch| watch.join().unwrap_or(1.0));
            if shares.iter().all(|&share| share <= AWAY_SHARE_MAX) {
                break;
            }
            if began.elapsed() + WINDOW > patience {
                self.never_quiet += 1;
                break;
            }
            if !told {
                let [server, client] = shares.map(|share| 100.0 * share);
                eprintln!(
                    "waiting for a quiet host: others have {server:.1} % of CPU {SERVER_CPU} and \
                     {client:.1} % of CPU {CLIENT_CPU}"
                );
                told = true;
            }
        }
        self.waited_s += began.elapsed().as_secs_f64();
    }
}

/// Watches a CPU for a window: the share of it for which the CPU does not run a thread that always
/// wants to, or all of it where the CPU is not ours to watch.
fn watch(cpu: usize) -> JoinHandle<f64> {
    std::thread::spawn(move || {
        if cpu::pin(cpu).is_err() {
            return 1.0;
        }
        let began = Instant::now();
        let readings = std::iter::from_fn(|| Some(began.elapsed()));
        away_share(readings.take_while(|&now| now < WINDOW))
    })
}

/// The share of the time up to the last of these readings that lies in gaps.
fn away_share(readings: impl Iterator<Item = Duration>) -> f64 {
    let (mut last, mut away) = (Duration::ZERO, Duration::ZERO);
    for now in readings {
        if now - last > GAP {
            away += now - last;
        }
        last = now;
    }
    // A thread that was never woken within the window has read nothing.
    if last.is_zero() { 1.0 } else { away.as_secs_f64() / last.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(readings_us: &[u64]) -> f64 {
        away_share(readings_us.iter().map(|&us| Duration::from_micros(us)))
    }

    #[test]
    fn time_between_two_readings_is_away_when_it_is_long() {
        assert_eq!(share(&[50, 100, 200]), 0.0);
        assert_eq!(share(&[50, 800, 1_000]), 0.95);
        assert_eq!(share(&[400, 500]), 0.8, "it came late");
        assert_eq!(share(&[]), 1.0, "it never came");
    }

    #[test]
    fn a_wait_ends_when_its_patience_does_and_is_counted() {
        let mut host = Host::default();
        host.wait_until_quiet(Duration::ZERO);
        assert_eq!(host.waits, 1);
        assert!(host.never_quiet <= 1 && host.waited_s > 0.0);
    }
}
