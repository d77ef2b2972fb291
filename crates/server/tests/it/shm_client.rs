//! The client library's core against the real workers, over memory that both share, which loses,
//! doubles and delays by seed: every answer right, in the designs and forms that route differently.
//! And what a request costs, counted.
//!
//! Another seed: `LANEWAY_SEED=7 cargo test -p laneway-server --test it shm_client`.

use laneway_rig as rig;

use crate::mix::{self, MILLISECOND, Mix, World as _, seed};
use laneway_client::{Answer, Core, Error, Memory, Refusal, Request, Settings, Topology};
use laneway_policy::{Form, Placement, owner};
use laneway_rdma::contract::{Descriptor, Posted, Requester as _, Verbs};
use laneway_rdma::door::Version;
use laneway_rdma::shmring::RingRequester;
use laneway_rig::slot_faults::Faults;
use laneway_server::clock::Clock;
use laneway_wire::udp::resend::forget;
use laneway_wire::udp::{Header, Kind};
use rig::{Plan, Rig};
use std::os::unix::net::UnixStream;

/// What a turn takes beside the workers' steps.
const TURN_NANOS: u64 = MILLISECOND / 10;

struct World {
    rig: Rig,
    core: Core,
    memory: Memory,
    _server: UnixStream,
}

impl World {
    fn new(plan: &Plan, seed: u64) -> World {
        World::of(Version::Placed, plan, seed)
    }

    fn of(version: Version, plan: &Plan, seed: u64) -> World {
        let rig = Rig::new(plan);
        let (ring, _, server) = rig.enter_as(version);
        let queues = plan.workers as u16;
        let placement = Placement::new(owner::SEED, queues, 1).expect("there are workers");
        let topology = Topology::in_memory(queues, ring.terms().bulk_bytes).placed(placement);
        let core = Core::new(Settings::in_memory(), topology, seed);
        World { rig, core, memory: Memory::new(ring), _server: server }
    }

    /// What the server counts under a name.
    fn count(&self, name: &str) -> u64 {
        let sums = self.rig.registry.as_ref().expect("it serves memory").sums();
        sums.iter().find(|(told, _)| *told == name).expect("it is counted").1
    }

    fn verbs(&self) -> Verbs {
        self.memory.ring().verbs()
    }
}

impl mix::World for World {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn now_nanos(&self) -> u64 {
        self.rig.clock.nanos()
    }

    fn turn(&mut self) {
        let now_nanos = self.now_nanos();
        self.memory.send(&mut self.core, now_nanos).expect("memory does not fail");
        self.rig.turn();
        self.rig.clock.advance(TURN_NANOS);
        let now_nanos = self.now_nanos();
        self.memory.receive(&mut self.core, now_nanos).expect("memory does not fail");
        self.core.tick(now_nanos);
    }
}

fn check(plan: Plan, requests: u64, failures: u64) -> Mix<World> {
    check_as(Version::Placed, plan, requests, failures)
}

fn check_as(version: Version, plan: Plan, requests: u64, failures: u64) -> Mix<World> {
    let seed = plan.shm.expect("it serves memory").seed;
    let again = format!("LANEWAY_SEED={seed} cargo test -p laneway-server --test it shm_client");
    mix::check(World::of(version, &plan, seed), seed, (requests, 32, failures), again)
}

