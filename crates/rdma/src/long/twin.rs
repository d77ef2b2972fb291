//! A card in software, for tests. It writes into another's memory packet by packet; by seed it
//! loses some packets and delivers some late, in pieces that overtake later ones. A read takes a
//! few polls. An access outside of the memory breaks it, as it breaks a connection.

use super::rendezvous::Carrier;
use super::sealed_descriptor::PIECE_BYTES;
use crate::contract::Moved;
use laneway_sync::prim::AtomicU64;
use laneway_sync::words;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes of a packet.
const PACKET_BYTES: usize = 4096;
/// Writes that have not arrived, at most.
const LATE_MAX: usize = 8;

/// Memory that both sides see.
pub type Memory = Arc<Vec<AtomicU64>>;

/// Zeroes.
pub fn memory(bytes: usize) -> Memory {
    Arc::new((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect())
}

/// Numbers by seed.
#[derive(Debug, Clone)]
pub struct Draws(u64);

impl Draws {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Draws {
        Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// One below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most.max(1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// One side's card and connection.
pub struct Twin {
    theirs: Memory,
    requests: Memory,
    draws: Draws,
    faults_percent: u64,
    /// How often in a hundred it says that it is at something else.
    busy_percent: u64,
    /// How often a look finds what is being read.
    read_percent: u64,
    late: VecDeque<(usize, Vec<u8>)>,
    reading: Option<(usize, usize)>,
    is_broken: bool,
}

impl Twin {
    /// One that writes to `theirs` and reads from `requests`, with so many faults in a hundred.
    pub fn new(theirs: &Memory, requests: &Memory, seed: u64, faults_percent: u64) -> Twin {
        Twin {
            theirs: theirs.clone(),
            requests: requests.clone(),
            draws: Draws::new(seed),
            faults_percent,
            busy_percent: 20,
            read_percent: 50,
            late: VecDeque::new(),
            reading: None,
            is_broken: false,
        }
    }

    /// The same, which is never at something else.
    pub fn idle(self) -> Twin {
        Twin { busy_percent: 0, ..self }
    }

    /// The same, which is always: nothing moves, as where the other side has stopped.
    pub fn stuck(self) -> Twin {
        Twin { busy_percent: 100, read_percent: 0, ..self }
    }

    /// Send `bytes` to `at` of the other's memory. False: there is no such place.
    pub fn send(&mut self, at: usize, bytes: &[u8]) -> bool {
        if at + bytes.len() > size_of_val(&self.theirs[..]) {
            self.is_broken = true;
            return false;
        }
        for (number, packet) in bytes.chunks(PACKET_BYTES).enumerate() {
            let at = at + number * PACKET_BYTES;
            if self.draws.percent(self.faults_percent) {
                if self.draws.percent(50) && self.late.len() < LATE_MAX {
                    self.late.push_back((at, packet.to_vec()));
                }
                continue;
            }
            words::write(&self.theirs, at, packet);
        }
        if self.draws.percent(30) {
            self.arrive();
        }
        true
    }

    /// Something late arrives.
    pub fn arrive(&mut self) {
        if let Some((at, packet)) = self.late.pop_front() {
            words::write(&self.theirs, at, &packet);
        }
    }
}

impl Carrier for Twin {
    fn write(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Moved {
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>();
        assert!(bytes.len() <= PIECE_BYTES);
        if self.is_broken {
            return Moved::Gone;
        }
        if self.draws.percent(self.busy_percent) {
            return Moved::Later;
        }
        if self.send(at, &bytes) { Moved::Done } else { Moved::Gone }
    }

    fn begin_read(&mut self, at: usize, bytes: usize) -> Moved {
        assert!(self.reading.is_none() && bytes <= PIECE_BYTES, "one at a time");
        if self.is_broken || at + bytes > size_of_val(&self.requests[..]) {
            self.is_broken = true;
            return Moved::Gone;
        }
        self.reading = Some((at, bytes));
        Moved::Done
    }

    fn end_read(&mut self, out: &mut Vec<u8>) -> Moved {
        if self.is_broken {
            return Moved::Gone;
        }
        if !self.draws.percent(self.read_percent) {
            return Moved::Later;
        }
        let (at, bytes) = self.reading.take().expect("something is being read");
        words::read_into(&self.requests, at, bytes, out);
        Moved::Done
    }

    fn reads_by_verb(&self) -> bool {
        true
    }
}
