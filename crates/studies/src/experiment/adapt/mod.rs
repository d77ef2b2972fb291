//! `laneway bench adapt`: Minos's figure 10 on a real server. The share of large requests changes
//! while the server runs; how many epochs of its control loop pass until it has as many large
//! workers as the rule asks for (Minos §3.1), and whether it keeps them.
//!
//! Departs from the paper: its clients send at a fixed rate, ours form a closed loop over UDP, and
//! an epoch is as long as this machine needs for a number of requests; so what is counted, epochs,
//! is the same on a fast machine and a slow one. Latencies of a closed loop mean nothing and are
//! not shown. What each phase should lead to comes from `policy` and the workload's own sizes, not
//! from the server. The servers run wherever the scheduler puts them: nothing here is timed.
//!
//! It knows no design but those whose roles follow the load. Units: epochs, workers, percent.

mod follow;
mod lanes;
mod rule;
mod show;

use follow::{Epoch, Outcome, Phase};
use lanes::{Sample, Sampler};
use laneway_load::arguments::{self, number, text, within};
use laneway_load::cli;
use laneway_load::connection::Target;
use laneway_load::output;
use laneway_load::pairs::Options;
use laneway_load::pairs::definition::ServerDefinition;
use laneway_load::pairs::server::{Places, Server};
use laneway_load::report::json::Run;
use laneway_load::run::{Plan, run};
use laneway_policy::Design;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// What `laneway bench adapt --help` prints.
pub const HELP: &str = "\
laneway bench adapt: how fast the server's roles follow a share of large requests that changes
(Minos, figure 10), on servers that it starts itself, over UDP

usage: laneway bench adapt [flags]

  --design LIST         minos, lanes, or both, one after the other             [minos,lanes]
  --p-large LIST        percentages of large requests, one phase each
                                                   [0.125,0.25,0.5,0.75,0.5,0.25,0.125]
  --epochs N            epochs of a phase                                                [6]
  --epoch-requests N    requests of an epoch, about: how long it lasts is found out  [90000]
  --workers N           of the server                                                    [8]
  --keys N              in all; a hundredth of them is large                         [20000]
  --out DIR             write adapt.csv (a row an epoch) and the pictures there
  --check               fail unless each change is followed within 2 epochs and kept, and no reply
                        is lost
  --help, -h            this

A closed loop as fast as the server answers; epochs are counted, not seconds.
";

/// Large requests' largest value, bytes (the paper's default).
const LARGE_BYTES_MAX: u64 = 500_000;
/// Of how many keys one is large.
const KEYS_PER_LARGE: u64 = 100;
/// For what is stored, twice over.
const MEMORY_MB: u64 = 512;
/// Requests of an epoch, for each that the server is told to need to believe it at once: the
/// machine may be three times as slow in the run as in the trial.
const SPARE: f64 = 3.0;
/// How often a design is run again because the machine has become slower still.
const RUNS_AGAIN: usize = 2;
/// An epoch is sampled ten times a second.
const EPOCH_S_MIN: f64 = 0.5;
/// Where a server is slower than that, its epochs are thinner.
const EPOCH_S_MAX: f64 = 60.0;
/// How often a server is started again that did not start.
const STARTS_AGAIN: usize = 4;
/// How long it is tried how fast the server is.
const TRIAL_S: f64 = 2.0;

/// Flags as checked.
#[derive(Debug, Clone, PartialEq)]
struct Flags {
    designs: Vec<Design>,
    large_percents: Vec<f64>,
    epochs: u32,
    epoch_requests: u32,
    workers: u16,
    keys: u64,
    out: Option<PathBuf>,
    check: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            designs: vec![Design::Minos, Design::Lanes],
            large_percents: vec![0.125, 0.25, 0.5, 0.75, 0.5, 0.25, 0.125],
            epochs: 6,
            epoch_requests: 90_000,
            workers: 8,
            keys: 20_000,
            out: None,
            check: false,
        }
    }
}