fn faults(parts: u64) -> Option<Faults> {
    Some(Faults::each(seed(), parts))
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_and_nothing_is_lost() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mix = check(plan, 10_000, 0);
    let counts = mix.world.core.counts();
    assert_eq!((counts.garbled, counts.unintelligible, counts.given_up), (0, 0, 0));
    for name in ["stale", "impossible", "replies_to_nobody"] {
        assert_eq!(mix.world.count(name), 0, "{name}");
    }
    assert!(mix.world.count("loans_claimed") > 50, "large values were lent");
    assert!(mix.world.count("notices") > 10, "and lay in their places");
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_at_one_percent_of_each_fault() {
    for version in [Version::Framed, Version::Placed] {
        let plan = Plan { shm: faults(100), ..Plan::of(2, Form::TimeShare) };
        let mix = check_as(version, plan, 10_000, 10);
        let counts = mix.world.core.counts();
        let is_placed = version == Version::Placed;
        assert!(counts.retries > 0 && (is_placed || counts.resends_asked > 0));
        assert_eq!((counts.garbled, counts.unintelligible), (0, 0));
        assert_eq!(mix.world.count("notices") > 0, is_placed);
    }
}

#[test]
fn every_design_answers_right_whatever_the_memory_does() {
    for plan in rig::one_of_each_design() {
        check(Plan { shm: faults(300), ..plan }, 1_500, 2);
    }
}

#[test]
fn a_set_that_is_repeated_is_carried_out_once() {
    let plan = Plan { shm: faults(1000), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    for round in 0..300_u64 {
        // A second set would change the id that the first has given.
        assert_eq!(world.ask(Request::set("k", round.to_string())).ok(), Some(Answer::Done));
        let Ok(Answer::Value(before)) = world.ask(Request::gets("k")) else {
            panic!("it is there")
        };
        for _ in 0..20 {
            world.turn();
        }
        let Ok(Answer::Value(after)) = world.ask(Request::gets("k")) else { panic!("it is there") };
        assert_eq!(before, after, "round {round}, seed {}", seed());
    }
}

#[test]
fn a_small_request_is_one_write_there_and_one_send_back() {
    for bytes in [16, 64, 256, 1024] {
        let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
        let mut world = World::new(&plan, seed());
        let rounds = 500;
        for round in 0..rounds {
            let key = format!("key:{}", round % 7);
            assert_eq!(
                world.ask(Request::set(key.as_str(), vec![7; bytes])).ok(),
                Some(Answer::Done)
            );
            let Ok(Answer::Value(value)) = world.ask(Request::get(key)) else {
                panic!("it is there")
            };
            assert_eq!(value.data, vec![7; bytes]);
        }
        let asked = 2 * rounds;
        let verbs = world.verbs();
        let client = (verbs.writes, verbs.receives, verbs.sends, verbs.reads);
        assert_eq!(client, (asked, asked, 0, 0), "{bytes} bytes: one round trip each");
        let server = (world.count("verbs_send"), world.count("verbs_read"));
        assert_eq!(server, (asked, 0), "{bytes} bytes: one verb of the server each");
        assert_eq!(world.count("requests"), asked);
    }
}

#[test]
fn a_large_value_is_read_where_it_lies_and_its_memory_is_free_again() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    // More than the client may lend at a time, one behind the other.
    for round in 0..10_u8 {
        let value = vec![round; 1 << 20];
        assert_eq!(world.ask(Request::set("large", value.clone())).ok(), Some(Answer::Done));
        let Ok(Answer::Value(found)) = world.ask(Request::get("large")) else {
            panic!("it is there")
        };
        assert!(found.data == value, "round {round}");
    }
    assert_eq!(world.count("loans_claimed"), 10);
    let slices = (1 << 20) / (32 * 1024) + 1;
    assert_eq!((world.count("verbs_read"), world.count("verbs_write")), (10 * slices, 10 * slices));
    let replies = (world.count("notices"), world.count("replies_unplaced"));
    assert_eq!((replies, world.count("places_expired")), ((10, 0), 0), "in the same memory");
    // The last `I have it whole` leaves with the next request.
    assert_eq!(world.verbs().writes as usize, 10 + 10 + 9, "set, get and `I have it whole`");
}

#[test]
fn large_values_one_behind_the_other_are_copied_into_one_buffer_which_is_given_back() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    for round in 0..10_u8 {
        let bytes = (1 << 20) - 1000 * usize::from(round);
        assert_eq!(world.ask(Request::set("large", vec![round; bytes])).ok(), Some(Answer::Done));
        // Of two buffers one would be kept, and the other given to the store.
        assert_eq!(world.rig.shared.store.buffer_bytes(), 0, "round {round}");
    }
    assert_eq!(world.count("loans_claimed"), 10);
    let mut given = 0;
    for _ in 0..3 {
        world.rig.clock.advance(1000 * MILLISECOND);
        world.rig.turn();
        given = given.max(world.rig.shared.store.buffer_bytes());
    }
    assert!(given > 0, "nobody needs it");
}

