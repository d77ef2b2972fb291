//! Properties of a parsed request that need no look-up: its key, whether it writes, and under which
//! operation it is counted.

use crate::latency::Operation;
use laneway_wire::{GetVerb, KEY_BYTES_MAX, Meta, Request};

/// The key of a request without a value, and whether the request may change its item. `None` for
/// those that are about no key, and for multigets, whose keys are asked for one by one.
pub(crate) fn key_of<'s, 'a: 's>(
    request: &Request<'a>,
    scratch: &'s mut [u8; KEY_BYTES_MAX],
) -> Option<(&'s [u8], bool)> {
    Some(match request {
        Request::Delete(delete) => (delete.key, true),
        Request::Arith(arith) => (arith.key, true),
        Request::Touch(touch) => (touch.key, true),
        Request::MetaDelete(meta) | Request::MetaArith(meta) => (meta.key.bytes(scratch), true),
        Request::MetaGet(meta) => (meta.key.bytes(scratch), meta_get_writes(meta)),
        Request::MetaDebug(meta) => (meta.key.bytes(scratch), false),
        _ => return None,
    })
}

fn meta_get_writes(meta: &Meta<'_>) -> bool {
    let flags = &meta.flags;
    flags.exptime.is_some() || flags.vivify.is_some() || flags.recache.is_some()
}

/// Whether a request is there to read, so that carrying it out twice does no harm. An `mg` that
/// finds a stale item is: who asks again is told that another fetches the value.
pub(crate) fn only_reads(request: &Request<'_>) -> bool {
    match request {
        Request::Get(get) => !writes(get.verb),
        Request::MetaGet(meta) => !meta_get_writes(meta),
        Request::Stats(words) => !words.starts_with(b"reset") && !words.starts_with(b"detail"),
        Request::MetaNoop | Request::MetaDebug(_) | Request::Version => true,
        _ => false,
    }
}

/// Whether a `get` of this verb changes its items.
pub(crate) fn writes(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gat | GetVerb::Gats)
}

/// The beginning of a line that asks for keys, up to the first of them.
pub(crate) fn verb_words(verb: GetVerb, exptime: i64) -> Vec<u8> {
    match verb {
        GetVerb::Get => b"get ".to_vec(),
        GetVerb::Gets => b"gets ".to_vec(),
        GetVerb::Gat => format!("gat {exptime} ").into_bytes(),
        GetVerb::Gats => format!("gats {exptime} ").into_bytes(),
    }
}

/// Which kind of operation a request is.
pub(crate) fn operation(request: &Request<'_>) -> Operation {
    match request {
        Request::Get(_) | Request::MetaGet(_) => Operation::Get,
        Request::Store(_) | Request::MetaSet(_) => Operation::Set,
        Request::Delete(_) | Request::MetaDelete(_) => Operation::Delete,
        Request::Arith(_) | Request::MetaArith(_) => Operation::Arith,
        Request::Touch(_) => Operation::Touch,
        _ => Operation::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_wire::{Limits, parse};

    #[test]
    fn what_changes_something_is_no_read() {
        for (line, is_read) in [
            ("get a b", true),
            ("gats 5 a", false),
            ("mg a v k", true),
            ("mg a v N30", false),
            ("ma a v", false),
            ("touch a 5", false),
            ("stats", true),
            ("stats cachedump 1 0", true),
            ("stats reset", false),
            ("stats detail on", false),
            ("flush_all", false),
        ] {
            let text = format!("{line}\r\n");
            let parsed = parse(text.as_bytes(), &Limits::default());
            let Ok(Some(frame)) = parsed else { panic!("{line} is no request") };
            assert_eq!(only_reads(&frame.request), is_read, "{line}");
        }
    }
}
