//! UDP without a kernel: what is answered, by whom, and that large replies hold up no small one.
//! Every fact holds in both forms, at 2 and at 6 workers.

use laneway_rig as rig;

use laneway_policy::{Access, Design, Form, Role};
use laneway_transport::memory_datagram::DatagramFaults;
use laneway_wire::udp::{Gap, Header, Kind};
use rig::peer::{Peer, count, orphan, set};
use rig::{FORMS, Plan, Rig, hit, value};

const LARGE: usize = 400_000;

fn plan(workers: usize, form: Form) -> Plan {
    Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(workers, form) }
}

fn reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

#[test]
fn a_request_counts_once_whatever_its_size() {
    let mut rig = Rig::new(&plan(1, Form::TimeShare));
    let (mut peer, client) = (Peer::new(&rig), rig.net.connect());
    rig.set(&client, "large", &value(200_000, 1));
    let requests = [&b"mn\r\n"[..], b"set s 0 0 1\r\nx\r\n", b"get s\r\n", b"get s large\r\n"];
    let more = [&b"get large\r\n"[..], b"append large 0 0 1\r\nx\r\n"];
    for (before, request) in requests.into_iter().chain(more).enumerate() {
        peer.ask(&mut rig, 0, 1 + before as u16, request);
        let shown = request.escape_ascii();
        assert_eq!(count(&rig, "requests"), 1 + before as u64, "{shown}");
    }
}

#[test]
fn what_an_unmodified_client_leaves_in_the_reserved_number_changes_nothing() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        for (round, reserved) in [0_u16, 1, 2, 3, 4, 5, 6, 9, 0x0d0a, 0xa703, 0xffff]
            .into_iter()
            .flat_map(|reserved| (0..2).map(move |round| (round, reserved)))
        {
            // Neither is a sequence number of one frame looked at, as in memcached.
            let sequence = [0, 0x6b65][round];
            let header = [7, sequence, 1, reserved].map(u16::to_be_bytes);
            for (text, answer) in [
                (&b"set k 0 0 1\r\nx\r\n"[..], &b"STORED\r\n"[..]),
                (b"incr n 1\r\n", b"NOT_FOUND\r\n"),
            ] {
                peer.raw(0, &[header.as_flattened(), text].concat());
                let got = peer.all(&mut rig);
                assert_eq!(got, [(7, answer.to_vec())], "{reserved:#x} {workers} workers, {form}");
            }
        }
    }
}

#[test]
fn each_request_of_a_datagram_is_answered_by_a_message_of_its_own() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let rows: [(&[u8], &[&[u8]]); 14] = [
            (b"get a\r\n", &[b"END\r\n"]),
            (b"set a 0 0 3\r\nabc\r\n", &[b"STORED\r\n"]),
            (
                b"get a\r\nget a b a\r\nmn\r\n",
                &[
                    b"VALUE a 0 3\r\nabc\r\nEND\r\n",
                    b"VALUE a 0 3\r\nabc\r\nVALUE a 0 3\r\nabc\r\nEND\r\n",
                    b"MN\r\n",
                ],
            ),
            (b"set a 0 0 3 noreply\r\nabd\r\nmg a v\r\n", &[b"VA 3\r\nabd\r\n"]),
            (b"get a\r\nquit\r\nget a\r\n", &[b"VALUE a 0 3\r\nabd\r\nEND\r\n"]),
            (b"get a", &[]),
            (b"", &[]),
            (b"junk\r\n", &[b"ERROR\r\n"]),
            (b"set a 0 0 10\r\nabc", &[b"CLIENT_ERROR bad data chunk\r\n"]),
            (b"set a 0 0 10 noreply\r\nabc", &[]),
            (b"mg none v q\r\nmn\r\n", &[b"MN\r\n"]),
            (b"shutdown\r\n", &[b"SERVER_ERROR: shutdown not enabled\r\n"]),
            (b"delete a\r\ndelete a noreply\r\n", &[b"DELETED\r\n"]),
            (b"set big 0 0 99999999\r\nxx", &[b"SERVER_ERROR object too large for cache\r\n"]),
        ];
        for (id, (request, wanted)) in (1..).zip(rows) {
            for queue in 0..workers {
                if request.starts_with(b"delete") && queue > 0 {
                    continue;
                }
                peer.small(queue, id, request);
                let mut got = peer.all(&mut rig);
                got.sort_by_key(|(_, reply)| wanted.iter().position(|wanted| reply == wanted));
                let wanted: Vec<(u16, Vec<u8>)> =
                    wanted.iter().map(|reply| (id, reply.to_vec())).collect();
                let shown = String::from_utf8_lossy(request);
                assert_eq!(got, wanted, "{shown:?} to queue {queue} of {workers}, {form}");
            }
        }
        assert_eq!(count(&rig, "half_requests"), workers as u64);
        assert_eq!(count(&rig, "size_mismatches"), 2 * workers as u64);
    }
}

