//! What holds of every input.

use crate::common::verdict;
use laneway_wire::print::put_request;
use laneway_wire::*;
use proptest::prelude::*;

/// Bytes that are often part of a command, so that random inputs get somewhere.
fn near_commands() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "gats",
        "set",
        "add",
        "cas",
        "incr",
        "delete",
        "touch",
        "mg",
        "ms",
        "md",
        "ma",
        "mn",
        "me",
        "flush_all",
        "verbosity",
        "stats",
        "shutdown",
        "k",
        "key2",
        "0",
        "1",
        "-1",
        "12345678901",
        "noreply",
        "b",
        "q",
        "T30",
        "N0",
        "MS",
        "ME",
        "C5",
        "Oabc",
        "YWJj",
        "!",
        "\u{e9}",
        "HTTP/1.1",
    ]);
    let word = prop_oneof![
        8 => words.prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ];
    let space = prop::sample::select(vec![" ", " ", " ", "  ", "\r\n", "\n", "\r"]);
    prop::collection::vec((word, space), 0..24).prop_map(|pairs| {
        pairs.into_iter().flat_map(|(word, space)| word.into_iter().chain(space.bytes())).collect()
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![near_commands(), prop::collection::vec(any::<u8>(), 0..600)]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop::num::u8::ANY.prop_filter("no space", |b| !b" \r\n".contains(b)),
        1..=250,
    )
}

fn exptime() -> impl Strategy<Value = i64> {
    any::<i32>().prop_map(i64::from)
}

/// The lines of legal requests, as `put_request` writes them.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![get_line(), store_line(), short_line(), meta_line()]
}

fn printed(request: &Request<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    put_request(&mut line, request);
    line
}

fn get_line() -> impl Strategy<Value = Vec<u8>> {
    let verb = prop::sample::select(vec![GetVerb::Get, GetVerb::Gets, GetVerb::Gat, GetVerb::Gats]);
    (verb, exptime(), prop::collection::vec(key(), 1..6)).prop_map(|(verb, exptime, keys)| {
        let keys = keys.join(&b' ');
        let touches = matches!(verb, GetVerb::Gat | GetVerb::Gats);
        let exptime = if touches { exptime } else { 0 };
        printed(&Request::Get(Get { verb, exptime, keys: Keys::new(&keys) }))
    })
}

fn store_line() -> impl Strategy<Value = Vec<u8>> {
    let verb = prop_oneof![
        Just(StoreVerb::Set),
        Just(StoreVerb::Add),
        Just(StoreVerb::Replace),
        Just(StoreVerb::Append),
        Just(StoreVerb::Prepend),
        any::<u64>().prop_map(StoreVerb::Cas),
    ];
    (verb, key(), any::<u32>(), any::<i64>(), 0..1_000_000_usize, any::<bool>()).prop_map(
        |(verb, key, flags, exptime, value_bytes, noreply)| {
            printed(&Request::Store(Store {
                verb,
                key: &key,
                flags,
                exptime,
                value_bytes,
                noreply,
            }))
        },
    )
}

fn short_line() -> impl Strategy<Value = Vec<u8>> {
    (key(), any::<u64>(), exptime(), any::<bool>(), 0..9).prop_map(
        |(key, number, exptime, noreply, which)| {
            let key = &key[..];
            printed(&match which {
                0 => Request::Arith(Arith { increment: true, key, delta: number, noreply }),
                1 => Request::Arith(Arith { increment: false, key, delta: number, noreply }),
                2 => Request::Delete(Delete { key, noreply }),
                3 => Request::Touch(Touch { key, exptime, noreply }),
                4 => Request::FlushAll { delay: Some(exptime), noreply },
                5 => Request::FlushAll { delay: None, noreply },
                6 => Request::Verbosity { level: number as u32, noreply },
                7 => Request::MemoryLimit { megabytes: u64::from(number as u32), noreply },
                _ => Request::MetaNoop,
            })
        },
    )
}

fn meta_line() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::subsequence(
        vec![
            "k",
            "s",
            "t",
            "c",
            "f",
            "l",
            "h",
            "u",
            "v",
            "q",
            "I",
            "x",
            "T30",
            "N-1",
            "R7",
            "C1",
            "E18446744073709551615",
            "F4294967295",
            "D2",
            "J0",
            "Oopaque",
        ],
        0..=17,
    );
    let verb = prop::sample::select(vec!["mg", "md", "ma", "ms", "me"]);
    (verb, key(), flags.prop_shuffle(), 0..1_000_000).prop_map(|(verb, key, flags, length)| {
        let mut line = [verb.as_bytes(), &key].join(&b' ');
        if verb == "ms" {
            line.extend(format!(" {length}").bytes());
        }
        for flag in flags {
            line.extend(format!(" {flag}").bytes());
        }
        line.extend(b"\r\n");
        line
    })
}

