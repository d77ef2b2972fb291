//! Requests by RESP: one about a key, as memcached's are executed, or about several, one key after
//! the other. (What they do is `crate::resp::one`; when they may be executed is [`super::ready`].)

use super::ready::{Ready, step_of};
use super::state::DurableExecutor;
use super::task::{Each, KEYS_PER_STEP, NO_MEMORY_STORING, Several, Step, Task};
use crate::event_log::{Class, DeletedBy};
use crate::execute::redis::{self, Asking, Count, Known, Telling};
use crate::execute::{Context, Outcome};
use crate::jobs::handoff::Spoken;
use crate::latency::Operation;
use crate::resp::options;
use crate::resp::table::{Command, Spec, find};
use crate::resp::values::{How, PAIR, Value, whole};
use crate::resp::{one, values};
use laneway_store::{Moment, meter};
use laneway_wire::Request;
use laneway_wire::resp::reply::{OK, put_array_head, put_integer};
use laneway_wire::resp::{Args, Scan, Scanned};
use std::cell::Cell;

/// Bytes of a long request that are read before others have their turn.
const READ_BYTES_PER_STEP: usize = 64 << 10;
/// Words that are found to be keys before others have it.
const KEYS_FOUND_PER_STEP: usize = 4096;

fn asking<'a>(context: &Context<'a>, spoken: Spoken) -> Asking<'a> {
    Asking { context: *context, version: spoken.version }
}

/// Whether a command about one key leaves its item as it is.
fn only_reads(command: Command) -> bool {
    matches!(command, Command::Get | Command::GetRange | Command::Tell(_))
}

/// Executes a request about one key that brings no value.
fn plain(
    asking: &Asking<'_>,
    spec: &Spec,
    (key, behind): (&[u8], Args<'_>),
    out: &mut Vec<u8>,
) -> Outcome {
    one::plain(asking, spec, key, behind, out).unwrap_or_else(|words| {
        out.extend_from_slice(&words);
        Outcome::Done
    })
}

/// The request at the front of `bytes` as words, and how long it is.
fn read(bytes: &[u8]) -> Option<(&'static Spec, Args<'_>, usize)> {
    let Ok(Scanned::Whole(mut args, length)) = Scan::default().advance(bytes) else { return None };
    meter::bytes(length);
    let spec = find(args.next()?)?;
    Some((spec, args, length))
}

/// The same of a task's next request, which is at the front of `bytes`. `None`: it is so long that
/// others come first.
fn read_on<'a>(task: &mut Task, bytes: &'a [u8]) -> Option<(&'static Spec, Args<'a>, usize)> {
    let before = task.shown;
    task.shown = bytes.len().min(before + READ_BYTES_PER_STEP);
    match task.scan.advance(&bytes[..task.shown]) {
        Ok(Scanned::Whole(mut args, length)) => {
            meter::bytes(length.saturating_sub(before));
            let spec = args.next().and_then(find).expect("its name was looked up before");
            Some((spec, args, length))
        }
        Ok(Scanned::More) if task.shown < bytes.len() => {
            meter::bytes(task.shown - before);
            None
        }
        // It was read before it was handed over.
        _ => unreachable!("it is a whole request"),
    }
}

/// Begins a request about several keys.
fn begin_several(task: &Task, each: Each, args: Args<'_>) -> Several {
    let (at, left) = (task.range.end - args.rest().len(), args.left());
    Several { each, at, left, count: 0, unseen: Some((at, left)) }
}

/// Looks whether all of its words are keys that are to be. A step where it must go on later, or is
/// answered, since one is none.
fn find_keys(task: &mut Task, several: &mut Several, bytes: &[u8]) -> Option<Step> {
    let (at, left) = several.unseen?;
    let end = task.range.end;
    let mut words = Args::new(&bytes[at..end], left);
    for _ in 0..KEYS_FOUND_PER_STEP {
        let Some(key) = words.next() else { break };
        if let Err(why) = options::key(key) {
            task.refuse(&why);
            return Some(Step::Done);
        }
        if several.each == Each::Set {
            words.next();
        }
    }
    several.unseen = (0 < words.left()).then(|| (end - words.rest().len(), words.left()));
    if several.unseen.is_some() {
        task.several = Some(*several);
        return Some(Step::Yield);
    }
    if several.each == Each::Get {
        let mut head = Vec::new();
        put_array_head(&mut head, several.left as usize);
        task.reply.push_bytes(&head);
    }
    None
}

