//! The large lane: slices, and connections that move. A large GET or SET is served by slices, one
//! per turn of its worker, so that small requests wait for one slice at most. Where workers have
//! roles the connection moves to a large worker for as long as the request takes, as one value; it
//! comes home after a few small requests or an idle turn (`policy::migrate`).

pub mod long_answer;
pub(crate) mod long_steps;
pub(crate) mod slices;

use crate::core::Core;
use crate::event_log::Parting;
use crate::jobs::handoff::{Finished, StreamOrigin};
use crate::latency::Operation;
use crate::resp::state::Under;
use crate::stream::connection::{Connection, Mode};
use crate::stream::output::Sent;
use crate::stream::receive::{Next, Piece};
use crate::stream::step::OUT_BYTES_PER_TURN;
use crate::stream::streams::Streams;
use laneway_policy::pace::Way;
use laneway_policy::share::{LARGE_AT_A_TIME, Run};
use laneway_policy::{BATCH, Lane};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{Interest, Token, Transport};
use laneway_wire::resp::Skip;
use std::io;

impl<S> Connection<S> {
    /// Its stream has failed.
    fn fails(&mut self) -> Next {
        self.parting = Parting::Error;
        Next::Close
    }

    /// After a slice that came to it in the line `was_urgent`: the next one at once, or after the
    /// others had theirs.
    fn next_slice(&mut self, moved: usize, was_urgent: bool) -> Next {
        let is_urgent = self.is_urgent();
        match self.run.goes_on(moved, was_urgent, is_urgent) {
            true => Next::LargeFirst,
            false => Next::Large,
        }
    }
}

impl<T: Transport> Streams<T> {
    /// A reply has come to the connection's home: fill its place. The connection goes on with its
    /// next turn ([`Streams::turn_brought`]).
    pub(crate) fn bring(&mut self, core: &Core<T>, origin: StreamOrigin, finished: Finished) {
        let in_slices = finished.large && core.sends_in_slices();
        // A connection that has closed waits for nothing: the reply is dropped, with its pins.
        let Some(connection) = self.table.get_mut(origin.token) else { return };
        if !connection.output.finish_with(origin.ticket, finished.reply) {
            return;
        }
        connection.tally.merge(&finished.tally);
        if let Some(undone) = &finished.undone {
            connection.put_back(undone);
        }
        if finished.fails
            && !is_planted(Bug::ErrorThenValues)
            && let Mode::Keys { line_bytes, .. } = connection.mode
        {
            connection.mode = Mode::Swallow(line_bytes as u64);
        }
        if finished.fails
            && let Mode::Resp(Under::Pairs(left)) = connection.mode
        {
            connection.mode = Mode::Resp(Under::Skip(Skip::arguments(2 * left)));
        }
        connection.is_answered();
        if let Some(visit) = &mut connection.visit {
            if finished.large { visit.large_served() } else { visit.small_served() }
        }
        if in_slices {
            connection.large = true;
            if !connection.queued {
                connection.queued = true;
                self.large.push_back(origin.token, connection.is_urgent());
            }
        } else if (!connection.queued || connection.held_nanos > 0)
            && !self.brought.contains(&origin.token)
        {
            self.brought.push(origin.token);
        }
    }

    /// Connections whose replies have come go on.
    pub(crate) fn turn_brought(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let mut brought = std::mem::take(&mut self.brought);
        for token in brought.drain(..) {
            let Some(connection) = self.table.get_mut(token) else { continue }; // it has left
            match (connection.queued, connection.held_nanos) {
                (false, _) => self.turn(core, token)?,
                (true, 0) => {} // one that has got in line has its turn there
                (true, _) => self.flush_held(core, token),
            }
        }
        self.brought = brought;
        Ok(())
    }

