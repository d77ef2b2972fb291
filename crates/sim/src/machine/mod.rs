//! The machine: n workers, an RX queue each, software queues for large requests, and a wire.
//!
//! What a worker does with a request is asked of [`mod@laneway_policy::route`], under the plan that
//! [`laneway_policy::build`]'s control loop makes once per epoch: the very code the server runs.
//! What a worker does next is asked of [`laneway_policy::turn`]: taking batches, slices, and
//! requests from others; where requests come by connections (`streams`), of
//! [`laneway_policy::share`], as the server asks it. This module carries the decisions out and adds
//! what they cost.
//!
//! Not modelled: caches but for `lines`, the RX wire, clients that wait. Workers poll, so work that
//! arrives is noticed at once. Unit: picoseconds.

mod arrive;
mod caladan;
mod central;
mod control;
mod counting;
mod lines;
mod nic;
mod outcome;
mod remote;
mod reserve;
mod spec;
mod standby;
mod streams;
mod tq;
mod turn;

pub use lines::SharedLines;
pub use nic::{Nic, WireOrder};
pub use outcome::{Halves, Outcome, State, Window};
pub use remote::Numa;
pub use spec::{Central, Costs, Machine, Reach, Rx, SliceOrder, Traffic, Tweak};
pub use standby::Standby;
pub use streams::{SliceWait, Streams};

use crate::bursts::Clock;
use crate::events::{Events, NEVER};
use crate::stats::{Latencies, SECOND};
use crate::workload::{Draw, Drawn, Sizes};
use arrive::Lost;
use caladan::Cores;
use central::Dispatcher;
use control::Control;
use laneway_load::random::Random;
use laneway_policy::{Design, ItemBytes, Turn, WorkerId};
use lines::Lines;
use nic::Wire;
use std::collections::VecDeque;
use streams::{Desk, Stream};

/// Most workers of a machine: sleepers are a 64-bit mask.
pub const WORKERS_MAX: u16 = 64;

/// One request.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// For the first time.
    arrived: u64,
    /// To where it is.
    came: u64,
    /// What serving it costs, receiving included.
    service: u64,
    bytes: u32,
    large: bool,
    put: bool,
    replied: bool,
    counted: bool,
    /// Its item is another NUMA domain's.
    remote: bool,
}

/// A request that is served in several pieces, or that waits to be.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    request: Request,
    bytes_left: u32,
    service_left: u64,
}

impl Transfer {
    fn is_begun(&self) -> bool {
        self.service_left < self.request.service
    }

    /// What the next so many bytes cost; they are no longer to be served.
    fn take(&mut self, bytes: u32) -> u64 {
        let part = u128::from(self.service_left) * u128::from(bytes);
        let left = u128::from(self.bytes_left);
        let service = part.checked_div(left).map_or(self.service_left, |part| part as u64);
        self.service_left -= service;
        service
    }
}

#[derive(Debug, Clone, Copy, Default)]
enum Doing {
    #[default]
    Nothing,
    /// All of a request.
    Serve(Request),
    /// So much of the request that is the worker's own.
    Quantum(u64),
    /// Looking for work, as a core that may go.
    Search,
    /// Not there yet, as a core that was granted.
    Come,
    /// Handing it over.
    Hand(Request),
    /// Handing it to another NUMA domain.
    Cross(Request),
    /// The next so many bytes of the transfer at the front of the worker's own queue.
    Piece(u32),
    /// So many requests of a connection.
    Turn(u32, u32),
    /// The next so many bytes of a connection's transfer, which were its turn in that line.
    Slice { connection: u32, bytes: u32, urgent: bool },
}

#[derive(Debug, Default)]
struct Worker {
    doing: Doing,
    /// Taken from RX queues and not begun.
    batch: VecDeque<Request>,
    /// Large requests that are its own, the one under way at the front.
    transfers: VecDeque<Transfer>,
    /// Of `batch`, the last so many may be taken by others.
    offered: u32,
    /// The worker whose socket it looks into next, with nothing else to do.
    steal_next: u16,
    /// Where it is in its turn.
    turn: Turn,
    requests: u64,
    packets: u64,
    busy: u64,
}

/// Requests in the machine at which a run is broken off.
const IN_SYSTEM_MAX: u64 = 400_000;

