//! The binary protocol: rows, and what holds of every input.

use laneway_wire::binary::answer::{NoReply, parse_reply};
use laneway_wire::binary::print::{opcode_of, put_frame, put_parts};
use laneway_wire::binary::reply::{self, Status};
use laneway_wire::binary::{
    Arith, Broken, Echo, Frame, Get, HEADER_BYTES, Opcode, QUIET, Request, Store, StoreVerb, parse,
};
use proptest::prelude::*;

const OPAQUE: [u8; 4] = *b"echo";

fn bytes(opcode: u8, cas: u64, parts: (&[u8], &[u8], &[u8])) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_parts(&mut bytes, Echo { opcode, opaque: OPAQUE }, cas, parts);
    bytes
}

/// Lengths in a header, whatever is there.
fn header(opcode: u8, extras: u8, key: u16, body: u32) -> Vec<u8> {
    let mut header = vec![0x80, opcode];
    header.extend(key.to_be_bytes());
    header.extend([extras, 0, 0, 0]);
    header.extend(body.to_be_bytes());
    header.extend(OPAQUE);
    header.extend([0; 8]);
    header
}

#[test]
fn requests_are_read_to_the_last_field() {
    let two = [1u32.to_be_bytes(), 2u32.to_be_bytes()].concat();
    let long = [&3u64.to_be_bytes()[..], &4u64.to_be_bytes(), &5u32.to_be_bytes()].concat();
    let one = 7u32.to_be_bytes();
    let get = |with_key, touch| Request::Get(Get { key: b"k", with_key, touch });
    let store = |verb| Request::Store(Store { verb, key: b"k", flags: 1, expiration: 2 });
    let arith = |increment| {
        let (delta, initial, expiration) = (3, 4, 5);
        Request::Arith(Arith { key: b"k", increment, delta, initial, expiration })
    };
    let sasl = |goes_on| Request::Sasl { goes_on, mechanism: b"k" };
    type Row<'a> = (u8, &'a [u8], &'a [u8], &'a [u8], Request<'a>);
    let rows: [Row<'_>; 23] = [
        (0x00, b"", b"k", b"", get(false, None)),
        (0x0c, b"", b"k", b"", get(true, None)),
        (0x1d, &one, b"k", b"", get(false, Some(7))),
        (0x23, &one, b"k", b"", get(true, Some(7))),
        (0x01, &two, b"k", b"value", store(StoreVerb::Set)),
        (0x02, &two, b"k", b"", store(StoreVerb::Add)),
        (0x03, &two, b"k", b"v", store(StoreVerb::Replace)),
        (0x04, b"", b"k", b"", Request::Delete { key: b"k" }),
        (0x05, &long, b"k", b"", arith(true)),
        (0x06, &long, b"k", b"", arith(false)),
        (0x07, b"", b"", b"", Request::Quit),
        (0x08, b"", b"", b"", Request::Flush { delay: None }),
        (0x08, &one, b"", b"", Request::Flush { delay: Some(7) }),
        (0x0a, b"", b"", b"", Request::Noop),
        (0x0b, b"", b"", b"", Request::Version),
        (0x0e, b"", b"k", b"v", Request::Join { before: false, key: b"k" }),
        (0x0f, b"", b"k", b"v", Request::Join { before: true, key: b"k" }),
        (0x10, b"", b"k", b"", Request::Stat { name: b"k" }),
        (0x1b, &one, b"", b"", Request::Verbosity { level: 7 }),
        (0x1c, &one, b"k", b"", Request::Touch { key: b"k", expiration: 7 }),
        (0x20, b"", b"", b"", Request::SaslList),
        (0x21, b"", b"k", b"v", sasl(false)),
        (0x22, b"", b"k", b"v", sasl(true)),
    ];
    for (opcode, extras, key, value, request) in rows {
        let loud = Opcode::read(opcode).expect("there is one").0;
        let twin = QUIET.iter().find(|(known, _)| *known == loud).map(|(_, twin)| *twin);
        for (opcode, quiet) in [(opcode, false)].into_iter().chain(twin.map(|twin| (twin, true))) {
            let input = bytes(opcode, 99, (extras, key, value));
            let frame = Frame {
                echo: Echo { opcode, opaque: OPAQUE },
                quiet,
                cas: 99,
                request,
                head_bytes: HEADER_BYTES + extras.len() + key.len(),
                value_bytes: value.len(),
            };
            assert_eq!(parse(&input), Ok(Some(frame)), "{opcode:#04x}");
            assert_eq!(frame.bytes(), input.len());
            for cut in 0..frame.head_bytes {
                assert_eq!(parse(&input[..cut]), Ok(None), "{opcode:#04x} cut at {cut}");
            }
            // The value is not waited for.
            assert_eq!(parse(&input[..frame.head_bytes]), Ok(Some(frame)), "{opcode:#04x}");
        }
    }
}