    /// The replies to what a connection has asked before it had to wait for its client's limit
    /// leave at once, or as its client takes them: they are no part of what it waits for. (A large
    /// one is: it leaves slice by slice.)
    fn flush_held(&mut self, core: &mut Core<T>, token: Token) {
        let Some(mut connection) = self.table.take(token) else { return };
        match self.flush(core, &mut connection, OUT_BYTES_PER_TURN) {
            Ok(Sent::Budget | Sent::Blocked) if !connection.large => {
                // It is told of room that there is already, too, although it may wait for that.
                connection.interest = connection.interest.map(|_| Interest::Nothing);
                self.watch(core, token, connection, Interest::Write);
            }
            // Where that fails its peer is gone, which its turn finds, too.
            _ => self.table.put(token, connection),
        }
    }

    /// Something happened to a connection whose reply is on its way: more input, which waits, or
    /// the end of its peer.
    pub(crate) fn disturbed(&mut self, core: &mut Core<T>, token: Token) -> io::Result<()> {
        let Some(connection) = self.table.take(token) else { return Ok(()) };
        match connection.interest {
            Some(Interest::Nothing) => self.close(core, token, *connection),
            Some(Interest::Write) => {
                self.table.put(token, connection);
                return self.turn(core, token);
            }
            Some(Interest::Read) | None => self.watch(core, token, connection, Interest::Nothing),
        }
        Ok(())
    }

    /// One slice: out of the reply, or into the item.
    fn slice(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        urgent: bool,
    ) -> io::Result<Next> {
        let began = core.clock.nanos();
        if !connection.output.is_empty() {
            connection.tally.has_slice(began);
            self.bound_unsent(core, connection);
            let budget = core.slice_budget(Way::Send);
            match self.flush(core, connection, budget)? {
                Sent::Budget => {
                    core.note_slice(Way::Send, budget, began);
                    return Ok(connection.next_slice(budget, urgent));
                }
                Sent::Blocked => return Ok(Next::Write),
                Sent::Waiting => return Ok(Next::Ticket),
                Sent::All => {}
            }
            if matches!(connection.mode, Mode::Body(_) | Mode::Joining { .. }) {
                return Ok(Next::Large);
            }
            connection.large = false;
            self.backlog.leave_unsent(connection, None);
            connection.unserved = connection.has_input();
            return Ok(if connection.closing {
                Next::Close
            } else if connection.unserved {
                Next::Small
            } else {
                Next::Read
            });
        }
        if matches!(connection.mode, Mode::Joining { .. }) {
            return self.join_slice(core, connection, urgent, began);
        }
        let in_place = connection.streams_in_place() && connection.input.is_empty();
        if matches!(connection.mode, Mode::Body(_)) && !in_place {
            return self.serve(core, connection); // a contiguous item: one read fills most of it
        }
        let budget = core.slice_budget(Way::Receive);
        match self.receive_piece(core, connection, budget)? {
            Piece::Some(bytes) => {
                core.note_slice(Way::Receive, bytes, began);
                Ok(connection.next_slice(bytes, urgent))
            }
            Piece::Unready => Ok(Next::Large),
            Piece::Later => Ok(Next::Read),
            Piece::End => Ok(Next::Close),
            Piece::Refused => Ok(Next::Small),
            Piece::Whole => {
                connection.large = false;
                self.serve(core, connection) // its `\r\n` is there, or comes next
            }
        }
    }

    /// One slice of a large item that something is joined to; behind the last one, the answer.
    fn join_slice(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        urgent: bool,
        began: u64,
    ) -> io::Result<Next> {
        let Mode::Joining { joining, size, arrived } = &mut connection.mode else {
            return Ok(Next::Small);
        };
        let (size, arrived, budget) = (*size, *arrived, core.slice_budget(Way::Copy));
        let done = joining.step(&core.context_for(joining.key()), budget, &mut self.out);
        if !done {
            core.note_slice(Way::Copy, budget, began);
            return Ok(connection.next_slice(budget, urgent));
        }
        connection.mode = Mode::Requests;
        connection.large = false;
        core.account_since(connection, Operation::Set, size, arrived);
        connection.unserved = connection.has_input();
        self.send_out(core, connection)?;
        if connection.output.is_empty() {
            self.settle(core, connection);
        }
        let more = connection.unserved || !connection.output.is_empty();
        Ok(if more { Next::Small } else { Next::Read })
    }

