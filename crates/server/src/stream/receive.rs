//! One turn of a connection in the small lane: bytes in, requests out of them, replies out. What
//! turns out to be large stops the turn; `lanes` takes it from there.
//!
//! One read and one write per turn where the client allows it. An idle connection owns no buffer:
//! input is read into the worker's, and only what could not be served yet is kept.

use crate::access::read_only::{ReadOnlyBinary, ReadOnlyText};
use crate::access::recognise::{Recognised, recognise};
use crate::binary::consume::Binary;
use crate::core::{Core, Uncharged};
use crate::execute::redis::OUT_OF_MEMORY;
use crate::request::dispatch::Text;
use crate::resp::consume::Resp;
use crate::resp::state::Dialect;
use crate::stream::connection::{Connection, Mode, Unread};
use crate::stream::input::Input;
use crate::stream::output::Sent;
use crate::stream::protocol::{Protocol, Quota};
use crate::stream::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::Lane;
use laneway_policy::share::{REQUESTS_BESIDE_LARGE, REQUESTS_PER_TURN};
use laneway_store::meter;
use laneway_transport::{Stream, Transport};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::Ordering::Relaxed;

/// memcached's words.
const NO_MEMORY_READING: &[u8] = b"SERVER_ERROR out of memory reading request\r\n";

/// What becomes of the connection after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It waits for input.
    Read,
    /// It waits for room to write.
    Write,
    /// Its next reply is finished by somebody else.
    Ticket,
    /// Another turn in the small lane.
    Small,
    /// Another slice, after the others had theirs.
    Large,
    /// Another slice, at once.
    LargeFirst,
    /// Over to a large worker.
    Hand,
    /// Its client is over its limit: it waits for another turn.
    Held,
    /// It is closed.
    Close,
}

