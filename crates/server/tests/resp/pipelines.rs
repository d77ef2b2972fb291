//! What is pipelined around a large value, by RESP: replies in front of it leave at once, those
//! behind it lend it their urgency, and a bulk of large values leaves small clients their share.

use laneway_policy::Form;
use laneway_rig::resp::{bulk, request, words};
use laneway_rig::{Plan, Rig, tail, value};
use laneway_server::shared::LaneCounts;

const LARGE: usize = 4 << 20;
const MEDIUM: usize = 1 << 20;

fn small() -> Vec<u8> {
    bulk(b"s")
}

/// A server with one small and one large value.
fn rig(plan: &Plan, large: usize, seed: u64) -> (Rig, Vec<u8>) {
    let mut rig = Rig::new(plan);
    let client = rig.net.connect();
    let big = value(large, seed);
    assert_eq!(rig.ask_resp(&client, &request(&[b"SET", b"big", &big]), 1), b"+OK\r\n");
    assert_eq!(rig.say_resp(&client, "SET small s"), "+OK\r\n");
    client.finish();
    rig.turns(8);
    (rig, bulk(&big))
}

fn sum(rig: &Rig, count: fn(&LaneCounts) -> u64) -> u64 {
    rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
}

fn slices(rig: &Rig) -> (u64, u64) {
    (sum(rig, |lanes| lanes.slices.get()), sum(rig, |lanes| lanes.slices_urgent.get()))
}

#[test]
fn replies_in_front_of_a_large_one_wait_for_none_of_its_slices() {
    for large in ["GET big", "MGET small big", "GETEX big EX 100"] {
        let (mut rig, _) = rig(&Plan::of(1, Form::TimeShare), LARGE, 1);
        let (other, mixed) = (rig.net.connect(), rig.net.connect());
        other.send(&words("GET big"));
        rig.turns(2);
        assert!(!other.receive(usize::MAX).is_empty(), "it has begun");
        // The other one has its run first, all of 4 MiB: its is the slice of this turn.
        let before = [words("GET small"), words("STRLEN small"), words(large)].concat();
        mixed.send(&before);
        rig.turn();
        let got = mixed.receive(usize::MAX);
        let wanted = [&small()[..], b":1\r\n"].concat();
        assert!(got.starts_with(&wanted), "{large}: {}", tail(&got));
        assert!(got.len() < 100, "{large}: nothing of the large value has come");
        assert!(!other.receive(usize::MAX).is_empty(), "a slice was moved, and that was not it");
    }
}

#[test]
fn requests_behind_a_large_reply_lend_it_their_urgency() {
    for (behind, urgent) in [("GET small", true), ("PING", true), ("", false)] {
        let (mut rig, big) = rig(&Plan::of(1, Form::TimeShare), MEDIUM, 2);
        let client = rig.net.connect();
        let behind = if behind.is_empty() { Vec::new() } else { words(behind) };
        client.send(&[words("GET big"), behind].concat());
        let before = slices(&rig);
        let mut got = Vec::new();
        while got.len() < big.len() {
            rig.turn();
            got.extend(client.receive(usize::MAX));
        }
        assert!(got.starts_with(&big), "{}", tail(&got));
        let after = slices(&rig);
        let (all, of_them) = (after.0 - before.0, after.1 - before.1);
        assert!(all >= 32 && of_them == if urgent { all } else { 0 }, "{of_them} of {all}");
    }
}

/// The keys that are left of an `MGET` are the same request, and what comes out of `EXEC` behind a
/// large reply is another one, though both were received before.
#[test]
fn the_rest_of_a_transaction_is_behind_a_large_reply_and_the_rest_of_an_mget_is_not() {
    for (asked, is_urgent) in [
        (&["MGET big small big"][..], false),
        (&["MGET big small", "PING"], true),
        (&["MULTI", "GET big", "GET small", "EXEC"], true),
        (&["MULTI", "GET small", "GET big", "EXEC"], false),
        (&["MULTI", "MGET big small", "EXEC"], false),
        (&["MULTI", "MGET big small", "PING", "EXEC"], true),
        (&["MULTI", "GET small", "MGET small big", "EXEC", "PING"], true),
    ] {
        let (mut rig, _) = rig(&Plan::of(1, Form::TimeShare), MEDIUM, 12);
        let client = rig.net.connect();
        let requests: Vec<u8> = asked.iter().flat_map(|line| words(line)).collect();
        let before = slices(&rig);
        rig.ask_resp(&client, &requests, asked.len());
        let after = slices(&rig);
        let (all, urgent) = (after.0 - before.0, after.1 - before.1);
        let wanted = if is_urgent { all } else { 0 };
        assert!(all >= 32 && urgent == wanted, "{asked:?}: {urgent} of {all}");
    }
}

