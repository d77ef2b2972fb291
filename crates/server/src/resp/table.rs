//! The commands: their names, how many arguments they take, and what `COMMAND` tells of them.

use crate::execute::redis::{Count, ExpiryUnit, Left, Telling};
use Command::*;
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::put_error;

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `GET`
    Get,
    /// `SET`
    Set,
    /// `SETNX`
    SetAbsent,
    /// `SETEX`, `PSETEX`
    SetExpiring(ExpiryUnit),
    /// `GETSET`
    GetSet,
    /// `APPEND`
    Append,
    /// `SETRANGE`
    SetRange,
    /// `GETRANGE`, `SUBSTR`
    GetRange,
    /// `INCRBYFLOAT`
    StepFloat,
    /// `MGET`
    GetMany,
    /// `MSET`
    SetMany,
    /// `MSETNX`
    SetManyAbsent,
    /// `RENAME`, `RENAMENX`
    Rename {
        /// Only where there is no item of the new name.
        only_absent: bool,
    },
    /// `GETDEL`
    GetDelete,
    /// `GETEX`
    GetExpire,
    /// `INCR`, `DECR`
    Step(i64),
    /// `INCRBY`, `DECRBY`
    StepBy {
        /// The amount is taken off.
        down: bool,
    },
    /// `DEL`, `UNLINK`, `EXISTS`, `TOUCH`
    CountKeys(Count),
    /// `STRLEN`, `TYPE`, `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`
    Tell(Telling),
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT`, `PEXPIREAT`
    Expire(ExpiryUnit),
    /// `PERSIST`
    Persist,
    /// `DELIFEQ`
    DeleteEqual,
    /// `KEYS`
    Keys,
    /// `SCAN`
    Scan,
    /// `RANDOMKEY`
    RandomKey,
    /// `OBJECT`, `MEMORY`
    Object,
    /// `WAIT`
    Wait,
    /// `PING`
    Ping,
    /// `ECHO`
    Echo,
    /// `HELLO`
    Hello,
    /// `AUTH`
    Auth,
    /// `SELECT`
    Select,
    /// `QUIT`
    Quit,
    /// `RESET`
    Reset,
    /// `CLIENT`
    Client,
    /// `COMMAND`
    Commands,
    /// `INFO`
    Info,
    /// `CONFIG`
    Config,
    /// `DBSIZE`
    Size,
    /// `FLUSHALL`, `FLUSHDB`
    Flush,
    /// `TIME`
    Time,
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
    /// `WATCH`
    Watch,
    /// `UNWATCH`
    Unwatch,
}

/// A command.
#[derive(Debug)]
pub struct Spec {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What it asks.
    pub command: Command,
    /// How many arguments it takes, its name included; where that is negative, at least so many.
    pub arity: i32,
    /// What `COMMAND` tells of it.
    pub flags: &'static [&'static str],
    /// Where its keys stand: the first, the last (from the end, where it is negative), every how
    /// many arguments.
    pub keys: (i32, i32, i32),
}

impl Spec {
    /// Whether it changes what is stored.
    pub fn writes(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// Whether so many arguments fit.
    pub fn takes(&self, arguments: u32) -> bool {
        let arguments = i64::from(arguments);
        match i64::from(self.arity) {
            arity @ 0.. => arguments == arity,
            arity => arguments >= -arity,
        }
    }

    /// Redis' words where they do not.
    pub fn wrong_number(&self) -> Vec<u8> {
        format!("-ERR wrong number of arguments for '{}' command\r\n", self.name).into_bytes()
    }
}

/// What is told of one that does, where the port is read-only. The words are Redis' for a replica:
/// its clients know the first of them.
pub const READ_ONLY: &[u8] = b"-READONLY You can't write against a read only replica.\r\n";

const READ: &[&str] = &["readonly", "fast"];
const READ_MANY: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const SHRINK: &[&str] = &["write", "fast"];
const PLAIN: &[&str] = &["fast"];
const ADMIN: &[&str] = &["admin"];
const ONE: (i32, i32, i32) = (1, 1, 1);
const BOTH: (i32, i32, i32) = (1, 2, 1);
const ALL: (i32, i32, i32) = (1, -1, 1);
const NONE: (i32, i32, i32) = (0, 0, 0);

const fn spec(
    name: &'static str,
    command: Command,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
) -> Spec {
    Spec { name, command, arity, flags, keys }
}

const fn left(how: Left) -> Command {
    Tell(Telling::Left(how))
}

/// All of them, those first that are asked often.
pub static TABLE: &[Spec] = &[
    spec("get", Get, 2, READ, ONE),
    spec("set", Set, -3, WRITE, ONE),
    spec("del", CountKeys(Count::Deleted), -2, SHRINK, ALL),
    spec("mget", GetMany, -2, READ_MANY, ALL),
    spec("incr", Step(1), 2, WRITE, ONE),
    spec("expire", Expire(ExpiryUnit::Seconds), -3, SHRINK, ONE),
    spec("setex", SetExpiring(ExpiryUnit::Seconds), 4, WRITE, ONE),
    spec("exists", CountKeys(Count::There), -2, READ, ALL),
    spec("ttl", left(Left::Seconds), 2, READ, ONE),
    spec("mset", SetMany, -3, WRITE, (1, -1, 2)),
    spec("setnx", SetAbsent, 3, WRITE, ONE),
    spec("psetex", SetExpiring(ExpiryUnit::Milliseconds), 4, WRITE, ONE),
    spec("getset", GetSet, 3, WRITE, ONE),
    spec("getdel", GetDelete, 2, SHRINK, ONE),
    spec("getex", GetExpire, -2, SHRINK, ONE),
    spec("append", Append, 3, WRITE, ONE),
    spec("getrange", GetRange, 4, READ_MANY, ONE),
    spec("substr", GetRange, 4, READ_MANY, ONE),
    spec("setrange", SetRange, 4, &["write", "denyoom"], ONE),
    spec("incrbyfloat", StepFloat, 3, WRITE, ONE),
    spec("strlen", Tell(Telling::Length), 2, READ, ONE),
    spec("decr", Step(-1), 2, WRITE, ONE),
    spec("incrby", StepBy { down: false }, 3, WRITE, ONE),
    spec("decrby", StepBy { down: true }, 3, WRITE, ONE),
    spec("unlink", CountKeys(Count::Deleted), -2, SHRINK, ALL),
    spec("touch", CountKeys(Count::Touched), -2, READ, ALL),
    spec("type", Tell(Telling::Kind), 2, READ, ONE),
    spec("pexpire", Expire(ExpiryUnit::Milliseconds), -3, SHRINK, ONE),
    spec("expireat", Expire(ExpiryUnit::UnixSeconds), -3, SHRINK, ONE),
    spec("pexpireat", Expire(ExpiryUnit::UnixMilliseconds), -3, SHRINK, ONE),
    spec("pttl", left(Left::Milliseconds), 2, READ, ONE),
    spec("expiretime", left(Left::UnixSeconds), 2, READ, ONE),
    spec("pexpiretime", left(Left::UnixMilliseconds), 2, READ, ONE),
    spec("persist", Persist, 2, SHRINK, ONE),
    spec("delifeq", DeleteEqual, 3, SHRINK, ONE),
    spec("ping", Ping, -1, PLAIN, NONE),
    spec("multi", Multi, 1, PLAIN, NONE),
    spec("exec", Exec, 1, PLAIN, NONE),
    spec("discard", Discard, 1, PLAIN, NONE),
    spec("watch", Watch, -2, PLAIN, ALL),
    spec("unwatch", Unwatch, 1, PLAIN, NONE),
    spec("msetnx", SetManyAbsent, -3, &["write", "denyoom"], (1, -1, 2)),
    spec("rename", Rename { only_absent: false }, 3, &["write"], BOTH),
    spec("renamenx", Rename { only_absent: true }, 3, SHRINK, BOTH),
    spec("echo", Echo, 2, PLAIN, NONE),
    spec("hello", Hello, -1, PLAIN, NONE),
    spec("auth", Auth, -2, PLAIN, NONE),
    spec("select", Select, 2, PLAIN, NONE),
    spec("quit", Quit, -1, PLAIN, NONE),
    spec("reset", Reset, 1, PLAIN, NONE),
    spec("client", Client, -2, PLAIN, NONE),
    spec("command", Commands, -1, PLAIN, NONE),
    spec("info", Info, -1, PLAIN, NONE),
    spec("config", Config, -2, ADMIN, NONE),
    spec("dbsize", Size, 1, READ, NONE),
    spec("flushall", Flush, -1, &["write"], NONE),
    spec("flushdb", Flush, -1, &["write"], NONE),
    spec("time", Time, 1, PLAIN, NONE),
    spec("keys", Keys, 2, READ_MANY, NONE),
    spec("scan", Scan, -2, READ_MANY, NONE),
    spec("randomkey", RandomKey, 1, READ_MANY, NONE),
    spec("object", Object, -2, READ_MANY, (2, 2, 1)),
    spec("memory", Object, -2, READ_MANY, (2, 2, 1)),
    spec("wait", Wait, 3, PLAIN, NONE),
];

/// The second words of the commands that have one, and how many arguments stand behind it, at least
/// and at most.
pub static PARTS: &[(&str, &str, u32, u32)] = &[
    ("client", "help", 0, 0),
    ("client", "id", 0, 0),
    ("client", "info", 0, 0),
    ("client", "list", 0, u32::MAX),
    ("client", "getname", 0, 0),
    ("client", "setname", 1, 1),
    ("client", "setinfo", 2, 2),
    ("client", "no-evict", 1, 1),
    ("client", "no-touch", 1, 1),
    ("command", "help", 0, 0),
    ("command", "count", 0, 0),
    ("command", "list", 0, u32::MAX),
    ("command", "getkeys", 1, u32::MAX),
    ("command", "info", 0, u32::MAX),
    ("command", "docs", 0, u32::MAX),
    ("config", "help", 0, 0),
    ("config", "get", 1, u32::MAX),
    ("object", "help", 0, 0),
    ("object", "encoding", 1, 1),
    ("object", "freq", 1, 1),
    ("object", "idletime", 1, 1),
    ("object", "refcount", 1, 1),
    ("memory", "help", 0, 0),
    ("memory", "usage", 1, u32::MAX),
];

/// Whether the second word of a command is one, and so many arguments fit; else what is told, in
/// Redis' words. `args` are those behind the first.
pub fn check_part(spec: &Spec, mut args: Args<'_>) -> Result<(), Vec<u8>> {
    let mut parts = PARTS.iter().filter(|(name, ..)| *name == spec.name).peekable();
    let (Some(_), Some(word)) = (parts.peek(), args.next()) else { return Ok(()) };
    let mut out = Vec::new();
    let words = match parts.find(|(_, part, ..)| part.as_bytes().eq_ignore_ascii_case(word)) {
        Some((.., least, most)) if (*least..=*most).contains(&args.left()) => return Ok(()),
        Some((name, part, ..)) => {
            format!("ERR wrong number of arguments for '{name}|{part}' command")
        }
        None => {
            let (word, name) = (word[..word.len().min(128)].escape_ascii(), spec.name);
            format!("ERR unknown subcommand '{word}'. Try {} HELP.", name.to_uppercase())
        }
    };
    put_error(&mut out, words.as_bytes());
    Err(out)
}

/// The command of this name, in any case.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_marked_as_a_write_changes_no_item() {
        for spec in TABLE {
            let reads = match spec.command {
                Get | GetRange | GetMany | Tell(_) => true,
                CountKeys(what) => what != Count::Deleted,
                Keys | Scan | RandomKey | Object | Size => true,
                Ping | Echo | Time | Wait | Info | Config | Commands => true,
                Hello | Auth | Select | Quit | Reset | Client => true,
                Multi | Exec | Discard | Watch | Unwatch => true,
                _ => false,
            };
            assert_eq!(spec.writes(), !reads, "{}", spec.name);
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_arguments_are_counted() {
        for spec in TABLE {
            assert_eq!(spec.name, spec.name.to_lowercase());
            let found = find(spec.name.to_uppercase().as_bytes()).expect("it is there");
            assert!(std::ptr::eq(found, spec), "{} is there twice", spec.name);
            let least = spec.arity.unsigned_abs();
            assert!(spec.takes(least) && !spec.takes(least - 1), "{}", spec.name);
            assert_eq!(spec.takes(least + 1), spec.arity < 0, "{}", spec.name);
        }
        assert!(find(b"ge").is_none() && find(b"").is_none() && find(b"gett").is_none());
    }
}
