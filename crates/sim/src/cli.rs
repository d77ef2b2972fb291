//! `laneway sim`: which figures, how much of them, and where to.

use crate::arguments::{text, whole};
use crate::plan_cli;
use crate::report;
use crate::row;
use crate::run_cli;
use crate::scenarios::{self, Scenario, Setup};
use crate::study::{Effort, Study};
use crate::sweep::{self, Sweep};
use laneway_load::arguments::carry_out;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Simulates a machine of n workers that the server's own policies drive.

Usage: laneway sim SCENARIO... [FLAGS]
       laneway sim all [--quick|--full] --out DIR
       laneway sim plan --rate 3e6 --slo-us 50         how many cores (plan --help says more)
       laneway sim run --design minos,lanes --load 0.5,0.9     any point (run --help says more)

How much:
  --quick             3 seeds, wide intervals (default)
  --full              8 seeds, at least 2 M requests a point, 20 M at K = 1000
  --seed N            the first seed (default 1); a run repeats exactly
  --threads N         (default: as many as there are CPUs); results do not depend on it

Where to:
  --out DIR           NAME.json, NAME.csv, NAME-*.svg and index.html
  --json              rows as JSON lines on standard output, instead of a table
  --no-table          nothing on standard output

The machine (default: the server of the Minos paper):
  --workers N         of the figures that have one number of them (default 8)
  --batch N           requests taken from an RX queue at a time (default 32)
  --nic-gbit X        rate of the wire (default 40)
  --nic-order O       round-robin (default) or small-first
  --nic-burst N       frames of a TX queue in its turn (default 1)
  --tx-queues Q       per-worker (default) or per-lane, for every design; lanes is per-lane
  --network-us X      added to latencies of figures with a wire (default 3.7)
  --request-ns N --packet-ns N          a request, and each packet of it (441, 700)
  --receive-ns N --handoff-ns N         of that, receiving (200); handing over (100)
  --steal-ns N --slice-ns N             taking from another (100); another slice (100)
  --profile-ns N                        of a request, counting sizes (130)
  --profile P         all (default) designs count sizes, or lanes: hkh, hkh-ws and sho do not
  --standby S         the large worker that minos has where none is needed: returns (default) to
                      small requests when it has no large one; epoch: is lost to them until its
                      end; reads-on: serves them in between all the while, as our server's

  --way W             sets request and packet to what they cost by this way in: bypass (the
                      paper's), tcp-pipelined, tcp, udp (as measured over loopback); by TCP
                      nobody takes what another has not read

Scenarios:
";

const HELP_SCALE: &str = "\
What do 1 to 1000 cores serve in a day, and at what p99?

Usage: laneway sim scale [--json] [--out DIR]

A model: the default workload at 70 % load, the cost of a request by each way in (kernel bypass as
in the paper; TCP and UDP as measured over loopback), and beyond 64 cores as many domains of 64
side by side. p99 is simulated for one domain. Columns: CPU per request, requests a day, core hours
a billion requests, bits on the wire, p99 of all and of large requests. Not in it: NICs, memory
bandwidth, peaks above the daily mean (70 % leaves room for 1.4 times the mean).
";

/// Said of what this build has not.
const LACKING: &str =
    "built without the feature `research`; build with `cargo build --release --features research`";

struct Flags {
    scenarios: Vec<&'static Scenario>,
    effort: Effort,
    seed: u64,
    threads: usize,
    out: Option<PathBuf>,
    json: bool,
    table: bool,
    setup: Setup,
}

enum Asked {
    Help,
    HelpOf(&'static str),
    Run(Box<Flags>),
}

/// Runs with these arguments, `sim` itself not among them.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    match args.first().and_then(|first| first.to_str()) {
        Some("run") => return run_cli::main(args[1..].iter().cloned()),
        Some("plan") => return plan_cli::main(args[1..].iter().cloned()),
        _ => {}
    }
    let words: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let mut help = help();
    let flags = parse(args).map(|asked| match asked {
        Asked::Help => None,
        Asked::HelpOf(text) => {
            help = text.to_owned();
            None
        }
        Asked::Run(flags) => Some(flags),
    });
    carry_out("sim", &help, flags, |flags| run(&flags, &words.join(" ")).map(|()| true))
}