/// The kernel takes each page of it back by itself.
#[test]
fn the_copy_of_a_value_too_long_to_be_kept_is_given_back_a_stretch_at_a_time() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    assert_eq!(world.ask(Request::set("large", vec![1; 3 << 20])).ok(), Some(Answer::Done));
    let store = &world.rig.shared.store;
    let copied = store.buffer_bytes();
    assert!(copied > 512 << 10, "{copied} bytes were not given back in one step");
    // Who sends the next gives it back.
    assert_eq!(world.ask(Request::set("large", vec![2; 3 << 20])).ok(), Some(Answer::Done));
    assert!(world.rig.shared.store.buffer_bytes() < 2 * copied);
}

#[test]
fn the_copy_of_a_long_message_that_is_refused_is_given_back_a_stretch_at_a_time() {
    // Longer than its first request, and shorter than it says.
    for line in [&b"get k\r\n"[..], b"set k 0 0 9999999\r\n"] {
        let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
        let mut world = World::new(&plan, seed());
        let (mut bad, _, _server) = world.rig.enter();
        let message = [line, &vec![b'x'; 3 << 20][..]].concat();
        let lent = bad.lend(&message).expect("there is room");
        let said = datagram(Kind::Lent, 1, &lent.to_bytes());
        assert_eq!(bad.post_request(0, &said), Posted::Done);
        let (mut replies, mut given) = (0, 0);
        for _ in 0..1_000 {
            world.turn();
            bad.poll_replies(8, &mut |_, _| replies += 1);
            given = given.max(world.rig.shared.store.buffer_bytes());
        }
        assert!(replies > 0 && given > 512 << 10, "{given} bytes were not given back in one step");
    }
}

#[test]
fn a_value_longer_than_the_server_takes_is_refused_and_not_left_lying() {
    let plan = Plan { shm: faults(0), item_bytes_max: 1 << 20, ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    for bytes in [1 << 20, 3 << 20] {
        assert_eq!(world.ask(Request::set("k", "old")).ok(), Some(Answer::Done));
        let answer = world.ask(Request::set("k", vec![7; bytes]));
        assert!(matches!(answer, Err(Error::Refused(Refusal::Server(_)))), "{bytes}: {answer:?}");
        assert_eq!(world.ask(Request::get("k")).ok(), Some(Answer::Missing), "nothing stale");
    }
}

#[test]
fn many_clients_with_full_windows_all_get_their_answers() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    let more: Vec<_> = (0..3).map(|_| world.rig.enter()).collect();
    let mut others: Vec<(Core, Memory)> = Vec::new();
    let mut servers = Vec::new();
    for (number, (ring, _, server)) in more.into_iter().enumerate() {
        let topology = Topology::in_memory(2, ring.terms().bulk_bytes);
        let core = Core::new(Settings::in_memory(), topology, number as u64);
        others.push((core, Memory::new(ring)));
        servers.push(server);
    }
    let asked = 400;
    for (number, (core, _)) in others.iter_mut().enumerate() {
        for request in 0..asked {
            let set = Request::set(format!("{number}:{request}"), vec![number as u8; 700]);
            core.push(set, 0).expect("there is room");
        }
    }
    for _ in 0..100_000 {
        if others.iter().all(|(core, _)| core.is_idle()) {
            return;
        }
        for (core, memory) in &mut others {
            memory.send(core, world.now_nanos()).expect("memory does not fail");
        }
        world.turn();
        for (core, memory) in &mut others {
            memory.receive(core, world.now_nanos()).expect("memory does not fail");
            while let Some((_, answer)) = core.answer() {
                assert_eq!(answer.expect("it is stored"), Answer::Done);
            }
        }
    }
    panic!("not all were answered");
}

/// A datagram of a client that does as it likes.
fn datagram(kind: Kind, request_id: u16, payload: &[u8]) -> Vec<u8> {
    [&Header { kind, ..Header::whole(request_id) }.to_bytes()[..], payload].concat()
}

