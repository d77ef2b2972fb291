//! Fuzzes the text and meta parser: arbitrary bytes, arriving in pieces of any size.
//!
//! The first bytes of the input are the sizes of the pieces, the rest is the stream. What is
//! checked: a verdict consumes at least one byte and no more than there are; it is the same
//! whatever the cut, as long as no line is longer than memcached waits for; no byte of a value that
//! a line announces is served as a request; keys and bodies respect their limits; what a served
//! request prints is served again, as the same request.

#![no_main]

use laneway_wire::print::put_request;
use laneway_wire::scan::find;
use laneway_wire::{Frame, KEY_BYTES_MAX, Limits, Malformed, Request, Then, answer, limits, parse};
use libfuzzer_sys::fuzz_target;

/// Small, so that the fuzzer reaches them.
const LIMITS: Limits = Limits { item_bytes_max: 4096, line_bytes_max: 3000 };

/// How many sizes of pieces the input begins with.
const CUTS: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_first_chunk::<CUTS>() else { return };
    let whole = serve_whole(stream);
    serve_in_pieces(stream, cuts, &whole);
    let _ = answer::parse_reply(stream)
        .map(|frame| frame.inspect(|frame| assert!(frame.head_bytes <= stream.len())));
});

/// One verdict, as far as it can be compared across two buffers.
#[derive(Debug, PartialEq)]
struct Verdict {
    /// Where in the stream its line began.
    at: usize,
    /// What it was, with every key in it.
    text: String,
}

/// Bytes to drop behind the line, and whether the connection goes on.
type Step = (usize, bool);

/// Serves the stream as if it had arrived at once.
fn serve_whole(stream: &[u8]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let Some(((skip, goes_on), text)) = serve_one(&stream[at..]) else { break };
        verdicts.push(Verdict { at, text });
        at += skip;
        if !goes_on {
            break;
        }
    }
    verdicts
}

/// Serves it piece by piece and expects the same verdicts.
fn serve_in_pieces(stream: &[u8], cuts: &[u8; CUTS], whole: &[Verdict]) {
    let mut expected = whole.iter();
    let (mut at, mut arrived) = (0, 0);
    let mut pieces = cuts.iter().cycle();
    while arrived < stream.len() {
        let piece = usize::from(*pieces.next().expect("a cycle has no end")) + 1;
        arrived = (arrived + piece).min(stream.len());
        while at < arrived {
            let waiting = &stream[at..arrived];
            let Some(((skip, goes_on), text)) = serve_one(waiting) else { break };
            if find(waiting, b'\n').is_none() {
                let is_binary = waiting.first() == Some(&limits::BINARY_REQUEST);
                assert!(is_binary || waiting.len() > limits::LINE_BYTES_MAX);
                return; // closed early for a line whose end would have arrived
            }
            assert_eq!(Some(&Verdict { at, text }), expected.next());
            at += skip;
            if !goes_on {
                return;
            }
        }
    }
    if let Some(left) = expected.next() {
        panic!("in pieces nothing was said at {}: {}", left.at, left.text);
    }
}

/// The verdict on the front of `input`; `None` where more bytes are needed.
fn serve_one(input: &[u8]) -> Option<(Step, String)> {
    match parse(input, &LIMITS) {
        Ok(None) => {
            assert_eq!(find(input, b'\n'), None, "the line was there");
            assert!(input.len() <= LIMITS.line_bytes_max, "waits for ever");
            None
        }
        Ok(Some(frame)) => {
            let body = check_served(input, &frame);
            Some(((frame.head_bytes + body, true), format!("{:?}", frame.request)))
        }
        Err(malformed) => {
            let step = check_refused(input, &malformed);
            Some((step, format!("{:?} {:?}", malformed.reply.escape_ascii(), malformed.then)))
        }
    }
}

/// Returns the bytes of the body.
fn check_served(input: &[u8], frame: &Frame<'_>) -> usize {
    assert_eq!(find(input, b'\n'), Some(frame.head_bytes - 1));
    let mut scratch = [0; KEY_BYTES_MAX];
    let mut body = 0;
    match frame.request {
        Request::Get(get) => {
            assert!(get.keys.count() > 0);
            assert!(get.keys.into_iter().all(is_key));
        }
        Request::Store(store) => {
            assert!(is_key(store.key));
            assert!(store.key.len() + store.value_bytes <= LIMITS.item_bytes_max);
            body = store.value_bytes + limits::VALUE_END_BYTES;
        }
        Request::Arith(arith) => assert!(is_key(arith.key)),
        Request::Delete(delete) => assert!(is_key(delete.key)),
        Request::Touch(touch) => assert!(is_key(touch.key)),
        Request::MetaSet(set) => {
            assert!(!set.meta.key.bytes(&mut scratch).is_empty());
            assert!(set.value_bytes <= LIMITS.item_bytes_max);
            body = set.value_bytes + limits::VALUE_END_BYTES;
        }
        Request::MetaGet(meta)
        | Request::MetaDelete(meta)
        | Request::MetaArith(meta)
        | Request::MetaDebug(meta) => {
            assert!(!meta.key.bytes(&mut scratch).is_empty());
            assert!(meta.flags.opaque().is_none_or(|o| o.len() <= limits::OPAQUE_BYTES_MAX));
        }
        _ => {}
    }
    assert_eq!(body, announced(input).map_or(0, |bytes| bytes + limits::VALUE_END_BYTES));
    let mut printed = Vec::new();
    put_request(&mut printed, &frame.request);
    let again = parse(&printed, &LIMITS).expect("was served once").expect("is a whole line");
    assert_eq!(again.head_bytes, printed.len());
    assert_eq!(printed, reprinted(&again.request), "printing is not stable");
    body
}

fn reprinted(request: &Request<'_>) -> Vec<u8> {
    let mut printed = Vec::new();
    put_request(&mut printed, request);
    printed
}

fn is_key(key: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && !key.contains(&b' ') && !key.contains(&b'\n')
}

/// The length that the line of a store announces, where its word can be read; by a way of its own.
fn announced(input: &[u8]) -> Option<usize> {
    let line = input.split(|byte| *byte == b'\n').next()?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let place = match words.next()? {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => 3,
        b"ms" => 1,
        _ => return None,
    };
    let digits = words.nth(place).filter(|word| word.iter().all(u8::is_ascii_digit))?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns how far to go and whether the connection lives.
fn check_refused(input: &[u8], malformed: &Malformed<'_>) -> Step {
    let head_bytes = malformed.head_bytes;
    assert!((1..=input.len()).contains(&head_bytes));
    assert!(malformed.reply.is_empty() || malformed.reply.ends_with(b"\r\n"));
    if let Some(key) = malformed.unlink {
        assert!(is_key(key.token));
    }
    match malformed.then {
        Then::Continue => {
            assert_eq!(announced(input), None, "a value is served as requests");
            (head_bytes, true)
        }
        Then::Swallow(bytes) => {
            assert_eq!(announced(input).map(|bytes| bytes + limits::VALUE_END_BYTES), Some(bytes));
            (head_bytes + bytes, true)
        }
        Then::Close => (head_bytes, false),
    }
}
