//! The client library's core against the real workers, as over RDMA but without a card: slots and
//! datagrams that lose, double and delay, and long messages by memory that one side opens to the
//! other, of which packets are lost or late: every answer right, and what each costs, counted.
//!
//! Another seed: `LANEWAY_SEED=7 cargo test -p laneway-server --test it afar_client`.

use laneway_rig as rig;

use crate::mix::{self, MILLISECOND, Mix, SECOND, World as _, seed};
use laneway_client::{Answer, Core, Error, Refusal, Remote, Request, Settings, Topology};
use laneway_policy::{Form, Placement, owner};
use laneway_rdma::contract::{Lend, LongRequester as _, Posted, Requester as _};
use laneway_rdma::long::sealed_descriptor::SealedDescriptor;
use laneway_rig::slot_faults::Faults;
use laneway_server::clock::Clock;
use laneway_wire::udp::{Header, Kind};
use rig::afar::{BYTES, Client, Way};
use rig::{Plan, Rig};
use std::os::unix::net::UnixStream;

/// What a turn takes beside the workers' steps.
const TURN_NANOS: u64 = MILLISECOND / 10;
/// A slice, as the server writes and reads it.
const SLICE_BYTES: usize = 32 << 10;
/// What a frame holds of a long message.
const FRAME_BYTES: u64 = 1392;

struct World {
    rig: Rig,
    core: Core,
    remote: Remote<Client>,
    _server: UnixStream,
}

impl World {
    fn new(plan: &Plan, seed: u64) -> World {
        let rig = Rig::new(plan);
        let (client, server) = rig.enter_afar();
        let queues = plan.workers as u16;
        let placement = Placement::new(owner::SEED, queues, 1).expect("there are workers");
        let topology = Topology::remote(queues, client.lent_bytes_max()).placed(placement);
        let core = Core::new(Settings::in_memory(), topology, seed);
        World { rig, core, remote: Remote::new(client), _server: server }
    }

    /// What the server counts of long messages.
    fn count(&self, name: &str) -> u64 {
        self.rig.rendezvous_buffers.as_ref().expect("it has clients afar").count(name)
    }

    /// What it counts of slots and datagrams.
    fn count_short(&self, name: &str) -> u64 {
        let sums = self.rig.registry.as_ref().expect("it serves memory").sums();
        sums.iter().find(|(told, _)| *told == name).expect("it is counted").1
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(self.ask(Request::set(key, value)).ok(), Some(Answer::Done));
    }

    fn get(&mut self, key: &str) -> Vec<u8> {
        match self.ask(Request::get(key)) {
            Ok(Answer::Value(value)) => value.data,
            other => panic!("{key}: {other:?}"),
        }
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
        self.remote.send(&mut self.core, now_nanos).expect("memory does not fail");
        self.rig.turn();
        self.rig.clock.advance(TURN_NANOS);
        let now_nanos = self.now_nanos();
        self.remote.receive(&mut self.core, now_nanos).expect("memory does not fail");
        self.core.tick(now_nanos);
    }
}

fn plan(reads: bool, parts: u64, faults_percent: u64) -> Plan {
    let way =
        Way { reads, faults_percent, seed: seed(), is_idle: false, is_stuck: false, bytes: BYTES };
    let shm = Some(Faults::each(seed(), parts));
    Plan { shm, afar: Some(way), ..Plan::of(2, Form::TimeShare) }
}

