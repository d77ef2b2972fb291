//! A client over a stream: it asks by one of the protocols, pipelines, sends and reads in pieces,
//! and judges the order and the bytes of its replies.

use crate::ask::{self, Expect, Request};
use crate::binary;
use crate::books::{Books, Entry};
use crate::meta::{Style, meta};
use crate::model::{Asked, New, Told};
use crate::request::{Kind, Reply, Voice};
use crate::resp;
use crate::scene::{MALICE, PENDING_MAX, Scene};
use crate::swarm::Kept;
use crate::users;
use crate::wire::Wire;
use laneway_rig::{READ_ONLY, RESP_ALONE, value};
use laneway_tier::disk::sim::Random;
use laneway_transport::memory::Net;
use rustls::ClientConfig;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Bytes taken from the network at once, at most.
const RECEIVED_MAX: u64 = 64 << 10;
/// Keys that only take memory, and the lengths of their values.
const FILLERS: u64 = 400;
const FILLER_BYTES_MIN: u64 = 100;
const FILLER_BYTES_SHORT: u64 = 1500;
const FILLER_BYTES_MAX: u64 = 48 << 10;

struct Flight {
    request: Request,
    entries: Vec<Entry>,
}

/// One connection.
pub struct StreamClient {
    name: String,
    wire: Option<Wire>,
    /// It encrypts, and this is how.
    config: Option<Arc<ClientConfig>>,
    out: VecDeque<u8>,
    flights: VecDeque<Flight>,
    got: Vec<u8>,
    /// A CAS id that was told, and of which key.
    id: Option<(usize, u64)>,
    /// It was asked for last.
    last_key: Option<usize>,
    voice: Voice,
    /// It came by this listener.
    listener: usize,
    /// That is a read-only port: what it writes must be refused, and change nothing.
    read_only: bool,
}

impl StreamClient {
    /// Not connected yet.
    pub fn new(
        number: usize,
        voice: Voice,
        listener: usize,
        config: Option<Arc<ClientConfig>>,
    ) -> StreamClient {
        StreamClient {
            voice,
            listener,
            read_only: listener == READ_ONLY,
            config,
            name: format!("client {number}"),
            wire: None,
            out: VecDeque::new(),
            flights: VecDeque::new(),
            got: Vec::new(),
            id: None,
            last_key: None,
        }
    }

    /// Whether it waits for nothing.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// For a failure: what it waits for.
    pub fn waits_for(&self) -> String {
        let first = self.flights.front().map_or("nothing", |flight| &flight.request.shown);
        format!("{} waits for {first:?} and has {} bytes to send", self.name, self.out.len())
    }

    /// The server is gone, or the connection is.
    pub fn disconnect(&mut self, books: &mut Books) {
        for flight in self.flights.drain(..) {
            books.forget(&flight.entries);
            if matches!(flight.request.expect, Expect::Later(_)) {
                books.flush_forgotten();
            }
        }
        books.forget_order(&self.name);
        self.wire = None;
        self.out.clear();
        self.got.clear();
        self.id = None;
    }

    /// Asks one thing more, if it may.
    pub fn ask(&mut self, scene: &mut Scene<'_>) {
        if self.flights.len() >= scene.swarm.pipeline {
            return;
        }
        let request = match self.voice {
            Voice::Text => self.by_text(scene),
            Voice::Resp => {
                let again = self.again(scene);
                by_resp(scene, again)
            }
            Voice::Binary => self.by_binary(scene),
        };
        if let Some(request) = request {
            self.send(scene, request);
        }
    }

    /// What a client of the text protocols asks, if it may.
    fn by_text(&mut self, scene: &mut Scene<'_>) -> Option<Request> {
        Some(match scene.random.below(40) {
            0 if scene.swarm.admin && self.read_only => admin_reading(scene),
            0 if scene.swarm.admin => admin(scene),
            36 if scene.swarm.flush && !self.read_only && scene.random.one_in(4) => flush(scene)?,
            24..40 if scene.swarm.filler => fill(scene),
            1 if scene.swarm.wrong => wrong(scene),
            2..5 => {
                let keys = some_keys(scene, 2)?;
                ask::multiget(keys, scene.random.one_in(2))
            }
            _ => self.one_key(scene)?,
        })
    }

