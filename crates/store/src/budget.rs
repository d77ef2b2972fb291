//! How much one step of maintenance may do. A worker does one such step in a turn, between small
//! requests, so each is about as long as a slice of a large transfer (some 10 microseconds), however
//! much there is to do: the next turn goes on. `meter` counts what these numbers bound.

/// Items that one step of a listing tells.
pub const LIST_ITEMS: usize = 64;
/// Slots and chunks that one step of a listing looks at: most may be free, or of other classes.
pub const LIST_LOOKS: usize = 1024;
