//! What a point is made of while its axes are read, and the point that becomes of it.

use crate::bursts::Bursts;
use crate::inputs::Inputs;
use crate::machine::{Central, Machine, Nic, Numa, Reach, Rx, SharedLines, Streams};
use crate::row::Row;
use crate::stats::{SECOND, US};
use crate::study::{EPOCH_REQUESTS, Point, warmup};
use crate::workload::{Keys, Mix, Sizes};
use laneway_policy::{Access, CostModel, Design};

/// What a point is made of, while its axes are read.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) machine: Machine,
    pub(super) nic: Nic,
    pub(super) has_wire: bool,
    pub(super) mix: Mix,
    pub(super) load: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) requests: u64,
    pub(super) epoch_requests: u64,
    pub(super) seeds: u64,
    pub(super) profiles_all: bool,
    pub(super) cost: Option<CostModel>,
    pub(super) bursts: Bursts,
    pub(super) workload: Option<String>,
    pub(super) service_file: Option<String>,
    pub(super) trace: Option<String>,
    pub(super) keys: Keys,
    pub(super) rx_requests: Option<u32>,
    pub(super) retry: u64,
    pub(super) numa: Numa,
    pub(super) lines: SharedLines,
    pub(super) streams: Option<Streams>,
    pub(super) turn_is_given: bool,
}

/// Fewer bursts than these make no mean rate.
const BURSTS_MIN: f64 = 20.0;

/// Of what the CPUs can do, where nothing is said.
const LOAD: f64 = 0.7;

/// Longest run, in simulated seconds: the clock counts picoseconds.
const RUN_S_MAX: f64 = 1e6;

impl Spec {
    pub(super) fn new() -> Spec {
        Spec {
            machine: Machine::new(Design::Lanes, 8),
            epoch_requests: EPOCH_REQUESTS,
            nic: Nic::MINOS,
            has_wire: false,
            mix: Mix::etc(),
            load: None,
            rate: None,
            requests: 400_000,
            seeds: 3,
            profiles_all: true,
            cost: None,
            bursts: Bursts { factor: 1.0, share: 0.1, length: 100 * US },
            workload: None,
            service_file: None,
            trace: None,
            keys: Keys::default(),
            rx_requests: None,
            retry: 1_000 * US,
            numa: Numa { domains: 1, strays: 0.0, cost: 300_000 },
            lines: SharedLines { each: 0, spread: 1, transfer: 80_000 },
            streams: None,
            turn_is_given: false,
        }
    }

