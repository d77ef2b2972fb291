//! `get`s: the lines of a pipeline, and the keys of a line, in their order.
//!
//! Lines of one key each that follow each other are parsed once, and many keys are read together
//! (`laneway_store::Group`), whether they stand in one line or in several: their lookups overlap
//! instead of being waited for one by one (MICA §4.4), and each reply is written to its place at
//! once. Whatever is not simply a small item or a miss, or is not this worker's to answer, is
//! served as a key alone is, between its neighbours.
//!
//! A large value in the middle makes the rest wait for its transfer; a full reply buffer makes it
//! wait for the next turn.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::{self, Outcome};
use crate::jobs::hand_over::KeysLeft;
use crate::latency::{self, Operation};
use crate::request::requests::writes;
use crate::request::sought::Simple;
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{KEYS_PER_TURN, OUT_BYTES_PER_TURN, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::Design;
use laneway_store::{GROUP, KeyHash, Sought};
use laneway_transport::Transport;
use laneway_wire::reply::END;
use laneway_wire::{Get, GetVerb, Keys, Request, parse};

/// Keys of a multiget that go to the executor together: it brings as many into memory at once.
const KEPT_KEYS: usize = 64;

const _: () = assert!(GROUP <= KEYS_PER_TURN && KEYS_PER_TURN <= u16::MAX as usize);

const NO_LINE: KeysLeft<'_> =
    KeysLeft { verb: GetVerb::Get, exptime: 0, line: &[], text: &[], at: 0 };

/// Where the keys of a group stand.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// In one line, whose end comes later.
    Together(KeysLeft<'a>),
    /// Each is the only key of a line.
    Alone(&'a [KeysLeft<'a>]),
}

/// The only key of a `get`.
fn only_key<'a>(get: &Get<'a>) -> Option<&'a [u8]> {
    let mut keys = get.keys;
    let key = keys.next()?;
    keys.rest().is_empty().then_some(key)
}

/// The line of a `get` of one key, from that key on.
fn line_of<'a>(get: &Get<'_>, key: &'a [u8], line: &'a [u8]) -> KeysLeft<'a> {
    let key_at = offset_in(line, key);
    KeysLeft { verb: get.verb, exptime: get.exptime, line: &line[key_at..], text: key, at: 0 }
}

/// Where `part` begins, which is a part of `whole`.
fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// A step within the keys of a line as one within the input: the line begins at `from`, its keys at
/// `keys_at`.
fn in_input<S>(
    connection: &mut Connection<S>,
    step: Step,
    (from, keys_at): (usize, usize),
) -> Step {
    match step {
        Step::Took(bytes) => Step::Took(keys_at + bytes),
        // Nothing of the line was served yet: a large worker begins with it.
        Step::Stop(0, Stop::Hand) => {
            connection.mode = Mode::Requests;
            Step::Stop(from, Stop::Hand)
        }
        Step::Stop(bytes, stop) => Step::Stop(keys_at + bytes, stop),
    }
}

impl<T: Transport> Core<T> {
    /// Whether it is known of a key, before its item is looked for, that another worker answers.
    fn is_handed(&self, get: &Get<'_>, key: &[u8]) -> bool {
        self.hands_unseen && self.queue_for(key, writes(get.verb), 0).is_some()
    }
}