/// A run under way.
struct Run<'a> {
    machine: &'a Machine,
    traffic: &'a Traffic,
    seed: u64,
    costs: Costs,
    random: Random,
    draw: Draw,
    phase: usize,
    events: Events,
    now: u64,
    workers: Vec<Worker>,
    rx: Vec<VecDeque<Request>>,
    /// Large requests (or, of `sho`, all) that any large worker may take.
    shared: VecDeque<Transfer>,
    /// Connections, where requests come by them; what each worker has of them; and those that wait
    /// for any large worker.
    streams: Vec<Stream>,
    desks: Vec<Desk>,
    handed: VecDeque<u32>,
    dispatcher: Dispatcher,
    cores: Cores,
    /// The scheduler of cores is to look at the queues.
    looks: bool,
    lost: Lost,
    stray: Random,
    lines: Lines,
    asleep: u64,
    control: Control,
    wire: Option<Wire>,
    gap_mean: f64,
    bursts: Option<Clock>,
    arrivals: u64,
    in_system: u64,
    large_in_system: u64,
    counted_left: u64,
    small_left: u64,
    large_left: u64,
    /// Counted requests that were slower than `latency_limit`; above `over_limit_max` of them the
    /// run is broken off.
    over_limit: u64,
    over_limit_max: u64,
    latency_limit: u64,
    area: f64,
    large_area: f64,
    area_since: u64,
    large_area_since: u64,
    counting_from: u64,
    /// When half of the requests that count had arrived, and the areas up to then.
    half_at: u64,
    half_areas: [f64; 2],
    /// Latencies of small and large requests that arrived in the first half.
    first_half: [Latencies; 2],
    answered: u64,
    window_end: u64,
    window: Latencies,
    outcome: Outcome,
}

/// Run the machine under this traffic; everything random follows from the seed.
pub fn run(machine: &Machine, traffic: &Traffic, seed: u64) -> Outcome {
    let mut run = Run::new(machine, traffic, seed);
    run.go();
    run.finish_up()
}

impl<'a> Run<'a> {
    fn new(machine: &'a Machine, traffic: &'a Traffic, seed: u64) -> Self {
        let workers = usize::from(machine.settings.workers);
        assert!((1..=usize::from(WORKERS_MAX)).contains(&workers), "{workers} workers");
        let mut costs = machine.costs;
        if !machine.profiles {
            costs.request -= costs.profile;
        }
        let mix = &traffic.phases[0].1;
        let control = Control::new(machine, mix);
        let per_lane = machine.settings.design == Design::Lanes;
        if machine.streams.is_some() {
            // With one worker no design has anybody to give a request to.
            let alone = workers == 1;
            let knows = alone || matches!(machine.settings.design, Design::Lanes | Design::Hkh);
            assert!(knows && machine.nic.is_none(), "lanes, hkh or one worker, without a wire");
        }
        machine.check();
        let (connections, burst) =
            machine.streams.map_or((0, 1), |streams| (streams.connections, streams.burst));
        let mut run = Run {
            seed,
            costs,
            random: Random::stream(seed, 0),
            draw: Draw::new(mix),
            phase: 0,
            events: Events::new(workers + 4),
            now: 0,
            workers: (0..workers).map(|_| Worker::default()).collect(),
            rx: vec![VecDeque::with_capacity(1024); workers],
            shared: VecDeque::with_capacity(1024),
            streams: (0..connections).map(|_| Stream::default()).collect(),
            desks: (0..workers).map(|_| Desk::default()).collect(),
            handed: VecDeque::new(),
            dispatcher: Dispatcher::new(machine, mix),
            cores: Cores::default(),
            looks: false,
            lost: Lost::new(),
            stray: Random::stream(seed, 2),
            lines: Lines::new(machine.lines, seed),
            asleep: u64::MAX >> (64 - workers),
            control,
            wire: machine.nic.map(|nic| Wire::new(nic, workers, per_lane)),
            gap_mean: f64::from(burst) * SECOND as f64 / traffic.rate,
            bursts: mix.bursts.as_ref().map(|bursts| Clock::new(bursts, seed)),
            arrivals: 0,
            in_system: 0,
            large_in_system: 0,
            counted_left: traffic.requests,
            small_left: 0,
            large_left: 0,
            over_limit: 0,
            over_limit_max: traffic.requests / 100,
            latency_limit: traffic.p99_max.unwrap_or(NEVER),
            area: 0.0,
            large_area: 0.0,
            area_since: 0,
            large_area_since: 0,
            counting_from: 0,
            half_at: NEVER,
            half_areas: [0.0; 2],
            first_half: [Latencies::new(), Latencies::new()],
            answered: 0,
            window_end: traffic.window.unwrap_or(NEVER),
            window: Latencies::new(),
            outcome: Outcome::default(),
            machine,
            traffic,
        };
        run.schedule_arrival();
        run
    }

