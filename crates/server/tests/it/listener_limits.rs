//! All who come by one listener have together what its limits say, and who comes by another one
//! does not notice.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_server::access::client_limits::{Limited, Rates};
use laneway_server::shared::Phase;
use laneway_transport::memory::Client;
use rig::{Plan, Rig, STEP_NANOS, tail, value};

const SECOND: u64 = 1_000_000_000;
/// Turns of a millisecond.
const MILLI: usize = 1_000_000 / STEP_NANOS as usize;

fn limited(workers: usize, rates: Rates) -> Rig {
    Rig::new(&Plan { listener_rates: rates, ..Plan::of(workers, Form::TimeShare) })
}

/// How many replies to `mn` a client has received now.
fn count(client: &Client) -> usize {
    let got = client.receive(usize::MAX);
    assert!(got.chunks(4).all(|reply| reply == b"MN\r\n"), "{}", tail(&got));
    got.len() / 4
}

/// Connections of as many addresses, each of which has sent a thousand requests.
fn flood(rig: &Rig, connections: usize) -> Vec<Client> {
    let connect = |number: usize| rig.net.connect_from(&format!("tcp:10.0.1.{number}:5000"));
    let all: Vec<Client> = (0..connections).map(connect).collect();
    for client in &all {
        let requests = b"mn\r\n".repeat(1_000);
        assert_eq!(client.send(&requests), requests.len());
    }
    all
}

