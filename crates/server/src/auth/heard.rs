//! The outcome of a request of a client that has not authenticated yet.

/// It, and its bytes.
pub(super) enum Heard {
    /// It has not arrived whole.
    More,
    /// It is of no account.
    Nothing(usize),
    /// It was refused.
    Refused(usize),
    /// From here on it is known who asks.
    Proven(usize),
    /// The connection is let go.
    Close,
}
