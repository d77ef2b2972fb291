//! A whole invocation: prefill, runs one after the other, and the report.

use crate::admin;
use crate::arrivals::{self, Arrival};
use crate::beside::{Beside, Commands};
use crate::connection::{Context, Target};
use crate::cpu::{self, CpuTime, Machine};
use crate::datagram::flows::Flows;
use crate::datagram::memory::idle_clients;
use crate::datagram::{self, endpoint};
use crate::dialect::Dialect;
use crate::floor;
use crate::leftover::Leftover;
use crate::output::draw;
use crate::phases::Phases;
use crate::prefill::prefill;
use crate::random::Random;
use crate::recorder::{Counts, Recorder};
use crate::report::json::{
    self, ClientCpu, Distribution, Latencies, Mode, Report, Requests, Run, ServerCpu, Udp,
};
use crate::sender::paced::{Own, Pace, Paced};
use crate::sender::{Clock, Connections, Edge};
use crate::storm::Storm;
use crate::values::Values;
use crate::verdict::judge;
use crate::watch::Watch;
use crate::workload::{Draws, Workload};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What to do, checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the server listens.
    pub target: Target,
    /// What it speaks.
    pub dialect: Dialect,
    /// What is asked.
    pub workload: Workload,
    /// Workloads that take turns within a run, with the keys of `workload`; none means that one.
    pub steps: Vec<Workload>,
    /// What the server has to do meanwhile.
    pub beside: Beside,
    /// One load after the other.
    pub modes: Vec<Mode>,
    /// The share of requests that may leave late before no latency is shown.
    pub late_share_max: f64,
    /// How often each.
    pub runs: usize,
    /// Number of the first run: the n-th has schedule n of the seed.
    pub first_run: u64,
    /// Connections in all; at least one per thread.
    pub connections: usize,
    /// Further connections, of some requests alone.
    pub own: Own,
    /// Threads of the sender.
    pub threads: usize,
    /// The measured window.
    pub duration: Duration,
    /// The time before it.
    pub warmup: Duration,
    /// How long after the window replies are waited for.
    pub drain: Duration,
    /// Whether the report has the whole distributions.
    pub distribution: bool,
    /// Whether threads of the idle class count what the CPUs have left.
    pub count_idle: bool,
    /// Whether to write every key first.
    pub prefill: bool,
    /// Whether the server is a floor, whose values are all alike.
    pub floor: bool,
    /// How to send by UDP; absent means over connections.
    pub udp: Option<endpoint::Wanted>,
    /// Requests that somebody made once, in place of those that would be drawn.
    pub trace: Option<Arc<[Arrival]>>,
    /// Process whose processor time is measured.
    pub server_pid: Option<u32>,
    /// The arguments this plan was made from, for the report.
    pub arguments: Vec<String>,
}

impl Plan {
    /// The measured window of a run that began, with its warm-up, at `start`.
    pub(crate) fn window(&self, start: Instant) -> Range<Instant> {
        let from = start + self.warmup;
        from..from + self.duration
    }
}

/// Carries the plan out. An error is a connection or a server that does not work; a run that fails
/// or may not be believed is in the report.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let server_version = admin::version(&plan.target, plan.dialect)
        .map_err(|error| format!("no server answers at {}: {error}", plan.target))?;
    let values = match plan.floor {
        true => Values::same(floor::VALUE_BYTE),
        false => Values::new(plan.workload.options().seed),
    };
    let context = Context { workload: &plan.workload, values: &values, dialect: plan.dialect };
    let prefilled = match plan.prefill {
        true => Some(prefill(context, &plan.target, plan.connections)?),
        false => None,
    };
    let udp = match &plan.udp {
        Some(wanted) => Some(wanted.resolve(&plan.target, plan.dialect)?),
        None => None,
    };
    // They are there until the last run is over.
    let _idle = idle_clients(udp.as_ref().and_then(|options| options.door.as_ref()))?;
    let mut runs = Vec::new();
    let seconds = (plan.warmup + plan.duration).as_secs_f64();
    for &mode in &plan.modes {
        for _ in 0..plan.runs {
            let (done, all) = (runs.len(), plan.modes.len() * plan.runs);
            draw(&format!("run {} of {all}, {seconds:.1} s each", done + 1));
            let number = plan.first_run + runs.len() as u64;
            runs.push(one_run(Load { plan, udp: udp.as_ref(), context, mode, number })?);
        }
    }
    draw("");
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
        udp: udp.as_ref().map(Udp::of),
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

/// What a thread saw while it sent, or all threads together.
struct Part {
    recorder: Recorder,
    udp: Option<datagram::Counts>,
    samples: [Sample; 2],
    start: Instant,
}

