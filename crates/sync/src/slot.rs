//! A slot of memory that two processes share: one writes a message into it, the other takes it out
//! and frees it (HERD §4.2: the client writes a request, the server polls for it and zeroes the
//! slot). Beside it the *doorbell*, a word by which pollers that are about to sleep ask to be
//! woken, each by a mark of its own, and the *grant*, a word by which one side lends the other
//! memory to read from.
//!
//! A slot is words: the message stands right-aligned before the last word, its *control*, which is
//! written last and says that the message is whole. So the bytes that a remote write would carry
//! end with the control word, as in HERD. Zero is a free slot. (HERD's servers poll the key of an
//! item, and a client may send no key of zero; a control word of its own leaves keys alone.)
//!
//! The peer is not trusted: whatever stands in the memory, nothing here reads or writes outside the
//! slice, and a control word is read once. It knows nothing of what a message says. Lengths are
//! bytes.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU32, AtomicU64,
    Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::words;

/// The order of (A), which a canary takes away.
#[inline(always)]
fn publish_order() -> Ordering {
    if sings(Canary::SlotPublish) { Relaxed } else { Release }
}

/// What a control word says. Its sequence number is never 0, so that no message is a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Which message of its writer's this is, from 1 on; 0 follows `u32::MAX` and is left out.
    pub sequence: u32,
    /// Whatever its writer says beside.
    pub note: u16,
    /// Length of the message.
    pub bytes: u16,
}

impl Control {
    /// As it stands in memory.
    pub const fn pack(self) -> u64 {
        (self.sequence as u64) << 32 | (self.note as u64) << 16 | self.bytes as u64
    }

    /// From memory.
    pub const fn unpack(word: u64) -> Control {
        Control { sequence: (word >> 32) as u32, note: (word >> 16) as u16, bytes: word as u16 }
    }
}

/// The sequence number behind `sequence`.
pub const fn next(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Longest message of a slot of `words` words.
pub const fn message_bytes_max(words: usize) -> usize {
    8 * (words - 1)
}

fn parts(slot: &[AtomicU64]) -> (&AtomicU64, &[AtomicU64]) {
    slot.split_last().expect("a slot has a control word")
}

/// Where a message of `bytes` begins in a slot of `words` words, for who writes it from afar.
pub const fn begins(words: usize, bytes: usize) -> usize {
    begin(message_bytes_max(words), bytes)
}

/// Where a message of `bytes` begins in a slot whose messages have `room` bytes: right-aligned to a
/// word.
const fn begin(room: usize, bytes: usize) -> usize {
    room - bytes.next_multiple_of(8)
}

/// The writer's side: whether the slot may be written.
#[inline]
pub fn is_free(slot: &[AtomicU64]) -> bool {
    // (B) pairs with (D): the reader has copied what stood here before.
    parts(slot).0.load(Acquire) == 0 || sings(Canary::SlotFree)
}

/// Write a message of `pieces` into a free slot. Their lengths must add up to `control.bytes` and
/// fit; the caller has seen it free ([`is_free`]).
///
/// # Panics
/// If they do not.
#[inline]
pub fn write<'a>(slot: &[AtomicU64], control: Control, pieces: impl IntoIterator<Item = &'a [u8]>) {
    let (word, room) = parts(slot);
    let bytes = usize::from(control.bytes);
    let mut at = begin(8 * room.len(), bytes);
    let end = at + bytes;
    for piece in pieces {
        words::write(room, at, piece);
        at += piece.len();
    }
    assert!(at == end && control.sequence != 0, "a message of another length than it says");
    // (A) pairs with (C): who sees the control word sees the message.
    word.store(control.pack().to_le(), publish_order());
}

/// What a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Nothing.
    Empty,
    /// A message, appended to what the caller gave.
    Message(Control),
    /// A control word of a length that no message can have.
    Impossible(Control),
}

/// The reader's side, for a glance: whether anything stands in the slot. [`take`] looks properly.
#[inline]
pub fn is_taken(slot: &[AtomicU64]) -> bool {
    parts(slot).0.load(Relaxed) != 0
}

/// What the control word of a slot says; `None` of a free one.
#[inline]
pub fn control(slot: &[AtomicU64]) -> Option<Control> {
    // (C) pairs with (A).
    let control = u64::from_le(parts(slot).0.load(Acquire));
    (control != 0).then(|| Control::unpack(control))
}

