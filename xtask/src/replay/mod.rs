//! Plays the protocol scripts over TCP against Laneway and against Debian's memcached.
//!
//! Laneway must answer as the scripts say, to the byte. memcached 1.6.18 must too, but for lines
//! with a `~` beside them, cases that are `since=` a later version, and what replay-allow.toml lets
//! it leave: each with its reason, at most DIFFERENCES_MAX together, and one that is not needed
//! fails. What both answer alike we have not made up; what differs was decided, not overlooked.

mod allow;
mod play;
mod script;

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use crate::server::{Executable, Server};
use allow::Allowed;
use play::{Played, Side};
use script::{Act, Case};
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
Play the protocol scripts against Laneway and against Debian's memcached.

usage: cargo xtask replay [--only TEXT] [--against laneway|memcached|both] [--server PROGRAM]

  --only TEXT        only the cases whose `file: name` contains TEXT
  --against WHOM     default both; memcached must be 1.6.18, or its part is skipped
  --server PROGRAM   play against this executable as if it were Laneway

The scripts are crates/server/tests/scripts/*.txt; the README there defines their form.";

/// How many lines of all scripts may have a `~` beside them.
const DIFFERENCES_MAX: usize = 40;
/// The version that the `~` lines speak of.
const MEMCACHED_VERSION: &str = "1.6.18";

/// Conditions of a case, and the flag that fulfils them.
const FLAGS: &[(&str, &str)] =
    &[("cas=off", "-C"), ("flush=off", "-F"), ("shutdown=on", "-A"), ("mode=store", "-M")];

/// Begins the condition of a case that memcached 1.6.18 must not pass.
const LATER: &str = "since=";

struct Options {
    only: String,
    laneway: bool,
    memcached: bool,
    server: Option<PathBuf>,
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut options = Options { only: String::new(), laneway: true, memcached: true, server: None };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => options.only = parser.value()?.string()?,
            Long("server") => options.server = Some(parser.value()?.into()),
            Long("against") => match parser.value()?.string()?.as_str() {
                "laneway" => (options.laneway, options.memcached) = (true, false),
                "memcached" => (options.laneway, options.memcached) = (false, true),
                "both" => (options.laneway, options.memcached) = (true, true),
                other => {
                    let known = "laneway, memcached or both";
                    return Err(Failure::Usage(format!("--against {other}: must be {known}")));
                }
            },
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    let cases = scripts()?;
    let mut allowed = Allowed::read()?;
    let differences = check_differences(&cases, &allowed)?;
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.id.contains(&options.only)).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(format!("--only {}: no case is called so", options.only)));
    }
    let mut notes = Vec::new();
    let mut wrong = 0;
    if options.laneway {
        let executable = Executable::named_or_laneway(options.server.as_deref())?;
        wrong += side(&chosen, Side::Laneway, &executable, &mut allowed, &mut notes)?;
    }
    if options.memcached {
        match debian()? {
            Ok(executable) => {
                wrong += side(&chosen, Side::Memcached, &executable, &mut allowed, &mut notes)?;
                wrong += stale(&chosen, &cases, &allowed);
            }
            Err(reason) => notes.push(format!("SKIPPED memcached: {reason}")),
        }
    }
    notes.push(format!("{differences} of {DIFFERENCES_MAX} allowed differences"));
    match wrong {
        0 => passed(notes.join("; ")),
        _ => Err(Failure::Failed(format!("{wrong} cases do not go as written"))),
    }
}

fn scripts() -> Result<Vec<Case>, String> {
    let folder = process::root().join("crates/server/tests/scripts");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let name = path.file_name().map(Path::new).unwrap_or(&path).display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        cases.extend(script::read(&name, &text)?);
    }
    Ok(cases)
}

/// How many expected lines memcached answers otherwise.
fn check_differences(cases: &[Case], allowed: &Allowed) -> Result<usize, String> {
    let steps = cases.iter().flat_map(|case| &case.steps);
    let differs = |act: &Act| matches!(act, Act::Expect(line) if line.memcached.is_some());
    let lines = steps.filter(|step| differs(&step.act)).count();
    let later = cases.iter().filter(|case| is_later(case)).count();
    let count = lines + later + allowed.len();
    match count <= DIFFERENCES_MAX {
        true => Ok(count),
        false => Err(format!("{count} differences from memcached, {DIFFERENCES_MAX} allowed")),
    }
}

/// Whether memcached 1.6.18 does not do this yet.
fn is_later(case: &Case) -> bool {
    case.conditions.iter().any(|condition| condition.starts_with(LATER))
}

/// Debian's memcached, or why it cannot be compared with.
fn debian() -> Result<Result<Executable, String>, String> {
    let Some(executable) = Executable::memcached() else {
        return Err("memcached is not installed: `cargo xtask setup` installs it".into());
    };
    let version = executable.version()?;
    Ok(match version.contains(MEMCACHED_VERSION) {
        true => Ok(executable),
        false => {
            Err(format!("it is {version}, and the scripts tell how {MEMCACHED_VERSION} differs"))
        }
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
    let name = if side == Side::Laneway { "Laneway" } else { "memcached" };
    let common = executable.start("replay", &[])?;
    let (mut played, mut lines, mut left_out, mut wrong, mut again) = (0, 0, 0, 0, 0);
    for case in cases {
        let has = |word: &str| case.conditions.iter().any(|condition| condition == word);
        if has("live=no") || (side == Side::Memcached && has("ours")) {
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
        if side == Side::Memcached {
            let departed = result.wrong.take_if(|w| is_later(case) || allowed.allows(&case.id, w));
            if is_later(case) && departed.is_none() {
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
            None if condition == "live=no" || condition == "ours" || is_later(case) => {}
            None => return Err(format!("{}: `$ {condition}` means nothing", case.id)),
        }
    }
    Ok(flags)
}

/// Says which entries of the allow-list are not needed, of those that this run could tell.
fn stale(chosen: &[&Case], all: &[Case], allowed: &Allowed) -> usize {
    let told =
        |id: &str| chosen.iter().any(|case| case.id == id) || all.iter().all(|case| case.id != id);
    let stale = allowed.stale(told);
    for case in &stale {
        println!(
            "{}: {case}: stale: memcached goes as written, or there is no such case",
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
