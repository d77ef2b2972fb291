//! A well-behaved client that speaks RESP, of keys that others write by memcached's protocol: every
//! reply is judged as theirs are. Some batches are transactions, whose replies come at the end.

use super::judge::{STAMP_BYTES, Stamp, View};
use super::mix;
use super::sharer::{COUNTER, REFUSAL, TTL_SECONDS, small_length, take};
use super::stage::{Stage, name};
use crate::client::Client;
use crate::random;
use fastrand::Rng;
use std::sync::atomic::Ordering::Relaxed;

/// How often a batch of small requests is a transaction, in 10 000.
const TRANSACTION_PARTS: u32 = 1_000;
/// How a full memory refuses.
const OUT_OF_MEMORY: &str = "-OOM ";

/// What must come next on the connection.
enum Asked {
    /// Exactly this line.
    Line(&'static str),
    /// A value or nothing; and then the key holds what it held.
    Get(u32),
    /// The same of many keys.
    Many(Vec<u32>),
    /// `+OK`.
    Set(u32, Stamp),
    /// `+OK` if there was nothing, or else nothing.
    SetNew(u32, Stamp),
    /// What was there, or nothing; and then the key holds this.
    SetGet(u32, Stamp),
    /// What was there, or nothing; and then nothing.
    GetDelete(u32),
    /// How many there were: one or none; and then none.
    Delete(u32),
    /// Whether there is something.
    Expire(u32),
    /// A number above this one.
    Count(u64),
}

struct Sharer<'a> {
    stage: &'a Stage<'a>,
    writer: usize,
    random: Rng,
    view: View<'a>,
    output: Vec<u8>,
    asked: Vec<Asked>,
}

/// Runs until the soak is over; what goes wrong is told to the stage.
pub fn share(stage: &Stage, seed: u64, writer: usize) {
    let mut sharer = Sharer {
        stage,
        writer,
        random: random::stream(seed, writer as u64),
        view: View::new(&stage.judge),
        output: Vec::new(),
        asked: Vec::new(),
    };
    if let Err(why) = sharer.run() {
        stage.error(format!("client {writer}, by RESP: {why}"));
    }
}

