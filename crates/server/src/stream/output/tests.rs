use super::*;
use laneway_store::{Config, Got, KeyHash, Moment, Store};
use std::sync::Arc;

/// Takes so many bytes a call, at most so many in all.
struct Sink {
    got: Vec<u8>,
    per_call: usize,
    room: usize,
}

impl Stream for Sink {
    fn read(&mut self, _room: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = self.per_call.min(self.room - self.got.len());
        if most == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = self.got.len();
        self.got.extend(pieces.iter().flat_map(|piece| piece.iter()).take(most));
        Ok(self.got.len() - before)
    }
    fn limit_unsent(&mut self, _bytes_max: Option<usize>) {}
    fn peer(&self) -> String {
        String::new()
    }
}

fn sink(per_call: usize, room: usize) -> Sink {
    Sink { got: Vec::new(), per_call, room }
}

fn large_value(bytes: usize) -> (Arc<Store>, Vec<u8>, Pinned) {
    let store = Store::new(Config::default()).expect("a small store");
    let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let hash: KeyHash = store.hash(b"k");
    let mut draft = store.draft(b"k", 0, Moment::NEVER, bytes).expect("room");
    draft.write(&value).expect("room");
    store.enter(hash, b"k", Moment::from_seconds(1)).publish(draft, None);
    let got = store.get(hash, b"k", Moment::from_seconds(1), &mut Vec::new(), &mut |_, _| {});
    let Got::Large(_, pinned) = got else { panic!("{bytes} bytes are not large") };
    (store, value, pinned)
}

#[test]
fn everything_leaves_in_order_whatever_the_peer_takes_at_a_time() {
    let (_store, value, _) = large_value(200_000);
    for per_call in [1000, 4096, 32_768, usize::MAX] {
        let (_store, _, pinned) = large_value(200_000);
        let mut output = Output::default();
        output.push_bytes(b"head ");
        output.push_value(pinned);
        output.push_bytes(b" tail");
        let mut sink = sink(per_call, usize::MAX);
        let mut turns = 0;
        while output.send(&mut sink, 32 * 1024).expect("a sink takes all").0 != Sent::All {
            turns += 1;
            assert!(turns < 1000, "it never ends");
        }
        let wanted = [b"head ", &value[..], b" tail"].concat();
        assert!(sink.got == wanted, "{per_call} bytes a call");
        assert!(output.is_empty());
    }
}

#[test]
fn what_waits_takes_little_more_memory_than_its_bytes_however_it_grows() {
    let mut output = Output::default();
    output.push_bytes(&[b'x'; 32 << 10]);
    for _ in 0..100 {
        output.push_bytes(&[b'y'; 100]);
        let (memory, held) = (output.memory_bytes(), output.held_bytes());
        assert!(memory < held + GROWTH_BYTES, "{memory} for {held}");
    }
    // The end of one large value and the head of the next, of which a reply may have hundreds.
    let mut output = Output::default();
    output.push_bytes(b"\r\n");
    output.push_bytes(b"VALUE key 0 100000\r\n");
    let (memory, held) = (output.memory_bytes(), output.held_bytes());
    assert!(memory < 2 * held, "{memory} for {held}");
}

#[test]
fn a_long_reply_of_many_pieces_is_moved_few_times() {
    let (mut output, mut memory, mut moves) = (Output::default(), 0, 0);
    for _ in 0..10_000 {
        output.push_bytes(&[b'x'; 100]);
        moves += usize::from(output.memory_bytes() != memory);
        memory = output.memory_bytes();
    }
    assert!(moves < 80, "{moves} times");
}

#[test]
fn a_slice_moves_no_more_than_its_budget() {
    let (_store, _, pinned) = large_value(200_000);
    let mut output = Output::default();
    output.push_value(pinned);
    let mut sink = sink(usize::MAX, usize::MAX);
    let (sent, bytes) = output.send(&mut sink, 10_000).expect("a sink takes all");
    assert_eq!((sent, bytes), (Sent::Budget, 10_000));
}

#[test]
fn a_reply_finished_later_holds_back_those_behind_it_and_only_those() {
    let mut output = Output::default();
    let mut sink = sink(usize::MAX, usize::MAX);
    output.push_bytes(b"1 ");
    let second = output.reserve();
    output.push_bytes(b"3 ");
    let fourth = output.reserve();
    assert_eq!(output.send(&mut sink, usize::MAX).expect("takes all").0, Sent::Waiting);
    assert_eq!(sink.got, b"1 ");
    assert!(output.finish(fourth, b"4 ".to_vec()));
    assert_eq!(output.send(&mut sink, usize::MAX).expect("takes all").0, Sent::Waiting);
    assert_eq!(sink.got, b"1 ");
    assert!(output.finish(second, b"2 ".to_vec()));
    assert!(!output.finish(second, b"again".to_vec()), "a ticket is good once");
    assert_eq!(output.send(&mut sink, usize::MAX).expect("takes all").0, Sent::All);
    assert_eq!(sink.got, b"1 2 3 4 ");
}