fn check(plan: Plan, requests: u64, failures: u64) -> Mix<World> {
    let seed = seed();
    let again = format!("LANEWAY_SEED={seed} cargo test -p laneway-server --test it afar_client");
    mix::check(World::new(&plan, seed), seed, (requests, 32, failures), again)
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_and_nothing_is_lost() {
    for reads in [true, false] {
        let mix = check(plan(reads, 0, 0), 10_000, 0);
        let counts = mix.world.core.counts();
        assert_eq!((counts.garbled, counts.unintelligible, counts.given_up), (0, 0, 0));
        assert!(mix.world.count("loans_claimed") > 50, "large values were lent");
        assert!(mix.world.count("notices") > 200, "large replies were placed");
        assert_eq!(mix.world.count("loans_torn"), 0);
    }
}

#[test]
fn ten_thousand_mixed_requests_are_answered_right_at_one_percent_of_each_fault() {
    for reads in [true, false] {
        let mix = check(plan(reads, 100, if reads { 0 } else { 2 }), 10_000, 10);
        let counts = mix.world.core.counts();
        assert!(counts.retries > 0);
        assert_eq!((counts.garbled, counts.unintelligible), (0, 0));
        assert!(reads || mix.world.count("loans_torn") > 0);
    }
}

#[test]
fn every_design_answers_right_whatever_the_wire_does() {
    for plan in rig::one_of_each_design() {
        for reads in [true, false] {
            let afar = self::plan(reads, 200, 10);
            check(Plan { shm: afar.shm, afar: afar.afar, ..plan.clone() }, 1_000, 3);
        }
    }
}

#[test]
fn where_there_is_no_room_or_no_memory_at_all_it_goes_in_frames() {
    for bytes in [0, 40 << 10] {
        let mut few = plan(true, 0, 0);
        few.afar = few.afar.map(|way| Way { bytes, ..way });
        let mix = check(few, 2_000, 0);
        assert_eq!(mix.world.count("notices") > 0, bytes > 0);
    }
}

/// Without a connection that moves long messages, as over datagrams both ways.
fn in_frames(parts: u64) -> World {
    let mut nothing = plan(true, parts, 0);
    nothing.afar = nothing.afar.map(|way| Way { bytes: 0, ..way });
    World::new(&nothing, seed())
}

#[test]
fn a_megabyte_goes_both_ways_in_frames_and_each_is_sent_once() {
    let mut world = in_frames(0);
    for round in 0..3 {
        let value = rig::value(1 << 20, round);
        world.set("large", &value);
        let before = (world.count_short("verbs_send"), world.core.counts().retries);
        assert!(world.get("large") == value, "round {round}");
        let after = (world.count_short("verbs_send"), world.core.counts().retries);
        let frames = ((1_u64 << 20) + 32).div_ceil(FRAME_BYTES);
        let sends = after.0 - before.0;
        assert!((frames..=frames + 8).contains(&sends), "{sends} for {frames} frames");
        assert_eq!(after.1 - before.1, 0);
    }
    assert_eq!((world.count("notices"), world.count("loans_claimed")), (0, 0));
}

#[test]
fn a_megabyte_in_frames_of_which_some_are_lost_is_asked_for_and_right() {
    let mut world = in_frames(100);
    let value = rig::value(1 << 20, 1);
    let stored = (0..5).any(|_| world.ask(Request::set("large", value.as_slice())).is_ok());
    assert!(stored, "seed {}", seed());
    let found = (0..5).find_map(|_| world.ask(Request::get("large")).ok());
    let found = match found {
        Some(Answer::Value(found)) => found,
        other => panic!("{other:?}, seed {}", seed()),
    };
    assert!(found.data == value, "seed {}", seed());
    let counts = world.core.counts();
    assert_eq!((counts.garbled, counts.unintelligible), (0, 0));
    assert!(counts.resends_asked > 0, "none was lost; seed {}", seed());
}

#[test]
fn a_small_request_is_one_write_there_and_one_send_back() {
    for bytes in [16, 64, 256, 1024] {
        let mut world = World::new(&plan(true, 0, 0), seed());
        let rounds = 200;
        for round in 0..rounds {
            let (key, value) = (format!("key:{}", round % 7), vec![7; bytes]);
            world.set(&key, &value);
            assert_eq!(world.get(&key), value);
        }
        let asked = 2 * rounds;
        let verbs = world.remote.verbs().verbs();
        assert_eq!((verbs.writes, verbs.receives), (asked, asked), "{bytes} bytes: one round trip");
        let long = ["verbs_write", "verbs_read", "notices"].map(|name| world.count(name));
        assert_eq!((world.count_short("verbs_send"), long), (asked, [0; 3]), "{bytes} bytes");
    }
}

#[test]
fn a_long_reply_is_a_write_for_each_slice_and_one_datagram() {
    let mut idle = plan(true, 0, 0);
    idle.afar = idle.afar.map(|way| Way { is_idle: true, ..way });
    let mut world = World::new(&idle, seed());
    for bytes in [1_500, 6_000, 31_000, 40_000, 300_000, 1 << 20] {
        let value = rig::value(bytes, bytes as u64);
        world.set("large", &value);
        let before = ["verbs_write", "notices"].map(|name| world.count(name));
        let sends = world.count_short("verbs_send");
        assert!(world.get("large") == value, "{bytes}");
        let after = ["verbs_write", "notices"].map(|name| world.count(name));
        let reply = bytes + format!("VALUE large 0 {bytes}\r\n\r\nEND\r\n").len();
        let slices = reply.div_ceil(SLICE_BYTES) as u64;
        assert_eq!((after[0] - before[0], after[1] - before[1]), (slices, 1), "{bytes}");
        assert_eq!(world.count_short("verbs_send") - sends, 1, "{bytes}");
    }
}

#[test]
fn a_long_value_is_read_slice_by_slice_and_its_memory_is_free_again() {
    for reads in [true, false] {
        let mut world = World::new(&plan(reads, 0, 0), seed());
        for round in 0..10 {
            let value = rig::value(900_000, round);
            let writes = world.remote.verbs().verbs().writes;
            world.set("large", &value);
            let more = world.remote.verbs().verbs().writes - writes;
            assert!(more <= 2, "a slot, and that the reply before is whole");
            assert!(world.get("large") == value, "round {round}");
        }
        assert_eq!((world.count("loans_claimed"), world.count("notices")), (10, 10));
        // Slices are whole frames.
        let slices = 900_000_u64.div_ceil(SLICE_BYTES as u64 / 1392 * 1392);
        assert_eq!(world.count("verbs_read"), 10 * slices);
    }
}

#[test]
fn a_value_that_is_repeated_in_another_way_is_stored_once() {
    // Replies are lost, so that what was stored is sent again, lent or, at last, in frames.
    let mut world = World::new(&plan(false, 2_500, 10), seed());
    for round in 0..60_u64 {
        let value = rig::value(9_000, round);
        if world.ask(Request::set("k", value.as_slice())).is_err() {
            continue;
        }
        let Ok(Answer::Value(before)) = world.ask(Request::gets("k")) else { continue };
        for _ in 0..200 {
            world.turn();
        }
        let Ok(Answer::Value(after)) = world.ask(Request::gets("k")) else { continue };
        assert_eq!(before.cas, after.cas, "round {round}, seed {}", seed());
    }
}

#[test]
fn a_value_longer_than_the_server_takes_is_refused_at_once_whether_a_card_reads_it_or_not() {
    for is_stuck in [false, true] {
        let mut plan = Plan { item_bytes_max: 512 << 10, ..plan(true, 0, 0) };
        plan.afar = plan.afar.map(|way| Way { is_stuck, ..way });
        let mut world = World::new(&plan, seed());
        world.set("k", b"old");
        let long = rig::value(1_800_000, 1);
        for request in [Request::append("k", long.as_slice()), Request::set("k", long.as_slice())] {
            assert_eq!(world.get("k"), b"old");
            let answer = world.ask(request);
            assert!(matches!(answer, Err(Error::Refused(Refusal::Server(_)))), "{answer:?}");
        }
        assert_eq!(world.ask(Request::get("k")).ok(), Some(Answer::Missing), "nothing stale");
        assert_eq!(world.core.counts().retries, 0, "the card is stuck: {is_stuck}");
    }
}

/// A datagram of a client that does as it likes.
fn datagram(kind: Kind, request_id: u16, payload: &[u8]) -> Vec<u8> {
    [&Header { kind, ..Header::whole(request_id) }.to_bytes()[..], payload].concat()
}

/// Posts a request in frames; says how many.
fn post_in_frames(client: &mut Client, request_id: u16, message: &[u8]) -> usize {
    let frames = message.chunks(1392);
    let total = frames.len() as u16;
    for (number, frame) in frames.enumerate() {
        let header = Header { request_id, sequence: number as u16, total, kind: Kind::Data };
        let frame = [&header.to_bytes()[..], frame].concat();
        assert_eq!(client.post_request(0, &frame), Posted::Done);
    }
    usize::from(total)
}

#[test]
fn a_value_that_was_lent_and_comes_again_in_frames_is_stored_once() {
    let mut world = World::new(&plan(true, 0, 0), seed());
    let (mut client, _server) = world.rig.enter_afar();
    // More than a slice, so that its digest is made of several.
    let value = rig::value(40_000, 1);
    let message = [b"set k 0 0 40000\r\n", &value[..], b"\r\n"].concat();
    let Lend::Lent(sealed_descriptor) = client.lend(5, &message) else { panic!("there is room") };
    assert_eq!(
        client.post_request(0, &datagram(Kind::Lent, 5, &sealed_descriptor.to_bytes())),
        Posted::Done
    );
    (0..400).for_each(|_| world.turn());
    assert!(world.get("k") == value);
    world.set("k", b"newer");
    post_in_frames(&mut client, 5, &message);
    (0..400).for_each(|_| world.turn());
    assert!(world.get("k") == b"newer", "it was stored again; seed {}", seed());
}

#[test]
fn parcels_that_say_what_is_not_so_harm_nobody() {
    let mut world = World::new(&plan(true, 0, 0), seed());
    let (mut bad, _server) = world.rig.enter_afar();
    let message = b"set k 0 0 2000\r\n";
    let rkey = SealedDescriptor::of(1, 0, message);
    for (id, said) in [
        vec![],
        vec![0; 23],
        vec![255; 24],
        rkey.to_bytes().to_vec(),
        SealedDescriptor { offset: BYTES as u32, ..rkey }.to_bytes().to_vec(),
        SealedDescriptor { bytes: u32::MAX, ..rkey }.to_bytes().to_vec(),
        SealedDescriptor { bytes: 0, ..rkey }.to_bytes().to_vec(),
        SealedDescriptor { bytes: BYTES as u32, ..rkey }.to_bytes().to_vec(),
    ]
    .into_iter()
    .enumerate()
    {
        for kind in [Kind::Lent, Kind::Notice] {
            let said = datagram(kind, id as u16, &said);
            assert_eq!(bad.post_request(0, &said), Posted::Done);
            (0..400).for_each(|_| world.turn());
            bad.poll_replies(64, &mut |_, bytes| {
                let (header, _) = Header::parse(bytes).expect("it has a header");
                assert_eq!(header.kind, Kind::Resend, "it is asked for what it has not lent");
            });
        }
    }
    world.set("k", b"v");
    assert_eq!(world.get("k"), b"v");
}

/// What a client without a core has been sent, by kind.
fn taken(client: &mut Client) -> Vec<Kind> {
    let mut kinds = Vec::new();
    client.poll_replies(1_000, &mut |_, bytes| {
        kinds.push(Header::parse(bytes).expect("it has a header").0.kind);
    });
    kinds
}

#[test]
fn a_lent_request_whose_answer_nobody_knows_any_more_is_carried_out_again() {
    let mut world = World::new(&plan(true, 0, 0), seed());
    world.set("large", &rig::value(300_000, 1));
    let (mut client, _server) = world.rig.enter_afar();
    // A long request with a long reply, which is not remembered.
    let message = [&b"get large"[..], &b" nothing".repeat(250), b"\r\n"].concat();
    let Lend::Lent(sealed_descriptor) = client.lend(5, &message) else { panic!("there is room") };
    for round in 1..=3 {
        let lent = datagram(Kind::Lent, 5, &sealed_descriptor.to_bytes());
        assert_eq!(client.post_request(0, &lent), Posted::Done);
        (0..400).for_each(|_| world.turn());
        assert!(!taken(&mut client).is_empty(), "round {round} has no answer; seed {}", seed());
    }
}

#[test]
fn what_a_card_does_not_move_goes_in_frames_and_holds_no_room_for_ever() {
    let mut stuck = plan(true, 0, 0);
    stuck.afar = stuck.afar.map(|way| Way { is_stuck: true, ..way });
    let mut world = World::new(&stuck, seed());
    let (mut client, _server) = world.rig.enter_afar();
    let value = rig::value(40_000, 1);
    let message = [b"set k 0 0 40000\r\n", &value[..], b"\r\n"].concat();
    let Lend::Lent(sealed_descriptor) = client.lend(5, &message) else { panic!("there is room") };
    assert_eq!(
        client.post_request(0, &datagram(Kind::Lent, 5, &sealed_descriptor.to_bytes())),
        Posted::Done
    );
    (0..400).for_each(|_| world.turn());
    assert_eq!(taken(&mut client), [], "it is being read");
    world.rig.clock.advance(3 * SECOND);
    (0..400).for_each(|_| world.turn());
    assert_eq!(taken(&mut client), [Kind::Resend], "seed {}", seed());
    let frames = post_in_frames(&mut client, 5, &message);
    (0..400).for_each(|_| world.turn());
    assert_eq!(taken(&mut client), [Kind::Data], "it is stored");
    assert_eq!(client.post_request(0, &datagram(Kind::Data, 6, b"get k\r\n")), Posted::Done);
    (0..400).for_each(|_| world.turn());
    let sent = taken(&mut client);
    if sent.is_empty() {
        // It was of the large lane, and has waited for the card.
        world.rig.clock.advance(3 * SECOND);
        (0..400).for_each(|_| world.turn());
    }
    let sent = [sent, taken(&mut client)].concat();
    assert_eq!(sent, vec![Kind::Data; frames], "seed {}", seed());
    assert_eq!(world.count("replies_unplaced"), 1);
}

#[test]
fn a_client_that_takes_none_of_its_replies_keeps_nobody_from_theirs() {
    let mut world = World::new(&plan(true, 0, 0), seed());
    let value = rig::value(700_000, 1);
    world.set("large", &value);
    let (mut stalled, _server) = world.rig.enter_afar();
    for id in 0..8 {
        let request = datagram(Kind::Data, id, b"get large\r\n");
        assert_eq!(stalled.post_request(0, &request), Posted::Done);
    }
    for _ in 0..20 {
        assert!(world.get("large") == value);
    }
    assert!(world.count("replies_unplaced") > 0, "two of its own fit");
    assert!(world.count("notices") >= 22);
    // What it does not take is free again in time.
    world.rig.clock.advance(3 * SECOND);
    let expired = world.count("places_expired");
    stalled.poll_replies(1_000, &mut |_, _| ());
    assert_eq!(stalled.post_request(0, &datagram(Kind::Data, 9, b"get large\r\n")), Posted::Done);
    (0..200).for_each(|_| world.turn());
    assert!(world.count("places_expired") > expired);
}
