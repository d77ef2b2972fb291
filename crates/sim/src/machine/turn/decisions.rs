//! The simulated worker and the server's, given the same plan and the same requests that stand
//! alone, decide alike, one decision after the other: which requests are received and in which
//! order, from whom an idle worker takes, and how many a large worker takes in front of a slice and
//! of whom.
//!
//! Requests of an RX queue come to the server as datagrams. What one worker can take of another is
//! what lies in that one's queue of jobs: what it has offered, and in `hkh-ws` all that it has
//! received ([`Reach::Offered`]). One worker is watched at a time while the others stand still, so
//! that nothing hangs on what work costs.

use super::Doing;
use crate::events::NEVER;
use crate::machine::{Machine, Reach, Request, Run, Standby, Traffic};
use crate::workload::Mix;
use laneway_policy::{CorePlan, Design, Form, Role, WorkerId, turn};
use laneway_rig::peer::{Peer, orphan};
use laneway_rig::{self as rig, Plan, Rig, value};

const SMALL_BYTES: u32 = 100;
const LARGE_BYTES: usize = 4_000_000;
const WORKERS_LARGE: usize = 2;

/// Each design, and `lanes` and `minos` with all that they have.
fn plans() -> Vec<Plan> {
    let mut plans = rig::one_of_each_design().to_vec();
    plans.push(Plan::of(6, Form::TimeShare));
    plans.push(Plan { extra_large: true, ..Plan::design(Design::Minos, 6) });
    plans
}

/// A server in which some workers are large, where the design knows such.
fn rig_of(plan: &Plan) -> Rig {
    let mut rig = Rig::new(plan);
    if plan.form == Form::Roles && matches!(plan.design, Design::Lanes | Design::Minos) {
        rig.publish_large(WORKERS_LARGE);
    }
    rig.turns(3);
    rig
}

fn machine(plan: &Plan, reach: Reach) -> Machine {
    let mut machine = Machine::new(plan.design, plan.workers as u16);
    (machine.reach, machine.standby) = (reach, Standby::ReadsOn);
    machine
}

/// A run in which nothing comes, under this plan.
fn run_of<'a>(machine: &'a Machine, traffic: &'a Traffic, plan: &CorePlan) -> Run<'a> {
    let mut run = Run::new(machine, traffic, 1);
    run.control.follow(plan.clone());
    run
}

fn traffic() -> Traffic {
    Traffic::steady(Mix::etc(), 1.0, 1)
}

/// A small request with a number.
fn request(number: usize) -> Request {
    let (bytes, came, service) = (SMALL_BYTES, number as u64, 1_000_000);
    Request { came, service, bytes, replied: true, ..Request::default() }
}

/// What a worker does next, which is over at once; `None`: it rests.
fn next(run: &mut Run<'_>, worker: usize) -> Option<Doing> {
    run.asleep = 0;
    run.next_work(worker);
    run.events.set(worker, NEVER);
    let rests = run.asleep >> worker & 1 == 1;
    let doing = std::mem::replace(&mut run.workers[worker].doing, Doing::Nothing);
    (!rests).then_some(doing)
}

/// The only one of these counts that is one lower than before, if any is.
fn taken(before: &[usize], now: &[usize]) -> Option<usize> {
    let fewer = |whose: &usize| now[*whose] < before[*whose];
    let mut all = (0..now.len()).filter(fewer);
    let whose = all.next()?;
    assert!(all.next().is_none() && now[whose] + 1 == before[whose], "{before:?} {now:?}");
    Some(whose)
}

fn jobs(rig: &Rig) -> Vec<usize> {
    rig.shared.workers.iter().map(|worker| worker.jobs.len()).collect()
}

fn batches(run: &Run<'_>) -> Vec<usize> {
    run.workers.iter().map(|worker| worker.batch.len()).collect()
}

/// So many requests more have come to a worker, and others may take them if anybody may.
fn lay(rig: &Rig, run: &mut Run<'_>, whose: usize, count: usize) {
    for _ in 0..count {
        assert!(rig.shared.workers[whose].jobs.push(orphan(whose, b"get k\r\n")).is_ok());
        run.workers[whose].batch.push_back(request(whose));
    }
    let plan = &run.control.plan;
    let offers = plan.design != Design::HkhWs && turn::may_offer(plan, WorkerId(whose as u16));
    let worker = &mut run.workers[whose];
    worker.offered = if offers { worker.batch.len() as u32 } else { 0 };
}

fn has_slices(rig: &Rig, worker: usize) -> bool {
    rig.shared.workers[worker].lanes.waiting_large.get() > 0
}

/// Turns until a worker has a transfer that goes on, of a client that takes what comes.
fn who_slices(rig: &mut Rig, take: &impl Fn() -> usize) -> usize {
    for _ in 0..20 {
        rig.turn();
        take();
        if let Some(worker) = (0..rig.workers.len()).find(|&worker| has_slices(rig, worker)) {
            return worker;
        }
    }
    panic!("a large reply is on its way")
}

