//! Plays the protocol scripts over TCP against Laneway and against two versions of memcached.
//!
//! Laneway must answer as the scripts say, to the byte. memcached must too, today's and the one of
//! Debian's stable suite, but for lines with a `~` beside them, cases that are `since=` a later
//! version, and what replay-allow.toml lets it leave: each with its reason, at most DIFFERENCES_MAX
//! for a version, and one that is not needed fails. What all answer alike we have not made up; what
//! differs was decided, not overlooked.

mod allow;
mod play;
#[path = "../../../crates/server/tests/execute_scripts/script.rs"]
mod script;

use crate::outcome::{Failure, Outcome, passed, skipped};
use crate::process;
use crate::server::{Executable, Server};
use allow::Allowed;
use play::{Played, Side};
use script::{Act, Case};
use std::path::PathBuf;

pub const HELP: &str = "\
Play the protocol scripts against Laneway and against memcached, today's and Debian stable's.

usage: cargo xtask replay [--only TEXT] [--against laneway|memcached|stable|all]
                          [--server PROGRAM]

  --only TEXT        only the cases whose `file: name` contains TEXT
  --against WHOM     Laneway; memcached 1.6.45, which `cargo xtask peers` unpacks; memcached
                     1.6.18, which Debian's stable suite has; or all of them (default). Where one of
                     the two is not here, or of another version, the task ends as skipped
  --server PROGRAM   play against this executable as if it were Laneway