#[test]
fn large_values_go_in_and_come_out_in_frames() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        for (id, len) in (1..).step_by(2).zip([1300, 5000, 16_000, 20_000, 70_000, LARGE]) {
            let queue = usize::from(id) % workers;
            let bytes = value(len, u64::from(id));
            assert_eq!(peer.ask(&mut rig, queue, id, &set("k", &bytes)), b"STORED\r\n", "{len}");
            let got = peer.ask(&mut rig, queue, id + 1, b"get k\r\n");
            assert!(got == reply("k", &bytes), "{len} bytes, {workers} workers, {form}");
            let client = rig.net.connect();
            assert!(rig.ask(&client, b"get k\r\n", b"END\r\n") == got, "and over a stream");
        }
        let long = [&b"get"[..], &b" none".repeat(3000), b" k\r\n"].concat();
        let got = peer.ask(&mut rig, 0, 99, &long);
        assert!(got.ends_with(b"END\r\n") && got.len() > LARGE, "a request of many frames");
        assert_eq!(count(&rig, "messages_whole"), 6);
    }
}

#[test]
fn several_requests_that_are_too_long_together_are_refused_and_none_is_carried_out() {
    const REFUSED: &[u8] =
        b"SERVER_ERROR too long for several requests in one message, send them apart\r\n";
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let (long, short) = (set("a", &value(900_000, 1)), set("b", &value(300_000, 2)));
        for (id, message) in (1..).zip([
            [&long[..], &short, &set("c", b"x")].concat(),
            [&set("c", b"x")[..], &long, &short].concat(),
            [&b"get c\r\n"[..], &long, &short].concat(),
            [&b"nonsense\r\n"[..], &long, &short].concat(),
        ]) {
            let got = peer.ask(&mut rig, 0, id, &message);
            assert_eq!(got, REFUSED, "{workers} workers, {form}");
        }
        assert_eq!(count(&rig, "requests_beyond_limit"), 4);
        assert_eq!(peer.ask(&mut rig, 0, 9, b"get a b c\r\n"), b"END\r\n");
        let fits = [&set("a", &value(700_000, 1))[..], &short, &set("c", b"x")].concat();
        assert_eq!(peer.ask(&mut rig, 0, 10, &fits), b"STORED\r\n");
        assert_eq!(peer.ask(&mut rig, 0, 11, b"get c\r\n"), reply("c", b"x"));
    }
}

#[test]
fn a_value_that_no_message_holds_is_refused_as_over_a_stream_and_once() {
    const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
    for (workers, form) in FORMS {
        let plan = Plan { item_bytes_max: 1 << 20, ..plan(workers, form) };
        let mut rig = Rig::new(&plan);
        let mut peer = Peer::new(&rig);
        for (id, len) in (10..).step_by(10).zip([2_500_000, 5_000_000]) {
            assert_eq!(peer.ask(&mut rig, 0, id, &set("k", b"old")), b"STORED\r\n");
            let long = set("k", &value(len, 9));
            assert_eq!(peer.ask(&mut rig, 0, id + 1, &long), TOO_LARGE, "{workers}, {form}");
            assert_eq!(peer.ask(&mut rig, 0, id + 2, b"get k\r\n"), b"END\r\n", "nothing stale");
            assert_eq!(peer.ask(&mut rig, 0, id + 3, &set("k", b"new")), b"STORED\r\n");
            peer.all(&mut rig);
            // Its client has not heard of it, and begins again.
            rig.clock.advance(200_000_000);
            let frames = Peer::frames(id + 1, &long);
            let (header, front) = &frames[0];
            peer.datagram(0, *header, front);
            assert_eq!(peer.all(&mut rig), [(id + 1, TOO_LARGE.to_vec())]);
            assert_eq!(peer.ask(&mut rig, 0, id + 4, b"get k\r\n"), reply("k", b"new"));
        }
        let several = [&set("c", b"x")[..], &set("k", &value(2_500_000, 9))].concat();
        let got = peer.ask(&mut rig, 0, 5, &several);
        assert!(got.starts_with(b"SERVER_ERROR too long for several requests"));
        assert_eq!(peer.ask(&mut rig, 0, 6, b"get c\r\n"), b"END\r\n", "none is carried out");
    }
}

