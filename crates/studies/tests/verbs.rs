//! `laneway bench verbs`: counts of every design, and closed loops whose values are all right.
#![allow(clippy::unwrap_used)]

use laneway_studies::verbs::{self, Counted, Posts, Report, Timed};

/// A thread that has no CPU for a whole window sees nothing in it.
const TRIES: usize = 200;

fn report(line: &str) -> Report {
    let words = line.split_ascii_whitespace().map(Into::into).collect();
    let options = verbs::parse(words).unwrap().expect("no help was asked for");
    verbs::run(&options).unwrap()
}

fn posts(write: u32, send: u32, recv: u32, read: u32) -> Posts {
    Posts { write: write.into(), send: send.into(), recv: recv.into(), read: read.into() }
}

/// Round trips, what each side posts, and what the server's card has to do with.
fn costs(row: &Counted) -> (f64, Posts, Posts, f64) {
    (row.round_trips, row.client, row.server, row.server_card)
}

#[test]
fn every_design_is_counted_at_every_length_and_window() {
    let report = report("--keys 600 --value-bytes 16,100,1024 --window 1,8,32");
    assert_eq!(report.counted.len(), 5 * 2 * 3 * 3);
    assert!(report.timed.is_empty() && report.is_good());
    let none = Posts::default();
    for row in &report.counted {
        let expected = match (row.design.as_str(), row.operation.as_str()) {
            ("herd", _) => (1.0, posts(1, 0, 1, 0), posts(0, 1, 0, 0), 2.0),
            ("send", _) | ("pilaf", "PUT") => (1.0, posts(0, 1, 1, 0), posts(0, 1, 1, 0), 2.0),
            ("farm", "GET") => (1.0, posts(0, 0, 0, 1), none, 1.0),
            ("farm-var", "GET") => (2.0, posts(0, 0, 0, 2), none, 2.0),
            ("farm" | "farm-var", "PUT") => (1.0, posts(1, 0, 0, 0), posts(1, 0, 0, 0), 2.0),
            ("pilaf", "GET") => {
                let read = row.client.read;
                assert!((2.4..2.8).contains(&read), "{row:?}");
                (read, Posts { read, ..none }, none, read)
            }
            other => panic!("nobody asked for {other:?}"),
        };
        assert_eq!((costs(row), row.torn, row.requests), (expected, 0, 600), "{row:?}");
    }
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap().counted.len(), 90);
}

#[test]
fn a_closed_loop_of_any_design_has_only_right_values() {
    for design in ["herd", "send", "pilaf", "farm", "farm-var"] {
        let line = format!(
            "--designs {design} --closed --duration 0.05 --warmup 0.01 --keys 300 --window 7 \
             --get-share 0.5 --value-bytes 64"
        );
        // What must hold of each is asserted; one whose threads had no turn in time shows nothing.
        let one = || -> Option<Timed> {
            let mut report = report(&line);
            assert!(report.is_good(), "{:?}", report.timed);
            Some(report.timed.remove(0)).filter(|timed| timed.counted.requests > 100)
        };
        let timed = std::iter::repeat_with(one).take(TRIES).find_map(|shown| shown);
        let timed = timed.expect("one of many tries shows something");
        let row = &timed.counted;
        let is_message = matches!(design, "herd" | "send");
        assert_eq!(is_message, row.round_trips == 1.0 && row.client.read == 0.0, "{timed:?}");
        assert!(is_message || row.client.read > 0.2 && row.server.sum() < 1.5, "{timed:?}");
    }
}

#[test]
fn rounds_turn_round_and_each_is_told() {
    let line = "--designs herd,farm --closed --duration 0.01 --warmup 0 --keys 50 --rounds 3";
    let report = report(line);
    let order: Vec<(usize, &str)> =
        report.timed.iter().map(|timed| (timed.round, timed.counted.design.as_str())).collect();
    let expected = [(0, "herd"), (0, "farm"), (1, "farm"), (1, "herd"), (2, "herd"), (2, "farm")];
    assert_eq!(order, expected);
}

#[test]
fn a_door_that_is_not_there_is_named() {
    let words = ["--shm", "/no/such/door", "--keys", "1"].map(Into::into).to_vec();
    let options = verbs::parse(words).unwrap().expect("no help was asked for");
    let said = verbs::run(&options).unwrap_err();
    assert!(said.contains("--shm /no/such/door: "), "{said}");
}
