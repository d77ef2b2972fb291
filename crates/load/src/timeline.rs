//! What the server's control loop does while it is measured: `stats lanes` asked ten times a
//! second, written as CSV and drawn (Minos figure 10: the number of large workers while p_L
//! changes).
//!
//! The questions go over a TCP connection each, from a thread that the scheduler may put anywhere,
//! so that they do not delay the sender. Times are seconds from the opening of the measured window;
//! what came before is negative; the last is asked when the run is over. It knows no request.

use crate::admin;
use crate::connection::Target;
use crate::cpu;
use crate::dialect::Dialect;
use crate::output;
use crate::plot::{self, Chart, Line, Log};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two questions.
const EVERY: Duration = Duration::from_millis(100);
/// Of `stats lanes`, what is written.
const COLUMNS: [&str; 6] = [
    "workers_large",
    "workers_standby",
    "workers_small",
    "threshold_bytes",
    "role_changes",
    "epochs",
];

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Seconds from the opening of the window.
    pub at_s: f64,
    /// The numbers of `COLUMNS`, in their order.
    pub numbers: Vec<f64>,
}

impl Sample {
    fn of(at_s: f64, stats: &BTreeMap<String, String>) -> Option<Sample> {
        let number = |name| stats.get(name)?.trim().parse().ok();
        let numbers = COLUMNS.map(number).into_iter().collect::<Option<Vec<f64>>>()?;
        Some(Sample { at_s, numbers })
    }

    /// Asks the server at `target` once.
    pub fn ask(target: &Target, at_s: f64) -> Result<Sample, String> {
        let stats = admin::stats(target, Dialect::Text, "lanes")
            .map_err(|error| format!("stats lanes of {target}: {error}"))?;
        Sample::of(at_s, &stats).ok_or_else(|| format!("{target} has no stats lanes"))
    }

    /// Workers that serve large requests only.
    pub fn workers_large(&self) -> f64 {
        self.numbers[0]
    }

    /// From this size on a request is large, bytes.
    pub fn threshold_bytes(&self) -> u64 {
        self.numbers[3] as u64
    }

    /// Plans made.
    pub fn epochs(&self) -> u64 {
        self.numbers[5] as u64
    }
}

/// Asks until it is told to stop.
#[derive(Debug)]
pub struct Sampler {
    began: Instant,
    stop: Sender<()>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    /// Begins to ask the server at `target`; an error if it does not tell what is wanted.
    pub fn start(target: &Target) -> Result<Self, String> {
        let (target, began) = (target.clone(), Instant::now());
        let ask = move || Sample::ask(&target, began.elapsed().as_secs_f64()).ok();
        ask().ok_or("--timeline: the server does not answer stats lanes; is it a Laneway?")?;
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            cpu::unpin();
            let mut samples = Vec::new();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                samples.extend(ask());
            }
            // What came of it, also where this thread had no turn for a long time.
            samples.extend(ask());
            samples
        });
        Ok(Sampler { began, stop, thread })
    }

    /// Stops asking; what was answered, in seconds from the moment `opened`, which nobody knows
    /// before the schedule is drawn and the connections are there.
    pub fn finish(self, opened: Instant) -> Vec<Sample> {
        drop(self.stop);
        let mut samples = self.thread.join().unwrap_or_default();
        let later_s = seconds_later(opened, self.began);
        samples.iter_mut().for_each(|sample| sample.at_s -= later_s);
        samples
    }
}

/// How much later `at` is than `than`, less than 0 where it is earlier.
fn seconds_later(at: Instant, than: Instant) -> f64 {
    let [later, earlier] = [at.saturating_duration_since(than), than.saturating_duration_since(at)];
    later.as_secs_f64() - earlier.as_secs_f64()
}

/// A part of the window with its own share of large requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Seconds from the opening of the window.
    pub from_s: f64,
    /// Percentage of requests to large keys.
    pub large_percent: f64,
}

/// What the number of large workers became within a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settled {
    /// The step.
    pub step: Step,
    /// The number that it was for most of the step's second half.
    pub workers_large: f64,
    /// How long it took to become that.
    pub after_s: f64,
}

/// What it became in each step that was sampled.
pub fn settled(samples: &[Sample], steps: &[Step]) -> Vec<Settled> {
    let ends = steps.iter().skip(1).map(|step| step.from_s).chain([f64::INFINITY]);
    let settled = steps.iter().zip(ends).filter_map(|(step, end_s)| {
        let within: Vec<&Sample> =
            samples.iter().filter(|one| one.at_s >= step.from_s && one.at_s < end_s).collect();
        let mut half: Vec<f64> =
            within[within.len() / 2..].iter().map(|one| one.workers_large()).collect();
        half.sort_by(f64::total_cmp);
        let workers_large = *half.get(half.len() / 2)?;
        let first = within.iter().find(|one| one.workers_large() == workers_large)?;
        Some(Settled { step: *step, workers_large, after_s: first.at_s - step.from_s })
    });
    settled.collect()
}

