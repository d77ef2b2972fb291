//! Values that come by the binary protocol. All that is to be done with one stands before it.

use super::super::{Context, Outcome, expires_at};
use super::complete::Fate;
use super::incoming::Incoming;
use super::join::{Joining, Spot};
use super::telling::Telling;
use super::{
    Answer, Condition, Forgotten, How, Place, answer_fate, begin_bytes, refuse, store_bytes,
};
use laneway_store::{Moment, Refused};
use laneway_wire::binary::{Frame, Request, StoreVerb};

/// What the request says.
///
/// # Panics
/// If it takes no value.
fn read<'a>(context: &Context<'_>, frame: &Frame<'a>) -> (&'a [u8], How, Answer<'a>) {
    let answer = Answer::Binary(Telling::of(frame));
    let cas = Some(frame.cas).filter(|cas| *cas != 0 && context.settings.cas_enabled);
    let how = |place, flags, expires| How { place, flags, expires, cas_explicit: None };
    match frame.request {
        Request::Store(store) => {
            // With an id all three store if it is the item's.
            let condition = match (cas, store.verb) {
                (Some(id), _) => Condition::Cas { id, or_older: false },
                (None, StoreVerb::Set) => Condition::Always,
                (None, StoreVerb::Add) => Condition::Absent,
                (None, StoreVerb::Replace) => Condition::Present,
            };
            let expires = expires_at(i64::from(store.expiration), context.now);
            (store.key, how(Place::Whole(condition), store.flags, expires), answer)
        }
        Request::Join { before, key } => {
            let spot = if before { Spot::Before } else { Spot::Behind };
            (key, how(Place::Joined { spot, cas, vivify: None }, 0, Moment::NEVER), answer)
        }
        _ => unreachable!("this request takes no value"),
    }
}

/// Whether a request stores without a look at the item there is.
pub fn stores_blindly(frame: &Frame<'_>) -> bool {
    frame.cas == 0
        && matches!(&frame.request, Request::Store(store) if store.verb == StoreVerb::Set)
}

/// Whether a request stores only where there is no item.
pub fn adds_binary(frame: &Frame<'_>) -> bool {
    frame.cas == 0
        && matches!(&frame.request, Request::Store(store) if store.verb == StoreVerb::Add)
}

/// Answers such a request, with a value of so many bytes, where there is an item, be it in memory
/// or not.
pub fn refuse_added_binary(
    context: &Context<'_>,
    frame: &Frame<'_>,
    value_bytes: usize,
    out: &mut Vec<u8>,
) {
    let (key, how, answer) = read(context, frame);
    answer_fate(context, (key, &how), &answer, Fate::Unmet, value_bytes, out);
}

/// A value that is there whole: [`Outcome::Done`], or [`Outcome::Kept`].
///
/// # Panics
/// If the request takes no value.
pub fn store_binary_whole(
    context: &Context<'_>,
    frame: &Frame<'_>,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Outcome {
    match store_bytes(context, read(context, frame), value, usize::MAX, out) {
        Ok(None) => Outcome::Done,
        Ok(Some(_)) => unreachable!("all of it was asked for"),
        Err(Forgotten) => Outcome::Kept,
    }
}

/// The same for a worker; of what is joined only about `budget` bytes are copied now, and what is
/// returned goes on with it.
///
/// # Panics
/// If the request takes no value.
pub fn store_binary_slice(
    context: &Context<'_>,
    frame: &Frame<'_>,
    value: &[u8],
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<Box<Joining>> {
    match store_bytes(context, read(context, frame), value, budget, out) {
        Ok(joining) => joining,
        Err(Forgotten) => unreachable!("only what the executor executes is asked again"),
    }
}

/// Begin a store whose value will be streamed. `None`: it is refused, and answered; the value is to
/// be passed over.
///
/// # Panics
/// If the request takes no value.
pub fn begin_binary(
    context: &Context<'_>,
    frame: &Frame<'_>,
    out: &mut Vec<u8>,
) -> Option<Incoming> {
    begin_bytes(context, read(context, frame), frame.value_bytes, out)
}

/// No item is that large: say so, and leave no stale value behind where one was to be set.
///
/// # Panics
/// If the request takes no value.
pub fn refuse_binary(context: &Context<'_>, frame: &Frame<'_>, out: &mut Vec<u8>) {
    let (key, how, answer) = read(context, frame);
    let hash = context.store.hash(key);
    refuse(context, key, hash, &how, &answer, Refused::TooLarge, out);
}
