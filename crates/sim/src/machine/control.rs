//! Epochs: what was counted goes to the policy, the plan that comes back is put in force.

use super::standby::Flag;
use super::{Machine, Reach, Run, Transfer};
use crate::sample::Sample;
use crate::workload::Mix;
use laneway_policy::plan::{TX_BACKLOG, tx_backed_up};
use laneway_policy::{
    CorePlan, CorePolicy, EpochLoad, ItemBytes, Lane, Readers, Role, Route, SizeHistogram,
    WorkerId, WorkerTarget, build, route,
};

/// In picoseconds.
const NS: u64 = 1_000;

/// Epochs in which the policy is taught what the mix is like before the run begins.
const LESSON_EPOCHS: u64 = 3;

/// The control loop and the plan in force.
pub(super) struct Control {
    policy: Box<dyn CorePolicy + Send>,
    pub(super) plan: CorePlan,
    /// The standby's.
    flag: Flag,
    /// Who reads which RX queues.
    pub(super) who: Readers,
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
        let lesson = EpochLoad {
            sizes: Sample::of(mix).sizes(mix).clone(),
            large_requests: u64::from(mix.large_percent > 0.0),
            ..EpochLoad::default()
        };
        let mut plan = policy.initial();
        for _ in 0..LESSON_EPOCHS {
            plan = policy.plan(&lesson);
        }
        let plan = machine.tweak.apply(plan);
        // Over TCP nobody could drain the standby's queue.
        let mut flag = Flag::new(machine.standby, machine.reach != Reach::Offered);
        flag.follow(&plan);
        let mut control = Control {
            policy,
            flag,
            who: flag.readers(&plan, machine.batch),
            plan,
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

    /// A plan comes into force. Returns the one before it.
    pub(super) fn follow(&mut self, plan: CorePlan) -> CorePlan {
        let before = std::mem::replace(&mut self.plan, plan);
        self.flag.follow(&self.plan);
        self.who_reads();
        before
    }

    fn who_reads(&mut self) {
        self.who = self.flag.readers(&self.plan, self.batch);
        let all = self.plan.roles.len();
        let unread = self.who.unread().iter().map(|worker| 1 << worker.index());
        self.reads = unread.fold(u64::MAX >> (64 - all), |reads: u64, bit: u64| reads & !bit);
    }

    #[inline]
    pub(super) fn is_standby(&self, worker: usize) -> bool {
        worker + 1 == self.plan.roles.len() && self.plan.roles[worker] == Role::Standby
    }

    /// The standby has large work. Whether its flag has gone up.
    pub(super) fn raise(&mut self) -> bool {
        let goes_up = self.flag.raise();
        if goes_up {
            self.who_reads();
        }
        goes_up
    }

    /// The standby has no large work left.
    #[inline]
    pub(super) fn lower(&mut self) {
        if self.flag.lower() {
            self.who_reads();
        }
    }
}

impl Run<'_> {
    pub(super) fn end_epoch(&mut self) {
        let control = &mut self.control;
        control.epoch_ends += control.epoch;
        let backed_up = tx_backed_up(control.tx_samples, control.tx_samples_backed_up);
        control.epochs_backed_up += u64::from(backed_up);
        let load = EpochLoad {
            sizes: std::mem::take(&mut control.sizes),
            large_requests: control.large_requests,
            tx_backed_up: backed_up,
            ..EpochLoad::default()
        };
        (control.large_requests, control.tx_samples, control.tx_samples_backed_up) = (0, 0, 0);
        let plan = self.machine.tweak.apply(control.policy.plan(&load));
        let before = control.follow(plan);
        if control.plan.roles_changed_since(&before) > 0 {
            self.move_large_work();
            self.move_connections();
        }
        let standby = self.control.plan.standby().map(WorkerId::index);
        if standby.is_some_and(|standby| !self.workers[standby].transfers.is_empty()) {
            self.control.raise();
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
            let keep = worker.transfers.iter().take_while(|t| t.is_begun()).count();
            let keep = keep.max(usize::from(worker.turn.in_transfer()));
            moved.extend(worker.transfers.drain(keep.min(worker.transfers.len())..));
        }
        for transfer in moved {
            let size = ItemBytes(u64::from(transfer.request.bytes));
            match route(&self.control.plan, WorkerId(0), size) {
                Route::Hand(WorkerTarget::Shared) => self.shared.push_back(transfer),
                Route::Hand(target) => {
                    let worker = self.shortest(target);
                    self.workers[worker].transfers.push_back(transfer);
                }
                Route::Here | Route::HereInSlices => self.workers[0].transfers.push_back(transfer),
            }
        }
    }

    /// Over TCP what has come for a worker that turned large goes home with its connections.
    fn move_connections(&mut self) {
        if self.machine.reach != Reach::Offered {
            return;
        }
        let homes = usize::from(self.control.plan.workers_small);
        for worker in homes..self.rx.len() {
            for (place, request) in std::mem::take(&mut self.rx[worker]).into_iter().enumerate() {
                self.rx[(worker + place) % homes].push_back(request);
            }
        }
    }

    /// How the wire is doing, asked now and then.
    pub(super) fn sample_wire(&mut self) {
        if let Some(wire) = &self.wire {
            self.control.tx_samples += 1;
            self.control.tx_samples_backed_up += u64::from(wire.backlog() > TX_BACKLOG.0 * NS);
            self.outcome.backlog.record(wire.backlog());
        }
    }
}