#[test]
fn a_large_reply_goes_on_for_as_long_as_its_client_takes_of_it() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    let value = vec![3; 1 << 20];
    assert_eq!(world.ask(Request::set("large", value.clone())).ok(), Some(Answer::Done));
    let (mut slow, _, _server) = world.rig.enter_as(Version::Framed);
    assert_eq!(slow.post_request(0, &datagram(Kind::Data, 9, b"get large\r\n")), Posted::Done);
    let mut frames = std::collections::BTreeMap::new();
    for _ in 0..1_000 {
        world.rig.turn();
        // Each turn a fifth of a second and a few of seven hundred frames, so there is never room
        // for a whole train.
        world.rig.clock.advance(200 * MILLISECOND);
        slow.poll_replies(8, &mut |_, bytes| {
            let (header, payload) = Header::parse(bytes).expect("it has a header");
            frames.insert(header.sequence, (header.total, payload.to_vec()));
        });
        slow.pump().expect("memory does not fail");
    }
    let total = frames.first_key_value().expect("it was answered").1.0;
    assert_eq!(frames.len(), usize::from(total), "all of them");
    let message: Vec<u8> = frames.into_values().flat_map(|(_, payload)| payload).collect();
    assert!(message == [b"VALUE large 0 1048576\r\n", &value[..], b"\r\nEND\r\n"].concat());
}

#[test]
fn replies_that_nobody_takes_keep_their_places_for_a_while_and_the_next_goes_in_frames() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    assert_eq!(world.ask(Request::set("large", vec![3; 1 << 20])).ok(), Some(Answer::Done));
    let (mut slow, _, _server) = world.rig.enter();
    // The kinds of what comes, one behind the other.
    let kinds = |slow: &mut RingRequester, world: &mut World, id: u16| {
        let mut kinds = Vec::new();
        assert_eq!(slow.post_request(0, &datagram(Kind::Data, id, b"get large\r\n")), Posted::Done);
        for _ in 0..500 {
            world.rig.turn();
            slow.poll_replies(64, &mut |_, bytes| {
                let (header, _) = Header::parse(bytes).expect("it has a header");
                assert_eq!(header.request_id, id);
                kinds.push(header.kind);
            });
            slow.pump().expect("memory does not fail");
        }
        kinds.dedup();
        kinds
    };
    // Of four megabytes a reply takes a little more than one.
    for id in 1..=3 {
        assert_eq!(kinds(&mut slow, &mut world, id), [Kind::Notice], "reply {id}");
    }
    assert_eq!(kinds(&mut slow, &mut world, 4), [Kind::Data]);
    assert_eq!((world.count("notices"), world.count("replies_unplaced")), (3, 1));
    world.rig.clock.advance(3_000 * MILLISECOND);
    assert_eq!(kinds(&mut slow, &mut world, 5), [Kind::Notice]);
    assert_eq!(world.count("places_expired"), 3);
    // Whoever says that it has a reply gives its place back at once.
    for id in 5..=20 {
        let forget = forget(id, 754);
        assert_eq!(slow.post_request(0, &forget), Posted::Done);
        world.rig.turn();
        assert_eq!(kinds(&mut slow, &mut world, id + 1), [Kind::Notice], "reply {id}");
    }
    assert_eq!((world.count("replies_unplaced"), world.count("places_expired")), (1, 3));
}

