//! A client's look-up by READs alone: it decides what to READ next by what the last READ brought.
//! One READ is under way at a time, since each says where the next goes; so each is a round trip.
//!
//! Whatever is READ may have been written meanwhile. A checksum that is wrong begins the lookup
//! anew, after a pause that doubles; [`TRIES_MAX`] times, then it has failed. So has one whose
//! pointer leads out of the memory as often. A key is missing when all its places were seen twice
//! with the same versions: then nothing moved between them. (Pilaf and FaRM-KV look once; a key
//! that moves, from a place not yet looked at to one that was, would be missing to them.)
//!
//! Pauses are turns of the caller; knows no clock.

use super::record::{self, BUCKET_BYTES, Bucket, NEIGHBOURHOOD, PLACES, Seen, Shape, Slots, Value};
use std::fmt;
use std::mem;

/// Times that a lookup begins.
pub const TRIES_MAX: u32 = 64;
/// Longest pause: 2 to the power of this.
const PAUSE_TURNS_LOG_MAX: u32 = 10;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// What was READ was never whole.
    Torn {
        /// How often it was tried.
        tries: u32,
    },
    /// What should be READ is not in the memory.
    Beyond {
        /// Where it should be.
        address: u64,
        /// How long.
        bytes: usize,
    },
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Torn { tries } => {
                write!(f, "{tries} times its checksum was wrong, or it changed while it was read")
            }
            Lost::Beyond { address, bytes } => {
                write!(f, "the index points at {bytes} bytes from {address}: not all in the memory")
            }
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// READ this, and say what came.
    Read {
        /// From where.
        address: u64,
        /// How much.
        bytes: usize,
    },
    /// [`Lookup::begin`] after so many turns.
    Pause {
        /// How many.
        turns: u32,
    },
    /// It is over: the value.
    Found(Vec<u8>),
    /// It is over: there is no such key.
    Missing,
    /// It is over: nobody knows.
    Failed(Lost),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Bucket { place: usize },
    Extent { place: usize, bucket: Bucket },
    Slots,
    Far { checksum: u64, address: u64, bytes: usize },
}

/// One lookup.
#[derive(Debug)]
pub struct Lookup {
    shape: Shape,
    key: Vec<u8>,
    /// Checksums are not looked at: what the checks are for is seen by leaving them out.
    trust: bool,
    step: Step,
    tries: u32,
    /// What all places held in this look, and in the last one that came to an end.
    seen: Vec<u8>,
    seen_before: Option<Vec<u8>>,
}

impl Lookup {
    /// Of `key`; [`Lookup::begin`] it.
    pub fn new(shape: Shape, key: &[u8], trust: bool) -> Lookup {
        Lookup {
            shape,
            key: key.to_vec(),
            trust,
            step: Step::Slots,
            tries: 0,
            seen: Vec::new(),
            seen_before: None,
        }
    }

    /// How often it began anew because what came was torn.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// The first READ, or after a pause the first again.
    pub fn begin(&mut self) -> Next {
        self.seen.clear();
        match self.shape {
            Shape::Cuckoo { buckets } => self.look_at(0, buckets),
            Shape::Hopscotch(slots) => {
                self.step = Step::Slots;
                let address = record::home(&self.key, slots.homes) * slots.slot_bytes();
                Next::Read { address: address as u64, bytes: NEIGHBOURHOOD * slots.slot_bytes() }
            }
        }
    }

    /// What the READ asked for last brought; `None` if the card refused it.
    pub fn take(&mut self, read: Option<&[u8]>) -> Next {
        match (self.step, self.shape) {
            (Step::Bucket { place }, Shape::Cuckoo { buckets }) => {
                self.take_bucket(place, buckets, read)
            }
            (Step::Extent { place, bucket }, Shape::Cuckoo { buckets }) => {
                let Some(bytes) = read else {
                    return self.again(beyond(bucket.address(), bucket.extent_bytes()));
                };
                if !self.trust && record::checksum(&[bytes]) != bucket.extent_checksum {
                    return self.again(None);
                }
                match bytes.strip_prefix(&self.key[..]) {
                    Some(value) => Next::Found(value.to_vec()),
                    None => self.look_behind(place, buckets), // another key of this tag
                }
            }
            (Step::Slots, Shape::Hopscotch(slots)) => self.take_slots(&slots, read),
            (Step::Far { checksum, address, bytes }, Shape::Hopscotch(_)) => match read {
                None => self.again(beyond(address, bytes)),
                Some(value) if self.trust || record::checksum(&[value]) == checksum => {
                    Next::Found(value.to_vec())
                }
                Some(_) => self.again(None),
            },
            (Step::Slots | Step::Far { .. }, Shape::Cuckoo { .. })
            | (Step::Bucket { .. } | Step::Extent { .. }, Shape::Hopscotch(_)) => {
                unreachable!("steps are those of the shape, once it has begun")
            }
        }
    }

