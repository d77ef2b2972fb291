//! Answers commands about the connection and about the whole server.

use crate::auth::gate::{Door, Verdict};
use crate::core::Core;
use crate::resp::commands;
use crate::resp::glob::fits;
use crate::resp::help;
use crate::resp::info::REDIS_VERSION;
use crate::resp::options::{LONG_PATTERN, PATTERN_BYTES_MAX, SYNTAX, is, name_of};
use crate::resp::state::{Dialect, Session, Unproven};
use crate::resp::table::{Command, Spec};
use crate::stream::connection::Connection;
use crate::stream::step::{Step, Stop};
use crate::stream::streams::Streams;
use laneway_store::Store;
use laneway_transport::Transport;
use laneway_wire::resp::reply::{
    OK, Version, put_array_head, put_bulk, put_error, put_integer, put_map_head, put_simple,
    put_verbatim,
};
use laneway_wire::resp::{Args, integer};

const NO_PASSWORD: &[u8] = b"-ERR AUTH <password> called without any password configured for the \
default user. Are you sure your configuration is correct?\r\n";
const WRONG_PASSWORD: &[u8] = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
const LIMITED: &[u8] = b"-ERR too many wrong passwords from this address; try again later\r\n";
const NO_AUTH_HELLO: &[u8] =
    b"-NOAUTH HELLO must be called with the client already authenticated, \
otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
select the RESP protocol version at the same time\r\n";
const NO_VERSION: &[u8] = b"-NOPROTO unsupported protocol version\r\n";
const BAD_VERSION: &[u8] = b"-ERR Protocol version is not an integer or out of range\r\n";
const NO_DATABASE: &[u8] = b"-ERR DB index is out of range\r\n";
const BAD_DATABASE: &[u8] = b"-ERR value is not an integer or out of range\r\n";
const NO_FLUSH: &[u8] = b"-ERR FLUSHALL is not allowed (-F)\r\n";
const NO_KEYS: &[u8] =
    b"-ERR KEYS is not served: it would look at every item at once; use SCAN\r\n";
/// Patterns of a `CONFIG GET`, each of which is compared with each name, and their bytes; sections
/// of an `INFO`; and arguments of a `HELLO`, each of which may be a password.
const PATTERNS_MAX: u32 = 64;
const PATTERNS_BYTES_MAX: usize = 1024;
const MANY_PATTERNS: &[u8] = b"-ERR CONFIG GET takes 64 patterns of 1 KiB in all at most\r\n";
const SECTIONS_MAX: u32 = 64;
const MANY_SECTIONS: &[u8] = b"-ERR INFO takes 64 sections at most\r\n";
const HELLO_ARGUMENTS_MAX: u32 = 16;
const NEGATIVE_TIMEOUT: &[u8] = b"-ERR timeout is negative\r\n";

impl<T: Transport> Streams<T> {
    /// Such a command; `args` are those behind its name, all of it so many bytes.
    pub(crate) fn resp_session(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        mut args: Args<'_>,
        bytes: usize,
    ) -> Step {
        let out = &mut self.out;
        let version = connection.session().version;
        match spec.command {
            _ if help::is_asked(spec, args) => help::put(spec, out),
            Command::Ping => match (args.next(), args.left()) {
                (None, _) => put_simple(out, b"PONG"),
                (Some(text), 0) => put_bulk(out, text),
                _ => out.extend_from_slice(&spec.wrong_number()),
            },
            Command::Echo => put_bulk(out, args.next().unwrap_or_default()),
            Command::Hello | Command::Auth => {
                if core.resp_say(connection, spec.command, args, out) == Said::Limited {
                    return Step::Stop(bytes, Stop::Close);
                }
            }
            Command::Select => out.extend_from_slice(selected(args.next().unwrap_or_default())),
            Command::Quit => {
                out.extend_from_slice(OK);
                return Step::Stop(bytes, Stop::Close);
            }
            Command::Reset => {
                put_simple(out, b"RESET");
                return core.resp_reset(connection, bytes);
            }
            // These are as much work as many requests: others come first.
            Command::Client => {
                core.resp_client(connection, args, out);
                if args.next().is_some_and(|part| is(part, "list")) {
                    return Step::Stop(bytes, Stop::Quota);
                }
            }
            Command::Commands | Command::Info | Command::Config | Command::Size => {
                core.resp_of_server(spec.command, version, args, out);
                return Step::Stop(bytes, Stop::Quota);
            }
            Command::Scan => {
                core.resp_scan(args, out);
                return Step::Stop(bytes, Stop::Quota);
            }
            Command::RandomKey => {
                let found_nanos = connection.found_nanos;
                let is_answered = core.resp_random_key(connection.session(), found_nanos, out);
                return Step::Stop(if is_answered { bytes } else { 0 }, Stop::Quota);
            }
            Command::Object => core.resp_object(connection, args, out),
            // There are no replicas to wait for.
            Command::Wait => match (args.next().and_then(integer), args.next().and_then(integer)) {
                (Some(0..), Some(0..)) => put_integer(out, 0),
                (Some(_), Some(..0)) => out.extend_from_slice(NEGATIVE_TIMEOUT),
                _ => out.extend_from_slice(BAD_DATABASE),
            },
            Command::Time => put_time(core.clock.unix_nanos(connection.found_nanos), out),
            Command::Flush => {
                if !core.resp_flush(args, out) {
                    return Step::Stop(0, Stop::Quota); // others come first
                }
            }
            _ => out.extend_from_slice(NO_KEYS),
        }
        Step::Took(bytes)
    }
}

