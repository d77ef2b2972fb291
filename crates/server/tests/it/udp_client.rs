//! The client library's core against the real workers, over the seeded memory network that loses,
//! doubles and reorders: every answer right, in the designs and forms that route differently.
//!
//! Another seed: `LANEWAY_SEED=7 cargo test -p laneway-server --test it udp_client`.

use laneway_rig as rig;

use crate::mix::{self, MILLISECOND, Mix, World as _, seed};
use laneway_client::{Answer, Core, Request, Settings, Topology};
use laneway_policy::{Form, Placement, owner};
use laneway_server::clock::Clock;
use laneway_transport::memory_datagram::{DatagramFaults, MemoryClient};
use rig::{Plan, Rig};
use std::net::SocketAddr;

/// The address of queue 0 of a memory network.
const QUEUES_AT: ([u8; 4], u16) = ([10, 0, 0, 1], 11_211);
/// What a turn takes beside the workers' steps.
const TURN_NANOS: u64 = MILLISECOND / 10;

struct World {
    rig: Rig,
    core: Core,
    client: MemoryClient,
}

impl World {
    fn new(plan: &Plan, seed: u64) -> World {
        let rig = Rig::new(plan);
        let queues = plan.workers as u16;
        let placement = Placement::new(owner::SEED, queues, 1).expect("there are workers");
        let topology = Topology::queues(QUEUES_AT.1, queues).placed(placement);
        let client = rig.datagrams.as_ref().expect("it serves datagrams").client();
        World { rig, core: Core::new(Settings::default(), topology, seed), client }
    }
}

impl mix::World for World {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now_nanos(&self) -> u64 {
        self.rig.clock.nanos()
    }

    fn turn(&mut self) {
        let now_nanos = self.now_nanos();
        let mut out = Vec::new();
        while let Some(departure) = self.core.transmit(now_nanos, &mut out) {
            let to = SocketAddr::from((QUEUES_AT.0, QUEUES_AT.1 + departure.queue));
            for datagram in out.chunks(departure.segment_bytes) {
                self.client.send(to, datagram);
            }
        }
        self.rig.turn();
        self.rig.clock.advance(TURN_NANOS);
        let now_nanos = self.now_nanos();
        while let Some((from, datagram)) = self.client.receive() {
            self.core.feed(from.port() - QUEUES_AT.1, &datagram, now_nanos);
        }
        self.core.tick(now_nanos);
    }
}

fn check(plan: Plan, requests: u64, failures: u64) -> Mix<World> {
    let seed = plan.datagrams.expect("it serves datagrams").seed;
    let again = format!("LANEWAY_SEED={seed} cargo test -p laneway-server --test it udp_client");
    mix::check(World::new(&plan, seed), seed, (requests, 32, failures), again)
}

fn faults(parts: u32) -> Option<DatagramFaults> {
    Some(DatagramFaults { receive_bytes: 4 << 20, ..DatagramFaults::each(seed(), parts) })
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_at_one_percent_of_each_fault() {
    let plan = Plan { datagrams: faults(100), ..Plan::of(2, Form::TimeShare) };
    let mix = check(plan, 10_000, 10);
    let counts = mix.world.core.counts();
    assert!(counts.retries > 0 && counts.resends_asked > 0 && counts.frames_resent > 0);
    assert_eq!((counts.garbled, counts.unintelligible), (0, 0));
}

#[test]
fn every_design_answers_right_whatever_the_network_does() {
    for plan in rig::one_of_each_design() {
        check(Plan { datagrams: faults(300), ..plan }, 1_500, 2);
    }
}

#[test]
fn a_set_that_is_repeated_is_carried_out_once() {
    let plan = Plan { datagrams: faults(1000), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    for round in 0..300_u64 {
        // A second set would change the id that the first has given.
        assert_eq!(world.ask(Request::set("k", round.to_string())).ok(), Some(Answer::Done));
        let Ok(Answer::Value(before)) = world.ask(Request::gets("k")) else {
            panic!("it is there")
        };
        for _ in 0..20 {
            world.turn();
        }
        let Ok(Answer::Value(after)) = world.ask(Request::gets("k")) else { panic!("it is there") };
        assert_eq!(before, after, "round {round}, seed {}", seed());
    }
}
