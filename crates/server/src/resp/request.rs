//! One request: which command is it, may it be asked so, and who executes it?

use crate::core::Core;
use crate::resp::multi::{NOT_AT_ONCE, is_queued};
use crate::resp::options;
use crate::resp::scratch::is_tried;
use crate::resp::state::{Dialect, EachKey, Front, Under};
use crate::resp::table::{Command, READ_ONLY, Spec, check_part, find};
use crate::resp::values::value_at;
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::Quota;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::pace::Way;
use laneway_transport::Transport;
use laneway_wire::resp::reply::put_array_head;
use laneway_wire::resp::{Args, Broken, Scan, Scanned, transcribe};

/// Most bytes of a request that are told of where it is refused.
const TOLD_BYTES_MAX: usize = 128;

impl<T: Transport> Core<T> {
    /// What is told where this command may not be asked here: by a read-only port, or in a
    /// transaction that is executed in one moment.
    fn refuses(
        &self,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
    ) -> Option<&'static [u8]> {
        if connection.read_only && spec.writes() {
            self.counters().refused_read_only.bump_owner();
            return Some(READ_ONLY);
        }
        let session = connection.session();
        let waits = session.transaction.is_some() && is_queued(spec.command);
        (waits && !session.watched.is_empty() && !is_tried(spec)).then_some(NOT_AT_ONCE)
    }
}

impl<T: Transport> Streams<T> {
    /// The request at the front of `rest`; of `GET`s, those behind it that are read with it, too.
    pub(crate) fn resp_request(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let session = connection.session();
        let step = match session.scan.advance(rest) {
            Ok(Scanned::Whole(args, bytes)) => {
                let scan = std::mem::take(&mut session.scan);
                let left = quota.left();
                if let Some((step, begun)) =
                    self.resp_gets(core, connection, args, bytes, rest, left)
                {
                    quota.begun += begun;
                    return step;
                }
                let step = self.resp_command(core, connection, args, (bytes, rest));
                // What is copied slice by slice may have many arguments: they are read once.
                if let Dialect::Resp(session) = &mut connection.dialect
                    && (0 < session.queued_bytes || !session.handing.is_empty())
                {
                    session.scan = scan;
                }
                step
            }
            Ok(Scanned::More) => self.resp_partial(core, connection, rest),
            Ok(Scanned::Nothing(bytes)) => {
                session.scan = Scan::default();
                Step::Took(bytes)
            }
            Ok(Scanned::Inline(line, bytes)) => {
                session.scan = Scan::default();
                let mut array = Vec::new();
                match transcribe(line, &mut array) {
                    Ok(0) => Step::Took(bytes),
                    // As an array it begins, and counts, with the next step.
                    Ok(_) => {
                        session.front = Front::new(array, None);
                        return Step::Took(bytes);
                    }
                    Err(_) => self.resp_broken(core, Broken::Quotes, rest),
                }
            }
            Err(broken) => self.resp_broken(core, broken, rest),
        };
        // What has parts is counted as these are.
        let has_parts = matches!(connection.mode, Mode::Resp(Under::Pairs(_) | Under::Keys { .. }));
        quota.begun += usize::from(!has_parts);
        quota.of_pairs += usize::from(matches!(connection.mode, Mode::Resp(Under::Pairs(_))));
        step
    }

    /// A request that is no plain `GET`: so many bytes at the front of `rest`.
    fn resp_command(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        args: Args<'_>,
        (length, rest): (usize, &[u8]),
    ) -> Step {
        let bytes = &rest[..length];
        let mut behind = args;
        let name = behind.next().unwrap_or_default();
        let spec = match refusal(name, args, behind) {
            Ok(spec) => spec,
            Err(words) => return self.resp_no_request(core, connection, (name, length), &words),
        };
        if let Some(words) = core.refuses(connection, spec) {
            connection.session().refuse_in_transaction(words, false, &mut self.out);
            return Step::Took(bytes.len());
        }
        if connection.session().transaction.is_some() && is_queued(spec.command) {
            return self.resp_queue(core, connection, bytes);
        }
        let kept = self.resp_keep(core, connection, (spec, behind), (length, rest));
        if let Some(step) = kept {
            return step;
        }
        match spec.command {
            command if value_at(command).is_some() => {
                self.resp_store(core, connection, spec, behind, bytes.len())
            }
            Command::SetMany | Command::SetManyAbsent if behind.left() % 2 == 1 => {
                core.counters().malformed.bump_owner();
                self.out.extend_from_slice(&spec.wrong_number());
                Step::Took(bytes.len())
            }
            Command::SetMany => {
                connection.mode = Mode::Resp(Under::Pairs(behind.left() / 2));
                Step::Took(bytes.len() - behind.rest().len())
            }
            Command::GetMany => self.resp_each(connection, EachKey::Get, behind, bytes.len()),
            Command::CountKeys(what) => {
                self.resp_each(connection, EachKey::Count(what), behind, bytes.len())
            }
            Command::SetManyAbsent | Command::Rename { .. } => {
                self.resp_several(core, connection, bytes)
            }
            command @ (Command::Multi
            | Command::Exec
            | Command::Discard
            | Command::Watch
            | Command::Unwatch) => {
                self.resp_transact(core, connection, (command, behind), bytes.len())
            }
            _ if spec.keys.0 == 1 => {
                self.resp_plain(core, connection, spec, behind, (length, rest))
            }
            _ => {
                core.counted_keyless(self.resp_session(core, connection, spec, behind, bytes.len()))
            }
        }
    }

