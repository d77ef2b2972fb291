//! The connections of one worker: what is under way on them, and whose turn comes when. What serves
//! their input is in [`crate::request::dispatch`] and the files that it names, what moves large
//! values in [`crate::lanes`].

use crate::access::held::Held;
use crate::core::Core;
use crate::event_log::Parting;
use crate::event_log::watchers::Watchers;
use crate::execute::{Outcome, Transfer};
use crate::lanes::slices::Slices;
use crate::latency::{self, Operation};
use crate::stream::backlog::Backlog;
use crate::stream::connection::{Connection, Mode, Table};
use crate::stream::step::READ_BYTES;
use laneway_policy::share::Depth;
use laneway_store::meter;
use laneway_transport::{Interest, Stream, Token, Transport};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The connections of one worker.
pub struct Streams<T: Transport> {
    pub(crate) table: Table<T::Stream>,
    /// Connections with input that was received but not served yet.
    pub(crate) small: VecDeque<Token>,
    /// Connections whose replies have come: each has one turn for all of them.
    pub(crate) brought: Vec<Token>,
    /// Connections with a slice to move.
    pub(crate) large: Slices,
    /// How many requests a connection has in a turn.
    pub(crate) depth: Depth,
    /// Turns of connections, and requests in them, since the worker last received.
    pub(crate) had: (u32, u32),
    /// Whether large replies wait for the wire.
    pub(crate) backlog: Backlog,
    /// Connections that wait because their client is over its limit.
    pub(crate) held: Held,
    /// Requests of this turn at most, where its client is limited.
    pub(crate) requests_most: usize,
    /// Connections that stream the event log.
    pub(crate) watchers: Watchers,
    /// Where handing connections away goes on, while this worker is becoming large.
    pub(crate) leaving: Option<u32>,
    /// Where looking for idle connections goes on, once a second.
    pub(crate) kicking: Option<u32>,
    /// When the burst that is being served was found, until its first stream has been read.
    pub(crate) found_nanos: Option<u64>,
    /// When the worker last looked for input, as far as it has asked for the time since.
    pub(crate) burst_nanos: Option<u64>,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) accept_paused: bool,
}

impl<T: Transport> Streams<T> {
    /// No connection. Plans are made once in `epoch`.
    pub(crate) fn new(epoch: Duration) -> Streams<T> {
        Streams {
            table: Table::default(),
            small: VecDeque::new(),
            brought: Vec::new(),
            large: Slices::default(),
            depth: Depth::default(),
            had: (0, 0),
            backlog: Backlog::new(epoch),
            held: Held::default(),
            requests_most: usize::MAX,
            watchers: Watchers::default(),
            leaving: None,
            kicking: None,
            found_nanos: None,
            burst_nanos: None,
            read_buffer: vec![0; READ_BYTES],
            out: Vec::with_capacity(2 * READ_BYTES),
            accept_paused: false,
        }
    }

    /// The last byte of every reply so far has left: record how long the requests took.
    pub(crate) fn settle(&mut self, core: &Core<T>, connection: &mut Connection<T::Stream>) {
        if !connection.tally.is_empty() {
            let now = core.settle_nanos();
            let here = &core.shared.workers[core.id.index()];
            if connection.tally.is_notable(now, core.shared.slow.nanos()) {
                core.note_answered(connection, now);
            }
            let moved = &mut connection.moved;
            here.book.settle(&mut connection.tally, now, |row, requests| {
                moved.requests += requests;
                moved.requests_large += if latency::is_row_of_large(row) { requests } else { 0 };
            });
            core.count_moved(connection);
        }
    }

    /// A large reply that leaves in slices comes next: the replies in front of it, the first
    /// `bytes` of the reply buffer, leave at once, or they would wait for its first slice, and that
    /// for the slices of others.
    pub(crate) fn send_before_large(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        bytes: usize,
    ) {
        let leaves = bytes > 0 && core.plan.slice_bytes.is_some() && connection.output.is_empty();
        if !leaves {
            return;
        }
        // A stream that is broken fails again where the large reply is sent.
        let sent = connection.stream.write(&[IoSlice::new(&self.out[..bytes])]).unwrap_or(0);
        core.count_sent(connection, sent);
        meter::bytes(sent);
        connection.output.push_bytes(&self.out[sent..bytes]);
        self.out.drain(..bytes);
        if sent == bytes {
            connection.tally.begins(self.burst_nanos.unwrap_or_else(|| core.clock.nanos()));
            self.settle(core, connection);
        }
    }