/// A large value that arrives in the middle of a pipeline is urgent to its last slice; one whose
/// client sends nothing else is not, whatever pairs of its `MSET` stand before it.
#[test]
fn a_value_that_arrives_is_urgent_where_its_client_pipelines() {
    let value = value(MEDIUM, 10);
    let alone = request(&[b"SET", b"big", &value, b"EX", b"100"]);
    let behind_pairs = request(&[b"MSET", b"a", b"1", b"b", b"2", b"big", &value]);
    let stores = [&alone, &behind_pairs];
    for plan in [Plan::of(1, Form::TimeShare), Plan::of(6, Form::Roles)] {
        for (pipelines, big) in [true, false].into_iter().flat_map(|one| stores.map(|b| (one, b))) {
            let mut rig = Rig::new(&plan);
            let client = rig.net.connect();
            rig.say_resp(&client, "SET small s");
            let beside = if pipelines { words("GET small") } else { Vec::new() };
            let sent = [&beside[..], big, &beside].concat();
            let (mut at, mut got) = (0, Vec::new());
            while at < sent.len() {
                at += client.send(&sent[at..]);
                rig.turn();
                got.extend(client.receive(usize::MAX));
            }
            let small = if pipelines { small() } else { Vec::new() };
            let wanted = [&small[..], b"+OK\r\n", &small].concat();
            let got = rig.until(&client, got, |got| got.len() >= wanted.len());
            assert_eq!(got, wanted, "{}", plan.what());
            let (all, urgent) = slices(&rig);
            let expected = if pipelines { all } else { 0 };
            assert!(all > 8 && urgent == expected, "{}: {urgent} of {all}", plan.what());
        }
    }
}

/// Slices, and urgent ones among them, until 64 clients with a small request each are answered
/// while others ask for large values by `request`.
fn slices_beside_a_bulk(bulk: usize, request: &[u8]) -> (u64, u64) {
    let (mut rig, _) = rig(&Plan::of(1, Form::TimeShare), LARGE, 11);
    let bulk: Vec<_> = (0..bulk).map(|_| rig.net.connect()).collect();
    let crowd: Vec<_> = (0..64).map(|_| rig.net.connect()).collect();
    rig.turns(16);
    let turn = |rig: &mut Rig| {
        rig.turn();
        bulk.iter().for_each(|client| drop(client.receive(usize::MAX)));
    };
    for client in &bulk {
        client.send(request);
    }
    (0..40).for_each(|_| turn(&mut rig));
    let before = slices(&rig);
    for client in &crowd {
        client.send(&words("GET small"));
    }
    let mut left: Vec<_> = crowd.iter().collect();
    while !left.is_empty() {
        turn(&mut rig);
        left.retain(|client| client.receive(usize::MAX).is_empty());
    }
    let after = slices(&rig);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_bulk_of_large_values_leaves_small_clients_half_of_their_share() {
    for bulk in [1, 8] {
        let (slices, urgent) = slices_beside_a_bulk(bulk, &words("GET big"));
        assert!(slices >= 8 && urgent == 0, "{bulk} bulk clients: {urgent} of {slices}");
        let (pipelined, urgent) = slices_beside_a_bulk(bulk, &words("GET big").repeat(4));
        assert!(pipelined <= 2 * slices, "{bulk} bulk clients: {pipelined}, {slices} of plain");
        assert_eq!(urgent, pipelined, "{bulk} bulk clients");
        let (slices, urgent) = slices_beside_a_bulk(bulk, &words("MGET big big big big"));
        assert!(slices >= 8 && urgent == 0, "{bulk} bulk clients: {urgent} of {slices}");
    }
}
