//! What a point is made of while its axes are read, and the point that becomes of it.

use crate::bursts::Bursts;
use crate::inputs::Inputs;
use crate::machine::{Machine, Nic};
use crate::row::Row;
use crate::stats::{SECOND, US};
use crate::study::{EPOCH_REQUESTS, Point};
use crate::workload::Mix;
use laneway_policy::{CostModel, Design};

/// What a point is made of, while its axes are read.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) machine: Machine,
    pub(super) nic: Nic,
    pub(super) has_wire: bool,
    pub(super) mix: Mix,
    pub(super) load: f64,
    pub(super) rate: Option<f64>,
    pub(super) requests: u64,
    pub(super) epoch_requests: u64,
    pub(super) seeds: u64,
    pub(super) profiles_all: bool,
    pub(super) cost: Option<CostModel>,
    pub(super) bursts: Bursts,
    pub(super) service_file: Option<String>,
    pub(super) trace: Option<String>,
}

/// Fewer bursts than these make no mean rate.
const BURSTS_MIN: f64 = 20.0;

impl Spec {
    pub(super) fn new() -> Spec {
        Spec {
            machine: Machine::new(Design::Lanes, 8),
            epoch_requests: EPOCH_REQUESTS,
            nic: Nic::MINOS,
            has_wire: false,
            mix: Mix::etc(),
            load: 0.7,
            rate: None,
            requests: 400_000,
            seeds: 3,
            profiles_all: true,
            cost: None,
            bursts: Bursts { factor: 1.0, share: 0.1, length: 100 * US },
            service_file: None,
            trace: None,
        }
    }

    pub(super) fn point(self, row: Row, inputs: &mut Inputs) -> Result<Point, String> {
        let Spec { mut machine, mut mix, .. } = self;
        if let Some(path) = &self.service_file {
            mix.sizes = inputs.service_file(path)?;
            if machine.central.is_some() {
                // What was measured is all that serving costs: no part of it is the dispatcher's.
                machine.costs.steal = machine.costs.receive;
            }
        }
        if let Some(path) = &self.trace {
            mix.sizes = inputs.trace(path)?;
        }
        let design = machine.settings.design;
        if machine.central.is_some() && self.has_wire {
            return Err("--nic-gbit: shinjuku and darc have no wire; leave it out".to_owned());
        }
        machine.nic = self.has_wire.then_some(self.nic);
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
        if costs.receive + costs.profile > costs.request {
            return Err("--request-ns: must be at least 330: receiving and counting".to_owned());
        }
        let peak = f64::from(workers) * SECOND as f64 / costs.mean_service(&mix);
        let rate = self.rate.unwrap_or(self.load * peak);
        machine.epoch = (self.epoch_requests as f64 / rate * SECOND as f64) as u64;
        if self.bursts.factor > 1.0 {
            mix.bursts = Some(self.bursts);
            let cycle_requests = self.bursts.cycle() / SECOND as f64 * rate;
            let enough = (cycle_requests * BURSTS_MIN).ceil();
            if (self.requests as f64) < enough {
                let length = self.bursts.length as f64 / US as f64;
                return Err(format!(
                    "--burst-us {length}: a run must have {BURSTS_MIN} bursts or more; give \
                     --requests {enough}, or shorter bursts"
                ));
            }
        }
        Ok(Point { row, machine, mix, rate, requests: self.requests })
    }
}
