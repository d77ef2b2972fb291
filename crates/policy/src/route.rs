//! Where one request is served, under one plan (Minos §3.1 "Operation of the small cores").
//!
//! It departs from the paper: a large worker serves a small request that reaches it (its connection
//! was moved there for a large one), and large workers may share a queue. A multiget is routed by
//! the sum of its sizes. It knows no queue: whoever hands a request over passes the lengths in.

use crate::cores::ids;
use crate::design::Design;
use crate::plan::{CorePlan, LargeLane};
use crate::units::{ItemBytes, WorkerId};

/// The two kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Below the threshold.
    Small,
    /// At or above it.
    Large,
}

/// What the worker that holds a request does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// Serve it to completion.
    Here,
    /// Serve it as a transfer, `slice_bytes` of the plan a turn, small requests first.
    HereInSlices,
    /// Give it to somebody else.
    Hand(WorkerTarget),
}

/// To whom a large request is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerTarget {
    /// To whichever large worker is free first: the shared queue. What cannot lie in a queue that
    /// several read (a connection) goes to [`WorkerTarget::shortest`].
    Shared,
    /// To this one.
    Worker(WorkerId),
    /// To one of these, the first and the last: large workers that share a class of sizes
    /// ([`SizeRanges::ranges_of`](crate::ranges::SizeRanges::ranges_of)). Which one,
    /// [`WorkerTarget::shortest`] says.
    Between(WorkerId, WorkerId),
}

impl WorkerTarget {
    /// One worker: of those it may be the one with the least queued, by `queued`; among equals the
    /// next one in turn, where `turn` is any number that the caller counts up.
    pub fn shortest(
        self,
        plan: &CorePlan,
        turn: u64,
        mut queued: impl FnMut(WorkerId) -> u64,
    ) -> WorkerId {
        let among = match self {
            WorkerTarget::Worker(worker) => return worker,
            WorkerTarget::Between(first, last) => ids(first.index(), last.index() + 1),
            WorkerTarget::Shared => ids(usize::from(plan.workers_small), plan.roles.len()),
        };
        let count = among.clone().count() as u64;
        assert!(count > 0, "a plan that shares a queue has large workers to share it");
        let skip = (turn % count) as usize;
        let in_turn = among.clone().skip(skip).chain(among.take(skip));
        // The first of equals is kept, hence the one whose turn it is.
        in_turn.min_by_key(|&worker| queued(worker)).unwrap_or_default()
    }

    /// One worker, in turn.
    pub fn in_turn(self, plan: &CorePlan, turn: u64) -> WorkerId {
        self.shortest(plan, turn, |_| 0)
    }
}

/// Which lane a request of this size belongs to.
#[inline]
pub fn lane(plan: &CorePlan, size: ItemBytes) -> Lane {
    if size < plan.threshold { Lane::Small } else { Lane::Large }
}

/// Where the request for `size` bytes that worker `me` holds is served.
///
/// A standby that is told [`Route::HereInSlices`] raises its flag first; a target may be the
/// standby as well.
#[inline]
pub fn route(plan: &CorePlan, me: WorkerId, size: ItemBytes) -> Route {
    match lane(plan, size) {
        Lane::Small if plan.large_lane == LargeLane::Everything => route_large(plan, me, size),
        Lane::Small => Route::Here,
        Lane::Large => route_large(plan, me, size),
    }
}

fn route_large(plan: &CorePlan, me: WorkerId, size: ItemBytes) -> Route {
    let here = if plan.slice_bytes.is_some() { Route::HereInSlices } else { Route::Here };
    let to = |worker| {
        if worker == me { here } else { Route::Hand(WorkerTarget::Worker(worker)) }
    };
    match (&plan.large_lane, plan.standby()) {
        (LargeLane::None, _) => Route::Here,
        (LargeLane::TimeShared, _) => here,
        (_, Some(standby)) => to(standby),
        (LargeLane::SharedQueue | LargeLane::Everything, None) => {
            if plan.role(me).serves_large() {
                here
            } else {
                Route::Hand(WorkerTarget::Shared)
            }
        }
        (LargeLane::Ranges(ranges), None) => {
            let worker = |range: usize| WorkerId(plan.workers_small + range as u16);
            match ranges.ranges_of(size) {
                (low, high) if low == high => to(worker(low)),
                (low, high) if (worker(low)..=worker(high)).contains(&me) => here,
                (low, high) => Route::Hand(WorkerTarget::Between(worker(low), worker(high))),
            }
        }
    }
}

/// What is known of one request before it is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The worker that its key belongs to.
    pub owner: WorkerId,
    /// It may change the item.
    pub writes: bool,
    /// Size of the item, where the request says it or somebody has looked.
    pub size: Option<ItemBytes>,
}

/// In whose queue the worker `me` puts one request that it has received and parsed; `None`: it
/// serves it at once. In `hkh-ws` that is its own, where an idle worker may find it; in `sho` the
/// shared one.
///
/// `lanes` hands no single requests over: its large ones go by [`route`], with what carries them.
#[inline]
pub fn hand(plan: &CorePlan, me: WorkerId, asked: &Asked) -> Option<WorkerTarget> {
    match plan.design {
        Design::Lanes => None,
        Design::Minos => match route(plan, me, asked.size?) {
            Route::Hand(target) => Some(target),
            Route::Here | Route::HereInSlices => None,
        },
        Design::Hkh => {
            let is_anothers = asked.owner != me && plan.access.is_owners(asked.writes);
            is_anothers.then_some(WorkerTarget::Worker(asked.owner))
        }
        Design::HkhWs => plan.steal.when_idle.then_some(WorkerTarget::Worker(me)),
        Design::Sho => {
            let serves = plan.large_lane != LargeLane::Everything || plan.role(me).serves_large();
            (!serves).then_some(WorkerTarget::Shared)
        }
    }
}

/// Whether [`hand`] can say anything but `None` of a request whose size nobody has looked up: then
/// the worker must ask it for every request.
pub fn hands_unseen(plan: &CorePlan) -> bool {
    match plan.design {
        Design::Lanes | Design::Minos => false,
        Design::Hkh => plan.access.is_owners(true),
        Design::HkhWs => plan.steal.when_idle,
        Design::Sho => plan.large_lane == LargeLane::Everything,
    }
}
