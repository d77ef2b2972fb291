//! The connections of one worker that wait because their client is over its limit. Each bucket has
//! a line for either lane, first come, first served; a line knows when it may go on, and the worker
//! sleeps until the first of them may. Nobody who waits is looked at before.
//!
//! Times are nanoseconds.

use crate::access::client_limits::Bucket;
use laneway_policy::Lane;
use laneway_policy::rate::BURST_NANOS;
use laneway_transport::Token;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A line: whose, and of which lane.
pub(crate) type LineName = (u64, bool);

/// The name of a bucket's line.
pub(crate) fn line_name(bucket: &Bucket, lane: Lane) -> LineName {
    (bucket.number, lane == Lane::Large)
}

/// Those who wait for one bucket.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) lane: Lane,
    /// Who waits; those who have left among them.
    pub(crate) tokens: VecDeque<Token>,
    /// Who was let go and has not had the turn for it.
    pub(crate) gone: Vec<Token>,
    /// Those in front who were let go last, and came too late.
    pub(crate) returned: usize,
    /// Since somebody was let go it has not been found that nothing is left.
    pub(crate) has_gone: bool,
    /// Other lines of the bucket that go first, at most, and how long each may take for it.
    pub(crate) behind: u64,
    pub(crate) others_nanos: u64,
}

impl Line {
    /// So many others go first, when there is something again: each may take as long as has to be
    /// waited for that.
    pub(crate) fn lets_others(&mut self, others: u64, now: u64, ready_nanos: u64) {
        self.behind = others;
        self.others_nanos = ready_nanos.saturating_sub(now).clamp(1, BURST_NANOS);
    }
}

/// All of a worker's lines.
#[derive(Debug, Default)]
pub(crate) struct Held {
    lines: BTreeMap<LineName, Line>,
    /// When each is looked at.
    dues: BTreeSet<(u64, LineName)>,
    /// The limits by which those times were made.
    edition: u64,
}

impl Held {
    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// When the first line is looked at.
    #[inline]
    pub(crate) fn due_nanos(&self) -> u64 {
        if self.is_empty() {
            return u64::MAX;
        }
        self.dues.first().map_or(u64::MAX, |(due, _)| *due)
    }

    /// Whether somebody is in this line: who comes now stands behind him.
    pub(crate) fn has(&self, name: LineName) -> bool {
        self.lines.contains_key(&name)
    }

    /// To the end of its line, or to the front of it, for who was let go and came too late: behind
    /// those who were let go before him. What it waits for is there at `ready_nanos`; a new line
    /// lets those that are there go first.
    pub(crate) fn push(
        &mut self,
        (bucket, lane): (&Arc<Bucket>, Lane),
        token: Token,
        to_front: bool,
        (now, ready_nanos): (u64, u64),
    ) {
        let name = line_name(bucket, lane);
        let dues = &mut self.dues;
        let line = self.lines.entry(name).or_insert_with(|| {
            dues.insert((ready_nanos, name));
            let mut line = Line {
                bucket: bucket.clone(),
                lane,
                tokens: VecDeque::new(),
                gone: Vec::new(),
                returned: 0,
                has_gone: false,
                behind: 0,
                others_nanos: 0,
            };
            line.lets_others(bucket.lines(), now, ready_nanos);
            bucket.has_line();
            line
        });
        if to_front {
            line.tokens.insert(line.returned, token);
            line.returned += 1;
        } else {
            line.tokens.push_back(token);
        }
    }

    /// Every line is to be looked at, if limits have changed since (`edition`), or there are none.
    pub(crate) fn follow(&mut self, edition: u64, is_limiting: bool) {
        if self.edition == edition && is_limiting {
            return;
        }
        self.edition = edition;
        self.lines.values_mut().for_each(|line| line.behind = 0);
        self.dues.clear();
        self.dues.extend(self.lines.keys().map(|name| (0, *name)));
    }

    /// The next line that is to be looked at by now; it goes back by [`Held::put`].
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Line> {
        let (due, name) = *self.dues.first()?;
        if now < due {
            return None;
        }
        self.dues.pop_first();
        self.lines.remove(&name)
    }

    /// A line is looked at again then; one where nobody is any more is forgotten.
    pub(crate) fn put(&mut self, line: Line, due_nanos: u64) {
        if line.tokens.is_empty() && line.gone.is_empty() {
            return line.bucket.has_lost_line();
        }
        let name = line_name(&line.bucket, line.lane);
        self.dues.insert((due_nanos, name));
        self.lines.insert(name, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(slot: u32) -> Token {
        Token { slot, generation: 0 }
    }

    fn bucket(number: u64) -> Arc<Bucket> {
        Arc::new(Bucket::new(number))
    }

    #[test]
    fn lines_are_looked_at_in_the_order_of_their_times_and_kept_while_somebody_is_in_them() {
        let mut held = Held::default();
        let (one, two) = (bucket(1), bucket(2));
        held.push((&one, Lane::Small), token(1), false, (0, 50));
        held.push((&two, Lane::Small), token(2), false, (0, 40));
        held.push((&one, Lane::Small), token(3), false, (0, 10)); // the line's time stands
        held.push((&one, Lane::Small), token(4), true, (0, 10));
        held.push((&one, Lane::Small), token(5), true, (0, 10));
        assert_eq!(held.due_nanos(), 40);
        assert!(held.take_due(39).is_none());
        let line = held.take_due(60).expect("it is due");
        assert_eq!((line.bucket.number, line.tokens.len()), (2, 1));
        let mut line_one = held.take_due(60).expect("it is due, too");
        assert_eq!(
            line_one.tokens,
            [4, 5, 1, 3].map(token),
            "those who come back keep their order"
        );
        assert!(held.is_empty() && held.take_due(u64::MAX).is_none());
        held.put(line, 70);
        line_one.tokens.clear();
        held.put(line_one, 70);
        let names = (line_name(&one, Lane::Small), line_name(&two, Lane::Small));
        assert!(!held.has(names.0) && held.has(names.1));
    }

    #[test]
    fn a_change_of_limits_is_followed_once() {
        let mut held = Held::default();
        let one = bucket(1);
        held.push((&one, Lane::Large), token(1), false, (0, 50));
        held.follow(0, true);
        assert_eq!(held.due_nanos(), 50);
        held.follow(1, true);
        assert_eq!(held.due_nanos(), 0);
        let line = held.take_due(0).expect("it is due");
        held.put(line, 90);
        held.follow(1, true);
        assert_eq!(held.due_nanos(), 90);
        held.follow(1, false);
        assert_eq!(held.due_nanos(), 0, "nobody waits where nothing is limited");
    }
}
