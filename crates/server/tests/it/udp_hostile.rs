//! Datagrams that are wrong, lost, doubled, late, too many, or from strangers: each is counted,
//! none stalls or crashes a worker, and memory stays within its bounds.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_transport::memory_datagram::DatagramFaults;
use laneway_wire::udp::{FRAME_BYTES_MAX, Gap, HEADER_BYTES, Header, Kind};
use rig::peer::{Peer, count, set};
use rig::{FORMS, Plan, Rig, hit, value};

const LARGE: usize = 400_000;

fn plan(workers: usize, form: Form) -> Plan {
    Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(workers, form) }
}

fn reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

/// A frame of a longer message.
fn frame(request_id: u16, sequence: u16, total: u16) -> Header {
    Header { request_id, sequence, total, kind: Kind::Data }
}

#[test]
fn each_kind_of_bad_input_is_counted_and_nothing_else_happens() {
    let whole = vec![b'x'; FRAME_BYTES_MAX];
    let many = b"mg k q\r\n".repeat(129);
    // What is sent, in order, and what is counted then.
    type Row<'a> = (&'a str, u64, Vec<(Header, &'a [u8])>);
    let rows: Vec<Row<'_>> = vec![
        ("wrong_sequence", 1, vec![(frame(1, 0, 0), b"get a\r\n")]),
        ("wrong_sequence", 2, vec![(frame(1, 2, 2), b"x"), (frame(1, 65535, 3), b"x")]),
        ("unknown_kind", 1, vec![(Header { kind: Kind::Unknown(9), ..frame(1, 0, 1) }, b"mn\r\n")]),
        ("half_requests", 1, vec![(frame(1, 0, 1), b"get a")]),
        ("frames_total_changed", 1, vec![(frame(2, 0, 9), &whole), (frame(2, 1, 8), &whole)]),
        ("frames_uneven", 1, vec![(frame(3, 0, 9), &whole), (frame(3, 1, 9), b"short")]),
        ("frames_duplicate", 1, vec![(frame(4, 0, 9), &whole), (frame(4, 0, 9), &whole)]),
        (
            "frames_stale",
            1,
            vec![(frame(5, 0, 2), &whole), (frame(5, 1, 2), b"x"), (frame(5, 0, 2), &whole)],
        ),
        ("messages_too_long", 1, vec![(frame(6, 0, 65535), &whole)]),
        (
            "resends_unknown",
            1,
            vec![(Header { kind: Kind::Resend, ..frame(7, 0, 9) }, &[0, 0, 0, 1])],
        ),
        (
            "wrong_sequence",
            1,
            vec![(Header { kind: Kind::Resend, ..frame(7, 0, 1) }, &[0, 0, 0, 1])],
        ),
        ("cookies_wrong", 1, vec![(Header { kind: Kind::Cookie, ..frame(8, 0, 1) }, b"guess")]),
        ("forgets", 1, vec![(Header { kind: Kind::Forget, ..frame(8, 0, 9) }, b"")]),
        ("requests_beyond_limit", 1, vec![(frame(9, 0, 1), &many)]),
        ("binary_requests", 1, vec![(frame(9, 0, 1), b"\x80\0\0\x01\0\0\0\0\0\0\0\x01k")]),
        (
            "binary_requests",
            2,
            vec![(frame(9, 0, 1), b"\x80\n"), (frame(9, 0, 1), b"mg k q\r\n\x80")],
        ),
        ("size_mismatches", 1, vec![(frame(9, 0, 1), b"set a 0 0 9 noreply\r\nx\r\n")]),
    ];
    for (workers, form) in FORMS {
        for (name, times, datagrams) in &rows {
            let mut rig = Rig::new(&plan(workers, form));
            let mut peer = Peer::new(&rig);
            for (header, payload) in datagrams {
                peer.datagram(0, *header, payload);
                rig.turns(3); // so that no two arrive as one train
            }
            assert_eq!(count(&rig, name), *times, "{name}, {workers} workers, {form}");
            assert_eq!(peer.all(&mut rig), [], "{name} is not answered");
            assert_eq!(peer.ask(&mut rig, 0, 77, b"mn\r\n"), b"MN\r\n", "after {name}");
        }
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        for length in 0..HEADER_BYTES {
            peer.raw(0, &vec![1; length]);
            rig.turns(3);
        }
        assert_eq!(count(&rig, "truncated"), HEADER_BYTES as u64);
        assert_eq!(peer.ask(&mut rig, 0, 77, b"mn\r\n"), b"MN\r\n");
    }
}

