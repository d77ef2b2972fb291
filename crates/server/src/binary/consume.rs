//! Consumes one turn's input of a connection that speaks memcached's binary protocol.

use crate::core::Core;
use crate::request::dispatch::swallow;
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::{Protocol, Quota};
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;

/// memcached's binary protocol.
pub(crate) struct Binary;

impl<T: Transport> Protocol<T> for Binary {
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let step = match &connection.mode {
            Mode::Requests => {
                return streams.binary_request(core, connection, rest, quota);
            }
            Mode::Batches { .. } => {
                let step = streams.binary_batch(core, connection, rest);
                step.unwrap_or(Step::Stop(0, Stop::Ticket))
            }
            Mode::Body(_) => streams.body(core, connection, rest),
            Mode::BodyEnd(_) => streams.binary_body_end(core, connection),
            Mode::Swallow(bytes) => swallow(*bytes, connection, rest),
            Mode::Joining { .. } => Step::Stop(0, Stop::Large),
            Mode::Keys { .. } | Mode::Answering(_) | Mode::Watching(_) | Mode::Resp(_) => {
                unreachable!("these are of other protocols")
            }
        };
        quota.begun += 1;
        step
    }
}
