//! `stats buckets`, read: how long the requests of a lane took between two moments.

use crate::asking::Family;
use std::collections::BTreeMap;

/// What a request's time is told by, as the server names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Whole,
    Wait,
    Service,
    Drain,
}

/// Requests by the end of their bucket in nanoseconds, for each lane and part.
#[derive(Debug, Clone, Default)]
pub struct Latencies(BTreeMap<(bool, Part), BTreeMap<u64, u64>>);

impl Latencies {
    /// What was counted between these two answers.
    pub fn between(earlier: &Family, later: &Family) -> Latencies {
        let mut found = Latencies::of(later);
        for (key, buckets) in Latencies::of(earlier).0 {
            for (end, before) in buckets {
                let count = found.0.entry(key).or_default().entry(end).or_default();
                *count = count.saturating_sub(before);
            }
        }
        found
    }

    /// All operations of one answer, added up.
    fn of(family: &Family) -> Latencies {
        let mut found = Latencies::default();
        for (name, count) in &family.0 {
            let words: Vec<&str> = name.split(':').collect();
            let [_, lane, part, end] = words[..] else { continue };
            let part = match part {
                "whole_ns" => Part::Whole,
                "wait_ns" => Part::Wait,
                "service_ns" => Part::Service,
                "drain_ns" => Part::Drain,
                _ => continue,
            };
            let end = if end == "more" { Some(u64::MAX) } else { end.parse().ok() };
            let (Some(end), Ok(count)) = (end, count.parse::<u64>()) else { continue };
            *found.0.entry((lane == "large", part)).or_default().entry(end).or_default() += count;
        }
        found
    }

    /// How many requests.
    pub fn count(&self, is_large: bool) -> u64 {
        self.0.get(&(is_large, Part::Whole)).map_or(0, |buckets| buckets.values().sum())
    }

    /// This share of the requests took less, in nanoseconds; none where there were none.
    pub fn quantile(&self, is_large: bool, part: Part, share: f64) -> Option<u64> {
        let buckets = self.0.get(&(is_large, part))?;
        let all: u64 = buckets.values().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let found = buckets.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_came_between_and_of_all_operations() {
        let before = Family::of("get:small:whole_ns:1024 1000\nget:large:whole_ns:2048 5");
        let after = Family::of(
            "get:small:whole_ns:1024 1090
             set:small:whole_ns:4096 9
             set:small:whole_ns:more 1
             set:small:wait_ns:1536 10
             get:large:whole_ns:2048 5
             get:large:nonsense 5",
        );
        let found = Latencies::between(&before, &after);
        assert_eq!((found.count(false), found.count(true)), (100, 0));
        let whole = |share| found.quantile(false, Part::Whole, share);
        assert_eq!(whole(0.5), Some(1_024));
        assert_eq!(whole(0.9), Some(1_024));
        assert_eq!(whole(0.99), Some(4_096));
        assert_eq!(whole(1.0), Some(u64::MAX));
        assert_eq!(found.quantile(false, Part::Wait, 0.5), Some(1_536));
        assert_eq!(found.quantile(true, Part::Whole, 0.5), None, "none came between");
        assert_eq!(found.quantile(false, Part::Drain, 0.5), None);
    }
}
