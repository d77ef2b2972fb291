//! Questions to a server beside the measured traffic: its version, its `stats`, its processor time.
//! Each has a short-lived blocking connection of its own.

use crate::connection::{Stream, Target};
use crate::dialect::Dialect;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::str::FromStr;
use std::time::Duration;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Twice what `stats cachedump` tells at most.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What a server tells, by name.
pub type Stats = BTreeMap<String, String>;

/// The server's version in its own words: the reply to `version`, or what `INFO` tells.
pub fn version(target: &Target, dialect: Dialect) -> io::Result<String> {
    match dialect {
        Dialect::Text => {
            let reply = version_on(&mut Stream::connect(target)?)?;
            let words = reply.trim();
            Ok(words.strip_prefix("VERSION ").unwrap_or(words).into())
        }
        Dialect::Resp => Ok(version_in(&info(target, b"INFO server\r\n")?)),
    }
}

/// The version in an `INFO`. Valkey has one of its own, and in `redis_version` that of the Redis
/// whose commands it has, 7.2.4 whatever it is itself.
fn version_in(info: &Stats) -> String {
    let told = info.get("valkey_version").or_else(|| info.get("redis_version"));
    told.cloned().unwrap_or_default()
}

/// What a server speaks, by how it takes `version`: memcached tells it, Redis has no such command.
pub fn dialect(target: &Target) -> io::Result<Dialect> {
    let reply = version_on(&mut Stream::connect(target)?)?;
    match reply.as_bytes() {
        [b'V', b'E', b'R', ..] => Ok(Dialect::Text),
        [b'-', ..] => Ok(Dialect::Resp),
        _ => {
            let words = format!("speaks neither memcached's protocol nor Redis': {reply:?}");
            Err(io::Error::new(io::ErrorKind::InvalidData, words))
        }
    }
}

/// `stats`, and `stats WORDS` where there are words, by name; for Redis, `INFO`.
pub fn stats(target: &Target, dialect: Dialect, words: &str) -> io::Result<Stats> {
    if dialect == Dialect::Resp {
        return info(target, b"INFO\r\n");
    }
    Ok(command(target, format!("stats {words}").trim_end())?
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

/// The answer to a line of memcached's protocol, whole.
pub fn command(target: &Target, line: &str) -> io::Result<String> {
    // Not behind one of the lines that others follow.
    let is_whole = |reply: &[u8]| {
        let Some(lines) = reply.strip_suffix(b"\r\n") else { return false };
        let last = lines.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        !["STAT ", "ITEM "].iter().any(|word| last.starts_with(word.as_bytes()))
    };
    ask(target, format!("{line}\r\n").as_bytes(), is_whole)
}

/// How many of these keys the server has (memcached's protocol).
pub fn held(target: &Target, keys: impl Iterator<Item = String>) -> io::Result<usize> {
    let line = format!("get {}\r\n", keys.collect::<Vec<_>>().join(" "));
    let is_whole = |reply: &[u8]| reply.ends_with(b"END\r\n") || reply.ends_with(b"ERROR\r\n");
    Ok(ask(target, line.as_bytes(), is_whole)?.matches("VALUE ").count())
}

/// The version by a connection that there is: everything sent before was carried out then.
pub fn version_on(stream: &mut Stream) -> io::Result<String> {
    ask_on(stream, b"version\r\n", |reply| reply.ends_with(b"\n"))
}

/// Processor time by the server's own account, in nanoseconds, where it tells.
pub fn cpu_ns(target: &Target, dialect: Dialect) -> Option<u64> {
    let stats = stats(target, dialect, "").ok()?;
    let names = match dialect {
        Dialect::Text => ["rusage_user", "rusage_system"],
        Dialect::Resp => ["used_cpu_user", "used_cpu_sys"],
    };
    let [user_s, system_s] = names.map(|name| number::<f64>(&stats, name));
    Some(((user_s? + system_s?) * 1e9) as u64)
}

/// A number of what a server tells.
pub fn number<T: FromStr>(stats: &Stats, name: &str) -> Option<T> {
    stats.get(name)?.trim().parse().ok()
}

/// Items held by the server's own account, of `stats` that came.
pub fn items_in(stats: &Stats, dialect: Dialect) -> Option<u64> {
    match dialect {
        Dialect::Text => number(stats, "curr_items"),
        // Such as `keys=100,expires=0,avg_ttl=0`; the line is missing while there are none.
        Dialect::Resp => stats.get("db0")?.strip_prefix("keys=")?.split(',').next()?.parse().ok(),
    }
}

fn info(target: &Target, request: &[u8]) -> io::Result<Stats> {
    let is_whole = |reply: &[u8]| {
        let Some(newline) = reply.iter().position(|&byte| byte == b'\n') else { return false };
        let Ok(head) = std::str::from_utf8(&reply[..newline]) else { return true };
        match head.trim().strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok()) {
            Some(bytes) => reply.len() >= newline + 1 + bytes + 2,
            None => true,
        }
    };
    Ok(fields(&ask(target, request, is_whole)?))
}

/// The lines `name:value` of an `INFO`.
fn fields(reply: &str) -> Stats {
    let pairs = reply.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn ask(target: &Target, request: &[u8], is_whole: impl Fn(&[u8]) -> bool) -> io::Result<String> {
    ask_on(&mut Stream::connect(target)?, request, is_whole)
}

fn ask_on(
    stream: &mut Stream,
    request: &[u8],
    is_whole: impl Fn(&[u8]) -> bool,
) -> io::Result<String> {
    set_socket_timeout(&*stream, Timeout::Recv, Some(ANSWER_WITHIN))?;
    stream.write_all(request)?;
    let mut reply = Vec::new();
    let mut buffer = [0; 4_096];
    while !is_whole(&reply) && reply.len() < ANSWER_BYTES_MAX {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => reply.extend_from_slice(&buffer[..read]),
            // A process that was halted and goes on.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkeys_version_is_its_own_and_not_that_of_the_redis_that_it_replaces() {
        for (reply, version) in [
            ("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", "9.1.2"),
            ("# Server\r\nredis_version:8.0.6\r\nos:Linux\r\n", "8.0.6"),
            ("-ERR unknown command\r\n", ""),
        ] {
            assert_eq!(version_in(&fields(reply)), version, "{reply}");
        }
    }
}
