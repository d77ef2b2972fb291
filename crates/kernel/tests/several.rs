//! One `get` of several keys, run by the kernel on frames of ours, at both hooks: answered whole,
//! or not touched, marked or counted at all.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]

mod common;

use common::frame::{self, Frame};
use common::trial::{answer, counted, each, text};
use common::writer::{Attributes, FUTURE, PAST, PLAIN, Writer};
use laneway_kernel::Outcome;
use laneway_kernel::layout::{MARK_GRANULE_BYTES, MARK_MAX};
use laneway_store::{Location, Medium};
use std::sync::atomic::Ordering::Relaxed;

/// `GETS_MAX` of `bpf/scratch.h`.
const KEYS_MAX: usize = 16;
/// `REQUEST_BYTES_MAX` there, without the headers of UDP and memcached.
const TEXT_BYTES_MAX: usize = 1024 - 16;
/// What an IPv4 packet of 1500 bytes holds of a reply.
const REPLY_BYTES_MAX: usize = 1500 - 20 - 16;

fn request(keys: &[&str]) -> String {
    format!("get {}\r\n", keys.join(" "))
}

fn reply(items: &[(&str, &str)]) -> String {
    let value =
        |(key, value): &(&str, &str)| format!("VALUE {key} 0 {}\r\n{value}\r\n", value.len());
    items.iter().map(value).collect::<String>() + "END\r\n"
}

fn hits(writer: &Writer) -> u64 {
    writer.lane.counts().expect("counters").hits()
}

/// The hit mark of the record that a location leads to.
fn mark(writer: &Writer, word: u64) -> u8 {
    let granules = MARK_GRANULE_BYTES as u64 / 8;
    let granule = Location::of_slot(word).offset() / granules;
    writer.lane.marks()[granule as usize].load(Relaxed)
}

/// Expects that these keys are passed up for this reason, and that none of them counts as hit.
#[track_caller]
fn passed(writer: &Writer, outcome: Outcome, request: &str) {
    frame_passed(writer, outcome, &Frame::v4(request.as_bytes()));
}

/// The same of a frame.
#[track_caller]
fn frame_passed(writer: &Writer, outcome: Outcome, frame: &Frame) {
    let marks =
        || writer.lane.marks().iter().map(|mark| u64::from(mark.load(Relaxed))).sum::<u64>();
    let (before, request) = ((hits(writer), marks()), frame.text.escape_ascii());
    assert_eq!(counted(writer, outcome, || answer(writer, &frame.bytes())), None, "{request}");
    assert_eq!((hits(writer), marks()), before, "{request}");
}

#[test]
fn two_to_sixteen_keys_are_answered_in_one_datagram_over_both_families() {
    each(|mut writer| {
        let keys: Vec<String> =
            (0..KEYS_MAX).map(|i| format!("key-{i}{}", "x".repeat(i))).collect();
        let values: Vec<String> = (0..KEYS_MAX).map(|i| "abcdef".repeat(i)).collect();
        let words: Vec<u64> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| writer.set(key.as_bytes(), value.as_bytes(), PLAIN))
            .collect();
        let items: Vec<(&str, &str)> =
            keys.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
        for count in 2..=KEYS_MAX {
            let (items, before) = (&items[..count], hits(&writer));
            let asked: Vec<&str> = items.iter().map(|(key, _)| *key).collect();
            for frame in [Frame::v4, Frame::v6] {
                let frame = frame(request(&asked).as_bytes());
                let replied = counted(&writer, Outcome::Hit, || answer(&writer, &frame.bytes()));
                let replied = frame::open(&replied.expect("a hit"));
                assert_eq!((replied.source, replied.to), (frame.to, frame.source));
                assert_eq!(String::from_utf8(replied.text).expect("text"), reply(items));
            }
            assert_eq!(hits(&writer) - before, 2 * count as u64, "each key is a hit");
        }
        assert_eq!((mark(&writer, words[0]), mark(&writer, words[KEYS_MAX - 1])), (MARK_MAX, 2));
    });
}

#[test]
fn a_key_that_is_asked_for_twice_is_answered_and_marked_twice() {
    each(|mut writer| {
        let (one, two) = (writer.set(b"one", b"1", PLAIN), writer.set(b"two", b"22", PLAIN));
        let expected = reply(&[("one", "1"), ("two", "22"), ("one", "1")]);
        assert_eq!(text(&writer, b"get one two one\r\n"), Some(expected));
        assert_eq!((mark(&writer, one), mark(&writer, two), hits(&writer)), (2, 1, 3));
        let of_class =
            |class: usize| writer.lane.counts().expect("counters").hits_of_class()[class];
        assert_eq!(of_class(2), 3, "4 and 5 bytes");
    });
}

#[test]
fn flags_and_ends_are_each_keys_own() {
    each(|mut writer| {
        writer.set(b"a", b"x", Attributes { flags: 4_000_000_000, ..PLAIN });
        writer.set(b"b", b"y", Attributes { expires: FUTURE, ..PLAIN });
        writer.set(b"c", b"", PLAIN);
        let expected =
            "VALUE a 4000000000 1\r\nx\r\nVALUE b 0 1\r\ny\r\nVALUE c 0 0\r\n\r\nEND\r\n";
        assert_eq!(text(&writer, b"get a b c\r\n").as_deref(), Some(expected));
    });
}

