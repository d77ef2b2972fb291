//! `laneway sim`: which figures, how much of them, and where to.

use crate::arguments::{number, text, whole};
use crate::machine::{Standby, WireOrder};
use crate::plan_cli;
use crate::report;
use crate::row;
use crate::run_cli;
use crate::scenarios::{self, Scenario, Setup, WAYS};
use crate::study::{Effort, Study};
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
    match parse(args) {
        Ok(Asked::Help) => {
            print!("{HELP}");
            for scenario in scenarios::BUILT {
                println!("  {:<19} {}", scenario.name, scenario.about);
            }
            if !scenarios::HAS_FIGURES {
                println!("  (those of papers: {LACKING})");
            }
            ExitCode::SUCCESS
        }
        Ok(Asked::HelpOf(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Asked::Run(flags)) => match run(&flags, &words.join(" ")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("laneway sim: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("laneway sim: {error}; laneway sim --help lists what there is");
            ExitCode::from(2)
        }
    }
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
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(help_of(&flags.scenarios)),
            Value(name) if name == "list" => return Ok(Asked::Help),
            Value(name) if name == "all" => flags.scenarios.extend(all()?),
            Value(name) => flags.scenarios.push(scenario(&name.to_string_lossy())?),
            Long("quick") => flags.effort = Effort::Quick,
            Long("full") => flags.effort = Effort::Full,
            Long("json") => flags.json = true,
            Long("no-table") => flags.table = false,
            Long("seed") => flags.seed = whole(&mut parser, "--seed", 0, 1 << 40)?,
            Long("threads") => {
                flags.threads = whole(&mut parser, "--threads", 1, 1024)? as usize;
            }
            Long("out") => flags.out = Some(text(&mut parser, "--out")?.into()),
            Long(flag) => {
                let flag = format!("--{flag}");
                machine_flag(&flag, &mut parser, &mut flags.setup)?;
            }
            Short(flag) => return Err(format!("-{flag}: no such flag")),
        }
    }
    let costs = flags.setup.costs;
    if costs.spared() > costs.request {
        return Err("--request-ns must be at least --receive-ns and --profile-ns together".into());
    }
    if flags.scenarios.is_empty() {
        return Ok(Asked::Help);
    }
    Ok(Asked::Run(Box::new(flags)))
}

fn help_of(scenarios: &[&Scenario]) -> Asked {
    match scenarios {
        [one] if one.name == "scale" => Asked::HelpOf(HELP_SCALE),
        _ => Asked::Help,
    }
}