/// The simulated worker has a transfer that does not end.
fn begin_transfer(run: &mut Run<'_>, worker: usize) {
    let large = Request { bytes: 1 << 30, large: true, ..request(0) };
    let transfer = run.transfer(large, 0);
    run.workers[worker].transfers.push_back(transfer);
}

/// Small requests that a simulated worker serves until its next slice, which is over then.
fn served_until_slice(run: &mut Run<'_>, worker: usize) -> usize {
    let mut served = 0;
    while let Some(Doing::Serve(_)) = next(run, worker) {
        served += 1;
    }
    assert!(run.workers[worker].turn.in_transfer(), "a slice ends it");
    run.workers[worker].turn.slice_over(&run.control.plan, true);
    served
}

/// The workers whose queues hold small requests.
fn small_ones(plan: &CorePlan) -> Vec<usize> {
    let is_small = |worker: &usize| matches!(plan.roles[*worker], Role::Small | Role::Both);
    (0..plan.roles.len()).filter(is_small).collect()
}

/// Numbers of the requests that a simulated worker begins, in its order.
fn received_simulated(plan: &CorePlan, of: &Plan, me: usize, queues: &[usize]) -> Vec<usize> {
    let (machine, traffic) = (machine(of, Reach::Sockets), traffic());
    let mut run = run_of(&machine, &traffic, plan);
    let mut number = 0;
    for (queue, &count) in queues.iter().enumerate() {
        for _ in 0..count {
            run.rx[queue].push_back(request(number));
            number += 1;
        }
    }
    let mut order = Vec::new();
    while let Some(doing) = next(&mut run, me) {
        match doing {
            Doing::Serve(request) | Doing::Hand(request) => order.push(request.came as usize),
            other => panic!("small requests are served or handed over, not {other:?}"),
        }
    }
    order
}

/// The same of the server's worker: the order in which its clients have their replies.
fn received_served(rig: &mut Rig, me: usize, queues: &[usize], expected: usize) -> Vec<usize> {
    let mut peer = Peer::new(rig);
    let mut number = 0;
    for (queue, &count) in queues.iter().enumerate() {
        for place in 0..count {
            // Each is longer than the one before it, so that no two arrive as one.
            let request = format!("get {}\r\n", "k".repeat(1 + place));
            peer.small(queue, number, request.as_bytes());
            number += 1;
        }
    }
    // Whoever serves what is handed over in `sho` keeps its order.
    let server = rig.workers.len() - 1;
    let hands_over = rig.shared.plan.get().design == Design::Sho;
    // In `hkh-ws` what is taken is executed a turn later.
    for _ in 0..2 * expected + 2 {
        rig.workers[me].step().expect("memory does not fail");
        if hands_over {
            rig.workers[server].step().expect("memory does not fail");
        }
    }
    peer.receive();
    assert!(peer.got.iter().all(|(_, reply)| reply == b"END\r\n"));
    peer.got.iter().map(|(number, _)| usize::from(*number)).collect()
}

#[test]
fn queues_are_received_from_in_the_same_order_and_batches() {
    for of in plans() {
        let of = of.with_datagrams();
        for seed in 0..6 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rig = rig_of(&of);
            if of.design == Design::Lanes && seed % 2 == 1 {
                // A standby whose queue others drain, too.
                rig.publish(|plan| {
                    plan.roles = laneway_policy::cores::roles(plan.roles.len() as u16, 0);
                    plan.workers_small = plan.roles.len() as u16;
                    plan.standby_raised = true;
                });
                rig.turns(3);
            }
            let plan = rig.shared.plan.get();
            let me = plan.roles.iter().position(|role| *role != Role::Large).expect("one reads");
            let mut queues = vec![0; of.workers];
            for (whose, count) in queues.iter_mut().enumerate() {
                // What others have of their own would be stolen from: that is another test's. And
                // of what is handed over in `sho` the replies to one queue leave together.
                let drained = !matches!(plan.roles[whose], Role::Small | Role::Both);
                if whose == me || drained && of.design != Design::Sho {
                    *count = random.usize(0..90);
                }
            }
            let simulated = received_simulated(&plan, &of, me, &queues);
            let served = received_served(&mut rig, me, &queues, simulated.len());
            assert_eq!(simulated.len(), queues.iter().sum::<usize>(), "{}: {seed}", of.what());
            assert_eq!(simulated, served, "{}, seed {seed}: {queues:?}", of.what());
        }
    }
}