#[test]
fn wrong_lengths_are_refused_as_soon_as_the_header_is_there() {
    let echo = |opcode| Echo { opcode, opaque: OPAQUE };
    for (opcode, extras, key, body, lengths) in [
        (0x00, 0, 1, 0, true),
        (0x00, 1, 0, 0, true),
        (0x01, 8, 9, 16, true),
        (0x77, 255, 65535, 65789, true),
        (0x00, 0, 0, 0, false),
        (0x00, 0, 251, 251, false),
        (0x00, 4, 1, 5, false),
        (0x00, 0, 1, 2, false),
        (0x01, 0, 1, 1, false),
        (0x01, 8, 0, 9, false),
        (0x05, 16, 1, 17, false),
        (0x05, 20, 1, 22, false),
        (0x08, 4, 1, 5, false),
        (0x08, 8, 0, 8, false),
        (0x0a, 0, 0, 1, false),
        (0x0e, 4, 1, 6, false),
        (0x10, 0, 1, 2, false),
        (0x1c, 4, 1, 6, false),
        (0x1e, 0, 1, 1, false),
        (0x20, 0, 1, 1, false),
        (0x21, 0, 0, 4, false),
        (0x77, 0, 251, 251, false),
    ] {
        let broken = match lengths {
            true => Broken::Lengths(echo(opcode)),
            false => Broken::Arguments(echo(opcode)),
        };
        let header = header(opcode, extras, key, body);
        assert_eq!(parse(&header), Err(broken), "{opcode:#04x} {extras} {key} {body}");
        assert_eq!(parse(&header[..HEADER_BYTES - 1]), Ok(None));
    }
    for first in (0..=u8::MAX).filter(|first| *first != 0x80) {
        assert_eq!(parse(&[first]), Err(Broken::Magic));
    }
}

#[test]
fn an_unknown_opcode_has_all_of_its_body_as_a_value() {
    let input = header(0x77, 4, 3, 4_000_000_000);
    let frame = parse(&input).expect("a request").expect("whole");
    assert_eq!(frame.request, Request::Unknown);
    assert_eq!((frame.head_bytes, frame.value_bytes), (HEADER_BYTES, 4_000_000_000));
}

