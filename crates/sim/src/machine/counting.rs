//! What of a run counts, and what it comes to: latencies by class and by half, how many requests
//! are in the machine on average, and what is left over at the end. Unit: picoseconds.

use super::{Central, Doing, Outcome, Request, Run, Window, streams};
use crate::events::NEVER;
use crate::stats::SECOND;
use crate::workload::Drawn;

/// Where less than this part of what arrived was answered meanwhile, the queues were growing.
const ANSWERED_MIN: f64 = 0.95;

impl Run<'_> {
    /// One more that counts.
    #[inline]
    pub(super) fn count(&mut self, drawn: Drawn) {
        if self.outcome.requests == 0 {
            self.begin_counting();
        }
        self.outcome.requests += 1;
        self.counted_left -= 1;
        self.small_left += u64::from(!drawn.large && drawn.replied);
        self.large_left += u64::from(drawn.large && drawn.replied);
        self.outcome.small_halves.arrived += u64::from(!drawn.large);
        self.outcome.large_halves.arrived += u64::from(drawn.large);
        if self.counted_left == self.traffic.requests / 2 {
            self.half_is_over();
        }
        if self.counted_left == 0 {
            self.end_counting();
        }
    }

    /// A window of time is over.
    pub(super) fn end_window(&mut self) {
        let length = self.traffic.window.unwrap_or(NEVER);
        let plan = &self.control.plan;
        let at_work = (0..self.workers.len()).filter(|&w| !self.control.reads(w)).count();
        self.outcome.windows.push(Window {
            end_s: self.window_end as f64 / SECOND as f64,
            p99_us: self.window.percentile_us(99.0),
            answered_per_s: self.window.count() as f64 * SECOND as f64 / length as f64,
            workers_large: at_work as u16,
            threshold: plan.threshold.0,
            large_percent: self.traffic.phases[self.phase].1.large_percent,
        });
        self.window.reset();
        self.window_end += length;
    }

    fn begin_counting(&mut self) {
        self.counting_from = self.now;
        self.area = 0.0;
        self.large_area = 0.0;
        self.cores.mean_since(0, self.now);
        self.area_since = self.now;
        self.large_area_since = self.now;
        self.answered = 0;
        for worker in &mut self.workers {
            (worker.busy, worker.requests, worker.packets) = (0, 0, 0);
        }
        if let Some(wire) = &mut self.wire {
            wire.busy = 0;
        }
    }

    fn half_is_over(&mut self) {
        self.area_changes();
        self.large_area_changes();
        self.half_at = self.now;
        self.half_areas = [self.area - self.large_area, self.large_area];
    }

    fn backlog_by_half(&mut self) {
        if self.half_at == NEVER {
            return;
        }
        let first = (self.half_at.min(self.now) - self.counting_from).max(1) as f64;
        let second = self.now.saturating_sub(self.half_at).max(1) as f64;
        let areas = [self.area - self.large_area, self.large_area];
        let by_class = [&mut self.outcome.small_halves, &mut self.outcome.large_halves];
        for ((halves, area), half) in by_class.into_iter().zip(areas).zip(self.half_areas) {
            halves.backlog = [half / first, (area - half) / second];
        }
    }

    /// All that is an average over the time in which arrivals counted.
    fn end_counting(&mut self) {
        self.area_changes();
        self.large_area_changes();
        self.backlog_by_half();
        let time = (self.now - self.counting_from).max(1) as f64;
        let outcome = &mut self.outcome;
        outcome.small_halves.unfinished = self.small_left;
        outcome.large_halves.unfinished = self.large_left;
        outcome.in_system = self.area / time;
        outcome.large_backlog = self.large_area / time;
        outcome.arrivals_per_s = outcome.requests as f64 / time * SECOND as f64;
        outcome.answered_per_s = self.answered as f64 / time * SECOND as f64;
        outcome.overloaded |= outcome.answered_per_s < ANSWERED_MIN * outcome.arrivals_per_s;
        let busy: u64 = self.workers.iter().map(|worker| worker.busy).sum();
        outcome.cpu_busy = busy as f64 / time / self.workers.len() as f64;
        outcome.cores = match self.machine.central {
            Some(Central::Grant { .. }) => self.cores.mean_since(self.counting_from, self.now),
            _ => self.workers.len() as f64,
        };
        outcome.wire_busy = self.wire.as_ref().map_or(0.0, |wire| wire.busy as f64 / time);
        outcome.per_worker = self.workers.iter().map(|w| (w.requests, w.packets)).collect();
    }

    #[inline]
    pub(super) fn area_changes(&mut self) {
        self.area += self.in_system as f64 * (self.now - self.area_since) as f64;
        self.area_since = self.now;
    }

    #[inline]
    pub(super) fn large_area_changes(&mut self) {
        let time = (self.now - self.large_area_since) as f64;
        self.large_area += self.large_in_system as f64 * time;
        self.large_area_since = self.now;
    }

    /// The reply is on its way to the client, or was never to be sent.
    #[inline]
    pub(super) fn answered(&mut self, request: &Request) {
        self.area_changes();
        self.in_system -= 1;
        self.answered += 1;
        if request.large {
            self.large_area_changes();
            self.large_in_system -= 1;
        }
        if !request.replied {
            return;
        }
        let latency = self.now - request.arrived + self.machine.network;
        if self.traffic.window.is_some() {
            self.window.record(latency);
        }
        if !request.counted {
            return;
        }
        self.over_limit += u64::from(latency > self.latency_limit);
        if request.arrived < self.half_at {
            self.first_half[usize::from(request.large)].record(latency);
        }
        if request.large {
            self.large_left -= 1;
            self.outcome.large.record(latency);
        } else {
            self.small_left -= 1;
            self.outcome.small.record(latency);
        }
    }

    /// What is still waiting counts with its age, so that a starved lane is not hidden.
    pub(super) fn finish_up(mut self) -> Outcome {
        if self.counted_left > 0 {
            self.end_counting();
        }
        let (now, half_at) = (self.now, self.half_at);
        let network = self.machine.network;
        let outcome = &mut self.outcome;
        let first_half = &mut self.first_half;
        let mut waits = |request: &Request| {
            if request.counted && request.large && request.replied {
                let age = now - request.arrived + network;
                outcome.large.record(age);
                if request.arrived < half_at {
                    first_half[1].record(age);
                }
            }
        };
        for worker in &self.workers {
            worker.batch.iter().for_each(&mut waits);
            worker.transfers.iter().for_each(|transfer| waits(&transfer.request));
            if let Doing::Serve(one) | Doing::Hand(one) | Doing::Cross(one) = &worker.doing {
                waits(one);
            }
        }
        self.rx.iter().flatten().for_each(&mut waits);
        self.lost.iter().for_each(|(_, request, _)| waits(request));
        let dispatched = self.dispatcher.queues.iter().flatten();
        self.shared.iter().chain(dispatched).for_each(|transfer| waits(&transfer.request));
        streams::waiting(&self.streams).for_each(&mut waits);
        if let Some(wire) = &self.wire {
            wire.waiting().for_each(&mut waits);
        }
        self.outcome.simulated = self.arrivals;
        let [small, large] = &self.first_half;
        self.outcome.small_halves.p99_us = self.outcome.small.p99_by_half(small);
        self.outcome.large_halves.p99_us = self.outcome.large.p99_by_half(large);
        let all = self.outcome.all();
        self.outcome.mean_us = all.mean_us();
        self.outcome.plan = Some(self.control.plan.clone());
        self.outcome.epochs_backed_up = self.control.epochs_backed_up;
        self.outcome
    }
}
