//! The simulated workers and the server's, given the same requests by connections, decide alike:
//! round by round, whose turn it is, how many requests a turn has, whose slice comes next, and how
//! many connections go over to large workers.
//!
//! Everything has come before the first round, so that nothing hangs on what work costs. The
//! server's decisions are read off what its clients receive in one step of a worker, which is a
//! round. The order of turns within a round cannot be seen from there; what is in it can. One
//! worker after the other goes on until nothing is left that it may serve, a large one last: which
//! of two is faster is no decision.
//!
//! Compared are `lanes` in both forms, with one worker and with several, `hkh` with one and with
//! several, and `minos` and `hkh-ws` with one. With several these two give single requests to
//! another worker, and the connection keeps a place for the reply (`server::jobs`). `sho` always
//! does so, for it has no single worker (`Settings::check`). A [`Run`] has no such connections and
//! refuses them. There `turn/decisions.rs` compares requests that stand alone, and so it does what
//! workers take of each other. Here they take nothing: the simulated ones offer nothing that came
//! by connections.
//!
//! Designs that run to completion are asked for no value that the server sends out of the store's
//! memory. Behind such a value the server ends the turn, and the simulated worker goes on with it.

use super::{Decision, Streams};
use crate::events::NEVER;
use crate::machine::{Machine, Request, Run, Traffic};
use crate::workload::Mix;
use laneway_policy::{CorePlan, Design, Form, ItemBytes, Steal};
use laneway_rig::{Plan, Rig, STEP_NANOS, hit, value};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

const SMALL_BYTES: usize = 100;
/// Far from a multiple of a slice: the server's first slice has the head of the reply as well.
const LARGE_BYTES: [usize; 3] = [50_000, 120_000, 1_500_000];
/// Where nobody slices: a turn's replies stay below what ends the server's turn.
const WHOLE_BYTES: [usize; 3] = [150, 250, 400];
const THRESHOLD_BYTES: u64 = 16 * 1024;
/// More bytes of a large reply than leave with the turn that begins it, fewer than any slice has.
const SLICE_BYTES_MIN: usize = 8 * 1024;
/// Steps of a worker in which nothing comes: nothing is left that it may serve.
const STEPS_IDLE: usize = 20;

/// What is asked for: a small value, or a large one of these.
type Ask = Option<usize>;

/// A round: requests served to their end of each connection, whose slice ended it, and how many
/// connections went over to large workers.
#[derive(Debug, Default, PartialEq, Eq)]
struct RoundOf {
    served: BTreeMap<usize, u32>,
    slice: Option<usize>,
    handed: usize,
}

/// The rounds of each worker in which something was done.
type Rounds = Vec<Vec<RoundOf>>;

/// A server to compare.
struct Case {
    plan: Plan,
    /// Of these the last ones serve what is large and nothing else; at most one, for of two it is
    /// their speed that says which one takes a connection.
    workers_large: usize,
}

impl Case {
    fn of(design: Design, workers: usize) -> Case {
        let plan = Plan { threshold_bytes: THRESHOLD_BYTES, ..Plan::design(design, workers) };
        Case { plan, workers_large: 0 }
    }

    /// `lanes`, with one worker for what is large.
    fn roles(workers: usize) -> Case {
        let plan = Plan { threshold_bytes: THRESHOLD_BYTES, ..Plan::of(workers, Form::Roles) };
        Case { plan, workers_large: 1 }
    }

    fn slices(&self) -> bool {
        self.plan.design == Design::Lanes
    }

    fn bytes(&self, ask: &Ask) -> usize {
        let large = if self.slices() { LARGE_BYTES } else { WHOLE_BYTES };
        ask.map_or(SMALL_BYTES, |number| large[number])
    }

    fn request(&self, ask: &Ask) -> Request {
        let (bytes, large) = (self.bytes(ask) as u32, ask.is_some());
        Request { service: 1_000_000, bytes, large, replied: true, ..Request::default() }
    }

