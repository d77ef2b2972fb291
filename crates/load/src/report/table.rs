//! The report for people: one line for each load, medians over its runs with their spread.

use super::json::{Latencies, Mode, Quantiles, Report, Run};
use crate::cpu::Machine;
use crate::laps::{LapQuantiles, Quiet};
use crate::recorder::Counts;
use crate::workload::{Sizes, WorkloadOptions};
use std::fmt::Write;

/// Writes the table.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let _ = heading(report, &mut out);
    // Runs of the same load, together.
    for runs in report.runs.chunk_by(|one, next| one.mode == next.mode) {
        let _ = rows(runs, &mut out);
    }
    for run in &report.runs {
        let verdict = &run.verdict;
        if let Some(words) = &verdict.failed {
            let _ = writeln!(out, "FAILED: {words}");
        }
        for words in &verdict.warnings {
            let _ = writeln!(out, "warning: {words}");
        }
    }
    out
}

fn heading(report: &Report, out: &mut String) -> std::fmt::Result {
    let Report { target, server_version, connections, duration_s, .. } = report;
    let Machine { cpu_model, cpus, kernel, .. } = &report.machine;
    writeln!(out, "{target} ({server_version}) · {cpu_model} · {cpus} CPUs, Linux {kernel}")?;
    let WorkloadOptions { keys, zipf_exponent, seed, .. } = report.workload;
    let large = percent(report.workload.large_percent);
    let sizes = match report.workload.sizes {
        Sizes::Fixed { value_bytes } => format!("values of {value_bytes} B"),
        Sizes::Etc { large_bytes_max } => format!("{large} % large up to {large_bytes_max} B"),
        Sizes::Pair { small_bytes, large_bytes_max, .. } => {
            format!("{large} % of up to {large_bytes_max} B, else {small_bytes} B")
        }
        Sizes::Listed => "values as the trace has them".into(),
        Sizes::Spread(spread) => format!("exponential sizes, mean {:.0} B", spread.mean()),
    };
    writeln!(
        out,
        "{keys} keys, {sizes}, {:.0} % GET, Zipf {zipf_exponent} · {connections} connections · \
         {duration_s} s a run · seed {seed}",
        100.0 * report.workload.get_share,
    )?;
    if let Some(prefill) = &report.prefill {
        writeln!(
            out,
            "prefilled {} items, {:.1} MB, in {:.1} s",
            prefill.items,
            prefill.value_bytes as f64 / 1e6,
            prefill.seconds
        )?;
    }
    if report.build != "release" {
        writeln!(out, "A DEBUG BUILD: these numbers mean nothing. Build with --release.")?;
    }
    Ok(())
}

fn rows(runs: &[Run], out: &mut String) -> std::fmt::Result {
    let of = |value: fn(&Run) -> f64| spread(runs.iter().map(value));
    let total =
        |value: fn(&Counts) -> u64| runs.iter().map(|run| value(&run.requests.counts)).sum::<u64>();
    let (offered, latency_word) = match runs[0].mode {
        Mode::Open { rate_per_s } => (format!("{rate_per_s:.0}/s offered"), "latency"),
        Mode::Closed { depth } => (format!("{depth} in flight each"), "round trip"),
    };
    writeln!(
        out,
        "\n{offered} · {}/s answered · {} % on time · {} lost · {} hits, {} misses, {} stored",
        of(|run| run.requests.answered_per_s),
        of(|run| 100.0 * run.requests.on_time_share),
        total(|counts| counts.never_sent + counts.unanswered + counts.lost),
        total(|counts| counts.hits),
        total(|counts| counts.misses),
        total(|counts| counts.stored),
    )?;
    if let Some(words) = runs.iter().find_map(|run| run.verdict.refused.as_ref()) {
        writeln!(out, "refused: {words}")?;
    } else {
        out.push_str(&latencies(runs, latency_word));
    }
    cpu_row(runs, out)
}