#[test]
fn what_is_no_request_is_answered_and_counted() {
    let mut rig = Rig::new(&plan(1, Form::TimeShare));
    let mut peer = Peer::new(&rig);
    assert_eq!(peer.ask(&mut rig, 0, 1, b"nope\r\n"), b"ERROR\r\n");
    assert_eq!(rig.shared.totals().malformed, 1);
}

#[test]
fn a_flood_of_fragments_from_many_sources_stays_within_its_memory() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut honest = Peer::new(&rig);
        let bytes = value(LARGE, 1);
        let payload = vec![b'x'; FRAME_BYTES_MAX];
        let mut sources: Vec<Peer> = (0..300).map(|_| Peer::new(&rig)).collect();
        for round in 0..60u16 {
            for (number, source) in sources.iter_mut().enumerate() {
                source.datagram(number % workers, frame(round, round % 9, 9), &payload);
                while source.socket.receive().is_some() {}
            }
            rig.turns(3);
            for worker in 0..workers {
                let (messages, held) = rig.workers[worker].unfinished_messages();
                assert!(messages <= 1024 && held <= 36 << 20, "{messages} messages, {held} bytes");
            }
            let id = 1000 + round;
            assert_eq!(honest.ask(&mut rig, 0, id, b"mn\r\n"), b"MN\r\n", "round {round}");
        }
        assert!(count(&rig, "messages_dropped_for_room") > 1000, "the oldest went");
        assert_eq!(honest.ask(&mut rig, 0, 1, &set("k", &bytes)), b"STORED\r\n");
        assert!(honest.ask(&mut rig, 0, 2, b"get k\r\n") == reply("k", &bytes));
        for _ in 0..3000 {
            rig.clock.advance(1_000_000);
            rig.turn();
        }
        let left: usize = rig.workers.iter().map(|worker| worker.unfinished_messages().0).sum();
        assert_eq!(left, 0, "what stands still is given up");
        assert!(count(&rig, "messages_timed_out") > 0);
    }
}

#[test]
fn a_change_of_roles_gives_up_what_is_half_and_loses_no_whole_request() {
    let mut rig = Rig::new(&plan(6, Form::Roles));
    let mut peer = Peer::new(&rig);
    let bytes = value(LARGE, 2);
    let request = set("k", &bytes);
    for (header, payload) in Peer::frames(1, &request).iter().skip(1) {
        peer.datagram(0, *header, payload);
    }
    rig.turns(5);
    rig.publish(|plan| {
        let small = usize::from(plan.workers_small) - 1;
        plan.roles[small] = laneway_policy::Role::Large;
        plan.workers_small -= 1;
    });
    rig.turns(5);
    assert_eq!(count(&rig, "messages_dropped_role_change"), 1);
    assert_eq!(peer.ask(&mut rig, 0, 2, &request), b"STORED\r\n");
    for queue in 0..6 {
        let id = 10 + queue as u16;
        assert!(peer.ask(&mut rig, queue, id, b"get k\r\n") == reply("k", &bytes), "{queue}");
    }
}

