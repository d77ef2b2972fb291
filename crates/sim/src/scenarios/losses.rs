//! Where `lanes` loses: from 1 to 64 cores, and over the mixes by which its constants were chosen,
//! every point at which its small p99 is more than 1.1 times, or its large p99 more than 1.5 times,
//! that of the best rival of the same point. CPU alone, the same costs for all.
//!
//! Rivals with a scheduler of their own, which has one of the cores and takes no time, stand apart:
//! theirs are not the same costs. `hkh` is left out, which is `hkh-ws` without taking from others;
//! so is `sho` where its hand-off cores have not the time for what arrives. A rival counts where
//! its queues do not grow, and `lanes` loses both classes where its own do and a rival's do not.
//! The more cores, the shorter a run of so many requests: so there are more requests. Whatever the
//! effort there are three seeds: `--full` has all points.

use super::{Figure, MEGA, Setup, bare, cpu_peak};
use crate::machine::{Central, Machine, State};
use crate::row::Row;
use crate::study::{Effort, Measured, Point, Study};
use crate::workload::Mix;
use laneway_policy::Design;
use std::fmt::Write;

const WORKERS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
const LOADS: [f64; 3] = [0.6, 0.8, 0.9];
const PERCENTS: [f64; 9] = [0.0, 0.0625, 0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0];
/// Largest large request at the default share of them, in kilobytes.
const KILOBYTES: [u64; 3] = [100, 250, 1000];
const SEEDS: u64 = 3;

/// What `lanes` may have, as a multiple of the best rival's.
const SMALL_TIMES_MAX: f64 = 1.1;
const LARGE_TIMES_MAX: f64 = 1.5;

/// Requests of a run on at most eight cores, in thousands.
const KILOREQUESTS: u64 = 80;

/// A machine of some design for a point, as it is called.
type Candidate = (String, Machine);

/// Whether the rivals have a scheduler, and how pages and rows call them.
const GROUPS: [(bool, &str); 2] = [(false, "the same costs"), (true, "a scheduler that is free")];

fn mixes(effort: Effort) -> Vec<(f64, u64, Mix)> {
    let percents = effort.pick(vec![0.0, 0.125, 5.0], PERCENTS.to_vec());
    let kilobytes = effort.pick(Vec::new(), KILOBYTES.to_vec());
    let by_share = |percent| (percent, 500, Mix::etc().with_large_percent(percent));
    let by_size = |kb: u64| (0.125, kb, Mix::etc().with_large_bytes_max(kb * 1000));
    percents.into_iter().map(by_share).chain(kilobytes.into_iter().map(by_size)).collect()
}

/// `lanes`, and then its rivals on so many cores.
fn candidates(setup: &Setup, cores: u16, rate: f64) -> Vec<Candidate> {
    let plain = [Design::Lanes, Design::Minos, Design::HkhWs];
    let plain = plain.map(|design| (design.name().to_owned(), bare(setup, design, cores)));
    let costs = setup.costs;
    let handing = |workers: u16| {
        let busy_share = rate * (costs.receive + costs.handoff) as f64 / 1e12 / f64::from(workers);
        (workers < cores && busy_share < 1.0).then(|| {
            let mut machine = bare(setup, Design::Sho, cores);
            machine.settings.workers_handoff = workers;
            (format!("sho {workers}"), machine)
        })
    };
    let scheduled = |(name, central): (&str, Central)| {
        (cores > 1).then(|| {
            let machine = bare(setup, Design::Hkh, cores - 1);
            (name.to_owned(), Machine { central: Some(central), ..machine })
        })
    };
    let rivals =
        (1..=3).filter_map(handing).chain(Central::NAMED.into_iter().filter_map(scheduled));
    plain.into_iter().chain(rivals).collect()
}

/// p99 of small and of large requests, in microseconds; none where a design is not steady.
#[derive(Debug, Clone, PartialEq)]
struct Found {
    name: String,
    scheduled: bool,
    p99s: Option<[f64; 2]>,
}

