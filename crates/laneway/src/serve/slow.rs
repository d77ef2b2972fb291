//! `--slow-ms`: the log of slow requests, and at `-vvv` of large ones. Workers note them in memory
//! ([`SlowLog`]); the main thread, which has nothing else to do, writes them down, so that a log
//! that nobody reads stops no worker.

use crate::flags::Flags;
use laneway_server::latency::noted::NotedRequest;
use laneway_server::shared::Shared;
use laneway_server::slow_log::SlowLog;
use laneway_server::stats::operation_of;
use log::kv::Value;
use log::{Level, Record};
use std::time::Duration;

/// How often it looks.
const TICK: Duration = Duration::from_millis(250);
/// Lines that it writes each time: 40 a second.
const LINES_PER_TICK: usize = 10;
const MICROSECOND_NANOS: u64 = 1_000;

/// What is slow, if that is said.
pub fn setting(flags: &Flags) -> Result<Option<Duration>, String> {
    match flags.slow_milliseconds {
        Some(0) => Err("--slow-ms 0: must be at least 1; leave the flag out to log none".into()),
        given => Ok(given.map(Duration::from_millis)),
    }
}

/// Write until somebody asks the server to stop.
pub fn log_until_stop<S>(shared: &Shared<S>) {
    let (mut log, mut unsaid) = (SlowLog::default(), 0);
    loop {
        let stops = shared.wait_for_stop_within(TICK);
        write(&mut log, shared, &mut unsaid);
        if stops {
            return;
        }
    }
}

/// Write what was noted since the last time. `unsaid`: requests that no line was written for.
fn write<S>(log: &mut SlowLog, shared: &Shared<S>, unsaid: &mut u64) {
    let (slow, large) = (shared.slow.is_logged(), log::log_enabled!(Level::Trace));
    if !slow && !large {
        *unsaid = 0;
        return log.pass_over(shared);
    }
    let slow_nanos = shared.slow.nanos();
    let fresh = log.take(shared);
    *unsaid += fresh.lost;
    let mut lines = 0;
    for (worker, request) in &fresh.requests {
        let is_slow = request.times.took_nanos >= slow_nanos;
        let is_told = is_slow && slow || request.times.is_large() && large;
        match is_told {
            true if lines < LINES_PER_TICK => {
                let level = if is_slow { Level::Info } else { Level::Trace };
                write_one(level, *worker, request, std::mem::take(unsaid));
                lines += 1;
            }
            true => *unsaid += 1,
            false => {}
        }
    }
}

fn write_one(level: Level, worker: usize, request: &NotedRequest, unsaid: u64) {
    let times = &request.times;
    let micros = |nanos: u64| Value::from(nanos / MICROSECOND_NANOS);
    let key = request.key.escape_ascii().to_string();
    let lane = if times.is_large() { "large" } else { "small" };
    let mut pairs = vec![
        ("operation", Value::from(operation_of(times.row))),
        ("lane", Value::from(lane)),
        ("requests", Value::from(times.requests)),
        ("bytes", Value::from(times.bytes)),
        ("wait_us", micros(times.wait_nanos)),
        ("service_us", micros(times.service_nanos())),
        ("drain_us", micros(times.drain_nanos)),
        ("client", Value::from(&*request.client)),
        ("worker", Value::from(worker)),
    ];
    if !key.is_empty() {
        pairs.push(("key", Value::from(&*key)));
    }
    if unsaid > 0 {
        pairs.push(("unsaid", Value::from(unsaid)));
    }
    let what = if level == Level::Info { "slow request" } else { "large request" };
    let (mut record, pairs) = (Record::builder(), &pairs[..]);
    record.level(level).target(module_path!()).key_values(&pairs);
    log::logger().log(&record.args(format_args!("{what}")).build());
}
