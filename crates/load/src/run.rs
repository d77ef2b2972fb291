//! A whole invocation: prefill, runs one after the other, and the report.

use crate::admin;
use crate::arrivals;
use crate::connection::{Context, Target};
use crate::cpu::{self, CpuTime, Machine};
use crate::dialect::Dialect;
use crate::prefill::prefill;
use crate::random::Random;
use crate::recorder::Recorder;
use crate::report::json::{self, ClientCpu, Latencies, Mode, Report, Requests, Run, ServerCpu};
use crate::sender::closed::ClosedLoop;
use crate::sender::open::OpenLoop;
use crate::sender::{Clock, Connections, Edge};
use crate::values::Values;
use crate::verdict::judge;
use crate::workload::Workload;
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long replies are waited for after a run's last request was due.
const DRAIN: Duration = Duration::from_secs(5);

/// What to do, checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the server listens.
    pub target: Target,
    /// What it speaks.
    pub dialect: Dialect,
    /// What is asked.
    pub workload: Workload,
    /// One load after the other.
    pub modes: Vec<Mode>,
    /// How often each.
    pub runs: usize,
    /// Number of the first run: the n-th has schedule n of the seed.
    pub first_run: u64,
    /// Connections in all; at least one per thread.
    pub connections: usize,
    /// Threads of the sender.
    pub threads: usize,
    /// The measured window.
    pub duration: Duration,
    /// The time before it.
    pub warmup: Duration,
    /// Whether to write every key first.
    pub prefill: bool,
    /// Process whose processor time is measured.
    pub server_pid: Option<u32>,
    /// The arguments this plan was made from, for the report.
    pub arguments: Vec<String>,
}

/// Carries the plan out. An error is a connection or a server that does not work; a run that fails
/// or may not be believed is in the report.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let server_version = admin::version(&plan.target, plan.dialect)
        .map_err(|error| format!("no server answers at {}: {error}", plan.target))?;
    let values = Values::new(plan.workload.options().seed);
    let context = Context { workload: &plan.workload, values: &values, dialect: plan.dialect };
    let prefilled = match plan.prefill {
        true => Some(prefill(context, &plan.target, plan.connections)?),
        false => None,
    };
    let mut runs = Vec::new();
    for &mode in &plan.modes {
        for _ in 0..plan.runs {
            runs.push(one_run(plan, context, mode, plan.first_run + runs.len() as u64)?);
        }
    }
    Ok(Report {
        schema: json::SCHEMA.into(),
        ended_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        arguments: plan.arguments.clone(),
        build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
        target: plan.target.to_string(),
        dialect: plan.dialect,
        server_version,
        machine: Machine::this(),
        workload: plan.workload.options().clone(),
        connections: plan.connections,
        threads: plan.threads,
        duration_s: plan.duration.as_secs_f64(),
        warmup_s: plan.warmup.as_secs_f64(),
        prefill: prefilled,
        runs,
    })
}

/// Processor time at one edge of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    server: Option<CpuTime>,
    client: CpuTime,
    stolen_ns: u64,
}

impl Sample {
    fn take(server_pid: Option<u32>) -> Self {
        Sample {
            server: server_pid.and_then(|pid| cpu::of_process(pid).ok()),
            client: cpu::of_this_thread(),
            stolen_ns: cpu::stolen_ns(),
        }
    }
}

/// One thread's part of a run.
struct Part {
    recorder: Recorder,
    samples: [Sample; 2],
}

fn one_run(plan: &Plan, context: Context<'_>, mode: Mode, number: u64) -> Result<Run, String> {
    let own_account_before = match plan.server_pid {
        None => admin::cpu_ns(&plan.target, plan.dialect),
        Some(_) => None,
    };
    let (recorder, samples) = all_threads(plan, context, mode, number)?;
    let counts = &recorder.counts;
    let server = match (plan.server_pid, own_account_before) {
        (Some(pid), _) => server_by_schedstat(pid, &samples, counts.ended_within, plan.duration),
        (None, Some(before)) => {
            let after = admin::cpu_ns(&plan.target, plan.dialect).unwrap_or(before);
            let used_us = after.saturating_sub(before) as f64 / 1e3;
            Some(ServerCpu {
                source: "rusage".into(),
                cpu_us_per_request: used_us / counts.ended.max(1) as f64,
                cpus_busy: None,
                kept_waiting_ms: None,
                resident_bytes: None,
            })
        }
        (None, None) => None,
    };
    let is_open = matches!(mode, Mode::Open { .. });
    let verdict = judge(counts, is_open, recorder.first_fault.as_deref());
    let [before, after] = samples;
    Ok(Run {
        mode,
        requests: Requests::of(&recorder, plan.duration.as_secs_f64()),
        latency_us: verdict.refused.is_none().then(|| Latencies::of(&recorder)),
        quiet: (is_open && verdict.refused.is_none()).then(|| recorder.laps.quiet()),
        server,
        client: ClientCpu {
            kept_waiting_ms: after.client.since(before.client).kept_waiting_ns as f64 / 1e6,
            stolen_ms: after.stolen_ns.saturating_sub(before.stolen_ns) as f64 / 1e6,
        },
        verdict,
    })
}