    /// Whether the machine can have all that it is given.
    fn fits(&self) -> Result<(), String> {
        let names = |which: &dyn Fn(&Central) -> bool| {
            let found = Central::NAMED.iter().filter(|(_, central)| which(central));
            found.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        let central = self.machine.central;
        let (workers, domains) = (self.machine.settings.workers, self.numa.domains);
        if central.is_some() && self.has_wire {
            return Err(format!("--nic-gbit: {} have no wire; leave it out", names(&|_| true)));
        }
        if central.is_some_and(Central::receives) && self.rx_requests.is_some() {
            let names = names(&|central| central.receives());
            return Err(format!("--rx-queue: {names} have no RX queues; leave it out"));
        }
        if central.is_some() && self.lines.each > 0 {
            let names = names(&|_| true);
            return Err(format!("--shared-lines: {names} have none; leave it out"));
        }
        if workers % domains != 0 {
            return Err(format!("--numa {domains}: must divide --workers ({workers})"));
        }
        let owned = self.machine.settings.access != Access::Crcw;
        if owned && (domains > 1 || self.machine.central_queue) {
            let words = "a key's owner has a queue of its own in the one domain there is";
            return Err(format!("--access: {words}; leave out --queue and --numa"));
        }
        if domains > 1 && (central.is_some() || self.has_wire) {
            let names = names(&|_| true);
            return Err(format!("--numa: {names}, and a wire, have no domains; leave it out"));
        }
        Ok(())
    }

    /// The connections, if requests come by any.
    fn streams(&self) -> Result<Option<Streams>, String> {
        let Some(mut streams) = self.streams else { return Ok(None) };
        let design = self.machine.settings.design;
        if self.machine.central.is_some() || !matches!(design, Design::Lanes | Design::Hkh) {
            let words = "knows --design lanes and hkh alone, which serves each request to its end";
            return Err(format!("--connections: {words}; leave it out"));
        }
        if self.has_wire || self.numa.domains > 1 || self.rx_requests.is_some() {
            let words = "have no wire, no domains and no bound on what waits";
            return Err(format!(
                "--connections: requests by them {words}; leave out --nic-gbit, --numa, --rx-queue"
            ));
        }
        let Streams { burst, .. } = streams;
        if self.requests < u64::from(burst) * BURSTS_MIN as u64 {
            return Err(format!(
                "--depth {burst}: a run must have {BURSTS_MIN} pipelines or more; give --requests \
                 {}, or a lower depth",
                f64::from(burst) * BURSTS_MIN
            ));
        }
        if self.service_file.is_some() && !self.turn_is_given {
            streams.turn = 0; // What was measured holds it.
        }
        streams.urgency &= design == Design::Lanes;
        Ok(Some(streams))
    }

    /// Requests per second at which nobody would have time left, serving only the requests of
    /// the run. Of connections each is one worker's at a time, and a turn is taken to have as
    /// many requests as come at once.
    fn peak(&self, machine: &Machine, mix: &Mix) -> f64 {
        let mut workers = u32::from(machine.settings.workers);
        let requests = warmup(machine, mix, self.requests) + self.requests;
        let mut service = machine.costs.mean_service_of(mix, requests);
        if let Some(streams) = machine.streams {
            workers = workers.min(streams.connections);
            service += streams.turn as f64 / f64::from(streams.burst);
        }
        f64::from(workers) * SECOND as f64 / service
    }

    /// What arrives, and how fast if it says so itself.
    pub(super) fn mix(&self, inputs: &mut Inputs) -> Result<(Mix, Option<f64>), String> {
        let mut mix = self.mix.clone();
        let mut rate = None;
        if let Some(name) = &self.workload {
            let described = inputs.workload(name)?;
            mix = Mix { reply_share: mix.reply_share, ..described.mix };
            rate = described.rate;
        }
        if let Some(path) = &self.service_file {
            mix.sizes = inputs.service_file(path)?;
        }
        if let Some(path) = &self.trace {
            mix.sizes = inputs.trace(path)?;
        }
        let owned = self.machine.settings.access != Access::Crcw;
        let has_keys = matches!(mix.sizes, Sizes::Named(_) | Sizes::Trace(_));
        mix.keys = (owned && !has_keys).then(|| mix.keys.unwrap_or(self.keys));
        Ok((mix, rate))
    }

    /// Whether a run at this rate is as long as it must be, and no longer than it may be.
    fn lasts(&self, rate: f64) -> Result<(), String> {
        let requests = self.requests;
        let length_s = requests as f64 / rate;
        if length_s > RUN_S_MAX {
            return Err(format!(
                "--requests {requests}: {rate} a second take {length_s} s, which must be at most \
                 {RUN_S_MAX}; ask for fewer, or for more a second"
            ));
        }
        let cycle_requests = self.bursts.cycle() / SECOND as f64 * rate;
        let enough = (cycle_requests * BURSTS_MIN).ceil();
        if self.bursts.factor > 1.0 && (requests as f64) < enough {
            let length = self.bursts.length as f64 / US as f64;
            return Err(format!(
                "--burst-us {length}: a run must have {BURSTS_MIN} bursts or more; give \
                 --requests {enough}, or shorter bursts"
            ));
        }
        Ok(())
    }

    pub(super) fn point(&self, row: Row, inputs: &mut Inputs) -> Result<Point, String> {
        self.fits()?;
        let mut machine = self.machine.clone();
        let (mut mix, rate) = self.mix(inputs)?;
        if self.service_file.is_some() && machine.central.is_some_and(Central::receives) {
            // What was measured is all that serving costs: no part of it is the dispatcher's.
            machine.costs.steal = machine.costs.receive;
        }
        let design = machine.settings.design;
        machine.rx = self.rx_requests.map(|requests| Rx { requests, retry: self.retry });
        machine.numa = (self.numa.domains > 1).then_some(self.numa);
        machine.settings.workers /= self.numa.domains;
        machine.lines = (self.lines.each > 0).then_some(self.lines);
        machine.nic = self.has_wire.then_some(self.nic);
        machine.streams = self.streams()?;
        if machine.streams.is_some() {
            machine.reach = Reach::Offered;
        }
        machine.profiles = self.profiles_all || matches!(design, Design::Lanes | Design::Minos);
        machine.settings.cost = match (self.cost, design) {
            (Some(cost), _) => cost,
            (None, Design::Minos) => CostModel::Packets, // the paper's own
            (None, _) => machine.settings.cost,
        };
        machine.settings.check().map_err(|error| error.to_string())?;
        let (workers, costs) = (machine.settings.workers, machine.costs);
        if machine.tweak.workers_large.is_some_and(|large| large >= workers) {
            return Err(format!("--workers-large: must be below --workers ({workers})"));
        }
        let least = costs.spared();
        if costs.request < least {
            let least_ns = least / 1_000;
            return Err(format!(
                "--request-ns: must be at least {least_ns}: receiving and counting"
            ));
        }
        let domains = f64::from(self.numa.domains);
        let rate = self.rate.or(rate.filter(|_| self.load.is_none()));
        let load = self.load.unwrap_or(LOAD);
        let rate = rate.map_or_else(|| load * self.peak(&machine, &mix), |rate| rate / domains);
        self.lasts(rate)?;
        machine.epoch = (self.epoch_requests as f64 / rate * SECOND as f64) as u64;
        mix.bursts = (self.bursts.factor > 1.0).then_some(self.bursts);
        Ok(Point { row, machine, mix, rate, requests: self.requests })
    }
}
