//! Requests with a value to be stored. A value that is there with all of its request is stored at
//! once; one that is not streams into its item, and the options of a `SET`, which stand behind it,
//! are read when it is there. By then the item is complete and known to nobody: it is published, or
//! dropped.

use crate::core::Core;
use crate::execute::redis::{self, Asking};
use crate::execute::{self, Incoming, Outcome, Spot};
use crate::latency::Operation;
use crate::request::dispatch::join;
use crate::request::sized::Sized;
use crate::resp::one;
use crate::resp::options::{self, LONG_COMPARED, OPTIONS_MAX, Refusal, SYNTAX, is};
use crate::resp::state::{Storing, Under, Verb};
use crate::resp::table::Spec;
use crate::resp::values::{self, How, PAIR, Value, head};
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::pace::Way;
use laneway_store::{Draft, Moment, Refused};
use laneway_transport::Transport;
use laneway_wire::resp::reply::OK;
use laneway_wire::resp::{Args, BULK_END, Broken, Pending, Scan, Scanned, Skip};

/// The longest option behind the value of a `SET`.
const OPTION_BYTES_MAX: usize = 64;

impl<T: Transport> Streams<T> {
    /// A request whose value is there; `args` are those behind its name, all of it so many bytes.
    pub(crate) fn resp_store(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        args: Args<'_>,
        bytes: usize,
    ) -> Step {
        match values::whole(spec, args) {
            Ok(Value { key, value, how }) => {
                self.resp_value(core, connection, (key, value), how, bytes)
            }
            Err(words) => {
                self.out.extend_from_slice(&words);
                Step::Took(bytes)
            }
        }
    }

    /// Store a value that is there.
    fn resp_value(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (key, value): (&[u8], &[u8]),
        how: How,
        bytes: usize,
    ) -> Step {
        match core.resp_sized(key, value.len()) {
            Sized::Here(_) => {}
            Sized::Hand => return Step::Stop(0, Stop::Hand),
            Sized::TooLarge => {
                self.out.extend_from_slice(redis::TOO_LARGE);
                return Step::Took(bytes);
            }
        }
        let size = (key.len() + value.len()) as u64;
        // As one is that comes out of a transaction.
        let filled = match how {
            How::Set(_) if READ_BYTES < value.len() => match fill(core, connection, key, value) {
                Ok(None) => return Step::Stop(0, Stop::Quota), // others come first
                Ok(Some(draft)) => Some(Ok(draft)),
                Err(refused) => Some(Err(refused)),
            },
            _ => None,
        };
        let asking = core.asking(connection, key);
        let outcome = match how {
            How::Set(how) => match filled {
                None => redis::set_whole(&asking, key, value, &how, &mut self.out),
                Some(Ok(draft)) => {
                    let at = (key, asking.context.store.hash(key));
                    let outcome = redis::set(&asking, at, draft, &how, &mut self.out);
                    outcome.unwrap_or(Outcome::Kept)
                }
                Some(Err(refused)) => {
                    redis::refuse_set(&asking.context, key, refused, &how, &mut self.out)
                }
            },
            How::Join(Spot::At(_)) if value.is_empty() => {
                one::tell_length(&asking, key, &mut self.out);
                core.account(connection, Operation::Other, size);
                return Step::Took(bytes);
            }
            How::Join(spot) => {
                let budget = core.slice_budget(Way::Copy);
                let (context, added) = (&asking.context, (value, spot));
                let joining = execute::join_slice(context, key, added, budget, &mut self.out);
                if let Some(joining) = joining {
                    return join(connection, joining, size, bytes);
                }
                Outcome::Done
            }
        };
        core.sample_uncounted(key, true);
        core.note_key(connection, key, size);
        self.resp_stored(core, connection, outcome, size, bytes)
    }

    /// What the outcome of storing asks for besides its reply.
    fn resp_stored(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        outcome: Outcome,
        size: u64,
        bytes: usize,
    ) -> Step {
        if matches!(outcome, Outcome::Elsewhere) {
            return Step::Stop(0, Stop::Hand);
        }
        core.account(connection, Operation::Set, size);
        let Outcome::Transfer(transfer) = outcome else { return Step::Took(bytes) };
        self.begin_transfer(core, connection, transfer, false);
        connection.large = core.sends_in_slices();
        Step::Stop(bytes, Stop::Large)
    }

    /// The value of a request is on its way, and long: it streams into its item from here on. What
    /// stands before it was read by nobody yet.
    pub(crate) fn resp_begin(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        pending: Pending<'_>,
        rest: &[u8],
    ) -> Step {
        let mut before = pending.before;
        before.next(); // its name
        let (key, verb) = match head(spec, &mut before) {
            Ok(read) if pending.behind <= OPTIONS_MAX => read,
            Ok(_) => return self.resp_refuse(connection, SYNTAX, pending, pending.behind),
            Err(words) => return self.resp_refuse(connection, &words, pending, pending.behind),
        };
        let storing = Storing { verb, behind: pending.behind };
        self.resp_stream(core, connection, key, (storing, pending.behind), pending, rest)
    }

