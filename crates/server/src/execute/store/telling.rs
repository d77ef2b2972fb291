//! How a store by the binary protocol is answered.

use super::super::{Context, reply};
use super::complete::Fate;
use super::{Condition, How, Place};
use laneway_store::Refused;
use laneway_wire::binary::reply::{Status, put, put_done, put_error};
use laneway_wire::binary::{Echo, Frame, Opcode};

/// How to answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling {
    pub(super) echo: Echo,
    quiet: bool,
}

impl Telling {
    /// A request.
    pub(super) fn of(frame: &Frame<'_>) -> Telling {
        Telling { echo: frame.echo, quiet: frame.quiet }
    }

    /// Whether a value was to be set, come what may.
    pub(super) fn is_set(self) -> bool {
        matches!(Opcode::read(self.echo.opcode), Some((Opcode::Set, _)))
    }

    pub(super) fn put_refused(self, refused: Refused, out: &mut Vec<u8>) {
        match refused {
            Refused::TooLarge => put_error(out, self.echo, Status::TooLarge),
            Refused::OutOfMemory => {
                put(out, self.echo, Status::OutOfMemory, b"", b"Out of memory allocating item");
            }
        }
    }

    /// A failure is told also where a success is not.
    pub(super) fn put_fate(self, context: &Context<'_>, how: &How, fate: &Fate, out: &mut Vec<u8>) {
        let status = match (fate, how.place) {
            (Fate::Done { .. }, _) if self.quiet => return,
            (Fate::Done { seq, .. }, _) => return put_done(out, self.echo, context.shown(*seq)),
            (Fate::TooMany, _) => return reply::binary_too_many(self.echo, out),
            (Fate::Exists, _) => Status::Exists,
            (Fate::Missing, _) => Status::NotFound,
            (Fate::Unmet, Place::Whole(Condition::Absent)) => Status::Exists,
            (Fate::Unmet, Place::Whole(_)) => Status::NotFound,
            (Fate::Unmet, Place::Joined { .. }) => Status::NotStored,
            (Fate::Forgotten, _) => unreachable!("it is not answered"),
        };
        put_error(out, self.echo, status);
    }
}
