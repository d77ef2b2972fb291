//! What a GET and a PUT cost, counted, beside what HERD says of each design (§2.3, §4, §5.1).

use crate::rig::World;
use laneway_rdma::contract::Verbs;
use laneway_studies::rivals::client::Answer;
use laneway_studies::rivals::design::Design;
use laneway_studies::rivals::server::Sizes;
use laneway_studies::rivals::tally::Tally;

const KEY_BYTES: usize = 16;
const ITEMS: u64 = 3_000;

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (number + at) as u8).collect()
}

/// What all of one kind of request cost.
#[derive(Debug)]
struct Cost {
    trips: u64,
    client: Tally,
    server: Tally,
}

/// Every key once, `window` at a time.
fn run(world: &mut World, bytes: usize, is_get: bool) -> Cost {
    let (client, server) = (world.client.tally(), world.server.tally());
    let (mut begun, mut ended, mut trips) = (0, 0, 0);
    while ended < ITEMS {
        while begun < ITEMS && world.client.has_room() {
            let key = key(begun);
            let begin = match is_get {
                true => world.client.get(begun, &key),
                false => world.client.put(begun, &key, &value(begun, bytes)),
            };
            begin.expect("there is room");
            begun += 1;
        }
        let end = world.end();
        let expected = match is_get {
            true => Answer::Value(value(end.ticket, bytes)),
            false => Answer::Done,
        };
        assert_eq!((end.result, end.torn), (Ok(expected), 0));
        trips += u64::from(end.trips);
        ended += 1;
    }
    let (client, server) = (world.client.tally() - client, world.server.tally() - server);
    assert_eq!((world.client.unintelligible(), world.server.met()), (0, Default::default()));
    Cost { trips, client, server }
}

fn verbs(writes: u64, sends: u64, receives: u64, reads: u64) -> Verbs {
    Verbs { writes, sends, receives, reads, rings: 0 }
}

/// So much of each for every item.
fn times(verbs: Verbs) -> Verbs {
    let Verbs { writes, sends, receives, reads, rings } = verbs;
    Verbs {
        writes: writes * ITEMS,
        sends: sends * ITEMS,
        receives: receives * ITEMS,
        reads: reads * ITEMS,
        rings: rings * ITEMS,
    }
}

/// Both kinds of request: what each side posts for one, WRITE, SEND, RECV, READ. Of Pilaf's GETs
/// only the mean is known.
type Row = (Design, [u64; 4], [u64; 4], [u64; 4], [u64; 4]);
const TABLE: [Row; 4] = [
    //              client: GET   server: GET   client: PUT   server: PUT
    (Design::Herd, [1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]),
    (Design::Send, [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0]),
    (Design::Farm, [0, 0, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]),
    (Design::FarmVar, [0, 0, 0, 2], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]),
];

fn world(design: Design, bytes: usize, window: usize) -> World {
    World::new(design, Sizes::of(design, ITEMS as usize, KEY_BYTES, bytes), window)
}

#[test]
fn each_design_costs_the_verbs_and_round_trips_that_herd_says() {
    for (bytes, window) in [(16, 1), (64, 3), (256, 16), (1024, 32)] {
        for (design, get_client, get_server, put_client, put_server) in TABLE {
            let what = format!("{design}, {bytes} bytes, window {window}");
            let all = |[writes, sends, receives, reads]: [u64; 4]| {
                times(verbs(writes, sends, receives, reads))
            };
            let mut world = world(design, bytes, window);
            let put = run(&mut world, bytes, false);
            assert_eq!(put.client.verbs, all(put_client), "{what}: PUT");
            assert_eq!(put.server.verbs, all(put_server), "{what}: PUT");
            assert_eq!(put.trips, ITEMS, "{what}: PUT");
            let get = run(&mut world, bytes, true);
            assert_eq!(get.client.verbs, all(get_client), "{what}: GET");
            assert_eq!(get.server.verbs, all(get_server), "{what}: GET");
            let trips = if design == Design::FarmVar { 2 } else { 1 };
            assert_eq!(get.trips, trips * ITEMS, "{what}: GET");
            // HERD's own way: one trip, and two verbs that the server's card has to do with.
            if design == Design::Herd {
                for cost in [put, get] {
                    let at_server = cost.client.on_the_wire() + cost.server.on_the_wire();
                    assert_eq!((at_server, cost.server.posted()), (2 * ITEMS, ITEMS), "{what}");
                }
            }
        }
    }
}

