//! A dispatcher with all requests in its queues, and workers that only serve: Shinjuku, which takes
//! a worker away from a request after a quantum (Kaffes et al., NSDI'19), and Perséphone's DARC,
//! which keeps workers for the kinds of short ones (`reserve`).
//!
//! The dispatcher has a core of its own beside the workers, takes no time, and has received what
//! it gives away. A worker that a request is taken from pays for that; it is taken only if another
//! one waits, which serves the rival: the paper's dispatcher interrupts whoever has had its
//! quantum. Preempted requests go to the queue's end (the paper's single queue). Not modelled: the
//! dispatcher's rate, the paper's queue for each type with a target of its own, a wire.

use super::reserve::{Profile, Reserved, WINDOW_REQUESTS};
use super::{Central, Doing, Machine, Request, Run, Transfer};
use crate::workload::{Draw, Mix};
use laneway_load::random::Random;
use std::collections::VecDeque;

/// The dispatcher's queues.
pub(super) struct Dispatcher {
    central: Option<Central>,
    /// By kind; all in the first one where kinds mean nothing.
    pub(super) queues: Vec<VecDeque<Transfer>>,
    order: Vec<usize>,
    reserved: Vec<Reserved>,
    profile: Profile,
    /// Workers that have had their quantum while nobody waited, and since when.
    overdue: u64,
    since: Vec<u64>,
}

impl Dispatcher {
    pub(super) fn new(machine: &Machine, mix: &Mix) -> Dispatcher {
        let workers = machine.settings.workers;
        let kinds = if machine.central == Some(Central::Reserve) { 2 } else { 1 };
        let all = Reserved { own: u64::MAX, longer: 0 };
        let mut dispatcher = Dispatcher {
            central: machine.central,
            queues: vec![VecDeque::new(); kinds],
            order: (0..kinds).collect(),
            reserved: vec![all; kinds],
            profile: Profile::new(kinds, workers),
            overdue: 0,
            since: vec![0; usize::from(workers)],
        };
        if kinds > 1 {
            // As the other policies: taught the mix before it begins.
            let mut draw = Draw::new(mix);
            let mut random = Random::new(0);
            for _ in 0..4 * WINDOW_REQUESTS {
                let drawn = draw.draw(&mut random);
                let service = machine.costs.of(&drawn);
                dispatcher.profile.served(usize::from(drawn.large), service as f64 / 1e3);
            }
            dispatcher.turn();
        }
        dispatcher
    }

    fn kind(&self, request: &Request) -> usize {
        usize::from(request.large).min(self.queues.len() - 1)
    }

    /// Whether reservations have changed.
    fn turn(&mut self) -> bool {
        let Some((order, reserved)) = self.profile.turn() else { return false };
        (self.order, self.reserved) = (order, reserved);
        true
    }

    /// The next one that this worker may serve.
    fn next_for(&mut self, worker: usize) -> Option<Transfer> {
        let may = |reserved: &Reserved| (reserved.own | reserved.longer) >> worker & 1 == 1;
        let waits = |&&kind: &&usize| may(&self.reserved[kind]) && !self.queues[kind].is_empty();
        let kind = *self.order.iter().find(waits)?;
        self.queues[kind].pop_front()
    }

    fn quantum(&self) -> (u64, u64) {
        match self.central {
            Some(Central::Preempt { quantum, cost }) => (quantum, cost),
            _ => (u64::MAX, 0),
        }
    }
}

impl Run<'_> {
    /// A request has come to the dispatcher.
    pub(super) fn dispatch(&mut self, request: Request) {
        let spared = self.costs.receive.saturating_sub(self.costs.steal);
        let transfer = self.transfer(request, spared);
        let kind = self.dispatcher.kind(&request);
        self.dispatcher.queues[kind].push_back(transfer);
        let Reserved { own, longer } = self.dispatcher.reserved[kind];
        let idle = [self.asleep & own, self.asleep & longer].into_iter().find(|of| *of != 0);
        match idle {
            Some(idle) => self.wake(idle.trailing_zeros() as usize),
            None if self.dispatcher.overdue != 0 => {
                self.preempt(self.dispatcher.overdue.trailing_zeros() as usize);
            }
            None => {}
        }
    }

    /// The next request for a worker that has none, or rest.
    pub(super) fn next_dispatched(&mut self, worker: usize) {
        match self.dispatcher.next_for(worker) {
            Some(transfer) => self.begin_quantum(worker, transfer, 0),
            None => self.asleep |= 1 << worker,
        }
    }

    fn begin_quantum(&mut self, worker: usize, transfer: Transfer, cost: u64) {
        if !transfer.is_begun() && self.dispatcher.central == Some(Central::Reserve) {
            let wait = self.now - transfer.request.arrived;
            let kind = self.dispatcher.kind(&transfer.request);
            self.dispatcher.profile.waited(kind, wait as f64 / 1e3);
        }
        let piece = transfer.service_left.min(self.dispatcher.quantum().0);
        self.workers[worker].transfers.push_back(transfer);
        self.begin(worker, Doing::Quantum(piece), piece + cost);
    }

    /// A worker has served its request for so long.
    pub(super) fn quantum_over(&mut self, worker: usize, piece: u64) {
        if matches!(self.dispatcher.central, Some(Central::Share { .. })) {
            return self.share_over(worker, piece);
        }
        self.dispatcher.overdue &= !(1 << worker);
        let Some(mut transfer) = self.workers[worker].transfers.pop_front() else { return };
        transfer.service_left -= piece;
        if transfer.service_left == 0 {
            if self.dispatcher.central == Some(Central::Reserve) {
                let kind = self.dispatcher.kind(&transfer.request);
                self.dispatcher.profile.served(kind, transfer.request.service as f64 / 1e3);
            }
            self.served(worker, transfer.request, transfer.request.bytes);
            if self.dispatcher.turn() {
                (0..self.workers.len()).for_each(|other| self.wake(other));
            }
        } else if self.dispatcher.queues[0].is_empty() {
            let left = transfer.service_left;
            self.dispatcher.overdue |= 1 << worker;
            self.dispatcher.since[worker] = self.now;
            self.workers[worker].transfers.push_back(transfer);
            self.begin(worker, Doing::Quantum(left), left);
        } else {
            self.give_up(worker, transfer);
        }
    }

    /// Somebody waits: a worker whose request has had its quantum is taken from it at once.
    fn preempt(&mut self, worker: usize) {
        self.dispatcher.overdue &= !(1 << worker);
        let Some(mut transfer) = self.workers[worker].transfers.pop_front() else { return };
        let had = self.now - self.dispatcher.since[worker];
        // Counting may have begun since, from no time busy.
        let busy = &mut self.workers[worker].busy;
        *busy = busy.saturating_sub(transfer.service_left - had);
        transfer.service_left -= had;
        self.give_up(worker, transfer);
    }

    /// To the end of the queue with it, and on with the one in front.
    fn give_up(&mut self, worker: usize, transfer: Transfer) {
        self.dispatcher.queues[0].push_back(transfer);
        let (_, cost) = self.dispatcher.quantum();
        if let Some(next) = self.dispatcher.next_for(worker) {
            self.begin_quantum(worker, next, cost);
        }
    }
}
