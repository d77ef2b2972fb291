//! The keys of a `get`, in their order. Many are read together (`laneway_store::Group`): the line
//! is scanned once, the lookups overlap, and each reply is written to its place at once. Whatever
//! is not simply a small item or a miss, or is not this worker's to answer, is served as a key
//! alone is, between its neighbours.
//!
//! A large value in the middle makes the rest wait for its transfer; a full reply buffer makes it
//! wait for the next turn.

use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::durable::shared::KEEPER;
use crate::durable::veil::Sight;
use crate::execute::{self, Outcome};
use crate::hand_over::KeysLeft;
use crate::latency::{self, Operation};
use crate::requests::writes;
use crate::step::{KEYS_PER_TURN, OUT_BYTES_PER_TURN, Step, Stop};
use crate::streams::Streams;
use laneway_policy::{Design, ItemBytes};
use laneway_store::{GROUP, KeyHash, Sought, meter};
use laneway_sync::append::{Appending, SHORT};
use laneway_transport::Transport;
use laneway_wire::reply::{CRLF, END, Sink, VALUE_HEAD_BYTES_MAX, put_value_head};
use laneway_wire::{GetVerb, Keys};
use std::cell::Cell;

/// Keys of a multiget that go to the keeper together: it brings as many into memory at once.
const KEPT_KEYS: usize = 64;

const _: () = assert!(GROUP <= KEYS_PER_TURN && KEYS_PER_TURN <= u16::MAX as usize);

/// What was answered simply, and not counted yet.
#[derive(Default)]
pub(crate) struct Simple {
    hits: u64,
    misses: u64,
    /// Of both, those that `mg` asked for.
    pub(crate) metas: u64,
    packets: u64,
}

impl Simple {
    pub(crate) fn requests(&self) -> u64 {
        self.hits + self.misses
    }
}

/// Where the keys of a group stand.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// In one line, whose end comes later.
    Together(KeysLeft<'a>),
    /// Each is the only key of a line.
    Alone(&'a [KeysLeft<'a>]),
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
    pub(crate) fn sight_of(&self, verb: GetVerb, key: &[u8]) -> Option<Sight> {
        let is_mine = !writes(verb) && self.queue_for(key, false, 0).is_none();
        is_mine.then(|| self.context(&Cell::new(0)).sight())
    }

    /// Whether memory alone does not say what the answer is: the item is being changed durably, or
    /// the tier may have what memory has not.
    #[inline(never)]
    pub(crate) fn may_differ(&self, sought: Sought, hash: KeyHash, sight: Sight) -> bool {
        let touched = Cell::new(0);
        let context = self.context(&touched);
        match sought {
            Sought::Copied(_) => context.is_hidden(hash, sight),
            Sought::Miss => context.veil.is_some(),
            Sought::Otherwise => false,
        }
    }

    #[inline(always)]
    pub(crate) fn note_hit(&mut self, simple: &mut Simple, key: &[u8], bytes: u64) {
        let size = ItemBytes(bytes);
        simple.hits += 1;
        simple.packets += size.packets().0;
        let here = &self.shared.workers[self.id.index()];
        here.record_size_owner(size);
        self.count_hot(key, false);
    }

    #[inline(always)]
    pub(crate) fn note_miss(&mut self, simple: &mut Simple, key: &[u8]) {
        simple.misses += 1;
        simple.packets += ItemBytes(0).packets().0;
        self.count_hot(key, false);
    }

    /// Count what was answered simply: as [`Core::account`] does for each, but once for all.
    pub(crate) fn account_simple(
        &self,
        connection: &mut Connection<T::Stream>,
        simple: &Simple,
        arrived: u64,
    ) {
        let Simple { hits, misses, metas, packets } = *simple;
        let requests = simple.requests();
        if requests == 0 {
            return;
        }
        meter::keys(requests as usize);
        let counters = self.counters();
        counters.cmd_get.add_owner(requests);
        counters.get_hits.add_owner(hits);
        counters.get_misses.add_owner(misses);
        counters.cmd_meta.add_owner(metas);
        self.lanes().packets.add_owner(packets);
        self.lanes().requests_small.add_owner(requests);
        connection.tally.add_many(latency::row(Operation::Get, false), requests as u16, arrived);
        if let Some(visit) = &mut connection.visit {
            (0..requests).for_each(|_| visit.small_served());
        }
    }
}

