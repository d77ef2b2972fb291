//! Writing request lines: what a client sends, the inverse of [`crate::parse`].
//!
//! Only the line is written; the value of a `set` or `ms` and its `\r\n` are the caller's. Nothing
//! is checked: a key with a space in it makes another request.

use crate::reply::{CRLF, Sink, put_i64, put_u64};
use crate::request::*;

const NOREPLY: &[u8] = b" noreply";

/// Writes the line of `request`, its newline included.
pub fn put_request(sink: &mut impl Sink, request: &Request<'_>) {
    let noreply = match request {
        Request::Get(get) => put_get(sink, get),
        Request::Store(store) => put_store(sink, store),
        Request::Arith(arith) => {
            put_words(sink, &[if arith.increment { b"incr" } else { b"decr" }, arith.key]);
            put_u64_word(sink, arith.delta);
            arith.noreply
        }
        Request::Delete(delete) => {
            put_words(sink, &[b"delete", delete.key]);
            delete.noreply
        }
        Request::Touch(touch) => {
            put_words(sink, &[b"touch", touch.key]);
            put_i64_word(sink, touch.exptime);
            touch.noreply
        }
        Request::MetaGet(meta) => put_meta(sink, b"mg", meta, None),
        Request::MetaSet(set) => put_meta(sink, b"ms", &set.meta, Some(set.value_bytes)),
        Request::MetaDelete(meta) => put_meta(sink, b"md", meta, None),
        Request::MetaArith(meta) => put_meta(sink, b"ma", meta, None),
        Request::MetaDebug(meta) => put_meta(sink, b"me", meta, None),
        _ => put_rare(sink, request),
    };
    if noreply {
        sink.put(NOREPLY);
    }
    sink.put(CRLF);
}

fn put_words(sink: &mut impl Sink, words: &[&[u8]]) {
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            sink.put(b" ");
        }
        sink.put(word);
    }
}

fn put_u64_word(sink: &mut impl Sink, value: u64) {
    sink.put(b" ");
    put_u64(sink, value);
}

fn put_i64_word(sink: &mut impl Sink, value: i64) {
    sink.put(b" ");
    put_i64(sink, value);
}

fn put_get(sink: &mut impl Sink, get: &Get<'_>) -> bool {
    let (verb, has_exptime): (&[u8], bool) = match get.verb {
        GetVerb::Get => (b"get", false),
        GetVerb::Gets => (b"gets", false),
        GetVerb::Gat => (b"gat", true),
        GetVerb::Gats => (b"gats", true),
    };
    sink.put(verb);
    if has_exptime {
        put_i64_word(sink, get.exptime);
    }
    for key in get.keys {
        sink.put(b" ");
        sink.put(key);
    }
    false
}

fn put_store(sink: &mut impl Sink, store: &Store<'_>) -> bool {
    let verb: &[u8] = match store.verb {
        StoreVerb::Set => b"set",
        StoreVerb::Add => b"add",
        StoreVerb::Replace => b"replace",
        StoreVerb::Append => b"append",
        StoreVerb::Prepend => b"prepend",
        StoreVerb::Cas(_) => b"cas",
    };
    put_words(sink, &[verb, store.key]);
    put_u64_word(sink, u64::from(store.flags));
    put_i64_word(sink, store.exptime);
    put_u64_word(sink, store.value_bytes as u64);
    if let StoreVerb::Cas(id) = store.verb {
        put_u64_word(sink, id);
    }
    store.noreply
}

/// The flags go out as their text: the fields were read from it.
fn put_meta(
    sink: &mut impl Sink,
    verb: &[u8],
    meta: &Meta<'_>,
    value_bytes: Option<usize>,
) -> bool {
    put_words(sink, &[verb, meta.key.token]);
    if let Some(value_bytes) = value_bytes {
        put_u64_word(sink, value_bytes as u64);
    }
    if !meta.flags.tokens.is_empty() {
        sink.put(b" ");
        sink.put(meta.flags.tokens);
    }
    false
}

/// The commands without a key.
fn put_rare(sink: &mut impl Sink, request: &Request<'_>) -> bool {
    match *request {
        Request::FlushAll { delay, noreply } => {
            sink.put(b"flush_all");
            if let Some(delay) = delay {
                put_i64_word(sink, delay);
            }
            return noreply;
        }
        Request::Verbosity { level, noreply } => {
            sink.put(b"verbosity");
            put_u64_word(sink, u64::from(level));
            return noreply;
        }
        Request::MemoryLimit { megabytes, noreply } => {
            sink.put(b"cache_memlimit");
            put_u64_word(sink, megabytes);
            return noreply;
        }
        Request::Stats(b"") => sink.put(b"stats"),
        Request::Stats(words) => put_words(sink, &[b"stats", words]),
        Request::Shutdown(ShutdownMode::Now) => sink.put(b"shutdown"),
        Request::Shutdown(ShutdownMode::Graceful) => sink.put(b"shutdown graceful"),
        Request::Shutdown(ShutdownMode::Unknown) => sink.put(b"shutdown ?"),
        Request::Version => sink.put(b"version"),
        Request::Quit => sink.put(b"quit"),
        Request::MetaNoop => sink.put(b"mn"),
        Request::Admin(line) => sink.put(line),
        // Written by `put_request` itself.
        Request::Get(_) | Request::Store(_) | Request::Arith(_) | Request::Delete(_) => {}
        Request::Touch(_) | Request::MetaGet(_) | Request::MetaSet(_) => {}
        Request::MetaDelete(_) | Request::MetaArith(_) | Request::MetaDebug(_) => {}
    }
    false
}
