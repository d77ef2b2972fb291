//! Bounds how much of a connection is served in one turn, and says how serving its input stops.
//! Sizes are bytes.

/// Keys of a multiget looked up in one turn; one that finds nothing makes no reply to bound it.
pub const KEYS_PER_TURN: usize = 512;
/// Bytes of replies gathered in one turn.
pub const OUT_BYTES_PER_TURN: usize = 32 * 1024;
/// Bytes one read of the small lane takes at most. What does not end within them and belongs to a
/// value streams straight into its item.
pub const READ_BYTES: usize = 16 * 1024;

/// Why serving the input came to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// More bytes are needed.
    Starved,
    /// More bytes are needed, a newline among them.
    HalfLine,
    /// The turn has done enough.
    Quota,
    /// A large request has begun here: its turns are slices.
    Large,
    /// A large request is to be served by a large worker; nothing of it was consumed.
    Hand,
    /// A request was put into a queue; the next one waits for its reply.
    Ticket,
    /// The client wants to leave, or must.
    Close,
}

/// What one request came to.
pub(crate) enum Step {
    /// So many bytes of input were consumed; go on.
    Took(usize),
    /// So many bytes were consumed; the turn stops.
    Stop(usize, Stop),
}

impl Step {
    /// The same behind so many bytes that were consumed before.
    pub(crate) fn behind(self, before: usize) -> Step {
        match self {
            Step::Took(bytes) => Step::Took(before + bytes),
            Step::Stop(bytes, stop) => Step::Stop(before + bytes, stop),
        }
    }
}
