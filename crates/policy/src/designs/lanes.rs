//! `lanes` is our own design, and the default. It has Minos's control loop (§3.1) and five changes:
//!
//! - (a) one more large worker than the paper's rule gives, a real one where that gives a standby
//!   (and one more still if the standby would be half busy); from three workers up, and not while
//!   the wire is the bottleneck. The paper weighs the same (§6.1 "Latency of large requests").
//! - (b) all large workers share one queue, instead of a size range each;
//! - (c) large transfers go a slice a turn;
//! - (d) between slices a large worker takes small requests, one after the other, while some small
//!   RX queue is long, a batch at most;
//! - (e) an idle small worker takes one request from the longest small RX queue.
//!
//! On one or two workers none can be given away, and each serves both lanes, small first, then one
//! slice. The threshold stays between a frame and a slice. Where the wire is the bottleneck this
//! design is behind Minos's; so when replies back up (a) is dropped, unless large requests would
//! starve without, large bytes are capped, and (d) begins from longer queues.
//!
//! It knows no queue and no connection. Units: bytes, workers, requests.

use crate::cores::{ExtraGrant, Form, Role, Settled};
use crate::cores::{large_by_rule_lanes, large_needed_lanes, large_workers_lanes, roles};
use crate::design::Access;
use crate::designs::learned::Learned;
use crate::designs::{CorePolicy, Design};
use crate::plan::{CorePlan, EpochLoad, LargeLane, Steal};
use crate::plan::{STEAL_QUEUE_MIN, STEAL_QUEUE_MIN_FULL_WIRE, STEAL_REQUESTS_MAX};
use crate::settings::Settings;
use crate::threshold::{Clamp, ThresholdControl};
use crate::units::ItemBytes;
use alloc::vec;

/// Slices of large replies that a worker may have unsent while the wire is the bottleneck. What is
/// unsent behind others' frames in a round robin leaves slowly: with two slices the worker idles
/// while it has work, and in the simulator large p99 is half as high again as with eight;
/// small p99 is the same, for small replies have a TX queue of their own.
pub const SLICES_UNSENT_MAX: u64 = 8;

/// The design's state from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Lanes {
    settings: Settings,
    form: Form,
    learned: Learned,
    /// Large workers by the paper's rule.
    large_by_rule: Settled,
    /// Large workers that a full wire cannot take away.
    large_needed: Settled,
    extra: ExtraGrant,
    epoch: u64,
}

impl Lanes {
    /// Takes settings that [`Settings::check`] has passed.
    pub(super) fn new(settings: Settings) -> Self {
        let clamp = Clamp::frame_to_slice(settings.slice_bytes);
        Lanes {
            form: settings.form(),
            learned: Learned::new(ThresholdControl::new(&settings, clamp)),
            large_by_rule: Settled::new(0, settings.samples_min, settings.hysteresis_epochs),
            large_needed: Settled::new(0, settings.samples_min, settings.hysteresis_epochs),
            extra: ExtraGrant::new(settings.hysteresis_epochs),
            epoch: 0,
            settings,
        }
    }

    /// Take in one epoch's sizes.
    fn learn(&mut self, load: &EpochLoad) {
        let Some((low, high)) = self.learned.learn(load, &self.settings) else { return };
        let (workers, samples) = (self.settings.workers, load.sizes.total());
        let by_rule = |small_share| large_by_rule_lanes(small_share, workers);
        let needed = |small_share| large_needed_lanes(small_share, workers);
        self.large_by_rule.ask_within(by_rule(high), by_rule(low), samples);
        self.large_needed.ask_within(needed(high), needed(low), samples);
    }

    fn current(&self, load: &EpochLoad) -> CorePlan {
        let workers = self.settings.workers;
        let slice = self.settings.slice_bytes;
        let large = match self.form {
            Form::TimeShare => 0,
            Form::Roles => {
                let by_rule = self.large_by_rule.current();
                let by_wire = large_workers_lanes(by_rule, workers, self.extra.granted());
                by_wire.max(self.large_needed.current())
            }
        };
        CorePlan {
            epoch: self.epoch,
            design: Design::Lanes,
            form: self.form,
            threshold: self.learned.threshold.current(),
            roles: match self.form {
                Form::TimeShare => vec![Role::Both; usize::from(workers)],
                Form::Roles => roles(workers, large),
            },
            workers_small: workers - large,
            large_lane: match self.form {
                Form::TimeShare => LargeLane::TimeShared,
                Form::Roles => LargeLane::SharedQueue,
            },
            standby_raised: self.form == Form::Roles && large == 0 && load.large_requests > 0,
            slice_bytes: Some(slice),
            large_unsent_bytes_max: (!self.extra.granted())
                .then_some(ItemBytes(SLICES_UNSENT_MAX * slice.0)),
            steal: match self.form {
                Form::TimeShare => Steal { when_idle: workers > 1, ..Steal::NEVER },
                Form::Roles => Steal {
                    between_slices_queue_min: Some(match self.extra.granted() {
                        true => STEAL_QUEUE_MIN,
                        false => STEAL_QUEUE_MIN_FULL_WIRE,
                    }),
                    between_slices_requests_max: STEAL_REQUESTS_MAX,
                    when_idle: true,
                },
            },
            access: Access::Crcw,
        }
    }
}

impl CorePolicy for Lanes {
    fn initial(&self) -> CorePlan {
        self.current(&EpochLoad::default())
    }

    fn plan(&mut self, load: &EpochLoad) -> CorePlan {
        self.epoch += 1;
        self.learn(load);
        self.extra.after_epoch(load.tx_backed_up);
        self.current(load)
    }
}