    fn reply(&self, ask: &Ask) -> Vec<u8> {
        [hit(&name(ask), &value(self.bytes(ask), 1)), b"END\r\n".to_vec()].concat()
    }
}

/// Requests of a connection at most, in a case that is drawn.
const DEEP: usize = 150;
/// So few that how many connections have a turn between two slices hangs on each request.
const SHALLOW: usize = 8;

/// Each connection's requests.
fn drawn(seed: u64, deepest: usize) -> Vec<Vec<Ask>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (connections, depth, large_share) =
        (1 + random.usize(..32), 1 + random.usize(..deepest), random.usize(1..20));
    let ask = |random: &mut fastrand::Rng| {
        (random.usize(..200) < large_share).then(|| [0, 0, 0, 1, 1, 2][random.usize(..6)])
    };
    let asks = |random: &mut fastrand::Rng| {
        (0..1 + random.usize(..depth)).map(|_| ask(random)).collect::<Vec<Ask>>()
    };
    (0..connections).map(|_| asks(&mut random)).collect()
}

/// Under the server's plan, with each connection at the worker where the server has it.
fn simulated(case: &Case, plan: &CorePlan, homes: &[usize], asks: &[Vec<Ask>]) -> Rounds {
    let workers = case.plan.workers;
    let mut machine = Machine::new(case.plan.design, workers as u16);
    machine.settings.threshold_fixed = Some(ItemBytes(THRESHOLD_BYTES));
    machine.settings.form = case.slices().then_some(case.plan.form);
    // More than there are, so that there is one of each number and home.
    let connections = (asks.len() * workers) as u32;
    machine.streams = Some(Streams { connections, burst: 1, turn: 1_000, urgency: case.slices() });
    let traffic = Traffic::steady(Mix::etc(), 1.0, 1);
    let mut run = Run::new(&machine, &traffic, 1);
    run.control.follow(plan.clone());
    let arrivals = run.source_arrival();
    run.events.set(arrivals, NEVER);
    run.asleep = 0; // all are there before a worker looks
    for (number, (asks, home)) in asks.iter().zip(homes).enumerate() {
        run.in_system += asks.len() as u64;
        run.large_in_system += asks.iter().flatten().count() as u64;
        let requests = asks.iter().map(|ask| case.request(ask));
        run.come((number * workers + home) as u32, requests);
    }
    for worker in 0..workers {
        run.asleep = 0; // no other is to be woken
        run.next_of_streams(worker);
        while run.events.next().1 < NEVER {
            let (worker, now) = run.events.next();
            run.now = now;
            run.worker_done(worker);
        }
    }
    run.desks.iter().map(|desk| rounds_of(&desk.decisions, workers)).collect()
}

fn rounds_of(decisions: &[Decision], workers: usize) -> Vec<RoundOf> {
    let number = |connection: u32| connection as usize / workers;
    let mut rounds: Vec<RoundOf> = Vec::new();
    for decision in decisions {
        if *decision == Decision::Round {
            rounds.push(RoundOf::default());
        }
        let round = rounds.last_mut().expect("a round has begun");
        match *decision {
            Decision::Serve { connection, requests } if requests > 0 => {
                *round.served.entry(number(connection)).or_default() += requests;
            }
            Decision::Slice { connection, bytes } => {
                assert!(SLICE_BYTES_MIN < bytes as usize, "{bytes} of {connection}");
                round.slice = Some(number(connection));
            }
            Decision::Hand => round.handed += 1,
            Decision::Serve { .. } | Decision::Round => {}
        }
    }
    rounds.retain(|round| *round != RoundOf::default());
    rounds
}

/// What a client was promised and has not received.
struct Owed<'a> {
    case: &'a Case,
    asks: std::slice::Iter<'a, Ask>,
    /// Bytes left of the reply that has begun, and whether that one leaves in slices.
    reply: (usize, bool),
}

