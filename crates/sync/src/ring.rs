//! A bounded queue for many producers and many consumers: each cell carries a sequence number that
//! tells whose turn it is (Vyukov's bounded MPMC queue). Values move; a full ring gives the value
//! back.
#![allow(unsafe_code)]

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    UnsafeCell,
};
use std::mem::MaybeUninit;

/// Keeps the two ends on cache lines of their own (two lines: the adjacent-line prefetcher).
#[repr(align(128))]
#[derive(Debug)]
struct Apart<T>(T);

#[derive(Debug)]
struct Cell<T> {
    /// `i` = empty, to be filled by the producer of turn `i`; `i + 1` = filled, for the consumer of
    /// turn `i`.
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The ring. Capacity is a power of two.
#[derive(Debug)]
pub struct Ring<T> {
    tail: Apart<AtomicUsize>,
    head: Apart<AtomicUsize>,
    cells: Box<[Cell<T>]>,
}

// SAFETY: a value is written by the one producer that won turn `i` and read by the one consumer
// that won turn `i`; the exchanges on `tail` and `head` choose exactly one each, and (I)/(J) order
// the write before the read and the read before the next write. So `&Ring<T>` hands each T from one
// thread to one other: T: Send is what that takes.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: owning the ring is owning the values in it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// A ring that holds at least `capacity` values: rounded up to a power of two, at least 2.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2).next_power_of_two();
        let cells = (0..capacity)
            .map(|i| Cell {
                turn: AtomicUsize::new(i),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        Ring { tail: Apart(AtomicUsize::new(0)), head: Apart(AtomicUsize::new(0)), cells }
    }

    /// How many values it can hold.
    pub fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// How many values are in it; a moment's truth when others are at work.
    #[inline]
    pub fn len(&self) -> usize {
        let tail = self.tail.0.load(Relaxed);
        let head = self.head.0.load(Relaxed);
        let distance = tail.wrapping_sub(head);
        // A head read later than the tail may have passed it.
        if distance as isize <= 0 { 0 } else { distance.min(self.cells.len()) }
    }

    /// Whether it looks empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Put `value` at the tail, or give it back if the ring is full.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        let mask = self.cells.len() - 1;
        let mut tail = self.tail.0.load(Relaxed);
        // Lock-free: we go round again only when another producer took the turn.
        loop {
            let cell = &self.cells[tail & mask];
            let turn = cell.turn.load(Acquire); // (J) pairs with the consumer's release below
            let lag = turn.wrapping_sub(tail) as isize;
            if lag < 0 {
                return Err(value); // the value of one lap ago is still there
            }
            if lag > 0 {
                tail = self.tail.0.load(Relaxed);
                continue;
            }
            let next = tail.wrapping_add(1);
            match self.tail.0.compare_exchange_weak(tail, next, Relaxed, Relaxed) {
                Ok(_) => {
                    // SAFETY: turn `tail` is ours alone (the exchange), and (J) showed that the
                    // value of the lap before was moved out, so nobody else touches the cell until
                    // we store the turn.
                    cell.value.with_mut(|place| unsafe { (*place).write(value) });
                    let order = if sings(Canary::RingOrder) { Relaxed } else { Release };
                    cell.turn.store(next, order); // (I) pairs with the consumer's acquire
                    return Ok(());
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Take the value at the head.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let mask = self.cells.len() - 1;
        let mut head = self.head.0.load(Relaxed);
        loop {
            let cell = &self.cells[head & mask];
            let next = head.wrapping_add(1);
            let turn = cell.turn.load(Acquire); // pairs with (I): the value is written
            let lag = turn.wrapping_sub(next) as isize;
            if lag < 0 {
                return None;
            }
            if lag > 0 {
                head = self.head.0.load(Relaxed);
                continue;
            }
            match self.head.0.compare_exchange_weak(head, next, Relaxed, Relaxed) {
                Ok(_) => {
                    // SAFETY: turn `head` is ours alone (the exchange), its producer finished
                    // ((I)), and the next producer waits for the turn we store below. The value is
                    // read once: the turn moves on.
                    let value = cell.value.with_mut(|place| unsafe { (*place).assume_init_read() });
                    cell.turn.store(head.wrapping_add(self.cells.len()), Release); // pairs with (J)
                    return Some(value);
                }
                Err(now) => head = now,
            }
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_ring_gives_the_value_back_and_order_is_kept() {
        let ring = Ring::new(4);
        for i in 0..4 {
            assert_eq!(ring.push(i), Ok(()));
        }
        assert_eq!(ring.push(9), Err(9));
        assert_eq!(ring.len(), 4);
        for i in 0..4 {
            assert_eq!(ring.pop(), Some(i));
        }
        assert_eq!(ring.pop(), None);
        assert!(ring.is_empty());
    }

    #[test]
    fn values_left_behind_are_dropped_once() {
        let counted = Arc::new(());
        let ring = Ring::new(8);
        for _ in 0..5 {
            ring.push(counted.clone()).unwrap();
        }
        drop(ring.pop());
        assert_eq!(Arc::strong_count(&counted), 5);
        drop(ring);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn many_threads_pass_each_value_exactly_once() {
        const EACH: u64 = 20_000;
        let ring = Ring::new(64);
        let sum = AtomicUsize::new(0);
        let left = AtomicUsize::new(2 * EACH as usize);
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let ring = &ring;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let mut value = producer * EACH + i;
                        while let Err(back) = ring.push(value) {
                            value = back;
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..2 {
                let (ring, sum, left) = (&ring, &sum, &left);
                scope.spawn(move || {
                    while left.load(Relaxed) > 0 {
                        match ring.pop() {
                            Some(value) => {
                                sum.fetch_add(value as usize, Relaxed);
                                left.fetch_sub(1, Relaxed);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        let n = 2 * EACH as usize;
        assert_eq!(sum.load(Relaxed), n * (n - 1) / 2);
    }
}
