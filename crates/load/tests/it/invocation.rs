//! A whole invocation: a command line in, a report out, as data and as a table.

use crate::scripted::{Fault, serve};
use crate::within_tries;
use laneway_load::cli;
use laneway_load::laps::Laps;
use laneway_load::pairs::definition::{self, Kind};
use laneway_load::phases::Phases;
use laneway_load::report::json::{Report, SCHEMA};
use laneway_load::report::table;
use laneway_load::run::{Plan, run};
use serde_json::{Value, json};
use std::path::Path;

fn plan(line: &str) -> Plan {
    cli::plan(line.split_ascii_whitespace()).unwrap()
}

const SMALL: &str = "--keys 200 --keys-large 10 --p-large 20 --s-large 50000 --warmup 0.02 \
                     --drain 60";

fn report(flags: &str) -> Report {
    let (address, _) = serve(Fault::None);
    run(&plan(&format!("--server {address} {SMALL} {flags}"))).unwrap()
}

/// Of a closed loop in whose window every kind of request came and went: a thread without a CPU
/// lets it pass.
fn report_of_all(flags: &str) -> Report {
    within_tries(|| {
        let report = report(&format!("--closed {flags} --duration 0.1"));
        let all = &report.runs[0].latency_us.as_ref().expect("closed loops have latencies");
        let kinds = [all.small_get, all.small_set, all.large_get, all.large_set];
        kinds.iter().all(|kind| kind.count > 0).then_some(report)
    })
}

#[test]
fn a_report_comes_back_from_json_as_it_was() {
    let report = report("--rate 500,1000 --runs 2 --duration 0.1 --connections 4 --threads 2");
    let text = serde_json::to_string(&report).unwrap();
    let again: Report = serde_json::from_str(&text).unwrap();
    assert_eq!((again.runs.len(), again.threads), (4, 2));
    assert_eq!(again.schema, SCHEMA);
    // Not the floats: their last digit may change on the way.
    let counted = |report: &Report| -> Vec<_> {
        report
            .runs
            .iter()
            .map(|run| (run.mode, run.requests.counts.due, run.requests.counts.hits))
            .collect()
    };
    assert_eq!(counted(&again), counted(&report));
    assert_eq!(again.prefill.unwrap().items, 200);
    for run in &again.runs {
        assert_eq!(run.latency_us.is_none(), run.verdict.refused.is_some());
        assert_eq!(run.requests.counts.hits + run.requests.counts.stored, run.requests.counts.due);
        assert_eq!(run.server.as_ref().unwrap().source, "rusage");
    }
}

#[test]
fn a_trace_is_replayed_as_it_is_written() {
    let name = format!("laneway-trace-{}.csv", std::process::id());
    let path = std::env::temp_dir().join(name);
    let rows = "7,a,20,300,1,set,0\n7,b,12,40,1,set,60\n8,a,20,300,1,get,0\n8,b,12,40,1,gets,0\n\
                8,c,9,5,2,get,0\n8,a,20,0,2,delete,0\n9,a,20,300,2,get,0\n";
    std::fs::write(&path, rows).unwrap();
    // One connection: requests are carried out in the order of the trace.
    let report =
        report(&format!("--trace {} --warmup 0 --speed 20 --connections 1", path.display()));
    std::fs::remove_file(path).unwrap();
    let requests = &report.runs[0].requests.counts;
    assert_eq!((requests.due, requests.stored, requests.deleted), (7, 2, 1));
    assert_eq!((requests.hits, requests.misses), (2, 2));
    assert_eq!((report.duration_s, report.prefill), (0.15, None));
    assert_eq!(requests.value_bytes, 2 * (300 + 40));
}

#[test]
fn distributions_are_in_the_report_where_they_are_asked_for() {
    let report = report_of_all("--depth 4 --distribution");
    let run = &report.runs[0];
    let points = &run.distribution.as_ref().unwrap().small;
    assert!(points.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1), "{points:?}");
    let median = points.iter().find(|(share, _)| *share == 0.5).unwrap().1;
    assert_eq!(median, run.latency_us.as_ref().unwrap().small.p50);
}

