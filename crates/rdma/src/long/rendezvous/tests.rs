use super::super::twin::{Draws, Memory, Twin, memory};
use super::*;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

const REPLIES_BYTES: usize = 256 << 10;
const REQUESTS_BYTES: usize = 128 << 10;
const SECOND: u64 = 1_000_000_000;

fn message(seed: u64, bytes: usize) -> Vec<u8> {
    let mut draws = Draws::new(seed);
    (0..bytes).map(|_| draws.below(256) as u8).collect()
}

fn rendezvous(faults_percent: u64, seed: u64) -> (Arc<RendezvousBuffer<Twin>>, Memory, Memory) {
    let (replies, requests) = (memory(REPLIES_BYTES), memory(REQUESTS_BYTES));
    let twin = Twin::new(&replies, &requests, seed, faults_percent);
    let counts = Arc::new(Counts::default());
    (RendezvousBuffer::new(twin, REPLIES_BYTES, REQUESTS_BYTES, counts), replies, requests)
}

fn count(rendezvous: &RendezvousBuffer<Twin>, name: &str) -> u64 {
    rendezvous.counts.each().find(|(told, _)| *told == name).expect("it is counted").1
}

/// All of `bytes`, or `None` once the place is lost.
fn write_all(placed: &mut dyn Placed, bytes: &[u8], now: u64) -> Option<SealedDescriptor> {
    for piece in bytes.chunks(PIECE_BYTES) {
        let (front, back) = piece.split_at(piece.len() / 3);
        loop {
            match placed.write(&[IoSlice::new(front), IoSlice::new(back)]) {
                Moved::Done => break,
                Moved::Later => {}
                Moved::Gone => return None,
            }
        }
    }
    placed.notice(now).and_then(|notice| SealedDescriptor::parse(&notice))
}

fn read_all(lent: &mut dyn Lent) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < lent.bytes() {
        let (at, bytes) = (out.len(), PIECE_BYTES.min(lent.bytes() - out.len()));
        if lent.read(at, bytes, &mut out) == Moved::Gone {
            return None;
        }
    }
    lent.is_right().then_some(out)
}

#[test]
fn a_reply_arrives_by_as_many_writes_as_it_has_slices_and_one_notice() {
    let (rendezvous, replies, _) = rendezvous(0, 1);
    for (id, bytes) in [(1, 1393), (2, PIECE_BYTES), (3, PIECE_BYTES + 1), (4, 130_000)] {
        let before = count(&rendezvous, "verbs_write");
        let reply = message(id.into(), bytes);
        let mut placed = rendezvous.place(id, bytes, 0).expect("there is room");
        let sealed_descriptor = write_all(&mut *placed, &reply, 0).expect("it is its own");
        assert_eq!(count(&rendezvous, "verbs_write") - before, bytes.div_ceil(PIECE_BYTES) as u64);
        let mut out = Vec::new();
        assert!(sealed_descriptor.open(&replies, &mut out) && out == reply, "{bytes}");
        rendezvous.taken(id);
    }
    assert_eq!((count(&rendezvous, "notices"), count(&rendezvous, "replies_unplaced")), (4, 0));
    assert!(rendezvous.place(5, REPLIES_BYTES, 0).is_some(), "all of it is free again");
}

#[test]
fn a_client_that_takes_nothing_holds_its_memory_for_two_seconds_and_nobody_else_is_refused() {
    let (stalled, ..) = rendezvous(0, 1);
    let (other, ..) = rendezvous(0, 2);
    let half = REPLIES_BYTES / 2;
    for id in 0..2 {
        let mut placed = stalled.place(id, half, 0).expect("there is room");
        write_all(&mut *placed, &message(1, half), u64::from(id)).expect("it is its own");
    }
    assert!(stalled.place(2, 2_000, KEEP_NANOS - 1).is_none(), "it goes in frames");
    assert!(other.place(2, 2_000, KEEP_NANOS - 1).is_some());
    let told = |name| count(&stalled, name);
    let placed = stalled.place(2, 2_000, KEEP_NANOS);
    assert!(placed.is_some());
    assert_eq!((told("replies_unplaced"), told("places_expired")), (1, 1));
    drop(placed);
    assert_eq!(told("replies_unplaced"), 2, "it is given up, and goes in frames, too");
}

