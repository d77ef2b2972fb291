//! An event as the words of the journal, and as the line that is made of them (logger.c of
//! memcached 1.6.45, whose lines end without a `\r`). Departs from memcached: microseconds have all
//! of their six digits.

use super::event::{
    DeletedBy, Event, Fetched, HEAD_WORDS, Parting, Stored, StoredBy, Subject, TEXT_BYTES_MAX,
    WORDS,
};
use laneway_store::Moment;
use laneway_wire::uri;
use std::io::Write;

/// An event's kind, by which its other words are read.
mod kind {
    pub(super) const GET: u8 = 1;
    pub(super) const STORE: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const EVICT: u8 = 4;
    pub(super) const OPEN: u8 = 5;
    pub(super) const CLOSE: u8 = 6;
}

const FETCHED: [&str; 2] = ["not_found", "found"];
const STORED: [&str; 6] = ["not_stored", "stored", "exists", "not_found", "too_large", "no_memory"];
const STORED_BY: [&str; 8] = ["add", "set", "replace", "append", "prepend", "cas", "incr", "decr"];
const DELETED_BY: [&str; 2] = ["delete", "md"];
const PARTING: [&str; 4] = ["error", "normal", "idle_timeout", "shutdown"];

const _: () = assert!(
    Fetched::Found as usize + 1 == FETCHED.len()
        && Stored::NoMemory as usize + 1 == STORED.len()
        && StoredBy::Decr as usize + 1 == STORED_BY.len()
        && DeletedBy::MetaDelete as usize + 1 == DELETED_BY.len()
        && Parting::Shutdown as usize + 1 == PARTING.len()
);

/// The second by which an end is told. One within this very second is told by the next: with no
/// second left it would read as no end.
fn second_of(end: Moment, now_millis: u64) -> u32 {
    let is_soon = end.unix_millis() > now_millis && u64::from(end.seconds()) == now_millis / 1000;
    if is_soon { end.seconds_up() } else { end.seconds() }
}

/// An event's words, the first of which is left for its number.
pub(super) fn words(
    event: Event,
    subject: &Subject<'_>,
    now_millis: u64,
    text: &[u8],
) -> [u64; WORDS] {
    let (kind, status, command, expires, idle_seconds) = match event {
        Event::Get(fetched) => (kind::GET, fetched as u8, 0, Moment::NEVER, 0),
        Event::Store(stored, by, expires) => (kind::STORE, stored as u8, by as u8, expires, 0),
        Event::Delete(by) => (kind::DELETE, 0, by as u8, Moment::NEVER, 0),
        Event::Evict { fetched, expires, idle_seconds } => {
            (kind::EVICT, fetched.into(), 0, expires, idle_seconds)
        }
        Event::Open => (kind::OPEN, 0, 0, Moment::NEVER, 0),
        Event::Close(parting) => (kind::CLOSE, parting as u8, 0, Moment::NEVER, 0),
    };
    let small = [kind, status, command, subject.class as u8, text.len() as u8, 0, 0, 0];
    let mut words = [0; WORDS];
    words[1] = now_millis;
    words[2] = u64::from_le_bytes(small);
    words[3] = subject.value_bytes;
    words[4] = u64::from(second_of(expires, now_millis)) << 32 | u64::from(idle_seconds);
    words[5] = subject.by;
    for (word, part) in words[HEAD_WORDS..].iter_mut().zip(text.chunks(8)) {
        let mut all = [0; 8];
        all[..part.len()].copy_from_slice(part);
        *word = u64::from_le_bytes(all);
    }
    words
}

/// The class that an entry of the journal is of; 0 where it is none of this log's.
pub(super) fn class_of(words: &[u64]) -> u32 {
    use super::event::Class::{Connections, Deletions, Evictions, Fetchers, Mutations};
    let kind = words.get(2).map_or(0, |small| *small as u8);
    match kind {
        kind::GET => Fetchers as u32,
        kind::STORE => Mutations as u32,
        kind::DELETE => Deletions as u32,
        kind::EVICT => Evictions as u32,
        kind::OPEN | kind::CLOSE => Connections as u32,
        _ => 0,
    }
}

