//! Bytes on their way in that lie outside the store's own memory, counted against the same limit as
//! drafts: values gathered in a buffer because their item cannot be laid out yet.

use crate::{meter, store::Store, types::Refused};
use laneway_sync::prim::Ordering::Relaxed;
use std::mem;
use std::ops::{Deref, DerefMut};
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
    /// Count `bytes` in all from now on, if they fit below the limit. Who needs more memory gives
    /// some back that others have left.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Refused> {
        self.store.give_buffers();
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

/// Bytes on the heap that are counted so. Dropped, a long one is given back a stretch at a time.
pub struct Gathered {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Gathered {
    /// None so far.
    pub fn new(charge: Charge) -> Gathered {
        Gathered { bytes: Vec::new(), charge }
    }

    /// Count so many from now on: see [`Charge::grow_to`].
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Refused> {
        self.charge.grow_to(bytes)
    }
}

impl Deref for Gathered {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Gathered {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.charge.store.give_buffer(mem::take(&mut self.bytes));
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
    use crate::{moment::Moment, remains::BUFFER_STRETCH, types::Config};

    #[test]
    fn a_long_buffer_is_given_back_a_stretch_at_a_time() {
        const STRETCHES: usize = 20;
        let store = Store::new(Config::default()).expect("a small store");
        let gathered = |bytes: usize| {
            let mut gathered = Gathered::new(store.charge());
            gathered.grow_to(bytes as u64).expect("it fits");
            gathered.resize(bytes, 1);
            gathered
        };
        let left = || store.buffer_bytes();
        drop(gathered(BUFFER_STRETCH));
        assert_eq!(left(), 0, "a short one goes at once");
        drop(gathered(STRETCHES * BUFFER_STRETCH));
        assert_eq!(store.stats().unpublished_bytes, 0);
        for stretch in (0..STRETCHES).rev() {
            assert!(!store.sweep(Moment::from_seconds(1), 1_000_000).is_over || stretch == 0);
            assert_eq!(left(), stretch * BUFFER_STRETCH);
        }
        // Who gathers more helps.
        drop(gathered(2 * BUFFER_STRETCH));
        assert_eq!(store.charge().grow_to(1), Ok(()));
        assert_eq!(left(), BUFFER_STRETCH);
    }

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