#[test]
fn a_request_is_served_where_its_design_says() {
    let mut rig = Rig::new(&plan(6, Form::Roles));
    let mut peer = Peer::new(&rig);
    let big = value(LARGE, 3);
    assert_eq!(peer.ask(&mut rig, 5, 1, &set("big", &big)), b"STORED\r\n");
    for queue in 0..6 {
        let id = 10 + 3 * queue as u16;
        assert_eq!(peer.ask(&mut rig, queue, id, b"set s 0 0 1\r\nx\r\n"), b"STORED\r\n");
        assert_eq!(peer.ask(&mut rig, queue, id + 1, b"get s\r\n"), reply("s", b"x"));
        assert!(peer.ask(&mut rig, queue, id + 2, b"get big\r\n") == reply("big", &big));
    }
    let plan = rig.shared.plan.get();
    let udp = rig.shared.udp.get().expect("it serves datagrams");
    for (number, worker) in rig.shared.workers.iter().enumerate() {
        let (lanes, counts) = (&worker.lanes, &udp.counts[number]);
        let (small, large) = (lanes.requests_small.get(), lanes.requests_large.get());
        if plan.roles[number] == Role::Large {
            assert_eq!((small, counts.bursts.get()), (0, 0), "worker {number} reads no queue");
        } else {
            assert_eq!(large, 0, "worker {number} is small");
        }
    }
    let large: u64 = rig.shared.workers.iter().map(|w| w.lanes.requests_large.get()).sum();
    assert_eq!((large, count(&rig, "requests_handed_over")), (7, 6));
    assert!(count(&rig, "frames_forwarded") > 0);
}

#[test]
fn the_rivals_answer_the_same_over_datagrams() {
    for plan in rig::plans_of_rivals() {
        let (what, workers) = (plan.what(), plan.workers);
        let mut rig = Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..plan });
        let mut peer = Peer::new(&rig);
        let big = value(LARGE, 4);
        for queue in 0..workers {
            let id = 10 * queue as u16;
            assert_eq!(peer.ask(&mut rig, queue, id, &set("big", &big)), b"STORED\r\n", "{what}");
            assert!(peer.ask(&mut rig, queue, id + 1, b"get big\r\n") == reply("big", &big));
            for small in 2..9 {
                peer.small(queue, id + small, format!("set s{small} 0 0 1\r\nx\r\n").as_bytes());
            }
            let got = peer.all(&mut rig);
            assert_eq!(got.len(), 7, "{what}, queue {queue}: {got:?}");
            assert!(got.iter().all(|(_, reply)| reply == b"STORED\r\n"));
        }
    }
}

#[test]
fn requests_of_another_workers_keys_are_forwarded_and_served_by_it_alone() {
    let plan = Plan { access: Access::Erew, ..Plan::design(Design::Hkh, 6) };
    let mut rig = Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..plan });
    let mut peer = Peer::new(&rig);
    let owner = |rig: &Rig, key: &str| {
        let placement = rig.shared.placement;
        placement.owner(placement.hash(key.as_bytes())).index()
    };
    let served = |rig: &Rig, worker: usize| rig.shared.workers[worker].lanes.requests_small.get();
    for id in 0..60 {
        let key = format!("key{id}");
        let owner = owner(&rig, &key);
        let (queue, before) = (usize::from(id) % 6, served(&rig, owner));
        let forwarded = count(&rig, "requests_handed_over");
        assert_eq!(peer.ask(&mut rig, queue, 2 * id, &set(&key, b"x")), b"STORED\r\n");
        let get = format!("get {key}\r\n");
        assert_eq!(peer.ask(&mut rig, queue, 2 * id + 1, get.as_bytes()), reply(&key, b"x"));
        assert_eq!(served(&rig, owner), before + 2, "{key} is worker {owner}'s");
        let forwards = if queue == owner { 0 } else { 2 };
        assert_eq!(count(&rig, "requests_handed_over"), forwarded + forwards);
    }
}