    /// The same with a key; so many arguments behind the value belong to it.
    fn resp_stream(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        key: &[u8],
        (storing, own): (Storing, u32),
        pending: Pending<'_>,
        rest: &[u8],
    ) -> Step {
        let route = match core.resp_sized(key, pending.bytes) {
            Sized::Here(route) => route,
            Sized::Hand => return Step::Stop(0, Stop::Hand),
            Sized::TooLarge => {
                let words = redis::TOO_LARGE;
                return self.resp_refuse(connection, words, pending, storing.behind);
            }
        };
        let context = core.context_for(key);
        let joins = match storing.verb {
            Verb::Join(spot) => Some(spot),
            _ => None,
        };
        let begun = execute::begin_resp(&context, key, pending.bytes, joins, &mut self.out);
        let Some(incoming) = begun else {
            return self.resp_refuse(connection, b"", pending, storing.behind);
        };
        let session = connection.session();
        session.storing = Some(storing);
        session.scan = Scan::behind(own);
        connection.mode = Mode::Body(Box::new(incoming));
        connection.large = core.receives_in_slices(route);
        // What came with the header goes in at once: from here on the value comes from the stream.
        self.body(core, connection, &rest[pending.at..]).behind(pending.at)
    }

    /// Say why, and pass over the rest of the request, from the value's first byte on.
    pub(crate) fn resp_refuse(
        &mut self,
        connection: &mut Connection<T::Stream>,
        words: &[u8],
        pending: Pending<'_>,
        behind: u32,
    ) -> Step {
        self.out.extend_from_slice(words);
        connection.session().scan = Scan::default();
        connection.mode = Mode::Resp(Under::Skip(Skip::new(pending.bytes, behind)));
        Step::Took(pending.at)
    }

    /// What is no RESP ends the connection.
    pub(super) fn resp_broken(&mut self, core: &Core<T>, broken: Broken, rest: &[u8]) -> Step {
        core.counters().malformed.bump_owner();
        broken.put(&mut self.out);
        Step::Stop(rest.len(), Stop::Close)
    }

    /// The next pair of an `MSET`, of `left`.
    pub(crate) fn resp_pair(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        left: u32,
        rest: &[u8],
    ) -> Step {
        if core.keeps()
            && let Some(step) = self.resp_keep_pairs(core, connection, left, rest)
        {
            return step;
        }
        let mut scan = Scan::arguments(2);
        let behind = 2 * (left - 1);
        let storing = Storing { verb: Verb::Pair { left: left - 1 }, behind };
        match scan.advance(rest) {
            Err(broken) => self.resp_broken(core, broken, rest),
            Ok(Scanned::Whole(mut args, bytes)) => {
                let key = match options::key(args.next().unwrap_or_default()) {
                    Ok(key) => key,
                    Err(words) => {
                        self.out.extend_from_slice(&words);
                        return pass_over(connection, Skip::arguments(behind), bytes);
                    }
                };
                let value = args.next().unwrap_or_default();
                let before = self.out.len();
                let pair = (key, value);
                let step = self.resp_value(core, connection, pair, How::Set(PAIR), bytes);
                match step {
                    Step::Took(_) if self.out.len() > before => {
                        pass_over(connection, Skip::arguments(behind), bytes)
                    }
                    Step::Took(_) => self.resp_pair_stored(connection, left - 1, bytes),
                    stop => stop,
                }
            }
            Ok(_) => {
                let Some(pending) = scan.pending(rest) else {
                    return Step::Stop(0, Stop::Starved);
                };
                if pending.at + pending.bytes + BULK_END.len() <= READ_BYTES {
                    return Step::Stop(0, Stop::Starved);
                }
                let mut before = pending.before;
                match before.next().map(options::key) {
                    Some(Ok(key)) => {
                        self.resp_stream(core, connection, key, (storing, 0), pending, rest)
                    }
                    Some(Err(words)) => self.resp_refuse(connection, &words, pending, behind),
                    // It is the key that is so long.
                    None => {
                        let long = options::key(rest).err().unwrap_or_default();
                        self.resp_refuse(connection, &long, pending, behind + 1)
                    }
                }
            }
        }
    }

    /// One pair is stored, and so many are left.
    fn resp_pair_stored(
        &mut self,
        connection: &mut Connection<T::Stream>,
        left: u32,
        bytes: usize,
    ) -> Step {
        connection.mode = match left {
            0 => {
                self.out.extend_from_slice(OK);
                Mode::Requests
            }
            left => Mode::Resp(Under::Pairs(left)),
        };
        Step::Took(bytes)
    }

