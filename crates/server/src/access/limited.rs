//! A client that is over its limit waits, and costs nobody anything meanwhile: none of its
//! connections has a turn, so nothing is read from them, and the kernel lets their clients wait. So
//! do the connections of a listener that is over its own.
//!
//! A connection asks before it reads, behind the flush of replies that were made already; a large
//! transfer asks before each slice. Who finds nothing left gets in line ([`crate::access::held`]).
//! When there is something again, as many are let go as there is for, and the next when those have
//! had their turn: a thousand connections of a client that may ask one thing a second are one timer
//! and one turn a second.
//!
//! A connection that both limits hold for waits for one after the other. What it was let through
//! by stays until it has its turn: it goes to the front of that line if there is nothing left
//! meanwhile, so no two lines send it back and forth behind those who come later. Who has waited
//! for both has a turn of one request, or slice, as soon as his listener has something: others may
//! take what his address has while he waits there, each time. His address is charged for it.

use crate::access::client_limits::{LimitOf, Rates};
use crate::access::held::{Line, line_name};
use crate::core::Core;
use crate::stream::connection::{Connection, Mode};
use crate::stream::streams::Streams;
use laneway_policy::pace::SLICE_BYTES_MIN;
use laneway_policy::{BATCH, Lane};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{Token, Transport};

