//! What holds of every message that is cut into frames, whatever happens to them on the way.

use laneway_wire::udp::frames::{frames, put_train};
use laneway_wire::udp::header::{FRAME_BYTES_MAX, HEADER_BYTES, Header};
use laneway_wire::udp::reassembly::{Bounds, Counts, Reassembly, Refused, Taken};
use laneway_wire::udp::resend::{Gap, gaps, put_resend};
use laneway_wire::udp::{Message, Parts, TRAIN_FRAMES_MAX};
use proptest::prelude::*;
use std::collections::BTreeSet;

const BOUNDS: Bounds = Bounds {
    messages_max: 16,
    bytes_max: 1 << 22,
    message_bytes_max: 1 << 20,
    idle_nanos_max: 1000,
    stale_nanos_max: 1000,
};

/// A value in pieces of `.1` bytes, as the store has it.
struct Pieces<'a>(&'a [u8], usize);

impl Message for Pieces<'_> {
    fn message_bytes(&self) -> usize {
        self.0.len()
    }
    fn piece(&self, offset: usize) -> &[u8] {
        let end = (offset / self.1 + 1) * self.1;
        &self.0[offset..end.min(self.0.len())]
    }
}

/// Cut into trains, and the trains cut into datagrams, as the kernel does.
fn send<M: Message>(
    request_id: u16,
    message: &M,
    mut sequences: impl Iterator<Item = u16>,
    datagram_bytes: usize,
) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    loop {
        let (mut headers, mut train) = ([[0; HEADER_BYTES]; TRAIN_FRAMES_MAX], Vec::new());
        let put = |slice: &[u8]| train.extend_from_slice(slice);
        let count = put_train(request_id, message, &mut sequences, &mut headers, put);
        if count == 0 {
            return sent;
        }
        assert_eq!(train.len().div_ceil(datagram_bytes), count);
        sent.extend(train.chunks(datagram_bytes).map(<[u8]>::to_vec));
    }
}

/// What of a message of `bytes` was made: a head, a value in pieces, a tail.
fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 % 251) as u8).collect()
}

fn bytes_and_pieces() -> impl Strategy<Value = (usize, usize)> {
    let edge = prop::sample::select(vec![1, FRAME_BYTES_MAX, TRAIN_FRAMES_MAX * FRAME_BYTES_MAX]);
    let near = |(edge, times, less): (usize, usize, usize)| (edge * times).saturating_sub(less);
    let near = (edge, 1..4usize, 0..60usize).prop_map(near);
    (prop_oneof![near, 0..300_000usize], prop_oneof![500..5000usize, Just(32_760)])
}

/// A frame's place in the order of arrival, and whether it comes again.
type Travel = Vec<(u32, bool)>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Cut, shuffled, doubled, put together: the same message, told once.
    #[test]
    fn frames_come_together_whatever_their_order(
        (bytes, piece_bytes) in bytes_and_pieces(),
        travel in prop::collection::vec((any::<u32>(), prop::bool::weighted(0.2)), 1..400),
    ) {
        let body = value(bytes);
        let (head, tail) = (b"VALUE key 0 123\r\n", b"\r\nEND\r\n");
        let message = Parts { head, body: &Pieces(&body, piece_bytes), tail };
        let total = frames(message.message_bytes()).expect("it is short enough");
        let sent = send(9, &message, 0..total, FRAME_BYTES_MAX + HEADER_BYTES);
        let mut arriving = arrivals(&sent, &travel);
        let mut into = Reassembly::new(BOUNDS);
        let mut got = Vec::new();
        let doubled = arriving.len() - sent.len();
        for datagram in arriving.drain(..) {
            let (header, payload) = Header::parse(datagram).expect("it has a header");
            match into.take((), header, payload, 0) {
                Taken::Whole(whole) => got.push(whole),
                Taken::More => {}
                Taken::Refused(why) => {
                    prop_assert!(matches!(why, Refused::Duplicate | Refused::Stale));
                }
            }
        }
        prop_assert_eq!(got.len(), 1);
        let Counts { duplicate, stale, .. } = *into.counts();
        prop_assert_eq!((duplicate + stale) as usize, doubled);
        prop_assert_eq!((into.len(), into.bytes()), (0, 0));
        let whole = got.remove(0);
        let pieced: Vec<u8> = whole.pieces().flatten().copied().collect();
        let together = whole.into_vec();
        prop_assert!(together == [&head[..], &body, tail].concat());
        prop_assert!(pieced == together);
    }

    /// What is lost is named exactly, and when it comes the message is whole.
    #[test]
    fn what_is_missing_is_named_and_completes_the_message(
        bytes in FRAME_BYTES_MAX + 1..300_000usize,
        lost in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
    ) {
        let body = value(bytes);
        let message = Parts { head: b"", body: &Pieces(&body, 4088), tail: b"" };
        let total = frames(bytes).expect("it is short enough");
        let mut lost: BTreeSet<u16> =
            lost.iter().map(|index| index.index(usize::from(total)) as u16).collect();
        if lost.len() == usize::from(total) {
            lost.pop_first();
        }
        let mut into = Reassembly::new(BOUNDS);
        let arrived = (0..total).filter(|sequence| !lost.contains(sequence));
        for datagram in send(1, &message, arrived, FRAME_BYTES_MAX + HEADER_BYTES) {
            let (header, payload) = Header::parse(&datagram).expect("it has a header");
            prop_assert_eq!(into.take(7, header, payload, 0), Taken::More);
        }
        let mut ask = Vec::new();
        put_resend(&mut ask, 1, total, into.missing(&7));
        let (header, payload) = Header::parse(&ask).expect("it has a header");
        let asked: Vec<u16> =
            gaps(payload, header.total).flat_map(Gap::sequences).map(|s| s as u16).collect();
        prop_assert!(asked.iter().eq(lost.iter()));
        let mut whole = None;
        for datagram in send(1, &message, asked.into_iter(), FRAME_BYTES_MAX + HEADER_BYTES) {
            let (header, payload) = Header::parse(&datagram).expect("it has a header");
            match into.take(7, header, payload, 0) {
                Taken::Whole(message) => whole = Some(message.into_vec()),
                other => prop_assert_eq!(other, Taken::More),
            }
        }
        prop_assert!(whole == Some(body));
    }
}

/// The datagrams in the order that `travel` gives them, some of them twice.
fn arrivals<'a>(sent: &'a [Vec<u8>], travel: &Travel) -> Vec<&'a [u8]> {
    let mut arriving: Vec<(u32, &[u8])> = Vec::new();
    for (number, datagram) in sent.iter().enumerate() {
        let (place, again) = travel[number % travel.len()];
        arriving.push((place.wrapping_mul(number as u32 | 1), datagram));
        if again {
            arriving.push((place.rotate_left(7), datagram));
        }
    }
    arriving.sort_unstable();
    arriving.into_iter().map(|(_, datagram)| datagram).collect()
}