impl<T: Transport> Streams<T> {
    /// The `get` at the front of `rest`, whose line ends at `head`, and those behind it that can be
    /// read with it, `most` at most. Returns how many were begun, too.
    pub(crate) fn gets(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (get, head): (&Get<'_>, usize),
        rest: &[u8],
        most: usize,
    ) -> (Step, usize) {
        if head < rest.len()
            && most > 1
            && let Some(key) = only_key(get)
            && !core.is_handed(get, key)
        {
            return self.gets_in_a_row(core, connection, (get, head, key), rest, most);
        }
        if head == rest.len()
            && let Some(to) = core.offer_get(get)
        {
            return (self.hand_request(core, connection, to, rest, 0), 1);
        }
        // The keys stand at the end of the line: serve from where they begin.
        let keys_at = offset_in(rest, get.keys.rest());
        let keys = &rest[keys_at..head];
        let step = self.keys(core, connection, get.verb, get.exptime, keys);
        (in_input(connection, step, (0, keys_at)), 1)
    }

    /// Lines of one key each, from the front of `rest` on.
    fn gets_in_a_row(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (get, head, key): (&Get<'_>, usize, &[u8]),
        rest: &[u8],
        most: usize,
    ) -> (Step, usize) {
        let (mut keys, mut lines) = ([&[][..]; GROUP], [NO_LINE; GROUP]);
        (keys[0], lines[0]) = (key, line_of(get, key, &rest[..head]));
        let mut found = 1;
        let mut at = head;
        // What may turn out to be another's stops the turn there, and the rest is looked up again.
        let group = if core.hands_unseen { GROUP / 2 } else { GROUP };
        while found < most.min(group)
            && let Ok(Some(frame)) = parse(&rest[at..], &core.limits)
            && let Request::Get(get) = &frame.request
            && let Some(key) = only_key(get)
            && !core.is_handed(get, key)
        {
            let line = &rest[at..][..frame.head_bytes];
            if at + line.len() == rest.len() && core.offers.get() > 0 {
                break; // the last of the input may be offered to others
            }
            (keys[found], lines[found]) = (key, line_of(get, key, line));
            at += line.len();
            found += 1;
        }
        let (keys, lines) = (&keys[..found], &lines[..found]);
        core.shared.store.seek(&mut core.group, keys);
        match self.answer_group(core, connection, Asked::Alone(lines), keys) {
            None => (Step::Took(at), found),
            Some((number, step)) => {
                // A line begins where the one before it ends.
                let before = number.checked_sub(1).map(|number| lines[number].line);
                let from = before.map_or(0, |line| offset_in(rest, line) + line.len());
                let keys_at = offset_in(rest, keys[number]);
                (in_input(connection, step, (from, keys_at)), number + 1)
            }
        }
    }
}

impl<T: Transport> Core<T> {
    /// Count what was answered simply: as [`Core::account`] does for each, but once for all.
    pub(crate) fn account_simple(&self, connection: &mut Connection<T::Stream>, simple: &Simple) {
        let requests = simple.requests();
        if requests == 0 {
            return;
        }
        self.count_simple(simple);
        connection.tally.add_many(
            latency::row(Operation::Get, false),
            requests as u16,
            connection.found_nanos,
        );
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
                self.answer_group(core, connection, Asked::Together(all), &[key])
            } else {
                self.key_group(core, connection, all, (&mut keys, &mut served))
            };
            if let Some((_, step)) = stop {
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
    ) -> Option<Step> {
        let KeysLeft { verb, exptime, line, text, at } = left;
        if let Some(to) = core.queue_for(key, writes(verb), 0) {
            return Some(self.hand_keys(core, connection, to, left, (usize::MAX, 0)));
        }
        let (after, before) = (at + key.len(), self.out.len());
        let expires = execute::expires_at(exptime, core.now);
        let outcome = execute::get_key(&core.context(), verb, expires, key, hash, &mut self.out);
        let size = core.touched.get();
        let to = match outcome {
            Outcome::Kept => Some((EXECUTOR, KEPT_KEYS)),
            Outcome::Elsewhere if core.plan.design != Design::Lanes => {
                Some((core.queue_for_size(size), 1))
            }
            _ => None,
        };
        if let Some((to, most)) = to {
            return Some(self.hand_keys(core, connection, to, left, (most, size)));
        }
        if matches!(outcome, Outcome::Elsewhere) {
            let line_bytes = line.len() - at;
            connection.mode = Mode::Keys { verb, exptime, line_bytes };
            return Some(Step::Stop(at, Stop::Hand));
        }
        core.count_hot(key, writes(verb));
        if matches!(outcome, Outcome::Transfer(_)) {
            self.send_before_large(core, connection, before);
            core.note_key(connection, key, size);
        }
        core.account(connection, Operation::Get, size);
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

    /// The next keys, read together. Returns at which of them the turn stops and how, if it does.
    #[inline(never)]
    fn key_group<'a>(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        all: KeysLeft<'a>,
        (keys, served): (&mut Keys<'a>, &mut usize),
    ) -> Option<(usize, Step)> {
        let mut texts = [&[][..]; GROUP];
        let most = GROUP.min(KEYS_PER_TURN - *served);
        let found = keys.take_into(&mut texts[..most]);
        *served += found;
        let texts = &texts[..found];
        core.shared.store.seek(&mut core.group, texts);
        self.answer_group(core, connection, Asked::Together(all), texts)
    }

    /// The answers for the keys of the group. Returns at which key the turn stops and how, if it
    /// does.
    pub(crate) fn answer_group(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        asked: Asked<'_>,
        keys: &[&[u8]],
    ) -> Option<(usize, Step)> {
        let mut simple = Simple::default();
        let mut stop = None;
        for (number, key) in keys.iter().enumerate() {
            match core.sought(asked.verb(number), number, key, &mut self.out) {
                Sought::Copied(bytes) => core.note_hit(&mut simple, key, bytes),
                Sought::Miss => core.note_miss(&mut simple, key),
                Sought::Otherwise => {
                    // A visit counts what is small between large ones: in their order.
                    core.account_simple(connection, &std::mem::take(&mut simple));
                    let hash = core.group.hash(number);
                    stop = self.key(core, connection, asked.from(number, key), key, hash);
                }
            }
            if stop.is_none() && self.out.len() >= OUT_BYTES_PER_TURN {
                let left = asked.from(number, key);
                stop = Some(left.wait_from(connection, left.at + key.len()));
            }
            if let Some(step) = stop {
                core.account_simple(connection, &simple);
                return Some((number, step));
            }
            if matches!(asked, Asked::Alone(_)) {
                self.out.extend_from_slice(END);
            }
        }
        core.account_simple(connection, &simple);
        None
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