#[test]
fn pilaf_finds_a_key_in_2_6_reads_on_average_and_its_puts_are_sent() {
    for (bytes, window) in [(16, 1), (1024, 32)] {
        let mut world = world(Design::Pilaf, bytes, window);
        let put = run(&mut world, bytes, false);
        assert_eq!(put.client.verbs, times(verbs(0, 1, 1, 0)));
        assert_eq!(put.server.verbs, times(verbs(0, 1, 1, 0)));
        assert_eq!(put.trips, ITEMS);
        let get = run(&mut world, bytes, true);
        assert_eq!(get.server.verbs, Verbs::default(), "its CPU knows nothing");
        assert_eq!(get.client.verbs, verbs(0, 0, 0, get.trips), "each READ is a round trip");
        let mean = get.trips as f64 / ITEMS as f64;
        // 1.6 buckets where three quarters of them are taken, and the extent (HERD §2.3, §5.1.1).
        assert!((2.5..2.7).contains(&mean), "{mean} READs");
        let probes = get.trips - ITEMS;
        assert_eq!(get.client.bytes_read, 32 * probes + (KEY_BYTES + bytes) as u64 * ITEMS);
    }
}

#[test]
fn bytes_are_those_of_the_messages_and_of_what_is_read() {
    for bytes in [16, 100, 1024] {
        let padded = |bytes: usize| (bytes.next_multiple_of(8) + 8) as u64;
        let (asked, put) = (8 + KEY_BYTES, 8 + KEY_BYTES + bytes);
        let slot = (16 + KEY_BYTES + bytes).next_multiple_of(8);
        let rows = [
            // design, GET: sent, READ, answered; PUT: sent, answered
            (Design::Herd, padded(asked), 0, 8 + bytes, padded(put), 8),
            (Design::Send, asked as u64, 0, 8 + bytes, put as u64, 8),
            (Design::Farm, 0, 6 * slot, 0, padded(put), 16),
            (Design::FarmVar, 0, 6 * (32 + KEY_BYTES) + bytes, 0, padded(put), 16),
        ];
        for (design, get_sent, get_read, get_answered, put_sent, put_answered) in rows {
            let mut world = world(design, bytes, 8);
            let put = run(&mut world, bytes, false);
            let sums = (put.client.bytes_sent, put.client.bytes_read, put.server.bytes_sent);
            assert_eq!(sums, (put_sent * ITEMS, 0, put_answered * ITEMS), "{design} {bytes} PUT");
            let get = run(&mut world, bytes, true);
            let sums = (get.client.bytes_sent, get.client.bytes_read, get.server.bytes_sent);
            let (read, answered) = (get_read as u64 * ITEMS, get_answered as u64 * ITEMS);
            assert_eq!(sums, (get_sent * ITEMS, read, answered), "{design} {bytes} GET");
        }
    }
}

#[test]
fn a_miss_is_looked_for_twice() {
    for (design, trips) in
        [(Design::Herd, 1), (Design::Send, 1), (Design::Farm, 2), (Design::FarmVar, 2)]
    {
        let end = world(design, 16, 1).get(b"nobody has put it");
        assert_eq!((end.result, end.trips), (Ok(Answer::Missing), trips), "{design}");
    }
    let end = world(Design::Pilaf, 16, 1).get(b"nobody has put it");
    assert_eq!((end.result, end.trips), (Ok(Answer::Missing), 6), "three places, twice");
}
