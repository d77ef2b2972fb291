//! Durable items by the binary protocol: decides which requests the durable executor executes, and
//! how they are handed to it. Whole short requests go in batches, as those of the text protocol do
//! ([`crate::request::batches`]). Any other request goes by itself, and the next waits for its
//! reply.

use crate::binary::value::key_and_flags;
use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::binary;
use crate::request::batches::{End, READS_BYTES_MAX, REQUESTS_MAX, Row};
use crate::request::sized::Sized;
use crate::stream::connection::Connection;
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::binary::{Frame, Request, parse};
use std::cell::Cell;

impl<T: Transport> Core<T> {
    /// The requests at the front of `input` that go together. `longest`: bytes of the longest item
    /// that requests before them may have stored.
    fn binary_row_of(&self, input: &[u8], longest: u64) -> (Row, End) {
        let mut row = Row::behind(longest);
        while row.requests < REQUESTS_MAX {
            let rest = &input[row.bytes..];
            let frame = match parse(rest) {
                Ok(Some(frame)) => frame,
                Ok(None) => return (row, End::Starved(Stop::Starved)),
                Err(_) => break,
            };
            let mut reads = 0;
            match &frame.request {
                Request::Store(_) | Request::Join { .. } => {
                    let (key, flags) = key_and_flags(&frame);
                    let is_here =
                        matches!(self.sized(key, flags, frame.value_bytes), Sized::Here(_));
                    if READ_BYTES < frame.bytes() || !is_here {
                        break;
                    }
                    if rest.len() < frame.bytes() {
                        return (row, End::Starved(Stop::Starved));
                    }
                    let size = (key.len() + frame.value_bytes) as u64;
                    row.sizes[row.requests] = size;
                    row.longest = match &frame.request {
                        Request::Join { .. } => {
                            self.item_bytes(key, row.longest) + frame.value_bytes as u64
                        }
                        _ => row.longest.max(size),
                    };
                }
                Request::Get(get) => reads = self.item_bytes(get.key, row.longest),
                Request::Arith(_) | Request::Delete { .. } | Request::Touch { .. } => {}
                // It stands behind quiet requests, and tells that they were executed.
                Request::Noop => {}
                _ => break,
            }
            if READS_BYTES_MAX < row.reads + reads {
                break;
            }
            row.reads += reads;
            row.bytes += frame.bytes();
            row.requests += 1;
        }
        (row, End::Full)
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
        arrived: u64,
    ) -> Option<Step> {
        let longest = core.longest_given(connection)?;
        let row = core.binary_row_of(rest, longest);
        self.give_row(core, connection, row, (rest, None), arrived)
    }

    /// A request that the executor executes stands at the front of `rest`, whole.
    pub(crate) fn binary_keep(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        rest: &[u8],
        arrived: u64,
    ) -> Step {
        if let Some(step) = self.binary_batch(core, connection, rest, arrived) {
            return step;
        }
        if let Request::Flush { delay } = frame.request
            && !core.execute_settings.flush_enabled
        {
            // It is refused, and does nothing.
            binary::flush(&core.context(&Cell::new(0)), frame, delay, &mut self.out);
            return Step::Took(frame.bytes());
        }
        let request = &rest[..frame.bytes()];
        self.hand_request(core, connection, EXECUTOR, request, request.len() as u64, arrived)
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
        arrived: u64,
    ) -> Step {
        match self.binary_batch(core, connection, rest, arrived) {
            Some(step) => step,
            None => {
                let request = &rest[..frame.bytes()];
                self.hand_request(core, connection, EXECUTOR, request, size, arrived)
            }
        }
    }
}