fn server_by_schedstat(
    pid: u32,
    samples: &[Sample; 2],
    ended_within: u64,
    duration: Duration,
) -> Option<ServerCpu> {
    let used = samples[1].server?.since(samples[0].server?);
    Some(ServerCpu {
        source: "schedstat".into(),
        cpu_us_per_request: used.busy_ns as f64 / 1e3 / ended_within.max(1) as f64,
        cpus_busy: Some(used.busy_ns as f64 / duration.as_nanos() as f64),
        kept_waiting_ms: Some(used.kept_waiting_ns as f64 / 1e6),
        resident_bytes: cpu::resident_bytes(pid).ok(),
    })
}

/// Runs every thread's part, the first on the calling thread, which is the one that was pinned.
fn all_threads(
    plan: &Plan,
    context: Context<'_>,
    mode: Mode,
    number: u64,
) -> Result<(Recorder, [Sample; 2]), String> {
    /// Time for every thread to draw its schedule and connect. Threads that are late begin late:
    /// their first requests then count as late.
    const START_IN: Duration = Duration::from_millis(20);
    let gate = std::sync::Barrier::new(plan.threads);
    let start = std::sync::OnceLock::new();
    let part = |thread: usize| -> Result<Part, String> {
        let prepared = Prepared::new(plan, context, mode, number, thread);
        gate.wait();
        let start = *start.get_or_init(|| Instant::now() + START_IN);
        prepared?.go(plan, Clock::starting(start), thread == 0)
    };
    std::thread::scope(|scope| {
        let part = &part;
        let others: Vec<_> =
            (1..plan.threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let mut first = part(0)?;
        for other in others {
            let other = other.join().map_err(|_| "a sending thread panicked".to_owned())??;
            first.recorder.merge(&other.recorder);
        }
        Ok((first.recorder, first.samples))
    })
}

/// A thread's connections and everything it will ask, drawn before the first byte.
struct Prepared<'a> {
    connections: Connections<'a>,
    arrivals: Vec<arrivals::Arrival>,
    depth: usize,
    streams: [Random; 2],
}

impl<'a> Prepared<'a> {
    fn new(
        plan: &Plan,
        context: Context<'a>,
        mode: Mode,
        number: u64,
        thread: usize,
    ) -> Result<Self, String> {
        // The connections that do not divide evenly go to the first threads.
        let count = (plan.connections + plan.threads - 1 - thread) / plan.threads;
        let connections = Connections::open(context, &plan.target, count)
            .map_err(|error| format!("cannot connect to {}: {error}", plan.target))?;
        let seed = plan.workload.options().seed;
        // Every run of an invocation draws anew: the spread over runs is over schedules too.
        let stream = number * plan.threads as u64 + thread as u64;
        let (arrivals, depth) = match mode {
            Mode::Open { rate_per_s } => {
                let total = plan.warmup + plan.duration;
                let rate_per_s = rate_per_s / plan.threads as f64;
                let total_ns = total.as_nanos() as u64;
                (arrivals::poisson(context.workload, rate_per_s, total_ns, stream), 0)
            }
            Mode::Closed { depth } => (Vec::new(), depth),
        };
        let name = |word: &[u8; 8]| Random::stream(seed ^ u64::from_le_bytes(*word), stream);
        let streams = [name(b"asks    "), name(b"versions")];
        Ok(Prepared { connections, arrivals, depth, streams })
    }

    fn go(mut self, plan: &Plan, clock: Clock, samples_cpu: bool) -> Result<Part, String> {
        let start_ns = plan.warmup.as_nanos() as u64;
        let mut recorder = Recorder::new(start_ns..start_ns + plan.duration.as_nanos() as u64);
        let mut samples = [Sample::default(); 2];
        let at_edge = |edge: Edge| {
            if samples_cpu {
                samples[edge as usize] = Sample::take(plan.server_pid);
            }
        };
        let [asks, versions] = self.streams;
        let connections = &mut self.connections;
        let done: io::Result<()> = if self.depth == 0 {
            let mut open = OpenLoop { arrivals: &self.arrivals, drain: DRAIN, versions };
            open.run(connections, clock, &mut recorder, at_edge)
        } else {
            let mut closed = ClosedLoop { depth: self.depth, drain: DRAIN, asks, versions };
            closed.run(connections, clock, &mut recorder, at_edge)
        };
        done.map_err(|error| format!("{}: {error}", plan.target))?;
        Ok(Part { recorder, samples })
    }
}
