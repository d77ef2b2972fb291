//! The last requests of one worker that were large or slow, each with its times, its client and,
//! where that is asked for, its key: a histogram tells that there was one, and this tells which.
//!
//! A worker notes a request as it records its latency. What is neither large nor slow costs two
//! comparisons there, and nothing else. Each place is a [`Notice`] with one writer: who reads
//! copies it whole or leaves it out, takes no lock, and is waited for by nobody. Beyond
//! [`PER_SECOND_MAX`] in a second requests are counted and not noted, so that a server on which
//! everything is slow does not spend its time on saying so. What is slow has places of its own:
//! large requests that are fast may be many, and would take the places of the few that are slow.
//!
//! Requests of one turn share their times and are noted as one. Times are nanoseconds of the
//! server's clock, sizes bytes.

use super::{ROWS, is_row_of_large};
use crate::clock::nanos_of;
use crate::counts::counters::Counter;
use laneway_sync::notice::Notice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Requests that a worker remembers: so many that were slow, and as many that were not.
pub const PLACES: usize = 64;
/// What takes so long is slow where the operator has not said what is.
const SLOW_DEFAULT: Duration = Duration::from_millis(100);
/// Requests that a worker notes in a second.
const PER_SECOND_MAX: u64 = 1_000;
const SECOND_NANOS: u64 = 1_000_000_000;

const CLIENT_WORDS: usize = 8;
/// memcached's longest key has 250 bytes; of longer ones the front is kept.
const KEY_WORDS: usize = 32;
/// Words before those of the client.
const HEAD_WORDS: usize = 8;
const WORDS: usize = HEAD_WORDS + CLIENT_WORDS + KEY_WORDS;

/// What a latency's recorder knows of requests that have just been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the last byte of the reply left.
    pub ended_nanos: u64,
    /// The same in Unix time.
    pub unix_seconds: u32,
    /// Operation and lane: a row of the books.
    pub row: usize,
    /// Requests that share these times.
    pub requests: u64,
    /// Bytes of key and value of the longest large item among them; where all are small, the bytes
    /// that came and left with them, as far as these were counted.
    pub bytes: u64,
    /// From arrival to the last byte of the reply.
    pub took_nanos: u64,
    /// Of it, until the first turn or slice.
    pub wait_nanos: u64,
    /// Of it, while the client took no more of the reply.
    pub drain_nanos: u64,
}

impl Times {
    /// What is neither waiting nor draining.
    pub fn service_nanos(&self) -> u64 {
        self.took_nanos.saturating_sub(self.wait_nanos.saturating_add(self.drain_nanos))
    }

    /// Whether it was of the large lane.
    pub fn is_large(&self) -> bool {
        is_row_of_large(self.row)
    }
}

/// One that was noted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedRequest {
    /// Counts from 1 on in each [`Ring`].
    pub number: u64,
    /// Its times.
    pub times: Times,
    /// Its client's address, in memcached's notation, cut after 64 bytes.
    pub client: String,
    /// Its key; empty where none was noted.
    pub key: Vec<u8>,
    /// It was slow as that was said when it was noted.
    pub is_slow: bool,
}

/// Which requests are slow, and whether the log is to tell of them.
#[derive(Debug)]
pub struct Slow {
    nanos: AtomicU64,
    is_logged: AtomicBool,
}

impl Slow {
    /// What takes so long is; where that is not said it is 100 ms, and the log tells of none.
    pub fn new(slow: Option<Duration>) -> Slow {
        let new = Slow { nanos: AtomicU64::new(0), is_logged: AtomicBool::new(false) };
        new.set(slow);
        new
    }

    /// The same from now on.
    pub fn set(&self, slow: Option<Duration>) {
        // Two numbers that order nothing.
        self.nanos.store(nanos_of(slow.unwrap_or(SLOW_DEFAULT)), Relaxed);
        self.is_logged.store(slow.is_some(), Relaxed);
    }

    /// What takes so many nanoseconds is slow.
    #[inline]
    pub fn nanos(&self) -> u64 {
        self.nanos.load(Relaxed) // see `set`
    }

    /// Whether the log is to tell of what is slow.
    pub fn is_logged(&self) -> bool {
        self.is_logged.load(Relaxed) // see `set`
    }
}

/// One worker's.
pub struct Noted {
    /// Those that were slow, whatever their size.
    pub slow: Ring,
    /// Those that were large alone.
    pub large: Ring,
}

impl Default for Noted {
    fn default() -> Self {
        Noted { slow: Ring::new(true), large: Ring::new(false) }
    }
}

