//! Executes a command about one key. The caller is the worker that received it or, for durable
//! items, the durable executor.

use crate::execute::redis::{self, Asking, Expiry, Known, Short};
use crate::execute::{Outcome, Spot, join_whole};
use crate::latency::Operation;
use crate::resp::options::{self, Refusal};
use crate::resp::table::{Command, Spec};
use crate::resp::values::{How, Value};
use laneway_store::Moment;
use laneway_wire::resp::Args;

const LONG_COMPARED: &[u8] = b"-ERR DELIFEQ compares with values of up to 64 bytes here\r\n";
const _: () = assert!(Short::BYTES_MAX == 64);
const DECREMENT_OVERFLOW: &[u8] = b"-ERR decrement would overflow\r\n";

/// As what a command is counted.
pub fn operation(command: Command) -> Operation {
    match command {
        Command::Get
        | Command::GetRange
        | Command::GetDelete
        | Command::GetExpire
        | Command::GetMany => Operation::Get,
        Command::Set
        | Command::SetAbsent
        | Command::SetExpiring(_)
        | Command::GetSet
        | Command::Append
        | Command::SetRange
        | Command::SetMany
        | Command::SetManyAbsent
        | Command::Rename { .. } => Operation::Set,
        Command::Step(_) | Command::StepBy { .. } | Command::StepFloat => Operation::Arith,
        Command::CountKeys(redis::Count::Deleted) | Command::DeleteEqual => Operation::Delete,
        Command::CountKeys(redis::Count::Touched) | Command::Expire(_) | Command::Persist => {
            Operation::Touch
        }
        _ => Operation::Other,
    }
}

/// The same of one with its value: a `SETRANGE` of nothing asks for a length, and stores nothing.
pub fn operation_of(stored: &Value<'_>) -> Operation {
    match stored.how {
        How::Join(Spot::At(_)) if stored.value.is_empty() => Operation::Other,
        How::Set(_) | How::Join(_) => Operation::Set,
    }
}

/// Executes a command without a value about `key`; `args` are those behind the key. An error is
/// what the client is told, and nothing was done.
pub fn plain(
    asking: &Asking<'_>,
    spec: &Spec,
    key: &[u8],
    mut args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<Outcome, Refusal> {
    let hash = asking.context.store.hash(key);
    Ok(match spec.command {
        Command::Get => redis::get(asking, key, hash, out),
        Command::GetDelete => redis::get_and_delete(asking, key, hash, out),
        Command::GetExpire => {
            let expiry: Expiry = options::of_getex(args)?;
            redis::get_and_expire(asking, key, hash, expiry, out)
        }
        Command::Step(by) => redis::increment(asking, key, by, out),
        Command::StepBy { down } => {
            let by = options::number(args.next().unwrap_or_default())?;
            let by = if down { by.checked_neg() } else { Some(by) };
            redis::increment(asking, key, by.ok_or(DECREMENT_OVERFLOW)?, out)
        }
        Command::Tell(_) => match redis::look(asking, key) {
            Ok(found) => {
                told(spec.command, found, asking.context.now, out);
                Outcome::Done
            }
            Err(outcome) => outcome,
        },
        Command::Expire(unit) => {
            let text = args.next().unwrap_or_default();
            let when = options::of_expire(args)?;
            let deadline = options::any_deadline(unit, text, spec.name)?;
            redis::expire(asking, key, deadline, when, out)
        }
        Command::GetRange => {
            let start = options::number(args.next().unwrap_or_default())?;
            let end = options::number(args.next().unwrap_or_default())?;
            redis::get_range(asking, key, hash, (start, end), out)
        }
        Command::StepFloat => {
            redis::increment_float(asking, key, args.next().unwrap_or_default(), out)
        }
        Command::Persist => redis::persist(asking, key, out),
        Command::DeleteEqual => {
            let wanted = args.next().filter(|wanted| wanted.len() <= Short::BYTES_MAX);
            redis::delete_if_equal(asking, key, wanted.ok_or(LONG_COMPARED)?, out)
        }
        _ => unreachable!("it is served elsewhere"),
    })
}

/// Answers a command that asks for nothing but what is known of an item without its value; false
/// if it asks for more, and nothing was written.
pub fn told(command: Command, found: Option<Known>, now: Moment, out: &mut Vec<u8>) -> bool {
    let Command::Tell(what) = command else { return false };
    redis::tell(what, found, now, out);
    true
}

/// Stores a value that is there, with all of its request.
pub fn store(asking: &Asking<'_>, stored: &Value<'_>, out: &mut Vec<u8>) -> Outcome {
    let Value { key, value, how } = stored;
    match how {
        How::Set(how) => redis::set_whole(asking, key, value, how, out),
        How::Join(Spot::At(_)) if value.is_empty() => tell_length(asking, key, out),
        How::Join(spot) => join_whole(&asking.context, key, (value, *spot), out),
    }
}

/// The length of a value: that is all that a `SETRANGE` of nothing comes to.
pub fn tell_length(asking: &Asking<'_>, key: &[u8], out: &mut Vec<u8>) -> Outcome {
    match redis::look(asking, key) {
        Ok(found) => {
            redis::tell(redis::Telling::Length, found, asking.context.now, out);
            Outcome::Done
        }
        Err(outcome) => outcome,
    }
}
