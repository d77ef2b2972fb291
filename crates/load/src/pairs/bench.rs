//! One run of `laneway bench` against a server that is up.
//!
//! The client is a process of its own, built for release, whoever started the comparison: a runner
//! built for debugging must not slow it. Its report comes back as JSON in a file.

use super::definition::{Definition, RunDefinition};
use super::process;
use super::server::{Server, words};
use super::{Attempt, Doubt, Options};
use crate::connection::Target;
use crate::cpu::CLIENT_CPU;
use crate::dialect::Dialect;
use crate::report::json::{Mode, Report, Run};
use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;

/// Exit status of a run that failed or may not be believed; its report says why.
const EXIT_NOT_GOOD: i32 = 1;

/// A run of a definition, and the server that it asks.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub definition: &'a Definition,
    pub run: &'a RunDefinition,
    pub server: &'a Server,
    pub options: &'a Options,
}

/// Writes every key of a run, telling how far it is, and warms the server up.
pub(super) fn fill(client: Client<'_>) -> Result<(), String> {
    let extra = words("--duration 0.5 --warmup 0.5");
    // The terminal's reader sees how far it is; nobody else does.
    let is_shown = std::io::stderr().is_terminal();
    let said = if is_shown { Stdio::inherit() } else { Stdio::piped() };
    let report = call(client, &extra, said)?;
    match report.runs.iter().find_map(|run| run.verdict.failed.as_ref()) {
        Some(fault) => Err(format!("{}: {fault}", client.run.name)),
        None => Ok(()),
    }
}

/// Makes a run; the inner error says why it does not count and may be made again.
pub(super) fn measure(client: Client<'_>, round: usize) -> Attempt {
    let Client { definition, run, .. } = client;
    // What an earlier run deleted is there again.
    if definition.plan(run)?.workload.options().delete_share > 0.0 {
        fill(client)?;
    }
    // Another seed would be other sizes; another schedule is what the rounds should differ in.
    let extra = words(&format!("--no-prefill --first-run {round}"));
    let report = call(client, &extra, Stdio::piped())?;
    let [one] = report.runs.as_slice() else {
        return Err(format!("{}: one run was asked for, {} came", run.name, report.runs.len()));
    };
    if let Some(fault) = &one.verdict.failed {
        return Err(format!("{}: {fault}", run.name));
    }
    let measured = serde_json::to_value(one).map_err(|error| error.to_string())?;
    Ok(match doubt(definition, one, report.duration_s) {
        Some(why) => Err(Doubt { why, measured }),
        None => Ok(measured),
    })
}

/// Why a run does not count: what the host or the client did to it. No latency is looked at.
fn doubt(definition: &Definition, run: &Run, duration_s: f64) -> Option<String> {
    // That a server falls behind is found out about it, and not the host's doing.
    if let Some(why) = run.verdict.refused.as_ref().filter(|_| !run.verdict.fell_behind) {
        return Some(why.clone());
    }
    // A closed loop is never late, only slow; then the client's own waiting tells. Where all have
    // every CPU the server's own threads are among those that it waits for, which is no fault.
    let waited_share = run.client.kept_waiting_ms / 1e3 / duration_s;
    let shares = definition.place.every_cpu && matches!(run.mode, Mode::Closed { .. });
    if waited_share > definition.waited_share_max && !shares {
        return Some(format!(
            "others had the client's CPU for {:.1} % of the time",
            100.0 * waited_share
        ));
    }
    let late_share = 1.0 - run.requests.on_time_share;
    if late_share > definition.late_share_max {
        return Some(format!("{:.2} % of the requests left late", 100.0 * late_share));
    }
    if let Some(quiet) = run.quiet {
        let wanted = definition.quiet_laps_share_min * quiet.laps as f64;
        if (quiet.laps_quiet as f64) < wanted {
            let crate::laps::Quiet { laps_quiet, laps, .. } = quiet;
            return Some(format!("the client kept its schedule in {laps_quiet} of {laps} laps"));
        }
    }
    if definition.no_misses && run.requests.counts.misses > 0 {
        return Some(format!("{} GETs missed, and none should", run.requests.counts.misses));
    }
    None
}

