//! Commands about one key, without a value to be stored.

use crate::connection::Connection;
use crate::core::Core;
use crate::execute::Outcome;
use crate::execute::redis::{self, Asking, Expiry};
use crate::latency::Operation;
use crate::resp::options::{self, Refusal};
use crate::resp::table::{Command, Spec};
use crate::step::{Step, Stop};
use crate::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use std::cell::Cell;

const DECREMENT_OVERFLOW: &[u8] = b"-ERR decrement would overflow\r\n";

impl<T: Transport> Streams<T> {
    /// Such a command, whose key is the first of the `args`; all of it are so many bytes.
    pub(crate) fn resp_plain(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        mut args: Args<'_>,
        bytes: usize,
        arrived: u64,
    ) -> Step {
        let key = match options::key(args.next().unwrap_or_default()) {
            Ok(key) => key,
            Err(words) => {
                self.out.extend_from_slice(&words);
                return Step::Took(bytes);
            }
        };
        let (touched, before) = (Cell::new(0), self.out.len());
        let asking = core.asking(connection, &touched, key, arrived);
        let outcome = match execute(&asking, spec, key, args, &mut self.out) {
            Ok(outcome) => outcome,
            Err(words) => {
                self.out.extend_from_slice(&words);
                Outcome::Done
            }
        };
        if matches!(outcome, Outcome::Elsewhere) {
            return Step::Stop(0, Stop::Hand);
        }
        if matches!(outcome, Outcome::Transfer(_)) {
            self.send_before_large(core, connection, before);
        }
        core.account(connection, operation(spec.command), touched.get(), arrived);
        match outcome {
            Outcome::Transfer(transfer) => {
                self.begin_transfer(core, connection, transfer, false);
                connection.large = core.sends_in_slices();
                Step::Stop(bytes, Stop::Large)
            }
            _ => Step::Took(bytes),
        }
    }
}

fn operation(command: Command) -> Operation {
    match command {
        Command::Get | Command::GetDelete | Command::GetExpire => Operation::Get,
        Command::Step(_) | Command::StepBy { .. } => Operation::Arith,
        Command::Expire(_) | Command::Persist => Operation::Touch,
        _ => Operation::Other,
    }
}

fn execute(
    asking: &Asking<'_>,
    spec: &Spec,
    key: &[u8],
    mut args: Args<'_>,
    out: &mut Vec<u8>,
) -> Result<Outcome, Refusal> {
    let hash = asking.context.store.hash(key);
    match spec.command {
        Command::Get => return Ok(redis::get(asking, key, hash, out)),
        Command::GetDelete => return Ok(redis::get_and_delete(asking, key, hash, out)),
        Command::GetExpire => {
            let expiry: Expiry = options::of_getex(args, asking.now_ms)?;
            return Ok(redis::get_and_expire(asking, key, hash, expiry, out));
        }
        Command::Step(by) => redis::increment(asking, key, by, out),
        Command::StepBy { down } => {
            let by = options::number(args.next().unwrap_or_default())?;
            let by = if down { by.checked_neg() } else { Some(by) };
            redis::increment(asking, key, by.ok_or(DECREMENT_OVERFLOW)?, out);
        }
        Command::Length => redis::length(asking, key, out),
        Command::Kind => redis::kind(asking, key, out),
        Command::Expire(unit) => {
            let text = args.next().unwrap_or_default();
            let when = options::of_expire(args)?;
            let at = options::any_deadline(unit, text, asking.now_ms, spec.name)?;
            redis::expire(asking, key, at, when, out);
        }
        Command::TimeLeft(how) => redis::time_left(asking, key, how, out),
        Command::Persist => redis::persist(asking, key, out),
        _ => unreachable!("it is served elsewhere"),
    }
    Ok(Outcome::Done)
}
