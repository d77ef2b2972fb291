//! What the page opens with: the small requests of each server over time, while a noisy client
//! fetches and stores very large values in the middle third of the run; the same as percentiles of
//! whole parts (never of chosen laps), and in a sentence, which says so where Laneway lost.

use super::results::{Results, Spread, parts};
use crate::pairs::definition::RunDefinition;
use crate::phases::{InParts, PartOf};
use crate::plot::{self, Chart, Extras, Line, Log};
use crate::report::table::aligned;
use crate::workload::Sizes;
use serde::Deserialize;
use std::fmt::Write;

/// The load of the runs that are looked at, as it stands in their names.
pub const AT: &str = "noisy neighbour";
/// Whose victory or defeat the sentence tells.
const OURS: &str = "laneway";
/// The same server, by Redis' protocol: no rival.
const OURS_BY_RESP: &str = "laneway-resp";
/// The parts of a run, in their order.
const PARTS: [&str; 3] = ["before", "during", "after"];
/// The part in which the noisy client is there.
const DURING: usize = 1;
/// A noisy client that moves less than this share of what it moves elsewhere is held up.
const MOVED_SHARE_MIN: f64 = 0.9;

/// Whether a run is one of these.
pub fn is_one(run: &RunDefinition) -> bool {
    parts(&run.name).1 == AT
}

/// The runs that were asked for, with the name of each one's server.
fn asked(results: Results<'_>) -> impl Iterator<Item = (&str, &RunDefinition)> {
    let runs = results.record.definition.runs.iter().filter(|run| is_one(run));
    runs.map(|run| (parts(&run.name).0, run))
}

/// A run in parts, as each round has it that counts.
fn told(results: Results<'_>, run: &RunDefinition) -> Vec<InParts> {
    let phases = results.measured(run).into_iter().filter_map(|one| one.get("phases"));
    phases.filter_map(|phases| InParts::deserialize(phases).ok()).collect()
}

/// One of the numbers of a part.
type Number = fn(&PartOf) -> f64;

/// A number of a part of a run.
fn of_part(results: Results<'_>, run: &RunDefinition, at: usize, what: Number) -> Option<Spread> {
    let told = told(results, run);
    Spread::of(told.iter().filter_map(|told| told.parts.get(at)).map(what).collect())
}

/// Whether it was asked what the noisy client does, and there is no answer of Laneway; where it was
/// left out, of any server.
pub fn is_unmeasured(results: Results<'_>) -> bool {
    let p99 = |run, part| of_part(results, run, part, |part| part.small.p99);
    let is_measured = |run| p99(run, 0).is_some() && p99(run, DURING).is_some();
    match asked(results).find(|(name, _)| *name == OURS) {
        Some((_, run)) => !is_measured(run),
        None => asked(results).next().is_some() && !asked(results).any(|(_, run)| is_measured(run)),
    }
}

/// The sentence; nothing where the comparison has no such runs.
pub fn sentence(results: Results<'_>) -> Option<String> {
    let sizes = asked(results).find_map(|(_, run)| sizes(results, run))?;
    let told = |(name, run): (&str, &RunDefinition)| {
        let p99 = |part| of_part(results, run, part, |part| part.small.p99);
        let p99 = |part| p99(part).map(|p99| time(p99.median));
        Some(format!("from {} to {} with {name}", p99(0)?, p99(DURING)?))
    };
    let went: Vec<String> = asked(results).filter_map(told).collect();
    if went.is_empty() {
        let what = format!("What one client that moves {sizes} does to others");
        return Some(what + " could not be measured.");
    }
    let mut out = match is_unmeasured(results) {
        true => "There is no result, as Laneway itself could not be measured. ".to_owned(),
        false => String::new(),
    };
    let went = listed(&went);
    let _ = write!(
        out,
        "While one client fetched and stored {sizes}, the small requests' p99 went {went}."
    );
    let without = asked(results).filter(|one| told(*one).is_none()).map(|(name, _)| name);
    let without: Vec<&str> = without.collect();
    if !without.is_empty() {
        let _ = write!(out, " There is no figure of {}; why stands below.", listed(&without));
    }
    Some(out + &verdict(results))
}

