//! A `get` of many keys is answered, and counted, as its keys alone would be.

use laneway_rig as rig;

use laneway_policy::{Design, Form};
use laneway_server::counts::counters::Totals;
use laneway_server::latency::ROWS;
use laneway_server::latency::histogram::Reading;
use laneway_transport::memory::{Client, Faults};
use rig::{Plan, Rig, tail, value};

/// Sizes of values: none, small, several to a reply buffer, in pieces, and of the large lane.
const SIZES: [usize; 8] = [0, 1, 100, 101, 900, 6_000, 20_000, 70_000];

fn key(number: usize) -> String {
    let long = if number.is_multiple_of(17) { 200 } else { 0 };
    format!("key{number}{}", "x".repeat(long))
}

/// Every third key is a miss, some have flags, and some have expired since.
fn filled(plan: &Plan) -> (Rig, Client) {
    let mut rig = Rig::new(plan);
    let client = rig.net.connect();
    for number in (0..60).filter(|number| number % 3 > 0) {
        let value = value(SIZES[number % SIZES.len()], number as u64);
        let (flags, exptime) = (number % 4 * 1_000, if number % 11 == 0 { 1 } else { 0 });
        let line = format!("set {} {flags} {exptime} {}\r\n", key(number), value.len());
        let request = [line.as_bytes(), &value, b"\r\n"].concat();
        assert_eq!(rig.ask(&client, &request, b"\r\n"), b"STORED\r\n");
    }
    rig.clock.advance(5_000_000_000);
    (rig, client)
}

fn draws(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    }
}

/// Faults that cut what is read and written.
fn cut(seed: u64) -> Faults {
    Faults { seed, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 }
}

#[test]
fn many_keys_are_answered_as_each_alone_would_be() {
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let faults = if number % 2 == 0 { Faults::NONE } else { cut(number as u64) };
        let plan = Plan { faults, memory_bytes: 256 << 20, ..plan };
        let (mut rig, client) = filled(&plan);
        let mut draw = draws(number as u64);
        for round in 0..12 {
            let verb = ["get", "gets"][draw(2)];
            let keys: Vec<String> = (0..1 + draw(90)).map(|_| key(draw(60))).collect();
            let mut wanted = Vec::new();
            for key in &keys {
                let alone = rig.ask(&client, format!("{verb} {key}\r\n").as_bytes(), b"END\r\n");
                wanted.extend_from_slice(alone.strip_suffix(b"END\r\n").expect("its end"));
            }
            wanted.extend_from_slice(b"END\r\nMN\r\n");
            let spaces = " ".repeat(1 + draw(3));
            let line = format!("{verb}{spaces}{}{spaces}\r\nmn\r\n", keys.join(&spaces));
            let got = rig.ask(&client, line.as_bytes(), b"MN\r\n");
            let what = plan.what();
            assert!(got == wanted, "round {round}, {what}: {} of {line}", tail(&got));
        }
    }
}

#[test]
fn a_pipeline_of_gets_is_answered_as_each_alone_would_be() {
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let faults = if number % 2 == 0 { Faults::NONE } else { cut(number as u64) };
        let plan = Plan { faults, memory_bytes: 256 << 20, ..plan };
        let (mut rig, client) = filled(&plan);
        let mut draw = draws(number as u64);
        for round in 0..8 {
            // Both times `other` begins as the same.
            let begin = "set other 0 0 1\r\nb\r\n";
            rig.ask(&client, begin.as_bytes(), b"STORED\r\n");
            let (mut requests, mut wanted) = (begin.to_owned(), b"STORED\r\n".to_vec());
            for _ in 0..1 + draw(150) {
                let spaces = " ".repeat(1 + draw(2));
                // Mostly one key; what stands between them ends what is read together.
                let line = match draw(24) {
                    0 => format!("get {} {}{spaces}\r\n", key(draw(60)), key(draw(60))),
                    1 => format!("gat 0 {}\r\n", key(draw(60))),
                    2 => format!("get {}\r\n", "k".repeat(251)),
                    3 => format!("set other 0 0 3\r\n{:03}\r\n", draw(1_000)),
                    4 => "get other\n".to_owned(),
                    5 => "get\r\n".to_owned(),
                    6..11 => format!("gets{spaces}{}\r\n", key(draw(60))),
                    _ => format!("get{spaces}{}{spaces}\r\n", key(draw(60))),
                };
                let alone = rig.ask(&client, format!("{line}mn\r\n").as_bytes(), b"MN\r\n");
                wanted.extend_from_slice(alone.strip_suffix(b"MN\r\n").expect("its end"));
                requests.push_str(&line);
            }
            let got = rig.ask(&client, format!("{requests}mn\r\n").as_bytes(), b"MN\r\n");
            wanted.extend_from_slice(b"MN\r\n");
            let what = plan.what();
            assert!(got == wanted, "round {round}, {what}: {} of {requests}", tail(&got));
        }
    }
}

