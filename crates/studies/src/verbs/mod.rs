//! `laneway bench verbs`: what a GET and a PUT cost in round trips and verbs, counted as they run,
//! for HERD's way and the designs that it is compared with (HERD §5.1); and, in a closed loop, in
//! time. The designs are those of `crate::rivals`, both ends of them in this process; a
//! Laneway that serves (`serve --shm`) can be counted beside them. On a device for RDMA, it runs
//! HERD's microbenchmark of verbs (§3.2), or measures what clients of a Laneway that ask for
//! nothing cost one that asks.
//!
//! What the numbers say and what not: they are of shared memory, where a READ takes no time of a
//! card and a round trip none of a wire. Counts carry over to a network, times do not.

mod closed;
mod counted;
mod flags;
mod laneway;
mod many;
mod report;
mod rig;
mod table;
mod trials;

pub use flags::{HELP, Options, parse};
pub use report::{Beside, Cost, Counted, Posts, Report, SCHEMA, Timed, Tried};

use laneway_load::arguments::carry_out;
use laneway_load::output;
use laneway_load::values::Values;
use rig::Items;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs with these arguments, `verbs` not among them.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    carry_out("bench verbs", HELP, parse(arguments), |options| {
        let report = run(&options)?;
        show(&options, &report)?;
        Ok(report.is_good())
    })
}

/// Counts, or measures, everything that is asked for.
pub fn run(options: &Options) -> Result<Report, String> {
    let values = Values::new(options.seed);
    let mut report = Report { schema: SCHEMA.into(), ..Report::default() };
    if let Some(asked) = &options.trials {
        for &bytes in &options.value_bytes {
            report.tried.extend(trials::run(asked, bytes)?);
        }
        return Ok(report);
    }
    for &value_bytes in &options.value_bytes {
        let Options { keys, key_bytes, seed, .. } = *options;
        let items = Items { keys, key_bytes, value_bytes, seed, values: &values };
        if let Some(asked) = &options.many {
            report.at_most = asked.at_most;
            report.beside.extend(many::run(asked, &items)?);
            continue;
        }
        for &window in &options.windows {
            if let Some(path) = &options.shm {
                report.counted.extend(laneway::count(path, &items, window)?);
            }
            if let Some(closed) = &options.closed {
                let timed = closed::rounds(&options.designs, &items, window, closed)?;
                report.timed.extend(timed);
                continue;
            }
            for &design in &options.designs {
                report.counted.extend(counted::count(design, &items, window)?);
            }
        }
    }
    Ok(report)
}

fn show(options: &Options, report: &Report) -> Result<(), String> {
    let mut text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    text.push('\n');
    let json = options.json.as_deref().map(|path| (path, text.as_str()));
    output::show(&table::render(report), json)
}
