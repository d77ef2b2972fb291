//! The server's end: requests out of slots, into a store, replies back. One of it serves all
//! queues; where clients READ, GETs never come here.

use super::cuckoo::{Cuckoo, Full};
use super::design::Design;
use super::hopscotch::Hopscotch;
use super::message::{KEY_BYTES_MAX, Reply, Request, VALUE_BYTES_MAX};
use super::opened::Opened;
use super::record::{Shape, Slots};
use super::tally::Tally;
use laneway_rdma::contract::{Peer, Posted, Responder};
use std::collections::HashMap;
use std::io::{self, IoSlice};

/// Requests taken of a queue at a time.
const BURST: usize = 32;

/// How large a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Buckets or slots of the index. No index of our own needs to be told.
    pub places: usize,
    /// Longest key.
    pub key_bytes_max: usize,
    /// Longest value.
    pub value_bytes_max: usize,
    /// Memory for what the index points at.
    pub extent_bytes: usize,
}

/// Of how many places one is free where Pilaf's index is as full as it should be, 75 % (HERD
/// §5.1.1).
const BUCKETS_FREE: usize = 4;
/// Slots for an item of FaRM-KV's index, so that neighbourhoods of six hardly ever overflow.
const SLOTS_PER_ITEM: usize = 4;
/// Extents beside those of the items, for what is written before the old is given back.
const EXTENTS_SPARE: usize = 64;

impl Sizes {
    /// Large enough for so many items, all of which may have the longest key and value.
    pub fn of(design: Design, items: usize, key_bytes_max: usize, value_bytes_max: usize) -> Sizes {
        let places = match design {
            Design::Herd | Design::Send => 0,
            Design::Pilaf => (items * BUCKETS_FREE).div_ceil(BUCKETS_FREE - 1),
            Design::Farm | Design::FarmVar => items * SLOTS_PER_ITEM,
        };
        let extent = match design {
            Design::Herd | Design::Send | Design::Farm => 0,
            Design::Pilaf => (key_bytes_max + value_bytes_max).next_multiple_of(8),
            Design::FarmVar => value_bytes_max.next_multiple_of(8),
        };
        let extent_bytes = (items + EXTENTS_SPARE) * extent;
        Sizes { places, key_bytes_max, value_bytes_max, extent_bytes }
    }
}

#[derive(Debug)]
enum Items {
    /// Nobody else looks into it.
    Own(HashMap<Box<[u8]>, Vec<u8>>),
    Cuckoo(Cuckoo),
    Hopscotch(Hopscotch),
}

/// What a server keeps.
#[derive(Debug)]
pub struct Store {
    sizes: Sizes,
    items: Items,
}

