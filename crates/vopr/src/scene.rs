//! What the clients of a run share, and what they draw from it: keys, values, requests.

use crate::books::Books;
use crate::encryption::Encryption;
use crate::meta::Style;
use crate::model::{Asked, Count, Fetch, New, Ttl};
use crate::swarm::Swarm;
use laneway_rig::{lines, value};
use laneway_tier::disk::sim::Random;

/// Operations that may be pending on a key before clients ask another.
pub const PENDING_MAX: usize = 6;
/// Of this many distinct lengths and contents are the values of a key, so that a value comes again.
const CONTENTS: u64 = 40;
/// A value that looks like commands: were it executed, others would notice.
pub const MALICE: &[u8] = b"flush_all\r\nset k0 0 0 1\r\nX\r\ndelete k1\r\n";

/// What the clients of a run share.
pub struct Scene<'a> {
    /// The run.
    pub swarm: &'a Swarm,
    /// Its draws.
    pub random: &'a mut Random,
    /// Its books.
    pub books: &'a mut Books,
    /// What those show to each other who encrypt, where any do.
    pub encryption: Option<&'a Encryption>,
    /// The server's unix millisecond.
    pub now_ms: u64,
    /// A miss needs no reason.
    pub may_miss: bool,
    /// A device may refuse, so that nobody knows what became of a write.
    pub may_doubt: bool,
    /// The server is stopping: it closes what is idle.
    pub may_close: bool,
}

