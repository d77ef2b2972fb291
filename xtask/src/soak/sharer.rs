//! A well-behaved TCP client of keys that others write too, by memcached's protocol or by RESP:
//! pipelines requests, and has every reply judged by what linearizability allows.
//!
//! Large values are asked for last in a batch: a client that writes on while megabytes wait for it
//! would block itself. Some batches of RESP are transactions, whose replies come at the end. A
//! connection that is lost when the server is ended is made again; what was under way is then
//! unknown, which the judge allows for.

use super::mix;
use super::stage::{Stage, TTL_SECONDS};
use crate::judge::{STAMP_BYTES, Stamp, View};
use crate::look::take;
use crate::{Client, random};
use fastrand::Rng;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;

/// How often a batch of memcached's protocol is a cas round instead, in 10 000.
const CAS_PARTS: u32 = 500;
/// How often a batch of small requests of RESP is a transaction, in 10 000.
const TRANSACTION_PARTS: u32 = 1_000;
/// How often a store of memcached's protocol asks for no reply, in 10 000.
const QUIET_PARTS: u32 = 1_000;
const NO_REPLY: &str = " noreply";
/// How a full memory refuses, and how it does by RESP.
pub const REFUSAL: &str = "SERVER_ERROR out of memory";
const OUT_OF_MEMORY: &str = "-OOM ";
/// What no line says.
const NEVER: &str = "\r";

/// What a client speaks.
#[derive(Clone, Copy, PartialEq)]
pub enum Protocol {
    /// Memcached's.
    Text,
    Resp,
}
use Protocol::{Resp, Text};

/// What must come next on the connection.
#[derive(Debug)]
enum Asked {
    /// Exactly this line.
    Line(&'static str),
    /// A value or nothing; and then the key holds what it held.
    Held(u32),
    /// The same of a key that may have been deleted.
    Open(u32),
    /// `VALUE` lines for some of these, in order, then `END`; or as many values or nothings.
    Values(Vec<u32>),
    /// A store.
    Set(u32, Stamp),
    /// A store without a reply.
    Quiet(u32, Stamp),
    /// A store where there was nothing.
    SetNew(u32, Stamp),
    /// What was there, or nothing; and then the key holds this.
    SetGet(u32, Stamp),
    /// A store unless somebody came between.
    Cas(u32, Stamp),
    /// A store that somebody came before.
    Stale(u32),
    /// What was there, or nothing; and then nothing.
    GetDelete(u32),
    /// Whether there was something; and then there is nothing.
    Delete(u32),
    /// Whether there is something.
    Touch(u32),
    /// A number above this one.
    Count(u64),
}

impl Asked {
    /// The line where it was done, where it was not, and where there was nothing.
    fn answers(&self, protocol: Protocol) -> [&'static str; 3] {
        match (self, protocol) {
            (Asked::Line(line), _) => [*line, NEVER, NEVER],
            (Asked::Set(..), Text) => ["STORED", NEVER, NEVER],
            (Asked::SetNew(..), Text) => ["STORED", "NOT_STORED", NEVER],
            (Asked::Cas(..), Text) => ["STORED", "EXISTS", "NOT_FOUND"],
            (Asked::Stale(_), Text) => [NEVER, "EXISTS", "NOT_FOUND"],
            (Asked::Delete(_), Text) => ["DELETED", NEVER, "NOT_FOUND"],
            (Asked::Touch(_), Text) => ["TOUCHED", NEVER, "NOT_FOUND"],
            (Asked::Set(..), Resp) => ["+OK", NEVER, NEVER],
            (Asked::SetNew(..), Resp) => ["+OK", "$-1", NEVER],
            (Asked::Delete(_) | Asked::Touch(_), Resp) => [":1", NEVER, ":0"],
            _ => [NEVER; 3],
        }
    }
}

struct Sharer<'a> {
    stage: &'a Stage<'a>,
    protocol: Protocol,
    writer: usize,
    random: Rng,
    view: View<'a>,
    output: Vec<u8>,
    asked: Vec<Asked>,
    /// Keys that this batch deletes: an end of the server leaves open whether they are there.
    deleting: BTreeSet<u32>,
    /// What this connection has stored without a reply, by key: the last version of each. It is
    /// promised to who asks behind it, and not beyond an end of the server.
    quiet: HashMap<u32, u32>,
}

