//! The items of one size class, listed slot by slot: what `stats cachedump` tells. A debugging aid:
//! it looks at every slot of the class up to a limit, and an item that moves meanwhile may be
//! missed or told twice.

use crate::{
    memory::SlotAt,
    meter, record,
    store::Store,
    types::{ItemMeta, UnixSeconds},
};

impl Store {
    /// At most `most` live items of the class with this number (as [`crate::ClassStats`] has it).
    pub fn list(&self, class: u32, most: usize, now: UnixSeconds) -> Vec<(Vec<u8>, ItemMeta)> {
        let mut items = Vec::new();
        let wanted = |of: usize| self.memory.ordinary_class(of) as u32 + 1 == class;
        for chunk in 0..=self.memory.chunk_highest() {
            meter::slots(1);
            let Some(class) = self.memory.class_of_chunk(chunk).filter(|&class| wanted(class))
            else {
                continue;
            };
            if class == self.memory.block_class() {
                continue; // pieces of large items, not items
            }
            for slot in 0..self.memory.class(class).slots {
                if items.len() >= most {
                    return items;
                }
                meter::slots(1);
                let at = SlotAt { class, chunk, slot };
                if self.memory.is_used(at) {
                    items.extend(self.item_at(self.memory.offset_of(at), now));
                }
            }
        }
        items
    }

    /// The item whose record stands here, if the index says that one does.
    fn item_at(&self, offset: usize, now: UnixSeconds) -> Option<(Vec<u8>, ItemMeta)> {
        let header = record::read(&self.memory.items, offset)?;
        let mut key = Vec::new();
        self.key_at(offset, &header, &mut key)?;
        meter::items(1);
        let meta = self.peek(self.hash(&key), &key, now)?;
        Some((key, meta))
    }
}
