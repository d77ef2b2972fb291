//! Random commands by both protocols and both versions of RESP, in pipelines of any length, against
//! a map; whatever the design, and wherever the streams are cut.

use crate::kept::all_plans;
use laneway_rig::resp::{are_replies, bulk, request};
use laneway_rig::{self as rig, Plan, Rig, tail, value};
use laneway_transport::memory::{Client, Faults};
use std::collections::BTreeMap;

/// Sizes of values: none, small, in pieces, of the large lane.
const SIZES: [usize; 9] = [0, 1, 5, 100, 900, 6_000, 16_500, 40_000, 150_000];

struct Draws(u64);

impl Draws {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
    fn key(&mut self) -> Vec<u8> {
        let number = self.below(12);
        // Some are no text.
        let odd: &[u8] = if number.is_multiple_of(4) { b"\r\n\x00 \xff" } else { b"" };
        [format!("key{number}").as_bytes(), odd].concat()
    }
    fn value(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => (self.below(2_000) as i64 - 1_000).to_string().into_bytes(),
            _ => value(SIZES[self.below(SIZES.len())], self.below(1_000) as u64),
        }
    }
}

/// When those end that do.
const END: &[u8] = b"1800000000";

/// Values by key, and whether they end.
#[derive(Default)]
struct Oracle {
    items: BTreeMap<Vec<u8>, (Vec<u8>, bool)>,
}

fn null(is_three: bool) -> Vec<u8> {
    if is_three { b"_\r\n".to_vec() } else { b"$-1\r\n".to_vec() }
}

fn integer(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

const OK: &[u8] = b"+OK\r\n";

impl Oracle {
    fn get(&self, key: &[u8], is_three: bool) -> Vec<u8> {
        self.items.get(key).map_or_else(|| null(is_three), |(value, _)| bulk(value))
    }

    /// A command and its reply.
    #[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
    fn draw(&mut self, draws: &mut Draws, is_three: bool) -> (Vec<u8>, Vec<u8>) {
        let key = draws.key();
        match draws.below(17) {
            0..4 => (request(&[b"GET", &key]), self.get(&key, is_three)),
            4..7 => self.set(draws, key, is_three),
            7 => {
                let keys: Vec<_> = (0..1 + draws.below(8)).map(|_| draws.key()).collect();
                let args =
                    [&[&b"MGET"[..]], &keys.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]];
                let replies: Vec<_> = keys.iter().map(|key| self.get(key, is_three)).collect();
                let head = format!("*{}\r\n", keys.len()).into_bytes();
                (request(&args.concat()), [head, replies.concat()].concat())
            }
            8 => {
                let pairs: Vec<_> =
                    (0..1 + draws.below(4)).map(|_| (draws.key(), draws.value())).collect();
                let mut args = vec![&b"MSET"[..]];
                pairs.iter().for_each(|(key, value)| args.extend([&key[..], &value[..]]));
                let bytes = request(&args);
                pairs
                    .into_iter()
                    .for_each(|(key, value)| drop(self.items.insert(key, (value, false))));
                (bytes, OK.to_vec())
            }
            9 => {
                let (one, two) = (draws.key(), draws.key());
                let mut count = 0;
                for key in [&one, &two] {
                    count += i64::from(self.items.remove(key).is_some());
                }
                (request(&[b"DEL", &one, &two]), integer(count))
            }
            10 => {
                let added = draws.value();
                let (value, _) = self.items.entry(key.clone()).or_default();
                value.extend_from_slice(&added);
                (request(&[b"APPEND", &key, &added]), integer(value.len() as i64))
            }
            11 => {
                let by = draws.below(100) as i64 - 50;
                let reply = self.increment(&key, by);
                (request(&[b"INCRBY", &key, by.to_string().as_bytes()]), reply)
            }
            14 => {
                let (from, to) = (draws.below(200) as i64 - 100, draws.below(50_000) as i64 - 100);
                let value = self.items.get(&key).map_or(&[][..], |(value, _)| value);
                let front = |at: i64| if at < 0 { (value.len() as i64 + at).max(0) } else { at };
                let (first, last) = (front(from) as usize, front(to) as usize);
                let part = value.get(first..value.len().min(last + 1)).unwrap_or_default();
                let part = if from < 0 && to < 0 && from > to { b"" } else { part };
                let (from, to) = (from.to_string(), to.to_string());
                (request(&[b"GETRANGE", &key, from.as_bytes(), to.as_bytes()]), bulk(part))
            }
            15 => {
                let (at, added) = (draws.below(60_000), draws.value());
                let number = at.to_string();
                let bytes = request(&[b"SETRANGE", &key, number.as_bytes(), &added]);
                if added.is_empty() {
                    let length = self.items.get(&key).map_or(0, |(value, _)| value.len());
                    return (bytes, integer(length as i64));
                }
                let (value, _) = self.items.entry(key.clone()).or_default();
                value.resize(value.len().max(at + added.len()), 0);
                value[at..at + added.len()].copy_from_slice(&added);
                (bytes, integer(value.len() as i64))
            }
            16 => self.delete_if_equal(draws, &key),
            12 => {
                let reply = self.get(&key, is_three);
                self.items.remove(&key);
                (request(&[b"GETDEL", &key]), reply)
            }
            _ => {
                let end = match self.items.get(&key) {
                    None => integer(-2),
                    Some((_, false)) => integer(-1),
                    Some((_, true)) => [b":", END, b"\r\n"].concat(),
                };
                (request(&[b"EXPIRETIME", &key]), end)
            }
        }
    }

    fn delete_if_equal(&mut self, draws: &mut Draws, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        const TOO_LONG: &[u8] = b"-ERR DELIFEQ compares with values of up to 64 bytes here\r\n";
        let before = self.items.get(key).map(|(value, _)| value.clone());
        let same = before.clone().filter(|_| draws.below(2) == 0);
        let wanted = same.unwrap_or_else(|| draws.value());
        let bytes = request(&[b"DELIFEQ", key, &wanted]);
        if wanted.len() > 64 {
            return (bytes, TOO_LONG.to_vec());
        }
        let is_equal = before.is_some_and(|value| value == wanted);
        if is_equal {
            self.items.remove(key);
        }
        (bytes, integer(is_equal.into()))
    }

    fn set(&mut self, draws: &mut Draws, key: Vec<u8>, is_three: bool) -> (Vec<u8>, Vec<u8>) {
        let value = draws.value();
        let mut options: Vec<&[u8]> = Vec::new();
        let before = self.items.get(&key).cloned();
        let is_met = match draws.below(4) {
            0 => {
                options.push(b"NX");
                before.is_none()
            }
            1 => {
                options.push(b"xx");
                before.is_some()
            }
            _ => true,
        };
        let returns = draws.below(3) == 0;
        if returns {
            options.push(b"GET");
        }
        let ends = match draws.below(4) {
            0 => {
                options.extend([&b"EXAT"[..], END]);
                true
            }
            1 => {
                options.push(b"KEEPTTL");
                before.as_ref().is_some_and(|(_, ends)| *ends)
            }
            _ => false,
        };
        let args = [&[&b"SET"[..], &key, &value], &options[..]].concat();
        let bytes = request(&args);
        let reply = match (returns, is_met) {
            (true, _) => self.get(&key, is_three),
            (false, true) => OK.to_vec(),
            (false, false) => null(is_three),
        };
        if is_met {
            self.items.insert(key, (value, ends));
        }
        (bytes, reply)
    }

    fn increment(&mut self, key: &[u8], by: i64) -> Vec<u8> {
        let (value, _) = self.items.entry(key.to_vec()).or_insert((b"0".to_vec(), false));
        let text = String::from_utf8_lossy(value).into_owned();
        match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => {
                *value = (number + by).to_string().into_bytes();
                integer(number + by)
            }
            _ => b"-ERR value is not an integer or out of range\r\n".to_vec(),
        }
    }

    /// What a client of memcached's says of a key that is text.
    fn check_by_memcached(&self, rig: &mut Rig, client: &Client, what: &str) {
        for number in [1, 2, 3, 5, 6, 7] {
            let key = format!("key{number}");
            let got = rig.ask(client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
            let hit = self.items.get(key.as_bytes()).map(|(value, _)| rig::hit(&key, value));
            let wanted = [hit.unwrap_or_default(), b"END\r\n".to_vec()].concat();
            assert!(got == wanted, "{what} {key}: {}", tail(&got));
        }
    }
}

