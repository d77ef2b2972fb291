//! The sizes that bound what is accepted, in bytes, each with the place it comes from.
//!
//! Line and key limits are memcached's; the item limit is computed as memcached does, whatever the
//! store's own layout, so that the same `-I` refuses the same `set`.

use crate::request::Limits;

pub use crate::request::KEY_BYTES_MAX;

/// The byte that requests of memcached's binary protocol begin with; no line of text does.
pub const BINARY_REQUEST: u8 = 0x80;

/// A line without a newline longer than this ends the connection unless it is a multiget
/// (memcached: `try_read_command_ascii`).
pub const LINE_BYTES_MAX: usize = 2048;

/// Spaces in front of a multiget beyond which it is not taken for one (same place).
pub const LINE_SPACES_MAX: usize = 100;

/// Longest multiget line by default. memcached sets no bound but its memory; ours is ample for
/// 4000 keys of the longest kind.
pub const MULTIGET_BYTES_MAX: usize = 1 << 20;

/// Largest item by default (memcached: `-I`, 1 MiB).
pub const ITEM_BYTES_MAX: usize = 1 << 20;

/// What memcached adds to key and value when it holds an item against `-I`: header (48), CAS id
/// (8), the zero behind the key and the `\r\n` behind the value.
pub const ITEM_OVERHEAD_BYTES: usize = 48 + 8 + 1 + 2;

/// What it adds for client flags other than 0.
pub const ITEM_FLAGS_BYTES: usize = 4;

/// Longest value length a line may declare: with its `\r\n` it must fit a C `int`.
pub const VALUE_BYTES_MAX: usize = i32::MAX as usize - VALUE_END_BYTES;

/// The `\r\n` behind a value.
pub const VALUE_END_BYTES: usize = 2;

/// Most tokens of a meta command, its name and key included (memcached: `MFLAG_MAX_OPT_LENGTH`).
pub const META_TOKENS_MAX: usize = 20;

/// Longest opaque token, the `O` included (memcached: `MFLAG_MAX_OPAQUE_LENGTH`).
pub const OPAQUE_BYTES_MAX: usize = 32;

impl Default for Limits {
    fn default() -> Self {
        Limits { item_bytes_max: ITEM_BYTES_MAX, line_bytes_max: MULTIGET_BYTES_MAX }
    }
}

impl Limits {
    /// Whether an item of these sizes is within `-I`.
    #[inline]
    pub const fn item_fits(&self, key_bytes: usize, flags: u32, value_bytes: usize) -> bool {
        let flags_bytes = if flags == 0 { 0 } else { ITEM_FLAGS_BYTES };
        key_bytes + flags_bytes + value_bytes + ITEM_OVERHEAD_BYTES <= self.item_bytes_max
    }
}

const _: () = assert!(LINE_BYTES_MAX > KEY_BYTES_MAX * 2);
const _: () = assert!(MULTIGET_BYTES_MAX > LINE_BYTES_MAX);
