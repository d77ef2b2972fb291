//! The command line of `laneway bench`: flags as typed become a checked [`Plan`]; the exit code
//! says how it went: 0 well, 1 a wrong reply or a run that may not be believed, 2 a wrong flag.

use crate::arguments::{self, number, text, within};
use crate::arrivals;
use crate::beside::Beside;
use crate::connection::Target;
use crate::cpu;
use crate::dialect::Dialect;
use crate::output;
use crate::report::json::Mode;
use crate::report::table;
use crate::run::{Plan, run};
use crate::sender::paced::Own;
use crate::service;
use crate::trace::Trace;
use crate::verdict::LATE_REFUSE;
use crate::workload::keys::{KEY_BYTES, KeySizes};
use crate::workload::named::named;
use crate::workload::{Pattern, Sizes, Workload, WorkloadOptions};
use laneway_tls::ClientFiles;
use laneway_wire::udp::FRAME_BYTES_MAX;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use udp::UdpTyped;

mod udp;

/// What `--help` prints.
pub const HELP: &str = include_str!("help.txt");

/// Connections, where none are asked for.
const CONNECTIONS: usize = 32;
/// The same of UDP sockets: enough for the kernel to spread over a server's workers.
const SOCKETS_UDP: usize = 8;
/// Keys of who says nothing of them, and how many of these are large: 1/320 of the paper's, which a
/// server holds that was told nothing of its memory either (64 MB).
const KEYS: u64 = 50_000;
const KEYS_LARGE: u64 = 50;

/// Flags as typed.
#[derive(Debug, Clone, Default)]
struct Typed {
    server: String,
    socket: Option<PathBuf>,
    tls: ClientFiles,
    dialect: Dialect,
    workload: WorkloadOptions,
    large_bytes_max: Option<u64>,
    value_bytes: Option<u64>,
    /// `--rate`; none where it was not said.
    rates: Option<Vec<f64>>,
    closed: bool,
    depth: usize,
    /// `--late-max`, percent.
    late_percent_max: f64,
    runs: usize,
    first_run: u64,
    connections: Option<usize>,
    connections_large: usize,
    connections_set: usize,
    threads: usize,
    duration_s: Option<f64>,
    warmup_s: Option<f64>,
    drain_s: f64,
    trace: Option<PathBuf>,
    speed: f64,
    prefill: bool,
    floor: bool,
    udp: UdpTyped,
    server_pid: Option<u32>,
    cpu: Option<usize>,
    large_percents: Vec<f64>,
    beside: Beside,
    distribution: bool,
    count_idle: bool,
    json: Option<PathBuf>,
    service_times: Option<PathBuf>,
    quiet: bool,
}

impl Typed {
    /// Where nothing is said but the workload.
    fn new(workload: WorkloadOptions) -> Self {
        Typed {
            server: "127.0.0.1:11211".into(),
            workload,
            depth: 1,
            late_percent_max: 100.0 * LATE_REFUSE,
            runs: 1,
            threads: 1,
            drain_s: DRAIN_S,
            speed: 1.0,
            prefill: true,
            ..Typed::default()
        }
    }

    /// Of a command line. Definitions go from the workload's own default: their records were made
    /// with that.
    fn at_the_command_line() -> Self {
        Self::new(WorkloadOptions { keys: KEYS, keys_large: KEYS_LARGE, ..Default::default() })
    }

    fn rates(&self) -> &[f64] {
        self.rates.as_deref().unwrap_or(&[RATE_PER_S])
    }
}

/// A command line, understood.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// What to measure.
    pub plan: Plan,
    /// The CPU to stay on.
    pub cpu: Option<usize>,
    /// Where the report goes as data; `-` is standard output.
    pub json: Option<PathBuf>,
    /// Where service times by size go, which are measured instead of the plan's loads.
    pub service_times: Option<PathBuf>,
    /// No table.
    pub quiet: bool,
}

/// Measures one server as these arguments say.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let flags = parse_from(Typed::at_the_command_line(), arguments).and_then(|flags| {
        let plan = flags.as_ref().map(|flags| &flags.plan);
        plan.map_or(Ok(()), |plan| plan.beside.check_target(&plan.target))?;
        Ok(flags)
    });
    arguments::carry_out("bench", HELP, flags, |invocation| carry_out(&invocation))
}