impl Owed<'_> {
    /// So many bytes have come: replies that are whole now, and bytes of those that leave in
    /// slices.
    fn take(&mut self, mut bytes: usize) -> (u32, usize) {
        let (mut whole, mut sliced_bytes) = (0, 0);
        while bytes > 0 {
            if self.reply.0 == 0 {
                let ask = self.asks.next().expect("no more comes than was asked for");
                let in_slices = ask.is_some() && self.case.slices();
                self.reply = (self.case.reply(ask).len(), in_slices);
            }
            let (left, in_slices) = &mut self.reply;
            let taken = bytes.min(*left);
            *left -= taken;
            bytes -= taken;
            match in_slices {
                true => sliced_bytes += taken,
                false => whole += u32::from(*left == 0),
            }
        }
        (whole, sliced_bytes)
    }
}

fn name(ask: &Ask) -> String {
    ask.map_or("small".to_owned(), |large| format!("large{large}"))
}

/// A server in which nobody takes requests of another, and which has what is asked for.
fn rig_of(case: &Case) -> Rig {
    let mut rig = Rig::new(&case.plan);
    if case.workers_large > 0 {
        rig.publish_large(case.workers_large);
    }
    rig.publish(|plan| plan.steal = Steal::NEVER);
    rig.turns(3);
    let setter = rig.net.connect();
    for ask in [None, Some(0), Some(1), Some(2)] {
        rig.set(&setter, &name(&ask), &value(case.bytes(&ask), 1));
    }
    rig
}

/// Connections of each worker.
fn connections(rig: &Rig) -> Vec<usize> {
    rig.shared.workers.iter().map(|worker| worker.connections.load(Relaxed)).collect()
}

/// The rounds of the server, the plan under which it serves, and whose each connection is.
fn served(case: &Case, asks: &[Vec<Ask>]) -> (Rounds, CorePlan, Vec<usize>) {
    let mut rig = rig_of(case);
    let (mut clients, mut homes) = (Vec::new(), Vec::new());
    for _ in asks {
        let before = connections(&rig);
        clients.push(rig.net.connect());
        rig.turns(3);
        let now = connections(&rig);
        homes.extend((0..now.len()).find(|&worker| now[worker] > before[worker]));
    }
    assert_eq!(homes.len(), clients.len(), "each is accepted");
    rig.turns(50); // nothing waits
    for (client, asks) in clients.iter().zip(asks) {
        let text: String = asks.iter().map(|ask| format!("get {}\r\n", name(ask))).collect();
        assert_eq!(client.send(text.as_bytes()), text.len(), "it fits the pipe");
    }
    let owed = asks.iter().map(|asks| Owed { case, asks: asks.iter(), reply: (0, false) });
    let mut owed: Vec<_> = owed.collect();
    let mut rounds: Rounds = rig.workers.iter().map(|_| Vec::new()).collect();
    for (worker, rounds) in rounds.iter_mut().enumerate() {
        let (mut idle, mut steps) = (0, 0);
        while idle < STEPS_IDLE {
            let queued = rig.shared.large_queue.len();
            rig.workers[worker].step().expect("memory does not fail");
            rig.clock.advance(STEP_NANOS);
            let handed = rig.shared.large_queue.len().saturating_sub(queued);
            let mut round = RoundOf { handed, ..RoundOf::default() };
            for (number, (client, owed)) in clients.iter().zip(&mut owed).enumerate() {
                let (whole, sliced_bytes) = owed.take(client.receive(usize::MAX).len());
                if whole > 0 {
                    round.served.insert(number, whole);
                }
                if sliced_bytes > SLICE_BYTES_MIN {
                    assert_eq!(round.slice.replace(number), None, "a round has one slice");
                }
            }
            idle = if round == RoundOf::default() { idle + 1 } else { 0 };
            rounds.push(round);
            steps += 1;
            assert!(steps < 100_000, "it comes to an end");
        }
        rounds.retain(|round| *round != RoundOf::default());
    }
    let all = owed.iter().all(|owed| owed.asks.len() + owed.reply.0 == 0);
    assert!(all || case.workers_large > 0, "all is answered but what has gone home");
    let plan = rig.shared.plan.get();
    (rounds, (*plan).clone(), homes)
}

