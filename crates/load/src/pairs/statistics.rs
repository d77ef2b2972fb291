//! From rounds to figures: the ratio within each round, the median over the rounds, the verdict.

use super::definition::{Definition, Figure};
use super::{Measured, Round};
use crate::report::table::{aligned, median, spread};
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

/// The verdict on a figure that has bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They hold, or there are none.
    Met,
    /// They do not.
    Missed,
    /// The machine is too noisy to tell: a rival beside itself strays further than the bound is
    /// from 1.
    Noise,
}

impl Judged {
    /// Whether the bounds hold, if there are any; `all`: the figures of the same rounds.
    pub fn verdict(&self, all: &[Judged]) -> Verdict {
        let within = |value: f64| {
            self.figure.at_most.is_none_or(|bound| value <= bound)
                && self.figure.at_least.is_none_or(|bound| bound <= value)
        };
        if let Some(name) = &self.figure.null {
            let null = all.iter().find(|one| one.figure.name == *name);
            // How far the nearer bound is from 1, as a factor's logarithm.
            let bounds = self.figure.at_most.into_iter().chain(self.figure.at_least);
            let nearest = bounds.map(|bound| bound.ln().abs()).fold(f64::INFINITY, f64::min);
            // Nor is there a verdict where nobody measured the null pair.
            if null.is_none_or(|null| nearest < null.strayed()) {
                return Verdict::Noise;
            }
        }
        let each = !self.figure.every_round || self.values.iter().copied().all(within);
        if within(self.median) && each { Verdict::Met } else { Verdict::Missed }
    }

    /// How far the values of most rounds are from 1: the upper quartile, as a factor's logarithm.
    /// (The extreme one of nine rounds says more about the ninth than about the others.)
    fn strayed(&self) -> f64 {
        let mut all: Vec<f64> = self.values.iter().map(|value| value.ln().abs()).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len().saturating_sub(1) * 3 / 4).copied().unwrap_or(f64::INFINITY)
    }
}

/// Works out what can be: a round without one of the values is passed over (where a server fell
/// behind there are no latencies), a figure without any round is left out.
pub fn judge_what_is_there(figures: &[Figure], rounds: &[Round]) -> Vec<Judged> {
    let judged = |figure: &Figure| {
        let values: Vec<f64> = rounds.iter().filter_map(|round| value(figure, round)).collect();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let there = !values.is_empty();
        there.then(|| Judged { figure: figure.clone(), median: median(&sorted), values })
    };
    figures.iter().filter_map(judged).collect()
}

/// Whether every bound of a definition holds, each in more than half of the rounds at least. One
/// without a verdict does not.
pub fn all_good(definition: &Definition, judged: &[Judged], rounds: usize) -> bool {
    let holds = |figure: &Figure| {
        let found = judged.iter().find(|one| one.figure == *figure);
        let is_met = |one: &Judged| one.verdict(judged) == Verdict::Met;
        found.is_some_and(|one| is_met(one) && 2 * one.values.len() > rounds)
    };
    definition.figures.iter().filter(|figure| figure.bounds().is_some()).all(holds)
}

/// Nothing where the round lacks one of the values, or has a 0 to divide by.
fn value(figure: &Figure, round: &Round) -> Option<f64> {
    let at = |run: &String| round.get(run)?.pointer(&figure.value)?.as_f64();
    let divided = |value: f64, by: f64| (by > 0.0).then(|| value / by);
    let mut found = at(&figure.of)?;
    if let Some(over) = &figure.over {
        found = divided(found, at(over)?)?;
    }
    let rivals: Option<Vec<f64>> = figure.over_best.iter().map(at).collect();
    if let Some(best) = rivals?.into_iter().reduce(f64::max) {
        found = divided(found, best)?;
    }
    if let Some((first, second)) = &figure.against {
        found = divided(found, divided(at(first)?, at(second)?)?)?;
    }
    Some(found)
}

/// The figures, for people.
pub fn render(rounds: usize, judged: &[Judged]) -> String {
    let values = format!("{rounds} pairs, median [min..max]");
    let mut rows = vec![vec!["figure".into(), values, "bound".into(), "verdict".into()]];
    for one in judged {
        let verdict = match one.verdict(judged) {
            _ if one.figure.bounds().is_none() => "-",
            Verdict::Met => "PASS",
            Verdict::Missed => "FAIL",
            Verdict::Noise => "none: the rival beside itself strays further",
        };
        let missing = match one.values.len() {
            found if found < rounds => format!("{verdict}  in {found} of them"),
            _ => verdict.into(),
        };
        let values = spread(one.values.iter().copied());
        let values = if one.figure.is_ratio() { values + "x" } else { values };
        let bound = one.figure.bounds().unwrap_or("-".into());
        rows.push(vec![one.figure.name.clone(), values, bound, missing]);
    }
    aligned(&rows)
}

