//! The pending-write filter: it tells a worker, before it answers from memory, whether a change of
//! the key is under way that is not durable yet, and on a miss whether the tier holds the item.
//!
//! Keys share counters by their hash; a key that is hidden for another's sake goes the longer way
//! and gets the same answer.
//!
//! The durable executor alone counts, and whoever steps it has its lock: so nothing comes between a
//! load and a store, and neither kind of counter needs a locked instruction. What earlier steps
//! have released is behind that lock, and so behind each release of a later one.

use laneway_store::{KeyHash, Moment};
use laneway_sync::cover::Cover;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Tier;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Counters; a power of two.
const SLOTS: usize = 1 << 14;

/// Who executes a command where items are kept durably.
#[derive(Clone, Copy)]
pub enum DurableReader<'a> {
    /// A worker, which asks the pending-write filter.
    Worker(&'a PendingWrites),
    /// The executor, which asks the tier and what is under way before it executes.
    DurableExecutor {
        /// It found the item in memory then. Other threads may have it evicted since, and so may
        /// the command itself for the memory that it takes: who misses the item must ask again.
        seen: bool,
    },
}

/// The pending-write filter.
pub struct PendingWrites {
    tier: Arc<Tier>,
    /// Changes that are under way.
    changing: Box<[Cover]>,
    /// How often keys were changed.
    editions: Box<[AtomicU64]>,
    /// Items that were taken back.
    taken_back: AtomicU64,
}

/// How many items had been taken back when somebody began to look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight(u64);

impl PendingWrites {
    /// Over nothing.
    pub fn new(tier: Arc<Tier>) -> PendingWrites {
        let changing = (0..SLOTS).map(|_| Cover::new()).collect();
        let editions = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        PendingWrites { tier, changing, editions, taken_back: AtomicU64::new(0) }
    }

    fn slot(&self, hash: KeyHash) -> &Cover {
        &self.changing[slot_of(hash)]
    }

    /// How often this key, and others that share its counter, have changed.
    pub fn edition(&self, hash: KeyHash) -> u64 {
        // (P) pairs with (Q): who sees the count finds the change in memory, or hidden.
        self.editions[slot_of(hash)].load(Acquire)
    }

    /// A key was changed in memory.
    pub fn changed_owner(&self, hash: KeyHash) {
        count_edition(&self.editions[slot_of(hash)]);
    }

    /// Every key was.
    pub fn all_changed_owner(&self) {
        self.editions.iter().for_each(count_edition);
    }

    /// A key is about to be changed: before its bucket is entered.
    pub fn cover_owner(&self, hash: KeyHash) {
        // The bucket's version is left by a release after this, and a reader of the new item has
        // acquired that version before it looks here.
        self.slot(hash).raise_owner();
    }

    /// What was changed is durable, or taken back.
    pub fn uncover_owner(&self, hash: KeyHash) {
        self.slot(hash).lower_owner();
    }

    /// An item was taken back: after it has left memory, before it is uncovered.
    pub fn taken_back(&self) {
        self.taken_back.fetch_add(1, Release); // (M) pairs with (N)
    }

    /// Before an item is looked for; or before what was found is read and its bucket's version
    /// validated, which says that it was there all the time.
    pub fn sight(&self) -> Sight {
        // (N) pairs with (M): who sees the count sees memory without what was taken back.
        Sight(self.taken_back.load(Acquire))
    }

    /// Whether what was read in memory since may not be durable: it is being changed, or was taken
    /// back between being read and this question, when nothing hides it any more.
    pub fn hides_since(&self, hash: KeyHash, sight: Sight) -> bool {
        // Who sees a key uncovered sees what was taken back before: so a relaxed load will do.
        let hidden = self.slot(hash).hides();
        (hidden && !is_planted(Bug::PendingWriteShown)) || self.taken_back.load(Relaxed) != sight.0
    }

    /// Whether a key is being changed.
    pub fn hides(&self, hash: KeyHash) -> bool {
        self.slot(hash).hides()
    }

    /// Bytes of the value of the living item that the tier holds under this key.
    pub fn value_bytes(&self, key: &[u8], now: Moment) -> Option<u64> {
        let look = self.tier.look(key).filter(|_| !is_planted(Bug::MissNotAsked))?;
        (!is_over(look.expires_at_seconds, now)).then_some(look.value_bytes)
    }
}

fn count_edition(edition: &AtomicU64) {
    edition.store(edition.load(Relaxed) + 1, Release); // (Q) pairs with (P)
}

fn slot_of(hash: KeyHash) -> usize {
    (hash.0 >> 32) as usize % SLOTS
}

/// Whether the end that the tier's index has of an item has come. An end with milliseconds is
/// there as the next full second: so this is never too early, and less than a second late.
pub fn is_over(expires_at_seconds: u32, now: Moment) -> bool {
    Moment::from_seconds(expires_at_seconds).is_over(now)
}