The scripts are crates/server/tests/scripts/*.txt; the README there defines their form.";

/// How many lines of all scripts one version of memcached may answer otherwise.
const DIFFERENCES_MAX: usize = 40;
/// The versions that the scripts are played against: today's, and Debian stable's.
const NEWEST: &str = "1.6.45";
const STABLE: &str = "1.6.18";

/// Conditions of a case, and the flag that fulfils them.
const FLAGS: &[(&str, &str)] =
    &[("cas=off", "-C"), ("flush=off", "-F"), ("shutdown=on", "-A"), ("mode=store", "-M")];

/// Begins the condition of a case that memcached passes from this version on, and not before.
const LATER: &str = "since=";

struct Options {
    only: String,
    /// Whom to play against.
    sides: Vec<Side>,
    server: Option<PathBuf>,
}

impl Options {
    fn read(mut parser: lexopt::Parser) -> Result<Options, Failure> {
        use lexopt::prelude::*;
        const ALL: [(&str, Side); 3] = [
            ("laneway", Side::Laneway),
            ("memcached", Side::Memcached(NEWEST)),
            ("stable", Side::Memcached(STABLE)),
        ];
        let sides = ALL.map(|(_, side)| side).to_vec();
        let mut options = Options { only: String::new(), sides, server: None };
        while let Some(argument) = parser.next()? {
            match argument {
                Long("only") => options.only = parser.value()?.string()?,
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("against") => {
                    let whom = parser.value()?.string()?;
                    let chosen = ALL.iter().filter(|(name, _)| whom == "all" || whom == *name);
                    options.sides = chosen.map(|(_, side)| *side).collect();
                    if options.sides.is_empty() {
                        let known = "laneway, memcached, stable or all";
                        return Err(Failure::Usage(format!("--against {whom}: must be {known}")));
                    }
                }
                _ => return Err(Failure::Usage(argument.unexpected().to_string())),
            }
        }
        Ok(options)
    }
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let cases = scripts()?;
    let mut allowed = Allowed::read()?;
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.id.contains(&options.only)).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!("--only {}: no case is called so", options.only)));
    }
    let (mut notes, mut left_out) = (Vec::new(), Vec::new());
    let mut wrong = 0;
    for &one in &options.sides {
        if let Side::Memcached(version) = one {
            let count = differences(&cases, version, &allowed)?;
            notes.push(format!("{count} of {DIFFERENCES_MAX} differences from {version}"));
        }
        let executable = match one {
            Side::Laneway => Executable::named_or_laneway(options.server.as_deref())?,
            Side::Memcached(version) => match memcached(version)? {
                Ok(executable) => executable,
                Err(reason) => {
                    left_out.push(reason);
                    continue;
                }
            },
        };
        wrong += side(&chosen, one, &executable, &mut allowed, &mut notes)?;
        if let Side::Memcached(version) = one {
            wrong += stale(&chosen, &cases, version, &allowed);
        }
    }
    let notes = notes.join("; ");
    match (wrong, left_out.is_empty()) {
        (0, true) => passed(notes),
        (0, false) => skipped(format!("{}; {notes}", left_out.join("; "))),
        _ => Err(Failure::Failed(format!("{wrong} cases do not go as written"))),
    }
}

fn scripts() -> Result<Vec<Case>, String> {
    let folder = process::root().join("crates/server/tests/scripts");
    let mut cases = Vec::new();
    for path in script::files(&folder)? {
        cases.extend(script::read_file(&path)?);
    }
    Ok(cases)
}

/// How many expected lines this version of memcached answers otherwise.
fn differences(cases: &[Case], version: &str, allowed: &Allowed) -> Result<usize, String> {
    let steps = cases.iter().flat_map(|case| &case.steps);
    let differs = |act: &Act| matches!(act, Act::Expect(line) if line.instead(version).is_some());
    let lines = steps.filter(|step| differs(&step.act)).count();
    let later = cases.iter().filter(|case| is_later(case, version)).count();
    let count = lines + later + allowed.count(version);
    match count <= DIFFERENCES_MAX {
        true => Ok(count),
        false => {
            Err(format!("{count} differences from memcached {version}, {DIFFERENCES_MAX} allowed"))
        }
    }
}

/// Whether this version of memcached does not do this yet.
fn is_later(case: &Case, version: &str) -> bool {
    let since = case.conditions.iter().find_map(|condition| condition.strip_prefix(LATER));
    since.is_some_and(|since| since == NEWEST && version == STABLE)
}

/// memcached of this version, or why it cannot be compared with.
fn memcached(version: &str) -> Result<Result<Executable, String>, String> {
    let (found, task) = match version {
        NEWEST => (Executable::newest_memcached(), "peers"),
        _ => (Executable::memcached(), "setup"),
    };
    let Some(executable) = found else {
        return Ok(Err(format!("no memcached {version} here, see `cargo xtask {task}`")));
    };
    let told = executable.version()?;
    Ok(match told.ends_with(version) {
        true => Ok(executable),
        false => Err(format!("it is {told}, and the scripts tell how {version} differs")),
    })
}

/// Plays all cases against one executable; how many did not go as written.
fn side(
    cases: &[&Case],
    side: Side,
    executable: &Executable,
    allowed: &mut Allowed,
    notes: &mut Vec<String>,
) -> Result<usize, String> {
    let name = &side.name();
    let common = executable.start("replay", &[])?;
    let (mut played, mut lines, mut left_out, mut wrong, mut again) = (0, 0, 0, 0, 0);
    for case in cases {
        if case.has("live=no") || (side != Side::Laneway && case.has("ours")) {
            left_out += 1;
            continue;
        }
        let flags = flags(case)?;
        let once = || {
            if flags.is_empty() {
                crate::client::Client::connect(common.address())
                    .and_then(|mut client| client.send(b"flush_all\r\n").map(|()| client))
                    .and_then(|mut client| client.expect("OK"))
                    .and_then(|()| play::play(case, common.address(), side))
            } else {
                let own: Server = executable.start("replay-case", &flags)?;
                play::play(case, own.address(), side)
            }
        };
        let result = once().and_then(|first| match &first.wrong {
            Some(wrong) if wrong.may_be_the_clock() => {
                again += 1;
                once()
            }
            _ => Ok(first),
        });
        played += 1;
        let mut result = result.map_err(|why| format!("{}: {why}", case.id))?;
        if let Side::Memcached(version) = side {
            let is_later = is_later(case, version);
            let departed =
                result.wrong.take_if(|w| is_later || allowed.allows(version, &case.id, w));
            if is_later && departed.is_none() {
                result.stale.push(case.line);
            }
        }
        lines += result.lines;
        wrong += usize::from(!tell(case, &result, name));
    }
    common.stop()?;
    notes.push(format!(
        "{name}: {played} cases, {lines} reply lines as written, {left_out} not live"
    ));
    if again > 0 {
        notes.push(format!("{again} played twice, as a second may have passed in between"));
    }
    Ok(wrong)
}

fn flags(case: &Case) -> Result<Vec<&'static str>, String> {
    let mut flags = Vec::new();
    for condition in &case.conditions {
        match FLAGS.iter().find(|(word, _)| word == condition) {
            Some((_, flag)) => flags.push(*flag),
            None if condition == "live=no" || condition == "ours" => {}
            None if condition == &format!("{LATER}{NEWEST}") => {}
            None => return Err(format!("{}: `$ {condition}` means nothing", case.id)),
        }
    }
    Ok(flags)
}

/// Says which entries of the allow-list are not needed, of those that this run could tell.
fn stale(chosen: &[&Case], all: &[Case], version: &str, allowed: &Allowed) -> usize {
    let told =
        |id: &str| chosen.iter().any(|case| case.id == id) || all.iter().all(|case| case.id != id);
    let stale = allowed.stale(version, told);
    for case in &stale {
        println!(
            "{}: {case}: stale: memcached {version} goes as written, or there is no such case",
            allow::PATH
        );
    }
    stale.len()
}

/// Says what is wrong with a case; true if nothing is.
fn tell(case: &Case, played: &Played, name: &str) -> bool {
    for line in &played.stale {
        println!("{name}: {} (line {line}): stale: it answers as we do now", case.id);
    }
    if let Some(wrong) = &played.wrong {
        println!("{name}: {} {wrong}", case.id);
    }
    played.wrong.is_none() && played.stale.is_empty()
}