fn machine_flag(flag: &str, parser: &mut lexopt::Parser, setup: &mut Setup) -> Result<(), String> {
    const NS_MAX: u64 = 1_000_000_000;
    let ns = |parser: &mut lexopt::Parser| -> Result<u64, String> {
        Ok(whole(parser, flag, 0, NS_MAX)? * 1_000)
    };
    let costs = &mut setup.costs;
    match flag {
        // A figure with one large worker and one small has at least two.
        "--workers" => setup.workers = whole(parser, flag, 2, 64)? as u16,
        "--batch" => setup.batch = whole(parser, flag, 1, 100_000)? as u32,
        "--nic-gbit" => setup.nic.gigabits = number(parser, flag, 0.001, 1e6)?,
        "--nic-burst" => setup.nic.burst = whole(parser, flag, 1, 100_000)? as u32,
        "--network-us" => setup.network = (number(parser, flag, 0.0, 1e6)? * 1e6) as u64,
        "--way" => {
            let name = text(parser, flag)?;
            let way = WAYS.into_iter().find(|way| way.flag == name).ok_or_else(|| {
                format!("{flag} {name}: must be bypass, tcp-pipelined, tcp or udp")
            })?;
            (*costs, setup.reach) = (way.costs(*costs), way.reach);
        }
        "--request-ns" => costs.request = ns(parser)?,
        "--packet-ns" => costs.packet = ns(parser)?.max(1),
        "--receive-ns" => costs.receive = ns(parser)?,
        "--handoff-ns" => costs.handoff = ns(parser)?,
        "--steal-ns" => costs.steal = ns(parser)?,
        "--slice-ns" => costs.slice = ns(parser)?,
        "--profile-ns" => costs.profile = ns(parser)?,
        "--nic-order" => {
            setup.nic.order = match text(parser, flag)?.as_str() {
                "round-robin" => WireOrder::RoundRobin,
                "small-first" => WireOrder::SmallFirst,
                other => {
                    return Err(format!("{flag} {other}: must be round-robin or small-first"));
                }
            }
        }
        "--profile" => {
            setup.profiles = match text(parser, flag)?.as_str() {
                "all" => true,
                "lanes" => false,
                other => return Err(format!("{flag} {other}: must be all or lanes")),
            }
        }
        "--standby" => {
            let name = text(parser, flag)?;
            let found = Standby::NAMED.iter().find(|(known, _)| *known == name);
            setup.standby = match found {
                Some((_, standby)) => *standby,
                None => return Err(format!("{flag} {name}: must be returns, epoch or reads-on")),
            }
        }
        "--tx-queues" => {
            setup.nic.queue_per_lane = match text(parser, flag)?.as_str() {
                "per-worker" => false,
                "per-lane" => true,
                other => return Err(format!("{flag} {other}: must be per-worker or per-lane")),
            }
        }
        _ => return Err(format!("{flag}: no such flag")),
    }
    Ok(())
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
        let figure = (scenario.run)(&study, &flags.setup);
        if flags.json {
            print!("{}", report::json_lines(&figure.rows));
        } else if flags.table {
            println!("{}: {}\n{}", scenario.name, scenario.about, row::table(&figure.rows));
        }
        if let Some(folder) = &flags.out {
            written.push(report::write(
                folder,
                scenario.name,
                scenario.about,
                &figure,
                study.effort,
            )?);
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

    fn error(line: &str) -> String {
        let args = line.split_whitespace().map(OsString::from).collect();
        parse(args).err().unwrap_or_else(|| panic!("{line} was taken"))
    }

    #[test]
    fn what_cannot_be_says_flag_value_and_limit() {
        for (line, words) in [
            ("minos-fig1", "minos-fig1: no such scenario"),
            ("scale --workers 0", "--workers 0: must be a whole number from 2 to 64"),
            ("scale --nic-gbit none", "--nic-gbit none: must be a number"),
            ("scale --nic-order fifo", "--nic-order fifo: must be round-robin or small-first"),
            ("scale --request-ns 100", "--request-ns must be at least"),
            ("scale plan", "plan: is a command of its own; give it first"),
            ("scale --slo-us 50", "--slo-us: no such flag"),
            ("scale --way rdma", "--way rdma: must be bypass, tcp-pipelined, tcp or udp"),
            ("scale --standby never", "--standby never: must be returns, epoch or reads-on"),
            ("scale --profile 3", "--profile 3: must be all or lanes"),
            ("scale --wurst 3", "--wurst: no such flag"),
        ] {
            let got = error(line);
            assert!(got.contains(words), "{line}: {got}");
        }
    }

    #[test]
    fn flags_reach_the_machine() {
        let line = "scale --full --seed 7 --workers 16 --packet-ns 300";
        let args = line.split_whitespace().map(OsString::from).collect();
        let Ok(Asked::Run(flags)) = parse(args) else { panic!("a run") };
        assert_eq!((flags.effort, flags.seed, flags.setup.workers), (Effort::Full, 7, 16));
        assert_eq!(flags.setup.costs.packet, 300_000);
    }

    #[test]
    fn help_is_about_what_was_named() {
        let args = ["scale", "-h"].map(OsString::from).to_vec();
        assert!(matches!(parse(args), Ok(Asked::HelpOf(HELP_SCALE))));
        let args = vec![OsString::from("--help")];
        assert!(matches!(parse(args), Ok(Asked::Help)));
    }

    #[test]
    fn a_way_in_sets_what_a_request_costs() {
        let args = "scale --way tcp".split_whitespace().map(OsString::from).collect();
        let Ok(Asked::Run(flags)) = parse(args) else { panic!("a run") };
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
            let args = vec![OsString::from(name), OsString::from("--seed")];
            let told = parse(args).err().expect("--seed takes a number");
            assert_eq!(told.contains("feature `research`"), !scenarios::HAS_FIGURES, "{told}");
        }
    }
}
