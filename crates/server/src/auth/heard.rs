//! What a request came to of who has not said who he is.

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