#[test]
fn a_pipeline_of_meta_gets_is_answered_as_each_alone_would_be() {
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let faults = if number % 2 == 0 { Faults::NONE } else { cut(number as u64) };
        let plan = Plan { faults, memory_bytes: 256 << 20, ..plan };
        let (mut rig, client) = filled(&plan);
        let mut draw = draws(number as u64);
        // All are fetched (`h`), and their ids known (`C`).
        let id = |key: String| {
            let told = rig.ask(&client, format!("mg {key} c\r\nmn\r\n").as_bytes(), b"MN\r\n");
            let told = String::from_utf8(told).expect("text");
            let id = told.strip_prefix("HD c").and_then(|rest| rest.split('\r').next());
            id.unwrap_or("1").to_owned()
        };
        let ids: Vec<String> = (0..60).map(key).map(id).collect();
        for round in 0..8 {
            // Both times `other` begins as the same.
            let begin = "set other 5 0 1\r\nb\r\n";
            rig.ask(&client, begin.as_bytes(), b"STORED\r\n");
            let (mut requests, mut wanted) = (begin.to_owned(), b"STORED\r\n".to_vec());
            for _ in 0..1 + draw(150) {
                let number = draw(60);
                let any = key(number);
                let line = match draw(24) {
                    0 => "md other I T30\r\n".to_owned(),
                    1..4 => "mg other v s\r\n".to_owned(), // stale, it has a token to win
                    4 => format!("mg {any}\r\n"),
                    5 => format!("mg {any} T0 v\r\n"),
                    6 => format!("mg {any} v v\r\n"),
                    7 => format!("mg {} v\r\n", "k".repeat(251)),
                    8 => "mg b3RoZXI= b k v\r\n".to_owned(),
                    9 => format!("get {any}\r\n"),
                    10 => "mg other v\n".to_owned(),
                    11 => "ms other 3 I\r\nnew\r\n".to_owned(),
                    12 => format!("mg {any} v C{}\r\n", ids[number]),
                    13 => format!("mg  {any}  v\r\n"),
                    14..17 => format!("mg {any} q v k\r\n"),
                    17..20 => format!("mg {any} f c t s Oopaque k h l v\r\n"),
                    _ => format!("mg {any} v\r\n"),
                };
                let alone = rig.ask(&client, format!("{line}mn\r\n").as_bytes(), b"MN\r\n");
                wanted.extend_from_slice(alone.strip_suffix(b"MN\r\n").expect("its end"));
                requests.push_str(&line);
            }
            let got = rig.ask(&client, format!("{requests}mn\r\n").as_bytes(), b"MN\r\n");
            wanted.extend_from_slice(b"MN\r\n");
            let what = plan.what();
            assert!(got == wanted, "round {round}, {what}: {} of {requests}", tail(&got));
        }
    }
}