fn carry_out(invocation: &Invocation) -> Result<bool, String> {
    // What cannot be written must be known before the minutes are spent, not after.
    let json = invocation.json.as_deref().filter(|path| path.as_os_str() != "-");
    for (flag, path) in [("json", json), ("service-times", invocation.service_times.as_deref())] {
        let Some(path) = path else { continue };
        output::look(path).map_err(|error| format!("--{flag} {}: {error}", path.display()))?;
    }
    if let Some(cpu) = invocation.cpu {
        cpu::pin(cpu)?;
    }
    if let Some(path) = &invocation.service_times {
        return service::measure(&invocation.plan, path);
    }
    let report = run(&invocation.plan)?;
    let mut text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
    text.push('\n');
    let table = if invocation.quiet { String::new() } else { table::render(&report) };
    let json = invocation.json.as_deref().map(|path| (path, text.as_str()));
    output::show(&table, json)?;
    Ok(report.runs.iter().all(|run| run.verdict.is_good()))
}

/// What the flags of a definition ask for.
pub fn plan(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Plan, String> {
    let invocation = parse(words.into_iter().map(Into::into).collect())?;
    invocation.map(|invocation| invocation.plan).ok_or_else(|| "asks for help".into())
}

/// Reads the flags of a definition; nothing where help is asked for.
pub fn parse(arguments: Vec<OsString>) -> Result<Option<Invocation>, String> {
    parse_from(Typed::new(WorkloadOptions::default()), arguments)
}

fn parse_from(mut typed: Typed, arguments: Vec<OsString>) -> Result<Option<Invocation>, String> {
    let shown = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long(name) => {
                let name = name.to_owned();
                flag(&mut typed, &name, &mut parser)?;
            }
            other => return Err(format!("{}: no such argument", other.unexpected())),
        }
    }
    check(typed, shown).map(Some)
}

fn flag(typed: &mut Typed, name: &str, parser: &mut Parser) -> Result<(), String> {
    let workload = &mut typed.workload;
    match name {
        "server" => typed.server = text(name, parser)?,
        "socket" => typed.socket = Some(text(name, parser)?.into()),
        "tls-ca" => typed.tls.ca = Some(text(name, parser)?.into()),
        "tls-cert" => typed.tls.cert = Some(text(name, parser)?.into()),
        "tls-key" => typed.tls.key = Some(text(name, parser)?.into()),
        "tls-name" => typed.tls.name = Some(text(name, parser)?),
        "dialect" => {
            typed.dialect = match text(name, parser)?.as_str() {
                "text" => Dialect::Text,
                "resp" => Dialect::Resp,
                other => return Err(format!("--dialect {other}: must be text or resp")),
            }
        }
        "workload" => {
            *workload = WorkloadOptions { seed: workload.seed, ..named(&text(name, parser)?)? };
        }
        "keys" => workload.keys = number(name, parser)?,
        "keys-large" => workload.keys_large = number(name, parser)?,
        "p-large" => workload.large_percent = number(name, parser)?,
        "s-large" => typed.large_bytes_max = Some(number(name, parser)?),
        "value-bytes" => typed.value_bytes = Some(number(name, parser)?),
        "get-share" => workload.get_share = number(name, parser)?,
        "delete-share" => workload.delete_share = number(name, parser)?,
        "keys-per-get" => workload.keys_per_get = number(name, parser)?,
        "key-bytes" => workload.key_sizes = KeySizes::Fixed { key_bytes: number(name, parser)? },
        "first-key" => workload.first_key = number(name, parser)?,
        "zipf" => workload.zipf_exponent = number(name, parser)?,
        "seed" => workload.seed = number(name, parser)?,
        "rate" => {
            let words = "requests per second, or a list such as 10000,20000";
            typed.rates = Some(numbers(name, parser, words)?);
        }
        "p-large-steps" => {
            let words = "percentages, such as 0.125,0.75,0.125";
            typed.large_percents = numbers(name, parser, words)?;
        }
        "distribution" => typed.distribution = true,
        "count-idle" => typed.count_idle = true,
        "closed" => typed.closed = true,
        "depth" => typed.depth = number(name, parser)?,
        "late-max" => typed.late_percent_max = number(name, parser)?,
        "runs" => typed.runs = number(name, parser)?,
        "first-run" => typed.first_run = number(name, parser)?,
        "connections" => typed.connections = Some(number(name, parser)?),
        "connections-large" => typed.connections_large = number(name, parser)?,
        "connections-set" => typed.connections_set = number(name, parser)?,
        "threads" => typed.threads = number(name, parser)?,
        "duration" => typed.duration_s = Some(number(name, parser)?),
        "warmup" => typed.warmup_s = Some(number(name, parser)?),
        "drain" => typed.drain_s = number(name, parser)?,
        "trace" => typed.trace = Some(text(name, parser)?.into()),
        "speed" => typed.speed = number(name, parser)?,
        "floor" => typed.floor = true,
        "no-prefill" => typed.prefill = false,
        "server-pid" => typed.server_pid = Some(number(name, parser)?),
        "cpu" => typed.cpu = Some(number(name, parser)?),
        "json" => typed.json = Some(text(name, parser)?.into()),
        "quiet" => typed.quiet = true,
        "service-times" => typed.service_times = Some(text(name, parser)?.into()),
        "expiring" => typed.beside.expiring = number(name, parser)?,
        "beside" => typed.beside.command = Some(text(name, parser)?),
        "beside-every" => typed.beside.every_s = number(name, parser)?,
        "handshakes" => typed.beside.handshakes_per_s = number(name, parser)?,
        _ => return typed.udp.flag(name, parser),
    }
    Ok(())
}

