//! The GET lane's program, run by the kernel on frames of ours (BPF_PROG_TEST_RUN), at both hooks.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the kernel keeps its own time")]

mod common;

use common::frame::{self, Frame};
use common::hosts::{self, Host, INTERFACE};
use common::trial::{OWN, answer, counted, each, text};
use common::writer::{Attributes, FUTURE, PAST, PLAIN, REACHED, Writer};
use laneway_kernel::layout::{Range, Settings};
use laneway_kernel::{Outcome, Program};
use laneway_store::{Medium, Moment};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

#[test]
fn a_get_is_answered_over_both_families() {
    each(|mut writer| {
        writer.set(b"key", b"the value", PLAIN);
        for request in [Frame::v4(b"get key\r\n"), Frame::v6(b"get key\r\n")] {
            let reply = counted(&writer, Outcome::Hit, || answer(&writer, &request.bytes()));
            let reply = frame::open(&reply.expect("a hit"));
            assert_eq!((reply.source, reply.to, reply.port), (request.to, request.source, 11211));
            assert_eq!(reply.head, [0x4243, 0, 1, 0]);
            assert_eq!(reply.text, b"VALUE key 0 9\r\nthe value\r\nEND\r\n");
        }
        assert_eq!(writer.lane.counts().expect("counters").hits_of_class()[3], 2);
    });
}

#[test]
fn keys_of_every_length_hash_and_compare_as_the_store_does() {
    each(|mut writer| {
        for length in 1..=250 {
            let key: Vec<u8> = (0..length).map(|i| b'!' + ((i * 31 + length) % 90) as u8).collect();
            let flags = u32::from(length % 2 == 0);
            writer.set(&key, b"v", Attributes { flags, ..PLAIN });
            let key = String::from_utf8(key).expect("text");
            let expected = format!("VALUE {key} {flags} 1\r\nv\r\nEND\r\n");
            assert_eq!(text(&writer, format!("get {key}\r\n").as_bytes()), Some(expected));
        }
        let long = format!("get {}\r\n", "k".repeat(251));
        assert_eq!(counted(&writer, Outcome::Request, || text(&writer, long.as_bytes())), None);
    });
}

#[test]
fn values_of_any_length_and_place_come_whole_up_to_the_longest_reply() {
    each(|mut writer| {
        let longest = 1472 - 8 - "VALUE k00 0 1400\r\n\r\nEND\r\n".len();
        let lengths = [0, 1, 7, 8, 9, 63, 100, 511, 512, 513, 1000, longest - 1, longest];
        for (i, length) in lengths.into_iter().enumerate() {
            let value: Vec<u8> = (0..length).map(|at| b'a' + (at * 7 % 23) as u8).collect();
            let key = format!("k{i:02}{}", "x".repeat(if length < 1000 { i } else { 0 }));
            writer.set(key.as_bytes(), &value, PLAIN);
            let value = String::from_utf8(value).expect("text");
            let expected = format!("VALUE {key} 0 {length}\r\n{value}\r\nEND\r\n");
            for request in [Frame::v4, Frame::v6] {
                let request = request(format!("get {key}\r\n").as_bytes());
                // An IPv6 header is longer than what is left of the MTU by then.
                if request.source.is_ipv6() && length > 1400 {
                    continue;
                }
                let Some(reply) = answer(&writer, &request.bytes()) else {
                    panic!("{length} bytes to {}", request.to)
                };
                assert_eq!(String::from_utf8(frame::open(&reply).text).expect("text"), expected);
            }
        }
        writer.set(b"kxx", &vec![b'x'; longest + 1], PLAIN);
        let too_long = counted(&writer, Outcome::Long, || text(&writer, b"get kxx\r\n"));
        assert_eq!(too_long, None);
    });
}

#[test]
fn meta_gets_return_the_common_flags_in_the_order_asked_for() {
    each(|mut writer| {
        writer.set(b"key", b"abcde", Attributes { flags: 4_000_000_000, seq: 99, ..PLAIN });
        let rows = [
            ("mg key v\r\n", "VA 5\r\nabcde\r\n"),
            ("mg key v f s c t k\r\n", "VA 5 f4000000000 s5 c99 t-1 kkey\r\nabcde\r\n"),
            ("mg key k q Oid-7 v\r\n", "VA 5 kkey Oid-7\r\nabcde\r\n"),
            ("mg key O v\r\n", "VA 5 O\r\nabcde\r\n"),
        ];
        for (request, reply) in rows {
            assert_eq!(text(&writer, request.as_bytes()).as_deref(), Some(reply), "{request}");
        }
        writer.set(b"ends", b"", Attributes { expires: FUTURE, ..PLAIN });
        let reply = text(&writer, b"mg ends t v\r\n").expect("a hit");
        let left = reply.strip_prefix("VA 0 t").and_then(|rest| rest.split("\r\n").next());
        let left: u32 = left.expect("a time left").parse().expect("a number");
        // The clock stands at 10^9 seconds and the time since boot.
        assert!((2_500_000_000..=3_000_000_000).contains(&left), "{left}");
    });
}