/// One run of a plan.
#[derive(Clone, Copy)]
struct Load<'a> {
    plan: &'a Plan,
    udp: Option<&'a datagram::Options>,
    context: Context<'a>,
    mode: Mode,
    /// Its schedule's, of those of the seed.
    number: u64,
}

fn one_run(load: Load<'_>) -> Result<Run, String> {
    let Load { plan, mode, .. } = load;
    plan.beside.write_expiring(&plan.target, plan.warmup, plan.duration)?;
    let own_account_before = match plan.server_pid {
        None => admin::cpu_ns(&plan.target, plan.dialect),
        Some(_) => None,
    };
    let watch = (!plan.steps.is_empty()).then(|| Watch::start(plan.server_pid));
    let commands = plan.beside.start(&plan.target);
    let storm = plan.beside.storm(&plan.target);
    let leftover = plan.count_idle.then(|| Leftover::start(Machine::this().cpus)).transpose()?;
    let part = send(load);
    let commanded = commands.map_or(Ok(()), Commands::finish);
    let stormed = storm.map_or(Ok(()), Storm::finish);
    let lost = watch.map(Watch::finish).unwrap_or_default();
    let Part { recorder, udp, samples, start } = part?;
    let busy = leftover.map(|leftover| leftover.finish(plan.window(start)));
    commanded.and(stormed)?;
    let counts = &recorder.counts;
    let server = match (plan.server_pid, own_account_before) {
        (Some(pid), _) => server_by_schedstat(pid, &samples, counts, plan.duration),
        (None, Some(before)) => Some(server_by_own_account(plan, before, counts)),
        (None, None) => None,
    };
    let is_open = matches!(mode, Mode::Open { .. });
    let late_max = is_open.then_some(plan.late_share_max);
    let fault = recorder.first_fault.as_deref();
    let verdict = judge(counts, late_max, fault);
    let is_shown = verdict.refused.is_none();
    // Times of the watch are counted from the start, as the recorder's are.
    let since = |at: Instant| at.saturating_duration_since(start).as_nanos() as u64;
    let lost: Vec<(u64, u64)> = lost.into_iter().map(|(at, ns)| (since(at), ns)).collect();
    let phases = recorder.phases.as_ref().filter(|_| is_shown);
    let [before, after] = samples;
    let us_per_request = |ns: u64| ns as f64 / 1e3 / counts.ended_within.max(1) as f64;
    let us_per_key = |ns: u64| ns as f64 / 1e3 / counts.keys_within.max(1) as f64;
    let machine_ns = busy.as_ref().map(|cpus_ns| cpus_ns.iter().sum::<u64>());
    let cpu_0_ns = busy.as_ref().and_then(|cpus_ns| cpus_ns.first().copied());
    Ok(Run {
        mode,
        requests: Requests::of(&recorder, plan.duration.as_secs_f64()),
        latency_us: is_shown.then(|| Latencies::of(&recorder)),
        quiet: (is_open && is_shown).then(|| recorder.laps.quiet()),
        phases: phases.map(|phases| phases.told(&lost)),
        distribution: (plan.distribution && is_shown).then(|| Distribution::of(&recorder)),
        udp,
        server,
        client: ClientCpu {
            kept_waiting_ms: after.client.since(before.client).kept_waiting_ns as f64 / 1e6,
            stolen_ms: after.stolen_ns.saturating_sub(before.stolen_ns) as f64 / 1e6,
            machine_cpu_us_per_request: machine_ns.map(us_per_request),
            machine_cpu_us_per_key: machine_ns.map(us_per_key),
            cpu_0_us_per_request: cpu_0_ns.map(us_per_request),
        },
        verdict,
    })
}

/// By what the server tells of itself, from before the warm-up on.
fn server_by_own_account(plan: &Plan, before_ns: u64, counts: &Counts) -> ServerCpu {
    let after_ns = admin::cpu_ns(&plan.target, plan.dialect).unwrap_or(before_ns);
    let used_us = after_ns.saturating_sub(before_ns) as f64 / 1e3;
    ServerCpu {
        source: "rusage".into(),
        cpu_us_per_request: used_us / counts.ended.max(1) as f64,
        // The warm-up's bytes are not counted, so there is nothing to divide by.
        ..ServerCpu::default()
    }
}

