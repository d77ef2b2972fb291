//! Before-images: copies of items as they were before changes that are not durable yet
//! ([`super::note_before`] says why reads get them, and why that is in order).
//!
//! An entry is what a key has on one stretch of the log: from the change before, where that is not
//! durable either, up to the change that it was copied for. It is the item of the key for as long
//! as the durable part of the log ends on that stretch. Each entry is true by itself, whatever is
//! noted of other stretches. So a change without a copy needs no entry.
//!
//! A key is found by the hash that the store has of it, and then compared. It lies in one buffer
//! with its value, and buffers are used again. So an entry takes no further hash, and no allocation
//! where there is a spare buffer.

use hashbrown::HashTable;
use laneway_store::{ItemMeta, KeyHash};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Position;
use std::collections::hash_map::Entry;

/// The longest value that is copied.
const VALUE_BYTES_MAX: usize = 16 << 10;
/// Bytes of all entries, with what their buffers take, and their places in the table.
const BYTES_MAX: usize = 4 << 20;
/// Bytes of the places that the table may have for an entry, each with a byte of its own. It
/// doubles where entries have left places behind and are in half of the seven eighths that it uses.
const PLACE_BYTES: usize = (size_of::<Before>() + 1) * 32 / 7;
/// Nothing more is copied in a step that has copied so many bytes: short values may take the place
/// of long ones, as many as there are requests in a batch, and workers wait for the step.
const BYTES_PER_STEP: usize = 64 << 10;
/// Buffers that are kept for later copies.
const SPARE_MAX: usize = 64;
/// The longest of these: all of them take 256 KiB at most.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// The log is durable up to here whatever happens.
pub(super) const DURABLE: Position = Position { generation: 0, offset: 0 };
/// Behind all of the log: a change that is there is on its way to the log.
pub(super) const NOT_IN_LOG: Position = Position { generation: u64::MAX, offset: u32::MAX };

/// What a key has on a stretch of the log.
pub(super) struct Before {
    hash: KeyHash,
    /// The key, and the value of its item behind it.
    bytes: Vec<u8>,
    key_bytes: usize,
    /// All else of the item; none if there is no item.
    meta: Option<ItemMeta>,
    /// It is durable when the log is up to here.
    from: Position,
    /// The change that it was copied for is durable when the log is up to here.
    until: Position,
    /// Somebody was told of it.
    was_told: bool,
}

impl Before {
    /// Of a key, which lies in `bytes` with its value behind it.
    pub(super) fn new(
        (key, hash): (&[u8], KeyHash),
        bytes: Vec<u8>,
        meta: Option<ItemMeta>,
        from: Position,
    ) -> Before {
        let (key_bytes, until) = (key.len(), NOT_IN_LOG);
        Before { hash, bytes, key_bytes, meta, from, until, was_told: false }
    }

    /// The value of the item, and all else of it; none if there is no item.
    pub(super) fn item(&self) -> Option<(&[u8], &ItemMeta)> {
        self.meta.as_ref().map(|meta| (&self.bytes[self.key_bytes..], meta))
    }

    fn is_of(&self, (key, hash): (&[u8], KeyHash)) -> bool {
        self.hash == hash && self.bytes[..self.key_bytes] == *key
    }

    /// Whether it is what the key has where the log is durable up to here.
    fn is_at(&self, durable: Position) -> bool {
        self.from <= durable && (durable < self.until || is_planted(Bug::BeforeOutlives))
    }

    /// Bytes that it takes.
    fn weight(&self) -> usize {
        PLACE_BYTES + self.bytes.capacity()
    }
}

