//! What the header of a request tells of its value before the value has arrived.

use crate::stream::connection::{Connection, Mode};
use crate::stream::step::Step;
use laneway_wire::binary::{Frame, Request};

/// The key of a request that takes a value, and the flags that count for the size of its item.
pub(crate) fn key_and_flags<'a>(frame: &Frame<'a>) -> (&'a [u8], u32) {
    match frame.request {
        Request::Store(store) => (store.key, store.flags),
        Request::Join { key, .. } => (key, 0),
        _ => unreachable!("this request takes no value"),
    }
}

/// The value of a request that was answered is of no interest.
pub(crate) fn pass_over<S>(connection: &mut Connection<S>, frame: &Frame<'_>) -> Step {
    if frame.value_bytes > 0 {
        connection.mode = Mode::Swallow(frame.value_bytes as u64);
    }
    Step::Took(frame.head_bytes)
}