/// Copy the message of a slot behind what is in `out`. The slot stays as it is: [`free`] it.
#[inline]
pub fn take(slot: &[AtomicU64], out: &mut Vec<u8>) -> Taken {
    let (word, room) = parts(slot);
    // (C) pairs with (A).
    let control = u64::from_le(word.load(Acquire));
    if control == 0 {
        return Taken::Empty;
    }
    let control = Control::unpack(control);
    let bytes = usize::from(control.bytes);
    if bytes > 8 * room.len() {
        return Taken::Impossible(control);
    }
    words::read_into(room, begin(8 * room.len(), bytes), bytes, out);
    Taken::Message(control)
}

/// Give the slot back to its writer.
#[inline]
pub fn free(slot: &[AtomicU64]) {
    // (D) pairs with (B): what was copied was copied before.
    parts(slot).0.store(0, Release);
}

/// Pollers that have a mark of their own at a bell.
pub const MARKS: usize = u64::BITS as usize;

/// The mark of poller number `number`. It shares it with who is [`MARKS`] further on.
pub const fn mark(number: usize) -> u64 {
    1 << (number % MARKS)
}

/// From now on, until it was rung, the peer is to ring: the poller of this mark is about to sleep,
/// or to look at this slot no more. It may raise its mark at many bells; then it calls [`raised`]
/// once, looks at all of their slots once more, and only then leaves those be where nothing is.
#[inline]
pub fn raise(bell: &AtomicU64, mark: u64) {
    // Where the mark still stands nobody has rung since it was raised.
    if bell.load(Relaxed) & mark == 0 {
        bell.fetch_or(mark, Relaxed);
    }
}

/// The same for whoever there will be.
#[inline]
pub fn raise_all(bell: &AtomicU64) {
    bell.store(u64::MAX, Relaxed);
}

/// Behind all bells that were raised, and before the last look.
#[inline]
pub fn raised() {
    // (E) pairs with (F): either this side sees what was written, or the other sees the bell.
    if !sings(Canary::SlotRaised) {
        doorbell_fence();
    }
}

/// The poller of this mark looks again: for its sake nobody needs to ring. The marks of others
/// stand: they may sleep.
#[inline]
pub fn lower(bell: &AtomicU64, mark: u64) {
    let mark = if sings(Canary::SlotMark) { u64::MAX } else { mark };
    // Relaxed: whoever sees it late rings for nothing.
    if bell.load(Relaxed) & mark != 0 {
        bell.fetch_and(!mark, Relaxed);
    }
}

/// Something was written: whether to ring. True once for each time a mark was raised, or nearly.
#[inline]
pub fn must_ring(bell: &AtomicU64) -> bool {
    // (F) pairs with (E).
    doorbell_fence();
    bell.load(Relaxed) != 0 && bell.swap(0, AcqRel) != 0
}

/// [`raise`] and [`raised`] for a sleeper whose word is a futex, which has 32 bits: 1 while it
/// sleeps.
#[inline]
pub fn fall_asleep(word: &AtomicU32) {
    word.store(1, Relaxed);
    doorbell_fence(); // (E)
}

/// [`lower`] for it.
#[inline]
pub fn wake_up(word: &AtomicU32) {
    word.store(0, Relaxed);
}

/// [`must_ring`] for it: whether the futex is to be woken.
#[inline]
pub fn must_wake(word: &AtomicU32) -> bool {
    doorbell_fence(); // (F)
    word.load(Relaxed) != 0 && word.swap(0, AcqRel) != 0
}

#[inline]
fn doorbell_fence() {
    if !sings(Canary::SlotDoorbell) {
        fence(SeqCst);
    }
}

/// A grant's word is a number, new for each loan, and the loan's state.
const STATES: u64 = 4;
const OFFERED: u64 = 1;
const CLAIMED: u64 = 2;

/// How far a loan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loan {
    /// There is none, or it has ended.
    Ended,
    /// Nobody has begun to read.
    Offered,
    /// Somebody reads.
    Claimed,
}

/// Lend memory, written before, as loan number `number`. The caller has seen the last loan ended.
#[inline]
pub fn offer(grant: &AtomicU64, number: u64) {
    // (G) pairs with (H): who claims it sees the memory.
    grant.store((number * STATES) | OFFERED, Release);
}

