//! A worker's own part of the hot keys: its sketch, and its copy of the slot's table. It knows no
//! worker.

use super::board::HotKeyTable;
use laneway_policy::hot::Detector;
use laneway_policy::hot::hasher::KeyHasher;
use laneway_policy::hot::routes::{Routed, Routes};
use laneway_policy::hot::sketch::{KeyHash, WorkerSketch};
use laneway_policy::hot::space_saving::SpaceSaving;

/// How often a key was executed here in this slot, by either means.
enum Counts {
    Sketch(WorkerSketch),
    SpaceSaving(SpaceSaving),
}

/// How often a worker looks whether the slot is over, in a slot that all workers fill alike.
const LOOKS_PER_SLOT: u32 = 4;

/// One worker's part.
pub struct HotWorker {
    hasher: KeyHasher,
    counts: Counts,
    routes: Routes,
    version: u64,
    words: Vec<u64>,
    /// Requests that it counted since it last looked whether the slot is over.
    unlooked: u32,
    look_every: u32,
    /// When this turn began.
    pub now_nanos: u64,
}

impl HotWorker {
    /// A worker that has counted nothing.
    pub fn new(board: &HotKeyTable) -> HotWorker {
        let settings = board.settings();
        let looks = LOOKS_PER_SLOT * u32::from(settings.workers);
        HotWorker {
            hasher: KeyHasher::new(board.seed()),
            counts: match settings.detector {
                Detector::Sketch => Counts::Sketch(WorkerSketch::new(board.seed())),
                Detector::SpaceSaving(counters) => Counts::SpaceSaving(SpaceSaving::new(counters)),
            },
            routes: Routes::new(settings.keys_max),
            version: 0,
            words: Vec::new(),
            unlooked: 0,
            look_every: (settings.slot.requests / looks).max(1),
            now_nanos: 0,
        }
    }

    /// The slot's table, as this worker knows it.
    #[inline]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Read the slot's table, if there is a newer one.
    #[inline]
    pub fn follow(&mut self, board: &HotKeyTable) {
        if let Some(version) = board.notice().read(self.version, &mut self.words) {
            self.version = version;
            self.take_over();
        }
    }

    fn take_over(&mut self) {
        let slot_before = self.routes.head().slot;
        self.routes.decode(&self.words);
        let slot = self.routes.head().slot;
        if slot != slot_before {
            match &mut self.counts {
                Counts::Sketch(sketch) => sketch.begin(slot as u16),
                Counts::SpaceSaving(list) => list.slot_ended(),
            }
        }
    }

    /// By what a key is known here.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// A turn begins. Whether to look if the slot is over.
    #[inline]
    pub fn turn(&mut self, now: u64) -> bool {
        self.now_nanos = now;
        let looks = self.unlooked >= self.look_every;
        if looks {
            self.unlooked = 0;
        }
        looks
    }

    /// A request is executed here.
    #[inline]
    pub fn executes(&mut self) {
        self.unlooked += 1;
    }

    /// The key's entry, if it is hot.
    #[inline]
    pub fn routed(&self, key: KeyHash) -> Option<Routed> {
        self.routes.get(key)
    }

    /// Count a request for a cold key that is executed here. `Some` is how often it was, if that
    /// is to be told.
    #[inline]
    pub fn count(&mut self, key: KeyHash, is_owned: bool) -> Option<u32> {
        let count = match &mut self.counts {
            Counts::Sketch(sketch) => sketch.count(key),
            Counts::SpaceSaving(list) => list.count(key).min(u16::MAX.into()) as u16,
        };
        let head = self.routes.head();
        let threshold = if is_owned { head.threshold } else { head.threshold_local };
        // Where there is no room, now and then: so that it waits with its weight.
        let tells = threshold <= count
            && (head.has_room || (threshold > 0 && count.is_multiple_of(threshold)));
        tells.then_some(u32::from(count))
    }
}