    fn look_at(&mut self, place: usize, buckets: usize) -> Next {
        self.step = Step::Bucket { place };
        let bucket = record::place(&self.key, place, buckets);
        Next::Read { address: (bucket * BUCKET_BYTES) as u64, bytes: BUCKET_BYTES }
    }

    /// The next place that is not one of those before it.
    fn look_behind(&mut self, place: usize, buckets: usize) -> Next {
        let bucket = |place| record::place(&self.key, place, buckets);
        let is_new = |next: &usize| (0..*next).all(|earlier| bucket(earlier) != bucket(*next));
        match (place + 1..PLACES).find(is_new) {
            Some(next) => self.look_at(next, buckets),
            None => self.nowhere(),
        }
    }

    fn take_bucket(&mut self, place: usize, buckets: usize, read: Option<&[u8]>) -> Next {
        let Some(bytes) = read.and_then(|bytes| <&[u8; BUCKET_BYTES]>::try_from(bytes).ok()) else {
            let bucket = record::place(&self.key, place, buckets);
            return self.again(beyond((bucket * BUCKET_BYTES) as u64, BUCKET_BYTES));
        };
        self.seen.extend_from_slice(bytes);
        match Bucket::parse(bytes, self.trust) {
            Seen::Torn => self.again(None),
            Seen::Whole(bucket)
                if bucket.tag == record::tag(&self.key) && bucket.key_bytes == self.key.len() =>
            {
                self.step = Step::Extent { place, bucket };
                Next::Read { address: bucket.address(), bytes: bucket.extent_bytes() }
            }
            Seen::Whole(_) | Seen::Empty => self.look_behind(place, buckets),
        }
    }

    fn take_slots(&mut self, slots: &Slots, read: Option<&[u8]>) -> Next {
        let whole = NEIGHBOURHOOD * slots.slot_bytes();
        let Some(bytes) = read.filter(|bytes| bytes.len() == whole) else {
            let address = record::home(&self.key, slots.homes) * slots.slot_bytes();
            return self.again(beyond(address as u64, whole));
        };
        let mut is_torn = false;
        for slot in bytes.chunks_exact(slots.slot_bytes()) {
            match slots.parse(slot, self.trust) {
                Seen::Torn => is_torn = true,
                Seen::Whole(slot) if slot.key == self.key => match slot.value {
                    Value::Here(value) => return Next::Found(value.to_vec()),
                    Value::There { unit, bytes, checksum } => {
                        let address = u64::from(unit) * record::UNIT_BYTES as u64;
                        self.step = Step::Far { checksum, address, bytes };
                        return Next::Read { address, bytes };
                    }
                },
                Seen::Whole(_) | Seen::Empty => {}
            }
        }
        if is_torn {
            return self.again(None); // it may be the one that is torn
        }
        self.seen.extend_from_slice(bytes);
        self.nowhere()
    }

    /// All places were seen, and the key in none.
    fn nowhere(&mut self) -> Next {
        let seen = mem::take(&mut self.seen);
        if self.seen_before.as_ref() == Some(&seen) {
            return Next::Missing;
        }
        match self.seen_before.replace(seen) {
            None => self.begin(),
            Some(_) => self.again(None), // something changed
        }
    }

    fn again(&mut self, beyond: Option<Lost>) -> Next {
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            return Next::Failed(beyond.unwrap_or(Lost::Torn { tries: self.tries }));
        }
        Next::Pause { turns: 1 << (self.tries - 1).min(PAUSE_TURNS_LOG_MAX) }
    }
}

fn beyond(address: u64, bytes: usize) -> Option<Lost> {
    Some(Lost::Beyond { address, bytes })
}