    fn source_wire(&self) -> usize {
        self.workers.len()
    }

    fn source_arrival(&self) -> usize {
        self.workers.len() + 1
    }

    fn source_cores(&self) -> usize {
        self.workers.len() + 2
    }

    fn source_again(&self) -> usize {
        self.workers.len() + 3
    }

    fn go(&mut self) {
        let workers = self.workers.len();
        if matches!(self.machine.central, Some(Central::Grant { .. })) {
            self.grant_all();
        }
        while self.counted_left > 0 || self.lingers() {
            let (source, now) = self.events.next();
            self.now = now;
            match source.checked_sub(workers) {
                None => self.worker_done(source),
                Some(0) => self.frame_sent(),
                Some(1) => self.arrive(),
                Some(2) => self.look_at_queues(),
                Some(_) => self.come_again(),
            }
            if self.in_system > IN_SYSTEM_MAX {
                self.outcome.overloaded = true;
                break;
            }
            if self.over_limit > self.over_limit_max {
                self.outcome.limit_missed = true;
                break;
            }
        }
    }

    /// Arrivals go on, uncounted, until all that counts is answered, or the slowest would be left
    /// out. A starved lane must not keep the run going for ever: what waits then counts with its
    /// age.
    fn lingers(&self) -> bool {
        let arrivals_max = (self.traffic.warmup + self.traffic.requests) * 5 / 4;
        self.small_left + self.large_left > 0 && self.arrivals < arrivals_max
    }

    fn schedule_arrival(&mut self) {
        let gap = self.random.exponential(self.gap_mean);
        let gap = self.bursts.as_mut().map_or(gap as u64, |bursts| bursts.gap(gap));
        let source = self.source_arrival();
        self.events.set(source, self.now + gap.max(1));
    }

    fn arrive(&mut self) {
        self.clockwork();
        match self.machine.streams {
            None => {
                let (request, spare) = self.next_request();
                self.enter(request, spare);
            }
            Some(streams) => {
                let requests: Vec<_> = (0..streams.burst).map(|_| self.next_request()).collect();
                let connection = (u32::from(requests[0].1) * streams.connections) >> 16;
                self.come(connection, requests.into_iter().map(|(request, _)| request));
            }
        }
        self.schedule_arrival();
    }

    /// The next request, counted, and the bits that say to which queue it comes.
    fn next_request(&mut self) -> (Request, u16) {
        let drawn = self.draw.draw(&mut self.random);
        let counted = self.arrivals >= self.traffic.warmup && self.counted_left > 0;
        if counted {
            self.count(drawn);
        }
        self.arrivals += 1;
        self.area_changes();
        self.in_system += 1;
        if drawn.large {
            self.large_area_changes();
            self.large_in_system += 1;
        }
        let request = self.request(drawn, counted);
        self.control.count(ItemBytes(u64::from(request.bytes)));
        (request, self.queue_bits(&drawn))
    }

    fn request(&mut self, drawn: Drawn, counted: bool) -> Request {
        let Drawn { bytes, large, put, replied, .. } = drawn;
        let service = match self.draw.exponential() {
            true => self.random.exponential(self.costs.packet as f64) as u64,
            false => self.costs.of(&drawn),
        };
        let (now, remote) = (self.now, self.strays());
        Request { arrived: now, came: now, service, bytes, large, put, replied, counted, remote }
    }

    /// What happens at set times, seen at the first arrival after them.
    fn clockwork(&mut self) {
        let next = self.phase + 1;
        if next < self.traffic.phases.len() && self.now >= self.traffic.phases[next].0 {
            self.phase = next;
            self.draw = Draw::new(&self.traffic.phases[next].1);
        }
        if self.now >= self.control.epoch_ends {
            self.end_epoch();
        }
        if self.now >= self.window_end {
            self.end_window();
        }
    }
}

impl Draw {
    fn exponential(&self) -> bool {
        *self.sizes() == Sizes::Exponential
    }
}

/// The worker with this index, as the policies call it.
fn id(worker: usize) -> WorkerId {
    WorkerId(worker as u16)
}
