//! One turn's input of a connection that speaks memcached's binary protocol.

use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::dispatch::swallow;
use crate::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::streams::Streams;
use laneway_policy::share::{REQUESTS_BESIDE_LARGE, REQUESTS_PER_TURN};
use laneway_transport::Transport;

impl<T: Transport> Streams<T> {
    /// Serve what stands in `input`. Returns the bytes consumed and why it stopped.
    #[inline(never)]
    pub(crate) fn consume_binary(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
        arrived: u64,
    ) -> (usize, Stop) {
        let mut at = 0;
        let most = if self.large.is_empty() { REQUESTS_PER_TURN } else { REQUESTS_BESIDE_LARGE };
        let begins = matches!(connection.mode, Mode::Requests) && connection.visit.is_none();
        let mut requests = 0;
        let stop = loop {
            let rest = &input[at..];
            if rest.is_empty() && matches!(connection.mode, Mode::Requests | Mode::Batches { .. }) {
                break Stop::Starved;
            }
            if requests >= most || self.out.len() >= OUT_BYTES_PER_TURN {
                core.counters().conn_yields.bump_owner();
                break Stop::Quota;
            }
            let left = (most, &mut requests);
            match self.binary_step(core, connection, rest, left, arrived) {
                Step::Took(bytes) => at += bytes,
                Step::Stop(bytes, stop) => {
                    at += bytes;
                    break stop;
                }
            }
        };
        if begins {
            connection.pipelined = requests > 1;
        }
        self.had.0 += u32::from(requests > 0);
        self.had.1 += requests as u32;
        (at, stop)
    }

    /// One request, or what there is of one; of values that are asked for, those behind it, too.
    fn binary_step(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        (most, requests): (usize, &mut usize),
        arrived: u64,
    ) -> Step {
        let step = match &connection.mode {
            Mode::Requests => {
                return self.binary_request(core, connection, rest, (most, requests), arrived);
            }
            Mode::Batches { .. } => {
                let step = self.binary_batch(core, connection, rest, arrived);
                step.unwrap_or(Step::Stop(0, Stop::Ticket))
            }
            Mode::Body(_) => self.body(core, connection, rest),
            Mode::BodyEnd(_) => self.binary_body_end(core, connection, arrived),
            Mode::Swallow(bytes) => swallow(*bytes, connection, rest),
            Mode::Joining { .. } => Step::Stop(0, Stop::Large),
            Mode::Keys { .. } | Mode::Answering(_) | Mode::Resp(_) => {
                unreachable!("these are of other protocols")
            }
        };
        *requests += 1;
        step
    }
}
