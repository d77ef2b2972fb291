//! Which protocol a new connection speaks, by its first bytes, where one port is for both.
//!
//! A `*` begins a RESP request, and no line of memcached's. Of inline commands those words count
//! that are Redis' and not memcached's: whoever tries a server by hand types one of them first.
//! Anything else is memcached's, a word that both have (`get`, `set`, `incr`, `quit`) included.

/// Inline commands that memcached does not have.
const WORDS: [&[u8]; 10] = [
    b"ping", b"hello", b"auth", b"info", b"echo", b"select", b"client", b"command", b"config",
    b"dbsize",
];

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognised {
    /// RESP.
    Resp,
    /// memcached's protocol.
    Memcached,
    /// Not yet.
    Unclear,
}

/// Judges what has arrived; nothing of it was served.
pub fn recognise(input: &[u8]) -> Recognised {
    match input.first() {
        None => return Recognised::Unclear,
        Some(b'*') => return Recognised::Resp,
        Some(_) => {}
    }
    let end = input.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    let word = &input[..end.unwrap_or(input.len())];
    let begins = |of: &&[u8]| of.len() >= word.len() && of[..word.len()].eq_ignore_ascii_case(word);
    match end {
        Some(_) if WORDS.iter().any(|of| of.eq_ignore_ascii_case(word)) => Recognised::Resp,
        None if WORDS.iter().any(begins) => Recognised::Unclear,
        _ => Recognised::Memcached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol() {
        for (input, recognised) in [
            (&b"*"[..], Recognised::Resp),
            (b"*1\r\n$4\r\nPING\r\n", Recognised::Resp),
            (b"PING\r\n", Recognised::Resp),
            (b"ping\n", Recognised::Resp),
            (b"HELLO 3\r\n", Recognised::Resp),
            (b"Info\tserver\r\n", Recognised::Resp),
            (b"P", Recognised::Unclear),
            (b"co", Recognised::Unclear),
            (b"comman", Recognised::Unclear),
            (b"command", Recognised::Unclear),
            (b"commands\r\n", Recognised::Memcached),
            (b"", Recognised::Unclear),
            (b"get k\r\n", Recognised::Memcached),
            (b"GET k\r\n", Recognised::Memcached),
            (b"set k 0 0 1\r\n", Recognised::Memcached),
            (b"quit\r\n", Recognised::Memcached),
            (b"stats\r\n", Recognised::Memcached),
            (b"version\r\n", Recognised::Memcached),
            (b"mg k v\r\n", Recognised::Memcached),
            (b" ping\r\n", Recognised::Memcached),
            (b"\r\n", Recognised::Memcached),
            (b"\x80\x01", Recognised::Memcached),
            (b"cas k", Recognised::Memcached),
            (b"c", Recognised::Unclear),
            (b"ca", Recognised::Memcached),
        ] {
            assert_eq!(recognise(input), recognised, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn no_command_of_memcacheds_waits_for_its_end() {
        for word in [
            "get",
            "gets",
            "gat",
            "gats",
            "set",
            "add",
            "replace",
            "append",
            "prepend",
            "cas",
            "incr",
            "decr",
            "delete",
            "touch",
            "mg",
            "ms",
            "md",
            "ma",
            "mn",
            "me",
            "stats",
            "version",
            "quit",
            "flush_all",
            "verbosity",
            "cache_memlimit",
            "shutdown",
            "slabs",
            "lru",
            "lru_crawler",
            "watch",
            "refresh_certs",
            "extstore",
            "debugtime",
        ] {
            assert_eq!(recognise(format!("{word} ").as_bytes()), Recognised::Memcached, "{word}");
        }
    }
}
