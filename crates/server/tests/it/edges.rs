//! Readiness is told once: what a connection has left to read or to say is served without another
//! event.

use laneway_rig as rig;

use laneway_server::stream::step::READ_BYTES;
use laneway_transport::memory::{Client, Faults};
use rig::{Plan, Rig, hit, plans, tail, value};

const SMALL: usize = 500;
/// Of the large lane.
const LARGE: usize = 70_000;

fn filled(plan: Plan) -> (Rig, Client) {
    let faults = Faults { pipe_bytes: 4 << 20, ..plan.faults };
    let mut rig = Rig::new(&Plan { faults, ..plan });
    let client = rig.net.connect();
    rig.set(&client, "small", &value(SMALL, 1));
    rig.set(&client, "large", &value(LARGE, 2));
    (rig, client)
}

/// Requests of `bytes` in all, at least, and their replies.
fn requests(bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut asked, mut wanted) = (Vec::new(), Vec::new());
    while asked.len() < bytes {
        for _ in 0..50 {
            asked.extend_from_slice(b"mn\r\n");
            wanted.extend_from_slice(b"MN\r\n");
        }
        asked.extend_from_slice(b"get small large none\r\nset small 0 0 500\r\n");
        asked.extend_from_slice(&value(SMALL, 1));
        asked.extend_from_slice(b"\r\n");
        wanted.extend_from_slice(&hit("small", &value(SMALL, 1)));
        wanted.extend_from_slice(&hit("large", &value(LARGE, 2)));
        wanted.extend_from_slice(b"END\r\nSTORED\r\n");
    }
    (asked, wanted)
}

/// Turn until the server has closed its end.
fn closes(rig: &mut Rig, client: &Client, what: &str) {
    for _ in 0..100_000 {
        if client.ended() {
            return;
        }
        rig.turn();
    }
    panic!("the connection stays open: {what}");
}

#[test]
fn all_that_came_before_the_first_poll_is_answered() {
    // Reads that end where a buffer does, a byte before and behind.
    for extra in [0, 1, 2 * READ_BYTES - 1, 2 * READ_BYTES, 2 * READ_BYTES + 1, 5 * READ_BYTES] {
        for plan in plans() {
            let what = format!("{extra} and {}", plan.what());
            let (mut rig, client) = filled(plan);
            let mut asked = b"mn\r\n".repeat(extra / 4);
            asked.extend(b" ".repeat(extra % 4)); // before the last one's name
            asked.extend(b"mn\r\n");
            assert_eq!(client.send(&asked), asked.len());
            let wanted = b"MN\r\n".repeat(extra / 4 + 1);
            let got = rig.until(&client, Vec::new(), |got| got.len() >= wanted.len());
            assert!(got == wanted, "{what}: {}", tail(&got));
            // And so is what comes later.
            rig.turns(3);
            assert_eq!(rig.ask(&client, b"mn\r\n", b"\r\n"), b"MN\r\n", "{what}");
        }
    }
}

#[test]
fn who_says_no_more_gets_all_replies_before_the_end() {
    for (number, plan) in plans().into_iter().enumerate() {
        let what = plan.what();
        let seed = number as u64;
        let cut = Faults { seed, short: 70, refuse: 70, reset: 0, pipe_bytes: 0 };
        for faults in [Faults::NONE, cut] {
            for bytes in [1, 3 * READ_BYTES] {
                let (mut rig, client) = filled(Plan { faults, ..plan.clone() });
                let (asked, wanted) = requests(bytes);
                assert_eq!(client.send(&asked), asked.len());
                client.finish();
                let mut got = Vec::new();
                for _ in 0..1_000_000 {
                    got.extend(client.receive(usize::MAX));
                    if got.len() >= wanted.len() || client.ended() {
                        break;
                    }
                    rig.turn();
                }
                got.extend(client.receive(usize::MAX));
                assert!(got == wanted, "{bytes}, {what}: {} bytes, {}", got.len(), tail(&got));
                closes(&mut rig, &client, &what);
                assert_eq!(client.receive(usize::MAX), b"", "{what}");
            }
        }
    }
}

#[test]
fn an_end_behind_the_last_reply_closes_the_connection() {
    for plan in plans() {
        let what = plan.what();
        let (mut rig, client) = filled(plan);
        for key in ["small", "large"] {
            rig.ask(&client, format!("get {key}\r\n").as_bytes(), b"END\r\n");
        }
        client.finish();
        closes(&mut rig, &client, &what);
    }
}

#[test]
fn a_connection_with_much_to_read_lets_others_in_between() {
    for plan in plans() {
        let what = plan.what();
        let (mut rig, client) = filled(plan);
        let other = rig.net.connect();
        rig.ask(&other, b"mn\r\n", b"\r\n");
        let asked = b"mn\r\n".repeat(64 * READ_BYTES / 4);
        assert_eq!(client.send(&asked), asked.len());
        let (mut got, mut between) = (0, 0);
        while got < asked.len() {
            other.send(b"mn\r\n");
            rig.turns(2);
            between += usize::from(other.receive(10) == b"MN\r\n");
            got += client.receive(usize::MAX).len();
        }
        assert!(between > 50, "{between} others were served, {what}");
    }
}

#[test]
fn a_reader_that_stops_and_goes_on_gets_everything() {
    for plan in plans() {
        let what = plan.what();
        let (_, wanted) = requests(2 * READ_BYTES);
        let (asked, _) = requests(2 * READ_BYTES);
        let faults = Faults { pipe_bytes: 30_000, ..Faults::NONE };
        let mut rig = Rig::new(&Plan { faults, ..plan });
        let client = rig.net.connect();
        rig.set(&client, "small", &value(SMALL, 1));
        rig.set(&client, "large", &value(LARGE, 2));
        let (mut sent, mut got) = (0, Vec::new());
        for round in 0..100_000 {
            sent += client.send(&asked[sent..]);
            rig.turns(20);
            // Little at a time, and nothing for a while.
            got.extend(client.receive(if round % 5 == 0 { 0 } else { 7_001 }));
            if got.len() == wanted.len() {
                break;
            }
        }
        assert!(got == wanted, "{what}: {} bytes, {}", got.len(), tail(&got));
    }
}
