//! Walks the index for the places that a pass reads next, some leaves at a time. The first walk
//! counts what there is, too.

use super::window::{Places, Window};
use super::{Damaged, Far, name};
use crate::checkpoint::superblock::{Front, SLOT_BYTES, Superblock};
use crate::index::{Entry, What};
use crate::store::Shared;

/// Leaves of the index that one step goes over: others on this CPU come in between.
const LEAVES: usize = 8;

/// A walk that fills a window.
pub struct Walk {
    window: Window,
    /// Where it goes on; nowhere once it is over.
    from: Option<Box<[u8]>>,
    /// It is the first.
    counts: bool,
}

impl Walk {
    /// The first one, for about so many places.
    pub fn new(places: usize) -> Walk {
        Walk { window: Window::new(places), from: Some(Box::default()), counts: true }
    }

    /// Whether it has filled the window.
    pub fn is_over(&self) -> bool {
        self.from.is_none()
    }

    /// Whether none is needed behind it. It is over.
    pub fn is_last(&self) -> bool {
        self.window.is_last()
    }

    /// Makes it the next one, for at least so many places, in the memory of those that were read.
    pub fn begin_next(&mut self, most: usize, read: Places) {
        self.window.go_on(most, read);
        self.from = Some(Box::default());
    }

    /// Goes on. What is in the window, once it is over.
    pub fn step(
        &mut self,
        shared: &Shared,
        far: &mut Far,
        tell: &mut dyn FnMut(Damaged),
    ) -> Option<Places> {
        let mut from = self.from.take()?;
        if from.is_empty() {
            self.take_roots(shared, far, tell);
            self.window.make_room();
        }
        let (mut lost, mut long, mut filled) = (Vec::new(), Vec::new(), None);
        for _ in 0..LEAVES {
            let next = shared.index.look_through(&from, |key, entry, _| match &entry.what {
                What::Large(large) if 1 < large.extents.len().max(large.pieces()) => {
                    long.push((Box::<[u8]>::from(key), entry.clone()));
                }
                _ => self.meet(key, entry, far, &mut lost),
            });
            // Not inside, where writers may wait for the leaf: a value may lie in many extents.
            long.drain(..).for_each(|(key, entry)| self.meet(&key, &entry, far, &mut lost));
            self.window.make_room();
            match next {
                Some(next) => from = next,
                None => {
                    filled = Some(self.window.close());
                    self.counts = false;
                    from = Box::default();
                    break;
                }
            }
        }
        // Nobody waits for a leaf of the index while these are told.
        far.damaged += lost.len() as u64;
        lost.into_iter().for_each(tell);
        self.from = Some(from).filter(|from| !from.is_empty());
        filled
    }

    /// All of one that is not the first: it counts and tells nothing.
    pub fn finish(&mut self, shared: &Shared) -> Places {
        loop {
            let filled = self.step(shared, &mut Far::default(), &mut |_| ());
            if filled.is_some() || self.is_over() {
                return filled.unwrap_or_default();
            }
        }
    }

    fn meet(&mut self, key: &[u8], entry: &Entry, far: &mut Far, lost: &mut Vec<Damaged>) {
        let bytes = if entry.is_item() { self.window.item(key, entry) } else { 0 };
        if !self.counts {
            return;
        }
        far.total_bytes += bytes;
        far.items += u64::from(entry.is_item() || entry.what == What::Lost);
        if entry.what == What::Lost {
            lost.push(Damaged {
                key: Some(key.into()),
                name: name(entry.sequence, key),
                why: "its newest record is damaged".into(),
                is_refused: false,
            });
        }
    }

    /// What the store hangs on: the superblocks, which are read now, and the checkpoints, which lie
    /// among the values.
    fn take_roots(&mut self, shared: &Shared, far: &mut Far, tell: &mut dyn FnMut(Damaged)) {
        if self.counts {
            // One that is just being written looks damaged: once more while nobody writes.
            let newest = shared.maintenance().generation;
            let wrong = superblocks(shared, newest).and_then(|_| {
                let quiet = shared.maintenance();
                superblocks(shared, quiet.generation)
            });
            if let Some(why) = wrong {
                tell(Damaged { key: None, name: (u64::MAX - 2, 0), why, is_refused: false });
            }
            far.done_bytes += 2 * SLOT_BYTES as u64;
            far.total_bytes += 2 * SLOT_BYTES as u64;
        }
        let checkpoints = shared.maintenance().checkpoints.clone();
        for checkpoint in checkpoints {
            let bytes = self.window.checkpoint(checkpoint.body);
            far.total_bytes += if self.counts { bytes } else { 0 };
        }
    }
}

/// What is wrong with the superblocks, of which the newest known has this number.
fn superblocks(shared: &Shared, newest: u64) -> Option<String> {
    let mut problems = Vec::new();
    match Superblock::read(&*shared.ssd, &mut problems) {
        Ok(Front::Store(found)) if found.generation < newest => {
            Some("the newest superblock is not there; an older one is".into())
        }
        Ok(Front::Store(_)) => problems.pop(),
        // As a new store looks whose second superblock was never written.
        Ok(_) => Some("the newest superblock is damaged, and a start would refuse".into()),
        Err(error) => Some(error.to_string()),
    }
}
