//! A small store of an executor's own, in which requests about several keys are tried out.
//!
//! Who is to change several keys in one moment copies their items in here, has the ordinary code
//! execute the requests on the copies, and then makes the same changes where the items are: in one
//! moment, if the items are still those that were copied (optimistic concurrency control, as in
//! Silo, SOSP'13, §4.4). If not, nothing was done, and it begins again.
//!
//! So the commands are the same here and everywhere else. What may be copied is bounded, about as
//! much as a slice of a large value. What a try counts is kept apart, and told where it counts once
//! the requests are done: it may be in vain. It knows no connection and no clock.

use crate::counts::counters::Counters;
use crate::execute::redis::{self, Asking, Watched, words_of_refused};
use crate::execute::{Context, Outcome, Spot};
use crate::latency::Operation;
use crate::resp::one::{operation, operation_of, plain, store};
use crate::resp::options::{self, Refusal};
use crate::resp::table::{Command, Spec, find};
use crate::resp::values::{self, How, PAIR, Value};
use laneway_store::{Config, Draft, Got, ItemMeta, KeyHash, Mode, Moment, Pinned, Refused, Store};
use laneway_wire::resp::reply::{OK, put_array_head, put_bulk, put_integer, put_simple};
use laneway_wire::resp::{Args, Scan, Scanned};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Keys whose items change in one moment, at most.
pub const KEYS_MAX: usize = 64;
/// Requests of one transaction behind `WATCH`, at most.
pub const REQUESTS_MAX: u32 = 512;
/// Bytes of these requests, of the items that they read, and of their replies, at most.
pub const BYTES_MAX: usize = 64 << 10;
/// Bytes of the values that the requests read or make, one after the other, at most.
const MOVED_MAX: usize = 2 * BYTES_MAX;
/// The longest item that can come of them.
const ITEM_BYTES_MAX: u64 = 4 * BYTES_MAX as u64;
/// Each of the sizes of items takes a piece of memory of its own.
const MEMORY_BYTES: u64 = 16 << 20;

/// It is more than may be copied.
pub const TOO_MUCH: &[u8] = b"-ERR what changes in one moment (MSETNX, RENAME, EXEC behind WATCH) \
may be up to 64 keys and 64 KiB of requests, of items and of replies, and values of 128 KiB may \
be read or made; nothing was done\r\n";
/// There is no memory for the copies.
const NO_SCRATCH: &[u8] = b"-ERR there is no memory to change several keys in one moment\r\n";

/// Whether a command can be part of what changes in one moment.
pub fn is_tried(spec: &Spec) -> bool {
    match spec.command {
        Command::Watch => false,
        Command::Ping | Command::Echo | Command::Unwatch => true,
        _ => spec.keys.0 == 1,
    }
}

/// Whole requests, one behind the other, each with the arguments behind its name.
pub struct Requests<'a>(pub &'a [u8]);

impl<'a> Iterator for Requests<'a> {
    type Item = (&'static Spec, Args<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let scanned = Scan::default().advance(self.0);
        let Ok(Scanned::Whole(mut args, bytes)) = scanned else { return None };
        self.0 = &self.0[bytes..];
        Some((find(args.next()?)?, args))
    }
}

/// Whether all of these requests can be part of what changes in one moment.
pub fn are_tried(requests: &[u8]) -> bool {
    Requests(requests).all(|(spec, _)| is_tried(spec))
}

/// The keys among a command's arguments.
pub fn keys_of<'a>(spec: &Spec, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
    let (first, last, step) = spec.keys;
    let skipped = usize::try_from(first - 1);
    let count = match (skipped, last) {
        (Err(_), _) => 0, // it has none
        (_, ..0) => usize::MAX,
        (_, last) => (last - first + 1) as usize,
    };
    args.skip(skipped.unwrap_or(0)).take(count).step_by((step as usize).max(1))
}

