//! One request: who executes it?

use crate::core::Core;
use crate::stream::connection::Connection;
use crate::stream::protocol::Quota;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::binary::{Broken, Request, parse};

impl<T: Transport> Streams<T> {
    /// The request at the front of `rest`; of values that are asked for, those behind it that are
    /// read with it, too.
    pub(crate) fn binary_request(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let frame = match parse(rest) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Stop(0, Stop::Starved),
            Err(broken) => return self.binary_broken(core, broken, rest),
        };
        if let Request::Get(get) = &frame.request
            && get.touch.is_none()
        {
            let left = quota.left();
            let (step, begun) = self.binary_gets(core, connection, (&frame, get), rest, left);
            quota.begun += begun;
            return step;
        }
        quota.begun += 1;
        if matches!(frame.request, Request::Store(_) | Request::Join { .. }) {
            return self.binary_store(core, connection, &frame, rest);
        }
        self.binary_plain(core, connection, &frame, rest)
    }

    /// The client is wrong, and nothing behind this can be made out: say so and close.
    fn binary_broken(&mut self, core: &Core<T>, broken: Broken, rest: &[u8]) -> Step {
        core.counters().malformed.bump_owner();
        broken.put(&mut self.out);
        Step::Stop(rest.len(), Stop::Close)
    }
}
