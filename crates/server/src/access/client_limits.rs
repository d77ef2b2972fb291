//! Limits the requests and bytes of the clients of one address (`--client-rate`, `--client-bytes`),
//! and of all clients of one listener (`-l rate=N:bytes=N:ADDRESS`). Each address, and each such
//! listener, has a token bucket of requests and one of bytes (`policy::rate`), which all workers
//! share. A listener's limits stay as they were when the server started.
//!
//! An address is what connections are limited by, too (`per_address`): without its port, and of
//! IPv6 the first half. Clients of a unix socket have none, and are not limited; neither are
//! datagrams, whose source proves nothing: a stranger could use up what is another's.
//!
//! A connection finds its bucket with its first turn under a limit, and keeps it. The lock is taken
//! there, and where limits change. A bucket is forgotten once none of its connections is open and
//! it is full, so that whoever connects anew gains nothing; past [`BUCKETS_KEPT`] of them, those of
//! closed connections are forgotten earlier.

use crate::access::per_address::is_local;
use crate::auth::gate::address_of;
use laneway_policy::Lane;
use laneway_policy::rate::{BURST_LARGE_NANOS, BURST_NANOS, Rate, ready_nanos};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buckets beyond which those without connections are forgotten though they are not full.
const BUCKETS_KEPT: usize = 4096;
/// Buckets that are looked at for each that is made, so that no connection pays for many others.
const LOOKED_AT: usize = 16;

/// The limits of the clients of one address, a second each. `None` is any number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests; each key of a `get` is one.
    pub requests: Option<Rate>,
    /// Bytes, in and out.
    pub bytes: Option<Rate>,
}

impl Rates {
    /// So many a second; 0 for any number.
    pub fn new(requests: u64, bytes: u64) -> Rates {
        Rates { requests: Rate::new(requests), bytes: Rate::new(bytes) }
    }

    /// Whether anything is limited.
    pub fn is_any(self) -> bool {
        self != Rates::default()
    }

    /// What one of the two lets through, for clients whom either limit may hold for.
    pub fn looser(self, other: Rates) -> Rates {
        let looser = |one: Option<Rate>, other: Option<Rate>| {
            let (one, other) = (one?.per_second(), other?.per_second());
            Rate::new(one.max(other))
        };
        Rates {
            requests: looser(self.requests, other.requests),
            bytes: looser(self.bytes, other.bytes),
        }
    }

    /// The same: requests, bytes.
    pub fn per_second(self) -> (u64, u64) {
        let per_second = |rate: Option<Rate>| rate.map_or(0, Rate::per_second);
        (per_second(self.requests), per_second(self.bytes))
    }
}

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// `--client-rate`
    Requests,
    /// `--client-bytes`
    Bytes,
}

/// By what a connection is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitOf {
    /// Its client's address.
    Address,
    /// The listener that it came by.
    Listener,
}

impl LimitOf {
    /// Both, as arrays of a connection have them.
    pub const ALL: [LimitOf; 2] = [LimitOf::Address, LimitOf::Listener];
}

/// What the clients of one address, or of one listener, have left.
#[derive(Debug)]
pub struct Bucket {
    /// Its number, by which workers know it.
    pub number: u64,
    /// The limits of a listener's; those of addresses are one and the same, and change.
    own: Option<Rates>,
    /// When it would be full again, of requests and of bytes; 0: it is. A number that workers add
    /// to, and that orders nothing.
    requests_full_nanos: AtomicU64,
    bytes_full_nanos: AtomicU64,
    /// Lines that wait for it, of all workers.
    lines: AtomicU64,
}

/// What a connection may do in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Requests that it may begin.
    pub requests: u64,
    /// Bytes that a slice of its large transfer may move.
    pub bytes: u64,
}

impl Allowance {
    /// Whether it may have a turn.
    pub fn is_any(self) -> bool {
        self.requests > 0 && self.bytes > 0
    }

    /// The same, or else one request, and as short a slice as there is.
    pub fn at_least_one(self, rates: Rates) -> Allowance {
        let slice = rates.bytes.map_or(u64::MAX, |rate| rate.slice_bytes(1));
        Allowance { requests: self.requests.max(1), bytes: self.bytes.max(slice) }
    }
}

/// A lane's part of the burst.
fn burst_nanos(lane: Lane) -> u64 {
    match lane {
        Lane::Small => BURST_NANOS,
        Lane::Large => BURST_LARGE_NANOS,
    }
}