impl Flags {
    /// Reads them; nothing where help is asked for.
    fn parse(arguments: Vec<OsString>) -> Result<Option<Flags>, String> {
        let mut flags = Flags::default();
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            match argument {
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                Arg::Long("design") => flags.designs = designs(&text("design", &mut parser)?)?,
                Arg::Long("p-large") => {
                    flags.large_percents = percents(&text("p-large", &mut parser)?)?;
                }
                Arg::Long("epochs") => flags.epochs = number("epochs", &mut parser)?,
                Arg::Long("epoch-requests") => {
                    flags.epoch_requests = number("epoch-requests", &mut parser)?;
                }
                Arg::Long("workers") => flags.workers = number("workers", &mut parser)?,
                Arg::Long("keys") => flags.keys = number("keys", &mut parser)?,
                Arg::Long("out") => flags.out = Some(text("out", &mut parser)?.into()),
                Arg::Long("check") => flags.check = true,
                other => return Err(other.unexpected().to_string()),
            }
        }
        flags.checked().map(Some)
    }

    fn checked(self) -> Result<Flags, String> {
        let Flags { epochs, epoch_requests, workers, keys, .. } = self;
        if epochs < follow::EPOCHS_MIN {
            let least = follow::EPOCHS_MIN;
            return Err(format!("--epochs {epochs}: must be at least {least}, or none is kept"));
        }
        if epoch_requests < 1_000 {
            return Err(format!("--epoch-requests {epoch_requests}: must be at least 1000"));
        }
        within("workers", workers, 3..=64)
            .map_err(|why| why + "; fewer have no roles to change")?;
        within("keys", keys, 1_000..=1_000_000).map(|()| self)
    }

    /// The share that costs most.
    fn heaviest_percent(&self) -> f64 {
        self.large_percents.iter().copied().fold(0.0, f64::max)
    }

    /// The flags of the load, at a share of large requests.
    fn load(&self, large_percent: f64, seconds: f64, more: &str) -> String {
        let keys = self.keys;
        let keys_large = keys / KEYS_PER_LARGE;
        // A server that is starved answers late, which is not a lost reply.
        format!(
            "--udp --timeout-ms 60000 --drain 60 --closed --depth 4 --connections 8 --keys {keys} \
             --keys-large {keys_large} --s-large {LARGE_BYTES_MAX} --p-large {large_percent} \
             --warmup 0 --duration {seconds:.3} {more}"
        )
    }
}

fn designs(list: &str) -> Result<Vec<Design>, String> {
    let one = |name: &str| match name.trim() {
        "minos" => Ok(Design::Minos),
        "lanes" => Ok(Design::Lanes),
        other => Err(format!("--design {other}: must be minos or lanes; others have fixed roles")),
    };
    list.split(',').map(one).collect()
}

fn percents(list: &str) -> Result<Vec<f64>, String> {
    let one = |word: &str| match word.trim().parse::<f64>() {
        // Above that, the 99th percentile of sizes is that of large requests.
        Ok(percent) if (0.0..1.0).contains(&percent) => Ok(percent),
        _ => Err(format!("--p-large {list}: percentages from 0, below 1, such as 0.125,0.75")),
    };
    list.split(',').map(one).collect()
}

/// Runs `laneway bench adapt` with the arguments after the name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    arguments::carry_out("bench adapt", HELP, Flags::parse(arguments), |flags| {
        Ok(carry_out(&flags)? || !flags.check)
    })
}

/// What a design did.
#[derive(Debug)]
struct Followed {
    design: Design,
    epoch_s: f64,
    phases: Vec<Phase>,
    epochs: Vec<Epoch>,
    outcomes: Vec<Outcome>,
    /// Requests in all, and those whose reply never came.
    requests: u64,
    lost: u64,
    /// Epochs held fewer requests than the server believes at once.
    is_thin: bool,
}

impl Followed {
    fn is_good(&self) -> bool {
        self.lost == 0 && self.outcomes.iter().all(Outcome::is_good)
    }
}

