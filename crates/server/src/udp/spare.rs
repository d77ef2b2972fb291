//! The buffer into which a worker copied a long request that was lent, kept for the next one: the
//! system clears each page of a new one when it is first written, and takes each page of an old one
//! back, which costs more than the copy itself. (The copy is needed: what is to be executed once
//! is known by the digest of all of it, and what came over RDMA is right or wrong behind its last
//! byte.)
//!
//! One is kept, of a bounded size, and given back when no request has used it for a second. Sizes
//! are bytes.

use laneway_store::Store;
use laneway_sync::append::SLACK;
use std::mem;

/// Shorter ones are the heap's own, which keeps them itself.
const SPARE_BYTES_MIN: usize = 128 << 10;

/// Longer ones are given back: a worker keeps so much beside what is under way. A value of a
/// mebibyte, the longest by default, and its line fit.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// What is kept.
#[derive(Debug, Default)]
pub struct Spare {
    /// What it held last is still in it. None has no capacity.
    buffer: Vec<u8>,
    /// Since it was last looked at.
    was_used: bool,
}

impl Spare {
    /// The longest message that it has room for.
    fn bytes(&self) -> usize {
        room(&self.buffer)
    }

    /// An empty buffer with room for so many bytes: the one that is kept, unless it is too short,
    /// or more than twice as long, so that short messages never hold long buffers.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let fits = bytes <= self.bytes() && self.bytes() / 2 <= bytes;
        if bytes == 0 || !fits {
            return Vec::with_capacity(bytes + SLACK);
        }
        self.was_used = true;
        let mut buffer = mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    /// A buffer is over. The longer one is kept, and the other given back.
    pub fn keep(&mut self, store: &Store, mut buffer: Vec<u8>) {
        let may_be_kept = SPARE_BYTES_MIN..=SPARE_BYTES_MAX;
        if may_be_kept.contains(&room(&buffer)) && self.bytes() < room(&buffer) {
            self.was_used = true;
            mem::swap(&mut self.buffer, &mut buffer);
        }
        // What lies behind its end goes in one step: all that was kept here is short enough.
        store.give_buffer(buffer);
    }

    /// Once a second: one that was not used since the last time is given back.
    pub fn expire(&mut self, store: &Store) {
        if !mem::take(&mut self.was_used) {
            store.give_buffer(mem::take(&mut self.buffer));
        }
    }
}

/// The longest message that can be appended to such a buffer in pieces, without it being moved into
/// a longer one at the last of them.
fn room(buffer: &Vec<u8>) -> usize {
    buffer.capacity().saturating_sub(SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::Config;
    use std::sync::Arc;

    const LONG: usize = 1 << 20;

    fn store() -> Arc<Store> {
        Store::new(Config::default()).expect("a small store")
    }

    /// A buffer that a message of so many bytes was copied into.
    fn used(spare: &mut Spare, bytes: usize) -> Vec<u8> {
        let mut buffer = spare.take(bytes);
        assert!(buffer.is_empty() && buffer.capacity() >= bytes, "empty, whoever had it");
        buffer.resize(bytes, 7);
        buffer
    }

    #[test]
    fn messages_one_behind_the_other_are_copied_into_the_same_memory() {
        let (store, mut spare) = (store(), Spare::default());
        let buffer = used(&mut spare, LONG);
        let place = buffer.as_ptr();
        spare.keep(&store, buffer);
        for bytes in [LONG, LONG - 9, LONG / 2, LONG] {
            let buffer = used(&mut spare, bytes);
            assert_eq!((buffer.as_ptr(), spare.bytes()), (place, 0));
            spare.keep(&store, buffer);
        }
        assert_eq!((spare.bytes(), store.buffer_bytes()), (LONG, 0), "none was given back");
    }

    #[test]
    fn one_is_kept_within_the_bound_and_for_messages_of_its_size() {
        let (store, mut spare) = (store(), Spare::default());
        for bytes in [0, 1, SPARE_BYTES_MIN - 1, SPARE_BYTES_MAX + 1] {
            let buffer = used(&mut spare, bytes);
            spare.keep(&store, buffer);
            assert_eq!(spare.bytes(), 0, "{bytes}");
        }
        let (one, two) = (used(&mut spare, LONG), used(&mut spare, LONG + 8));
        spare.keep(&store, one);
        spare.keep(&store, two);
        assert_eq!(spare.bytes(), LONG + 8, "the longer one");
        for bytes in [0, LONG / 2, LONG + 9] {
            drop(used(&mut spare, bytes));
            assert_eq!(spare.bytes(), LONG + 8, "{bytes} of a message take another");
        }
    }

    #[test]
    fn what_nobody_used_for_a_second_is_given_back() {
        let (store, mut spare) = (store(), Spare::default());
        let buffer = used(&mut spare, LONG);
        spare.keep(&store, buffer);
        spare.expire(&store);
        assert_eq!((spare.bytes(), store.buffer_bytes()), (LONG, 0));
        spare.expire(&store);
        assert_eq!((spare.bytes(), store.buffer_bytes()), (0, LONG), "a stretch at a time");
    }
}
