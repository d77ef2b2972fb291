//! A closed loop: a window of requests always under way, client and server each on a thread that
//! spins. It finds what the designs cost in time over shared memory, where nothing but the two
//! threads takes any.

use super::flags::Closed;
use super::report::{Tallies, Timed};
use super::rig::{Ends, Items};
use crate::rivals::client::{Answer, Client, Failure};
use crate::rivals::design::Design;
use crate::rivals::opened::RingReader;
use crate::rivals::server::Server;
use crate::rivals::tally::Tally;
use hdrhistogram::Histogram;
use laneway_load::cpu;
use laneway_load::pairs::rounds::order;
use laneway_load::random::Random;
use laneway_rdma::shmring::{RingRequester, RingResponder};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

/// Turns without anything to do before a thread offers its CPU to others.
const IDLE_TURNS: u32 = 64;
/// Longest latency told apart; longer ones count as this long.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// How long answers are waited for after the end. A thread may be without a CPU for seconds.
const DRAIN: Duration = Duration::from_secs(30);

/// Every design, as often as is asked for: one after the other, so that a machine whose speed
/// drifts favours none.
pub(super) fn rounds(
    designs: &[Design],
    items: &Items<'_>,
    window: usize,
    closed: &Closed,
) -> Result<Vec<Timed>, String> {
    let mut all = Vec::new();
    for round in 0..closed.rounds {
        for design in order(designs, round) {
            all.push(Timed { round, ..run(*design, items, window, closed)? });
        }
    }
    Ok(all)
}

/// One design, one window.
fn run(design: Design, items: &Items<'_>, window: usize, closed: &Closed) -> Result<Timed, String> {
    let Ends { client, server, stream: _open } = Ends::new(design, items, window)?;
    let stop = AtomicBool::new(false);
    let (asked, served) = thread::scope(|scope| {
        let served = scope.spawn(|| serve(server, &stop, closed.cpus.map(|(_, server)| server)));
        // Also if the client fails, or panics.
        let stops = Stops(&stop);
        let mut asker = Asker::new(client, *items, closed.get_share);
        let asked = asker.ask(closed).map(|measured| (measured, asker));
        drop(stops);
        let served = served.join().unwrap_or_else(|_| Err("the server panicked".into()));
        (asked, served)
    });
    if closed.cpus.is_some() {
        cpu::unpin();
    }
    let told = |error: String| format!("{design}, window {window}: {error}");
    let (server, (measured, asker)) = (served.map_err(told)?, asked.map_err(told)?);
    let tallies = Tallies {
        client: asker.client.tally(),
        server,
        requests: asker.ended,
        trips: asker.trips,
        torn: asker.torn,
    };
    let us = |quantile| measured.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Timed {
        counted: tallies.counted((design.name(), "mix"), items.value_bytes, window),
        round: 0,
        get_share: closed.get_share,
        seconds: measured.seconds,
        requests_per_s: measured.latency_ns.len() as f64 / measured.seconds,
        latency_us_p50: us(0.5),
        latency_us_p99: us(0.99),
        given_up: asker.given_up,
        corrupt: asker.corrupt,
    })
}

/// Stops the server when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Counts turns without anything to do.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn turned(&mut self, count: usize) {
        self.0 = if count > 0 { 0 } else { self.0 + 1 };
        if self.0 >= IDLE_TURNS {
            self.0 = 0;
            thread::yield_now();
        }
    }
}

fn serve(
    mut server: Server<RingResponder>,
    stop: &AtomicBool,
    cpu: Option<usize>,
) -> Result<Tally, String> {
    cpu.map_or(Ok(()), cpu::pin)?;
    let mut patience = Patience::default();
    while !stop.load(Relaxed) {
        patience.turned(server.turn().map_err(|error| error.to_string())?);
    }
    Ok(server.tally())
}

/// What was measured of the time.
struct Measured {
    latency_ns: Histogram<u64>,
    seconds: f64,
}

/// The client's thread.
struct Asker<'a> {
    client: Client<RingRequester, RingReader>,
    items: Items<'a>,
    get_share: f64,
    random: Random,
    /// By ticket, which is the place in it: the key, and when it was asked.
    under_way: Vec<(u32, Instant)>,
    free: Vec<usize>,
    value: Vec<u8>,
    ended: u64,
    trips: u64,
    torn: u64,
    given_up: u64,
    corrupt: u64,
}

impl<'a> Asker<'a> {
    fn new(
        client: Client<RingRequester, RingReader>,
        items: Items<'a>,
        get_share: f64,
    ) -> Asker<'a> {
        Asker {
            client,
            items,
            get_share,
            random: Random::stream(items.seed, u64::from_le_bytes(*b"verbs   ")),
            under_way: Vec::new(),
            free: Vec::new(),
            value: Vec::new(),
            ended: 0,
            trips: 0,
            torn: 0,
            given_up: 0,
            corrupt: 0,
        }
    }

    fn ask(&mut self, closed: &Closed) -> Result<Measured, String> {
        closed.cpus.map_or(Ok(()), |(client, _)| cpu::pin(client))?;
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        let mut latency_ns =
            histogram.unwrap_or_else(|error| unreachable!("constant bounds: {error}"));
        let begin = Instant::now() + closed.warmup;
        let end = begin + closed.duration;
        let mut patience = Patience::default();
        loop {
            let now = Instant::now();
            while now < end && self.client.has_room() {
                self.begin(now)?;
            }
            if now >= end && self.client.under_way() == 0 {
                let seconds = closed.duration.as_secs_f64();
                return Ok(Measured { latency_ns, seconds });
            }
            if now > end + DRAIN {
                let left = self.client.under_way();
                return Err(format!("{left} requests had no answer {DRAIN:?} after the end"));
            }
            patience.turned(self.client.turn().map_err(|error| error.to_string())?);
            self.take(|ended, latency| {
                if (begin..end).contains(&ended) {
                    let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                    latency_ns.saturating_record(latency.max(1));
                }
            })?;
        }
    }

    fn begin(&mut self, now: Instant) -> Result<(), String> {
        let key = self.random.below(self.items.keys.into()) as u32;
        let ticket = self.free.pop().unwrap_or(self.under_way.len());
        if ticket == self.under_way.len() {
            self.under_way.push((key, now));
        }
        self.under_way[ticket] = (key, now);
        let name = self.items.name(key);
        let begun = if self.random.chance(self.get_share) {
            self.client.get(ticket as u64, &name)
        } else {
            self.items.value(key, self.random.word() as u32, &mut self.value);
            self.client.put(ticket as u64, &name, &self.value)
        };
        begun.map_err(|refused| refused.to_string())
    }

    /// Take what has ended; `each` is told when, and how long it took.
    fn take(&mut self, mut each: impl FnMut(Instant, Duration)) -> Result<(), String> {
        while let Some(end) = self.client.take() {
            let now = Instant::now();
            let ticket = end.ticket as usize;
            let (key, begun) = self.under_way[ticket];
            self.free.push(ticket);
            self.ended += 1;
            self.trips += u64::from(end.trips);
            self.torn += u64::from(end.torn);
            match end.result {
                Ok(Answer::Done) => {}
                Ok(Answer::Value(value)) if self.items.is_right(key, &value) => {}
                Ok(Answer::Value(_) | Answer::Missing) => self.corrupt += 1,
                // The server was stopped in the middle of a write, for long.
                Err(Failure::Lost(_)) => self.given_up += 1,
                Err(failure) => return Err(failure.to_string()),
            }
            each(now, now - begun);
        }
        Ok(())
    }
}
