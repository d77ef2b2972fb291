use super::super::frames::{frames, put_train};
use super::super::header::{HEADER_BYTES, Kind};
use super::*;
use alloc::vec;

const BOUNDS: Bounds = Bounds {
    messages_max: 4,
    bytes_max: 1 << 20,
    message_bytes_max: 500_000,
    idle_nanos_max: 1000,
    stale_nanos_max: 1000,
};

fn header(sequence: u16, total: u16) -> Header {
    Header { request_id: 1, sequence, total, kind: Kind::Data }
}

fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 253) as u8).collect()
}

/// The datagrams of a message, each in a piece of its own.
fn datagrams(message: &[u8]) -> Vec<Vec<u8>> {
    let total = frames(message.len()).expect("it is short enough");
    let cut = |sequence| {
        let (mut headers, mut datagram) = ([[0; HEADER_BYTES]; 1], Vec::new());
        put_train(1, message, &mut [sequence].into_iter(), &mut headers, |slice| {
            datagram.extend_from_slice(slice);
        });
        datagram
    };
    (0..total).map(cut).collect()
}

fn put(into: &mut Reassembly<u32>, key: u32, datagram: &[u8], now_nanos: u64) -> Taken {
    let (header, payload) = Header::parse(datagram).expect("it has a header");
    into.take(key, header, payload, now_nanos)
}

fn whole(taken: Taken) -> Option<Vec<u8>> {
    match taken {
        Taken::Whole(whole) => Some(whole.into_vec()),
        _ => None,
    }
}

#[test]
fn a_message_comes_together_in_any_order() {
    for bytes in [0, 1, 1392, 1393, 46 * 1392, 46 * 1392 + 1, 47 * 1392, 47 * 1392 + 1, 200_000] {
        let sent = message(bytes);
        let cut = datagrams(&sent);
        let orders: [Vec<usize>; 3] = [
            (0..cut.len()).collect(),
            (0..cut.len()).rev().collect(),
            (0..cut.len()).map(|at| (at * 7 + 3) % cut.len()).collect(),
        ];
        for order in orders.iter().filter(|order| {
            let mut all = (*order).clone();
            all.sort_unstable();
            all.iter().copied().eq(0..cut.len())
        }) {
            let mut into = Reassembly::new(BOUNDS);
            let (last, others) = order.split_last().expect("there is a frame");
            for at in others {
                assert_eq!(put(&mut into, 5, &cut[*at], 0), Taken::More);
            }
            let got = put(&mut into, 5, &cut[*last], 0);
            if let Taken::Whole(whole) = &got {
                let mut pieced = Vec::new();
                while pieced.len() < whole.message_bytes() {
                    pieced.extend_from_slice(whole.piece(pieced.len()));
                }
                assert!(pieced == sent, "{bytes} bytes by pieces");
            }
            assert!(whole(got).expect("that was the last") == sent, "{bytes} bytes");
            assert_eq!((into.len(), into.bytes()), (0, 0));
        }
    }
}

