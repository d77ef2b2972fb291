//! What a line came to: a request, or a refusal with its reply. Shared by the text commands and the
//! meta commands.

use crate::limits::{VALUE_BYTES_MAX, VALUE_END_BYTES};
use crate::request::{MetaKey, Request, Then};
use crate::scan::number_u64;

/// What became of a line whose end was found.
pub(crate) type Outcome<'a> = Result<Request<'a>, Refusal<'a>>;

/// A [`crate::Malformed`] that does not know yet how long its line was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal<'a> {
    pub(crate) reply: &'static [u8],
    pub(crate) then: Then,
    pub(crate) unlink: Option<MetaKey<'a>>,
}

impl Refusal<'_> {
    /// Says `reply` and goes on with the next line.
    pub(crate) const fn says(reply: &'static [u8]) -> Self {
        Refusal { reply, then: Then::Continue, unlink: None }
    }
    /// The same, unless the client wanted no answer.
    pub(crate) const fn says_unless(noreply: bool, reply: &'static [u8]) -> Self {
        Self::says(if noreply { b"" } else { reply })
    }
    /// Skips the body that follows.
    pub(crate) const fn swallow(self, value_bytes: usize) -> Self {
        Refusal { then: Then::Swallow(value_bytes + VALUE_END_BYTES), ..self }
    }
    /// Ends the connection: what follows is no line. A value of which nobody knows where it ends
    /// would be read as requests, as memcached does.
    pub(crate) const fn close(self) -> Self {
        Refusal { then: Then::Close, ..self }
    }
}

/// A value's length as declared: at least 0, and its `\r\n` must fit behind it.
pub(crate) fn value_bytes(token: &[u8]) -> Option<usize> {
    let value_bytes = usize::try_from(number_u64(token)?).ok()?;
    (value_bytes <= VALUE_BYTES_MAX).then_some(value_bytes)
}