#[test]
fn a_reply_of_one_frame_is_sent_however_low_the_threshold_is() {
    let plan = Plan { shm: faults(0), threshold_bytes: 100, ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    for bytes in [99, 500, 1_300, 1_392, 5_000] {
        let value = vec![7; bytes];
        assert_eq!(world.ask(Request::set("k", value.clone())).ok(), Some(Answer::Done));
        let Ok(Answer::Value(found)) = world.ask(Request::get("k")) else {
            panic!("{bytes} bytes are there")
        };
        assert!(found.data == value, "{bytes} bytes");
    }
    assert_eq!((world.count("notices"), world.core.counts().retries), (2, 0));
}

#[test]
fn a_notice_waits_for_two_seconds_for_room_among_the_replies() {
    for (wait, comes) in [(15, true), (35, false)] {
        let plan = Plan { shm: faults(0), ..Plan::of(1, Form::TimeShare) };
        let mut world = World::new(&plan, seed());
        assert_eq!(world.ask(Request::set("large", vec![3; 1 << 20])).ok(), Some(Answer::Done));
        let (mut slow, _, _server) = world.rig.enter();
        let ask = |slow: &mut RingRequester, world: &mut World, id: u16, line: &[u8]| {
            assert_eq!(slow.post_request(0, &datagram(Kind::Data, id, line)), Posted::Done);
            (0..3).for_each(|_| world.rig.turn());
        };
        // Small replies that nobody takes have all places.
        for id in 0..slow.terms().replies as u16 {
            ask(&mut slow, &mut world, id, b"get nothing\r\n");
        }
        ask(&mut slow, &mut world, 99, b"get large\r\n");
        (0..100).for_each(|_| world.rig.turn());
        assert_eq!((world.count("notices"), world.count("verbs_write")), (1, 33), "it is written");
        for _ in 0..wait {
            world.rig.clock.advance(100 * MILLISECOND);
            world.rig.turn();
        }
        let mut kinds = Vec::new();
        for _ in 0..100 {
            slow.poll_replies(64, &mut |_, bytes| {
                let (header, _) = Header::parse(bytes).expect("it has a header");
                if header.request_id == 99 {
                    kinds.push(header.kind);
                }
            });
            slow.pump().expect("memory does not fail");
            world.rig.turn();
        }
        let wanted: &[Kind] = if comes { &[Kind::Notice] } else { &[] };
        assert_eq!(kinds, wanted, "behind {wait} tenths of a second");
    }
}

#[test]
fn descriptors_that_say_what_is_not_so_harm_nobody() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    let (mut bad, _, _server) = world.rig.enter();
    let mut said = 0;
    let mut say = |bad: &mut RingRequester, world: &mut World, bytes: &[u8]| {
        said += 1;
        assert_eq!(bad.post_request(0, &datagram(Kind::Lent, said, bytes)), Posted::Done);
        (0..20).for_each(|_| world.turn());
        let mut replies = 0;
        bad.poll_replies(64, &mut |_, _| replies += 1);
        replies
    };
    for short in [&b""[..], b"12345678", &[0; 25]] {
        assert_eq!(say(&mut bad, &mut world, short), 0);
    }
    // Empty, one byte, no request, and a request that is cut short: claimed, and no more than that.
    for (bytes, message) in [
        (0, &b"get k\r\n"[..]),
        (1, b"get k\r\n"),
        (9, b"no such\r\n"),
        (16, b"set k 0 0 9\r\nxyz"),
    ] {
        let lent = Descriptor { bytes, ..bad.lend(message).expect("there is room") };
        say(&mut bad, &mut world, &lent.to_bytes());
        assert_eq!(say(&mut bad, &mut world, &lent.to_bytes()), 0, "it was claimed before");
        bad.take_back(lent);
    }
    assert_eq!((world.count("loans_claimed"), world.count("loans_refused")), (4, 4));
    // Beyond what it may lend, and longer than any item.
    let lent = bad.lend(b"get k\r\n").expect("there is room");
    let end = bad.terms().bulk_bytes as u64;
    for (offset, bytes) in [(end, 1), (end - 4, 8), (u64::MAX, 8), (0, u32::MAX), (8, end as u32)] {
        let wrong = Descriptor { offset, bytes, ..lent };
        assert_eq!(say(&mut bad, &mut world, &wrong.to_bytes()), 0, "{wrong:?}");
    }
    assert_eq!(world.count("loans_claimed"), 4);
    assert_eq!(say(&mut bad, &mut world, &lent.to_bytes()), 1, "END");
    assert_eq!(world.ask(Request::set("k", "v")).ok(), Some(Answer::Done));
}