impl Bucket {
    /// A full one of an address.
    pub fn new(number: u64) -> Bucket {
        let [requests_full_nanos, bytes_full_nanos, lines] = [0; 3].map(AtomicU64::new);
        Bucket { number, own: None, requests_full_nanos, bytes_full_nanos, lines }
    }

    /// A full one of a listener with these limits.
    fn of_listener(number: u64, rates: Rates) -> Bucket {
        Bucket { own: Some(rates), ..Bucket::new(number) }
    }

    /// So many requests and bytes were asked for.
    pub fn charge(&self, rates: Rates, (requests, bytes): (u64, u64), now_nanos: u64) {
        let charge = |full: &AtomicU64, rate: Option<Rate>, units: u64| {
            if let Some(rate) = rate.filter(|_| units > 0) {
                let take = |full| Some(rate.take(full, units, now_nanos));
                // It never fails: there is always something to put there.
                let _ = full.fetch_update(Relaxed, Relaxed, take);
            }
        };
        charge(&self.requests_full_nanos, rates.requests, requests);
        charge(&self.bytes_full_nanos, rates.bytes, bytes);
    }

    /// What one of its connections may do now. A slice of the large lane is part of a request that
    /// has begun: it is limited by bytes alone.
    pub fn allowance(&self, rates: Rates, lane: Lane, now_nanos: u64) -> Allowance {
        let allowed = |full: &AtomicU64, rate: Option<Rate>| {
            let allowed =
                |rate: Rate| rate.allowed(full.load(Relaxed), burst_nanos(lane), now_nanos);
            rate.map_or(u64::MAX, allowed)
        };
        Allowance {
            requests: match lane {
                Lane::Small => allowed(&self.requests_full_nanos, rates.requests),
                Lane::Large => u64::MAX,
            },
            bytes: match (lane, rates.bytes) {
                (Lane::Large, Some(rate)) => {
                    rate.slice_bytes(allowed(&self.bytes_full_nanos, rates.bytes))
                }
                _ => allowed(&self.bytes_full_nanos, rates.bytes),
            },
        }
    }

    /// From when on one of its connections may have a turn, if nothing else is charged meanwhile.
    pub fn ready_nanos(&self, rates: Rates, lane: Lane) -> u64 {
        let ready = |full: &AtomicU64, rate: Option<Rate>| {
            rate.map_or(0, |_| ready_nanos(full.load(Relaxed), burst_nanos(lane)))
        };
        let bytes = ready(&self.bytes_full_nanos, rates.bytes);
        match lane {
            Lane::Small => bytes.max(ready(&self.requests_full_nanos, rates.requests)),
            Lane::Large => bytes,
        }
    }

    /// One line more waits for it.
    pub fn has_line(&self) {
        self.lines.fetch_add(1, Relaxed);
    }

    /// One line less does.
    pub fn has_lost_line(&self) {
        self.lines.fetch_sub(1, Relaxed);
    }

    /// Lines that wait for it now.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
    }

    fn full_nanos(&self) -> u64 {
        self.requests_full_nanos.load(Relaxed).max(self.bytes_full_nanos.load(Relaxed))
    }

    fn fill(&self) {
        self.requests_full_nanos.store(0, Relaxed);
        self.bytes_full_nanos.store(0, Relaxed);
    }
}

/// The limits in force, and everybody's buckets.
#[derive(Debug, Default)]
pub struct ClientLimits {
    /// There is a limit.
    on: AtomicBool,
    /// There is one of a listener.
    of_listeners: AtomicBool,
    /// A second, of each address; 0 for any number.
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Counts changes. Who waits by older limits looks again.
    edition: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    buckets: BTreeMap<String, Arc<Bucket>>,
    /// Up to where it was looked for buckets to forget.
    looked: String,
    given: u64,
}

impl ClientLimits {
    /// Whether there is a limit.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// The limits of an address that are in force.
    pub fn rates(&self) -> Rates {
        Rates::new(self.requests.load(Relaxed), self.bytes.load(Relaxed))
    }

    /// The limits in force of whomever a bucket is of.
    pub fn rates_of(&self, bucket: &Bucket) -> Rates {
        bucket.own.unwrap_or_else(|| self.rates())
    }

