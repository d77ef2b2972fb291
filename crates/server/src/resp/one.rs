//! What a command about one key does, whoever executes it: the worker that received it, or, where
//! items are kept durably, the keeper.

use crate::execute::redis::{self, Asking, Expiry, Known};
use crate::execute::{Outcome, append_whole};
use crate::latency::Operation;
use crate::resp::options::{self, Refusal};
use crate::resp::table::{Command, Spec};
use crate::resp::values::{self, Value};
use laneway_wire::resp::Args;

const DECREMENT_OVERFLOW: &[u8] = b"-ERR decrement would overflow\r\n";

/// As what a command is counted.
pub fn operation(command: Command) -> Operation {
    match command {
        Command::Get | Command::GetDelete | Command::GetExpire | Command::GetMany => Operation::Get,
        Command::Set
        | Command::SetAbsent
        | Command::SetExpiring(_)
        | Command::GetSet
        | Command::Append
        | Command::SetMany => Operation::Set,
        Command::Step(_) | Command::StepBy { .. } => Operation::Arith,
        Command::CountKeys(redis::Count::Deleted) => Operation::Delete,
        Command::CountKeys(redis::Count::Touched) | Command::Expire(_) | Command::Persist => {
            Operation::Touch
        }
        _ => Operation::Other,
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
            let expiry: Expiry = options::of_getex(args, asking.now_ms)?;
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
                told(spec.command, found, asking.now_ms, out);
                Outcome::Done
            }
            Err(outcome) => outcome,
        },
        Command::Expire(unit) => {
            let text = args.next().unwrap_or_default();
            let when = options::of_expire(args)?;
            let at = options::any_deadline(unit, text, asking.now_ms, spec.name)?;
            redis::expire(asking, key, at, when, out)
        }
        Command::Persist => redis::persist(asking, key, out),
        _ => unreachable!("it is served elsewhere"),
    })
}

/// Answers a command that asks for nothing but what is known of an item without its value; false
/// if it asks for more, and nothing was written.
pub fn told(command: Command, found: Option<Known>, now_ms: u64, out: &mut Vec<u8>) -> bool {
    let Command::Tell(what) = command else { return false };
    redis::tell(what, found, now_ms, out);
    true
}

/// Stores a value that is there, with all of its request.
pub fn store(asking: &Asking<'_>, stored: &Value<'_>, out: &mut Vec<u8>) -> Outcome {
    let Value { key, value, how } = stored;
    match how {
        Some(how) => redis::set_whole(asking, key, value, how, out),
        None => append_whole(&asking.context, key, value, out),
    }
}

/// Whether a request needs to know the item there is.
pub fn looks_at_old(spec: &Spec, args: Args<'_>, now_ms: u64) -> bool {
    match values::value_at(spec.command) {
        Some(_) => values::whole(spec, args, now_ms)
            .is_ok_and(|stored| stored.how.is_none_or(|how| how.looks_at_old())),
        None => spec.command != Command::SetMany,
    }
}