#[test]
fn replies_are_those_of_memcached() {
    let echo = Echo { opcode: 0x0d, opaque: OPAQUE };
    let mut out = Vec::new();
    reply::put_value_head(&mut out, echo, b"key", (5, 2, 9));
    assert_eq!(out, b"\x81\x0d\0\x03\x04\0\0\0\0\0\0\x09echo\0\0\0\0\0\0\0\x09\0\0\0\x05key");
    for (status, number, words) in [
        (Status::Done, 0, ""),
        (Status::NotFound, 1, "Not found"),
        (Status::Exists, 2, "Data exists for key."),
        (Status::TooLarge, 3, "Too large."),
        (Status::Invalid, 4, "Invalid arguments"),
        (Status::NotStored, 5, "Not stored."),
        (Status::NotANumber, 6, "Non-numeric server-side value for incr or decr"),
        (Status::Refused, 0x20, "Auth failure."),
        (Status::GoesOn, 0x21, ""),
        (Status::UnknownCommand, 0x81, "Unknown command"),
        (Status::OutOfMemory, 0x82, "Out of memory"),
    ] {
        let mut out = Vec::new();
        reply::put_error(&mut out, echo, status);
        let told = parse_reply(&out).expect("a reply").expect("whole");
        assert_eq!((told.status, told.value), (number, words.as_bytes()));
        assert_eq!((told.echo, told.cas, told.bytes), (echo, 0, out.len()));
    }
    assert_eq!(parse_reply(b"\x80"), Err(NoReply));
    assert_eq!(parse_reply(b""), Ok(None));
}

/// What the requests of a stream that has arrived up to each of the cuts come to, one after the
/// other; a value is waited for and passed over.
fn verdicts(stream: &[u8], cuts: impl IntoIterator<Item = usize>) -> Vec<String> {
    let (mut verdicts, mut at) = (Vec::new(), 0);
    for cut in cuts {
        loop {
            let input = &stream[at..cut];
            match parse(input) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if input.len() < frame.bytes() {
                        break;
                    }
                    assert!(frame.head_bytes >= HEADER_BYTES);
                    verdicts.push(format!("{frame:?}"));
                    at += frame.bytes();
                }
                Err(broken) => {
                    verdicts.push(format!("{broken:?}"));
                    return verdicts;
                }
            }
        }
    }
    verdicts
}

fn opcodes() -> impl Strategy<Value = u8> {
    prop_oneof![0..0x25u8, any::<u8>()]
}

prop_compose! {
    /// A request whose lengths are mostly those of its opcode.
    fn requests()(
        opcode in opcodes(),
        extras in prop::sample::select(vec![0usize, 0, 4, 8, 20]),
        key in 0..4usize,
        value in 0..6usize,
        cas in any::<u64>(),
        fill in any::<u8>(),
    ) -> Vec<u8> {
        bytes(opcode, cas, (&vec![fill; extras], &vec![b'k'; key], &vec![fill; value]))
    }
}

proptest! {
    #[test]
    fn a_stream_is_read_alike_wherever_it_is_cut(
        requests in prop::collection::vec(requests(), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let stream = [requests.concat(), noise].concat();
        let whole = verdicts(&stream, [stream.len()]);
        for cut in 0..stream.len() {
            prop_assert_eq!(&verdicts(&stream, [cut, stream.len()]), &whole);
        }
        prop_assert_eq!(&verdicts(&stream, 1..=stream.len()), &whole);
    }

    #[test]
    fn what_is_read_is_written_as_it_was(request in requests()) {
        if let Ok(Some(frame)) = parse(&request) {
            let mut again = Vec::new();
            put_frame(&mut again, &frame);
            match opcode_of(&frame.request) {
                None => prop_assert_eq!(frame.request, Request::Unknown),
                Some(opcode) => {
                    prop_assert_eq!(opcode.byte(frame.quiet), frame.echo.opcode);
                    prop_assert_eq!(&again[..], &request[..frame.head_bytes]);
                }
            }
        }
    }

    #[test]
    fn no_bytes_break_the_readers(input in prop::collection::vec(any::<u8>(), 0..80)) {
        let with_magic = [&[0x80][..], &input].concat();
        for input in [&input[..], &with_magic] {
            match parse(input) {
                Ok(Some(frame)) => prop_assert!(frame.head_bytes <= input.len()),
                Ok(None) => prop_assert!(input.len() < HEADER_BYTES + 20 + 250),
                Err(_) => {}
            }
        }
        let with_magic = [&[0x81][..], &input].concat();
        if let Ok(Some(reply)) = parse_reply(&with_magic) {
            prop_assert!(reply.bytes <= with_magic.len());
        }
    }
}