impl Noted {
    /// Note one, which is slow if it took `slow_nanos`. Only the worker that owns these calls this.
    #[inline]
    pub fn note_owner(&self, times: &Times, slow_nanos: u64, client: &str, key: &[u8]) {
        let ring = if times.took_nanos >= slow_nanos { &self.slow } else { &self.large };
        ring.note_owner(times, client, key);
    }

    /// Both kinds.
    pub fn rings(&self) -> [&Ring; 2] {
        [&self.slow, &self.large]
    }

    /// How many were noted, and how many more were not.
    pub fn counts(&self) -> (u64, u64) {
        let [slow, large] = self.rings().map(Ring::counts);
        (slow.0 + large.0, slow.1 + large.1)
    }

    /// Those that are remembered: of each kind in their order.
    pub fn read(&self) -> impl Iterator<Item = NotedRequest> {
        self.rings().into_iter().flat_map(|ring| ring.read(0))
    }

    /// Those since the last `stats reset` that are remembered.
    pub fn read_since_reset(&self) -> impl Iterator<Item = NotedRequest> {
        // A number, which orders nothing.
        let told_from = |ring: &Ring| ring.told_from.load(Relaxed);
        self.rings().into_iter().flat_map(move |ring| ring.read(told_from(ring)))
    }

    /// `stats reset`: those of before are told no more.
    pub fn reset(&self) {
        for ring in self.rings() {
            ring.told_from.store(ring.noted.get(), Relaxed); // see `read_since_reset`
        }
    }
}

/// Those of one kind.
pub struct Ring {
    is_slow: bool,
    places: Box<[Notice]>,
    /// How many were noted.
    noted: Counter,
    left_out: Counter,
    /// The second in which the last one was noted, and how many were in it.
    second: Counter,
    in_second: Counter,
    /// Those up to this one are told no more (`stats reset`).
    told_from: AtomicU64,
}

impl Ring {
    fn new(is_slow: bool) -> Ring {
        Ring {
            is_slow,
            places: (0..PLACES).map(|_| Notice::new(WORDS)).collect(),
            noted: Counter::default(),
            left_out: Counter::default(),
            second: Counter::default(),
            in_second: Counter::default(),
            told_from: AtomicU64::new(0),
        }
    }

    fn note_owner(&self, times: &Times, client: &str, key: &[u8]) {
        let second = times.ended_nanos / SECOND_NANOS;
        if second != self.second.get() {
            self.second.set_owner(second);
            self.in_second.set_owner(0);
        }
        if self.in_second.get() >= PER_SECOND_MAX {
            return self.left_out.bump_owner();
        }
        self.in_second.bump_owner();
        let number = self.noted.get() + 1;
        let place = &self.places[number as usize % PLACES];
        place.post(&words(number, times, client, key));
        self.noted.set_owner(number);
    }

    /// How many were noted, and how many more were not.
    pub fn counts(&self) -> (u64, u64) {
        (self.noted.get(), self.left_out.get())
    }

    /// Those that are remembered, from behind number `after` on, in their order. One that is just
    /// being replaced is left out.
    pub fn read(&self, after: u64) -> Vec<NotedRequest> {
        let mut words = Vec::new();
        let mut all = Vec::new();
        for place in &self.places {
            if place.read(0, &mut words).is_some()
                && let Some(request) = noted_in(&words, self.is_slow)
                && request.number > after
            {
                all.push(request);
            }
        }
        all.sort_by_key(|request| request.number);
        all
    }
}

fn words(number: u64, times: &Times, client: &str, key: &[u8]) -> [u64; WORDS] {
    let key = &key[..key.len().min(8 * KEY_WORDS)];
    let mut words = [0; WORDS];
    words[..HEAD_WORDS].copy_from_slice(&[
        number,
        times.ended_nanos,
        u64::from(times.unix_seconds) << 32 | (times.row as u64) << 16 | key.len() as u64,
        times.requests,
        times.bytes,
        times.took_nanos,
        times.wait_nanos,
        times.drain_nanos,
    ]);
    let client = &client[..client.floor_char_boundary(8 * CLIENT_WORDS)];
    put(&mut words[HEAD_WORDS..], client.as_bytes());
    put(&mut words[HEAD_WORDS + CLIENT_WORDS..], key);
    words
}

fn put(words: &mut [u64], bytes: &[u8]) {
    for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut all = [0; 8];
        all[..part.len()].copy_from_slice(part);
        *word = u64::from_le_bytes(all);
    }
}

fn bytes_of(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_le_bytes())
}