#[test]
fn strangers_are_sent_little_until_they_have_echoed_their_cookie() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&Plan { public: true, ..plan(workers, form) });
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        let (big, long) = (value(LARGE, 3), value(1000, 4));
        rig.set(&client, "big", &big);
        rig.set(&client, "long", &long);
        rig.set(&client, "s", b"x");
        let asked: [&[u8]; 6] = [
            b"get s\r\n",
            b"get big\r\n",
            b"get long\r\n",
            b"stats\r\n",
            b"mg long v\r\nmg long v\r\nmg big v\r\nget big long\r\n",
            b"version\r\n",
        ];
        for (id, request) in (1..).zip(asked) {
            peer.small(0, id, request);
            rig.turns(20);
            let mut back = 0;
            while let Some((_, bytes)) = peer.socket.receive() {
                back += bytes.len();
            }
            let spent = HEADER_BYTES + request.len();
            assert!(back <= 3 * spent, "{back} bytes for {spent}: {workers}, {form}");
        }
        // Nor do frames, or asking for frames again, bring more than they cost.
        peer.datagram(0, frame(50, 0, 2), &[b'x'; 100]);
        peer.ask_again(0, 2, 300, &[Gap { first: 0, count: 300 }]);
        rig.turns(2000);
        let mut back = 0;
        while let Some((_, bytes)) = peer.socket.receive() {
            back += bytes.len();
        }
        assert!(back <= 108, "{back} bytes");
        peer.small(0, 60, b"get big\r\n");
        rig.turns(20);
        peer.receive();
        let (header, cookie) = peer.others.pop().expect("a cookie came");
        assert_eq!((header.kind, header.request_id), (Kind::Cookie, 60));
        peer.datagram(0, Header { kind: Kind::Cookie, ..Header::whole(61) }, &cookie);
        assert!(peer.ask(&mut rig, 0, 62, b"get big\r\n") == reply("big", &big));
        assert_eq!(count(&rig, "peers_proved"), 1);
        let mut other = Peer::new(&rig);
        other.datagram(0, Header { kind: Kind::Cookie, ..Header::whole(61) }, &cookie);
        other.small(0, 63, b"get big\r\n");
        assert_eq!(other.all(&mut rig), [], "a cookie is good for one address");
    }
}

#[test]
fn with_loss_duplication_and_reordering_every_answer_is_right() {
    for (workers, form) in FORMS {
        let faults = DatagramFaults::each(77, 100);
        let mut rig = Rig::new(&Plan { datagrams: Some(faults), ..plan(workers, form) });
        let mut peer = Peer::new(&rig);
        let mut id = 0;
        for round in 0..60u64 {
            let len = [10, 3000, 40_000, LARGE][round as usize % 4];
            let bytes = value(len, round);
            let key = format!("k{}", round % 8);
            id += 1;
            assert_eq!(persist(&mut rig, &mut peer, id, &set(&key, &bytes)), b"STORED\r\n");
            id += 1;
            let got = persist(&mut rig, &mut peer, id, format!("get {key}\r\n").as_bytes());
            assert!(got == reply(&key, &bytes), "round {round}, {workers} workers, {form}");
        }
    }
}

/// Ask until there is an answer, as a client does: for the frames that are missing, or, where none
/// came, all over again.
fn persist(rig: &mut Rig, peer: &mut Peer, id: u16, request: &[u8]) -> Vec<u8> {
    let queue = usize::from(id) % rig.workers.len();
    for _ in 0..100 {
        peer.send(queue, id, request);
        for _ in 0..40 {
            for _ in 0..100 {
                peer.receive();
                if let Some(at) = peer.got.iter().position(|(got, _)| *got == id) {
                    return peer.got.swap_remove(at).1;
                }
                rig.turn();
            }
            if !peer.ask_for_missing(queue, id) && request.starts_with(b"get") {
                break;
            }
        }
    }
    panic!("no answer to request {id} of {} bytes", request.len());
}