fn carry_out(flags: &Flags) -> Result<bool, String> {
    let laneway = std::env::current_exe().map_err(|error| format!("its own program: {error}"))?;
    let options = Options { laneway, ..Options::new(&std::env::temp_dir()) };
    let places = Places::unpinned(&options, MEMORY_MB)?;
    // What cannot be written is told before minutes are spent.
    if let Some(folder) = &flags.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("--out {}: {error}", folder.display()))?;
    }
    let epoch_s = trial(flags, &places)?;
    let mut all = Vec::new();
    for &design in &flags.designs {
        all.push(believable(flags, design, epoch_s, &places)?);
    }
    let shown = output::print(show::table(&all));
    if let Some(folder) = &flags.out {
        show::write(folder, &all)?;
    }
    shown?;
    Ok(all.iter().all(Followed::is_good))
}

/// The server's flags. The cost of Minos is the paper's, packets: its figure shows what follows.
fn server(flags: &Flags, design: Design, epoch_s: f64) -> ServerDefinition {
    let cost = if design == Design::Minos { "--cost packets" } else { "" };
    let Flags { workers, epoch_requests, .. } = flags;
    let samples_min = samples_min(*epoch_requests);
    let epoch_ms = (1e3 * epoch_s).round();
    ServerDefinition {
        name: design.name().into(),
        command: format!(
            "{{laneway}} serve -l 127.0.0.1 -p {{port}} -U 0 --udp-base {{port}} -m {{memory}} \
             -t {workers} --design {design} {cost} --epoch-ms {epoch_ms} \
             --samples-min {samples_min}"
        ),
        ..ServerDefinition::default()
    }
}

/// Starts it: of the ports behind the one that was free, another program may have one.
fn start(definition: &ServerDefinition, places: &Places) -> Result<Server, String> {
    let mut again = 0..STARTS_AGAIN;
    loop {
        match Server::start(definition, places) {
            Err(_) if again.next().is_some() => {}
            started => return started,
        }
    }
}

/// Requests that the server needs to believe an epoch at once.
fn samples_min(epoch_requests: u32) -> u64 {
    (f64::from(epoch_requests) / SPARE) as u64
}

/// How long an epoch of so many requests lasts here, seconds.
fn trial(flags: &Flags, places: &Places) -> Result<f64, String> {
    let design = flags.designs[0]; // a list between commas is never empty
    let server = start(&server(flags, design, 1.0), places)?;
    let load = flags.load(flags.heaviest_percent(), TRIAL_S, "");
    let run = load_once(&server.target, &load)?;
    let per_s = run.requests.answered_per_s.max(1.0);
    let epoch_s = (f64::from(flags.epoch_requests) / per_s).clamp(EPOCH_S_MIN, EPOCH_S_MAX);
    eprintln!("{per_s:.0} requests/s with the heaviest mix: an epoch lasts {epoch_s:.2} s");
    Ok(epoch_s)
}

/// Runs a design, and runs it again with longer epochs where they held too little to be believed.
fn believable(
    flags: &Flags,
    design: Design,
    epoch_s: f64,
    places: &Places,
) -> Result<Followed, String> {
    let mut followed = one_design(flags, design, epoch_s, places)?;
    for _ in 0..RUNS_AGAIN {
        if !followed.is_thin {
            break;
        }
        let longer_s = (SPARE * followed.epoch_s).min(EPOCH_S_MAX);
        eprintln!("{design}: epochs held too few requests; once more, {longer_s:.2} s each");
        followed = one_design(flags, design, longer_s, places)?;
    }
    Ok(followed)
}