impl Store {
    /// Nothing yet.
    pub fn new(design: Design, sizes: Sizes) -> io::Result<Store> {
        let Sizes { places, key_bytes_max, value_bytes_max, extent_bytes } = sizes;
        let is_possible = key_bytes_max <= KEY_BYTES_MAX && value_bytes_max <= VALUE_BYTES_MAX;
        if !is_possible {
            let what = format!(
                "keys of {key_bytes_max} and values of {value_bytes_max} bytes: at most \
                 {KEY_BYTES_MAX} and {VALUE_BYTES_MAX} are possible"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let slots = |value_bytes_max| Slots { homes: places, key_bytes_max, value_bytes_max };
        let items = match design {
            Design::Herd | Design::Send => Items::Own(HashMap::new()),
            Design::Pilaf => Items::Cuckoo(Cuckoo::new(places, extent_bytes)?),
            Design::Farm => Items::Hopscotch(Hopscotch::new(slots(Some(value_bytes_max)), 0)?),
            Design::FarmVar => Items::Hopscotch(Hopscotch::new(slots(None), extent_bytes)?),
        };
        Ok(Store { sizes, items })
    }

    /// What its clients must know to READ it, if they do.
    pub fn shape(&self) -> Option<Shape> {
        match &self.items {
            Items::Own(_) => None,
            Items::Cuckoo(index) => Some(index.shape()),
            Items::Hopscotch(index) => Some(index.shape()),
        }
    }

    /// What they READ.
    pub fn memory(&mut self) -> Option<&mut Opened> {
        match &mut self.items {
            Items::Own(_) => None,
            Items::Cuckoo(index) => Some(index.memory()),
            Items::Hopscotch(index) => Some(index.memory()),
        }
    }

    /// How many items it has.
    pub fn items(&self) -> usize {
        match &self.items {
            Items::Own(items) => items.len(),
            Items::Cuckoo(index) => index.items(),
            Items::Hopscotch(index) => index.items(),
        }
    }

    fn is_too_long(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() > self.sizes.key_bytes_max || value.len() > self.sizes.value_bytes_max
    }

    /// Give a key a value, no longer than they may be.
    ///
    /// # Panics
    /// If one is.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        assert!(!self.is_too_long(key, value), "a longer item than the store was made for");
        match &mut self.items {
            Items::Own(items) => {
                match items.get_mut(key) {
                    Some(old) => value.clone_into(old),
                    None => drop(items.insert(key.into(), value.to_vec())),
                }
                Ok(())
            }
            Items::Cuckoo(index) => index.put(key, value),
            Items::Hopscotch(index) => index.put(key, value),
        }
    }

    fn answer(&mut self, request: Option<Request<'_>>) -> Reply<'_> {
        match request {
            Some(Request::Put { key, value }) => match self.is_too_long(key, value) {
                true => Reply::TooLong,
                false => match self.put(key, value) {
                    Ok(()) => Reply::Done,
                    Err(_) => Reply::Full,
                },
            },
            Some(Request::Get { key }) => match &self.items {
                Items::Own(items) => {
                    items.get(key).map_or(Reply::Missing, |value| Reply::Found(value))
                }
                // Their clients look for themselves.
                Items::Cuckoo(_) | Items::Hopscotch(_) => Reply::Malformed,
            },
            None => Reply::Malformed,
        }
    }
}

/// What a server has met with beside requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Met {
    /// Messages too short to be answered.
    pub unintelligible: u64,
    /// Replies whose client takes none, or is gone.
    pub unheard: u64,
}

/// The server's end.
pub struct Server<R> {
    design: Design,
    responder: R,
    store: Store,
    tally: Tally,
    met: Met,
    replies: Vec<(Peer, Vec<u8>)>,
}

impl<R: Responder> Server<R> {
    /// Serve what `store` holds as `design` does, which it was made for.
    pub fn new(design: Design, responder: R, store: Store) -> Server<R> {
        assert_eq!(store.shape().is_some(), design.reads(), "the store of another design");
        let (tally, met) = (Tally::default(), Met::default());
        Server { design, responder, store, tally, met, replies: Vec::new() }
    }

    /// What it holds.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// What its card was asked.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// What else it met.
    pub fn met(&self) -> Met {
        self.met
    }

    /// Take a burst of requests of each queue, and answer them. Returns how many there were.
    pub fn turn(&mut self) -> io::Result<usize> {
        let mut count = 0;
        for queue in 0..self.responder.queues() {
            count += self.serve(queue);
        }
        self.responder.tidy();
        self.responder.pump()?;
        Ok(count)
    }

    fn serve(&mut self, queue: usize) -> usize {
        let count = self.responder.poll_slots(queue, BURST);
        let mut written = 0;
        for index in 0..count {
            let request = self.responder.request(index);
            // Where messages are sent, the place of this one is made free for another.
            self.tally.awaited(self.design.request());
            let Some((id, asked)) = Request::parse(request.bytes) else {
                self.met.unintelligible += 1;
                continue;
            };
            if self.replies.len() == written {
                self.replies.push((request.peer, Vec::new()));
            }
            let (peer, reply) = &mut self.replies[written];
            *peer = request.peer;
            reply.clear();
            self.store.answer(asked).write(id, reply);
            written += 1;
        }
        for (peer, reply) in &self.replies[..written] {
            match self.responder.reply(*peer, queue, &[IoSlice::new(reply)], 0) {
                Posted::Done => self.tally.sent(self.design.reply(), reply.len()),
                Posted::Full | Posted::Gone => self.met.unheard += 1,
            }
        }
        count
    }
}
