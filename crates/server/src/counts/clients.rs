//! Counts requests and bytes by client address, so that an operator finds a noisy neighbour.
//!
//! There are [`PLACES`] of them. An address is given one when its first connection comes; when all
//! are given, that of the address which left longest ago is given anew, and while none has left,
//! further addresses share place 0, "others". Each worker counts by place in cells of its own; who
//! reads sums the workers and leaves out what the place had before. The lock is taken when a
//! connection opens or closes, and never by who reads: names are posted.
//!
//! It knows no protocol. Clients of streams only: a datagram's source proves nothing.

use crate::access::client_limits::ClientLimits;
use crate::counts::counters::Counter;
use laneway_sync::notice::Notice;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Clients told apart, the others among them.
pub const PLACES: usize = 256;
/// Of an address, so many bytes are told.
const NAME_BYTES_MAX: usize = 64;
const NAME_WORDS: usize = NAME_BYTES_MAX / 8;
/// Sums that are kept of a place.
const SUMS: usize = 6;
/// How place 0 is told.
const OTHERS: &str = "others";

macro_rules! client_counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one worker counted for the clients of one place: a cache line.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub struct ClientCounts {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// What was counted.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct ClientSums {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl ClientSums {
            /// Add what a worker counted.
            pub fn add(&mut self, counts: &ClientCounts) {
                $(self.$name += counts.$name.get();)*
            }

            fn words(self) -> [u64; SUMS] {
                [$(self.$name),*]
            }

            fn since(self, words: &[u64]) -> ClientSums {
                let mut before = words.iter().copied();
                ClientSums { $($name: self.$name.saturating_sub(before.next().unwrap_or(0)),)* }
            }
        }
    };
}

client_counts! {
    /// Requests; each key of a `get` is one.
    requests,
    /// Of these, those of the large lane.
    requests_large,
    /// Bytes received.
    bytes_in,
    /// Bytes sent.
    bytes_out,
    /// Times that a connection waited because its client was over its limit.
    holds,
    /// How long, in all.
    held_nanos,
}

impl ClientCounts {
    /// Count what was moved, and begin anew. Only the worker that owns the counts calls this.
    #[inline]
    pub fn add_owner(&self, moved: &mut ClientSums) {
        self.requests.add_owner(moved.requests);
        if moved.requests_large > 0 {
            self.requests_large.add_owner(moved.requests_large);
        }
        self.bytes_in.add_owner(moved.bytes_in);
        self.bytes_out.add_owner(moved.bytes_out);
        *moved = ClientSums::default();
    }

    /// Count a wait for so long of a client over its limit. Only the worker that owns the counts
    /// calls this.
    pub fn held_owner(&self, nanos: u64) {
        self.holds.bump_owner();
        self.held_nanos.add_owner(nanos);
    }
}

/// One client, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientWatch {
    /// Its address, without the port.
    pub address: String,
    /// Connections that it has open now.
    pub connections: u64,
    /// Connections that it ever opened.
    pub opened: u64,
    /// What it asked for.
    pub sums: ClientSums,
}

/// The places.
pub struct Clients {
    /// What they may ask for.
    pub limits: ClientLimits,
    book: Mutex<Book>,
    shown: Vec<Shown>,
}

/// What is told of a place without the lock.
struct Shown {
    /// The address, zeros behind it, and what the place's counts were when it was given.
    name: Notice,
    open: AtomicU32,
    opened: AtomicU64,
}

#[derive(Default)]
struct Book {
    places: BTreeMap<String, u16>,
    /// When the last connection of a place closed, in moments; 0 while one is open.
    left: Vec<u64>,
    moment: u64,
}

impl Default for Clients {
    fn default() -> Self {
        let shown = || Shown {
            name: Notice::new(NAME_WORDS + SUMS),
            open: AtomicU32::new(0),
            opened: AtomicU64::new(0),
        };
        let book = Book { left: vec![0], ..Book::default() };
        let shown = (0..PLACES).map(|_| shown()).collect();
        Clients { limits: ClientLimits::default(), book: Mutex::new(book), shown }
    }
}

impl Clients {
    /// A connection of this peer has come; returns its place. `sums`: what was counted there so
    /// far.
    pub fn enter(&self, peer: &str, sums: impl FnOnce(u16) -> ClientSums) -> u16 {
        let address = address_of(peer);
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let known = book.places.get(address).copied();
        let place = known.unwrap_or_else(|| self.give(&mut book, address, sums));
        book.left[usize::from(place)] = 0;
        let shown = &self.shown[usize::from(place)];
        // Statistics, written under the lock.
        shown.open.fetch_add(1, Relaxed);
        shown.opened.fetch_add(1, Relaxed);
        place
    }

    fn give(&self, book: &mut Book, address: &str, sums: impl FnOnce(u16) -> ClientSums) -> u16 {
        let place = if book.left.len() < PLACES {
            book.left.push(0);
            book.left.len() - 1
        } else {
            let gone = book.left.iter().enumerate().skip(1).filter(|(_, left)| **left > 0);
            match gone.min_by_key(|(_, left)| **left) {
                Some((place, _)) => place,
                None => return 0,
            }
        };
        let number = place as u16;
        book.places.retain(|_, other| *other != number);
        book.places.insert(address.to_owned(), number);
        let mut words = name_words(address).to_vec();
        words.extend(sums(number).words());
        self.shown[place].opened.store(0, Relaxed);
        self.shown[place].name.post(&words);
        number
    }

    /// A connection of the client of this place has closed.
    pub fn leave(&self, client: u16) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.moment += 1;
        if self.shown[usize::from(client)].open.fetch_sub(1, Relaxed) == 1 {
            book.left[usize::from(client)] = book.moment;
        }
    }

    /// Everybody whose place was ever given, by what was counted there.
    pub fn read(&self, sums: impl Fn(u16) -> ClientSums) -> Vec<ClientWatch> {
        let mut words = Vec::new();
        let mut all = Vec::new();
        for (place, shown) in self.shown.iter().enumerate() {
            let opened = shown.opened.load(Relaxed);
            let is_there = match place {
                0 => opened > 0,
                _ => shown.name.read(0, &mut words).is_some(), // or is just given: not told
            };
            if is_there {
                let (name, before) = words.split_at(words.len().min(NAME_WORDS));
                all.push(ClientWatch {
                    address: if place == 0 { OTHERS.to_owned() } else { name_of(name) },
                    connections: shown.open.load(Relaxed).into(),
                    opened,
                    sums: sums(place as u16).since(if place == 0 { &[] } else { before }),
                });
            }
        }
        all
    }
}

/// Of a peer in memcached's notation (`tcp:10.0.0.1:5000`, `tcp6:[::1]:5000`, `unix:PATH`) what all
/// its connections have in common.
fn address_of(peer: &str) -> &str {
    let Some(host) = peer.strip_prefix("tcp:").or_else(|| peer.strip_prefix("tcp6:")) else {
        return peer;
    };
    host.rsplit_once(':').map_or(host, |(host, _)| host)
}

fn name_words(address: &str) -> [u64; NAME_WORDS] {
    let mut bytes = [0; NAME_BYTES_MAX];
    let len = address.floor_char_boundary(NAME_BYTES_MAX);
    bytes[..len].copy_from_slice(&address.as_bytes()[..len]);
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
    std::array::from_fn(word)
}

fn name_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&name).into_owned()
}

#[cfg(test)]
mod tests;