/// A row for each kind of request, and below them what the undisturbed laps say.
fn latencies(runs: &[Run], latency_word: &str) -> String {
    type Part = fn(&Latencies) -> Quantiles;
    let parts: [(&str, Part); 4] = [
        ("small get", |latencies| latencies.small_get),
        ("small set", |latencies| latencies.small_set),
        ("large get", |latencies| latencies.large_get),
        ("large set", |latencies| latencies.large_set),
    ];
    let heads = [latency_word, "count", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for (name, part) in parts {
        let quantiles: Vec<Quantiles> =
            runs.iter().filter_map(|run| run.latency_us.as_ref()).map(part).collect();
        let count: u64 = quantiles.iter().map(|quantiles| quantiles.count).sum();
        if count > 0 {
            let of = |value: fn(&Quantiles) -> f64| spread(quantiles.iter().map(value));
            let (p50, p90, p99) = (of(|q| q.p50), of(|q| q.p90), of(|q| q.p99));
            let (p99_9, max) = (of(|q| q.p99_9), of(|q| q.max));
            rows.push(vec![name.into(), count.to_string(), p50, p90, p99, p99_9, max]);
        }
    }
    let quiet: Vec<Quiet> = runs.iter().filter_map(|run| run.quiet).collect();
    let lap = |name: &str, laps: String, part: fn(&Quiet) -> LapQuantiles, words: String| {
        let of = |at: fn(LapQuantiles) -> f64| spread(quiet.iter().map(|one| at(part(one))));
        let (p50, p90, p99) = (of(|at| at.p50), of(|at| at.p90), of(|at| at.p99));
        vec![name.to_owned(), laps, p50, p90, p99, String::new(), words]
    };
    if let Some(Quiet { lap_ms, .. }) = quiet.first() {
        let total = |value: fn(&Quiet) -> u64| quiet.iter().map(value).sum::<u64>();
        let laps = format!("{}/{}", total(|one| one.laps_quiet), total(|one| one.laps));
        let words = format!("median over the laps of {lap_ms:.0} ms on schedule");
        rows.push(lap("small, lap", laps, |one| one.small, words));
    }
    if quiet.iter().any(|one| one.large.p99 != 0.0) {
        let words = "over all of those laps".into();
        rows.push(lap("large, lap", String::new(), |one| one.large, words));
    }
    aligned(&rows)
}

fn cpu_row(runs: &[Run], out: &mut String) -> std::fmt::Result {
    let server: Vec<_> = runs.iter().filter_map(|run| run.server.as_ref()).collect();
    if let Some(first) = server.first() {
        write!(
            out,
            "server CPU {} us a request ({})",
            spread(server.iter().map(|cpu| cpu.cpu_us_per_request)),
            first.source
        )?;
        if first.kept_waiting_ms.is_some() {
            let waited = server.iter().filter_map(|cpu| cpu.kept_waiting_ms);
            write!(out, " · kept waiting {} ms", spread(waited))?;
        }
        write!(out, " · ")?;
    }
    writeln!(
        out,
        "client kept waiting {} ms · stolen {} ms",
        spread(runs.iter().map(|run| run.client.kept_waiting_ms)),
        spread(runs.iter().map(|run| run.client.stolen_ms)),
    )
}

/// Rows of cells, each column as wide as its widest cell.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut out = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(out, "{cell:<width$}  ");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// `median [min..max]`, or just the value where there is one.
pub fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.as_slice() {
        [] => "-".into(),
        [one] => short(*one),
        [low, .., high] => {
            format!("{} [{}..{}]", short(median(&values)), short(*low), short(*high))
        }
    }
}

/// The middle of sorted values; the mean of the two middle ones where their number is even.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Three or four digits that say something.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A share that may be the quotient of two rates.
fn percent(value: f64) -> String {
    if value > 0.0 && value < 0.1 { format!("{value:.4}") } else { short(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_read_well() {
        for (values, words) in [
            (vec![], "-"),
            (vec![48.4], "48.4"),
            (vec![3.0, 1.0, 2.0], "2 [1..3]"),
            (vec![1.0, 2.0, 4.0, 8.5], "3 [1..8.50]"),
            (vec![120.4, 1_000_000.0], "500060 [120..1000000]"),
        ] {
            assert_eq!(spread(values.into_iter()), words);
        }
    }
}
