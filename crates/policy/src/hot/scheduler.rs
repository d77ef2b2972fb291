//! To whom the hot keys of a slot belong, and which of them stay hot in the next (KeySched §2 "Key
//! Scheduler"): one for all workers, driven by whoever counts.
//!
//! A key that crosses the threshold is *found* and belongs to the least loaded worker from then
//! on. When the slot ends, the poster forgets all; with carry-over those that had at least half the
//! threshold in it stay, heaviest first. Keys that were found when there was no room wait, and
//! compete with the others at the slot's end by their weight: or a crowd that comes late would
//! never be seen while older keys hold every place.
//!
//! With [`HotSettings::alone`] the heaviest hot key has a *worker of its own*: the least loaded one
//! when it became the heaviest, where it stays as long as it is the heaviest, and to which no other
//! hot key goes. KeySched §2 weighs that ("allocate a single core for this key"), and balances
//! worse than moving it: what the key has more than an even share stays where it is. The poster
//! divides *all* other keys among the other cores; here the worker keeps the cold keys that are at
//! home there, which only a look at each of them could send away.
//!
//! Counts come in two ways: request by request ([`Scheduler::request`], [`Scheduler::charge`]), or
//! all at once before a question is asked ([`Scheduler::tell`]). Unit: requests.

use crate::hot::loads::CoreLoads;
use crate::hot::mapping::{HotKey, Mapping, Standing};
use crate::hot::settings::{HOT_KEEP_DIVISOR, HOT_REQUESTS_MIN, HOT_SHARE_DIVISOR, LOCAL_MIN};
use crate::hot::settings::{HotSettings, HotThreshold, Reads};
use crate::hot::sketch::KeyHash;
use crate::units::WorkerId;
use alloc::vec::Vec;

/// The heaviest hot key, and the worker that it has to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Alone {
    key: KeyHash,
    worker: WorkerId,
}

/// What one count of a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Which key.
    pub key: KeyHash,
    /// Requests for it in this slot.
    pub requests: u32,
    /// Of these, the ones that only its owner may serve.
    pub owned: u32,
    /// It is one worker's share of requests that are spread over all, times the workers.
    pub is_estimate: bool,
}

/// The scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduler {
    settings: HotSettings,
    mapping: Mapping,
    loads: CoreLoads,
    /// Found when there was no room.
    waiting: Vec<Found>,
    alone: Option<Alone>,
    threshold: u32,
    found: u64,
    moved: u64,
}

impl Scheduler {
    /// Nothing is hot yet.
    pub fn new(settings: HotSettings) -> Self {
        Scheduler {
            settings,
            mapping: Mapping::new(settings.keys_max),
            loads: CoreLoads::new(settings.workers),
            waiting: Vec::new(),
            alone: None,
            threshold: threshold(&settings, settings.slot.requests),
            found: 0,
            moved: 0,
        }
    }

    /// The settings.
    pub fn settings(&self) -> &HotSettings {
        &self.settings
    }

    /// One request for a hot key: its owner in this slot. `None`: it is cold.
    #[inline]
    pub fn request(&mut self, key: KeyHash, is_owned: bool) -> Option<WorkerId> {
        let hot = self.mapping.get_mut(key)?;
        hot.requests = hot.requests.saturating_add(1);
        if is_owned {
            hot.owned = hot.owned.saturating_add(1);
            if hot.owned <= hot.expected {
                self.loads.keep(hot.owner, 1);
            }
        }
        Some(hot.owner)
    }

    /// `worker` was given so much to do.
    #[inline]
    pub fn charge(&mut self, worker: WorkerId, load: u32) {
        self.loads.charge(worker, load);
    }

    /// All that was counted in this slot so far: what each worker was given, and for each hot key
    /// ([`Scheduler::hot`], in that order) its requests, and those that were its owner's.
    pub fn tell(
        &mut self,
        this_slot: impl IntoIterator<Item = u32>,
        hot: impl IntoIterator<Item = (u32, u32)>,
    ) {
        self.loads.tell(this_slot);
        self.loads.forget_promises();
        for (key, (requests, owned)) in self.mapping.keys_mut().iter_mut().zip(hot) {
            (key.requests, key.owned) = (requests, owned);
            self.loads.promise(key.owner, key.expected.saturating_sub(owned));
        }
    }

    /// A key has crossed the threshold and is not hot yet. Its owner for the rest of the slot;
    /// `None` if there is no room.
    pub fn found(&mut self, found: Found) -> Option<WorkerId> {
        if let Some(hot) = self.mapping.get_mut(found.key) {
            return Some(hot.owner);
        }
        if !self.mapping.has_room() {
            if self.settings.carry_over {
                self.wait(found);
            }
            return None;
        }
        if self.alone.is_none() {
            self.set_apart(Some(found.key)); // the first that is found is the heaviest yet
        }
        let hot = HotKey { owner: self.owner_of(found.key), ..hot_key(found) };
        // An estimate is put to the proof, if there is a next slot for it.
        self.found += u64::from(!found.is_estimate || !self.settings.carry_over);
        self.mapping.insert(hot);
        Some(hot.owner)
    }

