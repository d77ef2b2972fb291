//! The items of one size class, listed slot by slot: what `stats cachedump` tells. A debugging aid:
//! it looks at every slot of the class, a bounded number a step, and an item that moves meanwhile
//! may be missed or told twice. An item in pieces is of the class that its first piece lies in.

use crate::{
    budget::{LIST_ITEMS, LIST_LOOKS},
    large::{PIECE_HEADER_BYTES, owner_of},
    memory::SlotAt,
    meter,
    moment::Moment,
    record,
    store::Store,
    types::ItemMeta,
};
use laneway_sync::prim::Ordering::Relaxed;

/// Where a walk over the items of one class stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Listing {
    chunk: u32,
    slot: usize,
}

/// What a step may still look at and tell, in however many stores.
#[derive(Debug)]
pub struct ListBudget {
    looks: usize,
    items: usize,
}

impl Default for ListBudget {
    /// A step's.
    fn default() -> ListBudget {
        ListBudget { looks: LIST_LOOKS, items: LIST_ITEMS }
    }
}

impl Store {
    /// One bounded step of a walk over the live items of some classes: bit N of `classes` is for
    /// the one with number N (as [`crate::ClassStats`] has it), and `tell` is told it. True: it has
    /// come to the end; else the step's budget has.
    pub fn list(
        &self,
        classes: u64,
        (walk, budget): (&mut Listing, &mut ListBudget),
        now: Moment,
        mut tell: impl FnMut(&[u8], &ItemMeta, u32),
    ) -> bool {
        let number = |of: usize| self.memory.class_number(of);
        let wanted = |of: usize| classes.checked_shr(number(of)).is_some_and(|bits| bits & 1 == 1);
        let chunk_highest = self.memory.chunk_highest();
        let mut key = Vec::new();
        while budget.looks > 0 {
            if walk.chunk > chunk_highest {
                return true;
            }
            if budget.items == 0 {
                return false;
            }
            budget.looks -= 1;
            meter::slots(1);
            let chunk = walk.chunk;
            let of = self.memory.class_of_chunk(chunk).filter(|&of| wanted(of));
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
            let Some(offset) = self.record_in_slot(at) else { continue };
            if let Some(meta) = self.item_at(offset, &mut key, now) {
                meter::items(1);
                budget.items -= 1;
                tell(&key, &meta, number(class));
            }
        }
        false
    }

    /// Where the record in this slot begins: behind the word of a piece, if it is the first one of
    /// a large item. Blocks that are other pieces hold none.
    fn record_in_slot(&self, at: SlotAt) -> Option<usize> {
        let offset = self.memory.offset_of(at);
        let word = self.memory.items.words_at(offset, PIECE_HEADER_BYTES)?.first()?;
        let (descriptor, piece) = owner_of(u64::from_le(word.load(Relaxed)));
        let record = offset + PIECE_HEADER_BYTES;
        let large = self.large.get(descriptor).filter(|large| large.is_alive() && piece == 0);
        if large.is_some_and(|large| large.record_offset() == record) {
            return Some(record);
        }
        (at.class != self.memory.block_class()).then_some(offset)
    }

    /// The item whose record stands here, if the index says that one does, and its key.
    fn item_at(&self, offset: usize, key: &mut Vec<u8>, now: Moment) -> Option<ItemMeta> {
        let header = record::read(&self.memory.items, offset)?;
        self.key_at(offset, &header, key)?;
        self.peek(self.hash(key), key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Config;

    const NOW: Moment = Moment::from_seconds(1);

    fn list_all(store: &Store, classes: u64, mut tell: impl FnMut(&[u8], &ItemMeta)) {
        let mut walk = Listing::default();
        let mut is_over = false;
        while !is_over {
            let step = (&mut walk, &mut ListBudget::default());
            is_over = store.list(classes, step, NOW, |key, meta, _| tell(key, meta));
        }
    }

    #[test]
    fn a_step_of_a_listing_tells_few_items_and_all_steps_tell_each_once() {
        const ITEMS: usize = 10_000;
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() });
        let store = store.expect("a small store");
        for number in 0..ITEMS {
            let key = format!("key{number:05}");
            let mut draft =
                store.draft(key.as_bytes(), 0, Moment::NEVER, 3).expect("there is room");
            draft.write(b"abc").expect("there is room");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        }
        let class = store.class_stats().into_iter().find(|class| class.used > 0);
        let class = class.expect("they are all of one class").class;
        let (mut walk, mut keys, mut steps) = (Listing::default(), Vec::new(), 0);
        loop {
            meter::take();
            let step = (&mut walk, &mut ListBudget::default());
            let is_over = store.list(1 << class, step, NOW, |key, meta, of| {
                assert_eq!(of, class);
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

    #[test]
    fn items_in_pieces_are_told_once_by_the_class_of_their_first_piece() {
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() });
        let store = store.expect("a small store");
        let sizes = [3, 16_000, 16_400, 20_000, 40_000, 66_000, 1_000_000];
        let value = vec![b'x'; 1_000_000];
        for size in sizes {
            let key = format!("of{size}");
            let mut draft =
                store.draft(key.as_bytes(), 0, Moment::NEVER, size).expect("there is room");
            draft.write(&value[..size]).expect("there is room");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        }
        let mut told = Vec::new();
        for class in store.class_stats() {
            let before = told.len() as u64;
            list_all(&store, 1 << class.class, |key, meta| {
                assert_eq!(key, format!("of{}", meta.value_bytes).as_bytes());
                told.push(meta.value_bytes as usize);
            });
            assert_eq!(class.items, told.len() as u64 - before, "of {} bytes", class.slot_bytes);
        }
        let mut all = 0;
        list_all(&store, u64::MAX, |_, _| all += 1);
        assert_eq!(all, told.len(), "of all classes at once");
        told.sort_unstable();
        assert_eq!(told, sizes);
        for size in sizes {
            let key = format!("of{size}");
            store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).unlink();
        }
        assert!(store.class_stats().iter().all(|class| (class.items, class.used) == (0, 0)));
    }
}
