//! The protocols whose scripts are replayed, and against whom.

use super::play::{End, Peer};
use crate::{Executable, Failure, skipped};

/// Today's memcached, and Debian stable's.
pub const NEWEST: &str = "1.6.45";
pub const STABLE: &str = "1.6.18";

/// One protocol.
pub struct Protocol {
    /// Of its scripts, from the root.
    pub folder: &'static str,
    /// Forgets everything, and how that is answered.
    pub flush: &'static [u8],
    pub flushed: &'static str,
    pub end: End,
    pub rivals: &'static [Rival],
    /// Whether replay-allow.toml speaks of its scripts.
    pub has_list: bool,
}

/// A server that the scripts are compared with.
pub struct Rival {
    pub peer: Peer,
    find: fn() -> Option<Executable>,
    /// The task that brings it.
    task: &'static str,
    /// What it must say of its version.
    version: &'static str,
}

impl Rival {
    /// Its executable, if it can be compared with.
    pub fn executable(&self) -> Result<Executable, Failure> {
        let name = self.peer.name;
        let Some(executable) = (self.find)() else {
            return skipped(format!("no {name} here, see `cargo xtask {}`", self.task));
        };
        let told = executable.version()?;
        match told.split_whitespace().any(|word| word.starts_with(self.version)) {
            true => Ok(executable),
            false => skipped(format!("it is {told}, and the scripts tell how {name} differs")),
        }
    }
}

/// Today's memcached, and Debian stable's.
const MEMCACHEDS: &[Rival] = &[
    Rival {
        peer: Peer { name: "memcached 1.6.45", mark: NEWEST },
        find: Executable::newest_memcached,
        task: "peers",
        version: NEWEST,
    },
    Rival {
        peer: Peer { name: "memcached 1.6.18", mark: STABLE },
        find: Executable::memcached,
        task: "setup",
        version: STABLE,
    },
];

pub const MEMCACHED: Protocol = Protocol {
    folder: "crates/server/tests/scripts",
    flush: b"flush_all\r\n",
    flushed: "OK",
    end: End { request: b"mn\r\n", reply: b"MN\r\n", name: "MN" },
    rivals: MEMCACHEDS,
    has_list: true,
};

/// A case is flushed before by a connection of its own, which speaks text.
pub const BINARY: Protocol = Protocol {
    folder: "crates/server/tests/scripts/binary",
    flush: b"flush_all\r\n",
    flushed: "OK",
    end: End {
        request: b"\x80\x0a\0\0\0\0\0\0\0\0\0\0end.\0\0\0\0\0\0\0\0",
        reply: b"\x81\x0a\0\0\0\0\0\0\0\0\0\0end.\0\0\0\0\0\0\0\0",
        name: "the reply to NOOP",
    },
    rivals: MEMCACHEDS,
    has_list: false,
};

pub const RESP: Protocol = Protocol {
    folder: "crates/server/tests/scripts/resp",
    flush: b"*1\r\n$8\r\nFLUSHALL\r\n",
    flushed: "+OK",
    end: End {
        request: b"*2\r\n$4\r\nPING\r\n$3\r\nend\r\n",
        reply: b"$3\r\nend\r\n",
        name: "the reply to PING",
    },
    rivals: &[
        Rival {
            peer: Peer { name: "Valkey 9.1", mark: "valkey" },
            find: || Executable::redis("valkey-server"),
            task: "peers",
            version: "v=9.1.",
        },
        Rival {
            peer: Peer { name: "Redis 8", mark: "redis" },
            find: || Executable::redis("redis-server"),
            task: "peers",
            version: "v=8.",
        },
    ],
    has_list: false,
};