#[test]
fn small_replies_leave_while_large_ones_wait_for_room() {
    for (workers, form) in FORMS {
        let faults = DatagramFaults { send_bytes: 40_000, ..DatagramFaults::NONE };
        let mut rig = Rig::new(&Plan { datagrams: Some(faults), ..plan(workers, form) });
        let net = rig.datagrams.clone().expect("it serves datagrams");
        let (mut slow, mut quick) = (Peer::new(&rig), Peer::new(&rig));
        let big = value(LARGE, 5);
        assert_eq!(slow.ask(&mut rig, 0, 1, &set("big", &big)), b"STORED\r\n");
        assert_eq!(quick.ask(&mut rig, 0, 1, b"set s 0 0 1\r\nx\r\n"), b"STORED\r\n");
        net.hold(true);
        slow.small(0, 2, b"get big\r\n");
        rig.turns(50);
        let sent = |rig: &Rig| rig.shared.board.totals().bytes_written;
        let before = sent(&rig);
        rig.turns(50);
        assert_eq!(sent(&rig), before, "the large reply waits for room");
        for id in 3..100 {
            quick.small(0, id, b"get s\r\n");
            rig.turns(4);
        }
        assert!(sent(&rig) > before + 97 * 20, "small replies do not");
        net.hold(false);
        let got = quick.all(&mut rig);
        assert_eq!(got.len(), 97);
        assert!(got.iter().all(|(_, got)| got == &reply("s", b"x")), "{workers}, {form}");
        assert!(slow.until(&mut rig, 2) == reply("big", &big), "{workers} workers, {form}");
    }
}

#[test]
fn frames_of_a_reply_are_sent_again_when_asked_for() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        for (id, len) in [(10, 5000), (20, LARGE)] {
            let bytes = value(len, 6);
            assert_eq!(peer.ask(&mut rig, 1, id, &set("k", &bytes)), b"STORED\r\n");
            let whole = peer.ask(&mut rig, 1, id + 1, b"get k\r\n");
            // Deleted meanwhile: what was sent is kept, not what is stored.
            assert_eq!(peer.ask(&mut rig, 1, id + 2, b"delete k\r\n"), b"DELETED\r\n");
            let frames = Peer::frames(id + 1, &whole);
            let total = frames.len() as u16;
            let gaps = [Gap { first: 0, count: 1 }, Gap { first: total - 2, count: 2 }];
            let client = &peer.socket;
            peer.ask_again(1, id + 1, total, &gaps);
            rig.turns(10);
            let again: Vec<Vec<u8>> =
                std::iter::from_fn(|| client.receive()).map(|(_, bytes)| bytes).collect();
            let wanted: Vec<Vec<u8>> = [0, total - 2, total - 1]
                .map(|at| {
                    let (header, payload) = &frames[usize::from(at)];
                    [&header.to_bytes()[..], payload].concat()
                })
                .into();
            assert_eq!(again, wanted, "{len} bytes, {workers} workers, {form}");
            let unknown = count(&rig, "resends_unknown");
            peer.ask_again(1, id + 7, total, &gaps); // never sent
            peer.ask_again(1, id + 1, total + 1, &gaps); // not of this length
            peer.datagram(1, Header { kind: Kind::Forget, ..frames[0].0 }, b"");
            peer.ask_again(1, id + 1, total, &gaps); // forgotten
            rig.turns(10);
            assert_eq!(count(&rig, "resends_unknown") - unknown, 3);
            assert!(client.receive().is_none());
        }
        rig.clock.advance(60_000_000_000);
        rig.turns(2);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "nothing stays pinned");
    }
}

#[test]
fn while_a_reply_leaves_no_frame_of_the_one_before_it_under_its_number_does() {
    for (workers, form) in FORMS {
        let faults = DatagramFaults { send_bytes: 40_000, ..DatagramFaults::NONE };
        let mut rig = Rig::new(&Plan { datagrams: Some(faults), ..plan(workers, form) });
        let net = rig.datagrams.clone().expect("it serves datagrams");
        let mut peer = Peer::new(&rig);
        let (before, after) = (value(LARGE, 21), value(LARGE, 22));
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("a", &before)), b"STORED\r\n");
        assert_eq!(peer.ask(&mut rig, 0, 2, &set("b", &after)), b"STORED\r\n");
        // Nobody says that it has come, or that was lost.
        assert!(peer.ask(&mut rig, 0, 7, b"get a\r\n") == reply("a", &before));
        net.hold(true);
        peer.small(0, 7, b"get b\r\n");
        rig.turns(50);
        let frames = Peer::frames(7, &reply("b", &after));
        let gap = [Gap { first: 1, count: 3 }];
        let unknown = count(&rig, "resends_unknown");
        peer.ask_again(0, 7, frames.len() as u16, &gap);
        rig.turns(10);
        net.hold(false);
        let mut come = 0;
        for _ in 0..20_000 {
            while let Some((_, bytes)) = peer.socket.receive() {
                let (header, payload) = Header::parse(&bytes).expect("the server sends headers");
                let (wanted, right) = &frames[usize::from(header.sequence)];
                assert!(header == *wanted && payload == right, "{workers} workers, {form}");
                come += 1;
            }
            if come == frames.len() {
                break;
            }
            rig.turn();
        }
        assert_eq!((come, count(&rig, "resends_unknown") - unknown), (frames.len(), 1));
        peer.ask_again(0, 7, frames.len() as u16, &gap);
        rig.turns(10);
        let again = std::iter::from_fn(|| peer.socket.receive());
        let again: Vec<Vec<u8>> = again.map(|(_, bytes)| bytes[8..].to_vec()).collect();
        let right: Vec<Vec<u8>> = frames[1..4].iter().map(|(_, bytes)| bytes.clone()).collect();
        assert!(again == right, "now it is kept: {workers} workers, {form}");
    }
}

