//! Epochs: what was counted goes to the policy, the plan that comes back is put in force.

use super::{Machine, Run, Transfer};
use crate::stats::US;
use crate::workload::{Draw, Mix};
use laneway_load::random::Random;
use laneway_policy::{
    CorePlan, CorePolicy, EpochLoad, ItemBytes, Lane, LargeLane, Nanos, Role, Route, SizeHistogram,
    WorkerId, WorkerTarget, build, route,
};

/// A wire that would need so long to send what waits for it is backed up. One large reply of the
/// default mix is 50 µs of a 40 Gb/s wire, and is no sign of anything.
const TX_BACKLOG: u64 = 100 * US;

/// An epoch in which more than this part of the requests found the wire backed up is one in which
/// it was the bottleneck.
const TX_BACKED_UP_SHARE: f64 = 0.1;

/// Requests drawn beforehand to teach the policy what the mix is like, so that a short run is not
/// about its first epochs.
const LESSON_REQUESTS: u32 = 200_000;

/// Epochs of them.
const LESSON_EPOCHS: u64 = 3;

/// The control loop and the plan in force.
pub(super) struct Control {
    policy: Box<dyn CorePolicy + Send>,
    pub(super) plan: CorePlan,
    /// The standby has raised its flag.
    raised: bool,
    /// RX queues whose worker does not read them.
    pub(super) unread: Vec<u16>,
    /// Requests taken from each of those in a turn.
    pub(super) batch_unread: u32,
    reads: u64,
    sizes: SizeHistogram,
    large_requests: u64,
    pub(super) tx_samples: u64,
    pub(super) tx_samples_backed_up: u64,
    pub(super) epochs_backed_up: u64,
    pub(super) epoch_ends: u64,
    epoch: u64,
    batch: u32,
}

impl Control {
    pub(super) fn new(machine: &Machine, mix: &Mix) -> Control {
        let mut policy = build(machine.settings.clone()).expect("settings were checked");
        let mut lesson = EpochLoad::default();
        let draw = Draw::new(mix);
        let mut random = Random::new(0);
        for _ in 0..LESSON_REQUESTS {
            lesson.sizes.record(ItemBytes(u64::from(draw.draw(&mut random).bytes)));
        }
        lesson.large_requests = u64::from(mix.large_percent > 0.0);
        let mut plan = policy.initial();
        for _ in 0..LESSON_EPOCHS {
            plan = policy.plan(Nanos(0), &lesson);
        }
        let mut control = Control {
            policy,
            raised: plan.standby_raised && machine.tweak.workers_large.is_none_or(|n| n == 0),
            plan: machine.tweak.apply(plan),
            unread: Vec::new(),
            batch_unread: 0,
            reads: 0,
            sizes: SizeHistogram::new(),
            large_requests: 0,
            tx_samples: 0,
            tx_samples_backed_up: 0,
            epochs_backed_up: 0,
            epoch_ends: machine.epoch,
            epoch: machine.epoch,
            batch: machine.batch,
        };
        control.who_reads();
        control
    }

    /// Whether a worker reads its RX queue, and those of the ones that do not.
    #[inline]
    pub(super) fn reads(&self, worker: usize) -> bool {
        self.reads >> worker & 1 == 1
    }

    /// Workers that read, as a mask.
    #[inline]
    pub(super) fn readers(&self) -> u64 {
        self.reads
    }

    #[inline]
    pub(super) fn count(&mut self, size: ItemBytes) {
        self.sizes.record(size);
        self.large_requests +=
            u64::from(laneway_policy::route::lane(&self.plan, size) == Lane::Large);
    }

    /// Whether a request that is served here is served as a transfer: by the standby, who finishes
    /// its batch first.
    #[inline]
    pub(super) fn waits_for_its_turn(&self, size: ItemBytes) -> bool {
        self.plan.large_lane != LargeLane::None && size >= self.plan.threshold
    }

    fn who_reads(&mut self) {
        let standby_gone = |role| self.raised && role == Role::Standby;
        let reads = |role| role != Role::Large && !standby_gone(role);
        self.reads = 0;
        self.unread.clear();
        for (worker, &role) in self.plan.roles.iter().enumerate() {
            if reads(role) {
                self.reads |= 1 << worker;
            } else {
                self.unread.push(worker as u16);
            }
        }
        self.batch_unread = self.batch.div_ceil(self.reads.count_ones().max(1));
    }

    /// The standby raises its flag. Whether it was down.
    pub(super) fn raise(&mut self) -> bool {
        let was_down = !self.raised;
        self.raised = true;
        if was_down {
            self.who_reads();
        }
        was_down
    }
}

impl Run<'_> {
    pub(super) fn end_epoch(&mut self) {
        let control = &mut self.control;
        control.epoch_ends += control.epoch;
        let backed_up = control.tx_samples_backed_up as f64
            > TX_BACKED_UP_SHARE * control.tx_samples.max(1) as f64;
        control.epochs_backed_up += u64::from(backed_up);
        let load = EpochLoad {
            sizes: std::mem::take(&mut control.sizes),
            large_requests: control.large_requests,
            tx_backed_up: backed_up,
            ..EpochLoad::default()
        };
        (control.large_requests, control.tx_samples, control.tx_samples_backed_up) = (0, 0, 0);
        let plan = self.machine.tweak.apply(control.policy.plan(Nanos(self.now / 1_000), &load));
        let before = std::mem::replace(&mut control.plan, plan);
        control.raised = control.plan.standby_raised;
        control.who_reads();
        if control.plan.roles_changed_since(&before) > 0 {
            self.move_large_work();
        }
        for worker in 0..self.workers.len() {
            self.wake(worker);
        }
    }

    /// Roles have changed: what waits for a large worker goes where the new plan has it. What is
    /// under way stays where it is.
    fn move_large_work(&mut self) {
        let mut moved: Vec<Transfer> = self.shared.drain(..).collect();
        for worker in &mut self.workers {
            let begun = |t: &Transfer| t.service_left < t.request.service;
            let keep = worker.transfers.iter().take_while(|t| begun(t)).count();
            let keep = keep.max(usize::from(worker.in_a_piece));
            moved.extend(worker.transfers.drain(keep.min(worker.transfers.len())..));
        }
        for transfer in moved {
            let size = ItemBytes(u64::from(transfer.request.bytes));
            match route(&self.control.plan, WorkerId(0), size) {
                Route::Hand(WorkerTarget::Worker(worker)) => {
                    self.workers[worker.index()].transfers.push_back(transfer);
                }
                Route::Hand(WorkerTarget::Shared) => self.shared.push_back(transfer),
                Route::Here | Route::HereInSlices => self.workers[0].transfers.push_back(transfer),
            }
        }
    }

    /// How the wire is doing, asked now and then.
    pub(super) fn sample_wire(&mut self) {
        if let Some(wire) = &self.wire {
            self.control.tx_samples += 1;
            self.control.tx_samples_backed_up += u64::from(wire.backlog() > TX_BACKLOG);
            self.outcome.backlog.record(wire.backlog());
        }
    }
}