/// The value of flag `name`, as a list of numbers, which are what these words say.
fn numbers(name: &str, parser: &mut Parser, words: &str) -> Result<Vec<f64>, String> {
    let list = text(name, parser)?;
    let numbers = list.split(',').map(|one| one.trim().parse::<f64>());
    numbers.collect::<Result<_, _>>().map_err(|_| format!("--{name} {list}: {words}"))
}

/// Longest window and warm-up: a day.
const SECONDS_MAX: f64 = 86_400.0;
const RATE_PER_S_MAX: f64 = 1e8;
/// Requests per second where nothing is said.
const RATE_PER_S: f64 = 40_000.0;
/// Window and warm-up where none are asked for.
const DURATION_S: f64 = 10.0;
const WARMUP_S: f64 = 1.0;
/// How long replies are waited for after the window, where nothing else is asked for.
const DRAIN_S: f64 = 5.0;
/// Longest schedule, in bytes of memory.
const SCHEDULE_BYTES_MAX: f64 = 32e9;
/// Where half of the requests leave late, the other half says nothing either.
const LATE_PERCENT_MAX: f64 = 50.0;

/// The flags that say how fast, by how many, for how long and how punctually.
fn check_schedule(typed: &Typed, connections: usize) -> Result<(), String> {
    let duration_s = typed.duration_s.unwrap_or(DURATION_S);
    let warmup_s = typed.warmup_s.unwrap_or(WARMUP_S);
    let rates = typed.rates();
    rates.iter().try_for_each(|&rate| within("rate", rate, 1.0..=RATE_PER_S_MAX))?;
    within("duration", duration_s, 0.001..=SECONDS_MAX)?;
    within("warmup", warmup_s, 0.0..=SECONDS_MAX)?;
    within("drain", typed.drain_s, 0.0..=SECONDS_MAX)?;
    within("late-max", typed.late_percent_max, 0.0..=LATE_PERCENT_MAX)?;
    let &Typed { threads, depth, runs, closed, .. } = typed;
    let counts =
        [("connections", connections), ("threads", threads), ("depth", depth), ("runs", runs)];
    for (flag, value) in counts {
        if value == 0 {
            return Err(format!("--{flag} 0: must be at least 1"));
        }
    }
    if threads > connections {
        return Err(format!(
            "--threads {threads}: must be at most --connections ({connections}), as each thread \
             has connections of its own"
        ));
    }
    if threads > 1 && typed.cpu.is_some() {
        return Err(format!("--cpu: {threads} threads on one CPU cannot spin; leave it out"));
    }
    if depth > 1 && !closed {
        return Err(format!("--depth {depth}: means something with --closed only"));
    }
    // A closed loop has no schedule, and a trace has its own.
    if closed || typed.trace.is_some() || typed.service_times.is_some() {
        return Ok(());
    }
    // It is drawn before the first byte leaves, and must not take the memory of the server that is
    // measured.
    let (rate, seconds) = (rates.iter().copied().fold(0.0, f64::max), warmup_s + duration_s);
    let wanted = arrivals::bytes(rate, seconds);
    let half = cpu::memory_available_bytes().map_or(f64::INFINITY, |bytes| bytes as f64 / 2.0);
    let most = half.min(SCHEDULE_BYTES_MAX);
    if wanted <= most {
        return Ok(());
    }
    Err(format!(
        "--rate {rate} for {seconds} s, --warmup and --duration: the schedule is drawn beforehand \
         and would take {:.1} GB of memory; at most {:.1} GB here (half of what is \
         free, and never more than 32): make it shorter, and give --runs N for more",
        wanted / 1e9,
        most / 1e9
    ))
}

