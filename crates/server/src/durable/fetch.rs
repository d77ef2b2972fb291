//! An item is asked for from the tier, to come into memory. Until a value is whole it takes memory
//! that nothing can be evicted for, and such memory has a bound ([`laneway_store::Config`]): what
//! would take too much of it waits for its turn, by lines of values of like length.

use super::shared::bump;
use super::state::DurableExecutor;
use super::task::{Fault, SHORT, Share};
use laneway_tier::{Look, PIECE_BYTES, Request};
use std::collections::VecDeque;

/// Of the server's memory, what the values of one line take on their way into it: both lines of
/// long ones take half of what all unpublished values may. One of any length always may come.
const PART_OF_MEMORY: u64 = 8;
/// No more than this in a large memory: it would make nothing faster.
const ON_THE_WAY_BYTES_MAX: u64 = 8 << 20;
/// The most that is copied in one step: about 10 us.
pub(super) const STRETCH_BYTES: usize = 64 << 10;

impl<S> DurableExecutor<S> {
    /// Begins to bring an item into memory.
    pub(super) fn fetch(&mut self, key: &[u8], look: &Look) {
        bump(&self.durable.counts.faults);
        let key: Box<[u8]> = key.into();
        self.busy.insert(key.clone(), VecDeque::new());
        // What is short, or read as one, does not wait for what takes longer.
        let bytes = look.value_bytes;
        let of = [STRETCH_BYTES, PIECE_BYTES].iter().filter(|&&most| bytes > most as u64).count();
        self.lines[of].waiting.push_back((key, Share { of, bytes, copied: 0 }));
        self.begin_next(of);
    }

    /// Begins to read when an item ends ([`super::ends`]): it takes no memory, and no turn.
    pub(super) fn fetch_end(&mut self, key: &[u8], look: &Look) {
        let key: Box<[u8]> = key.into();
        self.busy.insert(key.clone(), VecDeque::new());
        let share = Share { of: SHORT, bytes: 0, copied: 0 };
        let request = match look.value_bytes > STRETCH_BYTES as u64 {
            true => Request::Open(key.clone()),
            false => Request::Item(key.clone()),
        };
        self.go_on(Fault { key, share, large: None, is_for_end: true }, request);
    }

    /// Begins with the next values of a line, as many as may be under way.
    pub(super) fn begin_next(&mut self, of: usize) {
        if self.now_nanos < self.lines[of].again_nanos {
            return;
        }
        let part = self.shared.store.limit_bytes() / PART_OF_MEMORY;
        let most = if of == SHORT { u64::MAX } else { part.min(ON_THE_WAY_BYTES_MAX) };
        while let Some((key, share)) = self.lines[of].next(most) {
            let request = match of {
                SHORT => Request::Item(key.clone()),
                _ => Request::Open(key.clone()),
            };
            self.go_on(Fault { key, share, large: None, is_for_end: false }, request);
        }
    }

    pub(super) fn go_on(&mut self, fault: Fault, request: Request) {
        self.number += 1;
        self.faults.insert(self.number, fault);
        self.hands.read(self.number, request);
    }
}
