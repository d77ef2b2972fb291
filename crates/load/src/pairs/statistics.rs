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
    /// Whether the bound holds, if there is one.
    pub fn is_good(&self) -> bool {
        self.figure.at_most.is_none_or(|bound| self.median <= bound)
    }
}

/// Works every figure out.
pub fn judge(figures: &[Figure], rounds: &[Round]) -> Result<Vec<Judged>, String> {
    figures
        .iter()
        .map(|figure| {
            let values: Vec<f64> =
                rounds.iter().map(|round| value(figure, round)).collect::<Result<_, _>>()?;
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            Ok(Judged { figure: figure.clone(), median: median(&sorted), values })
        })
        .collect()
}

/// Works out what can be: a round without one of the values is passed over, a figure without any
/// round is left out.
pub fn judge_what_is_there(figures: &[Figure], rounds: &[Round]) -> Vec<Judged> {
    let there = |figure: &Figure| {
        let found = rounds.iter().filter(|round| value(figure, round).is_ok());
        let found: Vec<Round> = found.cloned().collect();
        if found.is_empty() {
            return None;
        }
        judge(std::slice::from_ref(figure), &found).ok()?.pop()
    };
    figures.iter().filter_map(there).collect()
}

fn value(figure: &Figure, round: &Round) -> Result<f64, String> {
    let at = |run: &String| {
        let found = round.get(run).and_then(|measured| measured.pointer(&figure.value)?.as_f64());
        found.ok_or_else(|| format!("figure {}: {run} has no {}", figure.name, figure.value))
    };
    let of = at(&figure.of)?;
    let Some(over) = &figure.over else { return Ok(of) };
    let over_value = at(over)?;
    if over_value <= 0.0 {
        return Err(format!("figure {}: {over} has {over_value}", figure.name));
    }
    Ok(of / over_value)
}

/// The figures, for people.
pub fn render(definition: &Definition, judged: &[Judged]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<52} {:<22} {:>7}  verdict      {} pairs, median [min..max]",
        "figure", "value", "bound", definition.pairs
    );
    for one in judged {
        let (bound, verdict) = match one.figure.at_most {
            None => ("-".into(), "-"),
            Some(bound) if one.is_good() => (format!("{bound}"), "PASS"),
            Some(bound) => (format!("{bound}"), "FAIL"),
        };
        let ratio = if one.figure.over.is_some() { "x" } else { " " };
        let values = spread(one.values.iter().copied());
        let _ = writeln!(out, "{:<52} {values:<21}{ratio} {bound:>7}  {verdict}", one.figure.name);
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
            at_most,
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
        let judged = judge(&[figure(Some("two"), Some(0.5))], &rounds).expect("all there");
        assert_eq!(judged[0].values, [0.5, 0.4, 0.6]);
        assert_eq!(judged[0].median, 0.5);
        assert!(judged[0].is_good());
    }

    #[test]
    fn a_bound_is_missed_above_it_only() {
        let rounds = rounds(&[(10.0, 20.0), (14.0, 20.0)]);
        for (at_most, good) in [(Some(0.6), true), (Some(0.59), false), (None, true)] {
            let judged = judge(&[figure(Some("two"), at_most)], &rounds).expect("all there");
            assert_eq!(judged[0].is_good(), good, "{at_most:?}");
        }
        let alone = judge(&[figure(None, Some(12.0))], &rounds).expect("all there");
        assert_eq!((alone[0].median, alone[0].is_good()), (12.0, true));
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
    fn what_is_not_there_is_an_error_and_so_is_a_division_by_nothing() {
        for rounds in [rounds(&[(1.0, 0.0)]), vec![Round::new()]] {
            assert!(judge(&[figure(Some("two"), None)], &rounds).is_err());
        }
    }
}