    /// Take in connections that others handed over; a bounded number.
    pub(crate) fn adopt(&mut self, core: &mut Core<T>) -> io::Result<bool> {
        let here = &core.shared.workers[core.id.index()];
        if here.mailbox.is_empty() && (core.shared.large_queue.is_empty() || !core.takes_large()) {
            return Ok(false);
        }
        let mut any = false;
        for _ in 0..BATCH {
            let mailbox = &core.shared.workers[core.id.index()].mailbox;
            let Some(connection) = mailbox.pop() else { break };
            self.settle_in(core, connection)?;
            any = true;
        }
        while core.takes_large() && self.large.len() < LARGE_AT_A_TIME {
            let Some(connection) = core.shared.large_queue.pop() else { break };
            self.settle_in(core, connection)?;
            any = true;
            // Its large request begins with this turn, or it would not count as one yet.
            if let Some(token) = self.small.pop_back() {
                if let Some(connection) = self.table.get_mut(token) {
                    connection.queued = false;
                }
                self.turn(core, token)?;
            }
        }
        Ok(any)
    }

    /// One turn of a connection in the small lane.
    pub(crate) fn turn(&mut self, core: &mut Core<T>, token: Token) -> io::Result<()> {
        let Some(mut connection) = self.table.take(token) else { return Ok(()) };
        core.asker = connection.card.number;
        let served = connection.unserved;
        let next = self.serve(core, &mut connection);
        let next = next.unwrap_or_else(|_| connection.fails()); // the peer is gone
        self.place(core, token, connection, next, !served)
    }

    /// A stream is ready: a large one gets in line for its slice, a small one is served now.
    pub(crate) fn wakened(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        ends: bool,
    ) -> io::Result<()> {
        let Some(connection) = self.table.get_mut(token) else { return Ok(()) }; // stale
        // A connection that waits for room to write is told of that room here; it is told of
        // unread bytes when it waits for those again.
        if ends || connection.interest != Some(Interest::Write) {
            connection.is_told(ends);
        }
        if connection.queued {
            let is_held = connection.held_nanos > 0 && !connection.large;
            if is_held && connection.interest == Some(Interest::Write) {
                self.flush_held(core, token);
            }
            return Ok(()); // its turn comes anyway
        }
        if connection.waits() {
            return self.disturbed(core, token);
        }
        if connection.large {
            connection.queued = true;
            self.backlog.goes_on(connection);
            self.large.push_back(token, connection.is_urgent());
            return Ok(());
        }
        self.turn(core, token)
    }

    /// A turn for the next connection that had to wait for another one.
    pub(crate) fn another_turn(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let Some(token) = self.small.pop_front() else { return Ok(()) };
        let Some(connection) = self.table.get_mut(token) else { return Ok(()) }; // it has left
        connection.queued = false;
        self.turn(core, token)
    }

    /// Move one slice of the next large transfer. Returns whether there was one.
    pub(crate) fn slice_one(&mut self, core: &mut Core<T>) -> io::Result<bool> {
        while let Some((token, urgent)) = self.large.pop() {
            let Some(mut connection) = self.table.take(token) else { continue }; // it has left
            connection.queued = false;
            core.asker = connection.card.number;
            if core.is_limiting && self.is_over_limit(core, &mut connection, Lane::Large) {
                self.place(core, token, connection, Next::Held, false)?;
                return Ok(true);
            }
            // An error is the stream's: its peer is gone.
            let next = self.slice(core, &mut connection, urgent);
            let next = next.unwrap_or_else(|_| connection.fails());
            if next != Next::LargeFirst {
                connection.run = Run::default();
            }
            core.slice_most = usize::MAX;
            core.count_moved(&mut connection);
            core.lanes().slices.add_owner(1);
            core.lanes().slices_urgent.add_owner(u64::from(urgent));
            self.place(core, token, connection, next, false)?;
            return Ok(true);
        }
        Ok(false)
    }
}
