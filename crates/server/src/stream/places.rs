//! Where a connection goes on after a turn: in a line of this worker, waiting for an event, or at
//! another worker. Where workers have roles a connection with a large request moves to a large
//! worker for as long as the request takes, as one value; it comes home after a few small requests
//! or an idle turn (`policy::migrate`).

use crate::core::Core;
use crate::stream::connection::{Connection, Mode, Unread};
use crate::stream::receive::Next;
use crate::stream::streams::Streams;
use laneway_policy::migrate::{self, Stay, Visit};
use laneway_policy::{Route, WorkerId, WorkerTarget, route};
use laneway_transport::{Interest, Token, Transport};
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl<T: Transport> Streams<T> {
    /// Put a connection where it goes on.
    pub(crate) fn place(
        &mut self,
        core: &mut Core<T>,
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
                self.close(core, token, *connection);
                return Ok(());
            }
            Next::Hand => return self.hand(core, token, connection),
            Next::Read | Next::Small if self.goes_home(core, &mut connection, next, idle) => {
                return self.send_home(core, token, connection);
            }
            Next::Read => return self.park(core, token, connection, Interest::Read),
            Next::Write => {
                // Under a limit of ours it waits for that, which says nothing of the wire.
                if connection.large && connection.unsent_max.is_none() {
                    self.waits_for_peer(core, token, &mut connection);
                }
                return self.park(core, token, connection, Interest::Write);
            }
            // Readiness is left as it is: most replies are back before more input comes.
            Next::Ticket if connection.interest == Some(Interest::Read) => {}
            // Room to write, which there is, would be told again and again.
            Next::Ticket => return self.park(core, token, connection, Interest::Nothing),
            Next::Held => self.hold(core, token, &mut connection),
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
        core: &mut Core<T>,
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
        self.watch(core, token, connection, interest);
        Ok(())
    }

    /// Let a connection wait for an event.
    pub(crate) fn watch(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
        interest: Interest,
    ) {
        match self.want(core, token, &mut connection, interest) {
            Ok(()) => self.table.put(token, connection),
            Err(error) => {
                // The kernel has no room to watch it: this one cannot be served, the others can.
                log::warn!("a connection was closed, it cannot be watched: {error}");
                self.close(core, token, *connection);
            }
        }
    }

    /// Whether a visiting connection has been here long enough.
    fn goes_home(
        &self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        next: Next,
        idle: bool,
    ) -> bool {
        let busy = !connection.is_between_requests() || !connection.output.is_empty();
        let is_to_leave = core.is_to_leave(connection);
        let Some(visit) = &mut connection.visit else {
            return is_to_leave && !busy; // it was passed over while it was busy
        };
        visit.turn_ended(busy, idle || next == Next::Read) == Stay::GoHome
    }

    /// Over to a large worker: nothing of the large request was consumed, so it begins there.
    fn hand(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        core.turn_number += 1;
        let Route::Hand(target) = route(&core.plan, core.id, core.plan.threshold) else {
            // The plan has changed since: it is served here after all.
            return self.place(core, token, connection, Next::Small, false);
        };
        let waiting = |id: WorkerId| {
            let worker = &core.shared.workers[id.index()];
            worker.lanes.waiting_large.get() + worker.mailbox.len() as u64
        };
        let worker = target.shortest(&core.plan, core.turn_number, waiting);
        let connection = self.uproot(core, token, connection)?;
        let shared = &core.shared;
        let queue = match target {
            WorkerTarget::Shared => &shared.large_queue,
            WorkerTarget::Worker(_) | WorkerTarget::Between(..) => {
                &shared.workers[worker.index()].mailbox
            }
        };
        match queue.push(connection) {
            Ok(()) => {
                core.lanes().moved_to_large.add_owner(1);
                shared.workers[worker.index()].wake();
                // Since then others may have become those who take from the shared queue, and have
                // found nothing there.
                let is_shared = target == WorkerTarget::Shared;
                if is_shared && shared.plan.edition.is_over(core.plan_version) {
                    shared.wake_all();
                }
                Ok(())
            }
            // The queue is full: it stays, and tries again next turn.
            Err(connection) => self.settle_in(core, connection),
        }
    }

    /// Home, or where home is now.
    pub(crate) fn send_home(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        let home = migrate::home(&core.plan, connection.home, connection.card.number);
        if home != connection.home {
            core.shared.workers[connection.home.index()].connections.fetch_sub(1, Relaxed);
            core.shared.workers[home.index()].connections.fetch_add(1, Relaxed);
            connection.home = home;
        }
        let connection = self.uproot(core, token, connection)?;
        core.lanes().moved_home.add_owner(1);
        self.mail(core, home, connection)
    }

    /// Put a connection into another worker's mailbox.
    pub(crate) fn mail(
        &mut self,
        core: &mut Core<T>,
        to: WorkerId,
        connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        if to == core.id {
            return self.settle_in(core, connection);
        }
        let shared = &core.shared;
        match shared.workers[to.index()].mailbox.push(connection) {
            Ok(()) => {
                shared.workers[to.index()].wake();
                Ok(())
            }
            // Full: it is served here meanwhile.
            Err(connection) => self.settle_in(core, connection),
        }
    }

    /// Take a connection out of the table and out of the transport.
    fn uproot(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<Box<Connection<T::Stream>>> {
        if connection.interest.take().is_some() {
            core.transport.detach(&connection.stream)?;
        }
        connection.queued = false;
        connection.held_nanos = 0;
        self.backlog.goes_on(&mut connection);
        self.backlog.leave_unsent(&mut connection, None);
        self.table.release(token);
        Ok(connection)
    }

    /// Give a connection a place here.
    pub(crate) fn settle_in(
        &mut self,
        core: &mut Core<T>,
        mut connection: Box<Connection<T::Stream>>,
    ) -> io::Result<()> {
        let token = self.table.reserve();
        connection.token = token;
        connection.visit = (connection.home != core.id).then(|| Visit::new(connection.home));
        connection.interest = None;
        if connection.is_watching() {
            self.watchers.add(token);
        }
        if connection.large {
            connection.queued = true;
            self.large.push_back(token, connection.is_urgent());
        } else if connection.unserved || !connection.output.is_empty() {
            connection.queued = true;
            self.small.push_back(token);
        } else {
            return self.park(core, token, connection, Interest::Read);
        }
        self.table.put(token, connection);
        Ok(())
    }
}
