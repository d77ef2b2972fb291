//! The threads that wait for devices on the durable executor's behalf, without threads: orders and
//! reads lie here until a draw lets one end. There is a line for each thread that a server has:
//! what one of them does ends in its order, and each may overtake the others. Reads end in any
//! order.

use laneway_server::durable::hands::{DeviceExecutor, Done, Order, carry_out};
use laneway_tier::disk::sim::Random;
use laneway_tier::{Request, Tier};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines of orders: commits, large values, what needs room in the log, counts, checkpoints.
const LINES: usize = 5;

/// Whose line an order is in: one thread of a server's (`laneway_server::boot::executor`).
fn line_of(order: &Order) -> usize {
    match order {
        Order::Commit => 0,
        Order::Spill { .. } => 1,
        Order::Write { .. } | Order::Flush { .. } => 2,
        Order::Count { .. } => 3,
        Order::Checkpoint { .. } => 4,
    }
}

/// What waits and what has ended.
#[derive(Default)]
struct Queues {
    lines: [VecDeque<Order>; LINES],
    reads: Vec<(u64, Request)>,
    done: Vec<Done>,
    /// A commit was ordered since that was asked last, and one has ended well.
    begun: bool,
    committed: bool,
}

/// The devices of one server.
#[derive(Clone)]
pub struct Devices {
    tier: Arc<Tier>,
    queues: Arc<Mutex<Queues>>,
}

impl Devices {
    /// Of this store.
    pub fn new(tier: Arc<Tier>) -> Devices {
        let queues = Queues::default();
        Devices { tier, queues: Arc::new(Mutex::new(queues)) }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a commit was ordered since this was asked last.
    pub fn has_begun_commit(&self) -> bool {
        std::mem::take(&mut self.lock().begun)
    }

    /// Whether one has ended well since this was asked last.
    pub fn has_committed(&self) -> bool {
        std::mem::take(&mut self.lock().committed)
    }

    /// One thing ends, if anything waits. Returns whether it did.
    pub fn step(&self, random: &mut Random) -> bool {
        let mut queues = self.lock();
        let queues = &mut *queues;
        let kinds = LINES + 1;
        let first = random.below(kinds as u64) as usize;
        for kind in (first..first + kinds).map(|kind| kind % kinds) {
            let done = match queues.lines.get_mut(kind) {
                Some(line) => line.pop_front().map(|order| carry_out(&self.tier, order)),
                None if queues.reads.is_empty() => None,
                None => {
                    let at = random.below(queues.reads.len() as u64) as usize;
                    let (number, request) = queues.reads.swap_remove(at);
                    Some(Done::Read(number, self.tier.read(request)))
                }
            };
            if let Some(done) = done {
                queues.committed |= matches!(done, Done::Committed(Ok(())));
                queues.done.push(done);
                return true;
            }
        }
        false
    }
}

impl DeviceExecutor for Devices {
    fn order(&mut self, order: Order) {
        let mut queues = self.lock();
        queues.begun |= matches!(order, Order::Commit);
        queues.lines[line_of(&order)].push_back(order);
    }

    fn read(&mut self, number: u64, request: Request) {
        self.lock().reads.push((number, request));
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        into.append(&mut self.lock().done);
    }
}