#[test]
fn a_table_shows_the_latencies_or_why_there_are_none() {
    for report in [report("--rate 1000 --duration 0.1"), report_of_all("--depth 4")] {
        let table = table::render(&report);
        assert!(table.contains("prefilled 200 items"), "{table}");
        assert!(table.contains("small get") != table.contains("refused: "), "{table}");
        assert!(table.contains("server CPU"), "{table}");
        assert!(table.contains("(scripted)"), "{table}");
    }
}

#[test]
fn a_run_in_steps_is_told_part_by_part() {
    // However late: what is asserted are counts, and these are drawn beforehand.
    let steps = "--p-large-steps 0,20,0 --rate 600 --duration 0.6 --connections-large 2";
    let report = report(&format!("{steps} --get-share 1 --late-max 50"));
    let run = &report.runs[0];
    // A machine on which more than half left late shows no latency at all.
    assert_eq!(run.phases.is_none(), run.verdict.refused.is_some());
    if let Some(told) = &run.phases {
        assert_eq!((told.parts.len(), told.slices.len()), (3, 36));
        let small: u64 = told.parts.iter().map(|part| part.small.count).sum();
        assert_eq!(small + run.requests.counts.large, run.requests.counts.due);
        assert!(run.requests.counts.large > 0 && told.parts[0].large_megabytes_per_s == 0.0);
    }
}

#[test]
fn without_a_server_there_is_an_error_that_names_it() {
    // Port 1 of the loopback address: reserved, and nobody listens there.
    let message = run(&plan("--server 127.0.0.1:1")).unwrap_err();
    assert!(message.starts_with("no server answers at 127.0.0.1:1"), "{message}");
}

#[test]
fn every_figure_of_a_bench_definition_is_in_the_report() {
    let pid = std::process::id();
    // A closed loop has latencies however slow the machine is, and no laps.
    let report = report_of_all(&format!("--depth 2 --server-pid {pid}"));
    let mut run = serde_json::to_value(&report.runs[0]).unwrap();
    assert!(run["quiet"].is_null());
    run["quiet"] = serde_json::to_value(Laps::new(0..1).quiet()).unwrap();
    run["phases"] = serde_json::to_value(Phases::new(0..3, 3).told(&[])).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (id, _) in definition::list(&root).unwrap() {
        let definition = definition::read(&root, &id).unwrap();
        for figure in &definition.figures {
            let run_of = definition.runs.iter().find(|one| one.name == figure.of).unwrap();
            if definition.kind_of(run_of) == Kind::Bench {
                // What the lane in the kernel answered is put beside it where a server has one,
                // what one with a data folder read from it, and what was copied meanwhile.
                let command = &definition.server(run_of).command;
                let has = |what: bool, value: Value| Value::from(what.then_some(value));
                run["lane"] = has(command.contains("--kernel-lane"), json!({ "share": 0.5 }));
                let read = json!({ "items_read": 9.0, "mb_read_per_s": 0.5 });
                run["tier"] = has(command.contains("--data-dir"), read);
                let copied = json!({ "done": 2.0, "mb": 490.0, "under_way_share": 1.0 });
                run["backup"] = has(run_of.backup, copied);
                // And what its metrics took, where they are scraped.
                if command.contains("--admin") {
                    let names = "cpu_ms_mean cpu_ms_max bytes connections items clients \
                        tier_samples udp_samples";
                    names.split(' ').for_each(|name| run["scrape"][name] = 0.5.into());
                }
                // And what all CPUs did, where what they have left is counted.
                let load = format!("{} {}", definition.load, run_of.load);
                let busy_us = load.contains("--count-idle").then_some(0.5);
                run["client"]["cpu_0_us_per_request"] = json!(busy_us);
                run["client"]["machine_cpu_us_per_request"] = json!(busy_us);
                run["client"]["machine_cpu_us_per_key"] = json!(busy_us);
                assert!(run.pointer(&figure.value).is_some_and(|v| v.is_f64()), "{id}: {figure:?}");
            }
        }
    }
}