/// What some requests are about.
pub struct Keys<'a> {
    /// The keys of the requests, once each.
    pub asked: BTreeSet<&'a [u8]>,
    /// Those that are watched, and nothing else is asked of.
    pub watched: BTreeSet<&'a [u8]>,
}

impl<'a> Keys<'a> {
    /// Of these requests, and of what is watched.
    pub fn of(requests: &'a [u8], watched: &'a [Watched]) -> Result<Keys<'a>, &'static [u8]> {
        if requests.len() > BYTES_MAX {
            return Err(TOO_MUCH);
        }
        let mut watched: BTreeSet<&[u8]> = watched.iter().map(|watched| &*watched.key).collect();
        let mut asked = BTreeSet::new();
        for (spec, args) in Requests(requests) {
            // A request with a key that is none is refused when it is tried out.
            for key in keys_of(spec, args).filter(|key| options::key(key).is_ok()) {
                watched.remove(key);
                asked.insert(key);
                if asked.len() + watched.len() > KEYS_MAX {
                    return Err(TOO_MUCH);
                }
            }
        }
        Ok(Keys { asked, watched })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.asked.len() + self.watched.len()
    }
}

/// A key that was asked about, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What was asked.
    pub operation: Operation,
    /// Bytes of key and value, of what is stored or of what was read; 0 if there is neither.
    pub size: u64,
    /// Bytes of the value that it found, if it is told as a fetch.
    pub found: Option<u64>,
}

impl Asked<'_> {
    /// Whether it counts as a write of the key.
    pub fn writes(&self) -> bool {
        !matches!(self.operation, Operation::Get | Operation::Other)
    }

    /// Tells the event log of it, if it was a read or a touch.
    pub fn log(&self, context: &Context<'_>) {
        if matches!(self.operation, Operation::Get | Operation::Touch) {
            context.log_get(self.key, self.found);
        }
    }
}

/// A key whose item was copied.
struct Copied {
    key: Box<[u8]>,
    /// The item that was copied; none if there was none.
    before: Option<ItemMeta>,
    /// The sequence of the copy.
    seq: Option<u64>,
    /// It is watched alone: nothing was copied.
    is_noted: bool,
}

/// A key whose item is to be changed.
pub struct Change {
    /// Which of the keys that were copied.
    pub number: usize,
    /// The item to be; none if it is to be deleted.
    pub item: Option<NewItem>,
}

/// An item to be.
pub struct NewItem {
    /// Its value.
    pub value: Vec<u8>,
    /// All else.
    pub meta: ItemMeta,
}

impl NewItem {
    /// The item, ready to be published under this key.
    pub fn draft<'s>(&self, store: &'s Store, key: &[u8]) -> Result<Draft<&'s Store>, Refused> {
        draft_of((&self.value, &self.meta), store, key)
    }
}

fn draft_of<'s>(
    (value, meta): (&[u8], &ItemMeta),
    store: &'s Store,
    key: &[u8],
) -> Result<Draft<&'s Store>, Refused> {
    let mut draft = store.draft_at_once(None, key, meta.flags, meta.expires, value.len())?;
    draft.write(value)?;
    draft.set_marks(meta.stale, meta.token_sent);
    Ok(draft)
}

/// The store, and what was copied into it.
pub struct Scratch {
    store: Arc<Store>,
    copied: Vec<Copied>,
    bytes: usize,
    counters: Counters,
}

