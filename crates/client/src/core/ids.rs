//! Request ids: 16 bits, and a rest between two uses of one, so that neither a late reply nor the
//! server's memory of a repeated request is taken for another's. Times are nanoseconds.

use std::collections::VecDeque;

/// Which ids may be used, and from when.
pub(super) struct Ids {
    next: u16,
    unused: u32,
    /// By when they may be used again, soonest first. One queue per length of rest keeps the order.
    rested: [VecDeque<(u64, u16)>; 2],
}

impl Ids {
    /// All free; `first` is the first, so that two clients in turn on one port differ.
    pub(super) fn new(first: u16) -> Ids {
        Ids { next: first, unused: 1 << 16, rested: [VecDeque::new(), VecDeque::new()] }
    }

    /// An id that has rested.
    pub(super) fn take(&mut self, now_nanos: u64) -> Option<u16> {
        if self.unused > 0 {
            self.unused -= 1;
            let id = self.next;
            self.next = id.wrapping_add(1);
            return Some(id);
        }
        let soonest = self.rested.iter_mut().min_by_key(|queue| first_nanos(queue))?;
        (first_nanos(soonest) <= now_nanos).then(|| soonest.pop_front()).flatten().map(|(_, id)| id)
    }

    /// When [`Ids::take`] has one, if it has none before.
    pub(super) fn ready_nanos(&self) -> u64 {
        if self.unused > 0 { 0 } else { self.rested.iter().map(first_nanos).min().unwrap_or(0) }
    }

    /// Gives an id back, which rests for `rest_nanos`: always the same for one value of `write`.
    pub(super) fn give(&mut self, id: u16, write: bool, now_nanos: u64, rest_nanos: u64) {
        self.rested[usize::from(write)].push_back((now_nanos.saturating_add(rest_nanos), id));
    }
}

fn first_nanos(queue: &VecDeque<(u64, u16)>) -> u64 {
    queue.front().map_or(u64::MAX, |(nanos, _)| *nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_rests_before_it_is_used_again() {
        let mut ids = Ids::new(u16::MAX);
        let all: std::collections::BTreeSet<u16> =
            (0..=u16::MAX).map(|_| ids.take(0).expect("all are free")).collect();
        assert_eq!((all.len(), ids.take(1000)), (1 << 16, None));
        ids.give(5, true, 0, 100);
        ids.give(6, false, 50, 10);
        assert_eq!((ids.ready_nanos(), ids.take(59)), (60, None));
        assert_eq!((ids.take(60), ids.take(99), ids.take(100)), (Some(6), None, Some(5)));
        assert_eq!(ids.ready_nanos(), u64::MAX);
    }
}