#[test]
fn the_server_asks_for_frames_of_a_request_that_stay_away() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut holed = Peer::new(&rig);
        let bytes = value(LARGE, 7);
        let request = set("k", &bytes);
        let frames = Peer::frames(1, &request);
        holed.send(0, 2, b"get none\r\n");
        assert_eq!(holed.until(&mut rig, 2), b"END\r\n");
        holed.remember(0, 1, &request);
        for (at, (header, payload)) in frames.iter().enumerate() {
            if at % 7 != 3 && at != 0 && at + 1 != frames.len() {
                holed.datagram(0, *header, payload);
            }
        }
        rig.turns(5);
        holed.receive();
        assert_eq!((holed.asked, holed.got.len()), (0, 0), "not at once");
        assert_eq!(holed.until(&mut rig, 1), b"STORED\r\n");
        let missing = (0..frames.len()).filter(|at| at % 7 == 3).count() + 2;
        assert_eq!(holed.asked, missing, "only what was missing, {workers} workers, {form}");
        let got = holed.ask(&mut rig, 1, 3, b"get k\r\n");
        assert!(got == reply("k", &bytes));
    }
}

#[test]
fn what_is_to_be_carried_out_once_is_answered_from_memory_when_it_comes_again() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let once = Header { kind: Kind::Once, ..Header::whole(7) };
        assert_eq!(peer.ask(&mut rig, 0, 1, b"set n 0 0 1\r\n5\r\n"), b"STORED\r\n");
        for _ in 0..3 {
            peer.datagram(0, once, b"incr n 1\r\n");
            assert_eq!(peer.all(&mut rig), [(7, b"6\r\n".to_vec())]);
        }
        peer.datagram(0, once, b"incr n 2\r\n"); // the same number, another request
        assert_eq!(peer.all(&mut rig), [(7, b"8\r\n".to_vec())]);
        for wanted in [9, 10] {
            peer.small(0, 7, b"incr n 1\r\n"); // a client of memcached's, with one number for all
            assert_eq!(peer.all(&mut rig), [(7, format!("{wanted}\r\n").into_bytes())]);
        }
        let big = set("k", &value(LARGE, 8));
        assert_eq!(peer.ask(&mut rig, 1, 9, &big), b"STORED\r\n");
        assert_eq!(peer.ask(&mut rig, 1, 10, b"delete k\r\n"), b"DELETED\r\n");
        assert_eq!(peer.ask(&mut rig, 1, 9, &big), b"STORED\r\n", "answered again");
        assert_eq!(peer.ask(&mut rig, 1, 11, b"get k\r\n"), b"END\r\n", "and not stored again");
        assert_eq!(count(&rig, "repeats_answered"), 3);
    }
}

#[test]
fn no_change_of_a_message_is_carried_out_twice_where_another_one_finds_no_room() {
    let plan = Plan { access: Access::Erew, ..Plan::design(Design::Hkh, 3) };
    let mut rig = Rig::new(&plan.with_datagrams());
    let mut peer = Peer::new(&rig);
    let placement = rig.shared.placement;
    let key_of = |worker: usize| {
        let owner = |key: &String| placement.owner(placement.hash(key.as_bytes())).index();
        let mut keys = (0..1000).map(|number| format!("key{number}"));
        keys.find(|key| owner(key) == worker).expect("of a thousand keys some are its own")
    };
    let (a, b) = (key_of(1), key_of(2));
    for (id, key) in [(1, &a), (2, &b)] {
        assert_eq!(peer.ask(&mut rig, 0, id, &set(key, b"0")), b"STORED\r\n");
    }
    let once = |id| Header { kind: Kind::Once, ..Header::whole(id) };
    let both = |one: &str, two: &str| format!("incr {one} 1\r\nincr {two} 1\r\n").into_bytes();
    let requests = [(3, both(&a, &b)), (4, both(&b, &a))];
    let answers = [vec![(3, b"1\r\n".to_vec())], Vec::new()];
    for ((id, request), wanted) in requests.iter().zip(answers) {
        // Jobs of somebody who is gone: for `b` there is no room.
        while rig.shared.workers[2].jobs.push(orphan(2, b"mn\r\n")).is_ok() {}
        for _ in 0..2 {
            peer.datagram(0, once(*id), request);
            for _ in 0..3 {
                rig.workers[0].step().expect("memory transports do not fail");
            }
        }
        assert_eq!(peer.all(&mut rig), wanted, "{}", request.escape_ascii());
        while !rig.shared.workers[2].jobs.is_empty() {
            rig.turn();
        }
    }
    assert_eq!((count(&rig, "requests_queue_full"), count(&rig, "repeats_under_way")), (3, 1));
    // Nothing of the second one was carried out.
    peer.datagram(0, once(4), &requests[1].1);
    let mut told = peer.all(&mut rig);
    told.sort();
    assert_eq!(told, [(4, b"1\r\n".to_vec()), (4, b"2\r\n".to_vec())]);
    peer.datagram(0, once(3), &requests[0].1);
    assert_eq!(peer.all(&mut rig), [(3, b"1\r\n".to_vec())]);
}