/// Runs until the soak is over; what goes wrong is told to the stage.
pub fn share(stage: &Stage, protocol: Protocol, seed: u64, writer: usize) {
    let (random, view) = (random::stream(seed, writer as u64), View::new(&stage.judge));
    let (output, asked) = (Vec::new(), Vec::new());
    let (deleting, quiet) = (BTreeSet::new(), HashMap::new());
    let mut one = Sharer { stage, protocol, writer, random, view, output, asked, deleting, quiet };
    if let Err(why) = one.run() {
        stage.error(format!("client {writer}, by {}: {why}", ["text", "RESP"][protocol as usize]));
    }
}

impl Sharer<'_> {
    fn run(&mut self) -> Result<(), String> {
        let stage = self.stage;
        let mut filled = self.protocol == Resp || !stage.evicts;
        stage.each_connection(|connection| {
            let told = match std::mem::replace(&mut filled, true) {
                true => self.converse(connection),
                false => self.fill(connection),
            };
            self.output.clear();
            self.asked.clear();
            self.quiet.clear();
            self.view.over();
            told
        })
    }

    /// One connection.
    fn converse(&mut self, connection: &mut Client) -> Result<(), String> {
        if self.protocol == Resp {
            self.say("PING", Asked::Line("+PONG"));
        }
        for key in self.deleting.clone() {
            self.ask(key, ["mg KEY v", "GET KEY"], Asked::Open(key));
        }
        self.exchange(connection, false)?;
        while !self.stage.scene.is_over() {
            if self.stage.is_to_reconnect(&mut self.random) {
                // A store without a reply may still be on its way here; only an answer behind it
                // says that it was done before whatever comes by the next connection.
                if self.protocol == Text {
                    self.say("mn", Asked::Line("MN"));
                }
                return self.exchange(connection, false);
            }
            if self.protocol == Text && random::chance(&mut self.random, CAS_PARTS) {
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
            let may_be = self.protocol == Resp && !large;
            let is_transaction = may_be && random::chance(&mut self.random, TRANSACTION_PARTS);
            self.exchange(connection, is_transaction)?;
        }
        Ok(())
    }

    /// Stores half of the large keys at their largest: more than memory holds, so that a short run
    /// evicts too.
    fn fill(&mut self, connection: &mut Client) -> Result<(), String> {
        let space = self.stage.space;
        for key in (space.small..space.keys()).step_by(2) {
            self.set(key, mix::LARGE_BYTES_MAX, false);
            self.exchange(connection, false)?;
        }
        Ok(())
    }

    fn small_request(&mut self) {
        let key = self.stage.small_key(&mut self.random);
        let length = small_length(&mut self.random);
        match (self.random.usize(..100), self.protocol) {
            (0..40, _) => self.get(key),
            (40..51, _) => self.get_many(),
            (51..56, Text) => self.ask(key, ["mg KEY v", ""], Asked::Held(key)),
            (51..56, Resp) => self.put(key, length, ("", ""), &[b"GET"], Asked::SetGet),
            (56..84, _) => {
                let quiet = self.is_quiet();
                self.set(key, length, quiet);
            }
            (84..88, _) => self.put(key, length, ("add", ""), &[b"NX"], Asked::SetNew),
            (88..92, _) => {
                let words = ["touch KEY", "EXPIRE KEY"].map(|verb| format!("{verb} {TTL_SECONDS}"));
                self.ask(key, [&words[0], &words[1]], Asked::Touch(key));
            }
            (92..96, _) if !self.stage.evicts => self.count(),
            _ if !self.stage.deletes => self.count(),
            (92..96, Resp) => self.ask(key, ["", "GETDEL KEY"], Asked::GetDelete(key)),
            _ => self.ask(key, ["delete KEY", "DEL KEY"], Asked::Delete(key)),
        }
    }

    fn large_request(&mut self) {
        let key = self.stage.large_key(&mut self.random);
        match (self.random.usize(..10), self.protocol) {
            (0..5, _) => self.get(key),
            (5, Text) => self.ask(key, ["mg KEY v", ""], Asked::Held(key)),
            (5, Resp) if self.stage.deletes => {
                self.ask(key, ["", "GETDEL KEY"], Asked::GetDelete(key));
            }
            _ => {
                let (length, quiet) = (mix::large_length(&mut self.random), self.is_quiet());
                self.set(key, length, quiet);
            }
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.protocol == Text && random::chance(&mut self.random, QUIET_PARTS)
    }

    /// Writes a request of RESP.
    fn words(&mut self, words: &[&[u8]]) {
        self.output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    /// Writes a request that has no value, and remembers what it asks for.
    fn say(&mut self, line: &str, asked: Asked) {
        match self.protocol {
            Text => self.output.extend_from_slice(format!("{line}\r\n").as_bytes()),
            Resp => self.words(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()),
        }
        self.asked.push(asked);
    }

    /// A request of one key in the words of each protocol, in which `KEY` stands for its name.
    fn ask(&mut self, key: u32, words: [&str; 2], asked: Asked) {
        self.view.ask(key);
        if let Asked::Delete(key) | Asked::GetDelete(key) = asked {
            self.deleting.insert(key);
        }
        self.say(&words[self.protocol as usize].replace("KEY", &self.stage.key(key)), asked);
    }

    fn get(&mut self, key: u32) {
        let asked = match self.protocol {
            Text => Asked::Values(vec![key]),
            Resp => Asked::Held(key),
        };
        self.ask(key, ["get KEY", "GET KEY"], asked);
    }

    fn get_many(&mut self) {
        let keys = self.stage.small_keys(&mut self.random);
        let mut line = ["get", "MGET"][self.protocol as usize].to_owned();
        for key in &keys {
            self.view.ask(*key);
            line.push(' ');
            line.push_str(&self.stage.key(*key));
        }
        self.say(&line, Asked::Values(keys));
    }

    fn set(&mut self, key: u32, length: usize, quiet: bool) {
        let tail = if quiet { NO_REPLY } else { "" };
        self.put(key, length, ("set", tail), &[], Asked::Set);
    }

    /// Writes a store of a new value: in memcached's protocol by this verb, and with this tail of
    /// its line; in RESP as SET with these options.
    fn put(
        &mut self,
        key: u32,
        length: usize,
        (verb, tail): (&str, &str),
        options: &[&[u8]],
        asked: fn(u32, Stamp) -> Asked,
    ) {
        let stamp = self.view.next(key, self.writer);
        let mut value = Vec::with_capacity(length);
        stamp.write(key, length, &mut value);
        let (name, seconds) = (self.stage.key(key), TTL_SECONDS.to_string());
        match self.protocol {
            Text => {
                let line = format!("{verb} {name} 0 {seconds} {length}{tail}\r\n");
                self.output.extend_from_slice(line.as_bytes());
                self.output.extend_from_slice(&value);
                self.output.extend_from_slice(b"\r\n");
            }
            Resp => {
                let words = [&b"SET"[..], name.as_bytes(), &value, b"EX", seconds.as_bytes()];
                self.words(&[&words[..], options].concat());
            }
        }
        if tail != NO_REPLY {
            self.asked.push(asked(key, stamp));
        } else if !self.stage.evicts {
            // A full memory refuses without a word, too.
            self.asked.push(Asked::Quiet(key, stamp));
        }
    }

    fn count(&mut self) {
        let before = self.stage.begin_count();
        let line = match self.protocol {
            Text => format!("incr {} 1", self.stage.counter()),
            Resp => format!("INCR {}", self.stage.counter()),
        };
        self.say(&line, Asked::Count(before));
    }

    /// `gets`, and a `cas` that holds if nobody came between; the same again does not.
    fn cas_round(&mut self, connection: &mut Client) -> Result<(), String> {
        let key = self.stage.small_key(&mut self.random);
        self.view.ask(key);
        let name = self.stage.key(key);
        connection.send(format!("gets {name}\r\n").as_bytes())?;
        let line = connection.line()?;
        let mut unique = None;
        if line != "END" {
            let (found, length, rest) = value_line(&line)?;
            unique = rest.map(str::to_string);
            if found != name || unique.is_none() {
                return Err(format!("`gets {name}` answers `{line}`"));
            }
            self.take(connection, key, length)?;
            connection.expect("END")?;
        } else {
            self.missing(key)?;
        }
        self.stage.verified(&self.stage.seen.tcp, 0);
        self.view.over();
        if let Some(unique) = unique {
            let length = small_length(&mut self.random);
            let asked = if self.stage.is_own() { Asked::Set } else { Asked::Cas };
            self.put(key, length, ("cas", &format!(" {unique}")), &[], asked);
            // A full memory may refuse the first and take the second.
            if !self.stage.evicts {
                self.output.extend_from_within(..);
                self.asked.push(Asked::Stale(key));
            }
        }
        self.exchange(connection, false)
    }

    /// Sends the batch and has every reply judged.
    fn exchange(&mut self, connection: &mut Client, transaction: bool) -> Result<(), String> {
        let (stage, asked) = (self.stage, std::mem::take(&mut self.asked));
        if transaction {
            connection.send(b"*1\r\n$5\r\nMULTI\r\n")?;
        }
        connection.send(&self.output)?;
        self.output.clear();
        if transaction {
            connection.send(b"*1\r\n$4\r\nEXEC\r\n")?;
            connection.expect("+OK")?;
            asked.iter().try_for_each(|_| connection.expect("+QUEUED"))?;
            connection.expect(&format!("*{}", asked.len()))?;
        }
        let replies = [&stage.seen.tcp, &stage.seen.resp][self.protocol as usize];
        for asked in asked {
            if let Asked::Quiet(key, stamp) = asked {
                self.quiet.insert(key, stamp.version);
                continue;
            }
            let bytes = self.reply(connection, asked)?;
            stage.verified(replies, bytes);
        }
        self.deleting.clear();
        self.view.over();
        Ok(())
    }

    /// Reads and judges one reply; how many bytes of values it had.
    fn reply(&mut self, connection: &mut Client, asked: Asked) -> Result<usize, String> {
        if let (Asked::Values(keys), Text) = (&asked, self.protocol) {
            return self.values(connection, keys);
        }
        let line = connection.line()?;
        if self.is_refusal(&line) {
            return Ok(0);
        }
        let [done, undone, missing] = asked.answers(self.protocol);
        match asked {
            Asked::Open(key) if line == ["EN", "$-1"][self.protocol as usize] => {
                self.view.deleted(key);
            }
            Asked::Held(key) | Asked::Open(key) => return self.held(connection, key, &line),
            Asked::Values(keys) if line == format!("*{}", keys.len()) => {
                let mut bytes = 0;
                for key in keys {
                    let line = connection.line()?;
                    let is_refusal = self.is_refusal(&line);
                    bytes += if is_refusal { 0 } else { self.held(connection, key, &line)? };
                }
                return Ok(bytes);
            }
            Asked::SetGet(key, stamp) => {
                let bytes = self.held(connection, key, &line)?;
                self.view.found(key, stamp)?;
                return Ok(bytes);
            }
            Asked::GetDelete(key) => {
                let bytes = self.held(connection, key, &line)?;
                self.view.deleted(key);
                return Ok(bytes);
            }
            Asked::Count(before) => {
                let begins = ["", ":"][self.protocol as usize];
                let count = line.strip_prefix(begins).and_then(|count| count.parse().ok());
                let count = count.ok_or_else(|| format!("a count is answered by `{line}`"))?;
                self.stage.counted(before, count)?;
            }
            Asked::Line(_) if line == done => {}
            Asked::Touch(key) if line == done => self.view.there(key)?,
            Asked::Set(key, stamp) | Asked::Cas(key, stamp) if line == done => {
                self.view.found(key, stamp)?;
            }
            Asked::SetNew(key, stamp) if line == done => {
                self.missing(key)?;
                self.view.found(key, stamp)?;
            }
            Asked::SetNew(key, _) | Asked::Cas(key, _) | Asked::Stale(key) if line == undone => {
                self.view.there(key)?;
            }
            Asked::Delete(key) if line == done => {
                self.view.there(key)?;
                self.view.deleted(key);
                self.quiet.remove(&key);
            }
            Asked::Cas(key, _) | Asked::Stale(key) | Asked::Touch(key) | Asked::Delete(key)
                if line == missing =>
            {
                self.missing(key)?;
            }
            asked => return Err(format!("{asked:?} is answered by `{line}`")),
        }
        Ok(0)
    }

    /// Takes a value off the connection. It is not older than what was stored here before.
    fn take(&mut self, connection: &mut Client, key: u32, length: usize) -> Result<(), String> {
        let stamp = take(&mut self.view, connection, key, length)?;
        let least = self.quiet.get(&key).copied().unwrap_or_default();
        match stamp.writer == self.writer && stamp.version < least {
            true => Err(format!("key {key} holds {stamp:?} behind version {least}")),
            false => Ok(()),
        }
    }

    /// The key holds nothing, and so nothing was stored here before.
    fn missing(&mut self, key: u32) -> Result<(), String> {
        match self.quiet.get(&key) {
            Some(version) => Err(format!("key {key} is lost: version {version} was stored here")),
            None => self.view.missing(key),
        }
    }

    /// What the key held, by the first line of its value.
    fn held(&mut self, connection: &mut Client, key: u32, line: &str) -> Result<usize, String> {
        let [nothing, begins] = [["EN", "VA "], ["$-1", "$"]][self.protocol as usize];
        if line == nothing {
            self.missing(key)?;
            return Ok(0);
        }
        let length = line.strip_prefix(begins).and_then(|length| length.parse().ok());
        let length = length.ok_or_else(|| format!("key {key} is answered by `{line}`"))?;
        self.take(connection, key, length)?;
        Ok(length)
    }

    /// Values of some of `keys`, in order, and the end.
    fn values(&mut self, connection: &mut Client, keys: &[u32]) -> Result<usize, String> {
        let (mut rest, mut bytes) = (keys.iter(), 0);
        loop {
            let line = connection.line()?;
            if self.is_refusal(&line) {
                return Ok(bytes); // an error ends the reply, and says nothing of the others
            }
            if line == "END" {
                for key in rest {
                    self.missing(*key)?;
                }
                return Ok(bytes);
            }
            let (found, length, _) = value_line(&line)?;
            loop {
                let Some(key) = rest.next() else {
                    return Err(format!("`{line}` is no answer to a get of {keys:?}"));
                };
                if found == self.stage.key(*key) {
                    self.take(connection, *key, length)?;
                    break;
                }
                self.missing(*key)?;
            }
            bytes += length;
        }
    }

    /// A full memory may refuse where it evicts: clients that do not read hold some of it.
    fn is_refusal(&self, line: &str) -> bool {
        let words = line.trim_start_matches('-');
        let is_one = line.starts_with(OUT_OF_MEMORY) || words.starts_with(REFUSAL);
        let refused = self.stage.evicts && is_one;
        self.stage.seen.refused.fetch_add(u64::from(refused), Relaxed);
        refused
    }
}

/// Key, length and what follows of `VALUE key 0 length [rest]`.
fn value_line(line: &str) -> Result<(&str, usize, Option<&str>), String> {
    let mut words = line.split(' ');
    let head = (words.next(), words.next(), words.next());
    let length = words.next().and_then(|length| length.parse().ok());
    let (rest, end) = (words.next(), words.next());
    match (head, length, end) {
        ((Some("VALUE"), Some(key), Some("0")), Some(length), None) => Ok((key, length, rest)),
        _ => Err(format!("a get is answered by `{line}`")),
    }
}

/// The length of a value that is not large and has a stamp.
pub fn small_length(random: &mut Rng) -> usize {
    mix::small_length(random).max(STAMP_BYTES)
}
