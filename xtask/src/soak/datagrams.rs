//! A well-behaved client by UDP, of keys that others write too: Laneway's own client library.
//!
//! Requests that are under way together may overtake each other, so a batch asks at most once for
//! each key. A datagram may be lost: no answer in time is no error, a wrong one is. A store without
//! an answer may still be carried out later, so its key is not written by this client again: the
//! judge counts on versions that come in order.

use super::mix;
use super::sharer::{REFUSAL, small_length};
use super::stage::{Stage, TTL_SECONDS};
use crate::judge::{Stamp, View};
use crate::{place, process, random};
use fastrand::Rng;
use laneway_client::{Answer, Client, Error, Expiry, Refusal, Request};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

const BATCH_MAX: usize = 16;

/// What was asked of a key.
enum Asked {
    Get,
    Set(Stamp),
    Delete,
    Touch,
}

struct Sender<'a> {
    stage: &'a Stage<'a>,
    writer: usize,
    random: Rng,
    view: View<'a>,
    /// Keys with a store of this client's whose outcome is open.
    open: HashSet<u32>,
}

/// Runs until the soak is over; what goes wrong is told to the stage.
pub fn share(stage: &Stage, seed: u64, writer: usize) {
    let (random, view) = (random::stream(seed, writer as u64), View::new(&stage.judge));
    let mut sender = Sender { stage, writer, random, view, open: HashSet::new() };
    if let Err(why) = sender.run() {
        stage.error(format!("client {writer}, by UDP: {why}"));
    }
}

impl Sender<'_> {
    fn run(&mut self) -> Result<(), String> {
        let Some(mut client) = self.connect()? else { return Ok(()) };
        while !self.stage.scene.is_over() {
            let batch = self.batch();
            let (keys, requests): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|(key, (asked, request))| ((key, asked), request)).unzip();
            // With changes under way the server is not ended: see `Stage::datagrams`.
            let changes = keys.iter().any(|(_, asked)| !matches!(asked, Asked::Get));
            let serving = changes.then(|| self.stage.datagrams.read());
            let answers = client.ask_many(requests);
            drop(serving);
            for ((key, asked), answer) in keys.into_iter().zip(answers) {
                self.judge(key, asked, answer)?;
            }
            self.view.over();
        }
        Ok(())
    }

    fn connect(&self) -> Result<Option<Client>, String> {
        let deadline = Instant::now() + place::PATIENCE;
        while !self.stage.scene.is_over() {
            match Client::connect(self.stage.address) {
                Ok(client) => return Ok(Some(client)),
                Err(why) if deadline < Instant::now() => return Err(why.to_string()),
                Err(_) => std::thread::sleep(process::POLL_INTERVAL),
            }
        }
        Ok(None)
    }

    /// Requests for keys that differ.
    fn batch(&mut self) -> BTreeMap<u32, (Asked, Request)> {
        let count = self.random.usize(1..=BATCH_MAX);
        let large = self.stage.scene.large_parts.load(Relaxed);
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            let large = random::chance(&mut self.random, large);
            let key = match large {
                true => self.stage.large_key(&mut self.random),
                false => self.stage.small_key(&mut self.random),
            };
            batch.entry(key).or_insert_with(|| self.request(key, large));
        }
        batch
    }

    fn request(&mut self, key: u32, large: bool) -> (Asked, Request) {
        self.view.ask(key);
        let name = self.stage.key(key);
        match self.random.usize(..100) {
            0..60 => (Asked::Get, Request::get(name)),
            60..90 if !self.open.contains(&key) => {
                let length = match large {
                    true => mix::large_length(&mut self.random),
                    false => small_length(&mut self.random),
                };
                let stamp = self.view.next(key, self.writer);
                let mut bytes = Vec::new();
                stamp.write(key, length, &mut bytes);
                let request = Request::set(name, bytes).expiry(Expiry::Seconds(TTL_SECONDS));
                (Asked::Set(stamp), request)
            }
            90..95 if self.stage.evicts => (Asked::Delete, Request::delete(name)),
            _ => (Asked::Touch, Request::touch(name, Expiry::Seconds(TTL_SECONDS))),
        }
    }

    fn judge(
        &mut self,
        key: u32,
        asked: Asked,
        answer: Result<Answer, Error>,
    ) -> Result<(), String> {
        let mut bytes = 0;
        match (&asked, answer) {
            (Asked::Get, Ok(Answer::Value(value))) if value.flags == 0 => {
                bytes = value.data.len();
                self.view.found(key, Stamp::read(key, &value.data)?)?;
            }
            (Asked::Set(stamp), Ok(Answer::Done)) => self.view.found(key, *stamp)?,
            (Asked::Delete, Ok(Answer::Done)) => self.view.missing(key)?,
            (Asked::Touch, Ok(Answer::Done)) => {}
            (Asked::Get | Asked::Delete | Asked::Touch, Ok(Answer::Missing)) => {
                self.view.missing(key)?;
            }
            (_, Err(Error::TimedOut { .. } | Error::OutcomeUnknown { .. } | Error::Io(_))) => {
                self.stage.seen.unanswered.fetch_add(1, Relaxed);
                if let Asked::Set(_) = asked {
                    self.open.insert(key);
                }
                return Ok(());
            }
            (_, Err(Error::Refused(refusal))) if self.is_full(&refusal) => {
                self.stage.seen.refused.fetch_add(1, Relaxed);
            }
            (_, Ok(answer)) => return Err(format!("key {key} is answered by {answer:?}")),
            (_, Err(error)) => return Err(format!("key {key}: {error}")),
        }
        self.stage.verified(&self.stage.seen.udp, bytes);
        Ok(())
    }

    /// A full memory may refuse where it evicts.
    fn is_full(&self, refusal: &Refusal) -> bool {
        let why = refusal.to_string();
        self.stage.evicts && why.starts_with(REFUSAL)
    }
}