/// [`HELP`], with the scenarios of this build.
fn help() -> String {
    let line = |scenario: &Scenario| format!("  {:<19} {}\n", scenario.name, scenario.about);
    let scenarios: String = scenarios::BUILT.iter().map(line).collect();
    let lacking = format!("  (those of papers: {LACKING})\n");
    format!("{HELP}{scenarios}{}", if scenarios::HAS_FIGURES { "" } else { &lacking })
}

fn parse(args: Vec<OsString>) -> Result<Asked, String> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut flags = Flags {
        scenarios: Vec::new(),
        effort: Effort::Quick,
        seed: 1,
        threads: cpus,
        out: None,
        json: false,
        table: true,
        setup: Setup::default(),
    };
    let mut machine = Sweep::default();
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
        match arg {
            Long("help") | Short('h') => match flags.scenarios[..] {
                [one] if one.name == "scale" => return Ok(Asked::HelpOf(HELP_SCALE)),
                _ => return Ok(Asked::Help),
            },
            Value(name) if name == "list" => return Ok(Asked::Help),
            Value(name) if name == "all" => flags.scenarios.extend(all()?),
            Value(name) => flags.scenarios.push(scenario(&name.to_string_lossy())?),
            Long("quick") => flags.effort = Effort::Quick,
            Long("full") => flags.effort = Effort::Full,
            Long("json") => flags.json = true,
            Long("no-table") => flags.table = false,
            Long("seed") => flags.seed = whole(&mut parser, "--seed", 0, 1 << 40)?,
            Long("threads") => flags.threads = whole(&mut parser, "--threads", 1, 1024)?,
            Long("out") => flags.out = Some(text(&mut parser, "--out")?.into()),
            Long(name) => {
                let name = name.to_owned();
                machine_flag(&name, &mut parser, &mut machine)?;
            }
            Short(flag) => return Err(format!("-{flag}: no such flag")),
        }
    }
    flags.setup = machine.setup()?;
    let costs = flags.setup.costs;
    if costs.spared() > costs.request {
        return Err("--request-ns must be at least --receive-ns and --profile-ns together".into());
    }
    if flags.scenarios.is_empty() {
        return Ok(Asked::Help);
    }
    Ok(Asked::Run(Box::new(flags)))
}

/// The parameters of `laneway sim run` that figures have too.
const OF_MACHINE: &str = "workers batch nic-gbit nic-order nic-burst tx-queues network-us way \
                          request-ns packet-ns receive-ns handoff-ns steal-ns slice-ns profile-ns \
                          profile standby";

fn machine_flag(
    name: &str,
    parser: &mut lexopt::Parser,
    machine: &mut Sweep,
) -> Result<(), String> {
    if !OF_MACHINE.split_whitespace().any(|known| known == name) {
        return Err(format!("--{name}: no such flag"));
    }
    let value = text(parser, &format!("--{name}"))?;
    let refused = match name {
        // A figure with one large worker and one small has at least two.
        "workers" => sweep::whole::<u64>(&value, 2, 64).err(),
        // A figure has a wire or has none, whatever the flags say.
        "nic-gbit" => sweep::number(&value, 0.001, 1e6).err(),
        _ => None,
    };
    match refused {
        Some(error) => Err(format!("--{name} {value}: {error}")),
        None => machine.set_all(name, vec![value]),
    }
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    if ["run", "plan"].contains(&name) {
        return Err(format!("{name}: is a command of its own; give it first, and no scenario"));
    }
    scenarios::named(name).ok_or_else(|| match scenarios::is_known(name) {
        true => format!("{name}: {LACKING}"),
        false => format!("{name}: no such scenario"),
    })
}

/// A build that lacks some makes no page of the rest by that name.
fn all() -> Result<&'static [Scenario], String> {
    match scenarios::HAS_FIGURES {
        true => Ok(scenarios::BUILT),
        false => Err(format!("all: {LACKING}")),
    }
}

