//! One end each of a ring of descriptors that lies in memory shared with somebody else: one side
//! only puts in, the other only takes out, and each owns one of the two indices. The rings of
//! AF_XDP sockets (`linux/if_xdp.h`) are four of these, with the kernel at the other end.
//!
//! Indices count on without end and wrap at 2^32; a descriptor's place is its number modulo the
//! number of places, a power of two. Each end keeps what it last saw of the other's index, and
//! looks again only when that is used up: a cache line moves between CPUs once a burst, not once a
//! descriptor.
//!
//! Nothing here waits. Whatever stands in the other side's index, no place outside the slice is
//! touched, and no more descriptors are seen than there are places. It knows nothing of what a
//! descriptor says. Unit: descriptors of `WORDS` words.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release},
};

/// The order of (A), which a canary takes away.
#[inline(always)]
fn publish_order() -> Ordering {
    if sings(Canary::DescriptorsPublish) { Relaxed } else { Release }
}

/// The memory of a ring, as both sides see it.
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    /// Number of the next descriptor to be put in; the producer's.
    pub producer: &'a AtomicU32,
    /// Number of the next one to be taken out; the consumer's.
    pub consumer: &'a AtomicU32,
    /// The descriptors.
    pub words: &'a [AtomicU64],
}

impl Memory<'_> {
    /// Whether everything that was put in has been taken out: a glance from any thread, which the
    /// next moment may belie.
    pub fn is_empty(&self) -> bool {
        self.producer.load(Relaxed) == self.consumer.load(Relaxed)
    }
}

/// The end that puts in.
#[derive(Debug)]
pub struct Producer<const WORDS: usize> {
    places: u32,
    /// Number of the next descriptor.
    next: u32,
    /// What of them the other side knows.
    published: u32,
    /// The consumer's index when it was last looked at.
    consumed: u32,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// The end of a ring of so many places, a power of two, in which nothing was put yet.
    pub fn new(places: u32) -> Producer<WORDS> {
        assert!(places.is_power_of_two());
        Producer { places, next: 0, published: 0, consumed: 0 }
    }

    /// How many descriptors can be put in now.
    #[inline]
    pub fn room(&mut self, ring: Memory<'_>) -> u32 {
        // (D) pairs with (C): what stood in these places has been read.
        self.consumed = ring.consumer.load(Acquire);
        self.known_room()
    }

