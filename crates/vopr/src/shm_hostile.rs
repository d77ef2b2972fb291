//! A client in shared memory that misbehaves: it changes words of its region at any moment, slots,
//! bells, loans, places and what lies there, rings for nothing and empties its doorbells, asks for
//! much and takes no reply, and changes what it has lent while the server reads it. None of that
//! may hurt anybody else, and nothing of it may be kept behind its end.

use crate::ask::key_name;
use laneway_rdma::contract::{Descriptor, Peer};
use laneway_rdma::door;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::Given;
use laneway_sync::slot::{self, Control};
use laneway_sync::words;
use laneway_tier::disk::sim::Random;
use laneway_wire::udp::{Header, Kind};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

/// Words that are changed at once, at most.
const WORDS_MAX: u64 = 16;
/// A request that is not the next of its lane, for which slots are written twice: one in so many.
const STALE_EVERY: u64 = 8;
/// The numbers of such requests, and of loans: fewer than.
const NUMBERS: u64 = 100;

/// The client.
pub struct HostileMember {
    given: Given,
    /// Who it is.
    pub peer: Peer,
    /// By lane: the number of its next request, where it has kept to its turn.
    requests: Vec<u32>,
    /// Without it the server seems gone.
    _server: UnixStream,
}

impl HostileMember {
    /// It comes by the door, as all do.
    pub fn new(registry: &Registry) -> HostileMember {
        let joined = door::join(registry).expect("there is memory");
        let (given, peer, server) = joined.expect("there is a place");
        let requests = vec![1; given.terms.lanes];
        HostileMember { given, peer, requests, _server: server }
    }

    /// Does something. Of the keys of others it reads alone.
    pub fn go_on(&mut self, random: &mut Random, keys: usize) {
        let lane = random.below(self.given.terms.lanes as u64) as usize;
        match random.below(6) {
            0 | 1 => self.tear(random),
            2 => self.ring(lane, random),
            3 => {
                let header = Header::whole(random.number() as u16);
                let key = key_name(random.below(keys as u64) as usize);
                let text = format!("get {key}\r\n");
                self.post(lane, &[&header.to_bytes()[..], text.as_bytes()].concat(), random);
            }
            4 => {
                let length = random.below(1200);
                let garbage = (0..length).map(|_| b"\r\n\0 \xffzq19"[random.below(9) as usize]);
                let garbage: Vec<u8> = garbage.collect();
                self.post(lane, &garbage, random);
            }
            _ => self.lend(lane, random),
        }
    }

    /// Changes words, of a page or two at the front or anywhere.
    fn tear(&self, random: &mut Random) {
        let words = self.given.map.words();
        for _ in 0..1 + random.below(WORDS_MAX) {
            let most = match random.one_in(2) {
                true => self.given.terms.bulk().start,
                false => words.len(),
            };
            let at = random.below(most as u64) as usize;
            let word = match random.below(4) {
                0 => 0,
                1 => u64::MAX,
                2 => 1 + random.below(NUMBERS),
                _ => random.number(),
            };
            words[at].store(word, Relaxed);
        }
    }

    /// Rings a doorbell, or empties it, which is nobody's to do.
    fn ring(&self, lane: usize, random: &mut Random) {
        let Ok(doorbell) = self.given.doorbells[lane].try_clone() else { return };
        let mut doorbell = File::from(doorbell);
        // One that was not rung is empty already.
        let _ = match random.one_in(3) {
            true => doorbell.read_exact(&mut [0; 8]),
            false => doorbell.write_all(&1u64.to_ne_bytes()),
        };
    }

    /// Writes a message into a slot, whether that is free or not, and mostly the next.
    fn post(&mut self, lane: usize, message: &[u8], random: &mut Random) {
        let next = &mut self.requests[lane];
        let sequence = match random.one_in(STALE_EVERY) {
            true => 1 + random.below(NUMBERS) as u32,
            false => *next,
        };
        if sequence == *next {
            *next = slot::next(sequence);
        }
        let control = Control { sequence, note: 0, bytes: message.len() as u16 };
        let words = &self.given.map.words()[self.given.terms.request(lane, sequence)];
        slot::write(words, control, [message]);
    }

    /// Lends a request whose value does not end where it says, so that nothing is stored; or says
    /// that it does.
    fn lend(&mut self, lane: usize, random: &mut Random) {
        let terms = self.given.terms;
        let length = 1 + random.below(terms.bulk_bytes as u64 / 4) as usize;
        let mut message = format!("set alone 0 0 {length}\r\n").into_bytes();
        let bytes = message.len() + length + 2;
        message.resize(bytes, b'x');
        let (loan, number) = (random.below(terms.loans as u64), 1 + random.below(NUMBERS));
        if !random.one_in(4) {
            let map = self.given.map.words();
            words::write(&map[terms.bulk()], 0, &message);
            slot::offer(&map[terms.loan(loan as usize)], number);
        }
        let offset = if random.one_in(8) { random.number() } else { 0 };
        let descriptor = Descriptor { loan: loan as u32, number, offset, bytes: bytes as u32 };
        let request_id = random.number() as u16;
        let header = Header { request_id, sequence: 0, total: 1, kind: Kind::Lent };
        let said = [&header.to_bytes()[..], &descriptor.to_bytes()].concat();
        self.post(lane, &said, random);
    }
}