/// Where the server listens, and whether that is encrypted.
fn target(typed: &Typed, is_udp: bool) -> Result<Target, String> {
    let Typed { server, socket, tls, .. } = typed;
    match (socket, tls.is_asked_for()) {
        (None, false) => Ok(Target::Tcp(server.clone())),
        (Some(path), false) => Ok(Target::Unix(path.clone())),
        (None, true) if !is_udp => Ok(Target::Tls(server.clone(), tls.read(server)?)),
        (_, true) => Err("--tls-ca: TCP alone is encrypted; leave out --socket and --udp".into()),
    }
}

/// The flags say which requests have connections for themselves; this checks and returns that.
fn own(typed: &Typed, is_udp: bool) -> Result<Own, String> {
    let &Typed { connections_large, connections_set, threads, closed, .. } = typed;
    let (own, flag) = match (connections_large, connections_set) {
        (0, 0) => return Ok(Own::Nobody),
        (large, 0) => (Own::Large(large), format!("--connections-large {large}")),
        (0, sets) => (Own::Sets(sets), format!("--connections-set {sets}")),
        (_, sets) => {
            return Err(format!("--connections-set {sets}: leave out --connections-large"));
        }
    };
    match closed || is_udp || threads > 1 {
        true => Err(format!(
            "{flag}: for one thread's open loop over connections; leave out --closed, --udp and \
             --threads"
        )),
        false => Ok(own),
    }
}

fn check(typed: Typed, arguments: Vec<String>) -> Result<Invocation, String> {
    let Typed { threads, depth, runs, .. } = typed;
    let duration_s = typed.duration_s.unwrap_or(DURATION_S);
    let warmup_s = typed.warmup_s.unwrap_or(WARMUP_S);
    let udp = typed.udp.check()?;
    if udp.is_some() && typed.socket.is_some() {
        return Err("--udp: needs a --server with an address, not a --socket".into());
    }
    let default = if udp.is_some() { SOCKETS_UDP } else { CONNECTIONS };
    let connections = typed.connections.unwrap_or(default);
    check_schedule(&typed, connections)?;
    typed.beside.check(typed.dialect)?;
    let target = target(&typed, udp.is_some())?;
    let own = own(&typed, udp.is_some())?;
    let sizes = sizes(&typed)?;
    let get_share = if typed.floor { 1.0 } else { typed.workload.get_share };
    let workload = Workload::new(WorkloadOptions { sizes, get_share, ..typed.workload.clone() })?;
    if udp.is_some() || typed.floor {
        check_simple(&typed, &workload, udp.is_some())?;
    }
    let modes = match typed.closed {
        true => vec![Mode::Closed { depth }],
        false => typed.rates().iter().map(|&rate_per_s| Mode::Open { rate_per_s }).collect(),
    };
    let plan = Plan {
        target,
        dialect: typed.dialect,
        steps: steps(&workload, &typed.large_percents, typed.closed)?,
        beside: typed.beside.clone(),
        workload,
        modes,
        late_share_max: typed.late_percent_max / 100.0,
        runs,
        first_run: typed.first_run,
        connections,
        own,
        threads,
        duration: Duration::from_secs_f64(duration_s),
        warmup: Duration::from_secs_f64(warmup_s),
        drain: Duration::from_secs_f64(typed.drain_s),
        distribution: typed.distribution,
        count_idle: typed.count_idle,
        prefill: typed.prefill && !typed.floor,
        floor: typed.floor,
        udp,
        trace: None,
        server_pid: typed.server_pid,
        arguments,
    };
    let plan = match &typed.trace {
        Some(path) => with_trace(plan, path, &typed)?,
        None => plan,
    };
    if typed.service_times.is_some() {
        service::check(&plan)?;
        if typed.json.is_some() || typed.closed {
            return Err(
                "--service-times: has a closed loop of its own; leave out --closed, --json".into(),
            );
        }
    }
    let Typed { cpu, json, service_times, quiet, .. } = typed;
    Ok(Invocation { plan, cpu, json, service_times, quiet })
}

