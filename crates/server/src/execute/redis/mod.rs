//! What Redis' commands do: the store is memcached's, and so is the shape of a compound operation
//! ([`super::attempts`]); replies are RESP.
//!
//! It departs from Redis where the store does. A client flag (memcached's) is 0 on what is set
//! here, and kept by what changes a value in part. Of an error nothing has changed.
//!
//! It knows no connection, as everything here. Times are moments.

mod arith;
mod expiry;
mod float;
mod get;
mod keys;
mod set;
mod several;
mod watched;

pub use arith::increment;
pub use expiry::{Deadline, Expiry, ExpiryUnit, NotADeadline, When};
pub use float::increment_float;
pub use get::{get, get_and_delete, get_and_expire, get_range};
pub use keys::{
    Count, Known, Left, Telling, count_key, delete_if_equal, expire, look, persist, tell,
};
pub use set::{Answer, Condition, Set, Short, refuse_added, refuse_set, set, set_whole};
pub use several::{rename, set_all_absent};
pub use watched::{Seen, Watched, is_same};

use super::{Context, anew, attempts};
use laneway_store::Refused;
use laneway_wire::resp::reply::Version;

/// What a command is executed in, for who speaks RESP.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// The same as for memcached's commands.
    pub context: Context<'a>,
    /// The version of the protocol that the client speaks.
    pub version: Version,
}

/// No memory for a new item.
pub const OUT_OF_MEMORY: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";
/// The value, or the one to be made, is above `-I`.
pub const TOO_LARGE: &[u8] = b"-ERR the item is larger than this server takes (-I)\r\n";
/// Which of these is told of a value that was refused.
pub fn words_of_refused(refused: Refused) -> &'static [u8] {
    match refused {
        Refused::TooLarge => TOO_LARGE,
        Refused::OutOfMemory => OUT_OF_MEMORY,
    }
}

/// Others changed the item all the time.
pub const TOO_MANY: &[u8] = b"-ERR too many changes of one key at once\r\n";
/// A number was to stand there.
pub const NO_INTEGER: &[u8] = b"-ERR value is not an integer or out of range\r\n";