#[test]
fn what_servers_say_is_no_request_so_that_no_two_of_them_answer_each_other_for_ever() {
    let said: [&[u8]; 10] = [
        b"ERROR\r\n",
        b"ERROR cookie 0123456789abcdef\r\n",
        b"CLIENT_ERROR bad data chunk\r\n",
        b"SERVER_ERROR reply too long for UDP\r\n",
        b"STORED\r\n",
        b"HD\r\n",
        b"6\r\n",
        b"STAT pid 1\r\nEND\r\n",
        b"VALUE k 0 7\r\nget s\r\n\r\nEND\r\n",
        b"END\r\n",
    ];
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        assert_eq!(peer.ask(&mut rig, 0, 1, b"set s 0 0 1\r\nx\r\n"), b"STORED\r\n");
        for (times, line) in (1..).zip(said) {
            for kind in [Kind::Data, Kind::Once] {
                peer.datagram(0, Header { kind, ..Header::whole(2) }, line);
                assert_eq!(peer.all(&mut rig), [], "{}", String::from_utf8_lossy(line));
            }
            assert_eq!(count(&rig, "replies_received"), 2 * times);
        }
        // A long one, and one behind a request.
        peer.send(0, 3, &[&b"VALUE k 0 3000\r\n"[..], &b"get s\r\n".repeat(400)].concat());
        assert_eq!(peer.all(&mut rig), []);
        peer.small(0, 4, b"mn\r\nMN\r\nget s\r\n");
        assert_eq!(peer.all(&mut rig), [(4, b"MN\r\n".to_vec())]);
        assert_eq!(count(&rig, "replies_received"), 22);
        // Who does not know our commands is still told, and so is who sends an empty line.
        assert_eq!(peer.ask(&mut rig, 0, 5, b"hello\r\n"), b"ERROR\r\n");
        let empty = peer.ask(&mut rig, 0, 6, b"\r\n");
        assert_eq!(empty, b"CLIENT_ERROR bad command line format\r\n");
    }
}

#[test]
fn nothing_behind_the_line_of_a_refused_store_is_served_as_a_request() {
    let refused = [
        "cas k 0 0 N",
        "cas k 0 0 N noreply",
        "set k x 0 N noreply extra",
        "ms k N Tx",
        "set k 0 0 Nx",
        "set  0 0 N",
        "ms N",
    ];
    let trap = b"flush_all\r\nset pwned 0 0 3\r\nyes\r\n".repeat(600);
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("kept", b"it")), b"STORED\r\n");
        let mut id = 1;
        for length in [9, 33, 1000, trap.len() - 2] {
            for line in refused {
                id += 1;
                let line = line.replace('N', &length.to_string()) + "\r\n";
                peer.send(0, id, &[line.as_bytes(), &trap[..length], b"\r\nmn\r\n"].concat());
                for (_, said) in peer.all(&mut rig) {
                    let is_error = said.starts_with(b"CLIENT_ERROR ") && said.len() < 80;
                    assert!(is_error || said == b"MN\r\n", "{line}{}", said.escape_ascii());
                }
                let got = peer.ask(&mut rig, 0, 1000 + id, b"get kept pwned\r\n");
                assert!(got == reply("kept", b"it"), "{line}{workers} workers, {form}");
            }
        }
    }
}

#[test]
fn a_queue_is_no_client() {
    use laneway_transport::datagram::{Datagrams, Departure, Path};
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let mut forged = rig.datagrams.as_ref().expect("datagrams").datagrams();
        let whole = [&Header::whole(1).to_bytes()[..], b"get k\r\n"].concat();
        let half = [&frame(2, 0, 9).to_bytes()[..], b"x"].concat();
        for (from, to, bytes) in [(0, 1, &whole), (1, 0, &whole), (1, 1, &half)] {
            let peer = forged.queue(to).address;
            let pieces = [std::io::IoSlice::new(bytes)];
            let departure = Departure { peer, segment_bytes: None, pieces: &pieces };
            let sent = forged.send(from, Path::Small, &[departure]).expect("memory");
            assert_eq!(sent.done, 1);
            rig.turns(5);
        }
        assert_eq!((count(&rig, "from_ourselves"), count(&rig, "datagrams")), (3, 3));
        assert_eq!((count(&rig, "requests"), count(&rig, "replies")), (0, 0));
        assert_eq!(peer.ask(&mut rig, 0, 77, b"mn\r\n"), b"MN\r\n");
    }
}

