//! Commands about the connection and about the whole server.

use crate::auth::gate::{Door, Verdict};
use crate::connection::{CardKind, Connection};
use crate::core::Core;
use crate::execute::VERSION;
use crate::resp::glob::fits;
use crate::resp::options::SYNTAX;
use crate::resp::state::{Dialect, Session, Unproven};
use crate::resp::table::{Command, Spec, TABLE, find};
use crate::shared::lock;
use crate::step::{Step, Stop};
use crate::streams::Streams;
use laneway_transport::Transport;
use laneway_wire::resp::reply::{
    OK, Version, put_array_head, put_bulk, put_error, put_integer, put_map_head, put_null,
    put_set_head, put_simple, put_verbatim,
};
use laneway_wire::resp::{Args, integer};
use std::sync::atomic::Ordering::Relaxed;

/// The version of Redis whose commands these are, for clients that ask which they may use.
const REDIS_VERSION: &str = "7.2.4";

/// The longest name that a client may give itself.
const NAME_BYTES_MAX: usize = 256;

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
const BAD_NAME: &[u8] =
    b"-ERR Client names cannot contain spaces, newlines or special characters.\r\n";
const LONG_NAME: &[u8] = b"-ERR Client names cannot be longer than 256 bytes here\r\n";
const NO_FLUSH: &[u8] = b"-ERR FLUSHALL is not allowed (-F)\r\n";
const NO_KEYS: &[u8] =
    b"-ERR KEYS is not served: it would look at every item at once; use SCAN\r\n";
/// Commands that one `COMMAND INFO` asks about.
const COMMANDS_TOLD_MAX: usize = 512;
const MANY_COMMANDS: &[u8] = b"-ERR COMMAND INFO takes 512 names at most\r\n";
const NEGATIVE_TIMEOUT: &[u8] = b"-ERR timeout is negative\r\n";
/// Connections that `CLIENT LIST` tells of.
const CLIENTS_MAX: usize = 256;

fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