    /// The key that it asked for last, if it asks for it again.
    fn again(&self, scene: &mut Scene<'_>) -> Option<usize> {
        let again = scene.swarm.burst > 1 && scene.random.one_in(2);
        self.last_key.filter(|key| again && scene.books.pending(*key) < PENDING_MAX)
    }

    /// A key, and what is asked of it.
    fn key_and_asked(&mut self, scene: &mut Scene<'_>) -> Option<(usize, Asked)> {
        let mut key = self.again(scene).or_else(|| scene.key())?;
        self.last_key = Some(key);
        let mut id = None;
        if let Some((of, told)) = self.id
            && scene.random.one_in(3)
            && scene.books.pending(of) < PENDING_MAX
        {
            (key, id) = (of, Some(told));
        }
        Some((key, scene.asked(id)))
    }

    /// What a client of the binary protocol asks, if it may.
    fn by_binary(&mut self, scene: &mut Scene<'_>) -> Option<Request> {
        match scene.random.below(40) {
            0 if scene.swarm.admin => Some(binary::other(scene.random.below(1000))),
            1 if scene.swarm.wrong => Some(binary::wrong(scene.random.below(1000))),
            2..5 => Some(binary::many(&some_keys(scene, 1)?)),
            5 if scene.swarm.flush && scene.random.one_in(4) => flush_by_binary(scene),
            _ => {
                let (key, asked) = self.key_and_asked(scene)?;
                let asked = match scene.meta_asked(asked) {
                    asked @ Asked::Count(_) => asked, // a number that is made
                    _ => asked,
                };
                let how = (scene.random.one_in(3), scene.random.one_in(3));
                binary::one(key, asked, &scene.books.values, how)
            }
        }
    }

    fn one_key(&mut self, scene: &mut Scene<'_>) -> Option<Request> {
        let (key, asked) = self.key_and_asked(scene)?;
        if scene.random.one_in(3) {
            let asked = scene.meta_asked(asked);
            let style = scene.style();
            if let Some(request) = meta(key, asked, &scene.books.values, style) {
                return Some(request);
            }
        }
        let reads = matches!(asked, Asked::Get | Asked::GetTouch(_));
        let noreply = !reads && scene.random.one_in(12);
        let cas = reads && scene.random.one_in(2);
        Some(ask::text(key, asked, &scene.books.values, cas, noreply))
    }

    fn send(&mut self, scene: &mut Scene<'_>, request: Request) {
        let request = if self.read_only { request.refused_if_writes() } else { request };
        let quiet = request.expect == Expect::Silence;
        let entries = scene.books.call_in_order(&self.name, &request, scene.now_ms);
        self.out.extend(&request.bytes);
        self.flights.push_back(Flight { request, entries });
        if quiet {
            // Its reply tells that the one before it was executed.
            self.send(scene, ask::other("version", Expect::Stats));
        }
    }

    /// Asks for a flush, if it may.
    pub fn ask_flush(&mut self, scene: &mut Scene<'_>) {
        let request = match self.voice {
            Voice::Resp => flush_by_resp(scene),
            Voice::Binary => flush_by_binary(scene),
            Voice::Text => flush(scene),
        };
        if let Some(request) = request {
            self.send(scene, request);
        }
    }

    /// Reads every key, for the end.
    pub fn read_all(&mut self, scene: &mut Scene<'_>) {
        for key in 0..scene.swarm.keys {
            let (style, values) = (Style::default(), &scene.books.values);
            let read = match self.voice {
                Voice::Resp => resp::one(key, Asked::Get, values),
                Voice::Binary => binary::one(key, Asked::Get, values, (false, false)),
                Voice::Text => meta(key, Asked::Get, values, style),
            };
            self.send(scene, read.expect("it is a read"));
        }
    }