    /// The head of the reply is in `out`; the value follows it, and what stands behind the value.
    pub(crate) fn begin_transfer(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        transfer: Transfer,
        last: bool,
    ) {
        connection.output.push_bytes(&self.out);
        self.out.clear();
        connection.large = core.plan.slice_bytes.is_some();
        connection.output.push_part(transfer.value, transfer.part);
        connection.output.push_bytes(transfer.tail);
        if let (true, Mode::Keys { line_bytes: 0, .. }) = (last, &connection.mode) {
            connection.output.push_bytes(b"END\r\n");
            connection.mode = Mode::Requests;
        }
    }

    /// A request about a key was answered here, by the binary protocol or RESP, behind `before`
    /// bytes of other replies: it is counted, and a large value begins to leave. Returns whether
    /// there is one.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (key, operation, writes): (&[u8], Operation, bool),
        (outcome, size, before): (Outcome, u64, usize),
    ) -> bool {
        if matches!(outcome, Outcome::Transfer(_)) {
            self.send_before_large(core, connection, before);
            core.note_key(connection, key, size);
        }
        core.sample_uncounted(key, writes);
        core.account(connection, operation, size);
        let Outcome::Transfer(transfer) = outcome else { return false };
        self.begin_transfer(core, connection, transfer, false);
        connection.large = core.sends_in_slices();
        true
    }

    /// Close a connection and forget it.
    pub(crate) fn close(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        mut connection: Connection<T::Stream>,
    ) {
        if connection.is_unproven() {
            // Who did not say who it is waited for no limit, and uses up what others wait for
            // neither.
            connection.buckets = [None, None];
        }
        core.count_moved(&mut connection);
        self.backlog.goes_on(&mut connection);
        self.backlog.leave_unsent(&mut connection, None);
        if connection.interest.is_some() {
            // The kernel forgets a closed descriptor by itself; an error here changes nothing.
            let _ = core.transport.detach(&connection.stream);
        }
        self.table.release(token);
        let card = &connection.card;
        let why = match connection.parting {
            Parting::Normal if core.stopping => Parting::Shutdown,
            parting => parting,
        };
        core.shared.connections.leave(card, why);
        if let Some(durable) = core.shared.durable.get() {
            durable.backups.asker_left(card.number, core.stopping);
        }
        log::trace!(connection = card.number, peer = &*card.peer; "connection closed");
        core.shared.workers[connection.home.index()].connections.fetch_sub(1, Relaxed);
    }

    /// Make an attached or not yet attached connection wait for `interest`.
    pub(crate) fn want(
        &mut self,
        core: &mut Core<T>,
        token: Token,
        connection: &mut Connection<T::Stream>,
        interest: Interest,
    ) -> io::Result<()> {
        match connection.interest {
            Some(now) if now == interest => return Ok(()),
            Some(_) => core.transport.rearm(&connection.stream, token, interest)?,
            None => core.transport.attach(&connection.stream, token, interest)?,
        }
        connection.interest = Some(interest);
        Ok(())
    }

    /// Connections that have a turn before the next slice of what is large (`policy::share`).
    pub(crate) fn burst(&self) -> usize {
        self.depth.burst(self.large.waiting()) as usize
    }

    /// Whether there is something to do without waiting for an event.
    pub(crate) fn is_busy(&self, core: &Core<T>) -> bool {
        !self.small.is_empty()
            || !self.large.is_empty()
            || self.leaving.is_some()
            || self.kicking.is_some()
            || !core.shared.workers[core.id.index()].mailbox.is_empty()
            || (core.takes_large() && !core.shared.large_queue.is_empty())
    }
}