impl Scratch {
    /// An empty one; items may have up to so many bytes.
    pub fn new(item_bytes_max: u64) -> Result<Scratch, &'static [u8]> {
        let config = Config {
            memory_bytes: MEMORY_BYTES,
            mode: Mode::Store,
            item_bytes_max: item_bytes_max.min(ITEM_BYTES_MAX),
            buckets_initial: KEYS_MAX as u64,
            ..Config::default()
        };
        let store: io::Result<Arc<Store>> = Store::new(config);
        let store = store.map_err(|_| NO_SCRATCH)?;
        Ok(Scratch { store, copied: Vec::new(), bytes: 0, counters: Counters::default() })
    }

    /// Copies a key's item, which was found so.
    pub fn copy(&mut self, store: &Arc<Store>, key: &[u8], now: Moment) -> Result<bool, Refusal> {
        let mut value = Vec::new();
        let hash: KeyHash = store.hash(key);
        let (before, pinned): (Option<ItemMeta>, Option<Pinned>) =
            match store.get(hash, key, now, &mut value, &mut |_, _| {}) {
                Got::Miss => (None, None),
                Got::Copied(meta) => (Some(meta), None),
                Got::Large(meta, pinned) => (Some(meta), Some(pinned)),
            };
        let bytes = before.map_or(0, |meta| meta.value_bytes as usize);
        self.bytes += key.len() + bytes;
        if self.bytes > BYTES_MAX {
            return Err(TOO_MUCH.into());
        }
        if let Some(pinned) = pinned {
            pinned.copy_into(&mut value);
        }
        let seq = match before {
            None => None,
            Some(meta) => {
                let item = NewItem { value, meta };
                let draft = item.draft(&self.store, key).map_err(words_of_refused)?;
                let mut entry = self.store.enter(self.store.hash(key), key, now);
                Some(entry.publish(draft, None))
            }
        };
        self.copied.push(Copied { key: key.into(), before, seq, is_noted: false });
        Ok(before.is_some())
    }

    /// The copies.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Holds an item under a key, with the sequence that it has: its value, and all else of it.
    /// False: there is no room for it.
    pub fn hold(&mut self, key: &[u8], item: (&[u8], &ItemMeta), now: Moment) -> bool {
        let Ok(draft) = draft_of(item, &self.store, key) else { return false };
        let (meta, seq) = (*item.1, item.1.seq);
        self.store.enter(self.store.hash(key), key, now).bring_back(draft, seq);
        let (before, seq) = (Some(meta), Some(seq));
        self.copied.push(Copied { key: key.into(), before, seq, is_noted: false });
        true
    }

    /// Notes a key that is watched and nothing else is asked of, with its item.
    pub fn note(&mut self, key: &[u8], before: Option<ItemMeta>) {
        self.copied.push(Copied { key: key.into(), before, seq: None, is_noted: true });
    }

    /// The last key was not copied as it is.
    pub fn forget_last(&mut self) {
        self.bytes -= self.copied.pop().map_or(0, |copied| copied.key.len());
    }

    /// Whether what is watched was found as it was when it began to be watched.
    pub fn holds(&self, watched: &[Watched]) -> bool {
        watched.iter().all(|watched| {
            let copied = self.copied.iter().find(|copied| copied.key == watched.key);
            watched.holds(copied.and_then(|copied| copied.before.as_ref()))
        })
    }

    /// The keys that were copied or noted.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.copied.iter().map(|copied| &*copied.key)
    }

    /// The key of this number.
    pub fn key(&self, number: usize) -> &[u8] {
        &self.copied[number].key
    }

    /// The item of the key of this number that was copied, if there was one.
    pub fn before(&self, number: usize) -> Option<&ItemMeta> {
        self.copied[number].before.as_ref()
    }

    /// Whether the item of the key of this number is still the one that was copied.
    pub fn is_as_copied(&self, number: usize, found: Option<&ItemMeta>) -> bool {
        redis::is_same(self.copied[number].before.as_ref(), found)
    }

    /// What the requests have counted since the last [`Scratch::clear`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Executes requests on the copies, and notes what they ask about in `asked`. An error says why
    /// nothing of it may count.
    pub fn run<'a>(
        &self,
        requests: &'a [u8],
        asking: &Asking<'_>,
        (asked, out): (&mut Vec<Asked<'a>>, &mut Vec<u8>),
    ) -> Result<(), Refusal> {
        let touched = Cell::new(0);
        let context = Context {
            store: &self.store,
            others: &[],
            hand: None,
            counters: &self.counters,
            touched: &touched,
            large_from: u64::MAX,
            pending_writes: None,
            log: None,
            ..asking.context
        };
        let asking = Asking { context, ..*asking };
        let (start, mut moved) = (out.len(), 0);
        for (spec, args) in Requests(requests) {
            let before = self.moved_by(spec, args, context.now);
            let refused = keys_of(spec, args).find_map(|key| options::key(key).err());
            if let Some(words) = refused {
                out.extend_from_slice(&words);
            } else {
                let told = (&mut *asked, &mut *out);
                if let ControlFlow::Break(words) = serve(&asking, spec, args, told) {
                    return Err(words);
                }
            }
            moved += before.max(self.moved_by(spec, args, context.now));
            if out.len() - start > BYTES_MAX || moved > MOVED_MAX {
                return Err(TOO_MUCH.into());
            }
        }
        Ok(())
    }

    /// Bytes of the values that a request copies, as they are now.
    fn moved_by(&self, spec: &Spec, args: Args<'_>, now: Moment) -> usize {
        if matches!(spec.command, Command::Tell(_) | Command::CountKeys(_) | Command::Persist) {
            return 0;
        }
        let bytes = |key| {
            let found = self.store.peek(self.store.hash(key), key, now);
            found.map_or(0, |meta| meta.value_bytes as usize)
        };
        keys_of(spec, args).filter(|key| options::key(key).is_ok()).map(bytes).sum()
    }

    /// What the requests have changed.
    pub fn changes(&self, now: Moment) -> Vec<Change> {
        let change = |(number, copied): (usize, &Copied)| {
            let (key, hash) = (&copied.key, self.store.hash(&copied.key));
            let Some(meta) = self.store.peek(hash, key, now) else {
                return copied.before.map(|_| Change { number, item: None });
            };
            let end_before = copied.before.map(|before| before.expires);
            if copied.seq == Some(meta.seq) && end_before == Some(meta.expires) {
                return None;
            }
            let mut value = Vec::new();
            if let Got::Large(_, pinned) = self.store.peek_value(hash, key, now, &mut value) {
                pinned.copy_into(&mut value);
            }
            Some(Change { number, item: Some(NewItem { value, meta }) })
        };
        let copied = self.copied.iter().enumerate().filter(|(_, copied)| !copied.is_noted);
        copied.filter_map(change).collect()
    }

    /// Forgets everything.
    pub fn clear(&mut self, now: Moment) {
        for copied in self.copied.drain(..) {
            let hash = self.store.hash(&copied.key);
            self.store.enter(hash, &copied.key, now).unlink();
        }
        self.bytes = 0;
        self.counters = Counters::default();
    }
}