    /// Says why a request of this name and so many bytes is none; a browser is told nothing.
    fn resp_no_request(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        (name, bytes): (&[u8], usize),
        words: &[u8],
    ) -> Step {
        core.counters().malformed.bump_owner();
        if is_of_browser(name) {
            return Step::Stop(bytes, Stop::Close);
        }
        let is_exec = name.eq_ignore_ascii_case(b"exec");
        connection.session().refuse_in_transaction(words, is_exec, &mut self.out);
        Step::Took(bytes)
    }

    /// Keeps a request until `EXEC`, or a slice of it.
    fn resp_queue(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        request: &[u8],
    ) -> Step {
        let (store, budget) = (&core.shared.store, core.slice_budget(Way::Copy));
        match connection.session().queue(request, budget, store, &mut self.out) {
            true => Step::Took(request.len()),
            false => Step::Stop(0, Stop::Quota), // others come first
        }
    }

    /// A command about several keys: they are looked at before the first of them is served.
    fn resp_each(
        &mut self,
        connection: &mut Connection<T::Stream>,
        what: EachKey,
        keys: Args<'_>,
        bytes: usize,
    ) -> Step {
        let refusal = keys.into_iter().find_map(|key| options::key(key).err());
        if let Some(words) = refusal {
            self.out.extend_from_slice(&words);
            return Step::Took(bytes);
        }
        if what == EachKey::Get {
            put_array_head(&mut self.out, keys.left() as usize);
        }
        let (left, count, left_bytes) = (keys.left(), 0, keys.rest().len());
        connection.mode = Mode::Resp(Under::Keys { what, left, count, bytes: left_bytes });
        Step::Took(bytes - left_bytes)
    }
}

/// Whether this begins the first line of a browser's request, or the line that says whom it asks. A
/// browser is hung up on, as by Redis, for what follows may be a web page's: requests in line, for
/// a server that its reader alone can reach.
pub(crate) fn is_of_browser(name: &[u8]) -> bool {
    options::is(name, "post") || options::is(name, "host:")
}

/// The command of this name, if there is one that takes as many arguments; else Redis' words.
pub(crate) fn refusal(
    name: &[u8],
    args: Args<'_>,
    behind: Args<'_>,
) -> Result<&'static Spec, Vec<u8>> {
    match find(name) {
        None => Err(unknown(name, behind)),
        Some(spec) if !spec.takes(args.left()) => Err(spec.wrong_number()),
        Some(spec) => check_part(spec, behind).map(|()| spec),
    }
}

/// Redis' words, with the first of the arguments.
fn unknown(name: &[u8], args: Args<'_>) -> Vec<u8> {
    let cut = |text: &[u8], most: usize| text[..text.len().min(most)].to_vec();
    let mut told = Vec::new();
    for arg in args {
        if told.len() >= TOLD_BYTES_MAX {
            break;
        }
        let left = TOLD_BYTES_MAX - told.len();
        told.extend_from_slice(&[b"'", &cut(arg, left)[..], b"' "].concat());
    }
    let name = cut(name, TOLD_BYTES_MAX);
    let words =
        [b"ERR unknown command '", &name[..], b"', with args beginning with: ", &told].concat();
    let mut out = Vec::new();
    laneway_wire::resp::reply::put_error(&mut out, &words);
    out
}