    /// What stands behind a value that has streamed into its item.
    pub(crate) fn resp_body_end(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Step {
        let session = connection.session();
        let storing = session.storing.expect("a value is on its way");
        let (args, bytes) = match session.scan.advance(rest) {
            Ok(Scanned::Whole(args, bytes)) => (args, bytes),
            Err(broken) => return self.resp_broken(core, broken, rest),
            Ok(_) => {
                // No option is that long, nor what `IFEQ` compares with.
                let pending = session.scan.pending(rest);
                let Some(pending) = pending.filter(|option| option.bytes > OPTION_BYTES_MAX) else {
                    return Step::Stop(0, Stop::Starved);
                };
                session.storing = None;
                let compares = pending.before.last().is_some_and(|option| is(option, "ifeq"));
                let why = if compares { LONG_COMPARED } else { SYNTAX };
                return self.resp_refuse(connection, why, pending, pending.behind);
            }
        };
        let how = match storing.verb {
            Verb::Join(spot) => Ok(How::Join(spot)),
            Verb::Told(how) => Ok(How::Set(how)),
            Verb::Pair { .. } => Ok(How::Set(PAIR)),
            Verb::Set => options::of_set(args).map(How::Set),
        };
        let Mode::BodyEnd(incoming) = std::mem::replace(&mut connection.mode, Mode::Requests)
        else {
            return Step::Took(0);
        };
        connection.large = false;
        let incoming = match (&how, core.keeps()) {
            (Ok(how), true) => {
                match self.resp_keep_body(core, connection, (incoming, *how)) {
                    Ok(()) => {
                        connection.session().end_storing();
                        return Step::Stop(bytes, Stop::Ticket);
                    }
                    // What stands behind it is read once more.
                    Err(incoming) => {
                        connection.mode = Mode::BodyEnd(incoming);
                        return Step::Stop(0, Stop::Quota);
                    }
                }
            }
            _ => incoming,
        };
        connection.session().end_storing();
        self.resp_landed(core, connection, (incoming, storing.verb), how, bytes)
    }

    /// A value that has streamed in is stored here; all that belonged to it was read.
    fn resp_landed(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (incoming, verb): (Box<Incoming>, Verb),
        how: Result<How, Refusal>,
        bytes: usize,
    ) -> Step {
        let size = incoming.item_bytes();
        core.note_key(connection, incoming.key(), size);
        let asking = core.asking(connection, incoming.key());
        // The value before may be large, too: it leaves from here.
        let context = execute::Context { large_from: u64::MAX, ..asking.context };
        let asking = Asking { context, ..asking };
        let outcome = match how {
            Ok(How::Set(how)) => {
                let landed = incoming.land().expect("it is a whole item");
                let at = (&*landed.key, landed.hash);
                match redis::set(&asking, at, landed.draft, &how, &mut self.out) {
                    Ok(outcome) => outcome,
                    Err(_) => unreachable!("only what the executor executes is asked again"),
                }
            }
            Ok(How::Join(_)) => {
                let budget = core.slice_budget(Way::Copy);
                let joining = incoming.finish_slice(&asking.context, budget, &mut self.out);
                if let Some(joining) = joining {
                    return join(connection, joining, size, bytes);
                }
                Outcome::Done
            }
            Err(words) => {
                self.out.extend_from_slice(&words);
                Outcome::Done
            }
        };
        if let Verb::Pair { left } = verb {
            core.account(connection, Operation::Set, size);
            return self.resp_pair_stored(connection, left, bytes);
        }
        self.resp_stored(core, connection, outcome, size, bytes)
    }
}

/// Copies a slice of a value into its item, behind those that were copied in turns before; the item
/// once all of it is there.
fn fill<T: Transport>(
    core: &Core<T>,
    connection: &mut Connection<T::Stream>,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Draft>, Refused> {
    let begun = connection.session().filling.take();
    let mut draft = match begun.filter(|draft| draft.value_bytes() == value.len()) {
        Some(draft) => draft,
        None => {
            let context = core.context_for(key);
            context.store.draft(key, 0, Moment::LATER, value.len())?
        }
    };
    let mut budget = core.slice_budget(Way::Copy);
    while 0 < draft.missing() {
        let ready = if 0 < budget { draft.prepare()? } else { None };
        let Some(ready) = ready else {
            connection.session().filling = Some(draft);
            return Ok(None);
        };
        let (at, bytes) = (value.len() - draft.missing(), ready.min(budget));
        draft.write(&value[at..at + bytes])?;
        budget -= bytes;
    }
    Ok(Some(draft))
}

/// The rest of a request that was answered is of no interest, behind so many bytes.
fn pass_over<S>(connection: &mut Connection<S>, skip: Skip, bytes: usize) -> Step {
    connection.mode = Mode::Resp(Under::Skip(skip));
    Step::Took(bytes)
}
