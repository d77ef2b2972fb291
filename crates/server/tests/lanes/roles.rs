//! Pipelining clients of which each knows every answer, while workers change their roles.

use crate::rig;
use laneway_policy::{Design, Form};
use laneway_server::shared::LaneCounts;
use laneway_transport::memory::{Client, Faults};
use rig::{Plan, Rig, hit, plans_of_lanes, plans_of_rivals, tail, value};
use std::collections::BTreeMap;

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
    /// One more request of its own keys, and the reply that it must bring.
    fn request(&mut self, dice: &mut Dice) {
        let key = format!("c{}k{}", self.number, dice.roll(8));
        match dice.roll(10) {
            0..=2 => {
                let len = [10, 900, 20_000, 60_000, 300_000][dice.roll(5)];
                let value = value(len, dice.0);
                self.unsent.extend(format!("set {key} 0 0 {len}\r\n").as_bytes());
                self.unsent.extend_from_slice(&value);
                self.unsent.extend_from_slice(b"\r\n");
                self.expected.extend_from_slice(b"STORED\r\n");
                self.stored.insert(key, value);
            }
            3 => {
                self.unsent.extend(format!("delete {key}\r\n").as_bytes());
                let reply: &[u8] = if self.stored.remove(&key).is_some() {
                    b"DELETED\r\n"
                } else {
                    b"NOT_FOUND\r\n"
                };
                self.expected.extend_from_slice(reply);
            }
            4 => {
                self.unsent.extend_from_slice(b"nonsense\r\n");
                self.expected.extend_from_slice(b"ERROR\r\n");
            }
            _ => {
                let other = format!("c{}k{}", self.number, dice.roll(8));
                self.unsent.extend(format!("get {key} {other}\r\n").as_bytes());
                for key in [&key, &other] {
                    if let Some(value) = self.stored.get(key.as_str()) {
                        self.expected.extend(hit(key, value));
                    }
                }
                self.expected.extend_from_slice(b"END\r\n");
            }
        }
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

/// Pipelining clients under roles that change at random; returns what everybody received.
fn changing_roles(plan: &Plan, seed: u64) -> Vec<Vec<u8>> {
    let has_roles = plan.form == Form::Roles && plan.design != Design::Sho;
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
            "client {} differs after {same} bytes of {} (received {}): {:?} instead of {:?}; again \
             with: cargo test -p laneway-server --test lanes roles_change -- {} \
             seed {seed}",
            client.number,
            client.expected.len(),
            client.received.len(),
            tail(&client.received[..client.received.len().min(same + 60)]),
            tail(&client.expected[..client.expected.len().min(same + 60)]),
            plan.what(),
        );
    }
    let count = |count: fn(&LaneCounts) -> u64| -> u64 {
        rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
    };
    if has_roles || plan.design == Design::Sho {
        let moved = count(|lanes| lanes.moved_to_large.get() + lanes.handed_over.get());
        assert!(moved >= 10, "only {moved} requests moved: the run shows nothing");
    }
    if plan.design == Design::HkhWs {
        assert!(count(|lanes| lanes.stolen.get()) > 0, "nothing was stolen, {}", plan.what());
    }
    assert_eq!(
        count(|lanes| lanes.handed_over.get() + lanes.stolen.get()),
        count(|lanes| lanes.jobs_of_others.get()),
        "{}",
        plan.what()
    );
    clients.into_iter().map(|client| client.received).collect()
}

#[test]
fn roles_change_under_load_without_losing_doubling_or_reordering_a_reply() {
    for plan in plans_of_lanes() {
        for seed in [3, 8841, 77_777] {
            changing_roles(&plan, seed);
        }
    }
    for (number, plan) in plans_of_rivals().iter().enumerate() {
        changing_roles(plan, 4004 + number as u64);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for plan in [Plan::of(6, Form::Roles), Plan::design(Design::HkhWs, 6)] {
        let first = changing_roles(&plan, 42);
        assert!(first == changing_roles(&plan, 42));
        assert!(first != changing_roles(&plan, 43));
    }
}
