//! The control loop's server half (Minos §3.1): once per epoch worker 0 gathers the sizes that all
//! workers counted, asks the policy for a plan, and publishes it. Also keeps the store's background
//! sweep going, a bounded piece per turn.

use crate::kernel::Kernel;
use crate::shared::{Shared, WorkerShared};
use crate::stream::backlog::notable_nanos;
use laneway_policy::histogram::CLASS_COUNT;
use laneway_policy::{CorePolicy, EpochLoad, ItemBytes, SizeClass, SizeHistogram};
use laneway_store::Moment;
use laneway_sync::planted::{Bug, is_planted};
use std::sync::atomic::Ordering::Relaxed;

/// How often the sweep goes on.
const TICK_NANOS: u64 = 100_000_000;
/// Slots that the sweep looks at then: 100 k a second. It does so in bounded steps (the store says
/// how long one is), one in a turn, so that no small request waits for more than one.
const SWEEP_SLOTS: usize = 10_000;
/// Where one of so many slots of a step has an item that is over, the step is not counted: many
/// items end together, and the sweep goes on for as long as they do.
const SWEEP_DENSE: usize = 8;
/// A step counts as so many at least: where it goes to other maintenance, a tick has an end too.
const SWEEP_SLOTS_LEAST: usize = 50;

/// Worker 0's extra duty.
pub struct Control {
    policy: Box<dyn CorePolicy + Send>,
    epoch_nanos: u64,
    epoch_ends_nanos: u64,
    tick_nanos: u64,
    /// Slots that the sweep is still to look at, of this tick.
    sweep_slots: usize,
    sizes_before: Vec<u64>,
    large_before: u64,
    backed_up_nanos_before: Vec<u64>,
    kernel_before: Vec<u64>,
}

impl Control {
    /// A control loop whose first epoch begins at `now`.
    pub fn new(policy: Box<dyn CorePolicy + Send>, epoch_nanos: u64, now: u64) -> Control {
        Control {
            policy,
            epoch_nanos,
            epoch_ends_nanos: now.saturating_add(epoch_nanos),
            tick_nanos: now + TICK_NANOS,
            sweep_slots: 0,
            sizes_before: vec![0; CLASS_COUNT],
            large_before: 0,
            backed_up_nanos_before: Vec::new(),
            kernel_before: Vec::new(),
        }
    }

    /// When it next has something to do.
    pub fn due_nanos(&self) -> u64 {
        self.epoch_ends_nanos.min(self.tick_nanos)
    }

    /// Whether it is in the midst of something: its next step is due at once.
    pub fn is_busy(&self) -> bool {
        self.sweep_slots > 0
    }

    /// Do what is due: one bounded step.
    pub fn step<S>(&mut self, shared: &Shared<S>, now: u64, moment: Moment) {
        if now >= self.tick_nanos {
            self.tick_nanos = now + TICK_NANOS;
            self.sweep_slots = SWEEP_SLOTS;
        }
        if self.sweep_slots > 0 {
            let mut swept = shared.store.sweep(moment, self.sweep_slots);
            while is_planted(Bug::SweepUnbounded) && !swept.is_over {
                swept = shared.store.sweep(moment, self.sweep_slots);
            }
            shared.swept.fetch_add(swept.expired as u64, Relaxed);
            let is_dense = swept.expired > 0 && swept.expired * SWEEP_DENSE >= swept.slots;
            let done = match swept.is_over {
                true => SWEEP_SLOTS,
                false if is_dense => 0,
                false => swept.slots.max(SWEEP_SLOTS_LEAST),
            };
            self.sweep_slots = self.sweep_slots.saturating_sub(done);
        }
        if now >= self.epoch_ends_nanos {
            self.epoch_ends_nanos = now.saturating_add(self.epoch_nanos);
            self.plan(shared);
        }
    }

    /// Whether some worker's replies waited for the wire for a notable part of the epoch.
    fn is_backed_up<S>(&mut self, shared: &Shared<S>) -> bool {
        let nanos = |worker: &WorkerShared<S>| worker.lanes.tx_backed_up_nanos.get();
        let now: Vec<u64> = shared.workers.iter().map(nanos).collect();
        let before = std::mem::replace(&mut self.backed_up_nanos_before, now);
        let before = before.into_iter().chain(std::iter::repeat(0));
        let mut waited = self.backed_up_nanos_before.iter().zip(before).map(|(now, was)| now - was);
        waited.any(|nanos| nanos >= notable_nanos(self.epoch_nanos))
    }

    /// GETs that the kernel answered in this epoch. It counts by octaves: each stands for the
    /// middle of its own.
    fn kernel_sizes<S>(&mut self, shared: &Shared<S>) -> SizeHistogram {
        let mut sizes = SizeHistogram::new();
        let Some(hits) = shared.kernel.get().and_then(Kernel::hits_of_class) else { return sizes };
        for (octave, &count) in hits.iter().enumerate() {
            let before = self.kernel_before.get(octave).copied().unwrap_or(0);
            let middle = ItemBytes((1 << octave) + (1 << octave) / 2);
            sizes.add(SizeClass::of(middle), count - before);
        }
        self.kernel_before = hits;
        sizes
    }

    fn plan<S>(&mut self, shared: &Shared<S>) {
        let mut large = 0;
        let mut sizes = vec![0; CLASS_COUNT];
        for worker in &shared.workers {
            for (sum, count) in sizes.iter_mut().zip(&worker.sizes) {
                *sum += count.get();
            }
            large += worker.lanes.requests_large.get();
        }
        let since = |class: usize| sizes[class] - self.sizes_before[class];
        let load = EpochLoad {
            sizes: SizeHistogram::from_fn(since),
            large_requests: large - self.large_before,
            tx_backed_up: self.is_backed_up(shared),
            sizes_kernel: self.kernel_sizes(shared),
        };
        (self.sizes_before, self.large_before) = (sizes, large);
        let plan = self.policy.plan(&load);
        let changed = plan.roles_changed_since(&shared.plan.get()) as u64;
        shared.epochs.fetch_add(1, Relaxed);
        shared.plan.publish(plan);
        if changed > 0 {
            let plan = shared.plan.get();
            let (small, threshold) = (plan.small_ids().count(), plan.threshold);
            log::debug!(
                "{changed} workers change roles: {small} small; large from {threshold} bytes"
            );
            shared.role_changes.fetch_add(changed, Relaxed);
            shared.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_without_an_end_is_not_over_at_once() {
        let policy = laneway_policy::build(laneway_policy::Settings::default());
        let control = Control::new(policy.expect("the defaults fit"), u64::MAX, 7);
        assert_eq!(control.due_nanos(), 7 + TICK_NANOS, "the sweep is what comes next");
    }
}
