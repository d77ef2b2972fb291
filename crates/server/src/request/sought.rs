//! The answer for one key of a group whose keys are read together (`laneway_store::Group`), where
//! it is simply a small item or a miss, and this worker's to give. Streams and datagrams ask here,
//! for `get`s and for `mg`s; whatever is not simple they execute as a key alone.

use crate::built::OBSERVES;
use crate::core::Core;
use crate::durable::pending_writes::Sight;
use crate::event_log::Class;
use crate::execute::{META_HEAD_BYTES_MAX, is_plain, put_plain_head, tells_of_mark};
use crate::request::requests::writes;
use laneway_policy::{FRAME_BYTES, ItemBytes};
use laneway_store::{FoundItem, KeyHash, Sought, meter};
use laneway_sync::append::{Appending, SHORT};
use laneway_transport::Transport;
use laneway_wire::reply::{CRLF, Sink, VALUE_HEAD_BYTES_MAX, put_value_head};
use laneway_wire::{GetVerb, Meta};

/// What was answered simply, and not counted yet.
#[derive(Default)]
pub(crate) struct Simple {
    hits: u64,
    misses: u64,
    /// Of both, those that `mg` asked for.
    pub(crate) metas: u64,
    /// Of hits, those beyond the first of each.
    packets_more: u64,
}

impl Simple {
    pub(crate) fn requests(&self) -> u64 {
        self.hits + self.misses
    }
}

/// The head of a reply goes where its value goes.
pub(crate) struct Head<'o, 'v>(pub(crate) &'o mut Appending<'v>);

impl Sink for Head<'_, '_> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.0.put(bytes);
    }
    #[inline(always)]
    fn put_short(&mut self, bytes: &[u8; SHORT], length: usize) {
        self.0.put_short(bytes, length);
    }
}

impl<T: Transport> Core<T> {
    /// How far this worker sees before it looks for the item of `key`; `None` where another
    /// answers, or where more is asked than to read it.
    #[inline(never)]
    fn sight_of(&self, verb: GetVerb, key: &[u8]) -> Option<Sight> {
        let is_mine = !writes(verb) && self.queue_for(key, false, 0).is_none();
        is_mine.then(|| self.context().sight())
    }

    /// Whether memory alone does not say what the answer is: the item is being changed durably, or
    /// the tier may have what memory has not.
    #[inline(never)]
    fn may_differ(&self, sought: Sought, hash: KeyHash, sight: Sight) -> bool {
        let context = self.context();
        match sought {
            Sought::Copied(_) => context.is_hidden(hash, sight),
            Sought::Miss => context.pending_writes.is_some(),
            Sought::Otherwise => false,
        }
    }

    #[inline(always)]
    pub(crate) fn note_hit(&mut self, simple: &mut Simple, key: &[u8], bytes: u64) {
        self.count_hot(key, false);
        self.note_found(simple, key, bytes);
    }

    #[inline(always)]
    pub(crate) fn note_miss(&mut self, simple: &mut Simple, key: &[u8]) {
        self.count_hot(key, false);
        self.note_missed(simple, key);
    }

    /// The same of a request that no design hands over ([`Core::sample_uncounted`]).
    #[inline(always)]
    pub(crate) fn note_hit_uncounted(&mut self, simple: &mut Simple, key: &[u8], bytes: u64) {
        self.sample_uncounted(key, false);
        self.note_found(simple, key, bytes);
    }

    #[inline(always)]
    pub(crate) fn note_miss_uncounted(&mut self, simple: &mut Simple, key: &[u8]) {
        self.sample_uncounted(key, false);
        self.note_missed(simple, key);
    }

    #[inline(always)]
    fn note_found(&self, simple: &mut Simple, key: &[u8], bytes: u64) {
        let size = ItemBytes(bytes);
        simple.hits += 1;
        if OBSERVES && size > FRAME_BYTES {
            simple.packets_more += size.packets().0 - 1;
        }
        let here = &self.shared.workers[self.id.index()];
        here.record_size_owner(size);
        if self.events.watches(Class::Fetchers) {
            self.log_sought(key, Some(bytes - key.len() as u64));
        }
    }