impl<S> DurableExecutor<S> {
    /// The request that is next.
    pub(super) fn resp(&mut self, task: &mut Task, bytes: &[u8], spoken: Spoken) -> Step {
        if let Some(several) = task.several {
            // To read a long request anew for every few of its keys would be quadratic.
            return self.resp_several(task, several, bytes, spoken);
        }
        let start = task.range.start;
        let Some((spec, args, length)) = read_on(task, &bytes[start..]) else {
            return Step::Yield;
        };
        task.range.end = start + length;
        if task.refused.0.contains(&start) {
            task.fail(task.refused.1.clone());
            return Step::Done;
        }
        let each = match spec.command {
            Command::Flush => return self.resp_flush(task),
            Command::GetMany => Each::Get,
            Command::CountKeys(of) => Each::Count(of),
            Command::SetMany => Each::Set,
            Command::SetManyAbsent | Command::Rename { .. } => {
                return self.several(task, &bytes[start..start + length], spoken);
            }
            _ => return self.resp_one(task, spec, (bytes, args), spoken),
        };
        let several = begin_several(task, each, args);
        self.resp_several(task, several, bytes, spoken)
    }

    fn resp_flush(&mut self, task: &mut Task) -> Step {
        if !self.is_still() {
            return Step::Barrier;
        }
        let request = Request::FlushAll { delay: None, noreply: true };
        let step = self.perform_flush(task, &request, None);
        if matches!(step, Step::Done) {
            task.reply.push_bytes(OK);
        }
        step
    }

