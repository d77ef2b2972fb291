//! The large lane: slices, and connections that move. A large GET or SET is served by slices, one
//! per turn of its worker, so that small requests wait for one slice at most. Where workers have
//! roles the connection moves to a large worker for as long as the request takes, as one value; it
//! comes home after a few small requests or an idle turn (`policy::migrate`).

use crate::clock::Clock;
use crate::connection::{Connection, Mode, Unread};
use crate::latency::Operation;
use crate::output::Sent;
use crate::receive::{Next, Piece};
use crate::worker::Worker;
use laneway_policy::migrate::{self, Stay, Visit};
use laneway_policy::share::Run;
use laneway_policy::{BATCH, Role, Route, WorkerId, WorkerTarget, route};
use laneway_transport::{Interest, Token, Transport};
use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// Connections with large requests that a large worker takes on at a time; the rest wait in the
/// shared queue for whoever is free first.
const LARGE_AT_A_TIME: usize = 2;

impl<S> Connection<S> {
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

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Move one slice of the next large transfer. Returns whether there was one.
    pub(crate) fn slice_one(&mut self) -> io::Result<bool> {
        if self.is_turn_of_datagrams() {
            self.slice_datagrams()?;
            return Ok(true);
        }
        while let Some((token, urgent)) = self.large.pop() {
            let Some(mut connection) = self.table.take(token) else { continue }; // it has left
            connection.queued = false;
            // An error is the stream's: its peer is gone.
            let next = self.slice(&mut connection, urgent).unwrap_or(Next::Close);
            if next != Next::LargeFirst {
                connection.run = Run::default();
            }
            self.lanes().slices.add_owner(1);
            self.lanes().slices_urgent.add_owner(u64::from(urgent));
            self.turn_to_datagrams();
            self.place(token, connection, next, false)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// One slice: out of the reply, or into the item.
    fn slice(&mut self, connection: &mut Connection<T::Stream>, urgent: bool) -> io::Result<Next> {
        let budget = self.slice_budget();
        if !connection.output.is_empty() {
            self.limit_unsent(connection);
            match self.flush(connection, budget)? {
                Sent::Budget => return Ok(connection.next_slice(budget, urgent)),
                Sent::Blocked => return Ok(Next::Write),
                Sent::Waiting => return Ok(Next::Ticket),
                Sent::All => {}
            }
            if matches!(connection.mode, Mode::Body(_) | Mode::Joining { .. }) {
                return Ok(Next::Large);
            }
            connection.large = false;
            self.leave_unsent(connection, None);
            connection.unserved = !connection.input.is_empty();
            return Ok(if connection.closing {
                Next::Close
            } else if connection.unserved {
                Next::Small
            } else {
                Next::Read
            });
        }
        if matches!(connection.mode, Mode::Joining { .. }) {
            return self.join_slice(connection, urgent);
        }
        let in_place = connection.streams_in_place() && connection.input.is_empty();
        if matches!(connection.mode, Mode::Body(_)) && !in_place {
            return self.serve(connection); // a contiguous item: one read fills most of it
        }
        match self.receive_piece(connection, budget)? {
            Piece::Some => Ok(connection.next_slice(budget, urgent)),
            Piece::Unready => Ok(Next::Large),
            Piece::Later => Ok(Next::Read),
            Piece::End => Ok(Next::Close),
            Piece::Refused => Ok(Next::Small),
            Piece::Whole => {
                connection.large = false;
                self.serve(connection) // its `\r\n` is there, or comes next
            }
        }
    }

    /// One slice of a large item that something is joined to; behind the last one, the answer.
    fn join_slice(
        &mut self,
        connection: &mut Connection<T::Stream>,
        urgent: bool,
    ) -> io::Result<Next> {
        let Mode::Joining { joining, size, arrived } = &mut connection.mode else {
            return Ok(Next::Small);
        };
        let (size, arrived, budget) = (*size, *arrived, self.slice_budget());
        let mut out = std::mem::take(&mut self.out);
        let alone = self.shared.put_locks.enter(|| joining.hash());
        let touched = Cell::new(0);
        let done = joining.step(&self.context_for(&touched, joining.key()), budget, &mut out);
        drop(alone);
        self.out = out;
        if !done {
            return Ok(connection.next_slice(budget, urgent));
        }
        connection.mode = Mode::Requests;
        connection.large = false;
        self.account(connection, Operation::Set, size, arrived);
        connection.unserved = !connection.input.is_empty();
        self.send_out(connection)?;
        if connection.output.is_empty() {
            self.settle(connection);
        }
        let more = connection.unserved || !connection.output.is_empty();
        Ok(if more { Next::Small } else { Next::Read })
    }

    /// Put a connection where it goes on.
    pub(crate) fn place(
        &mut self,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
        next: Next,
        idle: bool,
    ) -> io::Result<()> {
        let receives = matches!(connection.mode, Mode::Body(_) | Mode::BodyEnd(_));
        connection.card.large.store(connection.large, Relaxed);
        connection.card.receives.store(receives, Relaxed);
        match next {
            Next::Close => {
                self.close(token, *connection);
                return Ok(());
            }
            Next::Hand => return self.hand(token, connection),
            Next::Read | Next::Small if self.goes_home(&mut connection, next, idle) => {
                return self.send_home(token, connection);
            }
            Next::Read => return self.park(token, connection, Interest::Read),
            Next::Write => {
                // Under a limit of ours it waits for that, which says nothing of the wire.
                if connection.large && connection.unsent_max.is_none() {
                    self.waits_for_peer(token, &mut connection);
                }
                return self.park(token, connection, Interest::Write);
            }
            // Readiness is left as it is: most replies are back before more input comes.
            Next::Ticket if connection.interest == Some(Interest::Read) => {}
            // Room to write, which there is, would be told again and again.
            Next::Ticket => return self.park(token, connection, Interest::Nothing),
            Next::Small => {
                connection.queued = true;
                self.small.push_back(token);
            }
            Next::Large => {
                connection.queued = true;
                self.large.push_back(token, connection.is_urgent());
            }
            Next::LargeFirst => {
                connection.queued = true;
                self.large.push_front(token, connection.is_urgent());
            }
        }
        self.table.put(token, connection);
        Ok(())
    }

    /// Let a connection wait for an event; for another turn, where no event would come.
    fn park(
        &mut self,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
        interest: Interest,
    ) -> io::Result<()> {
        let is_told_anew = connection.interest != Some(interest);
        if interest == Interest::Read && !is_told_anew && connection.unread != Unread::Nothing {
            connection.queued = true;
            match connection.large {
                true => self.large.push_back(token, connection.is_urgent()),
                false => self.small.push_back(token),
            }
            self.table.put(token, connection);
            return Ok(());
        }
        self.watch(token, connection, interest);
        Ok(())
    }

    /// Let a connection wait for an event.
    pub(crate) fn watch(
        &mut self,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
        interest: Interest,
    ) {
        match self.want(token, &mut connection, interest) {
            Ok(()) => self.table.put(token, connection),
            Err(error) => {
                // The kernel has no room to watch it: this one cannot be served, the others can.
                log::warn!("a connection was closed, it cannot be watched: {error}");
                self.close(token, *connection);
            }
        }
    }

    /// Whether a visiting connection has been here long enough.
    fn goes_home(&self, connection: &mut Connection<T::Stream>, next: Next, idle: bool) -> bool {
        let between_requests = matches!(connection.mode, Mode::Requests);
        let busy = connection.large || !connection.output.is_empty() || !between_requests;
        let Some(visit) = &mut connection.visit else {
            // Its worker has turned large and passed it over while it was busy.
            return self.plan.role(self.id) == Role::Large && !busy;
        };
        visit.turn_ended(busy, idle || next == Next::Read) == Stay::GoHome
    }

    /// Over to a large worker: nothing of the large request was consumed, so it begins there.
    fn hand(&mut self, token: Token, connection: Box<Connection<T::Stream>>) -> io::Result<()> {
        self.turn_number += 1;
        let shared = self.shared.clone();
        let Route::Hand(target) = route(&self.plan, self.id, self.plan.threshold) else {
            // The plan has changed since: it is served here after all.
            return self.place(token, connection, Next::Small, false);
        };
        let waiting = |id: WorkerId| {
            let worker = &shared.workers[id.index()];
            worker.lanes.waiting_large.get() + worker.mailbox.len() as u64
        };
        let worker = target.shortest(&self.plan, self.turn_number, waiting);
        let connection = self.uproot(token, connection)?;
        let queue = match target {
            WorkerTarget::Shared => &shared.large_queue,
            WorkerTarget::Worker(_) | WorkerTarget::Between(..) => {
                &shared.workers[worker.index()].mailbox
            }
        };
        match queue.push(connection) {
            Ok(()) => {
                self.lanes().moved_to_large.add_owner(1);
                shared.workers[worker.index()].wake();
                // Since then others may have become those who take from the shared queue, and have
                // found nothing there.
                let is_shared = target == WorkerTarget::Shared;
                if is_shared && shared.plan.edition.is_over(self.plan_version) {
                    shared.wake_all();
                }
                Ok(())
            }
            // The queue is full: it stays, and tries again next turn.
            Err(connection) => self.settle_in(connection),
        }
    }

    /// Home, or where home is now.
    pub(crate) fn send_home(
        &mut self,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        let home = migrate::home(&self.plan, connection.home, connection.card.number);
        if home != connection.home {
            self.shared.workers[connection.home.index()].connections.fetch_sub(1, Relaxed);
            self.shared.workers[home.index()].connections.fetch_add(1, Relaxed);
            connection.home = home;
        }
        let connection = self.uproot(token, connection)?;
        self.lanes().moved_home.add_owner(1);
        self.mail(home, connection)
    }

    /// Put a connection into another worker's mailbox.
    pub(crate) fn mail(
        &mut self,
        to: WorkerId,
        connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        if to == self.id {
            return self.settle_in(connection);
        }
        let shared = self.shared.clone();
        match shared.workers[to.index()].mailbox.push(connection) {
            Ok(()) => {
                shared.workers[to.index()].wake();
                Ok(())
            }
            Err(connection) => self.settle_in(connection), // full: it is served here meanwhile
        }
    }

    /// Take a connection out of the table and out of the transport.
    fn uproot(
        &mut self,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<Box<Connection<T::Stream>>> {
        if connection.interest.take().is_some() {
            self.transport.detach(&connection.stream)?;
        }
        connection.queued = false;
        self.backlog.goes_on(&mut connection);
        self.leave_unsent(&mut connection, None);
        self.table.release(token);
        Ok(connection)
    }

    /// Take in connections that others handed over; a bounded number.
    pub(crate) fn adopt(&mut self) -> io::Result<bool> {
        let here = &self.shared.workers[self.id.index()];
        if here.mailbox.is_empty() && (self.shared.large_queue.is_empty() || !self.takes_large()) {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let mut any = false;
        for _ in 0..BATCH {
            let Some(connection) = shared.workers[self.id.index()].mailbox.pop() else { break };
            self.settle_in(connection)?;
            any = true;
        }
        while self.takes_large() && self.large.len() < LARGE_AT_A_TIME {
            let Some(connection) = shared.large_queue.pop() else { break };
            self.settle_in(connection)?;
            any = true;
            // Its large request begins with this turn, or it would not count as one yet.
            if let Some(token) = self.small.pop_back() {
                if let Some(connection) = self.table.get_mut(token) {
                    connection.queued = false;
                }
                self.turn(token)?;
            }
        }
        Ok(any)
    }

    /// Give a connection a place here.
    pub(crate) fn settle_in(
        &mut self,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        let token = self.table.reserve();
        connection.token = token;
        connection.visit = (connection.home != self.id).then(|| Visit::new(connection.home));
        connection.interest = None;
        if connection.large {
            connection.queued = true;
            self.large.push_back(token, connection.is_urgent());
        } else if connection.unserved || !connection.output.is_empty() {
            connection.queued = true;
            self.small.push_back(token);
        } else {
            return self.park(token, connection, Interest::Read);
        }
        self.table.put(token, connection);
        Ok(())
    }
}
