//! Consumes one turn's input of a connection that speaks RESP.

use crate::core::Core;
use crate::resp::state::{Dialect, Under};
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::{Protocol, Quota};
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::resp::Skip;

/// Redis' protocol.
pub(crate) struct Resp;

impl<T: Transport> Protocol<T> for Resp {
    #[inline]
    fn is_dry(connection: &mut Connection<T::Stream>, rest: &[u8]) -> bool {
        rest.is_empty() && connection.session().front.is_empty()
    }

    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        quota.taken_beside = 0;
        if connection.session().front.is_empty() {
            return streams.resp_step(core, connection, rest, quota);
        }
        // What comes first does not stand in the buffer: nothing of that is taken.
        let mut front = std::mem::take(&mut connection.session().front);
        let step = streams.resp_step(core, connection, front.rest(), quota);
        let (Step::Took(taken) | Step::Stop(taken, _)) = step;
        front.consume(taken);
        quota.taken_beside = taken;
        // Behind `RESET` there may be no session any more, and behind an inline `EXEC` the requests
        // of its transaction stand there.
        if let Dialect::Resp(session) = &mut connection.dialect
            && session.front.is_empty()
        {
            session.front = front;
        }
        match step {
            Step::Took(_) => Step::Took(0),
            Step::Stop(_, stop) => Step::Stop(0, stop),
        }
    }
}

impl<T: Transport> Streams<T> {
    /// One request, or what there is of one.
    fn resp_step(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let step = match &mut connection.mode {
            Mode::Requests if rest.is_empty() => return Step::Stop(0, Stop::Starved),
            Mode::Requests => {
                return self.resp_request(core, connection, rest, quota);
            }
            Mode::Resp(Under::Skip(skip)) => {
                let mut skip = *skip;
                quota.begun += 1;
                return resp_skip(connection, &mut skip, rest);
            }
            Mode::Resp(Under::Pairs(left)) => {
                let left = *left;
                quota.pairs += 1;
                self.resp_pair(core, connection, left, rest)
            }
            Mode::Resp(Under::Keys { .. }) => {
                return self.resp_keys(core, connection, rest, quota);
            }
            Mode::Batches { .. } => {
                let step = self.resp_batch(core, connection, rest);
                step.unwrap_or(Step::Stop(0, Stop::Ticket))
            }
            Mode::Body(_) => self.body(core, connection, rest),
            Mode::BodyEnd(_) => self.resp_body_end(core, connection, rest),
            Mode::Joining { .. } => Step::Stop(0, Stop::Large),
            Mode::Keys { .. } | Mode::Answering(_) | Mode::Watching(_) | Mode::Swallow(_) => {
                unreachable!("these are memcached's")
            }
        };
        // What is refused in its midst, such as a pair of an `MSET`, is counted nowhere else.
        let is_refused = matches!(connection.mode, Mode::Resp(Under::Skip(_)));
        quota.begun += 1 + usize::from(is_refused);
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
