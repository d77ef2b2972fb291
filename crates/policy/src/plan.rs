//! What goes into a policy once per epoch, and the plan that comes out (Minos §3.1).
//!
//! A plan is a value: published whole, read by workers at the top of their turn, never changed.
//! It departs from the paper: besides roles, threshold and ranges it says how large transfers are
//! sliced and who may take a small request from another's queue. It knows no queue and no
//! connection: queue lengths are arguments. Units: bytes, workers, nanoseconds.

use crate::cores::{Form, Role, ids};
use crate::design::{Access, Design};
use crate::histogram::SizeHistogram;
use crate::ranges::SizeRanges;
use crate::units::{BATCH, ItemBytes, Nanos, WorkerId};
use alloc::vec::Vec;

/// What an epoch was like, summed over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EpochLoad {
    /// Every request that a worker served, by the size of its item.
    pub sizes: SizeHistogram,
    /// Requests that came to no worker, since the kernel answered them. They count for what is
    /// small, and not for how many workers small requests need.
    pub sizes_kernel: SizeHistogram,
    /// Requests that went the large way. Not the same as those in `sizes` above the threshold: a
    /// multiget goes by its total.
    pub large_requests: u64,
    /// Whether replies waited for the wire, on any worker, for a notable part of the epoch.
    pub tx_backed_up: bool,
}

/// A wire that would need so long to send what waits for it is backed up. One large reply of the
/// default mix is 50 µs of a 40 Gb/s wire, and is no sign of anything.
pub const TX_BACKLOG: Nanos = Nanos(100_000);

/// Of so many looks at the wire, so many found it backed up: whether it was the bottleneck of the
/// epoch, that is, in more than a tenth of them.
pub fn tx_backed_up(looks: u64, backed_up: u64) -> bool {
    10 * backed_up > looks.max(1)
}

/// Where large requests are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LargeLane {
    /// Nowhere else: every worker serves what it receives, whatever the size.
    None,
    /// By the worker that receives them, a slice at a time, after its small requests.
    TimeShared,
    /// By the large workers (or the standby), who share one queue.
    SharedQueue,
    /// By the large workers, each with a range of sizes, the first with the smallest.
    Ranges(SizeRanges),
    /// As [`LargeLane::SharedQueue`], and small requests go there as well: small workers only
    /// read RX queues and hand over.
    Everything,
}

/// Who may take a small request that arrived elsewhere. Always one request at a time, so that no
/// small request ever waits behind a large one (Minos §6.1 "Latency of large requests").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Steal {
    /// A large worker may take one between two slices if some small RX queue holds at least so
    /// many; `None`: never. (Taking unconditionally starves large requests.)
    pub between_slices_queue_min: Option<u32>,
    /// How many it may take between two slices, one after the other, while that holds.
    pub between_slices_requests_max: u32,
    /// A worker with nothing to do may take one from the longest small RX queue.
    pub when_idle: bool,
}

/// Small requests in one RX queue from which on a large worker helps out between slices. From 4 on
/// small p99 is half as high again at a load of 0.9, and large p99 a tenth lower; from 1 on large
/// p99 is half as high again.
pub const STEAL_QUEUE_MIN: u32 = 2;

/// The same while the wire is the bottleneck: there is a large worker less then, and the one that
/// is left would give small requests so much of its time that large ones starve.
pub const STEAL_QUEUE_MIN_FULL_WIRE: u32 = 4;

/// Small requests that a large worker takes between two slices at most: a batch. With a single
/// one, two large workers add too little to six small ones that have no time left, and at a load
/// of 0.95 small p99 is 8 times as high; with no bound at all, large p99 is no better.
pub const STEAL_REQUESTS_MAX: u32 = BATCH;

impl Steal {
    /// Nobody takes anything.
    pub const NEVER: Steal =
        Steal { between_slices_queue_min: None, between_slices_requests_max: 0, when_idle: false };

    /// A worker with nothing to do takes one, a large worker also one between two large requests
    /// (Minos §6.1 "Latency of large requests").
    pub const ONE_AT_A_TIME: Steal = Steal {
        between_slices_queue_min: Some(1),
        between_slices_requests_max: 1,
        when_idle: true,
    };

    /// Whether a large worker that has taken so many since its last slice takes one more request,
    /// from a queue of this length.
    pub fn between_slices(self, taken: u32, queue_longest: u32) -> bool {
        taken < self.between_slices_requests_max
            && self.between_slices_queue_min.is_some_and(|min| queue_longest >= min)
    }

    /// Whether an idle worker takes one request from a queue of this length.
    pub fn idle(self, queue_longest: u32) -> bool {
        self.when_idle && queue_longest > 0
    }
}

/// The plan of one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorePlan {
    /// 0 before the first epoch has ended, then one more each time.
    pub epoch: u64,
    /// By which rule.
    pub design: Design,
    /// Whether workers have roles.
    pub form: Form,
    /// A size at or above this is large. Where nobody serves large requests apart this is only
    /// what the statistics call large.
    pub threshold: ItemBytes,
    /// What each worker does; large ones come last.
    pub roles: Vec<Role>,
    /// Workers that read RX queues: all that are not [`Role::Large`].
    pub workers_small: u16,
    /// Where large requests go.
    pub large_lane: LargeLane,
    /// The standby's flag as the epoch begins: up if a large request came in the last one. The
    /// standby raises it itself when one comes; while it is up others drain its RX queue.
    pub standby_raised: bool,
    /// The most a large transfer moves in one turn; `None`: it runs to completion.
    pub slice_bytes: Option<ItemBytes>,
    /// The most bytes of large replies that a worker may have handed on unsent; `None`: no limit
    /// of the policy's. Set while the wire is the bottleneck.
    pub large_unsent_bytes_max: Option<ItemBytes>,
    /// Who may take small requests from others.
    pub steal: Steal,
    /// Who may serve a key.
    pub access: Access,
}

impl CorePlan {
    /// Number of workers.
    pub fn workers(&self) -> u16 {
        self.roles.len() as u16
    }

    /// Number of workers that serve nothing but large requests.
    pub fn workers_large(&self) -> u16 {
        self.workers() - self.workers_small
    }

    /// The role of one worker.
    pub fn role(&self, worker: WorkerId) -> Role {
        self.roles[worker.index()]
    }

    /// The workers that read RX queues and are home to connections.
    pub fn small_ids(&self) -> impl DoubleEndedIterator<Item = WorkerId> + Clone {
        ids(0, usize::from(self.workers_small))
    }

    /// The workers with [`Role::Large`].
    pub fn large_ids(&self) -> impl DoubleEndedIterator<Item = WorkerId> + Clone {
        ids(usize::from(self.workers_small), self.roles.len())
    }

    /// The standby large worker, where there is one.
    pub fn standby(&self) -> Option<WorkerId> {
        let last = self.roles.len().checked_sub(1)?;
        (self.roles[last] == Role::Standby).then_some(WorkerId(last as u16))
    }

    /// Workers whose role differs between this plan and the one before it.
    pub fn roles_changed_since(&self, before: &CorePlan) -> usize {
        let common = self.roles.iter().zip(&before.roles).filter(|(now, then)| now != then).count();
        common + self.roles.len().abs_diff(before.roles.len())
    }
}
