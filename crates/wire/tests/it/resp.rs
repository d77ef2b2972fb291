//! RESP requests and replies: rows, and what holds of every input.

use laneway_wire::resp::reply::{self, Version};
use laneway_wire::resp::{
    ARGUMENTS_MAX, Args, BULK_BYTES_MAX, Broken, INLINE_BYTES_MAX, Scan, Scanned, Skip, integer,
    transcribe,
};
use proptest::prelude::*;

/// What one request came to.
#[derive(Debug, Clone, PartialEq)]
enum Verdict {
    Request(Vec<Vec<u8>>),
    Nothing,
    Inline(Vec<u8>),
    Broken(Broken),
}

fn owned(args: Args<'_>) -> Vec<Vec<u8>> {
    let announced = args.left() as usize;
    let args: Vec<_> = args.map(<[u8]>::to_vec).collect();
    assert_eq!(args.len(), announced, "an argument is missing");
    args
}

/// The verdicts on a stream that has arrived up to each of the `cuts`, one after the other.
fn verdicts(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let (mut scan, mut at) = (Scan::default(), 0);
    for cut in cuts {
        loop {
            let input = &stream[at..cut];
            let (verdict, bytes) = match scan.advance(input) {
                Ok(Scanned::More) => break,
                Ok(Scanned::Whole(args, bytes)) => (Verdict::Request(owned(args)), bytes),
                Ok(Scanned::Nothing(bytes)) => (Verdict::Nothing, bytes),
                Ok(Scanned::Inline(line, bytes)) => (Verdict::Inline(line.to_vec()), bytes),
                Err(broken) => {
                    verdicts.push(Verdict::Broken(broken));
                    return verdicts;
                }
            };
            assert!(0 < bytes && bytes <= input.len(), "{bytes} of {}", input.len());
            verdicts.push(verdict);
            (at, scan) = (at + bytes, Scan::default());
        }
    }
    verdicts
}

/// The same by a way of its own, of a stream that is there: lines cut at `\n`, bulks by length.
fn reference(stream: &[u8]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut rest = stream;
    while let Some(verdict) = reference_one(&mut rest) {
        verdicts.push(verdict.clone());
        if matches!(verdict, Verdict::Broken(_)) {
            break;
        }
    }
    verdicts
}

/// A header's number: `None` where it has not arrived.
fn reference_number(rest: &mut &[u8], endless: Broken, bad: Broken) -> Option<Result<i64, Broken>> {
    let most = laneway_wire::resp::HEADER_BYTES_MAX;
    let Some(end) = rest.iter().take(most).position(|byte| *byte == b'\n') else {
        return (rest.len() >= most).then_some(Err(endless));
    };
    let line = &rest[1..end];
    *rest = &rest[end + 1..];
    let text = str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\r'));
    let number = text.and_then(|text| {
        let number: i64 = text.parse().ok()?;
        (number.to_string() == text).then_some(number) // so has no plus sign and no zeros
    });
    Some(number.ok_or(bad))
}

fn reference_one(rest: &mut &[u8]) -> Option<Verdict> {
    if *rest.first()? != b'*' {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            let is_endless = rest.len() > INLINE_BYTES_MAX;
            return is_endless.then_some(Verdict::Broken(Broken::Inline));
        };
        let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
        *rest = &rest[end + 1..];
        return Some(Verdict::Inline(line));
    }
    let count = match reference_number(rest, Broken::ArrayHeader, Broken::ArrayLength)? {
        Ok(count) if count <= 0 => return Some(Verdict::Nothing),
        Ok(count) if count > i64::from(ARGUMENTS_MAX) => {
            return Some(Verdict::Broken(Broken::ArrayLength));
        }
        Ok(count) => count,
        Err(broken) => return Some(Verdict::Broken(broken)),
    };
    let mut args = Vec::new();
    for _ in 0..count {
        let byte = *rest.first()?;
        if byte != b'$' {
            return Some(Verdict::Broken(Broken::NoBulk(byte)));
        }
        let bytes = match reference_number(rest, Broken::BulkHeader, Broken::BulkLength)? {
            Ok(bytes) if (0..=BULK_BYTES_MAX as i64).contains(&bytes) => bytes as usize,
            Ok(_) => return Some(Verdict::Broken(Broken::BulkLength)),
            Err(broken) => return Some(Verdict::Broken(broken)),
        };
        let bulk = rest.get(..bytes + 2)?;
        *rest = &rest[bytes + 2..];
        if !bulk.ends_with(b"\r\n") {
            return Some(Verdict::Broken(Broken::BulkEnd));
        }
        args.push(bulk[..bytes].to_vec());
    }
    Some(Verdict::Request(args))
}

fn request(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply::put_array_head(&mut bytes, args.len());
    args.iter().for_each(|arg| reply::put_bulk(&mut bytes, arg));
    bytes
}

fn said(broken: Broken) -> String {
    let mut words = Vec::new();
    broken.put(&mut words);
    String::from_utf8(words).expect("it is text")
}

