//! What `laneway bench adapt` prints and writes: a table, a row an epoch as CSV, two pictures.

use super::Followed;
use super::follow::{Epoch, Outcome, Phase, WITHIN};
use laneway_load::plot::{self, Chart, Extras, Line, Log};
use std::fmt::Write as _;
use std::path::Path;

/// The phases of every design, and whether each was followed, as Markdown.
pub(super) fn table(all: &[Followed]) -> String {
    let mut out = String::from(
        "| design | large requests (%) | large workers by the rule | had after (epochs) | kept \
         (epochs) | threshold (bytes) |\n|---|---|---|---|---|---|\n",
    );
    for one in all {
        for (phase, outcome) in one.phases.iter().zip(&one.outcomes) {
            let Outcome { kept, plans, .. } = outcome;
            let after = outcome.after.map_or("never".to_owned(), |after| after.to_string());
            let threshold = outcome.last.map_or("-".to_owned(), |(_, bytes)| bytes.to_string());
            let (design, percent, rule) = (one.design, phase.large_percent, rule(phase));
            let _ = writeln!(
                out,
                "| {design} | {percent} | {rule} | {after} | {kept} of {plans} | {threshold} |"
            );
        }
    }
    for one in all {
        let Followed { design, epoch_s, requests, lost, .. } = one;
        let slowest: Option<Vec<u64>> = one.outcomes.iter().map(|outcome| outcome.after).collect();
        let slowest = slowest.and_then(|after| after.into_iter().max());
        let words = match slowest {
            Some(epochs) => format!("every change followed within {epochs} epochs"),
            None => "not every change was followed".to_owned(),
        };
        let good = match (one.is_good(), one.is_thin) {
            (true, _) => "PASS",
            (false, false) => "FAIL",
            (false, true) => "FAIL, and the machine is too slow to judge it: --epoch-requests",
        };
        let _ = writeln!(
            out,
            "\n{design}: {words} of {epoch_s:.2} s ({WITHIN} allowed); {lost} of {requests} \
             replies lost: {good}"
        );
    }
    out
}