#[test]
fn who_comes_by_a_listener_shares_its_rate_and_who_comes_by_another_does_not_notice() {
    for (workers, connections) in [(1, 1), (1, 8), (2, 2), (2, 40)] {
        let mut rig = limited(workers, Rates::new(1_000, 0));
        let noisy = flood(&rig, connections);
        let quiet = rig.net.connect_at(1);
        let mut answered = 0;
        for milli in 0..200 {
            rig.turns(MILLI);
            answered += noisy.iter().map(count).sum::<usize>();
            if milli % 10 == 0 {
                let before = rig.steps;
                assert_eq!(rig.ask(&quiet, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
                assert!(rig.steps - before <= 4, "it took {} turns", rig.steps - before);
            }
        }
        // 101 at once, one each millisecond, and those of the turns in which the quiet one asked.
        assert!((299..=306).contains(&answered), "{answered} by {connections}, {workers} workers");
        let totals = rig.shared.watch(0).totals;
        assert!(totals.listener_holds > 100 && totals.listener_held_nanos > SECOND / 10);
        assert_eq!((totals.client_holds, totals.client_held_nanos), (0, 0));
    }
}

#[test]
fn who_is_over_the_limit_of_his_address_leaves_others_the_rest_of_the_listeners() {
    let mut rig = limited(1, Rates::new(1_000, 0));
    rig.shared.answer_client_limit(Limited::Requests, 200);
    rig.turn();
    // Ten addresses; the first one has five connections.
    let all = flood(&rig, 10);
    let more: Vec<Client> = (0..4).map(|_| rig.net.connect_from("tcp:10.0.1.0:6000")).collect();
    more.iter().for_each(|client| assert_eq!(client.send(&b"mn\r\n".repeat(1_000)), 4_000));
    rig.turns(300 * MILLI);
    let mut answered: Vec<usize> = all.iter().map(count).collect();
    answered[0] += more.iter().map(count).sum::<usize>();
    // The burst and the rate of the listener; of an address 21 and one each 5 ms, and of each of
    // its connections one more at most, which it owes.
    assert!((396..=410).contains(&answered.iter().sum::<usize>()), "{answered:?}");
    assert!(answered.iter().all(|of_one| (15..=87).contains(of_one)), "{answered:?}");
}

#[test]
fn who_shares_his_address_and_his_listener_with_different_others_is_served() {
    let mut rig = limited(1, Rates::new(1_000, 0));
    rig.shared.answer_client_limit(Limited::Requests, 250);
    rig.turn();
    // Others use up the listener, and one who comes by another listener the address: what either
    // has left again, it never has at the same moment.
    let others = flood(&rig, 5);
    rig.turns(MILLI / 2);
    let [beside, both] = [rig.net.connect_at(1), rig.net.connect()];
    for client in [&beside, &both] {
        assert_eq!(client.send(&b"mn\r\n".repeat(1_000)), 4_000);
    }
    rig.turns(400 * MILLI);
    let answered = [&beside, &both].map(count);
    // The burst of the address and its rate, and of a turn that it owes.
    assert!((124..=130).contains(&(answered[0] + answered[1])), "{answered:?}");
    assert!(answered[1] >= 15, "{answered:?}");
    let by_listener = answered[1] + others.iter().map(count).sum::<usize>();
    assert!((495..=508).contains(&by_listener), "{by_listener}");
}

#[test]
fn a_limit_of_addresses_that_ends_leaves_the_listeners() {
    let mut rig = limited(1, Rates::new(1_000, 0));
    rig.shared.answer_client_limit(Limited::Requests, 1);
    rig.turn();
    let all = flood(&rig, 4);
    rig.turns(10 * MILLI);
    assert_eq!(all.iter().map(count).sum::<usize>(), 4, "each of them one");
    rig.shared.answer_client_limit(Limited::Requests, 0);
    rig.turns(100 * MILLI);
    let answered: usize = all.iter().map(count).sum();
    assert!((195..=206).contains(&answered), "{answered}");
}

#[test]
fn small_requests_of_a_listener_are_served_beside_its_large_values() {
    const LARGE: usize = 1 << 20;
    let mut rig = limited(1, Rates::new(0, 10_000_000));
    let [noisy, beside] =
        [1, 2].map(|number| rig.net.connect_from(&format!("tcp:10.0.2.{number}:5")));
    let big = value(LARGE, 1);
    rig.set(&noisy, "big", &big);
    rig.set(&beside, "small", b"x");
    rig.turns(300 * MILLI);
    noisy.send(&b"get big\r\n".repeat(4));
    let mut got = 0;
    for milli in 0..100 {
        for _ in 0..MILLI {
            rig.turn();
            got += noisy.receive(usize::MAX).len();
        }
        if milli % 5 == 0 {
            let before = rig.steps;
            let reply = rig.ask(&beside, b"get small\r\n", b"END\r\n");
            assert_eq!(reply, b"VALUE small 0 1\r\nx\r\nEND\r\n");
            let turns = rig.steps - before;
            assert!(turns <= 8, "a small request took {turns} turns");
        }
    }
    // Half of the burst, and a tenth of a second.
    assert!((1_300_000..1_620_000).contains(&got), "{got} bytes");
}

#[test]
fn who_does_not_say_who_he_is_takes_nothing_of_his_listeners() {
    let listener_rates = Rates::new(0, 1_000);
    let plan = Plan { users: Some("u:p\n"), listener_rates, ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    // Empty lines are not answered, and the last of sixteen refused requests ends it.
    let stranger = rig.net.connect_from("tcp:10.0.1.1:5000");
    stranger.send(&b"\r\n".repeat(1_000));
    rig.turns(10);
    stranger.send(&b"get k\r\n".repeat(16));
    rig.turns(10);
    assert!(stranger.ended());
    let user = rig.net.connect_from("tcp:10.0.1.2:5000");
    assert_eq!(rig.ask(&user, b"set k 0 0 3\r\nu p\r\n", b"\r\n"), b"STORED\r\n");
    let before = rig.steps;
    assert_eq!(rig.ask(&user, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    assert!(rig.steps - before <= 4, "it took {} turns", rig.steps - before);
}

#[test]
fn a_server_that_stops_waits_for_no_listeners_limit() {
    let mut rig = limited(1, Rates::new(1, 0));
    let all: Vec<Client> = (0..5).map(|_| rig.net.connect()).collect();
    all.iter().for_each(|client| assert_eq!(client.send(&b"mn\r\n".repeat(100)), 400));
    rig.turns(20);
    rig.shared.enter_phase(Phase::Draining);
    rig.turns(40);
    assert!(rig.shared.is_drained(), "nobody is left waiting");
    assert!(all.iter().all(Client::ended));
    assert_eq!(all.iter().map(count).sum::<usize>(), 100, "those that had been received");
}