/// A line of a store whose words are right or wrong in any way, the length it announces, and the
/// `\r\n` or `\n` behind it.
fn announcing_line() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let text = prop::sample::select(vec!["set", "add", "replace", "append", "prepend", "cas"]);
    let word = prop_oneof![
        4 => prop::sample::select(vec![
            "0", "1", "-1", "+1", "k", "noreply", "x", "b", "q", "T0", "Tx", "MZ", "MSET", "C1",
            "!", "4294967296", "99999999999999999999", "\u{e9}",
        ]).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(
            prop::num::u8::ANY.prop_filter("no end of a word", |b| !b" \r\n".contains(b)),
            1..300,
        ),
    ];
    let length = prop_oneof![8 => 0..100_usize, 1 => 0..=limits::VALUE_BYTES_MAX];
    let words = prop::collection::vec(word.clone(), 0..26);
    let end = prop::sample::select(vec!["\r\n", "\n", " \r\n"]);
    let begin = prop::option::of(text);
    (begin, [word.clone(), word.clone(), word], length, words, end, 0..3_usize).prop_map(
        |(verb, [key, flags, exptime], length, words, end, spaces)| {
            let digits = length.to_string().into_bytes();
            let mut all = match verb {
                Some(verb) => vec![verb.as_bytes().to_vec(), key, flags, exptime, digits],
                None => vec![b"ms".to_vec(), key, digits],
            };
            all.extend(words);
            let line = all.join(&b" ".repeat(spaces + 1)[..]);
            ([&b" ".repeat(spaces)[..], &line, end.as_bytes()].concat(), length)
        },
    )
}