/// Who did better than Laneway, if anybody, and whether its small requests were fast because the
/// noisy client was not.
fn verdict(results: Results<'_>) -> String {
    let all: Vec<(&str, f64, f64)> = asked(results)
        .filter_map(|(name, run)| {
            let during = |what: Number| Some(of_part(results, run, DURING, what)?.median);
            let p99 = during(|part| part.small.p99)?;
            Some((name, p99, during(|part| part.large_megabytes_per_s)?))
        })
        .collect();
    let Some(&(_, p99, moved)) = all.iter().find(|(name, ..)| *name == OURS) else {
        return String::new();
    };
    let others = || all.iter().filter(|(name, ..)| *name != OURS && *name != OURS_BY_RESP);
    let mut out = String::new();
    let better: Vec<&str> =
        others().filter(|(_, other, _)| *other < p99).map(|(name, ..)| *name).collect();
    if others().next().is_none() {
        out.push_str(
            " There was nobody to compare with: install memcached, redis or valkey (Debian: \
             apt-get install memcached; in the repository: cargo xtask peers).",
        );
    } else if !better.is_empty() {
        let _ = write!(out, " Laneway lost: it stayed lower with {}.", listed(&better));
    }
    let most = others().map(|(_, _, moved)| *moved).fold(0.0, f64::max);
    if moved < MOVED_SHARE_MIN * most {
        let _ = write!(
            out,
            " With Laneway that client moved {moved:.0} MB/s, and {most:.0} elsewhere: it was \
             held up."
        );
    }
    out
}

/// "values of 1 to 10 MB", as the workload has them.
fn sizes(results: Results<'_>, run: &RunDefinition) -> Option<String> {
    let plan = results.record.definition.plan(run).ok()?;
    let Sizes::Pair { large_bytes_min, large_bytes_max, .. } = plan.workload.options().sizes else {
        return None;
    };
    let mb = |bytes: u64| bytes as f64 / 1e6;
    Some(format!("values of {} to {} MB", mb(large_bytes_min), mb(large_bytes_max)))
}

pub(super) fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [first @ .., before, last] if !first.is_empty() => {
            format!("{}, {before}, and {last}", first.join(", "))
        }
        _ => words.join(" and "),
    }
}

fn time(us: f64) -> String {
    if us < 1_000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) }
}

/// The heads of the table, units in them.
pub const HEADS: [&str; 7] = [
    "server",
    "noisy client",
    "small p50 µs",
    "small p99 µs",
    "small p99.9 µs",
    "it moves MB/s",
    "disturbed",
];

/// The table: of each server that has figures a row for each part, over all of the part's requests.
pub fn rows(results: Results<'_>) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, run) in asked(results) {
        for (part, words) in PARTS.into_iter().enumerate() {
            let cell = |what: Number| Some(of_part(results, run, part, what)?.words(0));
            let cells = [
                cell(|part| part.small.p50),
                cell(|part| part.small.p99),
                cell(|part| part.small.p99_9),
                cell(|part| part.large_megabytes_per_s),
            ];
            let (bad, all) = disturbed(results, run, part);
            if let [Some(p50), Some(p99), Some(p99_9), Some(moved)] = cells {
                let (name, words) = (name.to_owned(), words.to_owned());
                rows.push(vec![name, words, p50, p99, p99_9, moved, format!("{bad} of {all}")]);
            }
        }
    }
    rows
}

/// Disturbed slices of a part, and all of them, over all rounds.
fn disturbed(results: Results<'_>, run: &RunDefinition, part: usize) -> (u64, usize) {
    let told = told(results, run);
    let bad = told.iter().filter_map(|told| told.parts.get(part)).map(|part| part.disturbed).sum();
    (bad, told.iter().map(|told| told.slices.len() / PARTS.len()).sum())
}

