//! Values that come by RESP. Only what joins is decided before the value is there; of the
//! others the options stand behind the value, and `execute::redis` stores them.

use super::super::redis::{TOO_MANY, words_of_refused};
use super::super::{Context, Outcome};
use super::answer::AnswerOwned;
use super::complete::Fate;
use super::incoming::{Incoming, Landing};
use super::join::{Bytes, Join, Joining, Spot};
use super::{Answer, Condition, How, Place, answer_fate};
use crate::event_log::StoredBy;
use laneway_store::{Moment, Refused};
use laneway_wire::resp::reply::put_integer;

/// Memory was short, or the joined value is too large: what an append knows of it.
const NOT_JOINED: &[u8] =
    b"-ERR the joined value is larger than this server takes (-I), or memory is short\r\n";

/// Joined to an item that may have to be made.
const fn joined(spot: Spot) -> Place {
    Place::Joined { spot, cas: None, vivify: Some(Moment::NEVER) }
}

const fn how(place: Place) -> How {
    How { place, flags: 0, expires: Moment::NEVER, cas_explicit: None }
}

/// Begin to receive a value that is not whole yet: into its item, or into a buffer where it `joins`
/// what there is. `None`: it is refused, and answered; the rest of the request is to be skipped.
pub fn begin_resp(
    context: &Context<'_>,
    key: &[u8],
    value_bytes: usize,
    joins: Option<Spot>,
    out: &mut Vec<u8>,
) -> Option<Incoming> {
    let hash = context.store.hash(key);
    if let Some(spot) = joins {
        let landing = Landing::buffer(context.store.charge(), value_bytes);
        return Some(Incoming::new(key, hash, how(joined(spot)), &Answer::Resp, landing));
    }
    // Its end is told behind the value.
    match context.store.draft(key, 0, Moment::LATER, value_bytes) {
        Ok(mut draft) => {
            draft.set_expires(Moment::NEVER);
            let landing = Landing::Draft(draft, value_bytes);
            let how = how(Place::Whole(Condition::Always));
            Some(Incoming::new(key, hash, how, &Answer::Resp, landing))
        }
        Err(refused) => {
            context.log_store(key, (refused.into(), StoredBy::Set), Moment::NEVER, 0);
            put_refused(context, refused, out);
            None
        }
    }
}

/// `APPEND` or `SETRANGE` of bytes that lie whole in the input; of the old value about `budget`
/// bytes are copied now, and what is returned goes on with it.
pub fn join_slice(
    context: &Context<'_>,
    key: &[u8],
    (bytes, spot): (&[u8], Spot),
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<Box<Joining>> {
    let hash = context.store.hash(key);
    let how = how(joined(spot));
    let mut join = Join::of(&how, bytes).expect("it is one");
    let Some(fate) = join.advance(context, key, hash, &how, budget) else {
        let (begun, added) = (join.parted(), Bytes::Own(bytes.to_vec()));
        let answer = AnswerOwned::of(&Answer::Resp);
        return Some(Joining::new((key, hash), how, answer, begun, added));
    };
    answer_fate(context, (key, &how), &Answer::Resp, fate, bytes.len(), out);
    None
}

/// The same at once: [`Outcome::Done`], or [`Outcome::Kept`].
pub fn join_whole(
    context: &Context<'_>,
    key: &[u8],
    (bytes, spot): (&[u8], Spot),
    out: &mut Vec<u8>,
) -> Outcome {
    let (hash, how) = (context.store.hash(key), how(joined(spot)));
    let mut join = Join::of(&how, bytes).expect("it is one");
    match join.advance(context, key, hash, &how, usize::MAX) {
        Some(Fate::Forgotten) => Outcome::Kept,
        Some(fate) => {
            answer_fate(context, (key, &how), &Answer::Resp, fate, bytes.len(), out);
            Outcome::Done
        }
        None => unreachable!("all of it was asked for"),
    }
}

/// Counts a request that was refused, as a short one is counted, and says why. The old item stays:
/// nothing has changed.
pub(super) fn put_refused(context: &Context<'_>, refused: Refused, out: &mut Vec<u8>) {
    context.counters.cmd_set.bump_owner();
    context.count_refused(refused);
    out.extend_from_slice(words_of_refused(refused));
}

/// What became of an append.
pub(super) fn put_fate(fate: &Fate, out: &mut Vec<u8>) {
    match fate {
        Fate::Done { value_bytes, .. } => put_integer(out, *value_bytes as i64),
        Fate::TooMany => out.extend_from_slice(TOO_MANY),
        Fate::Exists | Fate::Missing | Fate::Unmet => out.extend_from_slice(NOT_JOINED),
        Fate::Forgotten => unreachable!("it is not answered"),
    }
}
