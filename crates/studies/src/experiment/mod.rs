//! The papers' experiments against real servers: `laneway bench interception` is a definition of
//! bench/definitions, `laneway bench designs` makes definitions as it goes; the pair runner runs
//! them on servers that it starts itself; out come a table and a picture.
//!
//! A run's name is `LINE @ X`: the line of the picture it belongs to, and where on the horizontal
//! axis. What two CPUs can show is what a request costs and who waits for whom; that work spreads
//! over cores is for the simulator (`laneway sim`).

pub mod adapt;
pub mod designs;

use designs::Sweep;
use laneway_load::arguments::{self, number, text, within};
use laneway_load::output;
use laneway_load::pairs::definition::{self, Definition};
use laneway_load::pairs::{self, Options, Round, builtin};
use laneway_load::plot::{self, Chart, Extras, Line, Log};
use laneway_load::report::table::spread;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `laneway bench EXPERIMENT --help` prints.
pub const HELP: &str = "\
laneway bench EXPERIMENT: an experiment of the papers, on servers that it starts itself

usage: laneway bench EXPERIMENT [flags]

  interception   a GET met at XDP, at tc, at the UDP socket or in a worker (Hippos); needs root, and
                 the program beside this one that `cargo build --release -p laneway-kernel
                 --features kernel --example interception` makes
  designs        lanes, minos, hkh, hkh-ws and sho under the default workload, at shares of the
                 best peak, which it finds first (Minos, section 6)
  designs-p-large
                 the same at a quarter of that peak, 0.0625 to 0.75 % of the requests large
  designs-s-large
                 the same, the largest value 250 to 1000 KB

  --pairs N      rounds                                              [as the definition says]
  --get-share X  of the designs: share of GETs, 0 to 1 (Minos has 0.95 and 0.5)        [0.95]
  --out DIR      also write the table and the pictures there
  --help, -h     this

Servers run on CPU 0, under SCHED_FIFO where that is allowed; the client spins on CPU 1.
";

/// Which experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// Hippos' study of places to hook.
    Interception,
    /// The five designs.
    Designs(Sweep),
}

/// A picture: what is on its vertical axis, and how it is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Picture {
    /// End of the file's name.
    pub name: &'static str,
    /// Where the number stands in what a run measured.
    pub value: &'static str,
    /// The rest.
    pub chart: Chart<'static>,
}

const CPU: &str = "/server/cpu_us_per_request";
/// A picture of which the labels are its title, and those of the axes: the horizontal one first.
const fn picture(
    name: &'static str,
    value: &'static str,
    [title, x_label, y_label]: [&'static str; 3],
    log: Log,
) -> Picture {
    Picture { name, value, chart: Chart { title, x_label, y_label, log } }
}

/// After Hippos's latency and CPU by the position of the hook.
const INTERCEPTION: &[Picture] = &[
    met("answered-cpu", "/answered/cpu_us", "CPU of client and server (us)", Log::Neither),
    met("answered-p50", "/answered/p50_us", "median round trip (us)", Log::Vertical),
    met("answered-p99", "/answered/p99_us", "p99 of the round trip (us)", Log::Vertical),
    met("dropped-cpu", "/dropped/cpu_us", "CPU of a dropped one (us)", Log::Neither),
];

const fn met(name: &'static str, value: &'static str, y_label: &'static str, log: Log) -> Picture {
    picture(name, value, ["Where a GET is met", "requests/s (thousands)", y_label], log)
}

impl Experiment {
    const ALL: [(&'static str, Experiment); 4] = [
        ("interception", Experiment::Interception),
        ("designs", Experiment::Designs(Sweep::Load)),
        ("designs-p-large", Experiment::Designs(Sweep::PLarge)),
        ("designs-s-large", Experiment::Designs(Sweep::SLarge)),
    ];

    /// The experiment of this name.
    pub fn named(name: &str) -> Option<Experiment> {
        Self::ALL.iter().find(|(own, _)| *own == name).map(|(_, experiment)| *experiment)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, experiment)| *experiment == self);
        found.map_or("", |(name, _)| name)
    }

    /// Its definition; the designs' is made when their peak is known.
    fn definition(self) -> Option<&'static str> {
        builtin::text(self.name())
    }

    /// Its pictures.
    fn pictures(self) -> &'static [Picture] {
        match self {
            Experiment::Interception => INTERCEPTION,
            Experiment::Designs(sweep) => sweep.pictures(),
        }
    }
}

