//! A well-behaved client: pipelines requests on its own keys and knows every reply beforehand.
//!
//! No other client touches its keys, and its server evicts nothing, so after each request it knows
//! what the server holds; a value is known by key, version and length, and checked byte for byte.
//! Large values are asked for last in a batch: a client that writes on while megabytes wait for it
//! would block itself. When the server is ended, what was under way without a reply is open; those
//! keys are stored anew, and all others must be what they were.

use super::mix;
use super::sharer::TTL_SECONDS;
use super::stage::Stage;
use crate::{Client, Value, random};
use fastrand::Rng;
use std::collections::{BTreeSet, HashMap};

const SMALL_KEYS: usize = 400;
const LARGE_KEYS: usize = 24;
/// How often a batch is a cas round instead, in 10 000.
const CAS_PARTS: u32 = 500;

/// What must come next on the connection.
enum Expected {
    /// Exactly this line.
    Line(String),
    /// `VALUE` lines for these, in order, then `END`.
    Values(Vec<(String, Value)>),
    /// `VA length` and this value, or `EN`.
    Meta(Option<Value>),
}

/// One client's knowledge.
struct Behaving<'a> {
    stage: &'a Stage<'a>,
    id: u64,
    random: Rng,
    held: HashMap<usize, Value>,
    /// Keys of which nothing is known; they are stored before anything else is done.
    open: BTreeSet<usize>,
    /// Keys that this batch changes: an end of the server leaves them open.
    changing: BTreeSet<usize>,
    /// Keys whose last change asked for no reply: open as long as nothing else changes them.
    quiet: BTreeSet<usize>,
    counter: Option<u64>,
    versions: u64,
    output: Vec<u8>,
    expected: Vec<Expected>,
}

/// Runs until the soak is over; what goes wrong is told to the stage.
pub fn behave(stage: &Stage, seed: u64, id: u64) {
    let mut client = Behaving {
        stage,
        id,
        random: random::stream(seed, id),
        held: HashMap::new(),
        open: (0..SMALL_KEYS + LARGE_KEYS).collect(),
        changing: BTreeSet::new(),
        quiet: BTreeSet::new(),
        counter: None,
        versions: 0,
        output: Vec::new(),
        expected: Vec::new(),
    };
    if let Err(why) = client.run() {
        stage.error(format!("client {id}: {why}"));
    }
}