#[test]
fn a_reply_that_takes_too_long_loses_its_place_before_another_has_it() {
    let (rendezvous, replies, _) = rendezvous(0, 1);
    let (slow, quick) = (message(1, 90_000), message(2, REPLIES_BYTES));
    let mut late = rendezvous.place(1, slow.len(), 0).expect("there is room");
    while late.write(&[IoSlice::new(&slow[..1000])]) != Moved::Done {}
    let mut placed = rendezvous.place(2, quick.len(), 2 * SECOND).expect("its time was up");
    let sealed_descriptor = write_all(&mut *placed, &quick, 2 * SECOND).expect("it is its own");
    assert_eq!(late.write(&[IoSlice::new(&slow[1000..2000])]), Moved::Gone);
    drop(late);
    let mut out = Vec::new();
    assert!(sealed_descriptor.open(&replies, &mut out) && out == quick);
}

#[test]
fn a_request_is_read_once_at_a_time_and_what_lies_nowhere_is_refused() {
    let (rendezvous, _, requests) = rendezvous(0, 3);
    let bytes = message(9, 100_000);
    laneway_sync::words::write(&requests, 64, &bytes);
    let sealed_descriptor = SealedDescriptor::of(7, 64, &bytes);
    for wrong in [
        SealedDescriptor { bytes: 0, ..sealed_descriptor },
        SealedDescriptor { offset: REQUESTS_BYTES as u32, ..sealed_descriptor },
        SealedDescriptor { bytes: u32::MAX, offset: u32::MAX, ..sealed_descriptor },
    ] {
        assert!(rendezvous.claim(wrong, false).is_none(), "{wrong:?}");
    }
    let mut lent = rendezvous.claim(sealed_descriptor, false).expect("it is there");
    assert!(rendezvous.claim(sealed_descriptor, false).is_none(), "it is being read");
    assert_eq!(read_all(&mut *lent), Some(bytes.clone()));
    drop(lent);
    let reads = bytes.len().div_ceil(PIECE_BYTES) as u64;
    assert_eq!(count(&rendezvous, "verbs_read"), reads);
    assert!(rendezvous.claim(sealed_descriptor, false).is_none(), "it was read");
    // The memory is used anew while another that lay there comes late.
    laneway_sync::words::write(&requests, 1_000, b"something else");
    let late = SealedDescriptor::of(8, 64, &bytes);
    for _ in 0..2 {
        let mut late = rendezvous.claim(late, false).expect("it never came whole");
        assert_eq!(read_all(&mut *late), None);
    }
    assert_eq!((count(&rendezvous, "loans_torn"), count(&rendezvous, "loans_refused")), (2, 5));
}

#[test]
fn a_read_that_nobody_waits_for_any_more_is_none_of_the_next() {
    let (rendezvous, _, requests) = rendezvous(0, 5);
    let (first, second) = (message(1, 30_000), message(2, 60_000));
    laneway_sync::words::write(&requests, 0, &first);
    laneway_sync::words::write(&requests, 30_016, &second);
    let (one, two) = (SealedDescriptor::of(1, 0, &first), SealedDescriptor::of(2, 30_016, &second));
    let mut given_up = rendezvous.claim(one, false).expect("it is there");
    let mut out = Vec::new();
    // The twin answers about every second look.
    while given_up.read(0, 8, &mut out) == Moved::Done {
        drop(given_up);
        out.clear();
        given_up = rendezvous.claim(one, false).expect("it is there");
    }
    let mut lent = rendezvous.claim(two, false).expect("it is there");
    assert_eq!(lent.read(0, 1_000, &mut Vec::new()), Moved::Later, "one at a time");
    drop(given_up);
    assert_eq!(read_all(&mut *lent), Some(second));
}