/// A number, or from which to which.
fn rule(phase: &Phase) -> String {
    let (least, most) = (phase.workers_large.start(), phase.workers_large.end());
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// Writes `adapt.csv`, `adapt-workers.svg` and `adapt-threshold.svg` into the folder.
pub(super) fn write(folder: &Path, all: &[Followed]) -> Result<(), String> {
    let file = |name: &str, content: String| {
        let path = folder.join(name);
        std::fs::write(&path, content).map_err(|error| format!("--out {}: {error}", path.display()))
    };
    file("adapt.csv", csv(all))?;
    let chart = |title, y_label| Chart { title, x_label: "epochs", y_label, log: Log::Neither };
    let workers = chart("Large workers while the share of large requests changes", "workers");
    let mut lines: Vec<Line> = all.first().map(large_requests).into_iter().collect();
    let large = |epoch: &Epoch| f64::from(epoch.workers_large());
    lines.extend(all.iter().map(|one| stairs(one, "large workers", large)));
    file("adapt-workers.svg", plot::svg(workers, &lines, &Extras::default())?)?;
    let threshold = chart("The threshold meanwhile", "bytes");
    let bytes = |epoch: &Epoch| epoch.sample.threshold_bytes as f64;
    let lines: Vec<Line> = all.iter().map(|one| stairs(one, "threshold", bytes)).collect();
    file("adapt-threshold.svg", plot::svg(threshold, &lines, &Extras::default())?)
}

/// The phase that a moment belongs to.
fn phase_at(phases: &[Phase], at_s: f64) -> Option<&Phase> {
    phases.iter().rev().find(|phase| phase.from_s <= at_s).or(phases.first())
}

fn csv(all: &[Followed]) -> String {
    let mut out = String::from(
        "design,epoch,at_s,large_percent,workers_large_rule_min,workers_large_rule_max,\
         workers_large,threshold_bytes\n",
    );
    for Followed { design, phases, epochs, .. } in all {
        let first = phases.first().map_or(0, |phase| phase.epochs_before);
        for epoch in epochs.iter().filter(|epoch| epoch.number >= first) {
            let Some(phase) = phase_at(phases, epoch.at_s) else { continue };
            let (least, most) = (phase.workers_large.start(), phase.workers_large.end());
            let _ = writeln!(
                out,
                "{design},{},{:.3},{},{least},{most},{},{}",
                epoch.number - first,
                epoch.at_s,
                phase.large_percent,
                epoch.workers_large(),
                epoch.sample.threshold_bytes,
            );
        }
    }
    out
}

/// What was in force, as stairs over the time in epochs.
fn stairs(one: &Followed, what: &str, value: fn(&Epoch) -> f64) -> Line {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for epoch in &one.epochs {
        let x = epoch.at_s / one.epoch_s;
        if let Some(&(_, before)) = points.last() {
            points.push((x, before));
        }
        points.push((x, value(epoch)));
    }
    (format!("{}: {what}", one.design), points)
}

/// The share of large requests, of a thousand so that it is as high as a number of workers.
fn large_requests(one: &Followed) -> Line {
    let ends = one.phases.iter().skip(1).map(|phase| phase.from_s);
    let end_s = one.epochs.last().map_or(0.0, |epoch| epoch.at_s);
    let points = one.phases.iter().zip(ends.chain([end_s])).flat_map(|(phase, end_s)| {
        let height = 10.0 * phase.large_percent;
        [(phase.from_s / one.epoch_s, height), (end_s / one.epoch_s, height)]
    });
    ("large requests of 1000".into(), points.collect())
}

#[cfg(test)]
mod tests {
    use super::super::follow::{epochs, outcomes};
    use super::super::lanes::Sample;
    use super::*;
    use laneway_policy::Design;

    fn followed(lost: u64) -> Followed {
        let sample = |(number, workers_large): (usize, u16)| Sample {
            at_s: number as f64 * 2.0,
            workers_large,
            threshold_bytes: 1_408,
            epochs: number as u64 + 3,
        };
        let workers = [0, 1, 1, 1, 1, 1, 4, 4, 4, 4];
        let epochs = epochs(&workers.into_iter().enumerate().map(sample).collect::<Vec<_>>());
        let phase = |large_percent, from_s, epochs_before, large| Phase {
            large_percent,
            from_s,
            epochs_before,
            workers_large: large,
            threshold: 1_408,
        };
        let phases = vec![phase(0.125, 0.0, 3, 1..=1), phase(0.75, 9.0, 7, 3..=4)];
        let outcomes = outcomes(&epochs, &phases);
        let (design, epoch_s, requests) = (Design::Minos, 2.0, 1_000);
        Followed { design, epoch_s, phases, epochs, outcomes, requests, lost, is_thin: false }
    }

    #[test]
    fn the_table_says_what_came_of_each_phase() {
        let table = table(&[followed(0)]);
        assert!(table.contains("| minos | 0.125 | 1 | 1 | 2 of 2 | 1408 |"), "{table}");
        assert!(table.contains("| minos | 0.75 | 3 to 4 | 2 | 3 of 3 | 1408 |"), "{table}");
        let last = "minos: every change followed within 2 epochs of 2.00 s (2 allowed); 0 of 1000 \
                    replies lost: PASS";
        assert!(table.contains(last), "{table}");
        assert!(super::table(&[followed(1)]).contains("1 of 1000 replies lost: FAIL"));
    }

    #[test]
    fn rows_and_stairs_say_what_was_in_force() {
        let one = followed(0);
        let text = csv(std::slice::from_ref(&one));
        assert_eq!(text.lines().count(), 11);
        assert!(text.contains("\nminos,1,2.000,0.125,1,1,1,1408\n"), "{text}");
        assert!(text.contains("\nminos,5,10.000,0.75,3,4,1,1408\n"), "{text}");
        let (name, points) =
            stairs(&one, "large workers", |epoch| f64::from(epoch.workers_large()));
        assert_eq!(name, "minos: large workers");
        assert!(points.contains(&(6.0, 1.0)) && points.contains(&(6.0, 4.0)), "{points:?}");
        let (_, share) = large_requests(&one);
        assert_eq!(share, [(0.0, 1.25), (4.5, 1.25), (4.5, 7.5), (9.0, 7.5)]);
    }

    #[test]
    fn a_folder_gets_its_files() {
        let folder = std::env::temp_dir().join(format!("laneway-adapt-{}", std::process::id()));
        assert!(write(&folder.join("none"), &[followed(0)]).is_err());
        std::fs::create_dir_all(&folder).expect("the temporary folder takes files");
        write(&folder, &[followed(0)]).expect("written");
        for name in ["adapt.csv", "adapt-workers.svg", "adapt-threshold.svg"] {
            assert!(folder.join(name).is_file(), "{name}");
        }
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
