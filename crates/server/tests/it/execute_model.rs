//! Long random conversations on a few keys, held against a model that is a map: whatever the order
//! of commands, the replies are memcached's. Sizes reach over the boundary where values begin to
//! lie in pieces.

use fastrand::Rng;
use laneway_server::counts::counters::Counters;
use laneway_server::execute::{self, Body, Context, ExecuteSettings};
use laneway_store::{Config, Hand, Moment, Store};
use laneway_wire::{Limits, Request, parse};
use std::cell::Cell;
use std::collections::HashMap;

const SEEDS: [u64; 4] = [1, 8841, 0x5eed, u64::MAX];
const STEPS: usize = 5_000;
const KEYS: u64 = 5;
/// Longest value that is looked at as a number (above, values lie in pieces).
const NUMBER_BYTES_MAX: usize = 16_300;
/// Values grow no further: appends stop here.
const VALUE_BYTES_MAX: usize = 120_000;

fn value(random: &mut Rng) -> Vec<u8> {
    match random.u64(..8) {
        0 => Vec::new(),
        1..4 => random.u64(..1_000).to_string().into_bytes(),
        4 => u64::MAX.to_string().into_bytes(),
        5 => vec![random.u8(b'a'..=b'z'); random.usize(..300)],
        6 => vec![random.u8(b'a'..=b'z'); random.usize(..9_000)],
        _ => vec![random.u8(b'a'..=b'z'); random.usize(20_000..80_000)],
    }
}

struct Item {
    value: Vec<u8>,
    flags: u64,
    expires: u32,
}

/// What memcached would say.
struct Model {
    items: HashMap<String, Item>,
    now: u32,
}

impl Model {
    fn live(&mut self, key: &str) -> Option<&mut Item> {
        let now = self.now;
        self.items.retain(|_, item| item.expires == 0 || item.expires > now);
        self.items.get_mut(key)
    }

    fn store(&mut self, verb: &str, key: &str, item: Item) -> &'static str {
        let found = self.live(key);
        match (verb, found) {
            ("append", Some(found)) => found.value.extend_from_slice(&item.value),
            ("prepend", Some(found)) => drop(found.value.splice(0..0, item.value)),
            ("set", _) | ("add", None) | ("replace", Some(_)) => {
                self.items.insert(key.to_owned(), item);
            }
            _ => return "NOT_STORED\r\n",
        }
        "STORED\r\n"
    }

    fn arith(&mut self, increment: bool, key: &str, delta: u64) -> String {
        let Some(item) = self.live(key) else { return "NOT_FOUND\r\n".to_owned() };
        // Padding of an earlier number may stand between it and what was appended.
        let text = std::str::from_utf8(&item.value).expect("values are text");
        let number: Option<u64> =
            text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        let Some(number) = number.filter(|_| item.value.len() <= NUMBER_BYTES_MAX) else {
            let what = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
            return what.to_owned();
        };
        let number = match increment {
            true => number.wrapping_add(delta),
            false => number.saturating_sub(delta),
        };
        item.value = format!("{number:<width$}", width = item.value.len()).into_bytes();
        format!("{number}\r\n")
    }
}

/// One step: the request, and the reply that the model expects.
fn step(random: &mut Rng, model: &mut Model) -> (Vec<u8>, Vec<u8>) {
    let key = format!("key{}", random.u64(..KEYS));
    let exptime = [0, 0, 0, 2, 50][random.usize(..5)];
    let expires = if exptime == 0 { 0 } else { model.now + exptime };
    match random.u64(..12) {
        verb @ 0..6 => {
            let verb = ["set", "set", "add", "replace", "append", "prepend"][verb as usize];
            let (mut value, flags) = (value(random), random.u64(..1 << 32));
            if model.live(&key).is_some_and(|item| item.value.len() > VALUE_BYTES_MAX) {
                value.clear();
            }
            let head = format!("{verb} {key} {flags} {exptime} {}\r\n", value.len());
            let request = [head.as_bytes(), &value, b"\r\n"].concat();
            let reply = model.store(verb, &key, Item { value, flags, expires });
            (request, reply.as_bytes().to_vec())
        }
        verb @ 6..8 => {
            let (increment, delta) = (verb == 6, random.u64(..1_000));
            let name = if increment { "incr" } else { "decr" };
            let reply = model.arith(increment, &key, delta);
            (format!("{name} {key} {delta}\r\n").into_bytes(), reply.into_bytes())
        }
        8 => {
            let found = model.live(&key).is_some();
            model.items.remove(&key);
            let reply = if found { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
            (format!("delete {key}\r\n").into_bytes(), reply.into())
        }
        9 => {
            let found = model.live(&key).map(|item| item.expires = expires).is_some();
            let reply = if found { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" };
            (format!("touch {key} {exptime}\r\n").into_bytes(), reply.into())
        }
        _ => {
            let mut reply = Vec::new();
            if let Some(item) = model.live(&key) {
                let head = format!("VALUE {key} {} {}\r\n", item.flags, item.value.len());
                reply = [head.as_bytes(), &item.value, b"\r\n"].concat();
            }
            reply.extend_from_slice(b"END\r\n");
            (format!("get {key}\r\n").into_bytes(), reply)
        }
    }
}

#[test]
fn random_conversations_are_answered_as_the_model_answers() {
    for seed in SEEDS {
        let store = Store::new(Config::default()).expect("memory for a store");
        let hand = Hand::new(&store);
        let (counters, settings) = (Counters::default(), ExecuteSettings::default());
        let touched = Cell::new(0);
        let mut random = Rng::with_seed(seed);
        let mut model = Model { items: HashMap::new(), now: 1_800_000_000 };
        for number in 0..STEPS {
            model.now += u32::from(random.u64(..20) == 0);
            let (request, expected) = step(&mut random, &mut model);
            let context = Context {
                store: &store,
                others: &[],
                hand: Some(&hand),
                now: Moment::new(model.now, 500), // some part of a second
                counters: &counters,
                settings: &settings,
                touched: &touched,
                large_from: u64::MAX,
                large_lane_from: u64::MAX,
                pending_writes: None,
                read_only: false,
                log: None,
                by: 0,
            };
            let limits = Limits { item_bytes_max: 1 << 20, line_bytes_max: 1 << 16 };
            let frame = parse(&request, &limits).expect("legal").expect("whole");
            let mut out = Vec::new();
            if let Request::Store(_) = &frame.request {
                let body = Body::of(&request[frame.head_bytes..]);
                execute::store_whole(&context, &frame.request, body, &mut out);
            } else {
                drop(execute::command(&context, &frame.request, &mut out));
            }
            let line = request[..frame.head_bytes].escape_ascii();
            let shown = |bytes: &[u8]| bytes[..bytes.len().min(60)].escape_ascii().to_string();
            assert!(
                out == expected,
                "seed {seed}, step {number}: {line}: {} instead of {}",
                shown(&out),
                shown(&expected)
            );
        }
    }
}