#[test]
fn a_client_that_lies_about_its_memory_breaks_its_own_way_alone() {
    let lies = memory(4096);
    let twin = Twin::new(&lies, &lies, 1, 0);
    let liar = RendezvousBuffer::new(twin, 1 << 20, 1 << 20, Arc::new(Counts::default()));
    let (honest, replies, _) = rendezvous(0, 2);
    let reply = message(3, 50_000);
    let mut placed = liar.place(1, reply.len(), 0).expect("it says so");
    assert_eq!(write_all(&mut *placed, &reply, 0), None);
    let mut lent = liar.claim(SealedDescriptor::of(1, 8_192, &reply), false).expect("it says so");
    assert_eq!(read_all(&mut *lent), None);
    let mut placed = honest.place(1, reply.len(), 0).expect("there is room");
    let sealed_descriptor = write_all(&mut *placed, &reply, 0).expect("it is its own");
    assert!(sealed_descriptor.open(&replies, &mut Vec::new()));
}

/// A notice on its way, and what it is about.
struct Told {
    id: u16,
    sealed_descriptor: SealedDescriptor,
    reply: Vec<u8>,
}

/// Replies, with writes, notices and words that they were taken lost, late and twice: what a client
/// opens is what was written under that number, and each reply is opened or known to be missing.
#[test]
fn whatever_is_lost_late_or_twice_no_reply_is_opened_as_another() {
    let (mut opened, mut torn) = (0, 0);
    for seed in 1..=60 {
        let faults = [0, 2, 10, 40][seed as usize % 4];
        let (rendezvous, replies, _) = rendezvous(faults, seed);
        let mut draws = Draws::new(seed ^ 0xabcd);
        let mut notices: Vec<Told> = Vec::new();
        let mut now = 0;
        for step in 0..200u64 {
            now += draws.below(SECOND / 2);
            let (id, bytes) = (draws.below(24) as u16, 1 + draws.below(70_000) as usize);
            if let Some(mut placed) = rendezvous.place(id, bytes, now) {
                let reply = message(seed << 32 | step, bytes);
                let told = write_all(&mut *placed, &reply, now);
                notices.extend(told.map(|sealed_descriptor| Told { id, sealed_descriptor, reply }));
            }
            while !notices.is_empty() && draws.percent(60) {
                let at = draws.below(notices.len() as u64) as usize;
                let is_twice = draws.percent(10);
                let Told { id, sealed_descriptor, reply } = &notices[at];
                let mut out = Vec::new();
                if sealed_descriptor.open(&replies, &mut out) {
                    assert!(out == *reply, "seed {seed}, step {step}: another reply");
                    opened += 1;
                } else {
                    torn += 1;
                }
                if draws.percent(80) {
                    rendezvous.taken(*id);
                }
                if !is_twice {
                    notices.swap_remove(at);
                }
            }
        }
        // However it went, there is room for all who come later.
        assert!(rendezvous.place(99, REPLIES_BYTES, now + KEEP_NANOS).is_some(), "seed {seed}");
    }
    assert!(opened > 1_000 && torn > 100, "{opened} opened, {torn} torn: nothing is shown");
}