#[test]
fn random_commands_are_answered_as_a_map_answers_them() {
    for (number, plan) in all_plans().into_iter().enumerate() {
        let seed = number as u64 + 1;
        let faults = Faults { seed, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let faults = if number % 3 == 0 { Faults::NONE } else { faults };
        // What is kept durably is evicted, too.
        let memory_bytes = if plan.kept.is_some() { 8 << 20 } else { 256 << 20 };
        let plan = Plan { faults, memory_bytes, ..plan };
        let what = format!("seed {seed}, {}", plan.what());
        let mut rig = Rig::new(&plan);
        let mut draws = Draws(seed);
        let mut oracle = Oracle::default();
        let clients = [rig.net.connect(), rig.net.connect()];
        rig.ask_resp(&clients[1], &request(&[b"HELLO", b"3"]), 1);
        let memcache = rig.net.connect();
        for round in 0..30 {
            let is_three = draws.below(2) == 1;
            let waits = draws.below(5) == 0;
            let (mut requests, mut wanted) = (Vec::new(), Vec::new());
            let many = 1 + draws.below(if waits { 6 } else { 40 });
            let (mut queued, mut bytes) = (Vec::new(), 0);
            for _ in 0..many {
                let (request, reply) = oracle.draw(&mut draws, is_three);
                bytes += request.len();
                requests.push(request);
                queued.push(reply);
            }
            let mut count = many;
            if waits && bytes < 900_000 {
                requests.insert(0, request(&[b"MULTI"]));
                requests.push(request(&[b"EXEC"]));
                wanted.push(OK.to_vec());
                wanted.extend((0..many).map(|_| b"+QUEUED\r\n".to_vec()));
                wanted.push(format!("*{many}\r\n").into_bytes());
                count += 2;
            }
            wanted.append(&mut queued);
            let got = rig.ask_resp(&clients[usize::from(is_three)], &requests.concat(), count);
            assert!(are_replies(&got, count));
            let wanted = wanted.concat();
            let differs = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            assert!(
                got == wanted,
                "round {round}, {what}: {} and not {}",
                tail(&got[..got.len().min(differs.unwrap_or(0) + 40)]),
                tail(&wanted[..wanted.len().min(differs.unwrap_or(0) + 40)]),
            );
            oracle.check_by_memcached(&mut rig, &memcache, &what);
        }
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
    }
}
