//! Durable items by the binary protocol: decides which requests the durable executor executes, and
//! how they are handed to it. Whole short requests go in batches, as those of the text protocol do
//! ([`crate::request::batches`]). Any other request goes by itself, and the next waits for its
//! reply.

use crate::binary::value::key_and_flags;
use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::binary;
use crate::request::batches::{End, Moves, Row};
use crate::request::sized::Sized;
use crate::stream::connection::Connection;
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::binary::{Frame, Request, parse};

impl<T: Transport> Core<T> {
    /// The requests at the front of `input` that go together. `longest`: bytes of the longest item
    /// that requests before them may have stored.
    fn binary_row_of(&self, input: &[u8], longest: u64) -> (Row, End) {
        Row::of(input, longest, |row, rest| {
            let frame = match parse(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Err(End::Starved(Stop::Starved)),
                Err(_) => return Err(End::Full),
            };
            let mut moves = Moves::default();
            match &frame.request {
                Request::Store(_) | Request::Join { .. } => {
                    let (key, flags) = key_and_flags(&frame);
                    let is_here =
                        matches!(self.sized(key, flags, frame.value_bytes), Sized::Here(_));
                    if READ_BYTES < frame.bytes() || !is_here {
                        return Err(End::Full);
                    }
                    if rest.len() < frame.bytes() {
                        return Err(End::Starved(Stop::Starved));
                    }
                    moves.size = (key.len() + frame.value_bytes) as u64;
                    moves.longest = match &frame.request {
                        Request::Join { .. } => {
                            self.item_bytes(key, row.longest) + frame.value_bytes as u64
                        }
                        _ => moves.size,
                    };
                }
                Request::Get(get) => moves.reads = self.item_bytes(get.key, row.longest),
                Request::Arith(_) | Request::Delete { .. } | Request::Touch { .. } => {}
                // It stands behind quiet requests, and tells that they were executed.
                Request::Noop => {}
                _ => return Err(End::Full),
            }
            Ok((frame.bytes(), moves))
        })
    }
}

impl<T: Transport> Streams<T> {
    /// Gives the requests at the front of `rest` to the executor, as many as go together. `None`:
    /// not even the first of them goes along with others.
    pub(crate) fn binary_batch(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Option<Step> {
        let longest = core.longest_given(connection)?;
        let row = core.binary_row_of(rest, longest);
        self.give_row(core, connection, row, (rest, None))
    }

    /// A request that the executor executes stands at the front of `rest`, whole.
    pub(crate) fn binary_keep(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        rest: &[u8],
    ) -> Step {
        if let Some(step) = self.binary_batch(core, connection, rest) {
            return step;
        }
        if let Request::Flush { delay } = frame.request
            && !core.execute_settings.flush_enabled
        {
            // It is refused, and does nothing.
            binary::flush(&core.context(), frame, delay, &mut self.out);
            return Step::Took(frame.bytes());
        }
        let request = &rest[..frame.bytes()];
        self.hand_request(core, connection, EXECUTOR, request, request.len() as u64)
    }

    /// Memory does not hold the item that the request at the front of `rest` reads, or it is being
    /// changed: the executor answers, and what is asked behind it goes along. It has to bring
    /// `size` bytes into memory.
    pub(crate) fn binary_ask(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        (rest, size): (&[u8], u64),
    ) -> Step {
        match self.binary_batch(core, connection, rest) {
            Some(step) => step,
            None => {
                let request = &rest[..frame.bytes()];
                self.hand_request(core, connection, EXECUTOR, request, size)
            }
        }
    }
}
