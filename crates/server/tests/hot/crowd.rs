//! Many clients, each with one request in flight.

use crate::rig::{Plan, Rig};
use laneway_load::random::Random;
use laneway_policy::hot::{HotSettings, Slot};
use laneway_policy::{Access, Design, Nanos};
use laneway_server::clock::Clock;
use laneway_server::stats::Question;
use laneway_transport::memory::Client;
use std::collections::BTreeMap;

/// A request, and how its reply ends.
pub struct Request {
    pub bytes: Vec<u8>,
    pub end: &'static [u8],
}

pub fn get(key: &str) -> Request {
    Request { bytes: format!("get {key}\r\n").into_bytes(), end: b"END\r\n" }
}

pub fn set(key: &str, value: &[u8]) -> Request {
    let head = format!("set {key} 0 0 {}\r\n", value.len());
    Request { bytes: [head.as_bytes(), value, b"\r\n"].concat(), end: b"\r\n" }
}

struct Guest {
    client: Client,
    got: Vec<u8>,
    unsent: Vec<u8>,
    end: Option<&'static [u8]>,
}

pub struct Crowd {
    guests: Vec<Guest>,
    pub random: Random,
}

impl Crowd {
    pub fn new(rig: &Rig, count: usize, seed: u64) -> Crowd {
        let guest =
            |_| Guest { client: rig.net.connect(), got: Vec::new(), unsent: Vec::new(), end: None };
        Crowd { guests: (0..count).map(guest).collect(), random: Random::new(seed) }
    }

    /// Ask `count` requests; `heard` is given each reply.
    pub fn ask(
        &mut self,
        rig: &mut Rig,
        count: usize,
        mut next: impl FnMut(&mut Random) -> Request,
        mut heard: impl FnMut(&[u8]),
    ) {
        let (mut asked, mut answered, mut quiet) = (0, 0, 0);
        while answered < count {
            let before = (asked, answered);
            for guest in &mut self.guests {
                if guest.end.is_none() && asked < count {
                    let request = next(&mut self.random);
                    asked += 1;
                    (guest.unsent, guest.end) = (request.bytes, Some(request.end));
                }
                let sent = guest.client.send(&guest.unsent);
                guest.unsent.drain(..sent);
            }
            rig.turn();
            for guest in &mut self.guests {
                let Some(end) = guest.end else { continue };
                let more = guest.client.receive(usize::MAX);
                quiet = if more.is_empty() { quiet } else { 0 };
                guest.got.extend(more);
                if guest.got.ends_with(end) {
                    heard(&guest.got);
                    guest.got.clear();
                    guest.end = None;
                    answered += 1;
                }
            }
            quiet = if before == (asked, answered) { quiet + 1 } else { 0 };
            assert!(quiet < 100_000, "{answered} of {count} requests were answered");
        }
    }
}

/// Keys have owners, hot ones move, and a slot is so many requests.
pub fn plan(access: Access, workers: usize, slot_requests: u32) -> Plan {
    let rule = match access {
        Access::Crew => HotSettings::lanes(workers as u16),
        _ => HotSettings::lanes_exclusive(workers as u16),
    };
    let slot = Slot { nanos: Nanos(0), requests: slot_requests };
    let hot = Some(HotSettings { slot, ..rule });
    Plan { access, hot, connections_max: 256, ..Plan::design(Design::Hkh, workers) }
}

/// What a `stats` question is answered.
pub fn stats(rig: &Rig, question: &Question) -> BTreeMap<String, String> {
    let nanos = rig.clock.nanos();
    let reply = rig.shared.answer(question, rig.clock.moment(nanos), nanos);
    let text = String::from_utf8(reply).expect("statistics are text");
    let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub fn number(stats: &BTreeMap<String, String>, name: &str) -> f64 {
    let value = stats.get(name).unwrap_or_else(|| panic!("no {name} in {stats:?}"));
    value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
}

/// The hot keys, and what is told of each.
pub fn hot_keys(rig: &Rig) -> BTreeMap<String, BTreeMap<String, String>> {
    let stats = stats(rig, &Question::HotKeys);
    let mut keys = BTreeMap::new();
    for (name, value) in &stats {
        let Some((place, "key")) = name.strip_prefix("key:").and_then(|n| n.split_once(':')) else {
            continue;
        };
        let prefix = format!("key:{place}:");
        let of = stats.iter().filter_map(|(n, v)| Some((n.strip_prefix(&prefix)?, v)));
        keys.insert(value.clone(), of.map(|(n, v)| (n.to_owned(), v.clone())).collect());
    }
    keys
}
