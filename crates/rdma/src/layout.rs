//! Lays out a client's region. `docs/protocol.md` has the same in a table.
//!
//! A region has, in this order: a page for the word by which the client sleeps; a line of bells for
//! each of the server's lanes; a line for each loan, and one for each place of a long reply; the
//! slots of requests, by lane; the slots of replies, by the worker that sends them; the memory that
//! the client may lend; and that in which long replies have their places. Slots are [`SLOT_BYTES`]
//! long, 22 cache lines. Offsets are bytes from the region's start; pages are 4096.

use std::ops::Range;

/// Bytes of a slot: a datagram of memcached's UDP (1400) and the control word.
pub const SLOT_BYTES: usize = 1408;
/// The same in words.
pub const SLOT_WORDS: usize = SLOT_BYTES / 8;
/// A cache line.
pub const LINE_BYTES: usize = 64;
/// Where the first page ends, which belongs to 32-bit words.
pub const HEAD_BYTES: usize = 4096;

const _: () = assert!(SLOT_BYTES.is_multiple_of(LINE_BYTES));

/// Lanes at most: one descriptor for each goes through the door at once, and the kernel passes 253.
pub const LANES_MAX: usize = 128;
/// Slots of one client and lane at most.
pub const WINDOW_MAX: usize = 1024;
/// Loans of one client at most.
pub const LOANS_MAX: usize = 256;
/// Memory that one client may lend, at most: descriptors count it in 32 bits. The same of that for
/// long replies.
pub const BULK_BYTES_MAX: usize = 1 << 31;
/// Places of one client's long replies at most.
pub const PLACES_MAX: usize = 256;

/// What a server gives each of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The server's workers, each with a lane of requests and one of replies.
    pub lanes: usize,
    /// Slots for requests, by lane.
    pub window: usize,
    /// Slots for replies, by worker. Half of them are left to small replies.
    pub replies: usize,
    /// Loans under way at a time.
    pub loans: usize,
    /// Memory to lend.
    pub bulk_bytes: usize,
    /// Long replies that lie in memory at a time.
    pub places: usize,
    /// That memory. None: they come in frames.
    pub reply_bytes: usize,
}

impl Terms {
    /// What a server of so many workers gives where nobody says otherwise: the window of HERD's
    /// figures at its widest (32), twice as many replies, `bulk_bytes` to lend, and as many for
    /// long replies.
    pub const fn of(lanes: usize, bulk_bytes: usize) -> Terms {
        let (loans, places, reply_bytes) = (16, 16, bulk_bytes);
        Terms { lanes, window: 32, replies: 64, loans, bulk_bytes, places, reply_bytes }
    }

    /// The same for who knows no other replies than frames.
    pub const fn framed(self) -> Terms {
        Terms { places: 0, reply_bytes: 0, ..self }
    }

    /// Whether a region can be so; or why not.
    pub fn check(&self) -> Result<(), String> {
        let rows = [
            ("lanes", self.lanes, 1, LANES_MAX),
            ("window", self.window, 1, WINDOW_MAX),
            ("replies", self.replies, 2, WINDOW_MAX),
            ("loans", self.loans, 1, LOANS_MAX),
            ("bulk_bytes", self.bulk_bytes, 0, BULK_BYTES_MAX),
            ("places", self.places, 0, PLACES_MAX),
            ("reply_bytes", self.reply_bytes, 0, BULK_BYTES_MAX),
        ];
        for (name, value, least, most) in rows {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} {value}: must be from {least} to {most}"));
            }
        }
        for (name, bytes) in [("bulk_bytes", self.bulk_bytes), ("reply_bytes", self.reply_bytes)] {
            if !bytes.is_multiple_of(8) {
                return Err(format!("{name} {bytes}: must be a multiple of 8"));
            }
        }
        Ok(())
    }

    const fn loans_at(&self) -> usize {
        HEAD_BYTES + self.lanes * LINE_BYTES
    }

    const fn places_at(&self) -> usize {
        self.loans_at() + self.loans * LINE_BYTES
    }

    const fn requests_at(&self) -> usize {
        self.places_at() + self.places * LINE_BYTES
    }

    const fn replies_at(&self) -> usize {
        self.requests_at() + self.lanes * self.window * SLOT_BYTES
    }

    /// Where the memory to lend begins: at a page.
    pub const fn bulk_at(&self) -> usize {
        (self.replies_at() + self.lanes * self.replies * SLOT_BYTES).next_multiple_of(4096)
    }

    /// Where the memory for long replies begins: at a page.
    const fn long_replies_at(&self) -> usize {
        self.bulk_at() + self.bulk_bytes.next_multiple_of(4096)
    }

    /// Bytes of the whole region, in pages.
    pub const fn region_bytes(&self) -> usize {
        self.long_replies_at() + self.reply_bytes.next_multiple_of(4096)
    }
}

/// Where things stand among the words behind the first page. Every number is bounded by the terms,
/// whoever gave it.
impl Terms {
    /// The bell of a lane: rung when there is a request.
    pub const fn bell(&self, lane: usize) -> usize {
        assert!(lane < self.lanes);
        lane * LINE_BYTES / 8
    }

    /// The bell beside it: rung when replies of this worker have been taken.
    pub const fn room_bell(&self, lane: usize) -> usize {
        self.bell(lane) + 1
    }

    /// The word of a loan.
    pub const fn loan(&self, loan: usize) -> usize {
        assert!(loan < self.loans);
        (self.loans_at() - HEAD_BYTES + loan * LINE_BYTES) / 8
    }