impl Found {
    fn of((name, machine): &Candidate, measured: &Measured) -> Found {
        let p99s = (measured.state() <= State::Drifting).then(|| {
            let small = measured.mean(|outcome| outcome.small.percentile_us(99.0));
            [small, measured.mean(|outcome| outcome.large.percentile_us(99.0))]
        });
        Found { name: name.clone(), scheduled: machine.central.is_some(), p99s }
    }
}

/// What `lanes` has of a class, beside the best rival.
#[derive(Debug, Clone, PartialEq)]
struct Beside {
    own: f64,
    rival: String,
    best: f64,
}

impl Beside {
    /// Of the class with this number, beside rivals with a scheduler or without; none where no
    /// rival is steady, or there is no such request.
    fn of(all: &[Found], scheduled: bool, class: usize) -> Option<Beside> {
        let (lanes, rivals) = all.split_first()?;
        let p99 = |found: &Found| found.p99s.map(|p99s| p99s[class]);
        let rivals = rivals.iter().filter(|rival| rival.scheduled == scheduled);
        let steady = rivals.filter_map(|rival| Some((p99(rival)?, rival)));
        let (best, rival) = steady.min_by(|one, other| one.0.total_cmp(&other.0))?;
        let own = p99(lanes).unwrap_or(f64::INFINITY);
        (best > 0.0).then(|| Beside { own, rival: rival.name.clone(), best })
    }

    fn times(&self) -> f64 {
        self.own / self.best
    }

    fn with(this: Option<&Beside>, row: Row, class: &str) -> Row {
        let number = |of: fn(&Beside) -> f64| this.map_or(f64::NAN, of);
        row.with(format!("{class}_p99"), number(|beside| beside.own))
            .with(format!("{class}_rival"), this.map_or("", |beside| &beside.rival))
            .with(format!("{class}_rival_p99"), number(|beside| beside.best))
            .with(format!("{class}_times"), number(Beside::times))
    }

    /// For the page, if it is one that is lost.
    fn cells(this: Option<&Beside>, most: f64) -> Option<String> {
        let Beside { own, rival, best } = this.filter(|beside| beside.times() > most)?;
        let own = if own.is_finite() { three(*own) } else { "not steady".to_owned() };
        Some(format!("{own} | {} | {rival}", three(*best)))
    }
}

