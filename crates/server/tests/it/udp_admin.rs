//! Commands about the whole server that come in datagrams: they act as over a stream, whoever
//! receives them.

use laneway_rig as rig;

use laneway_transport::memory_datagram::DatagramFaults;
use rig::peer::Peer;
use rig::{Plan, Rig, plans};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn rigs(change: impl Fn(Plan) -> Plan) -> impl Iterator<Item = (String, Rig)> {
    plans().into_iter().map(move |plan| {
        let what = plan.what();
        let plan = Plan { datagrams: Some(DatagramFaults::NONE), ..plan };
        (what, Rig::new(&change(plan)))
    })
}

#[test]
fn a_flush_to_come_is_ordered_and_called_off_by_datagram() {
    for (what, mut rig) in rigs(|plan| plan) {
        let mut peer = Peer::new(&rig);
        let hit: &[u8] = b"VALUE k 0 1\r\nx\r\nEND\r\n";
        assert_eq!(peer.ask(&mut rig, 0, 1, b"set k 0 0 1\r\nx\r\n"), b"STORED\r\n", "{what}");
        let last = rig.workers.len() - 1;
        for (id, end, left) in [
            (2, &b"flush_all 5 noreply\r\nflush_all 1000\r\n"[..], hit),
            (4, b"flush_all 5\r\n", b"END\r\n"),
        ] {
            assert_eq!(peer.ask(&mut rig, last, id, end), b"OK\r\n", "{what}");
            assert_eq!(peer.ask(&mut rig, 0, id + 100, b"get k\r\n"), hit, "{what}: not yet");
            rig.clock.advance(7 * SECOND);
            rig.turns(50);
            assert_eq!(peer.ask(&mut rig, 0, id + 1, b"get k\r\n"), left, "{what}");
        }
    }
}

#[test]
fn what_a_server_does_not_have_is_said_by_its_own_statistics() {
    let rows: [(&[u8], &[u8]); 4] = [
        (b"stats shm\r\n", b"STAT shm no\r\nEND\r\n"),
        (b"stats rdma\r\n", b"STAT rdma no\r\nEND\r\n"),
        (b"stats tier\r\n", b"STAT tier no\r\nEND\r\n"),
        (
            b"stats kernel\r\n",
            b"STAT kernel_lane no\r\nSTAT steering no\r\nSTAT af_xdp no\r\nEND\r\n",
        ),
    ];
    for (what, mut rig) in rigs(|plan| plan) {
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        for (id, (question, answer)) in (1..).zip(rows) {
            let got = peer.ask(&mut rig, 0, id, question);
            let told = String::from_utf8_lossy(&got).into_owned();
            assert_eq!(told.as_bytes(), answer, "{told} {what}");
            assert_eq!(rig.ask(&client, question, b"END\r\n"), answer, "{what}, by stream");
        }
    }
}

/// A list is told over a stream step by step, which a datagram has no place for.
#[test]
fn the_connections_are_told_by_datagram_if_one_message_holds_them() {
    for (clients, refused) in [(3, false), (200, true)] {
        let mut rig = Rig::new(&Plan {
            connections_max: 300,
            datagrams: Some(DatagramFaults::NONE),
            ..Plan::of(2, laneway_policy::Form::TimeShare)
        });
        let mut peer = Peer::new(&rig);
        let held: Vec<_> = (0..clients).map(|_| rig.net.connect()).collect();
        rig.turns(50);
        let got = peer.ask(&mut rig, 0, 1, b"stats conns\r\n");
        let told = String::from_utf8_lossy(&got).into_owned();
        if refused {
            let answer = "SERVER_ERROR too long for one message, ask over a stream\r\n";
            assert_eq!(told, answer, "of {} connections", held.len());
        } else {
            assert_eq!(told.matches(":state conn_read\r\n").count(), held.len(), "{told}");
            assert!(told.ends_with("END\r\n"), "{told}");
        }
    }
}

/// However many domains they are in.
#[test]
fn few_items_are_told_by_datagram_with_any_number_of_domains() {
    for domains in [1, 2, 4] {
        let plan = Plan { domains, ..Plan::of(4, laneway_policy::Form::TimeShare) };
        let mut rig = Rig::new(&plan.with_datagrams());
        let (mut peer, client) = (Peer::new(&rig), rig.net.connect());
        (0..40).for_each(|number| rig.set(&client, &format!("key{number:02}"), b"data"));
        let classes = rig.shared.store.class_stats();
        let class = classes.into_iter().find(|class| class.used > 0).expect("some are here").class;
        let asked = format!("stats cachedump {class} 0\r\n");
        let got = peer.ask(&mut rig, 0, 1, asked.as_bytes());
        let told = String::from_utf8_lossy(&got);
        let mut lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.pop(), Some("END"), "{domains} domains: {told}");
        lines.sort_unstable();
        let wanted = (0..40).map(|number| format!("ITEM key{number:02} [4 b; 0 s]"));
        assert!(lines.into_iter().eq(wanted), "{domains} domains: {told}");
    }
}

/// A datagram's source is easily forged: with it a stranger could slow everybody down.
#[test]
fn limits_of_clients_are_not_set_by_datagram() {
    for (what, mut rig) in rigs(|plan| plan) {
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        for (id, line) in [(1, &b"client_rate 1\r\n"[..]), (2, b"client_bytes 1\r\n")] {
            let refused = b"CLIENT_ERROR a limit of clients is set over a stream\r\n";
            assert_eq!(peer.ask(&mut rig, 0, id, line), refused, "{what}");
        }
        let told = rig.ask(&client, b"stats settings\r\n", b"END\r\n");
        let told = String::from_utf8(told).expect("stats are text");
        for unlimited in ["STAT client_rate 0\r\n", "STAT client_bytes 0\r\n"] {
            assert!(told.contains(unlimited), "{told} {what}");
        }
        assert_eq!(rig.ask(&client, b"client_rate 1\r\n", b"\r\n"), b"OK\r\n", "{what}");
    }
}

#[test]
fn a_shutdown_by_datagram_ends_the_server_where_it_is_enabled() {
    for (what, mut rig) in rigs(|plan| Plan { shutdown: true, ..plan }) {
        let mut peer = Peer::new(&rig);
        assert_eq!(peer.ask(&mut rig, 0, 1, b"verbosity 1\r\n"), b"OK\r\n", "{what}");
        assert_eq!(rig.shared.verbosity.load(Relaxed), 1, "{what}");
        peer.small(rig.workers.len() - 1, 2, b"shutdown\r\nmn\r\n");
        assert_eq!(peer.all(&mut rig), [], "{what}: nothing behind it is answered");
        assert!(rig.shared.wait_for_stop_within(Duration::ZERO), "{what}");
    }
}
