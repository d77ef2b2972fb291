//! Bounds how often an optimistic change begins again when others change the same item in between.

use laneway_store::ItemMeta;

/// Tries before the thread lets others run between tries.
const TRIES_EAGER: u32 = 64;

/// Tries after which the client is told to come back. Every failed try means that somebody else's
/// change of the same key succeeded, so this many in a row are not met in practice; the bound is
/// there because nothing here may spin for ever.
const TRIES_MAX: u32 = 4096;

/// What the client is told then.
pub(super) const TOO_MANY: &[u8] = b"SERVER_ERROR too many changes of one key at once\r\n";

/// The tries of one change: `while attempts.again() { .. }`.
#[derive(Default)]
pub(super) struct Attempts(u32);

impl Attempts {
    pub(super) const fn new() -> Self {
        Attempts(0)
    }

    /// Whether there is another try.
    pub(super) fn again(&mut self) -> bool {
        self.0 += 1;
        if self.0 > TRIES_EAGER {
            std::thread::yield_now();
        }
        self.0 <= TRIES_MAX
    }
}

/// Whether the item in the bucket is still the one looked at before: nothing that a reply or a
/// replacement was built from has changed. (A hit changes `fetched` and `idle_seconds` only.)
pub(super) fn unchanged(seen: &ItemMeta, found: Option<&ItemMeta>) -> bool {
    found.is_some_and(|found| {
        found.seq == seen.seq
            && found.expires == seen.expires
            && found.flags == seen.flags
            && found.value_bytes == seen.value_bytes
            && found.stale == seen.stale
            && found.token_sent == seen.token_sent
    })
}
