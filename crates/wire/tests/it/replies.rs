//! The reply parser reads back what the reply writers wrote, and refuses the rest.

use laneway_wire::answer::{Answer, Returns, Unintelligible, Value, parse_reply};
use laneway_wire::reply::*;
use proptest::prelude::*;

/// The answer in `line`, which it must fill.
fn read(line: &[u8]) -> Answer<'_> {
    for cut in 0..line.len() {
        assert_eq!(parse_reply(&line[..cut]), Ok(None), "{}", line[..cut].escape_ascii());
    }
    let frame = parse_reply(line).expect("a reply").expect("all of it");
    assert_eq!(frame.head_bytes, line.len());
    frame.answer
}

#[test]
fn every_fixed_line_is_understood() {
    const NONE: Returns<'static> = Returns::new(b"");
    let rows = [
        (STORED, Answer::Stored),
        (NOT_STORED, Answer::NotStored),
        (EXISTS, Answer::Exists),
        (NOT_FOUND, Answer::NotFound),
        (DELETED, Answer::Deleted),
        (TOUCHED, Answer::Touched),
        (OK, Answer::Ok),
        (END, Answer::End),
        (RESET, Answer::Reset),
        (b"HD\r\n", Answer::MetaDone(NONE)),
        (b"EN\r\n", Answer::MetaMiss(NONE)),
        (b"NF\r\n", Answer::MetaNotFound(NONE)),
        (b"NS\r\n", Answer::MetaNotStored(NONE)),
        (b"EX\r\n", Answer::MetaExists(NONE)),
        (MN, Answer::MetaNoop),
        (ERROR, Answer::Error(b"")),
        (SHUTDOWN_DISABLED, Answer::ServerError(b"shutdown not enabled")),
        (BAD_FORMAT, Answer::ClientError(b"bad command line format")),
        (TOO_LARGE, Answer::ServerError(b"object too large for cache")),
        (b"VERSION 1.6.45-x\r\n", Answer::Version(b"1.6.45-x")),
        (b"STAT pid 7\r\n", Answer::Stat { name: b"pid", value: b"7" }),
        (b"STAT empty \r\n", Answer::Stat { name: b"empty", value: b"" }),
        (b"ME k exp=-1 la=2\r\n", Answer::MetaDebug(b"k exp=-1 la=2")),
        (b"18446744073709551615\r\n", Answer::Number(u64::MAX)),
        (b"0\n", Answer::Number(0)),
    ];
    for (line, answer) in rows {
        assert_eq!(read(line), answer);
        assert_eq!(read(line).body_bytes(), 0);
    }
}

#[test]
fn error_lines_are_errors_and_no_others() {
    let errors = [
        BAD_DATA_CHUNK,
        BAD_DELTA,
        BAD_EXPTIME,
        NON_NUMERIC,
        BAD_SHUTDOWN,
        FLUSH_DISABLED,
        DUPLICATE_FLAG,
        INVALID_FLAG,
        INVALID_OR_DUPLICATE_FLAG,
        BAD_TOKEN,
        FLAGS_TOO_LONG,
        OPAQUE_TOO_LONG,
        BAD_KEY_ENCODING,
        BAD_SET_MODE,
        BAD_ARITH_MODE,
        BAD_INITIAL_VALUE,
        BAD_DELTA_VALUE,
        NO_MEMORY_STORING,
        NO_MEMORY_READING,
        NO_MEMORY,
        ERROR,
        SHUTDOWN_DISABLED,
        BAD_FORMAT,
        TOO_LARGE,
    ];
    for line in errors {
        assert!(read(line).is_error(), "{}", line.escape_ascii());
    }
    for line in [STORED, NOT_FOUND, b"EN\r\n", END, OK] {
        assert!(!read(line).is_error(), "{}", line.escape_ascii());
    }
}

