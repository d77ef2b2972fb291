//! Seeded faults around any kind of memory that clients write, as a network has them: requests and
//! replies are lost, come twice, or come late and out of order. Unreliable connections and
//! datagrams lose silently (HERD §2.2.2): a client that gets no answer asks again, and the server
//! must recognise the repeat.
//!
//! The same seed and the same calls make the same faults.

use laneway_rdma::contract::{Lenders, Peer, Posted, Request, Responder};
use std::io::{self, IoSlice};

/// Faults happen so many times in so many.
pub const PARTS: u64 = 10_000;
/// Calls that pass what is late, at most.
const PASSED_MAX: u64 = 8;

/// Which faults, in parts of [`PARTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Lost.
    pub drop: u64,
    /// Twice.
    pub duplicate: u64,
    /// Late.
    pub delay: u64,
    /// What decides.
    pub seed: u64,
}

impl Faults {
    /// Each of them so often.
    pub const fn each(seed: u64, parts: u64) -> Faults {
        Faults { drop: parts, duplicate: parts, delay: parts, seed }
    }
}

struct Late {
    calls: u64,
    peer: Peer,
    queue: usize,
    bytes: Vec<u8>,
}

/// A handle with faults.
pub struct Lossy<R> {
    inner: R,
    faults: Faults,
    state: u64,
    taken: Vec<(Peer, Vec<u8>)>,
    requests_late: Vec<Late>,
    replies_late: Vec<Late>,
}

impl<R: Responder> Lossy<R> {
    /// `inner` with `faults`.
    pub fn new(inner: R, faults: Faults) -> Lossy<R> {
        Lossy {
            inner,
            faults,
            state: faults.seed,
            taken: Vec::new(),
            requests_late: Vec::new(),
            replies_late: Vec::new(),
        }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, parts: u64) -> bool {
        self.draw() % PARTS < parts
    }

    /// How many of a message arrive now: none, one or two; and whether one comes late.
    fn fate(&mut self) -> (usize, bool) {
        if self.happens(self.faults.drop) {
            return (0, false);
        }
        let twice = self.happens(self.faults.duplicate);
        let late = self.happens(self.faults.delay);
        (1 + usize::from(twice) - usize::from(late), late)
    }

    fn late(&mut self, peer: Peer, queue: usize, bytes: Vec<u8>) -> Late {
        Late { calls: 1 + self.draw() % PASSED_MAX, peer, queue, bytes }
    }

    fn send_late(&mut self) {
        for late in &mut self.replies_late {
            late.calls = late.calls.saturating_sub(1);
        }
        while let Some(at) = self.replies_late.iter().position(|late| late.calls == 0) {
            let Late { peer, queue, bytes, .. } = self.replies_late.remove(at);
            // One that finds no room is lost, as late ones may be.
            self.inner.reply(peer, queue, &[IoSlice::new(&bytes)], 0);
        }
    }
}

impl<R: Responder> Responder for Lossy<R> {
    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn poll_slots(&mut self, queue: usize, burst: usize) -> usize {
        self.taken.clear();
        for late in self.requests_late.iter_mut().filter(|late| late.queue == queue) {
            late.calls = late.calls.saturating_sub(1);
        }
        let is_due = |late: &Late| late.queue == queue && late.calls == 0;
        while let Some(at) = self.requests_late.iter().position(is_due) {
            let Late { peer, bytes, .. } = self.requests_late.remove(at);
            self.taken.push((peer, bytes));
        }
        for index in 0..self.inner.poll_slots(queue, burst) {
            let Request { peer, bytes } = self.inner.request(index);
            let bytes = bytes.to_vec();
            let (now, late) = self.fate();
            if late {
                let late = self.late(peer, queue, bytes.clone());
                self.requests_late.push(late);
            }
            (0..now).for_each(|_| self.taken.push((peer, bytes.clone())));
        }
        self.taken.len()
    }

    fn request(&self, index: usize) -> Request<'_> {
        let (peer, bytes) = &self.taken[index];
        Request { peer: *peer, bytes }
    }

    fn reply(&mut self, peer: Peer, queue: usize, pieces: &[IoSlice<'_>], spare: usize) -> Posted {
        let (now, late) = self.fate();
        if late {
            let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            let late = self.late(peer, queue, bytes);
            self.replies_late.push(late);
        }
        for number in 0..now {
            match self.inner.reply(peer, queue, pieces, spare) {
                Posted::Done => {}
                other if number == 0 && !late => return other,
                _ => break,
            }
        }
        Posted::Done
    }

    fn pump(&mut self) -> io::Result<()> {
        self.send_late();
        self.inner.pump()
    }

    fn tidy(&mut self) {
        self.inner.tidy();
    }

    fn lenders(&self) -> Box<dyn Lenders> {
        self.inner.lenders()
    }
}