/// Calls the client, whose words go where `said` leads: into the error, where they are piped.
fn call(client: Client<'_>, extra: &[String], said: Stdio) -> Result<Report, String> {
    let Client { definition, run, server, options } = client;
    let json = std::env::temp_dir().join(format!("laneway-bench-{}.json", std::process::id()));
    let mut command = client_command(options);
    command.extend(whom(&options.root, server));
    let dialect = match server.dialect {
        Dialect::Text => "text",
        Dialect::Resp => "resp",
    };
    command.extend(words(&format!("--dialect {dialect} --cpu {CLIENT_CPU} --quiet")));
    if let Some(pid) = server.pid() {
        command.extend(words(&format!("--server-pid {pid}")));
    }
    command.extend(words(&definition.load));
    command.extend(words(&run.load));
    command.extend_from_slice(extra);
    command.extend(["--json".into(), json.to_string_lossy().into_owned()]);
    let output = process::command(&command).stdout(Stdio::null()).stderr(said).output();
    let output = output.map_err(|error| format!("{}: {error}", command[0]))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && output.status.code() != Some(EXIT_NOT_GOOD) {
        return Err(format!("{} ended with {}\n{said}", command.join(" "), output.status));
    }
    let report = std::fs::read_to_string(&json).map_err(|_| "no report came".to_owned());
    // A report that stays behind would be taken for the next one's.
    let _ = std::fs::remove_file(&json);
    let report = report.and_then(|text| {
        serde_json::from_str(&text).map_err(|error| format!("its report: {error}"))
    });
    let report: Report =
        report.map_err(|error| format!("{}: {error}\n{said}", command.join(" ")))?;
    if report.build != "release" {
        return Err(format!("{} is not built for release", command[0]));
    }
    Ok(report)
}

/// The client's command, without flags.
pub fn client_command(options: &Options) -> Vec<String> {
    match options.client.is_empty() {
        true => vec![options.laneway.to_string_lossy().into_owned(), "bench".into()],
        false => options.client.clone(),
    }
}

/// The flags that say whom to ask, of the client and of laneway's other tools.
pub(super) fn whom(root: &Path, server: &Server) -> Vec<String> {
    match &server.target {
        Target::Tcp(address) => vec!["--server".into(), address.clone()],
        Target::Tls(address, _) => {
            let ca = super::tls_ca(root).to_string_lossy().into_owned();
            vec!["--server".into(), address.clone(), "--tls-ca".into(), ca]
        }
        Target::Unix(path) => vec!["--socket".into(), path.to_string_lossy().into_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::definition::tests::example;
    use crate::recorder::Counts;
    use crate::report::json::{ClientCpu, Requests};
    use crate::verdict::Verdict;

    fn run(on_time_share: f64, misses: u64, kept_waiting_ms: f64, refused: Option<&str>) -> Run {
        let counts = Counts { misses, ..Counts::default() };
        Run {
            mode: Mode::Closed { depth: 1 },
            requests: Requests { on_time_share, counts, ..Requests::default() },
            latency_us: None,
            quiet: None,
            phases: None,
            distribution: None,
            udp: None,
            server: None,
            client: ClientCpu { kept_waiting_ms, ..ClientCpu::default() },
            verdict: Verdict { refused: refused.map(Into::into), ..Verdict::default() },
        }
    }

    #[test]
    fn a_run_counts_only_where_the_client_was_undisturbed() {
        for (one, no_misses, words) in [
            (run(1.0, 0, 0.0, None), true, None),
            (run(0.996, 5, 290.0, None), false, None),
            (run(0.989, 0, 0.0, None), false, Some("1.10 % of the requests left late")),
            (run(1.0, 1, 0.0, None), true, Some("1 GETs missed")),
            (run(1.0, 0, 310.0, None), false, Some("for 3.1 % of the time")),
            (run(1.0, 0, 0.0, Some("too slow")), false, Some("too slow")),
        ] {
            let doubt = doubt(&Definition { no_misses, ..example() }, &one, 10.0);
            match words {
                None => assert_eq!(doubt, None),
                Some(words) => assert!(doubt.is_some_and(|said| said.contains(words)), "{words}"),
            }
        }
        // Who shares every CPU waits for the servers, too, but an open loop that waits is late.
        let mut definition = example();
        definition.place.every_cpu = true;
        assert_eq!(doubt(&definition, &run(1.0, 0, 5000.0, None), 10.0), None);
        let open = Run { mode: Mode::Open { rate_per_s: 1.0 }, ..run(1.0, 0, 5000.0, None) };
        assert!(doubt(&definition, &open, 10.0).is_some());
    }
}