    /// Sends and receives a little, and judges what came.
    pub fn exchange(&mut self, scene: &mut Scene<'_>, net: &Net) -> Result<(), String> {
        if self.wire.is_none() {
            self.wire = Some(Wire::connect(net, self.listener, self.config.as_ref()));
            self.introduce(scene);
        }
        let Some(wire) = &mut self.wire else { return Ok(()) };
        if wire.ended() {
            // Who has no memory for a line closes, as memcached does.
            let may_close = scene.may_close || scene.swarm.refuse_memory > 0;
            if scene.swarm.reset == 0 && !may_close {
                return Err(format!("the server closed the connection of {}", self.name));
            }
            scene.books.counts.resets += 1;
            let name = &self.name;
            scene.books.say(|| format!("{name} lost its connection"));
            self.disconnect(scene.books);
            return Ok(());
        }
        if !self.out.is_empty() || wire.has_to_send() {
            let most = 1 + scene.random.below(2 * scene.swarm.pipe_bytes as u64) as usize;
            let (front, _) = self.out.as_slices();
            let sent = wire.send(front, most);
            self.out.drain(..sent);
        }
        let most = 1 + scene.random.below(RECEIVED_MAX) as usize;
        self.receive(scene, most)?;
        self.hear(scene)
    }

    /// Takes what has come, at most so many bytes of the network; how many they are to the client.
    fn receive(&mut self, scene: &mut Scene<'_>, most: usize) -> Result<usize, String> {
        let Some(wire) = &mut self.wire else { return Ok(0) };
        let came = wire.receive(most).map_err(|what| format!("{} was sent {what}", self.name))?;
        if self.config.is_some() {
            // Where a run differs in its records it differs.
            scene.books.carried(came.len());
        }
        self.got.extend(&came);
        Ok(came.len())
    }

    /// Says who it is, before what it has asked already.
    fn introduce(&mut self, scene: &mut Scene<'_>) {
        let mut requests = match scene.swarm.has_users() {
            true => users::introduction(scene.random, scene.books, self.voice),
            false => Vec::new(),
        };
        if self.listener == RESP_ALONE {
            // Elsewhere these bytes would be memcached's: no word by which Redis is recognised.
            requests.insert(0, resp::typed("TIME"));
        }
        for request in requests {
            request.bytes.iter().rev().for_each(|byte| self.out.push_front(*byte));
            self.flights.push_front(Flight { request, entries: Vec::new() });
        }
    }

    /// Takes what was sent before the server ended; whether there was anything.
    pub fn receive_rest(&mut self, scene: &mut Scene<'_>) -> Result<bool, String> {
        let more = self.receive(scene, RECEIVED_MAX as usize)?;
        self.hear(scene)?;
        Ok(more > 0)
    }

    /// Closes.
    pub fn leave(&mut self, books: &mut Books) {
        if let Some(wire) = &mut self.wire {
            wire.close();
        }
        self.disconnect(books);
    }

    /// Judges what has come.
    fn hear(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        let mut at = 0;
        loop {
            // Those without a reply were executed before the next one that has one.
            let quiet = self.flights.iter().take_while(|f| f.request.expect == Expect::Silence);
            let quiet = quiet.count();
            let Some(flight) = self.flights.get(quiet) else {
                if at < self.got.len() {
                    let text = self.got[at..].escape_ascii().to_string();
                    let text: String = text.chars().take(80).collect();
                    return Err(format!("{} was sent what it did not ask for: {text}", self.name));
                }
                break;
            };
            if at == self.got.len() {
                break;
            }
            let told = ask::reply(&flight.request, &self.got[at..], &mut scene.books.values)
                .map_err(|what| {
                    let shown = &flight.request.shown;
                    format!("{} asked {shown:?} and was told {what}", self.name)
                })?;
            let Some((bytes, told)) = told else { break };
            self.judge_refusals(scene, &flight.request, &told)?;
            at += bytes;
            for _ in 0..quiet {
                let flight = self.flights.pop_front().expect("it was counted");
                let told = scene.books.unheard();
                self.tell(scene, &flight, &[told]);
            }
            let flight = self.flights.pop_front().expect("it was answered");
            if matches!(flight.request.expect, Expect::Later(_)) {
                let is_certain = told.contains(&Told::Done);
                scene.books.flush_answered(is_certain, scene.now_ms);
            }
            self.remember(&flight.request, &told);
            self.tell(scene, &flight, &told);
        }
        self.got.drain(..at);
        Ok(())
    }