/// Executes one request; a break says why nothing of any of them may count.
fn serve<'a>(
    asking: &Asking<'_>,
    spec: &Spec,
    mut args: Args<'a>,
    (asked, out): (&mut Vec<Asked<'a>>, &mut Vec<u8>),
) -> ControlFlow<Refusal> {
    let context = &asking.context;
    if spec.keys.0 == 0 {
        context.counters.resp_keyless.bump_owner(); // it is in no other count
    }
    let operation = operation(spec.command);
    let mut note = |key: &'a [u8], size: u64| {
        asked.push(Asked { key, operation, size, found: value_bytes_in(key, size) });
    };
    match spec.command {
        Command::Unwatch => {
            out.extend_from_slice(OK);
        }
        Command::Ping | Command::Echo => match (args.next(), args.left()) {
            (None, _) => put_simple(out, b"PONG"),
            (Some(text), 0) => put_bulk(out, text),
            _ => out.extend_from_slice(&spec.wrong_number()),
        },
        Command::GetMany => {
            let start = out.len();
            put_array_head(out, args.left() as usize);
            for key in args {
                context.touched.set(0);
                let outcome = redis::get(asking, key, context.store.hash(key), out);
                finish(outcome, out);
                note(key, context.touched.get());
                if out.len() - start > BYTES_MAX {
                    return ControlFlow::Break(TOO_MUCH.into());
                }
            }
        }
        Command::CountKeys(of) => {
            let mut count = 0;
            for key in args {
                let found = value_bytes_of(context, key);
                asked.push(Asked { key, operation, size: 0, found });
                count += i64::from(redis::count_key(asking, of, key) == Some(true));
            }
            put_integer(out, count);
        }
        Command::SetMany | Command::SetManyAbsent if args.left() % 2 == 1 => {
            out.extend_from_slice(&spec.wrong_number());
        }
        Command::SetMany => {
            let start = out.len();
            while let (Some(key), Some(value)) = (args.next(), args.next()) {
                store(asking, &Value { key, value, how: How::Set(PAIR) }, out);
                note(key, size_of(key, value));
                if out.len() > start {
                    return ControlFlow::Continue(());
                }
            }
            out.extend_from_slice(OK);
        }
        Command::SetManyAbsent => {
            redis::set_all_absent(asking, args, out);
            while let (Some(key), Some(value)) = (args.next(), args.next()) {
                note(key, size_of(key, value));
            }
        }
        Command::Rename { only_absent } => {
            let (from, to) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
            context.touched.set(0);
            redis::rename(asking, (from, to), only_absent, out);
            note(from, context.touched.get());
        }
        _ => return serve_one(asking, spec, args, (asked, out)),
    }
    ControlFlow::Continue(())
}