#[test]
fn where_one_key_cannot_be_answered_none_is() {
    each(|mut writer| {
        writer.set(b"a", b"1", PLAIN);
        writer.set(b"b", b"2", PLAIN);
        writer.set(b"gone", b"v", Attributes { expires: PAST, ..PLAIN });
        writer.set(b"stale", b"v", Attributes { stale: true, ..PLAIN });
        writer.set(b"extent", b"v", Attributes { medium: Medium::Extent, ..PLAIN });
        writer.set(b"vast", &[b'v'; 1460], PLAIN);
        for (outcome, key) in [
            (Outcome::Miss, "never"),
            (Outcome::Dead, "gone"),
            (Outcome::Elsewhere, "stale"),
            (Outcome::Elsewhere, "extent"),
            (Outcome::Long, "vast"),
        ] {
            for asked in [[key, "a", "b"], ["a", key, "b"], ["a", "b", key]] {
                passed(&writer, outcome, &request(&asked));
            }
        }
        // The first that is not answered decides.
        passed(&writer, Outcome::Dead, "get a gone never\r\n");
        writer.hold(b"b", || passed(&writer, Outcome::Writing, "get a b\r\n"));
        assert_eq!(text(&writer, b"get a b\r\n"), Some(reply(&[("a", "1"), ("b", "2")])));
    });
}

#[test]
fn what_is_no_plain_line_of_at_most_sixteen_keys_goes_up() {
    each(|mut writer| {
        writer.set(b"a", b"1", PLAIN);
        writer.set(b"b", b"2", PLAIN);
        let seventeen = request(&["a"; KEYS_MAX + 1]);
        let hundred = request(&["a"; 100]);
        let too_long = format!("get a {}\r\n", "k".repeat(251));
        for asked in [
            seventeen.as_str(),
            &hundred,
            &too_long,
            "get a b",
            "get a b\n",
            "get a b\r",
            "get a b \r\n",
            "get a  b\r\n",
            "get  a b\r\n",
            "get a b\r\nx",
            "get a b\r\n\r\n",
            "get a\r\nget b\r\n",
            "get a b\r\nget a b\r\n",
            "get a\rb a\r\n",
            "get a b\0\r\n",
            "get a \x7f\r\n",
            "get a\tb\r\n",
            "gets a b\r\n",
            "gat 0 a b\r\n",
            "mg a b\r\n",
        ] {
            passed(&writer, Outcome::Request, asked);
        }
        let sixteen = text(&writer, request(&["a"; KEYS_MAX]).as_bytes());
        assert_eq!(sixteen, Some(reply(&[("a", "1"); KEYS_MAX])));
    });
}

#[test]
fn long_keys_are_answered_up_to_the_longest_request() {
    each(|mut writer| {
        let key = |letter: &str, length: usize| letter.repeat(length);
        let keys = [key("a", 250), key("b", 250), key("c", 250), key("d", 249), key("e", 250)];
        for key in &keys {
            writer.set(key.as_bytes(), b"v", PLAIN);
        }
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|i| keys[i].as_str());
        let longest = request(&[a, b, c, d]);
        assert_eq!(longest.len(), TEXT_BYTES_MAX);
        let expected = reply(&[(a, "v"), (b, "v"), (c, "v"), (d, "v")]);
        assert_eq!(text(&writer, longest.as_bytes()), Some(expected));
        passed(&writer, Outcome::Request, &request(&[a, b, c, e]));
        // Sixteen that just fit.
        let keys: Vec<String> =
            (0..KEYS_MAX).map(|i| format!("{i:02}{}", "k".repeat(59))).collect();
        for key in &keys {
            writer.set(key.as_bytes(), b"", PLAIN);
        }
        let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
        let items: Vec<(&str, &str)> = asked.iter().map(|key| (*key, "")).collect();
        assert_eq!(text(&writer, request(&asked).as_bytes()), Some(reply(&items)));
    });
}

#[test]
fn a_reply_is_as_long_as_a_packet_holds_and_not_a_byte_longer() {
    each(|mut writer| {
        let first = "x".repeat(700);
        let rest = REPLY_BYTES_MAX - reply(&[("a", &first), ("b", "")]).len() - "725".len() + 1;
        let (fits, beyond) = ("y".repeat(rest), "y".repeat(rest + 1));
        writer.set(b"a", first.as_bytes(), PLAIN);
        writer.set(b"b", fits.as_bytes(), PLAIN);
        writer.set(b"c", beyond.as_bytes(), PLAIN);
        let longest = text(&writer, b"get a b\r\n");
        assert_eq!(longest.as_ref().map(String::len), Some(REPLY_BYTES_MAX));
        assert_eq!(longest, Some(reply(&[("a", &first), ("b", &fits)])));
        passed(&writer, Outcome::Long, "get a c\r\n");
        // IPv6 headers are longer, and so is what is refused.
        frame_passed(&writer, Outcome::Long, &Frame::v6(b"get a b\r\n"));
        // None of sixteen is written beyond the room there is.
        passed(&writer, Outcome::Long, &request(&["a"; KEYS_MAX]));
        assert_eq!(text(&writer, b"get a\r\n"), Some(reply(&[("a", &first)])));
    });
}
