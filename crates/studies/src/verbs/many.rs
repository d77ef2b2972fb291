//! What clients over RDMA that ask for nothing cost one that asks: its GETs, one at a time, alone,
//! and beside the others, the rounds one after the other. Every value is looked at. What the server
//! did for them is told by its own statistics.
//!
//! Times are of whatever device there is. Counts are of the server's program alone, so what holds
//! of them over rxe holds of any device. (HERD and FaSST have figures of cards.)

use super::flags::Many;
use super::laneway::{ANSWER_WITHIN, Counter, SLEEP};
use super::report::{Beside, Cost};
use super::rig::Items;
use laneway_rdma::contract::{Requester as _, Verbs};
use laneway_rdma::verbs::{self, Lending, VerbsRequester};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

/// Measures it with values of one length.
pub(super) fn run(asked: &Many, items: &Items<'_>) -> Result<Vec<Beside>, String> {
    let ring = enter(asked)?;
    let service = ring.service().name();
    let mut counter = Counter::new(ring, "rdma", 1);
    for key in 0..items.keys {
        counter.round_trip(items, (key, id(key.into())), false)?;
    }
    // Those of a run before are on their way out, and one address has half of the places.
    wait_for(&mut counter, 1)?;
    let mut rows = Vec::new();
    for round in 0..asked.rounds {
        let alone = measure(&mut counter, items, asked.operations)?;
        let others = others(asked)?;
        wait_for(&mut counter, asked.clients)?;
        let beside = measure(&mut counter, items, asked.operations)?;
        // None was sent away meanwhile.
        wait_for(&mut counter, asked.clients)?;
        drop(others);
        wait_for(&mut counter, 1)?;
        rows.push(Beside {
            service: service.into(),
            value_bytes: items.value_bytes,
            clients: asked.clients,
            round,
            gets: asked.operations,
            alone,
            beside,
        });
    }
    Ok(rows)
}

/// The number of a request; that of the statistics is another.
fn id(number: u64) -> u16 {
    (number % u64::from(u16::MAX)) as u16
}

fn enter(asked: &Many) -> Result<VerbsRequester, String> {
    let Many { place, door, service, .. } = asked;
    let stream = TcpStream::connect(door).map_err(|error| format!("--door {door}: {error}"))?;
    verbs::enter(stream, place, *service, Lending::NOTHING)
        .map_err(|error| format!("--rdma {place}: {error}"))
}

/// All clients but one.
fn others(asked: &Many) -> Result<Vec<VerbsRequester>, String> {
    let clients = asked.clients;
    let told = |number: usize, error: String| format!("client {number} of {clients}: {error}");
    (2..=clients).map(|number| other(asked).map_err(|error| told(number, error))).collect()
}

/// One that asks for nothing, but as it came, and has its answer to that.
fn other(asked: &Many) -> Result<VerbsRequester, String> {
    let mut one = enter(asked)?;
    settle(&mut one)?;
    Ok(one)
}

fn settle(one: &mut VerbsRequester) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        one.poll_replies(usize::MAX, &mut |_, _| ());
        if one.verbs().receives > 0 {
            return Ok(());
        }
        if begun.elapsed() > ANSWER_WITHIN || one.is_server_gone() {
            return Err("the server does not answer".into());
        }
        one.sleep(SLEEP).map_err(|error| error.to_string())?;
    }
}

/// Until the server has so many clients: those that went are let go of in a moment.
fn wait_for(counter: &mut Counter<VerbsRequester>, clients: usize) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let told = counter.snapshot()?.stats.get("clients").copied();
        if told == Some(clients as u64) {
            return Ok(());
        }
        if begun.elapsed() > ANSWER_WITHIN {
            let told = told.unwrap_or_default();
            return Err(format!("the server has {told} clients in place of {clients}"));
        }
        thread::sleep(SLEEP);
    }
}

/// So many GETs.
fn measure(
    counter: &mut Counter<VerbsRequester>,
    items: &Items<'_>,
    operations: u64,
) -> Result<Cost, String> {
    let before = counter.snapshot()?;
    let verbs = counter.ring.verbs();
    let mut nanos = Vec::new();
    for number in 0..operations {
        let key = (number % u64::from(items.keys)) as u32;
        let took = counter.round_trip(items, (key, id(number)), true)?;
        nanos.push(took.as_nanos() as u64);
    }
    let posts = posts(counter.ring.verbs()) - posts(verbs);
    let after = counter.snapshot()?;
    nanos.sort_unstable();
    // What asking for the statistics took is not the GETs': a request to each lane, and the frames.
    let lanes = counter.ring.queues() as u64;
    let frames = before.unseen + after.seen;
    let mean = |count: u64, less: u64| count.saturating_sub(less) as f64 / operations as f64;
    let told = |name: &str| after.since(&before, name);
    let completions = told("datagrams")?;
    let asked = if completions > 0 { lanes } else { 0 };
    Ok(Cost {
        latency_us_p50: nanos[nanos.len() / 2] as f64 / 1e3,
        latency_us_p99: nanos[nanos.len() * 99 / 100] as f64 / 1e3,
        client_posts: mean(posts, 0),
        server_sends: mean(told("verbs_send")?, frames),
        server_doorbells: mean(told("doorbells")?, 0),
        server_completions: mean(completions, asked),
        server_polls: mean(told("datagram_polls")?, 0),
    })
}

fn posts(verbs: Verbs) -> u64 {
    verbs.writes + verbs.sends + verbs.receives
}