/// The same of a request about one key.
fn serve_one<'a>(
    asking: &Asking<'_>,
    spec: &Spec,
    args: Args<'a>,
    (asked, out): (&mut Vec<Asked<'a>>, &mut Vec<u8>),
) -> ControlFlow<Refusal> {
    let mut behind = args;
    let key = behind.next().unwrap_or_default();
    let (touched, mut size) = (asking.context.touched, 0);
    touched.set(0);
    let found_before = value_bytes_of(&asking.context, key);
    let mut operation = operation(spec.command);
    let outcome = match values::value_at(spec.command) {
        Some(_) => match values::whole(spec, args) {
            Ok(Value { how: How::Join(Spot::At(from)), .. }) if from > BYTES_MAX => {
                return ControlFlow::Break(TOO_MUCH.into());
            }
            Ok(stored) => {
                size = size_of(key, stored.value);
                operation = operation_of(&stored);
                Ok(store(asking, &stored, out))
            }
            Err(words) => {
                out.extend_from_slice(&words); // it stores nothing, and is not counted
                return ControlFlow::Continue(());
            }
        },
        None => plain(asking, spec, key, behind, out),
    };
    match outcome {
        Ok(outcome) => finish(outcome, out),
        Err(words) => {
            out.extend_from_slice(&words);
            operation = Operation::Other; // nothing was read, nor written
        }
    }
    let size = touched.get().max(size);
    let found = match operation {
        Operation::Touch => found_before,
        _ => value_bytes_in(key, size),
    };
    asked.push(Asked { key, operation, size, found });
    ControlFlow::Continue(())
}

/// Bytes of the value of a key's item, if there is one.
fn value_bytes_of(context: &Context<'_>, key: &[u8]) -> Option<u64> {
    let found = context.store.peek(context.store.hash(key), key, context.now);
    found.map(|meta| meta.value_bytes.into())
}

/// Bytes of the value of an item of so many bytes, if there is one.
fn value_bytes_in(key: &[u8], size: u64) -> Option<u64> {
    size.checked_sub(key.len() as u64)
}

/// Bytes of an item.
fn size_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// The rest of a reply with a large value, copied: it holds none of the store's memory.
pub fn finish(outcome: Outcome, out: &mut Vec<u8>) {
    if let Outcome::Transfer(rest) = outcome {
        let mut value = Vec::new();
        rest.value.copy_into(&mut value);
        out.extend_from_slice(&value[rest.part]);
        out.extend_from_slice(rest.tail);
    }
}

#[cfg(test)]
mod tests;