#[test]
fn other_requests_go_up_as_they_came() {
    let opaque = format!("mg key v O{}\r\n", "o".repeat(32));
    let rows = [
        "get key \r\n",
        "get  key\r\n",
        "get key\n",
        "get key",
        "get \r\n",
        "gets key\r\n",
        "set key 0 0 1\r\nx\r\n",
        "delete key\r\n",
        "mg key\r\n",
        "mg key f\r\n",
        "mg key v v\r\n",
        "mg key v N30\r\n",
        "mg key v h\r\n",
        "mg key v  f\r\n",
        "mg key  v\r\n",
        "mg key  \r\n",
        "mg key v  \r\n",
        "mg key v b\r\n",
        "mg key vf\r\n",
        "mg  key v\r\n",
        "mg key v \0\r\n",
        "get k\0y\r\n",
        "get key\r\n\r\n",
        "get key\r\nget key\r\n",
        "GET key\r\n",
        "get k\x7fy\r\n",
        "get",
        "\r\n",
        &opaque,
    ];
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        for request in rows {
            let before = writer.lane.counts().expect("counters");
            assert_eq!(text(&writer, request.as_bytes()), None, "{request:?}");
            let after = writer.lane.counts().expect("counters");
            let count = |outcome| after.of(outcome) - before.of(outcome);
            // The whole checksum of one of these looks like an unfinished one.
            let outcomes = [Outcome::Request, Outcome::Miss, Outcome::Checksum];
            assert_eq!(outcomes.map(count).iter().sum::<u64>(), 1, "{request:?}");
        }
    });
}

#[test]
fn frames_that_are_not_plain_go_up_as_they_came() {
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        let whole = Frame::v4(b"get key\r\n");
        let spoilt = |at: usize, byte: u8| {
            let mut bytes = whole.bytes();
            bytes[at] = byte;
            bytes
        };
        let optioned = |port: u16| {
            let mut bytes = Frame { port, ..whole.clone() }.bytes();
            bytes.splice(34..34, [1, 1, 1, 0]);
            bytes[14] = 0x46;
            bytes
        };
        let headed = |head: [u16; 4]| Frame { head, ..whole.clone() }.bytes();
        let rows = [
            (Outcome::Frame, optioned(whole.port)),           // IP options
            (Outcome::Frame, spoilt(20, 0x20)),               // more fragments
            (Outcome::Frame, spoilt(39, 24)),                 // UDP length is not the packet's
            (Outcome::Checksum, spoilt(22, 62)),              // IP checksum
            (Outcome::Checksum, spoilt(41, 0)),               // UDP checksum
            (Outcome::Frame, headed([1, 0, 2, 0])),           // the first of two
            (Outcome::Frame, headed([1, 1, 2, 0])),           // the second of two
            (Outcome::Frame, spoilt(0, 2)),                   // another host's Ethernet address
            (Outcome::Frame, spoilt(6, 1)),                   // from a group of hosts
            (Outcome::Frame, headed([1, 0xffff, 1, 0xa703])), // of a kind of its own
        ];
        for (outcome, bytes) in rows {
            assert_eq!(counted(&writer, outcome, || answer(&writer, &bytes)), None);
        }
        let mut first_elsewhere = Frame { port: 11212, ..whole.clone() }.bytes();
        first_elsewhere[20] = 0x20;
        let mut cut_in_options = optioned(whole.port);
        cut_in_options[14] = 0x4f;
        let uncounted = [
            spoilt(21, 7),                                               // a later fragment
            first_elsewhere,                                             // another port's first
            optioned(11212),                                             // options, another port
            cut_in_options,                                              // beyond the packet
            spoilt(23, 6),                                               // TCP
            spoilt(37, 1),                                               // another port
            spoilt(12, 0x81),                                            // no IP
            Frame { to: [10, 9, 0, 7].into(), ..whole.clone() }.bytes(), // another host
            whole.bytes()[..40].to_vec(),                                // cut off
        ];
        let before = writer.lane.counts().expect("counters");
        for bytes in uncounted {
            assert_eq!(answer(&writer, &bytes), None);
        }
        assert_eq!(writer.lane.counts().expect("counters"), before);
        // What memcached's clients leave in the number that it reserves says nothing.
        for reserved in [0, 1, 3, 0x0d0a, 0xa703, 0xffff] {
            let reply = answer(&writer, &headed([7, 0, 1, reserved])).expect("it is served");
            assert_eq!(frame::open(&reply).head, [7, 0, 1, 0], "{reserved:#x}");
        }
    });
}

