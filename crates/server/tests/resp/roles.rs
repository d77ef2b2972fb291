//! Roles, by RESP: large requests go to large workers and connections come home, whoever does not
//! read costs nobody a turn, and no reply is lost, doubled or out of order while roles change.

use laneway_policy::{Design, Form, Role};
use laneway_rig::resp::{bulk, reply_bytes, request, words};
use laneway_rig::{self as rig, Plan, Rig, tail, value};
use laneway_server::shared::LaneCounts;
use laneway_transport::memory::{Client, Faults};
use std::collections::BTreeMap;

/// As it is asked for: a small request does not wait for a value of 10 MB.
const HUGE: usize = 10 << 20;
const LARGE: usize = 4 << 20;

fn sum(rig: &Rig, count: fn(&LaneCounts) -> u64) -> u64 {
    rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
}

#[test]
fn small_requests_wait_neither_for_a_get_nor_for_a_set_of_10_mb() {
    for plan in rig::plans_of_lanes() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { item_bytes_max: 16 << 20, ..plan });
        let clients: Vec<Client> = (0..4).map(|_| rig.net.connect()).collect();
        let [reader, writer, quick, piped] = &clients[..] else { unreachable!("four clients") };
        let (old, new) = (value(HUGE, 1), request(&[b"SET", b"new", &value(HUGE, 2)]));
        rig.ask_resp(reader, &request(&[b"SET", b"old", &old]), 1);
        rig.say_resp(quick, "SET small s");
        reader.send(&words("GET old"));
        let pipeline = words("GET small").repeat(8);
        let (mut sent, mut got, mut rounds) = (0, Vec::new(), 0);
        while sent < new.len() || got.len() < HUGE {
            sent += writer.send(&new[sent..]);
            quick.send(&words("GET small"));
            piped.send(&pipeline);
            rig.turns(4);
            assert_eq!(quick.receive(usize::MAX), bulk(b"s"), "round {rounds}, {what}");
            let piped = piped.receive(usize::MAX);
            assert_eq!(piped, bulk(b"s").repeat(8), "round {rounds}, {what}");
            got.extend(reader.receive(usize::MAX));
            rounds += 1;
        }
        assert!(rounds > 20, "only {rounds} rounds, {what}");
        let got = rig.until(reader, got, |got| reply_bytes(got) == Some(got.len()));
        assert!(got == bulk(&old), "{what}: {}", tail(&got));
        let stored = rig.until(writer, Vec::new(), |got| got.len() >= 5);
        assert_eq!(stored, b"+OK\r\n", "{what}");
        assert_eq!(rig.say_resp(quick, "STRLEN new"), format!(":{HUGE}\r\n"), "{what}");
    }
}

#[test]
fn large_requests_go_to_large_workers_and_connections_come_home() {
    let mut rig = Rig::new(&Plan::of(6, Form::Roles));
    let client = rig.net.connect();
    let big = value(LARGE, 4);
    rig.ask_resp(&client, &request(&[b"SET", b"big", &big]), 1);
    rig.say_resp(&client, "SET small s");
    for _ in 0..3 {
        assert!(rig.ask_resp(&client, &words("GET big"), 1) == bulk(&big));
        assert_eq!(rig.say_resp(&client, "GET small"), "$1\r\ns\r\n");
    }
    rig.turns(8);
    let plan = rig.shared.plan.get();
    for (number, worker) in rig.shared.workers.iter().enumerate() {
        let role = plan.roles[number];
        let large = worker.lanes.requests_large.get();
        assert_eq!(large > 0, role == Role::Large && large == 4, "worker {number} is {role:?}");
        assert!(role != Role::Large || worker.lanes.requests_small.get() == 0);
    }
    assert_eq!(sum(&rig, |lanes| lanes.moved_to_large.get()), 4, "one SET and three GETs");
    assert_eq!(sum(&rig, |lanes| lanes.moved_home.get()), 4);
}

#[test]
fn a_client_that_does_not_read_costs_nobody_else_a_turn() {
    for plan in rig::plans_of_lanes() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (stuck, other) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 3);
        rig.ask_resp(&stuck, &request(&[b"SET", b"big", &big]), 1);
        stuck.send(&words("GET big")); // and never reads
        rig.turns(50);
        let before = sum(&rig, |lanes| lanes.slices.get());
        assert!(rig.ask_resp(&other, &words("GET big"), 1) == bulk(&big), "{what}");
        let needed = LARGE as u64 / (32 * 1024) + 64;
        let taken = sum(&rig, |lanes| lanes.slices.get()) - before;
        assert!(taken <= 3 * needed, "the stuck client went on taking turns: {taken}, {what}");
        let all = rig.until(&stuck, Vec::new(), |got| reply_bytes(got) == Some(got.len()));
        assert!(all == bulk(&big), "and when it reads at last, all is there");
    }
}