    /// Whose a hot key is from now on.
    fn owner_of(&self, key: KeyHash) -> WorkerId {
        match self.alone {
            Some(alone) if alone.key == key => alone.worker,
            alone => self.loads.least_but(self.settings.rank, alone.map(|alone| alone.worker)),
        }
    }

    /// This key is the heaviest, if there is one: it has a worker of its own, where that is wanted.
    fn set_apart(&mut self, heaviest: Option<KeyHash>) {
        let before = self.alone.take();
        self.alone = heaviest.filter(|_| self.settings.alone).map(|key| match before {
            Some(alone) if alone.key == key => alone,
            _ => Alone { key, worker: self.loads.least(self.settings.rank) },
        });
    }

    /// Remember a key that finds no room, if it is heavier than another that waits.
    fn wait(&mut self, found: Found) {
        if let Some(known) = self.waiting.iter_mut().find(|waiting| waiting.key == found.key) {
            *known = found;
        } else if self.waiting.len() < self.settings.keys_max {
            self.waiting.push(found);
        } else if let Some(lightest) = self.waiting.iter_mut().min_by_key(|other| other.requests)
            && lightest.requests < found.requests
        {
            *lightest = found;
        }
    }

    /// The slot is over, and held so many requests: the next begins.
    pub fn slot_ended(&mut self, requests: u32) {
        self.threshold = threshold(&self.settings, requests);
        self.loads.slot_ended();
        let weight = |hot: &HotKey| (hot.owned, hot.requests, hot.key);
        let mut heaviest = self.mapping.keys().iter().max_by_key(|hot| weight(hot)).map(|h| h.key);
        let mut next: Vec<(HotKey, bool)> = Vec::new();
        if self.settings.carry_over {
            next.extend(self.mapping.keys().iter().map(|hot| (*hot, true)));
            next.extend(self.waiting.iter().map(|waiting| (hot_key(*waiting), false)));
            let keep = self.threshold.div_ceil(HOT_KEEP_DIVISOR);
            next.retain(|(hot, is_hot)| {
                let has_proved = *is_hot && hot.standing != Standing::OnTrial;
                hot.requests >= if has_proved { keep } else { self.threshold }
            });
            next.sort_by_key(|(hot, _)| core::cmp::Reverse(weight(hot)));
            next.truncate(self.settings.keys_max);
            heaviest = next.first().map(|(hot, _)| hot.key);
        }
        self.set_apart(heaviest);
        self.waiting.clear();
        self.mapping.clear();
        for (hot, had_owner) in next {
            let owner = self.owner_of(hot.key);
            self.loads.promise(owner, hot.owned);
            let moves = had_owner && owner != hot.owner;
            self.moved += u64::from(moves);
            let (standing, is_new) = match hot.standing {
                Standing::Estimated => (Standing::OnTrial, false),
                Standing::OnTrial => (Standing::Certain, true),
                Standing::Certain => (Standing::Certain, !had_owner),
            };
            self.found += u64::from(is_new);
            self.mapping.insert(HotKey {
                owner,
                standing,
                requests: 0,
                owned: 0,
                expected: hot.owned,
                moves: hot.moves.saturating_add(u32::from(moves)),
                ..hot
            });
        }
    }

    /// The hot keys of this slot.
    pub fn hot(&self) -> &[HotKey] {
        self.mapping.keys()
    }

    /// Whether another key would find room now.
    pub fn has_room(&self) -> bool {
        self.mapping.has_room()
    }

    /// Keys found hot since the beginning: carried ones not counted again, estimates when they have
    /// proved true.
    pub fn found_count(&self) -> u64 {
        self.found
    }

    /// Times that a hot key went to another owner at a slot's end.
    pub fn moved_count(&self) -> u64 {
        self.moved
    }

    /// Requests in this slot from which on a key is hot.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The same for one worker's share of requests that are spread over all workers. A key that is
    /// hot has as many at one worker at least; whether it is hot its first whole slot tells, in
    /// which its requests are counted everywhere and must reach the threshold.
    pub fn threshold_local(&self) -> u32 {
        match self.settings.reads {
            Reads::ByOwner => self.threshold,
            Reads::Spread => {
                self.threshold.div_ceil(u32::from(self.settings.workers)).max(LOCAL_MIN)
            }
        }
    }

    /// What each worker was given in this slot so far.
    pub fn loads(&self) -> &CoreLoads {
        &self.loads
    }
}

/// A key that was just found; nobody's yet.
fn hot_key(Found { key, requests, owned, is_estimate }: Found) -> HotKey {
    let standing = if is_estimate { Standing::Estimated } else { Standing::Certain };
    HotKey { key, owner: WorkerId(0), requests, owned, expected: 0, moves: 0, standing }
}

fn threshold(settings: &HotSettings, slot_requests: u32) -> u32 {
    match settings.threshold {
        HotThreshold::Requests(requests) => requests,
        HotThreshold::ShareOfSlot => {
            let share = slot_requests / (HOT_SHARE_DIVISOR * u32::from(settings.workers));
            (share + 1).max(HOT_REQUESTS_MIN)
        }
    }
}
