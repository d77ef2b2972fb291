//! Fuzzes the reader of binary requests: arbitrary bytes, arriving in pieces of any size.
//!
//! The first bytes of the input are the sizes of the pieces, the rest is the stream. What is
//! checked: a request has at least a header and no more than has arrived before its value; verdicts
//! are the same whatever the cut; little is waited for; what is served is written and read again as
//! the same; and no reply is read beyond its end.

#![no_main]

use laneway_wire::binary::answer::parse_reply;
use laneway_wire::binary::print::{opcode_of, put_frame};
use laneway_wire::binary::{Broken, HEADER_BYTES, Request, parse};
use libfuzzer_sys::fuzz_target;

/// How many sizes of pieces the input begins with.
const CUTS: usize = 4;
/// The longest extras and the longest key.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 20 + 250;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, stream)) = input.split_first_chunk::<CUTS>() else { return };
    let whole = serve(stream, [stream.len()].into_iter());
    let mut arrived = 0;
    let mut pieces = cuts.iter().cycle();
    let cuts = std::iter::from_fn(|| {
        let piece = usize::from(*pieces.next().expect("a cycle has no end")) + 1;
        let before = arrived;
        arrived = (arrived + piece).min(stream.len());
        (before < stream.len()).then_some(arrived)
    });
    assert_eq!(serve(stream, cuts), whole);
    check_replies(stream);
});

#[derive(Debug, PartialEq)]
enum Verdict {
    /// Where it begins, its bytes before the value, and those of the value.
    Request(usize, Vec<u8>, usize),
    Broken(usize, Broken),
}

/// The verdicts on a stream that arrives up to each of the `cuts`, one after the other. A value is
/// passed over as it comes.
fn serve(stream: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<Verdict> {
    let (mut verdicts, mut at) = (Vec::new(), 0);
    for cut in cuts {
        while at <= cut {
            let input = &stream[at..cut];
            let frame = match parse(input) {
                Ok(None) => {
                    assert!(input.len() < HEAD_BYTES_MAX, "too much is waited for");
                    break;
                }
                Ok(Some(frame)) => frame,
                Err(broken) => {
                    broken.put(&mut Vec::new());
                    verdicts.push(Verdict::Broken(at, broken));
                    return verdicts;
                }
            };
            assert!((HEADER_BYTES..=input.len()).contains(&frame.head_bytes));
            let head = &input[..frame.head_bytes];
            let mut again = Vec::new();
            put_frame(&mut again, &frame);
            match opcode_of(&frame.request) {
                None => assert_eq!(frame.request, Request::Unknown),
                Some(opcode) => {
                    assert_eq!(opcode.byte(frame.quiet), frame.echo.opcode);
                    // What is reserved is not kept.
                    assert_eq!((&again[..5], &again[8..]), (&head[..5], &head[8..]));
                }
            }
            verdicts.push(Verdict::Request(at, head.to_vec(), frame.value_bytes));
            at = at.saturating_add(frame.bytes());
        }
    }
    verdicts
}

fn check_replies(mut stream: &[u8]) {
    while let Ok(Some(reply)) = parse_reply(stream) {
        let parts = reply.extras.len() + reply.key.len() + reply.value.len();
        assert_eq!(reply.bytes, HEADER_BYTES + parts);
        stream = &stream[reply.bytes..];
    }
}