/// A client that pipelines what it likes and knows every answer.
struct Scripted {
    client: Client,
    number: usize,
    stored: BTreeMap<String, Vec<u8>>,
    unsent: Vec<u8>,
    expected: Vec<u8>,
    received: Vec<u8>,
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

impl Scripted {
    fn held(&self, key: &str) -> Vec<u8> {
        self.stored.get(key).map_or(b"$-1\r\n".to_vec(), |value| bulk(value))
    }

    /// One more request of its own keys, and the reply that it must bring.
    fn request(&mut self, dice: &mut Dice) {
        let key = format!("c{}k{}", self.number, dice.roll(8));
        let (asked, reply) = match dice.roll(10) {
            0..=2 => {
                let value = value([10, 900, 20_000, 60_000, 300_000][dice.roll(5)], dice.0);
                let args = [&b"SET"[..], key.as_bytes(), &value, b"EX", b"10000"];
                let asked = request(&args);
                self.stored.insert(key, value);
                (asked, b"+OK\r\n".to_vec())
            }
            3 => {
                let there = u32::from(self.stored.remove(&key).is_some());
                (words(&format!("DEL {key}")), format!(":{there}\r\n").into_bytes())
            }
            4 => {
                let reply = self.held(&key);
                self.stored.remove(&key);
                (words(&format!("GETDEL {key}")), reply)
            }
            5 => (words("EXEC"), b"-ERR EXEC without MULTI\r\n".to_vec()),
            6 => {
                let asked = ["MULTI", &format!("GET {key}"), "PING", "EXEC"].map(words).concat();
                let queued = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n";
                (asked, [queued, &self.held(&key)[..], b"+PONG\r\n"].concat())
            }
            _ => {
                let other = format!("c{}k{}", self.number, dice.roll(8));
                let reply = [b"*2\r\n", &self.held(&key)[..], &self.held(&other)].concat();
                (words(&format!("MGET {key} {other}")), reply)
            }
        };
        self.unsent.extend(asked);
        self.expected.extend(reply);
    }

    fn exchange(&mut self) {
        let sent = self.client.send(&self.unsent);
        self.unsent.drain(..sent);
        self.received.extend(self.client.receive(usize::MAX));
        assert!(!self.client.ended(), "client {} was closed", self.number);
    }

    fn is_answered(&self) -> bool {
        self.unsent.is_empty() && self.received.len() >= self.expected.len()
    }
}

/// Pipelining clients under roles that change at random.
fn changing_roles(plan: &Plan, seed: u64) {
    let has_roles = plan.form == Form::Roles && plan.design == Design::Lanes;
    let faults = Faults { seed, short: 60, refuse: 60, reset: 0, pipe_bytes: 16_000 };
    let mut rig = Rig::new(&Plan { faults, ..plan.clone() });
    let mut dice = Dice(seed | 1);
    let scripted = |number| Scripted {
        client: rig.net.connect(),
        number,
        stored: BTreeMap::new(),
        unsent: Vec::new(),
        expected: Vec::new(),
        received: Vec::new(),
    };
    let mut clients: Vec<Scripted> = (0..8).map(scripted).collect();
    for round in 0..600 {
        for client in &mut clients {
            if client.unsent.len() < 40_000 && dice.roll(2) == 0 {
                client.request(&mut dice);
            }
            client.exchange();
        }
        if has_roles && round % 16 == 0 {
            rig.publish_large(plan.workers - 1 - dice.roll(plan.workers - 1));
        }
        let turns = 1 + dice.roll(3);
        rig.turns(turns);
    }
    for _ in 0..200_000 {
        clients.iter_mut().for_each(Scripted::exchange);
        if clients.iter().all(Scripted::is_answered) {
            break;
        }
        rig.turn();
    }
    for client in &clients {
        let same = client.received.iter().zip(&client.expected).take_while(|(a, b)| a == b).count();
        assert!(
            client.received == client.expected,
            "client {} differs after {same} bytes of {} (received {}): {:?} instead of {:?}; \
             {} seed {seed}",
            client.number,
            client.expected.len(),
            client.received.len(),
            tail(&client.received[..client.received.len().min(same + 60)]),
            tail(&client.expected[..client.expected.len().min(same + 60)]),
            plan.what(),
        );
    }
    if has_roles {
        let moved = sum(&rig, |lanes| lanes.moved_to_large.get());
        assert!(moved >= 10, "only {moved} requests moved: the run shows nothing");
    }
}

#[test]
fn roles_change_under_load_without_losing_doubling_or_reordering_a_reply() {
    for plan in rig::plans_of_lanes() {
        changing_roles(&plan, 3);
        changing_roles(&plan, 8841);
    }
    for (number, plan) in rig::one_of_each_design().iter().enumerate() {
        changing_roles(plan, 4004 + number as u64);
    }
}