/// How much of the time others had the machine, in words.
pub fn disturbance(results: Results<'_>) -> Option<String> {
    let slice_s = asked(results).find_map(|(_, run)| Some(told(results, run).first()?.slice_s))?;
    let parts = asked(results).flat_map(|(_, run)| (0..PARTS.len()).map(move |part| (run, part)));
    let (bad, all) = parts.fold((0, 0), |(bad, all), (run, part)| {
        let (more_bad, more) = disturbed(results, run, part);
        (bad + more_bad, all + more)
    });
    Some(format!(
        "Others had the server's or the client's CPU in {bad} of {all} slices of {slice_s:.2} s \
         (steal, waits for a CPU, requests that left a millisecond late); these are in the \
         percentiles{}.",
        if bad > 0 { ", and hollow in the picture" } else { "" }
    ))
}

/// The picture; nothing where there is nothing to draw.
pub fn picture(results: Results<'_>) -> Option<String> {
    let (mut lines, mut hollow): (Vec<Line>, Vec<Vec<bool>>) = Default::default();
    let mut band = None;
    for name in results.lines() {
        let run = results.run(name, AT);
        let points = run.map_or(Vec::new(), |run| over_time(results, run));
        hollow.push(points.iter().map(|&(_, is_disturbed)| is_disturbed).collect());
        lines.push((name.into(), points.into_iter().map(|(point, _)| point).collect()));
        let first = run.and_then(|run| told(results, run).into_iter().next());
        if let Some(InParts { slice_s, slices, .. }) = first {
            let part_s = slice_s * (slices.len() / PARTS.len()) as f64;
            band = Some((part_s, 2.0 * part_s));
        }
    }
    let chart = Chart {
        title: "p99 of small requests over time",
        x_label: "time (s); the noisy client is there where the ground is grey",
        y_label: "p99 of small requests (µs)",
        log: Log::Vertical,
    };
    plot::svg(chart, &lines, &Extras { hollow, band, ..Extras::default() }).ok()
}

/// The 99th percentile of each slice, at its middle, the median over the rounds; and whether any of
/// the rounds was disturbed there.
fn over_time(results: Results<'_>, run: &RunDefinition) -> Vec<((f64, f64), bool)> {
    let rounds = told(results, run);
    let at = |index: usize| {
        let slices = || rounds.iter().filter_map(|told| told.slices.get(index));
        // Nobody asked in that time, as the client had no CPU.
        let p99 = slices().map(|slice| slice.small_p99).filter(|&p99| p99 > 0.0);
        let p99 = Spread::of(p99.collect())?.median;
        let at_s = (index as f64 + 0.5) * rounds[0].slice_s;
        Some(((at_s, p99), slices().any(|slice| slice.disturbed)))
    };
    let most = rounds.iter().map(|told| told.slices.len()).max().unwrap_or(0);
    (0..most).filter_map(at).collect()
}