#[test]
fn what_was_added_since_is_forgotten_and_the_rest_stays() {
    let (_store, value, pinned) = large_value(50_000);
    let mut output = Output::default();
    let empty = output.end();
    output.push_bytes(b"one ");
    let one = output.end();
    output.push_bytes(b"more");
    output.push_value(pinned);
    let with_value = output.end();
    output.push_bytes(b"behind");
    output.rewind(with_value);
    let mut sink = sink(usize::MAX, usize::MAX);
    output.rewind(one);
    output.push_bytes(b"two");
    assert_eq!(output.send(&mut sink, usize::MAX).expect("takes all").0, Sent::All);
    assert_eq!(sink.got, b"one two");
    assert!(!value.is_empty());
    output.push_bytes(b"three");
    output.rewind(empty);
    assert!(output.is_empty());
}

#[test]
fn replies_behind_one_that_is_still_to_come_are_held_back_whether_they_have_come_or_not() {
    let mut output = Output::of(b"before".to_vec());
    assert_eq!(output.held_back(), 0);
    let tickets: Vec<Ticket> = (0..5).map(|_| output.reserve()).collect();
    assert_eq!(output.held_back(), 5);
    assert!(output.finish(tickets[1], b"second".to_vec()));
    assert!(output.finish_with(tickets[4], Output::default()));
    assert_eq!(output.held_back(), 5, "the first is still to come");
    let ticket = output.reserve();
    output.give_up(ticket);
    assert_eq!(output.held_back(), 5);
    assert!(output.finish(tickets[0], Vec::new()));
    assert_eq!(output.held_back(), 3, "from the third on");
    assert!(!output.has_places_only());
    assert_eq!(
        output.send(&mut sink(usize::MAX, usize::MAX), usize::MAX).unwrap().0,
        Sent::Waiting
    );
    assert!(output.has_places_only());
}

#[test]
fn a_full_peer_blocks_and_nothing_is_lost() {
    let mut output = Output::default();
    output.push_bytes(b"abcdef");
    let mut sink = sink(4, 3);
    assert_eq!(output.send(&mut sink, usize::MAX).expect("no error").0, Sent::Blocked);
    assert_eq!(output.held_bytes(), 3);
    sink.room = 100;
    while output.send(&mut sink, usize::MAX).expect("no error").0 != Sent::All {}
    assert_eq!(sink.got, b"abcdef");
}

#[test]
fn a_whole_reply_takes_its_place_between_those_before_and_behind_it() {
    let (_store, value, pinned) = large_value(200_000);
    let mut output = Output::default();
    output.push_bytes(b"before ");
    let ticket = output.reserve();
    assert!(output.is_waiting());
    output.push_bytes(b" behind");
    assert!(output.is_waiting(), "whatever stands behind it");
    let mut reply = Output::of(b"head ".to_vec());
    reply.push_value(pinned);
    reply.push_bytes(b" tail");
    assert!(output.finish_with(ticket, reply));
    assert_eq!(output.held_back(), 0);
    assert!(!output.is_waiting());
    assert!(!output.finish_with(ticket, Output::default()), "a place is filled once");
    let mut sink = sink(usize::MAX, usize::MAX);
    assert_eq!(output.send(&mut sink, usize::MAX).expect("a sink"), (Sent::All, sink.got.len()));
    assert!(sink.got == [&b"before head "[..], &value, b" tail behind"].concat());
}

#[test]
fn a_place_given_up_leaves_no_trace_and_an_empty_reply_none_either() {
    let mut output = Output::default();
    output.push_bytes(b"a");
    let unused = output.reserve();
    output.give_up(unused);
    output.push_bytes(b"b");
    let quiet = output.reserve();
    assert!(output.finish_with(quiet, Output::of(Vec::new())));
    assert!(!output.is_waiting());
    let mut sink = sink(usize::MAX, usize::MAX);
    assert_eq!(output.send(&mut sink, usize::MAX).expect("a sink"), (Sent::All, 2));
    assert_eq!(sink.got, b"ab");
}