/// Puts the line of an entry of the journal.
pub(super) fn put(words: &[u64], out: &mut Vec<u8>) {
    let [number, now_millis, small, value_bytes, times, by, text @ ..] = words else { return };
    let [kind, status, command, class, text_bytes, ..] = small.to_le_bytes();
    let mut bytes = [0; WORDS * 8];
    for (part, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(text) {
        *part = word.to_le_bytes();
    }
    let text = &bytes[..usize::from(text_bytes).min(TEXT_BYTES_MAX)];
    let (expires_seconds, idle_seconds) = (times >> 32, *times as u32);
    let left = i64::try_from(expires_seconds).unwrap_or(0) - (now_millis / 1000) as i64;
    let word =
        |of: &[&'static str], number: u8| of.get(usize::from(number)).copied().unwrap_or("na");
    let (seconds, micros, gid) = (now_millis / 1000, now_millis % 1000 * 1000, number + 1);
    put_text(out, format_args!("ts={seconds}.{micros:06} gid={gid} type="));
    match kind {
        kind::GET => {
            put_key(out, "item_get", text);
            let status = word(&FETCHED, status);
            put_text(
                out,
                format_args!(" status={status} clsid={class} cfd={by} size={value_bytes}\n"),
            );
        }
        kind::STORE => {
            put_key(out, "item_store", text);
            let (status, command) = (word(&STORED, status), word(&STORED_BY, command));
            let ttl = if expires_seconds == 0 { 0 } else { left.max(0) };
            put_text(
                out,
                format_args!(
                    " status={status} cmd={command} ttl={ttl} clsid={class} cfd={by} \
                     size={value_bytes}\n"
                ),
            );
        }
        kind::DELETE => {
            put_key(out, "deleted", text);
            let command = word(&DELETED_BY, command);
            put_text(out, format_args!(" cmd={command} clsid={class} size={value_bytes}\n"));
        }
        kind::EVICT => {
            put_key(out, "eviction", text);
            let fetched = if status == 0 { "no" } else { "yes" };
            let ttl = if expires_seconds == 0 { -1 } else { left };
            put_text(
                out,
                format_args!(
                    " fetch={fetched} ttl={ttl} la={idle_seconds} clsid={class} \
                     size={value_bytes}\n"
                ),
            );
        }
        kind::OPEN => {
            put_client(out, "conn_new", text);
            put_text(out, format_args!(" cfd={by}\n"));
        }
        _ => {
            put_client(out, "conn_close", text);
            let reason = word(&PARTING, status);
            put_text(out, format_args!(" reason={reason} cfd={by}\n"));
        }
    }
}

/// Puts the line that says how many events a watcher has missed.
pub(super) fn put_skipped(skipped: u64, out: &mut Vec<u8>) {
    put_text(out, format_args!("skipped={skipped}\n"));
}

fn put_key(out: &mut Vec<u8>, kind: &str, key: &[u8]) {
    put_text(out, format_args!("{kind} key="));
    uri::encode(key, out);
}

/// A client's address in memcached's notation (`tcp:10.0.0.1:4711`, `tcp6:[::1]:4711`,
/// `unix:/run/x`) as address, port and transport.
fn put_client(out: &mut Vec<u8>, kind: &str, peer: &[u8]) {
    let peer = String::from_utf8_lossy(peer);
    let (transport, address) = match peer.split_once(':') {
        Some(("tcp" | "tcp6", address)) => ("tcp", address),
        Some(("udp" | "udp6", address)) => ("udp", address),
        _ => ("local", ""),
    };
    let (rip, rport) = address.rsplit_once(':').unwrap_or(("unix", "0"));
    let rip = rip.trim_start_matches('[').trim_end_matches(']');
    put_text(out, format_args!("{kind} rip={rip} rport={rport} transport={transport}"));
}

fn put_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a Vec takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::new(1_700_000_000, 5);

    fn line(event: Event, subject: Subject<'_>) -> String {
        let mut words = words(event, &subject, NOW.unix_millis(), subject.text);
        words[0] = 6;
        let mut out = Vec::new();
        put(&words[..HEAD_WORDS + subject.text.len().div_ceil(8)], &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_are_those_of_memcached() {
        let item = Subject { text: b"a key/b", value_bytes: 4, class: 1, by: 28 };
        let client = |peer| Subject { text: peer, by: 9, ..Subject::default() };
        let in_a_minute = NOW.plus_seconds(60);
        for (event, subject, wanted) in [
            (
                Event::Get(Fetched::Found),
                item,
                "item_get key=a%20key%2Fb status=found clsid=1 cfd=28 size=4",
            ),
            (
                Event::Get(Fetched::Missed),
                Subject { text: b"k", ..Subject::default() },
                "item_get key=k status=not_found clsid=0 cfd=0 size=0",
            ),
            (
                Event::Store(Stored::Stored, StoredBy::Set, Moment::NEVER),
                item,
                "item_store key=a%20key%2Fb status=stored cmd=set ttl=0 clsid=1 cfd=28 size=4",
            ),
            (
                Event::Store(Stored::Exists, StoredBy::Cas, in_a_minute),
                item,
                "item_store key=a%20key%2Fb status=exists cmd=cas ttl=60 clsid=1 cfd=28 size=4",
            ),
            (
                Event::Delete(DeletedBy::MetaDelete),
                item,
                "deleted key=a%20key%2Fb cmd=md clsid=1 size=4",
            ),
            (
                Event::Evict { fetched: true, expires: Moment::NEVER, idle_seconds: 7 },
                item,
                "eviction key=a%20key%2Fb fetch=yes ttl=-1 la=7 clsid=1 size=4",
            ),
            (
                Event::Evict { fetched: false, expires: in_a_minute, idle_seconds: 0 },
                item,
                "eviction key=a%20key%2Fb fetch=no ttl=60 la=0 clsid=1 size=4",
            ),
            (
                Event::Open,
                client(b"tcp:10.0.0.1:4711"),
                "conn_new rip=10.0.0.1 rport=4711 transport=tcp cfd=9",
            ),
            (
                Event::Open,
                client(b"tcp6:[::1]:4711"),
                "conn_new rip=::1 rport=4711 transport=tcp cfd=9",
            ),
            (
                Event::Close(Parting::Normal),
                client(b"unix:/run/laneway"),
                "conn_close rip=unix rport=0 transport=local reason=normal cfd=9",
            ),
            (
                Event::Close(Parting::IdleTimeout),
                client(b"tcp:10.0.0.1:4711"),
                "conn_close rip=10.0.0.1 rport=4711 transport=tcp reason=idle_timeout cfd=9",
            ),
        ] {
            let told = line(event, subject);
            assert_eq!(told, format!("ts=1700000000.005000 gid=7 type={wanted}\n"));
            assert_eq!(class_of(&words(event, &subject, 0, b"")), event.class() as u32);
        }
    }

    #[test]
    fn what_ends_within_this_second_has_a_second_left_and_not_no_end() {
        let subject = Subject { text: b"k", ..Subject::default() };
        for (end, stored, evicted) in [
            (Moment::NEVER, 0, -1),
            (Moment::from_seconds(1), 0, 1 - i64::from(NOW.seconds())), // over for long
            (NOW, 0, 0),
            (Moment::new(NOW.seconds(), NOW.millis() + 1), 1, 1),
            (Moment::new(NOW.seconds(), 999), 1, 1),
            (Moment::from_seconds(NOW.seconds() + 1), 1, 1),
            (NOW.plus_seconds(1), 1, 1),
        ] {
            let told = line(Event::Store(Stored::Stored, StoredBy::Set, end), subject);
            assert!(told.contains(&format!(" ttl={stored} ")), "{end:?}: {told}");
            let event = Event::Evict { fetched: false, expires: end, idle_seconds: 0 };
            let told = line(event, subject);
            assert!(told.contains(&format!(" ttl={evicted} ")), "{end:?}: {told}");
        }
    }

    #[test]
    fn the_longest_key_is_told_whole() {
        let key = [b'x'; TEXT_BYTES_MAX];
        let told = line(Event::Get(Fetched::Missed), Subject { text: &key, ..Subject::default() });
        assert!(told.contains(&"x".repeat(TEXT_BYTES_MAX)), "{told}");
    }
}
