//! Executes the meta commands, one file each: `mg`, `md`, `ma`, `me`. (`ms` is in `execute::store`,
//! beside the classic verbs it shares everything with; `mn` is a line in `execute`.)
//!
//! Their flags are returned in the order the client sent them, so replies are written by going
//! through the flags once more; and since `T`, `N` and `R` act as they are met, what a `t` shows
//! depends on where it stands, as with memcached.

pub(super) mod arith;
pub(super) mod debug;
pub(super) mod delete;
pub(super) mod get;
