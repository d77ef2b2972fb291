//! Durable items by RESP: decides which requests the durable executor executes, and how they are
//! handed to it. Whole short requests go in batches, as memcached's do
//! ([`crate::request::batches`]). A long request goes by itself, and the next waits for its reply;
//! an `MSET` that has not arrived whole goes a stretch at a time. A long value that lies whole in
//! memory, since it waited for `EXEC`, is copied slice by slice before it goes.

use crate::core::Core;
use crate::durable::shared::{EXECUTOR, KEY_HELD_BYTES};
use crate::execute::redis::{Answer, Set};
use crate::execute::{self, Incoming, Spot};
use crate::jobs::handoff::{Spoken, Work};
use crate::latency::Operation;
use crate::request::batches::{End, KEYS_MAX, Moves, READS_BYTES_MAX, Row};
use crate::request::sized::Sized;
use crate::resp::options;
use crate::resp::scratch::{BYTES_MAX, TOO_MUCH};
use crate::resp::state::{Storing, Under, Verb};
use crate::resp::table::{Command, Spec, find};
use crate::resp::values::{self, How, PAIR, Value};
use crate::stream::connection::{Connection, Mode};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::ItemBytes;
use laneway_policy::pace::Way;
use laneway_transport::Transport;
use laneway_wire::resp::reply::put_bulk;
use laneway_wire::resp::{Args, BULK_END, Scan, Scanned, Skip};

/// Whether the executor executes a command, whatever memory holds: what changes items, and what
/// counts keys, of which the tier may have some.
fn is_executors(spec: &Spec) -> bool {
    spec.writes() || matches!(spec.command, Command::CountKeys(_))
}

/// Whether a command is about keys that its arguments name.
fn has_keys(spec: &Spec) -> bool {
    spec.keys.0 == 1 && spec.command != Command::Watch
}

/// What the executor needs for the keys of a request about several; `args` are those behind its
/// name.
fn keeps_of(spec: &Spec, args: Args<'_>) -> u64 {
    match spec.command {
        Command::CountKeys(_) => u64::from(args.left()) * KEY_HELD_BYTES,
        Command::SetMany | Command::SetManyAbsent => u64::from(args.left() / 2) * KEY_HELD_BYTES,
        Command::Rename { .. } => 2 * KEY_HELD_BYTES,
        _ => 0,
    }
}

impl<T: Transport> Core<T> {
    /// The requests at the front of `input` that go together. How far the first was looked at is in
    /// `scan`.
    fn resp_row_of(&self, scan: &mut Scan, input: &[u8], longest: u64) -> (Row, End) {
        Row::of(input, longest, |row, rest| {
            if rest.is_empty() {
                return Err(End::Starved(Stop::Starved));
            }
            let mut fresh = Scan::default();
            let scan = if row.requests == 0 { &mut *scan } else { &mut fresh };
            let (mut args, bytes) = match scan.advance(rest) {
                Ok(Scanned::Whole(args, bytes)) if bytes <= READ_BYTES => (args, bytes),
                Ok(Scanned::More) if rest.len() <= READ_BYTES && !is_long(scan, rest) => {
                    return Err(End::Starved(Stop::Starved));
                }
                _ => return Err(End::Full),
            };
            let arguments = args.left();
            let spec = args.next().and_then(find).filter(|spec| spec.takes(arguments));
            let moves = spec.and_then(|spec| self.moves(spec, args, row.longest));
            Ok((bytes, moves.ok_or(End::Full)?))
        })
    }

    /// What a request stores and reads; `None` if it does not go along.
    fn moves(&self, spec: &Spec, args: Args<'_>, longest: u64) -> Option<Moves> {
        if !has_keys(spec) {
            return None;
        }
        let found = |key: &[u8]| self.item_bytes(key, longest);
        let mut moves = Moves { keeps: keeps_of(spec, args), ..Moves::default() };
        let key = args.into_iter().next().unwrap_or_default();
        match spec.command {
            Command::SetManyAbsent | Command::Rename { .. } => return None, // alone
            Command::SetMany => {
                let mut pairs = args;
                while let Some(key) = pairs.next() {
                    let size = self.stored_here(key, pairs.next()?)?;
                    moves.size += size;
                    moves.longest = moves.longest.max(size);
                }
            }
            Command::CountKeys(_) | Command::Tell(_) => {}
            Command::GetMany => {
                let keys = args.left() as usize;
                moves.reads = (keys <= KEYS_MAX).then(|| args.map(found).sum())?;
            }
            Command::Get | Command::GetRange | Command::GetDelete | Command::GetExpire => {
                moves.reads = found(key);
            }
            command if values::value_at(command).is_some() => {
                // One that is wrong is told so, and stores nothing.
                let Ok(Value { key, value, how }) = values::whole(spec, args) else {
                    return Some(moves);
                };
                moves.size = self.stored_here(key, value)?;
                moves.longest = moves.size;
                match how {
                    How::Join(Spot::At(from)) => {
                        moves.longest = found(key).max(moves.size + from as u64);
                    }
                    How::Join(_) => moves.longest = found(key) + value.len() as u64,
                    How::Set(how) if how.answer == Answer::Old => moves.reads = found(key),
                    How::Set(_) => {}
                }
                if matches!(how, How::Join(_)) && READ_BYTES as u64 <= moves.longest {
                    moves.reads = moves.longest; // it is copied as a whole
                }
            }
            _ => {}
        }
        Some(moves)
    }