/// Runs `laneway bench NAME` with the arguments after the name.
pub fn main(experiment: Experiment, arguments: Vec<OsString>) -> ExitCode {
    let command = format!("bench {}", experiment.name());
    arguments::carry_out(&command, HELP, Flags::parse(arguments), |flags| {
        let table = carry_out(experiment, &flags)?;
        output::print(table).map(|()| true)
    })
}

#[derive(Debug, Default)]
struct Flags {
    pairs: Option<usize>,
    out: Option<PathBuf>,
    get_share: Option<String>,
}

impl Flags {
    /// Reads them; nothing where help is asked for.
    fn parse(arguments: Vec<OsString>) -> Result<Option<Flags>, String> {
        let mut flags = Flags::default();
        let mut parser = Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            match argument {
                Arg::Long("help") | Arg::Short('h') => return Ok(None),
                Arg::Long("pairs") => flags.pairs = Some(number("pairs", &mut parser)?),
                Arg::Long("get-share") => {
                    let share: f64 = number("get-share", &mut parser)?;
                    within("get-share", share, 0.0..=1.0)?;
                    flags.get_share = Some(share.to_string());
                }
                Arg::Long("out") => flags.out = Some(text("out", &mut parser)?.into()),
                other => return Err(other.unexpected().to_string()),
            }
        }
        match flags.pairs {
            Some(0) => Err("--pairs 0: must be at least 1".into()),
            _ => Ok(Some(flags)),
        }
    }
}

fn carry_out(experiment: Experiment, flags: &Flags) -> Result<String, String> {
    if flags.get_share.is_some() && !matches!(experiment, Experiment::Designs(_)) {
        return Err("--get-share: only the designs' experiments take it".into());
    }
    let failed = |folder: &Path, error: io::Error| {
        let folder = folder.display();
        format!("--out {folder}: {error}")
    };
    if let Some(folder) = &flags.out {
        // Before the rounds, which take long.
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    }
    let laneway = std::env::current_exe().map_err(|error| format!("its own program: {error}"))?;
    let mut options = Options::new(&std::env::temp_dir());
    options.laneway = laneway;
    let (definition, rounds) = match (experiment, experiment.definition()) {
        (Experiment::Designs(sweep), _) => {
            let get_share = flags.get_share.as_deref().unwrap_or(designs::GET_SHARE);
            designs::measure(sweep, get_share, flags.pairs, &options)?
        }
        (_, text) => {
            let text = text.ok_or("it has no definition")?;
            let mut definition = definition::parse(text)?;
            definition.pairs = flags.pairs.unwrap_or(definition.pairs);
            let collected = pairs::collect(&definition, &options)?;
            (definition, collected.rounds)
        }
    };
    let table = table(&definition, experiment.pictures(), &rounds);
    if let Some(folder) = &flags.out {
        let failed = |error: io::Error| failed(folder, error);
        let name = experiment.name();
        std::fs::write(folder.join(format!("{name}.md")), &table).map_err(failed)?;
        for picture in experiment.pictures() {
            let lines = lines(&definition, picture, &rounds);
            let svg = plot::svg(picture.chart, &lines, &Extras::default())?;
            let file = folder.join(format!("{name}-{}.svg", picture.name));
            std::fs::write(file, svg).map_err(failed)?;
        }
    }
    Ok(table)
}

