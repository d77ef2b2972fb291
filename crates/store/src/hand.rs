//! A thread's own free slots: one of each small class, kept from the item that it replaced last.
//!
//! Whoever stores over an item takes a slot for the new record and gives the old one back, and both
//! write the class's mutex, counts and bitmap, which all workers share. With a hand the slot that
//! one store gives back is the next one's, and stores of different workers meet in no line but
//! those of the bucket and of the partition's counts.
//!
//! A slot in a hand counts as used, as a draft's does, and with `-M` another worker may be refused
//! while it would have served it: one slot of each class and worker, and one of the durable
//! executor, if there is one. So that chunks can be emptied and nothing is withheld for long, the
//! owner empties its hand whenever it has nothing to do, and once a second.

use crate::store::Store;
use laneway_sync::planted::{Bug, is_planted};
use std::{cell::Cell, sync::Arc};

/// Slots up to this size are kept, bytes: all of a hand are about 60 KB.
const SLOT_BYTES_MAX: usize = 4096;

/// The free slots that one thread keeps. Dropped, it gives them back.
#[derive(Debug)]
pub struct Hand {
    store: Arc<Store>,
    /// By class: where the slot is, 0 for none (the first chunk is nobody's).
    slots: Box<[Cell<usize>]>,
    holds_any: Cell<bool>,
}

impl Hand {
    /// An empty one.
    pub fn new(store: &Arc<Store>) -> Hand {
        let memory = &store.memory;
        let classes = (0..memory.block_class())
            .take_while(|&class| memory.class(class).slot_bytes <= SLOT_BYTES_MAX);
        let slots = classes.map(|_| Cell::new(0)).collect();
        Hand { store: store.clone(), slots, holds_any: Cell::new(false) }
    }

    /// The slot of this class, if there is one.
    #[inline]
    pub(crate) fn take(&self, class: usize) -> Option<usize> {
        let slot = self.slots.get(class)?.take();
        (slot != 0).then_some(slot)
    }

    /// Keep a slot that was freed. False where it is to be given back: there is one of its class
    /// already, it is too large, or its chunk is being emptied.
    #[inline]
    pub(crate) fn keep(&self, offset: usize) -> bool {
        let Some(class) = self.store.memory.class_to_keep(offset) else { return false };
        let Some(slot) = self.slots.get(class).filter(|slot| slot.get() == 0) else { return false };
        slot.set(offset);
        self.holds_any.set(true);
        !is_planted(Bug::SlotHeldTwice)
    }

    /// Give back what it holds. Whether it may have held any.
    #[inline]
    pub fn empty(&self) -> bool {
        let holds_any = self.holds_any.replace(false);
        if holds_any {
            let held = self.slots.iter().map(Cell::take).filter(|&slot| slot != 0);
            held.for_each(|slot| self.store.memory.give(slot));
        }
        holds_any
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.empty();
    }
}