impl<T: Transport> Streams<T> {
    /// The keys in `line`, which is the rest of a line, its newline included.
    pub(crate) fn keys(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        verb: GetVerb,
        exptime: i64,
        line: &[u8],
        arrived: u64,
    ) -> Step {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let all = KeysLeft { verb, exptime, line, text, at: 0 };
        let mut keys = Keys::new(text);
        let mut served = 0;
        loop {
            let mut rest = keys;
            let Some(key) = rest.next() else { break };
            let stop = if rest.rest().is_empty() {
                keys = rest;
                served += 1;
                let store = &core.shared.store;
                store.seek_one(&mut core.group, store.hash(key));
                self.answer_one_line(core, connection, all, &[key], arrived)
            } else {
                self.key_group(core, connection, all, (&mut keys, &mut served), arrived)
            };
            if let Some(step) = stop {
                return step;
            }
            if served >= KEYS_PER_TURN {
                return all.wait_from(connection, text.len() - keys.rest().len());
            }
        }
        self.out.extend_from_slice(END);
        connection.mode = Mode::Requests;
        Step::Took(line.len())
    }

    /// One key, whatever its item is. Returns how the turn stops, if it does.
    fn key(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        left: KeysLeft<'_>,
        key: &[u8],
        hash: KeyHash,
        arrived: u64,
    ) -> Option<Step> {
        let KeysLeft { verb, exptime, line, text, at } = left;
        if let Some(to) = core.queue_for(key, writes(verb), 0) {
            return Some(self.hand_keys(core, connection, to, left, (usize::MAX, 0), arrived));
        }
        let after = at + key.len();
        let touched = Cell::new(0);
        let expires = execute::expires_at(exptime, core.now_seconds);
        let outcome =
            execute::get_key(&core.context(&touched), verb, expires, key, hash, &mut self.out);
        if matches!(outcome, Outcome::Kept) {
            let size = touched.get();
            return Some(self.hand_keys(
                core,
                connection,
                KEEPER,
                left,
                (KEPT_KEYS, size),
                arrived,
            ));
        }
        if matches!(outcome, Outcome::Elsewhere) {
            if core.plan.design != Design::Lanes {
                let to = core.queue_for_size(touched.get());
                return Some(self.hand_keys(
                    core,
                    connection,
                    to,
                    left,
                    (1, touched.get()),
                    arrived,
                ));
            }
            let line_bytes = line.len() - at;
            connection.mode = Mode::Keys { verb, exptime, line_bytes };
            return Some(Step::Stop(at, Stop::Hand));
        }
        core.count_hot(key, writes(verb));
        core.account(connection, Operation::Get, touched.get(), arrived);
        if let Outcome::Transfer(transfer) = outcome {
            let none_left = Keys::new(&text[after..]).next().is_none();
            let taken = if none_left { line.len() } else { after };
            let line_bytes = line.len() - taken;
            connection.mode = Mode::Keys { verb, exptime, line_bytes };
            self.begin_transfer(core, connection, transfer, none_left);
            return Some(Step::Stop(taken, Stop::Large));
        }
        let is_full = self.out.len() >= OUT_BYTES_PER_TURN;
        is_full.then(|| left.wait_from(connection, after))
    }

    /// The next keys, read together. Returns how the turn stops, if it does.
    #[inline(never)]
    fn key_group<'a>(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        all: KeysLeft<'a>,
        (keys, served): (&mut Keys<'a>, &mut usize),
        arrived: u64,
    ) -> Option<Step> {
        let mut texts = [&[][..]; GROUP];
        let most = GROUP.min(KEYS_PER_TURN - *served);
        let found = keys.take_into(&mut texts[..most]);
        *served += found;
        let texts = &texts[..found];
        core.shared.store.seek(&mut core.group, texts);
        self.answer_one_line(core, connection, all, texts, arrived)
    }

