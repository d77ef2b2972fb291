//! Carries out operations that wait for devices, on the durable executor's behalf. In a server
//! threads do so. In tests there are none: an order is carried out at once and its end is reported
//! in the next step, so that a run repeats exactly.

use laneway_store::Pinned;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{Answer, ItemMeta, LargeWhole, Request, Result, Stats, Ticket, Tier};
use std::sync::Arc;

/// The key under which the time of a flush to come is kept. No client's key is that long.
pub const SCHEDULE_KEY: [u8; 256] = [0; 256];

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
    /// Append a change for which the log had no room at once.
    Write {
        /// Comes back with the end.
        number: u64,
        /// The key.
        key: Box<[u8]>,
        /// The change's.
        sequence: u64,
        /// The change.
        aside: Aside,
    },
    /// Flush everything, now or at a time to come.
    Flush {
        /// Comes back with the end.
        number: u64,
        /// The unix second; 0 for now.
        at: u32,
    },
    /// Count everything.
    Count {
        /// Comes back with the statistics.
        number: u64,
    },
    /// Make a checkpoint.
    Checkpoint {
        /// Comes back with the end.
        number: u64,
    },
}

/// A change that was put aside.
pub enum Aside {
    /// A value that goes to the log.
    Put {
        /// The value.
        value: Vec<u8>,
        /// What is kept with it.
        meta: ItemMeta,
    },
    /// A value that is on the SSD.
    Whole {
        /// The value.
        whole: LargeWhole,
        /// What is kept with it.
        meta: ItemMeta,
    },
    /// A deletion.
    Delete,
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
    /// The value of this key is on the SSD, but for the group that names it.
    Spilled(u64, Box<[u8]>, Result<LargeWhole>),
    /// The change of this key was appended, where there was anything to change.
    Written(u64, Box<[u8]>, Result<Option<Ticket>>),
    /// What was flushed, or is to be, is durable.
    Flushed(u64, Result<()>),
    /// Everything was counted.
    Counted(u64, Box<Stats>),
    /// A checkpoint is durable.
    Checkpointed(u64, Result<()>),
    /// Something was read.
    Read(u64, Answer),
}

/// Whoever carries orders out.
pub trait DeviceExecutor: Send {
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
        Order::Spill { number, key, value } => {
            let spilled = spill(tier, &key, &value);
            Done::Spilled(number, key, spilled)
        }
        Order::Write { number, key, sequence, aside } => {
            let written = write(tier, &key, sequence, aside);
            Done::Written(number, key, written)
        }
        Order::Flush { number, at } => Done::Flushed(number, flush(tier, at)),
        Order::Count { number } => Done::Counted(number, Box::new(tier.stats())),
        Order::Checkpoint { number } if is_planted(Bug::CheckpointUnmade) => {
            Done::Checkpointed(number, Ok(()))
        }
        Order::Checkpoint { number } => Done::Checkpointed(number, tier.checkpoint_now()),
    }
}

fn flush(tier: &Tier, at: u32) -> Result<()> {
    match at {
        0 => tier.flush_all().map(drop),
        at => tier.put(&SCHEDULE_KEY, &at.to_le_bytes(), ItemMeta::default()).map(drop),
    }
}

/// Appends what was put aside, and waits for room.
fn write(tier: &Tier, key: &[u8], sequence: u64, aside: Aside) -> Result<Option<Ticket>> {
    match aside {
        Aside::Put { value, meta } => tier.submit_put(key, &value, meta, Some(sequence)).map(Some),
        Aside::Whole { whole, meta } => whole.append(meta, Some(sequence)).map(Some),
        Aside::Delete => tier.submit_delete(key, Some(sequence)),
    }
}

fn spill(tier: &Tier, key: &[u8], value: &Spilled) -> Result<LargeWhole> {
    match value {
        Spilled::Bytes(bytes) => {
            let mut draft = tier.draft_large(key, bytes.len() as u64)?;
            draft.write(bytes)?;
            draft.whole()
        }
        Spilled::Pinned(value) => {
            let mut draft = tier.draft_large(key, value.value_bytes() as u64)?;
            let mut offset = 0;
            while offset < value.value_bytes() {
                let piece = value.piece(offset);
                draft.write(piece)?;
                offset += piece.len();
            }
            draft.whole()
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

impl DeviceExecutor for Inline {
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
