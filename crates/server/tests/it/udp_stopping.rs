//! A server that stops answers what it has begun, datagrams too, and begins nothing new.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_rdma::contract::{Posted, Requester as _};
use laneway_rdma::door::Version;
use laneway_rig::slot_faults::Faults;
use laneway_server::shared::Phase;
use laneway_transport::memory_datagram::DatagramFaults;
use laneway_wire::udp::Header;
use rig::peer::{Peer, count, set};
use rig::{FORMS, Plan, Rig, hit, value};

const LARGE: usize = 400_000;

fn rig(workers: usize, form: Form) -> Rig {
    Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(workers, form) })
}

/// Turn until the server may be stopped.
fn drain(rig: &mut Rig) {
    for _ in 0..1000 {
        if rig.shared.is_drained() {
            return;
        }
        rig.turn();
    }
    panic!("it is never done");
}

#[test]
fn a_large_reply_under_way_leaves_whole() {
    for (workers, form) in FORMS {
        let mut rig = rig(workers, form);
        let mut peer = Peer::new(&rig);
        let bytes = value(LARGE, 1);
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("k", &bytes)), b"STORED\r\n");
        peer.small(0, 2, b"get k\r\n");
        let net = rig.datagrams.clone().expect("datagrams are served");
        net.hold(true); // until its send buffer is full
        rig.turns(20);
        rig.shared.enter_phase(Phase::Draining);
        rig.turns(20);
        assert!(!rig.shared.is_drained(), "{workers} workers, {form}");
        net.hold(false);
        drain(&mut rig);
        let reply = [&hit("k", &bytes)[..], b"END\r\n"].concat();
        peer.receive();
        assert!(peer.got == [(2, reply)], "{workers} workers, {form}");
    }
}

#[test]
fn a_request_that_is_half_here_is_finished_and_a_new_one_is_not_begun() {
    for (workers, form) in FORMS {
        let mut rig = rig(workers, form);
        let mut peer = Peer::new(&rig);
        let request = set("k", &value(LARGE, 2));
        let frames = Peer::frames(1, &request);
        for (header, payload) in &frames[..100] {
            peer.datagram(0, *header, payload);
        }
        rig.turns(5);
        rig.shared.enter_phase(Phase::Draining);
        rig.turns(5);
        assert!(!rig.shared.is_drained(), "{workers} workers, {form}");
        peer.small(0, 2, b"get k\r\n");
        rig.turns(5);
        let other = Peer::frames(3, &request);
        peer.datagram(0, other[0].0, &other[0].1);
        rig.turns(5);
        assert_eq!(count(&rig, "requests_while_stopping"), 2);
        for (header, payload) in &frames[100..] {
            peer.datagram(0, *header, payload);
        }
        drain(&mut rig);
        peer.receive();
        assert_eq!(peer.got, [(1, b"STORED\r\n".to_vec())], "{workers} workers, {form}");
    }
}

#[test]
fn who_vanishes_with_a_request_half_sent_holds_up_no_stop() {
    for (workers, form) in FORMS {
        let mut rig = rig(workers, form);
        let peer = Peer::new(&rig);
        let frames = Peer::frames(1, &set("k", &value(LARGE, 2)));
        peer.datagram(0, frames[0].0, &frames[0].1);
        rig.turns(5);
        rig.shared.enter_phase(Phase::Draining);
        rig.turns(5);
        assert!(!rig.shared.is_drained());
        for _ in 0..200 {
            rig.clock.advance(10_000_000);
            rig.turn();
        }
        assert!(rig.shared.is_drained(), "{workers} workers, {form}");
    }
}

/// It alone could make room for its reply, and it is halted.
#[test]
fn a_client_in_memory_that_takes_no_reply_holds_up_no_stop() {
    for (workers, form) in FORMS {
        let plan = Plan { shm: Some(Faults::each(1, 0)), ..Plan::of(workers, form) };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "k", &value(1 << 20, 1));
        client.finish();
        let (mut halted, _, _server) = rig.enter_as(Version::Framed);
        let request = [&Header::whole(1).to_bytes()[..], b"get k\r\n"].concat();
        assert_eq!(halted.post_request(0, &request), Posted::Done);
        rig.turns(50);
        rig.shared.enter_phase(Phase::Draining);
        rig.turns(20);
        assert!(!rig.shared.is_drained(), "{workers} workers, {form}: it is given time");
        for _ in 0..40 {
            rig.clock.advance(100_000_000);
            rig.turn();
        }
        assert!(rig.shared.is_drained(), "{workers} workers, {form}");
        assert_eq!(count(&rig, "replies_dropped"), 1, "{workers} workers, {form}");
    }
}

#[test]
fn an_idle_server_is_drained_once_every_worker_has_looked() {
    for (workers, form) in FORMS {
        let mut rig = rig(workers, form);
        rig.turns(3);
        rig.shared.enter_phase(Phase::Draining);
        assert!(!rig.shared.is_drained(), "nobody has looked yet");
        rig.turns(1);
        assert!(rig.shared.is_drained(), "{workers} workers, {form}");
    }
}
