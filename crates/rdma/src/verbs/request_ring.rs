//! The memory that one client writes requests into, and the server's side of it: in each lane a
//! ring of slots, taken in turn.
//!
//! An unreliable connection loses writes silently, so a slot may stay empty for ever: now and then
//! a lane is looked at as far as its window goes, and what was lost is passed over. Writes of one
//! connection arrive in their order, so a slot that is written says that those before it were, or
//! are lost. (HERD §4.2 polls each slot and leaves losses to its clients.)
//!
//! A client may have as many requests in a lane as its window; the server tells it with every reply
//! how many were taken. Where that word was lost and nothing else goes to the client, it *asks*, by
//! a word of its own beside the slots. Slots are those of [`laneway_sync::slot`]: bytes from the
//! front of the memory, requests right-aligned before their control word.

use crate::layout::{LANES_MAX, LINE_BYTES, SLOT_BYTES, SLOT_WORDS, WINDOW_MAX};
use crate::region::{Look, try_lock};
use laneway_sync::prim::AtomicU64;
use laneway_sync::prim::Ordering::{Acquire, Relaxed, Release};
use laneway_sync::slot::{self, Control, Taken};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

pub use crate::remote::Bounds;

/// What a control word of a request says beside its number: so none is ever zero, and numbers may
/// count through zero.
pub const NOTE: u16 = 1;

impl Bounds {
    /// Whether memory can be so; or why not.
    pub fn check(&self) -> Result<(), String> {
        let Bounds { lanes, window } = *self;
        if !(1..=LANES_MAX).contains(&lanes) {
            return Err(format!("lanes {lanes}: must be from 1 to {LANES_MAX}"));
        }
        if !(1..=WINDOW_MAX).contains(&window) || !window.is_power_of_two() {
            return Err(format!("window {window}: must be a power of two, at most {WINDOW_MAX}"));
        }
        Ok(())
    }

    /// Bytes of all of it.
    pub const fn bytes(&self) -> usize {
        self.lanes * (LINE_BYTES + self.window * SLOT_BYTES)
    }

    /// The word by which a client asks how many of a lane were taken.
    pub const fn ask(&self, lane: usize) -> usize {
        assert!(lane < self.lanes);
        lane * LINE_BYTES / 8
    }

    /// The words of the slot of request number `number` of a lane.
    pub const fn slot(&self, lane: usize, number: u32) -> Range<usize> {
        assert!(lane < self.lanes);
        let slot = lane * self.window + number as usize % self.window;
        let start = (self.lanes * LINE_BYTES + slot * SLOT_BYTES) / 8;
        start..start + SLOT_WORDS
    }
}

const _: () = assert!(WINDOW_MAX.is_power_of_two());

/// A lane, as the server keeps it where no client writes.
#[derive(Debug, Default)]
struct Lane {
    /// The number of the next request.
    next: Mutex<u32>,
    /// The same for who only tells it.
    taken: AtomicU32,
    /// What the client was told last.
    told: AtomicU32,
}

/// One client's lanes.
#[derive(Debug)]
pub struct RequestRing {
    bounds: Bounds,
    lanes: Vec<Lane>,
    /// Whether its client has asked for room, ever.
    asked: AtomicBool,
}

impl RequestRing {
    /// Nothing taken yet.
    pub fn new(bounds: Bounds) -> RequestRing {
        let lanes = (0..bounds.lanes).map(|_| Lane::default()).collect();
        RequestRing { bounds, lanes, asked: AtomicBool::new(false) }
    }

    /// Whether the next slot of a lane holds something, at a glance, or may soon.
    pub fn has_request(&self, words: &[AtomicU64], lane: usize) -> bool {
        // Whoever has the lane takes a request and may leave the next one.
        let Some(next) = try_lock(&self.lanes[lane].next) else { return true };
        slot::is_taken(&words[self.bounds.slot(lane, *next)])
    }