#[test]
fn a_stranger_that_has_proved_its_address_may_repeat_what_was_withheld() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&Plan { public: true, ..plan(workers, form) });
        let mut peer = Peer::new(&rig);
        let once = Header { kind: Kind::Once, ..Header::whole(7) };
        let request = set("k", &value(20_000, 1)); // above the threshold
        peer.datagram(0, once, &request);
        assert_eq!(peer.all(&mut rig), []);
        let (_, cookie) = peer.others.pop().expect("a cookie came");
        peer.datagram(0, Header { kind: Kind::Cookie, ..Header::whole(8) }, &cookie);
        peer.datagram(0, once, &request);
        let got = peer.all(&mut rig);
        assert_eq!(got, [(7, b"STORED\r\n".to_vec())], "{workers} workers, {form}");
    }
}

#[test]
fn a_worker_that_turns_large_reads_its_queue_no_longer_however_full_it_is() {
    let mut rig = Rig::new(&plan(6, Form::Roles));
    rig.publish_large(1);
    rig.turn();
    let peer = Peer::new(&rig);
    for number in 0..200 {
        // Of two lengths, so that each arrives by itself.
        peer.small(4, number, if number % 2 == 0 { b"get a\r\n" } else { b"get abc\r\n" });
    }
    let read = |rig: &Rig| {
        let udp = rig.shared.udp.get().expect("the rig serves datagrams");
        udp.counts[4].datagrams.get()
    };
    rig.workers[4].step().expect("memory does not fail");
    let before = read(&rig);
    assert!((1..100).contains(&before), "{before}");
    rig.publish_large(2);
    for _ in 0..5 {
        rig.workers[4].step().expect("memory does not fail");
    }
    assert_eq!(read(&rig), before);
    rig.turns(50);
    assert_eq!(count(&rig, "datagrams"), 200, "the small ones read it");
}

#[test]
fn a_turn_takes_two_trains_of_frames_at_most_from_its_queue_and_from_others() {
    const FRAMES_MAX: u64 = 2 * 65_536 / FRAME_BYTES_MAX as u64;
    // The second worker is large: it puts together what the first one receives.
    let mut rig = Rig::new(&plan(2, Form::Roles));
    rig.publish_large(1);
    rig.turn();
    let keys: Vec<String> = (0..24).map(|id| format!("k{id}")).collect();
    let mut peers: Vec<Peer> = keys.iter().map(|_| Peer::new(&rig)).collect();
    let bytes = value(200_000, 1);
    let udp = rig.shared.udp.get().expect("the rig serves datagrams").clone();
    let received = || udp.counts[0].datagrams.get();
    // It does nothing meanwhile, so that what is forwarded to it waits.
    for (key, peer) in keys.iter().zip(&mut peers) {
        peer.send(0, 1, &set(key, &bytes));
        let mut before = u64::MAX;
        while before != received() {
            before = received();
            rig.workers[0].step().expect("memory does not fail");
            let taken = received() - before;
            assert!(taken <= FRAMES_MAX, "{taken} frames in a turn");
        }
    }
    let waiting = udp.trains[1].len();
    assert!(waiting > 6, "{waiting} trains were forwarded");
    rig.workers[1].step().expect("memory does not fail");
    let taken = waiting - udp.trains[1].len();
    assert!((1..=2).contains(&taken), "{taken} of {waiting} trains in a turn");
    rig.turns(2000);
    for (key, peer) in keys.iter().zip(&mut peers) {
        assert!(peer.all(&mut rig).contains(&(1, b"STORED\r\n".to_vec())), "{key}");
    }
}