    /// A request about one key.
    fn resp_one(
        &mut self,
        task: &mut Task,
        spec: &Spec,
        (bytes, args): (&[u8], Args<'_>),
        spoken: Spoken,
    ) -> Step {
        let mut behind = args;
        let key = match options::key(behind.next().unwrap_or_default()) {
            Ok(key) => key,
            Err(words) => {
                task.refuse(&words);
                return Step::Done;
            }
        };
        let stored = match values::value_at(spec.command) {
            None => None,
            Some(_) => match whole(spec, args) {
                Ok(stored) => Some(stored),
                Err(words) => {
                    task.refuse(&words);
                    return Step::Done;
                }
            },
        };
        let operation = one::operation(spec.command);
        if only_reads(spec.command)
            && self.tell_before(task, key, operation, |context, out| {
                plain(&asking(context, spoken), spec, (key, behind), out)
            })
        {
            return Step::Done;
        }
        let looks = stored.as_ref().is_none_or(|stored| stored.how.looks_at_old());
        let added = stored.as_ref().filter(|stored| stored.how.added().is_some());
        loop {
            if let Some(stored) = added.filter(|_| self.is_there_cold(key)) {
                self.perform_refused_add_resp(task, stored, spoken);
                return Step::Done;
            }
            let ready = match spec.command {
                Command::Tell(what) => {
                    if let Some(known) = self.known_cold(key, what) {
                        self.wait_for_others(task, key);
                        let mut out = Vec::new();
                        one::told(spec.command, Some(known), self.now, &mut out);
                        task.reply.push_bytes(&out);
                        task.count(Operation::Other);
                        return Step::Done;
                    }
                    self.ready_by(task, key, looks, DurableExecutor::fetch_end)
                }
                _ if added.is_some() => self.ready_by(task, key, looks, DurableExecutor::fetch_end),
                _ => self.ready(task, key, looks),
            };
            if let Some(step) = step_of(ready, task) {
                if spec.command == Command::Get && matches!(step, Step::Behind(_)) {
                    self.fetch_ahead(gets_behind(&bytes[task.range.end..]));
                }
                return step;
            }
            let is_done = match &stored {
                Some(stored) => self.perform_store(task, stored, spoken),
                None => self.execute(task, key, operation, (0, None), |context, out| {
                    plain(&asking(context, spoken), spec, (key, behind), out)
                }),
            };
            if is_done {
                return Step::Done;
            }
        }
    }

    /// False as for [`DurableExecutor::execute`].
    fn perform_store(&mut self, task: &mut Task, stored: &Value<'_>, spoken: Spoken) -> bool {
        let Value { key, value, how } = stored;
        let size = (key.len() + value.len()) as u64;
        let given = matches!(how, How::Set(_)).then_some(*value);
        let operation = one::operation_of(stored);
        let is_done = self.execute(task, key, operation, (size, given), |context, out| {
            one::store(&asking(context, spoken), stored, out)
        });
        if matches!(how, How::Join(_)) && operation == Operation::Set {
            self.moved += self.value_bytes_in_memory(key); // all of it was copied
        }
        is_done
    }

    /// A `SET` that stores only where there is no item, and whose key has one in the tier alone:
    /// that need not be read.
    fn perform_refused_add_resp(&mut self, task: &mut Task, stored: &Value<'_>, spoken: Spoken) {
        let &Value { key, value, ref how } = stored;
        let how = how.added().expect("it stores nowhere else");
        let size = (key.len() + value.len()) as u64;
        let is_done = self.execute(task, key, Operation::Set, (size, None), |context, out| {
            redis::refuse_added(&asking(context, spoken), (key, value.len()), how, out);
            Outcome::Done
        });
        assert!(is_done, "it looks at nothing that memory could have forgotten");
    }

    fn value_bytes_in_memory(&self, key: &[u8]) -> u64 {
        let store = &self.shared.store;
        let seen = store.peek(store.hash(key), key, self.now);
        seen.map_or(0, |seen| u64::from(seen.value_bytes))
    }

    /// What is known of an item that is in the tier and nowhere else, if that is enough to tell.
    fn known_cold(&self, key: &[u8], what: Telling) -> Option<Known> {
        if !self.is_cold(key) {
            return None;
        }
        let look = self.living(key)?;
        let expires = match (self.ends.of(key, &look), what) {
            (Some(end), _) => end,
            (None, Telling::Left(_)) => return None,
            (None, _) => Moment::from_seconds(look.expires_at_seconds),
        };
        Some(Known { value_bytes: look.value_bytes, expires })
    }

    /// A request about several keys, from the key on that is next.
    fn resp_several(
        &mut self,
        task: &mut Task,
        mut several: Several,
        bytes: &[u8],
        spoken: Spoken,
    ) -> Step {
        if let Some(step) = find_keys(task, &mut several, bytes) {
            return step;
        }
        let end = task.range.end;
        for number in 0.. {
            task.several = Some(several);
            if several.left == 0 {
                break;
            }
            if number == KEYS_PER_STEP {
                return Step::Yield;
            }
            let mut left = Args::new(&bytes[several.at..end], several.left);
            let key = left.next().unwrap_or_default();
            let step = match several.each {
                Each::Get => self.get_next(task, key, left, spoken),
                Each::Count(of) => self.count_next(task, key, (of, &mut several.count), spoken),
                Each::Set => {
                    let value = left.next().unwrap_or_default();
                    self.set_next(task, (key, value), spoken)
                }
            };
            if let Some(step) = step {
                return step;
            }
            (several.at, several.left) = (end - left.rest().len(), left.left());
            task.tries = 0;
            if !task.leaving.is_empty() {
                task.several = Some(several);
                return Step::More;
            }
        }
        let mut out = Vec::new();
        match several.each {
            Each::Count(_) => put_integer(&mut out, several.count),
            Each::Set if !spoken.goes_on => out.extend_from_slice(OK),
            _ => {}
        }
        task.reply.push_bytes(&out);
        Step::Done
    }

    /// The next value of an `MGET`, or why it cannot be read; a step where it must wait.
    fn get_next(
        &mut self,
        task: &mut Task,
        key: &[u8],
        left: Args<'_>,
        spoken: Spoken,
    ) -> Option<Step> {
        let is_told = self.tell_before(task, key, Operation::Get, |context, out| {
            redis::get(&asking(context, spoken), key, context.store.hash(key), out)
        });
        if is_told {
            return None;
        }
        loop {
            let ready = match self.ready(task, key, true) {
                // It is the error of this value alone, as of a `GET`: the others are told.
                Ready::Never(why) => {
                    task.reply.push_bytes(format!("-ERR {why}\r\n").as_bytes());
                    task.count(Operation::Other);
                    return None;
                }
                ready => ready,
            };
            if let Some(step) = step_of(ready, task) {
                if matches!(step, Step::Behind(_)) {
                    self.fetch_ahead(left);
                }
                return Some(step);
            }
            let is_done = self.execute(task, key, Operation::Get, (0, None), |context, out| {
                let hash = context.store.hash(key);
                redis::get(&asking(context, spoken), key, hash, out)
            });
            if is_done {
                return task.done.then_some(Step::Done);
            }
        }
    }

    /// The next key that is counted.
    fn count_next(
        &mut self,
        task: &mut Task,
        key: &[u8],
        (of, count): (Count, &mut i64),
        spoken: Spoken,
    ) -> Option<Step> {
        let operation = one::operation(Command::CountKeys(of));
        let mut counts = false;
        let is_told = of == Count::There
            && self.tell_before(task, key, operation, |context, _| {
                counts = redis::count_key(&asking(context, spoken), of, key) == Some(true);
                Outcome::Done
            });
        if is_told {
            *count += i64::from(counts);
            return None;
        }
        loop {
            if self.is_cold(key) {
                self.wait_for_others(task, key);
                *count += 1;
                match of {
                    Count::Deleted => self.perform_cold_delete(task, key, DeletedBy::Delete),
                    Count::There | Count::Touched => {
                        if of == Count::Touched {
                            self.log_cold_touch(task, key);
                        }
                        task.count(operation);
                    }
                }
                return task.done.then_some(Step::Done);
            }
            let ready = self.ready_to_count(task, key);
            if let Some(step) = step_of(ready, task) {
                return Some(step);
            }
            let is_done =
                self.execute(task, key, operation, (0, None), |context, _| match redis::count_key(
                    &asking(context, spoken),
                    of,
                    key,
                ) {
                    Some(found) => {
                        counts = found;
                        Outcome::Done
                    }
                    None => Outcome::Kept,
                });
            if is_done {
                *count += i64::from(counts);
                return task.done.then_some(Step::Done);
            }
        }
    }

    /// Tells who watches that a key was asked for whose item is in the tier alone.
    fn log_cold_touch(&self, task: &Task, key: &[u8]) {
        if self.shared.connections.events.watches(Class::Fetchers) {
            let touched = Cell::new(0);
            let context = Context { by: task.asker(), ..self.context(&touched, false) };
            context.log_get(key, self.in_tier_alone(key).map(|look| look.value_bytes));
        }
    }

    /// The next pair of an `MSET`.
    fn set_next(
        &mut self,
        task: &mut Task,
        (key, value): (&[u8], &[u8]),
        spoken: Spoken,
    ) -> Option<Step> {
        let ready = self.ready(task, key, false);
        if let Some(step) = step_of(ready, task) {
            return Some(step);
        }
        let stored = Value { key, value, how: How::Set(PAIR) };
        let size = (key.len() + value.len()) as u64;
        let mut words = Vec::new();
        let is_done =
            self.execute(task, key, Operation::Set, (size, Some(value)), |context, out| {
                let outcome = one::store(&asking(context, spoken), &stored, out);
                words.append(out);
                outcome
            });
        assert!(is_done, "it looks at nothing that memory could have forgotten");
        if !words.is_empty() {
            task.fail(why(&words));
        }
        task.done.then_some(Step::Done)
    }
}

/// An error without what stands around it.
fn why(words: &[u8]) -> String {
    if words == redis::OUT_OF_MEMORY {
        return NO_MEMORY_STORING.into();
    }
    let words = String::from_utf8_lossy(words);
    words.trim_start_matches("-ERR ").trim_end().to_owned()
}

/// The keys of the `GET`s at the front of some requests.
fn gets_behind(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (spec, mut args, length) = read(rest)?;
        rest = &rest[length..];
        args.next().filter(|_| spec.command == Command::Get)
    })
}
