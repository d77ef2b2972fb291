//! One turn's input of a connection that speaks RESP.

use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::resp::state::{Dialect, Under};
use crate::step::{OUT_BYTES_PER_TURN, Step, Stop};
use crate::streams::Streams;
use laneway_policy::share::{REQUESTS_BESIDE_LARGE, REQUESTS_PER_TURN};
use laneway_transport::Transport;
use laneway_wire::resp::Skip;

impl<T: Transport> Streams<T> {
    /// Serve what stands in `input`. Returns the bytes consumed and why it stopped.
    #[inline(never)]
    pub(crate) fn consume_resp(
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
            let is_dry = at == input.len() && connection.session().front.is_empty();
            if is_dry && matches!(connection.mode, Mode::Requests | Mode::Batches { .. }) {
                break Stop::Starved;
            }
            if requests >= most || self.out.len() >= OUT_BYTES_PER_TURN {
                core.counters().conn_yields.bump_owner();
                break Stop::Quota;
            }
            let mut front = std::mem::take(&mut connection.session().front);
            let is_front = !front.is_empty();
            let rest = if is_front { front.rest() } else { &input[at..] };
            let left = (most, &mut requests);
            let step = self.resp_step(core, connection, rest, left, arrived);
            let (taken, stop) = match step {
                Step::Took(bytes) => (bytes, None),
                Step::Stop(bytes, stop) => (bytes, Some(stop)),
            };
            match is_front {
                true => {
                    front.consume(taken);
                    // Behind `RESET` there may be no session any more.
                    if let Dialect::Resp(session) = &mut connection.dialect {
                        session.front = front;
                    }
                }
                false => at += taken,
            }
            if let Some(stop) = stop {
                break stop;
            }
        };
        if begins {
            connection.pipelined = requests > 1;
        }
        self.had.0 += u32::from(requests > 0);
        self.had.1 += requests as u32;
        (at, stop)
    }

    /// One request, or what there is of one.
    fn resp_step(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        (most, requests): (usize, &mut usize),
        arrived: u64,
    ) -> Step {
        let step = match &mut connection.mode {
            Mode::Requests if rest.is_empty() => return Step::Stop(0, Stop::Starved),
            Mode::Requests => {
                return self.resp_request(core, connection, rest, (most, requests), arrived);
            }
            Mode::Resp(Under::Skip(skip)) => {
                let mut skip = *skip;
                resp_skip(connection, &mut skip, rest)
            }
            Mode::Resp(Under::Pairs(left)) => {
                let left = *left;
                self.resp_pair(core, connection, left, rest, arrived)
            }
            Mode::Resp(Under::Keys { .. }) => {
                return self.resp_keys(core, connection, rest, (most, requests), arrived);
            }
            Mode::Batches { .. } => {
                let step = self.resp_batch(core, connection, rest, arrived);
                step.unwrap_or(Step::Stop(0, Stop::Ticket))
            }
            Mode::Body(_) => self.body(core, connection, rest),
            Mode::BodyEnd(_) => self.resp_body_end(core, connection, rest, arrived),
            Mode::Joining { .. } => Step::Stop(0, Stop::Large),
            Mode::Keys { .. } | Mode::Answering(_) | Mode::Swallow(_) => {
                unreachable!("these are memcached's")
            }
        };
        *requests += 1;
        step
    }
}

fn resp_skip<S>(connection: &mut Connection<S>, skip: &mut Skip, rest: &[u8]) -> Step {
    match skip.advance(rest) {
        Ok((bytes, true)) => {
            connection.mode = Mode::Requests;
            Step::Took(bytes)
        }
        Ok((bytes, false)) => {
            connection.mode = Mode::Resp(Under::Skip(*skip));
            Step::Stop(bytes, Stop::Starved)
        }
        // It was told of one error; to close says enough of the other.
        Err(_) => Step::Stop(rest.len(), Stop::Close),
    }
}
