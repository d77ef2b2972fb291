//! Before-images: copies of items as they were before changes that are not acknowledged yet
//! ([`super::note_before`] says why reads get them).
//!
//! Each change under way adds to its key's list what it has found there, so the oldest comes first.
//! The first is therefore the item that was acknowledged last, and reads get that one. An entry
//! ends once anybody is told of its change, or of a later one of the key.

use crate::resp::scratch::NewItem;
use laneway_sync::planted::{Bug, is_planted};
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

/// The longest value that is copied.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// Bytes of all values that are copied.
const BYTES_MAX: usize = 4 << 20;
/// Nothing more is copied in a step that has copied so many bytes: short values may take the place
/// of long ones, as many as there are requests in a batch, and workers wait for the step.
const BYTES_PER_STEP: usize = 64 << 10;
/// Buffers that are kept for later copies.
const SPARE_MAX: usize = 64;

/// What was there before a change.
pub(super) enum Known {
    /// It was not copied, or the request changes other keys, too: who reads the key waits.
    Unknown,
    /// The task has changed the key before, and nobody else since.
    Same,
    /// There was no item.
    Absent,
    /// There was this one. (Boxed: a request about many keys has an entry for each, without one.)
    Item(Box<NewItem>),
}

struct Before {
    id: u64,
    /// The task that has made the change.
    task: u64,
    /// Somebody was told of it.
    was_told: bool,
    known: Known,
}

fn keep_spare(spare: &mut Vec<Vec<u8>>, mut buffer: Vec<u8>) {
    if spare.len() < SPARE_MAX && buffer.capacity() <= 2 * VALUE_BYTES_MAX {
        buffer.clear();
        spare.push(buffer);
    }
}

/// By key.
#[derive(Default)]
pub(super) struct Befores {
    of: HashMap<Arc<[u8]>, Vec<Before>>,
    /// Connections that wait for a change, their own or another's, and how many of their tasks do.
    waiting: HashMap<u64, usize>,
    /// The last change that somebody else was shown before its own task is answered. From then on
    /// nobody is told what was before that change or an earlier one, of any key. Otherwise changes
    /// would be seen out of order.
    shown: u64,
    bytes: usize,
    /// Of these, and of copies that were of no use, what this step has copied.
    copied: usize,
    /// The last id, of an entry or of a task that has some.
    last: u64,
    spare: Vec<Vec<u8>>,
}

impl Befores {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The task that has made a key's last change.
    pub(super) fn last_changer(&self, key: &[u8]) -> Option<u64> {
        let last = self.of.get(key).and_then(|of_key| of_key.last());
        last.map(|before| before.task)
    }

    /// What ends all that there is of a key.
    pub(super) fn last_of(&self, key: &[u8]) -> Option<(Arc<[u8]>, u64)> {
        let (key, of_key) = self.of.get_key_value(key)?;
        of_key.last().map(|last| (key.clone(), last.id))
    }

    /// What `asker` may be told of a key in place of what it has now. A connection that waits for a
    /// change is told nothing of before: it would see changes out of order, or miss its own. An
    /// asker without a number (0) may have changed anything.
    pub(super) fn known_to(&self, key: &[u8], asker: u64) -> Option<&Known> {
        let first = self.of.get(key)?.first()?;
        let waits = self.waiting.contains_key(&asker) && !is_planted(Bug::OwnChangeUnseen);
        if asker == 0 || waits || first.id <= self.shown {
            return None;
        }
        match &first.known {
            Known::Unknown | Known::Same => None,
            // To read a stale item may change it.
            Known::Item(item) if item.meta.stale || item.meta.token_sent => None,
            known => Some(known),
        }
    }

    /// One more task of this connection waits for a change.
    pub(super) fn wait(&mut self, asker: u64) {
        *self.waiting.entry(asker).or_default() += 1;
    }

    /// One is answered.
    pub(super) fn wait_no_more(&mut self, asker: u64) {
        if let Entry::Occupied(mut tasks) = self.waiting.entry(asker) {
            *tasks.get_mut() -= 1;
            if *tasks.get() == 0 {
                tasks.remove();
            }
        }
    }

    /// Somebody was told of what was before the first change of a key.
    pub(super) fn tell(&mut self, key: &[u8]) {
        if let Some(first) = self.of.get_mut(key).and_then(|of_key| of_key.first_mut()) {
            first.was_told = true;
        }
    }

    /// Whether somebody was.
    pub(super) fn was_told(&self, key: &[u8]) -> bool {
        self.of.get(key).is_some_and(|of_key| of_key.iter().any(|before| before.was_told))
    }