impl Scene<'_> {
    /// A key that not too much is asked of.
    pub fn key(&mut self) -> Option<usize> {
        let most = self.swarm.keys as u64;
        (0..4)
            .map(|_| self.random.below(most) as usize)
            .find(|key| self.books.pending(*key) < PENDING_MAX)
    }

    pub(crate) fn part(&mut self, parts_of_256: u8) -> bool {
        self.random.below(256) < u64::from(parts_of_256)
    }

    pub(crate) fn ttl(&mut self) -> Ttl {
        let ends = self.swarm.ends;
        match self.part(ends) {
            true if self.random.one_in(12) => Ttl::Past,
            true => Ttl::Seconds(1 + self.random.below(4) as u32),
            false => Ttl::Never,
        }
    }

    /// A value to be stored: short, long, a number, or one that looks like commands.
    pub fn new_value(&mut self) -> u32 {
        let large = self.swarm.large;
        let bytes = if self.part(large) {
            let most = self.swarm.value_bytes_max as u64;
            let length = 2048 + self.random.below(most - 2047);
            // No draw is made where none was before there was compression.
            let is_text = self.swarm.compresses && self.random.one_in(2);
            let make = if is_text { lines } else { value };
            make(length as usize, self.random.below(CONTENTS))
        } else {
            match self.random.below(8) {
                0 | 1 => self.random.below(1000).to_string().into_bytes(),
                2 => Vec::new(),
                3 => MALICE.to_vec(),
                _ => value(self.random.below(1500) as usize, self.random.number()),
            }
        };
        self.books.values.id(&bytes)
    }

    pub(crate) fn new_item(&mut self) -> New {
        let (value, ttl) = (self.new_value(), self.ttl());
        // Half have none, as nearly all items out there: without an end, too, their records have
        // room for none.
        let flags = self.random.below(1 << 16) as u32;
        New { value, flags: if flags.is_multiple_of(2) { 0 } else { flags }, ttl }
    }

    pub(crate) fn asked(&mut self, id: Option<u64>) -> Asked {
        let reads = self.swarm.reads;
        if self.part(reads) {
            return match self.random.below(8) {
                0 if self.swarm.ends > 0 => Asked::GetTouch(self.ttl()),
                _ => Asked::Get,
            };
        }
        match self.random.below(16) {
            0..5 => Asked::Set(self.new_item()),
            5 => Asked::Add(self.new_item()),
            6 => Asked::Replace(self.new_item()),
            7 | 8 => match id {
                Some(id) => Asked::Cas(self.new_item(), id),
                None => Asked::Replace(self.new_item()),
            },
            9 => Asked::Append(self.short_value()),
            10 => Asked::Prepend(self.short_value()),
            11 | 12 => Asked::Delete,
            13 => Asked::Touch(self.ttl()),
            14 => Asked::Increase(1 + self.random.below(9)),
            _ => Asked::Decrease(1 + self.random.below(9)),
        }
    }

    /// What only RESP has, in place of something like it.
    pub(crate) fn resp_asked(&mut self, asked: Asked) -> Asked {
        let asked = match asked {
            Asked::Append(more) => Asked::Join(more),
            Asked::Prepend(more) => {
                let at = self.random.below(60) as u32;
                match self.books.values.bytes(more).is_empty() {
                    true => Asked::Join(more),
                    false => Asked::Over(at, more),
                }
            }
            Asked::Increase(by) => Asked::Sum(by as i64),
            Asked::Decrease(by) => Asked::Sum(-(by as i64)),
            Asked::Delete if self.random.one_in(3) => Asked::Take,
            Asked::Set(new) if self.random.one_in(4) => Asked::Swap(new),
            Asked::Get if self.swarm.ends > 0 && self.random.one_in(6) => Asked::Left,
            asked => asked,
        };
        match asked {
            Asked::GetTouch(ttl) => Asked::GetTouch(self.resp_ttl(ttl)),
            Asked::Touch(ttl) => Asked::Touch(self.resp_ttl(ttl)),
            Asked::Set(new) => Asked::Set(self.resp_item(new)),
            Asked::Add(new) => Asked::Add(self.resp_item(new)),
            Asked::Replace(new) => Asked::Replace(self.resp_item(new)),
            Asked::Swap(new) => Asked::Swap(self.resp_item(new)),
            asked => asked,
        }
    }

    /// The same item with an end as RESP has it.
    pub(crate) fn resp_item(&mut self, new: New) -> New {
        New { ttl: self.resp_ttl(new.ttl), ..new }
    }

    /// An end to the millisecond, mostly, in place of one to the second.
    fn resp_ttl(&mut self, ttl: Ttl) -> Ttl {
        let Ttl::Seconds(seconds) = ttl else { return ttl };
        let millis = 1 + self.random.below(1000 * u64::from(seconds));
        match self.random.below(8) {
            0 => Ttl::Millis(1000 * seconds),
            1 => Ttl::At((self.now_ms / 1000 + u64::from(seconds)) * 1000),
            2..5 => Ttl::At(self.now_ms + millis),
            _ => Ttl::Millis(millis as u32),
        }
    }

    /// What only the meta protocol has, in place of something like it.
    pub(crate) fn meta_asked(&mut self, asked: Asked) -> Asked {
        let random = &mut *self.random;
        let some_ttl = |random: &mut Random| match random.one_in(2) {
            true => Ttl::Seconds(1 + random.below(4) as u32),
            false => Ttl::Never,
        };
        match asked {
            Asked::Get if random.one_in(2) => {
                let vivify = random.one_in(4).then(|| some_ttl(random));
                let recache = random.one_in(4).then(|| 1 + random.below(4) as u32);
                Asked::Fetch(Fetch { vivify, recache, ..Fetch::default() })
            }
            Asked::Delete if random.one_in(2) => {
                let ttl = random.one_in(3).then(|| some_ttl(random));
                Asked::Invalidate(ttl)
            }
            Asked::Cas(new, id) if random.one_in(2) => {
                Asked::Older(new, id.saturating_sub(random.below(3)).max(1))
            }
            Asked::Increase(by) | Asked::Decrease(by) if random.one_in(2) => {
                let (ttl, initial) = (some_ttl(random), random.below(1000));
                let is_up = matches!(asked, Asked::Increase(_));
                Asked::Count(Count { is_up, by, ttl, initial })
            }
            asked => asked,
        }
    }

    /// How a request of the meta protocol is told.
    pub(crate) fn style(&mut self) -> Style {
        let random = &mut *self.random;
        Style {
            key: random.one_in(6),
            opaque: random.one_in(6).then(|| random.below(1_000_000) as u32),
            base64: random.one_in(6),
            quiet: random.one_in(8),
        }
    }

    pub(crate) fn short_value(&mut self) -> u32 {
        let bytes = match self.random.one_in(2) {
            true => self.random.below(100).to_string().into_bytes(),
            false => value(1 + self.random.below(60) as usize, self.random.number()),
        };
        self.books.values.id(&bytes)
    }
}
