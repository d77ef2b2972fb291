//! From rounds to figures: the ratio within each round, the median over the rounds, the verdict.

use super::definition::{Definition, Figure};
use super::{Measured, Round};
use crate::report::table::{median, spread};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A figure with its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// What was asked.
    #[serde(flatten)]
    pub figure: Figure,
    /// One value per round, in order.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
}

impl Judged {
    /// Whether the bounds hold, if there are any.
    pub fn is_good(&self) -> bool {
        self.figure.at_most.is_none_or(|bound| self.median <= bound)
            && self.figure.at_least.is_none_or(|bound| bound <= self.median)
    }
}

/// Works out what can be: a round without one of the values is passed over (where a server fell
/// behind there are no latencies), a figure without any round is left out.
pub fn judge_what_is_there(figures: &[Figure], rounds: &[Round]) -> Vec<Judged> {
    let judged = |figure: &Figure| {
        let values: Vec<f64> =
            rounds.iter().filter_map(|round| value(figure, round).ok()).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let there = !values.is_empty();
        there.then(|| Judged { figure: figure.clone(), median: median(&sorted), values })
    };
    figures.iter().filter_map(judged).collect()
}

/// Whether every bound of a definition holds, each in more than half of the rounds at least.
pub fn all_good(definition: &Definition, judged: &[Judged], rounds: usize) -> bool {
    let holds = |figure: &Figure| {
        let found = judged.iter().find(|one| one.figure == *figure);
        found.is_some_and(|one| one.is_good() && 2 * one.values.len() > rounds)
    };
    definition.figures.iter().filter(|figure| figure.bounds().is_some()).all(holds)
}

fn value(figure: &Figure, round: &Round) -> Result<f64, String> {
    let at = |run: &String| {
        let found = round.get(run).and_then(|measured| measured.pointer(&figure.value)?.as_f64());
        found.ok_or_else(|| format!("figure {}: {run} has no {}", figure.name, figure.value))
    };
    let divided = |value: f64, by: f64, run: &String| match by > 0.0 {
        true => Ok(value / by),
        false => Err(format!("figure {}: {run} has {by}", figure.name)),
    };
    let mut found = at(&figure.of)?;
    if let Some(over) = &figure.over {
        found = divided(found, at(over)?, over)?;
    }
    let mut rivals = Vec::new();
    for run in &figure.over_best {
        rivals.push((at(run)?, run));
    }
    if let Some((best, run)) = rivals.into_iter().max_by(|one, two| one.0.total_cmp(&two.0)) {
        found = divided(found, best, run)?;
    }
    if let Some((first, second)) = &figure.against {
        let quotient = divided(at(first)?, at(second)?, second)?;
        found = divided(found, quotient, first)?;
    }
    Ok(found)
}

/// The figures, for people.
pub fn render(rounds: usize, judged: &[Judged]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<52} {:<22} {:>7}  verdict      {rounds} pairs, median [min..max]",
        "figure", "value", "bound"
    );
    for one in judged {
        let (bound, verdict) = match one.figure.bounds() {
            None => ("-".into(), "-"),
            Some(bound) if one.is_good() => (bound, "PASS"),
            Some(bound) => (bound, "FAIL"),
        };
        let ratio = if one.figure.is_ratio() { "x" } else { " " };
        let values = spread(one.values.iter().copied());
        let _ = write!(out, "{:<52} {values:<21}{ratio} {bound:>7}  {verdict}", one.figure.name);
        let found = one.values.len();
        let missing = if found < rounds { format!("  in {found} of them") } else { String::new() };
        let _ = writeln!(out, "{missing}");
    }
    out
}

