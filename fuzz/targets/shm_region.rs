//! Fuzzes the server's side of a client's region: the client writes whatever it likes, wherever it
//! can, between all that the server does.
//!
//! The input is a list of steps of six bytes: what happens, where, and what is written or said.
//! What is checked: nothing panics; no request is longer than a slot; what is claimed lies within
//! what may be lent, and one loan is claimed once; long replies are written into the memory for
//! them and nowhere else; and however it ends, a client that then behaves is served in every lane,
//! within as many numbers as the server can have seen.

#![no_main]

use laneway_rdma::contract::{Descriptor, Lent, MESSAGE_BYTES_MAX, Moved, Peer, Placed, Responder};
use laneway_rdma::door;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::{Region, Registry};
use laneway_rdma::shmring::RingResponder;
use laneway_sync::prim::AtomicU64;
use laneway_sync::prim::Ordering::Relaxed;
use laneway_sync::slot::{self, Control};
use libfuzzer_sys::fuzz_target;
use std::io::IoSlice;
use std::sync::Arc;

const TERMS: Terms = Terms { window: 2, replies: 4, loans: 2, places: 2, ..Terms::of(2, 4096) };
/// Requests of a poll.
const BURST: usize = 8;
/// Loans that are read at a time.
const CLAIMED_MAX: usize = 4;
/// Replies that are being written at a time.
const PLACED_MAX: usize = 3;
/// Lengths by number: edges, and many small ones.
const LENGTHS: [u16; 8] = [0, 1, 8, 9, 1399, 1400, 1401, u16::MAX];

struct World {
    responder: RingResponder,
    region: Arc<Region>,
    claimed: Vec<Box<dyn Lent>>,
    placed: Vec<Reply>,
    /// What the clock says.
    now: u64,
}

/// One that is being written: so many bytes, of which some are left.
struct Reply {
    placed: Box<dyn Placed>,
    bytes: usize,
    left: usize,
}

fuzz_target!(|input: &[u8]| {
    let registry = Arc::new(Registry::new(TERMS, 1));
    let (given, peer, _server) =
        door::join(&registry).expect("there is memory").expect("there is a place");
    let region = registry.clients()[0].clone().expect("it has come");
    let responder = RingResponder::new(registry.clone(), 0);
    let mut world = World { responder, region, claimed: Vec::new(), placed: Vec::new(), now: 0 };
    let words = given.map.words();
    let mut steps = 1;
    for step in input.chunks_exact(6) {
        let &[what, low, high, a, b, c] = step else { unreachable!() };
        let at = usize::from(u16::from_le_bytes([low, high]));
        match what % 3 {
            0 => scribble(words, what / 3, at, [a, b, c]),
            1 => write_slot(words, low, high, [a, b, c]),
            _ => world.serve(words, peer, what / 3, at, [a, b, c]),
        }
        steps += 1;
    }
    drop((world.claimed, world.placed));
    words.iter().for_each(|word| word.store(0, Relaxed));
    for lane in 0..TERMS.lanes {
        let is_served = |number: u32| {
            let control = Control { sequence: number, note: 0, bytes: 4 };
            slot::write(&words[TERMS.request(lane, number)], control, [&b"good"[..]]);
            world.responder.poll_slots(lane, 1) == 1 && world.responder.request(0).bytes == b"good"
        };
        // A poll takes a burst at most, and what is wrong beside it.
        let most = steps * BURST as u32 * 2;
        assert!((1..=most).any(is_served), "lane {lane} stands still");
    }
});

/// Anything, anywhere.
fn scribble(words: &[AtomicU64], kind: u8, at: usize, [a, b, c]: [u8; 3]) {
    // The words that mean something are few among those of slots.
    let place = match kind % 5 {
        0 => TERMS.bell(at % TERMS.lanes),
        1 => TERMS.room_bell(at % TERMS.lanes),
        2 => TERMS.loan(at % TERMS.loans),
        3 => TERMS.place(at % TERMS.places),
        _ => at % words.len(),
    };
    let value = match a % 4 {
        0 => u64::from(b),
        1 => u64::MAX - u64::from(b),
        2 => u64::from(b) << 32 | u64::from(c),
        _ => u64::from_le_bytes([b, c, b, c, b, c, b, c]),
    };
    words[place].store(value, Relaxed);
}

/// A control word that may be right, of a request or a reply; or nothing, as who takes replies has
/// it.
fn write_slot(words: &[AtomicU64], low: u8, high: u8, [a, b, c]: [u8; 3]) {
    let (lane, number) = (usize::from(a) % TERMS.lanes, u32::from(high) % 64 + 1);
    let slot = match c & 1 {
        0 => &words[TERMS.request(lane, number)],
        _ => &words[TERMS.reply(lane, number)],
    };
    let bytes = LENGTHS[usize::from(b) % LENGTHS.len()];
    // Most often the number that belongs there.
    let sequence = if low < 200 { number } else { u32::from(low) };
    let control = Control { sequence, note: 0, bytes };
    let word = slot.last().expect("a slot has a control word");
    word.store(if c & 2 == 0 { control.pack().to_le() } else { 0 }, Relaxed);
}

