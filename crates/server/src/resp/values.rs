//! What stands around a value that is to be stored: before it the key, and of the older commands
//! all that is to be done with it; behind it the options of a `SET`.

use crate::execute::Spot;
use crate::execute::redis::{Answer, Condition, Expiry, Set};
use crate::resp::options::{self, Refusal};
use crate::resp::state::Verb;
use crate::resp::table::{Command, Spec};
use laneway_wire::resp::Args;

/// What is said of a pair that was stored: nothing before the last.
pub const PAIR: Set =
    Set { condition: Condition::Always, expiry: Expiry::Never, answer: Answer::Silent };

/// What is done with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It is stored.
    Set(Set),
    /// It is put into the one that there is.
    Join(Spot),
}

impl How {
    /// Whether it needs to know the item there is.
    pub fn looks_at_old(&self) -> bool {
        match self {
            How::Set(how) => how.looks_at_old(),
            How::Join(_) => true,
        }
    }

    /// How it is stored, where it is only if there is no item, and nothing is told of one.
    pub fn added(&self) -> Option<&Set> {
        match self {
            How::Set(how) if how.condition == Condition::Absent && how.answer != Answer::Old => {
                Some(how)
            }
            _ => None,
        }
    }
}

/// A request whose value is there.
pub struct Value<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// What is to be done with it.
    pub how: How,
}

/// What stands before a value: its key, and what is to be done with it.
pub fn head<'a>(spec: &Spec, args: &mut Args<'a>) -> Result<(&'a [u8], Verb), Refusal> {
    let key = options::key(args.next().unwrap_or_default())?;
    let verb = match spec.command {
        Command::SetAbsent => {
            let (condition, answer) = (Condition::Absent, Answer::Stored);
            Verb::Told(Set { condition, answer, expiry: Expiry::Never })
        }
        Command::GetSet => Verb::Told(Set { answer: Answer::Old, ..Set::default() }),
        Command::SetExpiring(unit) => {
            let time = args.next().unwrap_or_default();
            let expiry = options::deadline(unit, time, spec.name)?;
            Verb::Told(Set { expiry, ..Set::default() })
        }
        Command::Append => Verb::Join(Spot::Behind),
        Command::SetRange => {
            Verb::Join(Spot::At(options::offset(args.next().unwrap_or_default())?))
        }
        _ => Verb::Set,
    };
    Ok((key, verb))
}

/// All of a request; `args` are those behind its name.
pub fn whole<'a>(spec: &Spec, mut args: Args<'a>) -> Result<Value<'a>, Refusal> {
    let (key, verb) = head(spec, &mut args)?;
    let value = args.next().unwrap_or_default();
    let how = match verb {
        Verb::Told(how) => How::Set(how),
        Verb::Join(spot) => How::Join(spot),
        Verb::Set | Verb::Pair { .. } => How::Set(options::of_set(args)?),
    };
    Ok(Value { key, value, how })
}

/// How many arguments stand before the value.
pub fn value_at(command: Command) -> Option<u32> {
    match command {
        Command::Set | Command::SetAbsent | Command::GetSet | Command::Append => Some(2),
        Command::SetExpiring(_) | Command::SetRange => Some(3),
        _ => None,
    }
}
