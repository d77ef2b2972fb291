//! One turn's input of a connection, whatever protocol it speaks: request by request until nothing
//! is left, the turn has done enough, or something has to wait.

use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::streams::Streams;
use laneway_policy::share::{REQUESTS_BESIDE_LARGE, REQUESTS_PER_TURN};
use laneway_transport::Transport;

/// How many requests a turn may begin, and how many it has begun.
pub(crate) struct Quota {
    pub most: usize,
    pub begun: usize,
}

impl Quota {
    /// How many more may begin.
    pub fn left(&self) -> usize {
        self.most - self.begun
    }
}

/// What the protocols differ in.
pub(crate) trait Protocol<T: Transport> {
    /// Whether nothing is left of what was received; `rest` is what stands in the buffer.
    fn is_dry(connection: &mut Connection<T::Stream>, rest: &[u8]) -> bool;

    /// Serve one request, or what there is of one; where several are read at once, those behind it
    /// too. `quota` counts what has begun.
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
        arrived: u64,
    ) -> Step;
}

impl<T: Transport> Streams<T> {
    /// Serve what stands in `input`; replies go to the worker's reply buffer. Returns the bytes
    /// consumed and why it stopped.
    pub(crate) fn consume<P: Protocol<T>>(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
        arrived: u64,
    ) -> (usize, Stop) {
        let mut at = 0;
        // Between two slices of what is large there is less, of each connection.
        let most = if self.large.is_empty() { REQUESTS_PER_TURN } else { REQUESTS_BESIDE_LARGE };
        let mut quota = Quota { most, begun: 0 };
        // The rest of a value, or a visitor's first request, says nothing of how its client sends.
        let begins = matches!(connection.mode, Mode::Requests) && connection.visit.is_none();
        let stop = loop {
            let rest = &input[at..];
            // Also behind the last request of a turn: it would wait for another one in vain.
            if P::is_dry(connection, rest)
                && matches!(connection.mode, Mode::Requests | Mode::Batches { .. })
            {
                break Stop::Starved;
            }
            if quota.begun >= most || self.out.len() >= OUT_BYTES_PER_TURN {
                core.counters().conn_yields.bump_owner();
                break Stop::Quota;
            }
            match P::step(self, core, connection, rest, &mut quota, arrived) {
                Step::Took(bytes) => at += bytes,
                Step::Stop(bytes, stop) => {
                    at += bytes;
                    break stop;
                }
            }
        };
        if begins {
            connection.pipelined = quota.begun > 1;
        }
        self.had.0 += u32::from(quota.begun > 0);
        self.had.1 += quota.begun as u32;
        (at, stop)
    }
}
