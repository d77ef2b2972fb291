//! Fuzzes the meta commands: a verb, then arbitrary bytes as its key, flags and value.
//!
//! What `text` reaches by luck alone: keys in base64, every flag with and without its token, what
//! is given twice. The first byte chooses the verb. What is checked: a verdict is within the line,
//! flags come back in their order and are read one by one, a key is within its limits however it
//! was written, and what was served prints and is served again as the same.

#![no_main]

use laneway_wire::print::put_request;
use laneway_wire::{KEY_BYTES_MAX, Limits, Meta, Request, Then, limits, parse};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { item_bytes_max: 4096, line_bytes_max: 3000 };
const VERBS: [&[u8]; 6] = [b"mg ", b"ms ", b"md ", b"ma ", b"me ", b"mn"];

fuzz_target!(|input: &[u8]| {
    let Some((verb, rest)) = input.split_first() else { return };
    let line = [VERBS[usize::from(*verb) % VERBS.len()], rest, b"\r\n"].concat();
    match parse(&line, &LIMITS) {
        Ok(None) => panic!("the line is there"),
        Ok(Some(frame)) => {
            assert!((1..=line.len()).contains(&frame.head_bytes));
            assert_eq!(line[frame.head_bytes - 1], b'\n');
            if let Some(meta) = meta(&frame.request) {
                check(&meta);
            }
            let mut printed = Vec::new();
            put_request(&mut printed, &frame.request);
            let again = parse(&printed, &LIMITS).expect("was served once").expect("is a line");
            assert_eq!(format!("{:?}", again.request), format!("{:?}", frame.request));
        }
        Err(malformed) => {
            assert!((1..=line.len()).contains(&malformed.head_bytes));
            assert!(malformed.reply.is_empty() || malformed.reply.ends_with(b"\r\n"));
            let mut scratch = [0; KEY_BYTES_MAX];
            if let Some(key) = malformed.unlink {
                assert!(key.bytes(&mut scratch).len() <= KEY_BYTES_MAX);
            }
            if let Then::Swallow(bytes) = malformed.then {
                assert!(bytes >= limits::VALUE_END_BYTES);
            }
        }
    }
});

fn meta<'a>(request: &Request<'a>) -> Option<Meta<'a>> {
    match request {
        Request::MetaGet(meta)
        | Request::MetaDelete(meta)
        | Request::MetaArith(meta)
        | Request::MetaDebug(meta) => Some(*meta),
        Request::MetaSet(set) => Some(set.meta),
        _ => None,
    }
}

fn check(meta: &Meta<'_>) {
    let mut scratch = [0; KEY_BYTES_MAX];
    assert!((1..=KEY_BYTES_MAX).contains(&meta.key.bytes(&mut scratch).len()));
    assert!(meta.flags.opaque().is_none_or(|opaque| opaque.len() <= limits::OPAQUE_BYTES_MAX));
    assert!(meta.flags.each().all(|flag| !flag.is_empty() && !flag.contains(&b' ')));
}