/// The plan with the requests of a trace in place of those that would be drawn.
fn with_trace(plan: Plan, path: &Path, typed: &Typed) -> Result<Plan, String> {
    if plan.udp.is_some()
        || plan.floor
        || typed.closed
        || plan.threads > 1
        || !plan.steps.is_empty()
        || typed.rates.is_some()
    {
        return Err("--trace: has a schedule and items of its own; leave out --udp, --floor, \
                    --closed, --threads, --rate (--speed N is N times as fast), \
                    --p-large-steps and the like"
            .into());
    }
    within("speed", typed.speed, 1e-3..=1e6)?;
    let mut trace = Trace::open(path, typed.speed)?;
    let warmup = Duration::from_secs_f64(typed.warmup_s.unwrap_or(0.0));
    let whole = Duration::from_nanos(trace.duration_ns);
    let wanted =
        typed.duration_s.map_or(whole, |seconds| warmup + Duration::from_secs_f64(seconds));
    let ends = whole.min(wanted);
    let duration = ends.saturating_sub(warmup);
    if duration.is_zero() {
        return Err(format!("--warmup: the trace ends after {:.3} s", whole.as_secs_f64()));
    }
    trace.arrivals.retain(|arrival| u128::from(arrival.due_ns) < ends.as_nanos());
    let rate_per_s = trace.arrivals.len() as f64 / ends.as_secs_f64();
    let items = std::mem::take(&mut trace.items);
    let workload = Workload::of_items(items, plan.workload.options().seed)?;
    let modes = vec![Mode::Open { rate_per_s }];
    let trace = Some(Arc::from(trace.arrivals));
    Ok(Plan { workload, modes, duration, warmup, prefill: false, trace, ..plan })
}

/// How values are sized: by the named workload, and by what else was said of it.
fn sizes(typed: &Typed) -> Result<Sizes, String> {
    let Typed { value_bytes, large_bytes_max, .. } = *typed;
    if let Some(value_bytes) = value_bytes {
        return Ok(Sizes::Fixed { value_bytes });
    }
    let Some(largest) = large_bytes_max else { return Ok(typed.workload.sizes) };
    match typed.workload.sizes {
        Sizes::Etc { .. } => Ok(Sizes::Etc { large_bytes_max: largest }),
        Sizes::Pair { small_bytes, .. } => {
            let (large_bytes_min, large_bytes_max) = (largest, largest);
            Ok(Sizes::Pair { small_bytes, large_bytes_min, large_bytes_max })
        }
        _ => Err(format!("--s-large {largest}: this workload has no large keys of its own")),
    }
}

/// Datagrams have whole GETs, and floors GETs of short keys.
fn check_simple(typed: &Typed, workload: &Workload, is_udp: bool) -> Result<(), String> {
    let options = workload.options();
    if options.pattern != Pattern::Popular {
        return Err("--udp, --floor: keys are drawn by popularity; leave out a --workload that \
                    scans or writes what it read"
            .into());
    }
    let keys = u64::from(options.keys_per_get);
    let is_of_floor = typed.value_bytes.is_some()
        && typed.dialect == Dialect::Text
        && options.delete_share == 0.0
        && options.key_sizes == KeySizes::default()
        && !(is_udp && keys > 1);
    if typed.floor && !is_of_floor {
        return Err(format!(
            "--floor: it answers GETs with values of one size, by memcached's protocol, keys of \
             {KEY_BYTES} bytes, and by --udp one key at a time; give the --value-bytes that it was \
             started with, and leave out --dialect, --workload, --delete-share, --key-bytes and, \
             with --udp, --keys-per-get"
        ));
    }
    if is_udp && keys > 1 {
        let KeySizes::Fixed { key_bytes } = options.key_sizes else {
            return Err("--udp, --keys-per-get: keys are of one length; give --key-bytes and \
                        leave out --workload"
                .into());
        };
        let bytes = "get\r\n".len() as u64 + keys * (1 + key_bytes);
        if bytes > FRAME_BYTES_MAX as u64 {
            return Err(format!(
                "--keys-per-get {keys}: of {key_bytes} bytes each they are {bytes}, and by --udp \
                 a GET has no more than {FRAME_BYTES_MAX}"
            ));
        }
    }
    Ok(())
}

/// The workloads that take turns.
fn steps(workload: &Workload, percents: &[f64], closed: bool) -> Result<Vec<Workload>, String> {
    if closed && !percents.is_empty() {
        return Err("--p-large-steps: a closed loop has no schedule to divide".into());
    }
    let step = |&large_percent: &f64| {
        Workload::new(WorkloadOptions { large_percent, ..workload.options().clone() })
    };
    percents.iter().map(step).collect()
}

#[cfg(test)]
mod tests;