/// Writes the samples to `path`, and their picture beside it under the same name with `svg` behind.
pub fn write(path: &Path, samples: &[Sample], steps: &[Step]) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("--timeline {}: {error}", path.display());
    output::replace(path, csv(samples, steps)).map_err(failed)?;
    let picture = picture_of(path);
    let chart = Chart {
        title: "Large workers while the share of large requests changes",
        x_label: "time (s)",
        y_label: "workers, percent",
        log: Log::Neither,
    };
    let svg = plot::svg(chart, &lines(samples, steps))?;
    output::replace(&picture, svg).map_err(failed)?;
    Ok(picture)
}

/// Where the picture of a timeline at `path` is.
pub(crate) fn picture_of(path: &Path) -> PathBuf {
    path.with_extension("svg")
}

fn large_percent(steps: &[Step], at_s: f64) -> f64 {
    let now = steps.iter().rev().find(|step| step.from_s <= at_s).or(steps.first());
    now.map_or(0.0, |step| step.large_percent)
}

fn csv(samples: &[Sample], steps: &[Step]) -> String {
    let mut out = format!("at_s,large_percent,{}\n", COLUMNS.join(","));
    for sample in samples {
        let _ = write!(out, "{:.3},{}", sample.at_s, large_percent(steps, sample.at_s));
        for number in &sample.numbers {
            let _ = write!(out, ",{number}");
        }
        out.push('\n');
    }
    out
}

/// Both as stairs: what was seen holds until something else is seen.
fn lines(samples: &[Sample], steps: &[Step]) -> Vec<Line> {
    let stairs = |of: &dyn Fn(&Sample) -> f64| {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for sample in samples {
            let value = of(sample);
            if let Some(&(_, before)) = points.last().filter(|&&(_, before)| before != value) {
                points.push((sample.at_s, before));
            }
            points.push((sample.at_s, value));
        }
        points
    };
    vec![
        ("large workers".into(), stairs(&Sample::workers_large)),
        ("large requests (%)".into(), stairs(&|sample| large_percent(steps, sample.at_s))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, workers_large: f64) -> Sample {
        Sample { at_s, numbers: vec![workers_large, 0.0, 3.0, 1_500.0, 2.0, 10.0] }
    }

    const STEPS: [Step; 2] =
        [Step { from_s: 0.0, large_percent: 0.125 }, Step { from_s: 10.0, large_percent: 0.75 }];

    fn samples() -> Vec<Sample> {
        (-10..200)
            .map(|tenth| sample(f64::from(tenth) / 10.0, f64::from(1 + i32::from(tenth >= 115))))
            .collect()
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        let settled = settled(&samples(), &STEPS);
        assert_eq!((settled[0].workers_large, settled[0].after_s), (1.0, 0.0));
        assert_eq!(settled[1].workers_large, 2.0);
        assert!((settled[1].after_s - 1.5).abs() < 1e-9, "{settled:?}");
        assert_eq!(super::settled(&[], &STEPS), []);
    }

    #[test]
    fn times_are_from_the_opening_however_long_it_took_to_prepare() {
        let sampler = |samples: Vec<Sample>| {
            let (stop, _) = channel();
            let began = Instant::now();
            (began, Sampler { began, stop, thread: std::thread::spawn(|| samples) })
        };
        let (began, one) = sampler(vec![sample(1.0, 1.0), sample(6.0, 2.0)]);
        let told = one.finish(began + Duration::from_secs(4));
        assert_eq!(told.iter().map(|one| one.at_s).collect::<Vec<_>>(), [-3.0, 2.0]);
        let (began, one) = sampler(vec![sample(1.0, 1.0)]);
        let earlier = began.checked_sub(Duration::from_secs(2)).expect("the machine runs");
        assert_eq!(one.finish(earlier)[0].at_s, 3.0);
    }

    #[test]
    fn rows_and_stairs_say_what_was_seen() {
        let samples = samples();
        let text = csv(&samples, &STEPS);
        assert_eq!(text.lines().count(), 211);
        assert!(text.contains("\n-1.000,0.125,1,0,3,1500,2,10\n"), "{text}");
        assert!(text.contains("\n11.500,0.75,2,0,3,1500,2,10\n"));
        let lines = lines(&samples, &STEPS);
        assert_eq!(lines[0].1.len(), 211);
        assert!(lines[0].1.contains(&(11.5, 1.0)) && lines[0].1.contains(&(11.5, 2.0)));
    }

    #[test]
    fn only_a_whole_answer_is_a_sample() {
        let mut stats: BTreeMap<String, String> =
            COLUMNS.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
        assert!(Sample::of(0.0, &stats).is_some());
        stats.remove("epochs");
        assert_eq!(Sample::of(0.0, &stats), None);
    }
}