#[test]
fn what_is_dead_stale_elsewhere_or_being_written_goes_up() {
    each(|mut writer| {
        writer.set(b"expired", b"v", Attributes { expires: PAST, ..PLAIN });
        writer.set(b"alive", b"v", Attributes { expires: FUTURE, ..PLAIN });
        writer.set(b"stale", b"v", Attributes { stale: true, ..PLAIN });
        writer.set(b"extent", b"v", Attributes { medium: Medium::Extent, ..PLAIN });
        writer.set(b"later", b"v", Attributes { flush: 1, ..PLAIN });
        let passed = |outcome, request: &[u8]| {
            assert_eq!(counted(&writer, outcome, || text(&writer, request)), None);
        };
        passed(Outcome::Dead, b"get expired\r\n");
        passed(Outcome::Elsewhere, b"get stale\r\n");
        passed(Outcome::Elsewhere, b"get extent\r\n");
        passed(Outcome::Dead, b"get later\r\n");
        passed(Outcome::Miss, b"get never\r\n");
        writer.hold(b"alive", || passed(Outcome::Writing, b"get alive\r\n"));
        counted(&writer, Outcome::Hit, || text(&writer, b"get alive\r\n")).expect("a hit");
        writer.lane.control().set_flush(65);
        passed(Outcome::Dead, b"get alive\r\n");
        counted(&writer, Outcome::Hit, || text(&writer, b"get later\r\n")).expect("a hit");
        writer.lane.control().close();
        assert_eq!(text(&writer, b"get later\r\n"), None);
    });
}

#[test]
fn an_end_with_milliseconds_is_the_servers_to_look_at_in_its_last_second_alone() {
    const SECOND: u32 = 3_000_000_000;
    const NANOS: i64 = 1_000_000_000;
    let boot = || clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has it").num_nanoseconds();
    each(|mut writer| {
        for (end, outcome, told) in [
            (Moment::new(0, 1), Outcome::Dead, None),
            (Moment::new(SECOND - 1, 999), Outcome::Dead, None),
            (Moment::new(SECOND, 0), Outcome::Dead, None),
            (Moment::new(SECOND, 1), Outcome::Elsewhere, None),
            (Moment::new(SECOND, 999), Outcome::Elsewhere, None),
            (Moment::new(SECOND + 1, 0), Outcome::Hit, Some("VA 1 t1\r\nv\r\n")),
            (Moment::new(SECOND + 1, 1), Outcome::Hit, Some("VA 1 t2\r\nv\r\n")),
            (Moment::new(SECOND + 9, 999), Outcome::Hit, Some("VA 1 t10\r\nv\r\n")),
        ] {
            let key = format!("{}.{}", end.seconds(), end.millis());
            writer.set(key.as_bytes(), b"v", Attributes { expires: end, ..PLAIN });
            let request = format!("mg {key} t v\r\n");
            let count = || writer.lane.counts().expect("counters").of(outcome);
            loop {
                // The second has just begun. It may be over before the answer is there.
                let began = boot();
                writer.lane.control().set_clock(i64::from(SECOND) * NANOS - began);
                let before = count();
                let answered = text(&writer, request.as_bytes());
                let counted = count() - before;
                if boot() - began < NANOS {
                    assert_eq!((answered.as_deref(), counted), (told, 1), "{end:?}: {outcome:?}");
                    break;
                }
            }
        }
    });
}

