//! Where a request goes that comes: to a rival's scheduler, or into an RX queue, that of its key's
//! owner where only the owner may serve it (MICA's access modes, NSDI'14 §4.1); and what becomes
//! of one that finds its queue full. Its client sends it again after some time, as often as it
//! takes; its latency counts from the first time. Unit: picoseconds.

use super::{Central, Reach, Request, Run, Rx};
use crate::events::NEVER;
use crate::workload::Drawn;
use laneway_load::random::mix_pair;
use std::collections::VecDeque;

/// Requests that were lost: when they come again, what they are, and their random bits, by which
/// they come to the same queue.
pub(super) type Lost = VecDeque<(u64, Request, u16)>;

impl Run<'_> {
    /// A request comes, for the first time or again.
    pub(super) fn enter(&mut self, request: Request, spare: u16) {
        let request = Request { came: self.now, ..request };
        let queue = match self.machine.central {
            None => self.queue_for(spare),
            Some(Central::Grant { .. }) => self.queue_granted(spare),
            Some(Central::Share { .. }) => return self.join_shortest(request),
            Some(Central::Preempt { .. } | Central::Reserve) => return self.dispatch(request),
        };
        let full = |rx: &Rx| self.rx[queue].len() >= rx.requests as usize;
        if let Some(rx) = self.machine.rx.filter(full) {
            return self.lose(request, spare, rx.retry);
        }
        self.rx[queue].push_back(request);
        match self.machine.central {
            Some(Central::Grant { interval, .. }) => self.wake_granted(queue, interval),
            _ => self.wake_for_rx(queue),
        }
    }

    /// The bits that say to which queue a request comes: of its key's hash, another one for each
    /// seed, where the key has an owner; else random ones.
    #[inline]
    pub(super) fn queue_bits(&self, drawn: &Drawn) -> u16 {
        match drawn.key {
            Some(key) if self.machine.settings.access.is_owners(drawn.put) => {
                (mix_pair(self.seed, u64::from(key)) >> 48) as u16
            }
            _ => drawn.spare,
        }
    }

    /// The RX queue that a request comes into.
    fn queue_for(&self, spare: u16) -> usize {
        if self.machine.central_queue {
            return 0;
        }
        let homes = match self.machine.reach {
            Reach::Unread | Reach::Sockets => self.workers.len(),
            Reach::Offered => usize::from(self.control.plan.workers_small),
        };
        (usize::from(spare) * homes) >> 16
    }

    fn lose(&mut self, request: Request, spare: u16, retry: u64) {
        self.outcome.lost += u64::from(request.counted);
        self.lost.push_back((self.now + retry, request, spare));
        if self.lost.len() == 1 {
            let source = self.source_again();
            self.events.set(source, self.now + retry);
        }
    }

    /// The first one that was lost comes again.
    pub(super) fn come_again(&mut self) {
        let Some((_, request, spare)) = self.lost.pop_front() else { return };
        let source = self.source_again();
        self.events.set(source, self.lost.front().map_or(NEVER, |(when, ..)| *when));
        self.enter(request, spare);
    }
}