impl<T: Transport> Streams<T> {
    /// Such a command; `args` are those behind its name, all of it so many bytes.
    pub(crate) fn resp_session(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        spec: &Spec,
        mut args: Args<'_>,
        bytes: usize,
        arrived: u64,
    ) -> Step {
        let out = &mut self.out;
        let version = connection.session().version;
        match spec.command {
            Command::Ping => match (args.next(), args.left()) {
                (None, _) => put_simple(out, b"PONG"),
                (Some(text), 0) => put_bulk(out, text),
                _ => put_wrong_number(spec.name, out),
            },
            Command::Echo => put_bulk(out, args.next().unwrap_or_default()),
            Command::Hello | Command::Auth => {
                if core.resp_say(connection, spec.command, args, out) == Said::Limited {
                    return Step::Stop(bytes, Stop::Close);
                }
            }
            Command::Select => match integer(args.next().unwrap_or_default()) {
                Some(0) => out.extend_from_slice(OK),
                Some(_) => out.extend_from_slice(NO_DATABASE),
                None => out.extend_from_slice(BAD_DATABASE),
            },
            Command::Quit => {
                out.extend_from_slice(OK);
                return Step::Stop(bytes, Stop::Close);
            }
            Command::Reset => {
                put_simple(out, b"RESET");
                return core.resp_reset(connection, bytes);
            }
            Command::Client if args.into_iter().next().is_some_and(|part| is(part, "list")) => {
                put_verbatim(out, version, &core.resp_clients());
            }
            Command::Client => client(connection, args, out),
            // Either is as much work as many requests: others come first.
            Command::Scan => {
                core.resp_scan(args, out);
                return Step::Stop(bytes, Stop::Quota);
            }
            Command::RandomKey => {
                let is_answered = core.resp_random_key(connection.session(), arrived, out);
                return Step::Stop(if is_answered { bytes } else { 0 }, Stop::Quota);
            }
            Command::Object => core.resp_object(connection, args, out),
            // There are no replicas to wait for.
            Command::Wait => match (args.next().and_then(integer), args.next().and_then(integer)) {
                (Some(0..), Some(0..)) => put_integer(out, 0),
                (Some(_), Some(..0)) => out.extend_from_slice(NEGATIVE_TIMEOUT),
                _ => out.extend_from_slice(BAD_DATABASE),
            },
            Command::Commands => commands(version, args, out),
            Command::Info => put_verbatim(out, version, &core.resp_info(args)),
            Command::Config => core.resp_config(version, args, out),
            Command::Size => put_integer(out, core.items() as i64),
            Command::Time => put_time(core.clock.unix_nanos(arrived), out),
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

fn put_time(unix_nanos: u64, out: &mut Vec<u8>) {
    let micros = unix_nanos / 1000;
    put_array_head(out, 2);
    put_bulk(out, (micros / 1_000_000).to_string().as_bytes());
    put_bulk(out, (micros % 1_000_000).to_string().as_bytes());
}

fn put_wrong_number(name: &str, out: &mut Vec<u8>) {
    put_error(out, format!("ERR wrong number of arguments for '{name}' command").as_bytes());
}

/// Whether a client may call itself so.
fn name_of(text: &[u8]) -> Result<&[u8], &'static [u8]> {
    match () {
        () if text.len() > NAME_BYTES_MAX => Err(LONG_NAME),
        () if text.iter().all(|byte| (b'!'..=b'~').contains(byte)) => Ok(text),
        () => Err(BAD_NAME),
    }
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

/// `CLIENT part ...`; the words were counted.
fn client<S>(connection: &mut Connection<S>, mut args: Args<'_>, out: &mut Vec<u8>) {
    let part = args.next().unwrap_or_default();
    let card = connection.card.clone();
    let session = connection.session();
    let version = session.version;
    match () {
        () if is(part, "id") => put_integer(out, card.number as i64),
        () if is(part, "getname") => match session.name.is_empty() {
            true => put_null(out, version),
            false => put_bulk(out, &session.name),
        },
        () if is(part, "setname") => match name_of(args.next().unwrap_or_default()) {
            Ok(name) => {
                session.name = name.to_vec();
                out.extend_from_slice(OK);
            }
            Err(words) => out.extend_from_slice(words),
        },
        () if is(part, "setinfo") => {
            let what = args.next().unwrap_or_default();
            put_info_set(what, args.next().unwrap_or_default(), out);
        }
        () if is(part, "no-evict") || is(part, "no-touch") => {
            let on = args.next().unwrap_or_default();
            let is_known = is(on, "on") || is(on, "off");
            out.extend_from_slice(if is_known { OK } else { SYNTAX });
        }
        () => {
            let resp = if version == Version::Three { 3 } else { 2 };
            let name = String::from_utf8_lossy(&session.name).into_owned();
            let (number, peer) = (card.number, &card.peer);
            let line = format!("id={number} addr={peer} name={name} db=0 resp={resp}\n");
            put_verbatim(out, version, line.as_bytes());
        }
    }
}

/// `CLIENT SETINFO` is looked at and forgotten.
fn put_info_set(what: &[u8], text: &[u8], out: &mut Vec<u8>) {
    if !is(what, "lib-name") && !is(what, "lib-ver") {
        let what = what[..what.len().min(128)].escape_ascii();
        return put_error(out, format!("ERR Unrecognized option '{what}'").as_bytes());
    }
    match name_of(text) {
        Ok(_) => out.extend_from_slice(OK),
        Err(_) => {
            let what = String::from_utf8_lossy(what);
            let words =
                format!("ERR {what} cannot contain spaces, newlines or special characters.");
            put_error(out, words.as_bytes());
        }
    }
}

fn commands(version: Version, mut args: Args<'_>, out: &mut Vec<u8>) {
    let Some(part) = args.next() else {
        put_array_head(out, TABLE.len());
        return TABLE.iter().for_each(|spec| put_spec(version, spec, out));
    };
    match () {
        () if is(part, "count") && args.left() > 0 => put_wrong_number("command|count", out),
        () if is(part, "count") => put_integer(out, TABLE.len() as i64),
        () if is(part, "list") => {
            put_array_head(out, TABLE.len());
            TABLE.iter().for_each(|spec| put_bulk(out, spec.name.as_bytes()));
        }
        () if is(part, "info") && args.left() == 0 => {
            put_array_head(out, TABLE.len());
            TABLE.iter().for_each(|spec| put_spec(version, spec, out));
        }
        () if is(part, "info") && args.left() as usize > COMMANDS_TOLD_MAX => {
            out.extend_from_slice(MANY_COMMANDS);
        }
        () if is(part, "info") => {
            put_array_head(out, args.left() as usize);
            for name in args {
                match find(name) {
                    Some(spec) => put_spec(version, spec, out),
                    None => put_null(out, version),
                }
            }
        }
        // `DOCS`: what they do stands in docs/resp.md.
        () => put_map_head(out, version, 0),
    }
}

/// Name, arity, flags, keys; and of access, hints, keys and parts nothing more.
fn put_spec(version: Version, spec: &Spec, out: &mut Vec<u8>) {
    put_array_head(out, 10);
    put_bulk(out, spec.name.as_bytes());
    put_integer(out, spec.arity.into());
    put_set_head(out, version, spec.flags.len());
    spec.flags.iter().for_each(|flag| put_simple(out, flag.as_bytes()));
    let (first, last, step) = spec.keys;
    [first, last, step].iter().for_each(|place| put_integer(out, i64::from(*place)));
    put_set_head(out, version, 0);
    (0..3).for_each(|_| put_array_head(out, 0));
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
        hello(door.as_ref(), true, session, args, out)
    }

    /// As it was at its beginning, before it had said who it is.
    fn resp_reset(&self, connection: &mut Connection<T::Stream>, bytes: usize) -> Step {
        if self.shared.settings.auth.is_some() {
            connection.dialect = Dialect::Unproven(Unproven::resp());
            return Step::Stop(bytes, Stop::Quota); // the rest is looked at otherwise
        }
        connection.dialect = Dialect::resp();
        Step::Took(bytes)
    }

    /// Items, those included that are over and that nobody has met since.
    fn items(&self) -> u64 {
        let all = std::iter::once(&self.shared.store).chain(self.shared.other_stores());
        all.map(|store| store.stats().items).sum()
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

    /// `CLIENT LIST`, of the first connections.
    fn resp_clients(&self) -> Vec<u8> {
        let mut text = String::new();
        let cards = lock(&self.shared.connections.cards);
        let clients = cards.values().filter(|card| card.kind == CardKind::Client);
        for card in clients.take(CLIENTS_MAX) {
            let idle = self.now_seconds.saturating_sub(card.last_seconds.load(Relaxed));
            let local = card.local.as_deref().unwrap_or_default();
            let (number, peer) = (card.number, &card.peer);
            text += &format!("id={number} addr={peer} laddr={local} idle={idle} db=0\n");
        }
        text.into_bytes()
    }

    /// `FLUSHALL [ASYNC|SYNC]`; false where there is more to do, and the same is to be asked again.
    fn resp_flush(&self, args: Args<'_>, out: &mut Vec<u8>) -> bool {
        if let Err(words) = self.may_flush(args) {
            out.extend_from_slice(words);
            return true;
        }
        let mut all = std::iter::once(&self.shared.store).chain(self.shared.other_stores());
        if !all.all(|store| store.flush_all()) {
            return false;
        }
        self.counters().cmd_flush.bump_owner();
        self.shared.flush_at(0);
        out.extend_from_slice(OK);
        true
    }

    /// `INFO [section ...]`
    fn resp_info(&self, sections: Args<'_>) -> Vec<u8> {
        let wanted = |name: &str| {
            let mut sections = sections;
            let is_all = |section: &[u8]| {
                ["all", "default", "everything"].iter().any(|all| is(section, all))
            };
            sections.left() == 0 || sections.any(|section| is(section, name) || is_all(section))
        };
        let (shared, connections) = (&self.shared, &self.shared.connections);
        let mut totals = crate::counters::Totals::default();
        shared.each_domain(|shared| totals.add_totals(&shared.board.totals()));
        let mut stats = shared.store.stats();
        shared.other_stores().iter().for_each(|store| stats.add(&store.stats()));
        let uptime = self.now_seconds.saturating_sub(shared.started_seconds);
        let policy = if shared.settings.store_mode { "noeviction" } else { "allkeys-lfu" };
        let mut text = String::new();
        let mut section = |name: &str, lines: &[(&str, String)]| {
            if wanted(name) {
                let gap = if text.is_empty() { "" } else { "\r\n" };
                let title = name[..1].to_uppercase() + &name[1..];
                text += &format!("{gap}# {title}\r\n");
                lines.iter().for_each(|(field, value)| text += &format!("{field}:{value}\r\n"));
            }
        };
        section(
            "server",
            &[
                ("redis_version", REDIS_VERSION.into()),
                ("server_name", "laneway".into()),
                ("laneway_version", VERSION.into()),
                ("redis_mode", "standalone".into()),
                ("arch_bits", usize::BITS.to_string()),
                ("process_id", std::process::id().to_string()),
                ("uptime_in_seconds", uptime.to_string()),
                ("uptime_in_days", (uptime / 86_400).to_string()),
            ],
        );
        section(
            "clients",
            &[
                ("connected_clients", connections.open.load(Relaxed).to_string()),
                ("maxclients", shared.settings.connections_max.to_string()),
                ("blocked_clients", "0".into()),
            ],
        );
        section(
            "memory",
            &[
                ("used_memory", stats.pool_bytes.saturating_sub(stats.pool_free_bytes).to_string()),
                ("maxmemory", stats.limit_bytes.to_string()),
                ("maxmemory_policy", policy.into()),
            ],
        );
        section("persistence", &[("loading", "0".into()), ("aof_enabled", "0".into())]);
        section(
            "stats",
            &[
                ("total_connections_received", connections.total.load(Relaxed).to_string()),
                ("rejected_connections", connections.rejected.load(Relaxed).to_string()),
                ("evicted_keys", stats.evictions.to_string()),
                ("keyspace_hits", totals.get_hits.to_string()),
                ("keyspace_misses", totals.get_misses.to_string()),
            ],
        );
        section("replication", &[("role", "master".into()), ("connected_slaves", "0".into())]);
        section("cluster", &[("cluster_enabled", "0".into())]);
        let keys = [("db0", format!("keys={},expires=0,avg_ttl=0", stats.items))];
        section("keyspace", &keys[..usize::from(stats.items > 0)]);
        text.into_bytes()
    }

    /// `CONFIG GET pattern ...`
    fn resp_config(&self, version: Version, mut args: Args<'_>, out: &mut Vec<u8>) {
        args.next(); // `GET`
        let settings = &self.shared.settings;
        let policy = if settings.store_mode { "noeviction" } else { "allkeys-lfu" };
        let known = [
            ("appendonly", "no".to_owned()),
            ("databases", "1".to_owned()),
            ("maxclients", settings.connections_max.to_string()),
            ("maxmemory", self.shared.store.stats().limit_bytes.to_string()),
            ("maxmemory-policy", policy.to_owned()),
            ("proto-max-bulk-len", laneway_wire::resp::BULK_BYTES_MAX.to_string()),
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