#[test]
fn two_overflow_buckets_are_followed_and_hits_leave_marks() {
    each(|mut writer| {
        let keys = writer.neighbours(REACHED + 2);
        let words: Vec<u64> = keys.iter().map(|key| writer.set(key, b"v", PLAIN)).collect();
        let hit = |key: &[u8]| text(&writer, &[b"get ", key, b"\r\n"].concat()).is_some();
        let found = keys.iter().filter(|key| hit(key)).count();
        // The last slot of the last bucket reached is a link by now.
        assert_eq!(found, REACHED - 1, "of {}", keys.len());
        let granules = laneway_kernel::layout::MARK_GRANULE_BYTES as u64 / 8;
        let offset = laneway_store::Location::of_slot(words[0]).offset();
        let mark = &writer.lane.marks()[(offset / granules) as usize];
        let marked = || mark.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(marked(), 1);
        (0..5).for_each(|_| assert!(hit(&keys[0])));
        assert_eq!(marked(), laneway_kernel::layout::MARK_MAX);
    });
}

/// The frame under the one request id with which its whole checksum is that of its pseudo header
/// alone: what a packet of this machine carries, for a card to complete.
fn with_the_sum_of_its_pseudo_header(frame: Frame) -> Vec<u8> {
    let at = if frame.source.is_ipv4() { 14 + 20 + 6 } else { 14 + 40 + 6 };
    let udp_bytes = frame.text.len() + 16;
    let pseudo = frame::fold(frame::pseudo(frame.source, frame.to, udp_bytes)).to_be_bytes();
    let mut frames =
        (0..=u16::MAX).map(|id| Frame { head: [id, 0, 1, 0], ..frame.clone() }.bytes());
    frames.find(|bytes| bytes[at..at + 2] == pseudo).expect("one id in 65536 does it")
}

#[test]
fn a_whole_checksum_that_looks_unfinished_never_gets_an_unfinished_reply() {
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        for request in [Frame::v4(b"get key\r\n"), Frame::v6(b"get key\r\n")] {
            let bytes = with_the_sum_of_its_pseudo_header(request);
            match writer.lane.program() {
                // What leaves from there has a whole checksum in any case.
                Program::Xdp => {
                    let reply = counted(&writer, Outcome::Hit, || answer(&writer, &bytes));
                    frame::open(&reply.expect("a hit"));
                }
                _ => assert_eq!(
                    counted(&writer, Outcome::Checksum, || answer(&writer, &bytes)),
                    None
                ),
            }
        }
    });
}

#[test]
fn only_addresses_that_are_served_get_answers() {
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        let settings = |served| laneway_kernel::layout::Settings {
            served: vec![served],
            ..writer.settings(&OWN)
        };
        let near = Range { address: [10, 9, 255, 255].into(), prefix_bits: 16 };
        writer.lane.control().open(&settings(near));
        assert!(text(&writer, b"get key\r\n").is_some());
        let stranger = Frame::v6(b"get key\r\n").bytes();
        assert_eq!(counted(&writer, Outcome::Stranger, || answer(&writer, &stranger)), None);
        let far = Range { address: [10, 8, 0, 0].into(), prefix_bits: 16 };
        writer.lane.control().open(&settings(far));
        assert_eq!(counted(&writer, Outcome::Stranger, || text(&writer, b"get key\r\n")), None);
    });
}

/// A host of the test's own and its neighbour, the number of its interface, and a frame that comes
/// to it there from an address.
fn at_an_interface(writer: &Writer) -> ([Host; 2], u32, impl Fn(&str) -> Vec<u8>) {
    let (host, client) = hosts::connected();
    let interface = host.run(|| laneway_kernel::redirect::look(INTERFACE)).expect("it is there");
    let interfaces = vec![interface];
    writer.lane.control().open(&Settings { interfaces, ..writer.settings(&OWN) });
    let frame = move |source: &str| {
        let source = source.parse().expect("an address");
        let mut bytes = Frame { source, ..Frame::v4(b"get key\r\n") }.bytes();
        bytes[..6].copy_from_slice(&interface.ethernet);
        bytes
    };
    ([host, client], interface.index, frame)
}