impl Behaving<'_> {
    fn run(&mut self) -> Result<(), String> {
        let stage = self.stage;
        stage.each_connection(|connection| {
            let told = self.converse(connection);
            if told.is_err() {
                self.open.append(&mut self.changing);
                self.open.append(&mut self.quiet);
                // It may have been incremented, or not.
                self.counter = None;
            }
            self.output.clear();
            self.expected.clear();
            told
        })
    }

    /// One connection.
    fn converse(&mut self, connection: &mut Client) -> Result<(), String> {
        self.settle(connection)?;
        while !self.stage.scene.is_over() {
            if self.stage.is_to_reconnect(&mut self.random) {
                // A store without a reply may still be on its way here; only an answer behind it
                // says that it was done before whatever comes by the next connection.
                self.say("mn", Expected::Line("MN".into()));
                return self.exchange(connection);
            }
            if random::chance(&mut self.random, CAS_PARTS) {
                self.cas_round(connection)?;
                continue;
            }
            let (small, large) = self.stage.batch(&mut self.random);
            for _ in 0..small {
                self.small_request();
            }
            if large {
                self.large_request();
            }
            self.exchange(connection)?;
        }
        Ok(())
    }

    /// Stores every key that is open, at first all of them.
    fn settle(&mut self, connection: &mut Client) -> Result<(), String> {
        while let Some(key) = self.open.first().copied() {
            let length = match key < SMALL_KEYS {
                true => mix::small_length(&mut self.random),
                false => mix::large_length(&mut self.random),
            };
            self.set(key, length, false);
            self.exchange(connection)?;
            self.open.remove(&key);
        }
        Ok(())
    }

    fn name(&self, key: usize) -> String {
        format!("soak-{}-{key}", self.id)
    }

    fn fresh(&mut self, key: usize, length: usize) -> Value {
        self.versions += 1;
        Value { key: (self.id << 32) | key as u64, version: self.versions, length }
    }

    fn small_request(&mut self) {
        let key = self.random.usize(..SMALL_KEYS);
        match self.random.usize(..100) {
            0..45 => self.get(&[key]),
            45..55 => self.multiget(),
            55..65 => self.meta_get(key),
            65..83 => {
                let length = mix::small_length(&mut self.random);
                let quiet = random::chance(&mut self.random, 1_000);
                self.set(key, length, quiet);
            }
            83..87 => self.delete(key),
            87..91 => self.touch(key),
            91..96 => self.count(),
            _ => self.add(key),
        }
    }

    fn large_request(&mut self) {
        let key = SMALL_KEYS + self.random.usize(..LARGE_KEYS);
        match self.random.usize(..10) {
            0..6 => self.get(&[key]),
            6..7 => self.meta_get(key),
            _ => {
                let length = mix::large_length(&mut self.random);
                let quiet = random::chance(&mut self.random, 1_000);
                self.set(key, length, quiet);
            }
        }
    }

    /// Writes a request that has no value, and what must come.
    fn say(&mut self, line: &str, expected: Expected) {
        self.output.extend_from_slice(line.as_bytes());
        self.output.extend_from_slice(b"\r\n");
        self.expected.push(expected);
    }

    /// Writes a store of this value, with this tail of its line.
    fn put(&mut self, verb: &str, key: usize, value: Value, tail: &str) {
        let (name, length) = (self.name(key), value.length);
        let line = format!("{verb} {name} 0 {TTL_SECONDS} {length}{tail}\r\n");
        self.output.extend_from_slice(line.as_bytes());
        value.write(&mut self.output);
        self.output.extend_from_slice(b"\r\n");
    }

    fn get(&mut self, keys: &[usize]) {
        let names: Vec<String> = keys.iter().map(|key| self.name(*key)).collect();
        let held = |(key, name): (&usize, &String)| Some((name.clone(), *self.held.get(key)?));
        let values = keys.iter().zip(&names).filter_map(held).collect();
        self.say(&format!("get {}", names.join(" ")), Expected::Values(values));
    }

    fn multiget(&mut self) {
        let count = self.random.usize(2..9);
        let keys: Vec<usize> = (0..count).map(|_| self.random.usize(..SMALL_KEYS)).collect();
        self.get(&keys);
    }

    fn meta_get(&mut self, key: usize) {
        let line = format!("mg {} v", self.name(key));
        self.say(&line, Expected::Meta(self.held.get(&key).copied()));
    }

    fn set(&mut self, key: usize, length: usize, quiet: bool) {
        let value = self.fresh(key, length);
        self.put("set", key, value, if quiet { " noreply" } else { "" });
        self.change(key, Some(value));
        match quiet {
            true => drop(self.quiet.insert(key)),
            false => self.expected.push(Expected::Line("STORED".into())),
        }
    }

    /// From here on the key is this, once the reply has come.
    fn change(&mut self, key: usize, value: Option<Value>) -> bool {
        self.changing.insert(key);
        self.quiet.remove(&key);
        match value {
            Some(value) => self.held.insert(key, value).is_some(),
            None => self.held.remove(&key).is_some(),
        }
    }

    fn add(&mut self, key: usize) {
        let length = mix::small_length(&mut self.random);
        let value = self.fresh(key, length);
        self.put("add", key, value, "");
        let reply = match self.held.contains_key(&key) {
            true => "NOT_STORED",
            false => {
                self.change(key, Some(value));
                "STORED"
            }
        };
        self.expected.push(Expected::Line(reply.into()));
    }

    fn delete(&mut self, key: usize) {
        let line = format!("delete {}", self.name(key));
        let reply = if self.change(key, None) { "DELETED" } else { "NOT_FOUND" };
        self.say(&line, Expected::Line(reply.into()));
    }

    fn touch(&mut self, key: usize) {
        let line = format!("touch {} {TTL_SECONDS}", self.name(key));
        let reply = if self.held.contains_key(&key) { "TOUCHED" } else { "NOT_FOUND" };
        self.say(&line, Expected::Line(reply.into()));
    }

    fn count(&mut self) {
        let name = format!("soak-{}-counter", self.id);
        let (line, reply) = match self.counter {
            Some(count) => {
                let step = self.random.usize(1..100) as u64;
                self.counter = Some(count + step);
                (format!("incr {name} {step}"), (count + step).to_string())
            }
            None => {
                self.counter = Some(0);
                (format!("set {name} 0 {TTL_SECONDS} 1\r\n0"), "STORED".to_string())
            }
        };
        self.say(&line, Expected::Line(reply));
    }

    /// `gets`, a `cas` that must succeed, and the same again, which must not.
    fn cas_round(&mut self, connection: &mut Client) -> Result<(), String> {
        let key = self.random.usize(..SMALL_KEYS);
        let name = self.name(key);
        connection.send(format!("gets {name}\r\n").as_bytes())?;
        let Some(held) = self.held.get(&key).copied() else {
            return self.verified(connection.expect("END"), 0);
        };
        let line = connection.line()?;
        let unique = line
            .strip_prefix(&format!("VALUE {name} 0 {} ", held.length))
            .ok_or_else(|| format!("`gets {name}` answers `{line}`"))?
            .to_string();
        connection.body(held.length, |bytes| held.is(bytes))?;
        self.verified(connection.expect("END"), held.length)?;
        let length = mix::small_length(&mut self.random);
        let value = self.fresh(key, length);
        for reply in ["STORED", "EXISTS"] {
            self.put("cas", key, value, &format!(" {unique}"));
            self.expected.push(Expected::Line(reply.into()));
        }
        self.change(key, Some(value));
        self.exchange(connection)
    }

    /// Sends the batch and verifies every reply.
    fn exchange(&mut self, connection: &mut Client) -> Result<(), String> {
        connection.send(&self.output)?;
        self.output.clear();
        for expected in std::mem::take(&mut self.expected) {
            match expected {
                Expected::Line(line) => self.verified(connection.expect(&line), 0)?,
                Expected::Values(values) => {
                    let bytes = values.iter().map(|(_, value)| value.length).sum();
                    for (name, value) in values {
                        connection.expect(&format!("VALUE {name} 0 {}", value.length))?;
                        let told = connection.body(value.length, |bytes| value.is(bytes));
                        told.map_err(|why| format!("get {name}: {why}"))?;
                    }
                    self.verified(connection.expect("END"), bytes)?;
                }
                Expected::Meta(None) => self.verified(connection.expect("EN"), 0)?,
                Expected::Meta(Some(value)) => {
                    connection.expect(&format!("VA {}", value.length))?;
                    let good = connection.body(value.length, |bytes| value.is(bytes));
                    self.verified(good, value.length)?;
                }
            }
        }
        self.changing.clear();
        Ok(())
    }

    fn verified(&self, reply: Result<(), String>, bytes: usize) -> Result<(), String> {
        reply?;
        self.stage.verified(&self.stage.seen.tcp, bytes);
        Ok(())
    }
}