impl Sharer<'_> {
    fn run(&mut self) -> Result<(), String> {
        let stage = self.stage;
        stage.each_connection(|connection| {
            let told = self.converse(connection);
            self.output.clear();
            self.asked.clear();
            self.view.over();
            told
        })
    }

    /// One connection.
    fn converse(&mut self, connection: &mut Client) -> Result<(), String> {
        self.request(&[b"PING"], Asked::Line("+PONG"));
        while !self.stage.scene.is_over() {
            if self.stage.is_to_reconnect(&mut self.random) {
                return self.exchange(connection, false);
            }
            let (small, large) = self.stage.batch(&mut self.random);
            for _ in 0..small {
                self.small_request();
            }
            let is_transaction = !large && random::chance(&mut self.random, TRANSACTION_PARTS);
            if large {
                self.large_request();
            }
            self.exchange(connection, is_transaction)?;
        }
        Ok(())
    }

    fn small_request(&mut self) {
        let key = self.stage.small_key(&mut self.random);
        let length = small_length(&mut self.random);
        match self.random.usize(..100) {
            0..40 => self.get(key),
            40..52 => self.get_many(),
            52..80 => self.set(key, length, &[], Asked::Set),
            80..84 => self.set(key, length, &[b"NX"], Asked::SetNew),
            84..88 => self.set(key, length, &[b"GET"], Asked::SetGet),
            88..92 => self.ask(b"EXPIRE", key, Some(TTL_SECONDS), Asked::Expire(key)),
            // What the durable server has stored is there: nobody deletes it.
            92..100 if !self.stage.evicts => self.count(),
            92..96 => self.ask(b"GETDEL", key, None, Asked::GetDelete(key)),
            _ => self.ask(b"DEL", key, None, Asked::Delete(key)),
        }
    }

    fn large_request(&mut self) {
        let key = self.stage.large_key(&mut self.random);
        match self.random.usize(..10) {
            0..5 => self.get(key),
            5 if self.stage.evicts => self.ask(b"GETDEL", key, None, Asked::GetDelete(key)),
            _ => {
                let length = mix::large_length(&mut self.random).max(STAMP_BYTES);
                self.set(key, length, &[], Asked::Set);
            }
        }
    }

    /// Writes a request, and remembers what it asks for.
    fn request(&mut self, words: &[&[u8]], asked: Asked) {
        self.output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.output.extend_from_slice(word);
            self.output.extend_from_slice(b"\r\n");
        }
        self.asked.push(asked);
    }

    /// A request of one key, and perhaps a number behind it.
    fn ask(&mut self, verb: &[u8], key: u32, number: Option<u32>, asked: Asked) {
        self.view.ask(key);
        let (key, number) = (name(key), number.map(|number| number.to_string()));
        let words = [verb, key.as_bytes()];
        let number = number.iter().map(|number| number.as_bytes());
        let words: Vec<&[u8]> = words.into_iter().chain(number).collect();
        self.request(&words, asked);
    }

    fn count(&mut self) {
        let before = self.stage.begin_count();
        self.request(&[b"INCR", COUNTER.as_bytes()], Asked::Count(before));
    }

    fn get(&mut self, key: u32) {
        self.ask(b"GET", key, None, Asked::Get(key));
    }

    fn get_many(&mut self) {
        let keys = self.stage.small_keys(&mut self.random);
        keys.iter().for_each(|key| self.view.ask(*key));
        let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
        let names = names.iter().map(|name| name.as_bytes());
        let words: Vec<&[u8]> = [&b"MGET"[..]].into_iter().chain(names).collect();
        self.request(&words, Asked::Many(keys));
    }

    fn set(
        &mut self,
        key: u32,
        length: usize,
        options: &[&[u8]],
        asked: impl Fn(u32, Stamp) -> Asked,
    ) {
        let stamp = self.view.next(key, self.writer);
        let mut value = Vec::with_capacity(length);
        stamp.write(key, length, &mut value);
        let (name, seconds) = (name(key), TTL_SECONDS.to_string());
        let words = [&b"SET"[..], name.as_bytes(), &value, b"EX", seconds.as_bytes()];
        self.request(&[&words, options].concat(), asked(key, stamp));
    }

    /// Sends the batch and has every reply judged.
    fn exchange(&mut self, connection: &mut Client, transaction: bool) -> Result<(), String> {
        let asked = std::mem::take(&mut self.asked);
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
        for asked in asked {
            let bytes = self.reply(connection, asked)?;
            self.stage.verified(&self.stage.seen.resp, bytes);
        }
        self.view.over();
        Ok(())
    }

    /// Reads and judges one reply; how many bytes of values it had.
    fn reply(&mut self, connection: &mut Client, asked: Asked) -> Result<usize, String> {
        let line = connection.line()?;
        if self.is_refusal(&line) {
            return Ok(0);
        }
        let bad = |of: String| Err(format!("{of} is answered by `{line}`"));
        match asked {
            Asked::Line(expected) if line == expected => {}
            Asked::Line(expected) => return bad(format!("what asks for `{expected}`")),
            Asked::Many(keys) if line == format!("*{}", keys.len()) => {
                let mut bytes = 0;
                for key in keys {
                    let line = connection.line()?;
                    bytes +=
                        if self.is_refusal(&line) { 0 } else { self.held(connection, key, &line)? };
                }
                return Ok(bytes);
            }
            Asked::Get(key) => return self.held(connection, key, &line),
            Asked::Set(key, stamp) if line == "+OK" => self.view.found(key, stamp)?,
            Asked::SetNew(key, stamp) if line == "+OK" => {
                self.view.missing(key)?;
                self.view.found(key, stamp)?;
            }
            Asked::SetNew(..) if line == "$-1" => {}
            Asked::SetGet(key, stamp) => {
                let bytes = self.held(connection, key, &line)?;
                self.view.found(key, stamp)?;
                return Ok(bytes);
            }
            Asked::GetDelete(key) => {
                let bytes = self.held(connection, key, &line)?;
                self.view.missing(key)?;
                return Ok(bytes);
            }
            Asked::Delete(key) if line == ":1" || line == ":0" => self.view.missing(key)?,
            Asked::Count(before) => {
                let count = line.strip_prefix(':').and_then(|count| count.parse().ok());
                let Some(count) = count else { return bad("INCR".into()) };
                self.stage.counted(before, count)?;
            }
            Asked::Expire(_) if line == ":1" => {}
            Asked::Expire(key) if line == ":0" => self.view.missing(key)?,
            Asked::Many(keys) => return bad(format!("MGET of {keys:?}")),
            Asked::Set(key, _) | Asked::SetNew(key, _) => return bad(format!("SET {key}")),
            Asked::Delete(key) => return bad(format!("DEL {key}")),
            Asked::Expire(key) => return bad(format!("EXPIRE {key}")),
        }
        Ok(0)
    }

    /// What the key held, by the first line of its value: `$-1` for nothing.
    fn held(&mut self, connection: &mut Client, key: u32, line: &str) -> Result<usize, String> {
        if line == "$-1" {
            self.view.missing(key)?;
            return Ok(0);
        }
        let length = line.strip_prefix('$').and_then(|length| length.parse().ok());
        let length = length.ok_or_else(|| format!("key {key} is answered by `{line}`"))?;
        take(&mut self.view, connection, key, length)?;
        Ok(length)
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