/// What a run measured in every round, where it did.
fn values(run: &str, value: &str, rounds: &[Round]) -> Vec<f64> {
    let found = rounds.iter().filter_map(|round| round.get(run)?.pointer(value)?.as_f64());
    let mut values: Vec<f64> = found.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// What a run measured, in the median of its rounds.
fn median(run: &str, value: &str, rounds: &[Round]) -> Option<f64> {
    let values = values(run, value, rounds);
    (!values.is_empty()).then(|| laneway_load::report::table::median(&values))
}

/// The lines of a picture: medians over the rounds, in the order of the runs.
fn lines(definition: &Definition, picture: &Picture, rounds: &[Round]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for run in &definition.runs {
        let Some((line, x)) = run.name.split_once(" @ ") else { continue };
        let y = median(&run.name, picture.value, rounds);
        let Some(point) = x.parse::<f64>().ok().zip(y) else { continue };
        match lines.iter_mut().find(|(name, _)| name == line) {
            Some((_, points)) => points.push(point),
            None => lines.push((line.to_owned(), vec![point])),
        }
    }
    lines
}

/// Every run and the numbers of its pictures, as Markdown.
fn table(definition: &Definition, pictures: &[Picture], rounds: &[Round]) -> String {
    let mut out = format!("{}\n\n| run |", definition.about);
    for picture in pictures {
        let _ = write!(out, " {}: {} |", picture.chart.title, picture.chart.y_label);
    }
    let _ = write!(out, "\n|---|{}", "---|".repeat(pictures.len()));
    for run in &definition.runs {
        let _ = write!(out, "\n| {} |", run.name);
        for picture in pictures {
            let values = values(&run.name, picture.value, rounds);
            let _ = write!(out, " {} |", spread(values.into_iter()));
        }
    }
    let _ = writeln!(out, "\n\n{} rounds, median [min..max]", rounds.len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_experiment_has_a_good_definition_whose_runs_are_points() {
        for (name, experiment) in Experiment::ALL {
            assert_eq!(Experiment::named(name), Some(experiment));
            assert_eq!(experiment.name(), name);
            let definition = match experiment.definition() {
                Some(text) => definition::parse(text).expect(name),
                None => continue,
            };
            for run in &definition.runs {
                let (_, x) = run.name.split_once(" @ ").expect(name);
                assert!(x.parse::<f64>().is_ok(), "{name}: {x}");
            }
        }
        assert_eq!(Experiment::named("serve"), None);
    }

    #[test]
    fn medians_become_lines_and_a_table() {
        let text = designs::definition(&[("lanes", "")], &[("25", "--rate 1")], "--udp", 2);
        let mut definition = definition::parse(&text).expect("good");
        definition.runs[0].name = "lanes @ 25".into();
        let round = |p99: f64| {
            let measured = json!({"quiet": {"small": {"p99": p99}}});
            Round::from([("lanes @ 25".to_owned(), measured)])
        };
        let rounds = [round(3.0), round(1.0), round(2.0)];
        let picture = &Sweep::Load.pictures()[0];
        let line = [("lanes".to_owned(), vec![(25.0, 2.0)])];
        assert_eq!(lines(&definition, picture, &rounds), line);
        let table = table(&definition, Sweep::Load.pictures(), &rounds);
        assert!(table.contains("| lanes @ 25 | 2 [1..3] | - |"), "{table}");
    }

    #[test]
    fn a_folder_that_cannot_be_is_told_before_anything_is_measured() {
        let file = std::env::temp_dir().join(format!("laneway-no-folder-{}", std::process::id()));
        std::fs::write(&file, b"a file").expect("the temporary folder takes files");
        let flags = Flags { out: Some(file.join("below")), ..Flags::default() };
        let told = carry_out(Experiment::Interception, &flags);
        std::fs::remove_file(&file).expect("it is there");
        assert!(told.is_err_and(|told| told.starts_with("--out ")));
    }

    #[test]
    fn wrong_flags_are_told() {
        let parse = |line: &str| Flags::parse(line.split(' ').map(Into::into).collect());
        assert!(parse("--pairs 0").is_err_and(|words| words.contains("--pairs 0")));
        assert!(parse("--pears 1").is_err_and(|words| words.contains("--pears")));
        assert!(parse("--get-share 2").is_err_and(|words| words.contains("must be in 0..=1")));
        assert!(parse("--get-share 0.5").is_ok_and(|flags| flags.is_some()));
        assert!(parse("--help").is_ok_and(|flags| flags.is_none()));
    }
}