impl<T: Transport> Streams<T> {
    /// Whether a connection is to wait because its client, or its listener, is over its limit;
    /// otherwise the turn, or the slice, that begins now is bounded by what is left.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_over_limit(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        lane: Lane,
    ) -> bool {
        (self.requests_most, core.slice_most) = (usize::MAX, usize::MAX);
        let now = core.clock.nanos();
        let limits = &core.shared.connections.clients.limits;
        let of_address = &mut connection.buckets[LimitOf::Address as usize];
        if of_address.is_none() && limits.rates().is_any() {
            *of_address = limits.bucket(&connection.card.peer, now);
        }
        core.count_moved(connection);
        connection.let_go = false;
        // A value that is whole is not kept from its item: it holds memory.
        let is_whole = matches!(connection.mode, Mode::BodyEnd(_));
        let has_waited =
            connection.let_through == [true; 2] && connection.held_by == LimitOf::Listener;
        let (mut requests, mut bytes) = (u64::MAX, u64::MAX);
        for by in LimitOf::ALL {
            let Some(bucket) = &connection.buckets[by as usize] else { continue };
            let rates = limits.rates_of(bucket);
            let left = match bucket.allowance(rates, lane, now) {
                left if has_waited && by == LimitOf::Address => left.at_least_one(rates),
                left => left,
            };
            let was_let_go = connection.let_through[by as usize];
            let is_first = was_let_go || !self.held.has(line_name(bucket, lane));
            bytes = bytes.min(left.bytes);
            requests = match left.is_any() && is_first {
                true => requests.min(left.requests),
                false if is_whole => requests.min(1),
                false => {
                    connection.held_nanos = now.max(1);
                    (connection.held_lane, connection.held_by) = (lane, by);
                    return true;
                }
            };
        }
        connection.let_through = [false; 2];
        self.requests_most = usize::try_from(requests).unwrap_or(usize::MAX);
        if lane == Lane::Large {
            core.slice_most = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        false
    }

    /// A connection that is over its client's limit, or its listener's, gets in line; in front, if
    /// it was let go from there and came too late.
    pub(crate) fn hold(
        &mut self,
        core: &Core<T>,
        token: Token,
        connection: &mut Connection<T::Stream>,
    ) {
        connection.queued = true;
        let (lane, by) = (connection.held_lane, connection.held_by as usize);
        let to_front = std::mem::take(&mut connection.let_through[by]);
        let Some(bucket) = &connection.buckets[by] else { return };
        let rates = core.shared.connections.clients.limits.rates_of(bucket);
        let ready = bucket.ready_nanos(rates, lane);
        self.held.push((bucket, lane), token, to_front, (connection.held_nanos, ready));
    }

    /// Let those go on for whom there is something again.
    #[inline]
    pub(crate) fn let_go(&mut self, core: &Core<T>, now: u64) {
        if !self.held.is_empty() {
            self.let_go_now(core, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn let_go_now(&mut self, core: &Core<T>, now: u64) {
        let limits = &core.shared.connections.clients.limits;
        self.held.follow(limits.edition(), core.is_limiting);
        for _ in 0..BATCH {
            let Some(mut line) = self.held.take_due(now) else { return };
            let is_limiting = core.is_limiting;
            let rates = if is_limiting { limits.rates_of(&line.bucket) } else { Rates::default() };
            if let Some(due_nanos) = turn_of_others(&mut line, rates, now) {
                self.held.put(line, due_nanos);
                continue;
            }
            let left = line.bucket.allowance(rates, line.lane, now);
            // Who moves bytes is taken to move a slice; there is at least one who may.
            let most = left.requests.min(left.bytes.div_ceil(SLICE_BYTES_MIN)).min(BATCH.into());
            let most = if left.is_any() { most as usize } else { 0 };
            self.let_go_of(core, &mut line, most, now);
            // What is left for the others is known when these have had their turn: this worker has
            // something to do, and looks again with its next step.
            let due_nanos = due_nanos(&mut line, rates, now);
            self.held.put(line, due_nanos);
        }
    }

    /// So many at most of a line have a turn again, once those before them have had theirs.
    fn let_go_of(&mut self, core: &Core<T>, line: &mut Line, most: usize, now: u64) {
        let table = &mut self.table;
        // Where nothing is limited any more a turn tells nobody that it was had, and nobody need
        // wait for it: whoever always asks for more would hold up those behind him for good.
        line.gone.retain(|token| {
            let is_to_come =
                |connection: &mut Connection<T::Stream>| connection.let_go && connection.queued;
            core.is_limiting && table.get_mut(*token).is_some_and(is_to_come)
        });
        if !line.gone.is_empty() {
            return;
        }
        line.returned = 0;
        while line.gone.len() < most {
            let Some(token) = line.tokens.pop_front() else { return };
            let Some(connection) = table.get_mut(token) else { continue }; // it has left
            if is_planted(Bug::HeldForgotten) {
                continue;
            }
            let since = std::mem::take(&mut connection.held_nanos);
            let waited = now.saturating_sub(since);
            if connection.unserved {
                // What was received already waited for the limit, as what was not does: neither
                // is a time in which the server was slow.
                connection.found_nanos = connection.found_nanos.saturating_add(waited);
            }
            core.count_held(connection, waited);
            connection.let_go = core.is_limiting;
            connection.let_through[connection.held_by as usize] = core.is_limiting;
            line.gone.push(token);
            line.has_gone = true;
            match connection.large {
                true => self.large.push_back(token, connection.is_urgent()),
                false => self.small.push_back(token),
            }
        }
    }
}

/// When a line is looked at next.
fn due_nanos(line: &mut Line, rates: Rates, now: u64) -> u64 {
    let ready = line.bucket.ready_nanos(rates, line.lane);
    match ready > now {
        true => {
            if std::mem::take(&mut line.has_gone) {
                line.lets_others(line.bucket.lines().saturating_sub(1), now, ready);
            }
            ready
        }
        // Not in this step again: those who were let go have their turns first.
        false => now.saturating_add(1),
    }
}

/// When a line is looked at again that lets another one go first: of workers that all looked at the
/// same moment one would take all, time and again. A line lets as many go as there were when it had
/// something, or was new, and none that is not there any more.
fn turn_of_others(line: &mut Line, rates: Rates, now: u64) -> Option<u64> {
    let others = line.bucket.lines().saturating_sub(1);
    line.behind = line.behind.min(others);
    line.behind = line.behind.checked_sub(1)?;
    let ready = line.bucket.ready_nanos(rates, line.lane);
    Some(if ready > now { ready } else { now.saturating_add(line.others_nanos) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::client_limits::Bucket;
    use crate::access::held::Held;
    use std::sync::Arc;

    #[test]
    fn a_line_that_has_something_left_is_looked_at_once_in_a_step() {
        let bucket = Arc::new(Bucket::new(1));
        let mut held = Held::default();
        held.push((&bucket, Lane::Small), Token { slot: 1, generation: 0 }, false, (0, 5));
        let mut line = held.take_due(5).expect("it is due");
        let due = due_nanos(&mut line, Rates::new(1, 0), 5);
        held.put(line, due);
        assert!(held.take_due(5).is_none());
        assert!(held.take_due(6).is_some(), "with the next step it is due again");
    }

    #[test]
    fn a_line_lets_others_go_first_and_none_that_has_gone() {
        const READY: u64 = 100_000_000;
        let (rates, token) = (Rates::new(10, 0), Token { slot: 1, generation: 0 });
        for (stay, first) in [(true, Some(2 * READY)), (false, None)] {
            let bucket = Arc::new(Bucket::new(1));
            bucket.charge(rates, (2, 0), 0);
            assert_eq!(bucket.ready_nanos(rates, Lane::Small), READY);
            // Of two workers.
            let [mut other, mut held] = [Held::default(), Held::default()];
            other.push((&bucket, Lane::Small), token, false, (0, READY));
            held.push((&bucket, Lane::Small), token, false, (0, READY));
            let mut before = other.take_due(READY).expect("it is due");
            assert_eq!(turn_of_others(&mut before, rates, READY), None, "it was there first");
            if !stay {
                before.tokens.clear();
            }
            other.put(before, 3 * READY);
            let mut line = held.take_due(READY).expect("it is due");
            assert_eq!(turn_of_others(&mut line, rates, READY), first);
            assert_eq!(turn_of_others(&mut line, rates, 2 * READY), None, "once for each");
        }
    }
}
