//! A well-behaved TCP client of keys that others write too: pipelines requests, and has every
//! reply judged by what linearizability allows.
//!
//! Large values are asked for last in a batch: a client that writes on while megabytes wait for it
//! would block itself. A connection that is lost when the server is ended is made again; what was
//! under way is then unknown, which the judge allows for.

use super::judge::{STAMP_BYTES, Stamp, View};
use super::mix;
use super::stage::{Stage, name};
use crate::client::Client;
use crate::random;
use fastrand::Rng;
use std::sync::atomic::Ordering::Relaxed;

/// How often a batch is a cas round instead, in 10 000.
const CAS_PARTS: u32 = 500;
/// An hour and more: nothing expires in a run, and yet each item has a time.
pub const TTL_SECONDS: u32 = 36_000;
/// The counter that all increment, where nothing is evicted.
pub const COUNTER: &str = "shared-counter";
/// How a full memory refuses.
pub const REFUSAL: &str = "SERVER_ERROR out of memory";

/// What must come next on the connection.
enum Asked {
    /// Exactly this line.
    Line(&'static str),
    /// `VALUE` lines for some of these, in order, then `END`.
    Values(Vec<u32>),
    /// `VA length` and a value, or `EN`.
    Meta(u32),
    /// `STORED`.
    Set(u32, Stamp),
    /// `STORED` if there was nothing, or else `NOT_STORED`.
    Add(u32, Stamp),
    /// `STORED` if nobody came between, or else `EXISTS` or `NOT_FOUND`.
    Cas(u32, Stamp),
    /// `DELETED` or `NOT_FOUND`.
    Delete(u32),
    /// `TOUCHED` or `NOT_FOUND`.
    Touch(u32),
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
        stage.error(format!("client {writer}: {why}"));
    }
}

impl<'a> Sharer<'a> {
    fn run(&mut self) -> Result<(), String> {
        let (stage, mut filled) = (self.stage, !self.stage.evicts);
        stage.each_connection(|connection| {
            let told = match filled {
                true => self.converse(connection),
                false => self.fill(connection),
            };
            filled = true;
            self.output.clear();
            self.asked.clear();
            self.view.over();
            told
        })
    }

