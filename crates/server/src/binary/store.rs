//! Requests with a value to be stored. A value that is there is stored at once; one that is not,
//! and is long, streams into its item.

use crate::binary::value::{key_and_flags, pass_over};
use crate::core::Core;
use crate::execute;
use crate::latency::Operation;
use crate::request::dispatch::join;
use crate::request::sized::Sized;
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::Route;
use laneway_policy::pace::Way;
use laneway_transport::Transport;
use laneway_wire::binary::Frame;

impl<T: Transport> Streams<T> {
    /// Such a request, at the front of `rest`.
    pub(crate) fn binary_store(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        rest: &[u8],
    ) -> Step {
        let (key, flags) = key_and_flags(frame);
        let route = match core.sized(key, flags, frame.value_bytes) {
            Sized::Here(route) => route,
            Sized::Hand => return Step::Stop(0, Stop::Hand),
            Sized::TooLarge => {
                execute::refuse_binary(&core.context_for(key), frame, &mut self.out);
                return pass_over(connection, frame);
            }
        };
        let Some(value) = rest[frame.head_bytes..].get(..frame.value_bytes) else {
            if frame.bytes() <= READ_BYTES {
                return Step::Stop(0, Stop::Starved);
            }
            return self.binary_begin(core, connection, (frame, route), rest);
        };
        if core.keeps() {
            return self.binary_keep(core, connection, frame, rest);
        }
        let size = (key.len() + value.len()) as u64;
        let context = core.context_for(key);
        let budget = core.slice_budget(Way::Copy);
        let joining = execute::store_binary_slice(&context, frame, value, budget, &mut self.out);
        core.sample_uncounted(key, true);
        core.note_key(connection, key, size);
        if let Some(joining) = joining {
            return join(connection, joining, size, frame.bytes());
        }
        core.account(connection, Operation::Set, size);
        Step::Took(frame.bytes())
    }

    /// The value is on its way, and long: it streams into its item from here on.
    fn binary_begin(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (frame, route): (&Frame<'_>, Route),
        rest: &[u8],
    ) -> Step {
        let (key, _) = key_and_flags(frame);
        let context = core.context_for(key);
        let Some(incoming) = execute::begin_binary(&context, frame, &mut self.out) else {
            return pass_over(connection, frame);
        };
        connection.mode = Mode::Body(Box::new(incoming));
        connection.large = core.receives_in_slices(route);
        // What came with the header goes in at once: from here on the value comes from the stream.
        self.body(core, connection, &rest[frame.head_bytes..]).behind(frame.head_bytes)
    }

    /// A value that has streamed in is there; nothing stands behind it.
    pub(crate) fn binary_body_end(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
    ) -> Step {
        let Mode::BodyEnd(incoming) = std::mem::replace(&mut connection.mode, Mode::Requests)
        else {
            return Step::Took(0);
        };
        connection.large = false;
        let incoming = match core.keeps() {
            true => match self.hand_body(core, connection, incoming) {
                Ok(step) => return step,
                Err(incoming) => incoming,
            },
            false => incoming,
        };
        core.sample_uncounted(incoming.key(), true);
        let size = incoming.item_bytes();
        core.note_key(connection, incoming.key(), size);
        let context = core.context_for(incoming.key());
        let budget = core.slice_budget(Way::Copy);
        if let Some(joining) = incoming.finish_slice(&context, budget, &mut self.out) {
            return join(connection, joining, size, 0);
        }
        core.account(connection, Operation::Set, size);
        Step::Took(0)
    }
}
