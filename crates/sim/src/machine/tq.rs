//! A dispatcher that only chooses a worker, and workers that share their time among the requests
//! they have: Tiny Quanta (Luo et al., ASPLOS'24).
//!
//! A request goes to the worker with the fewest (its "JSQ"), among equals to the one that has
//! served most of those it has, which is likely to be done first ("MSQ"), and stays there. A worker
//! serves a request for a quantum and goes on to the next one; a new request is the next one, as
//! in the system's code. Code that its compiler inserts looks at the clock and yields, so that each
//! quantum but a request's first costs little. The dispatcher has a core of its own, takes no time
//! and knows all queues as they are, which serves the rival. Not modelled: the clock's probes in
//! between, a bound on a worker's requests, a wire. Unit: picoseconds.

use super::{Doing, Request, Run, Worker};

impl Worker {
    /// What it has served of the requests that it has.
    fn attained(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.request.service - transfer.service_left).sum()
    }
}

impl Run<'_> {
    /// A request has come to the dispatcher.
    pub(super) fn join_shortest(&mut self, request: Request) {
        let spared = self.costs.receive.saturating_sub(self.costs.steal);
        let transfer = self.transfer(request, spared);
        let shortest = |(_, one): &(usize, &Worker), (_, other): &(usize, &Worker)| {
            let by_length = one.transfers.len().cmp(&other.transfers.len());
            by_length.then_with(|| other.attained().cmp(&one.attained()))
        };
        let workers = self.workers.iter().enumerate();
        let Some(worker) = workers.min_by(shortest).map(|(worker, _)| worker) else { return };
        // The one at the front is under way.
        let queue = &mut self.workers[worker].transfers;
        queue.insert(queue.len().min(1), transfer);
        self.wake(worker);
    }

    /// The next quantum of a worker, or rest.
    pub(super) fn next_shared(&mut self, worker: usize, quantum: u64, cost: u64) {
        let Some(transfer) = self.workers[worker].transfers.front() else {
            self.asleep |= 1 << worker;
            return;
        };
        let again = if transfer.is_begun() { cost } else { 0 };
        let piece = transfer.service_left.min(quantum);
        self.begin(worker, Doing::Quantum(piece), piece + again);
    }

    /// A worker has served the request at its front for so long.
    pub(super) fn share_over(&mut self, worker: usize, piece: u64) {
        let queue = &mut self.workers[worker].transfers;
        let Some(mut transfer) = queue.pop_front() else { return };
        transfer.service_left -= piece;
        if transfer.service_left > 0 {
            queue.push_back(transfer);
        } else {
            self.served(worker, transfer.request, transfer.request.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Central, Machine, Traffic};
    use super::*;
    use crate::stats::US;
    use crate::workload::Mix;
    use laneway_policy::Design;

    #[test]
    fn among_equals_the_worker_that_has_served_most_gets_it_and_serves_it_next() {
        let central = Some(Central::Share { quantum: 2 * US, cost: 0 });
        let machine = Machine { central, ..Machine::new(Design::Hkh, 3) };
        let traffic = Traffic::steady(Mix::bimodal(100), 1.0, 1);
        let mut run = Run::new(&machine, &traffic, 1);
        let request = |bytes: u32| {
            let (service, large) = (u64::from(bytes) * US, bytes > 10);
            Request { service, bytes, large, replied: true, ..Request::default() }
        };
        for bytes in [101, 102, 103] {
            run.join_shortest(request(bytes));
        }
        let held = |run: &Run<'_>| {
            let bytes = |worker: &Worker| {
                let transfers = worker.transfers.iter();
                transfers.map(|transfer| transfer.request.bytes).collect::<Vec<_>>()
            };
            run.workers.iter().map(bytes).collect::<Vec<_>>()
        };
        assert_eq!(held(&run), [[101], [102], [103]], "the shortest queue is an empty one");
        run.now = 2 * US;
        run.worker_done(1);
        run.join_shortest(request(4));
        run.join_shortest(request(5));
        assert_eq!(held(&run), [vec![101, 5], vec![102, 4], vec![103]]);
        run.now = 4 * US;
        run.worker_done(1);
        assert_eq!(held(&run)[1], [4, 102], "by turns");
        run.worker_done(2);
        run.join_shortest(request(6));
        run.join_shortest(request(7));
        assert_eq!(held(&run), [vec![101, 5], vec![4, 7, 102], vec![103, 6]]);
    }
}