    fn answer_one_line(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        all: KeysLeft<'_>,
        keys: &[&[u8]],
        arrived: u64,
    ) -> Option<Step> {
        self.answer_group(core, connection, Asked::Together(all), keys, arrived)
            .map(|(_, step)| step)
    }

    /// The answers for the keys of the group. Returns at which key the turn stops and how, if it
    /// does.
    pub(crate) fn answer_group(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        asked: Asked<'_>,
        keys: &[&[u8]],
        arrived: u64,
    ) -> Option<(usize, Step)> {
        let mut simple = Simple::default();
        let mut stop = None;
        for (number, key) in keys.iter().enumerate() {
            match self.sought(core, asked.verb(number), number, key) {
                Sought::Copied(bytes) => core.note_hit(&mut simple, key, bytes),
                Sought::Miss => core.note_miss(&mut simple, key),
                Sought::Otherwise => {
                    // A visit counts what is small between large ones: in their order.
                    core.account_simple(connection, &std::mem::take(&mut simple), arrived);
                    let hash = core.group.hash(number);
                    stop = self.key(core, connection, asked.from(number, key), key, hash, arrived);
                }
            }
            if stop.is_none() && self.out.len() >= OUT_BYTES_PER_TURN {
                let left = asked.from(number, key);
                stop = Some(left.wait_from(connection, left.at + key.len()));
            }
            if let Some(step) = stop {
                core.account_simple(connection, &simple, arrived);
                return Some((number, step));
            }
            if matches!(asked, Asked::Alone(_)) {
                self.out.extend_from_slice(END);
            }
        }
        core.account_simple(connection, &simple, arrived);
        None
    }

    /// The answer for one key of the group, if it is simple and this worker's to give.
    #[inline]
    fn sought(&mut self, core: &Core<T>, verb: GetVerb, number: usize, key: &[u8]) -> Sought {
        #[cfg(feature = "needless-allocation")]
        std::hint::black_box(Vec::<u8>::with_capacity(key.len()));
        let asks = core.hands_unseen || writes(verb);
        let (start, mut sight) = (self.out.len(), Sight::default());
        if asks {
            match core.sight_of(verb, key) {
                Some(seen) => sight = seen,
                None => return Sought::Otherwise,
            }
        }
        let cas_enabled = core.execute_settings.cas_enabled;
        let sought = core.shared.store.get_sought(
            (&core.group, number, key),
            core.now_seconds,
            core.plan.threshold.0,
            &mut self.out,
            (VALUE_HEAD_BYTES_MAX, CRLF),
            |item, out| {
                let seq = if cas_enabled { item.seq() } else { 0 };
                let cas = (verb == GetVerb::Gets).then_some(seq);
                put_value_head(&mut Head(out), key, item.flags(), item.value_bytes(), cas);
                true
            },
        );
        if asks && core.may_differ(sought, core.group.hash(number), sight) {
            self.out.truncate(start);
            return Sought::Otherwise;
        }
        sought
    }
}

impl<'a> Asked<'a> {
    fn verb(self, number: usize) -> GetVerb {
        match self {
            Asked::Together(all) => all.verb,
            Asked::Alone(lines) => lines[number].verb,
        }
    }

    /// What is left from a key on.
    fn from(self, number: usize, key: &[u8]) -> KeysLeft<'a> {
        match self {
            Asked::Together(all) => all.from(key),
            Asked::Alone(lines) => lines[number],
        }
    }
}

impl<'a> KeysLeft<'a> {
    /// The same from a key on, which stands in the text.
    fn from(self, key: &[u8]) -> KeysLeft<'a> {
        KeysLeft { at: key.as_ptr() as usize - self.text.as_ptr() as usize, ..self }
    }

    /// The keys from `at` on wait for the next turn.
    fn wait_from<S>(self, connection: &mut Connection<S>, at: usize) -> Step {
        let KeysLeft { verb, exptime, line, .. } = self;
        connection.mode = Mode::Keys { verb, exptime, line_bytes: line.len() - at };
        Step::Stop(at, Stop::Quota)
    }
}