#[test]
fn values_that_wait_to_be_stored_stay_within_their_memory() {
    for (workers, form) in [(2, Form::TimeShare), (2, Form::Roles)] {
        let mut rig = Rig::new(&plan(workers, form));
        let bytes = value(LARGE, 1);
        let mut most = 0;
        for id in 0..300 {
            let mut peer = Peer::new(&rig);
            peer.send(0, id, &set(&format!("k{id}"), &bytes));
            rig.turn();
            let held = rig.workers.iter().map(|worker| worker.unfinished_messages().1);
            most = held.max().max(Some(most)).unwrap();
        }
        assert!(most <= 70 << 20, "{most} bytes, {workers} workers, {form}");
        rig.turns(3000);
        let mut peer = Peer::new(&rig);
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("k", &bytes)), b"STORED\r\n");
        // A worker receives in a turn what it can store in one: the rest waits where the kernel
        // throws away what finds no room.
        let fates = rig.datagrams.as_ref().expect("the rig serves datagrams").fates();
        assert!(fates.overflowed > 0, "more came than can be stored, {workers} workers, {form}");
    }
}

#[test]
fn a_large_reply_that_was_lost_whole_is_sent_again_to_who_asks_once() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let bytes = value(LARGE, 1);
        assert_eq!(peer.ask(&mut rig, 0, 1, &set("k", &bytes)), b"STORED\r\n");
        let once = Header { kind: Kind::Once, ..Header::whole(7) };
        peer.datagram(0, once, b"gat 100 k\r\n");
        rig.turns(200);
        while peer.socket.receive().is_some() {} // lost
        peer.datagram(0, once, b"gat 100 k\r\n");
        assert!(peer.until(&mut rig, 7) == reply("k", &bytes), "{workers} workers, {form}");
    }
}

#[test]
fn many_small_replies_to_a_stranger_cost_no_more_on_the_way_than_three_times_its_datagram() {
    const LOWER_HEADERS_BYTES: usize = 28;
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&Plan { public: true, ..plan(workers, form) });
        let peer = Peer::new(&rig);
        let request = b"mn\r\n".repeat(128);
        peer.small(0, 1, &request);
        rig.turns(20);
        let mut back = 0;
        while let Some((_, bytes)) = peer.socket.receive() {
            back += LOWER_HEADERS_BYTES + bytes.len();
        }
        let spent = LOWER_HEADERS_BYTES + HEADER_BYTES + request.len();
        assert!((1..=3 * spent).contains(&back), "{back} bytes for {spent}");
    }
}

#[test]
fn a_datagram_full_of_questions_about_the_server_has_one_of_them_answered() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        peer.small(0, 1, &b"mn\r\nstats udp\r\n".repeat(64));
        let got = peer.all(&mut rig);
        assert_eq!(got.len(), 2, "{workers} workers, {form}");
        assert_eq!(count(&rig, "requests_beyond_limit"), 1);
        // A stranger is given its cookie, and nobody goes and counts.
        let mut rig = Rig::new(&Plan { public: true, ..plan(workers, form) });
        let mut peer = Peer::new(&rig);
        peer.small(0, 1, b"stats udp\r\n");
        assert_eq!((peer.all(&mut rig).len(), peer.others.len()), (0, 1));
    }
}