    /// A bucket for all clients of a listener with these limits; none where they limit nothing.
    pub fn listener(&self, rates: Rates) -> Option<Arc<Bucket>> {
        if !rates.is_any() {
            return None;
        }
        let mut book = self.book();
        book.given += 1;
        self.of_listeners.store(true, Relaxed);
        self.on.store(true, Relaxed);
        Some(Arc::new(Bucket::of_listener(book.given, rates)))
    }

    /// How often they have changed.
    pub fn edition(&self) -> u64 {
        self.edition.load(Relaxed)
    }

    /// These are in force from now on; what was owed is forgotten.
    pub fn set(&self, rates: Rates) {
        self.change(|now| *now = rates);
    }

    /// One of them is so many a second from now on; 0 for any number.
    pub fn set_one(&self, limited: Limited, per_second: u64) {
        self.change(|now| match limited {
            Limited::Requests => now.requests = Rate::new(per_second),
            Limited::Bytes => now.bytes = Rate::new(per_second),
        });
    }

    fn change(&self, change: impl FnOnce(&mut Rates)) {
        let book = self.book();
        let mut rates = self.rates();
        change(&mut rates);
        let (requests, bytes) = rates.per_second();
        self.requests.store(requests, Relaxed);
        self.bytes.store(bytes, Relaxed);
        book.buckets.values().for_each(|bucket| bucket.fill());
        self.on.store(rates.is_any() || self.of_listeners.load(Relaxed), Relaxed);
        self.edition.fetch_add(1, Relaxed);
    }

    /// The bucket of this peer's address; none where it has no address.
    pub fn bucket(&self, peer: &str, now_nanos: u64) -> Option<Arc<Bucket>> {
        if is_local(peer) {
            return None;
        }
        let address = address_of(peer);
        let mut book = self.book();
        if let Some(bucket) = book.buckets.get(&*address) {
            return Some(bucket.clone());
        }
        book.forget(now_nanos);
        book.given += 1;
        let bucket = Arc::new(Bucket::new(book.given));
        book.buckets.insert(address.into_owned(), bucket.clone());
        Some(bucket)
    }