#[test]
fn a_change_whose_answer_is_forgotten_is_not_carried_out_again_and_a_read_is() {
    let (workers, form) = FORMS[0];
    let mut rig = Rig::new(&plan(workers, form));
    let mut peer = Peer::new(&rig);
    let once = |id| Header { kind: Kind::Once, ..Header::whole(id) };
    let set = b"set a-number-with-a-long-name 0 0 1\r\n5\r\n";
    assert_eq!(peer.ask(&mut rig, 0, 1, set), b"STORED\r\n");
    let change = b"ma a-number-with-a-long-name v k\r\n";
    let read = b"mg a-number-with-a-long-name v k\r\n";
    let told = b"VA 1 ka-number-with-a-long-name\r\n6\r\n".to_vec();
    for _ in 0..2 {
        for (id, request) in [(2, change), (3, read)] {
            peer.datagram(0, once(id), request);
            assert_eq!(peer.all(&mut rig), [(id, told.clone())]);
        }
    }
    // As many long answers as are remembered.
    let mut answered = 0;
    for id in 100..100 + 4096 {
        peer.datagram(0, once(id), b"mg none-has-so-long-a-name-as-this-one k\r\n");
        if id % 32 == 0 {
            answered += peer.all(&mut rig).len();
        }
    }
    answered += peer.all(&mut rig).len();
    assert_eq!(answered, 4096);
    peer.datagram(0, once(3), read);
    assert_eq!(peer.all(&mut rig), [(3, told)]);
    peer.datagram(0, once(2), change);
    let forgotten = b"SERVER_ERROR carried out before, and the answer is forgotten\r\n";
    assert_eq!(peer.all(&mut rig), [(2, forgotten.to_vec())]);
    let got = peer.ask(&mut rig, 0, 4, read);
    assert!(got.ends_with(b"\r\n6\r\n"), "{}", String::from_utf8_lossy(&got));
}

#[test]
fn an_idle_server_finds_nothing_to_do() {
    use laneway_server::worker::Progress;
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        peer.ask(&mut rig, 0, 1, b"get a\r\n");
        rig.turns(3);
        for worker in &mut rig.workers {
            assert_eq!(worker.step().expect("memory does not fail"), Progress::Idle);
        }
    }
}

#[test]
fn an_id_used_again_is_another_request_however_alike_the_two_begin() {
    for (workers, form) in FORMS {
        for len in [5000, LARGE] {
            let mut rig = Rig::new(&plan(workers, form));
            let mut peer = Peer::new(&rig);
            let first = value(len, 1);
            let mut second = first.clone();
            second[len - 1] ^= 1;
            let mut third = second.clone();
            third[len / 2] ^= 1;
            for (number, bytes) in (100..).zip([&first, &second, &third]) {
                let what = format!("{len} bytes, {workers} workers, {form}");
                assert_eq!(peer.ask(&mut rig, 0, 7, &set("k", bytes)), b"STORED\r\n", "{what}");
                assert!(peer.ask(&mut rig, 0, number, b"get k\r\n") == reply("k", bytes), "{what}");
                // From here on late frames of the one before are no longer known as such.
                rig.clock.advance(200_000_000);
            }
            assert_eq!(count(&rig, "repeats_answered"), 0);
        }
    }
}