proptest! {
    #[test]
    fn no_byte_of_an_announced_value_is_read_as_a_request((line, length) in announcing_line()) {
        let skipped = match parse(&line, &Limits::default()) {
            Ok(Some(Frame { request: Request::Store(store), head_bytes })) => {
                head_bytes + store.value_bytes + limits::VALUE_END_BYTES
            }
            Ok(Some(Frame { request: Request::MetaSet(set), head_bytes })) => {
                head_bytes + set.value_bytes + limits::VALUE_END_BYTES
            }
            Err(Malformed { then: Then::Swallow(bytes), head_bytes, .. }) => head_bytes + bytes,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(skipped, line.len() + length + limits::VALUE_END_BYTES);
    }

    #[test]
    fn a_store_without_a_length_that_can_be_read_ends_the_connection(
        verb in prop::sample::select(vec!["set", "add", "replace", "append", "cas", "ms"]),
        words in prop::collection::vec("[ -~&&[^ ]]{1,9}", 0..8),
    ) {
        let place = if verb == "ms" { 1 } else { 3 };
        let length = words.get(place).and_then(|word| word.parse::<u32>().ok());
        let is_length = |length: u32| length as usize <= limits::VALUE_BYTES_MAX;
        prop_assume!(!length.is_some_and(is_length));
        let line = format!("{verb} {}\r\n", words.join(" "));
        let verdict = parse(line.as_bytes(), &Limits::default());
        let Err(Malformed { then: Then::Close, reply, .. }) = verdict else {
            return Err(TestCaseError::fail(format!("{line}{verdict:?}")));
        };
        prop_assert_eq!(reply, reply::BAD_FORMAT);
    }

    #[test]
    fn any_bytes_get_a_verdict_that_consumes_no_more_than_there_is(input in bytes()) {
        match parse(&input, &Limits::default()) {
            Ok(None) => {
                prop_assert!(!input.contains(&b'\n'));
                let is_binary = input.starts_with(&[limits::BINARY_REQUEST]);
                prop_assert!(!is_binary, "its client would wait");
            }
            Ok(Some(frame)) => {
                prop_assert!((1..=input.len()).contains(&frame.head_bytes));
                prop_assert_eq!(input[frame.head_bytes - 1], b'\n');
            }
            Err(malformed) => {
                prop_assert!((1..=input.len()).contains(&malformed.head_bytes));
                let reply = malformed.reply;
                prop_assert!(reply.is_empty() || reply.ends_with(b"\r\n"));
            }
        }
    }

    #[test]
    fn what_follows_the_line_changes_nothing(input in bytes(), more in bytes()) {
        prop_assume!(!input.starts_with(&[limits::BINARY_REQUEST])); // refused with all there is
        let before = verdict(&input);
        if before != "more" {
            let whole = [&input[..], &more].concat();
            prop_assert_eq!(before, verdict(&whole));
        }
    }

    #[test]
    fn a_request_is_awaited_at_every_cut(line in line()) {
        for cut in 0..line.len() {
            prop_assert_eq!(verdict(&line[..cut]), "more");
        }
        let whole = verdict(&line);
        prop_assert!(whole.starts_with("ok"), "{}: {}", line.escape_ascii(), whole);
    }

    #[test]
    fn printing_a_request_gives_the_line_back(line in line()) {
        let frame = parse(&line, &Limits::default());
        let Ok(Some(Frame { request, head_bytes })) = frame else {
            return Err(TestCaseError::fail(format!("{frame:?} for {}", line.escape_ascii())));
        };
        prop_assert_eq!(head_bytes, line.len());
        let again = printed(&request);
        prop_assert_eq!(again.escape_ascii().to_string(), line.escape_ascii().to_string());
    }

    #[test]
    fn spaces_and_the_carriage_return_do_not_matter(line in line()) {
        let mut spaced = b" ".to_vec();
        for &byte in line.strip_suffix(b"\r\n").expect("a line") {
            spaced.push(byte);
            if byte == b' ' {
                spaced.push(b' ');
            }
        }
        spaced.extend(b" \n");
        let without_head = |verdict: String| {
            verdict.splitn(3, ' ').nth(2).map(str::to_owned)
        };
        prop_assert_eq!(without_head(verdict(&line)), without_head(verdict(&spaced)));
    }

    #[test]
    fn base64_comes_back(bytes in prop::collection::vec(any::<u8>(), 1..188)) {
        let mut text = [0; 252];
        let length = base64::encode(&bytes, &mut text).expect("room");
        prop_assert_eq!(length, base64::encoded_bytes(bytes.len()));
        let mut out = [0; KEY_BYTES_MAX];
        let decoded = base64::decode(&text[..length], &mut out).expect("what was encoded");
        prop_assert_eq!(&out[..decoded], &bytes[..]);
    }

    #[test]
    fn a_base64_key_is_the_bytes_it_encodes(key in prop::collection::vec(any::<u8>(), 1..=187)) {
        let mut text = [0; 252];
        let length = base64::encode(&key, &mut text).expect("room");
        prop_assume!(length <= KEY_BYTES_MAX);
        let line = [b"mg ", &text[..length], b" v b\r\n"].concat();
        let Ok(Some(Frame { request: Request::MetaGet(meta), .. })) =
            parse(&line, &Limits::default())
        else {
            return Err(TestCaseError::fail(line.escape_ascii().to_string()));
        };
        prop_assert_eq!(meta.key.token, &text[..length]);
        let mut scratch = [0; KEY_BYTES_MAX];
        prop_assert_eq!(meta.key.bytes(&mut scratch), &key[..]);
    }

    #[test]
    fn only_canonical_base64_decodes(text in "[A-Za-z0-9+/=]{0,12}") {
        let mut out = [0; 16];
        if let Some(length) = base64::decode(text.as_bytes(), &mut out) {
            let mut again = [0; 24];
            let encoded = base64::encode(&out[..length], &mut again).expect("room");
            prop_assert_eq!(&again[..encoded], text.as_bytes());
        }
    }
}

#[test]
fn a_long_multiget_is_read_whole_and_a_longer_one_ends_the_connection() {
    let limits = Limits { line_bytes_max: 10_000, ..Limits::default() };
    for verb in ["get", "gets", "gat 0", "gats 0"] {
        let mut line = verb.as_bytes().to_vec();
        for _ in 0..2_000 {
            line.extend(b" key");
        }
        assert_eq!(parse(&line, &limits), Ok(None));
        line.extend(b" \r\n");
        let frame = parse(&line, &limits).expect("a request").expect("all of it");
        let Request::Get(get) = frame.request else { panic!("{:?}", frame.request) };
        assert_eq!(get.keys.count(), 2_000);
        line.truncate(line.len() - 2);
        line.resize(10_001, b'x');
        let refused = parse(&line, &limits).expect_err("too long");
        assert_eq!((refused.then, refused.reply), (Then::Close, &b""[..]));
    }
}