    /// Take the next request of a lane: copied behind what is in `out`, its slot freed. With `far`,
    /// what was lost before it is passed over; how many that were.
    pub fn take(
        &self,
        words: &[AtomicU64],
        lane: usize,
        far: bool,
        out: &mut Vec<u8>,
    ) -> (Look, u32) {
        let Some(mut next) = try_lock(&self.lanes[lane].next) else { return (Look::Nothing, 0) };
        let mut lost = 0;
        if !slot::is_taken(&words[self.bounds.slot(lane, *next)]) {
            if !far {
                return (Look::Nothing, 0);
            }
            lost = self.hole(words, lane, *next);
            *next = next.wrapping_add(lost);
        }
        let slot = &words[self.bounds.slot(lane, *next)];
        let start = out.len();
        let (control, look) = match slot::take(slot, out) {
            Taken::Empty => return (Look::Nothing, 0),
            Taken::Message(control) => (control, Look::Request),
            Taken::Impossible(control) => (control, Look::Impossible),
        };
        slot::free(slot);
        let is_next = control.sequence == *next;
        if !is_next {
            out.truncate(start);
            return (Look::Stale, lost);
        }
        *next = next.wrapping_add(1);
        // (R) pairs with (S): who tells the client that a slot is free has seen it freed.
        self.lanes[lane].taken.store(*next, Release);
        (look, lost)
    }

    /// How many requests before the first that is there were lost; none if none is there.
    fn hole(&self, words: &[AtomicU64], lane: usize, next: u32) -> u32 {
        let there = |number: u32| {
            let control = slot::control(&words[self.bounds.slot(lane, number)]);
            control.is_some_and(|control| control.sequence == number)
        };
        let first = (1..self.bounds.window as u32).find(|more| there(next.wrapping_add(*more)));
        match first {
            // It may have come since it was looked at; then nothing is lost.
            Some(_) if slot::control(&words[self.bounds.slot(lane, next)]).is_some() => 0,
            Some(first) => first,
            None => 0,
        }
    }

    /// Whether its client has ever written what a client writes: a request that was taken, or that
    /// it asks for room.
    pub fn is_used(&self) -> bool {
        let took = |lane: &Lane| lane.taken.load(Relaxed) != 0;
        self.asked.load(Relaxed) || self.lanes.iter().any(took)
    }

    /// How many of a lane were taken, told to its client now.
    pub fn tell(&self, lane: usize) -> u32 {
        let taken = self.lanes[lane].taken.load(Acquire); // (S)
        self.lanes[lane].told.store(taken, Relaxed);
        taken
    }

    /// Whether its client is to be told: it asks, which is looked at with `far`, or half of its
    /// window was taken since it was told.
    pub fn is_to_be_told(&self, words: &[AtomicU64], lane: usize, far: bool) -> bool {
        let Lane { taken, told, .. } = &self.lanes[lane];
        let since = taken.load(Relaxed).wrapping_sub(told.load(Relaxed));
        let ask = &words[self.bounds.ask(lane)];
        let asks = far && ask.load(Relaxed) != 0;
        if asks {
            ask.store(0, Relaxed);
            self.asked.store(true, Relaxed);
        }
        asks || since as usize >= self.bounds.window.div_ceil(2)
    }
}

/// What the control word of request `number` says.
pub fn control(number: u32, bytes: usize) -> Control {
    Control { sequence: number, note: NOTE, bytes: bytes as u16 }
}

/// What a client knows of one lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Credit {
    /// The next request's number.
    pub next: u32,
    /// How many were taken, as far as it was told.
    taken: u32,
    /// Times in a row that there was no room.
    full: u32,
}

/// How much of a count is told: more than any window, and a lane's number fits beside it.
const TOLD_BITS: u32 = 24;
/// The bits of it.
pub const TOLD_MASK: u32 = (1 << TOLD_BITS) - 1;
/// Of how many times that there is no room a client asks once.
const ASK_EVERY: u32 = 16;
/// The same where it is rarer each time, at the most.
const ASK_EVERY_RARELY: u32 = 1024;

/// Beside what is told: the message is a part of one ([`super::parts`]).
pub const PART: u32 = 1 << 31;

/// What a datagram says that is a request, where a reply says its lane. No reply says the same, for
/// a server that takes datagrams has fewer lanes than there may be. A client may say that a server
/// is where its replies go, and these two must not answer each other for ever.
pub const REQUEST: u32 = (LANES_MAX as u32 - 1) << TOLD_BITS;