fn noted_in(words: &[u64], is_slow: bool) -> Option<NotedRequest> {
    let words: &[u64; WORDS] = words.try_into().ok()?;
    let [number, ended_nanos, packed, requests, bytes, took_nanos, wait_nanos, drain_nanos, ..] =
        *words;
    let (row, key_bytes) = ((packed >> 16) as usize & 0xffff, packed as usize & 0xffff);
    assert!(row < ROWS, "a notice is whole");
    let (client, key) = words[HEAD_WORDS..].split_at(CLIENT_WORDS);
    let client: Vec<u8> = bytes_of(client).take_while(|byte| *byte != 0).collect();
    let unix_seconds = (packed >> 32) as u32;
    let times = Times {
        ended_nanos,
        unix_seconds,
        row,
        requests,
        bytes,
        took_nanos,
        wait_nanos,
        drain_nanos,
    };
    Some(NotedRequest {
        number,
        times,
        client: String::from_utf8_lossy(&client).into_owned(),
        key: bytes_of(key).take(key_bytes).collect(),
        is_slow,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Operation, row};

    fn times(ended_nanos: u64) -> Times {
        Times {
            ended_nanos,
            unix_seconds: 1_700_000_000,
            row: row(Operation::Set, true),
            requests: 3,
            bytes: 500_000,
            took_nanos: 70,
            wait_nanos: 20,
            drain_nanos: 10,
        }
    }

    /// Everything takes 70 ns.
    const SLOW: u64 = 70;
    const FAST: u64 = 71;

    #[test]
    fn what_is_read_is_what_was_noted_and_the_last_64_are_remembered() {
        let noted = Noted::default();
        assert_eq!(noted.read().count(), 0);
        let long = "x".repeat(300);
        for number in 1..=100_u64 {
            let key: &[u8] = if number % 2 == 0 { long.as_bytes() } else { b"" };
            noted.note_owner(&times(number), FAST, &format!("tcp:10.0.0.1:{number}"), key);
        }
        let all: Vec<_> = noted.read().collect();
        let numbers: Vec<u64> = all.iter().map(|request| request.number).collect();
        assert_eq!(numbers, (37..=100).collect::<Vec<_>>());
        let last = &all[63];
        assert_eq!((last.times, last.client.as_str()), (times(100), "tcp:10.0.0.1:100"));
        assert_eq!((last.key.len(), all[62].key.len()), (8 * KEY_WORDS, 0), "the front of a key");
        assert_eq!((last.times.service_nanos(), last.is_slow), (40, false));
        assert_eq!(noted.large.read(98).len(), 2);
        noted.reset();
        assert!(noted.read_since_reset().next().is_none() && noted.read().count() == 64);
        noted.note_owner(&times(101), FAST, "unix:/run/laneway", b"k");
        assert_eq!(noted.read_since_reset().count(), 1);
        assert_eq!(noted.counts(), (101, 0), "a reset leaves the counts");
    }

    #[test]
    fn what_is_slow_is_remembered_however_many_large_ones_are_fast() {
        let noted = Noted::default();
        noted.note_owner(&times(1), SLOW, "slow", b"");
        for number in 2..2 * PER_SECOND_MAX {
            noted.note_owner(&times(number), FAST, "fast", b"");
        }
        noted.note_owner(&times(2 * PER_SECOND_MAX), SLOW, "slow", b"");
        let slow: Vec<_> = noted.read().filter(|request| request.is_slow).collect();
        let ended: Vec<u64> = slow.iter().map(|request| request.times.ended_nanos).collect();
        assert_eq!(ended, [1, 2 * PER_SECOND_MAX]);
        assert!(slow.iter().all(|request| request.client == "slow"));
        assert_eq!((noted.slow.counts(), noted.large.counts().0), ((2, 0), PER_SECOND_MAX));
    }

    #[test]
    fn beyond_a_thousand_in_a_second_requests_are_only_counted() {
        let noted = Noted::default();
        for number in 0..PER_SECOND_MAX + 7 {
            noted.note_owner(&times(5 * SECOND_NANOS + number), SLOW, "c", b"");
        }
        assert_eq!(noted.counts(), (PER_SECOND_MAX, 7));
        noted.note_owner(&times(6 * SECOND_NANOS), SLOW, "c", b"");
        assert_eq!(noted.counts(), (PER_SECOND_MAX + 1, 7));
    }

    #[test]
    fn a_client_whose_name_is_long_is_cut_between_characters() {
        let noted = Noted::default();
        let name = format!("unix:/{}", "ü".repeat(60));
        noted.note_owner(&times(1), SLOW, &name, b"");
        let told = noted.read().next().expect("it was noted").client;
        assert!(name.starts_with(told.as_str()) && (62..=64).contains(&told.len()), "{told}");
    }
}
