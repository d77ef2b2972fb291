//! Plays the protocol scripts over TCP against Laneway and against those whose protocol it is.
//!
//! Laneway must answer as the scripts say, to the byte. So must memcached, today's and the one of
//! Debian's stable suite, and for RESP's scripts Valkey and Redis: but for lines with a `~` beside
//! them, cases that are `since=` a later version, and what replay-allow.toml lets memcached leave:
//! each with its reason, at most DIFFERENCES_MAX for a server, and one that is not needed fails.
//! What all answer alike we have not made up; what differs was decided, not overlooked.

mod allow;
mod play;
mod protocol;
#[path = "../../../crates/server/tests/execute_scripts/script.rs"]
mod script;

use crate::{Executable, Failure, Outcome, Server, passed, process, skipped};
use allow::Allowed;
use play::{Peer, Played};
use protocol::{NEWEST, Protocol, Rival, STABLE};
use script::{Act, Case};
use std::path::PathBuf;

/// How many lines of all scripts of a protocol one server may answer otherwise.
const DIFFERENCES_MAX: usize = 40;

/// Conditions of a case, and the flag that fulfils them.
const FLAGS: &[(&str, &str)] =
    &[("cas=off", "-C"), ("flush=off", "-F"), ("shutdown=on", "-A"), ("mode=store", "-M")];

/// Begins the condition of a case that memcached passes from this version on, and not before.
const LATER: &str = "since=";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut protocol, mut server) = (&protocol::MEMCACHED, None);
    flags!(parser, {
        Long("binary") => protocol = &protocol::BINARY,
        Long("resp") => protocol = &protocol::RESP,
        Long("server") => server = Some(PathBuf::from(parser.value()?)),
    });
    let cases = scripts(protocol)?;
    let mut allowed = if protocol.has_list { Allowed::read()? } else { Allowed::default() };
    let (mut notes, mut left_out) = (Vec::new(), Vec::new());
    let executable = Executable::named_or_laneway(server.as_deref())?;
    let mut wrong = side(&cases, None, &executable, protocol, &mut allowed, &mut notes)?;
    for Rival { peer, .. } in protocol.rivals {
        notes.push(format!(
            "{} differences from {}",
            differences(&cases, *peer, &allowed)?,
            peer.name
        ));
    }
    for rival in protocol.rivals {
        match rival.executable() {
            Err(Failure::Skipped(reason)) => left_out.push(reason),
            Err(failure) => return Err(failure),
            Ok(executable) => {
                let one = Some(rival.peer);
                wrong += side(&cases, one, &executable, protocol, &mut allowed, &mut notes)?;
                wrong += stale(rival.peer, &allowed);
            }
        }
    }
    let notes = notes.join("; ");
    match (wrong, left_out.is_empty()) {
        (0, true) => passed(notes),
        (0, false) => skipped(format!("{}; {notes}", left_out.join("; "))),
        _ => Err(Failure::Failed(format!("{wrong} cases do not go as written"))),
    }
}

fn scripts(protocol: &Protocol) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for path in script::files(&process::root().join(protocol.folder))? {
        cases.extend(script::read_file(&path)?);
    }
    Ok(cases)
}

/// How many expected lines this server answers otherwise.
fn differences(cases: &[Case], peer: Peer, allowed: &Allowed) -> Result<usize, String> {
    let steps = cases.iter().flat_map(|case| &case.steps);
    let differs = |act: &Act| matches!(act, Act::Expect(line) if line.instead(peer.mark).is_some());
    let lines = steps.filter(|step| differs(&step.act)).count();
    let later = cases.iter().filter(|case| is_later(case, peer.mark)).count();
    let count = lines + later + allowed.count(peer.mark);
    match count <= DIFFERENCES_MAX {
        true => Ok(count),
        false => {
            let name = peer.name;
            Err(format!("{count} differences from {name}, {DIFFERENCES_MAX} are allowed"))
        }
    }
}

/// Whether this version of memcached does not do this yet.
fn is_later(case: &Case, version: &str) -> bool {
    let since = case.conditions.iter().find_map(|condition| condition.strip_prefix(LATER));
    since.is_some_and(|since| since == NEWEST && version == STABLE)
}

/// Plays all cases against one executable; how many did not go as written.
fn side(
    cases: &[Case],
    peer: Option<Peer>,
    executable: &Executable,
    protocol: &Protocol,
    allowed: &mut Allowed,
    notes: &mut Vec<String>,
) -> Result<usize, String> {
    let (name, end) = (peer.map_or("Laneway", |peer| peer.name), protocol.end);
    let common = executable.start("replay", &[])?;
    let (mut played, mut lines, mut left_out, mut wrong, mut again) = (0, 0, 0, 0, 0);
    for case in cases {
        if case.has("live=no") || (peer.is_some() && case.has("ours")) {
            left_out += 1;
            continue;
        }
        let flags = flags(case)?;
        let once = || {
            if flags.is_empty() {
                crate::client::Client::connect(common.address())
                    .and_then(|mut client| client.send(protocol.flush).map(|()| client))
                    .and_then(|mut client| client.expect(protocol.flushed))
                    .and_then(|()| play::play(case, common.address(), peer, end))
            } else {
                let own: Server = executable.start("replay-case", &flags)?;
                play::play(case, own.address(), peer, end)
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
        if let Some(peer) = peer {
            let is_later = is_later(case, peer.mark);
            let departed =
                result.wrong.take_if(|w| is_later || allowed.allows(peer.mark, &case.id, w));
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

/// Says which entries of the allow-list are not needed.
fn stale(peer: Peer, allowed: &Allowed) -> usize {
    let stale = allowed.stale(peer.mark);
    for case in &stale {
        println!(
            "{}: {case}: stale: {} goes as written, or there is no such case",
            allow::PATH,
            peer.name
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