/// All of it for the terminal, the sentence first.
pub fn render(results: Results<'_>) -> Option<String> {
    let mut out = sentence(results)? + "\n";
    let rows = rows(results);
    if !rows.is_empty() {
        let mut all = vec![HEADS.map(str::to_owned).to_vec()];
        all.extend(rows);
        let _ = write!(out, "\n{}\n", aligned(&all));
    }
    out.extend(disturbance(results).map(|words| words + "\n"));
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;
    use crate::pairs::Doubt;
    use crate::pairs::record::Record;

    fn record() -> Record {
        example::beside_a_neighbour("laneway=80 memcached=2000")
    }

    fn said(record: &Record) -> String {
        sentence(Results { record }).expect("it has such runs")
    }

    #[test]
    fn the_sentence_tells_every_server_and_who_did_better_or_could_not_be_measured() {
        let whole = "While one client fetched and stored values of 1 to 10 MB, the small requests' \
                     p99 went from 50 µs to 80 µs with laneway and from 50 µs to 2.3 ms with \
                     memcached.";
        let without =
            "There is no result, as Laneway itself could not be measured. While one client";
        for (servers, is_measured, has, lacks) in [
            ("laneway=80 memcached=2340", true, &[whole][..], "lost"),
            (
                "laneway=100 memcached=90",
                true,
                &["Laneway lost: it stayed lower with memcached."],
                "nobody",
            ),
            (
                "laneway=100 memcached=99 redis=98",
                true,
                &[", from 50 µs to 99 µs with memcached, and from", "with memcached and redis."],
                "nobody",
            ),
            (
                "laneway=100",
                true,
                &["100 µs with laneway. There was nobody", "apt-get install memcached"],
                "lost",
            ),
            // The same server by another protocol is no rival.
            ("laneway=100 laneway-resp=98 memcached=-", true, &["There was nobody to"], "lost"),
            ("laneway=100 laneway-resp=98 memcached=900", true, &["with laneway-resp"], "lost"),
            (
                "laneway=100 memcached=- redis=900",
                true,
                &["with redis. There is no figure of memcached; why stands below."],
                "lost",
            ),
            ("laneway=-", false, &["could not be measured."], "went"),
            (
                "laneway=- laneway-resp=98 memcached=900",
                false,
                &[without, "There is no figure of laneway; why stands below."],
                "lost",
            ),
            // Nobody misses who was left out.
            ("valkey=900", true, &["While one client"], "There is no"),
        ] {
            let record = example::beside_a_neighbour(servers);
            let words = said(&record);
            assert!(has.iter().all(|has| words.contains(has)), "{words}");
            assert!(!words.contains(lacks), "{words}");
            assert_eq!(is_unmeasured(Results { record: &record }), !is_measured, "{words}");
        }
    }

    #[test]
    fn the_sentence_says_so_where_the_noisy_client_was_held_up() {
        let mut record = record();
        let run = record.rounds[0].get_mut("laneway @ noisy neighbour").expect("there");
        run["phases"]["parts"][1]["large_megabytes_per_s"] = 100.0.into();
        let words = said(&record);
        assert!(words.contains("moved 100 MB/s, and 200 elsewhere: it was held up"), "{words}");
    }

    #[test]
    fn a_run_that_does_not_count_is_no_figure_of_its_server() {
        let mut record = record();
        let mut doubt = |name: &str| {
            let why = "others had the client's CPU for 12 % of the time".to_owned();
            let run = record.rounds[0].get_mut(name).expect("there");
            *run = Doubt { why, measured: run.clone() }.kept();
            record.clone()
        };
        let one = doubt("memcached @ noisy neighbour");
        let words = said(&one);
        assert!(words.contains("There is no figure of memcached; why stands below."), "{words}");
        assert!(!words.contains("with memcached"), "{words}");
        assert_eq!(rows(Results { record: &one }).len(), 3);
        assert!(!is_unmeasured(Results { record: &one }));
        let both = doubt("laneway @ noisy neighbour");
        assert!(said(&both).ends_with("could not be measured."), "{}", said(&both));
        assert!(is_unmeasured(Results { record: &both }));
    }

    #[test]
    fn the_table_has_whole_parts_and_what_was_disturbed() {
        let record = record();
        let results = Results { record: &record };
        let rows = rows(results);
        assert_eq!(rows[0], ["laneway", "before", "25", "50", "100", "0", "0 of 2"]);
        assert_eq!(rows[1], ["laneway", "during", "40", "80", "160", "200", "1 of 2"]);
        assert_eq!(rows[5][..3], ["memcached", "after", "25"]);
        let words = disturbance(results).expect("measured");
        assert!(words.starts_with("Others had the server's or the client's CPU in 2 of 12"));
        assert!(words.contains("slices of 0.25 s") && words.contains("hollow"), "{words}");
    }
}
