//! Which workers are kept for which kinds of requests: DARC, dynamic application-aware reserved
//! cores (Demoulin et al., "When Idling is Ideal", SOSP'21, §3).
//!
//! Kinds are put in the order of their mean service times, and neighbours that take about as long
//! share a group. A group is given the workers that its part of all service time makes, rounded,
//! one at least; a kind may use its group's workers and those of all longer ones, so that a longer
//! request never stands in a shorter one's way, and a worker may idle while a longer one waits.
//! Where workers run out the last one is for all that is left (the paper's spillway core). Workers
//! are bits, the lowest of the shortest kind; service times are nanoseconds.

/// Requests in a profiling window, at least.
pub const WINDOW_REQUESTS: u64 = 50_000;

/// Kinds share a group where the longer one's mean is below this many times the shortest one's.
const ALIKE: f64 = 1.2;

/// A wait of more than so many mean service times of its kind asks for another look.
const WAIT_MAX: f64 = 10.0;

/// A kind's part of all work has changed if it has by more than this part of itself.
const CHANGE_MIN: f64 = 0.1;

/// What was seen of a kind of requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Kind {
    /// Requests.
    pub count: u64,
    /// What they took together.
    pub service_ns: f64,
}

impl Kind {
    fn mean_ns(&self) -> f64 {
        if self.count == 0 { f64::INFINITY } else { self.service_ns / self.count as f64 }
    }
}

/// The workers that a kind may use, as masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved {
    /// Kept for its group: tried first.
    pub own: u64,
    /// Of longer kinds, or nobody's.
    pub longer: u64,
}

/// The kinds by their mean service time, the shortest first; those unseen last.
pub fn shortest_first(kinds: &[Kind]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    order.sort_by(|&a, &b| kinds[a].mean_ns().total_cmp(&kinds[b].mean_ns()));
    order
}

/// Who may use which of so many workers (1 to 64), by kind.
pub fn reserve(kinds: &[Kind], workers: u16) -> Vec<Reserved> {
    let all = u64::MAX >> (64 - u32::from(workers));
    let work: f64 = kinds.iter().map(|kind| kind.service_ns).sum();
    let order = shortest_first(kinds);
    let mut reserved = vec![Reserved::default(); kinds.len()];
    let mut given = 0;
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let bound = kinds[first].mean_ns() * ALIKE;
        let alike = |&&kind: &&usize| kinds[kind].mean_ns() < bound || kind == first;
        let (group, longer) = rest.split_at(rest.iter().take_while(alike).count());
        rest = longer;
        let part: f64 = group.iter().map(|&kind| kinds[kind].service_ns).sum();
        let wanted = whole(part / work * f64::from(workers));
        let left = u32::from(workers) - given;
        let got = wanted.min(left);
        let mut own = mask(given, got);
        if wanted > left {
            own |= 1 << (workers - 1);
        }
        given += got;
        for &kind in group {
            reserved[kind] = Reserved { own, longer: all & !mask(0, given) };
        }
    }
    reserved
}

/// Rounded, and one at least; nothing can be said of no work.
fn whole(demand: f64) -> u32 {
    ((demand + 0.499_999) as u32).max(1)
}

/// `count` bits from `from` on.
fn mask(from: u32, count: u32) -> u64 {
    let below = |bit: u32| u64::MAX.checked_shr(64 - bit).unwrap_or(0);
    below(from + count) & !below(from)
}

/// What is seen of all kinds, window by window.
#[derive(Debug, Clone)]
pub struct Profile {
    workers: u16,
    seen: Vec<Kind>,
    /// Of the window that the reservations in force are made of.
    before: Vec<Kind>,
    waited: bool,
}

impl Profile {
    /// Of so many kinds, none seen.
    pub fn new(kinds: usize, workers: u16) -> Profile {
        let none = vec![Kind::default(); kinds];
        Profile { workers, seen: none.clone(), before: none, waited: false }
    }

    /// A request was served.
    pub fn served(&mut self, kind: usize, service_ns: f64) {
        self.seen[kind].count += 1;
        self.seen[kind].service_ns += service_ns;
    }

    /// A request waited for a worker.
    pub fn waited(&mut self, kind: usize, wait_ns: f64) {
        self.waited |= wait_ns > WAIT_MAX * self.before[kind].mean_ns();
    }