fn run(flags: &Flags, words: &str) -> Result<(), String> {
    let begun = Instant::now();
    let study = Study::new(flags.effort, flags.seed, flags.threads);
    if let Some(folder) = &flags.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("--out {}: {error}", folder.display()))?;
    }
    let mut written = Vec::new();
    for scenario in &flags.scenarios {
        let (name, about) = (scenario.name, scenario.about);
        let figure = (scenario.run)(&study, &flags.setup);
        if flags.json {
            print!("{}", report::json_lines(&figure.rows));
        } else if flags.table {
            println!("{name}: {about}\n{}", row::table(&figure.rows));
        }
        if let Some(folder) = &flags.out {
            written.push(report::write(folder, name, about, &figure, study.effort)?);
        }
    }
    if let Some(folder) = &flags.out {
        report::write_page(folder, &written, &format!("laneway sim {words}"))?;
    }
    let (simulated, speed) = study.speed();
    eprintln!(
        "simulated {:.1} M requests in {:.1} s, {:.1} M a second on {} threads, {:.1} M on each",
        simulated as f64 / 1e6,
        begun.elapsed().as_secs_f64(),
        simulated as f64 / begun.elapsed().as_secs_f64() / 1e6,
        flags.threads,
        speed / 1e6,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Reach;

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn what_cannot_be_says_flag_value_and_limit() {
        for (line, words) in [
            ("minos-fig1", "minos-fig1: no such scenario"),
            ("scale --workers 0", "--workers 0: must be a whole number from 2 to 64"),
            ("scale --nic-gbit none", "--nic-gbit none: must be a number"),
            ("scale --nic-order fifo", "--nic-order fifo: must be one of round-robin, small-first"),
            ("scale --request-ns 100", "--request-ns must be at least"),
            ("scale plan", "plan: is a command of its own; give it first"),
            ("scale --slo-us 50", "--slo-us: no such flag"),
            ("scale --way rdma", "--way rdma: must be one of bypass, tcp-pipelined, udp, tcp"),
            ("scale --standby never", "--standby never: must be one of returns, epoch, reads-on"),
            ("scale --profile 3", "--profile 3: must be one of all, lanes"),
            ("scale --wurst 3", "--wurst: no such flag"),
        ] {
            let got = parsed(line).err().expect(line);
            assert!(got.contains(words), "{line}: {got}");
        }
    }

    #[test]
    fn flags_reach_the_machine() {
        let line = "scale --full --seed 7 --workers 16 --packet-ns 300";
        let Ok(Asked::Run(flags)) = parsed(line) else { panic!("a run") };
        assert_eq!((flags.effort, flags.seed, flags.setup.workers), (Effort::Full, 7, 16));
        assert_eq!(flags.setup.costs.packet, 300_000);
    }

    #[test]
    fn help_is_about_what_was_named() {
        assert!(matches!(parsed("scale -h"), Ok(Asked::HelpOf(HELP_SCALE))));
        assert!(matches!(parsed("--help"), Ok(Asked::Help)));
    }

    #[test]
    fn a_way_in_sets_what_a_request_costs() {
        let Ok(Asked::Run(flags)) = parsed("scale --way tcp") else { panic!("a run") };
        assert_eq!((flags.setup.costs.request, flags.setup.costs.packet), (8_200_000, 300_000));
        assert_eq!(flags.setup.reach, Reach::Offered);
    }

    #[test]
    fn every_scenario_has_a_name_of_its_own() {
        for scenario in scenarios::BUILT {
            let found = scenarios::named(scenario.name).expect("it is there");
            assert_eq!(found.about, scenario.about);
        }
    }

    #[test]
    fn a_figure_that_is_not_built_in_is_told_from_one_that_nobody_knows() {
        for name in ["minos-fig2", "losses", "all"] {
            let told = parsed(&format!("{name} --seed")).err().expect("--seed takes a number");
            assert_eq!(told.contains("feature `research`"), !scenarios::HAS_FIGURES, "{told}");
        }
    }
}