#[test]
fn a_loan_that_is_being_read_is_not_answered_as_the_request_that_had_its_number_before() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    let (mut other, _, _server) = world.rig.enter();
    let large = [&b"set k 0 0 1048576\r\n"[..], &vec![b'v'; 1 << 20][..], &b"\r\n"[..]].concat();
    // The second comes twice before anything of it is read, and again behind its answer.
    let requests = [
        (&b"delete k\r\n"[..], [1, 1], &b"NOT_FOUND\r\n"[..]),
        (&large[..], [2, 1], b"STORED\r\n"),
    ];
    for (request, posts, wanted) in requests {
        let lent = other.lend(request).expect("there is room");
        for posts in posts {
            for _ in 0..posts {
                let said = datagram(Kind::Lent, 7, &lent.to_bytes());
                assert_eq!(other.post_request(0, &said), Posted::Done);
            }
            let mut replies = Vec::new();
            for _ in 0..1_000 {
                world.turn();
                other.poll_replies(8, &mut |_, bytes| {
                    let (header, payload) = Header::parse(bytes).expect("it has a header");
                    replies.push((header.request_id, payload.to_vec()));
                });
            }
            assert_eq!(replies, [(7, wanted.to_vec())]);
        }
        other.take_back(lent);
    }
    assert_eq!(rig::peer::count(&world.rig, "repeats_under_way"), 1);
}

#[test]
fn a_line_that_its_client_changes_behind_the_first_slice_is_what_it_was() {
    let plan = Plan { shm: faults(0), ..Plan::of(2, Form::TimeShare) };
    let mut world = World::new(&plan, seed());
    let (mut bad, _, _server) = world.rig.enter();
    let message = |line: &[u8], byte: u8| [line, &vec![byte; 1 << 20][..], &b"\r\n"[..]].concat();
    let answer = |bad: &mut RingRequester, world: &mut World| {
        let mut replies = Vec::new();
        for _ in 0..1_000 {
            world.turn();
            bad.poll_replies(8, &mut |_, bytes| {
                let (header, payload) = Header::parse(bytes).expect("it has a header");
                replies.push((header.request_id, payload.to_vec()));
            });
        }
        replies
    };
    let lent = bad.lend(&message(b"set else 0 0 1048576\r\n", b'e')).expect("there is room");
    let said = datagram(Kind::Lent, 1, &lent.to_bytes());
    assert_eq!(bad.post_request(0, &said), Posted::Done);
    assert_eq!(answer(&mut bad, &mut world), [(1, b"STORED\r\n".to_vec())]);
    bad.take_back(lent);
    // A loan of a few bytes, of which the client says that it is all the memory behind them: it
    // may write that at any time.
    let short = bad.lend(b"get k\r\n").expect("there is room");
    let first = bad.lend(&message(b"set torn 0 0 1048576\r\n", b'a')).expect("there is room");
    bad.take_back(first);
    let lent = Descriptor { loan: short.loan, number: short.number, ..first };
    let before = world.count("verbs_read");
    let said = datagram(Kind::Lent, 2, &lent.to_bytes());
    assert_eq!(bad.post_request(0, &said), Posted::Done);
    for _ in 0..1_000 {
        if world.count("verbs_read") > before {
            break;
        }
        world.turn();
    }
    let pieces = world.count("verbs_read") - before;
    assert!((1..30).contains(&pieces), "{pieces} of 33 were read");
    // Another key, and another length.
    let second = bad.lend(&message(b"set mine 0 0 9999999\r\n", b'b')).expect("there is room");
    assert_eq!((second.offset, second.bytes), (first.offset, first.bytes), "the same memory");
    assert_eq!(answer(&mut bad, &mut world), [(2, b"STORED\r\n".to_vec())]);
    assert_eq!(world.ask(Request::get("mine")).ok(), Some(Answer::Missing));
    let Ok(Answer::Value(torn)) = world.ask(Request::get("torn")) else { panic!("it is there") };
    let split = torn.data.iter().position(|&byte| byte == b'b').expect("what was lent then");
    assert!(split > 0 && torn.data.len() == 1 << 20);
    // And nothing of what was copied into the same buffer before.
    assert!(torn.data[..split].iter().all(|&byte| byte == b'a'));
    assert!(torn.data[split..].iter().all(|&byte| byte == b'b'));
}