    /// The word of a place.
    pub const fn place(&self, place: usize) -> usize {
        assert!(place < self.places);
        (self.places_at() - HEAD_BYTES + place * LINE_BYTES) / 8
    }

    /// The word beside it: 1 more than the id of the request whose reply is being written there; 0
    /// while none is.
    pub const fn writing(&self, place: usize) -> usize {
        self.place(place) + 1
    }

    /// The slot of request number `sequence` (from 1) in a lane.
    pub const fn request(&self, lane: usize, sequence: u32) -> Range<usize> {
        assert!(lane < self.lanes && sequence > 0);
        let slot = lane * self.window + (sequence - 1) as usize % self.window;
        let start = (self.requests_at() - HEAD_BYTES + slot * SLOT_BYTES) / 8;
        start..start + SLOT_WORDS
    }

    /// The slot of reply number `sequence` (from 1) of a worker.
    pub const fn reply(&self, worker: usize, sequence: u32) -> Range<usize> {
        assert!(worker < self.lanes && sequence > 0);
        let slot = worker * self.replies + (sequence - 1) as usize % self.replies;
        let start = (self.replies_at() - HEAD_BYTES + slot * SLOT_BYTES) / 8;
        start..start + SLOT_WORDS
    }

    /// The words of the memory to lend.
    pub const fn bulk(&self) -> Range<usize> {
        let start = (self.bulk_at() - HEAD_BYTES) / 8;
        start..start + self.bulk_bytes / 8
    }

    /// The words of the memory for long replies.
    pub const fn long_replies(&self) -> Range<usize> {
        let start = (self.long_replies_at() - HEAD_BYTES) / 8;
        start..start + self.reply_bytes / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nothing_in_a_region_overlaps_and_all_of_it_fits() {
        for terms in [
            Terms::of(1, 0),
            Terms::of(2, 1 << 20),
            Terms::of(2, 1 << 20).framed(),
            Terms { lanes: 3, window: 5, replies: 7, loans: 2, places: 3, ..Terms::of(3, 8192) },
            Terms { reply_bytes: 8, ..Terms::of(1, 4104) },
        ] {
            terms.check().expect("they are possible");
            let mut taken = BTreeSet::new();
            let mut take = |words: Range<usize>| {
                for word in words {
                    assert!(taken.insert(word), "word {word} twice in {terms:?}");
                    assert!(8 * word < terms.region_bytes() - HEAD_BYTES);
                }
            };
            for lane in 0..terms.lanes {
                take(terms.bell(lane)..terms.bell(lane) + 2);
                (1..=terms.window as u32).for_each(|each| take(terms.request(lane, each)));
                (1..=terms.replies as u32).for_each(|each| take(terms.reply(lane, each)));
            }
            (0..terms.loans).for_each(|loan| take(terms.loan(loan)..terms.loan(loan) + 1));
            (0..terms.places).for_each(|place| take(terms.place(place)..terms.writing(place) + 1));
            take(terms.bulk());
            take(terms.long_replies());
        }
    }

    #[test]
    fn slots_are_used_in_turn_and_begin_at_a_cache_line() {
        let terms = Terms::of(2, 4096);
        assert_eq!(terms.request(1, 1), terms.request(1, 33));
        assert_ne!(terms.request(1, 1), terms.request(1, 2));
        for sequence in 1..40 {
            assert_eq!(terms.request(1, sequence).start * 8 % LINE_BYTES, 0);
            assert_eq!(terms.reply(0, sequence).start * 8 % LINE_BYTES, 0);
        }
    }

    /// As `docs/protocol.md` has it: a client of version 1 knows nothing of what came later.
    #[test]
    fn without_places_a_region_is_that_of_version_1() {
        let terms = Terms::of(2, 8192);
        let framed = terms.framed();
        let requests = 4096 + 2 * 64 + 16 * 64;
        assert_eq!(framed.request(0, 1).start * 8 + HEAD_BYTES, requests);
        assert_eq!(framed.reply(0, 1).start * 8 + HEAD_BYTES, requests + 2 * 32 * 1408);
        assert_eq!(framed.region_bytes(), framed.bulk_at() + 8192);
        assert_eq!(terms.request(0, 1).start * 8 + HEAD_BYTES, requests + 16 * 64);
        assert_eq!(terms.region_bytes(), terms.bulk_at() + 2 * 8192);
    }

    #[test]
    fn impossible_terms_are_refused_by_name() {
        let good = Terms::of(2, 0);
        for (bad, words) in [
            (Terms { lanes: 0, ..good }, "lanes 0"),
            (Terms { lanes: 129, ..good }, "lanes 129"),
            (Terms { window: 0, ..good }, "window 0"),
            (Terms { replies: 1, ..good }, "replies 1"),
            (Terms { loans: 0, ..good }, "loans 0"),
            (Terms { bulk_bytes: BULK_BYTES_MAX + 1, ..good }, "bulk_bytes"),
            (Terms { bulk_bytes: 12, ..good }, "multiple of 8"),
            (Terms { places: 257, ..good }, "places 257"),
            (Terms { reply_bytes: BULK_BYTES_MAX + 1, ..good }, "reply_bytes"),
            (Terms { reply_bytes: 12, ..good }, "reply_bytes 12"),
        ] {
            let said = bad.check().expect_err(words);
            assert!(said.contains(words), "{said}");
        }
    }
}