/// A run in one line, for who waits.
pub fn one_line(name: &str, measured: &Measured) -> String {
    let mut out = format!("{name:<18}");
    let parts = [
        ("cpu us", "/server/cpu_us_per_request"),
        ("small p50", "/latency_us/small/p50"),
        ("p90", "/latency_us/small/p90"),
        ("p99", "/latency_us/small/p99"),
        ("lap p99", "/quiet/small/p99"),
        ("large p99", "/latency_us/large/p99"),
        ("answered/s", "/requests/answered_per_s"),
        ("server waited ms", "/server/kept_waiting_ms"),
        ("client", "/client/kept_waiting_ms"),
        ("miss ratio", "/miss_ratio"),
        ("SETs refused", "/sets_refused"),
        ("beyond key and value", "/beyond_bytes_per_item"),
        ("metadata", "/metadata_bytes_per_item"),
        ("resident", "/resident_bytes_per_item"),
        ("busiest over mean", "/max_ave_ratio"),
        ("by hash", "/max_ave_ratio_by_hash"),
        ("within slots", "/max_ave_ratio_slot"),
        ("found in slots", "/found_slots_max"),
        ("hot keys placed", "/hot/placed"),
        ("load/s", "/load/operations_per_s"),
        ("A/s", "/workloads/A/operations_per_s"),
        ("A@2/s", "/workloads/A@2/operations_per_s"),
        ("A@64/s", "/workloads/A@64/operations_per_s"),
        ("B/s", "/workloads/B/operations_per_s"),
        ("C/s", "/workloads/C/operations_per_s"),
        ("D/s", "/workloads/D/operations_per_s"),
        ("E/s", "/workloads/E/operations_per_s"),
        ("F/s", "/workloads/F/operations_per_s"),
        ("write us", "/workloads/W/latency_us/mean"),
        ("written", "/whole/write_amplification"),
        ("restart s", "/restart_seconds"),
    ];
    for (words, pointer) in parts {
        if let Some(value) = measured.pointer(pointer).and_then(Measured::as_f64)
            && value > 0.0
        {
            let digits = match value {
                ..1.0 => 4,
                ..2.0 => 3,
                _ => usize::from(value < 1_000.0),
            };
            let _ = write!(out, "  {words} {value:.digits$}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(over: Option<&str>, at_most: Option<f64>) -> Figure {
        Figure {
            name: "p99".into(),
            value: "/a/p99".into(),
            of: "one".into(),
            over: over.map(Into::into),
            over_best: Vec::new(),
            against: None,
            at_most,
            at_least: None,
        }
    }

    fn rounds(pairs: &[(f64, f64)]) -> Vec<Round> {
        let round = |&(one, two): &(f64, f64)| {
            let of = |value: f64| json!({ "a": { "p99": value } });
            Round::from([("one".into(), of(one)), ("two".into(), of(two))])
        };
        pairs.iter().map(round).collect()
    }

    #[test]
    fn the_median_is_of_the_ratios_within_rounds() {
        // The machine slowed down fourfold in the middle; every ratio is still one half or so.
        let rounds = rounds(&[(10.0, 20.0), (40.0, 100.0), (12.0, 20.0)]);
        let judged = judge_what_is_there(&[figure(Some("two"), Some(0.5))], &rounds);
        assert_eq!(judged[0].values, [0.5, 0.4, 0.6]);
        assert_eq!(judged[0].median, 0.5);
        assert!(judged[0].is_good());
    }

    #[test]
    fn a_bound_is_missed_above_it_only() {
        let rounds = rounds(&[(10.0, 20.0), (14.0, 20.0)]);
        for (at_most, good) in [(Some(0.6), true), (Some(0.59), false), (None, true)] {
            let judged = judge_what_is_there(&[figure(Some("two"), at_most)], &rounds);
            assert_eq!(judged[0].is_good(), good, "{at_most:?}");
        }
        let alone = judge_what_is_there(&[figure(None, Some(12.0))], &rounds);
        assert_eq!((alone[0].median, alone[0].is_good()), (12.0, true));
    }

    #[test]
    fn the_best_rival_of_each_round_counts_and_a_bound_may_be_from_below() {
        let of = |value: f64| json!({ "a": { "p99": value } });
        let round = |ours: f64, rivals: [f64; 2]| {
            let [one, two] = rivals.map(of);
            Round::from([("one".into(), of(ours)), ("x".into(), one), ("y".into(), two)])
        };
        let rounds = [round(30.0, [10.0, 5.0]), round(20.0, [4.0, 5.0]), round(30.0, [1.0, 15.0])];
        for (at_least, good) in [(3.0, true), (3.01, false)] {
            let figure = Figure {
                over_best: vec!["x".into(), "y".into()],
                at_least: Some(at_least),
                ..figure(None, None)
            };
            let judged = judge_what_is_there(&[figure], &rounds);
            assert_eq!(judged[0].values, [3.0, 4.0, 2.0]);
            assert_eq!(judged[0].is_good(), good, "{at_least}");
        }
        let against = Some(("x".into(), "y".into()));
        let figure = Figure { against, ..figure(Some("x"), None) };
        let judged = judge_what_is_there(&[figure], &rounds[..2]);
        assert_eq!(judged[0].values, [1.5, 5.0 / 0.8]);
    }

    #[test]
    fn what_is_not_there_can_be_passed_over() {
        let mut rounds = rounds(&[(10.0, 20.0), (15.0, 20.0), (9.0, 0.0)]);
        rounds[1].remove("one");
        let figures = [figure(Some("two"), None), figure(Some("three"), None)];
        let judged = judge_what_is_there(&figures, &rounds);
        assert_eq!(judged.len(), 1);
        assert_eq!((judged[0].values.as_slice(), judged[0].median), ([0.5].as_slice(), 0.5));
    }

    #[test]
    fn a_bound_needs_more_than_half_of_the_rounds() {
        let definition = |figure| Definition {
            figures: vec![figure],
            ..crate::pairs::definition::parse(
                "about = \"a\"\nfigure = []\n[[server]]\nname = \"s\"\ncommand = \"c\"\n\
                 [[run]]\nname = \"one\"\nserver = \"s\"\n",
            )
            .expect("good")
        };
        let bounded = definition(figure(Some("two"), Some(1.0)));
        let good = |rounds: &[Round]| {
            let judged = judge_what_is_there(&bounded.figures, rounds);
            all_good(&bounded, &judged, rounds.len())
        };
        let mut rounds = rounds(&[(10.0, 20.0), (15.0, 20.0), (9.0, 18.0)]);
        assert!(good(&rounds));
        rounds[0].remove("two");
        assert!(good(&rounds));
        rounds[1].remove("two");
        assert!(!good(&rounds), "one of three says too little");
        rounds[2].remove("two");
        assert!(!good(&rounds), "a figure that nobody measured is not met");
    }
}