/// Requests, written into a region in pieces that get lost or come late, while its client uses it
/// again for others: what the server takes for whole is what was sealed under that number.
#[test]
fn whatever_is_lost_late_or_twice_no_request_is_taken_for_another() {
    let (mut whole, mut torn) = (0, 0);
    for seed in 1..=60 {
        let faults = [0, 2, 10, 40][seed as usize % 4];
        let (rendezvous, _, requests) = rendezvous(0, seed);
        let mut wire = Twin::new(&requests, &requests, seed, faults);
        let mut places = Ledger::new(REQUESTS_BYTES);
        let mut sent: BTreeMap<u16, (SealedDescriptor, Vec<u8>)> = BTreeMap::new();
        let mut draws = Draws::new(seed ^ 0x1234);
        for step in 0..200u64 {
            let id = draws.below(12) as u16;
            if draws.percent(40) {
                places.give_back(id); // its client has given it up; a repeat may still come
            } else if let Some(place) = places.take(id, 40_000, 0, u64::MAX) {
                let bytes = message(seed << 32 | step, 1 + draws.below(40_000) as usize);
                let sealed_descriptor =
                    SealedDescriptor::of(place.number, place.offset as u32, &bytes);
                assert!(wire.send(place.offset, &bytes));
                sent.insert(id, (sealed_descriptor, bytes));
            }
            if let Some((sealed_descriptor, bytes)) = sent.get(&(draws.below(12) as u16)) {
                let Some(mut lent) = rendezvous.claim(*sealed_descriptor, false) else { continue };
                match read_all(&mut *lent) {
                    Some(read) => {
                        assert!(read == *bytes, "seed {seed}, step {step}: another request");
                        whole += 1;
                    }
                    None => torn += 1,
                }
            }
        }
    }
    assert!(whole > 1_000 && torn > 500, "{whole} whole, {torn} torn: nothing is shown");
}

/// A carrier at which a slice lies as long as its test wants.
struct Slow {
    begun: Sender<()>,
    go_on: Receiver<()>,
}

impl Carrier for Slow {
    fn write(&mut self, _at: usize, _pieces: &[IoSlice<'_>]) -> Moved {
        self.begun.send(()).expect("the test waits");
        self.go_on.recv().expect("the test says when");
        Moved::Done
    }
    fn begin_read(&mut self, _at: usize, _bytes: usize) -> Moved {
        Moved::Done
    }
    fn end_read(&mut self, _out: &mut Vec<u8>) -> Moved {
        Moved::Later
    }
    fn reads_by_verb(&self) -> bool {
        true
    }
}

#[test]
fn who_is_at_a_slice_keeps_nobody_from_claiming_taking_and_placing() {
    let ((begun, is_begun), (go, go_on)) = (channel(), channel());
    let slow = Slow { begun, go_on };
    let rendezvous = RendezvousBuffer::new(slow, 4096, 4096, Arc::new(Counts::default()));
    let mut placed = rendezvous.place(1, 1000, 0).expect("there is room");
    std::thread::scope(|threads| {
        threads.spawn(|| assert_eq!(placed.write(&[IoSlice::new(&[7; 1000])]), Moved::Done));
        is_begun.recv().expect("it writes");
        // Meanwhile the others:
        let lent = rendezvous.claim(SealedDescriptor::of(1, 0, &[1; 1000]), false);
        let second = rendezvous.place(2, 3072, 0);
        let third = rendezvous.place(3, 3072, 0);
        rendezvous.taken(2);
        let fourth = rendezvous.place(4, 3072, 0);
        let found = [second.is_some(), third.is_some(), fourth.is_some(), lent.is_some()];
        drop((second, third, fourth, lent));
        go.send(()).expect("it waits");
        assert_eq!(found, [true, false, true, true]);
    });
    let told = |name| rendezvous.counts.each().find(|(told, _)| *told == name).map(|told| told.1);
    assert_eq!((told("loans_claimed"), told("loans_refused")), (Some(1), Some(0)));
}

#[test]
fn what_was_read_whole_is_read_again_only_where_that_is_asked_for() {
    let (rendezvous, _, requests) = rendezvous(0, 1);
    let bytes = message(1, 3_000);
    laneway_sync::words::write(&requests, 0, &bytes);
    let sealed_descriptor = SealedDescriptor::of(1, 0, &bytes);
    for _ in 0..3 {
        let mut lent = rendezvous.claim(sealed_descriptor, true).expect("it is not being read");
        assert!(rendezvous.claim(sealed_descriptor, true).is_none(), "now it is");
        assert_eq!(read_all(&mut *lent), Some(bytes.clone()));
        drop(lent);
        assert!(rendezvous.claim(sealed_descriptor, false).is_none(), "it was read");
    }
}
