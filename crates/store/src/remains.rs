//! Pieces of large items that are over. An item of a gigabyte has 32 thousand, so whoever ends one
//! gives back as many as its budget allows; the others remain, and are given back a step at a time:
//! by the sweep, and before anything alive is evicted by whoever needs memory. Until then nobody
//! knows them: the descriptor that they name is dead, or another item's.
//!
//! The same of buffers in which values were gathered: the system takes each page of one back by
//! itself, a quarter of a million of a gigabyte.

use crate::{
    budget::{Budget, GIVE},
    cursor::Remainder,
    meter,
    store::Store,
};
use laneway_sync::prim::Ordering::Relaxed;
use std::sync::PoisonError;

/// Bytes of a buffer that one step gives back: 64 pages, some 6 microseconds.
pub(crate) const BUFFER_STRETCH: usize = 256 << 10;

impl Store {
    /// Free the pieces of a large item or draft: one at least, and more as the budget allows.
    pub(crate) fn give_pieces(&self, pieces: Vec<u64>, budget: &mut Budget) {
        let mut list = Remainder { pieces, given: 0 };
        self.give_some(&mut list, budget);
        if list.given < list.pieces.len() {
            let mut lists = self.remains.lists.lock().unwrap_or_else(PoisonError::into_inner);
            lists.push(list);
            self.remains.count.store(lists.len(), Relaxed);
        }
    }

    /// Free pieces that remain, as the budget allows. True if there were any, also where another
    /// thread has freed them meanwhile.
    pub(crate) fn give_remains(&self, budget: &mut Budget) -> bool {
        if !self.has_remains() || budget.is_spent() {
            return false;
        }
        let mut lists = self.remains.lists.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(list) = lists.last_mut()
            && !budget.is_spent()
        {
            self.give_some(list, budget);
            if list.given == list.pieces.len() {
                lists.pop();
            }
        }
        self.remains.count.store(lists.len(), Relaxed);
        true
    }

    /// Whether pieces remain, by a guess.
    pub(crate) fn has_remains(&self) -> bool {
        self.remains.count.load(Relaxed) > 0
    }

    /// Give a buffer of the heap back: at once, or where it is long from its end on, a stretch at a
    /// time.
    pub fn give_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.len() <= BUFFER_STRETCH {
            return;
        }
        buffer.shrink_to_fit(); // nobody has touched what is behind its end
        let mut buffers = self.remains.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push(buffer);
        self.remains.buffer_count.store(buffers.len(), Relaxed);
    }

    /// Bytes of such buffers that have not been given back; for tests.
    pub fn buffer_bytes(&self) -> usize {
        let buffers = self.remains.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.iter().map(Vec::capacity).sum()
    }

    /// Give a stretch of such a buffer back. Whether there are more.
    pub fn give_buffers(&self) -> bool {
        if self.remains.buffer_count.load(Relaxed) == 0 {
            return false;
        }
        let mut buffers = self.remains.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(buffer) = buffers.last_mut() {
            let left = buffer.len().saturating_sub(BUFFER_STRETCH);
            buffer.truncate(left);
            buffer.shrink_to(left); // in place, where the allocator has mapped it by itself
            if left == 0 {
                buffers.pop();
            }
        }
        self.remains.buffer_count.store(buffers.len(), Relaxed);
        !buffers.is_empty()
    }

    fn give_some(&self, list: &mut Remainder, budget: &mut Budget) {
        let from = list.given;
        for &piece in &list.pieces[from..] {
            if list.given > 0 {
                let at = self.memory.slot_at(piece as usize).expect("a piece has a class");
                self.memory.class(at.class).pieces_behind.fetch_sub(1, Relaxed);
            }
            self.memory.give(piece as usize);
            list.given += 1;
            budget.spend(GIVE);
            if budget.is_spent() {
                break;
            }
        }
        meter::items(list.given - from);
        self.counters.piece_list_bytes.fetch_sub(8 * (list.given - from) as u64, Relaxed);
    }
}