/// What is told of who selects this database: there is one.
fn selected(number: &[u8]) -> &'static [u8] {
    match integer(number) {
        Some(0) => OK,
        Some(_) => NO_DATABASE,
        None => BAD_DATABASE,
    }
}

fn put_time(unix_nanos: u64, out: &mut Vec<u8>) {
    let micros = unix_nanos / 1000;
    put_array_head(out, 2);
    put_bulk(out, (micros / 1_000_000).to_string().as_bytes());
    put_bulk(out, (micros % 1_000_000).to_string().as_bytes());
}

/// The user without a password, whom any password fits; as Redis has it by default.
fn is_default_user(user: &[u8]) -> bool {
    user == b"default"
}

/// What came of `AUTH`, or of `HELLO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// The client has said who it is, or had to say nothing.
    Proven,
    /// It was refused.
    Refused,
    /// It was refused unseen, and is let go.
    Limited,
}

/// Whether a user and a password belong together; where there are no users, as in a Redis without
/// a password.
fn login(door: Option<&Door<'_>>, user: &[u8], password: &[u8], out: &mut Vec<u8>) -> Said {
    let verdict = match door {
        Some(door) => door.attempt(user, password),
        None if is_default_user(user) => Verdict::Right,
        None => Verdict::Wrong,
    };
    let (login, words) = match verdict {
        Verdict::Right => return Said::Proven,
        Verdict::Wrong => (Said::Refused, WRONG_PASSWORD),
        Verdict::Limited => (Said::Limited, LIMITED),
    };
    out.extend_from_slice(words);
    login
}

/// `AUTH [user] password`
pub(crate) fn auth(door: Option<&Door<'_>>, mut args: Args<'_>, out: &mut Vec<u8>) -> Said {
    let (user, password) = match (args.next(), args.next(), args.next()) {
        (Some(_), None, _) if door.is_none() => {
            out.extend_from_slice(NO_PASSWORD);
            return Said::Refused;
        }
        (Some(password), None, _) => (&b"default"[..], password),
        (Some(user), Some(password), None) => (user, password),
        _ => {
            out.extend_from_slice(SYNTAX);
            return Said::Refused;
        }
    };
    let login = login(door, user, password, out);
    if login == Said::Proven {
        out.extend_from_slice(OK);
    }
    login
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(crate) fn hello(
    door: Option<&Door<'_>>,
    mut is_proven: bool,
    (session, number): (&mut Session, u64),
    mut args: Args<'_>,
    out: &mut Vec<u8>,
) -> Said {
    let refuse = |words: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(words);
        Said::Refused
    };
    if args.left() > HELLO_ARGUMENTS_MAX {
        return refuse(SYNTAX, out);
    }
    let mut version = session.version;
    if let Some(text) = args.next() {
        version = match integer(text) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return refuse(NO_VERSION, out),
            None => return refuse(BAD_VERSION, out),
        };
    }
    let mut name = None;
    while let Some(option) = args.next() {
        if is(option, "auth") && args.left() >= 2 {
            let user = args.next().unwrap_or_default();
            let password = args.next().unwrap_or_default();
            match login(door, user, password, out) {
                Said::Proven => is_proven = true,
                refused => return refused,
            }
        } else if is(option, "setname") && args.left() >= 1 {
            match name_of(args.next().unwrap_or_default()) {
                Ok(text) => name = Some(text.to_vec()),
                Err(words) => return refuse(words, out),
            }
        } else {
            let option = option[..option.len().min(128)].escape_ascii();
            let words = format!("ERR Syntax error in HELLO option '{option}'");
            put_error(out, words.as_bytes());
            return Said::Refused;
        }
    }
    if !is_proven {
        if let Some(door) = door {
            door.counters.auth_missing.bump_owner();
        }
        out.extend_from_slice(NO_AUTH_HELLO);
        return Said::Refused;
    }
    put_hello(session, version, name, number, out);
    Said::Proven
}

fn put_hello(
    session: &mut Session,
    version: Version,
    name: Option<Vec<u8>>,
    number: u64,
    out: &mut Vec<u8>,
) {
    session.version = version;
    if let Some(name) = name {
        session.name = name;
    }
    put_map_head(out, version, 7);
    for (field, text) in [("server", "laneway"), ("version", REDIS_VERSION)] {
        put_bulk(out, field.as_bytes());
        put_bulk(out, text.as_bytes());
    }
    put_bulk(out, b"proto");
    put_integer(out, if version == Version::Three { 3 } else { 2 });
    put_bulk(out, b"id");
    put_integer(out, number as i64);
    for (field, text) in [("mode", "standalone"), ("role", "master")] {
        put_bulk(out, field.as_bytes());
        put_bulk(out, text.as_bytes());
    }
    put_bulk(out, b"modules");
    put_array_head(out, 0);
}