const _: () = assert!(WINDOW_MAX < 1 << (TOLD_BITS - 1) && LANES_MAX <= 1 << (31 - TOLD_BITS));

/// What a reply of a lane says beside: the lane, and how many of its requests were taken.
pub fn told(lane: usize, taken: u32) -> u32 {
    ((lane as u32) << TOLD_BITS) | (taken & TOLD_MASK)
}

/// Of what lane that is.
pub fn told_of(word: u32) -> usize {
    ((word & !PART) >> TOLD_BITS) as usize
}

impl Credit {
    /// How many requests may be posted.
    pub fn room(&self, bounds: &Bounds) -> usize {
        bounds.window.saturating_sub(self.next.wrapping_sub(self.taken) as usize)
    }

    /// One was posted.
    pub fn posted(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.full = 0;
    }

    /// There was no room. Whether to ask.
    pub fn was_full(&mut self) -> bool {
        self.full += 1;
        self.full.is_multiple_of(ASK_EVERY)
    }

    /// The same, rarer each time: of a client whose question takes a place that is everybody's.
    pub fn was_full_again(&mut self) -> bool {
        self.full = self.full.wrapping_add(1);
        let is_time = self.full.is_power_of_two() || self.full.is_multiple_of(ASK_EVERY_RARELY);
        self.full >= ASK_EVERY && is_time
    }

