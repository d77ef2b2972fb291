//! The simulated worker and the server's, given the same requests, decide alike: round by round,
//! whose turn it is, how many requests a turn has, and whose slice comes next.
//!
//! Everything has come before the first round, so that nothing hangs on what work costs. The
//! server's decisions are read off what its clients receive in one step of its worker, which is a
//! round: the order of turns within a round cannot be seen from there, what is in it can.

use super::{Decision, Streams};
use crate::events::NEVER;
use crate::machine::{Machine, Request, Run, Traffic};
use crate::workload::Mix;
use laneway_policy::{Design, Form, ItemBytes};
use laneway_rig::{Plan, Rig, hit, value};
use std::collections::BTreeMap;

const SMALL_BYTES: usize = 100;
/// Far from a multiple of a slice: the server's first slice has the head of the reply as well.
const LARGE_BYTES: [usize; 3] = [50_000, 120_000, 1_500_000];
const THRESHOLD_BYTES: u64 = 16 * 1024;
/// More bytes of a large reply than leave with the turn that begins it, fewer than any slice has.
const SLICE_BYTES_MIN: usize = 8 * 1024;

/// What is asked for: a small value, or a large one of these.
type Ask = Option<usize>;

/// A round: requests served to their end of each connection, and whose slice ended it.
#[derive(Debug, Default, PartialEq, Eq)]
struct RoundOf {
    served: BTreeMap<usize, u32>,
    slice: Option<usize>,
}

/// Each connection's requests.
fn drawn(seed: u64) -> Vec<Vec<Ask>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (connections, depth, large_share) =
        (1 + random.usize(..32), 1 + random.usize(..150), random.usize(1..20));
    let ask = |random: &mut fastrand::Rng| {
        (random.usize(..200) < large_share).then(|| [0, 0, 0, 1, 1, 2][random.usize(..6)])
    };
    let asks = |random: &mut fastrand::Rng| {
        (0..1 + random.usize(..depth)).map(|_| ask(random)).collect::<Vec<Ask>>()
    };
    (0..connections).map(|_| asks(&mut random)).collect()
}

fn request(ask: &Ask) -> Request {
    let bytes = ask.map_or(SMALL_BYTES, |large| LARGE_BYTES[large]) as u32;
    let (large, replied, service) = (ask.is_some(), true, 1_000_000);
    let (arrived, came, put, counted, remote) = (0, 0, false, false, false);
    Request { arrived, came, service, bytes, large, put, replied, counted, remote }
}

fn simulated(asks: &[Vec<Ask>]) -> Vec<RoundOf> {
    let mut machine = Machine::new(Design::Lanes, 1);
    machine.settings.threshold_fixed = Some(ItemBytes(THRESHOLD_BYTES));
    machine.settings.form = Some(Form::TimeShare);
    let connections = asks.len() as u32;
    machine.streams = Some(Streams { connections, burst: 1, turn: 1_000, urgency: true });
    let traffic = Traffic::steady(Mix::etc(), 1.0, 1);
    let mut run = Run::new(&machine, &traffic, 1);
    let arrivals = run.source_arrival();
    run.events.set(arrivals, NEVER);
    run.asleep = 0; // all are there before the worker looks
    for (connection, asks) in asks.iter().enumerate() {
        run.in_system += asks.len() as u64;
        run.large_in_system += asks.iter().flatten().count() as u64;
        run.come(connection as u32, asks.iter().map(request));
    }
    run.next_of_streams(0);
    while run.events.next().1 < NEVER {
        let (worker, now) = run.events.next();
        run.now = now;
        run.worker_done(worker);
    }
    let mut rounds: Vec<RoundOf> = Vec::new();
    for decision in &run.desks[0].decisions {
        if *decision == Decision::Round {
            rounds.push(RoundOf::default());
        }
        let round = rounds.last_mut().expect("a round has begun");
        match *decision {
            Decision::Serve { connection, requests } if requests > 0 => {
                *round.served.entry(connection as usize).or_default() += requests;
            }
            Decision::Slice { connection, bytes } => {
                assert!(SLICE_BYTES_MIN < bytes as usize, "{bytes} of {connection}");
                round.slice = Some(connection as usize);
            }
            Decision::Serve { .. } | Decision::Round => {}
        }
    }
    rounds.retain(|round| *round != RoundOf::default());
    rounds
}