    /// One connection.
    fn converse(&mut self, connection: &mut Client) -> Result<(), String> {
        while !self.stage.scene.is_over() {
            if self.stage.is_to_reconnect(&mut self.random) {
                // A store without a reply may still be on its way here; only an answer behind it
                // says that it was done before whatever comes by the next connection.
                self.output.extend_from_slice(b"mn\r\n");
                self.asked.push(Asked::Line("MN"));
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

    /// Stores half of the large keys at their largest: more than memory holds, so that a short run
    /// evicts too.
    fn fill(&mut self, connection: &mut Client) -> Result<(), String> {
        let space = self.stage.space;
        for key in (space.small..space.keys()).step_by(2) {
            self.set(key, mix::LARGE_BYTES_MAX, false);
            self.exchange(connection)?;
        }
        Ok(())
    }

    fn small_request(&mut self) {
        let key = self.stage.small_key(&mut self.random);
        match self.random.usize(..100) {
            0..40 => self.get(&[key]),
            40..50 => self.multiget(),
            50..58 => self.meta_get(key),
            58..86 => self.set_small(key),
            86..90 => self.add(key),
            90..94 => self.touch(key),
            _ if self.stage.evicts => self.delete(key),
            _ => self.count(),
        }
    }

    fn large_request(&mut self) {
        let key = self.stage.large_key(&mut self.random);
        match self.random.usize(..10) {
            0..5 => self.get(&[key]),
            5..6 => self.meta_get(key),
            _ => {
                let length = mix::large_length(&mut self.random);
                let quiet = random::chance(&mut self.random, 1_000);
                self.set(key, length, quiet);
            }
        }
    }

    fn ask(&mut self, line: String, asked: Asked) {
        self.output.extend_from_slice(line.as_bytes());
        self.asked.push(asked);
    }

    fn get(&mut self, keys: &[u32]) {
        let mut line = String::from("get");
        for key in keys {
            self.view.ask(*key);
            line.push(' ');
            line.push_str(&name(*key));
        }
        self.ask(line + "\r\n", Asked::Values(keys.to_vec()));
    }

    fn multiget(&mut self) {
        let keys = self.stage.small_keys(&mut self.random);
        self.get(&keys);
    }

    fn meta_get(&mut self, key: u32) {
        self.view.ask(key);
        self.ask(format!("mg {} v\r\n", name(key)), Asked::Meta(key));
    }

    fn set_small(&mut self, key: u32) {
        let length = small_length(&mut self.random);
        let quiet = random::chance(&mut self.random, 1_000);
        self.set(key, length, quiet);
    }

    fn set(&mut self, key: u32, length: usize, quiet: bool) {
        let tail = if quiet { " noreply" } else { "" };
        let stamp = self.store("set", key, length, tail);
        if !quiet {
            self.asked.push(Asked::Set(key, stamp));
        }
    }

    fn add(&mut self, key: u32) {
        let length = small_length(&mut self.random);
        let stamp = self.store("add", key, length, "");
        self.asked.push(Asked::Add(key, stamp));
    }

    /// Writes a store; what stands before the value's end of line is `tail`.
    fn store(&mut self, verb: &str, key: u32, length: usize, tail: &str) -> Stamp {
        let stamp = self.view.next(key, self.writer);
        let line = format!("{verb} {} 0 {TTL_SECONDS} {length}{tail}\r\n", name(key));
        self.output.extend_from_slice(line.as_bytes());
        stamp.write(key, length, &mut self.output);
        self.output.extend_from_slice(b"\r\n");
        stamp
    }

    fn delete(&mut self, key: u32) {
        self.view.ask(key);
        self.ask(format!("delete {}\r\n", name(key)), Asked::Delete(key));
    }

    fn touch(&mut self, key: u32) {
        self.view.ask(key);
        self.ask(format!("touch {} {TTL_SECONDS}\r\n", name(key)), Asked::Touch(key));
    }

    fn count(&mut self) {
        let before = self.stage.begin_count();
        self.ask(format!("incr {COUNTER} 1\r\n"), Asked::Count(before));
    }

    /// `gets`, and a `cas` that holds if nobody came between.
    fn cas_round(&mut self, connection: &mut Client) -> Result<(), String> {
        let key = self.stage.small_key(&mut self.random);
        self.view.ask(key);
        connection.send(format!("gets {}\r\n", name(key)).as_bytes())?;
        let line = connection.line()?;
        let mut unique = None;
        if line != "END" {
            let (found, length, rest) = value_line(&line)?;
            unique = rest.map(str::to_string);
            if found != name(key) || unique.is_none() {
                return Err(format!("`gets {}` answers `{line}`", name(key)));
            }
            take(&mut self.view, connection, key, length)?;
            connection.expect("END")?;
        } else {
            self.view.missing(key)?;
        }
        self.stage.verified(&self.stage.seen.tcp, 0);
        self.view.over();
        if let Some(unique) = unique {
            let length = small_length(&mut self.random);
            let stamp = self.store("cas", key, length, &format!(" {unique}"));
            self.asked.push(Asked::Cas(key, stamp));
        }
        self.exchange(connection)
    }

    /// Sends the batch and has every reply judged.
    fn exchange(&mut self, connection: &mut Client) -> Result<(), String> {
        connection.send(&self.output)?;
        self.output.clear();
        for asked in std::mem::take(&mut self.asked) {
            let bytes = self.reply(connection, asked)?;
            self.stage.verified(&self.stage.seen.tcp, bytes);
        }
        self.view.over();
        Ok(())
    }

    /// Reads and judges one reply; how many bytes of values it had.
    fn reply(&mut self, connection: &mut Client, asked: Asked) -> Result<usize, String> {
        if let Asked::Values(keys) = asked {
            return self.values(connection, &keys);
        }
        let line = connection.line()?;
        if self.is_refusal(&line) {
            return Ok(0);
        }
        let bad = |of: String| Err(format!("{of} is answered by `{line}`"));
        match asked {
            Asked::Values(_) => {} // they were read above
            Asked::Line(expected) if line == expected => {}
            Asked::Line(expected) => return bad(format!("what asks for `{expected}`")),
            Asked::Meta(key) if line == "EN" => self.view.missing(key)?,
            Asked::Meta(key) => {
                let length = line.strip_prefix("VA ").and_then(|length| length.parse().ok());
                let Some(length) = length else { return bad(format!("mg {key}")) };
                take(&mut self.view, connection, key, length)?;
                return Ok(length);
            }
            Asked::Count(before) => {
                let Ok(count) = line.parse::<u64>() else { return bad("incr".into()) };
                self.stage.counted(before, count)?;
            }
            Asked::Set(key, stamp) | Asked::Cas(key, stamp) if line == "STORED" => {
                self.view.found(key, stamp)?;
            }
            Asked::Add(key, stamp) if line == "STORED" => {
                self.view.missing(key)?;
                self.view.found(key, stamp)?;
            }
            Asked::Add(..) if line == "NOT_STORED" => {}
            Asked::Cas(..) if line == "EXISTS" => {}
            Asked::Touch(_) if line == "TOUCHED" => {}
            Asked::Delete(key) if line == "DELETED" => self.view.missing(key)?,
            Asked::Cas(key, _) | Asked::Touch(key) | Asked::Delete(key) if line == "NOT_FOUND" => {
                self.view.missing(key)?;
            }
            Asked::Set(key, _) => return bad(format!("set {key}")),
            Asked::Add(key, _) => return bad(format!("add {key}")),
            Asked::Cas(key, _) => return bad(format!("cas {key}")),
            Asked::Delete(key) => return bad(format!("delete {key}")),
            Asked::Touch(key) => return bad(format!("touch {key}")),
        }
        Ok(0)
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
                    self.view.missing(*key)?;
                }
                return Ok(bytes);
            }
            let (found, length, _) = value_line(&line)?;
            loop {
                let Some(key) = rest.next() else {
                    return Err(format!("`{line}` is no answer to a get of {keys:?}"));
                };
                if found == name(*key) {
                    take(&mut self.view, connection, *key, length)?;
                    break;
                }
                self.view.missing(*key)?;
            }
            bytes += length;
        }
    }

    /// A full memory may refuse where it evicts: clients that do not read hold some of it.
    fn is_refusal(&self, line: &str) -> bool {
        let refused = self.stage.evicts && line.starts_with(REFUSAL);
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

/// Takes the bytes of a value of `key` off the connection, and has them judged.
pub fn take(
    view: &mut View<'_>,
    connection: &mut Client,
    key: u32,
    length: usize,
) -> Result<(), String> {
    let mut stamp = None;
    let told = connection.body(length, |bytes| stamp.insert(Stamp::read(key, bytes)).is_ok());
    match stamp {
        Some(stamp) => view.found(key, stamp?),
        None => told,
    }
}

/// The length of a value that is not large and has a stamp.
pub fn small_length(random: &mut Rng) -> usize {
    mix::small_length(random).max(STAMP_BYTES)
}