#[test]
fn what_memcached_never_says_is_unintelligible() {
    let rows: [&[u8]; 13] = [
        b"\r\n",
        b" \r\n",
        b"HELLO\r\n",
        b"12 13\r\n",
        b"-1\r\n",
        b"18446744073709551616\r\n",
        b"VALUE k 0\r\n",
        b"VALUE k 0 x\r\n",
        b"VALUE k 0 1 2 3\r\n",
        b"VALUE k 4294967296 1\r\n",
        b"VALUE k 0 2147483646\r\n",
        b"VA\r\n",
        b"VA x s1\r\n",
    ];
    for line in rows {
        assert_eq!(parse_reply(line), Err(Unintelligible), "{}", line.escape_ascii());
    }
    assert_eq!(parse_reply(&[b'x'; 2048]), Ok(None));
    assert_eq!(parse_reply(&[b'x'; 2049]), Err(Unintelligible));
}

#[test]
fn return_flags_are_found_by_letter() {
    let mut line = Vec::new();
    put_meta_value_head(&mut line, 12);
    put_flag(&mut line, b's', 12);
    put_flag(&mut line, b'c', u64::MAX);
    line.extend(b" kfoo b");
    put_flag_bare(&mut line, b'W');
    line.extend(CRLF);
    assert_eq!(line, b"VA 12 s12 c18446744073709551615 kfoo b W\r\n");
    let Answer::MetaValue { value_bytes, returns } = read(&line) else { panic!("not a VA") };
    assert_eq!((value_bytes, read(&line).body_bytes()), (12, 14));
    assert_eq!(returns.number(b's'), Some(12));
    assert_eq!(returns.number(b'c'), Some(u64::MAX));
    assert_eq!(returns.argument(b'k'), Some(&b"foo"[..]));
    assert_eq!(returns.number(b'k'), None);
    assert!(returns.has(b'W') && returns.has(b'b') && !returns.has(b'X'));
    assert_eq!(returns.each().count(), 5);
}

#[test]
fn stat_lines_keep_the_spaces_of_their_value() {
    let mut line = Vec::new();
    put_stat(&mut line, b"lanes", b"small large  small");
    let value: &[u8] = b"small large  small";
    assert_eq!(read(&line), Answer::Stat { name: b"lanes", value });
}

#[test]
fn a_value_head_is_never_longer_than_it_says() {
    let mut line = Vec::new();
    put_value_head(&mut line, &[b'k'; 250], u32::MAX, usize::MAX, Some(u64::MAX));
    assert_eq!(line.len(), VALUE_HEAD_BYTES_MAX);
}

proptest! {
    #[test]
    fn a_value_head_comes_back(
        key in prop::collection::vec(b'!'..=255, 1..=250),
        flags in any::<u32>(),
        value_bytes in 0..0x7fff_fffd_usize,
        cas in any::<Option<u64>>(),
    ) {
        let mut line = Vec::new();
        put_value_head(&mut line, &key, flags, value_bytes, cas);
        let answer = read(&line);
        prop_assert_eq!(answer, Answer::Value(Value { key: &key, flags, value_bytes, cas }));
        prop_assert_eq!(answer.body_bytes(), value_bytes + 2);
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does(
        value in prop_oneof![any::<u64>(), 0..2000_u64, any::<u64>().prop_map(|v| v >> 32)],
        signed in any::<i64>(),
    ) {
        let mut unsigned = Vec::new();
        put_u64(&mut unsigned, value);
        prop_assert_eq!(unsigned, value.to_string().into_bytes());
        let mut text = Vec::new();
        put_i64(&mut text, signed);
        prop_assert_eq!(text, signed.to_string().into_bytes());
        let mut line = Vec::new();
        put_number_line(&mut line, value);
        prop_assert_eq!(read(&line), Answer::Number(value));
    }

    #[test]
    fn any_bytes_are_read_without_panic(input in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some(frame)) = parse_reply(&input) {
            prop_assert!(frame.head_bytes <= input.len());
        }
    }
}
