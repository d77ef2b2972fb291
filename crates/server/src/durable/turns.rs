//! Decides whose request is begun next. Connections take turns of one job each. Otherwise a
//! connection with many jobs under way would delay all others: with 8 jobs of 64 requests by some
//! milliseconds. A job that stands alone (a datagram's, a single request's) has a turn of its own.
//!
//! A connection's jobs begin in their order, and none begins while an earlier one waits for a
//! device: its line is stalled then.

use super::task::{ConnectionName, Task};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

/// Turns that may be waited for; further jobs stay in the queue, which is bounded too.
const TURNS_MAX: usize = 256;
/// Lines whose memory is kept for others: those of as many connections as a step serves.
const SPARE_MAX: usize = 64;

/// Whose turn it is.
enum Turn {
    /// A job that stands alone.
    Alone(Box<Task>),
    /// The first job of a connection's line.
    Of(ConnectionName),
}

/// The jobs of a connection that were not begun.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Task>,
    /// One that was begun waits for a device.
    stalled: bool,
    /// It waits for its turn.
    is_listed: bool,
}

/// Jobs that were not begun.
#[derive(Default)]
pub(super) struct Turns {
    order: VecDeque<Turn>,
    lines: HashMap<ConnectionName, Line>,
    /// How many of them are stalled.
    stalled: usize,
    /// Memory of lines that are no more: some kilobytes each, which no allocator has at hand.
    spare: Vec<VecDeque<Task>>,
    /// Jobs here, stalled ones included.
    jobs: usize,
}

impl Turns {
    /// One more job.
    pub fn enlist(&mut self, task: Task) {
        self.jobs += 1;
        let Some(name) = task.connection else {
            return self.order.push_back(Turn::Alone(Box::new(task)));
        };
        let spare = &mut self.spare;
        let line = self.lines.entry(name).or_insert_with(|| Line {
            waiting: spare.pop().unwrap_or_default(),
            ..Line::default()
        });
        line.waiting.push_back(task);
        if !line.stalled && !line.is_listed {
            line.is_listed = true;
            self.order.push_back(Turn::Of(name));
        }
    }

    /// The job that is begun next.
    pub fn next_job(&mut self) -> Option<Task> {
        while let Some(turn) = self.order.pop_front() {
            let name = match turn {
                Turn::Alone(task) => {
                    self.jobs -= 1;
                    return Some(*task);
                }
                Turn::Of(name) => name,
            };
            let Entry::Occupied(mut entry) = self.lines.entry(name) else { continue };
            let line = entry.get_mut();
            line.is_listed = false;
            if line.stalled {
                continue; // it is listed anew when it goes on
            }
            let task = line.waiting.pop_front();
            if !line.waiting.is_empty() {
                line.is_listed = true;
                self.order.push_back(Turn::Of(name));
            } else if self.spare.len() < SPARE_MAX {
                self.spare.push(entry.remove().waiting);
            } else {
                entry.remove();
            }
            if task.is_some() {
                self.jobs -= 1;
                return task;
            }
        }
        None
    }

    /// A job of this connection was begun and waits: none behind it begins.
    pub fn stall(&mut self, name: ConnectionName) {
        let line = self.lines.entry(name).or_default();
        self.stalled += usize::from(!line.stalled);
        line.stalled = true;
    }

    /// The job that waited is done: those behind it go on, the first of them before any other,
    /// since it has waited longest.
    pub fn unstall(&mut self, name: ConnectionName) {
        if self.stalled == 0 {
            return; // as with nearly every job that is done
        }
        let Some(line) = self.lines.get_mut(&name) else { return };
        self.stalled -= usize::from(line.stalled);
        line.stalled = false;
        if line.waiting.is_empty() {
            self.lines.remove(&name);
        } else if !line.is_listed {
            line.is_listed = true;
            self.order.push_front(Turn::Of(name));
        }
    }

    /// Whether more jobs may wait here.
    pub fn has_room(&self) -> bool {
        self.order.len() < TURNS_MAX
    }

    /// Whether nobody waits for a turn.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Jobs that were not begun.
    pub fn len(&self) -> usize {
        self.jobs
    }
}

#[cfg(test)]
mod tests {
    use super::{SPARE_MAX, Turns};
    use crate::durable::task::Task;
    use crate::jobs::handoff::Work;
    use laneway_policy::WorkerId;
    use laneway_transport::Token;

    /// A job of a connection, or of nobody's, that is told by its number.
    fn job(connection: Option<u32>, number: u64) -> Task {
        let work = Work::Request { bytes: Vec::new(), ends: true, read_only: false };
        let token = |slot| Token { slot, generation: 0 };
        let connection = connection.map(|slot| (WorkerId(0), token(slot)));
        Task { connection, bytes: number, ..Task::new(work, 0, None) }
    }

    fn all(turns: &mut Turns) -> Vec<u64> {
        std::iter::from_fn(|| turns.next_job()).map(|task| task.bytes).collect()
    }

    #[test]
    fn one_with_many_jobs_has_a_turn_as_others_have() {
        let mut turns = Turns::default();
        (0..4).for_each(|number| turns.enlist(job(Some(1), number)));
        turns.enlist(job(Some(2), 10));
        turns.enlist(job(None, 20));
        turns.enlist(job(Some(2), 11));
        assert_eq!(turns.len(), 7);
        assert_eq!(all(&mut turns), [0, 10, 20, 1, 11, 2, 3]);
        assert!(turns.is_empty());
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn jobs_behind_one_that_waits_wait_and_are_the_next_once_it_is_done() {
        let mut turns = Turns::default();
        let name = job(Some(1), 0).connection.expect("it has one");
        (0..3).for_each(|number| turns.enlist(job(Some(1), number)));
        turns.enlist(job(Some(2), 10));
        assert_eq!(turns.next_job().map(|task| task.bytes), Some(0));
        turns.stall(name);
        turns.enlist(job(Some(1), 3));
        assert_eq!(all(&mut turns), [10]);
        assert!(turns.is_empty() && turns.len() == 3, "they are here all the same");
        turns.enlist(job(Some(2), 11));
        turns.unstall(name);
        assert_eq!(all(&mut turns), [1, 11, 2, 3]);
    }

    #[test]
    fn a_line_that_goes_on_before_its_turn_came_has_one_turn() {
        let mut turns = Turns::default();
        let name = job(Some(1), 0).connection.expect("it has one");
        (0..3).for_each(|number| turns.enlist(job(Some(1), number)));
        assert_eq!(turns.next_job().map(|task| task.bytes), Some(0));
        turns.enlist(job(Some(2), 10));
        turns.stall(name);
        turns.unstall(name);
        assert_eq!(all(&mut turns), [1, 10, 2]);
        turns.stall(name);
        turns.unstall(name);
        assert!(turns.lines.is_empty(), "nothing is kept of who has no job");
    }

    #[test]
    fn the_memory_of_a_line_is_the_next_ones() {
        let mut turns = Turns::default();
        for round in 0..3 {
            (0..SPARE_MAX as u32 + 9).for_each(|slot| turns.enlist(job(Some(slot), round)));
            assert!(turns.spare.is_empty(), "each that there is has been taken");
            assert_eq!(all(&mut turns).len(), SPARE_MAX + 9);
            assert_eq!((turns.lines.len(), turns.spare.len()), (0, SPARE_MAX));
        }
        let name = job(Some(1), 0).connection.expect("it has one");
        turns.stall(name);
        turns.stall(name);
        turns.unstall(name);
        assert_eq!((turns.stalled, turns.lines.len()), (0, 0));
    }
}