#[test]
fn the_last_frame_of_another_request_is_not_answered_for_the_one_before() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        assert_eq!(peer.ask(&mut rig, 0, 7, &set("k", &[b'a'; 5000])), b"STORED\r\n");
        // At once, while frames under this id count as late ones of the first.
        let other = Peer::frames(7, &set("k", &[b'b'; 5000]));
        let (header, payload) = other.last().expect("it has frames");
        peer.datagram(0, *header, payload);
        assert_eq!(peer.all(&mut rig), [], "{workers} workers, {form}");
        let same = Peer::frames(7, &set("k", &[b'a'; 5000]));
        let (header, payload) = same.last().expect("it has frames");
        peer.datagram(0, *header, payload);
        assert_eq!(peer.all(&mut rig), [(7, b"STORED\r\n".to_vec())], "{workers} workers, {form}");
    }
}

/// Requests served so far, on any worker.
fn served(rig: &Rig) -> u64 {
    let of = |worker: &laneway_server::shared::WorkerShared<_>| {
        worker.lanes.requests_small.get() + worker.lanes.requests_large.get()
    };
    rig.shared.workers.iter().map(of).sum()
}

#[test]
fn a_multiget_of_very_many_keys_lets_others_in_between() {
    const KEYS: usize = 20_000;
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        rig.set(&client, "k", b"value");
        rig.set(&client, "big", &value(LARGE, 1));
        let line = [&b"get"[..], &b" k x".repeat(KEYS / 2), b" big\r\n"].concat();
        peer.send(0, 1, &line);
        let (mut most, mut others) = (0, 0);
        for id in 2.. {
            peer.receive();
            if peer.got.iter().any(|(got, _)| *got == 1) {
                break;
            }
            if id % 4 == 0 {
                assert_eq!(peer.ask(&mut rig, 0, id, b"get k\r\n"), reply("k", b"value"));
                others += 1;
            }
            let before = served(&rig);
            rig.turn();
            most = most.max(served(&rig) - before);
            assert!(id < 5000, "no answer");
        }
        let what = format!("{workers} workers, {form}");
        assert!(most <= 600, "{most} keys in one turn, {what}");
        assert!(others > 5, "{others} others in between, {what}");
        let at = peer.got.iter().position(|(id, _)| *id == 1).expect("it came");
        let wanted = [hit("k", b"value").repeat(KEYS / 2), reply("big", &value(LARGE, 1))].concat();
        assert!(peer.got[at].1 == wanted, "{what}");
    }
}

#[test]
fn a_multiget_whose_reply_no_frames_can_carry_is_told_so_before_it_takes_all_memory() {
    let mut rig = Rig::new(&plan(2, Form::TimeShare));
    let mut peer = Peer::new(&rig);
    let client = rig.net.connect();
    rig.set(&client, "k", &value(16_000, 1));
    let line = [&b"get"[..], &b" k".repeat(20_000), b"\r\n"].concat();
    let got = peer.ask(&mut rig, 0, 1, &line);
    assert_eq!(got, b"SERVER_ERROR reply too long for UDP\r\n");
    assert_eq!(count(&rig, "replies_too_long"), 1);
}

#[test]
fn a_stream_of_large_values_holds_up_no_large_reply() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let bytes = value(LARGE, 1);
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("big", &bytes)), b"STORED\r\n");
        let mut writers: Vec<Peer> = (0..40).map(|_| Peer::new(&rig)).collect();
        for (id, writer) in (100..).zip(&mut writers) {
            writer.send(0, id, &set(&format!("k{id}"), &bytes));
            rig.turn();
        }
        assert!(peer.ask(&mut rig, 0, 2, b"get big\r\n") == reply("big", &bytes));
        let waiting: usize = rig.workers.iter().map(|worker| worker.unfinished_messages().0).sum();
        assert!(waiting > 10, "{waiting} values still wait: {workers} workers, {form}");
        for (id, writer) in (100..).zip(&mut writers) {
            assert_eq!(writer.until(&mut rig, id), b"STORED\r\n");
        }
    }
}

#[test]
fn a_standby_serves_one_large_job_a_turn_and_small_requests_in_between() {
    let mut rig = Rig::new(&plan(6, Form::Roles));
    rig.publish(|plan| {
        plan.roles.fill(Role::Small);
        plan.roles[5] = Role::Standby;
        plan.workers_small = 6;
    });
    rig.turn();
    let mut peer = Peer::new(&rig);
    let big = value(LARGE, 3);
    assert_eq!(peer.ask(&mut rig, 5, 1, &set("big", &big)), b"STORED\r\n");
    for id in 100..120 {
        peer.small(0, id, b"get big\r\n");
    }
    rig.workers[0].step().expect("memory does not fail");
    let large = |rig: &Rig| rig.shared.workers[5].lanes.requests_large.get();
    let before = large(&rig);
    for turn in 1..=20 {
        rig.workers[5].step().expect("memory does not fail");
        assert_eq!(large(&rig) - before, turn);
    }
    for id in 100..120 {
        assert!(peer.until(&mut rig, id) == reply("big", &big));
    }
}