    /// Whoever is refused must be refused for a reason that this run has.
    fn judge_refusals(
        &self,
        scene: &Scene<'_>,
        request: &Request,
        told: &[Told],
    ) -> Result<(), String> {
        let swarm = scene.swarm;
        let may_refuse = scene.may_doubt || swarm.may_refuse();
        let wrong = matches!(
            request.expect,
            Expect::Refusal
                | Expect::Resp(Reply::Refusal | Reply::GuardedRefused | Reply::Aborted(_))
                | Expect::Binary(Kind::Refusal)
        );
        let refused = told.contains(&Told::Refused) && !may_refuse && !wrong;
        if refused || (told.contains(&Told::Doubt) && !scene.may_doubt) {
            return Err(format!("{} was refused {:?} without a reason", self.name, request.shown));
        }
        Ok(())
    }

    fn tell(&self, scene: &mut Scene<'_>, flight: &Flight, told: &[Told]) {
        if !flight.entries.is_empty() {
            let (now, may_miss) = (scene.now_ms, scene.may_miss);
            scene.books.tell(&self.name, &flight.entries, told, now, may_miss);
        }
    }

    /// Keeps a CAS id for a `cas` to come.
    fn remember(&mut self, request: &Request, told: &[Told]) {
        for ((key, _), told) in request.asked.iter().zip(told) {
            if let Told::Value(Some(seen)) = told
                && let Some(id) = seen.cas
            {
                self.id = Some((*key, id));
            }
        }
    }
}

/// What a client that speaks RESP asks, if it may.
fn by_resp(scene: &mut Scene<'_>, again: Option<usize>) -> Option<Request> {
    match scene.random.below(40) {
        0 if scene.swarm.admin => {
            let lines = resp::lines(scene.swarm.kept != Kept::No);
            Some(resp::other(lines[scene.random.below(lines.len() as u64) as usize]))
        }
        1 if scene.swarm.wrong => Some(resp::wrong(scene.random.below(5), MALICE)),
        2..5 => Some(resp::many(&some_keys(scene, 1)?)),
        6..8 => {
            let keys = some_keys(scene, 1)?.into_iter();
            let pairs: Vec<(usize, New)> = keys.map(|key| (key, scene.new_item())).collect();
            Some(resp::set_many(&pairs, &scene.books.values, false))
        }
        8 => {
            let keys = some_keys(scene, 1)?.into_iter();
            let pairs: Vec<(usize, New)> = keys.map(|key| (key, short_item(scene))).collect();
            Some(resp::set_many(&pairs, &scene.books.values, true))
        }
        9..11 => {
            let key = again.or_else(|| scene.key())?;
            let new = short_item(scene);
            let new = scene.resp_item(new);
            Some(resp::guarded(key, new, &scene.books.values))
        }
        11 | 12 => moved(scene),
        5 if scene.swarm.flush && scene.random.one_in(4) => flush_by_resp(scene),
        _ => {
            let key = again.or_else(|| scene.key())?;
            let asked = scene.asked(None);
            let asked = scene.resp_asked(asked);
            resp::one(key, asked, &scene.books.values)
        }
    }
}

/// An item goes from one key to another. Where nobody may hear the reply, what goes is known
/// before.
fn moved(scene: &mut Scene<'_>) -> Option<Request> {
    let keys = some_keys(scene, 1)?;
    let (&from, &to) = (keys.first()?, keys.last()?);
    let (from, to) = if scene.random.one_in(2) { (from, to) } else { (to, from) };
    if from == to || scene.swarm.may_refuse() {
        return None; // nor where a part of it may be refused
    }
    if scene.swarm.kept == Kept::No && scene.swarm.reset == 0 && !scene.random.one_in(4) {
        return Some(resp::moved(from, to, scene.random.one_in(2)));
    }
    let new = short_item(scene);
    let new = scene.resp_item(new);
    Some(resp::moved_fresh(from, to, new, &scene.books.values))
}

/// An item whose value is short: there is a bound to what changes in one moment.
fn short_item(scene: &mut Scene<'_>) -> New {
    let new = scene.new_item();
    New { value: scene.short_value(), ..new }
}

/// A few keys, so many draws of one or more, none twice; `None` where there is none.
fn some_keys(scene: &mut Scene<'_>, least: u64) -> Option<Vec<usize>> {
    let keys = (0..least + scene.random.below(6)).filter_map(|_| scene.key());
    let keys: BTreeSet<usize> = keys.collect();
    (!keys.is_empty()).then(|| keys.into_iter().collect())
}