/// `[12 L0 3]`: twelve small ones, a large one of the first kind, three small ones.
fn told(asks: &[Ask]) -> String {
    let runs = asks.chunk_by(|a, b| a.is_none() && b.is_none());
    let run = |run: &[Ask]| run[0].map_or(run.len().to_string(), |large| format!("L{large}"));
    format!("[{}]", runs.map(run).collect::<Vec<_>>().join(" "))
}

/// Both decide alike. Returns how many requests were served, slices moved, and connections handed
/// over.
fn compare(case: &Case, seeds: u64, deepest: usize) -> [usize; 3] {
    let mut sums = [0; 3];
    for seed in 0..seeds {
        let asks = drawn(seed, deepest);
        let (served, plan, homes) = served(case, &asks);
        let simulated = simulated(case, &plan, &homes, &asks);
        let told = || asks.iter().map(|asks| told(asks)).collect::<Vec<_>>().join(" ");
        let requests = || format!("{} with workers {homes:?}", told());
        for (worker, (simulated, served)) in simulated.iter().zip(&served).enumerate() {
            let of = format!("{}, seed {seed}, worker {worker}", case.plan.what());
            for (number, (simulated, served)) in simulated.iter().zip(served).enumerate() {
                assert_eq!(simulated, served, "{of}, round {number}: {}", requests());
            }
            assert_eq!(simulated.len(), served.len(), "{of}: rounds of {}", requests());
        }
        for round in served.iter().flatten() {
            sums[0] += round.served.values().sum::<u32>() as usize;
            sums[1] += usize::from(round.slice.is_some());
            sums[2] += round.handed;
        }
    }
    sums
}

#[test]
fn the_simulated_worker_and_the_servers_decide_alike_in_every_round() {
    let [served, slices, handed] = compare(&Case::of(Design::Lanes, 1), 60, DEEP);
    assert!(served > 5_000 && slices > 1_000 && handed == 0, "{served} {slices} {handed}");
}

/// Between two slices so many connections have a turn as fit a number of requests, by how many
/// each had in its turn: both have to count the same ones.
#[test]
fn connections_between_slices_are_as_many_where_pipelines_are_short() {
    for case in [Case::of(Design::Lanes, 1), Case::of(Design::Lanes, 2), Case::roles(3)] {
        let [served, slices, _] = compare(&case, 60, SHALLOW);
        assert!(served > 500 && slices > 300, "{served} {slices}");
    }
}

#[test]
fn several_workers_that_serve_both_lanes_decide_as_the_simulated_ones_do() {
    for workers in [2, 3] {
        let case = Case::of(Design::Lanes, workers);
        let [served, slices, handed] = compare(&case, 20, DEEP);
        assert!(served > 2_000 && slices > 300 && handed == 0, "{served} {slices} {handed}");
    }
}

#[test]
fn workers_with_roles_hand_over_and_slice_as_the_simulated_ones_do() {
    let [served, slices, handed] = compare(&Case::roles(3), 20, DEEP);
    assert!(served > 1_000 && slices > 300 && handed > 50, "{served} {slices} {handed}");
}

#[test]
fn who_runs_to_completion_decides_as_the_simulated_one_does() {
    let cases = [(Design::Hkh, 1), (Design::Hkh, 2), (Design::Hkh, 3)];
    // With one worker no design has anything to decide.
    for (design, workers) in [(Design::Minos, 1), (Design::HkhWs, 1)].into_iter().chain(cases) {
        let [served, slices, handed] = compare(&Case::of(design, workers), 12, DEEP);
        assert!(served > 1_000 && (slices, handed) == (0, 0), "{served} {slices} {handed}");
    }
}
