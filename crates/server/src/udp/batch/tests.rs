use super::*;
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet};

#[test]
fn replies_leave_in_their_frames_each_to_its_peer() {
    let net = DatagramNet::new(DatagramFaults::NONE, 1);
    let (one, two) = (net.client(), net.client());
    let mut batch = Batch::default();
    let long: Vec<u8> = (0..70_000u32).map(|at| (at % 251) as u8).collect();
    for (client, request_id, reply) in
        [(&one, 1, &b"END\r\n"[..]), (&two, 2, &long[..]), (&one, 3, &long[..2000]), (&two, 4, b"")]
    {
        batch.begin();
        batch.out().extend_from_slice(b"thrown away");
        batch.clear_reply();
        batch.out().extend_from_slice(reply);
        assert_eq!(batch.reply(), reply);
        let total = batch.end(client.address(), request_id, Kind::Data);
        assert_eq!(total, frames::frames(reply.len()));
    }
    batch.begin();
    batch.abandon();
    let flushed = batch.send(&mut net.datagrams(), 0).expect("memory does not fail");
    assert_eq!((flushed.refused, flushed.is_full, batch.is_empty()), (0, false, true));
    let got = |client: &laneway_transport::memory_datagram::MemoryClient| {
        let mut messages = std::collections::BTreeMap::<u16, Vec<u8>>::new();
        while let Some((_, bytes)) = client.receive() {
            let (header, payload) = Header::parse(&bytes).expect("every datagram has a header");
            let message = messages.entry(header.request_id).or_default();
            assert_eq!(message.len(), usize::from(header.sequence) * FRAME_BYTES_MAX);
            message.extend_from_slice(payload);
        }
        messages
    };
    let (one, two) = (got(&one), got(&two));
    assert_eq!(
        one.into_iter().collect::<Vec<_>>(),
        [(1, b"END\r\n".to_vec()), (3, long[..2000].to_vec())]
    );
    assert!(two.into_iter().eq([(2, long), (4, Vec::new())]));
}

/// Takes trains apart itself, a few datagrams a call.
struct Narrow {
    sent: Vec<u8>,
    room: usize,
}

impl Datagrams for Narrow {
    fn queues(&self) -> usize {
        1
    }
    fn queue(&self, _: usize) -> laneway_transport::datagram::Queue {
        unreachable!("nobody asks")
    }
    fn poll(&mut self, _: usize, _: usize) -> io::Result<usize> {
        Ok(0)
    }
    fn arrival(&self, _: usize) -> laneway_transport::datagram::Arrival<'_> {
        unreachable!("nothing arrives")
    }
    fn send(
        &mut self,
        _: usize,
        _: Path,
        departures: &[Departure<'_>],
    ) -> io::Result<laneway_transport::datagram::Sent> {
        let mut sent = laneway_transport::datagram::Sent::default();
        for departure in departures {
            let bytes: Vec<u8> =
                departure.pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            let segment_bytes = departure.segment_bytes.map_or(bytes.len(), usize::from);
            let datagrams = bytes.len().div_ceil(segment_bytes);
            let most = datagrams.min(self.room);
            self.room -= most;
            self.sent.extend(&bytes[..bytes.len().min(most * segment_bytes)]);
            if most < datagrams {
                sent.datagrams_of_next = most;
                break;
            }
            sent.done += 1;
        }
        Ok(sent)
    }
}

#[test]
fn of_a_train_that_is_half_gone_the_other_half_leaves_later() {
    let long = vec![b'x'; 20_000];
    let mut batch = Batch::default();
    let peer = "10.0.0.2:9".parse().expect("an address");
    for request_id in [1, 2] {
        batch.begin();
        batch.out().extend_from_slice(&long);
        batch.end(peer, request_id, Kind::Data);
    }
    let wanted = batch.out().clone();
    let mut narrow = Narrow { sent: Vec::new(), room: 0 };
    for turn in 0..100 {
        narrow.room = turn % 4;
        if !batch.send(&mut narrow, 0).expect("it does not fail").is_full {
            break;
        }
    }
    assert!(batch.is_empty());
    assert!(narrow.sent == wanted, "every datagram once, in order");
}

#[test]
fn what_a_full_send_buffer_does_not_take_stays_and_leaves_later() {
    let faults = DatagramFaults { send_bytes: 100, ..DatagramFaults::NONE };
    let net = DatagramNet::new(faults, 1);
    let client = net.client();
    let mut datagrams = net.datagrams();
    net.hold(true);
    let mut batch = Batch::default();
    for request_id in 0..100 {
        batch.begin();
        batch.out().extend_from_slice(b"STORED\r\n");
        batch.end(client.address(), request_id, Kind::Data);
    }
    assert!(batch.send(&mut datagrams, 0).expect("memory does not fail").is_full);
    assert!(!batch.is_empty());
    net.hold(false);
    while batch.send(&mut datagrams, 0).expect("memory does not fail").is_full {}
    let ids = std::iter::from_fn(|| client.receive()).map(|(_, bytes)| bytes[1]);
    assert!(ids.eq(0..100), "all of them, once, in order");
}

#[test]
fn replies_of_one_length_to_one_peer_leave_as_one_and_arrive_as_many() {
    let net = DatagramNet::new(DatagramFaults::NONE, 1);
    let (one, two) = (net.client(), net.client());
    // Lengths and how many departures they come to.
    let frames_max = TRAIN_FRAMES_MAX;
    for (lengths, departures) in [
        (vec![10; 5], 1),
        (vec![10, 10, 4], 1),
        (vec![10, 4, 10], 2), // behind a shorter one a train has ended
        (vec![4, 10], 2),
        (vec![1392; 3], 1),
        (vec![1; frames_max], 1),
        (vec![1; frames_max + 1], 2),
        (vec![1392; frames_max + 1], 2),
    ] {
        let mut batch = Batch::default();
        for (id, &length) in lengths.iter().enumerate() {
            batch.begin();
            batch.out().extend(std::iter::repeat_n(id as u8, length));
            batch.end(one.address(), id as u16, Kind::Data);
        }
        assert_eq!(batch.parts.len(), departures, "{lengths:?}");
        batch.datagram(two.address(), b"another peer's");
        assert_eq!(batch.parts.len(), departures + 1);
        let flushed = batch.send(&mut net.datagrams(), 0).expect("memory does not fail");
        assert!((flushed.refused, batch.is_empty()) == (0, true));
        for (id, &length) in lengths.iter().enumerate() {
            let (_, bytes) = one.receive().expect("each arrives, in order");
            let (header, payload) = Header::parse(&bytes).expect("every datagram has a header");
            assert_eq!((usize::from(header.request_id), header.total), (id, 1));
            assert!(payload == vec![id as u8; length], "{lengths:?}: {id}");
        }
        assert!(one.receive().is_none());
        assert_eq!(two.receive().map(|(_, bytes)| bytes), Some(b"another peer's".to_vec()));
    }
}