#[test]
fn frames_that_cannot_be_are_refused_and_counted() {
    let mut into = Reassembly::new(BOUNDS);
    let rows = [
        (1, header(0, 0), 5, Taken::Refused(Refused::Impossible)),
        (1, header(3, 3), 5, Taken::Refused(Refused::Impossible)),
        (1, header(0, 3), 0, Taken::Refused(Refused::Uneven)),
        (1, header(0, 3), 1393, Taken::Refused(Refused::Uneven)),
        (1, header(0, 3), 100, Taken::More),
        (1, header(0, 3), 100, Taken::Refused(Refused::Duplicate)),
        (1, header(1, 4), 100, Taken::Refused(Refused::TotalChanged)),
        (1, header(1, 3), 99, Taken::Refused(Refused::Uneven)),
        (1, header(2, 3), 101, Taken::Refused(Refused::Uneven)),
        (1, header(2, 3), 7, Taken::More),
        (1, header(2, 3), 7, Taken::Refused(Refused::Duplicate)),
        (2, header(1, 2), 200, Taken::More),
        (2, header(0, 2), 199, Taken::Refused(Refused::Uneven)),
        (3, header(0, 5002), 100, Taken::Refused(Refused::TooLong)),
        (3, header(1, 5002), 100, Taken::Refused(Refused::Stale)),
    ];
    for (at, (key, header, bytes, expected)) in rows.into_iter().enumerate() {
        let got = into.take(key, header, &vec![1; bytes], 0);
        assert_eq!(got, expected, "row {at}");
    }
    let got = into.take(1, header(1, 3), &[9; 100], 0);
    assert_eq!(whole(got).map(|message| message.len()), Some(207));
    assert_eq!(into.take(1, header(1, 3), &[9; 100], 0), Taken::Refused(Refused::Stale));
    let counts = *into.counts();
    let expected = Counts {
        whole: 1,
        impossible: 2,
        total_changed: 1,
        uneven: 5,
        duplicate: 2,
        stale: 2,
        too_long: 1,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
}

#[test]
fn what_stands_still_is_given_up_and_what_moves_is_not() {
    let mut into = Reassembly::new(BOUNDS);
    into.take(1, header(0, 20), &[1; 10], 0);
    into.take(2, header(0, 20), &[1; 10], 0);
    for step in 1..10 {
        into.take(1, header(step, 20), &[1; 10], u64::from(step) * 300);
    }
    assert_eq!((into.len(), into.counts().timed_out), (1, 1));
    assert_eq!(into.missing(&1), [Gap { first: 10, count: 10 }]);
    into.expire(9 * 300 + 1001);
    assert_eq!((into.len(), into.bytes(), into.counts().timed_out), (0, 0, 2));
}

#[test]
fn a_key_is_stale_for_a_while_and_then_free() {
    let mut into = Reassembly::new(BOUNDS);
    let one = datagrams(&message(10));
    assert!(whole(put(&mut into, 1, &one[0], 0)).is_some());
    assert_eq!(put(&mut into, 1, &one[0], 1000), Taken::Refused(Refused::Stale));
    assert!(whole(put(&mut into, 1, &one[0], 1001)).is_some());
    into.take(2, header(0, 2), &[1], 1001);
    assert!(into.forget(&2, 1001) && !into.forget(&2, 1001));
    assert_eq!(into.take(2, header(1, 2), &[1], 1001), Taken::Refused(Refused::Stale));
}

/// A message arrives frame by frame; after each frame, `sources` others begin one. Returns the
/// message and how many were dropped for room.
fn flood(sources: u32, step_nanos: u64) -> (Option<Vec<u8>>, u64) {
    let mut into = Reassembly::new(BOUNDS);
    let mut got = None;
    for (at, datagram) in datagrams(&message(100_000)).iter().enumerate() {
        let now_nanos = at as u64 * step_nanos;
        got = whole(put(&mut into, 0, datagram, now_nanos));
        for source in 0..sources {
            let key = 1 + at as u32 * sources + source;
            into.take(key, header(7, 300), &[1; 1392], now_nanos + 1);
            assert!(into.bytes() <= BOUNDS.bytes_max && into.len() <= BOUNDS.messages_max);
        }
    }
    (got, into.counts().dropped_for_room)
}

#[test]
fn a_flood_stays_within_the_bounds_and_moves_no_message_that_goes_on() {
    // However fast it moves: also where it began before those that stand still did.
    for step_nanos in [200, 10] {
        let (got, dropped) = flood(2, step_nanos);
        assert!(got.is_some_and(|got| got == message(100_000)), "what moves on outlives the flood");
        assert!(dropped > 100, "{dropped}");
    }
    let (_, dropped) = flood(50, 200);
    assert!(dropped > 3000, "{dropped}");
}

#[test]
fn a_declared_total_reserves_nothing() {
    let bounds = Bounds { messages_max: 100, message_bytes_max: usize::MAX, ..BOUNDS };
    let mut into = Reassembly::new(bounds);
    into.take(1, header(65_000, u16::MAX), &[1; FRAME_BYTES_MAX], 0);
    assert!(into.bytes() < 70_000, "{}", into.bytes());
    // What one train is charged cannot pass the bound either.
    let mut small = Reassembly::new(Bounds { bytes_max: 1000, ..bounds });
    let refused = small.take(1, header(0, 100), &[1; FRAME_BYTES_MAX], 0);
    assert_eq!((refused, small.len()), (Taken::Refused(Refused::NoRoom), 0));
}

#[test]
fn what_is_cleared_is_gone_and_stays_counted() {
    let mut into = Reassembly::new(BOUNDS);
    into.take(1, header(0, 1), &[1; 10], 0);
    into.take(2, header(0, 2), &[1; 10], 0);
    into.clear();
    assert_eq!((into.len(), into.bytes(), into.counts().whole), (0, 0, 1));
    assert!(matches!(into.take(1, header(0, 1), &[1; 10], 0), Taken::Whole(_)), "it is new again");
    assert_eq!(into.counts().whole, 2);
}

#[test]
fn what_is_missing_is_told_and_again_after_twice_as_long() {
    let mut into = Reassembly::new(Bounds { idle_nanos_max: 100_000, ..BOUNDS });
    for sequence in [0, 1, 4, 5, 99] {
        into.take(1, header(sequence, 100), &[1; 10], 0);
    }
    let gaps = [Gap { first: 2, count: 2 }, Gap { first: 6, count: 93 }];
    assert_eq!(into.missing(&1), gaps);
    let mut asked = Vec::new();
    for now_nanos in 0..=70 {
        into.overdue(now_nanos, 10, |key, overdue| asked.push((now_nanos, *key, overdue)));
    }
    let told: Vec<(u64, u32)> = asked.iter().map(|(at, _, overdue)| (*at, overdue.asks)).collect();
    assert_eq!(told, [(10, 1), (30, 2), (70, 3)]);
    assert!(asked.iter().all(|(_, key, overdue)| *key == 1 && overdue.gaps == gaps));
    into.take(1, header(2, 100), &[1; 10], 75);
    let mut again = 0;
    into.overdue(85, 10, |_, overdue| again = overdue.asks);
    assert_eq!(again, 1, "a frame that comes makes patience short again");
    assert!(into.missing(&2).is_empty());
}

#[test]
fn what_is_missing_is_found_at_the_cost_of_what_has_come() {
    let declared = |sequences: &[u16]| {
        let mut into = Reassembly::new(BOUNDS);
        for sequence in sequences {
            into.take(1, header(*sequence, u16::MAX), &[1], 0);
        }
        let looks = into.open[&1].missing().count();
        let gaps = into.missing(&1);
        (looks, gaps)
    };
    let (looks, gaps) = declared(&[0]);
    let all = [Gap { first: 1, count: 65_534 }];
    assert_eq!(gaps, all);
    assert!(looks <= CHUNK_FRAMES + 2, "{looks} looks for one frame that came");
    let (looks, gaps) = declared(&[30_000, 65_534]);
    let around = [Gap { first: 0, count: 30_000 }, Gap { first: 30_001, count: 35_533 }];
    assert_eq!(gaps, around);
    assert!(looks <= CHUNK_FRAMES + 3, "{looks} looks for two");
}

#[test]
fn gaps_are_exactly_what_has_not_come() {
    for total in [2, 45, 46, 47, 48, 92, 93, 94, 300] {
        for stride in [1, 2, 7, 45, 46, 47, 100] {
            let came = |at: &u16| (at * 5 + 3).is_multiple_of(stride);
            let mut into = Reassembly::new(BOUNDS);
            for sequence in (0..total).filter(came) {
                into.take(1, header(sequence, total), &[1], 0);
            }
            if into.is_empty() {
                continue;
            }
            let told: Vec<u32> = into.missing(&1).into_iter().flat_map(Gap::sequences).collect();
            let missing = (0..total).filter(|at| !came(at)).map(u32::from);
            assert!(told.iter().copied().eq(missing), "{total} frames, one in {stride}");
        }
    }
}

#[test]
fn many_short_frames_are_charged_with_what_they_cost() {
    let mut into = Reassembly::new(Bounds { bytes_max: 100 * CHUNK_COST_BYTES, ..BOUNDS });
    let mut taken = (0..100).map(|at| into.take(1, header(at * 46, u16::MAX), &[1], 0));
    assert!(taken.any(|taken| taken == Taken::Refused(Refused::NoRoom)));
}

#[test]
fn a_message_is_known_by_the_digests_of_its_frames_in_any_order() {
    let hash = |at: u16, salt: u64| (u64::from(at) + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut digests = Vec::new();
    for (key, order, salt) in [(1, [0, 1, 2], 0), (2, [2, 0, 1], 0), (3, [2, 0, 1], 1)] {
        let mut into = Reassembly::<u32>::new(BOUNDS);
        for at in order {
            let digest = hash(at, salt * u64::from(at == 1));
            let taken = into.take_digested(key, header(at, 3), &[7], digest, 0);
            // A frame that comes twice does not count twice.
            into.take_digested(key, header(0, 3), &[7], hash(0, 0), 0);
            if let Taken::Whole(whole) = taken {
                digests.push(whole.digest());
            }
        }
    }
    assert_eq!(digests.len(), 3);
    assert_eq!(digests[0], digests[1], "the order does not matter");
    assert_ne!(digests[0], digests[2], "the middle does");
}

#[test]
fn the_last_frame_of_another_message_under_the_same_key_is_told_from_a_late_one() {
    let mut into = Reassembly::<u32>::new(BOUNDS);
    into.take_digested(1, header(0, 2), &[7], 10, 0);
    assert!(whole(into.take_digested(1, header(1, 2), &[7], 11, 0)).is_some());
    let again = into.take_digested(1, header(1, 2), &[7], 11, 1);
    assert_eq!(again, Taken::Refused(Refused::Stale));
    let other = into.take_digested(1, header(1, 2), &[8], 12, 1);
    assert_eq!(other, Taken::Refused(Refused::Reused));
    assert_eq!(into.counts().stale, 2);
}