#[test]
fn what_is_no_request_is_refused_in_the_words_of_redis() {
    let endless = [b'1'; 40];
    let long_line = vec![b'a'; INLINE_BYTES_MAX + 1];
    let rows: [(&[u8], &str); 20] = [
        (b"*1x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (&[b"*", &endless[..]].concat(), "too big mbulk count string"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n%1\r\n", "expected '$', got '%'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$1a\r\n", "invalid bulk length"),
        (b"*1\r\n$1073741824\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (&[b"*1\r\n$", &endless[..]].concat(), "too big bulk count string"),
        (b"*1\r\n$4\r\nPINGxx", "expected CRLF behind a bulk string"),
        (&long_line, "too big inline request"),
    ];
    for (input, words) in rows {
        let verdicts = verdicts(input, [input.len()]);
        let [Verdict::Broken(broken)] = verdicts[..] else {
            panic!("{}: {verdicts:?}", input.escape_ascii())
        };
        let said = said(broken);
        assert_eq!(said, format!("-ERR Protocol error: {words}\r\n"), "{}", input.escape_ascii());
    }
    assert_eq!(said(Broken::Quotes), "-ERR Protocol error: unbalanced quotes in request\r\n");
}

#[test]
fn an_array_of_nothing_asks_for_nothing() {
    for input in [&b"*0\r\n"[..], b"*-1\r\n", b"*-9223372036854775808\r\n"] {
        assert_eq!(verdicts(input, [input.len()]), [Verdict::Nothing]);
    }
}

#[test]
fn the_size_of_a_value_is_known_before_it_arrives_and_the_rest_is_read_behind_it() {
    let head = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n";
    let mut scan = Scan::default();
    for end in 0..=head.len() {
        assert_eq!(scan.advance(&head[..end]), Ok(Scanned::More));
        assert_eq!(scan.pending(&head[..end]).is_some_and(|p| p.bytes == 100_000), {
            end == head.len()
        });
    }
    let pending = scan.pending(head).expect("its header is there");
    assert_eq!((pending.at, pending.bytes, pending.behind), (head.len(), 100_000, 2));
    assert_eq!(owned(pending.before), [b"SET".to_vec(), b"k".to_vec()]);
    let tail = b"\r\n$2\r\nEX\r\n$2\r\n10\r\n*1\r\n$4\r\nPING\r\n";
    for cut in 0..20 {
        let mut scan = Scan::behind(2);
        assert_eq!(scan.advance(&tail[..cut.min(17)]), Ok(Scanned::More));
        let Ok(Scanned::Whole(args, 18)) = scan.advance(tail) else { panic!("{scan:?}") };
        assert_eq!(owned(args), [b"EX".to_vec(), b"10".to_vec()]);
    }
    let mut none = Scan::behind(0);
    assert_eq!(none.advance(b"\r"), Ok(Scanned::More));
    let Ok(Scanned::Whole(args, 2)) = none.advance(b"\r\n*1") else { panic!("{none:?}") };
    assert_eq!(args.left(), 0);
    assert_eq!(Scan::behind(0).advance(b"xx"), Err(Broken::BulkEnd));
}

#[test]
fn inline_words_are_cut_as_redis_cuts_them() {
    let rows: [(&str, Option<&[&[u8]]>); 15] = [
        ("PING", Some(&[b"PING"])),
        ("  get \t k  ", Some(&[b"get", b"k"])),
        ("", Some(&[])),
        ("   ", Some(&[])),
        ("\u{b} a", Some(&[b"a"])),
        (r#"set "a b" 'c d'"#, Some(&[b"set", b"a b", b"c d"])),
        (r#"set "\x41\xff\n\r\t\a\b\\\"" ''"#, Some(&[b"set", b"A\xff\n\r\t\x07\x08\\\"", b""])),
        (r#"'it\'s' '\n'"#, Some(&[b"it's", b"\\n"])),
        (r#"a"b""#, Some(&[b"ab"])),
        (r#""\xzz""#, Some(&[b"xzz"])),
        (r#""a"#, None),
        (r#""a"b"#, None),
        ("'a", None),
        ("'a'b", None),
        (r#""a\"#, None),
    ];
    for (line, words) in rows {
        let mut array = Vec::new();
        let count = transcribe(line.as_bytes(), &mut array).ok();
        assert_eq!(count, words.map(|words| words.len() as u32), "{line}");
        match words {
            None | Some([]) => assert_eq!(array, b""),
            Some(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_vec()).collect();
                assert_eq!(verdicts(&array, [array.len()]), [Verdict::Request(words)], "{line}");
            }
        }
    }
}

#[test]
fn replies_are_written_for_the_version_that_is_spoken() {
    type Put = fn(&mut Vec<u8>, Version);
    let rows: [(Put, &str, &str); 11] = [
        (|out, _| reply::put_simple(out, b"PONG"), "+PONG\r\n", "+PONG\r\n"),
        (|out, _| reply::put_error(out, b"ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
        (|out, _| reply::put_integer(out, -12), ":-12\r\n", ":-12\r\n"),
        (|out, _| reply::put_bulk(out, b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
        (|out, _| reply::put_bulk(out, b""), "$0\r\n\r\n", "$0\r\n\r\n"),
        (reply::put_null, "$-1\r\n", "_\r\n"),
        (|out, _| reply::put_array_head(out, 3), "*3\r\n", "*3\r\n"),
        (|out, version| reply::put_map_head(out, version, 3), "*6\r\n", "%3\r\n"),
        (|out, version| reply::put_set_head(out, version, 3), "*3\r\n", "~3\r\n"),
        (
            |out, version| reply::put_verbatim(out, version, b"hi"),
            "$2\r\nhi\r\n",
            "=6\r\ntxt:hi\r\n",
        ),
        (|out, _| reply::put_integer(out, i64::MIN), ":-9223372036854775808\r\n", {
            ":-9223372036854775808\r\n"
        }),
    ];
    for (put, two, three) in rows {
        for (version, text) in [(Version::Two, two), (Version::Three, three)] {
            let mut out = Vec::new();
            put(&mut out, version);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }
}

#[test]
fn the_longest_head_of_a_bulk_string_has_room() {
    let mut out = Vec::new();
    reply::put_bulk_head(&mut out, usize::MAX);
    assert!(out.len() <= reply::BULK_HEAD_BYTES_MAX);
}

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            "GET", "SET", "MSET", "k", "EX", "10", "\r\n", "$1\r\n", "*1\r\n"
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// Requests, and pieces of what looks like them.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::collection::vec(argument(), 0..6).prop_map(|args| request(&args));
    let odd = prop::sample::select(vec![
        "*2\r\n",
        "*",
        "$",
        "$3\r\n",
        "\r\n",
        "\n",
        "*-1\r\n",
        "*99999999\r\n",
        "$-1\r\n",
        "PING\r\n",
        "get k\r\n",
        "$99999999999999999999999999\r\n",
        "_\r\n",
        "%1\r\n",
        ":1\r\n",
        "\u{0}",
    ]);
    let odd = odd.prop_map(|text| text.as_bytes().to_vec());
    let piece = prop_oneof![6 => whole, 1 => odd, 1 => prop::collection::vec(any::<u8>(), 0..30)];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_stream_is_read_as_the_reference_reads_it(stream in stream()) {
        prop_assert_eq!(verdicts(&stream, [stream.len()]), reference(&stream));
    }

    #[test]
    fn it_is_read_the_same_cut_at_every_byte(stream in stream()) {
        prop_assert_eq!(verdicts(&stream, 0..=stream.len()), reference(&stream));
        let whole = reference(&stream);
        for cut in 0..stream.len() {
            prop_assert_eq!(&verdicts(&stream, [cut, stream.len()]), &whole);
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written(args in prop::collection::vec(argument(), 1..9)) {
        let bytes = request(&args);
        prop_assert_eq!(verdicts(&bytes, [bytes.len()]), [Verdict::Request(args)]);
    }

    #[test]
    fn what_is_skipped_is_the_rest_of_the_request_and_no_byte_more(
        args in prop::collection::vec(argument(), 1..9),
        from in any::<prop::sample::Index>(),
        cut in 1..40usize,
        behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let from = from.index(args.len());
        let rest = [&request(&args[from..])[4..], &behind[..]].concat();
        let left = (args.len() - from) as u32;
        for within in [false, true] {
            // From the header of an argument on, or from its first byte on.
            let (mut skip, mut at) = match within {
                false => (Skip::arguments(left), 0),
                true => (
                    Skip::new(args[from].len(), left - 1),
                    rest.iter().position(|byte| *byte == b'\n').expect("a header") + 1,
                ),
            };
            let mut arrived = at;
            loop {
                let (bytes, is_over) = skip.advance(&rest[at..arrived]).expect("it is whole");
                at += bytes;
                if is_over {
                    break;
                }
                prop_assert!(arrived < rest.len(), "it has no end");
                arrived = (arrived + cut).min(rest.len());
            }
            prop_assert_eq!(&rest[at..], &behind[..]);
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_printed_and_no_other_way(
        number in any::<i64>(),
        text in "[-+ 0-9]{0,21}",
    ) {
        prop_assert_eq!(integer(number.to_string().as_bytes()), Some(number));
        let read = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        prop_assert_eq!(integer(text.as_bytes()), read);
    }

    #[test]
    fn any_line_is_cut_into_words_that_are_read_again(
        line in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut array = Vec::new();
        if let Ok(count) = transcribe(&line, &mut array) {
            prop_assert_eq!(count == 0, array.is_empty());
            if count > 0 {
                let read = verdicts(&array, [array.len()]);
                let [Verdict::Request(words)] = &read[..] else { panic!("{read:?}") };
                prop_assert_eq!(words.len(), count as usize);
            }
        }
    }
}
