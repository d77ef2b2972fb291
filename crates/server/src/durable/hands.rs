//! Who waits for devices on the keeper's behalf. Threads in a server; in tests nobody: an order is
//! carried out at once and its end is heard of in the next step, so that a run repeats exactly.

use laneway_store::Pinned;
use laneway_tier::{Answer, LargeDraft, Request, Result, Stats, Tier};
use std::sync::Arc;

/// Something that waits.
pub enum Order {
    /// Make durable what was appended.
    Commit,
    /// Write a large value to the SSD.
    Spill {
        /// Comes back with the draft.
        number: u64,
        /// The key.
        key: Box<[u8]>,
        /// The value.
        value: Spilled,
    },
    /// Count everything.
    Count {
        /// Comes back with the statistics.
        number: u64,
    },
}

/// A value on its way to the SSD.
pub enum Spilled {
    /// Copied out of its item.
    Bytes(Vec<u8>),
    /// Kept where it is.
    Pinned(Pinned),
}

/// The end of something that waited.
pub enum Done {
    /// Of a commit.
    Committed(Result<()>),
    /// The value is on the SSD, but for the group that names it.
    Spilled(u64, Result<LargeDraft>),
    /// Everything was counted.
    Counted(u64, Box<Stats>),
    /// Something was read.
    Read(u64, Answer),
}

/// Whoever carries orders out.
pub trait Hands: Send {
    /// Begin this.
    fn order(&mut self, order: Order);
    /// Begin to read; `number` comes back with the answer.
    fn read(&mut self, number: u64, request: Request);
    /// Take what has ended.
    fn collect(&mut self, into: &mut Vec<Done>);
}

/// Carries out an order on this thread.
pub fn carry_out(tier: &Tier, order: Order) -> Done {
    match order {
        Order::Commit => Done::Committed(tier.commit()),
        Order::Spill { number, key, value } => Done::Spilled(number, spill(tier, &key, &value)),
        Order::Count { number } => Done::Counted(number, Box::new(tier.stats())),
    }
}

fn spill(tier: &Tier, key: &[u8], value: &Spilled) -> Result<LargeDraft> {
    match value {
        Spilled::Bytes(bytes) => {
            let mut draft = tier.draft_large(key, bytes.len() as u64)?;
            draft.write(bytes)?;
            Ok(draft)
        }
        Spilled::Pinned(value) => {
            let mut draft = tier.draft_large(key, value.value_bytes() as u64)?;
            let mut offset = 0;
            while offset < value.value_bytes() {
                let piece = value.piece(offset);
                draft.write(piece)?;
                offset += piece.len();
            }
            Ok(draft)
        }
    }
}

/// Nobody: everything at once.
pub struct Inline {
    tier: Arc<Tier>,
    done: Vec<Done>,
}

impl Inline {
    /// For this store.
    pub fn new(tier: Arc<Tier>) -> Inline {
        Inline { tier, done: Vec::new() }
    }
}

impl Hands for Inline {
    fn order(&mut self, order: Order) {
        self.done.push(carry_out(&self.tier, order));
    }

    fn read(&mut self, number: u64, request: Request) {
        self.done.push(Done::Read(number, self.tier.read(request)));
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        into.append(&mut self.done);
    }
}