/// Three digits, as the documents have it.
fn three(number: f64) -> String {
    let decimals = (2 - number.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{number:.decimals$}")
}

/// A point of the grid, and what each design is given there.
struct Asked {
    row: Row,
    mix: Mix,
    name: String,
    rate: f64,
    requests: u64,
    candidates: Vec<Candidate>,
}

fn grid(study: &Study, setup: &Setup) -> Vec<Asked> {
    let all = study.effort.pick(vec![1, 2, 8, 64], WORKERS.to_vec());
    let loads = study.effort.pick(vec![0.6, 0.9], LOADS.to_vec());
    let mut asked = Vec::new();
    for (percent, kb, mix) in mixes(study.effort) {
        for &cores in &all {
            for &load in &loads {
                let rate = load * cpu_peak(&setup.costs, &mix, cores);
                let row = Row::of("losses").with("p_l", percent).with("s_l_kb", kb);
                let row = row.with("cores", cores).with("load", load).with("mops", rate / MEGA);
                asked.push(Asked {
                    row,
                    mix: mix.clone(),
                    name: format!("{percent} | {kb} | {cores} | {load}"),
                    rate,
                    requests: 1_000 * KILOREQUESTS * u64::from(cores.max(8)) / 8,
                    candidates: candidates(setup, cores, rate),
                });
            }
        }
    }
    asked
}

fn measure(study: &Study, asked: &Asked, machine: &Machine) -> Measured {
    let (mix, rate, requests) = (asked.mix.clone(), asked.rate, asked.requests);
    let point = Point { row: Row::default(), machine: machine.clone(), mix, rate, requests };
    let seeds = study.seed..study.seed + SEEDS;
    Measured { outcomes: seeds.map(|seed| study.one(&point, seed)).collect() }
}

pub(super) fn run(study: &Study, setup: &Setup) -> Figure {
    let asked = grid(study, setup);
    let tasks: Vec<(&Asked, &Candidate)> = asked
        .iter()
        .flat_map(|asked| asked.candidates.iter().map(move |candidate| (asked, candidate)))
        .collect();
    let found = study.parallel("losses", &tasks, |(asked, candidate)| {
        Found::of(candidate, &measure(study, asked, &candidate.1))
    });
    let (rows, sections) = compare(&asked, &found, study.seed);
    let page = page(study.effort, &sections);
    Figure { page: Some(("where-we-lose.md", page)), ..Figure::new(rows, Vec::new()) }
}

/// A row of each point and each group of rivals, and for the page the points that are lost. What
/// was found is that of all candidates, point by point.
fn compare(asked: &[Asked], found: &[Found], seed: u64) -> (Vec<Row>, String) {
    let (mut rows, mut sections) = (Vec::new(), String::new());
    for (scheduled, rivals) in GROUPS {
        let (mut found, mut lost, mut points) = (found, String::new(), 0);
        let before = rows.len();
        for asked in asked {
            let (here, rest) = found.split_at(asked.candidates.len());
            found = rest;
            if !here.iter().any(|found| found.scheduled == scheduled) {
                continue;
            }
            let [small, large] = [0, 1].map(|class| Beside::of(here, scheduled, class));
            let row = Beside::with(small.as_ref(), asked.row.clone(), "small");
            let row = Beside::with(large.as_ref(), row, "large");
            let small = Beside::cells(small.as_ref(), SMALL_TIMES_MAX);
            let large = Beside::cells(large.as_ref(), LARGE_TIMES_MAX);
            let is_lost = small.is_some() || large.is_some();
            let row = row.with("rivals", rivals).with("lost", is_lost);
            rows.push(row.with("seed", seed).with("seeds", SEEDS));
            if is_lost {
                points += 1;
                let cells = [small, large].map(|cells| cells.unwrap_or_else(|| "| |".to_owned()));
                let _ = writeln!(lost, "| {} | {} | {} |", asked.name, cells[0], cells[1]);
            }
        }
        let all = rows.len() - before;
        let _ =
            write!(sections, "\n## Rivals with {rivals}: {points} of {all} points\n\n{HEAD}{lost}");
    }
    (rows, sections)
}

const HEAD: &str = "\
    | p_L (%) | s_L (KB) | cores | load | small p99 | its | rival | large p99 | its | rival |\n\
    |---|---|---|---|---|---|---|---|---|---|\n";

fn page(effort: Effort, sections: &str) -> String {
    let flag = effort.pick("quick", "full");
    format!(
        "# Where we lose\n\n\
         `laneway sim losses --{flag} --out DIR` makes this page: every point of its grid at which \
         small p99 of `lanes` is more than {SMALL_TIMES_MAX} times,\n\
         or large p99 more than {LARGE_TIMES_MAX} times, that of the best steady rival there. p_L \
         is the share of large requests, s_L the size of the largest, a load of 1\n\
         all that the cores can serve; p99 is in µs, that of `lanes` first, then the rival's. A \
         class that is not lost is left empty.\n\n\
         CPU alone, the same costs for all, {SEEDS} seeds of {KILOREQUESTS} 000 requests, of \
         more from 16 cores on; p99 of rare large requests is made of a hundred of\n\
         them or fewer. The rivals are `minos`, `hkh-ws` and `sho` with 1 to 3 hand-off cores; \
         and by themselves `shinjuku`, `darc`, `tq` and `caladan`:\n\
         their scheduler has one of the cores, takes no time however many requests come, and \
         spares each of them receiving it.\n{sections}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, p99s: Option<[f64; 2]>) -> Found {
        Found {
            name: name.to_owned(),
            scheduled: Central::NAMED.iter().any(|(other, _)| *other == name),
            p99s,
        }
    }

    #[test]
    fn the_best_rival_is_another_one_for_each_class_and_must_be_steady() {
        let rivals = [
            found("lanes", Some([3.0, 300.0])),
            found("minos", Some([2.8, 500.0])),
            found("hkh-ws", Some([40.0, 150.0])),
            found("sho 1", None),
            found("tq", Some([1.5, 310.0])),
        ];
        let [small, large] = [0, 1].map(|class| Beside::of(&rivals, false, class));
        assert_eq!(small.as_ref().map(|beside| &*beside.rival), Some("minos"));
        assert_eq!(large.as_ref().map(|beside| &*beside.rival), Some("hkh-ws"));
        assert_eq!(Beside::cells(small.as_ref(), SMALL_TIMES_MAX), None, "1.07 times");
        let cells = Beside::cells(large.as_ref(), LARGE_TIMES_MAX);
        assert_eq!(cells.as_deref(), Some("300 | 150 | hkh-ws"));
        let cells = Beside::cells(Beside::of(&rivals, true, 0).as_ref(), SMALL_TIMES_MAX);
        assert_eq!(cells.as_deref(), Some("3.00 | 1.50 | tq"));
    }

    #[test]
    fn lanes_loses_where_it_alone_is_not_steady_and_nobody_wins_where_none_is() {
        let unsteady = found("lanes", None);
        let both = [unsteady.clone(), found("minos", Some([5.0, 700.0]))];
        let cells = Beside::cells(Beside::of(&both, false, 0).as_ref(), SMALL_TIMES_MAX);
        assert_eq!(cells.as_deref(), Some("not steady | 5.00 | minos"));
        assert_eq!(Beside::of(&[unsteady, found("minos", None)], false, 0), None);
        let no_large = [found("lanes", Some([1.0, 0.0])), found("minos", Some([2.0, 0.0]))];
        assert_eq!(Beside::of(&no_large, false, 1), None);
    }

    #[test]
    fn every_point_has_a_row_and_those_that_are_lost_a_line() {
        let study = Study::new(Effort::Quick, 1, 1);
        let asked: Vec<Asked> = grid(&study, &Setup::default()).into_iter().take(4).collect();
        assert_eq!(asked.iter().map(|asked| asked.candidates.len()).max(), Some(8));
        // `minos` is the best of both classes at the second point, `tq` at the last one.
        let of = |(place, asked): (usize, &Asked)| {
            let best = ["", "minos", "", "tq"][place];
            let p99s = |name: &str| if name == best { [1.0, 100.0] } else { [2.0, 200.0] };
            let all = asked.candidates.iter();
            all.map(|(name, _)| found(name, Some(p99s(name)))).collect::<Vec<_>>()
        };
        let all: Vec<Found> = asked.iter().enumerate().flat_map(of).collect();
        let (rows, sections) = compare(&asked, &all, 1);
        let lost: Vec<_> = rows.iter().map(|row| row.text("lost")).collect();
        // No rival has a scheduler on a single core.
        assert_eq!(lost, ["false", "true", "false", "false", "false", "true"]);
        let lines: Vec<&str> = sections.lines().filter(|line| line.contains(" | 200 | ")).collect();
        assert_eq!(
            lines,
            [
                "| 0 | 500 | 1 | 0.9 | 2.00 | 1.00 | minos | 200 | 100 | minos |",
                "| 0 | 500 | 2 | 0.9 | 2.00 | 1.00 | tq | 200 | 100 | tq |",
            ]
        );
        assert!(sections.contains("the same costs: 1 of 4 points"), "{sections}");
        assert!(sections.contains("a scheduler that is free: 1 of 2 points"), "{sections}");
    }

    #[test]
    fn rivals_have_as_many_cores_with_their_scheduler() {
        let setup = Setup::default();
        let of = |cores, rate| candidates(&setup, cores, rate);
        let names = |of: &[Candidate]| {
            of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&of(1, 1e5)), "lanes minos hkh-ws");
        assert_eq!(names(&of(2, 1e5)), "lanes minos hkh-ws sho 1 shinjuku darc tq caladan");
        // Two hand-off cores have 300 ns for each of 6.6 million requests a second.
        assert!(names(&of(8, 6.7e6)).contains("hkh-ws sho 3 shinjuku"));
        for (name, machine) in of(8, 1e6) {
            let workers = if machine.central.is_some() { 7 } else { 8 };
            assert_eq!(machine.settings.workers, workers, "{name}");
        }
    }
}
