//! What a soak tells while it runs and at its end, and the bounds that it is held to.

use super::durable::DurableServer;
use super::mischief::KINDS;
use super::stage::{Counts, MISDEEDS, Scene, Stage};
use super::watch::Memory;
use super::{Options, Server};
use crate::{Client, Failure};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Roles change with each second's p_L; where other programs have the CPUs an epoch may pass
/// without enough requests to say anything.
const SECONDS_A_ROLE_CHANGE_MAX: u64 = 30;
const GROWTH_MAX: f64 = 0.01;
const GROWTH_SHORT_MAX: f64 = 0.05;
const SHORT: Duration = Duration::from_secs(180);
/// A slope by the hour that is fitted to less says nothing.
const HOURS_TOLD_MIN: f64 = 0.25;
const HOUR: Duration = Duration::from_secs(3600);

/// What is watched of the evicting server.
pub struct Report {
    memory: Memory,
    statistics: Client,
    counts_roles: bool,
    role_changes: u64,
    evictions: u64,
}

impl Report {
    /// On this server, with its roles or without.
    pub fn new(server: &Server, counts_roles: bool) -> Result<Report, String> {
        let statistics = Client::connect(server.address())?;
        let memory = Memory::of(server.id());
        Ok(Report { memory, statistics, counts_roles, role_changes: 0, evictions: 0 })
    }

    /// Looks once.
    pub fn sample(&mut self, elapsed: Duration) -> Result<(), String> {
        self.memory.sample(elapsed)?;
        self.evictions = self.statistics.number("", "evictions")?;
        if self.counts_roles {
            self.role_changes = self.statistics.number("lanes", "role_changes")?;
        }
        Ok(())
    }

    /// A line on how it goes.
    pub fn progress(&self, options: &Options, stages: &[&Stage], elapsed: Duration) {
        println!(
            "soak {:>4}/{} s  {:>9} replies by TCP  {:>8} by RESP  {:>8} by UDP  {:>7} evictions  \
             {:>4} role changes  {:>6} KB resident",
            elapsed.as_secs(),
            options.length.as_secs(),
            sum(stages, |seen| &seen.tcp),
            sum(stages, |seen| &seen.resp),
            sum(stages, |seen| &seen.udp),
            self.evictions,
            self.role_changes,
            self.memory.resident_kb()
        );
    }

    /// What was done to whom.
    pub fn misdeeds(&self, stages: &[&Stage]) {
        for (kind, misdeed) in KINDS.iter().enumerate() {
            let count = sum(stages, |seen| &seen.misdeeds[kind]);
            println!("misdeed: {:<28} {count:>7}", misdeed.name);
        }
    }

    /// Fails if a well-behaved client met an error.
    pub fn errors(&self, scene: &Scene) -> Result<(), Failure> {
        match scene.errors() {
            (count, Some(first)) => {
                let told = format!("{count} errors to well-behaved clients: {first}");
                Err(Failure::Failed(told))
            }
            (_, None) => Ok(()),
        }
    }

    /// Fails if something did not happen that should have, or memory grew; else what happened.
    pub fn judge(
        &self,
        options: &Options,
        stages: &[&Stage],
        durable_server: &DurableServer,
    ) -> Result<String, Failure> {
        let told = self.told(options, stages, durable_server);
        let fails = |why: String| Err(Failure::Failed(format!("{why} ({told})")));
        for stage in stages {
            let mut done = KINDS.iter().zip(&stage.seen.misdeeds);
            if let Some((kind, _)) = done.find(|(_, count)| count.load(Relaxed) == 0) {
                return fails(format!("nobody did `{}` to {}: run longer", kind.name, stage.name));
            }
            if stage.seen.udp.load(Relaxed) == 0 {
                return fails(format!("{} answered nothing by UDP", stage.name));
            }
            if stage.evicts && stage.seen.resp.load(Relaxed) == 0 {
                return fails(format!("{} answered nothing by RESP", stage.name));
            }
        }
        if self.evictions == 0 {
            return fails("nothing was evicted: run longer".into());
        }
        let wanted = (options.length.as_secs() / SECONDS_A_ROLE_CHANGE_MAX).max(1);
        if self.counts_roles && self.role_changes < wanted {
            return fails(format!("{} role changes, {wanted} expected", self.role_changes));
        }
        let (growth, hours) = self.memory.growth();
        let (grown, of) = match options.length {
            length if length < HOUR => (growth, "over the second half"),
            _ => (growth / hours, "an hour"),
        };
        let most = if options.length < SHORT { GROWTH_SHORT_MAX } else { GROWTH_MAX };
        match most <= grown {
            true => fails(format!(
                "resident memory grows by {:.2} % {of}, less than {:.0} % is allowed",
                100.0 * grown,
                100.0 * most
            )),
            false => Ok(told),
        }
    }

    fn told(&self, options: &Options, stages: &[&Stage], durable_server: &DurableServer) -> String {
        let misdeeds: u64 =
            (0..MISDEEDS).map(|kind| sum(stages, |seen| &seen.misdeeds[kind])).sum();
        let [terms, kills] = durable_server.ends;
        let (growth, hours) = self.memory.growth();
        let slope = match HOURS_TOLD_MIN <= hours {
            true => format!("{:+.2} %/h", 100.0 * growth / hours),
            false => "too short for a slope".into(),
        };
        format!(
            "{} s: {} replies by TCP, {} by RESP and {} by UDP verified ({} MB), {} evictions, {} \
             role changes, {} hot-set shifts, {terms} restarts by SIGTERM and {kills} by SIGKILL \
             with {} keys swept, {misdeeds} misdeeds, {} refused by full memory, {} by UDP \
             unanswered; memory of the evicting server {slope} ({:+.2} % over the second half); \
             seed {}",
            options.length.as_secs(),
            sum(stages, |seen| &seen.tcp),
            sum(stages, |seen| &seen.resp),
            sum(stages, |seen| &seen.udp),
            sum(stages, |seen| &seen.bytes) >> 20,
            self.evictions,
            self.role_changes,
            stages[0].scene.hot_shifts.load(Relaxed),
            durable_server.swept,
            sum(stages, |seen| &seen.refused),
            sum(stages, |seen| &seen.unanswered),
            100.0 * growth,
            options.seed
        )
    }
}

fn sum(stages: &[&Stage], count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
    stages.iter().map(|stage| count(stage.seen).load(Relaxed)).sum()
}