    fn known_room(&self) -> u32 {
        if sings(Canary::DescriptorsRoom) {
            return self.places;
        }
        // An index ahead of what was put in is nonsense: then there is no room.
        self.places.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Put a descriptor in. The other side sees it after [`Producer::publish`]. False if the ring
    /// is full.
    #[inline]
    pub fn put(&mut self, ring: Memory<'_>, descriptor: [u64; WORDS]) -> bool {
        if self.known_room() == 0 && self.room(ring) == 0 {
            return false;
        }
        let Some(place) = place::<WORDS>(ring, self.next, self.places) else { return false };
        for (word, value) in place.iter().zip(descriptor) {
            word.store(value, Relaxed);
        }
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Show what was put in.
    #[inline]
    pub fn publish(&mut self, ring: Memory<'_>) {
        if self.published != self.next {
            // (A) pairs with (B): who sees the index sees the descriptors, and the frames that they
            // name.
            ring.producer.store(self.next, publish_order());
            self.published = self.next;
        }
    }
}

/// The end that takes out.
#[derive(Debug)]
pub struct Consumer<const WORDS: usize> {
    places: u32,
    /// Number of the next descriptor.
    next: u32,
    /// What of them the other side knows as read.
    released: u32,
    /// The producer's index when it was last looked at.
    produced: u32,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// The end of a ring of so many places, a power of two, from which nothing was taken yet.
    pub fn new(places: u32) -> Consumer<WORDS> {
        assert!(places.is_power_of_two());
        Consumer { places, next: 0, released: 0, produced: 0 }
    }

    /// The next descriptor, which stays where it is.
    #[inline]
    pub fn peek(&mut self, ring: Memory<'_>) -> Option<[u64; WORDS]> {
        if self.produced == self.next {
            // (B) pairs with (A).
            let produced = ring.producer.load(Acquire);
            if produced.wrapping_sub(self.next) > self.places {
                return None; // nonsense
            }
            self.produced = produced;
            if produced == self.next {
                return None;
            }
        }
        let place = place::<WORDS>(ring, self.next, self.places)?;
        let mut descriptor = [0; WORDS];
        for (value, word) in descriptor.iter_mut().zip(place) {
            *value = word.load(Relaxed);
        }
        Some(descriptor)
    }

    /// How many descriptors wait to be taken out.
    pub fn waiting(&self, ring: Memory<'_>) -> u32 {
        let waiting = ring.producer.load(Relaxed).wrapping_sub(self.next);
        if waiting > self.places { 0 } else { waiting }
    }

    /// Take the next descriptor out. Its place is free after [`Consumer::release`].
    #[inline]
    pub fn take(&mut self, ring: Memory<'_>) -> Option<[u64; WORDS]> {
        let descriptor = self.peek(ring)?;
        self.next = self.next.wrapping_add(1);
        Some(descriptor)
    }

    /// Give back the places of what was taken.
    #[inline]
    pub fn release(&mut self, ring: Memory<'_>) {
        if self.released != self.next {
            // (C) pairs with (D): what was read was read before.
            ring.consumer.store(self.next, Release);
            self.released = self.next;
        }
    }
}

/// The words of descriptor `number`.
#[inline]
fn place<const WORDS: usize>(ring: Memory<'_>, number: u32, places: u32) -> Option<&[AtomicU64]> {
    let start = (number & (places - 1)) as usize * WORDS;
    ring.words.get(start..start + WORDS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::array::from_fn;

    const PLACES: u32 = 4;

    /// A ring whose indices begin anywhere.
    struct Ring {
        producer: AtomicU32,
        consumer: AtomicU32,
        words: [AtomicU64; 2 * PLACES as usize],
    }

    impl Ring {
        fn new(start: u32) -> Ring {
            let words = from_fn(|_| AtomicU64::new(0));
            Ring { producer: start.into(), consumer: start.into(), words }
        }

        fn memory(&self) -> Memory<'_> {
            Memory { producer: &self.producer, consumer: &self.consumer, words: &self.words }
        }
    }

    fn ends(start: u32) -> (Producer<2>, Consumer<2>) {
        let producer = Producer { places: PLACES, next: start, published: start, consumed: start };
        let consumer = Consumer { places: PLACES, next: start, released: start, produced: start };
        (producer, consumer)
    }

    #[test]
    fn descriptors_come_out_in_order_across_the_end_of_the_ring_and_of_the_numbers() {
        for start in [0, u32::MAX - 6] {
            let ring = Ring::new(start);
            let (mut producer, mut consumer) = ends(start);
            let mut expected = 0;
            for round in 0..20_u64 {
                let count = 1 + round % u64::from(PLACES);
                for number in 0..count {
                    assert!(producer.put(ring.memory(), [100 * round + number, round]));
                }
                assert_eq!(consumer.take(ring.memory()), None, "nothing is seen before");
                assert_eq!(consumer.waiting(ring.memory()), 0);
                producer.publish(ring.memory());
                assert_eq!(u64::from(consumer.waiting(ring.memory())), count);
                for number in 0..count {
                    let descriptor = Some([100 * round + number, round]);
                    assert_eq!(consumer.peek(ring.memory()), descriptor);
                    assert_eq!(consumer.take(ring.memory()), descriptor);
                    expected += 1;
                }
                assert_eq!(consumer.take(ring.memory()), None);
                consumer.release(ring.memory());
                assert!(ring.memory().is_empty());
            }
            assert_eq!(ring.producer.load(Relaxed), start.wrapping_add(expected));
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_places_are_given_back() {
        let ring = Ring::new(0);
        let (mut producer, mut consumer) = ends(0);
        for number in 0..u64::from(PLACES) {
            assert!(producer.put(ring.memory(), [number, 0]));
        }
        producer.publish(ring.memory());
        assert!(!producer.put(ring.memory(), [9, 9]));
        assert_eq!(consumer.take(ring.memory()), Some([0, 0]));
        assert!(!producer.put(ring.memory(), [9, 9]), "taken, but not given back");
        consumer.release(ring.memory());
        assert_eq!(producer.room(ring.memory()), 1);
        assert!(producer.put(ring.memory(), [4, 0]));
        assert!(!producer.put(ring.memory(), [9, 9]));
    }

    #[test]
    fn nonsense_in_the_other_sides_index_is_neither_room_nor_descriptors() {
        let ring = Ring::new(0);
        let (mut producer, mut consumer) = ends(0);
        ring.consumer.store(7, Relaxed);
        assert_eq!(producer.room(ring.memory()), 0);
        assert!(!producer.put(ring.memory(), [1, 1]));
        ring.producer.store(PLACES + 1, Relaxed);
        assert_eq!((consumer.take(ring.memory()), consumer.waiting(ring.memory())), (None, 0));
    }
}