    /// A number that nothing has.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A buffer for a value.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// It is used no more.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        keep_spare(&mut self.spare, buffer);
    }

    /// A step of the executor begins.
    pub(super) fn begin_step(&mut self) {
        self.copied = 0;
    }

    /// Whether more may be copied in this step.
    pub(super) fn may_copy(&self) -> bool {
        self.copied < BYTES_PER_STEP
    }

    /// So many bytes were copied.
    pub(super) fn count_copied(&mut self, bytes: usize) {
        self.copied += bytes;
    }

    /// Whether so long a value may be kept beside the others.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= VALUE_BYTES_MAX && self.bytes + bytes <= BYTES_MAX
    }

    /// Notes what was there before a change of a key. Returns what ends it.
    pub(super) fn note(&mut self, key: &[u8], task: u64, known: Known) -> (Arc<[u8]>, u64) {
        if let Known::Item(item) = &known {
            self.bytes += item.value.len();
        }
        let before = Before { id: self.next_id(), task, was_told: false, known };
        let id = before.id;
        let known = self.of.get_key_value(key).map(|(key, _)| key.clone());
        let name = known.unwrap_or_else(|| Arc::from(key));
        self.of.entry(name.clone()).or_insert_with(|| Vec::with_capacity(1)).push(before);
        (name, id)
    }

    /// Ends what there is of a key, up to this id, for this task. Returns whether somebody was told
    /// of it.
    pub(super) fn end(&mut self, key: &[u8], id: u64, task: u64) -> bool {
        let Some(of_key) = self.of.get_mut(key) else { return false };
        let ended = of_key.partition_point(|before| before.id <= id);
        let mut was_told = false;
        for before in of_key.drain(..ended) {
            was_told |= before.was_told;
            if before.task != task {
                self.shown = self.shown.max(before.id);
            }
            if let Known::Item(item) = before.known {
                self.bytes -= item.value.len();
                keep_spare(&mut self.spare, item.value);
            }
        }
        if of_key.is_empty() {
            self.of.remove(key);
        }
        was_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::{ItemMeta, Moment};

    const ONE: u64 = 1;
    const TWO: u64 = 2;

    fn item(value: &[u8]) -> Known {
        let meta = ItemMeta {
            seq: 1,
            flags: 0,
            expires: Moment::NEVER,
            value_bytes: value.len() as u32,
            key_bytes: 1,
            stale: false,
            token_sent: false,
            fetched: false,
            idle_seconds: 0,
        };
        Known::Item(Box::new(NewItem { value: value.to_vec(), meta }))
    }

    fn told(befores: &Befores, asker: u64) -> Option<&[u8]> {
        match befores.known_to(b"k", asker)? {
            Known::Item(item) => Some(&item.value),
            _ => Some(b"absent"),
        }
    }

    #[test]
    fn the_first_is_told_to_whoever_waits_for_nothing_until_any_of_them_is_over() {
        let mut befores = Befores::default();
        let (_, first) = befores.note(b"k", ONE, Known::Absent);
        let (_, second) = befores.note(b"k", TWO, item(b"one"));
        [11, 12, 12].into_iter().for_each(|asker| befores.wait(asker));
        assert_eq!(befores.last_changer(b"k"), Some(TWO));
        assert_eq!(told(&befores, 13), Some(&b"absent"[..]));
        for asker in [0, 11, 12] {
            assert_eq!(told(&befores, asker), None, "{asker}");
        }
        befores.tell(b"k");
        assert!(befores.was_told(b"k") && befores.end(b"k", first, ONE));
        [11, 12].into_iter().for_each(|asker| befores.wait_no_more(asker));
        assert_eq!(told(&befores, 11), Some(&b"one"[..]), "it waits no more");
        assert_eq!(told(&befores, 12), None, "another of its tasks does");
        befores.wait_no_more(12);
        assert_eq!(told(&befores, 12), Some(&b"one"[..]));
        assert!(!befores.end(b"k", first, ONE) && !befores.end(b"k", second, TWO), "not told");
        assert!(befores.is_empty() && befores.bytes == 0 && befores.waiting.is_empty());
    }

    #[test]
    fn the_later_of_two_may_be_over_first_and_shows_all_that_came_before_the_other() {
        let mut befores = Befores::default();
        let (_, other) = befores.note(b"other", ONE, Known::Absent);
        befores.note(b"k", ONE, Known::Absent);
        befores.note(b"k", TWO, item(b"one"));
        assert!(befores.known_to(b"other", 13).is_some());
        let (_, last) = befores.last_of(b"k").expect("there are two");
        befores.end(b"k", last, TWO);
        assert_eq!(befores.last_changer(b"k"), None);
        assert!(befores.known_to(b"other", 13).is_none(), "it came before what is shown");
        befores.end(b"other", other, ONE);
        befores.note(b"other", ONE, Known::Absent);
        assert!(befores.known_to(b"other", 13).is_some(), "it came behind that");
    }

    #[test]
    fn what_is_unknown_or_stale_is_told_to_nobody() {
        let mut befores = Befores::default();
        befores.note(b"k", ONE, Known::Unknown);
        befores.note(b"k", TWO, item(b"one"));
        assert_eq!(told(&befores, 13), None);
        assert!(!befores.end(b"k", u64::MAX, ONE) && befores.is_empty() && befores.bytes == 0);
        let Known::Item(mut stale) = item(b"v") else { unreachable!("it is one") };
        stale.meta.stale = true;
        befores.note(b"k", ONE, Known::Item(stale));
        assert_eq!(told(&befores, 13), None);
    }

    #[test]
    fn values_take_no_more_than_their_bound_and_give_it_back() {
        let mut befores = Befores::default();
        assert!(befores.has_room(VALUE_BYTES_MAX) && !befores.has_room(VALUE_BYTES_MAX + 1));
        let long = vec![b'v'; VALUE_BYTES_MAX];
        for number in 0..BYTES_MAX / VALUE_BYTES_MAX {
            assert!(befores.has_room(VALUE_BYTES_MAX), "{number}");
            befores.note(b"k", ONE, item(&long));
        }
        assert!(!befores.has_room(1));
        befores.end(b"k", u64::MAX, ONE);
        assert!(befores.has_room(VALUE_BYTES_MAX) && befores.spare.len() == SPARE_MAX);
        assert!(befores.buffer().is_empty() && befores.spare.len() < SPARE_MAX);
    }

    #[test]
    fn a_step_copies_no_more_than_its_bound() {
        let mut befores = Befores::default();
        befores.count_copied(BYTES_PER_STEP - 1);
        assert!(befores.may_copy());
        befores.count_copied(1);
        assert!(!befores.may_copy());
        befores.begin_step();
        assert!(befores.may_copy());
    }
}
