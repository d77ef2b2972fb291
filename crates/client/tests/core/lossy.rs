//! The core against a model server on a network that loses, doubles and reorders by seed, in
//! simulated time.
//!
//! Another seed: `LANEWAY_SEED=7 cargo test -p laneway-client --test core lossy`.

use crate::mix::{self, Mix, SECOND, World as _, seed};
use crate::model::Server;
use laneway_client::{Answer, Core, Error, Request, Settings, Topology};
use laneway_policy::Placement;
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet, MemoryClient};
use std::collections::BTreeMap;
use std::net::SocketAddr;

const QUEUES: u16 = 4;
const TURN_NANOS: u64 = 100_000;

/// Core, network and server, in one simulated time.
struct World {
    core: Core,
    client: MemoryClient,
    base: SocketAddr,
    server: Server,
    now_nanos: u64,
}

impl World {
    fn new(faults: DatagramFaults, settings: Settings) -> World {
        let net = DatagramNet::new(faults, usize::from(QUEUES));
        let base = SocketAddr::from(([10, 0, 0, 1], 11_211));
        let placement = Placement::new(7, QUEUES, 1).expect("there are queues");
        let topology = Topology::queues(base.port(), QUEUES).placed(placement);
        World {
            core: Core::new(settings, topology, faults.seed),
            client: net.client(),
            base,
            server: Server::new(net.datagrams(), "END\r\n"),
            now_nanos: SECOND,
        }
    }
}

impl mix::World for World {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now_nanos(&self) -> u64 {
        self.now_nanos
    }

    fn turn(&mut self) {
        let mut out = Vec::new();
        while let Some(departure) = self.core.transmit(self.now_nanos, &mut out) {
            let to = SocketAddr::new(self.base.ip(), self.base.port() + departure.queue);
            for datagram in out.chunks(departure.segment_bytes) {
                self.client.send(to, datagram);
            }
        }
        self.server.step(self.now_nanos);
        while let Some((from, datagram)) = self.client.receive() {
            let queue = from.port() - self.base.port();
            self.core.feed(queue, &datagram, self.now_nanos);
        }
        self.core.tick(self.now_nanos);
        self.now_nanos += TURN_NANOS;
    }
}

fn check(faults: DatagramFaults, requests: u64, together: usize, failures: u64) -> Mix<World> {
    let seed = faults.seed;
    let again = format!("LANEWAY_SEED={seed} cargo test -p laneway-client --test core lossy");
    let world = World::new(faults, Settings::default());
    mix::check(world, seed, (requests, together, failures), again)
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_at_one_percent_of_each_fault() {
    let faults = DatagramFaults { receive_bytes: 4 << 20, ..DatagramFaults::each(seed(), 100) };
    let mix = check(faults, 10_000, 32, 10);
    let (client, server) = (mix.world.core.counts(), mix.world.server.counts);
    assert!(client.retries > 0 && client.resends_asked > 0 && client.frames_resent > 0);
    assert!(server.repeats > 0 && server.frames_resent > 0 && server.forgets > 0);
    assert_eq!(client.garbled + client.unintelligible, 0);
}

#[test]
fn short_values_that_are_asked_for_together_are_each_right_whatever_the_network_does() {
    for seed in seed()..seed() + 3 {
        let faults = DatagramFaults { receive_bytes: 4 << 20, ..DatagramFaults::each(seed, 300) };
        let mut world = World::new(faults, Settings::default());
        for number in (0..100_u32).step_by(2) {
            let set = Request::set(format!("key:{number}"), number.to_string());
            assert_eq!(world.ask(set).ok(), Some(Answer::Done), "seed {seed}");
        }
        let mut draws = fastrand::Rng::with_seed(seed);
        for _ in 0..100 {
            let mut asked = BTreeMap::new();
            for number in std::iter::repeat_with(|| draws.u32(..100)).take(40) {
                let get = Request::get(format!("key:{number}"));
                let ticket = world.core.push(get, world.now_nanos).expect("there is room");
                asked.insert(ticket, number);
            }
            while !asked.is_empty() {
                world.turn();
                while let Some((ticket, answer)) = world.core.answer() {
                    let number = asked.remove(&ticket).expect("it is answered once");
                    let is_right = match answer {
                        Ok(Answer::Value(value)) => value.data == number.to_string().as_bytes(),
                        Ok(Answer::Missing) => number % 2 == 1,
                        _ => false,
                    };
                    assert!(is_right, "key {number}, seed {seed}");
                }
            }
        }
        let counts = world.core.counts();
        assert!(counts.gathered > 3_000 && counts.retries > 0, "{counts:?}");
        assert_eq!(counts.garbled + counts.unintelligible, 0, "seed {seed}");
    }
}

#[test]
fn nothing_is_sent_twice_on_a_network_without_faults() {
    let faults = DatagramFaults { receive_bytes: 64 << 20, ..DatagramFaults::NONE };
    let mix = check(faults, 2_000, 32, 0);
    let counts = *mix.world.core.counts();
    assert_eq!((counts.retries, counts.resends_asked, counts.frames_resent), (0, 0, 0));
    assert_eq!((counts.stray, counts.frames_refused), (0, 0));
}

#[test]
fn a_tenth_lost_is_survived() {
    for seed in seed()..seed() + 3 {
        let faults = DatagramFaults { receive_bytes: 4 << 20, ..DatagramFaults::each(seed, 1000) };
        check(faults, 1_000, 16, 10);
    }
}

#[test]
fn a_number_is_added_to_once_or_the_client_says_that_it_does_not_know() {
    let faults = DatagramFaults::each(seed(), 500);
    let settings = Settings { deadline_nanos: SECOND / 10, ..Settings::default() };
    let mut world = World::new(faults, settings);
    while world.ask(Request::set("n", "0")).is_err() {}
    let (mut least, mut unknown) = (0, 0);
    for _ in 0..500 {
        match world.ask(Request::increment("n", 1)) {
            Ok(Answer::Number(number)) => {
                least += 1;
                assert!((least..=least + unknown).contains(&number), "seed {}", faults.seed);
            }
            Err(Error::OutcomeUnknown { attempts: 1 }) => unknown += 1,
            other => panic!("{other:?}, seed {}", faults.seed),
        }
    }
    assert!(0 < unknown && unknown < 100, "{unknown} unknown, seed {}", faults.seed);
}