    /// Bytes of an item that is stored by a request that is executed here; `None` if it is not, or
    /// is larger than any.
    fn stored_here(&self, key: &[u8], value: &[u8]) -> Option<u64> {
        let size = (key.len() + value.len()) as u64;
        matches!(self.resp_sized(key, value.len()), Sized::Here(_)).then_some(size)
    }
}

/// What has come of a value that lies whole in the input and is copied slice by slice.
enum Copied {
    /// All of it is there.
    Whole(Box<Incoming>),
    /// Others come first.
    Part,
    /// There is no memory for it: that is told.
    Refused,
}

/// Whether a request that has begun is too long for a row.
fn is_long(scan: &Scan, rest: &[u8]) -> bool {
    let whole = |at: usize, bytes: usize| at.saturating_add(bytes + BULK_END.len());
    scan.pending(rest).is_some_and(|pending| READ_BYTES < whole(pending.at, pending.bytes))
}

impl<T: Transport> Streams<T> {
    /// Gives the requests at the front of `rest` to the executor, as many as go together. `None`:
    /// not even the first of them goes along with others.
    pub(crate) fn resp_batch(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Option<Step> {
        let longest = core.longest_given(connection)?;
        let spoken = core.spoken(connection);
        let mut scan = connection.session().scan;
        let (row, end) = core.resp_row_of(&mut scan, rest, longest);
        connection.session().scan = scan;
        let spoken = Box::new(Spoken { keeps: row.keeps, ..spoken });
        let step = self.give_row(core, connection, (row, end), (rest, Some(spoken)))?;
        if let Step::Took(_) = step {
            connection.session().scan = Scan::default();
        }
        Some(step)
    }

    /// The same where the first of them was looked at, and is served in its own way if need be.
    fn resp_batch_anew(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Option<Step> {
        connection.session().scan = Scan::default();
        let step = self.resp_batch(core, connection, rest);
        if step.is_none() {
            connection.session().scan = Scan::default();
        }
        step
    }

    /// A request that the executor executes stands at the front of `rest`, whole: so many bytes.
    /// `None`: it is served in its own way.
    pub(crate) fn resp_keep(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (spec, args): (&Spec, Args<'_>),
        (bytes, rest): (usize, &[u8]),
    ) -> Option<Step> {
        if !core.keeps() || !is_executors(spec) {
            return None;
        }
        // A longer one goes alone, and would be read once more to find that.
        if bytes <= READ_BYTES
            && let Some(step) = self.resp_batch_anew(core, connection, rest)
        {
            return Some(step);
        }
        if spec.command == Command::SetMany {
            return None; // pair by pair
        }
        if spec.command == Command::SetManyAbsent && args.left() % 2 == 1 {
            return None; // it is refused
        }
        if let Command::Flush = spec.command
            && let Err(words) = core.may_flush(args)
        {
            self.out.extend_from_slice(words);
            return Some(Step::Took(bytes));
        }
        // The executor says so, too, and a request this long would be copied for it.
        if matches!(spec.command, Command::SetManyAbsent | Command::Rename { .. })
            && BYTES_MAX < bytes
        {
            self.out.extend_from_slice(TOO_MUCH);
            return Some(Step::Took(bytes));
        }
        let (mut size, keeps) = (0, keeps_of(spec, args));
        if values::value_at(spec.command).is_some() {
            match values::whole(spec, args) {
                Ok(value) => {
                    size = (value.key.len() + value.value.len()) as u64;
                    match core.resp_sized(value.key, value.value.len()) {
                        Sized::Here(_) => {}
                        Sized::Hand => return Some(Step::Stop(0, Stop::Hand)),
                        Sized::TooLarge => {
                            self.out.extend_from_slice(crate::execute::redis::TOO_LARGE);
                            return Some(Step::Took(bytes));
                        }
                    }
                    if READ_BYTES < value.value.len() {
                        return Some(self.resp_keep_long(core, connection, &value, bytes));
                    }
                }
                Err(words) if READ_BYTES < bytes => {
                    self.out.extend_from_slice(&words);
                    return Some(Step::Took(bytes));
                }
                Err(_) => {}
            }
        }
        if READ_BYTES < bytes && matches!(spec.command, Command::CountKeys(_)) {
            return Some(self.resp_hand_long(core, connection, &rest[..bytes], keeps));
        }
        let asked = (&rest[..bytes], false);
        let step = self.resp_hand(core, connection, asked, (size, keeps));
        Some(if spec.command == Command::Flush { core.counted_keyless(step) } else { step })
    }

    /// Gives a long value that lies whole at the front of the input to the executor, once it is
    /// copied; all of its request is so many bytes.
    fn resp_keep_long(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        value: &Value<'_>,
        bytes: usize,
    ) -> Step {
        let incoming = match self.resp_copy(core, connection, value) {
            Copied::Whole(incoming) => incoming,
            Copied::Part => return Step::Stop(0, Stop::Quota), // others come first
            Copied::Refused => return Step::Took(bytes),
        };
        match self.resp_keep_body(core, connection, (incoming, value.how)) {
            Ok(()) => Step::Stop(bytes, Stop::Ticket),
            Err(incoming) => {
                connection.session().copying = Some(incoming);
                Step::Stop(0, Stop::Quota)
            }
        }
    }

    /// The same of the next pair of an `MSET`, of `left`, which stands at the front of `rest`.
    /// `None`: its value is not long, or not there.
    fn resp_keep_long_pair(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        left: u32,
        rest: &[u8],
    ) -> Option<Step> {
        let Ok(Scanned::Whole(mut args, bytes)) = Scan::arguments(2).advance(rest) else {
            return None;
        };
        let key = options::key(args.next().unwrap_or_default()).ok()?;
        let value = args.next().filter(|value| READ_BYTES < value.len())?;
        core.stored_here(key, value)?;
        let behind = 2 * (left - 1);
        let pair = Value { key, value, how: How::Set(PAIR) };
        let incoming = match self.resp_copy(core, connection, &pair) {
            Copied::Whole(incoming) => incoming,
            Copied::Part => return Some(Step::Stop(0, Stop::Quota)),
            Copied::Refused => {
                connection.mode = Mode::Resp(Under::Skip(Skip::arguments(behind)));
                return Some(Step::Took(bytes));
            }
        };
        connection.mode = Mode::Requests;
        connection.session().storing =
            Some(Storing { verb: Verb::Pair { left: left - 1 }, behind });
        let given = self.resp_keep_body(core, connection, (incoming, pair.how));
        connection.session().end_storing();
        Some(match given {
            Ok(()) => Step::Stop(bytes, Stop::Ticket),
            Err(incoming) => {
                connection.session().copying = Some(incoming);
                connection.mode = Mode::Resp(Under::Pairs(left));
                Step::Stop(0, Stop::Quota)
            }
        })
    }

    /// Copies a slice of a value into its item, or into a buffer where it is joined to one, behind
    /// what was copied in turns before.
    fn resp_copy(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        Value { key, value, how }: &Value<'_>,
    ) -> Copied {
        let context = core.context_for(key);
        let begun = connection.session().copying.take().or_else(|| {
            let joins = match how {
                How::Join(spot) => Some(*spot),
                How::Set(_) => None,
            };
            let begun = execute::begin_resp(&context, key, value.len(), joins, &mut self.out);
            begun.map(Box::new)
        });
        let Some(mut incoming) = begun else { return Copied::Refused };
        let mut budget = core.slice_budget(Way::Copy);
        loop {
            let missing = incoming.draft().missing();
            if missing == 0 {
                return Copied::Whole(incoming);
            }
            let ready = if 0 < budget { incoming.draft().prepare() } else { Ok(None) };
            let copied = match ready {
                Ok(None) => {
                    connection.session().copying = Some(incoming);
                    return Copied::Part;
                }
                Ok(Some(ready)) => {
                    let (at, bytes) = (value.len() - missing, ready.min(missing).min(budget));
                    incoming.draft().write(&value[at..at + bytes]).map(|()| bytes)
                }
                Err(refused) => Err(refused),
            };
            match copied {
                Ok(bytes) => budget -= bytes,
                Err(_) => {
                    incoming.out_of_memory(&context, &mut self.out);
                    return Copied::Refused;
                }
            }
        }
    }

    /// Gives a value that has streamed in to the executor, and what is to be done with it. The next
    /// request waits for the reply, and so does the next pair of an `MSET`.
    pub(crate) fn resp_keep_body(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (mut incoming, how): (Box<Incoming>, How),
    ) -> Result<(), Box<Incoming>> {
        let session = connection.session();
        let left = match session.storing.map(|storing| storing.verb) {
            Some(Verb::Pair { left }) => left,
            _ => 0,
        };
        if let How::Set(how) = how {
            let is_last_pair = left == 0 && how == PAIR;
            let how = if is_last_pair { Set::default() } else { how };
            incoming.is_told(how, session.version);
        }
        let size = ItemBytes(incoming.item_bytes());
        match self.hand_over(core, connection, EXECUTOR, Work::Body(incoming), size) {
            Ok(()) => {
                if left > 0 {
                    connection.mode = Mode::Resp(Under::Pairs(left));
                }
                Ok(())
            }
            Err(Work::Body(incoming)) => Err(incoming),
            Err(_) => unreachable!("what comes back is what was given"),
        }
    }

    /// Memory does not hold the item that the request at the front of `rest` reads, or it is being
    /// changed: the executor answers, and what is asked behind it goes along.
    pub(crate) fn resp_ask(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        (bytes, rest): (usize, &[u8]),
        size: u64,
    ) -> Step {
        match self.resp_batch_anew(core, connection, rest) {
            Some(step) => step,
            None => self.resp_hand(core, connection, (&rest[..bytes], false), (size, 0)),
        }
    }

    /// The same of keys of an `MGET`: the first, and those behind it that memory does not hold
    /// either. Returns how many were given.
    pub(crate) fn resp_ask_keys(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        keys: &[&[u8]],
    ) -> Option<usize> {
        let (mut bytes, mut requests, mut reads) = (Vec::new(), 0, 0);
        for key in keys {
            let size = core.kept_bytes(key, EXECUTOR);
            let fits = reads + size <= READS_BYTES_MAX && core.goes_along(key, false, EXECUTOR);
            if requests > 0 && !fits {
                break;
            }
            reads += size;
            requests += 1;
            bytes.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
            put_bulk(&mut bytes, key);
        }
        let spoken = Box::new(core.spoken(connection));
        let size = ItemBytes(bytes.len() as u64 + reads);
        let work = match requests {
            1 => Work::Resp { bytes, spoken },
            requests => Work::Batch { bytes, requests: requests as u32, spoken: Some(spoken) },
        };
        let is_batch = matches!(work, Work::Batch { .. });
        self.hand_over(core, connection, EXECUTOR, work, size).ok()?;
        if is_batch {
            for _ in 0..requests {
                core.count(Operation::Other, 0);
            }
        }
        Some(requests)
    }

    /// Pairs of an `MSET` that have arrived whole, as many as go together; they stand at the front
    /// of `rest`, and `left` is how many there are. `None`: not even the first.
    pub(crate) fn resp_keep_pairs(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        left: u32,
        rest: &[u8],
    ) -> Option<Step> {
        let long = self.resp_keep_long_pair(core, connection, left, rest);
        if long.is_some() {
            return long;
        }
        let (mut end, mut pairs, mut size) = (0, 0, 0);
        while pairs < left
            && let Ok(Scanned::Whole(mut args, bytes)) = Scan::arguments(2).advance(&rest[end..])
            && (pairs == 0 || end + bytes <= READ_BYTES)
        {
            let key = options::key(args.next().unwrap_or_default());
            let value = args.next().unwrap_or_default();
            let Some(stored) = key.ok().and_then(|key| core.stored_here(key, value)) else { break };
            (end, pairs, size) = (end + bytes, pairs + 1, size + stored);
        }
        if pairs == 0 {
            return None;
        }
        let goes_on = pairs < left;
        let head = format!("*{}\r\n$4\r\nMSET\r\n", 1 + 2 * pairs);
        let request = [head.as_bytes(), &rest[..end]].concat();
        let keeps = u64::from(pairs) * KEY_HELD_BYTES;
        let step = self.resp_hand(core, connection, (&request, goes_on), (size, keeps));
        let Step::Stop(_, Stop::Ticket) = step else { return Some(step) };
        connection.mode = match left - pairs {
            0 => Mode::Requests,
            left => Mode::Resp(Under::Pairs(left)),
        };
        Some(Step::Stop(end, Stop::Ticket))
    }
}
