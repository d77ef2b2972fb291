//! Recognises the protocol of a new connection by its first bytes, where one port serves several.
//!
//! The byte 0x80 begins a request of memcached's binary protocol. A `*` begins a RESP request, and
//! no line of memcached's. Of inline commands those words count
//! that are Redis' and not memcached's: whoever tries a server by hand types one of them first.
//! Anything else is memcached's text, a word that both have (`get`, `set`, `incr`, `quit`)
//! included; so is the beginning of a protocol that is not served there, which is refused by text.

use laneway_wire::limits::BINARY_REQUEST;

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
    /// memcached's text protocol.
    Memcached,
    /// memcached's binary protocol.
    Binary,
    /// Not yet.
    Unclear,
}

/// Which protocols are served beside memcached's text, where first bytes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// RESP.
    pub resp: bool,
    /// memcached's binary protocol.
    pub binary: bool,
}

/// Judges what has arrived; nothing of it was served.
pub fn recognise(input: &[u8], beside: Beside) -> Recognised {
    match input.first() {
        None => return Recognised::Unclear,
        Some(&BINARY_REQUEST) if beside.binary => return Recognised::Binary,
        Some(_) if !beside.resp => return Recognised::Memcached,
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

    const BOTH: Beside = Beside { resp: true, binary: true };

    #[test]
    fn what_is_not_served_there_is_taken_for_text() {
        for (input, resp, binary, recognised) in [
            (&b"\x80"[..], true, false, Recognised::Memcached),
            (b"\x80", false, true, Recognised::Binary),
            (b"*1", false, true, Recognised::Memcached),
            (b"PING\r\n", false, true, Recognised::Memcached),
            (b"P", false, true, Recognised::Memcached),
            (b"", false, false, Recognised::Unclear),
        ] {
            assert_eq!(recognise(input, Beside { resp, binary }), recognised, "{input:?}");
        }
    }

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
            (b"\x80", Recognised::Binary),
            (b"\x80\x01*\r\n", Recognised::Binary),
            (b"cas k", Recognised::Memcached),
            (b"c", Recognised::Unclear),
            (b"ca", Recognised::Memcached),
        ] {
            assert_eq!(recognise(input, BOTH), recognised, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn no_command_of_memcacheds_waits_for_its_end() {
        let words = "get gets gat gats set add replace append prepend cas incr decr delete touch \
            mg ms md ma mn me stats version quit flush_all verbosity cache_memlimit shutdown \
            backup checkpoint compact migrate_rate client_rate client_bytes slabs lru \
            lru_crawler watch refresh_certs extstore debugtime";
        for word in words.split(' ') {
            let line = format!("{word} ");
            assert_eq!(recognise(line.as_bytes(), BOTH), Recognised::Memcached, "{word}");
        }
    }
}
