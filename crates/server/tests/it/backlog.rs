//! The control loop learns whether large replies wait for the wire, and `lanes` then gives its
//! extra large worker back to small requests.

use laneway_rig as rig;

use laneway_policy::{Form, ItemBytes, SLICE_BYTES};
use laneway_transport::memory::{Client, Faults};
use laneway_transport::memory_datagram::DatagramFaults;
use rig::peer::{Peer, set};
use rig::{Plan, Rig, value};

const LARGE: usize = 2_000_000;
const MILLISECOND: u64 = 1_000_000;

fn rig() -> Rig {
    Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(6, Form::Roles) })
}

/// Turn for a while, a turn a millisecond.
fn pass(rig: &mut Rig, milliseconds: u64, mut each: impl FnMut(u64)) {
    for number in 0..milliseconds {
        rig.clock.advance(MILLISECOND - rig::STEP_NANOS);
        each(number);
        rig.turn();
    }
}

fn waited_ms(rig: &Rig) -> u64 {
    let waited = |worker: &laneway_server::shared::WorkerShared<_>| {
        worker.lanes.tx_backed_up_nanos.get() / MILLISECOND
    };
    rig.shared.workers.iter().map(waited).max().unwrap_or(0)
}

/// Whether the plan in force is one for a full wire.
fn is_for_full_wire(rig: &Rig) -> bool {
    let plan = rig.shared.plan.get();
    plan.large_unsent_bytes_max.is_some()
}

#[test]
fn full_send_buffers_of_datagrams_are_a_full_wire() {
    let mut rig = rig();
    let mut peer = Peer::new(&rig);
    assert_eq!(peer.ask(&mut rig, 0, 1, &set("k", &value(LARGE, 1))), b"STORED\r\n");
    pass(&mut rig, 1500, |_| {});
    assert!(!is_for_full_wire(&rig), "nothing waits yet");
    let net = rig.datagrams.clone().expect("datagrams are served");
    net.hold(true);
    peer.small(0, 2, b"get k\r\n");
    pass(&mut rig, 1000, |_| {});
    assert!(is_for_full_wire(&rig), "{} ms", waited_ms(&rig));
    net.hold(false);
    assert_eq!(peer.until(&mut rig, 2).len(), LARGE + "VALUE k 0 2000000\r\n\r\nEND\r\n".len());
    let waited = waited_ms(&rig);
    pass(&mut rig, 3000, |_| {});
    assert_eq!(waited_ms(&rig), waited, "nothing waits any more");
}

/// Clients with a large reply on its way, none of which has read anything yet.
fn readers(rig: &mut Rig, count: usize) -> Vec<Client> {
    let writer = rig.net.connect();
    rig.set(&writer, "k", &value(LARGE, 1));
    let readers: Vec<Client> = (0..count).map(|_| rig.net.connect()).collect();
    for reader in &readers {
        reader.send(b"get k\r\n");
    }
    readers
}

#[test]
fn streams_that_all_wait_and_go_on_are_a_full_wire() {
    let mut rig = rig();
    let readers = readers(&mut rig, 4);
    // Each takes a little, every 20 ms: as a wire does that all of them share.
    pass(&mut rig, 1500, |number| {
        if number % 20 == 0 {
            readers.iter().for_each(|reader| drop(reader.receive(2000)));
        }
    });
    assert!(is_for_full_wire(&rig), "{} ms", waited_ms(&rig));
}

#[test]
fn peers_that_do_not_read_are_no_full_wire() {
    for count in [1, 4] {
        let mut rig = rig();
        let _readers = readers(&mut rig, count);
        pass(&mut rig, 2500, |_| {});
        assert!(!is_for_full_wire(&rig), "{count} readers: {} ms", waited_ms(&rig));
    }
}

#[test]
fn one_slow_reader_is_no_full_wire() {
    let mut rig = rig();
    let readers = readers(&mut rig, 1);
    pass(&mut rig, 2500, |number| {
        if number % 20 == 0 {
            drop(readers[0].receive(2000));
        }
    });
    assert!(!is_for_full_wire(&rig), "{} ms", waited_ms(&rig));
}

#[test]
fn on_a_full_wire_large_replies_leave_little_unsent_and_hold_up_nobody() {
    const PIPE_BYTES: usize = 1 << 20;
    let granted = ItemBytes(8 * SLICE_BYTES.0);
    let faults = Faults { pipe_bytes: PIPE_BYTES, ..Faults::NONE };
    let whole = LARGE + "VALUE k 0 2000000\r\n\r\nEND\r\n".len();
    for limit in [None, Some(granted)] {
        let mut rig = Rig::new(&Plan { faults, ..Plan::of(6, Form::Roles) });
        rig.publish(|plan| plan.large_unsent_bytes_max = limit);
        let readers = readers(&mut rig, 4);
        pass(&mut rig, 200, |_| {});
        let mut got: Vec<usize> =
            readers.iter().map(|reader| reader.receive(usize::MAX).len()).collect();
        match limit {
            None => assert!(got.iter().all(|&bytes| bytes == PIPE_BYTES), "{got:?}"),
            Some(ItemBytes(most)) => {
                let (least, most) = (SLICE_BYTES.0 as usize, most as usize);
                assert!(got.iter().all(|bytes| (least..=most).contains(bytes)), "{got:?}");
            }
        }
        // The last one reads no more; the others get all of theirs.
        pass(&mut rig, 400, |_| {
            for (bytes, reader) in got.iter_mut().zip(&readers[..3]) {
                *bytes += reader.receive(usize::MAX).len();
            }
        });
        assert!(got[..3].iter().all(|&bytes| bytes == whole), "{got:?}");
        let left = readers[3].receive(usize::MAX).len();
        assert!(left <= limit.map_or(PIPE_BYTES, |most| most.0 as usize), "{left}");
    }
}
