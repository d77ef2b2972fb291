//! Runs the protocol scripts (`tests/scripts`, see its README) against whole servers of every
//! design, over the memory transport: whoever serves a request, the reply is memcached's or Redis'.

#[path = "../execute_scripts/script.rs"]
mod script;

use laneway_rig as rig;
use laneway_transport::memory::Client;
use rig::{Plan, Rig, one_of_each_design, plans};
use script::{Act, Case, Expectation};
use std::path::Path;

/// Turns without a byte after which a server has said all that it will. Where every key of a
/// multiget goes to its owner, each takes a few.
const TURNS_QUIET: usize = 64;

/// Send, and return what comes until nothing comes any more.
fn exchange(rig: &mut Rig, client: &Client, bytes: &[u8]) -> Vec<u8> {
    let (mut sent, mut quiet) = (0, 0);
    let mut out = Vec::new();
    while sent < bytes.len() || quiet < TURNS_QUIET {
        let taken = client.send(&bytes[sent..]);
        rig.turn();
        let more = client.receive(usize::MAX);
        quiet = if taken == 0 && more.is_empty() { quiet + 1 } else { 0 };
        sent += taken;
        out.extend(more);
        if client.ended() {
            break;
        }
    }
    out
}

fn run(case: &Case, plan: &Plan) -> Result<(), String> {
    let mut rig = Rig::new(&Plan {
        store_mode: case.has("mode=store"),
        cas: !case.has("cas=off"),
        flush: !case.has("flush=off"),
        shutdown: case.has("shutdown=on"),
        resp: true,
        item_bytes_max: 1 << 20,
        threshold_bytes: 2000,
        ..plan.clone()
    });
    // Into a second: of what ends at a full one, more is left than was asked for, and not less.
    rig.clock.advance(250_000_000);
    let client = rig.net.connect();
    let mut numbers = script::Numbers::new();
    let mut out = Vec::new();
    // Where the reply to the lines since the last send begins to be looked at.
    let mut seen = 0;
    for step in &case.steps {
        let at = |what: String| format!("{} (line {}): {what}", case.id, step.line);
        match &step.act {
            Act::Send(text) => {
                let bytes = text.bytes(&numbers).map_err(at)?;
                out.extend(exchange(&mut rig, &client, &bytes));
            }
            Act::Expect(Expectation { text, anywhere, .. }) => {
                let rest = &out[seen..];
                match text.find(rest, *anywhere, &mut numbers) {
                    Some(taken) => seen += taken,
                    None => {
                        let got = String::from_utf8_lossy(&rest[..rest.len().min(300)]);
                        return Err(at(format!("expected `{}`, got {got:?}", text.written)));
                    }
                }
            }
            Act::Wait(seconds) => {
                rig.clock.advance(u64::from(*seconds) * 1_000_000_000);
                rig.turns(2);
            }
            Act::Closed => {
                if !client.ended() {
                    return Err(at("the connection is still open".to_owned()));
                }
            }
        }
    }
    if seen < out.len() {
        let left = String::from_utf8_lossy(&out[seen..]).into_owned();
        return Err(format!("{}: left over: {left:?}", case.id));
    }
    Ok(())
}

fn check(folder: &str, plans: &[Plan]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut failures = Vec::new();
    let mut cases = 0;
    for path in script::files(&folder).expect("the scripts' folder") {
        for case in script::read_file(&path).expect("a good script") {
            for plan in plans {
                cases += 1;
                if let Err(what) = run(&case, plan) {
                    failures.push(format!("{} ({}): {what}", case.id, plan.what()));
                }
            }
        }
    }
    assert!(cases > 1000, "only {cases} conversations were held");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_design_answers_as_the_scripts_say() {
    check("tests/scripts", &plans());
}

#[test]
fn every_design_answers_clients_of_the_binary_protocol_as_the_scripts_say() {
    check("tests/scripts/binary", &plans());
}

#[test]
fn every_design_answers_redis_clients_as_the_scripts_say() {
    check("tests/scripts/resp", &one_of_each_design());
}