impl World {
    fn serve(&mut self, words: &[AtomicU64], peer: Peer, kind: u8, at: usize, [a, b, c]: [u8; 3]) {
        let lane = usize::from(a) % TERMS.lanes;
        match kind % 10 {
            0 => {
                let count = self.responder.poll_slots(lane, 1 + usize::from(b) % BURST);
                assert!(count <= 1 + usize::from(b) % BURST);
                for index in 0..count {
                    let request = self.responder.request(index);
                    assert!(request.peer == peer && request.bytes.len() <= MESSAGE_BYTES_MAX);
                }
            }
            1 => {
                let reply = vec![b; at % (MESSAGE_BYTES_MAX + 1)];
                let (front, back) = reply.split_at(reply.len() / 2);
                let pieces = [IoSlice::new(front), IoSlice::new(back)];
                self.responder.reply(peer, lane, &pieces, usize::from(c));
            }
            2 => {
                self.responder.pump().expect("to wake nobody is no failure");
                self.responder.tidy();
            }
            3 => {
                self.region.raise(lane, usize::from(c));
                self.region.raise_room(lane);
                slot::raised();
                self.region.has_request(lane);
                self.region.has_room_again(lane, usize::from(b));
                self.region.lower(lane, usize::from(c));
            }
            4 => self.claim(peer, at, [a, b, c]),
            5 => _ = self.claimed.pop(),
            6 => self.place(peer, at, [a, b, c]),
            7 => self.write_reply(words, at, usize::from(a)),
            8 => self.responder.lenders().taken(peer, u16::from(a) % 4),
            _ => self.now += u64::from(a) << 24,
        }
    }

    fn place(&mut self, peer: Peer, at: usize, [a, b, _]: [u8; 3]) {
        let bytes = if b > 250 { usize::MAX - at } else { at % (TERMS.reply_bytes + 2) };
        let placed = self.responder.lenders().place(peer, u16::from(a) % 4, bytes, self.now);
        let Some(placed) = placed else { return };
        assert!(bytes <= TERMS.reply_bytes);
        self.placed.truncate(PLACED_MAX - 1);
        self.placed.push(Reply { placed, bytes, left: bytes });
    }

    /// Go on with one of the replies; behind the last byte tell of it.
    fn write_reply(&mut self, words: &[AtomicU64], at: usize, which: usize) {
        if self.placed.is_empty() {
            return;
        }
        let which = which % self.placed.len();
        let Reply { placed, bytes, left } = &mut self.placed[which];
        let all = || words.iter().map(|word| word.load(Relaxed)).collect::<Vec<u64>>();
        let before = all();
        if *left > 0 {
            let most = (*left).min(1 + at % 1024);
            if placed.write(&[IoSlice::new(&vec![0xa5; most])]) == Moved::Done {
                *left -= most;
            }
        }
        let after = all();
        let changed = (0..words.len()).filter(|word| before[*word] != after[*word]);
        let changed: Vec<usize> = changed.collect();
        assert!(changed.iter().all(|word| TERMS.long_replies().contains(word)), "{changed:?}");
        let (bytes, is_whole) = (*bytes, *left == 0);
        if is_whole && let Some(told) = placed.notice(self.now) {
            let told = Descriptor::parse(&told).expect("it is as long as one");
            let end = told.offset as usize + bytes;
            assert!(told.bytes as usize == bytes && end <= TERMS.reply_bytes);
            assert!((told.loan as usize) < TERMS.places && told.number > 0);
            self.placed.remove(which);
        }
    }

    fn claim(&mut self, peer: Peer, at: usize, [a, b, c]: [u8; 3]) {
        let far = |byte: u8, number: u64| if byte > 250 { u64::MAX - number } else { number };
        let descriptor = Descriptor {
            loan: u32::from(a) % 4,
            number: far(a, u64::from(b)),
            offset: far(c, at as u64),
            bytes: u32::from(c) * 32 + u32::from(a),
        };
        let lenders = self.responder.lenders();
        let Some(mut lent) = lenders.claim(peer, &descriptor.to_bytes()) else { return };
        assert!(descriptor.offset as usize + lent.bytes() <= TERMS.bulk_bytes);
        assert!(lenders.claim(peer, &descriptor.to_bytes()).is_none(), "claimed twice");
        let mut copy = Vec::new();
        lent.read(0, lent.bytes(), &mut copy);
        assert_eq!(copy.len(), lent.bytes());
        self.claimed.truncate(CLAIMED_MAX - 1);
        self.claimed.push(lent);
    }
}