/// The same as [`flush`] by the binary protocol, at once.
fn flush_by_binary(scene: &mut Scene<'_>) -> Option<Request> {
    let books = &*scene.books;
    binary::one(0, Asked::Flush, &books.values, (false, false)).filter(|_| books.may_flush())
}

/// `FLUSHALL`.
fn flush_by_resp(scene: &mut Scene<'_>) -> Option<Request> {
    let books = &*scene.books;
    resp::one(0, Asked::Flush, &books.values).filter(|_| books.may_flush())
}

/// A value that nobody reads again: it takes memory from the others.
fn fill(scene: &mut Scene<'_>) -> Request {
    let most = if scene.random.one_in(2) { FILLER_BYTES_SHORT } else { FILLER_BYTES_MAX };
    let bytes = FILLER_BYTES_MIN + scene.random.below(most - FILLER_BYTES_MIN);
    let line = format!("set filler{} 0 0 {bytes}", scene.random.below(FILLERS));
    let mut request = ask::other(&line, Expect::Stored);
    request.bytes.extend(value(bytes as usize, 7));
    request.bytes.extend_from_slice(b"\r\n");
    request
}

/// `flush_all`, or one in some seconds, if that may be.
fn flush(scene: &mut Scene<'_>) -> Option<Request> {
    if !scene.books.may_flush() {
        return None;
    }
    if scene.books.flushes > 0 || scene.random.one_in(2) {
        return Some(ask::text(0, Asked::Flush, &scene.books.values, false, false));
    }
    let delay = 1 + scene.random.below(3) as u32;
    scene.books.flush_asked(delay, scene.now_ms);
    Some(ask::other(&format!("flush_all {delay}"), Expect::Later(delay)))
}

/// What somebody asks who operates the server.
fn admin(scene: &mut Scene<'_>) -> Request {
    let random = &mut *scene.random;
    if scene.swarm.flush && random.one_in(4) {
        return match random.below(3) {
            0 => {
                let limit = (scene.swarm.memory_bytes >> 20) - random.below(2);
                ask::other(&format!("cache_memlimit {limit}"), Expect::Stats)
            }
            _ => flush(scene).unwrap_or_else(|| ask::other("version", Expect::Stats)),
        };
    }
    if random.one_in(16) {
        return match random.one_in(2) {
            true => ask::other("lru_crawler metadump all", Expect::Dump("END")),
            false => ask::other("lru_crawler mgdump all", Expect::Dump("EN")),
        };
    }
    ask::other(one_of(ADMIN, random), Expect::Stats)
}

/// What somebody asks who operates the server.
const ADMIN: &str = "\
    stats, stats items, stats slabs, stats settings, stats conns, stats lanes, stats latency, \
    stats clients, stats hotkeys, stats large, stats sizes, stats tier, stats udp, stats topology, \
    stats cachedump 1 0, stats cachedump 5 100, stats reset, version, verbosity 0, mn";
/// What such a one asks by a read-only port: what is answered, and what is refused.
const ADMIN_READS: &str = "stats, stats conns, stats large, stats cachedump 5 100, version, mn";
const ADMIN_CHANGES: &str = "\
    flush_all, flush_all 1, cache_memlimit 1, verbosity 0, stats reset, stats detail on, \
    lru mode flat";

/// One of these lines, drawn.
fn one_of(lines: &'static str, random: &mut Random) -> &'static str {
    let lines: Vec<&str> = lines.split(", ").collect();
    lines[random.below(lines.len() as u64) as usize]
}

/// What such a one asks by a read-only port.
fn admin_reading(scene: &mut Scene<'_>) -> Request {
    let random = &mut *scene.random;
    match random.one_in(2) {
        true => ask::other(one_of(ADMIN_READS, random), Expect::Stats),
        false => ask::other(one_of(ADMIN_CHANGES, random), Expect::Refusal),
    }
}

/// A request that is wrong, with a value that looks like commands.
fn wrong(scene: &mut Scene<'_>) -> Request {
    let length = MALICE.len();
    let lines = [
        format!("cas k0 0 0 {length}"),
        format!("set k0 a 0 {length}"),
        format!("set k0 0 b {length}"),
        format!("add {} 0 0 {length}", "y".repeat(251)),
        format!("ms k0 {length} Tx"),
        format!("ms k0 {length} MQ"),
    ];
    ask::refused(&lines[scene.random.below(lines.len() as u64) as usize], MALICE)
}