    /// Addresses that have a bucket now.
    pub fn buckets(&self) -> usize {
        self.book().buckets.len()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Forget some of those that nobody needs.
    fn forget(&mut self, now_nanos: u64) {
        let is_crowded = self.buckets.len() >= BUCKETS_KEPT;
        let from = (Bound::Excluded(std::mem::take(&mut self.looked)), Bound::Unbounded);
        let next = self.buckets.range(from).take(LOOKED_AT);
        let mut looked_at: Vec<String> = Vec::new();
        let mut goes: Vec<String> = Vec::new();
        for (address, bucket) in next {
            looked_at.push(address.clone());
            // Connections have the others; the lock is held, so none is being given away.
            let is_left = Arc::strong_count(bucket) == 1;
            if is_left && (is_crowded || bucket.full_nanos() <= now_nanos) {
                goes.push(address.clone());
            }
        }
        if looked_at.len() == LOOKED_AT {
            self.looked = looked_at.pop().unwrap_or_default();
        }
        for address in goes {
            self.buckets.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn an_address_has_one_bucket_and_a_unix_socket_none() {
        let limits = ClientLimits::default();
        let number = |peer: &str| limits.bucket(peer, 0).map(|bucket| bucket.number);
        assert_eq!(number("tcp:10.0.0.1:5000"), number("tcp:10.0.0.1:5001"));
        assert_ne!(number("tcp:10.0.0.1:5000"), number("tcp:10.0.0.2:5000"));
        assert_eq!(number("tcp6:[2001:db8::1]:5000"), number("tcp6:[2001:db8::2]:5000"));
        assert_ne!(number("tcp6:[2001:db8::1]:5000"), number("tcp6:[2001:db8:0:1::1]:5000"));
        assert_eq!(number("tcp6:[::ffff:10.0.0.2]:1"), number("tcp:10.0.0.2:5000"));
        assert_eq!((number("unix"), number("unix:/run/x")), (None, None));
    }

    #[test]
    fn a_listener_has_a_bucket_and_limits_of_its_own() {
        let limits = ClientLimits::default();
        assert!(limits.listener(Rates::default()).is_none() && !limits.is_on());
        let listener = limits.listener(Rates::new(10, 0)).expect("it is limited");
        let other = limits.listener(Rates::new(10, 0)).expect("it is limited");
        let address = limits.bucket("tcp:10.0.0.1:1", 0).expect("it has an address");
        let numbers = [&listener, &other, &address].map(|bucket| bucket.number);
        assert!(numbers[0] != numbers[1] && numbers[0] != numbers[2] && numbers[1] != numbers[2]);
        listener.charge(limits.rates_of(&listener), (20, 0), 0);
        limits.set(Rates::new(1000, 0));
        limits.set(Rates::default());
        assert!(limits.is_on(), "an address without a limit leaves those of listeners");
        let left = |bucket: &Bucket| {
            bucket.allowance(limits.rates_of(bucket), Lane::Small, SECOND).is_any()
        };
        assert_eq!([&listener, &other, &address].map(|bucket| left(bucket)), [false, true, true]);
    }

    #[test]
    fn of_two_limits_the_looser_one_is_the_higher_or_none() {
        let looser = Rates::new(10, 500).looser(Rates::new(20, 400));
        assert_eq!(looser, Rates::new(20, 500));
        assert_eq!(looser.looser(Rates::new(0, 600)), Rates::new(0, 600));
    }

    #[test]
    fn who_connects_anew_finds_what_he_left_and_a_full_bucket_is_forgotten() {
        let limits = ClientLimits::default();
        limits.set(Rates::new(10, 0));
        let first = limits.bucket("tcp:10.0.0.1:1", 0).expect("it has an address");
        first.charge(limits.rates(), (20, 0), 0);
        drop(first);
        let again = limits.bucket("tcp:10.0.0.1:2", SECOND).expect("it has an address");
        assert!(!again.allowance(limits.rates(), Lane::Small, SECOND).is_any());
        drop(again);
        for other in 0..100 {
            limits.bucket(&format!("tcp:10.0.1.{other}:1"), SECOND);
        }
        let address = |limits: &ClientLimits, name: &str| limits.book().buckets.contains_key(name);
        assert!(address(&limits, "tcp:10.0.0.1"), "it owes until two seconds");
        for other in 0..100 {
            limits.bucket(&format!("tcp:10.0.2.{other}:1"), 3 * SECOND);
        }
        assert!(!address(&limits, "tcp:10.0.0.1"), "it owes nothing any more");
    }

    #[test]
    fn there_are_so_many_buckets_at_most_beside_those_of_open_connections() {
        let limits = ClientLimits::default();
        limits.set(Rates::new(1, 0));
        let peer = |number: usize| {
            let [_, _, high, low] = (number as u32).to_be_bytes();
            format!("tcp:10.0.{high}.{low}:1")
        };
        let open: Vec<_> = (0..100).map(|number| limits.bucket(&peer(number), 0)).collect();
        for number in 100..3 * BUCKETS_KEPT {
            let bucket = limits.bucket(&peer(number), 0).expect("it has an address");
            bucket.charge(limits.rates(), (1_000_000, 0), 0); // for days
        }
        assert!(limits.buckets() <= BUCKETS_KEPT + open.len(), "{}", limits.buckets());
        for (number, bucket) in open.iter().enumerate() {
            let again = limits.bucket(&peer(number), 0);
            let same = |(one, other): (&Arc<Bucket>, &Arc<Bucket>)| Arc::ptr_eq(one, other);
            assert!(bucket.as_ref().zip(again.as_ref()).is_some_and(same), "{number}");
        }
    }

    #[test]
    fn a_change_begins_with_full_buckets() {
        let limits = ClientLimits::default();
        assert!(!limits.is_on());
        limits.set(Rates::new(1, 1000));
        let bucket = limits.bucket("tcp:10.0.0.1:1", 0).expect("it has an address");
        bucket.charge(limits.rates(), (50, 10_000), 0);
        assert_eq!(bucket.ready_nanos(limits.rates(), Lane::Small), 50 * SECOND - BURST_NANOS);
        let large = bucket.ready_nanos(limits.rates(), Lane::Large);
        assert_eq!(large, 10 * SECOND - BURST_LARGE_NANOS, "by its bytes alone");
        limits.set_one(Limited::Requests, 2);
        assert_eq!(limits.rates(), Rates::new(2, 1000));
        assert!(bucket.allowance(limits.rates(), Lane::Small, 0).is_any());
        limits.set(Rates::default());
        assert!(!limits.is_on() && limits.edition() == 3);
        assert_eq!(bucket.allowance(limits.rates(), Lane::Small, 0).requests, u64::MAX);
    }
}