#[test]
fn many_keys_are_counted_as_each_alone_would_be() {
    for design in [Design::Lanes, Design::Hkh] {
        let plan = Plan::of(1, Form::TimeShare);
        let plan = Plan { design, memory_bytes: 256 << 20, ..plan };
        // With something between them all keys are asked for at once.
        let counted = |(first, last, end): (&str, &str, &str), glue: Option<&str>| {
            let (mut rig, client) = filled(&plan);
            let keys: Vec<String> = (0..60).chain(20..50).map(key).collect();
            let before = rig.shared.board.totals();
            let mut requests = "mn\r\n".to_owned();
            match glue {
                Some(glue) => {
                    requests = format!("{first}{}{last}\r\nmn\r\n", keys.join(glue));
                }
                None => keys.iter().for_each(|key| {
                    let line = format!("{first}{key}{last}\r\n");
                    rig.ask(&client, line.as_bytes(), end.as_bytes());
                }),
            }
            rig.ask(&client, requests.as_bytes(), b"MN\r\n");
            let worker = &rig.shared.workers[0];
            let lanes = &worker.lanes;
            let sizes: Vec<u64> = worker.sizes.iter().map(|count| count.get()).collect();
            let lanes = [&lanes.requests_small, &lanes.requests_large, &lanes.packets];
            let lanes = lanes.map(|count| count.get());
            let mut rows = vec![Reading::default(); ROWS];
            worker.book.read_whole_into(&mut rows);
            let rows: Vec<u64> = rows.iter().map(Reading::count).collect();
            let since = rig.shared.board.totals().since(&before);
            let Totals { cmd_get, get_hits, get_misses, cmd_meta, .. } = since;
            (lanes, sizes, rows, [cmd_get, get_hits, get_misses, cmd_meta])
        };
        let get = ("get ", "", "END\r\n");
        let alone = counted(get, None);
        for (what, glue) in [("one line", " "), ("a pipeline", "\r\nget ")] {
            assert_eq!(counted(get, Some(glue)), alone, "{what}, {design}");
        }
        let meta = ("mg ", " v", "\r\n");
        let (alone, row) = (counted(meta, None), counted(meta, Some(" v\r\nmg ")));
        assert_eq!(row, alone, "a pipeline of mg, {design}");
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_wherever_it_stands() {
    let (mut rig, client) = filled(&Plan::of(1, Form::TimeShare));
    let refused = b"CLIENT_ERROR bad command line format\r\n";
    let (longest, too_long) = ("l".repeat(250), "l".repeat(251));
    for at in [0, 1, 30, 31, 32, 60] {
        let mut keys: Vec<String> = (0..60).map(|number| key(number * 3)).collect();
        keys.insert(at, longest.clone());
        let line = |keys: &[String]| format!("get {}\r\n", keys.join(" "));
        assert_eq!(rig.ask(&client, line(&keys).as_bytes(), b"\r\n"), b"END\r\n", "at {at}");
        keys[at] = too_long.clone();
        assert_eq!(rig.ask(&client, line(&keys).as_bytes(), b"\r\n"), refused, "at {at}");
    }
}

/// A connection that visits a large worker goes home after four small requests in a row; a large
/// one between them begins the count anew, also where all of them are looked up together.
#[test]
fn a_visitor_with_a_large_request_behind_each_four_small_ones_stays() {
    let mut rig = Rig::new(&Plan::of(6, Form::Roles));
    let client = rig.net.connect();
    rig.set(&client, "big", &value(60_000, 4));
    rig.set(&client, "small", b"s");
    rig.turns(50);
    let moves = |rig: &Rig| -> u64 {
        rig.shared.workers.iter().map(|worker| worker.lanes.moved_to_large.get()).sum()
    };
    let before = moves(&rig);
    let group = format!("{}get big\r\n", "get small\r\n".repeat(4));
    let requests = format!("get big\r\n{}mn\r\n", group.repeat(10));
    rig.ask(&client, requests.as_bytes(), b"MN\r\n");
    assert_eq!(moves(&rig) - before, 1);
}