#[test]
fn nobody_is_answered_under_our_own_address_or_that_of_everybody() {
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        let ([host, _client], index, frame) = at_an_interface(&writer);
        let interfaces = vec![host.run(|| laneway_kernel::redirect::look(INTERFACE)).expect("it")];
        let refused = ["10.9.0.1", "10.9.0.255"].map(|text| text.parse().expect("an address"));
        writer.lane.control().open(&Settings {
            interfaces,
            refused: refused.to_vec(),
            ..writer.settings(&OWN)
        });
        let hit = |source: &str| {
            let frame = frame(source);
            host.run(|| writer.lane.try_frame_at(index, &frame, 1)).expect("a trial run").hit
        };
        assert!(counted(&writer, Outcome::Hit, || hit("10.9.0.2")));
        for source in ["10.9.0.1", "10.9.0.255"] {
            assert!(!counted(&writer, Outcome::Stranger, || hit(source)), "{source}");
        }
        // A client of this very host, by the loopback.
        let interfaces = writer.settings(&OWN).interfaces;
        let refused = refused.to_vec();
        writer.lane.control().open(&Settings { interfaces, refused, ..writer.settings(&OWN) });
        let own = Frame { source: [10, 9, 0, 1].into(), ..Frame::v4(b"get key\r\n") };
        assert!(counted(&writer, Outcome::Hit, || answer(&writer, &own.bytes())).is_some());
    });
}

#[test]
fn no_address_is_sent_more_than_its_rate_except_by_the_loopback() {
    let reply_bytes = 20 + 16 + b"VALUE key 0 5\r\nvalue\r\nEND\r\n".len() as u64;
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        let ([host, _client], index, frame) = at_an_interface(&writer);
        let interface = host.run(|| laneway_kernel::redirect::look(INTERFACE)).expect("it");
        let allow = |period_bytes| {
            let interfaces = vec![interface];
            let settings = Settings { interfaces, period_bytes, ..writer.settings(&OWN) };
            writer.lane.control().open(&settings);
        };
        let hit = |source: &str| {
            let frame = frame(source);
            host.run(|| writer.lane.try_frame_at(index, &frame, 1)).expect("a trial run").hit
        };
        allow(reply_bytes - 1);
        assert!(!counted(&writer, Outcome::Rate, || hit("10.9.0.2")), "not even one");
        allow(reply_bytes);
        assert!(counted(&writer, Outcome::Hit, || hit("10.9.0.2")), "one");
        // The second of a period; where one has just begun anew, the second of the next.
        let began = std::time::Instant::now();
        while hit("10.9.0.2") {
            assert!(began.elapsed() < hosts::PATIENCE, "it is never enough");
        }
        assert!(hit("10.9.0.77"), "that is nobody else's loss");
        let settings = Settings { period_bytes: 1, ..writer.settings(&OWN) };
        writer.lane.control().open(&settings);
        assert!(text(&writer, b"get key\r\n").is_some(), "by the loopback");
    });
}

/// Frames drawn from a seed: whole ones with some bytes changed. What is answered must still be a
/// request for the one key there is, and the reply must be right.
#[test]
fn spoilt_frames_are_answered_only_if_they_still_ask_for_the_key() {
    const SEED: u64 = 0x5eed;
    const FRAMES: usize = 20_000;
    each(|mut writer| {
        writer.set(b"key", b"value", PLAIN);
        let mut state = SEED;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        let mut hits = 0;
        for number in 0..FRAMES {
            let mut request =
                Frame::v4(if draw(2) == 0 { b"get key\r\n" } else { b"mg key v\r\n" });
            for _ in 0..draw(3) {
                let at = draw(request.text.len());
                request.text[at] = b" \r\n\0gmtkeyv7"[draw(12)];
            }
            let mut bytes = request.bytes();
            for _ in 0..draw(2) {
                let at = draw(bytes.len());
                bytes[at] ^= 1 << draw(8);
            }
            let Some(reply) = answer(&writer, &bytes) else { continue };
            hits += 1;
            let asked = &bytes[50..];
            let reply = frame::open(&reply).text;
            let told = format!("frame {number} of seed {SEED:#x}: {asked:?} got {reply:?}");
            match asked {
                b"get key\r\n" => assert_eq!(reply, b"VALUE key 0 5\r\nvalue\r\nEND\r\n", "{told}"),
                b"mg key v\r\n" => assert_eq!(reply, b"VA 5\r\nvalue\r\n", "{told}"),
                _ => panic!("{told}"),
            }
        }
        assert!(hits > FRAMES / 20, "{hits}");
    });
}

/// So that a change which makes the verifier's work explode is noticed here and not by an older
/// kernel that refuses the program.
#[test]
fn the_verifier_accepts_the_programs_with_little_work() {
    each(|writer| {
        let instructions = writer.lane.verified_instructions().expect("this kernel tells");
        println!("the verifier walked through {instructions} instructions");
        assert!(instructions < 60_000, "{instructions}");
    });
}