fn server_by_schedstat(
    pid: u32,
    samples: &[Sample; 2],
    counts: &Counts,
    duration: Duration,
) -> Option<ServerCpu> {
    let used = samples[1].server?.since(samples[0].server?);
    let (used_us, megabytes) = (used.busy_ns as f64 / 1e3, counts.value_bytes as f64 / 1e6);
    Some(ServerCpu {
        source: "schedstat".into(),
        cpu_us_per_request: used_us / counts.ended_within.max(1) as f64,
        cpu_us_per_megabyte: (megabytes > 0.0).then(|| used_us / megabytes),
        cpus_busy: Some(used.busy_ns as f64 / duration.as_nanos() as f64),
        kept_waiting_ms: Some(used.kept_waiting_ns as f64 / 1e6),
        resident_bytes: cpu::resident_bytes(pid).ok(),
    })
}

/// Sends by all threads. The calling thread is the first of them, as it is the one that was pinned.
fn send(load: Load<'_>) -> Result<Part, String> {
    /// So that the first requests are not late.
    const START_IN: Duration = Duration::from_millis(20);
    let threads = load.plan.threads;
    let (gate, start) = (Barrier::new(threads), OnceLock::new());
    let started = || {
        gate.wait();
        *start.get_or_init(|| Instant::now() + START_IN)
    };
    let part = |thread| send_part(load, thread, &started);
    std::thread::scope(|scope| {
        let part = &part;
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let mut whole = part(0)?;
        for other in others {
            let other = other.join().map_err(|_| "a sending thread panicked".to_owned())??;
            whole.recorder.merge(&other.recorder);
            if let (Some(own), Some(others)) = (&mut whole.udp, &other.udp) {
                own.add(others);
            }
        }
        Ok(whole)
    })
}

/// Draws everything that one thread will ask before the first byte leaves, connects and sends.
/// `started` waits until all threads are that far, and says when they start.
fn send_part(
    load: Load<'_>,
    thread: usize,
    started: &impl Fn() -> Instant,
) -> Result<Part, String> {
    let Load { plan, udp, context, mode, number } = load;
    let &Plan { connections, threads, drain, own, .. } = plan;
    let target = &plan.target;
    // The connections that do not divide evenly go to the first threads.
    let count = (connections + threads - 1 - thread) / threads;
    let seed = plan.workload.options().seed;
    // Every run of an invocation draws anew: the spread over runs is over schedules too.
    let stream = number * threads as u64 + thread as u64;
    let random = |name: &[u8; 8]| Random::stream(seed ^ u64::from_le_bytes(*name), stream);
    let start_ns = plan.warmup.as_nanos() as u64;
    let window_ns = start_ns..start_ns + plan.duration.as_nanos() as u64;
    let mut recorder = Recorder::new(window_ns.clone());
    let steps = match plan.steps.as_slice() {
        [] => std::slice::from_ref(context.workload),
        steps => {
            recorder.phases = Some(Phases::new(window_ns.clone(), steps.len()));
            steps
        }
    };
    let drawn;
    let pace = match (mode, plan.trace.as_deref()) {
        (Mode::Open { .. }, Some(trace)) => Pace::Open(trace),
        (Mode::Open { rate_per_s }, None) => {
            let rate_per_s = rate_per_s / threads as f64;
            drawn = arrivals::changing(steps, rate_per_s, window_ns, stream);
            Pace::Open(&drawn)
        }
        (Mode::Closed { depth }, _) => {
            Pace::Closed { depth, asks: random(b"asks    "), draws: Draws::default() }
        }
    };
    let paced = Paced { pace, drain, versions: random(b"versions"), own };
    let mut samples = [Sample::default(); 2];
    let at_edge = |edge: Edge| {
        if thread == 0 {
            samples[edge as usize] = Sample {
                server: plan.server_pid.and_then(|pid| cpu::of_process(pid).ok()),
                client: cpu::of_this_thread(),
                stolen_ns: cpu::stolen_ns(),
            };
        }
    };
    let cannot = |error: io::Error| format!("cannot connect to {target}: {error}");
    // The others must not wait for a thread that cannot connect: it starts first, and fails then.
    let start;
    let done = match udp {
        None => {
            let connections = Connections::open(context, target, count + own.connections());
            start = started();
            let mut connections = connections.map_err(cannot)?;
            let clock = Clock::starting(start);
            paced.run(&mut connections, clock, &mut recorder, at_edge).map(|()| None)
        }
        Some(udp) => {
            let flows = Flows::open(context, udp, target, count, random(b"queues  "));
            start = started();
            let flows = flows.map_err(cannot)?;
            let clock = Clock::starting(start);
            flows.run(paced, clock, &mut recorder, at_edge).map(Some)
        }
    };
    let udp = done.map_err(|error| format!("{target}: {error}"))?;
    Ok(Part { recorder, udp, samples, start })
}