fn one_design(
    flags: &Flags,
    design: Design,
    epoch_s: f64,
    places: &Places,
) -> Result<Followed, String> {
    let server = start(&server(flags, design, epoch_s), places)?;
    // Every key is written before the first phase, so that no SET of the prefill is counted there.
    let none = flags.load(0.0, 0.05, "");
    load_once(&server.target, &none)?;
    let began = Instant::now();
    let sampler = Sampler::start(&server.target, began)?;
    let (mut phases, mut requests, mut lost, mut is_thin) = (Vec::new(), 0, 0, false);
    for &large_percent in &flags.large_percents {
        let load = flags.load(large_percent, epoch_s * f64::from(flags.epochs), "--no-prefill");
        let plan = plan(&server.target, &load)?;
        let (workers_large, threshold) = rule::of(design, flags.workers, &plan.workload)?;
        let from_s = began.elapsed().as_secs_f64();
        let epochs_before = Sample::ask(&server.target, from_s)?.epochs;
        phases.push(Phase { large_percent, from_s, epochs_before, workers_large, threshold });
        let run = checked(run(&plan)?.runs)?;
        requests += run.requests.counts.due;
        lost += run.requests.counts.lost + run.requests.counts.unanswered;
        let per_s = run.requests.answered_per_s;
        eprintln!("{design}: {large_percent} % large, {per_s:.0}/s");
        is_thin |= per_s * epoch_s < samples_min(flags.epoch_requests) as f64;
    }
    let epochs = follow::epochs(&sampler.finish());
    let outcomes = follow::outcomes(&epochs, &phases);
    Ok(Followed { design, epoch_s, phases, epochs, outcomes, requests, lost, is_thin })
}

fn plan(target: &Target, load: &str) -> Result<Plan, String> {
    cli::plan(format!("--server {target} {load}").split_whitespace())
}

fn load_once(target: &Target, load: &str) -> Result<Run, String> {
    checked(run(&plan(target, load)?)?.runs)
}

/// The one run that was asked for; wrong replies end the experiment.
fn checked(runs: Vec<Run>) -> Result<Run, String> {
    let run = runs.into_iter().next().ok_or("no run came")?;
    match &run.verdict.failed {
        // Lost replies are counted and told at the end.
        Some(fault) if run.requests.counts.corrupt + run.requests.counts.refused > 0 => {
            Err(fault.clone())
        }
        _ => Ok(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Flags>, String> {
        Flags::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn flags_become_an_experiment() {
        assert_eq!(parsed(""), Ok(Some(Flags::default())));
        let flags = parsed("--design lanes --p-large 0.125,0.75 --check").expect("good");
        let flags = flags.expect("no help");
        assert_eq!((flags.designs.as_slice(), flags.check), ([Design::Lanes].as_slice(), true));
        assert_eq!(flags.heaviest_percent(), 0.75);
        assert_eq!(parsed("--epochs 0 --help"), Ok(None));
    }

    #[test]
    fn a_wrong_flag_says_which_and_why() {
        for (line, words) in [
            ("--design hkh", "--design hkh: must be minos or lanes"),
            ("--p-large 1", "--p-large 1: percentages from 0, below 1"),
            ("--p-large 0.5,much", "--p-large 0.5,much: percentages"),
            ("--p-large NaN", "--p-large NaN: percentages"),
            ("--epochs 2", "--epochs 2: must be at least"),
            ("--epoch-requests 5", "--epoch-requests 5: must be at least"),
            ("--workers 2", "--workers 2: must be in 3..=64; fewer"),
            ("--keys 10", "--keys 10: must be in 1000..="),
            ("--epoch 5", "--epoch"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
    }

    #[test]
    fn its_load_is_one_that_the_generator_understands() {
        let flags = Flags::default();
        let target = Target::Tcp("127.0.0.1:1".into());
        let plan = plan(&target, &flags.load(0.5, 1.5, "--no-prefill")).expect("understood");
        assert!(!plan.prefill && plan.udp.is_some());
        assert_eq!(plan.workload.options().large_percent, 0.5);
        assert_eq!(plan.duration, std::time::Duration::from_secs_f64(1.5));
    }

    #[test]
    fn the_help_names_every_flag() {
        let names =
            ["design", "p-large", "epochs", "epoch-requests", "workers", "keys", "out", "check"];
        assert!(names.iter().all(|name| HELP.contains(&format!("--{name}"))));
        assert!(HELP.lines().all(|line| line.chars().count() <= 100));
    }
}
