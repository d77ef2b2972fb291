//! `--slow-ms`: the log of slow requests, and at `-vvv` of large ones. Workers note them in memory
//! ([`SlowLog`]); the main thread, which has nothing else to do, writes them down, so that a log
//! that nobody reads stops no worker.

use crate::flags::Flags;
use crate::logging;
use laneway_server::latency::noted::NotedRequest;
use laneway_server::latency::slow_log::SlowLog;
use laneway_server::shared::Shared;
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

/// Write what was noted since the last time, slow ones first. `unsaid`: requests that no line was
/// written for.
fn write<S>(log: &mut SlowLog, shared: &Shared<S>, unsaid: &mut u64) {
    let (slow, large) = (shared.slow.is_logged(), log::log_enabled!(Level::Trace));
    if !slow && !large {
        *unsaid = 0;
        return log.pass_over(shared);
    }
    let fresh = log.take(shared);
    *unsaid += fresh.lost;
    let mut lines = 0;
    let (first, then): (Vec<_>, Vec<_>) =
        fresh.requests.iter().partition(|(_, request)| request.is_slow);
    for (worker, request) in first.into_iter().chain(then) {
        let level = match () {
            () if request.is_slow && slow => Level::Info,
            () if request.times.is_large() && large => Level::Trace,
            () => continue,
        };
        // A reader that takes nothing gets none of these: other lines wait for it.
        if lines == LINES_PER_TICK || !logging::has_room() {
            *unsaid += 1;
            continue;
        }
        let said = std::mem::take(unsaid);
        with_record(level, *worker, request, said, |record| log::logger().log(record));
        lines += 1;
    }
}

/// What is written of a request.
fn with_record(
    level: Level,
    worker: usize,
    request: &NotedRequest,
    unsaid: u64,
    write: impl FnOnce(&Record<'_>),
) {
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
    write(&record.args(format_args!("{what}")).build());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::{Format, line};
    use laneway_server::latency::noted::{Noted, Times};

    /// A pipe that has any room has room for so much.
    const LINE_BYTES_MAX: usize = 4096;

    #[test]
    fn no_line_is_longer_than_a_pipe_with_any_room_takes() {
        let times = Times {
            ended_nanos: u64::MAX,
            unix_seconds: u32::MAX,
            row: 1,
            requests: u64::MAX,
            bytes: u64::MAX,
            took_nanos: u64::MAX,
            wait_nanos: u64::MAX / 3,
            drain_nanos: u64::MAX / 3,
        };
        let noted = Noted::default();
        noted.note_owner(&times, 1, &"\u{1}".repeat(1000), &[1; 1000]);
        let request = noted.read().next().expect("it was noted");
        for format in [Format::Text, Format::Json] {
            let write = |record: &Record<'_>| {
                let line = line(format, 0, record);
                assert!((300..=LINE_BYTES_MAX).contains(&line.len()), "{}: {line}", line.len());
            };
            with_record(Level::Info, usize::MAX, &request, u64::MAX, write);
        }
    }
}
