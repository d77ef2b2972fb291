//! The items of one size class, listed slot by slot: what `stats cachedump` tells. A debugging aid:
//! it looks at every slot of the class, a bounded number a step, and an item that moves meanwhile
//! may be missed or told twice.

use crate::{
    budget::{LIST_ITEMS, LIST_LOOKS},
    memory::SlotAt,
    meter, record,
    store::Store,
    types::{ItemMeta, UnixSeconds},
};

/// Where a walk over the items of one class stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Listing {
    chunk: u32,
    slot: usize,
}

impl Store {
    /// One bounded step of a walk over the live items of the class with this number (as
    /// [`crate::ClassStats`] has it). True: it has come to the end.
    pub fn list(
        &self,
        class: u32,
        walk: &mut Listing,
        now: UnixSeconds,
        mut tell: impl FnMut(&[u8], &ItemMeta),
    ) -> bool {
        let wanted = |of: usize| self.memory.ordinary_class(of) as u32 + 1 == class;
        let chunk_highest = self.memory.chunk_highest();
        let mut told = 0;
        let mut key = Vec::new();
        for _ in 0..LIST_LOOKS {
            if walk.chunk > chunk_highest {
                return true;
            }
            if told == LIST_ITEMS {
                return false;
            }
            meter::slots(1);
            let chunk = walk.chunk;
            // Blocks are pieces of large items, not items.
            let of = self.memory.class_of_chunk(chunk);
            let of = of.filter(|&of| wanted(of) && of != self.memory.block_class());
            let Some(class) = of.filter(|&of| walk.slot < self.memory.class(of).slots) else {
                *walk = Listing { chunk: chunk + 1, slot: 0 };
                continue;
            };
            let at = SlotAt { class, chunk, slot: walk.slot };
            walk.slot += 1;
            if !self.memory.is_used(at) {
                continue;
            }
            key.clear();
            if let Some(meta) = self.item_at(self.memory.offset_of(at), &mut key, now) {
                meter::items(1);
                told += 1;
                tell(&key, &meta);
            }
        }
        false
    }

    /// The item whose record stands here, if the index says that one does, and its key.
    fn item_at(&self, offset: usize, key: &mut Vec<u8>, now: UnixSeconds) -> Option<ItemMeta> {
        let header = record::read(&self.memory.items, offset)?;
        self.key_at(offset, &header, key)?;
        self.peek(self.hash(key), key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Config;

    #[test]
    fn a_step_of_a_listing_tells_few_items_and_all_steps_tell_each_once() {
        const ITEMS: usize = 10_000;
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() });
        let store = store.expect("a small store");
        for number in 0..ITEMS {
            let key = format!("key{number:05}");
            let mut draft = store.draft(key.as_bytes(), 0, 0, 3, 1).expect("there is room");
            draft.write(b"abc").expect("there is room");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), 1).publish(draft, None);
        }
        let class = store.class_stats().into_iter().find(|class| class.used > 0);
        let class = class.expect("they are all of one class").class;
        let (mut walk, mut keys, mut steps) = (Listing::default(), Vec::new(), 0);
        loop {
            meter::take();
            let is_over = store.list(class, &mut walk, 1, |key, meta| {
                assert_eq!(meta.value_bytes, 3);
                keys.push(key.to_vec());
            });
            let work = meter::take();
            assert!(work.items <= LIST_ITEMS as u64 && work.slots <= LIST_LOOKS as u64, "{work:?}");
            steps += 1;
            if is_over {
                break;
            }
        }
        keys.sort();
        let wanted: Vec<_> =
            (0..ITEMS).map(|number| format!("key{number:05}").into_bytes()).collect();
        assert!(keys == wanted, "{} keys", keys.len());
        assert!(steps > ITEMS / LIST_ITEMS, "{steps} steps");
    }
}