impl<T: Transport> Core<T> {
    /// A client that may ask says anew who it is.
    fn resp_say(
        &self,
        connection: &mut Connection<T::Stream>,
        command: Command,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) -> Said {
        let card = connection.card.clone();
        let door = self.door(&card);
        if command == Command::Auth {
            return auth(door.as_ref(), args, out);
        }
        let session = (connection.session(), card.number);
        let said = hello(door.as_ref(), true, session, args, out);
        card.set_name(&connection.session().name);
        said
    }

    /// As it was at its beginning, before it had said who it is.
    fn resp_reset(&self, connection: &mut Connection<T::Stream>, bytes: usize) -> Step {
        if self.shared.settings.auth.is_some() {
            connection.card.set_name(b"");
            connection.dialect = Dialect::Unproven(Unproven::resp());
            return Step::Stop(bytes, Stop::Quota); // the rest is looked at otherwise
        }
        connection.card.set_name(b"");
        connection.dialect = Dialect::resp();
        Step::Took(bytes)
    }

    /// Whether a `FLUSHALL` with these options may be asked; else what is told.
    pub(crate) fn may_flush(&self, mut options: Args<'_>) -> Result<(), &'static [u8]> {
        let how = options.next();
        let is_known = how.is_none_or(|how| is(how, "async") || is(how, "sync"));
        match () {
            () if !is_known || options.left() > 0 => Err(SYNTAX),
            () if !self.execute_settings.flush_enabled => Err(NO_FLUSH),
            () => Ok(()),
        }
    }

    /// `FLUSHALL [ASYNC|SYNC]`; false where there is more to do, and the same is to be asked again.
    fn resp_flush(&self, args: Args<'_>, out: &mut Vec<u8>) -> bool {
        if let Err(words) = self.may_flush(args) {
            out.extend_from_slice(words);
            return true;
        }
        let all = std::iter::once(&self.shared.store).chain(self.shared.other_stores());
        if !Store::flush_each(all) {
            return false;
        }
        self.counters().cmd_flush.bump_owner();
        self.shared.flush_at(0);
        out.extend_from_slice(OK);
        true
    }

    /// What is asked of the whole server.
    fn resp_of_server(
        &self,
        command: Command,
        version: Version,
        args: Args<'_>,
        out: &mut Vec<u8>,
    ) {
        match command {
            Command::Commands => commands::answer(version, args, out),
            Command::Info if args.left() > SECTIONS_MAX => out.extend_from_slice(MANY_SECTIONS),
            Command::Info => put_verbatim(out, version, &self.resp_info(args)),
            Command::Config => self.resp_config(version, args, out),
            // Those included that are over and that nobody has met since.
            _ => put_integer(out, self.shared.store_stats().items as i64),
        }
    }

    /// `CONFIG GET pattern ...`
    fn resp_config(&self, version: Version, mut args: Args<'_>, out: &mut Vec<u8>) {
        args.next(); // `GET`
        if args.left() > PATTERNS_MAX {
            return out.extend_from_slice(MANY_PATTERNS);
        }
        if args.into_iter().any(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
            return out.extend_from_slice(LONG_PATTERN);
        }
        if args.into_iter().map(<[u8]>::len).sum::<usize>() > PATTERNS_BYTES_MAX {
            return out.extend_from_slice(MANY_PATTERNS);
        }
        let settings = &self.shared.settings;
        let policy = if settings.store_mode { "noeviction" } else { "allkeys-lfu" };
        // The log of the folder, in Redis' words: an interval is the nearest to its second.
        let (is_kept, flushed) = match self.shared.durable.get() {
            None => ("no", "no"),
            Some(durable) if durable.waits => ("yes", "always"),
            Some(_) => ("yes", "everysec"),
        };
        let bulk_bytes = settings.item_bytes_max.min(laneway_wire::resp::BULK_BYTES_MAX);
        let known = [
            ("appendfsync", flushed.to_owned()),
            ("appendonly", is_kept.to_owned()),
            ("databases", "1".to_owned()),
            ("maxclients", settings.connections_max.to_string()),
            ("maxmemory", self.shared.store_stats().limit_bytes.to_string()),
            ("maxmemory-policy", policy.to_owned()),
            ("proto-max-bulk-len", bulk_bytes.to_string()),
            ("save", String::new()),
            ("timeout", settings.idle_timeout.as_secs().to_string()),
        ];
        let is_wanted =
            |name: &str| args.into_iter().any(|pattern| fits(pattern, name.as_bytes(), true));
        let told: Vec<_> = known.iter().filter(|(name, _)| is_wanted(name)).collect();
        put_map_head(out, version, told.len());
        for (name, value) in told {
            put_bulk(out, name.as_bytes());
            put_bulk(out, value.as_bytes());
        }
    }
}
