//! `hkh-ws`: key-hash sharding with work stealing (ZygOS; Minos §5 "HKH + work stealing"). As
//! [`Hkh`], except that an idle worker takes one request at a time from those that another has
//! received and not begun, or where there is none, from another's RX queue.
//!
//! Nobody knows a request's size before serving it, so large ones are taken as well. It knows no
//! queue: whoever carries the plan out finds the longest. Unit: as in [`Hkh`].

use crate::design::Design;
use crate::designs::{CorePolicy, Hkh};
use crate::plan::{CorePlan, EpochLoad, Steal};
use crate::settings::Settings;

/// The design's state from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct HkhWs {
    hkh: Hkh,
}

impl HkhWs {
    /// Takes settings that [`Settings::check`] has passed.
    pub(super) fn new(settings: Settings) -> Self {
        HkhWs { hkh: Hkh::new(settings) }
    }

    fn with_stealing(plan: CorePlan) -> CorePlan {
        let steal = Steal { when_idle: plan.workers() > 1, ..Steal::NEVER };
        CorePlan { design: Design::HkhWs, steal, ..plan }
    }
}

impl CorePolicy for HkhWs {
    fn initial(&self) -> CorePlan {
        Self::with_stealing(self.hkh.initial())
    }

    fn plan(&mut self, load: &EpochLoad) -> CorePlan {
        Self::with_stealing(self.hkh.plan(load))
    }
}
