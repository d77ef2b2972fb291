//! `sho`: software hand-off (RAMCloud; Minos §5 "SHO"). A few hand-off workers read all RX queues
//! and serve nothing; the others read none and take one request at a time from what was handed
//! over: late binding, bought with a hand-off for every request.
//!
//! It departs from the paper: what is handed over lies in one queue, not in one for each hand-off
//! worker. The number of hand-off workers is a setting; the paper tried 1, 2 and 3 and reports the
//! best. The threshold is for the statistics alone, as in [`Hkh`]. In the plan a hand-off worker is
//! [`crate::Role::Small`] (it reads RX queues) and the others are [`crate::Role::Large`].
//!
//! It knows no queue. Unit: workers.

use crate::cores::{Form, roles};
use crate::design::Design;
use crate::designs::{CorePolicy, Hkh};
use crate::plan::{CorePlan, EpochLoad, LargeLane};
use crate::settings::Settings;

/// The design's state from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Sho {
    hkh: Hkh,
    workers_handoff: u16,
}

impl Sho {
    /// Takes settings that [`Settings::check`] has passed.
    pub(super) fn new(settings: Settings) -> Self {
        Sho { workers_handoff: settings.workers_handoff, hkh: Hkh::new(settings) }
    }

    fn with_handoff(&self, plan: CorePlan) -> CorePlan {
        let workers = plan.workers();
        CorePlan {
            design: Design::Sho,
            form: Form::Roles,
            roles: roles(workers, workers - self.workers_handoff),
            workers_small: self.workers_handoff,
            large_lane: LargeLane::Everything,
            ..plan
        }
    }
}

impl CorePolicy for Sho {
    fn initial(&self) -> CorePlan {
        self.with_handoff(self.hkh.initial())
    }

    fn plan(&mut self, load: &EpochLoad) -> CorePlan {
        let plan = self.hkh.plan(load);
        self.with_handoff(plan)
    }
}