/// A run in one line, for who waits: what its figures look at, and how long the client waited.
/// Where no figure looks at it, what every run of the load generator has.
pub fn one_line(name: &str, measured: &Measured, figures: &[Figure]) -> String {
    let of_run = figures.iter().filter(|figure| figure.runs().any(|run| run == name));
    let mut pointers: Vec<&str> = of_run.map(|figure| figure.value.as_str()).collect();
    if pointers.is_empty() {
        pointers.extend(["/requests/answered_per_s", "/latency_us/small/p99"]);
        pointers.push("/server/cpu_us_per_request");
    }
    pointers.push("/client/kept_waiting_ms");
    pointers.sort_unstable();
    pointers.dedup();
    let mut out = format!("{name:<18}");
    for pointer in pointers {
        if let Some(value) = measured.pointer(pointer).and_then(Measured::as_f64)
            && value > 0.0
        {
            let digits = match value {
                ..1.0 => 4,
                ..2.0 => 3,
                _ => usize::from(value < 1_000.0),
            };
            let _ = write!(out, "  {} {value:.digits$}", pointer.trim_start_matches('/'));
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
            ..Figure::default()
        }
    }

    /// Rounds in which `one`, `two` and `three` measured this.
    fn rounds(all: &[&[f64]]) -> Vec<Round> {
        let of = |(name, value): (&str, &f64)| (name.to_owned(), json!({ "a": { "p99": value } }));
        let names = ["one", "two", "three"];
        all.iter().map(|each| names.into_iter().zip(*each).map(of).collect()).collect()
    }

    #[test]
    fn a_figure_is_the_median_of_ratios_within_rounds_and_its_bounds_are_of_that() {
        // The machine slowed down fourfold in the middle; every ratio is still one half or so.
        let two = rounds(&[&[10.0, 20.0], &[40.0, 100.0], &[12.0, 20.0]]);
        let three = rounds(&[&[30.0, 10.0, 5.0], &[20.0, 4.0, 5.0], &[32.0, 2.0, 16.0]]);
        let least = |at_least| Figure {
            over_best: vec!["two".into(), "three".into()],
            at_least: Some(at_least),
            ..figure(None, None)
        };
        let against = Some(("two".into(), "three".into()));
        for (asked, rounds, values, is_good) in [
            (figure(Some("two"), Some(0.5)), &two, [0.5, 0.4, 0.6], true),
            (figure(Some("two"), Some(0.49)), &two, [0.5, 0.4, 0.6], false),
            (figure(Some("two"), None), &two, [0.5, 0.4, 0.6], true),
            (figure(None, Some(12.0)), &two, [10.0, 40.0, 12.0], true),
            (least(3.0), &three, [3.0, 4.0, 2.0], true),
            (least(3.01), &three, [3.0, 4.0, 2.0], false),
            // What every round must show is no matter of the median.
            (Figure { every_round: true, ..least(3.0) }, &three, [3.0, 4.0, 2.0], false),
            (Figure { against, ..figure(Some("two"), None) }, &three, [1.5, 6.25, 128.0], true),
        ] {
            let judged = judge_what_is_there(&[asked], rounds);
            assert_eq!(judged[0].values, values);
            assert_eq!(judged[0].verdict(&judged) == Verdict::Met, is_good, "{judged:?}");
        }
    }

    #[test]
    fn where_a_rival_beside_itself_strays_further_than_the_bound_there_is_no_verdict() {
        let rounds = rounds(&[&[10.0, 20.0][..]; 4]);
        let null = Figure { name: "null".into(), ..figure(Some("two"), None) };
        let judge = |at_most| {
            let ours = Figure { null: Some("null".into()), ..figure(Some("two"), Some(at_most)) };
            let judged = judge_what_is_there(&[ours, null.clone()], &rounds);
            assert!(judged[1].verdict(&judged) == Verdict::Met, "it has no bound");
            judged[0].verdict(&judged)
        };
        // Half is as far from 1 as double is.
        assert_eq!(judge(2.1), Verdict::Met);
        assert_eq!(judge(1.9), Verdict::Noise);
        assert_eq!(judge(0.6), Verdict::Noise);
        assert_eq!(judge(0.4), Verdict::Missed);
    }

    #[test]
    fn what_is_not_there_can_be_passed_over() {
        let mut rounds = rounds(&[&[10.0, 20.0], &[15.0, 20.0], &[9.0, 0.0]]);
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
            ..crate::pairs::definition::tests::example()
        };
        let bounded = definition(figure(Some("two"), Some(1.0)));
        let good = |rounds: &[Round]| {
            let judged = judge_what_is_there(&bounded.figures, rounds);
            all_good(&bounded, &judged, rounds.len())
        };
        let mut rounds = rounds(&[&[10.0, 20.0], &[15.0, 20.0], &[9.0, 18.0]]);
        assert!(good(&rounds));
        rounds[0].remove("two");
        assert!(good(&rounds));
        rounds[1].remove("two");
        assert!(!good(&rounds), "one of three says too little");
        rounds[2].remove("two");
        assert!(!good(&rounds), "a figure that nobody measured is not met");
    }
}