    /// Take in what was told. Words overtake each other: an older one says less, and is not heard.
    pub fn hear(&mut self, word: u32) {
        let more = word.wrapping_sub(self.taken) & TOLD_MASK;
        if more <= self.next.wrapping_sub(self.taken) {
            self.taken = self.taken.wrapping_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { lanes: 2, window: 4 };

    fn memory() -> Vec<AtomicU64> {
        (0..BOUNDS.bytes() / 8).map(|_| AtomicU64::new(0)).collect()
    }

    /// What a connection writes.
    fn arrive(words: &[AtomicU64], lane: usize, number: u32, message: &[u8]) {
        let slot = &words[BOUNDS.slot(lane, number)];
        let at = slot::begins(SLOT_WORDS, message.len());
        laneway_sync::words::write(slot, at, message);
        slot[SLOT_WORDS - 1].store(control(number, message.len()).pack().to_le(), Relaxed);
    }

    fn take(request_ring: &RequestRing, words: &[AtomicU64], far: bool) -> (Look, u32, Vec<u8>) {
        let mut out = Vec::new();
        let (look, lost) = request_ring.take(words, 1, far, &mut out);
        (look, lost, out)
    }

    #[test]
    fn a_place_is_used_once_a_request_was_taken_or_its_client_asked() {
        let (request_ring, words) = (RequestRing::new(BOUNDS), memory());
        assert!(take(&request_ring, &words, true).0 == Look::Nothing && !request_ring.is_used());
        arrive(&words, 1, 7, b"not the next");
        take(&request_ring, &words, true);
        assert!(!request_ring.is_used(), "that is nobody's request");
        arrive(&words, 1, 0, b"first");
        take(&request_ring, &words, false);
        assert!(request_ring.is_used());
        let request_ring = RequestRing::new(BOUNDS);
        words[BOUNDS.ask(0)].store(1, Relaxed);
        assert!(!request_ring.is_to_be_told(&words, 0, false) && !request_ring.is_used());
        assert!(request_ring.is_to_be_told(&words, 0, true) && request_ring.is_used());
    }

    #[test]
    fn requests_are_taken_in_turn_and_what_was_lost_is_passed_over_by_who_looks_far() {
        let (request_ring, words) = (RequestRing::new(BOUNDS), memory());
        arrive(&words, 1, 0, b"first");
        arrive(&words, 1, 2, b"third");
        assert!(request_ring.has_request(&words, 1) && !request_ring.has_request(&words, 0));
        assert_eq!(take(&request_ring, &words, false), (Look::Request, 0, b"first".to_vec()));
        assert_eq!(take(&request_ring, &words, false), (Look::Nothing, 0, Vec::new()));
        assert!(!request_ring.has_request(&words, 1));
        assert_eq!(take(&request_ring, &words, true), (Look::Request, 1, b"third".to_vec()));
        assert_eq!(take(&request_ring, &words, true), (Look::Nothing, 0, Vec::new()));
        arrive(&words, 1, 3, b"");
        arrive(&words, 1, 4, b"fifth");
        assert_eq!(take(&request_ring, &words, false), (Look::Request, 0, Vec::new()));
        assert_eq!(take(&request_ring, &words, false), (Look::Request, 0, b"fifth".to_vec()));
        assert_eq!(request_ring.tell(1), 5);
    }

    #[test]
    fn a_request_that_is_not_the_next_or_has_an_impossible_length_is_thrown_away() {
        let (request_ring, words) = (RequestRing::new(BOUNDS), memory());
        let slot = BOUNDS.slot(1, 0);
        arrive(&words, 1, 0, b"late");
        words[slot.end - 1].store(control(4, 4).pack().to_le(), Relaxed);
        assert_eq!(take(&request_ring, &words, true), (Look::Stale, 0, Vec::new()));
        words[slot.end - 1].store(control(0, 1401).pack().to_le(), Relaxed);
        assert_eq!(take(&request_ring, &words, true).0, Look::Impossible);
        assert_eq!(request_ring.tell(1), 1, "the client went on to the next slot");
        // Another number far ahead is nothing that a connection could have written.
        words[BOUNDS.slot(1, 2).end - 1].store(control(6, 0).pack().to_le(), Relaxed);
        assert_eq!(take(&request_ring, &words, true), (Look::Nothing, 0, Vec::new()));
    }

    #[test]
    fn a_client_is_told_by_the_half_window_and_when_it_asks() {
        let (request_ring, words) = (RequestRing::new(BOUNDS), memory());
        let is_told = |far| request_ring.is_to_be_told(&words, 1, far);
        let serve = |number| {
            arrive(&words, 1, number, b"a");
            take(&request_ring, &words, false);
        };
        serve(0);
        assert!(!is_told(true));
        serve(1);
        assert!(is_told(false));
        assert_eq!(request_ring.tell(1), 2);
        assert!(!is_told(true));
        words[BOUNDS.ask(1)].store(1, Relaxed);
        assert!(!is_told(false));
        assert!(is_told(true) && !is_told(true));
    }

    #[test]
    fn credit_counts_through_the_end_of_numbers_and_hears_nothing_old() {
        let near_end = u32::MAX - 1;
        let mut credit = Credit { next: near_end, taken: near_end, full: 0 };
        for _ in 0..BOUNDS.window {
            assert!(credit.room(&BOUNDS) > 0);
            credit.posted();
        }
        assert_eq!(credit.room(&BOUNDS), 0);
        assert_eq!((0..ASK_EVERY).filter(|_| credit.was_full()).count(), 1);
        assert_eq!((0..ASK_EVERY_RARELY).filter(|_| credit.was_full_again()).count(), 6);
        assert_eq!((0..4 * ASK_EVERY_RARELY).filter(|_| credit.was_full_again()).count(), 4);
        let later = near_end.wrapping_add(3);
        assert_eq!((told_of(told(1, later)), told_of(told(127, later) | PART)), (1, 127));
        credit.hear(told(1, later));
        assert_eq!(credit.taken, later);
        credit.hear(told(1, near_end.wrapping_add(1)));
        credit.hear(told(1, later.wrapping_add(2)));
        assert_eq!(credit.taken, later, "older, and more than was ever posted");
    }

    #[test]
    fn slots_and_words_do_not_overlap_and_fit() {
        let mut places: Vec<Range<usize>> = (0..BOUNDS.lanes)
            .flat_map(|lane| {
                let ask = BOUNDS.ask(lane)..BOUNDS.ask(lane) + 1;
                (0..4).map(move |number| BOUNDS.slot(lane, number)).chain([ask])
            })
            .collect();
        places.sort_by_key(|place| place.start);
        assert!(places.windows(2).all(|two| two[0].end <= two[1].start));
        assert!(places.last().is_some_and(|last| last.end * 8 <= BOUNDS.bytes()));
        assert_eq!(BOUNDS.slot(0, 0), BOUNDS.slot(0, 4));
        for bad in [Bounds { window: 3, ..BOUNDS }, Bounds { lanes: 0, ..BOUNDS }] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
