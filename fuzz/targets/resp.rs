//! Fuzzes the reader of RESP requests: arbitrary bytes, arriving in pieces of any size.
//!
//! The first bytes of the input are the sizes of the pieces, the rest is the stream. What is
//! checked: a verdict consumes at least one byte and no more than there are; verdicts are the same
//! whatever the cut; what is served is written and read again as the same; a request that is passed
//! over from any of its arguments on ends where it ends when it is served; and a reader that takes
//! a value away in the middle of a request finds the same arguments behind it.

#![no_main]

use laneway_wire::resp::reply::{put_array_head, put_bulk};
use laneway_wire::resp::{BULK_BYTES_MAX, Broken, Scan, Scanned, Skip, transcribe};
use libfuzzer_sys::fuzz_target;

/// How many sizes of pieces the input begins with.
const CUTS: usize = 4;

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
});

#[derive(Debug, PartialEq)]
enum Verdict {
    Request(usize, Vec<Vec<u8>>),
    Nothing(usize),
    Inline(usize, Vec<u8>),
    Broken(usize, Broken),
}

/// The verdicts on a stream that arrives up to each of the `cuts`, one after the other.
fn serve(stream: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let (mut scan, mut at) = (Scan::default(), 0);
    for cut in cuts {
        loop {
            let input = &stream[at..cut];
            let (verdict, bytes) = match scan.advance(input) {
                Ok(Scanned::More) => {
                    check_pending(&scan, input);
                    break;
                }
                Ok(Scanned::Whole(args, bytes)) => {
                    let args: Vec<_> = args.map(<[u8]>::to_vec).collect();
                    check_request(&input[..bytes], &args);
                    (Verdict::Request(at, args), bytes)
                }
                Ok(Scanned::Nothing(bytes)) => (Verdict::Nothing(at), bytes),
                Ok(Scanned::Inline(line, bytes)) => {
                    check_inline(line);
                    (Verdict::Inline(at, line.to_vec()), bytes)
                }
                Err(broken) => {
                    verdicts.push(Verdict::Broken(at, broken));
                    return verdicts;
                }
            };
            assert!(0 < bytes && bytes <= input.len());
            verdicts.push(verdict);
            (at, scan) = (at + bytes, Scan::default());
        }
    }
    verdicts
}

fn check_pending(scan: &Scan, input: &[u8]) {
    let Some(pending) = scan.pending(input) else { return };
    assert!(pending.bytes <= BULK_BYTES_MAX && pending.at <= input.len());
    assert!(input.len() < pending.at + pending.bytes + 2);
    assert_eq!(pending.before.left() + 1 + pending.behind, scan.announced());
    assert_eq!(pending.before.count(), (scan.announced() - 1 - pending.behind) as usize);
}

fn check_request(bytes: &[u8], args: &[Vec<u8>]) {
    let mut printed = Vec::new();
    put_array_head(&mut printed, args.len());
    let mut starts = Vec::new();
    for arg in args {
        starts.push(printed.len());
        put_bulk(&mut printed, arg);
    }
    assert_eq!(printed, bytes, "there is one way to write a request");
    for (number, (start, arg)) in starts.iter().zip(args).enumerate() {
        let left = (args.len() - number) as u32;
        let passed = Skip::arguments(left).advance(&bytes[*start..]).expect("it was read");
        assert_eq!(passed, (bytes.len() - start, true));
        let end = starts.get(number + 1).copied().unwrap_or(bytes.len());
        let value_at = end - 2 - arg.len();
        let passed = Skip::new(arg.len(), left - 1).advance(&bytes[value_at..]);
        assert_eq!(passed.expect("it was read"), (bytes.len() - value_at, true));
        let tail = &bytes[end - 2..];
        match Scan::behind(left - 1).advance(tail) {
            Ok(Scanned::Whole(rest, length)) => {
                assert_eq!(length, tail.len());
                assert!(rest.eq(args[number + 1..].iter().map(Vec::as_slice)));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn check_inline(line: &[u8]) {
    let mut array = Vec::new();
    let Ok(count) = transcribe(line, &mut array) else { return };
    if count == 0 {
        return assert!(array.is_empty());
    }
    match Scan::default().advance(&array) {
        Ok(Scanned::Whole(args, bytes)) => {
            assert_eq!((args.left(), bytes), (count, array.len()));
        }
        other => panic!("{other:?}"),
    }
}