/// Long replies of small values, which are copied, to peers that the wire does not reach: what
/// finds no room is thrown away, and the memory comes back.
#[test]
fn replies_that_cannot_leave_stay_within_the_memory_for_datagrams() {
    const KEYS: usize = 400;
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut honest = Peer::new(&rig);
        let mut line = b"get".to_vec();
        for number in 0..KEYS {
            let (key, value) = (format!("k{number}"), value(10_000, number as u64));
            let id = 1000 + number as u16;
            assert_eq!(honest.ask(&mut rig, 0, id, &set(&key, &value)), b"STORED\r\n");
            line.extend_from_slice(format!(" {key}").as_bytes());
        }
        line.extend_from_slice(b"\r\n");
        let net = rig.datagrams.clone().expect("datagrams are served");
        net.hold(true);
        let buffers = rig.shared.udp.get().expect("datagrams are served").buffers.clone();
        for id in 0..60 {
            let mut peer = Peer::new(&rig);
            peer.send(id % workers, 9, &line);
            for _ in 0..40 {
                rig.turn();
                assert!(buffers.held() <= buffers.most(), "{} bytes", buffers.held());
            }
        }
        rig.turns(2000);
        assert!(buffers.held() <= buffers.most() && 2 * buffers.held() > buffers.most());
        let thrown = count(&rig, "messages_no_room") + count(&rig, "frames_no_room");
        assert!(thrown > 10, "{workers} workers, {form}");
        net.hold(false);
        rig.turns(30_000);
        rig.clock.advance(3_000_000_000);
        rig.turns(10);
        rig.clock.advance(3_000_000_000);
        rig.turns(10);
        assert_eq!(buffers.held(), 0, "{workers} workers, {form}");
        assert_eq!(honest.ask(&mut rig, 0, 77, b"mn\r\n"), b"MN\r\n");
    }
}

/// A value that is not as long as it says is refused without being put together in one piece.
#[test]
fn a_long_message_that_is_no_whole_request_is_refused_by_its_front() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let mut peer = Peer::new(&rig);
        let request = [&b"set k 0 0 9000000\r\n"[..], &value(5_000_000, 1), b"\r\n"].concat();
        assert_eq!(peer.ask(&mut rig, 0, 5, &request), b"CLIENT_ERROR bad data chunk\r\n");
        assert_eq!(count(&rig, "size_mismatches"), 1);
        assert_eq!(peer.ask(&mut rig, 0, 77, b"mn\r\n"), b"MN\r\n");
    }
}

/// Where a fixed threshold counts it as small, a value of two mebibytes is no less whole.
#[test]
fn a_long_value_below_the_threshold_arrives_whole() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        rig.publish(|plan| plan.threshold = laneway_policy::ItemBytes(64 << 20));
        rig.turns(5);
        let mut peer = Peer::new(&rig);
        let bytes = value(2_000_000, 4);
        assert_eq!(peer.ask(&mut rig, 0, 5, &set("k", &bytes)), b"STORED\r\n");
        assert!(peer.ask(&mut rig, 0, 6, b"get k\r\n") == reply("k", &bytes));
        assert_eq!(count(&rig, "size_mismatches"), 0);
    }
}

/// Were the memory for datagrams full of halves of messages, none would ever become whole.
#[test]
fn messages_that_have_begun_become_whole_where_there_is_no_room_to_begin_one() {
    for (workers, form) in FORMS {
        let mut rig = Rig::new(&plan(workers, form));
        let (mut begun, late) = (Peer::new(&rig), Peer::new(&rig));
        let bytes = value(5 * FRAME_BYTES_MAX, 3);
        let frames = Peer::frames(9, &set("k", &bytes));
        let (header, payload) = &frames[0];
        begun.datagram(0, *header, payload);
        rig.turns(5);
        let buffers = rig.shared.udp.get().expect("datagrams are served").buffers.clone();
        let kept = 4 << 20;
        let held = buffers.hold((buffers.most() - buffers.held()) as usize - kept + 1);
        let held = held.expect("there is room");
        late.datagram(0, *header, payload);
        rig.turns(5);
        assert_eq!(count(&rig, "frames_no_room"), 1, "{workers} workers, {form}");
        for (header, payload) in &frames[1..] {
            begun.datagram(0, *header, payload);
        }
        assert_eq!(begun.until(&mut rig, 9), b"STORED\r\n", "{workers} workers, {form}");
        assert_eq!(count(&rig, "frames_no_room"), 1, "{workers} workers, {form}");
        drop(held);
        let (header, payload) = &frames[0];
        late.datagram(0, *header, payload);
        rig.turns(5);
        assert_eq!(count(&rig, "frames_no_room"), 1, "{workers} workers, {form}");
    }
}