impl<T: Transport> Streams<T> {
    /// Flush, read, serve, reply. An error is the stream's: its peer is gone.
    pub(crate) fn serve(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> io::Result<Next> {
        assert!(self.out.is_empty(), "a reply was left behind, and would go to somebody else");
        if !connection.output.is_empty() {
            let budget = if core.sends_in_slices() { OUT_BYTES_PER_TURN } else { usize::MAX };
            match self.flush(core, connection, budget)? {
                // Before it asks for more, or one that always does would stay for good.
                Sent::All
                    if connection.is_between_requests()
                        && !connection.closing
                        && core.is_to_leave(connection) =>
                {
                    return Ok(Next::Small);
                }
                Sent::All => {}
                Sent::Budget => return Ok(Next::Small),
                Sent::Blocked => return Ok(Next::Write),
                Sent::Waiting if connection.goes_on() => {}
                Sent::Waiting => return Ok(Next::Ticket),
            }
        }
        if connection.closing {
            return Ok(Next::Close);
        }
        core.works_on();
        // A large one asks before its slices. Passwords have a limit of their own, and who may not
        // take longer for one is not kept waiting.
        let asks = core.is_limiting && !connection.large && !connection.is_unproven();
        if asks && self.is_over_limit(core, connection, Lane::Small) {
            return Ok(Next::Held);
        }
        if connection.streams_in_place()
            && connection.input.is_empty()
            && let Some(next) = self.stream_body(core, connection)?
        {
            return Ok(next);
        }
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let next = self.serve_input(core, connection, &mut buffer);
        self.read_buffer = buffer;
        self.requests_most = usize::MAX;
        next
    }

    fn serve_input(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        buffer: &mut [u8],
    ) -> io::Result<Next> {
        let mut received: &[u8] = &[];
        if !connection.unserved {
            let bytes = match connection.stream.read(buffer) {
                // What it has asked before is answered first.
                Ok(0) if connection.output.is_waiting() => {
                    connection.closing = true;
                    return Ok(Next::Ticket);
                }
                Ok(0) => return Ok(Next::Close),
                Ok(bytes) => bytes,
                Err(error) => return later(connection, error).map(|()| Next::Read),
            };
            connection.has_read(bytes, buffer.len());
            meter::bytes(bytes);
            core.count_received(connection, bytes);
            received = &buffer[..bytes];
        }
        let now = self.found_nanos.take().unwrap_or_else(|| core.clock.nanos());
        core.tell_time(now); // this turn may follow a long sleep
        let burst = *self.burst_nanos.get_or_insert(now);
        // What an earlier turn left came before this burst, at another worker maybe. (The last
        // bytes of a value that nothing stands behind have come now.)
        if !connection.unserved || matches!(connection.mode, Mode::BodyEnd(_)) {
            connection.found_nanos = burst;
        }
        connection.card.last_seconds.store(core.now.seconds(), Relaxed);
        let stop = if connection.input.is_empty() {
            let (consumed, stop) = self.consume_as_spoken(core, connection, received);
            connection.input.keep(&received[consumed..]);
            stop
        } else if connection.input.adds_no_line(received, &core.limits) {
            if connection.input.append(received, &core.shared.store).is_err() {
                return self.refuse_input(core, connection);
            }
            connection.unserved = false; // a reply may have come in the middle of a line
            return Ok(Next::Read);
        } else {
            let mut input = std::mem::take(&mut connection.input);
            if input.append(received, &core.shared.store).is_err() {
                return self.refuse_input(core, connection);
            }
            let (consumed, stop) = self.consume_as_spoken(core, connection, input.bytes());
            input.consume(consumed);
            connection.input = input;
            stop
        };
        connection.tally.begins(now);
        connection.input.half_line = stop == Stop::HalfLine;
        // Behind a value that leaves now, input may wait that no event will announce.
        let behind_value = stop == Stop::Large && !matches!(connection.mode, Mode::Body(_));
        connection.unserved = behind_value || matches!(stop, Stop::Quota | Stop::Hand);
        connection.halted = stop == Stop::Ticket;
        connection.closing = stop == Stop::Close;
        self.reply(core, connection, stop)
    }

    /// Serve what stands in `input`; replies go to the worker's reply buffer. Returns the bytes
    /// consumed and why it stopped.
    fn consume<P: Protocol<T>>(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
    ) -> (usize, Stop) {
        let mut at = 0;
        // Between two slices of what is large there is less, of each connection.
        let most = if self.large.is_empty() { REQUESTS_PER_TURN } else { REQUESTS_BESIDE_LARGE };
        let most = most.min(self.requests_most);
        let mut quota = Quota::of(most);
        // The rest of a value, or a visitor's first request, says nothing of how its client sends.
        let begins = matches!(connection.mode, Mode::Requests) && connection.visit.is_none();
        let mut uncharged = core.is_limiting.then(|| {
            connection.forget_prepaid();
            Uncharged { begun: 0, counted: core.requests_counted() }
        });
        let stop = loop {
            let rest = &input[at..];
            // Also behind the last request of a turn: it would wait for another one in vain.
            if P::is_dry(connection, rest) && connection.is_at_request() {
                break Stop::Starved;
            }
            if quota.begun >= most || self.out.len() >= OUT_BYTES_PER_TURN {
                core.counters().conn_yields.bump_owner();
                break Stop::Quota;
            }
            // A step that goes on with a request begins none, though the quota counts it.
            let goes_on = uncharged.is_some() && !connection.is_at_request();
            let begun_before = quota.begun + usize::from(goes_on);
            let step = P::step(self, core, connection, rest, &mut quota);
            let (Step::Took(bytes) | Step::Stop(bytes, _)) = step;
            at += bytes;
            if let Some(uncharged) = &mut uncharged {
                let begun = quota.begun.saturating_sub(begun_before);
                let is_taken = 0 < bytes + quota.taken_beside;
                core.charge_step(connection, uncharged, begun, (&step, is_taken));
            }
            if let Step::Stop(_, stop) = step {
                break stop;
            }
        };
        if begins {
            connection.pipelined = quota.requests() > 1;
        }
        if let Some(uncharged) = &mut uncharged {
            core.charge_uncounted(connection, uncharged);
        }
        self.had.0 += u32::from(quota.begun > 0);
        self.had.1 += quota.begun as u32;
        (at, stop)
    }

    /// Serve it in the protocol of its connection.
    #[inline]
    fn consume_as_spoken(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
    ) -> (usize, Stop) {
        match connection.dialect {
            Dialect::Memcached if !connection.read_only => {
                self.consume::<Text>(core, connection, input)
            }
            _ => self.consume_otherwise(core, connection, input),
        }
    }

    /// The same of a connection that does not speak memcached's text, or whose first bytes tell, or
    /// that may change nothing.
    #[inline(never)]
    fn consume_otherwise(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
    ) -> (usize, Stop) {
        if let Dialect::Undecided = connection.dialect {
            connection.dialect = match recognise(input, core.shared.settings.beside()) {
                Recognised::Unclear => return (0, Stop::Starved),
                Recognised::Memcached => Dialect::Memcached,
                Recognised::Binary => Dialect::Binary,
                Recognised::Resp => Dialect::resp(),
            };
        }
        match connection.dialect {
            Dialect::Binary if connection.read_only => {
                self.consume::<ReadOnlyBinary>(core, connection, input)
            }
            Dialect::Binary => self.consume::<Binary>(core, connection, input),
            Dialect::Resp(_) => self.consume::<Resp>(core, connection, input),
            Dialect::Unproven(_) => self.consume_unproven(core, connection, input),
            Dialect::Memcached | Dialect::Undecided if connection.read_only => {
                self.consume::<ReadOnlyText>(core, connection, input)
            }
            Dialect::Memcached | Dialect::Undecided => {
                self.consume::<Text>(core, connection, input)
            }
        }
    }

    /// Memory has no room for a line this long: say so and close, as memcached does. Where the line
    /// ends is not known, so nothing behind it could be served.
    fn refuse_input(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> io::Result<Next> {
        connection.input = Input::default();
        core.counters().store_no_memory.bump_owner();
        self.out.extend_from_slice(match &connection.dialect {
            dialect if dialect.is_resp() => OUT_OF_MEMORY,
            // Where it would be read as a reply: to be closed says enough.
            dialect if dialect.is_binary() => b"",
            _ => NO_MEMORY_READING,
        });
        connection.closing = true;
        connection.unserved = false;
        self.reply(core, connection, Stop::Close)
    }

    /// Send what the turn has produced, and say what comes next.
    fn reply(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        stop: Stop,
    ) -> io::Result<Next> {
        self.send_out(core, connection)?;
        if stop == Stop::Large && connection.large {
            if connection.output.is_empty() {
                self.settle(core, connection); // what came before a large value that arrives
            }
            return Ok(Next::Large);
        }
        if !connection.output.is_empty() {
            match self.flush(core, connection, usize::MAX)? {
                Sent::All => {}
                Sent::Budget | Sent::Blocked => return Ok(Next::Write),
                Sent::Waiting if connection.goes_on() => return Ok(after_batch(stop)),
                Sent::Waiting => return Ok(Next::Ticket),
            }
        }
        self.settle(core, connection);
        Ok(match stop {
            Stop::Starved | Stop::HalfLine => Next::Read,
            Stop::Quota => Next::Small,
            // Run to completion: the value has left whole, the rest of the input comes next.
            Stop::Large if matches!(connection.mode, Mode::Body(_)) => Next::Read,
            Stop::Large => Next::Small,
            Stop::Hand => Next::Hand,
            Stop::Ticket => Next::Ticket,
            Stop::Close => Next::Close,
        })
    }

    /// Write the worker's reply buffer straight to the peer; what does not fit joins the output.
    pub(crate) fn send_out(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let mut sent = 0;
        if connection.output.is_empty() {
            sent = match connection.stream.write(&[IoSlice::new(&self.out)]) {
                Ok(bytes) => bytes,
                Err(error) if is_later(&error) => 0,
                Err(error) => {
                    self.out.clear();
                    return Err(error);
                }
            };
            core.count_sent(connection, sent);
            meter::bytes(sent);
        }
        connection.output.push_bytes(&self.out[sent..]);
        self.out.clear();
        Ok(())
    }

    /// Send from the output, at most about `budget` bytes.
    pub(crate) fn flush(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        budget: usize,
    ) -> io::Result<Sent> {
        connection.tally.goes_on(|| core.clock.nanos());
        let (sent, bytes) = connection.output.send(&mut connection.stream, budget)?;
        core.count_sent(connection, bytes);
        match sent {
            Sent::All => self.settle(core, connection),
            Sent::Blocked => connection.tally.blocks(|| core.clock.nanos()),
            // A client that always has more under way would never be through with all of it.
            Sent::Waiting
                if matches!(connection.mode, Mode::Batches { .. })
                    && connection.output.has_places_only() =>
            {
                self.settle(core, connection);
            }
            Sent::Budget | Sent::Waiting => {}
        }
        Ok(sent)
    }

    /// Read a value straight into its item, as much as there is now; for values of the small lane,
    /// and for designs that run everything to completion. `None` once it is whole.
    fn stream_body(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> io::Result<Option<Next>> {
        loop {
            match self.receive_piece(core, connection, usize::MAX)? {
                Piece::Whole => return Ok(None),
                Piece::Some(_) => {}
                Piece::Unready => return Ok(Some(Next::Small)),
                Piece::Later => return Ok(Some(Next::Read)),
                Piece::End => return Ok(Some(Next::Close)),
                Piece::Refused => return Ok(Some(Next::Small)),
            }
        }
    }

    /// One read of a value that streams into its item, of at most `budget` bytes.
    pub(crate) fn receive_piece(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        budget: usize,
    ) -> io::Result<Piece> {
        let Mode::Body(incoming) = &mut connection.mode else { return Ok(Piece::Whole) };
        assert!(connection.input.is_empty(), "bytes of the value would be overtaken");
        let draft = incoming.draft();
        let missing = draft.missing();
        let room = match draft.prepare() {
            Ok(None) => return Ok(Piece::Unready),
            Ok(Some(_)) => draft.room(),
            Err(refused) => Err(refused),
        };
        let Ok(room) = room else {
            self.refuse_body(core, connection);
            self.send_out(core, connection)?;
            return Ok(Piece::Refused);
        };
        let most = room.len().min(budget).min(missing);
        let bytes = match connection.stream.read(&mut room[..most]) {
            Ok(0) => return Ok(Piece::End),
            Ok(bytes) => bytes,
            Err(error) => return later(connection, error).map(|()| Piece::Later),
        };
        draft.advance(bytes);
        connection.has_read(bytes, most);
        core.count_received(connection, bytes);
        connection.card.last_seconds.store(core.now.seconds(), Relaxed);
        if bytes < missing {
            let is_dry = connection.unread == Unread::Nothing;
            return Ok(if is_dry { Piece::Later } else { Piece::Some(bytes) });
        }
        connection.body_is_whole();
        Ok(Piece::Whole)
    }
}

/// How a connection goes on that need not wait for the replies to what it has asked.
fn after_batch(stop: Stop) -> Next {
    match stop {
        Stop::Starved | Stop::HalfLine => Next::Read,
        Stop::Quota => Next::Small,
        Stop::Large | Stop::Hand | Stop::Ticket | Stop::Close => Next::Ticket,
    }
}

/// What one read of a streamed value came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The value is whole.
    Whole,
    /// So many bytes came, and more may be there; more are missing.
    Some(usize),
    /// Memory for the next bytes is being made free: others come first.
    Unready,
    /// Nothing more to read now.
    Later,
    /// The peer has closed.
    End,
    /// No memory: the rest of the value is swallowed.
    Refused,
}

/// A read has failed: nothing is there now, unless the stream has broken.
fn later<S>(connection: &mut Connection<S>, error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => connection.has_read_all(),
        ErrorKind::Interrupted => connection.is_told(false),
        _ => return Err(error),
    }
    Ok(())
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