    #[inline(always)]
    fn note_missed(&self, simple: &mut Simple, key: &[u8]) {
        simple.misses += 1;
        if self.events.watches(Class::Fetchers) {
            self.log_sought(key, None);
        }
    }

    #[cold]
    #[inline(never)]
    fn log_sought(&self, key: &[u8], value_bytes: Option<u64>) {
        self.context().log_get(key, value_bytes);
    }

    /// Count what was answered simply: as [`Core::count`] does for each, but once for all.
    pub(crate) fn count_simple(&self, simple: &Simple) {
        let Simple { hits, misses, metas, packets_more } = *simple;
        let requests = simple.requests();
        meter::keys(requests as usize);
        let counters = self.counters();
        counters.cmd_get.add_owner(requests);
        counters.get_hits.add_owner(hits);
        counters.get_misses.add_owner(misses);
        counters.cmd_meta.add_owner(metas);
        if OBSERVES {
            self.lanes().packets.add_owner(requests + packets_more);
        }
        self.lanes().requests_small.add_owner(requests);
    }

    /// How far this worker sees before it looks for an item, where items are kept durably.
    #[inline]
    pub(crate) fn sight_of_kept(&self) -> Option<Sight> {
        let keeps = self.shared.durable.get().is_some();
        keeps.then(|| self.context().sight())
    }

    /// The answer for one key of the group, if it is a small item or a miss. `sight`: where memory
    /// alone may not say what it is. `head_and_tail`: bytes of the head at most, and what stands
    /// behind the value.
    #[inline(always)]
    pub(crate) fn answer_sought(
        &self,
        (number, key): (usize, &[u8]),
        sight: Option<Sight>,
        out: &mut Vec<u8>,
        head_and_tail: (usize, &[u8]),
        head: impl FnOnce(&FoundItem<'_>, &mut Appending<'_>) -> bool,
    ) -> Sought {
        let start = out.len();
        let sought = self.shared.store.get_sought(
            (&self.group, number, key),
            self.now,
            self.plan.threshold.0,
            out,
            head_and_tail,
            head,
        );
        if let Some(sight) = sight
            && self.may_differ(sought, self.group.hash(number), sight)
        {
            out.truncate(start);
            return Sought::Otherwise;
        }
        sought
    }

    /// The answer for one key of the group, if it is simple and this worker's to give.
    #[inline]
    pub(crate) fn sought(
        &self,
        verb: GetVerb,
        number: usize,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Sought {
        let asks = self.hands_unseen || writes(verb);
        let sight = if asks { self.sight_of(verb, key) } else { None };
        if asks && sight.is_none() {
            return Sought::Otherwise;
        }
        let cas_enabled = self.execute_settings.cas_enabled;
        let around = (VALUE_HEAD_BYTES_MAX, CRLF);
        self.answer_sought((number, key), sight, out, around, |item, out| {
            let seq = if cas_enabled { item.seq() } else { 0 };
            let cas = (verb == GetVerb::Gets).then_some(seq);
            put_value_head(&mut Head(out), key, item.flags(), item.value_bytes(), cas);
            true
        })
    }

    /// The answer for one key of the group, if it is simple and this worker's to give.
    pub(crate) fn meta_sought(
        &self,
        meta: &Meta<'_>,
        number: usize,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Sought {
        if !is_plain(meta) || meta.key.token != key {
            return Sought::Otherwise;
        }
        let asks = self.hands_unseen;
        let sight = if asks { self.sight_of(GetVerb::Get, key) } else { None };
        if asks && sight.is_none() {
            return Sought::Otherwise;
        }
        // To look marks the item, and whoever answers instead would tell of that.
        if let Some(sight) = sight
            && tells_of_mark(meta)
            && self.may_differ(Sought::Copied(0), self.group.hash(number), sight)
        {
            return Sought::Otherwise;
        }
        let context = self.context();
        let around = (META_HEAD_BYTES_MAX, CRLF);
        self.answer_sought((number, key), sight, out, around, |item, out| {
            put_plain_head(&context, meta, &item.meta(), &mut Head(out))
        })
    }
}