/// The requests of a round: reads of keys that are there, missing, large, or changed by the round,
/// with what asks for more between them.
fn mixed_requests(draw: &mut impl FnMut(usize) -> usize) -> Vec<Vec<u8>> {
    let mut requests = vec![b"set other 5 0 1\r\nb\r\n".to_vec()];
    for _ in 0..1 + draw(70) {
        let any = format!("key{}", draw(40));
        let text = match draw(20) {
            0 => format!("get {any} other key{}\r\n", draw(40)),
            1 => format!("gat 0 {any}\r\n"),
            2 => format!("get {any} \r\n"),
            3 => format!("get {any}\r\nget other\r\nmg {any} v\r\n"),
            4 => format!("set other 1 0 3\r\n{:03}\r\n", draw(1_000)),
            5 => "md other I T30\r\n".to_owned(),
            6 => "mg other v s\r\n".to_owned(),
            7 => format!("mg {any} T0 v\r\n"),
            8 => format!("mg {any} q k v\r\n"),
            9 => format!("get {}\r\n", "k".repeat(251)),
            10 => "delete other\r\n".to_owned(),
            11 => "get other\n".to_owned(),
            12..15 => format!("mg {any} k v f\r\n"),
            15 => format!("gets {any}\r\n"),
            _ => format!("get {any}\r\n"),
        };
        requests.push(text.into_bytes());
    }
    requests
}

#[test]
fn a_burst_of_datagrams_is_answered_and_counted_as_each_alone_would_be() {
    // With one worker what comes first is served first.
    let lanes = Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(1, Form::TimeShare) };
    for (seed, threshold_bytes) in (1_u64..).zip([16_384, 16_384, 300, 300, 1 << 20, 1 << 20]) {
        let plan = Plan { threshold_bytes, ..lanes.clone() };
        let run = |at_once: bool| {
            let mut rig = Rig::new(&plan);
            let mut peer = Peer::new(&rig);
            for number in (0..40).filter(|number| number % 3 > 0) {
                let value = value([0, 1, 100, 310, 1_200, 20_000][number % 6], number as u64);
                peer.ask(&mut rig, 0, number as u16, &set(&format!("key{number}"), &value));
            }
            let mut state = seed;
            let mut draw = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % below
            };
            let (mut replies, mut id) = (Vec::new(), 100);
            for _ in 0..12 {
                for request in mixed_requests(&mut draw) {
                    peer.small(0, id, &request);
                    id += 1;
                    if !at_once {
                        replies.extend(peer.all(&mut rig));
                    }
                }
                replies.extend(peer.all(&mut rig));
            }
            replies.sort_by_key(|(id, _)| *id); // a large one comes later than what is behind it
            let totals = rig.shared.board.totals();
            (replies, totals.cmd_get, totals.get_hits, totals.get_misses, totals.cmd_meta)
        };
        let (burst, alone) = (run(true), run(false));
        for (together, one) in burst.0.iter().zip(&alone.0) {
            assert_eq!(rig::tail(&together.1), rig::tail(&one.1), "{}, seed {seed}", together.0);
        }
        assert!(
            burst == alone,
            "seed {seed}, threshold {threshold_bytes}: as many, and as counted"
        );
    }
}

#[test]
fn a_key_is_its_own_whatever_white_space_is_in_it() {
    let lanes = Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&lanes);
    let mut peer = Peer::new(&rig);
    let key = "front\tand more";
    let key = key.replace(' ', "\r");
    peer.ask(&mut rig, 0, 1, &set(&key, b"value"));
    // Two are a burst, whose keys are looked for ahead.
    for front in [false, true] {
        if front {
            peer.ask(&mut rig, 0, 2, &set("front", b"other"));
        }
        for (id, text) in [(10, "get"), (11, "mg"), (12, "gets")] {
            let tail = if text == "mg" { " v" } else { "" };
            peer.small(0, id, format!("{text} {key}{tail}\r\n").as_bytes());
        }
        let replies = peer.all(&mut rig);
        assert_eq!(replies.len(), 3);
        for (id, reply) in replies {
            let shown = rig::tail(&reply);
            assert!(reply.windows(5).any(|part| part == b"value"), "{id}, {front}: {shown}");
        }
    }
}