    /// A window is over if it has enough requests, one of them had to wait, and the kinds' parts of
    /// the work have changed; then the order of the kinds and who may use which workers.
    pub fn turn(&mut self) -> Option<(Vec<usize>, Vec<Reserved>)> {
        let count: u64 = self.seen.iter().map(|kind| kind.count).sum();
        if count < WINDOW_REQUESTS || !self.waited && self.has_reservations() {
            return None;
        }
        let seen = vec![Kind::default(); self.seen.len()];
        let seen = std::mem::replace(&mut self.seen, seen);
        self.waited = false;
        if !self.has_changed(&seen) {
            return None;
        }
        self.before = seen;
        Some((shortest_first(&self.before), reserve(&self.before, self.workers)))
    }

    fn has_reservations(&self) -> bool {
        self.before.iter().any(|kind| kind.count > 0)
    }

    fn has_changed(&self, seen: &[Kind]) -> bool {
        let work = |kinds: &[Kind]| kinds.iter().map(|kind| kind.service_ns).sum::<f64>();
        let (before, now) = (work(&self.before).max(1e-9), work(seen));
        self.before.iter().zip(seen).any(|(one, other)| {
            let (old, new) = (one.service_ns / before, other.service_ns / now);
            (new - old > CHANGE_MIN * old) || (old - new > CHANGE_MIN * old)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(shares: &[(f64, f64)]) -> Vec<Kind> {
        let kind = |&(share, mean_ns): &(f64, f64)| {
            let count = (share * 1e6) as u64;
            Kind { count, service_ns: count as f64 * mean_ns }
        };
        shares.iter().map(kind).collect()
    }

    fn counts(shares: &[(f64, f64)], workers: u16) -> Vec<(u32, u32)> {
        let reserved = reserve(&kinds(shares), workers);
        reserved.iter().map(|one| (one.own.count_ones(), one.longer.count_ones())).collect()
    }

    #[test]
    fn a_kind_has_the_workers_that_its_part_of_the_work_makes_and_may_use_those_of_longer_ones() {
        // The paper's two bimodal mixes, on its 14 workers.
        assert_eq!(counts(&[(0.995, 500.0), (0.005, 500_000.0)], 14), [(2, 12), (12, 0)]);
        assert_eq!(counts(&[(0.5, 1_000.0), (0.5, 100_000.0)], 14), [(1, 13), (13, 0)]);
        // In whatever order they are told.
        assert_eq!(counts(&[(0.005, 500_000.0), (0.995, 500.0)], 16), [(13, 0), (3, 13)]);
        assert_eq!(counts(&[(1.0, 500.0)], 64), [(64, 0)]);
    }

    #[test]
    fn kinds_that_take_about_as_long_share_their_workers() {
        let reserved = reserve(&kinds(&[(0.4, 1_000.0), (0.4, 1_100.0), (0.2, 4_000.0)]), 8);
        assert_eq!(reserved[0], reserved[1]);
        assert_eq!(reserved[0].own.count_ones(), 4);
        assert_eq!(reserved[2], Reserved { own: 0xf0, longer: 0 });
    }

    #[test]
    fn where_workers_run_out_the_last_one_is_for_all_that_is_left() {
        let shares = [(0.9, 1_000.0), (0.02, 2_000.0), (0.02, 4_000.0), (0.01, 9_000.0)];
        let reserved = reserve(&kinds(&shares), 2);
        let own: Vec<u64> = reserved.iter().map(|one| one.own).collect();
        assert_eq!(own, [0b11, 0b10, 0b10, 0b10]);
        let unseen = reserve(&kinds(&[(1.0, 500.0), (0.0, 0.0)]), 4);
        assert_eq!(unseen[1].own, 0b1000, "a kind that nobody has seen is served by one");
    }

    #[test]
    fn a_window_ends_with_other_reservations_only_if_one_waited_and_the_work_is_another() {
        let mut profile = Profile::new(2, 8);
        let mut window = |large: u64, waits: bool| {
            for n in 0..WINDOW_REQUESTS {
                let kind = usize::from(n < large);
                profile.served(kind, if kind == 1 { 100_000.0 } else { 1_000.0 });
            }
            profile.waited(0, if waits { 1e6 } else { 1.0 });
            profile.turn().map(|(_, reserved)| reserved[0].own.count_ones())
        };
        assert_eq!(window(500, false), Some(4), "the first one");
        assert_eq!(window(5_000, false), None, "nobody waited");
        assert_eq!(window(5_000, true), Some(1));
        assert_eq!(window(5_000, true), None, "it is as it was");
    }
}
