//! The threads that wait for devices on the durable executor's behalf, without threads: orders and
//! reads lie here until a draw lets one end. Commits end in their order, and so do other orders;
//! reads end in any order, as they do in a server.

use laneway_server::durable::hands::{Done, Hands, Order, carry_out};
use laneway_tier::disk::sim::Random;
use laneway_tier::{Request, Tier};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What waits and what has ended.
struct Queues {
    commits: VecDeque<Order>,
    others: VecDeque<Order>,
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
        let queues = Queues {
            commits: VecDeque::new(),
            others: VecDeque::new(),
            reads: Vec::new(),
            done: Vec::new(),
            begun: false,
            committed: false,
        };
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
        let first = random.below(3);
        for kind in (first..first + 3).map(|kind| kind % 3) {
            let done = match kind {
                0 => queues.commits.pop_front().map(|order| carry_out(&self.tier, order)),
                1 => queues.others.pop_front().map(|order| carry_out(&self.tier, order)),
                _ if queues.reads.is_empty() => None,
                _ => {
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

impl Hands for Devices {
    fn order(&mut self, order: Order) {
        let mut queues = self.lock();
        match order {
            Order::Commit => {
                queues.begun = true;
                queues.commits.push_back(order);
            }
            order => queues.others.push_back(order),
        }
    }

    fn read(&mut self, number: u64, request: Request) {
        self.lock().reads.push((number, request));
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        into.append(&mut self.lock().done);
    }
}