/// Begin to read loan `number`: true for one of all who try, and only if it was not taken back.
#[inline]
pub fn claim(grant: &AtomicU64, number: u64) -> bool {
    let Some(base) = number.checked_mul(STATES) else { return false };
    if sings(Canary::SlotClaim) {
        let offered = grant.load(Acquire) == base | OFFERED;
        if offered {
            grant.store(base | CLAIMED, Relaxed);
        }
        return offered;
    }
    // (H) pairs with (G).
    grant.compare_exchange(base | OFFERED, base | CLAIMED, Acquire, Relaxed).is_ok()
}

/// The reader has read all it will.
#[inline]
pub fn end_loan(grant: &AtomicU64) {
    // (I) pairs with (J): the memory is written again only after it was read.
    grant.store(0, Release);
}

/// The lender's side.
#[inline]
pub fn loan(grant: &AtomicU64) -> Loan {
    // (J) pairs with (I).
    match grant.load(Acquire) % STATES {
        OFFERED => Loan::Offered,
        CLAIMED => Loan::Claimed,
        _ => Loan::Ended,
    }
}

/// Take loan `number` back: false if somebody reads it, or has.
#[inline]
pub fn take_back(grant: &AtomicU64, number: u64) -> bool {
    grant.compare_exchange((number * STATES) | OFFERED, 0, Acquire, Relaxed).is_ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slot(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_message_of_any_length_comes_out_as_it_went_in() {
        let slot = slot(4);
        let bytes: Vec<u8> = (1..=24).collect();
        for len in 0..=message_bytes_max(slot.len()) {
            for cut in [0, len / 2, len] {
                assert!(is_free(&slot) && !is_taken(&slot));
                let control = Control { sequence: 7, note: 0xabcd, bytes: len as u16 };
                write(&slot, control, [&bytes[..cut], &bytes[cut..len]]);
                assert!(!is_free(&slot) && is_taken(&slot));
                let mut out = b"before".to_vec();
                assert_eq!(take(&slot, &mut out), Taken::Message(control));
                assert_eq!(out, [b"before", &bytes[..len]].concat());
                free(&slot);
                assert_eq!(take(&slot, &mut out), Taken::Empty);
            }
        }
    }

    #[test]
    fn a_length_beyond_the_slot_is_impossible_and_reads_nothing() {
        let slot = slot(4);
        for bytes in [25, 1400, u16::MAX] {
            let control = Control { sequence: 1, note: 0, bytes };
            slot[3].store(control.pack().to_le(), Relaxed);
            let mut out = Vec::new();
            assert_eq!((take(&slot, &mut out), out.len()), (Taken::Impossible(control), 0));
        }
    }

    #[test]
    #[should_panic(expected = "another length")]
    fn a_message_that_is_not_as_long_as_it_says_is_our_mistake() {
        write(&slot(4), Control { sequence: 1, note: 0, bytes: 5 }, [&b"four"[..]]);
    }

    #[test]
    fn no_sequence_number_is_zero() {
        assert_eq!((next(0), next(1), next(u32::MAX)), (1, 2, 1));
    }

    #[test]
    fn a_bell_is_rung_once_for_each_time_it_was_raised() {
        let bell = AtomicU64::new(0);
        let (one, other) = (mark(0), mark(MARKS - 1));
        assert!(!must_ring(&bell));
        raise(&bell, one);
        raise(&bell, one);
        assert!(must_ring(&bell) && !must_ring(&bell));
        raise(&bell, one);
        lower(&bell, one);
        assert!(!must_ring(&bell));
        raise(&bell, one);
        raise(&bell, other);
        lower(&bell, one);
        assert!(must_ring(&bell), "the other sleeps");
        raise_all(&bell);
        lower(&bell, one);
        assert!(must_ring(&bell) && !must_ring(&bell));
    }

    #[test]
    fn a_loan_is_claimed_once_under_its_number_or_taken_back() {
        let grant = AtomicU64::new(0);
        assert!(!claim(&grant, 0) && !claim(&grant, u64::MAX));
        offer(&grant, 5);
        assert_eq!(loan(&grant), Loan::Offered);
        assert!(!claim(&grant, 4) && !claim(&grant, 6) && !take_back(&grant, 4));
        assert!(claim(&grant, 5) && !claim(&grant, 5) && !take_back(&grant, 5));
        assert_eq!(loan(&grant), Loan::Claimed);
        end_loan(&grant);
        assert_eq!((loan(&grant), claim(&grant, 5)), (Loan::Ended, false));
        offer(&grant, 6);
        assert!(take_back(&grant, 6) && !claim(&grant, 6));
        assert_eq!(loan(&grant), Loan::Ended);
    }
}