fn keep_spare(spare: &mut Vec<Vec<u8>>, mut buffer: Vec<u8>) {
    if spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
        buffer.clear();
        spare.push(buffer);
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Befores {
    /// By the hash of the key, for which there may be several: their stretches do not overlap.
    all: HashTable<Before>,
    /// Connections that wait for a change, their own or another's, and how many of their tasks do.
    waiting: foldhash::HashMap<u64, usize>,
    /// What `all` weighs.
    bytes: usize,
    /// What this step has copied, for entries or in vain.
    copied: usize,
    spare: Vec<Vec<u8>>,
}

impl Befores {
    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn of(&self, named: (&[u8], KeyHash)) -> impl Iterator<Item = &Before> {
        self.all.iter_hash(named.1.0).filter(move |before| before.is_of(named))
    }

    /// Whether there is anything of a key, and `asker` may be told of it. A connection that waits
    /// for a change is told nothing of before: it would see changes out of order, or miss its own.
    /// An asker without a number (0) may have changed anything.
    pub(super) fn may_tell(&self, named: (&[u8], KeyHash), asker: u64) -> bool {
        let waits = || self.waiting.contains_key(&asker) && !is_planted(Bug::OwnChangeUnseen);
        asker != 0 && self.of(named).next().is_some() && !waits()
    }

    /// What a key has where the log is durable up to here, if it is known and may be told. What
    /// ends before the position that is `shown` may not: a walk may show the change behind it.
    pub(super) fn at(
        &self,
        named: (&[u8], KeyHash),
        (durable, shown): (Position, Position),
    ) -> Option<&Before> {
        let mut all = self.of(named);
        let before = all.find(|before| before.is_at(durable) && before.is_at(shown))?;
        // To read a stale item may change it.
        let may_change = before.meta.is_some_and(|meta| meta.stale || meta.token_sent);
        (!may_change).then_some(before)
    }

    /// Somebody was told of that.
    pub(super) fn tell(&mut self, named: (&[u8], KeyHash), durable: Position) {
        for before in self.all.iter_hash_mut(named.1.0) {
            before.was_told |= before.is_of(named) && before.is_at(durable);
        }
    }

    /// Whether somebody was told of a key.
    pub(super) fn was_told(&self, named: (&[u8], KeyHash)) -> bool {
        self.of(named).any(|before| before.was_told)
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

    /// A buffer with a key in it; the value is to come behind that.
    pub(super) fn buffer_of(&mut self, key: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(key);
        buffer
    }

    /// It is of no use.
    pub(super) fn give_back(&mut self, before: Before) {
        keep_spare(&mut self.spare, before.bytes);
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

    /// Notes what is there before a change that is durable when the log is up to `until`, unless
    /// there is no room for it.
    pub(super) fn note(&mut self, before: Before, until: Position) {
        if BYTES_MAX < self.bytes + before.weight() {
            return self.give_back(before);
        }
        self.bytes += before.weight();
        let hash = before.hash.0;
        self.all.insert_unique(hash, Before { until, ..before }, |before| before.hash.0);
    }

    /// The change of a key that was on its way is durable when the log is up to here.
    pub(super) fn came(&mut self, named: (&[u8], KeyHash), until: Position) {
        for before in self.all.iter_hash_mut(named.1.0) {
            if before.is_of(named) {
                before.until = before.until.min(until); // earlier ones end before that
            }
        }
    }

    /// Ends what is over where the log is durable up to here. Calls `told` with the key's hash of
    /// each that somebody was told.
    pub(super) fn end_until(&mut self, durable: Position, told: impl FnMut(KeyHash)) {
        if !is_planted(Bug::BeforeOutlives) {
            self.end(|before| before.until <= durable, told);
        }
    }

    /// Ends all that there is of a key.
    pub(super) fn end_of(&mut self, named: (&[u8], KeyHash), told: impl FnMut(KeyHash)) {
        if self.of(named).next().is_some() {
            self.end(|before| before.is_of(named), told);
        }
    }

    fn end(&mut self, is_over: impl Fn(&Before) -> bool, mut told: impl FnMut(KeyHash)) {
        let Befores { all, bytes, spare, .. } = self;
        all.retain(|before| {
            let ends = is_over(before);
            if ends {
                *bytes -= before.weight();
                keep_spare(spare, std::mem::take(&mut before.bytes));
                if before.was_told {
                    told(before.hash);
                }
            }
            !ends
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::Moment;

    const HASH: KeyHash = KeyHash(7);
    const K: (&[u8], KeyHash) = (b"k", HASH);
    const ASKER: u64 = 13;

    fn up_to(offset: u32) -> Position {
        Position { generation: 1, offset }
    }

    fn absent(named: (&[u8], KeyHash), from: Position) -> Before {
        Before::new(named, named.0.to_vec(), None, from)
    }

    fn item(named: (&[u8], KeyHash), value: &[u8], from: Position) -> Before {
        let meta = ItemMeta {
            seq: 1,
            flags: 0,
            expires: Moment::NEVER,
            value_bytes: value.len() as u32,
            key_bytes: named.0.len() as u8,
            stale: false,
            token_sent: false,
            fetched: false,
            idle_seconds: 0,
        };
        Before::new(named, [named.0, value].concat(), Some(meta), from)
    }

    fn told<'a>(
        befores: &'a Befores,
        named: (&[u8], KeyHash),
        durable: Position,
    ) -> Option<&'a [u8]> {
        let before = befores.at(named, (durable, durable))?;
        Some(before.item().map_or(&b"absent"[..], |(value, _)| value))
    }

    #[test]
    fn a_key_has_what_the_durable_part_of_the_log_says() {
        let mut befores = Befores::default();
        befores.note(item(K, b"one", up_to(10)), up_to(20));
        befores.note(absent(K, DURABLE), up_to(10));
        befores.note(item(K, b"three", up_to(30)), NOT_IN_LOG); // nobody has copied the second
        let rows: [(u32, Option<&[u8]>); 7] = [
            (0, Some(b"absent")),
            (9, Some(b"absent")),
            (10, Some(b"one")),
            (19, Some(b"one")),
            (20, None),
            (30, Some(b"three")),
            (1000, Some(b"three")),
        ];
        for (durable, wanted) in rows {
            assert_eq!(told(&befores, K, up_to(durable)), wanted, "{durable}");
        }
        befores.came(K, up_to(40));
        assert_eq!(told(&befores, K, up_to(39)), Some(&b"three"[..]));
        assert_eq!(told(&befores, K, up_to(40)), None);
        assert_eq!(told(&befores, K, up_to(10)), Some(&b"one"[..]), "they end as they did");
        befores.end_until(up_to(20), |_| ());
        assert_eq!(befores.all.len(), 1);
        befores.end_until(up_to(40), |_| ());
        assert!(befores.is_empty() && befores.bytes == 0);
    }

    /// A batch changes a key, another one, and the first again, and somebody else the other one.
    /// Whoever has seen the last of the batch's changes sees the other key as of then.
    #[test]
    fn no_key_is_told_as_it_was_before_what_another_key_has_shown() {
        let other: (&[u8], KeyHash) = (b"other", KeyHash(8));
        let mut befores = Befores::default();
        befores.note(item(K, b"old", DURABLE), up_to(10));
        befores.note(item(other, b"old", DURABLE), up_to(20));
        befores.note(item(other, b"new", up_to(20)), up_to(40));
        let shown = up_to(30); // the first key's last change is durable
        assert_eq!(told(&befores, K, shown), None, "it is what it is");
        assert_eq!(told(&befores, other, shown), Some(&b"new"[..]));
        assert_eq!(told(&befores, other, up_to(19)), Some(&b"old"[..]));
    }

    /// A group is offered to the index, and is not said to be durable.
    #[test]
    fn nothing_is_told_that_ends_where_a_walk_may_show_more() {
        let other: (&[u8], KeyHash) = (b"other", KeyHash(8));
        let mut befores = Befores::default();
        befores.note(absent(K, DURABLE), up_to(10));
        befores.note(item(K, b"one", up_to(10)), up_to(30));
        befores.note(item(other, b"two", DURABLE), up_to(30));
        let log = (up_to(5), up_to(20));
        assert!(befores.at(K, log).is_none(), "neither the one nor the other");
        assert!(befores.at(other, log).is_some());
        assert_eq!(told(&befores, K, up_to(20)), Some(&b"one"[..]), "once it is durable");
    }

    #[test]
    fn who_waits_for_a_change_or_has_no_number_is_told_nothing() {
        let mut befores = Befores::default();
        befores.note(absent(K, DURABLE), up_to(10));
        [11, 12, 12].into_iter().for_each(|asker| befores.wait(asker));
        for (asker, may) in [(0, false), (11, false), (12, false), (ASKER, true)] {
            assert_eq!(befores.may_tell(K, asker), may, "{asker}");
        }
        [11, 12].into_iter().for_each(|asker| befores.wait_no_more(asker));
        assert!(befores.may_tell(K, 11), "it waits no more");
        assert!(!befores.may_tell(K, 12), "another of its tasks does");
        befores.wait_no_more(12);
        assert!(befores.may_tell(K, 12) && befores.waiting.is_empty());
    }

    #[test]
    fn keys_of_one_hash_are_told_apart() {
        let (other, none): ((&[u8], _), (&[u8], _)) = ((b"other", HASH), (b"none", HASH));
        let mut befores = Befores::default();
        befores.note(item(K, b"one", DURABLE), up_to(10));
        befores.note(item(other, b"two", DURABLE), NOT_IN_LOG);
        assert_eq!(told(&befores, K, up_to(5)), Some(&b"one"[..]));
        assert_eq!(told(&befores, other, up_to(5)), Some(&b"two"[..]));
        assert!(!befores.may_tell(none, ASKER) && befores.at(none, (up_to(5), up_to(5))).is_none());
        befores.tell(other, up_to(5));
        assert!(befores.was_told(other) && !befores.was_told(K));
        befores.came(other, up_to(7));
        assert_eq!(told(&befores, K, up_to(9)), Some(&b"one"[..]));
        befores.end_of(other, |_| ());
        assert!(!befores.may_tell(other, ASKER) && befores.may_tell(K, ASKER));
    }

    #[test]
    fn an_end_names_what_somebody_was_told() {
        let other: (&[u8], KeyHash) = (b"other", KeyHash(8));
        let mut befores = Befores::default();
        befores.note(absent(K, DURABLE), up_to(10));
        befores.note(item(K, b"one", up_to(10)), NOT_IN_LOG);
        befores.note(absent(other, DURABLE), up_to(10));
        befores.tell(K, up_to(5));
        let mut named = Vec::new();
        befores.end_until(up_to(10), |hash| named.push(hash));
        assert_eq!(named, [HASH], "and not the other, of which nobody was told");
        assert!(!befores.was_told(K), "nor of what came behind it");
        befores.tell(K, up_to(10));
        befores.end_of(K, |hash| named.push(hash));
        assert_eq!(named, [HASH, HASH]);
        befores.note(item(K, b"two", DURABLE), NOT_IN_LOG);
        befores.end_until(NOT_IN_LOG, |hash| named.push(hash));
        assert!(befores.is_empty() && named.len() == 2, "that ends all, and nobody was told");
    }

    #[test]
    fn what_is_stale_is_told_to_nobody() {
        let mut befores = Befores::default();
        let mut stale = item(K, b"one", DURABLE);
        stale.meta.as_mut().expect("there is an item").stale = true;
        befores.note(stale, up_to(10));
        assert_eq!(told(&befores, K, up_to(5)), None);
    }

    #[test]
    fn entries_take_no_more_than_their_bound_and_give_it_back() {
        let mut befores = Befores::default();
        assert!(befores.has_room(VALUE_BYTES_MAX) && !befores.has_room(VALUE_BYTES_MAX + 1));
        let long = vec![b'v'; VALUE_BYTES_MAX];
        for _ in 0..=BYTES_MAX / VALUE_BYTES_MAX {
            befores.note(item(K, &long, DURABLE), NOT_IN_LOG);
            assert!(befores.bytes <= BYTES_MAX);
        }
        assert!(!befores.has_room(VALUE_BYTES_MAX));
        assert!(befores.all.len() <= BYTES_MAX / VALUE_BYTES_MAX && BYTES_MAX / 2 < befores.bytes);
        befores.end_of(K, |_| ());
        assert!(befores.bytes == 0 && befores.spare.is_empty(), "so long a buffer is not kept");
        for _ in 0..2 * SPARE_MAX {
            befores.note(item(K, b"short", DURABLE), NOT_IN_LOG);
        }
        befores.end_until(NOT_IN_LOG, |_| ());
        assert_eq!(befores.spare.len(), SPARE_MAX);
        assert_eq!(befores.buffer_of(b"key"), b"key");
        assert!(befores.spare.len() < SPARE_MAX);
    }

    /// They come and go, so that places are left behind, and the table grows as far as it can.
    #[test]
    fn the_table_of_very_many_short_entries_takes_no_more_than_their_bound_either() {
        let (mut befores, mut most) = (Befores::default(), 0);
        for round in 7..40_u32 {
            for number in 0..2000_u64 {
                let hash = (u64::from(round) * 2000 + number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                befores.note(absent((b"k", KeyHash(hash)), DURABLE), up_to(round));
            }
            assert!(befores.bytes.max(befores.all.allocation_size()) <= BYTES_MAX);
            most = most.max(befores.all.len());
            befores.end_until(up_to(round - 6), |_| ());
        }
        assert!(BYTES_MAX / 2 / PLACE_BYTES < most, "{most}");
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