/// What a client was promised and has not received.
struct Owed<'a> {
    asks: std::slice::Iter<'a, Ask>,
    /// Bytes left of the reply that has begun, and whether that is a large one.
    reply: (usize, bool),
}

impl Owed<'_> {
    /// So many bytes have come: small replies that are whole now, and bytes of large ones.
    fn take(&mut self, mut bytes: usize) -> (u32, usize) {
        let (mut small, mut large_bytes) = (0, 0);
        while bytes > 0 {
            if self.reply.0 == 0 {
                let ask = self.asks.next().expect("no more comes than was asked for");
                self.reply = (reply(ask).len(), ask.is_some());
            }
            let (left, large) = &mut self.reply;
            let taken = bytes.min(*left);
            *left -= taken;
            bytes -= taken;
            match large {
                true => large_bytes += taken,
                false => small += u32::from(*left == 0),
            }
        }
        (small, large_bytes)
    }
}

fn name(ask: &Ask) -> String {
    ask.map_or("small".to_owned(), |large| format!("large{large}"))
}

fn reply(ask: &Ask) -> Vec<u8> {
    let bytes = ask.map_or(SMALL_BYTES, |large| LARGE_BYTES[large]);
    [hit(&name(ask), &value(bytes, 1)), b"END\r\n".to_vec()].concat()
}

fn served(asks: &[Vec<Ask>]) -> Vec<RoundOf> {
    let plan = Plan::of(1, Form::TimeShare);
    let mut rig = Rig::new(&Plan { threshold_bytes: THRESHOLD_BYTES, ..plan });
    let setter = rig.net.connect();
    rig.set(&setter, "small", &value(SMALL_BYTES, 1));
    for (number, bytes) in LARGE_BYTES.into_iter().enumerate() {
        rig.set(&setter, &name(&Some(number)), &value(bytes, 1));
    }
    let clients: Vec<_> = asks.iter().map(|_| rig.net.connect()).collect();
    rig.turns(50); // all are accepted, and nothing waits
    for (client, asks) in clients.iter().zip(asks) {
        let text: String = asks.iter().map(|ask| format!("get {}\r\n", name(ask))).collect();
        assert_eq!(client.send(text.as_bytes()), text.len(), "it fits the pipe");
    }
    let mut owed: Vec<_> =
        asks.iter().map(|asks| Owed { asks: asks.iter(), reply: (0, false) }).collect();
    let mut rounds = Vec::new();
    while owed.iter().any(|owed| owed.asks.len() > 0 || owed.reply.0 > 0) {
        rig.turn();
        let mut round = RoundOf::default();
        for (number, (client, owed)) in clients.iter().zip(&mut owed).enumerate() {
            let (small, large_bytes) = owed.take(client.receive(usize::MAX).len());
            if small > 0 {
                round.served.insert(number, small);
            }
            if large_bytes > SLICE_BYTES_MIN {
                assert_eq!(round.slice.replace(number), None, "a round has one slice");
            }
        }
        rounds.push(round);
        assert!(rounds.len() < 100_000, "it comes to an end");
    }
    rounds.retain(|round| *round != RoundOf::default());
    rounds
}

/// `[12 L0 3]`: twelve small ones, a large one of the first kind, three small ones.
fn told(asks: &[Ask]) -> String {
    let runs = asks.chunk_by(|a, b| a.is_none() && b.is_none());
    let run = |run: &[Ask]| run[0].map_or(run.len().to_string(), |large| format!("L{large}"));
    format!("[{}]", runs.map(run).collect::<Vec<_>>().join(" "))
}

#[test]
fn the_simulated_worker_and_the_servers_decide_alike_in_every_round() {
    for seed in 0..60 {
        let asks = drawn(seed);
        let (simulated, served) = (simulated(&asks), served(&asks));
        let what = || asks.iter().map(|asks| told(asks)).collect::<Vec<_>>().join(" ");
        for (number, (simulated, served)) in simulated.iter().zip(&served).enumerate() {
            assert_eq!(simulated, served, "seed {seed}: round {number} of {}", what());
        }
        assert_eq!(simulated.len(), served.len(), "seed {seed}: rounds of {}", what());
    }
}
