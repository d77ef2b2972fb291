//! Bytes on their way in that lie outside the store's own memory, counted against the same limit as
//! drafts: values gathered in a buffer because their item cannot be laid out yet.

use crate::{meter, store::Store, types::Refused};
use laneway_sync::prim::Ordering::Relaxed;
use std::sync::Arc;

/// Bytes counted as unpublished until this is dropped.
pub struct Charge {
    store: Arc<Store>,
    bytes: u64,
}

impl Store {
    /// A charge of nothing so far.
    pub fn charge(self: &Arc<Self>) -> Charge {
        Charge { store: self.clone(), bytes: 0 }
    }
}

impl Charge {
    /// Count `bytes` in all from now on, if they fit below the limit.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Refused> {
        let more = bytes.saturating_sub(self.bytes);
        let unpublished = &self.store.counters.unpublished_bytes;
        let most = self.store.unpublished_bytes_max();
        if most < unpublished.fetch_add(more, Relaxed) + more || meter::is_refused() {
            unpublished.fetch_sub(more, Relaxed);
            return Err(Refused::OutOfMemory);
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.store.counters.unpublished_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Config;

    #[test]
    fn charges_fill_the_limit_and_give_it_back() {
        let store = Store::new(Config::default()).expect("a small store");
        let most = store.unpublished_bytes_max();
        let mut one = store.charge();
        assert_eq!(one.grow_to(most), Ok(()));
        let mut two = store.charge();
        assert_eq!(two.grow_to(1), Err(Refused::OutOfMemory));
        assert_eq!(one.grow_to(most / 2), Ok(()), "a charge only grows");
        assert_eq!(store.stats().unpublished_bytes, most);
        drop(one);
        assert_eq!(two.grow_to(most), Ok(()));
        drop(two);
        assert_eq!(store.stats().unpublished_bytes, 0);
    }
}
