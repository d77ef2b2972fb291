use super::*;

const LIMITS: Limits = Limits { item_bytes_max: 1 << 20, line_bytes_max: 10_000 };

fn half_line(bytes: usize) -> Input {
    let mut input = Input::default();
    input.keep(&vec![b'k'; bytes]);
    input.half_line = true;
    input
}

#[test]
fn what_was_consumed_is_gone_and_the_rest_stays_in_order() {
    let mut input = Input::default();
    input.keep(b"abcdef");
    input.consume(2);
    assert_eq!(input.bytes(), b"cdef");
    let store = Store::new(laneway_store::Config::default()).expect("a small store");
    input.append(b"gh", &store).expect("there is room");
    assert_eq!(input.bytes(), b"cdefgh");
    input.consume(6);
    assert!(input.is_empty());
    input.keep(b"anew");
    assert_eq!(input.bytes(), b"anew");
}

#[test]
fn a_line_that_trickles_in_is_served_only_when_something_is_to_be_decided() {
    assert!(half_line(100).adds_no_line(b"more", &LIMITS));
    assert!(!half_line(100).adds_no_line(b"end\r\n", &LIMITS), "the line ends");
    assert!(!half_line(2047).adds_no_line(b"xx", &LIMITS), "longer than a plain line may be");
    assert!(half_line(3000).adds_no_line(b"more", &LIMITS), "a multiget, it was decided");
    assert!(!half_line(9_999).adds_no_line(b"xx", &LIMITS), "longer than any line may be");
    let mut whole = half_line(100);
    whole.half_line = false;
    assert!(!whole.adds_no_line(b"more", &LIMITS), "a value is awaited, not a line");
}

#[test]
fn a_long_line_counts_against_the_memory_limit_until_it_is_gone() {
    let config = laneway_store::Config {
        memory_bytes: 16 << 20,
        unpublished_bytes_max: 4 << 20,
        ..laneway_store::Config::default()
    };
    let store = Store::new(config).expect("a small store");
    let unpublished = || store.stats().unpublished_bytes;
    let mut lines: Vec<Input> = Vec::new();
    loop {
        let mut input = Input::default();
        input.keep(&[b'k'; 1000]);
        input.append(&[b'k'; 20_000], &store).expect("a short one is the connection's own");
        assert!(lines.len() < 100, "there is no limit");
        if input.append(&vec![b'k'; 1 << 20], &store).is_err() {
            break;
        }
        lines.push(input);
        assert!(unpublished() >= lines.len() as u64 * (1 << 20));
    }
    assert!(!lines.is_empty());
    for line in &mut lines {
        line.consume(line.bytes().len());
    }
    assert_eq!(unpublished(), 0);
}

/// A line of a mebibyte is served a turn's worth at a time; no turn moves the rest of it.
#[test]
fn serving_a_long_line_piece_by_piece_moves_nothing() {
    let store = Store::new(laneway_store::Config::default()).expect("a small store");
    let mut input = Input::default();
    input.keep(b"get ");
    input.append(&b"k ".repeat(1 << 19), &store).expect("there is room");
    let first = input.bytes().as_ptr() as usize;
    let mut consumed = 0;
    while input.bytes().len() > 1024 {
        input.consume(1024);
        consumed += 1024;
        input.append(b"", &store).expect("nothing is added");
        assert_eq!(input.bytes().as_ptr() as usize, first + consumed, "the rest was moved");
    }
}

/// Bytes that come while others are served: what was consumed does not stay for ever either.
#[test]
fn a_stream_of_half_requests_keeps_no_more_than_twice_what_is_left() {
    let store = Store::new(laneway_store::Config::default()).expect("a small store");
    let mut input = Input::default();
    input.keep(&[b'k'; 1000]);
    for _ in 0..1000 {
        input.append(&[b'k'; 500], &store).expect("there is room");
        input.consume(500);
        assert_eq!(input.bytes().len(), 1000);
        assert!(input.bytes.len() <= 2 * 1000 + 500, "{} bytes are kept", input.bytes.len());
    }
}

#[test]
fn what_is_put_back_comes_first_again() {
    let mut input = Input::default();
    input.put_back(b"all of it");
    assert_eq!(input.bytes(), b"all of it");
    for consumed in [0, 3, 6] {
        let mut input = Input::default();
        input.keep(b"abcdefgh");
        input.consume(consumed);
        input.put_back(b"ABC");
        let wanted = [b"ABC", &b"abcdefgh"[consumed..]].concat();
        assert_eq!(input.bytes(), wanted, "behind {consumed}");
        input.consume(wanted.len());
        assert!(input.is_empty());
    }
}