#[test]
fn an_idle_worker_looks_into_the_same_sockets() {
    let mut takes = 0;
    for of in plans() {
        let of = of.with_datagrams();
        for seed in 0..8 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rig = rig_of(&of);
            let plan = rig.shared.plan.get();
            let (me, mut queues) = (random.usize(0..of.workers), vec![0; of.workers]);
            for whose in small_ones(&plan).into_iter().filter(|&whose| whose != me) {
                queues[whose] = random.usize(0..5);
            }
            let simulated = received_simulated(&plan, &of, me, &queues);
            let served = received_served(&mut rig, me, &queues, simulated.len());
            assert_eq!(simulated, served, "{}, seed {seed}: {me} of {queues:?}", of.what());
            takes += simulated.len();
        }
    }
    assert!(takes > 60, "{takes}");
}

#[test]
fn an_idle_worker_takes_from_the_same_ones() {
    let mut takes = 0;
    for of in plans() {
        for seed in 0..12 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rig = rig_of(&of);
            let plan = rig.shared.plan.get();
            let (machine, traffic) = (machine(&of, Reach::Offered), traffic());
            let mut run = run_of(&machine, &traffic, &plan);
            let me = random.usize(0..of.workers);
            for whose in small_ones(&plan).into_iter().filter(|&whose| whose != me) {
                lay(&rig, &mut run, whose, random.usize(0..7));
            }
            let what = format!("{}, seed {seed}: {me} of {:?}", of.what(), jobs(&rig));
            loop {
                let (queued, batched) = (jobs(&rig), batches(&run));
                assert_eq!(queued, batched, "{what}");
                let serves = matches!(next(&mut run, me), Some(Doing::Serve(_)));
                let simulated = taken(&batched, &batches(&run));
                assert_eq!(serves, simulated.is_some(), "{what}");
                rig.workers[me].step().expect("memory does not fail");
                assert_eq!(taken(&queued, &jobs(&rig)), simulated, "{what}, of {queued:?}");
                takes += usize::from(serves);
                if !serves {
                    break;
                }
            }
        }
    }
    assert!(takes > 200, "{takes}");
}

/// A worker that serves both lanes: a batch of what has come, then a slice.
#[test]
fn a_batch_is_served_between_two_slices() {
    let of = Plan::of(2, Form::TimeShare).with_datagrams();
    for seed in 0..6 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rig = rig_of(&of);
        let client = rig.net.connect();
        rig.set(&client, "big", &value(LARGE_BYTES, 1));
        assert_eq!(client.send(b"get big\r\n"), 9);
        let plan = rig.shared.plan.get();
        let me = who_slices(&mut rig, &|| client.receive(usize::MAX).len());
        let (machine, traffic) = (machine(&of, Reach::Sockets), traffic());
        let mut run = run_of(&machine, &traffic, &plan);
        begin_transfer(&mut run, me);
        let mut peer = Peer::new(&rig);
        let count = random.usize(0..200);
        for number in 0..count {
            run.rx[me].push_back(request(number));
            let request = format!("get {}\r\n", "k".repeat(1 + number));
            peer.small(me, number as u16, request.as_bytes());
        }
        let mut left = count;
        for round in 0..10 {
            let simulated = served_until_slice(&mut run, me);
            let before = peer.got.len();
            rig.workers[me].step().expect("memory does not fail");
            peer.receive();
            let what = format!("seed {seed}, round {round}, {left} of {count} left");
            assert_eq!(peer.got.len() - before, simulated, "{what}");
            assert!(!client.receive(usize::MAX).is_empty(), "{what}: a slice ends it");
            left -= simulated;
        }
        assert_eq!(left, 0, "of {count}");
    }
}

/// In `lanes`: the other designs have no workers in the server that move slices and nothing else.
#[test]
fn as_many_are_taken_in_front_of_a_slice_of_the_same_ones() {
    let of = Plan::of(6, Form::Roles);
    let mut takes = 0;
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rig = rig_of(&of);
        let client = rig.net.connect();
        rig.set(&client, "big", &value(LARGE_BYTES, 1));
        rig.turns(20); // the connection is at home again
        assert_eq!(client.send(b"get big\r\n"), 9);
        let plan = rig.shared.plan.get();
        let me = who_slices(&mut rig, &|| client.receive(usize::MAX).len());
        assert_eq!(plan.roles[me], Role::Large);
        let (machine, traffic) = (machine(&of, Reach::Offered), traffic());
        let mut run = run_of(&machine, &traffic, &plan);
        begin_transfer(&mut run, me);
        for round in 0..8 {
            for whose in small_ones(&plan) {
                lay(&rig, &mut run, whose, random.usize(0..12));
            }
            let before = jobs(&rig);
            let what = format!("seed {seed}, round {round}: {me} of {before:?}");
            assert_eq!(before, batches(&run), "{what}");
            takes += served_until_slice(&mut run, me);
            client.receive(usize::MAX);
            rig.workers[me].step().expect("memory does not fail");
            assert!(has_slices(&rig, me), "{what}: the transfer goes on");
            assert_eq!(jobs(&rig), batches(&run), "{what}");
        }
    }
    assert!(takes > 200, "{takes}");
}
